//! The plan of a kernel's bind groups: contents and sources.

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
    let mut wanted: Vec<(u32, u32, Source, wgpu::BindingType)> = Vec::new();
    let mut dynamic_uniforms = device
        .limits
        .max_dynamic_uniform_buffers_per_pipeline_layout;
    let mut uniform = |bytes: u64| {
        // Values beyond the limit are bound at their offset, which costs a bind group for each.
        let dynamic = dynamic_uniforms > 0;
        dynamic_uniforms = dynamic_uniforms.saturating_sub(1);
        wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Uniform,
            has_dynamic_offset: dynamic,
            min_binding_size: wgpu::BufferSize::new(bytes),
        }
    };
    if with_grid {
        let at = compiled.bindings.grid();
        wanted.push((at.group, at.binding, Source::Grid, uniform(GRID_BYTES)));
    }
    let storage = |dynamic, bytes| wgpu::BindingType::Buffer {
        ty: wgpu::BufferBindingType::Storage { read_only: false },
        has_dynamic_offset: dynamic,
        min_binding_size: wgpu::BufferSize::new(bytes),
    };
    if compiled.report.is_some() {
        let at = compiled.bindings.status();
        let ty = storage(true, RECORD_BYTES);
        wanted.push((at.group, at.binding, Source::Status, ty));
    }
    if compiled.prints.is_some() {
        let at = compiled.bindings.print();
        // With room for the header and one word.
        let ty = storage(false, HEADER_WORDS as u64 * 4 + 4);
        wanted.push((at.group, at.binding, Source::Print, ty));
    }
    if let Some(heap) = compiled.heap {
        for segment in 0..heap.segments + heap.device_segments {
            let at = compiled.bindings.segment(segment);
            let ty = storage(false, 16);
            wanted.push((at.group, at.binding, Source::Heap(segment), ty));
        }
        let (parts, of_device) = heap.tables;
        for table in 0..parts + u32::from(of_device) {
            let behind = heap.segments + heap.device_segments;
            let at = compiled.bindings.segment(behind + table);
            let ty = wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: true },
                has_dynamic_offset: false,
                min_binding_size: wgpu::BufferSize::new(4),
            };
            wanted.push((at.group, at.binding, Source::Allocations(table), ty));
        }
        if heap.reads_info {
            let at = compiled.bindings.heap_info();
            let ty = uniform(heap_info_bytes(heap.device_segments));
            wanted.push((at.group, at.binding, Source::HeapInfo, ty));
        }
    }
    if let Some(globals) = compiled.globals_binding() {
        let at = compiled.bindings.globals();
        let ty = wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage {
                read_only: !globals.writable && !variant.globals_written,
            },
            has_dynamic_offset: false,
            min_binding_size: wgpu::BufferSize::new(globals.bytes.into()),
        };
        wanted.push((at.group, at.binding, Source::Globals, ty));
    }
    if compiled.table_rows() > 0 {
        let at = compiled.bindings.table();
        let ty = wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: true },
            has_dynamic_offset: true,
            min_binding_size: wgpu::BufferSize::new(compiled.table_rows() as u64 * 16),
        };
        wanted.push((at.group, at.binding, Source::Table, ty));
    }
    if compiled.calls.is_some() {
        let at = compiled.bindings.calls();
        wanted.push((at.group, at.binding, Source::Calls, storage(false, 4)));
    }
    if compiled.splits_ports {
        let at = compiled.bindings.posts();
        wanted.push((at.group, at.binding, Source::Posts, storage(false, 4)));
    }
    if compiled.backs_off {
        let at = compiled.bindings.backoff();
        wanted.push((at.group, at.binding, Source::Backoff, storage(false, 4)));
    }
    for (index, argument) in compiled.interface.arguments.iter().enumerate() {
        if compiled.table.contains(&index) {
            continue;
        }
        let ty = match &argument.kind {
            ArgumentKind::Storage { writable, layout } => wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage {
                    read_only: !writable && !variant.writes(index),
                },
                has_dynamic_offset: false,
                min_binding_size: wgpu::BufferSize::new(u64::from(layout.size)),
            },
            ArgumentKind::Uniform { layout } => uniform(u64::from(layout.size)),
            ArgumentKind::Texture { binding } | ArgumentKind::Sampler { binding } => *binding,
            // Reported by `Kernel::launch`, where the argument has a name.
            ArgumentKind::Unsupported { .. } => continue,
        };
        wanted.push((
            argument.group,
            argument.binding,
            Source::Argument(index),
            ty,
        ));
    }
    wanted.sort_by_key(|&(group, binding, ..)| (group, binding));
    let mut groups: Vec<PlannedGroup> = Vec::new();
    for (group, binding, source, ty) in wanted {
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
