//! The argument table: storage arguments without a separate binding are reached through the bindings of the heap, and a
//! small storage buffer tells the kernel the place of each.
//!
//! Arguments have no binding because the adapter has too few, because the kernel passes pointers to the arguments to
//! functions, or because the arguments lie in the heap, which the kernel reaches anyway, and written memory may be
//! bound only once. Where the heap itself is bound ([`memory`](super::memory)), the table names the place of arguments in
//! the heap. Other arguments travel: a copy goes into memory of the heap, or of the device behind the heap ([`Scratch`]),
//! or into a buffer for arguments, before the launch, and back at its end where the kernel may have written, in the
//! queue's order.
//!
//! The table is no uniform: lavapipe (Mesa 22.3) folds uniforms into the conditions of branches, and ended the process when
//! a length from the table was in one beside three uniforms of the kernel.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::memory::{Bound, arguments};
use super::staging::clear_behind;
use super::{Ground, Part, Parts, Places, Rank, Resource, Stop, Submission, arena};
use crate::device::heap_shape::segment_bytes;
use crate::device::queue::Recorder;
use crate::device::{Device, DeviceShared};
use crate::globals::memory::Placed;
use crate::kernel::compile::Compiled;
use crate::kernel::plan::Source;
use crate::launch::arguments::Given;
use crate::launch::{Launch, LaunchError};
use crate::memory::BufferView;
use crate::memory::heap::{HeapShared, Turn, heap_of};
use crate::memory::places::{Place, copy};
use crate::memory::pointer::Ptr;

/// Room behind the heap for an argument, freed with its launch.
#[derive(Debug)]
pub(in crate::launch) struct Scratch {
    device: Device,
    place: Ptr<u32>,
    view: BufferView,
}

