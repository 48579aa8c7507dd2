//! From a program to a module that wgpu can take: specialization, passes, validation, reflection.

use std::sync::Arc;

use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};

use super::bindings::RuntimeBindings;
use super::calls::{CallSet, padding_lanes};
use super::constants::{ConstantInfo, ConstantValue, Constants};
use super::declared::SpecKey;
use super::diagnostic::{Lines, Reporter};
use super::edit::EditedText;
use super::error::KernelError;
use super::globals::{GlobalTable, GlobalUse, Instance};
use super::heap_setup::HeapSetup;
use super::passes::globals::Member;
use super::passes::loop_guard::LoopGuard;
use super::passes::pointers::{FaultReason, PointerFacts};
use super::passes::print::{self, PrintFacts};
use super::passes::status::{CALL, LOOP_GUARD, POINTER};
use super::passes::{self, grid, loop_guard, nesting, turns};
use super::print::{Prints, TextSite};
use super::private_array::PrivateArrayInfo;
use super::program::Program;
use super::reflect::Interface;
use super::specialize::{Environment, Specialized, specialize_in};
use super::text_limits::Excess;
use crate::device::CallStatus;
use crate::device::outcome::ExecutionError;
use crate::device::queue::Decoder;
use crate::device::status::Record;
use crate::device::unique_id;
use crate::print::record::{Site, Sites};
use crate::print::value::ValueType;

/// What, beside the source and the values, decides the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CompileOptions {
    /// Bits of naga's capabilities, which have no hash of their own.
    pub(crate) capabilities: u64,
    pub(crate) private_limit: u32,
    /// Loop iterations after which the adapter may end loops; `None`: never.
    pub(crate) loop_budget: Option<u32>,
    /// How deep control flow may be; `None`: as deep as a text can make it.
    pub(crate) nesting: Option<u32>,
    /// Work-group size for kernels that leave it to the runtime.
    pub(crate) auto_workgroup: u32,
    pub(crate) heap: HeapSetup,
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
    /// The kernel carries checks for loops that the adapter might cut short.
    pub(crate) guarded: bool,
    /// How the kernel reports failures, if it can.
    pub(crate) report: Option<Report>,
    /// What the kernel prints, if it does.
    pub(crate) prints: Option<Arc<Sites>>,
    /// The kernel follows pointers through this many segments of the heap; with checks if `checked`.
    pub(crate) heap: Option<HeapUse>,
    /// The arguments, by ascending index, that the kernel reaches through the argument table: for want of bindings, or
    /// because they lie in the heap that it reaches anyway, or because it passes pointers to them.
    pub(crate) table: Vec<usize>,
    /// The device globals that the kernel uses.
    pub(crate) globals: Option<KernelGlobals>,
    /// The functions of the host that the program calls, if the kernel calls any.
    pub(crate) calls: Option<CallSet>,
    /// The kernel waits for their answers while it runs.
    pub(crate) waits: bool,
    /// Functions that a server hands calls to have loops.
    pub(crate) counts_turns: bool,
    /// What it posts has memory of its own.
    pub(crate) splits_ports: bool,
    /// It visits memory to let time go by while it waits for them.
    pub(crate) backs_off: bool,
    /// Where the runtime's own variables go.
    pub(crate) bindings: RuntimeBindings,
}

/// The device globals of a kernel, and how it reaches them.
#[derive(Debug)]
pub(crate) struct KernelGlobals {
    /// Each with whether the kernel may write it.
    pub(crate) instances: Vec<(Arc<Instance>, bool)>,
    /// The one binding that shows them; `None` where they are rows of the argument table, behind the arguments.
    pub(crate) binding: Option<GlobalsBinding>,
}

/// The binding of a kernel's device globals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GlobalsBinding {
    pub(crate) chunk: usize,
    /// Where it begins in the chunk.
    pub(crate) start: u32,
    /// Its bytes.
    pub(crate) bytes: u32,
    pub(crate) writable: bool,
}

impl Compiled {
    /// The binding of the kernel's device globals, if it has one.
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

/// What a kernel that follows pointers needs bound.
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
    /// The kernel follows pointers; if not, nothing but its arguments has to lie in what is bound for the heap.
    pub(crate) follows: bool,
}

/// Turns a status record into the launch's verdict.
#[derive(Clone)]
pub(crate) struct Report(pub(crate) Decoder);

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Report")
    }
}

