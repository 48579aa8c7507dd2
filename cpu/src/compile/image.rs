//! Textures and samplers, as bound to kernels, and the functions in Rust by which kernels reach texels.
//!
//! The address of a [`BoundResource`] is the address of an [`Image`] or of a [`Sampler`]. The computation of a function
//! is the matter of [`texel`](crate::texel); here rows of operands become arguments.
//!
//! | function | rows of operands | rows of results |
//! | --- | --- | --- |
//! | [`load`] | x, y, z, layer, level | four channels |
//! | [`store`] | x, y, z, layer, four channels | |
//! | [`atomic`] | x, y, z, layer, value | |
//! | [`query`] | level | three numbers |
//! | [`sample`] | see [`Sampled`] | four channels |

use std::{
    slice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::abi::BoundResource;
use crate::texel::{
    At, Detail, Format, Kind, Level, Memory, OutOfBounds, Sampler, Shape, Spot, TexelView,
};

/// The memory of a texture.
pub(crate) struct Texels {
    words: Vec<AtomicU64>,
}

impl Texels {
    /// Zeros. `None` if there is no such memory.
    pub(crate) fn zeroed(bytes: usize) -> Option<Self> {
        let count = bytes.div_ceil(8);
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.resize_with(count, AtomicU64::default);
        Some(Self { words })
    }

    /// Where the memory begins, and how many bytes there are.
    pub(crate) fn bytes(&self) -> (*mut u8, usize) {
        let start = self.words.as_ptr().cast::<u8>().cast_mut();
        (start, size_of_val(self.words.as_slice()))
    }
}

/// A view of a texture, as bound to a kernel.
pub(crate) struct Image {
    pub(crate) texels: Arc<Texels>,
    pub(crate) format: Format,
    pub(crate) shape: Shape,
    pub(crate) levels: Vec<Level>,
    pub(crate) layers: u32,
}

impl Image {
    fn view(&self) -> TexelView<'_> {
        TexelView {
            memory: Memory::new(&self.texels.words),
            format: self.format,
            shape: self.shape,
            levels: &self.levels,
            layers: self.layers,
            samples: 1,
            sample_stride: 0,
        }
    }
}

/// Atomic operations on texels, all without results.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ImageAtomic {
    Add,
    Sub,
    And,
    Or,
    Xor,
    Min,
    Max,
}

/// The questions about a texture.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ImageQuery {
    Dimensions,
    Levels,
    Layers,
    Samples,
}

/// The way of sampling a texture. Rows of operands: coordinates (3), layer, offset (3), level, change of the
/// coordinates along one direction (3) and the other (3), reference of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Sampled {
    /// The channel to gather
    pub(crate) gather: Option<u8>,
    pub(crate) compares: bool,
    pub(crate) gradient: bool,
    pub(crate) clamps: bool,
}

impl Sampled {
    /// Rows of operands.
    pub(crate) const ROWS: usize = 15;

    /// As a number, for [`sample`].
    pub(crate) fn which(self) -> u32 {
        self.gather.map_or(0, |channel| 4 | u32::from(channel))
            | u32::from(self.compares) << 3
            | u32::from(self.gradient) << 4
            | u32::from(self.clamps) << 5
    }

    fn of(which: u32) -> Self {
        Self {
            gather: (which & 4 != 0).then_some((which & 3) as u8),
            compares: which & 8 != 0,
            gradient: which & 16 != 0,
            clamps: which & 32 != 0,
        }
    }
}

/// The arguments of a function. See [`HostFn`](super::host::HostFn).
struct Rows {
    resources: *const *const BoundResource,
    operands: *const u32,
    results: *mut u32,
    lanes: u32,
    width: u32,
}

impl Rows {
    /// The target of the entry at `index`.
    ///
    /// # Safety
    /// There must be such an entry, bound to a `T` living for `'a`.
    unsafe fn resource<'a, T>(&self, index: usize) -> &'a T {
        // SAFETY: by contract.
        unsafe { &*(**self.resources.add(index)).address.cast::<T>() }
    }

    /// Gives each lane taking part the result of `f` for the lane's operands.
    ///
    /// # Safety
    /// There must be `N` rows of operands and `M` of results.
    unsafe fn each<const N: usize, const M: usize>(&self, f: impl Fn([u32; N]) -> [u32; M]) {
        let width = self.width as usize;
        // SAFETY: by contract, and results lie apart from operands.
        let (operands, results) = unsafe {
            (
                slice::from_raw_parts(self.operands, N * width),
                slice::from_raw_parts_mut(self.results, M * width),
            )
        };
        for lane in (0..width).filter(|lane| self.lanes >> lane & 1 != 0) {
            let given = f(std::array::from_fn(|row| operands[row * width + lane]));
            for (row, value) in given.into_iter().enumerate() {
                results[row * width + lane] = value;
            }
        }
    }
}

