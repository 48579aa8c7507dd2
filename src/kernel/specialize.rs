//! Specialization: a program, an entry point and values for its constants become a module without overrides, validated
//! for the features of the device, with its private memory counted and checked.

mod entry;

use std::sync::Arc;

use naga::back::pipeline_constants::{PipelineConstantError, process_overrides};
use naga::front::wgsl::{Frontend, Options};
use naga::valid::{Capabilities, ModuleInfo};
use naga::{Module, ShaderStage};

use super::atomics64;
use super::bindings::RuntimeBindings;
use super::calls::bind::{self, CallUse};
use super::constants::{ConstantInfo, ConstantValue, Constants};
use super::declarations::DeclarationKind;
use super::diagnostic::Reporter;
use super::edit::EditedText;
use super::error::KernelError;
use super::evaluate::{known, validator};
use super::globals::GlobalUse;
use super::heap_setup::HeapSetup;
use super::passes::globals;
use super::passes::pointers::PointerFacts;
use super::passes::print::PrintFacts;
use super::passes::span_checks;
use super::passes::spill;
use super::private_array::PrivateArrayInfo;
use super::private_memory::Sizes;
use super::program::{Inner, Program, lower_spans, mark_globals};
use super::reflect::Interface;
use super::server;
use super::text_limits::check_types;
use crate::device::spill_policy::SpillPolicy;
use entry::missing_names;

/// A specialized kernel.
#[derive(Debug)]
pub(crate) struct Specialized {
    /// Without overrides. Valid for the capabilities asked for.
    pub module: Module,
    /// Index of the entry point in the module.
    pub entry: usize,
    /// The text that was compiled, and the way back to the user's.
    pub text: EditedText,
    /// The constants of the program with a value in this specialization.
    pub values: Vec<(ConstantInfo, ConstantValue)>,
    /// Variables whose size was chosen at run time, and those with `@align`.
    pub private_arrays: Vec<PrivateArrayInfo>,
    /// Variables with arrays are spilled from so many bytes on, if any are.
    pub spill: Option<u32>,
    /// Where the runtime's own variables go.
    pub bindings: RuntimeBindings,
    /// The facts of the pointer pass, if the kernel reaches the heap.
    pub pointers: Option<PointerFacts>,
    /// The facts of the print pass, if the kernel prints.
    pub prints: Option<PrintFacts>,
    /// The places where indices of spans are checked.
    pub span_sites: Vec<naga::Span>,
    /// The kernel's demands on a launch.
    pub interface: Interface,
    /// The arguments, by index, reached through the heap for want of bindings.
    pub table: Vec<usize>,
    /// The kernel reaches its device globals through the heap, too.
    pub tabled_globals: bool,
    /// The use of functions of the host.
    pub calls: CallUse,
}

/// Specializes the entry point `entry` of `program`. `auto_workgroup` is the value for an override without default as
/// the only size of a one-dimensional work-group, if not set by the caller; `capabilities` are those of the device;
/// `private_limit` is the most bytes of an invocation's private arrays.
///
/// # Errors
/// Every [`KernelError`].
pub(crate) fn specialize(
    program: &Program,
    entry: &str,
    constants: &Constants,
    auto_workgroup: Option<u32>,
    capabilities: Capabilities,
    private_limit: u64,
    heap: &HeapSetup,
) -> Result<Specialized, KernelError> {
    let environment = Environment {
        auto_workgroup,
        capabilities,
        private_limit,
        spill: SpillPolicy::Never,
        nesting: None,
        heap,
    };
    specialize_in(program, entry, constants, environment, &mut |_| Ok(false))
}

/// The inputs of a specialization beside the program and the values.
#[derive(Clone, Copy)]
pub(crate) struct Environment<'a> {
    pub auto_workgroup: Option<u32>,
    pub capabilities: Capabilities,
    pub private_limit: u64,
    pub spill: SpillPolicy,
    /// How deep the device lets control flow be.
    pub nesting: Option<u32>,
    pub heap: &'a HeapSetup,
}

