//! Texels in staging memory, and the device's end of a copy from or to staging memory.
//!
//! wgpu copies between buffers and textures only where the rows of texels lie a multiple of 256 bytes apart in the buffer.
//! Programs have rows without gaps, so rows are spread when staging memory is filled, and joined when it is read
//! ([`Rows`]). A part of a texture goes in bands: whole slices where several fit a piece, else rows of one slice
//! ([`bands`]), each with staging memory of its own as the pieces of a buffer have.

use std::ops::Range;

use crate::memory::host_memory::Destination;

/// Distance of rows in a buffer: a multiple of this.
const ALIGNMENT: u64 = wgpu::COPY_BYTES_PER_ROW_ALIGNMENT as u64;

/// Rows of texels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Bytes of a row, at least 1.
    pub bytes: u64,
    /// From the begin of a row to that of the next one, in staging memory.
    pub stride: u64,
    pub count: u64,
}

impl Rows {
    /// Bytes of all rows without gaps, the layout of programs.
    pub(crate) fn joined(self) -> u64 {
        self.bytes * self.count
    }

    /// Bytes of all rows with gaps, the layout of staging memory.
    pub(crate) fn spread(self) -> u64 {
        self.stride * self.count
    }

    /// Copies rows out of staging memory.
    pub(crate) fn join(self, staged: &[u8], mut to: Destination<'_>) {
        for row in staged.chunks_exact(self.stride as usize) {
            to.split_off(self.bytes as usize)
                .put(&row[..self.bytes as usize]);
        }
    }
}

/// A part of a texture that goes through one staging buffer. In `z` are the slices of a volume, or layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Band {
    pub origin: [u32; 3],
    pub extent: [u32; 3],
    pub rows: Rows,
}

/// The bands of a part of a texture, in the order of the texels. A band takes at most `most` bytes of staging memory, or is one
/// row. The part is not empty.
pub(crate) fn bands(
    origin: [u32; 3],
    extent: [u32; 3],
    texel_bytes: u32,
    most: u64,
) -> impl Iterator<Item = Band> {
    let [width, height, depth] = extent;
    let bytes = u64::from(width) * u64::from(texel_bytes);
    let stride = bytes.next_multiple_of(ALIGNMENT);
    let at_once = (most / stride).clamp(1, u64::from(u32::MAX)) as u32;
    // Rows of one slice, or whole slices.
    let (rows, slices) = match at_once < height {
        true => (at_once, 1),
        false => (height, (at_once / height).max(1)),
    };
    let (mut y, mut z) = (0, 0);
    std::iter::from_fn(move || {
        if z >= depth {
            return None;
        }
        let (high, deep) = (rows.min(height - y), slices.min(depth - z));
        let band = Band {
            origin: [origin[0], origin[1] + y, origin[2] + z],
            extent: [width, high, deep],
            rows: Rows {
                bytes,
                stride,
                count: u64::from(high) * u64::from(deep),
            },
        };
        y += high;
        if y == height {
            (y, z) = (0, z + deep);
        }
        Some(band)
    })
}

/// The device's end of a copy.
#[derive(Debug, Clone)]
pub(crate) enum Far {
    Words {
        buffer: wgpu::Buffer,
        words: Range<u64>,
    },
    Texels {
        texture: wgpu::Texture,
        band: Band,
    },
}

impl Far {
    /// Bytes of staging memory.
    pub(crate) fn staged(&self) -> u64 {
        match self {
            Self::Words { words, .. } => words.end - words.start,
            Self::Texels { band, .. } => band.rows.spread(),
        }
    }

    /// The rows in staging memory, where the bytes are texels.
    pub(crate) fn rows(&self) -> Option<Rows> {
        match self {
            Self::Words { .. } => None,
            Self::Texels { band, .. } => Some(band.rows),
        }
    }

    /// Records the copy to staging memory.
    pub(crate) fn fetch(&self, encoder: &mut wgpu::CommandEncoder, memory: &wgpu::Buffer) {
        match self {
            Self::Words { buffer, words } => {
                let count = words.end - words.start;
                encoder.copy_buffer_to_buffer(buffer, words.start, memory, 0, count);
            }
            Self::Texels { texture, band } => {
                let (texels, staged, extent) = band.copy(texture, memory);
                encoder.copy_texture_to_buffer(texels, staged, extent);
            }
        }
    }

