//! Options for opening devices.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::heap_options::{HeapPlacement, HostAccessPolicy};
use super::spill_policy::SpillPolicy;
use super::wait_policy::WaitPolicy;
use super::{EmbeddedOptions, ProbeOptions};
use crate::print::PrintOptions;

/// How a device is opened. `DeviceOptions::default()` suits most programs.
///
/// ```no_run
/// use tombolo::{Context, DeviceOptions};
///
/// let options = DeviceOptions::default().label("solver").checked_pointers(true);
/// let device = Context::new()?.device_with(options)?;
/// # Ok::<(), tombolo::device::DeviceError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// Name for the device in graphics debuggers and logs.
    pub label: Option<String>,
    /// Measure the adapter's real abilities with tiny kernels before the device is used (default: yes for opened
    /// devices, no for adopted ones). Without the probe everything that takes a measurement counts as absent, and loops
    /// are guarded.
    pub probe: Option<bool>,
    /// The longest time that probing may take (default: 30 s, which only a device that hangs needs; a usual probe takes some
    /// hundredths of a second). What the device did not answer in that time counts as absent for this handle, and is asked
    /// again when the adapter is opened next ([`Finding::TimedOut`](crate::device::Finding::TimedOut)).
    pub probe_deadline: Duration,
    /// Use live host memory where found by the probe (default: yes). `false` forces every capability down to its tier
    /// on strict WebGPU.
    pub live_memory: bool,
    /// Open the device for use of the host's memory in place, where the driver can
    /// ([`Aspect::HostImport`](crate::device::Aspect::HostImport); default: yes). `false` forces shared memory down to the device's
    /// own means: memory mapped for good where the device has live memory, and else a copy. See
    /// [`SharedHeap::tier`](crate::SharedHeap::tier).
    pub import_host_memory: bool,
    /// Where the device keeps the context's shared heap (default: [`HeapPlacement::Auto`]). On a card with memory of its own,
    /// [`HeapPlacement::Device`] has kernels follow pointers at the speed of that memory from the first launch on.
    pub heap_placement: HeapPlacement,
    /// Commands gathered at most in a submission before the submission is sent without a wait (default: 1,024; at least 1).
    /// More commands cost less each.
    pub max_batch: u32,
    /// Commands from which on a submission is sent without a wait to a device that would run out of work: a graphics processor
    /// with at most one submission before, a software adapter with none (default: 128; at most `max_batch`). A device works on
    /// one submission while the next is recorded.
    pub min_batch: u32,
    /// How threads wait for the device: for how long they look before they sleep (default: [`WaitPolicy::Auto`]).
    pub wait: WaitPolicy,
    /// Folder for compiled pipelines, on adapters with [`Aspect::PipelineCache`](crate::device::Aspect::PipelineCache) (default: none). Drivers believe the file, and
    /// the embedded adapter executes what is in it: only a file written by this crate is used (a checksum shows that), but
    /// anyone with write access to the folder may write such a file, too. So give a folder with trusted writers only; on
    /// Unix a world-writable file is left alone.
    pub pipeline_cache: Option<PathBuf>,
    /// What the adapter that is compiled in does with kernels beside running them: checks, an order by a seed (default: as the
    /// environment says).
    pub embedded: EmbeddedOptions,
    /// Bytes of private arrays per invocation (default: the size known to be safe on the adapter, see
    /// [`Capabilities::private_memory_bytes`](crate::device::Capabilities::private_memory_bytes)).
    pub private_memory_bytes: Option<u32>,
    /// Whether private arrays move to scratch memory (default: [`SpillPolicy::Auto`](crate::kernel::SpillPolicy::Auto)).
    pub spill: SpillPolicy,
    /// Bytes of scratch memory for spilled private arrays at most, allocated as launches need them (default: 256 MiB on
    /// adapters that are software, otherwise 1 GiB; in each case no more than a storage binding). Grids that need more
    /// run in parts, one after another; a kernel whose work-group needs more is refused.
    pub scratch_bytes: Option<u64>,
    /// Bytes of a single storage binding at most (default: the adapter's limit). A smaller number shows a program's
    /// behaviour on a smaller adapter: buffers bound at once are no longer than this, nor are the segments in which
    /// kernels reach shared memory and memory of the device ([`Device::malloc`](crate::Device::malloc)): the largest power of two within the
    /// number. Numbers above the adapter's limit mean the limit; less than 1 MiB is 1 MiB. The shared heap keeps its
    /// allocations within segments of less than 128 MiB only if the device is opened before the first allocation.
    pub storage_binding_bytes: Option<u64>,
    /// Whether host and device share all memory (default: by the adapter's kind, see
    /// [`Capabilities::unified_memory`](crate::device::Capabilities::unified_memory)). `false` gives the device memory of its own behind
    /// [`Device::malloc`](crate::Device::malloc).
    pub unified_memory: Option<bool>,
    /// Bytes of memory that kernels of the device can reach at once (default: the interface's report, see
    /// [`Capabilities::working_set_bytes`](crate::device::Capabilities::working_set_bytes)). The number sizes the context's heap.
    pub working_set_bytes: Option<u64>,
    /// Bytes of the device's memory that buffers of the context ([`Buffer`](crate::Buffer)) may have together (default:
    /// no limit but the driver's). Beyond the limit the least recently used buffers move to the host; a launch whose
    /// own buffers need more is refused. The limit counts memory given by the device: small buffers share blocks
    /// ([`BufferMemory::reserved`](crate::buffers::BufferMemory::reserved)).
    pub buffer_bytes: Option<u64>,
    /// The behaviour of launches and transfers of the device while another thread has the shared heap (default:
    /// waiting).
    pub host_access: HostAccessPolicy,
    /// Test every pointer followed by kernels, and fail the launch on a dangling one (default: in debug builds).
    /// Otherwise such a pointer reads or writes some other place of the shared heap.
    pub checked_pointers: bool,
    /// The tests of checked pointers: with this option (default: without), for a whole value inside a live allocation,
    /// and an index inside that allocation; so pointers to freed memory are found, as are pointers past an end and
    /// between allocations. The price is a load for each pointer, a quarter of the heap's bytes on the host, and as
    /// much on the device; and storage bindings, one for each segment of the heap and one for the device's own memory,
    /// so a kernel may need more than the device has ([`KernelError::Limit`](crate::kernel::KernelError::Limit)). Memory
    /// allocated by a host function for the calling kernel may be found freed, if other memory was freed at the same
    /// place before the launch. Not every driver copes: lavapipe of Mesa 22.3 crashes in its own code on a kernel with
    /// variables in two bind groups. Without the option, pointers are tested for the bounds of the grown heap.
    pub checked_allocations: bool,
    /// The policy for guarding loops against adapters that end loops silently.
    pub loop_guard: LoopGuardPolicy,
    /// Where and how kernels print, for launches without a setting of their own.
    pub print: PrintOptions,
    /// Features to ask for in addition to the runtime's own; opening fails where the adapter lacks a feature.
    pub features: wgpu::Features,
}

