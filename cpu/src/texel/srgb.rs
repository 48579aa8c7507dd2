//! The transfer functions of sRGB (IEC 61966-2-1), for components of 8 bits.

use crate::math::double::Binary;
use std::sync::LazyLock;

/// A component as stored to its linear value, correctly rounded.
static LINEAR: LazyLock<[f32; 256]> = LazyLock::new(|| {
    std::array::from_fn(|stored| {
        let encoded = stored as f64 / 255.0;
        let linear = if encoded <= 0.04045 {
            encoded / 12.92
        } else {
            Binary::Pow.function()((encoded + 0.055) / 1.055, 2.4)
        };
        linear as f32
    })
});

/// The linear value of a stored component.
pub fn decode(stored: u8) -> f32 {
    LINEAR[usize::from(stored)]
}

/// The stored component that is nearest to a linear value; NaN gives 0.
pub fn encode(linear: f32) -> u8 {
    let linear = f64::from(if linear > 0.0 { linear.min(1.0) } else { 0.0 });
    let encoded = if linear <= 0.003_130_8 {
        linear * 12.92
    } else {
        1.055 * Binary::Pow.function()(linear, 1.0 / 2.4) - 0.055
    };
    (encoded * 255.0).round_ties_even() as u8
}
