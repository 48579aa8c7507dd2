//! A compiled kernel: the module for wgpu, and what launches have to know of the module.

use std::sync::Arc;

use crate::device::heap_shape::HeapShape;
use crate::kernel::bindings::RuntimeBindings;
use crate::kernel::calls::CallSet;
use crate::kernel::constants::{ConstantInfo, ConstantValue};
use crate::kernel::globals::Instance;
use crate::kernel::heap_setup::HeapSetup;
use crate::kernel::passes::pointers::PointerFacts;
use crate::kernel::passes::spill::SpillFacts;
use crate::kernel::private_array::PrivateArrayInfo;
use crate::kernel::reflect::Interface;
#[cfg(embedded)]
use crate::kernel::report::Places;
use crate::kernel::report::Report;
use crate::print::record::Sites;

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
    pub(super) fn of(instances: Vec<Arc<Instance>>, interface: &Interface) -> Option<Self> {
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

    /// The kernel writes a device global.
    pub(crate) fn writes_globals(&self) -> bool {
        let globals = self.globals.as_ref();
        globals.is_some_and(|globals| globals.instances.iter().any(|&(_, writable)| writable))
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
    /// The upper 16 bits of pointers into the first of them.
    pub(crate) first_tag: u16,
    /// The heap begins where the low word of an address is zero.
    pub(crate) window_aligned: bool,
    /// The kernel reads where the heap lies ([`HeapInfo`](crate::kernel::passes::pointers::HeapInfo)).
    pub(crate) reads_info: bool,
    /// Parts of the allocation table, bound behind the segments, and then that of the device's own memory.
    pub(crate) tables: (u32, bool),
    /// The kernel follows pointers; if not, only its arguments have to lie in the heap's bindings.
    pub(crate) follows: bool,
    /// The segments are bound for reading alone.
    pub(crate) read_only: bool,
    /// The kernel may write through pointers, or to arguments that the kernel reaches in the same way.
    pub(crate) writes: bool,
    /// Where atomics have 64 bits, the number of the first second binding of a segment.
    pub(crate) wide: Option<u32>,
}

impl HeapUse {
    pub(super) fn of(facts: &PointerFacts, heap: &HeapSetup) -> Self {
        Self {
            segments: heap.segments,
            device_segments: heap.device_segments,
            first_tag: heap.first_tag,
            window_aligned: heap.window_aligned,
            reads_info: facts.reads_info,
            tables: facts.tables,
            follows: facts.follows,
            read_only: false,
            writes: facts.writes,
            wide: facts.wide.then(|| heap.first_wide()),
        }
    }

    /// Storage bindings of the heap's memory and of its allocation tables.
    pub(crate) fn bindings(self) -> u32 {
        let (tables, of_device) = self.tables;
        let memory = self.segments + self.device_segments;
        let views = 1 + u32::from(self.wide.is_some());
        views * memory + tables + u32::from(of_device)
    }

    /// The shape that the kernel was compiled for.
    pub(crate) fn shape(self) -> HeapShape {
        HeapShape {
            shared: self.segments,
            own: self.device_segments,
            first_tag: self.first_tag,
            window_aligned: self.window_aligned,
            tables: self.tables.0,
        }
    }
}
