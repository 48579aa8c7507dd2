//! Items of rings: the Rust types, and the WGSL of the functions for each.

use super::protocol::{CLOSED, ITEMS, MASK, PUT, TAKEN};
use crate::kernel::server::RING_VARIABLE;
use crate::template::Template;

const COMMON: &str = include_str!("../../shaders/ring.wgsl");
const FROM_HOST: &str = include_str!("../../shaders/ring_from_host.wgsl");
const TO_HOST: &str = include_str!("../../shaders/ring_to_host.wgsl");

/// An item of a ring: `u32`, `i32` or `f32`, or an array of up to 64 such elements. In WGSL arrays of two to four
/// elements are vectors (`vec3<f32>`), others arrays (`array<f32, 16>`). Structures travel as arrays of words.
pub trait RingItem: sealed::Item {}

impl<T: sealed::Item> RingItem for T {}

pub(super) mod sealed {
    use bytemuck::Pod;

    pub trait Scalar: Pod {
        /// The type in WGSL.
        const NAME: &'static str;
    }

    impl Scalar for u32 {
        const NAME: &'static str = "u32";
    }

    impl Scalar for i32 {
        const NAME: &'static str = "i32";
    }

    impl Scalar for f32 {
        const NAME: &'static str = "f32";
    }

    pub trait Item: Pod {
        /// The element type in WGSL.
        const SCALAR: &'static str;
        /// Elements, each a word.
        const WORDS: usize;
        const IS_ARRAY: bool;
    }

    impl<S: Scalar> Item for S {
        const SCALAR: &'static str = S::NAME;
        const WORDS: usize = 1;
        const IS_ARRAY: bool = false;
    }

    impl<S: Scalar, const N: usize> Item for [S; N]
    where
        [S; N]: Pod,
    {
        const SCALAR: &'static str = S::NAME;
        const WORDS: usize = {
            assert!(N > 0 && N <= 64, "an item of a ring has 1 to 64 elements");
            N
        };
        const IS_ARRAY: bool = true;
    }
}

/// The direction of the items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    FromHost,
    ToHost,
}

/// A ring's items and direction: part of the name of its variable, so that the kernel knows no argument for a ring of
/// another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub direction: Direction,
    scalar: &'static str,
    words: usize,
    is_array: bool,
}

impl Kind {
    pub fn of<T: RingItem>(direction: Direction) -> Self {
        Self {
            direction,
            scalar: T::SCALAR,
            words: T::WORDS,
            is_array: T::IS_ARRAY,
        }
    }

    /// The variable of the ring `name`.
    pub fn variable(self, name: &str) -> String {
        let way = match self.direction {
            Direction::FromHost => "from_host",
            Direction::ToHost => "to_host",
        };
        let scalar = self.scalar;
        match self.is_array {
            true => format!("{RING_VARIABLE}{way}_{scalar}x{}_{name}", self.words),
            false => format!("{RING_VARIABLE}{way}_{scalar}_{name}"),
        }
    }

    /// The type of an item.
    fn wgsl(self) -> String {
        let Self { scalar, words, .. } = self;
        match (self.is_array, words) {
            (false, _) => scalar.to_owned(),
            (true, 2..=4) => format!("vec{words}<{scalar}>"),
            (true, _) => format!("array<{scalar}, {words}>"),
        }
    }

    /// An item, out of words from `at` on.
    fn load(self) -> String {
        let word = |index: usize| {
            let word = format!("atomicLoad(&$ring$[at + {index}u])");
            match self.scalar {
                "u32" => word,
                scalar => format!("bitcast<{scalar}>({word})"),
            }
        };
        match self.is_array {
            false => word(0),
            true => {
                let words: Vec<String> = (0..self.words).map(word).collect();
                format!("{}({})", self.wgsl(), words.join(", "))
            }
        }
    }

    /// Statements writing the words of `item` from `at` on.
    fn store(self) -> String {
        let statement = |index: usize| {
            let element = match self.is_array {
                true => format!("item[{index}]"),
                false => "item".to_owned(),
            };
            let word = match self.scalar {
                "u32" => element,
                _ => format!("bitcast<u32>({element})"),
            };
            format!("    atomicStore(&$ring$[at + {index}u], {word});")
        };
        let statements: Vec<String> = (0..self.words).map(statement).collect();
        statements.join("\n")
    }

    /// The functions of the ring `name`, whose variable has the attributes `binding`.
    pub fn functions(self, name: &str, binding: &str) -> String {
        let (side, other) = match self.direction {
            Direction::FromHost => (TAKEN, PUT),
            Direction::ToHost => (PUT, TAKEN),
        };
        let (half, place) = match self.direction {
            Direction::FromHost => (FROM_HOST, ("load", self.load())),
            Direction::ToHost => (TO_HOST, ("store", self.store())),
        };
        Template::new(format!("{COMMON}\n{half}"))
            .set("binding", binding)
            .set("ring", self.variable(name))
            .set("name", name)
            .set("type", self.wgsl())
            .set("mask", MASK)
            .set("own", side)
            .set("own_closed", side + CLOSED)
            .set("other", other)
            .set("other_closed", other + CLOSED)
            .set("items", ITEMS)
            .set("words", self.words)
            .set(place.0, place.1)
            .fill()
    }
}

/// Whether functions can be named after a ring of the given name.
pub(super) fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && (name.chars()).all(|one| one.is_ascii_alphanumeric() || one == '_')
}
