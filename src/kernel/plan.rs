//! The plan of a kernel's bind groups: contents and sources.

use naga::ResourceBinding;

use super::compile::{Compiled, Variant};
use super::passes::grid::BYTES as GRID_BYTES;
use super::passes::pointers::HeapInfo;
use super::reflect::ArgumentKind;
use crate::device::DeviceShared;
use crate::device::status::RECORD_BYTES;
use crate::print::record::HEADER_WORDS;

pub(crate) struct GroupPlan {
    pub(crate) index: u32,
    pub(crate) layout: wgpu::BindGroupLayout,
    /// Identity of the layout, for the bind-group cache.
    pub(crate) id: u64,
    /// By ascending binding, which is also the order of dynamic offsets.
    pub(crate) entries: Vec<EntryPlan>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryPlan {
    pub(crate) binding: u32,
    pub(crate) source: Source,
    pub(crate) dynamic: bool,
}

/// Where a binding's resource comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The launch's argument of that index in the interface.
    Argument(usize),
    /// The runtime's status record.
    Status,
    /// The record buffer of the launch.
    Print,
    /// The parameters of a tiled grid.
    Grid,
    /// A segment of the shared heap.
    Heap(u32),
    /// A part of the allocation table, or, behind the parts, the table of the device's own memory.
    Allocations(u32),
    /// The pool, the table, the faults and the places of a kernel that follows pointers into lent memory, by this number.
    System(u32),
    /// Where the heap lies.
    HeapInfo,
    /// Where the arguments lie that have no binding.
    Table,
    /// The memory of the kernel's device globals.
    Globals,
    /// The ports of the launch's services.
    Calls,
    /// The memory for the kernel's posts, where separate.
    Posts,
    /// The memory read for delays while waiting for an answer.
    Backoff,
    /// The scratch memory of spilled private arrays.
    Scratch,
}

/// Bytes of the uniform with the heap's place, for a kernel binding so many segments of the device's own memory.
pub(crate) fn heap_info_bytes(device_segments: u32) -> u64 {
    4 * u64::from(HeapInfo::len(device_segments))
}

/// Index, layout and plan of a bind group.
pub(super) type PlannedGroup = (u32, Vec<wgpu::BindGroupLayoutEntry>, Vec<EntryPlan>);

/// Plans the bind groups, and the bindings in each, in ascending order.
pub(super) fn plan_groups(
    device: &DeviceShared,
    compiled: &Compiled,
    variant: Variant,
    with_grid: bool,
) -> Vec<PlannedGroup> {
    let limits = &device.limits;
    let mut plan = Plan {
        dynamic_uniforms: limits.max_dynamic_uniform_buffers_per_pipeline_layout,
        wanted: Vec::new(),
    };
    if with_grid {
        // The first, so that it is at a dynamic offset wherever there are any.
        let ty = plan.uniform(GRID_BYTES);
        plan.want(compiled.bindings.grid(), Source::Grid, ty);
    }
    plan.heap(compiled);
    plan.globals(compiled, variant);
    plan.records(compiled);
    plan.scratch(compiled);
    plan.calls(compiled);
    plan.arguments(compiled, variant);
    plan.into_groups()
}

/// The bindings planned so far.
struct Plan {
    /// Dynamic offsets of uniforms that are left.
    dynamic_uniforms: u32,
    /// Group, binding, source and type of each.
    wanted: Vec<(u32, u32, Source, wgpu::BindingType)>,
}

impl Plan {
    fn want(&mut self, at: ResourceBinding, source: Source, ty: wgpu::BindingType) {
        self.wanted.push((at.group, at.binding, source, ty));
    }

