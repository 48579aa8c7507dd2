//! The plate on the host: what every rank begins with, and the steps of one process that the ranks are checked against.

/// Units of a degree.
const DEGREE: i32 = 4096;

/// Rows of a plate, of whole numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plate {
    pub width: u32,
    pub height: u32,
    /// What each cell conducts, in parts of 256; four neighbours take no more than there is.
    pub matter: Vec<i32>,
    /// How warm each cell is, in parts of a degree.
    pub heat: Vec<i32>,
}

impl Plate {
    /// Some hot discs in a plate of copper, with a wall of cork that has gaps.
    pub fn new(width: u32, height: u32) -> Self {
        let cells = || (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        Self {
            width,
            height,
            matter: cells().map(|(x, y)| matter(x, y)).collect(),
            heat: cells().map(|(x, y)| degrees(x, y) * DEGREE).collect(),
        }
    }

    /// All the heat that there is, which no step changes.
    pub fn total(&self) -> i64 {
        self.heat.iter().copied().map(i64::from).sum()
    }

    /// A step of every cell, as the kernel has it.
    pub fn advance(&mut self) {
        let (width, height) = (self.width as usize, self.height as usize);
        let (heat, matter) = (&self.heat, &self.matter);
        let flow = |here: usize, there: usize| {
            matter[here].min(matter[there]) * (heat[there] - heat[here]) / 256
        };
        let mut next = heat.clone();
        let mut exchange = |here: usize, there: usize| {
            let gain = flow(here, there);
            next[here] += gain;
            next[there] -= gain;
        };
        for y in 0..height {
            for x in 0..width {
                let here = y * width + x;
                if x + 1 < width {
                    exchange(here, here + 1);
                }
                if y + 1 < height {
                    exchange(here, here + width);
                }
            }
        }
        self.heat = next;
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
