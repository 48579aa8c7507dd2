//! The kernels' work: the grid, the data, and what the processor computes from it one after the other.

use rayon::prelude::*;

use crate::{Error, rust};

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
    /// What they hold at first.
    pub buffers: Vec<Vec<u8>>,
    /// Invocations of a work-group.
    pub group: [u32; 3],
    /// Work-groups.
    pub groups: [u32; 3],
    /// What the last buffer holds after one launch.
    pub expected: Expected,
    /// The same for the threads of rayon.
    pub rust: fn(&mut [Vec<u8>]),
}

/// What a buffer holds in the end.
pub enum Expected {
    Words(Vec<u32>),
    /// Within a thousandth, since sums may be taken in another order.
    Floats(Vec<f32>),
}

impl Expected {
    /// Fails if a side has computed something else.
    pub fn check(&self, side: &str, work: &str, bytes: &[u8]) -> Result<(), Error> {
        // Copied, since bytes from a peer need not be aligned.
        let found: Vec<u32> = bytes.chunks_exact(4).map(word).collect();
        let is_right = match self {
            Self::Words(words) => found == *words,
            Self::Floats(floats) => {
                let near = |(found, expected): (&u32, &f32)| {
                    (f32::from_bits(*found) - expected).abs() <= expected.abs() * 1e-3
                };
                found.len() == floats.len() && found.iter().zip(floats).all(near)
            }
        };
        match is_right {
            true => Ok(()),
            false => {
                Err(format!("{side} computes something else than the processor in {work}").into())
            }
        }
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn words(count: usize, f: impl Fn(u32) -> u32) -> Vec<u8> {
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
pub fn all() -> Vec<Work> {
    vec![
        saxpy(),
        reduce(),
        histogram(),
        matmul(),
        chase(),
        private_array(),
    ]
}

fn saxpy() -> Work {
    let n = 4 << 20;
    Work {
        name: "saxpy",
        wgsl: include_str!("kernels/saxpy.wgsl"),
        arguments: &["x", "y"],
        buffers: vec![floats(n), floats(n)],
        group: [256, 1, 1],
        groups: [n as u32 / 256, 1, 1],
        expected: Expected::Floats((0..n).map(|i| 2.5 * float(i)).collect()),
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
        buffers: vec![floats(n), words(n / 256, |_| 0)],
        group: [256, 1, 1],
        groups: [n as u32 / 256, 1, 1],
        expected: Expected::Floats((0..n / 256).map(sum).collect()),
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
        buffers: vec![words(n as usize, scattered), words(256, |_| 0)],
        group: [256, 1, 1],
        groups: [n / 256, 1, 1],
        expected: Expected::Words(bins),
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
        buffers: vec![floats(n * n), floats(n * n), words(n * n, |_| 0)],
        group: [16, 16, 1],
        groups: [16, 16, 1],
        expected: Expected::Floats((0..n * n).map(product).collect()),
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
        buffers: vec![
            words(2 * NODES, half),
            words(LISTS, |list| start(list as usize) as u32),
            words(LISTS, |_| 0),
        ],
        group: [64, 1, 1],
        groups: [LISTS as u32 / 64, 1, 1],
        expected: Expected::Words((0..LISTS).map(sum).collect()),
        rust: chase_by_rayon,
    }
}

fn private_array() -> Work {
    Work {
        name: "private_4k",
        wgsl: include_str!("kernels/private.wgsl"),
        arguments: &["out"],
        buffers: vec![words(PRIVATE, |_| 0)],
        group: [64, 1, 1],
        groups: [PRIVATE as u32 / 64, 1, 1],
        expected: Expected::Words((0..PRIVATE as u32).map(of_table).collect()),
        rust: |buffers| each(&mut buffers[0], |i| of_table(i as u32)),
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