    /// A value of `bytes` bytes in the uniform ring.
    fn uniform(&mut self, bytes: u64) -> wgpu::BindingType {
        // Values beyond the limit are bound at their offset, which costs a bind group for each.
        let dynamic = self.dynamic_uniforms > 0;
        self.dynamic_uniforms = self.dynamic_uniforms.saturating_sub(1);
        wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Uniform,
            has_dynamic_offset: dynamic,
            min_binding_size: wgpu::BufferSize::new(bytes),
        }
    }

    /// The segments of the heap, the allocation table, and where the heap lies.
    fn heap(&mut self, compiled: &Compiled) {
        for index in 0..compiled.system_bindings {
            let at = compiled.bindings.segment(index);
            // The second is the table.
            self.want(at, Source::System(index), storage(index == 1, 16));
        }
        let Some(heap) = compiled.heap else {
            return;
        };
        let segments = heap.segments + heap.device_segments;
        for segment in 0..segments {
            let at = compiled.bindings.segment(segment);
            self.want(at, Source::Heap(segment), storage(heap.read_only, 16));
            if let Some(first) = heap.wide {
                let at = compiled.bindings.segment(first + segment);
                self.want(at, Source::Heap(segment), storage(false, 16));
            }
        }
        let (parts, of_device) = heap.tables;
        for table in 0..parts + u32::from(of_device) {
            let at = compiled.bindings.segment(segments + table);
            self.want(at, Source::Allocations(table), storage(true, 4));
        }
        if heap.reads_info {
            let ty = self.uniform(heap_info_bytes(heap.device_segments));
            self.want(compiled.bindings.heap_info(), Source::HeapInfo, ty);
        }
    }

    /// The device globals, and the argument table.
    fn globals(&mut self, compiled: &Compiled, variant: Variant) {
        if let Some(globals) = compiled.globals_binding() {
            let read_only = !globals.writable && !variant.globals_written;
            let ty = storage(read_only, globals.bytes.into());
            self.want(compiled.bindings.globals(), Source::Globals, ty);
        }
        let rows = compiled.table_rows() as u64;
        if rows > 0 {
            let ty = at_offset(storage(true, rows * 16));
            self.want(compiled.bindings.table(), Source::Table, ty);
        }
    }

    /// What the kernel leaves for the host: its status, and its prints.
    fn records(&mut self, compiled: &Compiled) {
        if compiled.report.is_some() {
            let ty = at_offset(storage(false, RECORD_BYTES));
            self.want(compiled.bindings.status(), Source::Status, ty);
        }
        if compiled.prints.is_some() {
            // With room for the header and one word.
            let ty = storage(false, HEADER_WORDS as u64 * 4 + 4);
            self.want(compiled.bindings.print(), Source::Print, ty);
        }
    }

    /// The scratch memory of spilled private arrays.
    fn scratch(&mut self, compiled: &Compiled) {
        if let Some(spill) = &compiled.spill {
            let ty = storage(false, spill.group_bytes().max(4));
            self.want(compiled.bindings.scratch(), Source::Scratch, ty);
        }
    }

    /// The ports for the kernel's calls.
    fn calls(&mut self, compiled: &Compiled) {
        let bindings = &compiled.bindings;
        let wanted = [
            (compiled.calls.is_some(), bindings.calls(), Source::Calls),
            (compiled.splits_ports, bindings.posts(), Source::Posts),
            (compiled.backs_off, bindings.backoff(), Source::Backoff),
        ];
        for (_, at, source) in wanted.into_iter().filter(|(wanted, ..)| *wanted) {
            self.want(at, source, storage(false, 4));
        }
    }

    /// The arguments that have a binding of their own.
    fn arguments(&mut self, compiled: &Compiled, variant: Variant) {
        for (index, argument) in compiled.interface.arguments.iter().enumerate() {
            if compiled.table.contains(&index) {
                continue;
            }
            let ty = match &argument.kind {
                ArgumentKind::Storage { writable, layout } => {
                    let read_only = !writable && !variant.writes(index);
                    storage(read_only, u64::from(layout.size))
                }
                ArgumentKind::Uniform { layout } => self.uniform(u64::from(layout.size)),
                ArgumentKind::Texture { binding } | ArgumentKind::Sampler { binding } => *binding,
                // Reported by `Kernel::launch`, where the argument has a name.
                ArgumentKind::Unsupported { .. } => continue,
            };
            let at = ResourceBinding {
                group: argument.group,
                binding: argument.binding,
            };
            self.want(at, Source::Argument(index), ty);
        }
    }

    fn into_groups(mut self) -> Vec<PlannedGroup> {
        self.wanted
            .sort_by_key(|&(group, binding, ..)| (group, binding));
        let mut groups: Vec<PlannedGroup> = Vec::new();
        for (group, binding, source, ty) in self.wanted {
            if groups.last().is_none_or(|(index, ..)| *index != group) {
                groups.push((group, Vec::new(), Vec::new()));
            }
            let dynamic = matches!(
                ty,
                wgpu::BindingType::Buffer {
                    has_dynamic_offset: true,
                    ..
                }
            );
            if let Some((_, layout, entries)) = groups.last_mut() {
                layout.push(wgpu::BindGroupLayoutEntry {
                    binding,
                    visibility: wgpu::ShaderStages::COMPUTE,
                    ty,
                    count: None,
                });
                entries.push(EntryPlan {
                    binding,
                    source,
                    dynamic,
                });
            }
        }
        groups
    }
}

/// A storage buffer of at least `bytes` bytes.
fn storage(read_only: bool, bytes: u64) -> wgpu::BindingType {
    wgpu::BindingType::Buffer {
        ty: wgpu::BufferBindingType::Storage { read_only },
        has_dynamic_offset: false,
        min_binding_size: wgpu::BufferSize::new(bytes),
    }
}

/// The same binding at a dynamic offset.
fn at_offset(ty: wgpu::BindingType) -> wgpu::BindingType {
    match ty {
        wgpu::BindingType::Buffer {
            ty,
            min_binding_size,
            ..
        } => wgpu::BindingType::Buffer {
            ty,
            has_dynamic_offset: true,
            min_binding_size,
        },
        other => other,
    }
}
