//! Rewrites a function: every expression and statement (`statements`) is copied into a new body, where uses of pointers
//! into the heap become arithmetic, loads and stores.

use std::collections::{BTreeMap, HashMap, HashSet};

use naga::{
    Arena, Expression, Function, Handle, LocalVariable, Span, Statement, Type, UniqueArena,
};

use super::atomics::Outcome;
use super::builder::{Builder, Value};
use super::flow::Source;
use super::heap::Heap;
use super::options::{PointerError, PointerErrorKind, PointerSite};
use super::place::Place;
use super::reuse::{self, Words};
use super::scan::{FunctionScan, Role, Scan};
use super::shape::{Layouts, Ty};
use super::visit::operands;
use crate::kernel::passes::code::Emitter;

/// The new form of a call of a function.
pub(super) struct Callee {
    pub role: Role,
    /// The function in the new module, for a user's function.
    pub new: Option<Handle<Function>>,
    pub arguments: Vec<Option<Parameter>>,
    pub result: Option<Parameter>,
}

/// A pointer that a function takes or returns.
#[derive(Clone, Copy)]
pub(super) struct Parameter {
    pub pointee: Ty,
    pub source: Source,
    pub writable: bool,
}

impl FunctionScan {
    /// The function's pointer arguments.
    pub fn parameters(&self) -> impl Iterator<Item = Option<Parameter>> {
        let of = |((pointee, source), writable): ((&Option<Ty>, &Source), &bool)| {
            let (source, writable) = (*source, *writable);
            pointee.map(|pointee| Parameter {
                pointee,
                source,
                writable,
            })
        };
        (self.arguments.iter())
            .zip(&self.sources)
            .zip(&self.writable)
            .map(of)
    }

    /// The result, if a pointer.
    pub(super) fn result_parameter(&self) -> Option<Parameter> {
        let (source, writable) = (self.result_source, self.writable_result);
        self.result.map(|pointee| Parameter {
            pointee,
            source,
            writable,
        })
    }
}

/// Common inputs of every function's rewriting.
pub(super) struct Plan<'a> {
    pub heap: &'a Heap,
    pub layouts: &'a Layouts,
    /// A common divisor of the addresses in the argument table.
    pub table_align: u32,
    pub callees: &'a BTreeMap<Handle<Function>, Callee>,
    /// The functions in which invocations wait for each other.
    pub meetings: &'a HashSet<Handle<Function>>,
}

impl<'a> Plan<'a> {
    pub fn of(
        heap: &'a Heap,
        scan: &'a Scan,
        callees: &'a BTreeMap<Handle<Function>, Callee>,
        meetings: &'a HashSet<Handle<Function>>,
    ) -> Self {
        Self {
            heap,
            layouts: &scan.layouts,
            table_align: scan.table_align,
            callees,
            meetings,
        }
    }
}

/// The new form of an expression of the old function.
#[derive(Clone, Copy)]
pub(super) enum Mapped {
    Value(Value),
    Place(Place),
    Outcome(Outcome, Handle<Type>),
}

/// What the entry point keeps for checked mode: positions of the built-in values, and the size of a work-group.
pub(super) struct Invocation {
    pub ids: (u32, Option<u32>),
    pub groups: (u32, Option<u32>),
    pub workgroup: [u32; 3],
    /// Expressions in `globals` that decide the size of the work-group instead, where overrides do.
    pub sizes: [Option<Handle<Expression>>; 3],
    pub globals: Arena<Expression>,
}

pub(super) struct Rewriter<'a> {
    pub builder: Builder<'a>,
    pub plan: &'a Plan<'a>,
    pub old: &'a Function,
    pub scan: &'a FunctionScan,
    pub map: HashMap<Handle<Expression>, Mapped>,
    pub sites: &'a mut Vec<PointerSite>,
    /// The current statement, and the statements behind it in its block.
    pub rest: &'a [Statement],
    pub is_entry: bool,
    /// The words behind pointers of which nothing is loaded yet.
    pub words: Words,
}

pub(super) type Outcomes<T> = Result<T, PointerError>;

