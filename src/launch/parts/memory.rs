//! A launch's bindings for the heap, and the kernel's form for the bindings.
//!
//! The memory in the place of the heap depends on the launch ([`Reach`]):
//!
//! - The heap itself, for kernels following pointers, and where arguments lie in a heap used in place by the device.
//! - Buffers with copies of the arguments and nothing else ([`Arena`]): a kernel without pointers in its author's eyes
//!   then has nothing to do with the heap, and runs on every device. Only where a device uses the host's memory in place,
//!   and an argument lies there, is the heap itself bound, without a copy.

use std::sync::Arc;

use super::arena::{self, Arena};
use super::{Ground, Identity, Part, Parts, Places, Rank, Resource, Stop, Submission};
use crate::device::Aspect;
use crate::device::heap_shape::HeapShape;
use crate::device::queue::Recorder;
use crate::kernel::compile::Compiled;
use crate::kernel::heap_setup::Beside;
use crate::kernel::passes::pointers::HeapInfo;
use crate::kernel::pipeline::{Form, KernelShared};
use crate::kernel::plan::{Source, heap_info_bytes};
use crate::kernel::reflect::ArgumentKind;
use crate::launch::arguments::Given;
use crate::launch::{Launch, LaunchError};
use crate::memory::BufferView;
use crate::memory::heap::DeviceView;

/// The memory bound by a launch for the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Nothing: the kernel has no use for the heap.
    Nothing,
    Heap,
    /// Copies of the arguments in the table.
    Arguments,
}

/// The memory bound for the heap, in the order of the bindings.
pub(super) enum Bound {
    Heap(DeviceView),
    /// Where the arguments in the table lie in these buffers.
    Arguments(Vec<(u64, wgpu::Buffer)>, arena::Places),
}

/// The memory in the place of the heap, and the kernel as the launch needs it.
pub(in crate::launch) struct Memory {
    pub(in crate::launch) kernel: Arc<KernelShared>,
    pub(super) bound: Bound,
}

impl Memory {
    /// The memory for a kernel with possible pointers.
    fn found(launch: &Launch, earlier: &Parts<'_>) -> Result<Option<Self>, Stop> {
        let heap = earlier.heap.as_ref();
        // Not anew: the arguments are followed to their present places.
        let reach = heap.map_or_else(|| launch.reach(), |heap| heap.reach);
        let device = &launch.kernel.device;
        Ok(match (reach, heap) {
            (Reach::Heap, Some(heap)) => {
                let mut view = heap.shared.shared.view_in(&heap.turn, device)?;
                if launch.kernel.shared.asks_allocations() {
                    heap.shared.shared.add_tables(device, &mut view)?;
                }
                Some(Self {
                    kernel: launch.form(reach, view.shape(device))?,
                    bound: Bound::Heap(view),
                })
            }
            (Reach::Arguments, _) => Some(launch.memory_of_arguments()?),
            _ => None,
        })
    }
}

impl<'s> Part<'s> for Memory {
    const RANK: Rank = Rank::HeapTurn;

    #[inline]
    fn acquire(
        launch: &mut Launch,
        _ground: &'s Ground,
        earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        match launch.kernel.shared.compiled.heap {
            None => Ok(None),
            Some(_) => Self::found(launch, earlier),
        }
    }

    fn reserve(&self, _to: &Submission<'_>, queue: &Recorder<'_>) -> usize {
        match self.reads_info() {
            true => queue.uniform_footprint(self.info_bytes() as usize),
            false => 0,
        }
    }

    fn place(
        &mut self,
        _to: &Submission<'_>,
        queue: &mut Recorder<'_>,
        places: &mut Places,
    ) -> Result<(), Stop> {
        if let (Some(heap), true) = (self.heap(), self.reads_info()) {
            let words = HeapInfo {
                base: heap.base,
                shared_bytes: heap.covered as u32,
                device_bytes: heap.own.iter().map(|(_, own)| own.size() as u32).collect(),
            }
            .words();
            let bytes = bytemuck::cast_slice(&words);
            let offset = queue.push_uniform(bytes, self.info_bytes() as usize);
            places.set(Source::HeapInfo, offset);
        }
        Ok(())
    }

