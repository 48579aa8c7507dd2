//! Errors of textures and of commands on them.

use super::options::{TextureDimension, TextureRegion};
use crate::error_text::debug_by_text;
use crate::memory::{MemoryError, ReadError};

/// Why a texture, or a command on one, was refused. Nothing has been recorded or changed then.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TextureError {
    /// A number of the size is 0.
    #[error(
        "a {dimension} texture of {}×{}×{} texels has none: give each number of its size at least 1",
        .size[0], .size[1], .size[2]
    )]
    Empty {
        /// How the texels are arranged.
        dimension: TextureDimension,
        /// The size asked for, in texels.
        size: [u32; 3],
    },
    /// The dimension lacks a number of the size that is more than 1.
    #[error(
        "a {dimension} texture has no {axis}, and {asked} was asked for: give 1, or take another dimension"
    )]
    Flat {
        /// How the texels are arranged.
        dimension: TextureDimension,
        /// Which number of the size: `height` or `depth`.
        axis: &'static str,
        /// The number asked for.
        asked: u32,
    },
    /// The texture could never exist on this device.
    #[error(
        "a {dimension} texture with a {axis} of {asked} is more than {device} allows ({limit}, its {name}): use several \
         textures, or a buffer"
    )]
    TooLarge {
        /// How the texels are arranged.
        dimension: TextureDimension,
        /// Which number of the size: `width`, `height`, `depth`, or `number of layers`.
        axis: &'static str,
        /// The number asked for.
        asked: u32,
        /// The device's limit for the number.
        limit: u32,
        /// The limit's name in [`wgpu::Limits`].
        name: &'static str,
        /// The device's name.
        device: String,
    },
    /// The texels of the format are no values of their own: they are compressed in blocks, in several planes, or hold depth or
    /// stencil.
    #[error(
        "{format:?} has no texels that can be written and read one by one ({why}): take a format of colours, or make the \
         texture with wgpu (Device::raw) and give launches a view of it"
    )]
    Format {
        /// The format asked for.
        format: wgpu::TextureFormat,
        /// What its texels are.
        why: &'static str,
    },
    /// The device cannot use textures of the format so.
    #[error("{device} cannot use {format:?} for {usage}: {instead}")]
    FormatUse {
        /// The format asked for.
        format: wgpu::TextureFormat,
        /// The use asked for: `sampled textures`, `storage textures`, `any texture`, …
        usage: &'static str,
        /// The device's name.
        device: String,
        /// What to do.
        instead: String,
    },
    /// No kernel could use the texture.
    #[error(
        "a texture of {format:?} is to be neither sampled nor a storage texture, so no kernel could use the texture: call \
         sampled(true) or storage(true) of the options"
    )]
    Unused {
        /// The format asked for.
        format: wgpu::TextureFormat,
    },
    /// The Rust type has another size than a texel.
    #[error(
        "a texel of {format:?} has {texel_bytes} bytes, and `{element}` has {element_bytes}: use a type of {texel_bytes} \
         bytes, such as `{}`", example(*.texel_bytes)
    )]
    TexelSize {
        /// The format.
        format: wgpu::TextureFormat,
        /// Bytes of a texel.
        texel_bytes: u32,
        /// The Rust type.
        element: &'static str,
        /// Bytes of the Rust type.
        element_bytes: usize,
    },
    /// A region reaches beyond its texture.
    #[error(
        "{what}: {region}, of a texture of {}×{}×{}: stay within the texture",
        .size[0], .size[1], .size[2]
    )]
    OutOfRange {
        /// The command.
        what: &'static str,
        /// The region asked for.
        region: TextureRegion,
        /// The texture's size, in texels.
        size: [u32; 3],
    },
    /// The values are fewer or more than the texels.
    #[error(
        "{what}: {values} values for {texels} texels ({region}): give one value for each texel, x fastest, then y, then z or \
         layers"
    )]
    Count {
        /// The command.
        what: &'static str,
        /// Values that were given.
        values: u64,
        /// Texels of the region.
        texels: u64,
        /// The region.
        region: TextureRegion,
    },
    /// There is no memory for the texture or for a transfer, or the device is gone.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The texels could not be read, or a launch failed that should have written them.
    #[error(transparent)]
    Read(#[from] ReadError),
}

debug_by_text!(TextureError {
    Empty,
    Flat,
    TooLarge,
    Format,
    FormatUse,
    Unused,
    TexelSize,
    OutOfRange,
    Count,
    Memory,
    Read,
});

/// A Rust type of so many bytes.
fn example(bytes: u32) -> &'static str {
    match bytes {
        1 => "u8",
        2 => "u16",
        4 => "u32` or `[u8; 4]",
        8 => "[u32; 2]",
        _ => "[f32; 4]",
    }
}
