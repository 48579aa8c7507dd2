//! The kernels' work: the grid, the data, and what the processor computes from it one after the other.

use rayon::prelude::*;

use crate::results::{Expected, Results};
use crate::side::Side;
use crate::{Error, rust, tree};

/// Nodes of the ring that all lists lie in.
pub const NODES: usize = 1 << 14;
/// Lists that are followed.
pub const LISTS: usize = 4096;
/// Steps of a list, as in the kernels.
const STEPS: usize = 2000;
/// Words of a private array, and invocations that each have one.
const WORDS: usize = 1024;
const PRIVATE: usize = 2048;

/// What a kernel has to do.
pub struct Work {
    pub name: &'static str,
    pub wgsl: &'static str,
    /// The variables of the WGSL, in the order of their bindings.
    pub arguments: &'static [&'static str],
    /// What those before the last hold. Peers may have other variables, as many as there are buffers.
    pub inputs: Vec<Vec<u8>>,
    /// What the last holds.
    pub results: Results,
    /// Invocations of a work-group.
    pub group: [u32; 3],
    /// Work-groups.
    pub groups: [u32; 3],
    /// The same for the threads of rayon.
    pub rust: fn(&mut [Vec<u8>]),
}

impl Work {
    /// What all buffers hold at first.
    pub fn buffers(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.inputs.iter().chain([&self.results.before])
    }

    /// What its row is called, and its results.
    pub fn row(&self) -> (&str, &Results) {
        (self.name, &self.results)
    }
}

/// Work on the threads of rayon.
pub struct ByRayon {
    rust: fn(&mut [Vec<u8>]),
    buffers: Vec<Vec<u8>>,
}

impl ByRayon {
    pub fn new(work: &Work) -> Self {
        Self {
            rust: work.rust,
            buffers: work.buffers().cloned().collect(),
        }
    }

    fn last(&mut self) -> Result<&mut Vec<u8>, Error> {
        Ok(self.buffers.last_mut().ok_or("a kernel has no buffers")?)
    }
}

impl Side for ByRayon {
    fn run(&mut self) -> Result<(), Error> {
        (self.rust)(&mut self.buffers);
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.last()?.copy_from_slice(bytes);
        Ok(())
    }

    fn results(&mut self) -> Result<Vec<u8>, Error> {
        Ok(self.last()?.clone())
    }
}

pub fn words(count: usize, f: impl Fn(u32) -> u32) -> Vec<u8> {
    (0..count as u32).flat_map(|i| f(i).to_ne_bytes()).collect()
}

fn float(i: usize) -> f32 {
    i as f32 * 0.37 % 7.0 + 0.5
}

fn floats(count: usize) -> Vec<u8> {
    words(count, |i| float(i as usize).to_bits())
}

/// Numbers without an order.
pub fn scattered(i: u32) -> u32 {
    i.wrapping_mul(2_654_435_761) >> 7
}

/// The node behind a node.
pub fn next(node: usize) -> usize {
    (node * 4_053 + 12_345) % NODES
}

/// Where a list begins.
pub fn start(list: usize) -> usize {
    list * 7 % NODES
}

/// All kernels but the smallest one.
///
/// # Errors
/// If the host contradicts itself.
pub fn all() -> Result<Vec<Work>, Error> {
    Ok(vec![
        saxpy(),
        reduce(),
        histogram(),
        matmul(),
        chase(),
        private_array(),
        mandelbrot(),
        median(),
        tree::walk()?,
    ])
}

fn saxpy() -> Work {
    let n = 4 << 20;
    Work {
        name: "saxpy",
        wgsl: include_str!("kernels/saxpy.wgsl"),
        arguments: &["x", "y"],
        inputs: vec![floats(n)],
        results: Results::added(
            floats(n),
            Expected::Floats((0..n).map(|i| 2.5 * float(i)).collect()),
        ),
        group: [256, 1, 1],
        groups: [n as u32 / 256, 1, 1],
        rust: rust::saxpy,
    }
}

fn reduce() -> Work {
    let n = 1 << 20;
    let sum = |group| {
        (0..256)
            .map(|i| f64::from(float(group * 256 + i)))
            .sum::<f64>() as f32
    };
    Work {
        name: "reduce",
        wgsl: include_str!("../../../cpu/benches/embedded/reduce.wgsl"),
        arguments: &["x", "sums"],
        inputs: vec![floats(n)],
        results: Results::written(Expected::Floats((0..n / 256).map(sum).collect())),
        group: [256, 1, 1],
        groups: [n as u32 / 256, 1, 1],
        rust: rust::reduce,
    }
}

fn histogram() -> Work {
    let n = 1 << 20;
    let mut bins = vec![0; 256];
    for i in 0..n {
        bins[scattered(i) as usize & 255] += 1;
    }
    Work {
        name: "histogram",
        wgsl: include_str!("kernels/histogram.wgsl"),
        arguments: &["x", "bins"],
        inputs: vec![words(n as usize, scattered)],
        results: Results::added(words(256, |_| 0), Expected::Words(bins)),
        group: [256, 1, 1],
        groups: [n / 256, 1, 1],
        rust: rust::histogram,
    }
}

