//! Errors of a launch before submission.

use std::sync::Arc;

use crate::device::{ExecutionError, ProfilingError};
use crate::error_text::debug_by_text;
use crate::globals::GlobalError;
use crate::kernel::error::KernelError;
use crate::memory::{BufferError, HeapError, MemoryError};
use crate::rpc::PortsError;

/// Why a launch was refused. Nothing has been recorded then.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The kernel has no argument of that name.
    #[error("kernel `{kernel}` has no argument `{argument}`; it has {available}")]
    UnknownArgument {
        /// The entry point.
        kernel: String,
        /// The name given.
        argument: String,
        /// The existing arguments, with their types.
        available: String,
    },
    /// A buffer of the context could not be brought to the device. Nothing is lost.
    #[error("kernel `{kernel}`: `{argument}`: {source}")]
    Buffer {
        /// The entry point.
        kernel: String,
        /// The argument.
        argument: String,
        /// Why.
        source: Box<BufferError>,
    },
    /// Arguments were left out.
    #[error("kernel `{kernel}` was launched without {missing}")]
    MissingArguments {
        /// The entry point.
        kernel: String,
        /// The missing arguments, with their types.
        missing: String,
    },
    /// One argument was given twice.
    #[error("kernel `{kernel}`: argument `{argument}` was given twice")]
    DuplicateArgument {
        /// The entry point.
        kernel: String,
        /// The argument.
        argument: String,
    },
    /// The argument is of another kind than the given value.
    #[error("kernel `{kernel}`: `{argument}` is a {expected}, and was given {given}")]
    WrongKind {
        /// The entry point.
        kernel: String,
        /// The argument.
        argument: String,
        /// The kernel's declaration.
        expected: String,
        /// The given fraction.
        given: &'static str,
    },
    /// The texture has another dimension, format or use than the kernel declares.
    #[error("kernel `{kernel}`: `{argument}` is a {expected}, and was given a {given}: {instead}")]
    TextureMismatch {
        /// The entry point.
        kernel: String,
        /// The argument.
        argument: String,
        /// The kernel's declaration.
        expected: String,
        /// The texture.
        given: String,
        /// What to do.
        instead: &'static str,
    },
    /// The Rust element type does not lie in memory as the WGSL type does.
    #[error(
        "kernel `{kernel}`: `{argument}` has elements of {stride} bytes ({wgsl}){padding}, but the \
         buffer's `{element}` has {element_bytes}: {}", hint(.padding, *.stride)
    )]
    ElementMismatch {
        /// The entry point.
        kernel: String,
        /// The argument.
        argument: String,
        /// The WGSL type.
        wgsl: Box<str>,
        /// Bytes from one WGSL element to the next.
        stride: u32,
        /// Where WGSL pads, in words; empty when it does not.
        padding: Box<str>,
        /// The Rust type.
        element: &'static str,
        /// Bytes of the Rust type.
        element_bytes: usize,
    },
    /// The value of a uniform has another size than its WGSL type.
    #[error(
        "kernel `{kernel}`: uniform `{argument}` is a {wgsl} of {size} bytes{padding}, but `{value}` \
         has {value_bytes}: give the Rust type the same members and padding"
    )]
    UniformSize {
        /// The entry point.
        kernel: String,
        /// The argument.
        argument: String,
        /// The WGSL type.
        wgsl: Box<str>,
        /// Bytes of the WGSL type.
        size: u32,
        /// Where WGSL pads, in words; empty when it does not.
        padding: Box<str>,
        /// The Rust type.
        value: &'static str,
        /// Bytes of the Rust type.
        value_bytes: usize,
    },
    /// The buffer is smaller than the kernel declares.
    #[error(
        "kernel `{kernel}`: `{argument}` ({wgsl}) needs at least {needed} bytes, and was given {given}"
    )]
    BufferTooSmall {
        /// The entry point.
        kernel: String,
        /// The argument.
        argument: String,
        /// The WGSL type.
        wgsl: String,
        /// Bytes needed by the type.
        needed: u64,
        /// Bytes that were given.
        given: u64,
    },
    /// A runtime-sized array got a part of an element at its end.
    #[error(
        "kernel `{kernel}`: `{argument}` was given {given} bytes, which is no whole number of {wgsl} \
         elements ({stride} bytes each)"
    )]
    PartialElement {
        /// The entry point.
        kernel: String,
        /// The argument.
        argument: String,
        /// The WGSL type.
        wgsl: String,
        /// Bytes from one element to the next.
        stride: u32,
        /// Bytes that were given.
        given: u64,
    },
    /// The slice, or the buffer, holds no values.
    #[error(
        "kernel `{kernel}`: `{argument}` was given no elements, and a binding has at least one: leave the launch out, or \
         give it one element"
    )]
    EmptyArgument {
        /// The entry point.
        kernel: String,
        /// The argument.
        argument: String,
    },
    /// The buffer, or the given range, is larger than a binding may be.
    #[error(
        "kernel `{kernel}`: `{argument}` binds {bytes} bytes, and {device} binds at most {limit} at \
         once: pass slices of the buffer in several launches"
    )]
    BindingTooLarge {
        /// The entry point.
        kernel: String,
        /// The argument.
        argument: String,
        /// Bytes that were given.
        bytes: u64,
        /// The device's limit, in bytes.
        limit: u64,
        /// The device's name.
        device: String,
    },
    /// A slice of an imported buffer starts where the adapter cannot bind, or ends inside a word of 4 bytes, and the
    /// buffer lacks the usages for work on a copy.
    #[error(
        "kernel `{kernel}`: `{argument}` is {bytes} bytes from byte {offset} on; {device} binds only whole words of 4 \
         bytes, at multiples of {alignment}: give the buffer wgpu usage {needed:?}, so that the launch can work on a copy"
    )]
    Misaligned {
        /// The entry point.
        kernel: String,
        /// The argument.
        argument: String,
        /// First byte of the slice.
        offset: u64,
        /// Bytes of the slice.
        bytes: u64,
        /// The alignment needed by the adapter, in bytes.
        alignment: u32,
        /// The missing usages.
        needed: wgpu::BufferUsages,
        /// The device's name.
        device: String,
    },
    /// A slice reaches beyond its buffer.
    #[error(
        "kernel `{kernel}`: `{argument}` was given elements {start}..{end} of a buffer of {len}"
    )]
    OutOfRange {
        /// The entry point.
        kernel: String,
        /// The argument.
        argument: String,
        /// First element.
        start: u64,
        /// One past the last element.
        end: u64,
        /// Elements in the buffer.
        len: u64,
    },
    /// Two arguments have bytes of a buffer in common, or a texture, and at least one of them is writable by the kernel.
    /// Ranges of one buffer that are apart may be given together.
    #[error(
        "kernel `{kernel}`: `{first}` and `{second}` have memory in common, and the kernel may write \
         it: pass it once, give ranges that are apart, or copy it"
    )]
    Aliased {
        /// The entry point.
        kernel: String,
        /// One argument.
        first: String,
        /// The other argument.
        second: String,
    },
    /// An imported buffer lacks a usage needed by the binding.
    #[error("kernel `{kernel}`: `{argument}` needs a buffer with wgpu usage {needed:?}")]
    MissingUsage {
        /// The entry point.
        kernel: String,
        /// The argument.
        argument: String,
        /// The missing usage.
        needed: wgpu::BufferUsages,
    },
    /// The buffer or texture belongs to another device than the kernel.
    #[error("kernel `{kernel}` is on {device}, and `{argument}` is on {other}")]
    OtherDevice {
        /// The entry point.
        kernel: String,
        /// The argument.
        argument: String,
        /// The kernel's device.
        device: String,
        /// The buffer's or texture's device.
        other: String,
    },
    /// The kernel declares an argument unbindable by launches.
    #[error(
        "kernel `{kernel}`: `{argument}` is a {wgsl}, which launches cannot bind: bind buffers, \
         textures and samplers, or use the wgpu pipeline from Kernel::raw"
    )]
    UnsupportedArgument {
        /// The entry point.
        kernel: String,
        /// The argument.
        argument: String,
        /// The WGSL type.
        wgsl: String,
    },
    /// No grid was given.
    #[error(
        "kernel `{kernel}` was launched without a grid: call invocations, workgroups or indirect"
    )]
    NoGrid {
        /// The entry point.
        kernel: String,
    },
    /// The grid was given as a negative number.
    #[error(
        "kernel `{kernel}` was launched with a grid of {extent}: a grid has 0 invocations or more"
    )]
    NegativeGrid {
        /// The entry point.
        kernel: String,
        /// The number.
        extent: i32,
    },
    /// The grid has more invocations in a dimension than a 32-bit id can count.
    #[error(
        "kernel `{kernel}`: {invocations} invocations in {axis} are more than 2^32, which is all that \
         global_invocation_id can count: use several launches"
    )]
    GridTooLarge {
        /// The entry point.
        kernel: String,
        /// The dimension.
        axis: &'static str,
        /// Invocations in the dimension.
        invocations: u64,
    },
    /// The grid is cut into more dispatches than a launch may have.
    #[error(
        "kernel `{kernel}`: the grid takes {dispatches} dispatches, and one launch has at most {limit}: split it over \
         several launches"
    )]
    GridTooManyDispatches {
        /// The kernel's entry point.
        kernel: String,
        /// Dispatches needed by the grid.
        dispatches: u64,
        /// The most for a launch on this device.
        limit: u64,
    },
    /// A precompiled kernel cannot be cut into several dispatches.
    #[error(
        "kernel `{kernel}` is precompiled and cannot run more than {limit} work-groups in a \
         dimension: use a smaller grid, or build it from WGSL"
    )]
    PrecompiledGrid {
        /// The entry point.
        kernel: String,
        /// The device's limit.
        limit: u32,
    },
    /// The indirect buffer does not hold three words at the offset, or the offset is no multiple of 4.
    #[error(
        "kernel `{kernel}`: three 32-bit group counts at byte {offset} do not fit the indirect buffer \
         of {bytes} bytes, or are not aligned to 4"
    )]
    Indirect {
        /// The entry point.
        kernel: String,
        /// Byte offset of the counts.
        offset: u64,
        /// Bytes in the buffer.
        bytes: u64,
    },
    /// The grid is in a buffer, and the kernel has spilled private arrays, whose memory depends on the grid.
    #[error(
        "kernel `{kernel}` has spilled private arrays, and the device alone knows its indirect grid: give the grid as a \
         number, or make the arrays fit private memory (KernelOptions::spill)"
    )]
    SpilledIndirect {
        /// The entry point.
        kernel: String,
    },
    /// Profiling was asked for where there are no timestamps.
    #[error(transparent)]
    Profiling(#[from] ProfilingError),
    /// The kernel's variant for the grid could not be built.
    #[error(transparent)]
    Kernel(#[from] Box<KernelError>),
    /// More room for printed lines was asked for than a kernel can be given.
    #[error(
        "kernel `{kernel}`: PrintOptions::capacity is {capacity} bytes, and the device binds at most {limit}: \
         print less, or in several launches"
    )]
    PrintCapacity {
        /// The entry point.
        kernel: String,
        /// Bytes asked for.
        capacity: u64,
        /// Bytes that can be had.
        limit: u64,
    },
    /// The launch has a deadline, and the device's driver has no way to stop a kernel.
    #[error(
        "kernel `{kernel}` has a deadline, and {device} has no way to stop a kernel without losing the device: leave \
         Launch::deadline out where Aspect::Cancellation is missing and bound the kernel's loops, or run it on the embedded \
         adapter (WGPU_ADAPTER_NAME=embedded)"
    )]
    NoDeadline {
        /// The entry point.
        kernel: String,
        /// The device's name.
        device: String,
    },
    /// The launch may be cancelled, or has a deadline, but its kernel must not be stopped at any place: what it shares with the
    /// host would be left in nobody's hands.
    #[error(
        "kernel `{kernel}` {what}, and cannot be stopped in the middle of that: leave Launch::cancellable and Launch::deadline \
         out, and have the kernel ask by a call, or look at a word in live memory, whether to go on"
    )]
    NotCancellable {
        /// The entry point.
        kernel: String,
        /// What the kernel does.
        what: &'static str,
    },
    /// wgpu, or the system, refused a part of the launch.
    #[error("kernel `{kernel}`: the launch was refused: {message}")]
    Refused {
        /// The entry point.
        kernel: String,
        /// The words of wgpu, or of the system.
        message: String,
    },
    /// A buffer command of the launch failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The shared heap refused: a pointer argument is wrong, or the host has access to the heap now.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// A device global named by the kernel has no memory on the device.
    #[error(transparent)]
    Global(#[from] Box<GlobalError>),
    /// The kernel calls functions of the host, and was given no services.
    #[error(
        "kernel `{kernel}` calls `{functions}` of the host: give it the services with Launch::services"
    )]
    NoServices {
        /// The entry point.
        kernel: String,
        /// What the program calls.
        functions: String,
    },
    /// The services do not serve a function in the form expected by the program.
    #[error(
        "kernel `{kernel}` calls `{function}`, and the services have {found}: give the launch the services that \
         the program was made with, or ones with the same functions"
    )]
    OtherServices {
        /// The entry point.
        kernel: String,
        /// What the program calls.
        function: String,
        /// The services' functions.
        found: String,
    },
    /// The launch is given services of the host, and a server as well.
    #[error(
        "kernel `{kernel}` is given services of the host (Launch::services) and a server (Launch::server), and the calls of a \
         kernel go to one side: give the side that its program was made with"
    )]
    TwoCallees {
        /// The entry point.
        kernel: String,
    },
    /// The kernel follows pointers into memory lent to launches, and was given none.
    #[error(
        "kernel `{kernel}` follows pointers into lent memory (TranslationMode::System): lend it some, and run it with \
         Launch::run_system"
    )]
    NoSystemMemory {
        /// The entry point.
        kernel: String,
    },
    /// The kernel waits for answers of the host, but the device does not show such answers to a running kernel.
    #[error(
        "kernel `{kernel}` waits for `{functions}` of the host, and {device} shows no answer to a running kernel \
         ({why}): split the call, that is, begin it with `…_begin` and ask for its answer with `…_collect` in the \
         next launch, or post it with `…_post` where the answer does not matter"
    )]
    NeedsLiveMemory {
        /// The entry point.
        kernel: String,
        /// What the program calls.
        functions: String,
        /// The device's name.
        device: String,
        /// Why the device shows none.
        why: String,
    },
    /// The kernel would wait for a server on its own device, where kernels run in turn.
    #[error(
        "`{kernel}` would wait on {device} for a server on the same device, which runs one kernel at a time: split the \
         call, that is, begin it with `…_begin` and ask for its answer with `…_collect` in the next launch, or post it \
         with `…_post` where the answer does not matter; or start the server on `Device::second_queue`, if \
         `Device::has_second_queue`"
    )]
    WaitsForItself {
        /// The entry point.
        kernel: String,
        /// The device's name.
        device: String,
    },
    /// The kernel cannot wait for the server on another device: its handlers follow pointers, and devices with a copy of the
    /// heap take turns there; or the system gave no threads to forward calls.
    #[error("`{kernel}` on {device} cannot call the server on {server}: {why}")]
    ServerOutOfReach {
        /// The entry point.
        kernel: String,
        /// The kernel's device.
        device: String,
        /// The server's device.
        server: String,
        /// Why not.
        why: String,
    },
    /// The server has been stopped or has failed.
    #[error("`{kernel}` would call a server that does not run: {why}")]
    ServerStopped {
        /// The entry point.
        kernel: String,
        /// The server's fate.
        why: String,
    },
    /// There is no memory for the ports of the services.
    #[error("no memory for the ports of the services: {0}")]
    Ports(#[from] PortsError),
    /// The device is gone.
    #[error(transparent)]
    Execution(#[from] Arc<ExecutionError>),
}

debug_by_text!(LaunchError {
    UnknownArgument,
    Buffer,
    MissingArguments,
    DuplicateArgument,
    WrongKind,
    TextureMismatch,
    ElementMismatch,
    UniformSize,
    BufferTooSmall,
    PartialElement,
    EmptyArgument,
    BindingTooLarge,
    Misaligned,
    OutOfRange,
    Aliased,
    MissingUsage,
    OtherDevice,
    UnsupportedArgument,
    NoGrid,
    NegativeGrid,
    GridTooLarge,
    GridTooManyDispatches,
    SpilledIndirect,
    PrecompiledGrid,
    Indirect,
    Profiling,
    Kernel,
    PrintCapacity,
    NoDeadline,
    NotCancellable,
    Refused,
    Memory,
    Heap,
    Global,
    NoServices,
    OtherServices,
    TwoCallees,
    NoSystemMemory,
    NeedsLiveMemory,
    WaitsForItself,
    ServerOutOfReach,
    ServerStopped,
    Ports,
    Execution,
});

/// What to do about elements of another size.
fn hint(padding: &str, stride: u32) -> String {
    if padding.is_empty() {
        format!("use an element type of {stride} bytes")
    } else {
        format!(
            "give the Rust type the same padding (a vec3 takes the room of a vec4: use [f32; 4]), so \
             that it has {stride} bytes"
        )
    }
}
