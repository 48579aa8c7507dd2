//! The argument table: storage arguments without a separate binding are reached through the bindings of the heap, and a
//! small storage buffer tells the kernel the place of each.
//!
//! Arguments have no binding because the adapter has too few, because the kernel passes pointers to the arguments to
//! functions, or because the arguments lie in the heap, which the kernel reaches anyway, and written memory may be
//! bound only once. What takes the place of the heap depends on the launch ([`Reach`]):
//!
//! - The heap itself, for kernels following pointers, and where arguments lie in a heap used in place by the device.
//!   The table names their place. Other arguments travel: a copy goes into memory of the heap, or of the device behind
//!   the heap ([`Scratch`]), before the launch, and back at its end where the kernel may have written, in the queue's
//!   order.
//! - Buffers with copies of the arguments and nothing else ([`Arena`]): a kernel without pointers in its author's eyes
//!   then has nothing to do with the heap, and runs on every device. Only where a device uses the host's memory in place,
//!   and an argument lies there, is the heap itself bound, without a copy.
//!
//! The table is no uniform: lavapipe (Mesa 22.3) folds uniforms into the conditions of branches, and ended the process when
//! a length from the table was in one beside three uniforms of the kernel.

use std::collections::HashMap;
use std::sync::Arc;

use super::Launch;
use super::arena::{Arena, Places};
use super::arguments::Given;
use super::error::LaunchError;
use super::staging::clear_behind;
use crate::device::queue::Recorder;
use crate::device::{Aspect, Device, DeviceShared};
use crate::globals::memory::Placed;
use crate::kernel::compile::Compiled;
use crate::kernel::heap_setup::Beside;
use crate::kernel::pipeline::{Form, Kernel, Segments};
use crate::kernel::reflect::ArgumentKind;
use crate::memory::BufferView;
use crate::memory::heap::{DeviceView, HeapShared, SharedHeap, Turn, heap_of};
use crate::memory::places::{Place, copy};
use crate::memory::pointer::Ptr;

/// What a launch binds for the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Nothing: the kernel has no use for it.
    Nothing,
    Heap,
    /// Copies of the arguments in the table.
    Arguments,
}

/// What is bound for the heap, in the order of the bindings.
pub(super) enum Memory {
    Nothing,
    Heap(DeviceView),
    Arguments(Vec<(u64, wgpu::Buffer)>),
}

/// Differs where something else is bound for the heap.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MemoryId {
    Nothing,
    /// The last segment of the heap and of the device's own memory, and the last parts of their tables, all of which
    /// change with growth.
    Heap([u64; 4]),
    /// All buffers.
    Arguments(Vec<u64>),
}

impl Memory {
    /// The buffer of binding `index`, with its identity.
    pub(super) fn binding(&self, index: usize) -> Option<&(u64, wgpu::Buffer)> {
        match self {
            Self::Nothing => None,
            Self::Heap(view) => view.segments.iter().chain(&view.own).nth(index),
            Self::Arguments(buffers) => buffers.get(index),
        }
    }

    /// The buffer of part `index` of the allocation table, with its identity.
    pub(super) fn table(&self, index: usize) -> Option<&(u64, wgpu::Buffer)> {
        let view = self.heap()?;
        view.tables.iter().chain(&view.own_table).nth(index)
    }

    pub(super) fn id(&self) -> MemoryId {
        let last = |of: &[(u64, wgpu::Buffer)]| of.last().map_or(0, |(id, _)| *id);
        match self {
            Self::Nothing => MemoryId::Nothing,
            Self::Heap(view) => MemoryId::Heap([
                last(&view.segments),
                last(&view.own),
                last(&view.tables),
                view.own_table.as_ref().map_or(0, |(id, _)| *id),
            ]),
            Self::Arguments(buffers) => {
                MemoryId::Arguments(buffers.iter().map(|(id, _)| *id).collect())
            }
        }
    }

    pub(super) fn heap(&self) -> Option<&DeviceView> {
        match self {
            Self::Heap(view) => Some(view),
            _ => None,
        }
    }
}

/// Room behind the heap for an argument, freed with its launch.
#[derive(Debug)]
pub(super) struct Scratch {
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

pub(super) type Scratches = HashMap<usize, Arc<Scratch>>;

/// An argument that is copied.
struct Copied {
    home: BufferView,
    /// The target buffer, and the place inside.
    to: (wgpu::Buffer, u64),
    writable: bool,
}

/// The table of one submission.
#[derive(Default)]
pub(super) struct Table {
    pub(super) words: Vec<u32>,
    /// The copies made before the launch and, where the kernel may write, back at its end.
    copied: Vec<Copied>,
}

/// Arguments, by index, for which there is no room yet.
pub(super) struct Missing(Vec<usize>);

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
        scratches: &Scratches,
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
        places: &Places,
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

    /// Records the copies to where the kernel reaches the arguments.
    pub(super) fn copy_in(
        &self,
        queue: &mut Recorder<'_>,
        device: &DeviceShared,
    ) -> Result<(), LaunchError> {
        for Copied { home, to, .. } in &self.copied {
            clear_behind(queue, &to.0, to.1, home.bytes);
            let to = Place::in_buffer(&to.0, to.1, true);
            copy(queue, device, &home.place(), &to, home.bytes)?;
        }
        Ok(())
    }

    /// Records the copies of the kernel's possible writes: exactly the given bytes.
    pub(super) fn copy_out(
        &self,
        queue: &mut Recorder<'_>,
        device: &DeviceShared,
    ) -> Result<(), LaunchError> {
        for Copied { home, to, .. } in self.copied.iter().filter(|copied| copied.writable) {
            let from = Place::in_buffer(&to.0, to.1, true);
            copy(queue, device, &from, &home.place(), home.bytes)?;
        }
        Ok(())
    }
}

