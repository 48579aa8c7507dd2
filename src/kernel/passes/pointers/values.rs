//! Loads and stores of whole values: scalars and vectors from words, everything else part by part.

use naga::{BinaryOperator as Op, Expression, MathFunction, Scalar, ScalarKind};

use super::builder::{Builder, Value};
use super::options::PointerErrorKind;
use super::place::{Base, Place};
use super::shape::{Shape, Ty, vector_align};
use crate::kernel::passes::code::Emitter;

/// Words of a value loaded or stored in order in a single statement. More would make modules that
/// drivers take minutes to compile.
const WORDS_AT_ONCE: u32 = 1024;

const WIDE: Scalar = Scalar::U64;

impl Builder<'_> {
    /// Words of a value of type `ty`, as moved.
    fn words_of(&self, ty: Ty) -> u32 {
        match ty.shape(self.types) {
            Shape::Vector { count, .. } => count,
            Shape::Matrix { columns, rows, .. } => columns * rows,
            Shape::Array { base, count, .. } => self
                .words_of(Ty::Handle(base))
                .saturating_mul(count.unwrap_or(1)),
            Shape::Struct(members) => members.iter().fold(0, |sum, m| {
                sum.saturating_add(self.words_of(Ty::Handle(m.0)))
            }),
            Shape::Scalar(_) | Shape::Atomic(_) | Shape::Other => 1,
        }
    }

    fn check_words(&self, ty: Ty) -> Result<(), PointerErrorKind> {
        match self.words_of(ty) {
            words if words > WORDS_AT_ONCE => Err(PointerErrorKind::ValueTooLarge {
                words,
                limit: WORDS_AT_ONCE,
            }),
            _ => Ok(()),
        }
    }

    /// Loads a value.
    pub fn load_value(&mut self, place: &Place, ty: Ty) -> Result<Value, PointerErrorKind> {
        self.check_words(ty)?;
        let is_leaf = matches!(
            ty.shape(self.types),
            Shape::Scalar(_) | Shape::Vector { .. } | Shape::Atomic(_)
        );
        if is_leaf || (place.valid.is_none() && place.root.selector.is_none()) {
            return self.load_part(place, ty);
        }
        // A single test, and a single choice of the binding, for all of a large value.
        let Ty::Handle(handle) = ty else {
            return Err(whole_value());
        };
        let found = self.local(handle);
        if place.valid.is_some() {
            let zero = self.zero(handle);
            self.store(found, zero);
        }
        let mut result = Ok(());
        self.if_valid(place, &mut |b| {
            b.in_binding(place, &mut |b, array| {
                let inner = Place {
                    valid: None,
                    array: Some(array),
                    ..*place
                };
                match b.load_part(&inner, ty) {
                    Ok(value) => b.store(found, value),
                    Err(error) => result = Err(error),
                }
            });
        });
        result.map(|()| self.load(found))
    }

    fn load_part(&mut self, place: &Place, ty: Ty) -> Result<Value, PointerErrorKind> {
        let (handle, components) = match (ty.shape(self.types), ty) {
            (Shape::Atomic(scalar), _) if scalar.width == 8 => {
                return Ok(self.load_wide_atomic(place, scalar));
            }
            (Shape::Scalar(scalar) | Shape::Atomic(scalar), _) => {
                return Ok(self.load_vector(place, 1, scalar));
            }
            (Shape::Vector { count, scalar }, _) => {
                return Ok(self.load_vector(place, count, scalar));
            }
            (
                Shape::Matrix {
                    columns,
                    rows,
                    scalar,
                },
                Ty::Handle(handle),
            ) => {
                let stride = vector_align(rows, scalar);
                let columns = (0..columns)
                    .map(|column| self.load_vector(&place.member(column * stride), rows, scalar))
                    .collect();
                (handle, columns)
            }
            (
                Shape::Array {
                    base,
                    count: Some(count),
                    stride,
                },
                Ty::Handle(handle),
            ) => {
                let mut elements = Vec::new();
                for index in 0..count {
                    elements.push(self.load_part(&place.member(index * stride), Ty::Handle(base))?);
                }
                (handle, elements)
            }
            (Shape::Struct(members), Ty::Handle(handle)) => {
                let mut values = Vec::new();
                for (ty, offset) in members {
                    values.push(self.load_part(&place.member(offset), Ty::Handle(ty))?);
                }
                (handle, values)
            }
            _ => return Err(whole_value()),
        };
        Ok(self.compose(handle, components))
    }

    /// Loads a vector of `count` components (1 for a scalar).
    fn load_vector(&mut self, place: &Place, count: u32, scalar: Scalar) -> Value {
        match scalar.width {
            4 => {
                let words = self.load_words(place, 0, count);
                self.bits(words, ScalarKind::Uint, scalar.kind)
            }
            2 => self.load_halves(place, count, scalar),
            _ => self.load_wide(place, count, scalar),
        }
    }

    fn assembled(&mut self, mut components: Vec<Value>, count: u32, scalar: Scalar) -> Value {
        match (count, components.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                components.extend(last);
                let ty = self.vector_type(count, scalar);
                self.compose(ty, components)
            }
        }
    }

    fn load_halves(&mut self, place: &Place, count: u32, scalar: Scalar) -> Value {
        let single = |b: &mut Self, offset: u32| {
            let (word, shift) = match place.base {
                // Elements may be wider than words.
                Base::Elements(_) => {
                    let at = place.constant.wrapping_add(offset);
                    let word = b.load_words(place, offset, 1);
                    (word, b.word((at % 4) * 8))
                }
                Base::Halves(_) | Base::Address(..) => match b.system_load_half(place, offset) {
                    Some(loaded) => loaded,
                    None => {
                        let (element, shift) = b.half_position(place, offset, false);
                        (b.load_word_at(place, element), shift)
                    }
                },
            };
            let low = b.binary(Op::ShiftRight, word, shift);
            let both = b.unpack(low);
            let half = b.member(both, 0);
            b.convert(half, scalar)
        };
        if count == 1 {
            return single(self, 0);
        }
        // A vector of halves begins at a word.
        let mut parts = Vec::new();
        for pair in 0..count / 2 {
            let word = self.load_words(place, 4 * pair, 1);
            let both = self.unpack(word);
            let both = self.convert(both, scalar);
            match count {
                2 => return both,
                _ => parts.push(both),
            }
        }
        if count % 2 == 1 {
            parts.push(single(self, 2 * (count - 1)));
        }
        let ty = self.vector_type(count, scalar);
        self.compose(ty, parts)
    }

    /// Loads the word in element `element` of the place's binding: the elements are words where halves are moved
    /// separately.
    fn load_word_at(&mut self, place: &Place, element: Value) -> Value {
        let at = Place {
            base: super::place::Base::Elements(element),
            constant: 0,
            ..*place
        };
        self.load_words(&at, 0, 1)
    }

    fn unpack(&mut self, word: Value) -> Value {
        self.add(Expression::Math {
            fun: MathFunction::Unpack2x16float,
            arg: word,
            arg1: None,
            arg2: None,
            arg3: None,
        })
    }

    fn load_wide(&mut self, place: &Place, count: u32, scalar: Scalar) -> Value {
        let components = (0..count)
            .map(|index| {
                let words = self.load_words(place, 8 * index, 2);
                let low = self.member(words, 0);
                let high = self.member(words, 1);
                let low = self.convert(low, WIDE);
                let high = self.convert(high, WIDE);
                let high = self.with(Op::ShiftLeft, high, 32);
                let both = self.binary(Op::InclusiveOr, high, low);
                self.bits(both, ScalarKind::Uint, scalar.kind)
            })
            .collect();
        self.assembled(components, count, scalar)
    }

    /// Stores a value.
    pub fn store_value(
        &mut self,
        place: &Place,
        ty: Ty,
        value: Value,
    ) -> Result<(), PointerErrorKind> {
        self.check_words(ty)?;
        let mut result = Ok(());
        self.if_valid(place, &mut |b| {
            b.in_binding(place, &mut |b, array| {
                let inner = Place {
                    valid: None,
                    array: Some(array),
                    ..*place
                };
                if let Err(error) = b.store_part(&inner, ty, value) {
                    result = Err(error);
                }
            });
        });
        result
    }

    fn store_part(&mut self, place: &Place, ty: Ty, value: Value) -> Result<(), PointerErrorKind> {
        match ty.shape(self.types) {
            Shape::Atomic(scalar) if scalar.width == 8 => {
                self.store_wide_atomic(place, scalar, value);
            }
            Shape::Scalar(scalar) | Shape::Atomic(scalar) => {
                self.store_vector(place, 1, scalar, value);
            }
            Shape::Vector { count, scalar } => self.store_vector(place, count, scalar, value),
            Shape::Matrix {
                columns,
                rows,
                scalar,
            } => {
                let stride = vector_align(rows, scalar);
                for column in 0..columns {
                    let part = self.member(value, column);
                    self.store_vector(&place.member(column * stride), rows, scalar, part);
                }
            }
            Shape::Array {
                base,
                count: Some(count),
                stride,
            } => {
                for index in 0..count {
                    let part = self.member(value, index);
                    self.store_part(&place.member(index * stride), Ty::Handle(base), part)?;
                }
            }
            Shape::Struct(members) => {
                for ((ty, offset), index) in members.into_iter().zip(0..) {
                    let part = self.member(value, index);
                    self.store_part(&place.member(offset), Ty::Handle(ty), part)?;
                }
            }
            Shape::Array { count: None, .. } | Shape::Other => return Err(whole_value()),
        }
        Ok(())
    }

    fn store_vector(&mut self, place: &Place, count: u32, scalar: Scalar, value: Value) {
        match scalar.width {
            4 => {
                let words = self.bits(value, scalar.kind, ScalarKind::Uint);
                self.store_words(place, 0, count, words);
            }
            2 => self.store_halves(place, count, value),
            _ => {
                for index in 0..count {
                    let component = match count {
                        1 => value,
                        _ => self.member(value, index),
                    };
                    let wide = self.bits(component, scalar.kind, ScalarKind::Uint);
                    let low = self.convert(wide, Scalar::U32);
                    let high = self.with(Op::ShiftRight, wide, 32);
                    let high = self.convert(high, Scalar::U32);
                    let words = self.pair(low, high);
                    self.store_words(place, 8 * index, 2, words);
                }
            }
        }
    }

    fn store_halves(&mut self, place: &Place, count: u32, value: Value) {
        let component = |b: &mut Self, index: u32| {
            let half = match count {
                1 => value,
                _ => b.member(value, index),
            };
            b.convert(half, Scalar::F32)
        };
        for pair in 0..count / 2 {
            let low = component(self, 2 * pair);
            let high = component(self, 2 * pair + 1);
            let word = self.pack(low, high);
            self.store_words(place, 4 * pair, 1, word);
        }
        if count % 2 == 1 {
            let half = component(self, count - 1);
            let zero = self.convert_word(0);
            let bits = self.pack(half, zero);
            self.store_half(place, 2 * (count - 1), bits);
        }
    }

    fn convert_word(&mut self, word: u32) -> Value {
        let word = self.word(word);
        self.bits(word, ScalarKind::Uint, ScalarKind::Float)
    }

    fn pack(&mut self, low: Value, high: Value) -> Value {
        let ty = self.vector_type(2, Scalar::F32);
        let both = self.compose(ty, vec![low, high]);
        self.add(Expression::Math {
            fun: MathFunction::Pack2x16float,
            arg: both,
            arg1: None,
            arg2: None,
            arg3: None,
        })
    }

    /// Stores the low half of `bits` without touching the other half of the word: clears the bits, then sets them. Who
    /// reads the same half in between sees neither the old nor the new value; such a reader races with the store in any
    /// case.
    fn store_half(&mut self, place: &Place, offset: u32, bits: Value) {
        let (element, shift) = self.half_position(place, offset, true);
        let ones = self.word(0xffff);
        let mask = self.binary(Op::ShiftLeft, ones, shift);
        let keep = self.add(Expression::Unary {
            op: naga::UnaryOperator::BitwiseNot,
            expr: mask,
        });
        let bits = self.binary(Op::ShiftLeft, bits, shift);
        let kind = self.heap.scalar().kind;
        let keep = self.bits(keep, ScalarKind::Uint, kind);
        let bits = self.bits(bits, ScalarKind::Uint, kind);
        self.in_binding(place, &mut |b, array| {
            let pointer = b.element(array, element);
            for (fun, value) in [
                (naga::AtomicFunction::And, keep),
                (naga::AtomicFunction::InclusiveOr, bits),
            ] {
                b.push(naga::Statement::Atomic {
                    pointer,
                    fun,
                    value,
                    result: None,
                });
            }
        });
    }
}

fn whole_value() -> PointerErrorKind {
    PointerErrorKind::Unsupported {
        what: "a load or store of a whole value without a fixed size",
        instead: "load or store its elements",
    }
}
