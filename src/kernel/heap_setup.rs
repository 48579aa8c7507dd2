//! A kernel's way to the heap: the bindings for the heap, and the arguments reached through them.
//!
//! The argument table has three reasons: the adapter has too few bindings; the kernel passes pointers to arguments to
//! functions; or arguments lie in the heap of the kernel's pointers, and written memory may not be bound twice. The
//! last reason is known only with the launch: the kernel is compiled in another form then ([`Form`]), also for
//! addresses less aligned than the type asks for.

use std::collections::BTreeSet;

use naga::Module;
use naga::compact::{KeepUnused, compact};
use naga::valid::Capabilities;

use super::atomics64;
use super::bindings::RuntimeBindings;
use super::diagnostic::Reporter;
use super::error::KernelError;
use super::passes::globals::{self, is_global};
use super::passes::pointers::{
    self, ArgumentTable, HeapMemory, Hoists, PointerFacts, PointerOptions, TableRow,
    TranslationMode,
};
use super::reflect::{ArgumentKind, Interface};

/// How the heap is bound to kernels following pointers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct HeapSetup {
    /// Bind groups of the device.
    pub max_bind_groups: u32,
    /// Parts in which the heap is bound.
    pub segments: u32,
    /// Bytes of each part but the last.
    pub segment_bytes: u32,
    /// Segments of the device's own memory.
    pub device_segments: u32,
    /// The upper 16 bits of pointers into the first segment.
    pub first_tag: u16,
    /// The heap begins where the low word of an address is zero.
    pub window_aligned: bool,
    /// The most storage bindings of a kernel; further ones go through the heap, if any.
    pub storage_bindings: Option<u32>,
    /// Which side of memory is reached first.
    pub mode: TranslationMode,
    /// Every dereference is tested.
    pub checked: bool,
    /// Parts of the allocation table for checked kernels; with none, pointers are compared with the heap's span.
    pub allocations: u32,
    /// Calls of the host order memory with barriers.
    pub barriers: bool,
    /// Processors order the memory of calls by themselves: calls need no barriers.
    pub orders_calls: bool,
    /// The device has a loop budget, so calls back off while waiting.
    pub has_loop_budget: bool,
    /// Pointers in a node choose their binding apart from the rest of the node.
    pub pointers_apart: bool,
    /// The translations kept by kernels following pointers into lent memory.
    pub hoists: Hoists,
    /// Posts of calls have separate memory.
    pub splits_ports: bool,
    /// Invocations of a subgroup calling together share a packet.
    pub packs_calls: bool,
    /// Kernels following pointers into lent memory wait for missing pages.
    pub live_pages: bool,
    /// Such a page may be taken out of its frame while the kernel runs.
    pub evicts_pages: bool,
    /// The kernel may get a status record, which takes a binding.
    pub may_report: bool,
    /// Storage arguments in the heap, for kernels with the heap bound anyway: the arguments go through the heap's
    /// bindings as well, so nothing is bound twice.
    pub beside: Vec<Beside>,
}

/// A storage argument in the heap, and so reached through the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Beside {
    /// The argument's index in the interface.
    pub argument: usize,
    /// The address is a multiple of 4, below the type's alignment.
    pub in_words: bool,
}

impl Default for HeapSetup {
    /// One unchecked segment, on a device without limits.
    fn default() -> Self {
        Self {
            max_bind_groups: u32::MAX,
            segments: 1,
            segment_bytes: 1 << 31,
            device_segments: 0,
            first_tag: 1,
            window_aligned: true,
            storage_bindings: None,
            mode: TranslationMode::DeviceFavored,
            checked: false,
            allocations: 0,
            barriers: true,
            orders_calls: false,
            has_loop_budget: false,
            pointers_apart: false,
            hoists: Hoists::Nothing,
            splits_ports: false,
            packs_calls: false,
            live_pages: false,
            evicts_pages: false,
            may_report: false,
            beside: Vec::new(),
        }
    }
}

