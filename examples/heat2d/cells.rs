//! The cells of a plate, and a step of them on the host, to check devices against. The example `heat2d_mpi` includes this file.

use bytemuck::{Pod, Zeroable};

/// Units of a degree.
pub const DEGREE: i32 = 4096;

/// Cells in rows, of whole numbers.
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
    /// All the heat that there is, which no step changes.
    pub fn total(heat: &[i32]) -> i64 {
        heat.iter().copied().map(i64::from).sum()
    }

    /// A step of every cell.
    pub fn advance(&mut self) {
        let (width, height) = (self.width as usize, self.height as usize);
        let (heat, matter) = (&self.heat, &self.matter);
        let flow = |here: usize, there: usize| {
            matter[here].min(matter[there]) * (heat[there] - heat[here]) / 256
        };
        // Zeros, whose pages come when a thread writes them: a copy would be made by one thread alone.
        let mut next = vec![0; heat.len()];
        each_row(&mut next, width, |y, row| {
            for (x, next) in row.iter_mut().enumerate() {
                let here = y * width + x;
                let mut warm = heat[here];
                if x > 0 {
                    warm += flow(here, here - 1);
                }
                if x + 1 < width {
                    warm += flow(here, here + 1);
                }
                if y > 0 {
                    warm += flow(here, here - width);
                }
                if y + 1 < height {
                    warm += flow(here, here + width);
                }
                *next = warm;
            }
        });
        self.heat = next;
    }
}

/// Has all processors work on the rows of `cells`.
pub fn each_row(cells: &mut [i32], width: usize, work: impl Fn(usize, &mut [i32]) + Sync) {
    // Threads cost more than so few rows.
    const LEAST: usize = 1 << 18;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let rows = (cells.len() / width)
        .div_ceil(threads)
        .max(LEAST / width)
        .max(1);
    let is_one = rows * width >= cells.len();
    std::thread::scope(|scope| {
        for (at, strip) in cells.chunks_mut(rows * width).enumerate() {
            let work = &work;
            let mut job = move || {
                for (y, row) in strip.chunks_mut(width).enumerate() {
                    work(at * rows + y, row);
                }
            };
            match at {
                0 if is_one => job(),
                _ => drop(scope.spawn(job)),
            }
        }
    });
}

/// `Strip` of `heat.wgsl`: the rows that a launch computes, and where the rows begin that it is given.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Strip {
    pub width: u32,
    pub height: u32,
    pub first: u32,
    pub rows: u32,
    pub held: u32,
}
