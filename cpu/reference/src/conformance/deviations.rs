//! Where adapters are known to deviate from the table, and why.
//!
//! The list is checked from both sides: what deviates has to be in it, and what is in it has to
//! deviate, so that an entry goes when its cause is gone.

/// Whose deviation it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Everybody whose driver gets SPIR-V from naga.
    NagaSpirV,
    /// Everybody, since naga's front end or validator decides.
    Naga,
    /// The driver of adapters whose name contains this.
    Driver(&'static str),
}

/// How an adapter deviates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Results are wrong.
    Wrong,
    /// The kernel is refused.
    Refused,
}

/// A known deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deviation {
    pub who: Who,
    /// What the names of rows begin with.
    pub rows: &'static str,
    pub how: How,
    /// The cause, and what it means for a kernel.
    pub reason: &'static str,
}

/// What is known of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterTraits {
    pub name: String,
    /// Its driver gets SPIR-V.
    pub spir_v: bool,
}

const FREXP_F16: &str = "naga 30 gives `frexp` of `f16` an exponent of type `i16`, where WGSL says `i32`: \
    the kernel does not validate, or has an expression of another type";
const WIDENED: &str = "naga 30 widens integers by OpSConvert or OpUConvert after the target's kind, not the source's: \
    `u64(-1i)` is 2^32 - 1, and `i64` of a large `u32` is negative";
const PACKED_HALVES: &str = "naga uses GLSL.std.450's packing, which leaves open how halves are rounded; the driver rounds \
    them to even after rounding the product, where WGSL takes the floor of the sum with 0.5";

/// All known deviations.
pub const DEVIATIONS: &[Deviation] = &[
    Deviation {
        who: Who::Naga,
        rows: "frexp.fract f16",
        how: How::Refused,
        reason: FREXP_F16,
    },
    Deviation {
        who: Who::Naga,
        rows: "frexp.exp f16",
        how: How::Refused,
        reason: FREXP_F16,
    },
    Deviation {
        who: Who::NagaSpirV,
        rows: "to u64 i32",
        how: How::Wrong,
        reason: WIDENED,
    },
    Deviation {
        who: Who::NagaSpirV,
        rows: "to i64 u32",
        how: How::Wrong,
        reason: WIDENED,
    },
    Deviation {
        who: Who::Driver("llvmpipe"),
        rows: "pack4x8snorm",
        how: How::Wrong,
        reason: PACKED_HALVES,
    },
    Deviation {
        who: Who::Driver("llvmpipe"),
        rows: "pack4x8unorm",
        how: How::Wrong,
        reason: PACKED_HALVES,
    },
    Deviation {
        who: Who::Driver("llvmpipe"),
        rows: "pack2x16snorm",
        how: How::Wrong,
        reason: PACKED_HALVES,
    },
    Deviation {
        who: Who::Driver("llvmpipe"),
        rows: "pack2x16unorm",
        how: How::Wrong,
        reason: PACKED_HALVES,
    },
    Deviation {
        who: Who::Driver("SwiftShader"),
        rows: "pack4x8snorm",
        how: How::Wrong,
        reason: PACKED_HALVES,
    },
    Deviation {
        who: Who::Driver("SwiftShader"),
        rows: "pack4x8unorm",
        how: How::Wrong,
        reason: PACKED_HALVES,
    },
    Deviation {
        who: Who::Driver("SwiftShader"),
        rows: "pack2x16snorm",
        how: How::Wrong,
        reason: PACKED_HALVES,
    },
    Deviation {
        who: Who::Driver("SwiftShader"),
        rows: "pack2x16unorm",
        how: How::Wrong,
        reason: PACKED_HALVES,
    },
    Deviation {
        who: Who::Driver("SwiftShader"),
        rows: "mix",
        how: How::Wrong,
        reason: "computed as `x + (y - x) * z`, which loses `y` where `x` is much larger and `z` is 1",
    },
];

impl Deviation {
    /// True if the deviation is one of the adapter's.
    pub fn applies(&self, adapter: &AdapterTraits) -> bool {
        match self.who {
            Who::Naga => true,
            Who::NagaSpirV => adapter.spir_v,
            Who::Driver(name) => adapter.name.contains(name),
        }
    }

    /// True if the deviation is one of the row.
    pub fn covers(&self, row: &str) -> bool {
        row.starts_with(self.rows)
    }
}

/// The deviation that is known of an adapter for a row.
pub fn known(adapter: &AdapterTraits, row: &str) -> Option<&'static Deviation> {
    DEVIATIONS
        .iter()
        .find(|deviation| deviation.applies(adapter) && deviation.covers(row))
}
