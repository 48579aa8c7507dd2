//! From a program to a module that wgpu can take: specialization, passes, validation, reflection.

mod compiled;
mod still;
#[cfg(test)]
mod tests_still;
mod variant;

use std::sync::Arc;

use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};

use super::bindings::RuntimeBindings;
use super::calls::{group_turns, padding_lanes};
use super::constants::Constants;
use super::declared::SpecKey;
use super::diagnostic::Reporter;
use super::edit::EditedText;
use super::error::KernelError;
use super::globals::{GlobalTable, GlobalUse, Instance};
use super::heap_setup::HeapSetup;
use super::passes::globals::Member;
use super::passes::loop_guard::LoopGuard;
use super::passes::print::{self, PrintFacts};
use super::passes::spill::{self, SpillError, SpillFacts};
use super::passes::{self, extrema, folding, loop_guard, nesting, turns};
use super::private_memory::scratch_too_large;
use super::program::Program;
use super::reflect::Interface;
use super::report::{Places, report, sites};
use super::specialize::{Environment, Specialized, specialize_in};
use super::text_limits::Excess;
use crate::device::spill_policy::SpillPolicy;
use crate::device::unique_id;
pub(crate) use compiled::{Code, Compiled, GlobalsBinding, KernelGlobals};
pub(crate) use variant::{Variant, lower};

/// The inputs of a module, beside the source and the values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CompileOptions {
    /// Bits of naga's capabilities, which have no hash of their own.
    pub(crate) capabilities: u64,
    pub(crate) private_limit: u32,
    pub(crate) spill: SpillPolicy,
    /// The most bytes of scratch memory for spilled arrays.
    pub(crate) scratch_bytes: u64,
    /// Loop iterations after which the adapter may end loops; `None`: never.
    pub(crate) loop_budget: Option<u32>,
    /// How deep control flow may be; `None`: unlimited but by the text.
    pub(crate) nesting: Option<u32>,
    /// The driver's `atomicMin` and `atomicMax` are no single steps.
    pub(crate) splits_extrema: bool,
    /// The driver's compiler gets some operations on values that it knows wrong.
    pub(crate) folds_wrongly: bool,
    /// Work-group size for kernels without a size of their own.
    pub(crate) auto_workgroup: u32,
    pub(crate) heap: HeapSetup,
}

impl CompileOptions {
    fn capabilities(&self) -> Capabilities {
        Capabilities::from_bits_truncate(self.capabilities)
    }

    fn environment(&self) -> Environment<'_> {
        Environment {
            auto_workgroup: Some(self.auto_workgroup),
            capabilities: self.capabilities(),
            private_limit: u64::from(self.private_limit),
            spill: self.spill,
            nesting: self.nesting,
            heap: &self.heap,
        }
    }
}

/// Equal keys give equal modules.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ModuleKey {
    pub(crate) name: Arc<str>,
    pub(crate) source: Arc<str>,
    pub(crate) global_prefix: Arc<str>,
    pub(crate) entry: Arc<str>,
    pub(crate) values: SpecKey,
    pub(crate) options: CompileOptions,
}

/// The largest alignment that WebGPU allows an adapter to ask of a binding's offset.
const BINDABLE: u32 = 256;

/// Bindings for the pool, the table and the faults of a kernel that follows pointers into lent memory.
const SYSTEM_BINDINGS: u32 = 3;

/// The specialized module, and the instances of its device globals.
fn specialized(
    program: &Program,
    entry: &str,
    constants: &Constants,
    options: &CompileOptions,
    names: &GlobalTable,
) -> Result<(Specialized, Vec<Arc<Instance>>), KernelError> {
    let mut instances = Vec::new();
    let mut place = |uses: &[GlobalUse]| {
        let found = names.resolve(&program.identity(), uses);
        instances = found.map_err(|conflict| KernelError::Global {
            program: program.name().into(),
            conflict: Box::new(conflict),
        })?;
        Ok(instances
            .windows(2)
            .any(|pair| pair[0].chunk != pair[1].chunk))
    };
    let special = specialize_in(program, entry, constants, options.environment(), &mut place)?;
    Ok((special, instances))
}

