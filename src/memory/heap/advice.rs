//! Advice about a heap: what a program knows of its use, for devices that choose between the host's memory and a copy.

use super::SharedHeap;
use super::mirror::Place;
use crate::device::{Device, HeapPlacement};

/// What a program knows of a device's use of the heap: CUDA's `cudaMemAdvise`, and SYCL's `mem_advise`.
///
/// Advice changes when things move, and never what a program sees. It matters on devices that choose by themselves where their
/// kernels use the heap ([`SharedHeap::residence`]), and changes nothing elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum HeapAdvice {
    /// None: the device decides by what it has seen.
    #[default]
    None,
    /// Kernels mostly read: accesses of the host between launches speak less against a copy
    /// (`cudaMemAdviseSetReadMostly`).
    ReadMostly,
    /// A copy in the device's memory, wherever one may be used (`cudaMemAdviseSetPreferredLocation`, with the device).
    PreferDevice,
    /// The host's memory, always: for sparse accesses to much data (`cudaMemAdviseSetPreferredLocation` with the host, and
    /// `cudaMemAdviseSetAccessedBy` with the device).
    PreferHost,
}

impl SharedHeap {
    /// Advises how `device` will use this heap, until other advice is given. The advice is about the whole heap: kernels follow
    /// pointers through all of it, and a copy has one state.
    ///
    /// Nothing moves before the next launch.
    pub fn advise(&self, device: &Device, advice: HeapAdvice) {
        if self.shared.may_choose(&device.shared) {
            self.shared
                .with_policy(&device.shared, |policy| policy.advise(advice));
        }
    }

    /// The advice given for `device`.
    pub fn advice(&self, device: &Device) -> HeapAdvice {
        match self.shared.may_choose(&device.shared) {
            true => self
                .shared
                .with_policy(&device.shared, |policy| policy.advice()),
            false => HeapAdvice::None,
        }
    }

    /// Where the kernels of `device` use the heap at present: [`HeapPlacement::InPlace`], in the host's memory, or
    /// [`HeapPlacement::Device`], in a copy.
    ///
    /// The answer changes on a device with memory of its own that imports the host's memory and was opened with
    /// [`HeapPlacement::Auto`]: there it is the place of the last launch that used the heap, and the next one may work in the
    /// other.
    pub fn residence(&self, device: &Device) -> HeapPlacement {
        let (shared, device) = (&self.shared, &device.shared);
        let is_copy = match shared.may_choose(device) {
            true => shared.with_policy(device, |policy| policy.place() == Place::Copy),
            false => shared.is_mirrored(device),
        };
        match is_copy {
            true => HeapPlacement::Device,
            false => HeapPlacement::InPlace,
        }
    }
}