/// Defines functions called with [`Rows`] and with a number telling the functions apart.
macro_rules! image_functions {
    ($($(#[$doc:meta])* $name:ident: |$rows:ident, $which:ident| $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// See [`HostFn`](super::host::HostFn).
        pub(super) unsafe extern "C" fn $name(
            resources: *const *const BoundResource,
            operands: *const u32,
            results: *mut u32,
            lanes: u32,
            width: u32,
            $which: u32,
        ) {
            let $rows = Rows { resources, operands, results, lanes, width };
            $body
        }
    )*};
}

fn at([x, y, z, layer]: [u32; 4], level: u32) -> At {
    At {
        coordinate: [x, y, z],
        layer,
        level,
        sample: 0,
    }
}

image_functions! {
    /// `textureLoad`. Out of bounds the result is zeros, at any bounds policy.
    load: |rows, _which| {
        // SAFETY: kernels pass a texture, five rows, and four for results.
        unsafe {
            let image: &Image = rows.resource(0);
            rows.each(|[x, y, z, layer, level]: [u32; 5]| {
                image.view().load(at([x, y, z, layer], level), OutOfBounds::Zero)
            });
        }
    }

    /// `textureStore`. Does nothing out of bounds.
    store: |rows, _which| {
        // SAFETY: kernels pass a texture and eight rows.
        unsafe {
            let image: &Image = rows.resource(0);
            rows.each(|[x, y, z, layer, r, g, b, a]: [u32; 8]| {
                image.view().store(at([x, y, z, layer], 0), [r, g, b, a]);
                []
            });
        }
    }

    /// `textureAtomic…` of 32 bits. Does nothing out of bounds.
    atomic: |rows, which| {
        // SAFETY: kernels pass a texture and five rows.
        unsafe {
            let image: &Image = rows.resource(0);
            rows.each(|[x, y, z, layer, value]: [u32; 5]| {
                if let Some(texel) = image.view().atomic(at([x, y, z, layer], 0)) {
                    let signed = image.format.kind() == Kind::Sint;
                    change(texel, which, value, signed);
                }
                []
            });
        }
    }

    /// Questions about a texture: [`ImageQuery`].
    query: |rows, which| {
        // SAFETY: kernels pass a texture, a row, and three for results.
        unsafe {
            let image: &Image = rows.resource(0);
            let view = image.view();
            rows.each(|[level]: [u32; 1]| match which {
                _ if which == ImageQuery::Dimensions as u32 => view.dimensions(level),
                _ if which == ImageQuery::Levels as u32 => [view.num_levels(), 0, 0],
                _ if which == ImageQuery::Layers as u32 => [view.num_layers(), 0, 0],
                _ => [view.num_samples(), 0, 0],
            });
        }
    }

    /// `textureSample…` and `textureGather…`: [`Sampled`].
    sample: |rows, which| {
        // SAFETY: kernels pass a texture, a sampler, the rows of `Sampled`, and four for results.
        unsafe {
            let (image, sampler): (&Image, &Sampler) = (rows.resource(0), rows.resource(1));
            let way = Sampled::of(which);
            rows.each(|operands: [u32; Sampled::ROWS]| sample_one(image, sampler, way, operands));
        }
    }
}

fn change(texel: &std::sync::atomic::AtomicU32, which: u32, value: u32, signed: bool) {
    let is = |operation: ImageAtomic| which == operation as u32;
    // The smaller or larger of numbers in the order of their type.
    let order = |number: u32| if signed { number ^ 1 << 31 } else { number };
    if is(ImageAtomic::Add) {
        texel.fetch_add(value, Relaxed);
    } else if is(ImageAtomic::Sub) {
        texel.fetch_sub(value, Relaxed);
    } else if is(ImageAtomic::And) {
        texel.fetch_and(value, Relaxed);
    } else if is(ImageAtomic::Or) {
        texel.fetch_or(value, Relaxed);
    } else if is(ImageAtomic::Xor) {
        texel.fetch_xor(value, Relaxed);
    } else {
        let smallest = is(ImageAtomic::Min);
        // An unchanged texel need not be written.
        let _ = texel.fetch_update(Relaxed, Relaxed, |old| {
            let replaces = (order(value) < order(old)) == smallest && value != old;
            replaces.then_some(value)
        });
    }
}

fn sample_one(
    image: &Image,
    sampler: &Sampler,
    way: Sampled,
    operands: [u32; Sampled::ROWS],
) -> [u32; 4] {
    let view = image.view();
    let words = |start: usize| -> [u32; 3] { [0, 1, 2].map(|axis| operands[start + axis]) };
    let floats = |start| words(start).map(f32::from_bits);
    let spot = Spot {
        coordinate: floats(0),
        array_index: operands[3] as i32,
        offset: words(4).map(|offset| offset as i32),
    };
    let detail = if way.gradient {
        Detail::Gradient {
            x: floats(8),
            y: floats(11),
        }
    } else {
        Detail::Level(f32::from_bits(operands[7]))
    };
    let reference = f32::from_bits(operands[14]);
    match (way.gather, way.compares) {
        (Some(_), true) => view
            .gather_compare(sampler, &spot, reference)
            .map(f32::to_bits),
        (Some(channel), false) => view.gather(sampler, &spot, channel.into()),
        (None, true) => {
            let share = view.sample_compare(sampler, &spot, detail, reference);
            [share.to_bits(), 0, 0, 0]
        }
        (None, false) if way.clamps => {
            let [x, y, _] = spot.coordinate;
            view.sample_base_clamp_to_edge(sampler, [x, y])
                .map(f32::to_bits)
        }
        (None, false) => view.sample(sampler, &spot, detail).map(f32::to_bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn ways_of_sampling_are_numbers_and_back() {
        for which in 0..64 {
            let way = Sampled::of(which);
            // Without a gather there is no channel.
            let expected = if which & 4 == 0 { which & !3 } else { which };
            assert_eq!(way.which(), expected);
        }
    }

    #[test]
    fn the_smallest_and_the_largest_are_those_of_the_type() {
        for (operation, signed, expected) in [
            (ImageAtomic::Min, true, -5i32 as u32),
            (ImageAtomic::Min, false, 3),
            (ImageAtomic::Max, true, 3),
            (ImageAtomic::Max, false, -5i32 as u32),
        ] {
            for (old, value) in [(3, -5i32 as u32), (-5i32 as u32, 3)] {
                let texel = AtomicU32::new(old);
                change(&texel, operation as u32, value, signed);
                assert_eq!(texel.into_inner(), expected, "{operation:?} {signed}");
            }
        }
    }
}