/// Runs the pipeline from text to a validated module.
pub(crate) fn compile(
    program: &Program,
    entry: &str,
    constants: &Constants,
    options: &CompileOptions,
    names: &GlobalTable,
) -> Result<Compiled, KernelError> {
    let (special, instances) = specialized(program, entry, constants, options, names)?;
    let Specialized {
        mut module,
        entry: mut index,
        text,
        values,
        private_arrays,
        spill: threshold,
        bindings,
        pointers,
        prints,
        span_sites,
        interface,
        table,
        tabled_globals,
        calls: call_use,
    } = special;
    let calls = program.inner.calls.as_ref().filter(|_| call_use.calls);
    let calls = calls.map(|calls| calls.called.clone());
    let mut globals = KernelGlobals::of(instances, &interface);
    if let Some(globals) = globals.as_mut().filter(|_| !tabled_globals) {
        let lowered = lower_globals(&mut module, index, &interface, globals, bindings.globals());
        index = 0;
        revalidate(&module, options.capabilities(), program, entry)?;
        globals.binding = Some(lowered);
    }
    let mut spill = None;
    if let Some(threshold) = threshold {
        let scratch = (bindings.scratch(), options.scratch_bytes);
        let reporter = program.inner.reporter(&text);
        let spilled = spill_arrays(&mut module, index, threshold, scratch, &reporter);
        index = 0;
        spill = Some(spilled.map_err(|error| error.unwrap_or_else(|| untyped(program, entry)))?);
        revalidate(&module, options.capabilities(), program, entry)?;
    }
    let has_calls = call_use.calls;
    let added = instrument(&mut module, index, options, &prints, has_calls, &bindings);
    if added.changed {
        revalidate(&module, options.capabilities(), program, entry)?;
    }
    check_shape(&module, index, options.nesting, program, &text)?;
    let guarded = added.guard.is_some();
    let system = pointers.as_ref().is_some_and(|facts| facts.system);
    let follows = pointers.as_ref().filter(|_| !system);
    let heap = follows.map(|facts| still::heap(&mut module, facts, &options.heap, &bindings));
    let checked = pointers.filter(|facts| !facts.sites.is_empty());
    // Also where nothing is followed: the variables for checks are there as soon as checks are possible.
    let status = Some(bindings.status());
    let has_status = (module.global_variables.iter()).any(|(_, v)| v.binding == status);
    let places = Arc::new(Places {
        kernel: entry.to_string(),
        files: program.inner.files.clone(),
        text,
    });
    let prints = (program.inner.prints.as_ref().zip(prints))
        .map(|(prints, facts)| Arc::new(sites(&places, prints, facts)));
    let reports = guarded || checked.is_some() || has_status || call_use.reports;
    let (at, called) = (Arc::clone(&places), calls.clone());
    let report = reports.then(|| report(at, added.guard, checked, called, span_sites));
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
        spill,
        guarded,
        report,
        #[cfg(embedded)]
        places: Some(places),
        prints,
        heap,
        system,
        system_bindings: system_bindings(system, options),
        table,
        globals,
        calls,
        waits: call_use.waits,
        packs: call_use.packs,
        counts_turns: added.counts_turns,
        splits_ports: call_use.calls && options.heap.splits_ports,
        backs_off: call_use.backs_off,
        bindings,
    })
}

fn untyped(program: &Program, entry: &str) -> KernelError {
    additions_invalid(program, entry, "it has no types")
}

/// How many bindings a kernel has for lent memory, if it follows pointers there.
fn system_bindings(system: bool, options: &CompileOptions) -> u32 {
    match (system, options.heap.live_pages) {
        (false, _) => 0,
        (true, false) => SYSTEM_BINDINGS,
        (true, true) => SYSTEM_BINDINGS + 1 + u32::from(options.heap.has_loop_budget),
    }
}

/// Moves arrays beyond `threshold` bytes to scratch memory: its binding, and the bytes that there may be. The error is `None` for a
/// module that the pass cannot read.
fn spill_arrays(
    module: &mut naga::Module,
    entry: usize,
    threshold: u32,
    scratch: (naga::ResourceBinding, u64),
    reporter: &Reporter<'_>,
) -> Result<SpillFacts, Option<KernelError>> {
    let (binding, limit) = scratch;
    spill::run(module, entry, threshold, binding, limit).map_err(|error| match error {
        SpillError::TooLarge {
            bytes,
            limit,
            largest,
        } => Some(scratch_too_large(reporter, *largest, bytes, limit)),
        SpillError::Invalid => None,
    })
}

