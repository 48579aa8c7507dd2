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
pub(crate) mod store;
pub(crate) mod subgroup;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use cranelift_codegen::{Context, control::ControlPlane};
use naga::{ShaderStage, back::pipeline_constants::process_overrides};

pub(crate) use emit::Options;
pub(crate) use ir::{BindingUse, Combine, Reduction};

use self::{
    abi::KernelFn,
    error::{CompileError, Result, internal},
    store::{Compiled, Key, Store},
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
    /// Buffers, in the order of a dispatch
    pub(crate) bindings: Vec<BindingUse>,
    /// Constants read by code
    pub(crate) tables: Vec<u8>,
    pub(crate) workgroup_bytes: u64,
    pub(crate) frame_bytes: u64,
    /// Whether the kernel asks whether to stop: a long run is possible
    pub(crate) polls: bool,
    /// Whether a work-group may wait for others
    pub(crate) waits: bool,
    /// Invocations side by side: with several, lanes switched off by a branch load all the same
    pub(crate) lanes: u32,
    /// Operations of a work-group, estimated
    pub(crate) cost: u64,
    pub(crate) workgroup_size: [u32; 3],
    /// The sites that the kernel tells a monitor of, by number
    pub(crate) sites: Arc<[Site]>,
}

impl Kernel {
    /// A kernel whose code can be executed.
    ///
    /// # Errors
    /// If the system has no memory for code.
    fn new(compiled: &Compiled, sites: Arc<[Site]>) -> Result<Self> {
        Ok(Self {
            name: compiled.name.clone(),
            code: CodeMemory::new(&compiled.code)?,
            bindings: compiled.bindings.clone(),
            tables: compiled.tables.clone(),
            workgroup_bytes: compiled.workgroup_bytes,
            frame_bytes: compiled.frame_bytes,
            polls: compiled.polls,
            waits: compiled.waits,
            lanes: compiled.lanes,
            cost: compiled.cost,
            workgroup_size: compiled.workgroup_size,
            sites,
        })
    }

    /// Where the code lies.
    pub(crate) fn code(&self) -> std::ops::Range<usize> {
        self.code.range()
    }

    /// The code of the kernel.
    pub(crate) fn function(&self) -> KernelFn {
        // SAFETY: `code` begins with a function compiled by this build (`store` takes over no other) with the signature
        // of `KernelFn` and the calling convention of the machine, and stays mapped as long as `self` lives. `KernelFn`
        // is unsafe to call.
        unsafe { std::mem::transmute::<*const u8, KernelFn>(self.code.address()) }
    }
}

/// Values of pipeline-overridable constants, by name or id.
pub(crate) type Constants = naga::back::PipelineConstants;

/// Compiles an entry point, or finds the kernel compiled from the same program. A store that `keeps` has the kernel
/// from then on.
///
/// # Errors
/// If there is no such compute entry point, if constants do not fit, or if the kernel uses a feature missing from this
/// adapter.
pub(crate) fn compile(
    module: &naga::Module,
    info: &naga::valid::ModuleInfo,
    (entry, constants): (&str, &Constants),
    options: Options,
    (store, keeps): (&Store, bool),
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
    // Messages about sites belong to a single module.
    let key = (keeps && !options.instruments.any()).then(|| Key::of(&program, options));
    if let Some(compiled) = key.and_then(|key| store.get(key)) {
        return Kernel::new(&compiled, program.sites);
    }
    let program = passes::run(program)?;
    let compiled = Arc::new(generate(&program, options)?);
    let kernel = Kernel::new(&compiled, program.sites)?;
    store.put(key, &compiled);
    Ok(kernel)
}

fn generate(program: &ir::Program, options: Options) -> Result<Compiled> {
    let isa = target::isa()?;
    let emitted = emit::emit(program, options, &**isa)?;
    let mut context = Context::for_function(emitted.function);
    let compiled = context
        .compile(&**isa, &mut ControlPlane::default())
        .map_err(|error| internal(format!("{:?}", error.inner)))?;
    if let Some(relocation) = compiled.buffer.relocs().first() {
        return Err(internal(format!("code that needs {:?}", relocation.target)));
    }
    Ok(Compiled {
        name: program.name.clone(),
        code: compiled.code_buffer().to_vec(),
        bindings: program.bindings.values().copied().collect(),
        tables: emitted.tables,
        workgroup_bytes: program.workgroup_bytes.into(),
        frame_bytes: emitted.frame_bytes,
        polls: emitted.polls,
        waits: emitted.waits,
        lanes: emitted.lanes,
        workgroup_size: program.workgroup_size,
        cost: passes::trips::cost(program).saturating_mul(program.invocations().into()),
    })
}
