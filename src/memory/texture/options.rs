//! What a texture is: dimension, size, format and use; and parts of textures.

use std::fmt;

/// How the texels of a texture are arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TextureDimension {
    /// A row: `texture_1d`, `texture_storage_1d`.
    D1,
    /// A picture: `texture_2d`, `texture_storage_2d`.
    D2,
    /// Pictures of one size, whose texels are never mixed: `texture_2d_array`, `texture_storage_2d_array`.
    D2Array,
    /// A volume: `texture_3d`, `texture_storage_3d`.
    D3,
}

/// The name of a limit in [`wgpu::Limits`], and its value.
pub(super) type Limit = (&'static str, u32);

impl TextureDimension {
    pub(super) fn raw(self) -> wgpu::TextureDimension {
        match self {
            Self::D1 => wgpu::TextureDimension::D1,
            Self::D2 | Self::D2Array => wgpu::TextureDimension::D2,
            Self::D3 => wgpu::TextureDimension::D3,
        }
    }

    pub(crate) fn view(self) -> wgpu::TextureViewDimension {
        match self {
            Self::D1 => wgpu::TextureViewDimension::D1,
            Self::D2 => wgpu::TextureViewDimension::D2,
            Self::D2Array => wgpu::TextureViewDimension::D2Array,
            Self::D3 => wgpu::TextureViewDimension::D3,
        }
    }

    /// What each number of a size is called, and the name and value of its limit; no limit where the dimension lacks the number.
    pub(super) fn limits(self, limits: &wgpu::Limits) -> [(&'static str, Option<Limit>); 3] {
        let (name, along) = match self {
            Self::D1 => ("max_texture_dimension_1d", limits.max_texture_dimension_1d),
            Self::D2 | Self::D2Array => {
                ("max_texture_dimension_2d", limits.max_texture_dimension_2d)
            }
            Self::D3 => ("max_texture_dimension_3d", limits.max_texture_dimension_3d),
        };
        let along = Some((name, along));
        let layers = ("max_texture_array_layers", limits.max_texture_array_layers);
        let height = match self {
            Self::D1 => None,
            _ => along,
        };
        let depth = match self {
            Self::D3 => ("depth", along),
            Self::D2Array => ("number of layers", Some(layers)),
            Self::D1 | Self::D2 => ("depth", None),
        };
        [("width", along), ("height", height), depth]
    }
}

impl fmt::Display for TextureDimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::D1 => "1D",
            Self::D2 => "2D",
            Self::D2Array => "2D array",
            Self::D3 => "3D",
        })
    }
}

/// What a texture is to be: for [`Device::texture`](crate::Device::texture). One of the functions named after the dimensions
/// begins; kernels may sample the texture then, and [`TextureOptions::storage`] lets them store as well.
///
/// ```
/// use tombolo::textures::TextureOptions;
/// use tombolo::wgpu::TextureFormat;
///
/// let picture = TextureOptions::d2([640, 480], TextureFormat::Rgba8Unorm).storage(true);
/// let curve = TextureOptions::d1(256, TextureFormat::R32Float);
/// # let _ = (picture, curve);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "options make no texture: give them to `Device::texture`"]
pub struct TextureOptions {
    /// How the texels are arranged.
    pub dimension: TextureDimension,
    /// Texels in x, in y, and in z (of a volume) or layers (of an array); 1 where the dimension has no such number.
    pub size: [u32; 3],
    /// How a texel is stored.
    pub format: wgpu::TextureFormat,
    /// Whether kernels may load and sample texels, by a `texture_…<f32>` and the like. On at first.
    pub sampled: bool,
    /// Whether kernels may use the texture as a `texture_storage_…`. Off at first, since fewer formats can.
    pub storage: bool,
    /// The name for debuggers and for messages of wgpu.
    pub label: Option<String>,
}

impl TextureOptions {
    fn new(dimension: TextureDimension, size: [u32; 3], format: wgpu::TextureFormat) -> Self {
        Self {
            dimension,
            size,
            format,
            sampled: true,
            storage: false,
            label: None,
        }
    }

    /// A row of `width` texels.
    pub fn d1(width: u32, format: wgpu::TextureFormat) -> Self {
        Self::new(TextureDimension::D1, [width, 1, 1], format)
    }

    /// A picture of `width` × `height` texels.
    pub fn d2([width, height]: [u32; 2], format: wgpu::TextureFormat) -> Self {
        Self::new(TextureDimension::D2, [width, height, 1], format)
    }

    /// So many pictures of `width` × `height` texels.
    pub fn d2_array([width, height]: [u32; 2], layers: u32, format: wgpu::TextureFormat) -> Self {
        Self::new(TextureDimension::D2Array, [width, height, layers], format)
    }

    /// A volume of `width` × `height` × `depth` texels.
    pub fn d3(size: [u32; 3], format: wgpu::TextureFormat) -> Self {
        Self::new(TextureDimension::D3, size, format)
    }

    /// Sets whether kernels may load and sample texels.
    pub fn sampled(mut self, sampled: bool) -> Self {
        self.sampled = sampled;
        self
    }

    /// Sets whether kernels may use the texture as a storage texture.
    pub fn storage(mut self, storage: bool) -> Self {
        self.storage = storage;
        self
    }

    /// Names the texture.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }
}

/// A box of texels: a part of a texture, for transfers. Made of an origin and an extent with a number for each dimension, the
/// third for the slices of a volume or the layers of an array: `([10, 20], [64, 64])`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TextureRegion {
    /// The first texel: x, y, and z or layer.
    pub origin: [u32; 3],
    /// Texels in x, in y, and in z or layers.
    pub extent: [u32; 3],
}

impl TextureRegion {
    /// The texels from `origin` on, as many as `extent` says.
    pub fn new(origin: [u32; 3], extent: [u32; 3]) -> Self {
        Self { origin, extent }
    }

    /// How many texels these are.
    pub fn texels(&self) -> u64 {
        let [width, height, depth] = self.extent.map(u64::from);
        width.saturating_mul(height).saturating_mul(depth)
    }

    /// Whether all texels are within a texture of that size.
    pub(super) fn is_within(&self, size: [u32; 3]) -> bool {
        (0..3).all(|axis| {
            let end = self.origin[axis].checked_add(self.extent[axis]);
            end.is_some_and(|end| end <= size[axis])
        })
    }
}

impl From<([u32; 1], [u32; 1])> for TextureRegion {
    fn from(([x], [width]): ([u32; 1], [u32; 1])) -> Self {
        Self::new([x, 0, 0], [width, 1, 1])
    }
}

impl From<([u32; 2], [u32; 2])> for TextureRegion {
    fn from(([x, y], [width, height]): ([u32; 2], [u32; 2])) -> Self {
        Self::new([x, y, 0], [width, height, 1])
    }
}

impl From<([u32; 3], [u32; 3])> for TextureRegion {
    fn from((origin, extent): ([u32; 3], [u32; 3])) -> Self {
        Self::new(origin, extent)
    }
}

impl fmt::Display for TextureRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([x, y, z], [width, height, depth]) = (self.origin, self.extent);
        write!(f, "{width}×{height}×{depth} texels from ({x}, {y}, {z}) on")
    }
}
