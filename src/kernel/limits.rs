//! What a kernel needs of a device, against the device's limits.

use super::compile::{Code, Compiled, Variant};
use super::error::KernelError;
use super::plan::plan_groups;
use super::reflect::ArgumentKind;
use crate::device::DeviceShared;

/// A limit: the counted thing, the kernel's need, the device's supply, and the remedy.
type Check = (&'static str, u64, u64, &'static str);

/// Checks the kernel against the limits of the device, where wgpu would only say which number is off, or panic.
pub(super) fn check_limits(device: &DeviceShared, compiled: &Compiled) -> Result<(), KernelError> {
    let checks = [
        bindings(device, compiled),
        variables(device, compiled),
        groups(device, compiled),
    ];
    for (what, wanted, limit, instead) in checks.into_iter().flatten() {
        if wanted > limit {
            return Err(KernelError::Limit {
                program: (*compiled.program).into(),
                entry: compiled.interface.entry.as_str().into(),
                what,
                wanted,
                limit,
                device: device.capabilities.name.as_str().into(),
                instead,
            });
        }
    }
    Ok(())
}

/// Arguments of a kernel that are of a kind.
fn count(compiled: &Compiled, wanted: impl Fn(&ArgumentKind) -> bool) -> u64 {
    let arguments = compiled.interface.arguments.iter();
    arguments.filter(|argument| wanted(&argument.kind)).count() as u64
}

/// Where variables are bound, and how many are of each kind.
fn bindings(device: &DeviceShared, compiled: &Compiled) -> Vec<Check> {
    let limits = &device.limits;
    // Nothing is added to what was compiled elsewhere.
    let with_grid = !matches!(compiled.code, Code::SpirV(_));
    let plans = plan_groups(device, compiled, Variant::default(), with_grid);
    let arguments = compiled.interface.arguments.iter();
    let own = arguments.map(|argument| (argument.group, argument.binding));
    let planned = plans
        .iter()
        .flat_map(|(group, layout, _)| layout.iter().map(move |entry| (*group, entry.binding)));
    let (mut last_group, mut last_binding) = (0, 0);
    for (group, binding) in own.chain(planned) {
        last_group = last_group.max(u64::from(group) + 1);
        last_binding = last_binding.max(u64::from(binding) + 1);
    }
    let storage = count(compiled, |k| matches!(k, ArgumentKind::Storage { .. }))
        + u64::from(compiled.report.is_some())
        + u64::from(compiled.prints.is_some())
        + u64::from(compiled.spill.is_some())
        + u64::from(compiled.calls.is_some())
        + u64::from(compiled.splits_ports)
        + u64::from(compiled.backs_off)
        + compiled.heap.map_or(0, |heap| u64::from(heap.bindings()))
        + u64::from(compiled.system_bindings)
        + u64::from(compiled.table_rows() > 0)
        + u64::from(compiled.globals_binding().is_some())
        - compiled.table.len() as u64;
    let asks = (compiled.heap).is_some_and(|heap| heap.tables != (0, false));
    let is_wide = (compiled.heap).is_some_and(|heap| heap.wide.is_some());
    let in_segments = (compiled.heap).is_some_and(|heap| heap.segments + heap.device_segments > 1);
    let texture = |stores: bool| {
        count(compiled, |kind| match kind {
            ArgumentKind::Texture { binding } => {
                matches!(binding, wgpu::BindingType::StorageTexture { .. }) == stores
            }
            _ => false,
        })
    };
    vec![
        (
            "bind groups",
            last_group,
            limits.max_bind_groups.into(),
            "number groups from 0, without gaps",
        ),
        (
            "bindings in a bind group",
            last_binding,
            limits.max_bindings_per_bind_group.into(),
            "number bindings from 0, without gaps",
        ),
        (
            "storage buffers",
            storage,
            limits.max_storage_buffers_per_shader_stage.into(),
            match (asks, in_segments) {
                _ if is_wide => {
                    "each segment of the shared heap and of the device's own memory is two of them in kernels with atomics of \
                     64 bits behind pointers: put several arrays into one buffer, or allocate less there"
                }
                (true, _) => {
                    "each segment of the shared heap is one of them, and another one that says what is allocated there, and \
                     so with the device's own memory: put several arrays into one buffer, allocate less there, or \
                     switch checked_allocations off"
                }
                (false, false) => "put several arrays into one buffer",
                (false, true) => {
                    "each segment of the shared heap and of the device's own memory is one of them: put several \
                     arrays into one buffer, or allocate less there"
                }
            },
        ),
        (
            "uniform buffers",
            count(compiled, |k| matches!(k, ArgumentKind::Uniform { .. })),
            limits.max_uniform_buffers_per_shader_stage.into(),
            "put several values into one structure",
        ),
        (
            "sampled textures",
            texture(false),
            limits.max_sampled_textures_per_shader_stage.into(),
            "make layers of one texture of them",
        ),
        (
            "storage textures",
            texture(true),
            limits.max_storage_textures_per_shader_stage.into(),
            "make layers of one texture of them",
        ),
        (
            "samplers",
            count(compiled, |k| matches!(k, ArgumentKind::Sampler { .. })),
            limits.max_samplers_per_shader_stage.into(),
            "use one sampler for several textures",
        ),
    ]
}

