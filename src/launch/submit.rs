//! Submission: a checked launch becomes commands of the open batch.

use std::sync::Arc;

use super::arguments::Given;
use super::bind::bind_groups;
use super::error::LaunchError;
use super::grid::Groups;
use super::table::Table;
use super::{Grid, Launch};
use crate::device::outcome::Outcome;
use crate::device::queue::{Bound, Dispatch, Recorder, Watch};
use crate::device::status::RECORD_BYTES;
use crate::device::{Aspect, Event, ProfilingError, capture};
use crate::kernel::compile::{Code, Variant};
use crate::kernel::passes::pointers::HeapInfo;
use crate::kernel::pipeline::{
    Built, GRID_BYTES, GroupPlan, HEAP_INFO_BYTES, Kernel, Segments, Source,
};
use crate::kernel::reflect::ArgumentKind;
use crate::memory::SharedHeap;
use crate::memory::heap::{DeviceView, Turn, heap_of};

/// Identities that stand for the runtime's own buffers in keys of the bind-group cache; the buffers
/// of programs count up from 1 and never get here.
const RING_ID: u64 = 1 << 63;
const STATUS_ID: u64 = (1 << 63) - 1;

/// The bind groups of the last submission.
#[derive(Debug, Clone)]
pub(super) struct BoundGroups {
    /// Generation of the uniform ring that they bind.
    ring: u64,
    variant: Variant,
    /// Identity of the last segment of the heap and of the device's own memory, which change whenever
    /// one grows.
    heap: Option<(u64, u64)>,
    groups: Vec<wgpu::BindGroup>,
}

/// Where the values of one submission lie in the uniform ring, and its status record.
#[derive(Default)]
struct Placement {
    /// Offset for each argument; 0 for those that are no values.
    values: Vec<u32>,
    status: u32,
    heap_info: u32,
    table: u32,
}

