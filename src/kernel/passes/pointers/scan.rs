//! Looks at a kernel before anything is changed: which functions are reached, which of their
//! expressions are pointers into the heap, and which element type suits all accesses.

use std::collections::{BTreeMap, BTreeSet};

use naga::proc::ResolveContext;
use naga::{
    Expression, Function, GlobalVariable, Handle, Module, Scalar, Span, Statement, Type, TypeInner,
};

use super::super::reachable;
use super::super::typified;
use super::flow::{Flow, Source};
use super::hoist::{self, Hoisted};
use super::narrow::{self, Narrow, is_pair};
use super::needs::Needs;
use super::options::{
    HeapElement, HeapMemory, Hoists, PointerError, PointerErrorKind, PointerOptions, TableRow,
    TranslationMode,
};
use super::shape::{
    Layouts, Shape, Ty, check_shareable, is_writable, resolved_pointee, storage_pointee,
};

/// A function's part in the pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Role {
    /// `usm_<Type>`: its calls are the roots.
    Root,
    /// `usm_address`: gives a pointer back as its address.
    Address,
    /// A user's function.
    User,
}

/// A pointer expression into the heap, with properties known before the element type.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeapPointer {
    pub pointee: Ty,
    /// A power of two that divides the address, constant offsets aside.
    pub align: u32,
    /// The program may write there.
    pub writable: bool,
}

/// The known properties of a function.
#[derive(Default)]
pub(super) struct FunctionScan {
    /// The function's pointer arguments with writing allowed.
    pub writable: Vec<bool>,
    pub writable_result: bool,
    /// The pointers into the heap among its expressions.
    pub pointers: BTreeMap<Handle<Expression>, HeapPointer>,
    /// The pointees of pointer arguments and of the result.
    pub arguments: Vec<Option<Ty>>,
    pub result: Option<Ty>,
    /// The sources of those pointers.
    pub sources: Vec<Source>,
    pub result_source: Source,
    /// The variables reached through the argument table.
    pub tabled: BTreeMap<Handle<Expression>, u32>,
    /// Its expressions of type `i32`.
    pub signed: BTreeSet<Handle<Expression>>,
    /// The expressions of interest to `narrow`, and its findings: none where whole pointers are needed.
    seen: narrow::Types,
    pub narrow: Narrow,
    /// The pointers into lent memory that keep their translation.
    pub hoists: Hoisted,
}

/// The known properties of a kernel.
pub(super) struct Scan {
    /// The functions that the entry point reaches, callees first, without stubs.
    pub functions: BTreeMap<Handle<Function>, FunctionScan>,
    pub entry: FunctionScan,
    pub element: HeapElement,
    /// The scalar of the second view of the heap, where atomics have 64 bits.
    pub wide: Option<Scalar>,
    /// `usm_address` is called somewhere.
    pub takes_addresses: bool,
    pub uses_table: bool,
    /// Pointers are followed, or addresses taken.
    pub follows: bool,
    /// A common divisor of the addresses in the argument table.
    pub table_align: u32,
    pub writes: bool,
    pub layouts: Layouts,
}

impl Scan {
    /// Whether any pointer keeps its translation.
    pub fn hoists(&self) -> bool {
        let mut functions = self.functions.values().chain([&self.entry]);
        functions.any(|function| !function.hoists.extents.is_empty())
    }
}

/// The role of `function`. The stubs are the functions without a body appended by the text side: a
/// user's function of that type cannot be without a body, having to return something.
pub(super) fn role(function: &Function, types: &naga::UniqueArena<Type>) -> Role {
    let name = function.name.as_deref().unwrap_or("");
    let empty = function
        .body
        .iter()
        .all(|s| matches!(s, Statement::Return { value: None }));
    let result = function.result.as_ref().map(|r| &types[r.ty].inner);
    match (function.arguments.as_slice(), result) {
        ([argument], Some(result)) if empty && name.starts_with("usm_") => {
            if storage_pointee(result).is_some() && is_pair(&types[argument.ty].inner) {
                Role::Root
            } else if name == "usm_address" && is_pair(result) {
                Role::Address
            } else {
                Role::User
            }
        }
        _ => Role::User,
    }
}