    /// Records the copy from staging memory.
    pub(crate) fn store(&self, encoder: &mut wgpu::CommandEncoder, memory: &wgpu::Buffer) {
        match self {
            Self::Words { buffer, words } => {
                let count = words.end - words.start;
                encoder.copy_buffer_to_buffer(memory, 0, buffer, words.start, count);
            }
            Self::Texels { texture, band } => {
                let (texels, staged, extent) = band.copy(texture, memory);
                encoder.copy_buffer_to_texture(staged, texels, extent);
            }
        }
    }
}

impl Band {
    /// Both ends of a copy, and the extent.
    fn copy<'c>(
        &self,
        texture: &'c wgpu::Texture,
        memory: &'c wgpu::Buffer,
    ) -> (
        wgpu::TexelCopyTextureInfo<'c>,
        wgpu::TexelCopyBufferInfo<'c>,
        wgpu::Extent3d,
    ) {
        let [x, y, z] = self.origin;
        let [width, height, depth_or_array_layers] = self.extent;
        let texels = wgpu::TexelCopyTextureInfo {
            texture,
            mip_level: 0,
            origin: wgpu::Origin3d { x, y, z },
            aspect: wgpu::TextureAspect::All,
        };
        let staged = wgpu::TexelCopyBufferInfo {
            buffer: memory,
            layout: wgpu::TexelCopyBufferLayout {
                offset: 0,
                // A row has at most 2^20 bytes or so: no adapter has textures of a million texels in a dimension.
                bytes_per_row: Some(self.rows.stride as u32),
                rows_per_image: Some(height),
            },
        };
        let extent = wgpu::Extent3d {
            width,
            height,
            depth_or_array_layers,
        };
        (texels, staged, extent)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::MemoryError;
    use crate::memory::host_memory::filled;

    proptest! {
        /// Bands cover each row of a part once, in the order of the texels, within the memory of a band.
        #[test]
        fn bands_cover_a_part_in_order(
            origin: [u8; 3], width in 1u32..300, height in 1u32..20, depth in 1u32..9,
            texel_bytes in prop_oneof![Just(1u32), Just(2), Just(4), Just(8), Just(16)], most in 1u64..40_000,
        ) {
            let origin = origin.map(u32::from);
            let mut rows = Vec::new();
            for band in bands(origin, [width, height, depth], texel_bytes, most) {
                prop_assert_eq!((band.origin[0], band.extent[0]), (origin[0], width));
                prop_assert_eq!(band.rows.bytes, u64::from(width * texel_bytes));
                prop_assert!(band.rows.stride.is_multiple_of(256) && band.rows.stride - band.rows.bytes < 256);
                prop_assert!(band.rows.spread() <= most || band.rows.count == 1);
                prop_assert_eq!(band.rows.count, u64::from(band.extent[1] * band.extent[2]));
                for z in band.origin[2]..band.origin[2] + band.extent[2] {
                    for y in band.origin[1]..band.origin[1] + band.extent[1] {
                        rows.push((z - origin[2], y - origin[1]));
                    }
                }
            }
            let all = (0..depth).flat_map(|z| (0..height).map(move |y| (z, y)));
            prop_assert_eq!(rows, all.collect::<Vec<_>>());
        }

        #[test]
        fn joined_rows_are_those_of_the_program(bytes in 1u64..600, count in 1u64..9) {
            let rows = Rows { bytes, stride: bytes.next_multiple_of(256), count };
            let staged: Vec<u8> = (0..rows.spread()).map(|at| (at % 251) as u8).collect();
            let wanted: Vec<u8> = (0..count)
                .flat_map(|row| (0..bytes).map(move |at| ((row * rows.stride + at) % 251) as u8))
                .collect();
            let joined = filled::<u8, MemoryError>("a test", rows.joined() as usize, |to| {
                rows.join(&staged, to);
                Ok(())
            });
            prop_assert_eq!(joined.unwrap(), wanted);
        }
    }
}