impl Launch {
    /// Records the launch into the device's open batch and returns its event.
    ///
    /// A grid of no invocations is no error and runs nothing.
    ///
    /// # Errors
    /// [`LaunchError`] for everything that can be known beforehand. What goes wrong later is the
    /// event's error.
    pub fn submit(&mut self) -> Result<Event, LaunchError> {
        self.check()?;
        self.kernel.device.lost.check().map_err(Arc::new)?;
        let follows = self.kernel.shared.compiled.heap.is_some();
        let shared_heap = match follows || self.uses_heap() {
            true => Some(heap_of(&self.kernel.device)?),
            false => None,
        };
        let imports = shared_heap.as_ref().map(|heap| heap.shared.imports());
        // Kept until the launch is recorded.
        let turn = match &shared_heap {
            Some(heap) => Some(self.take_turn(heap)?),
            None => None,
        };
        let (kernel, heap) = self.kernel_and_heap(shared_heap.as_ref().zip(turn.as_ref()))?;
        let (device, shared) = (&kernel.device, &kernel.shared);
        if self.profiled && !device.capabilities.has(Aspect::TimestampQueries) {
            return Err(ProfilingError::Unsupported {
                device: device.capabilities.name.clone(),
            }
            .into());
        }
        let (groups, indirect) = self.dispatches()?;
        let tiled = match &groups {
            Some(groups) if groups.is_empty() => return Ok(Event::complete(device)),
            Some(groups) => !groups.fits_one_dispatch(),
            None => false,
        };
        if tiled && matches!(shared.compiled.code, Code::SpirV(_)) {
            return Err(LaunchError::PrecompiledGrid {
                kernel: shared.name.to_string(),
                limit: device.limits.max_compute_workgroups_per_dimension,
            });
        }
        let variant = Variant {
            tiled,
            written: self.written,
        };
        let built = &*shared.variant(device, variant).map_err(Box::new)?;
        let with_grid = built
            .groups
            .iter()
            .any(|group| group.entries.iter().any(|e| e.source == Source::Grid));

        let report = shared.compiled.report.as_ref();
        let table = Table::new(device, &shared.compiled, &self.given, &mut self.scratches)?;
        let mut queue = device.queue.lock(device);
        if shared_heap.as_ref().map(|heap| heap.shared.imports()) != imports {
            // The heap has grown meanwhile: commands on the old segment and on the new one, which is the
            // same memory, would not be ordered.
            drop(queue);
            drop(turn);
            return self.submit();
        }
        // With the queue in hand, so that nobody else's launch comes between.
        let (inherits, touched) = self.inputs();
        let outcome = (report.is_some() || !inherits.is_empty())
            .then(|| Outcome::new(Arc::clone(&shared.name), inherits));
        let tiles = groups.as_ref().map_or(1, Groups::tile_count);
        let values: usize = self
            .value_bytes()
            .map(|bytes| queue.uniform_footprint(bytes))
            .sum();
        let grid_bytes = queue.uniform_footprint(GRID_BYTES as usize);
        let info_bytes = queue.uniform_footprint(HEAP_INFO_BYTES as usize);
        let reads_info = shared.compiled.heap.is_some_and(|heap| heap.reads_info);
        let table_bytes = queue.uniform_footprint(table.words.len() * 4);
        let needed = values
            + table_bytes
            + if with_grid { tiles * grid_bytes } else { 0 }
            + if reads_info { info_bytes } else { 0 };
        if needed > 0 {
            queue.reserve_uniforms(needed);
        }
        let record = match report {
            Some(_) => Some(queue.take_record()?),
            None => None,
        };
        let mut placement = self.place(&mut queue, record.map_or(0, |(_, offset)| offset));
        if let (Some(heap), true) = (&heap, reads_info) {
            let words = HeapInfo {
                base: heap.base,
                shared_bytes: heap.covered as u32,
                device_bytes: heap.own.iter().map(|(_, own)| own.size() as u32).collect(),
            }
            .words();
            let bytes = bytemuck::cast_slice(&words);
            placement.heap_info = queue.push_uniform(bytes, HEAP_INFO_BYTES as usize);
        }
        if !table.words.is_empty() {
            let bytes: &[u8] = bytemuck::cast_slice(&table.words);
            placement.table = queue.push_uniform(bytes, bytes.len());
        }
        let bound = self.bind(&mut queue, built, variant, &placement, heap.as_ref());
        // The last that may refuse: nothing of the launch is recorded yet.
        let ready = bound.and_then(|bound| {
            if let Some(heap) = &shared_heap {
                heap.shared
                    .enter(device, &queue.batch(), outcome.as_ref())?;
            }
            Ok(bound)
        });
        let bound = match ready {
            Ok(bound) => bound,
            Err(error) => {
                if let Some((record, _)) = record {
                    queue.give_back_record(record);
                }
                return Err(error);
            }
        };

        table.copy_in(&mut queue);
        for bounce in &self.bounces {
            bounce.before(&mut queue);
        }
        let timing = self.profiled.then(|| queue.begin_timed());
        let immediates = self.immediates.as_deref().unwrap_or_default();
        match (&groups, indirect) {
            (Some(groups), _) => {
                for (base, size) in groups.tiles() {
                    let grid = if with_grid {
                        push_grid(&mut queue, base, groups.counts)
                    } else {
                        0
                    };
                    let offsets = offsets(built, &placement, grid);
                    let bounds = bounds(built, &bound, &offsets);
                    let dispatch = Dispatch::Direct(size);
                    queue.launch(&built.pipeline, &bounds, immediates, &dispatch);
                }
            }
            (None, Some((buffer, offset))) => {
                let offsets = offsets(built, &placement, 0);
                let bounds = bounds(built, &bound, &offsets);
                let dispatch = Dispatch::Indirect(&buffer, offset);
                queue.launch(&built.pipeline, &bounds, immediates, &dispatch);
            }
            (None, None) => {}
        }
        if timing.is_some() {
            queue.end_timed();
        }
        for bounce in &self.bounces {
            bounce.after(&mut queue);
        }
        table.copy_out(&mut queue);
        if let Some(outcome) = &outcome {
            let watch = report.zip(record).map(|(report, (record, _))| Watch {
                record,
                decode: Arc::clone(&report.0),
            });
            queue.watch(outcome, watch);
        }
        for index in touched {
            self.mark_written(index, outcome.as_ref());
        }
        let batch = queue.batch();
        queue.commit();
        drop(queue);
        Ok(Event::of_batch(device, batch)
            .with_outcome(outcome)
            .with_timing(timing))
    }