/// How large variables are.
fn variables(device: &DeviceShared, compiled: &Compiled) -> Vec<Check> {
    let (limits, interface) = (&device.limits, &compiled.interface);
    let largest = |of: fn(&ArgumentKind) -> Option<u32>| {
        let sizes = interface
            .arguments
            .iter()
            .filter_map(|argument| of(&argument.kind));
        u64::from(sizes.max().unwrap_or(0))
    };
    vec![
        (
            "bytes from the first to the last of its device globals",
            compiled
                .globals_binding()
                .map_or(0, |globals| globals.bytes.into()),
            limits.max_storage_buffer_binding_size,
            "use device buffers for large data",
        ),
        (
            "bytes of a storage variable",
            largest(|kind| match kind {
                ArgumentKind::Storage { layout, .. } => Some(layout.size),
                _ => None,
            }),
            limits.max_storage_buffer_binding_size,
            "make several variables of it",
        ),
        (
            "bytes of a uniform variable",
            largest(|kind| match kind {
                ArgumentKind::Uniform { layout } => Some(layout.size),
                _ => None,
            }),
            limits.max_uniform_buffer_binding_size,
            "use a storage variable",
        ),
        (
            "bytes of workgroup memory",
            interface.workgroup_bytes,
            limits.max_compute_workgroup_storage_size.into(),
            "use smaller workgroup arrays",
        ),
        (
            "bytes of immediate data",
            interface
                .immediates
                .as_ref()
                .map_or(0, |l| u64::from(l.size)),
            limits.max_immediate_size.into(),
            "pass the value as a uniform",
        ),
    ]
}

/// How large its work-groups are.
fn groups(device: &DeviceShared, compiled: &Compiled) -> Vec<Check> {
    const SMALLER: &str = "choose a smaller @workgroup_size";
    let limits = &device.limits;
    let [x, y, z] = compiled.interface.workgroup_size.map(u64::from);
    let invocations = x.saturating_mul(y).saturating_mul(z);
    let most = limits.max_compute_invocations_per_workgroup;
    let sizes = [
        limits.max_compute_workgroup_size_x,
        limits.max_compute_workgroup_size_y,
        limits.max_compute_workgroup_size_z,
    ];
    let [most_x, most_y, most_z] = sizes.map(u64::from);
    vec![
        (
            "invocations in a work-group",
            invocations,
            most.into(),
            SMALLER,
        ),
        ("work-group size in x", x, most_x, SMALLER),
        ("work-group size in y", y, most_y, SMALLER),
        ("work-group size in z", z, most_z, SMALLER),
    ]
}
