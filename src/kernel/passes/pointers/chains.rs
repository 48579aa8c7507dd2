//! Rewrites uses of pointers: roots, steps behind them, atomics, and calls that take or return pointers.

use naga::{Expression, Function, Handle, Span, Statement, Type, UniqueArena};

use super::atomics::{Outcome, is_integer};
use super::builder::Value;
use super::check::Target;
use super::heap::Boundary;
use super::hoist::parts;
use super::options::{PointerErrorKind, PointerSite};
use super::place::{Place, Root};
use super::rewrite::{Mapped, Outcomes, Parameter, Rewriter};
use super::scan::{Role, stride};
use super::shape::{Shape, Ty, is_unsized};
use crate::kernel::passes::code::Emitter;

impl Parameter {
    /// Whether the number of bytes behind the place, a limit for indices, is passed along.
    pub fn brings_bytes(self, types: &UniqueArena<Type>) -> bool {
        self.source.table && is_unsized(self.pointee, types)
    }
}

impl Rewriter<'_> {
    pub(super) fn site(&mut self, ty: Ty, align: Option<u32>) -> usize {
        self.sites.push(PointerSite {
            span: self.builder.code.span,
            function: self.old.name.clone(),
            pointee: ty.name(self.builder.types),
            align,
        });
        self.sites.len() - 1
    }

    /// Translates a pointer to `ty` whose address is to be a multiple of `align`.
    fn root(&mut self, value: Value, ty: Ty, align: u32) -> Root {
        if self.plan.heap.system.is_some() {
            let site = self.site(ty, Some(align));
            return self.builder.system_root(value, site);
        }
        let checked = match self.plan.heap.status {
            Some(_) => {
                let target = Target {
                    align,
                    bytes: self.plan.layouts.fixed_size(ty, self.builder.types),
                    is_unsized: is_unsized(ty, self.builder.types),
                };
                let site = self.site(ty, Some(align));
                self.builder.checked_pointer(value, target, site)
            }
            None => None,
        };
        self.builder.root_of_pointer(value, align, checked)
    }

    /// Translates a pointer that a function was given or has returned.
    pub(super) fn passed(&mut self, value: Value, parameter: Parameter) -> Place {
        let Parameter {
            pointee, source, ..
        } = parameter;
        let mut align = self.plan.layouts.align(pointee);
        if source.table {
            align = align.min(self.plan.table_align);
        }
        let (value, bytes) = match parameter.brings_bytes(self.builder.types) {
            true => self.builder.parted(value),
            false => (value, None),
        };
        let root = match self.plan.heap.boundary {
            Boundary::Offset => self.builder.root_of_offset(None, value, align, None),
            Boundary::Pointer => self.root(value, pointee, align),
        };
        let root = match source.table {
            true => self.builder.limited_to(root, bytes, !source.heap),
            false => root,
        };
        self.builder.place(root)
    }

    /// Translates the variable in `row` of the argument table.
    pub(super) fn row(&mut self, row: u32, ty: Ty, align: u32) -> Option<Place> {
        let (pointer, bytes) = self.builder.row(row)?;
        let root = self.root(pointer, ty, align);
        let root = self.builder.limited_to(root, Some(bytes), true);
        Some(self.builder.place(root))
    }

    /// An index as `u32`: a negative index becomes a large one.
    pub(super) fn index(&mut self, index: Handle<Expression>) -> Outcomes<Value> {
        let value = self.value(index)?;
        let kind = match self.scan.signed.contains(&index) {
            true => naga::ScalarKind::Sint,
            false => naga::ScalarKind::Uint,
        };
        Ok(self.builder.bits(value, kind, naga::ScalarKind::Uint))
    }

    pub(super) fn access(
        &mut self,
        handle: Handle<Expression>,
        base: Handle<Expression>,
        index: Value,
    ) -> Outcomes<Place> {
        let ty = self.pointee(base)?;
        let Some(place) = self.place_of(base) else {
            return Err(self.error(self.span_of(handle))(
                PointerErrorKind::ForeignPointer,
            ));
        };
        let stride = stride(ty, self.builder.types);
        let count = parts(ty.shape(self.builder.types));
        let index = self.builder.limited(&place, index, stride, count);
        let valid = match place.valid {
            Some(_) => {
                self.builder.code.span = self.span_of(handle);
                let site = self.site(ty, None);
                self.builder
                    .checked_index(&place, index, stride, count, site)
            }
            None => None,
        };
        let step = self.builder.step(place, index, stride, valid);
        Ok(match count {
            Some(count) if self.scan.hoists.parts.contains(&handle) => {
                (self.builder).kept_behind(&place, step, (index, stride, count))
            }
            _ => self.keeping(handle, step),
        })
    }

    /// The place of a pointer, with a translation that is kept if the scan has chosen the pointer.
    pub(super) fn keeping(&mut self, handle: Handle<Expression>, place: Place) -> Place {
        match self.scan.hoists.extents.get(&handle) {
            Some(extent) => self.builder.keeping(place, *extent),
            None => place,
        }
    }

    pub(super) fn access_index(
        &mut self,
        handle: Handle<Expression>,
        base: Handle<Expression>,
        index: u32,
    ) -> Outcomes<Place> {
        let ty = self.pointee(base)?;
        let Some(place) = self.place_of(base) else {
            return Err(self.error(self.span_of(handle))(
                PointerErrorKind::ForeignPointer,
            ));
        };
        let offset = match ty.shape(self.builder.types) {
            Shape::Struct(members) => members.get(index as usize).map_or(0, |m| m.1),
            Shape::Array {
                count: None,
                stride,
                ..
            } if place.valid.is_some() => {
                // The existence of the element is unknown: the index is tested like any other.
                let index = self.builder.word(index);
                let site = self.site(ty, None);
                let valid = self
                    .builder
                    .checked_index(&place, index, stride, None, site);
                return Ok(self.builder.step(place, index, stride, valid));
            }
            Shape::Array {
                count: None,
                stride,
                ..
            } if place.root.is_limited => {
                let index = self.builder.word(index);
                let index = self.builder.limited(&place, index, stride, None);
                return Ok(self.builder.step(place, index, stride, None));
            }
            _ => stride(ty, self.builder.types).wrapping_mul(index),
        };
        Ok(place.member(offset))
    }

    /// The length of an array, where known from the argument table.
    pub(super) fn array_length(&mut self, array: Handle<Expression>) -> Outcomes<Option<Value>> {
        let stride = stride(self.pointee(array)?, self.builder.types);
        let place = self.place_of(array);
        Ok(place.and_then(|place| self.builder.length(&place, stride)))
    }

    pub(super) fn atomic(
        &mut self,
        place: &Place,
        pointer: Handle<Expression>,
        mut fun: naga::AtomicFunction,
        value: Handle<Expression>,
        result: Option<Handle<Expression>>,
    ) -> Outcomes<()> {
        let span = self.builder.code.span;
        let scalar = match self.pointee(pointer)?.shape(self.builder.types) {
            Shape::Atomic(scalar) if is_integer(scalar) => scalar,
            _ => {
                let kind = PointerErrorKind::Unsupported {
                    what: "an atomic operation of this type",
                    instead: "use an atomic<> of u32, i32, u64 or i64",
                };
                return Err(self.error(span)(kind));
            }
        };
        let value = self.value(value)?;
        if let naga::AtomicFunction::Exchange {
            compare: Some(compare),
        } = &mut fun
        {
            *compare = self.value(*compare)?;
        }
        self.builder.code.span = span;
        self.builder.report(place);
        let outcome = self
            .builder
            .atomic(place, scalar, fun, value, result.is_some());
        if let Some((result, outcome)) = result.zip(outcome) {
            let mapped = match (outcome, &self.old.expressions[result]) {
                (Outcome::Exchange(..), Expression::AtomicResult { ty, .. }) => {
                    Mapped::Outcome(outcome, *ty)
                }
                (Outcome::Before(value) | Outcome::Exchange(value, _), _) => Mapped::Value(value),
            };
            self.map.insert(result, mapped);
        }
        Ok(())
    }

    /// The new form of a pointer that is passed or returned where a pointer to `expected` is declared.
    pub(super) fn boundary(
        &mut self,
        handle: Handle<Expression>,
        expected: Option<Parameter>,
    ) -> Outcomes<Value> {
        let error = self.error(self.span_of(handle));
        let Some(place) = self.place_of(handle) else {
            return Err(error(PointerErrorKind::ForeignPointer));
        };
        let given = self.pointee(handle)?;
        let types = &*self.builder.types;
        let mut brings_bytes = false;
        if let Some(expected) = expected {
            if expected.pointee.shape(types) != given.shape(types) {
                return Err(error(PointerErrorKind::PointeeMismatch {
                    expected: expected.pointee.name(types),
                    given: given.name(types),
                }));
            }
            brings_bytes = expected.brings_bytes(types);
            if expected.writable {
                self.check_writable(handle, self.span_of(handle))?;
            }
        }
        if let Some(raw) = place.root.raw
            && place.valid.is_some()
            && matches!(
                self.old.expressions[handle],
                Expression::CallResult(_) | Expression::FunctionArgument(_)
            )
        {
            // The receiver tests the pointer for the same type, and can report a wrong address.
            return Ok(match brings_bytes {
                true => self.builder.with_bytes(raw, &place),
                false => raw,
            });
        }
        let at = self.builder.boundary(&place);
        Ok(match brings_bytes {
            true => self.builder.with_bytes(at, &place),
            false => at,
        })
    }

    pub(super) fn call(
        &mut self,
        function: Handle<Function>,
        arguments: &[Handle<Expression>],
        result: Option<Handle<Expression>>,
        span: Span,
    ) -> Outcomes<()> {
        let plan = self.plan;
        let Some(callee) = plan.callees.get(&function) else {
            return Err(self.error(span)(PointerErrorKind::Type(
                "a call of an unknown function".to_owned(),
            )));
        };
        match callee.role {
            Role::Root => {
                let (Some(result), Some(Parameter { pointee, .. }), [pointer]) =
                    (result, callee.result, arguments)
                else {
                    return Ok(());
                };
                let align = self.plan.layouts.align(pointee);
                let root = if self.scan.narrow.low_words {
                    let low = self.low(*pointer)?;
                    self.builder.code.span = self.span_of(result);
                    let offset = self.builder.shared_offset(low);
                    self.builder.root_of_offset(None, offset, align, None)
                } else {
                    let pointer = self.value(*pointer)?;
                    self.builder.code.span = self.span_of(result);
                    self.root(pointer, pointee, align)
                };
                let place = self.builder.place(root);
                let place = self.keeping(result, place);
                self.map.insert(result, Mapped::Place(place));
            }
            Role::Address => {
                if let (Some(result), [pointer]) = (result, arguments) {
                    let Some(place) = self.place_of(*pointer) else {
                        return Err(self.error(span)(PointerErrorKind::ForeignPointer));
                    };
                    let address = self.builder.address(&place);
                    self.map.insert(result, Mapped::Value(address));
                }
            }
            Role::User => {
                let mut values = Vec::with_capacity(arguments.len());
                for (index, argument) in arguments.iter().enumerate() {
                    let parameter = callee.arguments.get(index).copied().flatten();
                    values.push(match parameter {
                        Some(_) => self.boundary(*argument, parameter)?,
                        None => self.value(*argument)?,
                    });
                }
                let Some(new) = callee.new else {
                    return Ok(());
                };
                self.builder.code.span = span;
                self.builder.hand_over_notes();
                let value = result.map(|_| self.builder.add(Expression::CallResult(new)));
                self.builder.push(Statement::Call {
                    function: new,
                    arguments: values,
                    result: value,
                });
                if let Some((result, value)) = result.zip(value) {
                    let mapped = match callee.result {
                        Some(parameter) => {
                            let place = self.passed(value, parameter);
                            Mapped::Place(self.keeping(result, place))
                        }
                        None => Mapped::Value(value),
                    };
                    self.map.insert(result, mapped);
                }
            }
        }
        Ok(())
    }
}