    /// The kernel as the heap needs it now, and what the device sees of the heap, for kernels that follow
    /// pointers.
    fn kernel_and_heap(
        &self,
        heap: Option<(&SharedHeap, &Turn<'_>)>,
    ) -> Result<(Kernel, Option<DeviceView>), LaunchError> {
        let mut kernel = self.kernel.clone();
        let Some((heap, turn)) = heap.filter(|_| kernel.shared.compiled.heap.is_some()) else {
            return Ok((kernel, None));
        };
        if self.uses_heap() {
            return Err(LaunchError::PointerBeside {
                kernel: kernel.shared.name.to_string(),
            });
        }
        let view = heap.shared.view_in(turn, &kernel.device)?;
        let segments = Segments::of(&view);
        let shared = kernel.shared.for_segments(&kernel.device, segments);
        kernel.shared = shared.map_err(Box::new)?;
        Ok((kernel, Some(view)))
    }

    /// Waits for the device's turn with the heap, and follows arguments to where they are now.
    fn take_turn<'h>(&mut self, heap: &'h SharedHeap) -> Result<Turn<'h>, LaunchError> {
        let turn = heap.shared.turn(&self.kernel.device)?;
        let mut moved = false;
        for given in self.given.iter_mut().flatten() {
            if let Given::Buffer { view, .. } = given
                && view.shared.is_heap
                && let Some(now) = heap.shared.renew(&turn, view)
            {
                *view = now;
                moved = true;
            }
        }
        for bounce in &mut self.bounces {
            bounce.follow(|home| heap.shared.renew(&turn, home));
        }
        if moved {
            self.bound = None;
            self.checked = false;
            self.check()?;
        }
        Ok(turn)
    }

    /// Whether an argument lies in the shared heap, so that the host has to keep out.
    fn uses_heap(&self) -> bool {
        let table = &self.kernel.shared.compiled.table;
        let in_heap = |(index, given): (usize, &Option<Given>)| match given {
            Some(Given::Buffer { view, .. }) => view.shared.is_heap && !table.contains(&index),
            _ => false,
        };
        !self.bounces.is_empty() || self.given.iter().enumerate().any(in_heap)
    }

    /// The work-groups to dispatch, or the buffer that holds their number.
    #[allow(clippy::type_complexity)] // an either of two private things
    fn dispatches(&self) -> Result<(Option<Groups>, Option<(wgpu::Buffer, u64)>), LaunchError> {
        let device = &self.kernel.device;
        let interface = self.kernel.interface();
        let groups = |extent, in_invocations| {
            Groups::new(
                &interface.entry,
                extent,
                in_invocations,
                interface.workgroup_size,
                device.limits.max_compute_workgroups_per_dimension,
            )
        };
        match &self.grid {
            None => Err(LaunchError::NoGrid {
                kernel: interface.entry.clone(),
            }),
            Some(Grid::Invocations(extent)) => Ok((Some(groups(*extent, true)?), None)),
            Some(Grid::Workgroups(extent)) => Ok((Some(groups(*extent, false)?), None)),
            Some(Grid::Indirect { buffer, offset }) => {
                let raw = buffer.shared.raw.clone();
                Ok((None, Some((raw, buffer.offset + offset))))
            }
        }
    }

    /// The outcomes that the launch inherits from what it reads, and the arguments that it writes.
    fn inputs(&self) -> (Vec<Arc<Outcome>>, Vec<usize>) {
        let mut inherits: Vec<Arc<Outcome>> = Vec::new();
        let mut written = Vec::new();
        let arguments = &self.kernel.interface().arguments;
        for (index, (info, given)) in arguments.iter().zip(&self.given).enumerate() {
            let Some(Given::Buffer { view, overwrites }) = given else {
                continue;
            };
            let writable = matches!(info.kind, ArgumentKind::Storage { writable: true, .. });
            if writable {
                written.push(index);
            }
            // What a kernel cannot write it cannot overwrite either, whatever it was said to be.
            if !(*overwrites && writable) {
                for outcome in view.shared.depends_on(&view.range()) {
                    if !inherits.iter().any(|known| Arc::ptr_eq(known, &outcome)) {
                        inherits.push(outcome);
                    }
                }
            }
        }
        if let Some(Grid::Indirect { buffer, .. }) = &self.grid {
            inherits.extend(buffer.shared.depends_on(&buffer.range()));
        }
        (inherits, written)
    }

    fn mark_written(&self, index: usize, outcome: Option<&Arc<Outcome>>) {
        let Some(Given::Buffer { view, overwrites }) = &self.given[index] else {
            return;
        };
        if *overwrites {
            view.shared.overwritten(&view.range());
        }
        if let Some(outcome) = outcome {
            view.shared.poison(view.range(), outcome);
        }
    }

    /// Bytes that each value takes in the ring: what the shader declares, or more if more was given.
    fn value_bytes(&self) -> impl Iterator<Item = usize> {
        let arguments = &self.kernel.interface().arguments;
        self.given
            .iter()
            .zip(arguments)
            .filter_map(|(given, info)| match (given, &info.kind) {
                (Some(Given::Value { bytes, .. }), ArgumentKind::Uniform { layout }) => {
                    Some(bytes.len().max(layout.size as usize))
                }
                _ => None,
            })
    }

    fn place(&self, queue: &mut Recorder<'_>, status: u32) -> Placement {
        let arguments = &self.kernel.interface().arguments;
        let values = self
            .given
            .iter()
            .zip(arguments)
            .map(|(given, info)| match (given, &info.kind) {
                (Some(Given::Value { bytes, .. }), ArgumentKind::Uniform { layout }) => {
                    queue.push_uniform(bytes, layout.size as usize)
                }
                _ => 0,
            })
            .collect();
        Placement {
            values,
            status,
            heap_info: 0,
            table: 0,
        }
    }

    /// The bind groups of the launch: those of the last submission, cached ones, or new ones.
    fn bind(
        &mut self,
        queue: &mut Recorder<'_>,
        built: &Built,
        variant: Variant,
        placement: &Placement,
        heap: Option<&DeviceView>,
    ) -> Result<Vec<wgpu::BindGroup>, LaunchError> {
        let ring = queue.uniform_buffer();
        let generation = ring.as_ref().map_or(0, |(_, generation)| *generation);
        let heap_id = heap.map(|view| {
            let last = |of: &[(u64, wgpu::Buffer)]| of.last().map_or(0, |(id, _)| *id);
            (last(&view.segments), last(&view.own))
        });
        if let Some(bound) = &self.bound
            && bound.ring == generation
            && bound.variant == variant
            && bound.heap == heap_id
        {
            return Ok(bound.groups.clone());
        }
        let status = self
            .kernel
            .shared
            .compiled
            .report
            .is_some()
            .then(|| queue.status_buffer());
        let device = Arc::clone(&self.kernel.device);
        let mut groups = Vec::with_capacity(built.groups.len());
        let mut fixed = true;
        for plan in &built.groups {
            let (entries, key, buffers) =
                self.entries(plan, ring.as_ref(), status.as_ref(), heap, placement);
            fixed &= plan
                .entries
                .iter()
                .all(|e| e.dynamic || !self.is_value(e.source));
            // Errors are watched for only when a group is really made.
            let make = || {
                capture(&device.raw, || {
                    device.raw.create_bind_group(&wgpu::BindGroupDescriptor {
                        label: None,
                        layout: &plan.layout,
                        entries: &entries,
                    })
                })
            };
            let (group, error) = match key.as_deref() {
                Some(key) => bind_groups(&device).get(key, &buffers, make),
                None => make(),
            };
            if let Some(error) = error {
                return Err(LaunchError::Refused {
                    kernel: self.kernel.interface().entry.clone(),
                    message: error.to_string(),
                });
            }
            groups.push(group);
        }
        // Groups that bind a value at a fixed place are good for one submission.
        self.bound = fixed.then(|| BoundGroups {
            ring: generation,
            variant,
            heap: heap_id,
            groups: groups.clone(),
        });
        Ok(groups)
    }

    fn is_value(&self, source: Source) -> bool {
        if matches!(source, Source::HeapInfo | Source::Table) {
            return true;
        }
        matches!(source, Source::Argument(i) if matches!(self.given[i], Some(Given::Value { .. })))
    }

    /// The entries of one bind group, its key in the cache (`None` when it binds things that have no
    /// identity of ours), and the buffers that the key mentions.
    fn entries<'a>(
        &'a self,
        plan: &GroupPlan,
        ring: Option<&'a (wgpu::Buffer, u64)>,
        status: Option<&'a wgpu::Buffer>,
        heap: Option<&'a DeviceView>,
        placement: &Placement,
    ) -> (Vec<wgpu::BindGroupEntry<'a>>, Option<Vec<u64>>, Vec<u64>) {
        let mut entries = Vec::with_capacity(plan.entries.len());
        let mut key = vec![plan.id];
        let mut buffers = Vec::new();
        let mut cacheable = true;
        let mut push_buffer = |binding, id, buffer: &'a wgpu::Buffer, offset: u64, size: u64| {
            key.extend([id, offset, size]);
            entries.push(wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer,
                    offset,
                    size: wgpu::BufferSize::new(size),
                }),
            });
        };
        let arguments = &self.kernel.interface().arguments;
        let mut others = Vec::new();
        for entry in &plan.entries {
            let binding = entry.binding;
            let in_ring = |offset: u32| if entry.dynamic { 0 } else { u64::from(offset) };
            match entry.source {
                Source::Status => {
                    if let Some(status) = status {
                        push_buffer(binding, STATUS_ID, status, 0, RECORD_BYTES);
                    }
                }
                Source::Heap(index) => {
                    let mut segments = heap
                        .into_iter()
                        .flat_map(|view| view.segments.iter().chain(&view.own));
                    let segment = segments.nth(index as usize);
                    if let Some((id, segment)) = segment {
                        // Known to the cache, so that a segment that is gone is not kept by it.
                        buffers.push(*id);
                        push_buffer(binding, *id, segment, 0, segment.size());
                    }
                }
                Source::HeapInfo => {
                    if let Some((ring, generation)) = ring {
                        let offset = in_ring(placement.heap_info);
                        push_buffer(binding, RING_ID | generation, ring, offset, HEAP_INFO_BYTES);
                    }
                }
                Source::Table => {
                    if let Some((ring, generation)) = ring {
                        let offset = in_ring(placement.table);
                        let size = self.kernel.shared.compiled.table.len() as u64 * 16;
                        push_buffer(binding, RING_ID | generation, ring, offset, size);
                    }
                }
                Source::Grid => {
                    if let Some((ring, generation)) = ring {
                        push_buffer(binding, RING_ID | generation, ring, 0, GRID_BYTES);
                    }
                }
                Source::Argument(index) => match (&self.given[index], &arguments[index].kind) {
                    (Some(Given::Value { .. }), ArgumentKind::Uniform { layout }) => {
                        if let Some((ring, generation)) = ring {
                            let offset = in_ring(placement.values[index]);
                            let size = u64::from(layout.size);
                            push_buffer(binding, RING_ID | generation, ring, offset, size);
                        }
                    }
                    (Some(Given::Buffer { view, .. }), kind) => {
                        let bytes = match kind {
                            ArgumentKind::Uniform { layout } => u64::from(layout.size),
                            // Bytes behind the last whole word are padding of the buffer.
                            _ => view.bytes.next_multiple_of(4),
                        };
                        buffers.push(view.shared.id);
                        let raw = &view.shared.raw;
                        push_buffer(binding, view.shared.id, raw, view.offset, bytes);
                    }
                    (Some(Given::Texture(view)), _) => {
                        cacheable = false;
                        others.push(wgpu::BindGroupEntry {
                            binding,
                            resource: wgpu::BindingResource::TextureView(view),
                        });
                    }
                    (Some(Given::Sampler(sampler)), _) => {
                        cacheable = false;
                        others.push(wgpu::BindGroupEntry {
                            binding,
                            resource: wgpu::BindingResource::Sampler(sampler),
                        });
                    }
                    _ => {}
                },
            }
        }
        entries.extend(others);
        (entries, cacheable.then_some(key), buffers)
    }
}

