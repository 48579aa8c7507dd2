//! Samplers: how coordinates become texels.

use wgpu_types::{AddressMode, CompareFunction, FilterMode, MipmapFilterMode, SamplerBorderColor};

/// The state of a sampler, as given by `wgpu_types::SamplerDescriptor`.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// The treatment of coordinates outside of [0, 1), for each axis. Cubes ignore the mode.
    pub address: [AddressMode; 3],
    /// The filter for texels larger than the sampled area.
    pub magnify: FilterMode,
    /// The filter where texels are smaller.
    pub minify: FilterMode,
    /// The filter between levels.
    pub mipmap: MipmapFilterMode,
    /// The least and the greatest level.
    pub level_range: [f32; 2],
    /// The comparison of a comparison sampler.
    pub compare: Option<CompareFunction>,
    /// The most samples along the direction of the greatest change; 1 for isotropic filtering.
    pub anisotropy: u16,
    /// The colour outside for [`AddressMode::ClampToBorder`].
    pub border: SamplerBorderColor,
}

impl Default for Sampler {
    /// WebGPU's defaults: nearest texel, clamped coordinates.
    fn default() -> Self {
        Self {
            address: [AddressMode::ClampToEdge; 3],
            magnify: FilterMode::Nearest,
            minify: FilterMode::Nearest,
            mipmap: MipmapFilterMode::Nearest,
            level_range: [0.0, 32.0],
            compare: None,
            anisotropy: 1,
            border: SamplerBorderColor::TransparentBlack,
        }
    }
}

impl Sampler {
    /// The border as the words of f32; the same bits are zero and, for integers, one is 1.
    pub(super) fn border_channels(&self) -> [bool; 4] {
        match self.border {
            SamplerBorderColor::TransparentBlack | SamplerBorderColor::Zero => [false; 4],
            SamplerBorderColor::OpaqueBlack => [false, false, false, true],
            SamplerBorderColor::OpaqueWhite => [true; 4],
        }
    }
}

/// 1 where the comparison of the reference with the texel holds, else 0.
pub(super) fn compare(function: CompareFunction, reference: f32, texel: f32) -> f32 {
    let holds = match function {
        CompareFunction::Never => false,
        CompareFunction::Less => reference < texel,
        CompareFunction::Equal => reference == texel,
        CompareFunction::LessEqual => reference <= texel,
        CompareFunction::Greater => reference > texel,
        CompareFunction::NotEqual => reference != texel,
        CompareFunction::GreaterEqual => reference >= texel,
        CompareFunction::Always => true,
    };
    f32::from(u8::from(holds))
}

/// The texel under an index on an axis of `size` texels; none for the border.
pub(super) fn wrap(mode: AddressMode, index: i64, size: u32) -> Option<u32> {
    let count = i64::from(size.max(1));
    let wrapped = match mode {
        AddressMode::ClampToEdge => index.clamp(0, count - 1),
        AddressMode::Repeat => index.rem_euclid(count),
        AddressMode::MirrorRepeat => {
            let position = index.rem_euclid(2 * count);
            position.min(2 * count - 1 - position)
        }
        AddressMode::ClampToBorder if (0..count).contains(&index) => index,
        AddressMode::ClampToBorder => return None,
    };
    Some(wrapped as u32)
}

/// A coordinate without whole periods of the address mode, so that large coordinates keep their precision.
fn reduce(mode: AddressMode, coordinate: f32) -> f32 {
    match mode {
        AddressMode::Repeat => coordinate - coordinate.floor(),
        AddressMode::MirrorRepeat => coordinate - 2.0 * (coordinate * 0.5).floor(),
        AddressMode::ClampToEdge | AddressMode::ClampToBorder => coordinate,
    }
}

/// One axis of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Axis {
    /// The texel before and the one after; the same for the nearest one.
    pub indices: [i64; 2],
    /// How far the sample is from the first to the second.
    pub fraction: f32,
}

impl Axis {
    /// The texel around a coordinate.
    pub fn nearest(mode: AddressMode, coordinate: f32, size: u32, offset: i32) -> Self {
        let position = reduce(mode, coordinate) * size as f32;
        // Conversions saturate, and NaN becomes 0: any index is wrapped afterwards.
        let index = i64::from(position.floor() as i32) + i64::from(offset);
        Self {
            indices: [index; 2],
            fraction: 0.0,
        }
    }

    /// The two texels whose centres the coordinate lies between.
    pub fn linear(mode: AddressMode, coordinate: f32, size: u32, offset: i32) -> Self {
        let position = reduce(mode, coordinate) * size as f32 - 0.5;
        let whole = position.floor();
        let first = i64::from(whole as i32) + i64::from(offset);
        let fraction = position - whole;
        // Infinite coordinates have no fraction.
        let fraction = if fraction.is_nan() { 0.0 } else { fraction };
        Self {
            indices: [first, first + 1],
            fraction,
        }
    }
}