/// Scans the kernel; `None` without any stub.
pub(super) fn scan(
    module: &Module,
    entry: &Function,
    options: &PointerOptions,
) -> Result<Option<Scan>, PointerError> {
    let reached = reachable(module, entry);
    let role_of = |f: Handle<Function>| role(&module.functions[f], &module.types);
    let has_stubs = reached.iter().any(|f| role_of(*f) != Role::User);
    let uses_table = (reached.iter().map(|f| &module.functions[*f]))
        .chain([entry])
        .flat_map(|function| function.expressions.iter())
        .any(|(_, expression)| table_row(module, expression, options).is_some());
    if !has_stubs && !uses_table {
        return Ok(None);
    }
    let nowhere = |kind| PointerError {
        kind,
        span: Span::UNDEFINED,
        function: None,
    };
    if options.mode == TranslationMode::Disabled && has_stubs {
        return Err(PointerError {
            span: first_root(module, entry, &reached),
            ..nowhere(PointerErrorKind::Disabled)
        });
    }
    let layouts = Layouts::new(module).map_err(nowhere)?;
    let mut needs = Needs::new();
    if matches!(options.memory, HeapMemory::System { .. }) {
        // Pages and what is lent of them are counted in words.
        needs.align = 4;
    }
    let table_align = match (&options.arguments, uses_table) {
        (Some(table), true) => table.align(),
        _ => 16,
    };
    let in_table = |variable| row_of(module, variable, options).is_some();
    let flow = Flow::new(module, entry, &reached, &in_table);
    let kernel = Kernel {
        module,
        options,
        layouts: &layouts,
        flow: &flow,
        table_align,
    };
    let mut functions: BTreeMap<_, FunctionScan> = BTreeMap::new();
    for handle in reached {
        if role_of(handle) == Role::User {
            let function = &module.functions[handle];
            let scan = scan_function(&kernel, function, Some(handle), &mut needs)?;
            functions.insert(handle, scan);
        }
    }
    let entry_function = entry;
    let mut entry = scan_function(&kernel, entry, None, &mut needs)?;
    if low_words_suffice(options, &needs) {
        entry.narrow = narrow::find(module, entry_function, &entry.seen);
        for (handle, scan) in &mut functions {
            scan.narrow = narrow::find(module, &module.functions[*handle], &scan.seen);
        }
    }
    let element = needs.element().map_err(nowhere)?;
    let wide = needs.wide().map_err(nowhere)?;
    if wide.is_some() && matches!(options.memory, HeapMemory::System { .. }) {
        return Err(nowhere(PointerErrorKind::Unsupported {
            what: "an atomic operation of 64 bits on memory that is lent to the launch",
            instead: "use atomic<u32> or atomic<i32>, or allocate the word in the shared heap, and launch with \
                      another translation mode",
        }));
    }
    Ok(Some(Scan {
        functions,
        entry,
        element,
        wide,
        takes_addresses: needs.addresses,
        uses_table,
        follows: has_stubs,
        table_align,
        writes: needs.writes,
        layouts,
    }))
}

/// Whether pointers are translated by their low words alone: all of memory is the shared heap, no pointer is tested,
/// and no address is asked back.
fn low_words_suffice(options: &PointerOptions, needs: &Needs) -> bool {
    matches!(options.memory, HeapMemory::Unified { .. })
        && options.checked.is_none()
        && !needs.addresses
}

/// The row of the argument table for an expression naming a variable there.
fn table_row(
    module: &Module,
    expression: &Expression,
    options: &PointerOptions,
) -> Option<(u32, TableRow)> {
    match *expression {
        Expression::GlobalVariable(variable) => row_of(module, variable, options),
        _ => None,
    }
}

