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

    /// A step of every cell, as the kernel has it.
    pub fn advance(&mut self) {
        let (width, height) = (self.width as usize, self.height as usize);
        let (heat, matter) = (&self.heat, &self.matter);
        let flow = |here: usize, there: usize| {
            matter[here].min(matter[there]) * (heat[there] - heat[here]) / 256
        };
        let mut next = heat.clone();
        for y in 0..height {
            for x in 0..width {
                let here = y * width + x;
                if x + 1 < width {
                    let gain = flow(here, here + 1);
                    next[here] += gain;
                    next[here + 1] -= gain;
                }
                if y + 1 < height {
                    let gain = flow(here, here + width);
                    next[here] += gain;
                    next[here + width] -= gain;
                }
            }
        }
        self.heat = next;
    }
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
