//! The pull on bodies by a walk through their octree: J. Barnes and P. Hut, "A hierarchical O(N log N) force-calculation
//! algorithm", 1986.
//!
//! The host builds the tree once. Cells lie in the order in which a walk that opens all of them meets them, each with the cell
//! to go to where it is opened, and where it is not; so the walk needs no stack. What the walks are held against is a descent
//! by recursion in double precision, and that against sums over all pairs of bodies.

use std::f64::consts::TAU;

use rayon::prelude::*;

use crate::Error;
use crate::results::{Expected, Results};
use crate::work::Work;

pub const BODIES: usize = 8192;
/// What ends a walk.
pub const END: u32 = u32::MAX;
/// The square of the length over which bodies are smeared out; as in the kernels.
const SOFTENING: f64 = 1e-4;
/// The largest angle, in radians, under which a cell is taken as a whole.
const THETA: f64 = 0.6;
/// Divisions of the whole cube: bodies that are nearer to each other than this become children of one cell.
const LEVELS: u32 = 24;
/// Bodies whose pull is summed over all others, too.
const SAMPLE: usize = 64;
/// Half of them are off less: the error of a cell taken as a point grows with the square of the angle.
const MOST_ERROR: f64 = 0.03 * THETA * THETA;

/// A cell of the tree, or a body.
#[derive(Clone, Copy)]
pub struct Cell {
    /// Centre of mass.
    pub centre: [f32; 3],
    pub mass: f32,
    /// The square of the distance below which the cell is opened; 0 for bodies.
    pub reach: f32,
    /// Where the walk goes on where the cell is opened, and where it is taken as a whole.
    pub first: u32,
    pub next: u32,
}

/// Bodies, as position and mass, and their tree.
pub struct Tree {
    pub cells: Vec<Cell>,
    /// Neighbours in space are neighbours here.
    pub bodies: Vec<[f32; 4]>,
}

/// A cube of space.
#[derive(Clone, Copy)]
struct Cube {
    low: [f64; 3],
    side: f64,
    levels: u32,
}

impl Cube {
    fn octant(&self, body: &[f32; 4]) -> usize {
        let half = |axis: usize| self.low[axis] + self.side / 2.0;
        let is_above = |axis: usize| usize::from(f64::from(body[axis]) >= half(axis));
        is_above(0) | is_above(1) << 1 | is_above(2) << 2
    }

    fn child(&self, octant: usize) -> Self {
        let side = self.side / 2.0;
        let low = |axis: usize| self.low[axis] + side * (octant >> axis & 1) as f64;
        Self {
            low: [low(0), low(1), low(2)],
            side,
            levels: self.levels - 1,
        }
    }
}

impl Tree {
    pub fn new() -> Self {
        let mut bodies = sphere();
        let mut cells = Vec::new();
        let all = Cube {
            low: [-FARTHEST; 3],
            side: 2.0 * FARTHEST,
            levels: LEVELS,
        };
        build(&mut cells, &mut bodies, all);
        let end = cells.len() as u32;
        for cell in &mut cells {
            if cell.next == end {
                cell.next = END;
            }
        }
        Self { cells, bodies }
    }

    /// By recursion, the pull of a cell, and how many cells and bodies were taken as a whole.
    fn pull(&self, at: usize, body: &[f32; 4]) -> [f64; 4] {
        let cell = &self.cells[at];
        let away = [0, 1, 2].map(|axis| f64::from(cell.centre[axis]) - f64::from(body[axis]));
        if dot(away) < f64::from(cell.reach) {
            let mut sum = [0.0; 4];
            for child in self.children(at) {
                let pull = self.pull(child, body);
                sum = [0, 1, 2, 3].map(|i| sum[i] + pull[i]);
            }
            return sum;
        }
        let [x, y, z] = pull_of(away, cell.mass);
        [x, y, z, 1.0]
    }

    fn end_of(&self, at: usize) -> usize {
        match self.cells[at].next {
            END => self.cells.len(),
            next => next as usize,
        }
    }

    fn children(&self, at: usize) -> impl Iterator<Item = usize> {
        let end = self.end_of(at);
        let behind = move |child: &usize| Some(self.end_of(*child)).filter(|next| *next < end);
        std::iter::successors(Some(at + 1), behind)
    }

    /// How far the pulls of the tree are off the sums over all bodies, as parts of their length: the median.
    fn median_error(&self, pulls: &[[f32; 4]]) -> f64 {
        let error = |i: usize| {
            let me = &self.bodies[i];
            let mut sum = [0.0; 3];
            for other in &self.bodies {
                let away = [0, 1, 2].map(|axis| f64::from(other[axis]) - f64::from(me[axis]));
                let pull = pull_of(away, other[3]);
                sum = [0, 1, 2].map(|axis| sum[axis] + pull[axis]);
            }
            let off = [0, 1, 2].map(|axis| f64::from(pulls[i][axis]) - sum[axis]);
            (dot(off) / dot(sum)).sqrt()
        };
        let mut errors: Vec<f64> = (0..SAMPLE).map(|i| error(i * BODIES / SAMPLE)).collect();
        errors.sort_by(f64::total_cmp);
        errors[SAMPLE / 2]
    }
}

fn dot([x, y, z]: [f64; 3]) -> f64 {
    x * x + y * y + z * z
}

fn pull_of(away: [f64; 3], mass: f32) -> [f64; 3] {
    let inverse = (dot(away) + SOFTENING).sqrt().recip();
    away.map(|along| f64::from(mass) * inverse.powi(3) * along)
}