/// The row of the argument table for a variable.
pub(super) fn row_of(
    module: &Module,
    variable: Handle<GlobalVariable>,
    options: &PointerOptions,
) -> Option<(u32, TableRow)> {
    let variable = &module.global_variables[variable];
    let table = options.arguments.as_ref()?;
    let is_storage = matches!(variable.space, naga::AddressSpace::Storage { .. });
    let binding = variable.binding.filter(|_| is_storage)?;
    let found = (table.rows.iter().zip(0..)).find(|(row, _)| row.variable == binding);
    found.map(|(row, index)| (index, *row))
}

/// The place of a call of a stub.
fn first_root(module: &Module, entry: &Function, reached: &BTreeSet<Handle<Function>>) -> Span {
    let functions = reached.iter().map(|f| &module.functions[*f]);
    let mut found = None;
    for function in functions.chain([entry]) {
        for (handle, expression) in function.expressions.iter() {
            if let Expression::CallResult(callee) = *expression
                && role(&module.functions[callee], &module.types) == Role::Root
            {
                found.get_or_insert(function.expressions.get_span(handle));
            }
        }
    }
    found.unwrap_or(Span::UNDEFINED)
}

/// The kernel's properties needed for scanning a function.
struct Kernel<'a> {
    module: &'a Module,
    options: &'a PointerOptions,
    layouts: &'a Layouts,
    flow: &'a Flow,
    table_align: u32,
}

/// Where a pointer into the heap comes from.
enum Origin {
    /// An argument, a result or the argument table: its address is a multiple of `align`.
    Outside { align: u32 },
    /// An access to a part of another pointer's target.
    Part { of: HeapPointer },
}

impl FunctionScan {
    /// The facts in the head of a function; `handle` is `None` for the entry point.
    fn of_head(kernel: &Kernel<'_>, function: &Function, handle: Option<Handle<Function>>) -> Self {
        let (types, flow) = (&kernel.module.types, kernel.flow);
        let pointee_of = |ty: Handle<Type>| storage_pointee(&types[ty].inner);
        let arguments = function.arguments.iter();
        let result = function.result.as_ref();
        Self {
            arguments: arguments.clone().map(|a| pointee_of(a.ty)).collect(),
            result: result.and_then(|r| pointee_of(r.ty)),
            sources: handle.map_or_else(Vec::new, |handle| {
                let indices = 0..function.arguments.len();
                indices.map(|index| flow.argument(handle, index)).collect()
            }),
            result_source: handle.map_or_else(Source::default, |handle| flow.result(handle)),
            writable: arguments.map(|a| is_writable(&types[a.ty].inner)).collect(),
            writable_result: result.is_some_and(|r| is_writable(&types[r.ty].inner)),
            ..Self::default()
        }
    }

    /// The origin of the expression, if possibly a pointer into the heap. Notes variables of the argument table.
    fn origin(
        &mut self,
        kernel: &Kernel<'_>,
        handle: Handle<Expression>,
        expression: &Expression,
    ) -> Option<Origin> {
        let passed = |is_tabled: bool| Origin::Outside {
            align: match is_tabled {
                true => kernel.table_align,
                false => 16,
            },
        };
        match *expression {
            Expression::CallResult(callee) => Some(passed(kernel.flow.result(callee).table)),
            Expression::FunctionArgument(index) => {
                let source = self.sources.get(index as usize);
                Some(passed(source.is_some_and(|source| source.table)))
            }
            Expression::GlobalVariable(_) => {
                let (row, TableRow { align, .. }) =
                    table_row(kernel.module, expression, kernel.options)?;
                self.tabled.insert(handle, row);
                Some(Origin::Outside { align })
            }
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                let of = *self.pointers.get(&base)?;
                Some(Origin::Part { of })
            }
            _ => None,
        }
    }
}

