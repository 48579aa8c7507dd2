//! Texture formats: the list of formats, and how a texel becomes a vector of four.
//!
//! A texel and its value travel as four words. The value's words are the bits of f32, u32 or i32, as [`Format::kind`] says.
//! Channels missing from a format are 0, and 1 for the fourth.

use super::{packed, srgb};
use crate::math::{F, I, Scalar32, half};
use wgpu_types::{TextureAspect, TextureFormat};

/// The type of a format's channels in a shader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `texture_*<f32>`.
    Float,
    /// `texture_depth_*`, and `texture_*<f32>` without filtering.
    Depth,
    /// `texture_*<u32>`.
    Uint,
    /// `texture_*<i32>`.
    Sint,
    /// `texture_storage_*<r64uint>`, whose texels are read and written as [`u64`].
    Uint64,
}

/// How the channels are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Layout {
    /// So many channels of equal width, one after the other.
    Channels(Channel, u8),
    /// Four channels, the first and third exchanged.
    Bgra(Channel),
    /// 10, 10, 10 and 2 bits.
    Rgb10a2Unorm,
    /// 10, 10, 10 and 2 bits.
    Rgb10a2Uint,
    /// Floats of 11, 11 and 10 bits.
    Rg11b10,
    /// Three mantissas and a shared exponent.
    Rgb9e5,
    /// One integer of 64 bits.
    Uint64,
}

/// One channel of a whole number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Channel {
    Unorm8,
    Snorm8,
    Uint8,
    Sint8,
    Srgb8,
    Unorm16,
    Snorm16,
    Uint16,
    Sint16,
    Float16,
    /// u32, i32 or f32: the bits are the value.
    Word,
}

/// Why a texture cannot be read or written by kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum UnsupportedFormat {
    /// Texels in blocks of BC, ETC2 or ASTC.
    #[error(
        "{0:?} is block-compressed, which the CPU adapter does not decode: decompress the image before \
         the upload, for example to Rgba8Unorm"
    )]
    Compressed(TextureFormat),
    /// The aspect does not name a single plane of the format.
    #[error(
        "{0:?} has no single plane that the aspect {1:?} names: give the view one aspect that the format \
         has (depth, stencil or a plane)"
    )]
    Aspect(TextureFormat, TextureAspect),
}

/// How texels of a format, or of an aspect of a format, are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    layout: Layout,
    kind: Kind,
}

