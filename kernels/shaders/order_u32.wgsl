// Bits of keys as numbers of the same order, and back.

fn ordered(bits: u32) -> u32 { return bits; }
fn bits_of(number: u32) -> u32 { return number; }