/// A power of two that divides the address of a pointer to `pointee`, constant offsets aside.
fn pointer_align(
    kernel: &Kernel<'_>,
    origin: &Origin,
    expression: &Expression,
    pointee: Ty,
    needs: &mut Needs,
) -> Result<u32, PointerErrorKind> {
    let module = kernel.module;
    match (origin, expression) {
        (Origin::Outside { align }, _) => {
            check_shareable(module, pointee, kernel.options.capabilities())?;
            Ok(kernel.layouts.align(pointee).min(*align))
        }
        (Origin::Part { of: base }, Expression::Access { .. }) => {
            let stride = stride(base.pointee, &module.types);
            let align = base.align.min(1 << stride.trailing_zeros().min(4));
            // Also where nothing is loaded here: addresses count in elements from now on.
            needs.align = needs.align.min(align);
            Ok(align)
        }
        (Origin::Part { of: base }, Expression::AccessIndex { index, .. }) => {
            check_index(module, base.pointee, *index)?;
            Ok(base.align)
        }
        (Origin::Part { of: base }, _) => Ok(base.align),
    }
}

fn scan_function(
    kernel: &Kernel<'_>,
    function: &Function,
    handle: Option<Handle<Function>>,
    needs: &mut Needs,
) -> Result<FunctionScan, PointerError> {
    let module = kernel.module;
    let types = &module.types;
    let at = |handle| {
        let span = function.expressions.get_span(handle);
        move |kind| PointerError {
            kind,
            span,
            function: function.name.clone(),
        }
    };
    let mut scan = FunctionScan::of_head(kernel, function, handle);
    let context =
        ResolveContext::with_locals(module, &function.local_variables, &function.arguments);
    let typifier = typified(function, &context)
        .map_err(|(handle, e)| at(handle)(PointerErrorKind::Type(e.to_string())))?;
    for (handle, expression) in function.expressions.iter() {
        match typifier[handle].inner_with(types) {
            TypeInner::Scalar(Scalar::I32) => scan.signed.insert(handle),
            TypeInner::Scalar(Scalar::BOOL) => scan.seen.flags.insert(handle),
            inner if is_pair(inner) => scan.seen.pairs.insert(handle),
            _ => false,
        };
        let Some(origin) = scan.origin(kernel, handle, expression) else {
            continue;
        };
        let Some(pointee) = resolved_pointee(&typifier[handle], types) else {
            continue;
        };
        let align = pointer_align(kernel, &origin, expression, pointee, needs);
        let pointer = HeapPointer {
            pointee,
            align: align.map_err(at(handle))?,
            writable: is_writable(typifier[handle].inner_with(types)),
        };
        scan.pointers.insert(handle, pointer);
    }
    needs.add(module, function, &scan);
    let hoists = kernel.options.hoists();
    if hoists != Hoists::Nothing {
        scan.hoists = hoist::find(module, function, &scan, kernel.layouts, hoists);
    }
    Ok(scan)
}

/// Bytes from one part of `ty` to the next.
pub(super) fn stride(ty: Ty, types: &naga::UniqueArena<Type>) -> u32 {
    match ty.shape(types) {
        Shape::Array { stride, .. } => stride,
        Shape::Vector { scalar, .. } => u32::from(scalar.width),
        Shape::Matrix { rows, scalar, .. } => super::shape::vector_align(rows, scalar),
        _ => 0,
    }
}

/// A constant index beyond the end would be naga's to refuse, but the expression is gone by then.
fn check_index(module: &Module, ty: Ty, index: u32) -> Result<(), PointerErrorKind> {
    let count = match ty.shape(&module.types) {
        Shape::Array { count, .. } => count,
        Shape::Vector { count, .. } => Some(count),
        Shape::Matrix { columns, .. } => Some(columns),
        _ => None,
    };
    match count {
        Some(count) if index >= count => Err(PointerErrorKind::IndexOutOfBounds {
            index,
            count,
            ty: ty.name(&module.types),
        }),
        _ => Ok(()),
    }
}

/// The pointee of a type that is a pointer into the storage space.
pub(super) fn pointee(module: &Module, ty: Handle<Type>) -> Option<Ty> {
    storage_pointee(&module.types[ty].inner)
}
