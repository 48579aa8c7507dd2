//! Shader modules and compute pipelines.

use std::{fmt, sync::Arc};

use wgpu_hal as hal;
use wgpu_types as wgt;

use crate::compile::{self, Kernel, error::CompileError};

/// A module of naga, as wgpu-core has validated it.
pub struct ShaderModule {
    module: naga::Module,
    info: naga::valid::ModuleInfo,
    options: compile::Options,
}

impl ShaderModule {
    /// Takes a module over, for kernels with so many lanes at most.
    ///
    /// # Errors
    /// If the shader is in a language of another backend.
    pub(super) fn new(
        desc: &hal::ShaderModuleDescriptor,
        shader: hal::ShaderInput,
        lanes: u32,
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
                lanes,
            },
        })
    }
}

impl fmt::Debug for ShaderModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShaderModule").finish_non_exhaustive()
    }
}

/// A kernel that is ready to run.
#[derive(Clone)]
pub struct ComputePipeline {
    pub(super) kernel: Arc<Kernel>,
    /// Whether work-group memory is zero when a work-group begins
    pub(super) zero_workgroup: bool,
}

impl ComputePipeline {
    pub(super) fn new(
        stage: &hal::ProgrammableStage<'_, ShaderModule>,
    ) -> Result<Self, hal::PipelineError> {
        let ShaderModule {
            module,
            info,
            options,
        } = stage.module;
        let kernel = compile::compile(module, info, stage.entry_point, stage.constants, *options)
            .map_err(|error| pipeline_error(stage.entry_point, &error))?;
        Ok(Self {
            kernel: Arc::new(kernel),
            zero_workgroup: stage.zero_initialize_workgroup_memory,
        })
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
