//! Textures, views of textures, and samplers.
//!
//! A texture is memory of the host: its levels one behind the other, each as slices (layers, or depth) of rows without gaps. A
//! kernel is bound to a view ([`Image`]).

use std::{fmt, ops::Range, sync::Arc};

use wgpu_hal as hal;
use wgpu_types as wgt;

use super::{Buffer, DeviceResult};
use crate::{
    compile::image::{Image, Texels},
    texel::{self, Format, Kind, Level, Shape},
};

/// The alignment of levels in bytes: the size of the largest texel.
const LEVEL_ALIGNMENT: usize = 16;

/// A texture: a handle of memory, freed with the last handle.
#[derive(Clone)]
pub struct Texture {
    texels: Arc<Texels>,
    levels: Arc<[Level]>,
    /// Layers; the depth of the first level for volumes
    layers: u32,
    texel_bytes: u32,
}

/// A view of a texture.
#[derive(Clone)]
pub struct TextureView {
    pub(super) image: Arc<Image>,
}

/// A sampler.
#[derive(Clone, Debug)]
pub struct Sampler {
    pub(super) state: Arc<texel::Sampler>,
}

/// The format of texels, if the adapter has the format: of one plane, for colours, not compressed.
fn format_of(format: wgt::TextureFormat) -> Option<Format> {
    let known = Format::new(format, wgt::TextureAspect::All).ok()?;
    let colour = !format.is_depth_stencil_format() && format != wgt::TextureFormat::R64Uint;
    colour.then_some(known)
}

/// Possible uses of textures of a format.
pub(super) fn capabilities(format: wgt::TextureFormat) -> hal::TextureFormatCapabilities {
    use hal::TextureFormatCapabilities as C;
    let Some(known) = format_of(format) else {
        return C::empty();
    };
    let mut capabilities = C::SAMPLED | C::COPY_SRC | C::COPY_DST;
    if known.kind() == Kind::Float {
        capabilities |= C::SAMPLED_LINEAR;
    }
    if !format.is_srgb() && format != wgt::TextureFormat::Rgb9e5Ufloat {
        capabilities |= C::STORAGE_READ_ONLY | C::STORAGE_WRITE_ONLY | C::STORAGE_READ_WRITE;
    }
    if matches!(
        format,
        wgt::TextureFormat::R32Uint | wgt::TextureFormat::R32Sint
    ) {
        capabilities |= C::STORAGE_ATOMIC;
    }
    capabilities
}

impl Texture {
    /// A texture of zeros.
    ///
    /// # Errors
    /// If there is no such memory, or if the format is none of the adapter's; wgpu-core rules the latter out.
    pub(super) fn new(desc: &hal::TextureDescriptor) -> DeviceResult<Self> {
        let format = format_of(desc.format).ok_or(hal::DeviceError::Unexpected)?;
        let texel_bytes = format.bytes();
        let mut end = 0usize;
        let mut levels = Vec::new();
        for level in 0..desc.mip_level_count {
            let size = desc.size.mip_level_size(level, desc.dimension);
            let volume = desc.dimension == wgt::TextureDimension::D3;
            let row_stride = (size.width as usize).checked_mul(texel_bytes as usize);
            let slice_stride = row_stride.and_then(|row| row.checked_mul(size.height as usize));
            let next = slice_stride
                .and_then(|slice| slice.checked_mul(size.depth_or_array_layers as usize))
                .and_then(|bytes| bytes.checked_add(end))
                .and_then(|end| end.checked_next_multiple_of(LEVEL_ALIGNMENT));
            let (Some(row_stride), Some(slice_stride), Some(next)) =
                (row_stride, slice_stride, next)
            else {
                return Err(hal::DeviceError::OutOfMemory);
            };
            let depth = if volume {
                size.depth_or_array_layers
            } else {
                1
            };
            levels.push(Level {
                offset: end,
                extent: [size.width, size.height, depth],
                row_stride,
                slice_stride,
            });
            end = next;
        }
        Ok(Self {
            texels: Arc::new(Texels::zeroed(end).ok_or(hal::DeviceError::OutOfMemory)?),
            levels: levels.into(),
            layers: desc.size.depth_or_array_layers,
            texel_bytes,
        })
    }

    /// Where a copy begins in the texture.
    pub(super) fn rows(&self, base: &hal::TextureCopyBase) -> Option<Rows> {
        let level = self.levels.get(base.mip_level as usize)?;
        // Layers and depth exclude each other.
        let slice = u64::from(base.array_layer) + u64::from(base.origin.z);
        let (row, slices) = (level.row_stride as u64, level.slice_stride as u64);
        Some(Rows {
            offset: level.offset as u64
                + slice * slices
                + u64::from(base.origin.y) * row
                + u64::from(base.origin.x) * u64::from(self.texel_bytes),
            memory: Holder::Texture(self.clone()),
            row,
            slice: slices,
        })
    }

    /// Bytes of a row of so many texels.
    pub(super) fn row_bytes(&self, texels: u32) -> u64 {
        u64::from(texels) * u64::from(self.texel_bytes)
    }

    fn range(&self, range: Range<u64>) -> Option<(*mut u8, usize)> {
        let (start, bytes) = self.texels.bytes();
        if range.start > range.end || range.end > bytes as u64 {
            return None;
        }
        // SAFETY: the range lies inside the memory of the texture.
        let start = unsafe { start.add(range.start as usize) };
        Some((start, (range.end - range.start) as usize))
    }
}