/// Makes the new form of `old`.
pub(super) fn function(
    types: &mut UniqueArena<Type>,
    plan: &Plan<'_>,
    old: &Function,
    scan: &FunctionScan,
    sites: &mut Vec<PointerSite>,
    invocation: Option<&Invocation>,
) -> Outcomes<Function> {
    let mut locals = naga::Arena::new();
    for (handle, local) in old.local_variables.iter() {
        let copy = LocalVariable {
            init: None,
            ty: match scan.narrow.locals.contains(&handle) {
                true => plan.heap.types.u32,
                false => local.ty,
            },
            name: local.name.clone(),
        };
        locals.append(copy, old.local_variables.get_span(handle));
    }
    let words = match plan.heap.reuses {
        true => reuse::words(old, scan, types),
        false => Words::new(),
    };
    let mut rewriter = Rewriter {
        builder: Builder::new(types, plan.heap, locals),
        plan,
        old,
        scan,
        map: HashMap::new(),
        sites,
        rest: &[],
        is_entry: invocation.is_some(),
        words,
    };
    rewriter.initializers();
    rewriter.prologue(invocation);
    rewriter.tabled();
    let body = rewriter.block(&old.body)?;
    rewriter.builder.append(body);
    let named =
        old.named_expressions
            .iter()
            .filter_map(|(handle, name)| match rewriter.map.get(handle) {
                Some(Mapped::Value(value)) => Some((*value, name.clone())),
                _ => None,
            });
    let named_expressions = named.collect();
    let (expressions, local_variables, body) = rewriter.builder.code.finish();
    let mut arguments = old.arguments.clone();
    for (argument, parameter) in arguments.iter_mut().zip(scan.parameters()) {
        if let Some(parameter) = parameter {
            argument.ty = plan.heap.boundary_type(parameter.brings_bytes(types));
        }
    }
    let mut result = old.result.clone();
    if let (Some(result), Some(parameter)) = (&mut result, scan.result_parameter()) {
        result.ty = plan.heap.boundary_type(parameter.brings_bytes(types));
    }
    Ok(Function {
        name: old.name.clone(),
        arguments,
        result,
        local_variables,
        expressions,
        named_expressions,
        body,
        diagnostic_filter_leaf: old.diagnostic_filter_leaf,
    })
}

impl<'a> Rewriter<'a> {
    pub(super) fn error(&self, span: Span) -> impl Fn(PointerErrorKind) -> PointerError + use<> {
        let function = self.old.name.clone();
        move |kind| PointerError {
            kind,
            span,
            function: function.clone(),
        }
    }

    pub(super) fn span_of(&self, handle: Handle<Expression>) -> Span {
        self.old.expressions.get_span(handle)
    }

    /// Copies the initializers of the function's variables.
    fn initializers(&mut self) {
        let mut copies = HashMap::new();
        for (handle, local) in self.old.local_variables.iter() {
            if let Some(init) = local.init {
                let init = match (
                    self.scan.narrow.locals.contains(&handle),
                    &self.old.expressions[init],
                ) {
                    (true, Expression::Compose { components, .. }) if !components.is_empty() => {
                        self.constant(components[0], &mut copies)
                    }
                    (true, _) => {
                        let zero = Expression::ZeroValue(self.plan.heap.types.u32);
                        self.builder.add_constant(zero)
                    }
                    (false, _) => self.constant(init, &mut copies),
                };
                self.builder.code.locals.get_mut(handle).init = Some(init);
            }
        }
    }

    /// Copies a constant expression; the function's body gets copies of its own, which are emitted.
    fn constant(
        &mut self,
        handle: Handle<Expression>,
        copies: &mut HashMap<Handle<Expression>, Value>,
    ) -> Value {
        if let Some(copy) = copies.get(&handle) {
            return *copy;
        }
        let mut expression = self.old.expressions[handle].clone();
        let replaced: Result<(), std::convert::Infallible> =
            operands(&mut expression, &mut |operand| {
                *operand = self.constant(*operand, copies);
                Ok(())
            });
        replaced.unwrap_or_default();
        self.builder.code.span = self.span_of(handle);
        let copy = self.builder.add_constant(expression);
        copies.insert(handle, copy);
        copy
    }

    /// The prologue: the pointers among the arguments are translated.
    fn prologue(&mut self, invocation: Option<&Invocation>) {
        if let Some(invocation) = invocation {
            let mut read = |(argument, member): (u32, Option<u32>)| {
                let value = self.builder.add(Expression::FunctionArgument(argument));
                match member {
                    Some(member) => self.builder.member(value, member),
                    None => value,
                }
            };
            let (ids, groups) = (read(invocation.ids), read(invocation.groups));
            let sizes = [0, 1].map(|i| match invocation.sizes[i] {
                Some(size) => {
                    let size = self.builder.copied(&invocation.globals, size);
                    self.builder.convert(size, naga::Scalar::U32)
                }
                None => self.builder.word(invocation.workgroup[i]),
            });
            self.builder.keep_invocation(ids, groups, sizes);
        }
        if !self.scan.pointers.is_empty() {
            self.builder.read_info();
            self.builder.begin_notes();
            self.limits();
        }
        for (handle, expression) in self.old.expressions.iter() {
            if let Expression::FunctionArgument(index) = *expression
                && let Some(Some(parameter)) = self.scan.parameters().nth(index as usize)
            {
                self.builder.code.span = self.span_of(handle);
                let value = self.builder.add(Expression::FunctionArgument(index));
                let place = self.passed(value, parameter);
                let place = self.keeping(handle, place);
                self.map.insert(handle, Mapped::Place(place));
            }
        }
    }

    /// Has checked mode's limits computed once, before any loop.
    fn limits(&mut self) {
        for (handle, pointer) in &self.scan.pointers {
            if matches!(
                self.old.expressions[*handle],
                Expression::CallResult(_) | Expression::FunctionArgument(_)
            ) {
                let bytes = (self.plan.layouts).fixed_size(pointer.pointee, self.builder.types);
                self.builder.keep_limits(bytes);
            }
        }
    }

