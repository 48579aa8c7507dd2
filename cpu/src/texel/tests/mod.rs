//! Tests against formulas in binary64 and against models; `tests/texel` compares with drivers.

#![allow(clippy::needless_range_loop, reason = "channels are numbers")]

mod access;
mod cubes;
mod formats;
mod samples;

use super::{Format, Level, Memory, Shape, TexelView};
use crate::random::{unit, word};
use std::sync::atomic::AtomicU64;
use wgpu_types::{TextureAspect, TextureFormat};

/// A texture with memory of its own.
struct Texture {
    words: Vec<AtomicU64>,
    format: Format,
    shape: Shape,
    levels: Vec<Level>,
    layers: u32,
}

impl Texture {
    /// A texture with all levels that `levels` asks for, rows padded by a texel and slices by a row.
    fn new(
        format: TextureFormat,
        shape: Shape,
        extent: [u32; 3],
        layers: u32,
        levels: u32,
    ) -> Self {
        let format = Format::new(format, TextureAspect::All).unwrap();
        let size = format.bytes() as usize;
        let mut offset = 16;
        let levels = (0..levels).map(|level| {
            let extent = extent.map(|n| (n >> level).max(1));
            let row_stride = (extent[0] as usize + 1) * size;
            let slice_stride = (extent[1] as usize + 1) * row_stride;
            let result = Level {
                offset,
                extent,
                row_stride,
                slice_stride,
            };
            offset += slice_stride * (extent[2] as usize).max(layers as usize);
            offset = offset.next_multiple_of(16);
            result
        });
        let levels = levels.collect();
        let words = (0..offset.div_ceil(8))
            .map(|_| AtomicU64::new(!0))
            .collect();
        Self {
            words,
            format,
            shape,
            levels,
            layers,
        }
    }

    fn view(&self) -> TexelView<'_> {
        TexelView {
            memory: Memory::new(&self.words),
            format: self.format,
            shape: self.shape,
            levels: &self.levels,
            layers: self.layers,
            samples: 1,
            sample_stride: 0,
        }
    }
}
