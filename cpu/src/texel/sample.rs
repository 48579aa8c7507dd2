//! Sampling: levels of detail, filters, gathers and comparisons.
//!
//! # How it works
//!
//! 1. The level of detail λ is given, or follows from gradients: log₂ of the longer gradient in texels
//!    of the base level. The sampler's range limits it, and λ ≤ 0 magnifies.
//! 2. The mipmap filter picks a level or two and a blend.
//! 3. In each level the filter picks a single texel, or two along each axis. Address modes, borders and the edges of cubes define
//!    the texels outside.
//! 4. Comparisons replace texels by 0 or 1 before the filter blends them.
//!
//! Blends are a + (b − a) × t in f32, along x first, so that equal texels blend to themselves. The formulas come from the Vulkan
//! specification's chapter on image operations, where WebGPU leaves formulas open.

use super::cube;
use super::sampler::{Axis, Sampler, compare, wrap};
use super::view::{At, OutOfBounds, TexelView};
use crate::math::{F, Scalar32, logarithm};
use wgpu_types::{AddressMode, FilterMode, MipmapFilterMode};

/// Where to sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spot {
    /// Normalized coordinates, or the direction for cubes; zero for axes missing from the shape.
    pub coordinate: [f32; 3],
    /// The layer, or the cube; clamped to the existing ones. Shapes without layers ignore the index.
    pub array_index: i32,
    /// Texels to add to the coordinates. Cubes ignore the offset.
    pub offset: [i32; 3],
}

/// The levels to sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Detail {
    /// A level of detail, 0 for the base level.
    Level(f32),
    /// How the coordinates change from one pixel to the next, along two directions.
    Gradient {
        /// Change along a direction.
        x: [f32; 3],
        /// Change along the other.
        y: [f32; 3],
    },
}

/// The change of a texel before the blend.
type Map<'m> = &'m dyn Fn([f32; 4]) -> [f32; 4];

/// A level of detail and the samples to average.
struct Footprint {
    lambda: f32,
    count: u32,
    /// The change of coordinates for the samples to spread over.
    spread: [f32; 3],
}

