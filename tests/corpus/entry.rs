//! One entry point of the corpus: where its shader is, the grid to run, and what its bindings hold.

use crate::interface::{Binding, Scalar};

/// An entry point of a published shader, and how to run it.
///
/// Inputs are small and chosen so that every loop of the shader ends soon and no two invocations
/// write one place without an atomic: a shader whose own result is a race has none to compare.
pub struct Entry {
    pub package: &'static str,
    /// The shader, from the root of the package.
    pub file: &'static str,
    pub name: &'static str,
    /// Work-groups.
    pub groups: [u32; 3],
    /// Bindings whose contents matter; the others get what [`default_fill`] says.
    pub given: &'static [(&'static str, Fill)],
    /// Features without which wgpu refuses the shader, as tombolo then must.
    pub needs: wgpu::Features,
}

/// An entry point that every adapter can run.
pub const fn entry(
    package: &'static str,
    file: &'static str,
    name: &'static str,
    groups: [u32; 3],
    given: &'static [(&'static str, Fill)],
) -> Entry {
    Entry {
        package,
        file,
        name,
        groups,
        given,
        needs: wgpu::Features::empty(),
    }
}

impl Entry {
    pub const fn needing(self, needs: wgpu::Features) -> Self {
        Self { needs, ..self }
    }

    /// Crate, file and entry point, as the test is named.
    pub fn label(&self) -> String {
        format!("{}::{}::{}", self.package, self.file, self.name)
    }

    /// What a binding holds before the launch, in whole words. The same for every run.
    pub fn contents(&self, binding: &Binding) -> Vec<u32> {
        let fill = self
            .given
            .iter()
            .find(|(name, _)| *name == binding.name)
            .map_or_else(|| default_fill(binding), |(_, fill)| *fill);
        let mut words = fill.words(&mut Random::new(&self.label(), &binding.name));
        let least = binding.bytes.div_ceil(4) as usize;
        if words.len() < least {
            words.resize(least, 0);
        }
        words
    }
}

/// Words in a binding that the table says nothing about.
const DEFAULT_WORDS: usize = 4096;

fn default_fill(binding: &Binding) -> Fill {
    let words = if binding.runtime_sized {
        DEFAULT_WORDS
    } else {
        binding.bytes.div_ceil(4) as usize
    };
    match (binding.writable, binding.scalar) {
        _ if binding.uniform => panic!("the table gives no value for uniform `{}`", binding.name),
        (true, Scalar::Atomic) => Fill::Zeros(words),
        (true, _) => Fill::Poison(words),
        (false, Scalar::Float) => Fill::Floats(words),
        (false, _) => Fill::Ints(8, words),
    }
}

/// What a binding holds. The last number is always the count of 32-bit words, unless said otherwise.
#[derive(Clone, Copy)]
pub enum Fill {
    /// Exactly these, one word each: numbers with a point are f32, the others u32.
    Words(&'static str),
    /// Numbers from -2 to 2.
    Floats(usize),
    /// Numbers from the first to the second.
    FloatsIn(f32, f32, usize),
    /// Integers below the first.
    Ints(u32, usize),
    /// Any bits.
    Bits(usize),
    /// `i / each % modulo`.
    Stairs {
        each: u32,
        modulo: u32,
        len: usize,
    },
    /// Pairs of f16 from -2 to 2.
    Halves(usize),
    /// Pairs of bf16 from -2 to 2.
    BFloats(usize),
    /// Blocks of quantised weights: any bytes, with small f16 at these offsets. Counted in blocks.
    Blocks {
        bytes: usize,
        halves: &'static [usize],
        count: usize,
    },
    /// Structures of four integers, each within its own half-open range. Counted in structures.
    Rows([(u32, u32); 4], usize),
    Zeros(usize),
    /// A pattern that no shader of the corpus writes, so that what was not written shows.
    Poison(usize),
}

const POISON: u32 = 0xA5A5_A5A5;

impl Fill {
    fn words(self, random: &mut Random) -> Vec<u32> {
        let repeat = |len: usize, next: &mut dyn FnMut(usize) -> u32| (0..len).map(next).collect();
        match self {
            Self::Words(words) => words.split(", ").map(word).collect(),
            Self::Floats(len) => Self::FloatsIn(-2.0, 2.0, len).words(random),
            Self::FloatsIn(low, high, len) => {
                repeat(len, &mut |_| random.float(low, high).to_bits())
            }
            Self::Ints(limit, len) => repeat(len, &mut |_| random.below(limit)),
            Self::Bits(len) => repeat(len, &mut |_| random.bits()),
            Self::Stairs { each, modulo, len } => repeat(len, &mut |i| i as u32 / each % modulo),
            Self::Halves(len) => repeat(len, &mut |_| {
                u32::from(random.half(-2.0, 2.0)) | u32::from(random.half(-2.0, 2.0)) << 16
            }),
            Self::BFloats(len) => repeat(len, &mut |_| {
                let (low, high) = (random.float(-2.0, 2.0), random.float(-2.0, 2.0));
                low.to_bits() >> 16 | high.to_bits() & 0xFFFF_0000
            }),
            Self::Blocks {
                bytes,
                halves,
                count,
            } => {
                let mut all: Vec<u8> = (0..bytes * count).map(|_| random.bits() as u8).collect();
                for block in all.chunks_exact_mut(bytes) {
                    for &at in halves {
                        let half = random.half(0.01, 0.1).to_le_bytes();
                        block[at..at + 2].copy_from_slice(&half);
                    }
                }
                all.resize(all.len().next_multiple_of(4), 0);
                bytemuck::pod_collect_to_vec(&all)
            }
            Self::Rows(ranges, count) => (0..count)
                .flat_map(|_| ranges.map(|(low, high)| low + random.below(high - low)))
                .collect(),
            Self::Zeros(len) => vec![0; len],
            Self::Poison(len) => vec![POISON; len],
        }
    }
}

fn word(text: &str) -> u32 {
    match (text.contains('.'), text.parse(), text.parse::<f32>()) {
        (false, Ok(value), _) => value,
        (true, _, Ok(value)) => value.to_bits(),
        _ => panic!("`{text}` is no number"),
    }
}

/// xorshift64*, seeded by names: the same inputs everywhere, whatever order the tests run in.
struct Random(u64);

impl Random {
    fn new(entry: &str, binding: &str) -> Self {
        // FNV-1a.
        let hash = entry
            .bytes()
            .chain(binding.bytes())
            .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
            });
        Self(hash | 1)
    }

    fn bits(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.bits() % limit.max(1)
    }

    fn float(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.bits() >> 8) as f32 / (1 << 24) as f32
    }

    fn half(&mut self, low: f32, high: f32) -> u16 {
        half::f16::from_f32(self.float(low, high)).to_bits()
    }
}
