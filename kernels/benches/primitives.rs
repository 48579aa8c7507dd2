//! The primitives beside the same work in Rust on all processors (rayon), on every adapter; and beside NVIDIA's libraries (CUB,
//! cuBLAS) where there are a card of NVIDIA and CUDA's compiler.
//!
//! Inputs and outputs are in the memory of each side; a measurement is a call and waiting for it. The CUDA side (`peer.cu`) is compiled
//! when the bench starts. Graphics cards get longer inputs than software adapters. The last lines are the rows, each our time divided
//! by the peer's: `ratio <row>_of_<peer>/<adapter> = <median> (<min>..<max>)`. Arguments choose adapters by a part of their names.

#[path = "../../benches/support/cuda.rs"]
mod cuda;
#[path = "../../benches/support/measure.rs"]
mod measure;

use rayon::prelude::*;
use tombolo::{Context, Device, DeviceBuffer};
use tombolo_kernels::{
    Compact, Gemm, GemmSize, Gemv, Histogram, Reduce, Scan, Sort, SortPairs, Sum,
};
use wgpu_types::DeviceType;

use cuda::Peer;
use measure::{Error, pairs, spread, word};

/// Pairs measured for each row.
const PAIRS: usize = 9;
/// Bins of the histogram.
const BINS: u32 = 256;

/// Lengths of inputs.
struct Lengths {
    values: usize,
    keys: usize,
    /// Rows and columns of the matrices that are multiplied
    edge: usize,
    /// Rows and columns of the matrix that is multiplied with a vector
    side: usize,
}

const ON_CARDS: Lengths = Lengths {
    values: 1 << 26,
    keys: 1 << 24,
    edge: 2048,
    side: 8192,
};
const ON_PROCESSORS: Lengths = Lengths {
    values: 1 << 22,
    keys: 1 << 20,
    edge: 256,
    side: 2048,
};

fn main() -> Result<(), Error> {
    env_logger::init();
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"))
        .collect();
    let context = Context::new()?;
    let mut lines = Vec::new();
    for adapter in context.adapters() {
        if !wanted.is_empty() && !wanted.iter().any(|part| adapter.name.contains(part)) {
            continue;
        }
        eprintln!("{}", adapter.name);
        let lengths = match adapter.device_type {
            DeviceType::Cpu => ON_PROCESSORS,
            _ => ON_CARDS,
        };
        let peer = match adapter.name.contains("NVIDIA") {
            true => Peer::start(include_str!("peer.cu"), &["-lcublas"], PAIRS)?,
            false => None,
        };
        let mut bench = Bench {
            device: context.device_at(adapter.index)?,
            adapter: word(&adapter.name).to_owned(),
            lengths,
            peer,
            lines: Vec::new(),
        };
        bench.sums()?;
        bench.selections()?;
        bench.sorts()?;
        bench.products()?;
        lines.append(&mut bench.lines);
    }
    for line in lines {
        println!("{line}");
    }
    Ok(())
}

/// The rows of an adapter.
struct Bench {
    device: Device,
    adapter: String,
    lengths: Lengths,
    peer: Option<Peer>,
    lines: Vec<String>,
}

impl Bench {
    /// Measures a row beside each peer. The CUDA side gets the row's length in its name.
    fn row(
        &mut self,
        name: &str,
        length: usize,
        mut ours: impl FnMut() -> Result<(), Error>,
        mut rust: impl FnMut(),
    ) -> Result<(), Error> {
        let ratios = pairs(PAIRS, &mut ours, || {
            rust();
            Ok(())
        })?;
        self.line(name, "rayon", ratios);
        if let Some(peer) = &mut self.peer {
            let ratios = peer.pairs(&format!("{name}:{length}"), 1, ours)?;
            self.line(name, "cuda", ratios);
        }
        Ok(())
    }

    fn line(&mut self, name: &str, peer: &str, ratios: Vec<f64>) {
        let spread = spread(ratios, 3);
        (self.lines).push(format!(
            "ratio {name}_of_{peer}/{} = {spread}",
            self.adapter
        ));
    }

    fn sums(&mut self) -> Result<(), Error> {
        let len = self.lengths.values;
        let values = floats(len);
        let (source, sum) = (self.device.buffer(&values)?, self.device.zeroed::<f32>(1)?);
        let mut reduce = Reduce::<f32, Sum>::new(&self.device)?;
        let mut total = 0.0;
        self.row(
            "reduce",
            len,
            || Ok(reduce.run(&source, &sum)?.wait()?),
            || total += values.par_iter().sum::<f32>(),
        )?;
        std::hint::black_box(total);

        let values = words(len);
        let (source, sums) = (
            self.device.buffer(&values)?,
            self.device.zeroed::<u32>(len)?,
        );
        let mut scan = Scan::<u32, Sum>::inclusive(&self.device)?;
        let mut rust = vec![0; len];
        self.row(
            "scan",
            len,
            || Ok(scan.run(&source, &sums)?.wait()?),
            || sums_before_and_here(&values, &mut rust),
        )
    }

    fn selections(&mut self) -> Result<(), Error> {
        let len = self.lengths.values;
        let values = words(len);
        let source = self.device.buffer(&values)?;
        let (kept, count) = (
            self.device.zeroed::<u32>(len)?,
            self.device.zeroed::<u32>(1)?,
        );
        let mut compact = Compact::by(&self.device, "(value & 3u) == 0u")?;
        let mut rust: Vec<u32> = Vec::with_capacity(len);
        self.row(
            "compact",
            len,
            || Ok(compact.run(&source, &kept, &count)?.wait()?),
            || {
                rust.clear();
                rust.par_extend(values.par_iter().copied().filter(|value| value & 3 == 0));
            },
        )?;

        let values: Vec<u32> = values.iter().map(|value| value % BINS).collect();
        let (source, counts) = (
            self.device.buffer(&values)?,
            self.device.zeroed::<u32>(BINS as usize)?,
        );
        let mut histogram = Histogram::<u32>::new(&self.device, BINS)?;
        self.row(
            "histogram",
            len,
            || Ok(histogram.run(&source, &counts)?.wait()?),
            || {
                std::hint::black_box(counted(&values));
            },
        )
    }

