//! The abilities of a device: the adapter's report, and the measurements of the start-up probe.
//!
//! [`Capabilities`] is plain data with public fields, to be printed, compared and logged. Two kinds of question are
//! answered from it: aspects, yes or no ([`Capabilities::has`]), and tiers, the form in which a capability of the
//! runtime works on the device ([`Capabilities::tier`]).

use super::aspect::Aspect;
use super::heap_options::HeapPlacement;
use super::probe::ProbeReport;

/// The abilities of a device.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Capabilities {
    /// The adapter's name.
    pub name: String,
    /// The driver's name, where the backend tells.
    pub driver: String,
    /// The driver's version and more, where the backend tells.
    pub driver_info: String,
    /// The graphics interface below wgpu.
    pub backend: wgpu::Backend,
    /// The address on the PCI bus, where the backend tells
    /// ([`AdapterDescription::pci_address`](crate::AdapterDescription::pci_address)).
    pub pci_address: Option<String>,
    /// The adapter's own description.
    pub device_type: wgpu::DeviceType,
    /// The adapter is software: the type is `Cpu`, or the name or driver is that of llvmpipe
    /// (lavapipe), SwiftShader, or Microsoft's WARP, which not all backends report as `Cpu`.
    pub software: bool,
    /// Host and device use the same memory. The rule: software adapters, integrated GPUs, and all
    /// of Apple's own GPUs do; discrete, virtual and unknown ones are taken not to.
    pub unified_memory: bool,
    /// Where the device was told to keep the shared heap ([`DeviceOptions::heap_placement`](crate::DeviceOptions)).
    pub heap_placement: HeapPlacement,
    /// Bytes of memory that kernels can reach at once, where the interface reports them: the largest heap of
    /// device-local memory, within its budget (Vulkan), or the recommended working set (Metal). Software adapters
    /// answer with memory of the host.
    pub working_set_bytes: Option<u64>,
    /// The most storage buffers in a kernel's bindings.
    pub storage_bindings_per_stage: u32,
    /// The most uniform buffers in a kernel's bindings.
    pub uniform_bindings_per_stage: u32,
    /// Bytes of one storage binding.
    pub storage_binding_bytes: u64,
    /// Bytes of one uniform binding.
    pub uniform_binding_bytes: u64,
    /// Bytes of one buffer.
    pub buffer_bytes: u64,
    /// Bind groups of one kernel.
    pub bind_groups: u32,
    /// The most bytes of workgroup memory in a work-group.
    pub workgroup_storage_bytes: u32,
    /// Invocations of one work-group, over all dimensions.
    pub workgroup_invocations: u32,
    /// Invocations of one work-group in each dimension.
    pub workgroup_size: [u32; 3],
    /// Work-groups of one dispatch in each dimension.
    pub workgroups_per_dimension: u32,
    /// The offset of a storage binding is a multiple of this.
    pub storage_offset_alignment: u32,
    /// The offset of a uniform binding is a multiple of this.
    pub uniform_offset_alignment: u32,
    /// The fewest invocations that a subgroup has.
    pub subgroup_min_size: u32,
    /// The most invocations that a subgroup has.
    pub subgroup_max_size: u32,
    /// The most bytes of arrays in private and function space, per invocation.
    ///
    /// No graphics interface reports the size, hence a rule by driver: a quarter of the documented
    /// size (NVIDIA) or of the measured one (SwiftShader, where more ends the process), as much as
    /// compiles in bearable time (lavapipe), and else the 8192 bytes every implementation of WGSL
    /// accepts. Arrays beyond lie in scratch memory ([`SpillPolicy`](crate::kernel::SpillPolicy)).
    pub private_memory_bytes: u32,
    /// The wgpu features that the *device* was opened with.
    pub features: wgpu::Features,
    /// The measurements of the start-up probe.
    pub probe: ProbeReport,
}