/// As [`specialize`]; `place` gives the kernel's device globals their places, and says whether the places are too far
/// apart for a single binding.
///
/// # Errors
/// Every [`KernelError`].
pub(crate) fn specialize_in(
    program: &Program,
    entry: &str,
    constants: &Constants,
    environment: Environment<'_>,
    place: &mut dyn FnMut(&[GlobalUse]) -> Result<bool, KernelError>,
) -> Result<Specialized, KernelError> {
    let inner = &*program.inner;
    let declarations = &inner.analysis.declarations;
    let found = (declarations.iter()).position(|d| d.entry.is_some() && d.name == entry);
    let Some(declaration) = found else {
        return Err(KernelError::UnknownEntryPoint {
            program: inner.name.clone(),
            wanted: entry.to_owned(),
            available: program.entry_points().to_vec(),
        });
    };
    let calls = inner.calls.as_ref();
    if let Some((function, why)) = calls.and_then(|calls| calls.refusal(environment.capabilities)) {
        return Err(KernelError::HostCall {
            program: inner.name.clone(),
            function,
            why,
        });
    }
    let mut values = inner.set_values(constants)?;
    inner.choose_workgroup(declaration, environment.auto_workgroup, &mut values);
    inner.size_values(entry, declaration, &mut values)?;

    // The user's own text unchanged, without conventions. Otherwise declarations not used by the entry point are left
    // out: their sizes may have no value, or a value without sense for them.
    let kept = inner.kept(declaration);
    let text = match inner.module {
        Some(_) => EditedText::unchanged(Arc::clone(&inner.source)),
        None => inner.assemble(|i| kept.get(i) == Some(&true), |i| values.sizing(i)),
    };
    let reporter = Reporter {
        files: &inner.files,
        text: &text,
    };
    let work = Work {
        inner,
        entry,
        declaration,
        environment,
        sizes: Sizes {
            inner,
            kept: &kept,
            values: &values,
            reporter,
            limit: environment.private_limit,
            spill: environment.spill,
        },
    };
    work.sizes.check_lengths()?;
    let (module, span_sites) = work.parse()?;
    let completed = work.complete(module)?;
    let (bindings, prints) = (completed.bindings.clone(), completed.prints.clone());
    let lowered = work.lower(completed, place)?;
    Ok(Specialized {
        entry: lowered.entry,
        values: inner.report(&values),
        module: lowered.module,
        private_arrays: lowered.private_arrays,
        spill: lowered.spill,
        bindings,
        pointers: lowered.pointers,
        prints,
        span_sites,
        interface: lowered.interface,
        table: lowered.table,
        tabled_globals: lowered.tabled_globals,
        calls: lowered.calls,
        text,
    })
}

/// A specialization under way.
struct Work<'a> {
    inner: &'a Inner,
    entry: &'a str,
    /// The declaration of the entry point.
    declaration: usize,
    environment: Environment<'a>,
    sizes: Sizes<'a>,
}

/// A module with the runtime's declarations, as naga parsed it otherwise.
struct Completed {
    module: Module,
    bindings: RuntimeBindings,
    prints: Option<PrintFacts>,
    /// The device globals of the kernel.
    uses: Vec<GlobalUse>,
}

/// A module without overrides and pointers.
struct Lowered {
    module: Module,
    entry: usize,
    private_arrays: Vec<PrivateArrayInfo>,
    spill: Option<u32>,
    pointers: Option<PointerFacts>,
    interface: Interface,
    table: Vec<usize>,
    tabled_globals: bool,
    calls: CallUse,
}

