//! The test picture: an island, the bar of sand that joins it to the shore, an evening sky above, and
//! far too much noise on top.

use image::{Rgba, RgbaImage};

/// Size of the picture, in pixels.
pub const SIZE: [u32; 2] = [768, 512];

/// One pixel in so many is replaced by black or white.
const NOISE: u32 = 7;

type Colour = [f32; 3];

/// Draws the picture, the same one every time.
pub fn noisy() -> RgbaImage {
    let mut picture = RgbaImage::from_fn(SIZE[0], SIZE[1], |x, y| {
        let [r, g, b] = colour(
            (x as f32 + 0.5) / SIZE[0] as f32,
            (y as f32 + 0.5) / SIZE[1] as f32,
        );
        Rgba([byte(r), byte(g), byte(b), 255])
    });
    let mut random = Random(0x2545_f491);
    for pixel in picture.pixels_mut() {
        let grain = (random.next() % 17) as i32 - 8;
        for channel in &mut pixel.0[..3] {
            *channel = (i32::from(*channel) + grain).clamp(0, 255) as u8;
        }
        if random.next().is_multiple_of(NOISE) {
            let salt = if random.next().is_multiple_of(2) {
                255
            } else {
                0
            };
            pixel.0[..3].fill(salt);
        }
    }
    picture
}

/// The colour at a place of the unit square; y points down.
fn colour(x: f32, y: f32) -> Colour {
    const HORIZON: f32 = 0.56;
    let sun = distance(x, y, 0.70, 0.40);
    let mut colour = mix(
        [0.13, 0.17, 0.40],
        [0.99, 0.62, 0.35],
        (y / HORIZON).powf(1.6),
    );
    colour = mix(colour, [1.0, 0.80, 0.50], 0.75 * (-sun * 7.0).exp());
    colour = mix(colour, [1.0, 0.97, 0.85], inside(0.055 - sun));
    for (middle, height, width) in [(0.22, 0.16, 0.20), (0.36, 0.24, 0.26), (0.52, 0.31, 0.17)] {
        let (dx, dy) = ((x - middle) / width, (y - height) / 0.016);
        let cloud = (-dx * dx * 4.0 - dy * dy).exp();
        colour = mix(colour, [0.95, 0.72, 0.66], 0.7 * cloud);
    }
    let ridge = HORIZON - 0.05 - 0.030 * (x * 9.0).sin() - 0.016 * (x * 23.0 + 1.0).sin();
    colour = mix(
        colour,
        [0.36, 0.29, 0.45],
        inside(y - ridge) * inside(0.42 - x),
    );

    let depth = (y - HORIZON) / (1.0 - HORIZON);
    if depth > 0.0 {
        colour = mix([0.90, 0.58, 0.42], [0.06, 0.17, 0.30], depth.sqrt());
        let ripple = (y * 260.0 / (0.4 + depth) + (x * 40.0).sin() * 1.5).sin();
        colour = mix(
            colour,
            [0.98, 0.86, 0.66],
            0.10 * (ripple + 1.0) * (1.0 - depth),
        );
        let path = (-((x - 0.70) / (0.03 + 0.10 * depth)).powi(2)).exp();
        colour = mix(colour, [1.0, 0.88, 0.60], 0.5 * path * (0.6 + 0.4 * ripple));
    }

    let hill =
        0.150 * (-((x - 0.37) / 0.10).powi(2)).exp() + 0.085 * (-((x - 0.48) / 0.06).powi(2)).exp();
    let island = inside(y - (0.63 - hill)) * inside(0.635 - y) * inside(hill - 0.004);
    colour = mix(
        colour,
        mix([0.20, 0.33, 0.22], [0.09, 0.17, 0.14], (y - 0.45) / 0.18),
        island,
    );
    if (0.46..0.52).contains(&x) && (0.44..0.56).contains(&y) {
        colour = lighthouse(colour, x, y);
    }

    // The bar of sand, from the island's foot to the near shore.
    let along = ((y - 0.625) / 0.375).clamp(0.0, 1.0);
    let middle = 0.40 - 0.20 * (along * 2.6).sin() * along.sqrt() + 0.10 * along * along;
    let half = 0.022 + 0.05 * along + 0.40 * along.powi(4);
    let sand = inside(half - (x - middle).abs()) * inside(y - 0.625);
    let wet = inside(half + 0.012 + 0.01 * along - (x - middle).abs()) * inside(y - 0.622);
    colour = mix(colour, [0.97, 0.93, 0.86], 0.8 * wet);
    mix(
        colour,
        mix([0.93, 0.78, 0.55], [0.80, 0.62, 0.40], along),
        sand,
    )
}

/// A tower with red rings on the island's lower hill.
fn lighthouse(under: Colour, x: f32, y: f32) -> Colour {
    let width = 0.0075 + 0.03 * (y - 0.46).max(0.0);
    let tower = inside(width - (x - 0.49).abs()) * inside(y - 0.462) * inside(0.552 - y);
    let rings = if (y * 55.0).fract() < 0.5 {
        [0.80, 0.20, 0.16]
    } else {
        [0.97, 0.95, 0.92]
    };
    let colour = mix(under, rings, tower);
    let lamp = inside(0.012 - distance(x, y, 0.49, 0.456));
    mix(colour, [1.0, 0.93, 0.55], lamp)
}

/// Distance in units of the picture's height.
fn distance(x: f32, y: f32, to_x: f32, to_y: f32) -> f32 {
    let aspect = SIZE[0] as f32 / SIZE[1] as f32;
    ((x - to_x) * aspect).hypot(y - to_y)
}

/// 1 where `signed` is positive, 0 where it is negative, with a soft edge a pixel wide.
fn inside(signed: f32) -> f32 {
    (signed * SIZE[1] as f32 + 0.5).clamp(0.0, 1.0)
}

fn mix(a: Colour, b: Colour, t: f32) -> Colour {
    let t = t.clamp(0.0, 1.0);
    std::array::from_fn(|i| a[i] + (b[i] - a[i]) * t)
}

fn byte(value: f32) -> u8 {
    (value.clamp(0.0, 1.0) * 255.0).round() as u8
}

/// Marsaglia's 32-bit xorshift generator.
struct Random(u32);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }
}
