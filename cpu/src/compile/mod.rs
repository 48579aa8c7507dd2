//! From a module of naga to machine code.
//!
//! ```text
//! naga IR ── front ──▶ lane program ── passes ──▶ lane program ── emit ──▶ Cranelift IR ── jit ──▶ code
//! ```

pub(crate) mod abi;
mod emit;
pub(crate) mod error;
mod front;
pub(crate) mod host;
pub(crate) mod image;
mod ir;
mod layout;
mod passes;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use cranelift_codegen::{Context, control::ControlPlane};
use naga::{ShaderStage, back::pipeline_constants::process_overrides};

pub(crate) use emit::Options;
pub(crate) use ir::BindingUse;

use self::{
    abi::KernelFn,
    error::{CompileError, Result, internal},
};
use crate::{
    jit::{CodeMemory, target},
    sanitizer::Site,
};

/// A compiled entry point.
pub(crate) struct Kernel {
    pub(crate) name: String,
    /// The code; never called but through [`Self::function`]
    code: CodeMemory,
    /// Buffers, in the order in which a dispatch passes them
    pub(crate) bindings: Vec<BindingUse>,
    /// Constants that code reads
    pub(crate) tables: Vec<u8>,
    pub(crate) workgroup_bytes: u64,
    pub(crate) frame_bytes: u64,
    /// Whether the kernel asks whether it is to stop: it may run long
    pub(crate) polls: bool,
    /// Whether a work-group may wait for others
    pub(crate) waits: bool,
    /// Invocations that run side by side: with several, lanes that a branch has switched off load all the same
    pub(crate) lanes: u32,
    /// Operations of a work-group, estimated
    pub(crate) cost: u64,
    pub(crate) workgroup_size: [u32; 3],
    /// What the kernel tells a monitor of, by number
    pub(crate) sites: Arc<[Site]>,
}

impl Kernel {
    /// Where the code lies.
    pub(crate) fn code(&self) -> std::ops::Range<usize> {
        self.code.range()
    }

    /// The code of the kernel.
    pub(crate) fn function(&self) -> KernelFn {
        // SAFETY: `code` begins with a function that was compiled with the signature of `KernelFn` and the calling
        // convention of the machine, and it stays mapped as long as `self` lives. `KernelFn` is unsafe to call.
        unsafe { std::mem::transmute::<*const u8, KernelFn>(self.code.address()) }
    }
}

/// Values of pipeline-overridable constants, by name or id.
pub(crate) type Constants = naga::back::PipelineConstants;

/// Compiles an entry point.
///
/// # Errors
/// If there is no such compute entry point, if constants do not fit, or if the kernel uses what this adapter does not
/// have.
pub(crate) fn compile(
    module: &naga::Module,
    info: &naga::valid::ModuleInfo,
    entry: &str,
    constants: &Constants,
    options: Options,
) -> Result<Kernel> {
    let (module, info) =
        process_overrides(module, info, Some((ShaderStage::Compute, entry)), constants)
            .map_err(|error| CompileError::Constants(error.to_string()))?;
    let index = module
        .entry_points
        .iter()
        .position(|point| point.stage == ShaderStage::Compute && point.name == entry)
        .ok_or_else(|| CompileError::NoEntryPoint { name: entry.into() })?;
    let program = front::lower(&module, &info, index, options.instruments)?;
    let program = passes::run(program)?;
    generate(&program, options)
}

fn generate(program: &ir::Program, options: Options) -> Result<Kernel> {
    let isa = target::isa()?;
    let emitted = emit::emit(program, options, &**isa)?;
    let mut context = Context::for_function(emitted.function);
    let compiled = context
        .compile(&**isa, &mut ControlPlane::default())
        .map_err(|error| internal(format!("{:?}", error.inner)))?;
    if let Some(relocation) = compiled.buffer.relocs().first() {
        return Err(internal(format!("code that needs {:?}", relocation.target)));
    }
    let code = CodeMemory::new(compiled.code_buffer())?;
    Ok(Kernel {
        name: program.name.clone(),
        code,
        bindings: program.bindings.values().copied().collect(),
        tables: emitted.tables,
        workgroup_bytes: program.workgroup_bytes.into(),
        frame_bytes: emitted.frame_bytes,
        polls: emitted.polls,
        waits: emitted.waits,
        lanes: emitted.lanes,
        workgroup_size: program.workgroup_size,
        sites: program.sites.clone(),
        cost: passes::trips::cost(program).saturating_mul(program.invocations().into()),
    })
}