    /// Translates the variables in the argument table that the function uses.
    fn tabled(&mut self) {
        let mut known = BTreeMap::new();
        for (handle, row) in &self.scan.tabled {
            if let Some(pointer) = self.scan.pointers.get(handle) {
                self.builder.code.span = self.span_of(*handle);
                let place = (known.entry(*row))
                    .or_insert_with(|| self.row(*row, pointer.pointee, pointer.align));
                if let Some(place) = *place {
                    self.map.insert(*handle, Mapped::Place(place));
                }
            }
        }
    }

    pub(super) fn place_of(&self, handle: Handle<Expression>) -> Option<Place> {
        match self.map.get(&handle) {
            Some(Mapped::Place(place)) => Some(*place),
            _ => None,
        }
    }

    /// For a place in the heap naga cannot check any more whether writing is allowed.
    pub(super) fn check_writable(&self, handle: Handle<Expression>, span: Span) -> Outcomes<()> {
        match self.scan.pointers.get(&handle) {
            Some(pointer) if !pointer.writable => {
                let pointee = pointer.pointee.name(self.builder.types);
                Err(self.error(span)(PointerErrorKind::ReadOnly { pointee }))
            }
            _ => Ok(()),
        }
    }

    /// The pointee of a pointer into the heap.
    pub(super) fn pointee(&self, handle: Handle<Expression>) -> Outcomes<Ty> {
        let pointer = self.scan.pointers.get(&handle);
        pointer.map(|p| p.pointee).ok_or_else(|| {
            self.error(self.span_of(handle))(PointerErrorKind::Type(
                "a pointer without a known pointee".to_owned(),
            ))
        })
    }

    /// The new form of an expression that is a value.
    pub(super) fn value(&mut self, handle: Handle<Expression>) -> Outcomes<Value> {
        match self.map.get(&handle) {
            Some(Mapped::Value(value)) => return Ok(*value),
            Some(Mapped::Outcome(outcome, ty)) => {
                let (outcome, ty) = (*outcome, *ty);
                return Ok(match outcome {
                    Outcome::Before(before) => before,
                    Outcome::Exchange(before, exchanged) => {
                        self.builder.compose(ty, vec![before, exchanged])
                    }
                });
            }
            Some(Mapped::Place(_)) => {
                let kind = PointerErrorKind::Unsupported {
                    what: "this expression",
                    instead: "load the value first",
                };
                return Err(self.error(self.span_of(handle))(kind));
            }
            None => {}
        }
        self.expression(handle)?;
        match self.map.get(&handle) {
            Some(Mapped::Value(value)) => Ok(*value),
            _ => {
                let kind = PointerErrorKind::Type("an expression without a value".to_owned());
                Err(self.error(self.span_of(handle))(kind))
            }
        }
    }

    /// Makes the new form of an expression.
    pub(super) fn expression(&mut self, handle: Handle<Expression>) -> Outcomes<()> {
        if self.map.contains_key(&handle) {
            return Ok(());
        }
        let old = self.old;
        let mapped = match old.expressions[handle] {
            Expression::Access { base, index } if self.place_of(base).is_some() => {
                let index = self.index(index)?;
                let place = self.access(handle, base, index)?;
                Mapped::Place(place)
            }
            Expression::AccessIndex { base, index } if self.place_of(base).is_some() => {
                Mapped::Place(self.access_index(handle, base, index)?)
            }
            Expression::AccessIndex { base, index }
                if matches!(self.map.get(&base), Some(Mapped::Outcome(..))) =>
            {
                match (self.map.get(&base), index) {
                    (Some(Mapped::Outcome(Outcome::Exchange(_, done), _)), 1) => {
                        Mapped::Value(*done)
                    }
                    (Some(Mapped::Outcome(Outcome::Exchange(before, _), _)), _) => {
                        Mapped::Value(*before)
                    }
                    _ => Mapped::Value(self.value(base)?),
                }
            }
            Expression::Load { pointer } if self.place_of(pointer).is_some() => {
                return self.load(handle, pointer);
            }
            Expression::ArrayLength(array) if self.place_of(array).is_some() => {
                match self.array_length(array)? {
                    Some(length) => Mapped::Value(length),
                    None => {
                        let error = self.error(self.span_of(handle));
                        return Err(error(PointerErrorKind::ArrayLength));
                    }
                }
            }
            Expression::AccessIndex { base, index: 0 }
                if self.scan.narrow.values.contains(&base) || self.is_narrow_local(base) =>
            {
                Mapped::Value(self.value(base)?)
            }
            _ if self.scan.narrow.values.contains(&handle) => Mapped::Value(self.narrow(handle)?),
            ref expression => {
                let mut copy = expression.clone();
                operands(&mut copy, &mut |operand| {
                    *operand = self.value(*operand)?;
                    Ok::<(), PointerError>(())
                })?;
                self.builder.code.span = self.span_of(handle);
                Mapped::Value(self.builder.add(copy))
            }
        };
        self.map.insert(handle, mapped);
        Ok(())
    }
}
