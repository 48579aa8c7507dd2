//! What a kernel needs of a device, against the device's limits.

use super::compile::Compiled;
use super::error::KernelError;
use super::reflect::ArgumentKind;
use crate::device::DeviceShared;

/// Checks the kernel against the limits of the device, where wgpu would only say which number is off.
pub(super) fn check_limits(device: &DeviceShared, compiled: &Compiled) -> Result<(), KernelError> {
    let (limits, interface) = (&device.limits, &compiled.interface);
    let count = |wanted: fn(&ArgumentKind) -> bool| {
        interface
            .arguments
            .iter()
            .filter(|a| wanted(&a.kind))
            .count() as u64
    };
    let [x, y, z] = interface.workgroup_size;
    let storage = count(|k| matches!(k, ArgumentKind::Storage { .. }))
        + u64::from(compiled.report.is_some())
        + u64::from(compiled.prints.is_some())
        + u64::from(compiled.calls.is_some())
        + u64::from(compiled.splits_ports)
        + u64::from(compiled.backs_off)
        + compiled
            .heap
            .map_or(0, |heap| u64::from(heap.segments + heap.device_segments))
        + u64::from(compiled.table_rows() > 0)
        + u64::from(compiled.globals_binding().is_some())
        - compiled.table.len() as u64;
    let in_segments = (compiled.heap).is_some_and(|heap| heap.segments + heap.device_segments > 1);
    let uniform = count(|k| matches!(k, ArgumentKind::Uniform { .. }));
    let invocations = u64::from(x) * u64::from(y) * u64::from(z);
    let checks: [(&'static str, u64, u64, &'static str); 9] = [
        (
            "bytes from the first to the last of its device globals",
            compiled
                .globals_binding()
                .map_or(0, |globals| globals.bytes.into()),
            limits.max_storage_buffer_binding_size,
            "use device buffers for large data",
        ),
        (
            "storage buffers",
            storage,
            u64::from(limits.max_storage_buffers_per_shader_stage),
            match in_segments {
                false => "put several arrays into one buffer",
                true => {
                    "each segment of the shared heap and of the device's own memory is one of them: put several \
                     arrays into one buffer, or allocate less there"
                }
            },
        ),
        (
            "uniform buffers",
            uniform,
            u64::from(limits.max_uniform_buffers_per_shader_stage),
            "put several values into one structure",
        ),
        (
            "invocations in a work-group",
            invocations,
            u64::from(limits.max_compute_invocations_per_workgroup),
            "choose a smaller @workgroup_size",
        ),
        (
            "work-group size in x",
            u64::from(x),
            u64::from(limits.max_compute_workgroup_size_x),
            "choose a smaller @workgroup_size",
        ),
        (
            "work-group size in y",
            u64::from(y),
            u64::from(limits.max_compute_workgroup_size_y),
            "choose a smaller @workgroup_size",
        ),
        (
            "work-group size in z",
            u64::from(z),
            u64::from(limits.max_compute_workgroup_size_z),
            "choose a smaller @workgroup_size",
        ),
        (
            "bytes of workgroup memory",
            interface.workgroup_bytes,
            u64::from(limits.max_compute_workgroup_storage_size),
            "use smaller workgroup arrays",
        ),
        (
            "bytes of immediate data",
            interface
                .immediates
                .as_ref()
                .map_or(0, |l| u64::from(l.size)),
            u64::from(limits.max_immediate_size),
            "pass the value as a uniform",
        ),
    ];
    for (what, wanted, limit, instead) in checks {
        if wanted > limit {
            return Err(KernelError::Limit {
                program: (*compiled.program).into(),
                entry: interface.entry.as_str().into(),
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