    /// The last segment of the heap and of the device's own memory, and the last parts of their tables, all of which
    /// change with growth; or all buffers.
    fn identity(&self, identity: &mut Identity) {
        let last = |of: &[(u64, wgpu::Buffer)]| of.last().map_or(0, |(id, _)| *id);
        match &self.bound {
            Bound::Heap(view) => identity.extend([
                last(&view.segments),
                last(&view.own),
                last(&view.tables),
                view.own_table.as_ref().map_or(0, |(id, _)| *id),
            ]),
            Bound::Arguments(buffers, _) => identity.extend(buffers.iter().map(|(id, _)| *id)),
        }
    }

    fn bind<'a>(&'a self, _to: &Submission<'a>, source: Source) -> Option<Resource<'a>> {
        match source {
            Source::Heap(index) => {
                let (id, buffer) = match &self.bound {
                    Bound::Heap(view) => {
                        view.segments.iter().chain(&view.own).nth(index as usize)?
                    }
                    Bound::Arguments(buffers, _) => buffers.get(index as usize)?,
                };
                let start = match (self.heap(), index) {
                    (Some(heap), 0) => heap.front,
                    _ => 0,
                };
                Some(Resource::Buffer {
                    id: *id,
                    buffer,
                    start,
                    bytes: buffer.size() - start,
                })
            }
            Source::Allocations(index) => {
                let heap = self.heap()?;
                let mut tables = heap.tables.iter().chain(&heap.own_table);
                let (id, table) = tables.nth(index as usize)?;
                Some(Resource::whole(*id, table))
            }
            Source::HeapInfo => Some(Resource::Ring(self.info_bytes())),
            _ => None,
        }
    }
}

impl Memory {
    fn heap(&self) -> Option<&DeviceView> {
        match &self.bound {
            Bound::Heap(view) => Some(view),
            Bound::Arguments(..) => None,
        }
    }

    fn reads_info(&self) -> bool {
        self.kernel
            .compiled
            .heap
            .is_some_and(|heap| heap.reads_info)
    }

    fn info_bytes(&self) -> u64 {
        heap_info_bytes(self.heap().map_or(0, |heap| heap.own.len() as u32))
    }
}

/// The arguments in the table, in the table's order: index, place, and whether the kernel may write.
pub(super) fn arguments<'a>(
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
    /// The launch's memory for the heap.
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

    /// The storage arguments lying in the heap and reached there.
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

    /// The kernel for these bindings of the heap.
    fn form(&self, reach: Reach, heap: HeapShape) -> Result<Arc<KernelShared>, LaunchError> {
        let form = Form {
            heap,
            beside: self.beside(reach),
            live_pages: false,
        };
        let kernel = self.kernel.shared.form(&self.kernel.device, form);
        Ok(kernel.map_err(Box::new)?)
    }

    /// Buffers for the arguments in the table.
    fn memory_of_arguments(&self) -> Result<Memory, LaunchError> {
        let device = &self.kernel.device;
        let mut parts = 1;
        loop {
            let kernel = self.form(Reach::Arguments, HeapShape::of_arguments(parts))?;
            // More bindings for the arguments in the table may leave fewer for the others.
            let bytes = arguments(&kernel.compiled, &self.given).map(|(_, view, _)| view.bytes);
            let places = arena::Places::on(device, bytes)?;
            if places.parts() <= parts {
                let buffers = Arena::buffers(device, &places, parts)?;
                let bound = Bound::Arguments(buffers, places);
                return Ok(Memory { kernel, bound });
            }
            parts = places.parts();
        }
    }
}
