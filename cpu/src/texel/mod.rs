//! Textures: formats of texels, and reading, writing and sampling them as compute shaders may.
//!
//! A [`TexelView`] describes the texture bound to a kernel's variable; a [`Sampler`] describes the sampler. Kernels call the
//! methods of the view, one invocation at a time. Arithmetic is IEEE-exact f32 in a fixed order, so that results are the same
//! bits on every machine.
//!
//! | WGSL | here |
//! | --- | --- |
//! | `textureLoad` | [`TexelView::load`] |
//! | `textureStore` | [`TexelView::store`] |
//! | `textureAtomic…` | [`TexelView::atomic`], [`TexelView::atomic_u64`] |
//! | `textureSampleLevel`, `textureSampleGrad` | [`TexelView::sample`] |
//! | `textureSampleBaseClampToEdge` | [`TexelView::sample_base_clamp_to_edge`] |
//! | `textureSampleCompareLevel` | [`TexelView::sample_compare`] |
//! | `textureGather`, `textureGatherCompare` | [`TexelView::gather`], [`TexelView::gather_compare`] |
//! | `textureDimensions`, `textureNum…` | [`TexelView::dimensions`], … |
//!
//! ```
//! use std::sync::atomic::AtomicU64;
//! use tombolo_cpu::texel::{Detail, Format, Level, Memory, Sampler, Shape, Spot, TexelView};
//! use wgpu_types::{FilterMode, TextureAspect, TextureFormat};
//!
//! // Two texels of f32: 1.0 and 3.0.
//! let words = [AtomicU64::new(0x4040_0000_3f80_0000)];
//! let levels = [Level { offset: 0, extent: [2, 1, 1], row_stride: 8, slice_stride: 8 }];
//! let view = TexelView {
//!     memory: Memory::new(&words),
//!     format: Format::new(TextureFormat::R32Float, TextureAspect::All)?,
//!     shape: Shape::D2,
//!     levels: &levels,
//!     layers: 1,
//!     samples: 1,
//!     sample_stride: 0,
//! };
//! let sampler = Sampler { magnify: FilterMode::Linear, ..Sampler::default() };
//! let middle = Spot { coordinate: [0.5, 0.5, 0.0], ..Spot::default() };
//! assert_eq!(view.sample(&sampler, &middle, Detail::Level(0.0)), [2.0, 0.0, 0.0, 1.0]);
//! # Ok::<(), tombolo_cpu::texel::UnsupportedFormat>(())
//! ```
//!
//! # Limits
//! - Block-compressed formats are refused by [`Format::new`] with [`UnsupportedFormat::Compressed`]: WebGPU makes such formats
//!   optional.
//! - `textureSample`, `textureSampleBias` and `textureSampleCompare` need derivatives, present in fragment shaders alone.
//! - Multisampled textures can be loaded; nothing in a compute adapter writes them.
//! - `texture_external` is not here: the planes of a video frame are bound as textures of their own.

mod cube;
mod format;
mod memory;
mod packed;
mod sample;
mod sampler;
mod srgb;
#[cfg(test)]
mod tests;
mod view;

pub use format::{Format, Kind, UnsupportedFormat};
pub use memory::Memory;
pub use sample::{Detail, Spot};
pub use sampler::Sampler;
pub use view::{At, Level, OutOfBounds, Shape, TexelView};
