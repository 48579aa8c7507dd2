// Bits of keys as numbers of the same order, and back: negative ones come first.

fn ordered(bits: u32) -> u32 { return bits ^ 0x80000000u; }
fn bits_of(number: u32) -> u32 { return number ^ 0x80000000u; }