impl Capabilities {
    /// Puts together the known properties of a device: `features` and `limits` are the device's,
    /// not the adapter's, since only those can be used.
    pub fn new(
        info: &wgpu::AdapterInfo,
        features: wgpu::Features,
        limits: &wgpu::Limits,
        probe: ProbeReport,
    ) -> Self {
        let make = Make::of(info);
        let software = info.device_type == wgpu::DeviceType::Cpu || make.is_software();
        Self {
            name: info.name.clone(),
            driver: info.driver.clone(),
            driver_info: info.driver_info.clone(),
            backend: info.backend,
            pci_address: super::open::pci_address(info),
            device_type: info.device_type,
            software,
            unified_memory: software
                || info.device_type == wgpu::DeviceType::IntegratedGpu
                || make == Make::Apple,
            heap_placement: HeapPlacement::Auto,
            working_set_bytes: None,
            storage_bindings_per_stage: limits.max_storage_buffers_per_shader_stage,
            uniform_bindings_per_stage: limits.max_uniform_buffers_per_shader_stage,
            storage_binding_bytes: limits.max_storage_buffer_binding_size,
            uniform_binding_bytes: limits.max_uniform_buffer_binding_size,
            buffer_bytes: limits.max_buffer_size,
            bind_groups: limits.max_bind_groups,
            workgroup_storage_bytes: limits.max_compute_workgroup_storage_size,
            workgroup_invocations: limits.max_compute_invocations_per_workgroup,
            workgroup_size: [
                limits.max_compute_workgroup_size_x,
                limits.max_compute_workgroup_size_y,
                limits.max_compute_workgroup_size_z,
            ],
            workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
            storage_offset_alignment: limits.min_storage_buffer_offset_alignment,
            uniform_offset_alignment: limits.min_uniform_buffer_offset_alignment,
            subgroup_min_size: info.subgroup_min_size,
            subgroup_max_size: info.subgroup_max_size,
            private_memory_bytes: make.private_memory_bytes(),
            features,
            probe,
        }
    }

    /// Whether host and running kernels were seen to see each other's writes, both ways.
    pub fn live_memory(&self) -> bool {
        self.probe
            .live
            .measured()
            .is_some_and(|live| live.both_ways())
    }

    /// After how many turns the driver ends a loop, if such an end was seen.
    ///
    /// `None` also if this was not measured; [`Capabilities::needs_loop_guard`] tells apart.
    pub fn loop_budget(&self) -> Option<u32> {
        self.probe.loop_budget.measured().copied().flatten()
    }

    /// Whether kernels must check for loops cut short: always, unless the probe saw a long loop run
    /// to its end.
    pub fn needs_loop_guard(&self) -> bool {
        self.probe.loop_budget.measured() != Some(&None)
    }

    /// Whether a running kernel can be stopped, and the device lives on.
    pub(crate) fn stops_kernels(&self) -> bool {
        #[cfg(embedded)]
        return self.backend == super::embedded::BACKEND;
        #[cfg(not(embedded))]
        false
    }

    /// Whether calls of kernels are served during launches.
    pub(crate) fn live_calls(&self) -> bool {
        // Metal promises to show memory to the other side between command buffers only, and has no fence that a
        // single invocation may use.
        self.backend != wgpu::Backend::Metal && self.live_memory()
    }

    /// The reason for [`Capabilities::live_calls`], in one sentence.
    pub(crate) fn why_live_calls(&self) -> String {
        match self.backend {
            wgpu::Backend::Metal => {
                "Metal orders memory between host and kernel only where a command buffer ends"
                    .to_owned()
            }
            _ => self.why_live(),
        }
    }

    /// Whether the invocations of a subgroup that call together share a packet. Not where turns of loops are rationed,
    /// since the lanes of a group wait together there anyway, nor where packets are not sealed: no invocation orders the
    /// words of others.
    pub(crate) fn packs_calls(&self) -> bool {
        let has_subgroups = self.features.contains(wgpu::Features::SUBGROUP);
        has_subgroups && self.splits_ports() && !self.needs_loop_guard()
    }

