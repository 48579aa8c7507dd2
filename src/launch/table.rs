//! The argument table: storage arguments beyond the adapter's binding slots are reached through the
//! shared heap, and a uniform tells the kernel where each of them lies.
//!
//! Arguments in the heap are named where they are. Others travel: they are copied into the heap before
//! the launch, and back behind it where the kernel may have written them, in the queue's order.

use std::collections::HashMap;
use std::sync::Arc;

use super::arguments::Given;
use super::error::LaunchError;
use crate::device::DeviceShared;
use crate::device::queue::Recorder;
use crate::kernel::compile::Compiled;
use crate::kernel::reflect::ArgumentKind;
use crate::memory::BufferView;
use crate::memory::heap::{SharedHeap, heap_of};
use crate::memory::pointer::Ptr;

/// Room in the heap for an argument, freed with the launch that holds it.
#[derive(Debug)]
pub(super) struct Scratch {
    heap: SharedHeap,
    place: Ptr<u32>,
    view: BufferView,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It was allocated here and is freed once; the heap waits for launches in flight by itself.
        let _ = self.heap.free(self.place);
    }
}

pub(super) type Scratches = HashMap<usize, Arc<Scratch>>;

/// The table of one submission.
#[derive(Default)]
pub(super) struct Table {
    pub(super) words: Vec<u32>,
    /// What is copied before the launch, and behind it.
    before: Vec<(BufferView, BufferView)>,
    after: Vec<(BufferView, BufferView)>,
}

impl Table {
    /// Finds or makes a place in the heap for every argument of the table.
    pub(super) fn new(
        device: &Arc<DeviceShared>,
        compiled: &Compiled,
        given: &[Option<Given>],
        scratches: &mut Scratches,
    ) -> Result<Self, LaunchError> {
        let mut table = Self::default();
        for &index in &compiled.table {
            let Some(Given::Buffer { view, .. }) = &given[index] else {
                continue;
            };
            let address = if view.shared.is_heap {
                view.address
            } else {
                let words = view.bytes.div_ceil(4);
                let fits = scratches
                    .get(&index)
                    .is_some_and(|known| known.view.bytes == words * 4);
                if !fits {
                    let heap = heap_of(device)?;
                    let place = heap.alloc_zeroed::<u32>(words as usize)?;
                    let view = heap.shared.argument(device, place, words)?;
                    let scratch = Scratch { heap, place, view };
                    scratches.insert(index, Arc::new(scratch));
                }
                let Some(scratch) = scratches.get(&index) else {
                    continue;
                };
                let scratch = match scratch.heap.shared.imported_anew(&scratch.view) {
                    Some(now) => now,
                    None => scratch.view.clone(),
                };
                let kind = &compiled.interface.arguments[index].kind;
                if matches!(kind, ArgumentKind::Storage { writable: true, .. }) {
                    table.after.push((scratch.clone(), view.clone()));
                }
                let address = scratch.address;
                table.before.push((view.clone(), scratch));
                address
            };
            let (low, high) = (address as u32, (address >> 32) as u32);
            table.words.extend([low, high, view.bytes as u32, 0]);
        }
        Ok(table)
    }

    pub(super) fn copy_in(&self, queue: &mut Recorder<'_>) {
        copy(&self.before, queue);
    }

    pub(super) fn copy_out(&self, queue: &mut Recorder<'_>) {
        copy(&self.after, queue);
    }
}

fn copy(pairs: &[(BufferView, BufferView)], queue: &mut Recorder<'_>) {
    for (from, to) in pairs {
        let bytes = from.bytes.min(to.bytes).next_multiple_of(4);
        queue.encode(|encoder| {
            let (source, target) = (&from.shared.raw, &to.shared.raw);
            encoder.copy_buffer_to_buffer(source, from.offset, target, to.offset, bytes);
        });
    }
}