/// The arguments in the table, in the table's order: index, place, and whether the kernel may write.
fn arguments<'a>(
    compiled: &'a Compiled,
    given: &'a [Option<Given>],
) -> impl Iterator<Item = (usize, &'a BufferView, bool)> {
    compiled.table.iter().filter_map(|&index| {
        let Some(Given::Buffer { view, .. }) = &given[index] else {
            return None;
        };
        let kind = &compiled.interface.arguments[index].kind;
        let writable = matches!(kind, ArgumentKind::Storage { writable: true, .. });
        Some((index, view, writable))
    })
}

impl Launch {
    /// What the launch binds for the heap.
    pub(super) fn reach(&self) -> Reach {
        match self.kernel.shared.compiled.heap {
            None => Reach::Nothing,
            Some(heap) if heap.follows || !self.tabled_globals().is_empty() => Reach::Heap,
            // Without a copy, where the device sees the host's memory.
            Some(_) if self.kernel.device.capabilities.has(Aspect::HostImport) => {
                match self.heap_arguments().next() {
                    Some(_) => Reach::Heap,
                    None => Reach::Arguments,
                }
            }
            Some(_) => Reach::Arguments,
        }
    }

    /// The device globals that are rows of the table.
    fn tabled_globals(&self) -> &[(Arc<Placed>, bool)] {
        let globals = self.globals.as_ref();
        let tabled = globals.filter(|globals| globals.view.is_none());
        tabled.map_or(&[], |globals| &globals.placed)
    }

    /// The storage arguments that lie in the heap and are reached there.
    fn heap_arguments(&self) -> impl Iterator<Item = (usize, &BufferView, u32)> {
        let arguments = self.kernel.interface().arguments.iter();
        (arguments.zip(&self.given).enumerate()).filter_map(|(index, (info, given))| {
            match (&info.kind, given) {
                (ArgumentKind::Storage { layout, .. }, Some(Given::Buffer { view, .. }))
                    if view.shared.is_heap && !self.is_staged(index, view) =>
                {
                    Some((index, view, layout.align))
                }
                _ => None,
            }
        })
    }

    /// The bindable arguments that the kernel nevertheless has to reach through the heap.
    fn beside(&self, reach: Reach) -> Vec<Beside> {
        let table = &self.kernel.shared.compiled.table;
        self.heap_arguments()
            .filter_map(|(argument, view, align)| {
                let aligned = view.address.is_multiple_of(u64::from(align.max(1)));
                let in_words = reach == Reach::Heap && !aligned;
                let beside = Beside { argument, in_words };
                (in_words || !table.contains(&argument)).then_some(beside)
            })
            .collect()
    }

    /// The kernel as needed by the launch, its bindings for the heap, and the table of its arguments.
    pub(super) fn memory(
        &self,
        reach: Reach,
        heap: Option<(&SharedHeap, &Turn<'_>)>,
    ) -> Result<Result<(Kernel, Memory, Table), Missing>, LaunchError> {
        let mut kernel = self.kernel.clone();
        let device = &self.kernel.device;
        let form = |segments| {
            let form = Form {
                segments,
                beside: self.beside(reach),
            };
            self.kernel.shared.form(device, form).map_err(Box::new)
        };
        Ok(match (reach, heap) {
            (Reach::Heap, Some((heap, turn))) => {
                let mut view = heap.shared.view_in(turn, device)?;
                if self.kernel.shared.asks_allocations() {
                    heap.shared.add_tables(device, &mut view)?;
                }
                kernel.shared = form(Segments::of(&view))?;
                let compiled = &kernel.shared.compiled;
                let (given, scratches) = (&self.given, &self.scratches);
                let globals = self.tabled_globals();
                match Table::in_heap(&heap.shared, turn, compiled, given, globals, scratches) {
                    Ok(table) => Ok((kernel, Memory::Heap(view), table)),
                    Err(missing) => Err(missing),
                }
            }
            (Reach::Arguments, _) => {
                let mut parts = 1;
                let places = loop {
                    kernel.shared = form(Segments::of_arguments(parts))?;
                    // More bindings for the arguments in the table may leave fewer for the others.
                    let arguments = arguments(&kernel.shared.compiled, &self.given);
                    let bytes = arguments.map(|(_, view, _)| view.bytes);
                    let places = Places::on(device, bytes)?;
                    if places.parts() <= parts {
                        break places;
                    }
                    parts = places.parts();
                };
                let buffers = Arena::buffers(device, &places, parts)?;
                let segment = crate::memory::heap::segment_bytes(&device.limits);
                let compiled = &kernel.shared.compiled;
                let table = Table::in_buffers(compiled, &self.given, &places, &buffers, segment);
                Ok((kernel, Memory::Arguments(buffers), table))
            }
            _ => Ok((kernel, Memory::Nothing, Table::default())),
        })
    }

    /// Makes room for arguments. Waits for the device's turn with the heap, which the caller must not hold.
    pub(super) fn make_room(&mut self, Missing(arguments): Missing) -> Result<(), LaunchError> {
        for index in arguments {
            if let Some(Some(Given::Buffer { view, .. })) = self.given.get(index) {
                let scratch = Scratch::new(&self.kernel.device, view.bytes)?;
                self.scratches.insert(index, Arc::new(scratch));
            }
        }
        Ok(())
    }
}
