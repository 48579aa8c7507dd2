//! Frames, their tiles in the order of a spiral, and the same pixels computed by the host.

use bytemuck::{Pod, Zeroable};

/// Pixels along the side of a tile.
pub const SIDE: u32 = 16;
/// Tiles in a row of a frame, and in a column.
pub const TILES: [u32; 2] = [12, 9];
/// Bits behind the point.
const POINT: u32 = 25;

/// As in server.wgsl.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct Job {
    pub left: i32,
    pub top: i32,
    pub step: i32,
    pub limit: u32,
}

/// One picture of the zoom.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    centre: [f64; 2],
    step: i32,
    pub limit: u32,
}

pub fn width() -> u32 {
    TILES[0] * SIDE
}

pub fn height() -> u32 {
    TILES[1] * SIDE
}

impl Frame {
    /// Frame `index` of `count`: from the whole set to a valley of sea horses.
    pub fn of(index: u32, count: u32) -> Self {
        let along = f64::from(index) / f64::from(count.max(2) - 1);
        let size = 3.4 * (0.0008f64 / 3.4).powf(along);
        // The target stays where it is on the screen while the view closes in.
        let target = [-0.743_643, 0.131_825];
        let start = [-0.65, 0.0];
        let left = (size / 3.4).min(1.0);
        Self {
            centre: [0, 1].map(|axis| target[axis] + (start[axis] - target[axis]) * left),
            step: fixed(size / f64::from(width())).max(1),
            limit: 60 + (along * 190.0) as u32,
        }
    }

    /// The tile in that column and row.
    pub fn job(self, [column, row]: [u32; 2]) -> Job {
        let at = |centre: f64, tiles: u32, tile: u32| {
            let pixels = (tile * SIDE) as i32 - (tiles * SIDE / 2) as i32;
            fixed(centre) + pixels * self.step
        };
        Job {
            left: at(self.centre[0], TILES[0], column),
            top: at(self.centre[1], TILES[1], row),
            step: self.step,
            limit: self.limit,
        }
    }
}

fn fixed(value: f64) -> i32 {
    (value * f64::from(1 << POINT)).round() as i32
}

/// All tiles of a frame, from the middle outwards: right, down, left, up, and so on.
pub fn spiral() -> Vec<[u32; 2]> {
    let [columns, rows] = TILES.map(|tiles| tiles as i32);
    let (mut x, mut y) = ((columns - 1) / 2, (rows - 1) / 2);
    let mut found = Vec::new();
    let mut directions = [(1, 0), (0, 1), (-1, 0), (0, -1)].into_iter().cycle();
    for run in 2.. {
        if found.len() as i32 == columns * rows {
            break;
        }
        let (dx, dy) = directions.next().unwrap_or_default();
        for _ in 0..run / 2 {
            if (0..columns).contains(&x) && (0..rows).contains(&y) {
                found.push([x as u32, y as u32]);
            }
            (x, y) = (x + dx, y + dy);
        }
    }
    found
}

/// A tile as the host computes it: a byte for each pixel.
pub fn reference(job: Job) -> Vec<u8> {
    let side = SIDE as i32;
    let pixels = (0..side * side).map(|at| {
        let (x, y) = (at % side, at / side);
        iterations(job.left + x * job.step, job.top + y * job.step, job.limit)
    });
    pixels.collect()
}

fn times(a: i32, b: i32) -> i32 {
    let value = (u64::from(a.unsigned_abs()) * u64::from(b.unsigned_abs())) >> POINT;
    let value = value as i32;
    if (a < 0) == (b < 0) { value } else { -value }
}

fn iterations(x: i32, y: i32, limit: u32) -> u8 {
    let (mut a, mut b) = (0, 0);
    for i in 0..limit {
        let (aa, bb) = (times(a, a), times(b, b));
        if aa + bb > 4 << POINT {
            return i as u8;
        }
        b = 2 * times(a, b) + y;
        a = aa - bb + x;
    }
    limit as u8
}