/// The user's text, for places in it.
struct Places {
    kernel: String,
    file: String,
    text: EditedText,
    lines: Lines,
}

impl Places {
    /// Line, column and the line itself with a marker.
    fn of(&self, span: Option<naga::Span>) -> (u32, u32, String) {
        let at = span
            .and_then(naga::Span::to_range)
            .map_or(0, |range| self.text.to_original(range).start);
        self.at(at)
    }

    /// The same for a byte of the user's text.
    fn at(&self, at: usize) -> (u32, u32, String) {
        let (line, column) = self.lines.place(at);
        (line, column, self.lines.excerpt(at))
    }
}

/// The verdict of a record, from what the passes put into the kernel.
fn report(
    places: Places,
    guard: Option<(LoopGuard, u32)>,
    pointers: Option<PointerFacts>,
    calls: Option<CallSet>,
) -> Report {
    let asks = (pointers.as_ref()).is_some_and(|facts| facts.tables != (0, false));
    Report(Arc::new(move |record: &Record| {
        let faults = pointers.as_ref().and_then(|facts| {
            let words = record.get(POINTER.start as usize..POINTER.end as usize)?;
            facts.fault(words.try_into().ok()?)
        });
        if let Some(fault) = faults {
            let (line, column, excerpt) = places.of(fault.site.map(|site| site.span));
            return Err(ExecutionError::Pointer {
                kernel: places.kernel.clone(),
                file: places.file.as_str().into(),
                line,
                column,
                reason: match fault.reason {
                    FaultReason::Null => "a null pointer was followed",
                    FaultReason::Misaligned => "a misaligned pointer was followed",
                    FaultReason::Outside if asks => {
                        "a pointer into no live allocation was followed"
                    }
                    FaultReason::Outside => "a pointer out of the heap was followed",
                    FaultReason::Index => "an index behind a pointer was beyond its array",
                },
                address: fault.address,
                found: Arc::default(),
                pointee: fault.site.map_or("", |site| site.pointee.as_str()).into(),
                invocation: fault.invocation,
                excerpt: excerpt.into(),
            });
        }
        let code = record[LOOP_GUARD as usize];
        let call = record[CALL as usize];
        if let (Some(calls), 0, 1..) = (&calls, code, call) {
            let called = calls.0.get((call as u16 as usize).wrapping_sub(1));
            return Err(ExecutionError::CallFailed {
                kernel: places.kernel.clone(),
                function: called.map_or_else(String::new, |call| call.signature.name.clone()),
                status: CallStatus::from_code(call >> 16),
            });
        }
        match &guard {
            Some((guard, budget)) if code != 0 => {
                let site = guard.site_for_code(code);
                let (line, column, excerpt) = places.of(site.map(|site| site.span));
                Err(ExecutionError::LoopCut {
                    kernel: places.kernel.clone(),
                    file: places.file.clone(),
                    line,
                    column,
                    budget: *budget,
                    excerpt,
                })
            }
            _ => Ok(()),
        }
    }))
}

/// The places that the kernel prints from, with what its specialization made of them.
fn sites(places: &Places, prints: &Prints, facts: PrintFacts) -> Sites {
    let site = |(text, arguments): (&TextSite, Option<Vec<ValueType>>)| {
        let (line, column, excerpt) = places.at(text.place.start);
        Some(Site {
            kind: text.kind,
            line,
            column,
            excerpt,
            template: text.template.clone(),
            arguments: arguments?,
        })
    };
    Sites {
        kernel: places.kernel.clone(),
        file: places.file.clone(),
        sites: prints.sites.iter().zip(facts.arguments).map(site).collect(),
    }
}