impl TexelView<'_> {
    /// WGSL `textureSampleLevel` and `textureSampleGrad`. The value has the channels of a float or depth format; for a depth
    /// texture the first channel is the result.
    pub fn sample(&self, sampler: &Sampler, spot: &Spot, detail: Detail) -> [f32; 4] {
        self.sample_mapped(sampler, spot, detail, &|texel| texel)
    }

    /// WGSL `textureSampleCompareLevel`: the share of texels with a true comparison with `reference` by the sampler. A sampler
    /// without comparison gives 1.
    pub fn sample_compare(
        &self,
        sampler: &Sampler,
        spot: &Spot,
        detail: Detail,
        reference: f32,
    ) -> f32 {
        let map = self.comparison(sampler, reference);
        self.sample_mapped(sampler, spot, detail, &map)[0]
    }

    /// WGSL `textureSampleBaseClampToEdge`: the base level, the coordinates half a texel away from the
    /// edge at least.
    pub fn sample_base_clamp_to_edge(&self, sampler: &Sampler, coordinate: [f32; 2]) -> [f32; 4] {
        let extent = self.dimensions(0);
        let inside = |axis: usize| {
            let half = 0.5 / extent[axis].max(1) as f32;
            coordinate[axis].max(half).min(1.0 - half)
        };
        let spot = Spot {
            coordinate: [inside(0), inside(1), 0.0],
            ..Spot::default()
        };
        let edge = Sampler {
            address: [AddressMode::ClampToEdge; 3],
            ..*sampler
        };
        self.sample(&edge, &spot, Detail::Level(0.0))
    }

    /// WGSL `textureGather`: a channel of the four texels blended by a linear filter of the base level, as words: (first x, last
    /// y), (last, last), (last, first), (first, first).
    pub fn gather(&self, sampler: &Sampler, spot: &Spot, component: usize) -> [u32; 4] {
        let channel = component.min(3);
        self.gather_texels(sampler, spot)
            .map(|texel| texel[channel])
    }

    /// WGSL `textureGatherCompare`: the four comparisons blended by [`sample_compare`](Self::sample_compare), in the order of
    /// [`gather`](Self::gather).
    pub fn gather_compare(&self, sampler: &Sampler, spot: &Spot, reference: f32) -> [f32; 4] {
        let map = self.comparison(sampler, reference);
        self.gather_texels(sampler, spot)
            .map(|texel| map(texel.map(f32::from_bits))[0])
    }

    fn comparison(&self, sampler: &Sampler, reference: f32) -> impl Fn([f32; 4]) -> [f32; 4] {
        let function = sampler.compare;
        let fixed = self.format.clamps_reference();
        let reference = if fixed {
            // A NaN becomes 0; `clamp` would keep the NaN.
            #[expect(clippy::manual_clamp, reason = "of NaN")]
            let inside = reference.max(0.0).min(1.0);
            inside
        } else {
            reference
        };
        move |[depth, ..]| {
            let share = function.map_or(1.0, |function| compare(function, reference, depth));
            [share, 0.0, 0.0, 0.0]
        }
    }

    fn sample_mapped(
        &self,
        sampler: &Sampler,
        spot: &Spot,
        detail: Detail,
        map: Map<'_>,
    ) -> [f32; 4] {
        let footprint = match detail {
            Detail::Level(lambda) => Footprint {
                lambda,
                count: 1,
                spread: [0.0; 3],
            },
            Detail::Gradient { x, y } => self.footprint(sampler, spot, x, y),
        };
        let [low, high] = sampler.level_range;
        let lambda = footprint.lambda.max(low).min(high);
        if footprint.count == 1 {
            return self.sample_levels(sampler, spot, lambda, map);
        }
        let mut sum = [0.0; 4];
        for index in 1..=footprint.count {
            let place = index as f32 / (footprint.count + 1) as f32 - 0.5;
            let mut moved = *spot;
            for (part, spread) in moved.coordinate.iter_mut().zip(footprint.spread) {
                *part += place * spread;
            }
            let sample = self.sample_levels(sampler, &moved, lambda, map);
            sum = std::array::from_fn(|channel| sum[channel] + sample[channel]);
        }
        sum.map(|channel| channel / footprint.count as f32)
    }

    /// The level of detail asked for by gradients.
    fn footprint(&self, sampler: &Sampler, spot: &Spot, x: [f32; 3], y: [f32; 3]) -> Footprint {
        let extent = self.dimensions(0);
        let length = |change: [f32; 3]| {
            let change = if self.shape.is_cube() {
                let [s, t] = cube::project_gradient(spot.coordinate, change);
                [s, t, 0.0]
            } else {
                change
            };
            let axes = 0..self.shape.axes();
            axes.map(|axis| change[axis] * extent[axis] as f32)
                .map(|part| part * part)
                .sum::<f32>()
        };
        let (along_x, along_y) = (length(x).sqrt(), length(y).sqrt());
        let (longer, shorter, spread) = if along_x >= along_y {
            (along_x, along_y, x)
        } else {
            (along_y, along_x, y)
        };
        // Linear filters alone are anisotropic, as WebGPU demands of such samplers.
        let most = f32::from(sampler.anisotropy.max(1));
        let stretch = if longer > 0.0 {
            (longer / shorter).min(most).max(1.0)
        } else {
            1.0
        };
        let lambda = logarithm::log2(F::new(&Scalar32, longer / stretch)).raw();
        Footprint {
            lambda,
            count: stretch.ceil() as u32,
            spread,
        }
    }

    /// A sample, blended from a level or two.
    fn sample_levels(&self, sampler: &Sampler, spot: &Spot, lambda: f32, map: Map<'_>) -> [f32; 4] {
        let filter = if lambda > 0.0 {
            sampler.minify
        } else {
            sampler.magnify
        };
        let last = self.num_levels().saturating_sub(1);
        let level = lambda.max(0.0).min(last as f32);
        let one = |level: u32| self.sample_level(sampler, filter, spot, level, map);
        match sampler.mipmap {
            // Halfway between two levels the sharper level is taken.
            MipmapFilterMode::Nearest => one(((level + 0.5).ceil() as u32).saturating_sub(1)),
            MipmapFilterMode::Linear => {
                let first = level as u32;
                let blend = level - first as f32;
                if blend == 0.0 {
                    return one(first);
                }
                lerp(one(first), one((first + 1).min(last)), blend)
            }
        }
    }

    /// A sample of a level.
    fn sample_level(
        &self,
        sampler: &Sampler,
        filter: FilterMode,
        spot: &Spot,
        level: u32,
        map: Map<'_>,
    ) -> [f32; 4] {
        let place = self.place(sampler, filter, spot, level);
        let axes = self.shape.axes();
        let texel = |corner: usize| {
            let words = self.texel_at(sampler, &place, corner);
            words.map(|words| map(words.map(f32::from_bits)))
        };
        if filter == FilterMode::Nearest {
            return texel(0).unwrap_or_default();
        }
        let corners = 1 << axes;
        let mut texels = [[0.0; 4]; 8];
        let mut missing = None;
        for (corner, found) in texels.iter_mut().enumerate().take(corners) {
            match texel(corner) {
                Some(texel) => *found = texel,
                None => missing = Some(corner),
            }
        }
        if let Some(missing) = missing {
            // At the corner of a cube three texels meet; their mean stands for the fourth.
            let sum = |channel: usize| texels[..corners].iter().map(|t| t[channel]).sum::<f32>();
            texels[missing] = std::array::from_fn(|channel| sum(channel) / 3.0);
        }
        for axis in 0..axes {
            let fraction = place.axes[axis].fraction;
            for pair in 0..corners >> (axis + 1) {
                texels[pair] = lerp(texels[2 * pair], texels[2 * pair + 1], fraction);
            }
        }
        texels[0]
    }

    /// The texels around a spot, along each axis.
    fn place(&self, sampler: &Sampler, filter: FilterMode, spot: &Spot, level: u32) -> Place {
        let extent = self.dimensions(level);
        let cubes = self.shape.is_cube();
        let (face, coordinate, offset, address) = if cubes {
            let point = cube::project(spot.coordinate);
            let [s, t] = point.coordinate;
            (
                point.face,
                [s, t, 0.0],
                [0; 3],
                [AddressMode::ClampToEdge; 3],
            )
        } else {
            (0, spot.coordinate, spot.offset, sampler.address)
        };
        let index = if self.shape.is_array() {
            spot.array_index.max(0) as u32
        } else {
            0
        };
        let index = index.min(self.num_layers().saturating_sub(1));
        let axis = |axis: usize| match filter {
            _ if axis >= self.shape.axes() => Axis::default(),
            FilterMode::Nearest => {
                Axis::nearest(address[axis], coordinate[axis], extent[axis], offset[axis])
            }
            FilterMode::Linear => {
                Axis::linear(address[axis], coordinate[axis], extent[axis], offset[axis])
            }
        };
        Place {
            axes: std::array::from_fn(axis),
            address,
            extent,
            layer: if cubes { 6 * index } else { index },
            face: cubes.then_some(face),
            across: filter == FilterMode::Linear,
            level,
        }
    }

    /// The words of a texel around a place, selected by a bit for each axis. None beyond the corner of a cube.
    fn texel_at(&self, sampler: &Sampler, place: &Place, corner: usize) -> Option<[u32; 4]> {
        let index = |axis: usize| place.axes[axis].indices[corner >> axis & 1];
        let (layer, coordinate) = match place.face {
            Some(face) if place.across => {
                let (face, [x, y]) =
                    cube::across_edge(face, [index(0), index(1)], place.extent[0])?;
                (place.layer + face, [x, y, 0])
            }
            face => {
                let wrapped = [0, 1, 2].map(|axis| match axis {
                    _ if axis >= self.shape.axes() => Some(0),
                    _ => wrap(place.address[axis], index(axis), place.extent[axis]),
                });
                let [Some(x), Some(y), Some(z)] = wrapped else {
                    return Some(self.border(sampler));
                };
                (place.layer + face.unwrap_or(0), [x, y, z])
            }
        };
        let at = At {
            coordinate,
            layer,
            level: place.level,
            sample: 0,
        };
        Some(self.load(at, OutOfBounds::Zero))
    }

    /// The border's colour, in the channels of the format.
    fn border(&self, sampler: &Sampler) -> [u32; 4] {
        let one = self.format.one();
        self.format.complete(
            sampler
                .border_channels()
                .map(|set| if set { one } else { 0 }),
        )
    }

    /// The texels of a gather, in WGSL's order.
    fn gather_texels(&self, sampler: &Sampler, spot: &Spot) -> [[u32; 4]; 4] {
        let place = self.place(sampler, FilterMode::Linear, spot, 0);
        // Bit 0 selects along x, bit 1 along y.
        [2, 3, 1, 0].map(|corner| {
            self.texel_at(sampler, &place, corner).unwrap_or_else(|| {
                // Beyond the corner of a cube: the texel at the corner, of the face hit by the direction.
                let inside = Place {
                    across: false,
                    ..place
                };
                self.texel_at(sampler, &inside, corner).unwrap_or_default()
            })
        })
    }
}

/// The texels read by a filter.
#[derive(Clone, Copy)]
struct Place {
    axes: [Axis; 3],
    address: [AddressMode; 3],
    extent: [u32; 3],
    /// The layer, or the first of a cube's layers.
    layer: u32,
    /// The face of a cube.
    face: Option<u32>,
    /// Whether texels outside of a face come from the neighbour.
    across: bool,
    level: u32,
}

fn lerp(a: [f32; 4], b: [f32; 4], fraction: f32) -> [f32; 4] {
    std::array::from_fn(|channel| a[channel] + (b[channel] - a[channel]) * fraction)
}
