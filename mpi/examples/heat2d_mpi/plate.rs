//! The plate at first: computed by every rank for itself, in whole numbers, which are the same on every machine.

use crate::cells::{DEGREE, Plate};

impl Plate {
    /// Some hot discs in a plate of copper, with a gapped wall of cork.
    pub fn new(width: u32, height: u32) -> Self {
        let cells = || (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        Self {
            width,
            height,
            matter: cells().map(|(x, y)| matter(x, y)).collect(),
            heat: cells().map(|(x, y)| degrees(x, y) * DEGREE).collect(),
        }
    }
}

fn matter(x: u32, y: u32) -> i32 {
    const COPPER: i32 = 60;
    const CORK: i32 = 0;
    match x % 37 == 11 && y % 29 > 4 {
        true => CORK,
        false => COPPER,
    }
}

fn degrees(x: u32, y: u32) -> i32 {
    // Discs on a grid, each of its own warmth.
    let (column, row) = (x / 48, y / 40);
    let (dx, dy) = ((x % 48) as i32 - 24, (y % 40) as i32 - 20);
    match dx * dx + dy * dy < 120 {
        true => 200 + ((column * 7 + row * 13) % 11) as i32 * 70,
        false => 20,
    }
}
