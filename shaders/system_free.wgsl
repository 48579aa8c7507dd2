// Turns of waiting invocations where adapters count none: behind shaders/system_live.wgsl.

fn tombolo_system_first_turn() -> u32 { return 0u; }

fn tombolo_system_turn(look: u32, waited: u32) -> u32 { return look + 1u; }
