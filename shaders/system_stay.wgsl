// Frames that keep their pages until the launch ends: behind shaders/system_live.wgsl.

// What has been found stays where it is.
fn tombolo_system_takes(index: u32, found: u32, frame: u32, word: u32, access: u32) -> bool { return true; }