impl HeapSetup {
    /// Lowers the pointers followed by the entry point; unreachable code is removed, because stubs there would not
    /// validate. The variables in `rows` go into the argument table, and device globals behind them.
    pub fn lower(
        &self,
        module: &mut Module,
        entry: usize,
        rows: Vec<TableRow>,
        bindings: &RuntimeBindings,
        capabilities: Capabilities,
        reporter: Reporter<'_>,
    ) -> Result<Option<PointerFacts>, KernelError> {
        let mut rows = rows;
        if self.is_system() {
            // Pointers lead elsewhere: other variables are bound as in any other kernel.
            rows.clear();
        } else if !rows.is_empty() || reaches_heap(module, entry) {
            rows.extend(global_rows(module, entry));
        }
        let table = (!rows.is_empty()).then(|| ArgumentTable {
            binding: bindings.table(),
            rows,
        });
        let options = self.options(bindings, capabilities, self.checked, table);
        let facts = pointers::run(module, entry, &options).map_err(|error| {
            let place = reporter
                .back(error.span)
                .map(|range| (range, String::new()));
            let labels = place.into_iter().collect();
            KernelError::Pointer(reporter.at(error.to_string(), labels, Vec::new()))
        })?;
        if facts.is_none() {
            let point = module.entry_points.swap_remove(entry);
            module.entry_points = vec![point];
            compact(module, KeepUnused::No);
        }
        Ok(facts)
    }

    fn options(
        &self,
        bindings: &RuntimeBindings,
        capabilities: Capabilities,
        checked: bool,
        arguments: Option<ArgumentTable>,
    ) -> PointerOptions {
        let memory = self.segments + self.device_segments;
        PointerOptions {
            mode: self.mode,
            memory: match self.device_segments {
                _ if self.is_system() => bindings.system((self.live_pages).then_some([
                    self.barriers,
                    self.has_loop_budget,
                    self.evicts_pages,
                ])),
                0 => HeapMemory::Unified {
                    segments: bindings.segments(0..self.segments),
                },
                own => HeapMemory::Split {
                    shared: bindings.segments(0..self.segments),
                    device: bindings.segments(self.segments..self.segments + own),
                    first_tag: self.first_tag,
                },
            },
            segment_bytes: self.segment_bytes,
            window_aligned: self.window_aligned || self.is_system(),
            info: (checked || !self.window_aligned).then(|| bindings.heap_info()),
            checked: checked.then(|| bindings.status()),
            allocations: match checked {
                true => bindings.segments(memory..memory + self.allocations),
                false => Vec::new(),
            },
            device_allocations: (checked && self.asks_device())
                .then(|| bindings.segment(memory + self.allocations)),
            arguments,
            pointers_apart: self.pointers_apart,
            hoists: self.hoists,
            wide: match self.is_system() {
                true => Vec::new(),
                false => bindings.segments(self.first_wide()..self.first_wide() + memory),
            },
            capabilities: capabilities.bits(),
        }
    }

    /// The number of the first second binding of a segment, for atomics of 64 bits: behind all other segments.
    pub fn first_wide(&self) -> u32 {
        self.segments + self.device_segments + self.tables()
    }

    /// Bindings of the heap's memory. A module that speaks of atomics of 64 bits may need the second ones.
    fn memory(&self, module: &Module) -> u32 {
        let views = match atomics64::mentions(module) {
            true => 2,
            false => 1,
        };
        views * (self.segments + self.device_segments)
    }

    /// Pointers lead into the host's memory, lent to launches.
    pub fn is_system(&self) -> bool {
        self.mode == TranslationMode::System
    }

    /// Checked kernels ask for allocations in the device's own memory, too.
    pub fn asks_device(&self) -> bool {
        self.allocations > 0 && self.device_segments > 0
    }

    /// Bindings of the allocation tables.
    fn tables(&self) -> u32 {
        match self.checked {
            true => self.allocations + u32::from(self.asks_device()),
            false => 0,
        }
    }

    /// The variables passed to functions: always in the argument table of a kernel following pointers, with any
    /// arguments.
    pub fn passed(module: &Module, entry: usize) -> Vec<TableRow> {
        let point = module.entry_points.get(entry);
        let passed = point.map_or_else(Vec::new, |point| pointers::passed(module, &point.function));
        let passed = passed.into_iter().filter(|variable| !is_global(variable));
        passed.map(row).collect()
    }

    /// The table of a kernel following pointers: the arguments in `passed`, arguments in the heap, and as many of the
    /// last others as exceed the bindings.
    pub fn beside_pointers(
        &self,
        module: &Module,
        interface: &Interface,
        passed: &[TableRow],
    ) -> Vec<usize> {
        if self.is_system() {
            return Vec::new();
        }
        let passed = Self::in_rows(interface, passed);
        let bound: Vec<usize> = storage(interface)
            .filter(|argument| !passed.contains(argument))
            .collect();
        let own = self.memory(module) + self.tables() + u32::from(self.may_report);
        let room = match self.storage_bindings {
            Some(limit) => limit.saturating_sub(own) as usize,
            None => usize::MAX,
        };
        // The table takes a binding, too, where there is one.
        let has_globals = !interface.globals.is_empty();
        let wanted = !passed.is_empty() || !self.beside.is_empty() || has_globals;
        let has_table = wanted || bound.len() > room;
        let room = room.saturating_sub(usize::from(has_table));
        self.with_beside(passed.into_iter().chain(bound.into_iter().skip(room)))
    }

