//! The kernels, what they are given, and what is asked of them.

use crate::rust;

/// The same in Rust.
pub type Rust = fn(&mut [Vec<u8>]);

/// A kernel, what it is given, and what is asked of it.
pub struct Row {
    pub name: &'static str,
    pub source: &'static str,
    /// Bytes of the buffers at bindings 0, 1, … of group 0
    pub buffers: Vec<Vec<u8>>,
    pub groups: [u32; 3],
    /// Dispatches of a measurement, each awaited
    pub repeats: u32,
    pub goals: Goals,
    pub peers: &'static [(&'static str, Rust)],
}

/// The most of each peer's time that this adapter may take.
#[derive(Clone, Copy, Default)]
pub struct Goals {
    pub llvmpipe: Option<f64>,
    pub swiftshader: Option<f64>,
    pub rayon: Option<f64>,
}

impl Goals {
    fn of(llvmpipe: f64) -> Self {
        Self {
            llvmpipe: Some(llvmpipe),
            swiftshader: None,
            rayon: Some(1.5),
        }
    }

    /// The goal against a peer by its name.
    pub fn against(&self, peer: &str) -> Option<f64> {
        match peer {
            "llvmpipe" => self.llvmpipe,
            "SwiftShader" => self.swiftshader,
            "rayon" => self.rayon,
            _ => None,
        }
    }
}

pub fn words(count: usize, f: impl Fn(u32) -> u32) -> Vec<u8> {
    (0..count as u32).flat_map(|i| f(i).to_ne_bytes()).collect()
}

fn floats(count: usize) -> Vec<u8> {
    words(count, |i| (i as f32 * 0.37 % 7.0 + 0.5).to_bits())
}

/// Numbers without an order.
fn scattered(i: u32) -> u32 {
    i.wrapping_mul(2_654_435_761) >> 7
}

pub fn rows() -> Vec<Row> {
    let mut rows = vec![launch_wait(), launch_wait_16k()];
    rows.extend(streams());
    rows.extend(loops());
    rows
}

fn launch_wait() -> Row {
    Row {
        name: "launch_wait",
        source: "@group(0) @binding(0) var<storage, read_write> x: array<u32>;
            @compute @workgroup_size(1) fn main() { x[0] += 1u; }",
        buffers: vec![words(16, |_| 0)],
        groups: [1, 1, 1],
        repeats: 200,
        goals: Goals {
            llvmpipe: Some(0.15),
            swiftshader: Some(0.25),
            rayon: None,
        },
        peers: &[],
    }
}

/// A launch of some work-groups, for which other threads would wake too late.
fn launch_wait_16k() -> Row {
    Row {
        name: "launch_wait_16k",
        source: "@group(0) @binding(0) var<storage, read_write> x: array<u32>;
            @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                if (id.x < arrayLength(&x)) { x[id.x] += 1u; }
            }",
        buffers: vec![words(16 << 10, |_| 0)],
        groups: [256, 1, 1],
        ..launch_wait()
    }
}

/// Kernels that read much.
fn streams() -> [Row; 3] {
    let n = 4 << 20;
    [
        Row {
            name: "saxpy",
            source: "@group(0) @binding(0) var<storage, read> x: array<f32>;
                @group(0) @binding(1) var<storage, read_write> y: array<f32>;
                @compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                    if (id.x < arrayLength(&y)) { y[id.x] = 1.5 * x[id.x] + y[id.x]; }
                }",
            buffers: vec![floats(n), floats(n)],
            groups: [n as u32 / 256, 1, 1],
            repeats: 1,
            goals: Goals::of(0.2),
            peers: &[("rayon", rust::saxpy)],
        },
        Row {
            name: "reduce",
            source: include_str!("reduce.wgsl"),
            buffers: vec![floats(n), words(n / 256, |_| 0)],
            groups: [n as u32 / 256, 1, 1],
            repeats: 1,
            goals: Goals::of(0.2),
            peers: &[
                ("rayon", rust::reduce),
                ("rayon_by_halves", rust::reduce_by_halves),
            ],
        },
        Row {
            name: "histogram",
            source: "@group(0) @binding(0) var<storage, read> x: array<u32>;
                @group(0) @binding(1) var<storage, read_write> bins: array<atomic<u32>, 256>;
                @compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                    atomicAdd(&bins[x[id.x] & 255u], 1u);
                }",
            buffers: vec![words(1 << 20, scattered), words(256, |_| 0)],
            groups: [(1 << 20) / 256, 1, 1],
            repeats: 1,
            goals: Goals::of(0.56),
            peers: &[
                ("rayon", rust::histogram),
                ("rayon_own_bins", rust::histogram_of_own_bins),
            ],
        },
    ]
}

/// Kernels that compute, or wait for memory.
fn loops() -> [Row; 4] {
    [
        Row {
            name: "matmul",
            source: include_str!("matmul.wgsl"),
            buffers: vec![floats(256 * 256), floats(256 * 256), floats(256 * 256)],
            groups: [16, 16, 1],
            repeats: 1,
            goals: Goals::of(0.2),
            peers: &[("rayon", rust::matmul)],
        },
        Row {
            name: "median",
            source: include_str!("median.wgsl"),
            buffers: vec![
                words(256 * 256, |i| ((scattered(i) & 4095) as f32).to_bits()),
                floats(256 * 256),
            ],
            groups: [16, 16, 1],
            repeats: 1,
            goals: Goals::of(0.25),
            peers: &[("rayon", rust::median)],
        },
        Row {
            name: "mandelbrot",
            source: include_str!("mandelbrot.wgsl"),
            buffers: vec![words(512 * 512, |_| 0)],
            groups: [64, 64, 1],
            repeats: 1,
            goals: Goals::of(1.0),
            peers: &[("rayon", rust::mandelbrot)],
        },
        Row {
            name: "chase",
            source: "@group(0) @binding(0) var<storage, read> next: array<u32>;
                @group(0) @binding(1) var<storage, read_write> out: array<u32>;
                @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                    var at = id.x;
                    for (var k = 0u; k < 2000u; k++) { at = next[at]; }
                    out[id.x] = at;
                }",
            buffers: vec![
                words(1 << 16, |i| (i.wrapping_mul(40_503) + 12_345) & 0xffff),
                words(4096, |_| 0),
            ],
            groups: [64, 1, 1],
            repeats: 1,
            goals: Goals::of(1.0),
            peers: &[("rayon", rust::chase)],
        },
    ]
}