/// Runs the pipeline from text to a validated module.
pub(crate) fn compile(
    program: &Program,
    entry: &str,
    constants: &Constants,
    options: &CompileOptions,
    names: &GlobalTable,
) -> Result<Compiled, KernelError> {
    let capabilities = Capabilities::from_bits_truncate(options.capabilities);
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
    let environment = Environment {
        auto_workgroup: Some(options.auto_workgroup),
        capabilities,
        private_limit: u64::from(options.private_limit),
        nesting: options.nesting,
        heap: &options.heap,
    };
    let special = specialize_in(program, entry, constants, environment, &mut place)?;
    let Specialized {
        mut module,
        entry: mut index,
        text,
        values,
        private_arrays,
        bindings,
        pointers,
        prints,
        interface,
        table,
        tabled_globals,
        calls: call_use,
    } = special;
    let calls = program.inner.calls.as_ref();
    let calls = calls
        .filter(|_| call_use.calls)
        .map(|calls| calls.called.clone());
    let writable = interface.globals.iter().map(|one| one.writable);
    let mut globals = (!instances.is_empty()).then(|| KernelGlobals {
        instances: instances.into_iter().zip(writable).collect(),
        binding: None,
    });
    if let Some(globals) = globals.as_mut().filter(|_| !tabled_globals) {
        let offsets = globals
            .instances
            .iter()
            .map(|(instance, _)| instance.offset);
        let start = offsets.min().unwrap_or(0) / BINDABLE * BINDABLE;
        let places = interface.globals.iter().zip(&globals.instances);
        let members: Vec<Member> = places
            .map(|(one, (instance, _))| Member {
                number: one.number,
                offset: instance.offset - start,
            })
            .collect();
        let bytes = passes::globals::lower(&mut module, index, &members, bindings.globals());
        index = 0;
        revalidate(&module, capabilities, program, entry)?;
        globals.binding = Some(GlobalsBinding {
            chunk: globals
                .instances
                .first()
                .map_or(0, |(instance, _)| instance.chunk),
            start,
            bytes,
            writable: interface.globals.iter().any(|one| one.writable),
        });
    }
    if let Some(facts) = &prints {
        print::begin(&mut module, index, facts);
    }
    // Devices without such barriers are those with such lanes.
    let dismissed =
        call_use.calls && !options.heap.barriers && padding_lanes::dismiss(&mut module, index);
    let counted = turns::run(&mut module, index);
    let guard = options.loop_budget.and_then(|budget| {
        let guard = loop_guard::run(&mut module, index, budget, bindings.status())?;
        Some((guard, budget))
    });
    if guard.is_some() || prints.is_some() || dismissed || counted {
        revalidate(&module, capabilities, program, entry)?;
    }
    check_shape(&module, index, options.nesting, program, &text)?;
    let guarded = guard.is_some();
    let heap = pointers.as_ref().map(|facts| HeapUse {
        segments: options.heap.segments,
        device_segments: options.heap.device_segments,
        window_aligned: options.heap.window_aligned,
        reads_info: facts.reads_info,
        tables: facts.tables,
        follows: facts.follows,
    });
    let checked = pointers.filter(|facts| !facts.sites.is_empty());
    // Also where nothing is followed: the variables that checks would need are there as soon as they could be.
    let status = Some(bindings.status());
    let has_status = (module.global_variables.iter()).any(|(_, v)| v.binding == status);
    let places = Places {
        kernel: entry.to_string(),
        file: program.name().to_string(),
        lines: program.inner.lines.clone(),
        text,
    };
    let prints = (program.inner.prints.as_ref().zip(prints))
        .map(|(prints, facts)| Arc::new(sites(&places, prints, facts)));
    let report = (guarded || checked.is_some() || has_status || call_use.reports)
        .then(|| report(places, guard, checked, calls.clone()));
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
        guarded,
        report,
        prints,
        heap,
        table,
        globals,
        calls,
        waits: call_use.waits,
        counts_turns: counted,
        splits_ports: call_use.calls && options.heap.splits_ports,
        backs_off: call_use.backs_off,
        bindings,
    })
}

/// What compilers of drivers are given at most, in expressions and statements: a module of this size takes them
/// minutes.
const MOST_UNFOLDED: u64 = 1 << 21;

/// Checks what compilers would make of the module: how deep it is, and how long when functions stand where they are
/// called.
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
    let reporter = Reporter {
        file: program.name(),
        text,
    };
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
    /// The built-in ids are those of a grid larger than one dispatch.
    pub(crate) tiled: bool,
    /// Arguments (by index) that are bound for writing although the kernel only reads them: a buffer
    /// has one use in a dispatch, and another argument writes to other bytes of the same one.
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

/// The module of a variant, and whether it takes the parameters of a tiled grid; `None` when the plain
/// module serves.
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
    let changed = gridded || variant.written != 0 || variant.globals_written;
    changed.then_some((module, gridded))
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
