//! How a kernel is compiled for a device and a launch: the device's limits, the options, and the parts in which memory is
//! bound.

use std::sync::Arc;

use super::KernelOptions;
use crate::device::heap_shape::{HeapShape, segment_bytes};
use crate::device::{DeviceShared, LoopGuardPolicy};
use crate::kernel::compile::CompileOptions;
use crate::kernel::error::KernelError;
use crate::kernel::heap_setup::{Beside, HeapSetup};
use crate::kernel::passes::pointers::{Hoists, TranslationMode};
use crate::kernel::program::Program;

/// Invocations in a work-group for 1-D kernels without a size of their own: a multiple of every subgroup size in use,
/// small enough for every adapter allowed by WebGPU.
const AUTO_WORKGROUP: u32 = 64;

/// The loop budget of lavapipe, assumed for devices that were not probed.
const ASSUMED_LOOP_BUDGET: u32 = 65_535;

/// Nested branches that lavapipe tells apart, 79, less some for Mesa's own.
const LAVAPIPE_NESTING: u32 = 72;

/// The shape of the heap that a program's kernels are compiled for at first: the heap's own now, and a plain one for programs
/// following no pointers, whose kernels must not depend on the heap.
pub(super) fn heap_shape(
    device: &Arc<DeviceShared>,
    program: &Program,
    options: KernelOptions,
) -> Result<HeapShape, KernelError> {
    if !program.follows_pointers() || options.pointers == TranslationMode::System {
        return Ok(HeapShape::of_arguments(1));
    }
    let heap = device.context.heap_source();
    (heap.shape(device, asks_allocations(device, options))).map_err(|error| {
        KernelError::FeatureNotSupported {
            program: program.name().to_string(),
            what: "following pointers".into(),
            why: error.to_string(),
        }
    })
}

/// How a kernel that reaches the heap is compiled for a launch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) heap: HeapShape,
    /// The arguments that lie in the heap, by ascending index.
    pub(crate) beside: Vec<Beside>,
    /// Pages of lent memory come while the kernel runs.
    pub(crate) live_pages: bool,
}

impl Form {
    pub(super) fn plain(heap: HeapShape) -> Self {
        Self {
            heap,
            beside: Vec::new(),
            live_pages: false,
        }
    }
}

fn checks_pointers(device: &DeviceShared, options: KernelOptions) -> bool {
    (options.checked_pointers).unwrap_or(device.options.checked_pointers)
}

/// Whether kernels with these options check allocations.
fn asks_allocations(device: &DeviceShared, options: KernelOptions) -> bool {
    let asks = (options.checked_allocations).unwrap_or(device.options.checked_allocations);
    asks && checks_pointers(device, options)
}

pub(super) fn compile_options(
    device: &DeviceShared,
    form: &Form,
    options: KernelOptions,
) -> CompileOptions {
    let loop_budget = match device.options.loop_guard {
        LoopGuardPolicy::Off => None,
        LoopGuardPolicy::Budget(budget) => Some(budget),
        // Where no probe has seen a long loop end by itself, the smallest budget known is assumed.
        LoopGuardPolicy::WhereNeeded => {
            let capabilities = &device.capabilities;
            (capabilities.needs_loop_guard())
                .then(|| capabilities.loop_budget().unwrap_or(ASSUMED_LOOP_BUDGET))
        }
    };
    let checked = checks_pointers(device, options);
    CompileOptions {
        capabilities: device.shader_capabilities.bits(),
        private_limit: device.capabilities.private_memory_bytes,
        spill: options.spill.unwrap_or(device.options.spill),
        scratch_bytes: scratch_bytes(device),
        loop_budget,
        nesting: device
            .capabilities
            .is_lavapipe()
            .then_some(LAVAPIPE_NESTING),
        splits_extrema: device.capabilities.splits_extrema(),
        folds_wrongly: device.capabilities.folds_wrongly(),
        auto_workgroup: AUTO_WORKGROUP
            .min(device.limits.max_compute_invocations_per_workgroup)
            .min(device.limits.max_compute_workgroup_size_x),
        heap: HeapSetup {
            max_bind_groups: device.limits.max_bind_groups,
            segments: form.heap.shared,
            device_segments: form.heap.own,
            first_tag: form.heap.first_tag,
            window_aligned: form.heap.window_aligned,
            storage_bindings: Some(device.limits.max_storage_buffers_per_shader_stage),
            segment_bytes: segment_bytes(&device.limits) as u32,
            mode: options.pointers,
            barriers: device.capabilities.has_memory_barriers(),
            orders_calls: orders_calls(device),
            has_loop_budget: device.capabilities.needs_loop_guard(),
            pointers_apart: device.capabilities.is_lavapipe(),
            hoists: hoists(device, form, options),
            splits_ports: device.capabilities.splits_ports(),
            packs_calls: device.capabilities.packs_calls(),
            checked,
            allocations: form.heap.tables,
            live_pages: form.live_pages,
            evicts_pages: device.capabilities.evicts_pages(),
            may_report: checked || loop_budget.is_some(),
            beside: form.beside.clone(),
        },
    }
}

/// What kernels with these options keep of the translation of a pointee.
fn hoists(device: &DeviceShared, form: &Form, options: KernelOptions) -> Hoists {
    // Modules are shared: no other mode has to know.
    if options.pointers != TranslationMode::System {
        return Hoists::Nothing;
    }
    let skips_branches = device.capabilities.skips_branches();
    match (options.hoisted, skips_branches, form.live_pages) {
        (Some(false), ..) => Hoists::Nothing,
        (_, true, _) | (Some(true), _, true) => Hoists::First,
        (_, false, false) => Hoists::Pages,
        (None, false, true) => Hoists::Nothing,
    }
}

/// Whether calls on the device need no barriers. Where memory is checked, barriers are what tells a race from an order.
fn orders_calls(device: &DeviceShared) -> bool {
    #[cfg(embedded)]
    let is_checked = device.findings.is_some();
    #[cfg(not(embedded))]
    let is_checked = false;
    device.capabilities.keeps_order() && !is_checked
}

/// The most bytes of scratch memory on a device: one storage binding, whose words have indices of 32 bits.
pub(crate) fn scratch_bytes(device: &DeviceShared) -> u64 {
    /// With so much, a large device has all its invocations in flight for arrays of a few KiB.
    const DEVICE: u64 = 1 << 30;
    /// A CPU runs a work-group a thread at a time.
    const SOFTWARE: u64 = 256 << 20;
    let most = match device.capabilities.software {
        true => SOFTWARE,
        false => DEVICE,
    };
    let wanted = device.options.scratch_bytes.unwrap_or(most);
    (wanted.min(device.limits.max_storage_buffer_binding_size))
        .min(device.limits.max_buffer_size)
        .min(1 << 31)
}