impl Format {
    /// The format seen by a view of `aspect`.
    ///
    /// Depth and stencil of a combined format are two planes, each with texels of its own; so are the
    /// planes of NV12 and P010. `Depth24Plus` is stored as f32.
    ///
    /// # Errors
    /// [`UnsupportedFormat`] for block-compressed formats, and where the aspect leaves several planes.
    pub fn new(format: TextureFormat, aspect: TextureAspect) -> Result<Self, UnsupportedFormat> {
        use TextureFormat as T;
        let single = format.aspect_specific_format(aspect);
        let single = single.ok_or(UnsupportedFormat::Aspect(format, aspect))?;
        let channels = |channel, count, kind| {
            Ok(Self {
                layout: Layout::Channels(channel, count),
                kind,
            })
        };
        let with = |layout, kind| Ok(Self { layout, kind });
        match single {
            T::R8Unorm => channels(Channel::Unorm8, 1, Kind::Float),
            T::Rg8Unorm => channels(Channel::Unorm8, 2, Kind::Float),
            T::Rgba8Unorm => channels(Channel::Unorm8, 4, Kind::Float),
            T::Rgba8UnormSrgb => channels(Channel::Srgb8, 4, Kind::Float),
            T::Bgra8Unorm => with(Layout::Bgra(Channel::Unorm8), Kind::Float),
            T::Bgra8UnormSrgb => with(Layout::Bgra(Channel::Srgb8), Kind::Float),
            T::R8Snorm => channels(Channel::Snorm8, 1, Kind::Float),
            T::Rg8Snorm => channels(Channel::Snorm8, 2, Kind::Float),
            T::Rgba8Snorm => channels(Channel::Snorm8, 4, Kind::Float),
            T::R8Uint | T::Stencil8 => channels(Channel::Uint8, 1, Kind::Uint),
            T::Rg8Uint => channels(Channel::Uint8, 2, Kind::Uint),
            T::Rgba8Uint => channels(Channel::Uint8, 4, Kind::Uint),
            T::R8Sint => channels(Channel::Sint8, 1, Kind::Sint),
            T::Rg8Sint => channels(Channel::Sint8, 2, Kind::Sint),
            T::Rgba8Sint => channels(Channel::Sint8, 4, Kind::Sint),
            T::R16Unorm => channels(Channel::Unorm16, 1, Kind::Float),
            T::Rg16Unorm => channels(Channel::Unorm16, 2, Kind::Float),
            T::Rgba16Unorm => channels(Channel::Unorm16, 4, Kind::Float),
            T::R16Snorm => channels(Channel::Snorm16, 1, Kind::Float),
            T::Rg16Snorm => channels(Channel::Snorm16, 2, Kind::Float),
            T::Rgba16Snorm => channels(Channel::Snorm16, 4, Kind::Float),
            T::R16Uint => channels(Channel::Uint16, 1, Kind::Uint),
            T::Rg16Uint => channels(Channel::Uint16, 2, Kind::Uint),
            T::Rgba16Uint => channels(Channel::Uint16, 4, Kind::Uint),
            T::R16Sint => channels(Channel::Sint16, 1, Kind::Sint),
            T::Rg16Sint => channels(Channel::Sint16, 2, Kind::Sint),
            T::Rgba16Sint => channels(Channel::Sint16, 4, Kind::Sint),
            T::R16Float => channels(Channel::Float16, 1, Kind::Float),
            T::Rg16Float => channels(Channel::Float16, 2, Kind::Float),
            T::Rgba16Float => channels(Channel::Float16, 4, Kind::Float),
            T::R32Uint => channels(Channel::Word, 1, Kind::Uint),
            T::Rg32Uint => channels(Channel::Word, 2, Kind::Uint),
            T::Rgba32Uint => channels(Channel::Word, 4, Kind::Uint),
            T::R32Sint => channels(Channel::Word, 1, Kind::Sint),
            T::Rg32Sint => channels(Channel::Word, 2, Kind::Sint),
            T::Rgba32Sint => channels(Channel::Word, 4, Kind::Sint),
            T::R32Float => channels(Channel::Word, 1, Kind::Float),
            T::Rg32Float => channels(Channel::Word, 2, Kind::Float),
            T::Rgba32Float => channels(Channel::Word, 4, Kind::Float),
            T::R64Uint => with(Layout::Uint64, Kind::Uint64),
            T::Rgb10a2Unorm => with(Layout::Rgb10a2Unorm, Kind::Float),
            T::Rgb10a2Uint => with(Layout::Rgb10a2Uint, Kind::Uint),
            T::Rg11b10Ufloat => with(Layout::Rg11b10, Kind::Float),
            T::Rgb9e5Ufloat => with(Layout::Rgb9e5, Kind::Float),
            T::Depth16Unorm => channels(Channel::Unorm16, 1, Kind::Depth),
            T::Depth24Plus | T::Depth32Float => channels(Channel::Word, 1, Kind::Depth),
            T::Depth24PlusStencil8 | T::Depth32FloatStencil8 | T::NV12 | T::P010 => {
                Err(UnsupportedFormat::Aspect(format, aspect))
            }
            _ => Err(UnsupportedFormat::Compressed(format)),
        }
    }

    /// The type of the channels in a shader.
    pub fn kind(self) -> Kind {
        self.kind
    }

    /// Bytes of a texel: 1, 2, 4, 8 or 16.
    pub fn bytes(self) -> u32 {
        match self.layout {
            Layout::Channels(channel, count) => channel.bits() / 8 * u32::from(count),
            Layout::Bgra(channel) => channel.bits() / 8 * 4,
            Layout::Rgb10a2Unorm | Layout::Rgb10a2Uint | Layout::Rg11b10 | Layout::Rgb9e5 => 4,
            Layout::Uint64 => 8,
        }
    }

