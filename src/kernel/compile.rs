//! From a program to a module that wgpu can take: specialization, passes, validation, reflection.

use std::sync::Arc;

use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};

use super::bindings::RuntimeBindings;
use super::calls::{CallSet, group_turns, padding_lanes};
use super::constants::{ConstantInfo, ConstantValue, Constants};
use super::declared::SpecKey;
use super::diagnostic::Reporter;
use super::edit::EditedText;
use super::error::KernelError;
use super::globals::{GlobalTable, GlobalUse, Instance};
use super::heap_setup::HeapSetup;
use super::passes::globals::Member;
use super::passes::loop_guard::LoopGuard;
use super::passes::pointers::PointerFacts;
use super::passes::print::{self, PrintFacts};
use super::passes::spill::{self, SpillError, SpillFacts, SpillPolicy};
use super::passes::{self, grid, loop_guard, nesting, turns};
use super::private_array::PrivateArrayInfo;
use super::private_memory::scratch_too_large;
use super::program::Program;
use super::reflect::Interface;
use super::report::{Places, Report, report, sites};
use super::specialize::{Environment, Specialized, specialize_in};
use super::text_limits::Excess;
use crate::device::unique_id;
use crate::print::record::Sites;

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

/// A specialized, validated module, ready for wgpu.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) id: u64,
    pub(crate) program: Arc<str>,
    pub(crate) interface: Interface,
    pub(crate) code: Code,
    pub(crate) constants: Vec<(ConstantInfo, ConstantValue)>,
    pub(crate) private_arrays: Vec<PrivateArrayInfo>,
    /// The scratch memory of the arrays that were spilled, if any.
    pub(crate) spill: Option<SpillFacts>,
    /// The kernel carries checks for loops that the adapter might cut short.
    pub(crate) guarded: bool,
    /// The kernel's failure report, if any.
    pub(crate) report: Option<Report>,
    /// The text of the kernel; `None` for a module compiled elsewhere.
    #[cfg(embedded)]
    pub(crate) places: Option<Arc<Places>>,
    /// The prints of the kernel, if any.
    pub(crate) prints: Option<Arc<Sites>>,
    /// The kernel follows pointers through this many segments of the heap; with checks if `checked`.
    pub(crate) heap: Option<HeapUse>,
    /// The kernel follows pointers into memory that is lent to launches.
    pub(crate) system: bool,
    /// Bindings of such a kernel: pool, table and faults; places, where it waits for pages that are missing; and memory that
    /// is read for delays.
    pub(crate) system_bindings: u32,
    /// The arguments, by ascending index, reached through the argument table: for want of bindings, or because the
    /// argument lies in the heap, which the kernel reaches anyway, or because the kernel passes pointers to the
    /// argument.
    pub(crate) table: Vec<usize>,
    /// The device globals that the kernel uses.
    pub(crate) globals: Option<KernelGlobals>,
    /// The functions of the host that the program calls, if the kernel calls any.
    pub(crate) calls: Option<CallSet>,
    /// The kernel waits for answers during the launch.
    pub(crate) waits: bool,
    /// Whole work-groups call, in packets of several calls.
    pub(crate) packs: bool,
    /// Functions that a server hands calls to have loops.
    pub(crate) counts_turns: bool,
    /// Posts have memory of their own.
    pub(crate) splits_ports: bool,
    /// The kernel reads memory for delays while waiting for answers.
    pub(crate) backs_off: bool,
    /// Where the runtime's own variables go.
    pub(crate) bindings: RuntimeBindings,
}

/// The device globals of a kernel, and their binding.
#[derive(Debug)]
pub(crate) struct KernelGlobals {
    /// Each with a flag for writing by the kernel.
    pub(crate) instances: Vec<(Arc<Instance>, bool)>,
    /// The common binding of the globals; `None` for rows of the argument table, behind the arguments.
    pub(crate) binding: Option<GlobalsBinding>,
}

impl KernelGlobals {
    /// The `instances` that the device globals of an interface are, if there are any; without a binding.
    fn of(instances: Vec<Arc<Instance>>, interface: &Interface) -> Option<Self> {
        let writable = interface.globals.iter().map(|one| one.writable);
        (!instances.is_empty()).then(|| Self {
            instances: instances.into_iter().zip(writable).collect(),
            binding: None,
        })
    }
}

/// The binding of a kernel's device globals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GlobalsBinding {
    pub(crate) chunk: usize,
    /// The start in the chunk.
    pub(crate) start: u32,
    /// Its bytes.
    pub(crate) bytes: u32,
    pub(crate) writable: bool,
}

