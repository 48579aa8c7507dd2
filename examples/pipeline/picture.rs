//! The pictures: a tombolo, an island that a bar of sand joins to the coast, in the course of a day.

use image::{Rgba, RgbaImage};

type Colour = [f32; 3];

/// The picture at a time of the day, 0 to 1, with grain as of a small camera; the same one every time.
pub fn tombolo(width: u32, height: u32, time: f32) -> RgbaImage {
    RgbaImage::from_fn(width, height, |x, y| {
        // In heights of the picture, from the middle of its horizon.
        let scale = 1.0 / height as f32;
        let at_x = (x as f32 + 0.5 - width as f32 / 2.0) * scale;
        let at_y = (y as f32 + 0.5) * scale - 0.45;
        let [r, g, b] = scene(at_x, at_y, time);
        let grain = |salt: u32| (hash(x, y, salt + (time * 997.0) as u32 * 3) % 33) as f32 - 16.0;
        let byte = |c: f32, salt| (c * 255.0 + grain(salt)).clamp(0.0, 255.0) as u8;
        Rgba([byte(r, 0), byte(g, 1), byte(b, 2), 255])
    })
}

fn scene(x: f32, y: f32, time: f32) -> Colour {
    let sun_x = 1.3 * (time - 0.5);
    let sun_y = -0.36 + 1.2 * (time - 0.5).powi(2);
    let day = (1.0 + sun_y * 3.0).clamp(0.0, 1.0);
    let noon = mix([0.98, 0.66, 0.42], [0.40, 0.66, 0.93], 1.0 - day * 0.9);
    let mut colour = mix(noon, [0.99, 0.90, 0.72], (y + 0.40) * 2.0);
    if (x - sun_x).hypot(y - sun_y) < 0.055 {
        colour = [1.0, 0.96, 0.70];
    }
    // The sea, brighter below the sun.
    if y > 0.0 {
        let waves = (y * 160.0 + (x * 22.0).sin()).sin() * 0.03;
        let glitter = (1.0 - (x - sun_x).abs() * 4.0).max(0.0) * 0.35;
        colour = mix([0.16, 0.44, 0.58], [0.06, 0.22, 0.38], y * 2.2);
        colour = colour.map(|c| c + waves + glitter * c);
    }
    // The island, and its wood.
    let hill = 0.20 * (1.0 - ((x + 0.22) * 3.0).powi(2)) + 0.018 * (x * 46.0).sin();
    if y < 0.02 && -y < hill {
        colour = match -y > hill * 0.45 {
            true => [0.17, 0.38, 0.20],
            false => [0.46, 0.40, 0.30],
        };
    }
    // The bar of sand, and the coast that it comes from.
    let bar = -0.22 + 1.1 * (y / 0.55).powf(1.4) * if y > 0.0 { 1.0 } else { 0.0 };
    let coast = 0.42 + 0.03 * (x * 9.0).sin();
    if y > 0.0 && (x - bar).abs() < 0.025 + y * 0.12 || y > coast {
        colour = [0.90, 0.79, 0.56];
    }
    if y > coast + 0.06 {
        colour = [0.36, 0.50, 0.22];
    }
    // A lighthouse with stripes.
    let (tower_x, top) = (x + 0.10, -0.30);
    if y > top && y < -0.08 && tower_x.abs() < 0.014 + (y - top) * 0.03 {
        let is_red = ((y - top) * 22.0) as i32 % 2 == 0;
        colour = if is_red {
            [0.82, 0.16, 0.14]
        } else {
            [0.97; 3]
        };
    }
    colour
}

fn mix(a: Colour, b: Colour, t: f32) -> Colour {
    let t = t.clamp(0.0, 1.0);
    std::array::from_fn(|i| a[i] + (b[i] - a[i]) * t)
}

/// A number that looks random and depends on the place alone.
fn hash(x: u32, y: u32, salt: u32) -> u32 {
    let mut h =
        x.wrapping_mul(0x9e37_79b1) ^ y.wrapping_mul(0x85eb_ca77) ^ salt.wrapping_mul(0xc2b2_ae3d);
    h = (h ^ (h >> 15)).wrapping_mul(0x2c1b_3c6d);
    h = (h ^ (h >> 12)).wrapping_mul(0x297a_2d39);
    h ^ (h >> 15)
}

/// Pictures in rows and columns.
pub fn sheet(columns: &[[RgbaImage; 4]]) -> RgbaImage {
    const GAP: u32 = 6;
    let (width, height) = columns.first().map_or((1, 1), |of| of[0].dimensions());
    let mut sheet = RgbaImage::from_pixel(
        columns.len() as u32 * (width + GAP) + GAP,
        4 * (height + GAP) + GAP,
        Rgba([24, 26, 32, 255]),
    );
    for (column, pictures) in columns.iter().enumerate() {
        for (row, picture) in pictures.iter().enumerate() {
            let x = GAP + column as u32 * (width + GAP);
            let y = GAP + row as u32 * (height + GAP);
            image::imageops::replace(&mut sheet, picture, x.into(), y.into());
        }
    }
    sheet
}
