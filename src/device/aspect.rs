//! Yes-or-no questions about a device, after the aspects of SYCL 2020 (section 4.6.4.5).
//!
//! SYCL's names are kept where wgpu has the thing. `accelerator`, `custom` and the image and other
//! unified-shared-memory aspects have no counterpart here: wgpu reports no such device type, and how
//! memory is shared is a matter of degree, which [`Capabilities::tier`] answers.

use std::fmt;

use super::capabilities::{Capabilities, names};
use super::tier::{Capability, Tier};

/// A property that a device has or has not; see [`Capabilities::has`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Aspect {
    /// Kernels run on the host's processor. SYCL: `cpu`.
    Cpu,
    /// Kernels run on a GPU: discrete, integrated or virtual. SYCL: `gpu`.
    Gpu,
    /// The adapter is software that imitates a GPU. SYCL: `emulated`.
    Software,
    /// Host and device use the same memory, so nothing is gained by copying between them.
    UnifiedMemory,
    /// The type `f16` in kernels. SYCL: `fp16`.
    Fp16,
    /// The type `f64` in kernels. SYCL: `fp64`.
    Fp64,
    /// The types `i16` and `u16` in kernels.
    Int16,
    /// The types `i64` and `u64` in kernels.
    Int64,
    /// All atomic operations on 64-bit integers. SYCL: `atomic64`.
    Atomic64,
    /// Atomic operations on `f32`. SYCL extension: `ext_oneapi_atomic_float`.
    AtomicFp32,
    /// Subgroup operations in compute kernels.
    Subgroups,
    /// A barrier among the invocations of one subgroup.
    SubgroupBarrier,
    /// Host and running kernels see each other's writes, both ways; measured, not promised by any
    /// limit.
    LiveMemory,
    /// The device uses the host's memory in place: one address serves the host, kernels, and all
    /// devices with this aspect; measured.
    HostImport,
    /// Kernels follow pointers into any memory of the host that is lent to a launch
    /// ([`TranslationMode::System`](crate::kernel::TranslationMode::System)). SYCL: `usm_system_allocations`.
    SystemAllocations,
    /// The driver does not end long loops on its own; measured.
    UnboundedLoops,
    /// Private arrays sized at run time. SYCL extension: `ext_oneapi_private_alloca`.
    PrivateAlloca,
    /// GPU time of launches by timestamps. SYCL: `queue_profiling`.
    TimestampQueries,
    /// Launches can be cancelled, and have deadlines ([`Event::cancel`](crate::Event::cancel)).
    Cancellation,
    /// Compiled pipelines can be stored and reused by a later process.
    PipelineCache,
    /// Modules compiled ahead of time (SPIR-V, MSL, HLSL, DXIL) can be passed through to the driver.
    PassthroughShaders,
}