impl Compiled {
    /// The binding of the kernel's device globals, if any.
    pub(crate) fn globals_binding(&self) -> Option<GlobalsBinding> {
        self.globals.as_ref()?.binding
    }

    /// Rows of the argument table.
    pub(crate) fn table_rows(&self) -> usize {
        let globals = self
            .globals
            .as_ref()
            .filter(|globals| globals.binding.is_none());
        self.table.len() + globals.map_or(0, |globals| globals.instances.len())
    }
}

/// The largest alignment that WebGPU allows an adapter to ask of a binding's offset.
const BINDABLE: u32 = 256;

/// The code for the device.
#[derive(Debug)]
pub(crate) enum Code {
    /// A module validated here, and the index of its entry point.
    Naga {
        module: Box<naga::Module>,
        entry: usize,
    },
    /// A module compiled elsewhere.
    SpirV(Vec<u32>),
}

/// The bindings for a kernel that follows pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeapUse {
    pub(crate) segments: u32,
    /// Segments of the device's own memory, bound behind those of the heap.
    pub(crate) device_segments: u32,
    /// The heap begins where the low word of an address is zero.
    pub(crate) window_aligned: bool,
    /// The kernel reads where the heap lies ([`HeapInfo`](super::passes::pointers::HeapInfo)).
    pub(crate) reads_info: bool,
    /// Parts of the allocation table, bound behind the segments, and then that of the device's own memory.
    pub(crate) tables: (u32, bool),
    /// The kernel follows pointers; if not, only its arguments have to lie in the heap's bindings.
    pub(crate) follows: bool,
}

/// Bindings for the pool, the table and the faults of a kernel that follows pointers into lent memory.
const SYSTEM_BINDINGS: u32 = 3;

impl HeapUse {
    fn of(facts: &PointerFacts, heap: &HeapSetup) -> Self {
        Self {
            segments: heap.segments,
            device_segments: heap.device_segments,
            window_aligned: heap.window_aligned,
            reads_info: facts.reads_info,
            tables: facts.tables,
            follows: facts.follows,
        }
    }
}

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
    let heap = follows.map(|facts| HeapUse::of(facts, &options.heap));
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

/// Adds the run-time parts for prints, calls and loops of the entry point.
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
    Instrumented {
        changed: guard.is_some() || prints.is_some() || dismissed || shares_turns || counts_turns,
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

/// A form of a kernel that only some launches need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Variant {
    /// The built-in ids are those of a grid larger than a dispatch.
    pub(crate) tiled: bool,
    /// Arguments (by index) bound for writing although the kernel only reads them: a buffer has a single use in a
    /// dispatch, and another argument writes to other bytes of the same buffer.
    pub(crate) written: u64,
    /// The same for the device globals.
    pub(crate) globals_written: bool,
}

impl Variant {
    /// Whether an argument is among `written`; those beyond the 64th never are.
    pub(crate) fn writes(self, argument: usize) -> bool {
        argument < 64 && self.written >> argument & 1 == 1
    }
}

/// The module of a variant, and whether there are parameters of a tiled grid; `None` when the plain module serves.
pub(crate) fn lower(compiled: &Compiled, variant: Variant) -> Option<(naga::Module, bool)> {
    let Code::Naga { module, entry } = &compiled.code else {
        return None;
    };
    let mut module = naga::Module::clone(module);
    let arguments = compiled.interface.arguments.iter().enumerate();
    for (_, argument) in arguments.filter(|(index, _)| variant.writes(*index)) {
        for (_, global) in module.global_variables.iter_mut() {
            let place = naga::ResourceBinding {
                group: argument.group,
                binding: argument.binding,
            };
            if let naga::AddressSpace::Storage { access } = &mut global.space
                && global.binding == Some(place)
            {
                *access |= naga::StorageAccess::STORE;
            }
        }
    }
    let gridded = variant.tiled && grid::run(&mut module, *entry, compiled.bindings.grid());
    if variant.globals_written {
        let place = compiled.bindings.globals();
        for (_, global) in module.global_variables.iter_mut() {
            if let naga::AddressSpace::Storage { access } = &mut global.space
                && global.binding == Some(place)
            {
                *access |= naga::StorageAccess::STORE;
            }
        }
    }
    if let Some(facts) = &compiled.spill {
        spill::enter(&mut module, *entry, facts);
    }
    let changed =
        gridded || variant.written != 0 || variant.globals_written || compiled.spill.is_some();
    changed.then_some((module, gridded))
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
