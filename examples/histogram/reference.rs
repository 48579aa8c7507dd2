//! The same on the host, to check the kernels against.

use image::RgbaImage;

/// How often each lightness occurs.
pub fn counts(image: &RgbaImage) -> [u32; 256] {
    let mut counts = [0; 256];
    for pixel in image.pixels() {
        counts[lightness(pixel.0)] += 1;
    }
    counts
}

/// The lightness that each lightness becomes.
pub fn tone(counts: &[u32; 256]) -> [u32; 256] {
    let total: u32 = counts.iter().sum();
    let first = counts.iter().copied().find(|&count| count > 0).unwrap_or(0);
    let range = (total - first).max(1);
    let shift = range.ilog2().saturating_sub(22);
    let mut sum = 0u32;
    counts.map(|count| {
        sum += count;
        let above = sum.saturating_sub(first);
        let rounded = 255 * (above >> shift) + (range >> (shift + 1));
        (rounded / (range >> shift).max(1)).min(255)
    })
}

/// Every pixel at the lightness that the table has for it.
pub fn equalize(image: &RgbaImage, tone: &[u32; 256]) -> RgbaImage {
    let mut result = image.clone();
    for pixel in result.pixels_mut() {
        let light = lightness(pixel.0);
        let step = tone[light] as i32 - light as i32;
        for channel in &mut pixel.0[..3] {
            *channel = (i32::from(*channel) + step).clamp(0, 255) as u8;
        }
    }
    result
}

fn lightness([red, green, blue, _]: [u8; 4]) -> usize {
    ((77 * u32::from(red) + 150 * u32::from(green) + 29 * u32::from(blue)) >> 8) as usize
}