/// When kernels are checked for loops that the adapter ended before the kernel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LoopGuardPolicy {
    /// On adapters whose probe found a loop budget, and on adapters without a probe, for kernels
    /// whose loops are not provably short.
    #[default]
    WhereNeeded,
    /// As if the adapter had this budget, in iterations for all loops of a group of lanes together.
    Budget(u32),
    /// Never: a loop that is cut short gives wrong results without an error.
    Off,
}

/// For people: the variant in words.
impl fmt::Display for LoopGuardPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WhereNeeded => f.write_str("where needed"),
            Self::Budget(iterations) => write!(f, "for a budget of {iterations} iterations"),
            Self::Off => f.write_str("off"),
        }
    }
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            label: None,
            probe: None,
            probe_deadline: ProbeOptions::default().deadline,
            live_memory: true,
            import_host_memory: true,
            heap_placement: HeapPlacement::Auto,
            max_batch: 1024,
            min_batch: 128,
            wait: WaitPolicy::default(),
            pipeline_cache: None,
            embedded: EmbeddedOptions::default(),
            private_memory_bytes: None,
            spill: SpillPolicy::Auto,
            scratch_bytes: None,
            storage_binding_bytes: None,
            unified_memory: None,
            working_set_bytes: None,
            buffer_bytes: None,
            host_access: HostAccessPolicy::default(),
            checked_pointers: cfg!(debug_assertions),
            checked_allocations: false,
            loop_guard: LoopGuardPolicy::WhereNeeded,
            print: PrintOptions::default(),
            features: wgpu::Features::empty(),
        }
    }
}