impl Scratch {
    /// Waits for the device's turn with the heap, which the caller must not hold.
    fn new(device: &Arc<DeviceShared>, bytes: u64) -> Result<Self, LaunchError> {
        let words = bytes.div_ceil(4);
        let owner = Device {
            shared: Arc::clone(device),
        };
        let place = owner.malloc::<u32>(words as usize)?;
        match heap_of(device).and_then(|heap| heap.shared.argument(device, place, words)) {
            Ok(view) => Ok(Self {
                device: owner,
                place,
                view,
            }),
            Err(error) => {
                let _ = owner.free(place);
                Err(error.into())
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The memory was allocated here and is freed once; freeing waits for launches in flight.
        let _ = self.device.free(self.place);
    }
}

/// Room behind the heap for arguments that have no binding and travel there, by their index.
pub(in crate::launch) type Setting = BTreeMap<usize, Arc<Scratch>>;

/// An argument that is copied.
struct Copied {
    home: BufferView,
    /// The target buffer, and the place inside.
    to: (wgpu::Buffer, u64),
    writable: bool,
}

/// The table of one submission.
#[derive(Default)]
pub(in crate::launch) struct Table {
    words: Vec<u32>,
    /// The copies made before the launch and, where the kernel may write, back at its end.
    copied: Vec<Copied>,
}

/// Arguments, by index, for which there is no room yet.
pub(in crate::launch) struct Missing(Vec<usize>);

impl Table {
    fn row(&mut self, address: u64, bytes: u64) {
        let (low, high) = (address as u32, (address >> 32) as u32);
        // A binding would have whole words, too.
        let bytes = bytes.next_multiple_of(4) as u32;
        self.words.extend([low, high, bytes, 0]);
    }

    /// Has the argument at `home` copied to `to`, and back if the kernel may write it.
    fn add_copy(&mut self, home: &BufferView, to: (wgpu::Buffer, u64), writable: bool) {
        self.copied.push(Copied {
            home: home.clone(),
            to,
            writable,
        });
    }

    /// The table of arguments in the heap, where `turn` is the device's; others are copied into `scratches`.
    fn in_heap(
        heap: &HeapShared,
        turn: &Turn<'_>,
        compiled: &Compiled,
        given: &[Option<Given>],
        globals: &[(Arc<Placed>, bool)],
        scratches: &Setting,
    ) -> Result<Self, Missing> {
        let mut table = Self::default();
        let mut missing = Vec::new();
        for (index, view, writable) in arguments(compiled, given) {
            // Kernels write whole words.
            if view.shared.is_heap && view.is_bindable(4) {
                table.row(view.address, view.bytes);
                continue;
            }
            let words = view.bytes.div_ceil(4);
            match scratches.get(&index) {
                Some(known) if known.view.bytes == words * 4 => {
                    let renewed = heap.renew(turn, &known.view);
                    let scratch = renewed.as_ref().unwrap_or(&known.view);
                    table.row(scratch.address, view.bytes);
                    let to = (scratch.shared.raw.clone(), scratch.offset);
                    table.add_copy(view, to, writable);
                }
                _ => missing.push(index),
            }
        }
        for (global, _) in globals {
            table.row(global.address.address(), global.bytes);
        }
        match missing.is_empty() {
            true => Ok(table),
            false => Err(Missing(missing)),
        }
    }

    /// The table of arguments copied into buffers of their own.
    fn in_buffers(
        compiled: &Compiled,
        given: &[Option<Given>],
        places: &arena::Places,
        buffers: &[(u64, wgpu::Buffer)],
        segment: u64,
    ) -> Self {
        let mut table = Self::default();
        for ((_, view, writable), (part, offset)) in
            arguments(compiled, given).zip(places.places.iter().copied())
        {
            table.row(part as u64 * segment + offset, view.bytes);
            if let Some((_, buffer)) = buffers.get(part) {
                table.add_copy(view, (buffer.clone(), offset), writable);
            }
        }
        table
    }
}

impl<'s> Part<'s> for Table {
    const RANK: Rank = Rank::HeapTurn;

    fn acquire(
        launch: &mut Launch,
        _ground: &'s Ground,
        earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        let Some(memory) = &earlier.memory else {
            return Ok(None);
        };
        let (compiled, given) = (&memory.kernel.compiled, &launch.given);
        let table = match (&memory.bound, &earlier.heap) {
            (Bound::Arguments(buffers, places), _) => {
                let segment = segment_bytes(&launch.kernel.device.limits);
                Self::in_buffers(compiled, given, places, buffers, segment)
            }
            (Bound::Heap(_), Some(heap)) => {
                let (globals, scratches) = (launch.tabled_globals(), &launch.settings.table);
                let (heap, turn) = (&heap.shared.shared, &heap.turn);
                let table = Self::in_heap(heap, turn, compiled, given, globals, scratches);
                table.map_err(Stop::Lacks)?
            }
            (Bound::Heap(_), None) => return Ok(None),
        };
        Ok((!table.words.is_empty()).then_some(table))
    }

    fn reserve(&self, _to: &Submission<'_>, queue: &Recorder<'_>) -> usize {
        queue.uniform_footprint(self.words.len() * 4)
    }

    fn place(
        &mut self,
        _to: &Submission<'_>,
        queue: &mut Recorder<'_>,
        places: &mut Places,
    ) -> Result<(), Stop> {
        let bytes: &[u8] = bytemuck::cast_slice(&self.words);
        places.set(Source::Table, queue.push_uniform(bytes, bytes.len()));
        Ok(())
    }

    fn bind<'a>(&'a self, to: &Submission<'a>, source: Source) -> Option<Resource<'a>> {
        let bytes = to.kernel.compiled.table_rows() as u64 * 16;
        (source == Source::Table).then_some(Resource::Ring(bytes))
    }

    /// To where the kernel reaches the arguments.
    fn copy_in(
        &mut self,
        to: &Submission<'_>,
        queue: &mut Recorder<'_>,
    ) -> Result<(), LaunchError> {
        for Copied {
            home, to: reached, ..
        } in &self.copied
        {
            clear_behind(queue, &reached.0, reached.1, home.bytes);
            let target = Place::in_buffer(&reached.0, reached.1, true);
            copy(queue, to.device, &home.place(), &target, home.bytes)?;
        }
        Ok(())
    }

    /// The kernel's possible writes: exactly the given bytes.
    fn after(&mut self, to: &Submission<'_>, queue: &mut Recorder<'_>) -> Result<(), LaunchError> {
        for Copied {
            home, to: reached, ..
        } in self.copied.iter().filter(|copied| copied.writable)
        {
            let from = Place::in_buffer(&reached.0, reached.1, true);
            copy(queue, to.device, &from, &home.place(), home.bytes)?;
        }
        Ok(())
    }
}

impl Launch {
    /// The device globals that are rows of the table.
    pub(super) fn tabled_globals(&self) -> &[(Arc<Placed>, bool)] {
        let globals = self.settings.globals.as_ref();
        let tabled = globals.filter(|globals| globals.view.is_none());
        tabled.map_or(&[], |globals| &globals.placed)
    }

    /// Makes room for arguments. Waits for the device's turn with the heap, which the caller must not hold.
    pub(in crate::launch) fn make_room(
        &mut self,
        Missing(arguments): Missing,
    ) -> Result<(), LaunchError> {
        for index in arguments {
            if let Some(Some(Given::Buffer { view, .. })) = self.given.get(index) {
                let scratch = Scratch::new(&self.kernel.device, view.bytes)?;
                self.settings.table.insert(index, Arc::new(scratch));
            }
        }
        Ok(())
    }
}