fn matmul() -> Work {
    let n = 256;
    let product = |i| {
        let (row, column) = (i / n, i % n);
        let one = |k| f64::from(float(row * n + k)) * f64::from(float(k * n + column));
        (0..n).map(one).sum::<f64>() as f32
    };
    Work {
        name: "matmul",
        wgsl: include_str!("../../../cpu/benches/embedded/matmul.wgsl"),
        arguments: &["a", "b", "c"],
        inputs: vec![floats(n * n), floats(n * n)],
        results: Results::written(Expected::Floats((0..n * n).map(product).collect())),
        group: [16, 16, 1],
        groups: [16, 16, 1],
        rust: rust::matmul,
    }
}

/// The list as indices; peers with pointers make their own nodes. A node has a value, and the index of the next one.
fn chase() -> Work {
    let sum = |list| {
        let mut at = start(list);
        (0..STEPS).fold(0u32, |sum, _| {
            let value = scattered(at as u32);
            at = next(at);
            sum.wrapping_add(value)
        })
    };
    let half = |i: u32| match i.is_multiple_of(2) {
        true => scattered(i / 2),
        false => next(i as usize / 2) as u32,
    };
    Work {
        name: "chase",
        wgsl: include_str!("kernels/chase.wgsl"),
        arguments: &["starts", "out"],
        inputs: vec![
            words(2 * NODES, half),
            words(LISTS, |list| start(list as usize) as u32),
        ],
        results: Results::written(Expected::Words((0..LISTS).map(sum).collect())),
        group: [64, 1, 1],
        groups: [LISTS as u32 / 64, 1, 1],
        rust: chase_by_rayon,
    }
}

fn private_array() -> Work {
    Work {
        name: "private_4k",
        wgsl: include_str!("kernels/private.wgsl"),
        arguments: &["out"],
        inputs: Vec::new(),
        results: Results::written(Expected::Words((0..PRIVATE as u32).map(of_table).collect())),
        group: [64, 1, 1],
        groups: [PRIVATE as u32 / 64, 1, 1],
        rust: |buffers| each(&mut buffers[0], |i| of_table(i as u32)),
    }
}

/// Steps of z = z^2 + c until z is farther away than 2.
fn mandelbrot() -> Work {
    let steps = |i: u32| {
        let (x, y) = (f64::from(i % 512), f64::from(i / 512));
        let c = (x / 512.0 * 3.0 - 2.0, y / 512.0 * 2.0 - 1.0);
        let mut z = (0.0, 0.0);
        (0..256)
            .position(|_| {
                let is_away = z.0 * z.0 + z.1 * z.1 > 4.0;
                z = (z.0 * z.0 - z.1 * z.1 + c.0, 2.0 * z.0 * z.1 + c.1);
                is_away
            })
            .unwrap_or(256) as u32
    };
    Work {
        name: "mandelbrot",
        wgsl: include_str!("../../../cpu/benches/embedded/mandelbrot.wgsl"),
        arguments: &["out"],
        inputs: Vec::new(),
        results: Results::written(Expected::Steps((0..512 * 512).map(steps).collect())),
        group: [8, 8, 1],
        groups: [64, 64, 1],
        rust: rust::mandelbrot,
    }
}

/// The median of 7 x 7 pixels, by selection in a private array.
fn median() -> Work {
    let n = 256;
    let pixel = |i: u32| ((scattered(i) & 4095) as f32).to_bits();
    let middle = |i: u32| {
        let (x, y) = (i % n, i / n);
        let inside = |at: u32, by: u32| (at + by).saturating_sub(3).min(n - 1);
        let mut window: Vec<f32> = (0..49)
            .map(|k| f32::from_bits(pixel(inside(y, k / 7) * n + inside(x, k % 7))))
            .collect();
        window.sort_by(f32::total_cmp);
        window[24].to_bits()
    };
    Work {
        name: "median",
        wgsl: include_str!("../../../cpu/benches/embedded/median.wgsl"),
        arguments: &["picture", "out"],
        inputs: vec![words((n * n) as usize, pixel)],
        results: Results::written(Expected::Words((0..n * n).map(middle).collect())),
        group: [16, 16, 1],
        groups: [16, 16, 1],
        rust: rust::median,
    }
}

fn of_table(id: u32) -> u32 {
    let mut table = [0u32; WORDS];
    let mut x = id.wrapping_mul(747_796_405).wrapping_add(1);
    for word in &mut table {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *word = x;
    }
    let mut at = id as usize % WORDS;
    (0..WORDS).fold(0, |sum, _| {
        let value = table[at];
        at = (value >> 10) as usize % WORDS;
        value.wrapping_add(sum)
    })
}

fn chase_by_rayon(buffers: &mut [Vec<u8>]) {
    let [nodes, starts, out] = buffers else {
        return;
    };
    let nodes: &[[u32; 2]] = bytemuck::cast_slice(nodes);
    let starts: &[u32] = bytemuck::cast_slice(starts);
    each(out, |list| {
        let mut at = starts[list] as usize;
        (0..STEPS).fold(0u32, |sum, _| {
            let [value, next] = nodes[at];
            at = next as usize;
            sum.wrapping_add(value)
        })
    });
}

/// What a function gives for each index, in pieces as large as the kernels' work-groups.
fn each(out: &mut [u8], f: impl Fn(usize) -> u32 + Sync) {
    const PIECE: usize = 64;
    let out: &mut [u32] = bytemuck::cast_slice_mut(out);
    let pieces = out.par_chunks_mut(PIECE).enumerate();
    pieces.for_each(|(piece, out)| {
        for (i, out) in out.iter_mut().enumerate() {
            *out = f(piece * PIECE + i);
        }
    });
}