    /// The arguments of the rows, by index.
    pub fn in_rows(interface: &Interface, rows: &[TableRow]) -> Vec<usize> {
        storage(interface)
            .filter(|&argument| {
                let place = place(interface, argument);
                rows.iter().any(|row| row.variable == place)
            })
            .collect()
    }

    /// The given arguments and those in the heap, in order.
    fn with_beside(&self, arguments: impl Iterator<Item = usize>) -> Vec<usize> {
        let beside = self.beside.iter().map(|beside| beside.argument);
        let all: BTreeSet<usize> = arguments.chain(beside).collect();
        all.into_iter().collect()
    }

    /// The rows of the argument table for these arguments.
    pub fn rows(&self, interface: &Interface, arguments: &[usize]) -> Vec<TableRow> {
        let of = |&argument: &usize| {
            let in_words = Beside {
                argument,
                in_words: true,
            };
            TableRow {
                variable: place(interface, argument),
                align: if self.beside.contains(&in_words) {
                    4
                } else {
                    16
                },
            }
        };
        arguments.iter().map(of).collect()
    }

    /// Moves the storage arguments without bindings into the heap, together with arguments already there, and all
    /// device globals, which also move if `scattered`, when no single binding shows them. Returns the moved arguments;
    /// the module has changed then.
    pub fn tabulate(
        &self,
        module: &mut Module,
        entry: usize,
        interface: &Interface,
        bindings: &RuntimeBindings,
        capabilities: Capabilities,
        scattered: bool,
    ) -> Option<(Vec<usize>, PointerFacts)> {
        let limit = match scattered {
            true => self.storage_bindings.unwrap_or(u32::MAX),
            false => self.storage_bindings?,
        };
        let globals = global_rows(module, entry);
        if self.is_system() {
            return None;
        }
        let count = storage(interface).count();
        if count + usize::from(!globals.is_empty()) <= limit as usize && !scattered {
            return None;
        }
        // A status record, the table and the heap itself take bindings, too.
        let room = limit.saturating_sub(2 + self.memory(module));
        let moved = self.with_beside(storage(interface).skip(room as usize));
        let mut rows = self.rows(interface, &moved);
        rows.extend(globals);
        let table = ArgumentTable {
            binding: bindings.table(),
            rows,
        };
        let options = self.options(bindings, capabilities, false, Some(table));
        let mut changed = module.clone();
        // Arguments not reachable in this way are reported as the exceeded limit.
        let facts = pointers::run(&mut changed, entry, &options).ok()??;
        *module = changed;
        Some((moved, facts))
    }
}

/// Whether the entry point follows pointers, or passes one to a device global to a function.
fn reaches_heap(module: &Module, entry: usize) -> bool {
    let point = module.entry_points.get(entry);
    let passed = point.map_or_else(Vec::new, |point| pointers::passed(module, &point.function));
    pointers::reaches_stubs(module, entry) || passed.iter().any(is_global)
}

/// A row for each device global of the entry point.
fn global_rows(module: &Module, entry: usize) -> Vec<TableRow> {
    let used = globals::used(module, entry);
    let variables = used
        .iter()
        .filter_map(|&handle| module.global_variables[handle].binding);
    variables.map(row).collect()
}

/// The storage arguments, by index.
fn storage(interface: &Interface) -> impl Iterator<Item = usize> {
    let arguments = interface.arguments.iter().enumerate();
    arguments
        .filter(|(_, info)| matches!(info.kind, ArgumentKind::Storage { .. }))
        .map(|(index, _)| index)
}

/// A row for a variable with the alignment of its type.
fn row(variable: naga::ResourceBinding) -> TableRow {
    TableRow {
        variable,
        align: 16,
    }
}

fn place(interface: &Interface, argument: usize) -> naga::ResourceBinding {
    naga::ResourceBinding {
        group: interface.arguments[argument].group,
        binding: interface.arguments[argument].binding,
    }
}