/// Setters that take and give the options by value, for a chain of calls; a field set alone does the same. What a field
/// means, and its default, stands at the field.
impl DeviceOptions {
    /// Names the device for graphics debuggers and logs.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>) -> Self {
        self.label = Some(name.into());
        self
    }

    /// Sets whether the adapter's abilities are measured: see [`probe`](field@Self::probe). `None` is the default.
    #[must_use]
    pub fn probe(mut self, probes: impl Into<Option<bool>>) -> Self {
        self.probe = probes.into();
        self
    }

    /// Sets the longest time that probing may take.
    #[must_use]
    pub fn probe_deadline(mut self, time: Duration) -> Self {
        self.probe_deadline = time;
        self
    }

    /// Sets whether live host memory is used where the probe finds such memory.
    #[must_use]
    pub fn live_memory(mut self, uses: bool) -> Self {
        self.live_memory = uses;
        self
    }

    /// Sets whether the device uses the host's memory in place, where the driver can.
    #[must_use]
    pub fn import_host_memory(mut self, imports: bool) -> Self {
        self.import_host_memory = imports;
        self
    }

    /// Sets where the device keeps the context's shared heap.
    #[must_use]
    pub fn heap_placement(mut self, placement: HeapPlacement) -> Self {
        self.heap_placement = placement;
        self
    }

    /// Sets how many commands a submission gathers at most before the submission is sent.
    #[must_use]
    pub fn max_batch(mut self, commands: u32) -> Self {
        self.max_batch = commands;
        self
    }

    /// Sets from how many commands on a submission is sent to a device that would run out of work.
    #[must_use]
    pub fn min_batch(mut self, commands: u32) -> Self {
        self.min_batch = commands;
        self
    }

    /// Sets how threads wait for the device.
    #[must_use]
    pub fn wait(mut self, policy: WaitPolicy) -> Self {
        self.wait = policy;
        self
    }

    /// Keeps compiled pipelines in a folder, which only trusted programs may write: see
    /// [`pipeline_cache`](field@Self::pipeline_cache).
    #[must_use]
    pub fn pipeline_cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.pipeline_cache = Some(folder.into());
        self
    }

    /// Sets what the adapter that is compiled in does with kernels beside running them.
    #[must_use]
    pub fn embedded(mut self, options: EmbeddedOptions) -> Self {
        self.embedded = options;
        self
    }

    /// Sets the bytes of private arrays per invocation; `None`: the size known to be safe on the adapter.
    #[must_use]
    pub fn private_memory_bytes(mut self, bytes: impl Into<Option<u32>>) -> Self {
        self.private_memory_bytes = bytes.into();
        self
    }

    /// Sets whether private arrays move to scratch memory.
    #[must_use]
    pub fn spill(mut self, policy: SpillPolicy) -> Self {
        self.spill = policy;
        self
    }

    /// Sets the most bytes of scratch memory for spilled private arrays; `None`: by the adapter's kind.
    #[must_use]
    pub fn scratch_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.scratch_bytes = bytes.into();
        self
    }

    /// Sets the most bytes of a single storage binding, at least 1 MiB; `None`: the adapter's limit.
    #[must_use]
    pub fn storage_binding_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.storage_binding_bytes = bytes.into();
        self
    }

    /// Sets whether host and device share all memory; `None`: by the adapter's kind.
    #[must_use]
    pub fn unified_memory(mut self, is_unified: impl Into<Option<bool>>) -> Self {
        self.unified_memory = is_unified.into();
        self
    }

    /// Sets the bytes of memory that kernels can reach at once; `None`: the interface's report.
    #[must_use]
    pub fn working_set_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.working_set_bytes = bytes.into();
        self
    }

    /// Sets the most bytes of the device's memory for buffers of the context; `None`: the driver's limit.
    #[must_use]
    pub fn buffer_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.buffer_bytes = bytes.into();
        self
    }

    /// Sets what launches and transfers do while another thread has the shared heap.
    #[must_use]
    pub fn host_access(mut self, policy: HostAccessPolicy) -> Self {
        self.host_access = policy;
        self
    }

    /// Sets whether every pointer followed by kernels is tested.
    #[must_use]
    pub fn checked_pointers(mut self, tests: bool) -> Self {
        self.checked_pointers = tests;
        self
    }

    /// Sets whether tested pointers are compared with the live allocations, at the price told at
    /// [`checked_allocations`](field@Self::checked_allocations).
    #[must_use]
    pub fn checked_allocations(mut self, tests: bool) -> Self {
        self.checked_allocations = tests;
        self
    }

    /// Sets when kernels are checked for loops that the adapter ended before the kernel did.
    #[must_use]
    pub fn loop_guard(mut self, policy: LoopGuardPolicy) -> Self {
        self.loop_guard = policy;
        self
    }

    /// Sets where and how kernels print, for launches without a setting of their own.
    #[must_use]
    pub fn print(mut self, options: PrintOptions) -> Self {
        self.print = options;
        self
    }

    /// Sets the features to ask for in addition to the runtime's own.
    #[must_use]
    pub fn features(mut self, features: wgpu::Features) -> Self {
        self.features = features;
        self
    }
}

