//! In which form each capability of the runtime works on a device, and why.
//!
//! A capability either works in a single form or not at all, or has a ladder of forms; the device's rung follows from
//! its [`Capabilities`]. Capabilities missing from this version of the runtime are listed too, marked as planned: the
//! device decides about their tier already.

use std::fmt;

use super::aspect::Aspect;
use super::capabilities::{Capabilities, READ_BEFORE, names};
use super::heap_options::HeapPlacement;

/// A capability of the runtime that depends on the device; see [`Capabilities::tier`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// Kernels with typed arguments.
    Launches,
    /// Specialization constants.
    Specialization,
    /// Private arrays sized at run time.
    PrivateArrays,
    /// Detection of loops that the driver cut short.
    LoopGuard,
    /// GPU time of launches.
    Profiling,
    /// Words that host and running kernels see at the same time.
    LiveMemory,
    /// Compiled pipelines kept from one process to the next.
    PipelineCache,
    /// Modules compiled ahead of time.
    PassthroughShaders,
    /// Pointers that host and kernels both follow.
    Pointers,
    /// Variables that stay alive on the device across kernels.
    DeviceGlobals,
    /// Buffers that move between devices by themselves.
    Buffers,
    /// Kernels that call functions of the host.
    HostCalls,
    /// Kernels that stay resident and serve calls of the host.
    PersistentKernels,
}

impl Capability {
    /// All capabilities, in the order of their declaration.
    pub const ALL: &'static [Capability] = &[
        Capability::Launches,
        Capability::Specialization,
        Capability::PrivateArrays,
        Capability::LoopGuard,
        Capability::Profiling,
        Capability::LiveMemory,
        Capability::PipelineCache,
        Capability::PassthroughShaders,
        Capability::Pointers,
        Capability::DeviceGlobals,
        Capability::Buffers,
        Capability::HostCalls,
        Capability::PersistentKernels,
    ];

    /// Whether this version of the runtime has the capability at all. Missing capabilities are
    /// listed nevertheless, because the device already decides the tier of each.
    pub const fn available(self) -> bool {
        match self {
            Self::Launches
            | Self::Specialization
            | Self::PrivateArrays
            | Self::LoopGuard
            | Self::Profiling
            | Self::LiveMemory
            | Self::PipelineCache
            | Self::PassthroughShaders
            | Self::Pointers
            | Self::DeviceGlobals
            | Self::Buffers
            | Self::HostCalls
            | Self::PersistentKernels => true,
        }
    }

    /// A short name in lower case with underscores; stable, for tools.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Launches => "launches",
            Self::Specialization => "specialization",
            Self::PrivateArrays => "private_arrays",
            Self::LoopGuard => "loop_guard",
            Self::Profiling => "profiling",
            Self::LiveMemory => "live_memory",
            Self::PipelineCache => "pipeline_cache",
            Self::PassthroughShaders => "passthrough_shaders",
            Self::Pointers => "pointers",
            Self::DeviceGlobals => "device_globals",
            Self::Buffers => "buffers",
            Self::HostCalls => "host_calls",
            Self::PersistentKernels => "persistent_kernels",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The form in which a capability works on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// Works in its only form.
    Full,
    /// The same memory for both sides, without copies; either side's writes during launches reach the other as far as
    /// the reason says.
    FineGrained,
    /// Memory that is brought up to date between launches.
    CoarseGrained,
    /// Answers come while the kernel runs.
    Live,
    /// Answers come between launches.
    Sliced,
    /// The device has no use for the capability, which costs nothing.
    NotNeeded,
    /// Missing on the device.
    Unsupported,
}