    /// Whether depth is stored as an integer, so that references of comparisons are clamped to [0, 1].
    pub(super) fn clamps_reference(self) -> bool {
        self.kind == Kind::Depth && self.bytes() == 2
    }

    /// How many of the four channels are stored.
    fn stored_channels(self) -> usize {
        match self.layout {
            Layout::Channels(_, count) => count.into(),
            Layout::Rg11b10 | Layout::Rgb9e5 => 3,
            Layout::Uint64 => 1,
            Layout::Bgra(_) | Layout::Rgb10a2Unorm | Layout::Rgb10a2Uint => 4,
        }
    }

    /// The word of the channel value 1.
    pub(super) fn one(self) -> u32 {
        match self.kind {
            Kind::Float | Kind::Depth => 1f32.to_bits(),
            Kind::Uint | Kind::Sint | Kind::Uint64 => 1,
        }
    }

    /// A value with the format's missing channels set to 0, 0, 0, 1.
    pub(super) fn complete(self, mut value: [u32; 4]) -> [u32; 4] {
        let missing = self.stored_channels();
        value[missing..].copy_from_slice(&[0, 0, 0, self.one()][missing..]);
        value
    }

    /// The value of a stored texel. The texel of [`Kind::Uint64`] is its own two words.
    pub fn decode(self, texel: [u32; 4]) -> [u32; 4] {
        let value = match self.layout {
            Layout::Channels(channel, count) => channel.decode_all(texel, count),
            Layout::Bgra(channel) => {
                let [blue, green, red, alpha] = channel.decode_all(texel, 4);
                [red, green, blue, alpha]
            }
            Layout::Rgb10a2Unorm => {
                let [red, green, blue, alpha] = split_10_10_10_2(texel[0]);
                let part = |field: u32, largest: f32| (field as f32 / largest).to_bits();
                [
                    part(red, 1023.0),
                    part(green, 1023.0),
                    part(blue, 1023.0),
                    part(alpha, 3.0),
                ]
            }
            Layout::Rgb10a2Uint => split_10_10_10_2(texel[0]),
            Layout::Rg11b10 => three(packed::decode_rg11b10(texel[0])),
            Layout::Rgb9e5 => three(packed::decode_rgb9e5(texel[0])),
            Layout::Uint64 => return texel,
        };
        self.complete(value)
    }

    /// The stored texel of a value: clamped to the channel's range and rounded to nearest, ties to even; integers keep their low
    /// bits where they fit and saturate where not. NaN becomes 0 in normalized formats.
    pub fn encode(self, value: [u32; 4]) -> [u32; 4] {
        let float = value.map(f32::from_bits);
        let word = match self.layout {
            Layout::Channels(channel, count) => return channel.encode_all(value, count),
            Layout::Bgra(channel) => {
                return channel.encode_all([value[2], value[1], value[0], value[3]], 4);
            }
            Layout::Uint64 => return value,
            Layout::Rgb10a2Unorm => {
                let field = |n: usize| unorm(float[n], 1023.0);
                join_10_10_10_2([field(0), field(1), field(2), unorm(float[3], 3.0)])
            }
            Layout::Rgb10a2Uint => {
                let field = |n: usize| value[n].min(1023);
                join_10_10_10_2([field(0), field(1), field(2), value[3].min(3)])
            }
            Layout::Rg11b10 => packed::encode_rg11b10([float[0], float[1], float[2]]),
            Layout::Rgb9e5 => packed::encode_rgb9e5([float[0], float[1], float[2]]),
        };
        [word, 0, 0, 0]
    }
}

fn three(color: [f32; 3]) -> [u32; 4] {
    [
        color[0].to_bits(),
        color[1].to_bits(),
        color[2].to_bits(),
        0,
    ]
}

fn split_10_10_10_2(word: u32) -> [u32; 4] {
    [
        word & 0x3ff,
        word >> 10 & 0x3ff,
        word >> 20 & 0x3ff,
        word >> 30,
    ]
}

fn join_10_10_10_2(fields: [u32; 4]) -> u32 {
    fields[0] | fields[1] << 10 | fields[2] << 20 | fields[3] << 30
}