impl Work<'_> {
    /// Whether the text enables extensions, which depend on the device.
    fn enables(&self) -> bool {
        let mut declarations = self.inner.analysis.declarations.iter();
        declarations.any(|d| d.kind == DeclarationKind::Directive)
    }

    /// The module, and the places where indices of spans are checked.
    fn parse(&self) -> Result<(Module, Vec<naga::Span>), KernelError> {
        let reporter = self.sizes.reporter;
        let mut module = match &self.inner.module {
            Some(module) if !self.enables() => module.clone(),
            _ => Frontend::new_with_options(Options {
                parse_doc_comments: false,
                capabilities: self.environment.capabilities,
            })
            .parse(reporter.text.text())
            .map_err(|e| self.sizes.parse_error(&e))?,
        };
        super::work::count(reporter.text.text().len());
        check_types(&module).map_err(|excess| reporter.excess(excess))?;
        let sites = lower_spans(&mut module, reporter, self.environment.heap.checked)?;
        Ok((module, sites))
    }

    /// Adds what calls, servers, prints and device globals need.
    fn complete(&self, mut module: Module) -> Result<Completed, KernelError> {
        let (inner, reporter) = (self.inner, self.sizes.reporter);
        let Environment {
            capabilities,
            nesting,
            heap,
            ..
        } = self.environment;
        let bindings = RuntimeBindings::of(&module, heap.max_bind_groups);
        if inner.calls.is_some() {
            bind::complete(
                &mut module,
                &bindings,
                bind::Traits {
                    barrier: heap.barriers,
                    ordered: heap.orders_calls,
                    has_loop_budget: heap.has_loop_budget,
                    split: heap.splits_ports,
                    packs: heap.packs_calls,
                },
            );
        }
        if let Some(status) = bind::named(&module, span_checks::STATUS) {
            module.global_variables[status].binding = Some(bindings.status());
        }
        server::complete(&mut module, heap.barriers);
        let point = compute_entry(&module, self.entry);
        let prints = inner.lower_prints(
            &mut module,
            point,
            &bindings,
            capabilities,
            nesting,
            reporter,
        )?;
        if inner.module.is_none() || self.enables() {
            // A variable left without a binding is the user's.
            mark_globals(&mut module, reporter)?;
        }
        let point = compute_entry(&module, self.entry);
        let uses = point.map_or_else(Vec::new, |index| inner.global_uses(&module, index));
        Ok(Completed {
            module,
            bindings,
            prints,
            uses,
        })
    }

    /// Gives the overrides their values; with the index of the entry point.
    fn finish(&self, module: &Module) -> Result<(Module, ModuleInfo, usize), KernelError> {
        let (inner, entry, reporter) = (self.inner, self.entry, self.sizes.reporter);
        let info = self.validate(module)?;
        let pipeline = known(module, &self.sizes.values.pipeline);
        let stage = Some((ShaderStage::Compute, entry));
        let (module, info) = match process_overrides(module, &info, stage, &pipeline) {
            Ok((module, info)) => (module.into_owned(), info.into_owned()),
            Err(PipelineConstantError::MissingValue(_)) => {
                return Err(inner.missing(entry, &missing_names(module, entry, &pipeline)));
            }
            Err(error) => return Err(inner.pipeline_error(reporter, self.declaration, &error)),
        };
        let Some(index) = compute_entry(&module, entry) else {
            // The scan found a function with `@compute`, but naga no such entry point.
            let message = format!("`{entry}` is no compute entry point");
            let place = inner.place(self.declaration, "declared here");
            let error = reporter.at(message, place, Vec::new());
            return Err(KernelError::Validation(error));
        };
        Ok((module, info, index))
    }

    fn validate(&self, module: &Module) -> Result<ModuleInfo, KernelError> {
        let info = validator(self.environment.capabilities).validate(module);
        info.map_err(|e| KernelError::Validation(self.sizes.reporter.validation_error(&e)))
    }

    /// Lowers pointers and overrides, and finds what the kernel asks of a launch.
    fn lower(
        &self,
        completed: Completed,
        place: &mut dyn FnMut(&[GlobalUse]) -> Result<bool, KernelError>,
    ) -> Result<Lowered, KernelError> {
        let Completed {
            mut module,
            bindings,
            prints,
            uses,
        } = completed;
        let (capabilities, reporter) = (self.environment.capabilities, self.sizes.reporter);
        atomics64::check(&module, self.entry, capabilities).map_err(|lack| {
            let operation = lack.operation.clone();
            KernelError::Atomics64 {
                program: self.inner.name.clone(),
                entry: self.entry.to_owned(),
                operation,
                diagnostic: lack.told(self.entry, reporter),
            }
        })?;
        let mut heap = self.environment.heap.clone();
        if prints.is_some() {
            // Prints take a binding of their own.
            heap.storage_bindings = heap.storage_bindings.map(|limit| limit.saturating_sub(1));
        }
        // As parsed, for programs following pointers: the interface is only known after lowering, and so is everything
        // derived from the interface.
        let parsed = match self.inner.has_stubs() {
            true => compute_entry(&module, self.entry).map(|index| (module.clone(), index)),
            false => None,
        };
        let (mut pointers, mut passed) = (None, Vec::new());
        if let Some((parsed, index)) = &parsed {
            passed = HeapSetup::passed(parsed, *index);
            let rows = passed.clone();
            pointers = heap.lower(&mut module, *index, rows, &bindings, capabilities, reporter)?;
        }
        let (module, info, index) = self.finish(&module)?;
        let calls = match self.inner.calls {
            Some(_) => bind::uses(&module, &info, index),
            None => CallUse::default(),
        };
        let Environment {
            spill: policy,
            private_limit,
            ..
        } = self.environment;
        let spill = spill::threshold(&module, index, policy, private_limit);
        if spill.is_some() {
            // Scratch memory takes a binding of its own.
            heap.storage_bindings = heap.storage_bindings.map(|limit| limit.saturating_sub(1));
        }
        let mut lowered = Lowered {
            private_arrays: self.sizes.measure(&module, index, spill)?,
            spill,
            interface: Interface::of(&module, &info, index, |binding| bindings.owns(binding)),
            entry: index,
            table: Vec::new(),
            tabled_globals: false,
            module,
            pointers: None,
            calls,
        };
        let scattered = match uses.as_slice() {
            [] => false,
            uses => place(uses)?,
        };
        lowered.interface.globals = uses;
        if let (Some((mut parsed, at)), true) = (parsed, pointers.is_some()) {
            let interface = &mut lowered.interface;
            interface.add(&parsed, passed.iter().map(|row| row.variable));
            lowered.table = heap.beside_pointers(&parsed, interface, &passed);
            let rows = heap.rows(interface, &lowered.table);
            if rows != passed {
                match heap.lower(&mut parsed, at, rows, &bindings, capabilities, reporter) {
                    Ok(facts) => {
                        pointers = facts;
                        (lowered.module, _, lowered.entry) = self.finish(&parsed)?;
                    }
                    // Arguments not reachable in this way are reported as the exceeded limit.
                    Err(_) if heap.beside.is_empty() => {
                        lowered.table = HeapSetup::in_rows(&lowered.interface, &passed);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        lowered.pointers = pointers;
        self.tabulate(lowered, &heap, &bindings, scattered)
    }

    /// Puts arguments and globals without a binding into the table, where the kernel follows no pointers.
    fn tabulate(
        &self,
        mut lowered: Lowered,
        heap: &HeapSetup,
        bindings: &RuntimeBindings,
        scattered: bool,
    ) -> Result<Lowered, KernelError> {
        let (module, interface) = (&mut lowered.module, &lowered.interface);
        if lowered.pointers.is_none()
            && let Some((moved, facts)) = heap.tabulate(
                module,
                lowered.entry,
                interface,
                bindings,
                self.environment.capabilities,
                scattered,
            )
        {
            self.validate(module)?;
            lowered.entry = facts.entry;
            (lowered.table, lowered.pointers) = (moved, Some(facts));
        }
        let has_globals = !interface.globals.is_empty();
        let is_system = (lowered.pointers.as_ref()).is_some_and(|facts| facts.system);
        lowered.tabled_globals = lowered.pointers.is_some() && has_globals && !is_system;
        if lowered.tabled_globals || !has_globals {
            lowered.entry = globals::discard(&mut lowered.module, lowered.entry);
        }
        if scattered && !lowered.tabled_globals {
            return Err(KernelError::FeatureNotSupported {
                program: self.inner.name.clone(),
                what: "device globals in several parts of memory".into(),
                why: "this kernel names globals that were made at different times, and its types cannot be reached \
                      through the heap; declare them together, before they are used one by one"
                    .into(),
            });
        }
        Ok(lowered)
    }
}

fn compute_entry(module: &Module, name: &str) -> Option<usize> {
    let mut points = module.entry_points.iter();
    points.position(|e| e.stage == ShaderStage::Compute && e.name == name)
}

#[cfg(test)]
mod tests;
