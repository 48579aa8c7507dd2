//! The test picture: ridges behind ridges in the fog, so that hardly a pixel is dark or bright; and the chart of a
//! histogram.

use image::{Rgba, RgbaImage};

/// Size of the picture, in pixels.
pub const SIZE: [u32; 2] = [768, 512];

/// Height of a chart, in pixels.
const CHART: u32 = 96;

type Colour = [f32; 3];

/// Draws the picture, the same one every time.
pub fn foggy() -> RgbaImage {
    RgbaImage::from_fn(SIZE[0], SIZE[1], |x, y| {
        let at = [
            (x as f32 + 0.5) / SIZE[0] as f32,
            (y as f32 + 0.5) / SIZE[1] as f32,
        ];
        let grain = ((hash(x, y) % 3) as f32 - 1.0) / 255.0;
        // The fog takes most of the contrast: all of it lies between 0.40 and 0.66.
        let [r, g, b] = scene(at).map(|c| 0.40 + 0.26 * c + grain);
        Rgba([byte(r), byte(g), byte(b), 255])
    })
}

/// The colour at a place of the unit square, without the fog; y points down.
fn scene([x, y]: [f32; 2]) -> Colour {
    let mut colour = mix([0.98, 0.80, 0.55], [0.45, 0.62, 0.90], 1.0 - y * 1.6);
    let sun = ((x - 0.70) * 1.5).hypot(y - 0.24);
    colour = mix(colour, [1.0, 0.95, 0.75], 1.0 - smooth(0.05, 0.065, sun));
    colour = mix(
        colour,
        [1.0, 0.88, 0.62],
        0.5 * (1.0 - smooth(0.0, 0.35, sun)),
    );
    for ridge in 0..6 {
        let depth = ridge as f32;
        let far = [0.55, 0.60, 0.72];
        let near = [0.05, 0.13, 0.10];
        let crest = 0.34 + 0.105 * depth - height(x, depth);
        let body = mix(far, near, depth / 5.0);
        // Each ridge fades into the valley fog below it.
        let body = mix(
            body,
            far,
            smooth(crest, crest + 0.16, y) * (0.75 - 0.13 * depth),
        );
        colour = mix(colour, body, smooth(crest - 0.002, crest + 0.002, y));
    }
    colour
}

/// The height of a ridge above its foot.
fn height(x: f32, depth: f32) -> f32 {
    let wave = |rate: f32, phase: f32| (x * rate + phase + depth * 2.7).sin();
    let crags = (wave(61.0, 0.4) * wave(37.0, 1.9)).abs();
    0.055 * wave(4.3, 0.0) + 0.030 * wave(11.0, 1.3) + 0.012 * crags
}

fn smooth(from: f32, to: f32, value: f32) -> f32 {
    let t = ((value - from) / (to - from)).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

fn mix(a: Colour, b: Colour, t: f32) -> Colour {
    let t = t.clamp(0.0, 1.0);
    std::array::from_fn(|i| a[i] + (b[i] - a[i]) * t)
}

fn byte(value: f32) -> u8 {
    (value.clamp(0.0, 1.0) * 255.0).round() as u8
}

/// A number that looks random and depends on the place alone.
fn hash(x: u32, y: u32) -> u32 {
    let mut h = x.wrapping_mul(0x9e37_79b1) ^ y.wrapping_mul(0x85eb_ca77);
    h = (h ^ (h >> 15)).wrapping_mul(0x2c1b_3c6d);
    h ^ (h >> 13)
}

/// The picture with the chart of its histogram below.
pub fn with_chart(image: &RgbaImage, counts: &[u32; 256]) -> RgbaImage {
    let (width, height) = image.dimensions();
    let highest = counts.iter().copied().max().unwrap_or(0).max(1);
    RgbaImage::from_fn(width, height.saturating_add(CHART), |x, y| {
        if y < height {
            return *image.get_pixel(x, y);
        }
        let bin = (u64::from(x) * 256 / u64::from(width)) as usize;
        let bar = u64::from(counts[bin]) * u64::from(CHART - 8) / u64::from(highest);
        let from_below = u64::from(height + CHART - 1 - y);
        match from_below < bar {
            true => Rgba([240, 200, 120, 255]),
            false => Rgba([24, 26, 32, 255]),
        }
    })
}
