//! Drives the region allocator and its shadow by the operations that the input's bytes spell.

#![no_main]

#[allow(dead_code)]
#[path = "../../src/error_text.rs"]
mod error_text;

#[allow(dead_code)]
#[path = "../../src/addresses/region/mod.rs"]
mod region;

#[path = "../../src/addresses/region/shadow.rs"]
mod shadow;

// What the shadow finds in its parent.
use region::{
    Allocation, AllocationId, BlockId, Placement, Region, RegionError, RegionOptions, RegionStats,
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shadow::drive(bytes));
