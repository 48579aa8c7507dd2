// Bits of keys as numbers of the same order, and back: negative ones come first and fall where their bits rise. This is the
// order `totalOrder` of IEEE 754.

fn ordered(bits: u32) -> u32 {
    return bits ^ select(0x80000000u, 0xffffffffu, bits >= 0x80000000u);
}

fn bits_of(number: u32) -> u32 {
    return number ^ select(0xffffffffu, 0x80000000u, number >= 0x80000000u);
}
