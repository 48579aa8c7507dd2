//! Formats with channels sharing a word of 32 bits in unequal parts.

/// A float of 5 exponent bits, no sign and `mantissa` bits: the channels of `Rg11b10Ufloat`.
pub fn decode_small_float(bits: u32, mantissa: u32) -> f32 {
    // The same layout as binary16 without the lowest bits, and f32 holds all such numbers.
    let exponent = bits >> mantissa;
    let fraction = bits & ((1 << mantissa) - 1);
    match exponent {
        0 => fraction as f32 * power_of_two(-14 - mantissa as i32),
        31 if fraction == 0 => f32::INFINITY,
        31 => f32::NAN,
        _ => f32::from_bits((exponent + 112) << 23 | fraction << (23 - mantissa)),
    }
}

/// The nearest small float, ties to even. Negative numbers give 0; too large finite numbers give the largest finite number;
/// infinity and NaN stay.
pub fn encode_small_float(x: f32, mantissa: u32) -> u32 {
    if x.is_nan() {
        return 31 << mantissa | 1 << (mantissa - 1);
    }
    if x <= 0.0 {
        return 0;
    }
    if x.is_infinite() {
        return 31 << mantissa;
    }
    let largest = (31 << mantissa) - 1;
    if x < power_of_two(-14) {
        // One step is 2^(−14 − mantissa); rounding up to the first normal number gives its bits.
        return (x * power_of_two(14 + mantissa as i32)).round_ties_even() as u32;
    }
    let dropped = 23 - mantissa;
    let bits = x.to_bits() - (112 << 23);
    let rounded = (bits + (1 << (dropped - 1)) - 1 + (bits >> dropped & 1)) >> dropped;
    rounded.min(largest)
}

/// `Rg11b10Ufloat`.
pub fn decode_rg11b10(word: u32) -> [f32; 3] {
    [
        decode_small_float(word & 0x7ff, 6),
        decode_small_float(word >> 11 & 0x7ff, 6),
        decode_small_float(word >> 22, 5),
    ]
}

/// `Rg11b10Ufloat`.
pub fn encode_rg11b10(color: [f32; 3]) -> u32 {
    encode_small_float(color[0], 6)
        | encode_small_float(color[1], 6) << 11
        | encode_small_float(color[2], 5) << 22
}

/// `Rgb9e5Ufloat`: three mantissas of 9 bits and one exponent.
pub fn decode_rgb9e5(word: u32) -> [f32; 3] {
    let scale = power_of_two((word >> 27) as i32 - 24);
    [0, 9, 18].map(|shift| (word >> shift & 0x1ff) as f32 * scale)
}

/// `Rgb9e5Ufloat`, as EXT_texture_shared_exponent defines it. Negative numbers and NaN give 0, large
/// ones the largest, 65408.
pub fn encode_rgb9e5(color: [f32; 3]) -> u32 {
    const LARGEST: f32 = 65408.0;
    let color = color.map(|x| if x > 0.0 { x.min(LARGEST) } else { 0.0 });
    let largest = color[0].max(color[1]).max(color[2]);
    // ⌊log₂⌋ of a normal number is the exponent; anything smaller has the least exponent.
    let exponent = ((largest.to_bits() >> 23) as i32 - 127).max(-16) + 1;
    let steps = |x: f32, exponent: i32| (x * power_of_two(9 - exponent) + 0.5).floor() as u32;
    let exponent = exponent + i32::from(steps(largest, exponent) == 512);
    let [red, green, blue] = color.map(|x| steps(x, exponent));
    red | green << 9 | blue << 18 | ((exponent + 15) as u32) << 27
}

/// 2 to a power, normal in f32.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}
