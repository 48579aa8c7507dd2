//! The bind groups of a launch, and its values in the uniform ring.

use std::sync::Arc;

use super::Launch;
use super::arguments::Given;
use super::bind::bind_groups;
use super::error::LaunchError;
use super::table::{Memory, MemoryId};
use crate::device::capture;
use crate::device::prints::Memory as Records;
use crate::device::queue::{Bound, Recorder};
use crate::device::status::RECORD_BYTES;
use crate::kernel::compile::{Compiled, Variant};
use crate::kernel::passes::grid::BYTES as GRID_BYTES;
use crate::kernel::pipeline::Built;
use crate::kernel::plan::{GroupPlan, Source, heap_info_bytes};
use crate::kernel::reflect::ArgumentKind;

/// Identities that stand for the runtime's own buffers in keys of the bind-group cache; the buffers
/// of programs count up from 1 and never get here.
const RING_ID: u64 = 1 << 63;
const STATUS_ID: u64 = (1 << 63) - 1;

/// The bind groups of the last submission.
#[derive(Debug, Clone)]
pub(super) struct BoundGroups {
    /// Generation of the uniform ring in the bindings.
    ring: u64,
    /// Identity of the kernel's form.
    form: u64,
    variant: Variant,
    /// Identity of what is bound for the heap.
    memory: MemoryId,
    /// Identity of the record buffer.
    print: Option<u64>,
    groups: Vec<wgpu::BindGroup>,
}

/// The place of a submission's values in the uniform ring, and its status record.
#[derive(Default)]
pub(super) struct Placement {
    /// Offset for each argument; 0 for arguments other than values.
    values: Vec<u32>,
    status: u32,
    pub(super) heap_info: u32,
    pub(super) table: u32,
    /// The record buffer, if the kernel prints.
    pub(super) records: Option<Arc<Records>>,
}

impl Placement {
    fn print_id(&self) -> Option<u64> {
        self.records.as_ref().map(|records| records.id)
    }
}

impl Launch {
    /// Bytes of each value in the ring: as declared by the shader, or more if given.
    pub(super) fn value_bytes(&self) -> impl Iterator<Item = usize> {
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

    pub(super) fn place(&self, queue: &mut Recorder<'_>, status: u32) -> Placement {
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
            records: None,
        }
    }

    /// The bind groups of the launch: from the last submission, the cache, or new.
    pub(super) fn bind(
        &mut self,
        queue: &mut Recorder<'_>,
        form: &Compiled,
        built: &Built,
        variant: Variant,
        placement: &Placement,
        memory: &Memory,
    ) -> Result<Vec<wgpu::BindGroup>, LaunchError> {
        let ring = queue.uniform_buffer();
        let generation = ring.as_ref().map_or(0, |(_, generation)| *generation);
        let memory_id = memory.id();
        if let Some(bound) = &self.bound
            && bound.ring == generation
            && bound.form == form.id
            && bound.variant == variant
            && bound.memory == memory_id
            && bound.print == placement.print_id()
        {
            return Ok(bound.groups.clone());
        }
        let status = (form.report.is_some()).then(|| queue.status_buffer());
        let device = Arc::clone(&self.kernel.device);
        let mut groups = Vec::with_capacity(built.groups.len());
        let mut fixed = true;
        for plan in &built.groups {
            let (entries, key, buffers) = self.entries(
                form,
                plan,
                ring.as_ref(),
                status.as_ref(),
                memory,
                placement,
            );
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
        // Groups binding a value at a fixed place are good for a single submission.
        self.bound = fixed.then(|| BoundGroups {
            ring: generation,
            form: form.id,
            variant,
            memory: memory_id,
            print: placement.print_id(),
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

    /// The entries of a bind group, its key in the cache (`None` for bindings without an identity of ours), and the
    /// buffers in the key.
    fn entries<'a>(
        &'a self,
        form: &Compiled,
        plan: &GroupPlan,
        ring: Option<&'a (wgpu::Buffer, u64)>,
        status: Option<&'a wgpu::Buffer>,
        memory: &'a Memory,
        placement: &'a Placement,
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
                Source::Print => {
                    if let Some(records) = &placement.records {
                        let buffer = records.buffer();
                        buffers.push(records.id);
                        push_buffer(binding, records.id, buffer, 0, buffer.size());
                    }
                }
                Source::Heap(index) => {
                    if let Some((id, segment)) = memory.binding(index as usize) {
                        // Known to the cache, so the cache does not keep a segment that is gone.
                        buffers.push(*id);
                        let front = match index {
                            0 => memory.heap().map_or(0, |view| view.front),
                            _ => 0,
                        };
                        push_buffer(binding, *id, segment, front, segment.size() - front);
                    }
                }
                Source::Allocations(index) => {
                    if let Some((id, table)) = memory.table(index as usize) {
                        buffers.push(*id);
                        push_buffer(binding, *id, table, 0, table.size());
                    }
                }
                Source::HeapInfo => {
                    if let Some((ring, generation)) = ring {
                        let offset = in_ring(placement.heap_info);
                        let own_segments = memory.heap().map_or(0, |view| view.own.len() as u32);
                        let size = heap_info_bytes(own_segments);
                        push_buffer(binding, RING_ID | generation, ring, offset, size);
                    }
                }
                Source::Table => {
                    if let Some((ring, generation)) = ring {
                        let offset = in_ring(placement.table);
                        let size = form.table_rows() as u64 * 16;
                        push_buffer(binding, RING_ID | generation, ring, offset, size);
                    }
                }
                Source::Globals => {
                    let globals = self.globals.as_ref();
                    if let Some(view) = globals.and_then(|globals| globals.view.as_ref()) {
                        buffers.push(view.shared.id);
                        let raw = &view.shared.raw;
                        push_buffer(binding, view.shared.id, raw, view.offset, view.bytes);
                    }
                }
                Source::Calls => {
                    if let Some(((id, ports), _)) = self.ports() {
                        buffers.push(id);
                        push_buffer(binding, id, ports, 0, ports.size());
                    }
                }
                Source::Posts => {
                    if let Some((id, posts)) = self.ports().and_then(|(_, posts)| posts) {
                        buffers.push(id);
                        push_buffer(binding, id, posts, 0, posts.size());
                    }
                }
                Source::Backoff => {
                    if let Some((id, backoff)) = self.backoff() {
                        buffers.push(id);
                        push_buffer(binding, id, backoff, 0, backoff.size());
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
                        if let Some((id, raw, offset)) =
                            self.given[index].as_ref().and_then(Given::bound)
                        {
                            buffers.push(id);
                            push_buffer(binding, id, raw, offset, bytes);
                        }
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
pub(super) fn push_grid(queue: &mut Recorder<'_>, base: [u32; 3], counts: [u32; 3]) -> u32 {
    let words = [
        base[0], base[1], base[2], 0, counts[0], counts[1], counts[2], 0,
    ];
    queue.push_uniform(bytemuck::cast_slice(&words), GRID_BYTES as usize)
}

/// The dynamic offsets of each group, in binding order.
pub(super) fn offsets(built: &Built, placement: &Placement, grid: u32) -> Vec<Vec<u32>> {
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
                Source::Heap(_)
                | Source::Allocations(_)
                | Source::Globals
                | Source::Print
                | Source::Calls
                | Source::Posts
                | Source::Backoff => 0,
            })
            .collect()
    };
    built.groups.iter().map(of).collect()
}

/// The bindings: groups, each with its dynamic offsets.
pub(super) fn bounds<'a>(
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
