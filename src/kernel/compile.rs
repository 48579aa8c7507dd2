//! From a program to a module that wgpu can take: specialization, passes, validation, reflection.

use std::sync::Arc;

use naga::ResourceBinding;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};

use super::constants::{ConstantInfo, ConstantValue, Constants};
use super::declared::SpecKey;
use super::diagnostic::line_and_column;
use super::error::KernelError;
use super::passes::{grid, loop_guard};
use super::private_array::PrivateArrayInfo;
use super::program::Program;
use super::reflect::Interface;
use super::specialize::{Specialized, specialize};
use crate::device::outcome::ExecutionError;
use crate::device::unique_id;

/// What, beside the source and the values, decides the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CompileOptions {
    /// Bits of naga's capabilities, which have no hash of their own.
    pub(crate) capabilities: u64,
    pub(crate) private_limit: u32,
    /// Loop iterations after which the adapter may end loops; `None`: never.
    pub(crate) loop_budget: Option<u32>,
    /// Work-group size for kernels that leave it to the runtime.
    pub(crate) auto_workgroup: u32,
    pub(crate) max_bind_groups: u32,
}

/// Equal keys give equal modules.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ModuleKey {
    pub(crate) name: Arc<str>,
    pub(crate) source: Arc<str>,
    pub(crate) entry: Arc<str>,
    pub(crate) values: SpecKey,
    pub(crate) options: CompileOptions,
}

/// A specialized, validated module, ready for wgpu.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) id: u64,
    pub(crate) program: Arc<str>,
    pub(crate) interface: Interface,
    pub(crate) code: Code,
    pub(crate) constants: Vec<(ConstantInfo, ConstantValue)>,
    pub(crate) private_arrays: Vec<PrivateArrayInfo>,
    pub(crate) guard: Option<Guard>,
    /// Where the parameters of a tiled grid go, in the tiled variant.
    pub(crate) grid_binding: ResourceBinding,
}

/// What the device gets.
#[derive(Debug)]
pub(crate) enum Code {
    /// A module that was validated here, and the index of its entry point.
    Naga {
        module: Box<naga::Module>,
        entry: usize,
    },
    /// A module that was compiled elsewhere.
    SpirV(Vec<u32>),
}

/// The loop guard of a kernel: where its status record is bound, and what its codes mean.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) binding: ResourceBinding,
    /// Turns the first word of a status record into the launch's verdict.
    pub(crate) decode: GuardDecoder,
}

#[derive(Clone)]
pub(crate) struct GuardDecoder(
    pub(crate) Arc<dyn Fn(u32) -> Result<(), ExecutionError> + Send + Sync>,
);

impl std::fmt::Debug for GuardDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GuardDecoder")
    }
}

/// Runs the pipeline from text to a validated module.
pub(crate) fn compile(
    program: &Program,
    entry: &str,
    constants: &Constants,
    options: &CompileOptions,
) -> Result<Compiled, KernelError> {
    let capabilities = Capabilities::from_bits_truncate(options.capabilities);
    let special = specialize(
        program,
        entry,
        constants,
        Some(options.auto_workgroup),
        capabilities,
        u64::from(options.private_limit),
    )?;
    let interface = Interface::of(&special.module, &special.info, special.entry);
    let (status, grid_binding) = free_bindings(&interface, options.max_bind_groups);
    let Specialized {
        mut module,
        entry: index,
        text,
        values,
        private_arrays,
        ..
    } = special;

    let guard = options.loop_budget.and_then(|budget| {
        let guard = loop_guard::run(&mut module, index, budget, status)?;
        let (kernel, file) = (entry.to_string(), program.name().to_string());
        let source: Arc<str> = Arc::clone(text.original());
        let text = text.clone();
        let decode = move |code: u32| match guard.site_for_code(code) {
            None if code == 0 => Ok(()),
            site => {
                let at = site
                    .and_then(|site| site.span.to_range())
                    .map_or(0, |range| text.to_original(range).start);
                let (line, column) = line_and_column(&source, at);
                let excerpt = source.lines().nth(line as usize - 1).unwrap_or_default();
                let excerpt = format!(
                    "{line:>5} | {excerpt}\n      | {}^",
                    " ".repeat(column as usize - 1)
                );
                Err(ExecutionError::LoopCut {
                    kernel: kernel.clone(),
                    file: file.clone(),
                    line,
                    column,
                    budget,
                    excerpt,
                })
            }
        };
        Some(Guard {
            binding: status,
            decode: GuardDecoder(Arc::new(decode)),
        })
    });
    if guard.is_some() {
        revalidate(&module, capabilities, program, entry)?;
    }
    Ok(Compiled {
        id: unique_id(),
        program: program.name().into(),
        interface,
        code: Code::Naga {
            module: Box::new(module),
            entry: index,
        },
        constants: values,
        private_arrays,
        guard,
        grid_binding,
    })
}

/// The variant of a module whose built-in ids are those of a grid larger than one dispatch; `None`
/// when the kernel looks at none of them and needs no variant.
pub(crate) fn tiled(compiled: &Compiled) -> Option<naga::Module> {
    let Code::Naga { module, entry } = &compiled.code else {
        return None;
    };
    let mut module = naga::Module::clone(module);
    grid::run(&mut module, *entry, compiled.grid_binding).then_some(module)
}

/// Checks a module that passes have changed. It was valid before them, so that an error here is ours;
/// it is reported as one rather than handed to the driver.
fn revalidate(
    module: &naga::Module,
    capabilities: Capabilities,
    program: &Program,
    entry: &str,
) -> Result<ModuleInfo, KernelError> {
    Validator::new(ValidationFlags::all(), capabilities)
        .validate(module)
        .map_err(|error| KernelError::Pipeline {
            program: program.name().to_string(),
            entry: entry.to_string(),
            message: format!(
                "the runtime's additions made the module invalid: {}",
                super::diagnostic::causes(error.as_inner()).join(": ")
            ),
        })
}

/// Bindings that the program does not use, for the runtime's own: a bind group of their own where
/// there is one, so that the program's groups stay as they are.
fn free_bindings(
    interface: &Interface,
    max_bind_groups: u32,
) -> (ResourceBinding, ResourceBinding) {
    let used = |group: u32| interface.arguments.iter().any(|a| a.group == group);
    let at = |group, binding| ResourceBinding { group, binding };
    match (0..max_bind_groups).find(|&group| !used(group)) {
        Some(group) => (at(group, 0), at(group, 1)),
        None => {
            let group = max_bind_groups.saturating_sub(1);
            let first = interface
                .arguments
                .iter()
                .filter(|a| a.group == group)
                .map(|a| a.binding + 1)
                .max()
                .unwrap_or(0);
            (at(group, first), at(group, first + 1))
        }
    }
}