/// Appends the cell of these bodies, with all below; returns mass and moment.
fn build(cells: &mut Vec<Cell>, bodies: &mut [[f32; 4]], mut cube: Cube) -> [f64; 4] {
    let at = cells.len();
    if let [[x, y, z, mass]] = *bodies {
        cells.push(Cell {
            centre: [x, y, z],
            mass,
            reach: 0.0,
            first: END,
            next: at as u32 + 1,
        });
        let m = f64::from(mass);
        return [m, m * f64::from(x), m * f64::from(y), m * f64::from(z)];
    }
    // Cells with one child are left out.
    while cube.levels > 0
        && (bodies.windows(2)).all(|pair| cube.octant(&pair[0]) == cube.octant(&pair[1]))
    {
        cube = cube.child(cube.octant(&bodies[0]));
    }
    cells.push(Cell {
        centre: [0.0; 3],
        mass: 0.0,
        reach: ((cube.side / THETA).powi(2) as f32).max(f32::MIN_POSITIVE),
        first: at as u32 + 1,
        next: 0,
    });
    let mut sum = [0.0; 4];
    bodies.sort_by_key(|body| cube.octant(body));
    let is_with = |a: &[f32; 4], b: &[f32; 4]| cube.levels > 0 && cube.octant(a) == cube.octant(b);
    for part in bodies.chunk_by_mut(is_with) {
        let inner = match cube.levels {
            0 => cube,
            _ => cube.child(cube.octant(&part[0])),
        };
        let one = build(cells, part, inner);
        sum = [0, 1, 2, 3].map(|i| sum[i] + one[i]);
    }
    let [mass, x, y, z] = sum;
    let next = cells.len() as u32;
    let cell = &mut cells[at];
    cell.centre = [x, y, z].map(|moment| (moment / mass) as f32);
    cell.mass = mass as f32;
    cell.next = next;
    sum
}

/// Bodies are nearer than this to the middle on each axis.
const FARTHEST: f64 = 16.0;

/// A sphere that is denser the nearer to its middle (H. C. Plummer, 1911).
fn sphere() -> Vec<[f32; 4]> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    // Between 0 and 1, by Marsaglia's shifts.
    let mut unit = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    };
    let body = |_| {
        let radius = (unit() * 0.98).powf(-2.0 / 3.0) - 1.0;
        let radius = radius.sqrt().recip().min(FARTHEST * 0.99);
        let z = 2.0 * unit() - 1.0;
        let (sin, cos) = (TAU * unit()).sin_cos();
        let across = radius * (1.0 - z * z).sqrt();
        [across * cos, across * sin, radius * z, 1.0 / BODIES as f64].map(|number| number as f32)
    };
    (0..BODIES).map(body).collect()
}

/// The walk over indices: numbers of cells, links of cells, bodies, pulls. Where there are pointers, sides link cells of their own.
///
/// # Errors
/// If the tree does not pull as its bodies do.
pub fn walk() -> Result<Work, Error> {
    let tree = Tree::new();
    let pull = |body: &[f32; 4]| tree.pull(0, body).map(|number| number as f32);
    let pulls: Vec<[f32; 4]> = tree.bodies.iter().map(pull).collect();
    let error = tree.median_error(&pulls);
    if !(0.0..MOST_ERROR).contains(&error) {
        return Err(format!("the tree's pulls are off by {error} (median)").into());
    }
    let numbers = |cell: &Cell| {
        let [x, y, z] = cell.centre;
        [x, y, z, cell.mass, cell.reach]
    };
    let numbers: Vec<f32> = tree.cells.iter().flat_map(numbers).collect();
    let links = |cell: &Cell| [cell.first, cell.next];
    let links: Vec<u32> = tree.cells.iter().flat_map(links).collect();
    Ok(Work {
        name: "barnes_hut",
        wgsl: include_str!("kernels/walk.wgsl"),
        arguments: &["root", "bodies", "out"],
        inputs: vec![
            bytemuck::cast_slice(&numbers).to_vec(),
            bytemuck::cast_slice(&links).to_vec(),
            bytemuck::cast_slice(&tree.bodies).to_vec(),
        ],
        results: Results::written(Expected::Pulls(pulls)),
        group: [64, 1, 1],
        groups: [BODIES as u32 / 64, 1, 1],
        rust: by_rayon,
    })
}

fn by_rayon(buffers: &mut [Vec<u8>]) {
    let [numbers, links, bodies, out] = buffers else {
        return;
    };
    let numbers: &[[f32; 5]] = bytemuck::cast_slice(numbers);
    let links: &[[u32; 2]] = bytemuck::cast_slice(links);
    let bodies: &[[f32; 4]] = bytemuck::cast_slice(bodies);
    let out: &mut [[f32; 4]] = bytemuck::cast_slice_mut(out);
    let pulls = out.par_iter_mut().zip(bodies).with_min_len(64);
    pulls.for_each(|(out, body)| {
        *out = [0.0; 4];
        let mut at = 0;
        while at != END {
            let [x, y, z, mass, reach] = numbers[at as usize];
            let [first, next] = links[at as usize];
            let away = [x - body[0], y - body[1], z - body[2]];
            let distance = away[0] * away[0] + away[1] * away[1] + away[2] * away[2];
            if distance < reach {
                at = first;
                continue;
            }
            let inverse = (distance + SOFTENING as f32).sqrt().recip();
            let share = mass * inverse * inverse * inverse;
            for axis in 0..3 {
                out[axis] += share * away[axis];
            }
            out[3] += 1.0;
            at = next;
        }
    });
}
