//! Requests that are asked of a device, in a kernel, and of this crate's view of the same texture.
//!
//! Drivers place samples on a grid of 1/256 of a texel, and software ones blend 8-bit formats in 8
//! bits: the tolerances are of that size.

use crate::harness::{Gpu, Shared};
use crate::support::random::{unit, word};
use bytemuck::{Pod, Zeroable};
use tombolo_cpu::texel::{Detail, Sampler, Shape, Spot, TexelView};
use wgpu::{AddressMode, BufferUsages, FilterMode, TextureFormat as T};

pub const ADDRESS: [AddressMode; 3] = [
    AddressMode::ClampToEdge,
    AddressMode::Repeat,
    AddressMode::MirrorRepeat,
];
pub const FILTERS: [FilterMode; 2] = [FilterMode::Nearest, FilterMode::Linear];

/// A request as kernels read it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Request {
    pub coordinate: [f32; 3],
    pub level: f32,
    pub x: [f32; 3],
    pub reference: f32,
    pub y: [f32; 3],
    pub index: i32,
}

const REQUEST: &str = "struct Request {
    coordinate: vec3<f32>, level: f32, x: vec3<f32>, reference: f32, y: vec3<f32>, index: i32,
}";

impl Request {
    pub fn spot(&self, offset: [i32; 3]) -> Spot {
        Spot {
            coordinate: self.coordinate,
            array_index: self.index,
            offset,
        }
    }
}

/// Requests at spots away from where rounding decides between texels.
pub fn requests(count: u64, extent: [u32; 3]) -> Vec<Request> {
    let one = |n: u64| Request {
        coordinate: [0, 1, 2].map(|axis| coordinate(8 * n + axis as u64, extent[axis])),
        index: (word(n) % 6) as i32 - 1,
        ..Request::zeroed()
    };
    (0..count).map(one).collect()
}

/// A coordinate in −1.5..2.5 that is not near the border of a texel of this axis nor, for linear
/// filters, near where the first of two texels changes.
pub fn coordinate(seed: u64, size: u32) -> f32 {
    let texels = (unit(seed) * 4.0 - 1.5) * f64::from(size);
    let half = (texels * 2.0).floor() / 2.0;
    let inside = 0.05 + 0.4 * unit(!seed);
    ((half + inside) / f64::from(size)) as f32
}

/// A texture of 16-bit floats in [0, 1).
pub fn halves(gpu: &Gpu, shape: Shape, extent: [u32; 3], layers: u32, levels: u32) -> Shared {
    let mut seed = 77;
    Shared::new(
        gpu,
        T::Rgba16Float,
        shape,
        extent,
        layers,
        levels,
        |count| {
            let numbers = (0..count / 2).flat_map(|_| {
                seed += 1;
                half::f16::from_f64(unit(seed)).to_le_bytes()
            });
            numbers.collect()
        },
    )
}

/// A sampler of one filter and one mode.
pub fn filtered(filter: FilterMode, mode: AddressMode) -> Sampler {
    Sampler {
        address: [mode; 3],
        magnify: filter,
        minify: filter,
        ..Sampler::default()
    }
}

/// The nearest filter is exact; the linear one is placed on the driver's grid.
pub fn tolerance(filter: FilterMode) -> f32 {
    match filter {
        FilterMode::Nearest => 1e-6,
        FilterMode::Linear => 0.012,
    }
}

/// A texture of a device, and what is asked about it.
pub struct Questions<'a> {
    pub gpu: &'a Gpu,
    pub shared: &'a Shared,
    /// The texture's type in WGSL.
    pub texture: &'a str,
    pub requests: &'a [Request],
}

impl Questions<'_> {
    /// What the device makes of `expression`, a vec4 of `t`, `s` and the request `r`.
    pub fn ask(&self, sampler: &Sampler, expression: &str) -> Vec<[u32; 4]> {
        let kind = match sampler.compare {
            Some(_) => "sampler_comparison",
            None => "sampler",
        };
        let source = format!(
            "{REQUEST}
             @group(0) @binding(0) var t: {};
             @group(0) @binding(1) var s: {kind};
             @group(0) @binding(2) var<storage, read> requests: array<Request>;
             @group(0) @binding(3) var<storage, read_write> out: array<vec4<u32>>;
             @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
                 if (id.x >= arrayLength(&requests)) {{ return; }}
                 let r = requests[id.x];
                 out[id.x] = bitcast<vec4<u32>>({expression});
             }}",
            self.texture
        );
        let count = self.requests.len();
        let input = bytemuck::cast_slice(self.requests);
        let input = self.gpu.buffer(input, BufferUsages::STORAGE);
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC;
        let out = self.gpu.buffer(&vec![0xa5u8; count * 16], usage);
        let bound = self.shared.bound();
        let made = self.gpu.device.create_sampler(&described(sampler));
        let resources = [
            wgpu::BindingResource::TextureView(&bound),
            wgpu::BindingResource::Sampler(&made),
            input.as_entire_binding(),
            out.as_entire_binding(),
        ];
        self.gpu.run(&source, count as u32, &resources);
        bytemuck::pod_collect_to_vec(&self.gpu.read(&out))
    }

    /// Fails unless the device's floats are those of `here` but for `tolerance`.
    pub fn compare(
        &self,
        what: &str,
        sampler: &Sampler,
        expression: &str,
        tolerance: f32,
        here: impl Fn(&TexelView, &Request) -> [f32; 4],
    ) {
        let theirs = self.ask(sampler, expression);
        assert_eq!(theirs.len(), self.requests.len());
        let view = self.shared.view();
        for (theirs, request) in theirs.iter().zip(self.requests) {
            let (theirs, ours) = (theirs.map(f32::from_bits), here(&view, request));
            let off = (0..4)
                .map(|n| (theirs[n] - ours[n]).abs())
                .fold(0.0, f32::max);
            assert!(
                off <= tolerance,
                "{what}: {theirs:?}, here {ours:?}, for {request:?}"
            );
        }
    }

    /// As [`compare`](Self::compare), where `expression` samples the base level with this offset.
    pub fn compare_base_level(
        &self,
        what: &str,
        sampler: &Sampler,
        expression: &str,
        offset: [i32; 3],
    ) {
        let tolerance = tolerance(sampler.magnify);
        self.compare(what, sampler, expression, tolerance, |view, request| {
            view.sample(sampler, &request.spot(offset), Detail::Level(0.0))
        });
    }
}

/// A sampler of this crate as wgpu is asked for it.
fn described(sampler: &Sampler) -> wgpu::SamplerDescriptor<'static> {
    wgpu::SamplerDescriptor {
        label: None,
        address_mode_u: sampler.address[0],
        address_mode_v: sampler.address[1],
        address_mode_w: sampler.address[2],
        mag_filter: sampler.magnify,
        min_filter: sampler.minify,
        mipmap_filter: sampler.mipmap,
        lod_min_clamp: sampler.level_range[0],
        lod_max_clamp: sampler.level_range[1],
        compare: sampler.compare,
        anisotropy_clamp: sampler.anisotropy,
        border_color: sampler
            .address
            .contains(&AddressMode::ClampToBorder)
            .then_some(sampler.border),
    }
}
