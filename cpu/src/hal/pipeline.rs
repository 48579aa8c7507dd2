//! Shader modules and compute pipelines.

use std::{fmt, sync::Arc};

use wgpu_hal as hal;
use wgpu_types as wgt;

use super::Options;
use crate::{
    compile::{self, Kernel, error::CompileError, store::Store},
    exec::times::Times,
    jit::perf,
    sanitizer::{Instruments, Ledger, Monitor, Text, Watched},
};

/// A module of naga, validated by wgpu-core.
pub struct ShaderModule {
    module: naga::Module,
    info: naga::valid::ModuleInfo,
    options: compile::Options,
    text: Option<Text>,
    /// Whether kernels are listed for `perf`
    perf_map: bool,
}

impl ShaderModule {
    /// Takes a module over, for kernels run by `options`.
    ///
    /// # Errors
    /// If the shader is in a language of another backend.
    pub(super) fn new(
        desc: &hal::ShaderModuleDescriptor,
        shader: hal::ShaderInput,
        options: &Options,
    ) -> Result<Self, hal::ShaderError> {
        let hal::ShaderInput::Naga(shader) = shader else {
            return Err(hal::ShaderError::Compilation(
                "this adapter takes shaders as WGSL or as modules of naga only".into(),
            ));
        };
        Ok(Self {
            module: shader.module.into_owned(),
            info: shader.info,
            options: compile::Options {
                checks_bounds: desc.runtime_checks.bounds_checks,
                lanes: options.lanes,
                instruments: Instruments {
                    checks: options.sanitizer,
                    coverage: options.coverage,
                },
                schedule: options.schedule,
            },
            perf_map: options.perf_map,
            text: shader.debug_source.map(|source| Text {
                file: source.file_name.into(),
                text: source.source_code.into(),
            }),
        })
    }
}

impl fmt::Debug for ShaderModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShaderModule").finish_non_exhaustive()
    }
}

/// A pipeline cache: pipelines created with a cache have their kernels kept, see
/// [`Device::export_kernels`](super::Device::export_kernels).
///
/// A cache has no data of its own: wgpu checks and takes data of Vulkan alone.
#[derive(Debug)]
pub struct PipelineCache;

/// A kernel ready to run.
#[derive(Clone)]
pub struct ComputePipeline {
    pub(super) kernel: Arc<Kernel>,
    pub(super) times: Arc<Times>,
    /// Whether work-group memory is zero when a work-group begins
    pub(super) zero_workgroup: bool,
    options: compile::Options,
    text: Option<Text>,
    ledger: Arc<Ledger>,
    #[cfg(all(feature = "gdb", target_os = "linux"))]
    _listed: Arc<crate::jit::gdb::Listed>,
}

impl ComputePipeline {
    /// Compiles an entry point, or finds the kernel in `store`; with a cache, `store` keeps the kernel. Findings and counts of
    /// the dispatches come into `ledger`.
    pub(super) fn new(
        stage: &hal::ProgrammableStage<'_, ShaderModule>,
        (store, keeps): (&Store, bool),
        ledger: &Arc<Ledger>,
    ) -> Result<Self, hal::PipelineError> {
        let ShaderModule {
            module,
            info,
            options,
            text,
            perf_map,
        } = stage.module;
        let (entry, constants) = (stage.entry_point, stage.constants);
        let kernel = compile::compile(module, info, (entry, constants), *options, (store, keeps))
            .map_err(|error| pipeline_error(stage.entry_point, &error))?;
        if *perf_map {
            perf::list(&kernel.name, kernel.code());
        }
        Ok(Self {
            #[cfg(all(feature = "gdb", target_os = "linux"))]
            _listed: Arc::new(crate::jit::gdb::Listed::new(&kernel.name, kernel.code())),
            kernel: Arc::new(kernel),
            times: Arc::default(),
            zero_workgroup: stage.zero_initialize_workgroup_memory,
            options: *options,
            text: text.clone(),
            ledger: ledger.clone(),
        })
    }

    /// The seed of the order of work-groups.
    pub(super) fn schedule(&self) -> Option<u64> {
        self.options.schedule
    }

    /// A monitor for a dispatch behind a debug marker, if the kernel is instrumented.
    pub(super) fn monitor(&self, marker: Option<&Arc<str>>) -> Option<Arc<Monitor>> {
        let instruments = self.options.instruments;
        instruments.any().then(|| {
            Arc::new(Monitor::new(Watched {
                kernel: self.kernel.name.clone(),
                sites: self.kernel.sites.clone(),
                workgroup_size: self.kernel.workgroup_size,
                zero_workgroup: self.zero_workgroup,
                checks: instruments.checks,
                text: self.text.clone(),
                marker: marker.cloned(),
            }))
        })
    }

    /// Keeps the observations of a monitor.
    pub(super) fn finish(&self, monitor: &Monitor) {
        monitor.finish(&self.ledger);
    }
}

fn pipeline_error(entry: &str, error: &CompileError) -> hal::PipelineError {
    let stage = wgt::ShaderStages::COMPUTE;
    match error {
        CompileError::NoEntryPoint { .. } => {
            hal::PipelineError::EntryPoint(naga::ShaderStage::Compute)
        }
        CompileError::Constants(reason) => {
            hal::PipelineError::PipelineConstants(stage, reason.clone())
        }
        other => hal::PipelineError::Linkage(stage, format!("in {entry}: {other}")),
    }
}

impl fmt::Debug for ComputePipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComputePipeline")
            .field("kernel", &self.kernel.name)
            .finish_non_exhaustive()
    }
}