    /// Whether ports lie in two memories, so each side polls its own.
    pub(crate) fn splits_ports(&self) -> bool {
        !self.unified_memory && self.live_calls()
    }

    /// Whether this is Mesa's software adapter, whose compiler has limits of its own.
    pub(crate) fn is_lavapipe(&self) -> bool {
        self.is_named(&["llvmpipe", "lavapipe"])
    }

    /// Whether an `atomicMin` or `atomicMax` can undo another operation on the same word: SwiftShader makes each of two steps.
    pub(crate) fn splits_extrema(&self) -> bool {
        self.is_named(&["swiftshader"])
    }

    /// Whether the driver's compiler gets some operations on values that it knows wrong: SwiftShader's, of zeros and bytes.
    pub(crate) fn folds_wrongly(&self) -> bool {
        self.is_named(&["swiftshader"])
    }

    fn is_named(&self, names: &[&str]) -> bool {
        let text = format!("{} {} {}", self.name, self.driver, self.driver_info).to_lowercase();
        names.iter().any(|name| text.contains(name))
    }

    /// Whether an invocation may order its own memory by a barrier, wherever it is. lavapipe takes any barrier for a meeting of
    /// the work-group; WGSL has barriers in uniform control flow alone, which browsers check, and calls go in slices there.
    pub(crate) fn has_memory_barriers(&self) -> bool {
        !self.is_lavapipe() && self.backend != wgpu::Backend::BrowserWebGpu
    }

    /// Whether the host may take pages of lent memory out of their frames while a kernel runs. Host and kernel have to run
    /// on the same processors, and these have to keep the order of loads and of stores: on others an invocation could load
    /// what its caches held of a frame before.
    pub(crate) fn evicts_pages(&self) -> bool {
        self.device_type == wgpu::DeviceType::Cpu && cfg!(target_arch = "x86_64")
    }

    /// Whether invocations pass over a branch that none of them takes. lavapipe, SwiftShader and
    /// WARP run both sides for all invocations of a vector, and drop what a side was not meant for.
    pub(crate) fn skips_branches(&self) -> bool {
        !self.software || self.invocations_take_turns()
    }

    /// Whether kernels make their accesses in the order of their text, but for loads in front of earlier stores: the embedded
    /// adapter emits the accesses of atomics in that order, and processors of this kind keep it.
    pub(crate) fn keeps_order(&self) -> bool {
        self.driver == EMBEDDED_DRIVER && cfg!(target_arch = "x86_64")
    }

    /// Whether invocations of a work-group run one after the other, each up to a barrier or its end: none sees what
    /// another does meanwhile. Work-groups run beside each other.
    pub(crate) fn invocations_take_turns(&self) -> bool {
        self.driver == EMBEDDED_DRIVER
    }

    /// Whether the device works while the thread that has submitted goes on. The embedded adapter runs small submissions on
    /// that very thread.
    pub(crate) fn works_beside(&self) -> bool {
        self.driver != EMBEDDED_DRIVER
    }

    /// Whether the device uses host memory in place and host and kernels see the same contents.
    pub fn host_import(&self) -> bool {
        self.probe
            .host_import
            .measured()
            .is_some_and(|found| found.shared)
    }

    /// Whether the device has the host's memory for its heap, where the heap lies there.
    pub(crate) fn imports_heap(&self) -> bool {
        self.has(Aspect::HostImport) && self.heap_placement != HeapPlacement::Device
    }

    /// The reason for [`Capabilities::host_import`], in one sentence.
    pub(super) fn why_host_import(&self) -> String {
        let import = &self.probe.host_import;
        match (import.measured(), import.why_not()) {
            (Some(found), _) => match (found.shared, found.live) {
                // What the probe saw there is chance: whether its kernel had read the word before.
                (true, _) if !self.unified_memory => {
                    format!("host and kernels use one memory, but {READ_BEFORE}")
                }
                (true, true) => {
                    "host and kernels use one memory, also while kernels run".to_owned()
                }
                (true, false) => {
                    "host and kernels use one memory, but not while kernels run".to_owned()
                }
                (false, _) => {
                    "a kernel and the host did not see the same in imported memory".to_owned()
                }
            },
            (None, why) => format!(
                "host memory is not imported: {}",
                why.unwrap_or_else(|| "no reason was given".to_owned())
            ),
        }
    }