impl Aspect {
    /// All aspects, in the order of their declaration.
    pub const ALL: &'static [Aspect] = &[
        Aspect::Cpu,
        Aspect::Gpu,
        Aspect::Software,
        Aspect::UnifiedMemory,
        Aspect::Fp16,
        Aspect::Fp64,
        Aspect::Int16,
        Aspect::Int64,
        Aspect::Atomic64,
        Aspect::AtomicFp32,
        Aspect::Subgroups,
        Aspect::SubgroupBarrier,
        Aspect::LiveMemory,
        Aspect::HostImport,
        Aspect::SystemAllocations,
        Aspect::UnboundedLoops,
        Aspect::PrivateAlloca,
        Aspect::TimestampQueries,
        Aspect::Cancellation,
        Aspect::PipelineCache,
        Aspect::PassthroughShaders,
    ];

    /// The aspect's name in lower case with underscores, as SYCL writes them; stable, for tools.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
            Self::Software => "software",
            Self::UnifiedMemory => "unified_memory",
            Self::Fp16 => "fp16",
            Self::Fp64 => "fp64",
            Self::Int16 => "int16",
            Self::Int64 => "int64",
            Self::Atomic64 => "atomic64",
            Self::AtomicFp32 => "atomic_fp32",
            Self::Subgroups => "subgroups",
            Self::SubgroupBarrier => "subgroup_barrier",
            Self::LiveMemory => "live_memory",
            Self::HostImport => "host_import",
            Self::SystemAllocations => "usm_system_allocations",
            Self::UnboundedLoops => "unbounded_loops",
            Self::PrivateAlloca => "private_alloca",
            Self::TimestampQueries => "timestamp_queries",
            Self::Cancellation => "cancellation",
            Self::PipelineCache => "pipeline_cache",
            Self::PassthroughShaders => "passthrough_shaders",
        }
    }

    /// The wgpu feature required at the opening of the device, for aspects equal to a feature.
    pub const fn feature(self) -> Option<wgpu::Features> {
        match self {
            Self::Fp16 => Some(wgpu::Features::SHADER_F16),
            Self::Fp64 => Some(wgpu::Features::SHADER_F64),
            Self::Int16 => Some(wgpu::Features::SHADER_I16),
            Self::Int64 => Some(wgpu::Features::SHADER_INT64),
            Self::Atomic64 => Some(wgpu::Features::SHADER_INT64_ATOMIC_ALL_OPS),
            Self::AtomicFp32 => Some(wgpu::Features::SHADER_FLOAT32_ATOMIC),
            Self::Subgroups => Some(wgpu::Features::SUBGROUP),
            Self::SubgroupBarrier => Some(wgpu::Features::SUBGROUP_BARRIER),
            Self::TimestampQueries => Some(wgpu::Features::TIMESTAMP_QUERY),
            Self::PipelineCache => Some(wgpu::Features::PIPELINE_CACHE),
            Self::PassthroughShaders => Some(wgpu::Features::PASSTHROUGH_SHADERS),
            Self::Cpu
            | Self::Gpu
            | Self::Software
            | Self::UnifiedMemory
            | Self::LiveMemory
            | Self::HostImport
            | Self::SystemAllocations
            | Self::UnboundedLoops
            | Self::PrivateAlloca
            | Self::Cancellation => None,
        }
    }
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Capabilities {
    /// Whether the device has `aspect`. [`Capabilities::explain`] says why.
    pub fn has(&self, aspect: Aspect) -> bool {
        self.answer(aspect).0
    }

    /// The reason why the device has, or lacks, `aspect`, in one sentence.
    pub fn explain(&self, aspect: Aspect) -> String {
        self.answer(aspect).1
    }

    fn answer(&self, aspect: Aspect) -> (bool, String) {
        if let Some(feature) = aspect.feature() {
            let has = self.features.contains(feature);
            let why = if has {
                format!("the device was opened with {}", names(feature.iter_names()))
            } else {
                format!(
                    "the device was opened without {}: the adapter does not offer it, \
                     or it was not asked for",
                    names(feature.iter_names())
                )
            };
            return (has, why);
        }
        let kind = self.device_type;
        let of_kind = format!("the adapter \"{}\" is of type {kind:?}", self.name);
        match aspect {
            Aspect::Cpu => (kind == wgpu::DeviceType::Cpu, of_kind),
            Aspect::Gpu => {
                let gpu = matches!(
                    kind,
                    wgpu::DeviceType::IntegratedGpu
                        | wgpu::DeviceType::DiscreteGpu
                        | wgpu::DeviceType::VirtualGpu
                );
                match (gpu, self.software) {
                    (true, true) => (false, format!("{of_kind}, but is known to be software")),
                    (gpu, _) => (gpu, of_kind),
                }
            }
            Aspect::Software => match (self.software, kind) {
                (true, wgpu::DeviceType::Cpu) => (true, of_kind),
                (true, _) => (
                    true,
                    format!("\"{}\" is the name of a software adapter", self.name),
                ),
                (false, _) => (
                    false,
                    format!("{of_kind}, and its name is that of no known software adapter"),
                ),
            },
            Aspect::UnifiedMemory => {
                let which = if self.unified_memory {
                    "uses"
                } else {
                    "does not use"
                };
                (
                    self.unified_memory,
                    format!("{of_kind}, which {which} the host's memory"),
                )
            }
            Aspect::LiveMemory => (self.live_memory(), self.why_live()),
            Aspect::HostImport => (self.host_import(), self.why_host_import()),
            Aspect::SystemAllocations => {
                let most = self.storage_bindings_per_stage;
                let how =
                    "kernels of TranslationMode::System bind four storage buffers of the runtime's";
                (most >= 4, format!("{how}, and the device allows {most}"))
            }
            Aspect::UnboundedLoops => {
                let guard = self.tier(Capability::LoopGuard);
                (guard.tier == Tier::NotNeeded, guard.why)
            }
            Aspect::PrivateAlloca => (
                self.private_memory_bytes > 0,
                format!(
                    "arrays of up to {} bytes an invocation in WGSL kernels; \
                     not in modules compiled ahead of time",
                    self.private_memory_bytes
                ),
            ),
            Aspect::Cancellation => match self.stops_kernels() {
                true => (
                    true,
                    "the embedded adapter stops kernels at a stop word".into(),
                ),
                false => (
                    false,
                    "the driver has no way to stop a kernel without losing the device".into(),
                ),
            },
            // Each remaining aspect is a wgpu feature and was answered above.
            Aspect::Fp16
            | Aspect::Fp64
            | Aspect::Int16
            | Aspect::Int64
            | Aspect::Atomic64
            | Aspect::AtomicFp32
            | Aspect::Subgroups
            | Aspect::SubgroupBarrier
            | Aspect::TimestampQueries
            | Aspect::PipelineCache
            | Aspect::PassthroughShaders => (false, String::new()),
        }
    }
}