impl TextureView {
    /// A view of some levels and layers.
    ///
    /// # Errors
    /// [`hal::DeviceError::Unexpected`] for descriptors ruled out by wgpu-core.
    pub(super) fn new(texture: &Texture, desc: &hal::TextureViewDescriptor) -> DeviceResult<Self> {
        use wgt::TextureViewDimension as D;
        let range = &desc.range;
        let all = texture.levels.len() as u32;
        let start = range.base_mip_level.min(all);
        let count = range.mip_level_count.unwrap_or(all - start);
        let end = start.saturating_add(count).min(all);
        let layers = match desc.dimension {
            D::D1 | D::D2 | D::D3 => 1,
            D::Cube => 6,
            D::D2Array | D::CubeArray => match range.array_layer_count {
                Some(count) => count,
                None => texture.layers.saturating_sub(range.base_array_layer),
            },
        };
        let shape = match desc.dimension {
            D::D1 => Shape::D1,
            D::D2 => Shape::D2,
            D::D2Array => Shape::D2Array,
            D::Cube => Shape::Cube,
            D::CubeArray => Shape::CubeArray,
            D::D3 => Shape::D3,
        };
        let levels: Vec<Level> = texture.levels[start as usize..end as usize]
            .iter()
            .map(|level| Level {
                offset: level.offset + range.base_array_layer as usize * level.slice_stride,
                ..*level
            })
            .collect();
        if levels.is_empty() {
            return Err(hal::DeviceError::Unexpected);
        }
        let image = Image {
            texels: texture.texels.clone(),
            format: format_of(desc.format).ok_or(hal::DeviceError::Unexpected)?,
            shape,
            levels,
            layers,
        };
        Ok(Self {
            image: Arc::new(image),
        })
    }
}

impl Sampler {
    pub(super) fn new(desc: &hal::SamplerDescriptor) -> Self {
        let state = texel::Sampler {
            address: desc.address_modes,
            magnify: desc.mag_filter,
            minify: desc.min_filter,
            mipmap: desc.mipmap_filter,
            level_range: [desc.lod_clamp.start, desc.lod_clamp.end],
            compare: desc.compare,
            anisotropy: desc.anisotropy_clamp,
            border: desc
                .border_color
                .unwrap_or(wgt::SamplerBorderColor::TransparentBlack),
        };
        Self {
            state: Arc::new(state),
        }
    }
}

impl fmt::Debug for Texture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Texture")
            .field("levels", &self.levels)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TextureView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextureView")
            .field("shape", &self.image.shape)
            .finish_non_exhaustive()
    }
}

impl hal::DynTexture for Texture {}
impl hal::DynTextureView for TextureView {}
impl hal::DynSampler for Sampler {}

/// Whose memory is copied.
#[derive(Clone, Debug)]
enum Holder {
    Buffer(Buffer),
    Texture(Texture),
}

/// Rows of texels, in a buffer or in a texture.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    memory: Holder,
    offset: u64,
    /// Bytes from a row to the next
    row: u64,
    /// Bytes from a slice to the next
    slice: u64,
}

impl Rows {
    /// Rows of a buffer, by the layout of a copy.
    pub(super) fn of_buffer(
        buffer: &Buffer,
        layout: &wgt::TexelCopyBufferLayout,
        row_bytes: u64,
        height: u32,
    ) -> Self {
        let row = layout.bytes_per_row.map_or(row_bytes, u64::from);
        let rows = layout.rows_per_image.unwrap_or(height);
        Self {
            memory: Holder::Buffer(buffer.clone()),
            offset: layout.offset,
            row,
            slice: row.saturating_mul(rows.into()),
        }
    }

    /// Bytes of a row.
    fn at(&self, slice: u32, row: u32, bytes: u64) -> Option<(*mut u8, usize)> {
        let start = u64::from(slice)
            .checked_mul(self.slice)?
            .checked_add(u64::from(row).checked_mul(self.row)?)?
            .checked_add(self.offset)?;
        let range = start..start.checked_add(bytes)?;
        match &self.memory {
            Holder::Buffer(buffer) => buffer.range(range),
            Holder::Texture(texture) => texture.range(range),
        }
    }
}

/// A copy of rows: `[bytes of a row, rows of a slice, slices]`.
#[derive(Clone, Debug)]
pub(super) struct CopyRows {
    pub(super) from: Rows,
    pub(super) to: Rows,
    pub(super) row_bytes: u64,
    pub(super) rows: u32,
    pub(super) slices: u32,
}

impl CopyRows {
    /// Bytes of the copy.
    pub(super) fn bytes(&self) -> u64 {
        let rows = u64::from(self.rows) * u64::from(self.slices);
        self.row_bytes.saturating_mul(rows)
    }

    /// Copies. Rows outside their memory, ruled out by wgpu-core, are left out.
    pub(super) fn run(&self) {
        for slice in 0..self.slices {
            for row in 0..self.rows {
                let from = self.from.at(slice, row, self.row_bytes);
                let to = self.to.at(slice, row, self.row_bytes);
                if let (Some((from, bytes)), Some((to, _))) = (from, to) {
                    // SAFETY: both rows lie in memory kept alive by the copy. wgpu orders commands on the memory, and the host
                    // does not access the memory meanwhile. Rows may overlap.
                    unsafe { from.copy_to(to, bytes) };
                }
            }
        }
    }
}
