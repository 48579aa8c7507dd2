//! What the plate looks like at first, and its picture.

use image::{Rgb, RgbImage};

use crate::cells::{DEGREE, Plate, each_row};

/// The most that a cell may conduct: four neighbours take no more than there is.
const COPPER: i32 = 60;
const GLASS: i32 = 6;
const CORK: i32 = 0;

/// Pixels along a cell of the picture.
const PIXELS: u32 = 3;

impl Plate {
    /// Rings of cork with gaps, in a plate of copper with a disc of glass; some of it glows.
    pub fn new(width: u32, height: u32) -> Self {
        let fill = |value: fn(f32, f32) -> i32| {
            let mut cells = vec![0; width as usize * height as usize];
            each_row(&mut cells, width as usize, |y, row| {
                for (x, cell) in row.iter_mut().enumerate() {
                    // In heights of the plate, from its middle.
                    let scale = 1.0 / height as f32;
                    let x = (x as f32 + 0.5 - width as f32 / 2.0) * scale;
                    let y = (y as f32 + 0.5) * scale - 0.5;
                    *cell = value(x, y);
                }
            });
            cells
        };
        Self {
            width,
            height,
            matter: fill(matter),
            heat: fill(|x, y| degrees(x, y) * DEGREE),
        }
    }

    /// Heat as it glows, cork in grey, and ticks at both ends of the rows where the work is divided.
    pub fn picture(&self, heat: &[i32], seams: &[u32]) -> RgbImage {
        const MARGIN: u32 = 8;
        let (width, height) = (self.width * PIXELS, self.height * PIXELS);
        RgbImage::from_fn(width + 2 * MARGIN, height, |x, y| {
            let row = y / PIXELS;
            let Some(x) = x.checked_sub(MARGIN).filter(|&x| x < width) else {
                let is_seam = seams.iter().any(|&seam| seam * PIXELS == y);
                return if is_seam { Rgb([255; 3]) } else { Rgb([12; 3]) };
            };
            let cell = (row * self.width + x / PIXELS) as usize;
            match self.matter[cell] {
                CORK => Rgb([70, 78, 88]),
                _ => glow(heat[cell] as f32 / DEGREE as f32),
            }
        })
    }
}

fn matter(x: f32, y: f32) -> i32 {
    let from_middle = x.hypot(y);
    let angle = y.atan2(x);
    for (ring, radius) in [0.14f32, 0.26, 0.38].into_iter().enumerate() {
        // The gaps look in different directions, two in each ring.
        let gap = (angle * 2.0 - 2.1 * ring as f32).cos() > 0.93;
        if (from_middle - radius).abs() < 0.012 && !gap {
            return CORK;
        }
    }
    match (x + 0.52).hypot(y - 0.30) < 0.13 {
        true => GLASS,
        false => COPPER,
    }
}

fn degrees(x: f32, y: f32) -> i32 {
    let spots = [
        (0.0f32, 0.0f32, 0.07f32, 980),
        (0.32, -0.02, 0.04, 900),
        (-0.18, 0.11, 0.035, 700),
        (-0.52, 0.30, 0.10, 850),
        (0.55, -0.36, 0.09, 760),
        (0.54, 0.33, 0.05, 640),
        (-0.56, -0.30, 0.06, 900),
    ];
    let inside = spots
        .iter()
        .find(|(at_x, at_y, radius, _)| (x - at_x).hypot(y - at_y) < *radius);
    inside.map_or(20, |(_, _, _, degrees)| *degrees)
}

/// From black through red and orange to white.
fn glow(degrees: f32) -> Rgb<u8> {
    const COLOURS: [[f32; 3]; 6] = [
        [6.0, 5.0, 24.0],
        [70.0, 14.0, 96.0],
        [176.0, 40.0, 82.0],
        [240.0, 104.0, 32.0],
        [252.0, 196.0, 60.0],
        [255.0, 252.0, 230.0],
    ];
    // What is a little warm shows.
    let at = (degrees / 1000.0).clamp(0.0, 0.9999).sqrt() * (COLOURS.len() - 1) as f32;
    let (low, part) = (at as usize, at.fract());
    Rgb(std::array::from_fn(|channel| {
        let (from, to) = (COLOURS[low][channel], COLOURS[low + 1][channel]);
        (from + (to - from) * part) as u8
    }))
}