/// `TomboloGrid`: base and size of the whole grid, in work-groups.
fn push_grid(queue: &mut Recorder<'_>, base: [u32; 3], counts: [u32; 3]) -> u32 {
    let words = [
        base[0], base[1], base[2], 0, counts[0], counts[1], counts[2], 0,
    ];
    queue.push_uniform(bytemuck::cast_slice(&words), GRID_BYTES as usize)
}

/// The dynamic offsets of each group, in binding order.
fn offsets(built: &Built, placement: &Placement, grid: u32) -> Vec<Vec<u32>> {
    let of = |plan: &GroupPlan| {
        plan.entries
            .iter()
            .filter(|entry| entry.dynamic)
            .map(|entry| match entry.source {
                Source::Argument(index) => placement.values[index],
                Source::Status => placement.status,
                Source::Grid => grid,
                Source::HeapInfo => placement.heap_info,
                Source::Table => placement.table,
                // Never at a dynamic offset.
                Source::Heap(_) => 0,
            })
            .collect()
    };
    built.groups.iter().map(of).collect()
}

fn bounds<'a>(
    built: &Built,
    groups: &'a [wgpu::BindGroup],
    offsets: &'a [Vec<u32>],
) -> Vec<Bound<'a>> {
    built
        .groups
        .iter()
        .zip(groups)
        .zip(offsets)
        .map(|((plan, group), offsets)| Bound {
            index: plan.index,
            group,
            offsets,
        })
        .collect()
}
