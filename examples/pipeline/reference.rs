//! The same stages on the host, to check the devices against.

use image::{Rgba, RgbaImage};

/// The pixel at a place, or the nearest one inside.
fn near(image: &RgbaImage, x: i64, y: i64) -> [i32; 3] {
    let x = x.clamp(0, i64::from(image.width()) - 1) as u32;
    let y = y.clamp(0, i64::from(image.height()) - 1) as u32;
    let [r, g, b, _] = image.get_pixel(x, y).0;
    [r, g, b].map(i32::from)
}

/// What each stage makes of a picture; the lines are grey.
pub fn stages(source: &RgbaImage) -> [RgbaImage; 3] {
    let smooth = smooth(source);
    let lines = lines(&smooth);
    let drawn = RgbaImage::from_fn(source.width(), source.height(), |x, y| {
        let paper = 255 - (u32::from(lines.get_pixel(x, y).0[0]) * 2).min(255);
        let [r, g, b, _] = smooth.get_pixel(x, y).0;
        let [r, g, b] = [r, g, b].map(|c| {
            let flat = ((u32::from(c) + 16) / 32 * 32).min(255);
            (flat * paper / 255) as u8
        });
        Rgba([r, g, b, 255])
    });
    [smooth, lines, drawn]
}

/// Rows first and columns then, which comes to the same: nothing is rounded in between.
fn smooth(source: &RgbaImage) -> RgbaImage {
    const WEIGHTS: [i32; 5] = [1, 4, 6, 4, 1];
    let weighted = |at: &dyn Fn(i64) -> [i32; 3]| {
        let mut sum = [0; 3];
        for (offset, weight) in (-2..).zip(WEIGHTS) {
            let colour = at(offset);
            (0..3).for_each(|i| sum[i] += weight * colour[i]);
        }
        sum
    };
    let (width, height) = source.dimensions();
    let mut rows = Vec::with_capacity(source.as_raw().len() / 4);
    for y in 0..i64::from(height) {
        for x in 0..i64::from(width) {
            rows.push(weighted(&|offset| near(source, x + offset, y)));
        }
    }
    RgbaImage::from_fn(width, height, |x, y| {
        let sum = weighted(&|offset| {
            let y = (i64::from(y) + offset).clamp(0, i64::from(height) - 1);
            rows[y as usize * width as usize + x as usize]
        });
        let [r, g, b] = sum.map(|c| ((c + 128) / 256) as u8);
        Rgba([r, g, b, 255])
    })
}

fn lines(smooth: &RgbaImage) -> RgbaImage {
    RgbaImage::from_fn(smooth.width(), smooth.height(), |x, y| {
        let light = |dx: i64, dy: i64| {
            let [r, g, b] = near(smooth, i64::from(x) + dx, i64::from(y) + dy);
            (77 * r + 150 * g + 29 * b) / 256
        };
        let (mut across, mut down) = (0, 0);
        for (offset, weight) in [(-1, 1), (0, 2), (1, 1)] {
            across += weight * (light(1, offset) - light(-1, offset));
            down += weight * (light(offset, 1) - light(offset, -1));
        }
        let steep = (across.abs() + down.abs()).min(255) as u8;
        Rgba([steep, steep, steep, 255])
    })
}