impl Tier {
    /// A short name in lower case with underscores; stable, for tools.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::FineGrained => "fine_grained",
            Self::CoarseGrained => "coarse_grained",
            Self::Live => "live",
            Self::Sliced => "sliced",
            Self::NotNeeded => "not_needed",
            Self::Unsupported => "unsupported",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The answer of [`Capabilities::tier`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TierReport {
    /// The capability in question.
    pub capability: Capability,
    /// The form in which the capability works, or will work once this runtime has it.
    pub tier: Tier,
    /// Whether this version of the runtime has the capability. If not, no part of the capability can be used yet.
    pub available: bool,
    /// The reason for the tier, in one sentence.
    pub why: String,
}

impl fmt::Display for TierReport {
    /// For example `pointers: planned, fine_grained (host and kernels use one memory ...)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let planned = if self.available { "" } else { "planned, " };
        let Self {
            capability,
            tier,
            why,
            ..
        } = self;
        write!(f, "{capability}: {planned}{tier} ({why})")
    }
}

/// The advice for devices with memory of their own.
const FASTER: &str = "DeviceOptions::heap_placement is HeapPlacement::Device, which keeps a copy in the device's own memory";

impl Capabilities {
    /// The form of `capability` on this device, whether this version of the runtime has the
    /// capability, and the reason for the form.
    pub fn tier(&self, capability: Capability) -> TierReport {
        let (tier, why) = match capability {
            Capability::Launches => self.launches(),
            Capability::Specialization => (
                Tier::Full,
                "values are substituted before compilation, on every device alike".to_owned(),
            ),
            Capability::PrivateArrays => self.private_arrays(),
            Capability::LoopGuard => self.loop_guard(),
            Capability::Profiling => self.by_feature(
                wgpu::Features::TIMESTAMP_QUERY,
                "at the bounds of each pass",
            ),
            Capability::LiveMemory => self.live_or(Tier::Unsupported),
            Capability::PipelineCache => self.by_feature(
                wgpu::Features::PIPELINE_CACHE,
                "compiled pipelines can be kept on disk",
            ),
            Capability::PassthroughShaders => self.by_feature(
                wgpu::Features::PASSTHROUGH_SHADERS,
                "modules compiled ahead of time go to the driver as they are",
            ),
            Capability::Pointers => self.pointers(),
            Capability::DeviceGlobals => (
                Tier::Full,
                "they need one storage binding of a kernel".to_owned(),
            ),
            Capability::Buffers => self.buffers(),
            Capability::HostCalls => self.calls(
                "calls leave behind a launch, and answers arrive in front of the next one: no kernel \
                 can wait for them",
            ),
            Capability::PersistentKernels => {
                self.calls("calls travel in slices: as many as there are with each launch")
            }
        };
        TierReport {
            capability,
            tier,
            available: capability.available(),
            why,
        }
    }

    fn launches(&self) -> (Tier, String) {
        let why = format!(
            "up to {} storage buffers of {} MiB each",
            self.storage_bindings_per_stage,
            self.storage_binding_bytes >> 20
        );
        (Tier::Full, why)
    }

    fn private_arrays(&self) -> (Tier, String) {
        let why = format!(
            "up to {} bytes an invocation, the safe size for this driver",
            self.private_memory_bytes
        );
        (Tier::Full, why)
    }

    fn pointers(&self) -> (Tier, String) {
        if self.heap_placement == HeapPlacement::Device {
            let why = "HeapPlacement::Device: the device has a copy in memory of its own, to which changes travel";
            return (Tier::CoarseGrained, why.to_owned());
        }
        let mut why = self.explain(Aspect::HostImport);
        if self.has(Aspect::HostImport) {
            if !self.unified_memory && self.heap_placement == HeapPlacement::Auto {
                why = format!(
                    "{why}; kernels reach it across the bus, until launches have paid for a copy, or unless {FASTER}"
                );
            }
            return (Tier::FineGrained, why);
        }
        if !self.has(Aspect::LiveMemory) {
            let why = format!("{why}; the device has a copy, to which changes travel");
            return (Tier::CoarseGrained, why);
        }
        let mut why = format!(
            "{why}; the heap lies in memory that the device maps, unless another device of the context \
             imports it or maps it first, and the device has a copy then"
        );
        if !self.unified_memory {
            why = format!("{why}; {READ_BEFORE}");
        }
        (Tier::FineGrained, why)
    }

    fn buffers(&self) -> (Tier, String) {
        let why = if self.has(Aspect::HostImport) {
            "bytes go to and from other devices through memory that both import"
        } else {
            "bytes go to and from other devices through copies of the host"
        };
        (Tier::Full, why.to_owned())
    }

    /// Calls between host and kernels, in either direction; `sliced` describes the calls where none can be answered
    /// while a kernel runs.
    fn calls(&self, sliced: &str) -> (Tier, String) {
        if !self.live_calls() {
            return (Tier::Sliced, format!("{}; {sliced}", self.why_live_calls()));
        }
        self.live_or(Tier::Sliced)
    }

    /// [`Tier::Live`] where the device has live memory, and `otherwise` elsewhere.
    fn live_or(&self, otherwise: Tier) -> (Tier, String) {
        let tier = if self.live_memory() {
            Tier::Live
        } else {
            otherwise
        };
        (tier, self.why_live())
    }

    fn loop_guard(&self) -> (Tier, String) {
        let budget = &self.probe.loop_budget;
        match (budget.measured(), budget.why_not()) {
            (Some(Some(turns)), _) => (
                Tier::Full,
                format!("the driver ends loops silently after {turns} turns, so loops are checked"),
            ),
            (Some(None), _) => (
                Tier::NotNeeded,
                "a loop of 2^20 turns ran to its end".to_owned(),
            ),
            (None, why) => (
                Tier::Full,
                format!(
                    "whether the driver ends loops was not measured ({}), so loops are checked",
                    why.unwrap_or_else(|| "no reason was given".to_owned())
                ),
            ),
        }
    }

    fn by_feature(&self, feature: wgpu::Features, with: &str) -> (Tier, String) {
        if self.features.contains(feature) {
            (Tier::Full, with.to_owned())
        } else {
            (
                Tier::Unsupported,
                format!(
                    "the device was opened without {}",
                    names(feature.iter_names())
                ),
            )
        }
    }
}