/// The nearest of the steps from 0 to `largest`. Binary64 holds the product exactly.
fn unorm(x: f32, largest: f64) -> u32 {
    let clamped = if x > 0.0 { x.min(1.0) } else { 0.0 };
    (f64::from(clamped) * largest).round_ties_even() as u32
}

/// The nearest of the steps from `-largest` to `largest`.
fn snorm(x: f32, largest: f64) -> i32 {
    let clamped = if x.is_nan() { 0.0 } else { x.clamp(-1.0, 1.0) };
    (f64::from(clamped) * largest).round_ties_even() as i32
}

impl Channel {
    fn bits(self) -> u32 {
        match self {
            Self::Unorm8 | Self::Snorm8 | Self::Uint8 | Self::Sint8 | Self::Srgb8 => 8,
            Self::Unorm16 | Self::Snorm16 | Self::Uint16 | Self::Sint16 | Self::Float16 => 16,
            Self::Word => 32,
        }
    }

    /// The channels of a texel, from the lowest bits up; `Srgb8` has a linear fourth one.
    fn decode_all(self, texel: [u32; 4], count: u8) -> [u32; 4] {
        let mut value = [0; 4];
        let bits = self.bits();
        for (index, channel) in value.iter_mut().enumerate().take(count.into()) {
            let start = bits * index as u32;
            let field = texel[(start / 32) as usize] >> (start % 32);
            let linear = if index == 3 && self == Self::Srgb8 {
                Self::Unorm8
            } else {
                self
            };
            *channel = linear.decode(field);
        }
        value
    }

    fn encode_all(self, value: [u32; 4], count: u8) -> [u32; 4] {
        let mut texel = [0; 4];
        let bits = self.bits();
        for (index, &channel) in value.iter().enumerate().take(count.into()) {
            let start = bits * index as u32;
            let linear = if index == 3 && self == Self::Srgb8 {
                Self::Unorm8
            } else {
                self
            };
            texel[(start / 32) as usize] |= linear.encode(channel) << (start % 32);
        }
        texel
    }

    /// The value of the channel in the low bits of `field`.
    fn decode(self, field: u32) -> u32 {
        match self {
            Self::Unorm8 => UNORM8[usize::from(field as u8)].to_bits(),
            Self::Snorm8 => (f32::from(field as i8) / 127.0).max(-1.0).to_bits(),
            Self::Uint8 => u32::from(field as u8),
            Self::Sint8 => i32::from(field as i8) as u32,
            Self::Srgb8 => srgb::decode(field as u8).to_bits(),
            Self::Unorm16 => (f32::from(field as u16) / 65535.0).to_bits(),
            Self::Snorm16 => (f32::from(field as i16) / 32767.0).max(-1.0).to_bits(),
            Self::Uint16 => u32::from(field as u16),
            Self::Sint16 => i32::from(field as i16) as u32,
            Self::Float16 => half::from_f16(I::new(&Scalar32, field as i32))
                .raw()
                .to_bits(),
            Self::Word => field,
        }
    }

    /// The channel's bits, the others zero.
    fn encode(self, value: u32) -> u32 {
        let float = f32::from_bits(value);
        match self {
            Self::Unorm8 => unorm(float, 255.0),
            Self::Snorm8 => u32::from(snorm(float, 127.0) as u8),
            Self::Uint8 => value.min(0xff),
            Self::Sint8 => u32::from((value as i32).clamp(-0x80, 0x7f) as u8),
            Self::Srgb8 => srgb::encode(float).into(),
            Self::Unorm16 => unorm(float, 65535.0),
            Self::Snorm16 => u32::from(snorm(float, 32767.0) as u16),
            Self::Uint16 => value.min(0xffff),
            Self::Sint16 => u32::from((value as i32).clamp(-0x8000, 0x7fff) as u16),
            Self::Float16 => half::to_f16(F::new(&Scalar32, float)).raw() as u32,
            Self::Word => value,
        }
    }
}

/// Steps of 1 ÷ 255, correctly rounded.
const UNORM8: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut index = 0;
    while index < 256 {
        table[index] = index as f32 / 255.0;
        index += 1;
    }
    table
};