/// The minimum of [`field@DeviceOptions::storage_binding_bytes`]: room for the reserved part of the shared heap, and for a
/// good deal more.
const LEAST_BINDING_BYTES: u64 = 1 << 20;

impl DeviceOptions {
    /// The limits with which the device is used.
    pub(super) fn lowered(&self, mut limits: wgpu::Limits) -> wgpu::Limits {
        if let Some(bytes) = self.storage_binding_bytes {
            let most = &mut limits.max_storage_buffer_binding_size;
            *most = bytes.max(LEAST_BINDING_BYTES).min(*most);
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setter_sets_the_field_of_its_name_and_no_other() {
        let set = DeviceOptions::default()
            .label("one")
            .probe(false)
            .probe_deadline(Duration::from_secs(2))
            .live_memory(false)
            .import_host_memory(false)
            .heap_placement(HeapPlacement::Device)
            .max_batch(3)
            .min_batch(2)
            .wait(WaitPolicy::Park)
            .pipeline_cache("folder")
            .embedded(EmbeddedOptions::scheduled(4))
            .private_memory_bytes(5)
            .spill(SpillPolicy::Always)
            .scratch_bytes(6)
            .storage_binding_bytes(7)
            .unified_memory(true)
            .working_set_bytes(8)
            .buffer_bytes(9)
            .host_access(HostAccessPolicy::Refuse)
            .checked_pointers(!cfg!(debug_assertions))
            .checked_allocations(true)
            .loop_guard(LoopGuardPolicy::Budget(10))
            .print(PrintOptions::default().capacity(11))
            .features(wgpu::Features::SHADER_F64);
        let by_field = DeviceOptions {
            label: Some("one".to_owned()),
            probe: Some(false),
            probe_deadline: Duration::from_secs(2),
            live_memory: false,
            import_host_memory: false,
            heap_placement: HeapPlacement::Device,
            max_batch: 3,
            min_batch: 2,
            wait: WaitPolicy::Park,
            pipeline_cache: Some(PathBuf::from("folder")),
            embedded: EmbeddedOptions::scheduled(4),
            private_memory_bytes: Some(5),
            spill: SpillPolicy::Always,
            scratch_bytes: Some(6),
            storage_binding_bytes: Some(7),
            unified_memory: Some(true),
            working_set_bytes: Some(8),
            buffer_bytes: Some(9),
            host_access: HostAccessPolicy::Refuse,
            checked_pointers: !cfg!(debug_assertions),
            checked_allocations: true,
            loop_guard: LoopGuardPolicy::Budget(10),
            print: PrintOptions::default().capacity(11),
            features: wgpu::Features::SHADER_F64,
        };
        assert_eq!(format!("{set:?}"), format!("{by_field:?}"));
        assert_eq!(set.scratch_bytes(None).scratch_bytes, None);
    }
}
