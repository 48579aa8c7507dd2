//! Values in scratch memory: loads, stores, fills and copies.

use naga::{BinaryOperator as Op, Expression, Handle, Scalar, ScalarKind, Type};

use super::builder::{Builder, Index, Place, Value};
use super::layout::{element, part, words};
use crate::kernel::passes::code::Emitter;
use crate::kernel::passes::pointers::{Shape, Ty, vector_type};

/// Words moved in one turn of a loop.
const WORDS_AT_ONCE: u32 = 16;

/// Elements copied from or to other memory in one turn of a loop.
const ELEMENTS_AT_ONCE: u32 = 4;

impl Builder<'_> {
    /// The part of a place at a constant index.
    pub fn part(&mut self, place: &Place, index: u32) -> Place {
        match part(self.types, place.ty, index) {
            Some((ty, before)) => Place {
                base: place.base,
                constant: place.constant.wrapping_add(before),
                ty,
            },
            None => *place,
        }
    }

    /// The element at `index`, which is below the number of elements.
    fn at(&mut self, place: &Place, index: Index) -> Place {
        match index {
            Index::Known(index) => self.part(place, index),
            Index::Counted(index, offset) => {
                let first = self.part(place, offset);
                let words = words(self.types, first.ty);
                self.moved(&first, index, words, first.ty)
            }
        }
    }

    /// The element at an index of the program, of kind `kind` and at most `most`, if that is known: the last one for an
    /// index beyond, as naga has it for arrays in private memory.
    pub fn limited(
        &mut self,
        place: &Place,
        index: Value,
        kind: ScalarKind,
        most: Option<u32>,
    ) -> Place {
        let Some((ty, count)) = element(self.types, place.ty) else {
            return *place;
        };
        let mut index = self.bits(index, kind, ScalarKind::Uint);
        if most.is_none_or(|most| most >= count) {
            let last = self.word(count.saturating_sub(1));
            index = self.add(Expression::Math {
                fun: naga::MathFunction::Min,
                arg: index,
                arg1: Some(last),
                arg2: None,
                arg3: None,
            });
        }
        let words = words(self.types, ty);
        self.moved(place, index, words, ty)
    }

    /// The handle of a type.
    fn handle(&mut self, ty: Ty) -> Handle<Type> {
        match ty {
            Ty::Handle(handle) => handle,
            Ty::Scalar(scalar) => vector_type(self.types, 1, scalar),
            Ty::Vector(count, scalar) => vector_type(self.types, count, scalar),
        }
    }

    /// Loads a value.
    pub fn load_value(&mut self, place: &Place) -> Value {
        let count = match place.ty.shape(self.types) {
            Shape::Scalar(scalar) | Shape::Atomic(scalar) => {
                return self.load_scalar(place, scalar);
            }
            Shape::Struct(members) => members.len() as u32,
            _ => element(self.types, place.ty).map_or(0, |(_, count)| count),
        };
        let mut components = Vec::new();
        for index in 0..count {
            let part = self.part(place, index);
            components.push(self.load_value(&part));
        }
        let ty = self.handle(place.ty);
        self.add(Expression::Compose { ty, components })
    }

    fn load_scalar(&mut self, place: &Place, scalar: Scalar) -> Value {
        let pointer = self.word_of(place, 0);
        let word = self.load(pointer);
        match (scalar.kind, scalar.width) {
            (ScalarKind::Bool, _) => self.with(Op::NotEqual, word, 0),
            (_, 4) => self.bits(word, ScalarKind::Uint, scalar.kind),
            (_, 2) if scalar.kind == ScalarKind::Float => {
                let wide = self.bits(word, ScalarKind::Uint, ScalarKind::Float);
                self.convert(wide, scalar)
            }
            (_, 2) => {
                let wide = self.bits(word, ScalarKind::Uint, scalar.kind);
                self.convert(wide, scalar)
            }
            _ => {
                let pointer = self.word_of(place, 1);
                let high = self.load(pointer);
                let low = self.convert(word, Scalar::U64);
                let high = self.convert(high, Scalar::U64);
                let high = self.with(Op::ShiftLeft, high, 32);
                let both = self.binary(Op::InclusiveOr, high, low);
                self.bits(both, ScalarKind::Uint, scalar.kind)
            }
        }
    }

    /// Stores a value.
    pub fn store_value(&mut self, place: &Place, value: Value) {
        let count = match place.ty.shape(self.types) {
            Shape::Scalar(scalar) | Shape::Atomic(scalar) => {
                return self.store_scalar(place, value, scalar);
            }
            Shape::Struct(members) => members.len() as u32,
            _ => element(self.types, place.ty).map_or(0, |(_, count)| count),
        };
        for index in 0..count {
            let part = self.part(place, index);
            let component = self.member(value, index);
            self.store_value(&part, component);
        }
    }

    fn store_scalar(&mut self, place: &Place, value: Value, scalar: Scalar) {
        let word = match (scalar.kind, scalar.width) {
            (ScalarKind::Bool, _) => {
                let (one, zero) = (self.word(1), self.word(0));
                self.select(value, one, zero)
            }
            (_, 4) => self.bits(value, scalar.kind, ScalarKind::Uint),
            (kind, 2) => {
                let wide = self.convert(value, Scalar { kind, width: 4 });
                self.bits(wide, kind, ScalarKind::Uint)
            }
            _ => {
                let wide = self.bits(value, scalar.kind, ScalarKind::Uint);
                let high = self.with(Op::ShiftRight, wide, 32);
                let high = self.convert(high, Scalar::U32);
                let pointer = self.word_of(place, 1);
                self.store(pointer, high);
                self.convert(wide, Scalar::U32)
            }
        };
        let pointer = self.word_of(place, 0);
        self.store(pointer, word);
    }

    /// The words of a place, as an array.
    fn as_words(&mut self, place: &Place) -> Place {
        Place {
            ty: Ty::Scalar(Scalar::U32),
            ..*place
        }
    }

    fn word_at(&mut self, words: &Place, index: Index) -> Value {
        match index {
            Index::Known(index) => self.word_of(words, index),
            Index::Counted(index, offset) => {
                let place = self.moved(words, index, 1, words.ty);
                self.word_of(&place, offset)
            }
        }
    }

    /// Sets all words to zero, which is the zero of every type.
    pub fn fill(&mut self, place: &Place) {
        let count = words(self.types, place.ty);
        let words = self.as_words(place);
        self.each(count, WORDS_AT_ONCE, &mut |b, index| {
            let pointer = b.word_at(&words, index);
            let zero = b.word(0);
            b.store(pointer, zero);
        });
    }

    /// Copies a value of the same type: the same memory, or memory apart.
    pub fn copy(&mut self, to: &Place, from: &Place) {
        let count = words(self.types, to.ty);
        let (to, from) = (self.as_words(to), self.as_words(from));
        self.each(count, WORDS_AT_ONCE, &mut |b, index| {
            let pointer = b.word_at(&from, index);
            let value = b.load(pointer);
            let pointer = b.word_at(&to, index);
            b.store(pointer, value);
        });
    }

    /// Copies a value from memory behind `pointer`.
    pub fn copy_in(&mut self, to: &Place, pointer: Value) {
        self.across(to, pointer, &mut |b, place, pointer| {
            let value = b.load(pointer);
            b.store_value(place, value);
        });
    }

    /// Copies a value to memory behind `pointer`.
    pub fn copy_out(&mut self, pointer: Value, from: &Place) {
        self.across(from, pointer, &mut |b, place, pointer| {
            let value = b.load_value(place);
            b.store(pointer, value);
        });
    }

    /// Walks through the parts of a place and of equal memory behind `pointer`, down to parts without arrays.
    fn across(
        &mut self,
        place: &Place,
        pointer: Value,
        leaf: &mut dyn FnMut(&mut Self, &Place, Value),
    ) {
        match place.ty.shape(self.types) {
            Shape::Struct(members) => {
                for index in 0..members.len() as u32 {
                    let part = self.part(place, index);
                    let member = self.member(pointer, index);
                    self.across(&part, member, leaf);
                }
            }
            Shape::Array {
                count: Some(count), ..
            } => {
                let whole = *place;
                self.each(count, ELEMENTS_AT_ONCE, &mut |b, index| {
                    let part = b.at(&whole, index);
                    let element = match index {
                        Index::Known(index) => b.member(pointer, index),
                        Index::Counted(index, 0) => b.element(pointer, index),
                        Index::Counted(index, offset) => {
                            let index = b.with(Op::Add, index, offset);
                            b.element(pointer, index)
                        }
                    };
                    b.across(&part, element, leaf);
                });
            }
            _ => leaf(self, place, pointer),
        }
    }
}