/// Has the entry point, which becomes the only one, reach its device globals through a common binding of their chunk.
fn lower_globals(
    module: &mut naga::Module,
    entry: usize,
    interface: &Interface,
    globals: &KernelGlobals,
    binding: naga::ResourceBinding,
) -> GlobalsBinding {
    let instances = globals.instances.iter().map(|(instance, _)| instance);
    let offsets = instances.clone().map(|instance| instance.offset);
    let start = offsets.min().unwrap_or(0) / BINDABLE * BINDABLE;
    let members: Vec<Member> = (interface.globals.iter())
        .zip(instances.clone())
        .map(|(one, instance)| Member {
            number: one.number,
            offset: instance.offset - start,
        })
        .collect();
    GlobalsBinding {
        chunk: instances.clone().next().map_or(0, |first| first.chunk),
        start,
        bytes: passes::globals::lower(module, entry, &members, binding),
        writable: interface.globals.iter().any(|one| one.writable),
    }
}

/// The runtime's additions to a module beside the lowering of its variables.
struct Instrumented {
    /// The loop guard, and its budget.
    guard: Option<(LoopGuard, u32)>,
    counts_turns: bool,
    /// Anything was added, so the module has to be validated again.
    changed: bool,
}

/// Adds the run-time parts for prints, calls and loops of the entry point, and makes up for what the driver does wrong.
fn instrument(
    module: &mut naga::Module,
    entry: usize,
    options: &CompileOptions,
    prints: &Option<PrintFacts>,
    calls: bool,
    bindings: &RuntimeBindings,
) -> Instrumented {
    if let Some(facts) = prints {
        print::begin(module, entry, facts);
    }
    // Devices with such lanes have neither such barriers nor turns to spare.
    let has_padding = !options.heap.barriers && options.heap.has_loop_budget;
    let waits = calls || options.heap.live_pages;
    let dismissed = waits && has_padding && padding_lanes::dismiss(module, entry);
    let shares_turns = waits && options.heap.has_loop_budget && group_turns::share(module, entry);
    let counts_turns = turns::run(module, entry);
    let guard = options.loop_budget.and_then(|budget| {
        let guard = loop_guard::run(module, entry, budget, bindings.status())?;
        Some((guard, budget))
    });
    let rewritten = options.splits_extrema && extrema::run(module);
    let spelled = options.folds_wrongly && folding::run(module);
    let any_other = dismissed || shares_turns || counts_turns || rewritten || spelled;
    Instrumented {
        changed: guard.is_some() || prints.is_some() || any_other,
        guard,
        counts_turns,
    }
}

/// The most expressions and statements for a driver's compiler: a module of this size takes minutes.
const MOST_UNFOLDED: u64 = 1 << 21;

/// Checks the module from a compiler's point of view: the depth, and the length with functions inlined.
fn check_shape(
    module: &naga::Module,
    entry: usize,
    limit: Option<u32>,
    program: &Program,
    text: &EditedText,
) -> Result<(), KernelError> {
    let Some(point) = module.entry_points.get(entry) else {
        return Ok(());
    };
    let reporter = program.inner.reporter(text);
    let size = nesting::unfolded(module, &point.function);
    if size > MOST_UNFOLDED {
        return Err(reporter.excess(Excess {
            what: "expressions and statements, with each function as often as it is called",
            found: size,
            limit: MOST_UNFOLDED,
            place: None,
            instead: "call functions in loops, or make kernels of the parts",
        }));
    }
    let found = nesting::nesting(module, &point.function);
    match limit.map(u64::from) {
        Some(limit) if found.depth as u64 > limit => Err(reporter.excess(Excess {
            what: "branches inside each other",
            found: found.depth as u64,
            limit,
            place: found.place.to_range(),
            instead: "this device's compiler runs both sides of what is deeper. All that follows a branch with a \
                      `return`, `break` or `continue` is inside it, each case of a `switch` is inside the one before, \
                      and functions count where they are called: look values up in an array, make several `switch` \
                      of one, or kernels of the parts",
        })),
        _ => Ok(()),
    }
}

/// Checks a module that passes have changed. The module was valid before, so an error here is ours, and is reported as
/// ours rather than handed to the driver.
fn revalidate(
    module: &naga::Module,
    capabilities: Capabilities,
    program: &Program,
    entry: &str,
) -> Result<ModuleInfo, KernelError> {
    Validator::new(ValidationFlags::all(), capabilities)
        .validate(module)
        .map_err(|error| {
            let causes = super::diagnostic::causes(error.as_inner());
            additions_invalid(program, entry, &causes.join(": "))
        })
}

fn additions_invalid(program: &Program, entry: &str, why: &str) -> KernelError {
    KernelError::Pipeline {
        program: program.name().to_string(),
        entry: entry.to_string(),
        message: format!("the runtime's additions made the module invalid: {why}"),
    }
}
