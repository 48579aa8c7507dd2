use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::buffers::MemoryError;
use crate::device::Aspect;
use crate::device::hooks::{self, Point};
use crate::heap::WindowError;

#[test]
fn slices_are_found_in_the_vector_that_they_are_of() {
    let one = PinnedVec::<u32>::zeroed(5).unwrap();
    let other = PinnedVec::<u32>::zeroed(GRAIN as usize).unwrap();
    let found = |values: &[u32]| {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let (region, at) = Region::around(bytes.as_ptr(), bytes.len())?;
        Some((region.start().addr(), at, region.bytes))
    };
    let start = |values: &[u32]| values.as_ptr().addr();
    assert_eq!(found(&one), Some((start(&one), 0, GRAIN)));
    assert_eq!(found(&one[2..]), Some((start(&one), 8, GRAIN)));
    assert_eq!(found(&other[7..9]), Some((start(&other), 28, 4 * GRAIN)));
    assert_eq!(found(&[1, 2, 3]), None);
    assert_eq!(found(&vec![1; 1 << 20]), None);
    // Bytes that begin in the vector and end behind its memory are no slice of it.
    let first: *const u32 = one.as_ptr();
    assert!(Region::around(first.cast(), GRAIN as usize).is_some());
    assert!(Region::around(first.cast(), GRAIN as usize + 1).is_none());
    assert!(Region::around(first.cast(), usize::MAX).is_none());
}

#[test]
fn a_vector_that_is_gone_is_not_found() {
    let vector = PinnedVec::<u64>::zeroed(100).unwrap();
    let (first, len) = (vector.as_ptr().cast::<u8>(), size_of_val(&*vector));
    assert!(Region::around(first, len).is_some());
    drop(vector);
    assert!(Region::around(first, len).is_none());
}

#[test]
fn values_are_zeros_and_keep_what_is_written() {
    let mut vector = PinnedVec::<[u8; 3]>::zeroed(70_001).unwrap();
    assert!(vector.iter().all(|value| *value == [0; 3]));
    for (value, i) in vector.iter_mut().zip(0u32..) {
        *value = [i as u8, (i >> 8) as u8, 7];
    }
    assert_eq!(vector[70_000], [0x70, 0x11, 7]);
    assert_eq!(vector.len(), 70_001);
    assert_eq!(format!("{vector:?}"), "PinnedVec { len: 70001, .. }");
}

#[test]
fn nothing_needs_no_memory() {
    let mut none = PinnedVec::<u32>::zeroed(0).unwrap();
    assert_eq!(*none, []);
    none.fill(3);
    assert!(none.is_empty() && none.region.is_none());
}

#[test]
fn what_cannot_be_had_is_an_error_with_its_size() {
    for len in [(4usize << 30) / 8 + 1, usize::MAX / 8, usize::MAX] {
        let error = PinnedVec::<u64>::zeroed(len).unwrap_err();
        let asked = (len as u64).saturating_mul(8);
        assert!(
            matches!(
                error,
                MemoryError::Pinned { bytes, reason: WindowError::Size { .. } } if bytes == asked
            ),
            "{error:?}"
        );
        assert!(error.to_string().contains("several vectors"), "{error}");
    }
}

/// Removes the hook, also where a test fails.
struct Unhook;

impl Drop for Unhook {
    fn drop(&mut self) {
        hooks::set(None);
    }
}

#[test]
fn a_copy_that_is_submitted_while_its_device_is_lost_has_ended_when_its_memory_is_the_programs_again()
 {
    const SLOW: &str = "
        @group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(64) fn slow(@builtin(global_invocation_id) id: vec3<u32>) {
            var value = data[id.x];
            for (var i = 0u; i < 1000u; i++) {
                for (var j = 0u; j < 1000u; j++) { value = value * 3u + (value >> 5u); }
            }
            data[id.x] = value;
        }";
    let _alone = hooks::alone();
    let open = || crate::Context::with_backends(wgpu::Backends::VULKAN).unwrap();
    let mut imports = 0;
    for adapter in open().adapters() {
        let context = open();
        let device = context.device_at(adapter.index).unwrap();
        if !device.shared.capabilities.has(Aspect::HostImport) {
            continue;
        }
        imports += 1;
        let program = crate::Program::new("slow.wgsl", SLOW).unwrap();
        let slow = device.kernel(&program, "slow", &crate::Constants::new());
        let work = device.buffer(&vec![1u32; 4096]).unwrap();
        let data = device.buffer(&vec![7u32; 4096]).unwrap();
        let mut pinned = context.pinned_vec::<u32>(4096).unwrap();
        device.finish().unwrap();
        let launch = slow
            .unwrap()
            .launch()
            .buffer("data", &work)
            .invocations(4096);
        let event = { launch }.submit().unwrap();
        device.flush().unwrap();
        let shared = Arc::downgrade(&device.shared);
        let is_lost = AtomicBool::new(false);
        hooks::set(Some(Arc::new(move |point| {
            if point == Point::Submitting
                && !is_lost.swap(true, Ordering::SeqCst)
                && let Some(device) = shared.upgrade()
            {
                device.lost.raise("it was unplugged");
            }
        })));
        let _unhook = Unhook;
        let told = data.read_into(0, &mut pinned).unwrap_err().to_string();
        assert!(told.contains("unplugged"), "{told}");
        // What comes before the copy has ended, and so has the copy, or it was never made.
        let batch = event.batch().unwrap();
        assert!(device.shared.submissions.standing(batch).is_over());
    }
    assert!(imports > 0, "no adapter imports memory of the host");
}