    fn sorts(&mut self) -> Result<(), Error> {
        let len = self.lengths.keys;
        let keys = words(len);
        let (source, sorted) = (self.device.buffer(&keys)?, self.device.zeroed::<u32>(len)?);
        let mut sort = Sort::<u32>::ascending(&self.device)?;
        let mut rust = keys.clone();
        self.row(
            "sort",
            len,
            || Ok(sort.run(&source, &sorted)?.wait()?),
            || {
                rust.copy_from_slice(&keys);
                rust.par_sort_unstable();
            },
        )?;

        let (values, moved) = (self.device.buffer(&keys)?, self.device.zeroed::<u32>(len)?);
        let mut sort = SortPairs::<u32, u32>::ascending(&self.device)?;
        let pairs: Vec<(u32, u32)> = keys.iter().map(|&key| (key, key)).collect();
        let mut rust = pairs.clone();
        self.row(
            "sort_pairs",
            len,
            || Ok(sort.run(&source, &values, &sorted, &moved)?.wait()?),
            || {
                rust.copy_from_slice(&pairs);
                rust.par_sort_by_key(|pair| pair.0);
            },
        )
    }

    fn products(&mut self) -> Result<(), Error> {
        let edge = self.lengths.edge;
        let (left, right) = (floats(edge * edge), floats(edge * edge));
        let size = GemmSize {
            rows: edge as u32,
            columns: edge as u32,
            depth: edge as u32,
        };
        let [a, b, c] = self.buffers([&left, &right, &left])?;
        let mut gemm = Gemm::<f32>::new(&self.device)?;
        let mut rust = vec![0.0; edge * edge];
        self.row(
            "gemm",
            edge,
            || Ok(gemm.run(size, &a, &b, &c)?.wait()?),
            || multiply(&left, &right, &mut rust, edge),
        )?;

        let side = self.lengths.side;
        let (matrix, vector) = (floats(side * side), floats(side));
        let [a, x, y] = self.buffers([&matrix, &vector, &vector])?;
        let mut gemv = Gemv::<f32>::new(&self.device)?;
        let mut rust = vec![0.0; side];
        self.row(
            "gemv",
            side,
            || Ok(gemv.run([side as u32; 2], &a, &x, &y)?.wait()?),
            || multiply_vector(&matrix, &vector, &mut rust),
        )
    }

    fn buffers(&self, values: [&[f32]; 3]) -> Result<[DeviceBuffer<f32>; 3], Error> {
        let [a, b, c] = values.map(|values| self.device.buffer(values));
        Ok([a?, b?, c?])
    }
}

fn words(len: usize) -> Vec<u32> {
    (0..len as u32)
        .map(|i| (i ^ (i >> 15)).wrapping_mul(2_654_435_761) ^ (i >> 7))
        .collect()
}

fn floats(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i % 1013) as f32 * 0.001).collect()
}

/// An inclusive scan: the sums of parts, then each part from its sum.
fn sums_before_and_here(values: &[u32], sums: &mut [u32]) {
    let share = values.len().div_ceil(4 * rayon::current_num_threads());
    let totals: Vec<u32> = values
        .par_chunks(share)
        .map(|part| {
            part.iter()
                .fold(0, |sum: u32, &value| sum.wrapping_add(value))
        })
        .collect();
    let starts: Vec<u32> = totals
        .iter()
        .scan(0u32, |sum, &total| {
            let start = *sum;
            *sum = sum.wrapping_add(total);
            Some(start)
        })
        .collect();
    (sums
        .par_chunks_mut(share)
        .zip(values.par_chunks(share))
        .zip(starts))
    .for_each(|((sums, values), start)| {
        let mut sum = start;
        for (slot, value) in sums.iter_mut().zip(values) {
            sum = sum.wrapping_add(*value);
            *slot = sum;
        }
    });
}

fn counted(values: &[u32]) -> Vec<u32> {
    let share = values.len().div_ceil(rayon::current_num_threads());
    let part = |values: &[u32]| {
        let mut counts = vec![0u32; BINS as usize];
        for &value in values {
            counts[value as usize] += 1;
        }
        counts
    };
    let add = |mut sums: Vec<u32>, counts: Vec<u32>| {
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
        sums
    };
    let none = || vec![0; BINS as usize];
    values.par_chunks(share).map(part).reduce(none, add)
}

/// Row by row, with the right factor's rows read from first to last, so that the loop becomes one over vectors.
fn multiply(left: &[f32], right: &[f32], product: &mut [f32], edge: usize) {
    product
        .par_chunks_mut(edge)
        .zip(left.par_chunks(edge))
        .for_each(|(sums, row)| {
            sums.fill(0.0);
            for (factor, right) in row.iter().zip(right.chunks(edge)) {
                for (sum, value) in sums.iter_mut().zip(right) {
                    *sum += factor * value;
                }
            }
        });
}

fn multiply_vector(matrix: &[f32], vector: &[f32], product: &mut [f32]) {
    let rows = matrix.par_chunks(vector.len());
    product.par_iter_mut().zip(rows).for_each(|(sum, row)| {
        *sum = row.iter().zip(vector).map(|(a, b)| a * b).sum();
    });
}