    /// The reason for [`Capabilities::live_memory`], in one sentence.
    pub(super) fn why_live(&self) -> String {
        let live = &self.probe.live;
        match (live.measured(), live.why_not()) {
            (Some(found), _) => match (found.host_to_kernel, found.kernel_to_host) {
                (true, true) => "host and running kernels saw each other's writes",
                (true, false) => "the host did not see what a running kernel wrote",
                (false, true) => "a running kernel did not see what the host wrote",
                (false, false) => "neither host nor running kernel saw the other's writes",
            }
            .to_owned(),
            (None, why) => format!(
                "live memory was not measured: {}",
                why.unwrap_or_else(|| "no reason was given".to_owned())
            ),
        }
    }
}

/// Devices with memory of their own keep the host's in caches: an NVIDIA H200 does, and the caches do not follow the
/// host's writes.
pub(super) const READ_BEFORE: &str =
    "a running kernel may go on seeing what it has read of it before";

/// The names of some flags, for messages.
pub(crate) fn names<T>(flags: impl Iterator<Item = (&'static str, T)>) -> String {
    let names: Vec<&str> = flags.map(|(name, _)| name).collect();
    if names.is_empty() {
        "none".to_string()
    } else {
        names.join(", ")
    }
}

/// The driver's name of the adapter compiled in.
const EMBEDDED_DRIVER: &str = "tombolo-cpu";

/// The vendor of the adapter, as far as relevant here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Make {
    Lavapipe,
    SwiftShader,
    Warp,
    Nvidia,
    Apple,
    /// The adapter compiled in
    Embedded,
    Other,
}

impl Make {
    /// Names come first: a software adapter or a backend without PCI ids has no telling vendor id.
    fn of(info: &wgpu::AdapterInfo) -> Self {
        let text = format!("{} {} {}", info.name, info.driver, info.driver_info).to_lowercase();
        let named = |names: &[&str]| names.iter().any(|name| text.contains(name));
        if info.driver == EMBEDDED_DRIVER {
            Self::Embedded
        } else if named(&["llvmpipe", "lavapipe"]) {
            Self::Lavapipe
        } else if named(&["swiftshader"]) {
            Self::SwiftShader
        } else if named(&["microsoft basic render driver", "warp"]) {
            Self::Warp
        } else if info.vendor == 0x10DE || named(&["nvidia"]) {
            Self::Nvidia
        } else if info.vendor == 0x106B || named(&["apple"]) {
            Self::Apple
        } else {
            Self::Other
        }
    }

    fn is_software(self) -> bool {
        matches!(
            self,
            Self::Lavapipe | Self::SwiftShader | Self::Warp | Self::Embedded
        )
    }

    fn private_memory_bytes(self) -> u32 {
        /// The minimum of every implementation of WGSL in each of the two address spaces.
        const WGSL: u32 = 8 * 1024;
        match self {
            // The compiler of lavapipe turns every access into a tree of branches over all
            // elements: 256 words take two seconds, 512 twenty, and 1024 were not done after four
            // minutes, in effect a hang.
            Self::Lavapipe => 2 * 1024,
            // Measured: 64 KiB work; 128 KiB end the *process* ("Local variable exceeds stack size
            // limit").
            Self::SwiftShader => 16 * 1024,
            // CUDA documents 512 KiB of local memory per thread, for every compute capability.
            Self::Nvidia => 128 * 1024,
            // SwiftShader keeps private arrays in memory of the host: 64 MiB for the largest work-group.
            Self::Embedded => 64 * 1024,
            Self::Warp | Self::Apple | Self::Other => WGSL,
        }
    }
}

#[cfg(test)]
mod tests;
