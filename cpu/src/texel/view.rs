//! A texture as seen by kernels: the texels and their places.

use super::format::{Format, Kind};
use super::memory::Memory;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The shape of a texture view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// `texture_1d`.
    D1,
    /// `texture_2d`.
    D2,
    /// `texture_2d_array`.
    D2Array,
    /// `texture_cube`: six layers.
    Cube,
    /// `texture_cube_array`: six layers for each cube.
    CubeArray,
    /// `texture_3d`.
    D3,
}

impl Shape {
    /// How many coordinates select a texel, layers aside.
    pub fn axes(self) -> usize {
        match self {
            Self::D1 => 1,
            Self::D2 | Self::D2Array | Self::Cube | Self::CubeArray => 2,
            Self::D3 => 3,
        }
    }

    /// Whether a direction selects the texel.
    pub fn is_cube(self) -> bool {
        matches!(self, Self::Cube | Self::CubeArray)
    }

    /// Whether an index selects among the layers.
    pub fn is_array(self) -> bool {
        matches!(self, Self::D2Array | Self::CubeArray)
    }
}

/// One level of detail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// The place of the level's first texel, in bytes: the first texel of the view's first layer.
    pub offset: usize,
    /// Texels along x, y and z; 1 for axes missing from the shape.
    pub extent: [u32; 3],
    /// Bytes from a row to the next.
    pub row_stride: usize,
    /// Bytes from a slice to the next: of z, or of layers.
    pub slice_stride: usize,
}

/// A view of a texture.
///
/// Offsets and strides are multiples of the texel's size, up to 8. Texels placed outside of the memory by the numbers read as
/// zero and are not written.
#[derive(Clone, Copy, Debug)]
pub struct TexelView<'a> {
    /// Where the texels are.
    pub memory: Memory<'a>,
    /// The texels' format in memory.
    pub format: Format,
    /// The view's shape.
    pub shape: Shape,
    /// The view's levels, from its base level on: at least one.
    pub levels: &'a [Level],
    /// The view's layers: 1 for shapes without layers, six for each cube.
    pub layers: u32,
    /// Samples of a texel: 1 unless multisampled.
    pub samples: u32,
    /// Bytes from a sample of all texels to the next sample.
    pub sample_stride: usize,
}

/// The result of a load out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutOfBounds {
    /// The value is zero in all channels: naga's `ReadZeroSkipWrite`, and safe for `Unchecked`.
    Zero,
    /// Level, coordinates, layer and sample are clamped: naga's `Restrict`.
    Clamp,
}

/// The texel of a load or store. All numbers are unsigned: negative numbers are out of bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct At {
    /// x, y and z; zero for axes missing from the shape.
    pub coordinate: [u32; 3],
    /// The layer; zero for shapes without layers.
    pub layer: u32,
    /// The level above the view's base level.
    pub level: u32,
    /// The sample.
    pub sample: u32,
}

impl<'a> TexelView<'a> {
    /// WGSL `textureDimensions`; zeros for a missing level.
    pub fn dimensions(&self, level: u32) -> [u32; 3] {
        self.levels
            .get(level as usize)
            .map_or([0; 3], |level| level.extent)
    }

    /// WGSL `textureNumLevels`.
    pub fn num_levels(&self) -> u32 {
        self.levels.len() as u32
    }

    /// WGSL `textureNumLayers`: cubes count as one layer.
    pub fn num_layers(&self) -> u32 {
        if self.shape.is_cube() {
            self.layers / 6
        } else {
            self.layers
        }
    }

    /// WGSL `textureNumSamples`.
    pub fn num_samples(&self) -> u32 {
        self.samples
    }

    /// The byte offset of a texel; none out of bounds.
    fn offset(&self, at: At) -> Option<usize> {
        let level = self.levels.get(at.level as usize)?;
        let inside = (0..3).all(|axis| at.coordinate[axis] < level.extent[axis]);
        if !inside || at.layer >= self.layers || at.sample >= self.samples {
            return None;
        }
        let [x, y, z] = at.coordinate.map(|n| n as usize);
        // z and layer exclude each other: whichever is missing from the shape is zero.
        let slice = z + at.layer as usize;
        let parts = [
            x.checked_mul(self.format.bytes() as usize)?,
            y.checked_mul(level.row_stride)?,
            slice.checked_mul(level.slice_stride)?,
            (at.sample as usize).checked_mul(self.sample_stride)?,
        ];
        parts.into_iter().try_fold(level.offset, usize::checked_add)
    }

    /// The nearest existing texel.
    fn clamp(&self, at: At) -> At {
        let level = at.level.min(self.num_levels().saturating_sub(1));
        let extent = self.dimensions(level);
        let inside = |index: u32, count: u32| index.min(count.saturating_sub(1));
        At {
            coordinate: std::array::from_fn(|axis| inside(at.coordinate[axis], extent[axis])),
            layer: inside(at.layer, self.layers),
            level,
            sample: inside(at.sample, self.samples),
        }
    }

    /// WGSL `textureLoad`: the words of four f32, u32 or i32, as the format's kind says. A texel of
    /// [`Kind::Uint64`] has its low and high word first, then zero, and 1 as the fourth channel's.
    pub fn load(&self, at: At, out_of_bounds: OutOfBounds) -> [u32; 4] {
        let at = match out_of_bounds {
            OutOfBounds::Zero => at,
            OutOfBounds::Clamp => self.clamp(at),
        };
        self.texel(at).unwrap_or_default()
    }

    /// The value of a texel; none out of bounds.
    pub(super) fn texel(&self, at: At) -> Option<[u32; 4]> {
        let texel = self.memory.read(self.offset(at)?, self.format.bytes())?;
        Some(self.format.decode(texel))
    }

    /// WGSL `textureStore`: nothing happens out of bounds.
    pub fn store(&self, at: At, value: [u32; 4]) {
        if let Some(offset) = self.offset(at) {
            // Missing memory at the end is out of bounds as well.
            let _ = self
                .memory
                .write(offset, self.format.bytes(), self.format.encode(value));
        }
    }

    /// The texel as an atomic integer, for `textureAtomic…` on `r32uint` and `r32sint`; none out of
    /// bounds or for texels of another size.
    pub fn atomic(&self, at: At) -> Option<&'a AtomicU32> {
        if self.format.bytes() != 4 {
            return None;
        }
        self.memory.word(self.offset(at)?)
    }

    /// The texel as an atomic integer, for `textureAtomic…` on `r64uint`; none out of bounds or for
    /// other formats.
    pub fn atomic_u64(&self, at: At) -> Option<&'a AtomicU64> {
        if self.format.kind() != Kind::Uint64 {
            return None;
        }
        self.memory.double_word(self.offset(at)?)
    }
}
