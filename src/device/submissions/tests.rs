//! What is said of work on a device that wgpu cannot be asked about any more; and which devices are given more work.

use std::sync::atomic::Ordering;

use crate::device::hooks;
use crate::{
    Constants, Context, Program,
    heap::{HeapError, HeapSize},
};

const ADD: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(1) fn main() { data[0] += 7u; }";

/// Whether a kernel writes still is not known there, and so nobody is let in.
#[test]
fn a_heap_stays_closed_while_nobody_can_tell_whether_kernels_have_ended() {
    let _alone = hooks::alone();
    let open = || Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(64 << 20)).unwrap();
    for index in 0..open().adapters().len() {
        let context = open();
        let device = context.device_at(index).unwrap();
        let heap = context.heap().unwrap();
        let data = heap.alloc_slice(&[1u32; 4]).unwrap();
        let program = Program::new("add.wgsl", ADD).unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let mut launch = kernel.launch().pointer("data", data, 4).workgroups(1);
        launch.submit().unwrap();
        device.flush().unwrap();
        // As after a panic inside wgpu's call of the driver.
        let submissions = &device.shared.submissions;
        submissions.mute.store(true, Ordering::Release);
        submissions.lost.raise("for a test");
        for _ in 0..2 {
            let error = heap.host().map(drop).unwrap_err();
            let HeapError::Unproven {
                device: name,
                reason,
            } = &error
            else {
                panic!("{}: {error}", device.name());
            };
            assert_eq!(
                (name.as_str(), reason.as_str()),
                (device.name(), "for a test")
            );
        }
        // With the proof it opens.
        submissions.mute.store(false, Ordering::Release);
        drop(heap.host().unwrap());
    }
}

/// Numbers that no submission will signal stand for work that has not ended.
#[test]
fn devices_with_work_get_more_only_where_that_keeps_them_busy() {
    let context = Context::new().unwrap();
    for index in 0..context.adapters().len() {
        let device = context.device_at(index).unwrap();
        device.buffer(&[1u32; 4]).unwrap().read().unwrap();
        device.finish().unwrap();
        let submissions = &device.shared.submissions;
        let signalled = submissions.signalled.load(Ordering::Acquire);
        assert!(submissions.signal.is_some() && signalled > 0);
        let needs: Vec<bool> = (0..3)
            .map(|more| {
                (submissions.signalled).store(signalled + more, Ordering::Release);
                submissions.needs_more()
            })
            .collect();
        submissions.signalled.store(signalled, Ordering::Release);
        let expected = match device.capabilities().software {
            true => [true, false, false],
            false => [true, true, false],
        };
        assert_eq!(needs, expected, "{}", device.name());
    }
}
