// Frames that are filled before a launch: behind shaders/system.wgsl.

// The first word of a page's frame: what the table says.
fn tombolo_system_place(frame: u32, page: u32, page_high: u32, word: u32, access: u32) -> u32 { return frame; }
