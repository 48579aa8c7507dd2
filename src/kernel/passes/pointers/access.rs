//! Moves words between values and one binding of the heap, and chooses the binding.
//!
//! # Several segments
//!
//! Several segments cost a test for each node. On processors that run invocations in lanes of one vector both sides of
//! the test are executed, which is why two segments are far from free there. On lavapipe the pointers in a node have a
//! choice of their own, in front of that of its other members: 1.35 of an index chase, against 1.44 with one choice,
//! and 1.50 with one choice and the value read first, as one would write it by hand. Elsewhere that is slower
//! (SwiftShader 2.1 against 1.8, an NVIDIA H200 2.5 against 1.8), and they share one choice. Where the heap is bound read-only
//! (`kernel::compile`), the choice costs 1.2 of an index on the H200.
//!
//! Also measured: loading from both segments and choosing afterwards doubles the loads; an array of bindings, indexed
//! by the pointer, is no faster than the choice on the H200 and not to be had in wgpu on lavapipe; a loop for each
//! segment is fast where chains stay in one for long, and slowest where they do not.

use std::ops::Range;

use naga::{BinaryOperator as Op, Scalar, ScalarKind};

use super::builder::{Builder, Value};
use super::place::{Base, Place};
use super::shape::{Shape, Ty};
use crate::kernel::passes::code::Emitter;

impl Builder<'_> {
    /// The element of the byte `offset` behind the place, and the word inside.
    fn position(&mut self, place: &Place, offset: u32) -> (Value, u32) {
        let bytes = self.heap.element.bytes();
        let at = place.constant.wrapping_add(offset);
        match place.base {
            Base::Elements(base) => (self.plus(base, at / bytes), (at % bytes) / 4),
            _ => (self.half_position(place, offset, false).0, 0),
        }
    }

    /// The word with the half at `offset`, and the number of its lowest bit (0 or 16).
    pub fn half_position(&mut self, place: &Place, offset: u32, writes: bool) -> (Value, Value) {
        let at = place.constant.wrapping_add(offset);
        match place.base {
            Base::Elements(base) => {
                let element = self.plus(base, at / 4);
                let shift = self.word((at % 4) * 8);
                (element, shift)
            }
            Base::Halves(base) => {
                let half = self.plus(base, at / 2);
                let word = self.shifted(half, 1);
                let odd = self.with(Op::And, half, 1);
                let shift = self.with(Op::ShiftLeft, odd, 4);
                (word, shift)
            }
            Base::Address(..) => self.system_half(place, at, writes),
        }
    }

    /// Runs `access` for the binding of the place, with the pointer to that binding's array.
    pub fn in_binding(&mut self, place: &Place, access: &mut dyn FnMut(&mut Self, Value)) {
        match place.array {
            Some(array) => access(self, array),
            None => self.in_one_of(place, 0..self.heap.variables.len(), access),
        }
    }

    /// Runs `access` for the one of `bindings` that the place selects, by halving: a card's memory takes up to sixty-four.
    fn in_one_of(
        &mut self,
        place: &Place,
        bindings: Range<usize>,
        access: &mut dyn FnMut(&mut Self, Value),
    ) {
        let selector = match place.root.selector {
            Some(selector) if bindings.len() > 1 => selector,
            _ => {
                let Some(&variable) = self.heap.variables.get(bindings.start) else {
                    return;
                };
                let array = self.global(variable);
                return access(self, array);
            }
        };
        let middle = bindings.start + bindings.len() / 2;
        let is_below = match self.heap.variables.len() {
            // Of two bindings the selector is the test itself.
            2 => selector,
            _ => self.with(Op::Less, selector, middle as u32),
        };
        let outer = self.open();
        self.in_one_of(place, bindings.start..middle, access);
        let accept = self.close(outer);
        let outer = self.open();
        self.in_one_of(place, middle..bindings.end, access);
        let reject = self.close(outer);
        self.push(naga::Statement::If {
            condition: is_below,
            accept,
            reject,
        });
    }

    /// Loads `count` words (1 to 4) at `offset` behind the place, as `u32` or a vector of `u32`. Zeros where the place
    /// is not valid.
    pub fn load_words(&mut self, place: &Place, offset: u32, count: u32) -> Value {
        let loaded = self.load_parts(&[(place.member(offset), count)]);
        match loaded.as_slice() {
            [only] => *only,
            _ => self.word(0),
        }
    }

    /// Loads values of a single node: scalars and vectors of 32 bits a component, at places that differ in their
    /// constants alone.
    pub fn load_values(&mut self, values: &[(Place, Ty)]) -> Vec<Value> {
        let shapes = values.iter().map(|(_, ty)| match ty.shape(self.types) {
            Shape::Vector { count, scalar } => (count, scalar.kind),
            Shape::Scalar(scalar) => (1, scalar.kind),
            _ => (1, ScalarKind::Uint),
        });
        let shapes: Vec<_> = shapes.collect();
        let parts: Vec<_> = (values.iter().zip(&shapes))
            .map(|((place, _), (count, _))| (*place, *count))
            .collect();
        let loaded = self.load_parts(&parts);
        (loaded.into_iter().zip(shapes))
            .map(|(words, (_, kind))| self.bits(words, ScalarKind::Uint, kind))
            .collect()
    }

    /// Loads words at each of the places, which differ in their constants alone.
    fn load_parts(&mut self, parts: &[(Place, u32)]) -> Vec<Value> {
        let Some((first, _)) = parts.first() else {
            return Vec::new();
        };
        let types: Vec<_> = (parts.iter())
            .map(|(_, count)| self.vector_type(*count, Scalar::U32))
            .collect();
        let mut loaded = Vec::with_capacity(parts.len());
        if !first.needs_choice() {
            self.in_binding(first, &mut |b, array| {
                for (place, count) in parts {
                    loaded.push(b.gather(array, place, 0, *count));
                }
            });
        } else {
            let found: Vec<_> = types.iter().map(|ty| self.local(*ty)).collect();
            self.in_binding(first, &mut |b, array| {
                for ((place, count), found) in parts.iter().zip(&found) {
                    let words = b.gather(array, place, 0, *count);
                    b.store(*found, words);
                }
            });
            loaded.extend(found.into_iter().map(|found| self.load(found)));
        }
        if let Some(valid) = first.valid {
            // Parts of a node are valid together or not at all.
            let kept = self.all_or_nothing(valid);
            for ((_, count), value) in parts.iter().zip(&mut loaded) {
                *value = self.masked(*value, *count, kept);
            }
        }
        loaded
    }

    /// All bits where `condition` holds, and none elsewhere.
    fn all_or_nothing(&mut self, condition: Value) -> Value {
        let (all, nothing) = (self.word(u32::MAX), self.word(0));
        self.select(condition, all, nothing)
    }

    /// The bits of `count` words that are in `mask`. In checked mode the contents of a place are loaded before the
    /// verdict on the place: an address waiting for the test makes every step along a chain of nodes wait. At a
    /// forbidden place, the load is of the binding's bytes, wherever the address leads, and no code sees them.
    fn masked(&mut self, words: Value, count: u32, mask: Value) -> Value {
        let mask = match super::heap::vector_size(count) {
            Some(size) => self.add(naga::Expression::Splat { size, value: mask }),
            None => mask,
        };
        self.binary(Op::And, words, mask)
    }

    fn gather(&mut self, array: Value, place: &Place, offset: u32, count: u32) -> Value {
        if let Some(words) = self.system_load(place, offset, count) {
            return words;
        }
        if let Some(found) = self.system_words(place, offset, count, false) {
            return self.gather(array, &found, 0, count);
        }
        let width = self.heap.words();
        let mut parts = Vec::new();
        let mut done = 0;
        while done < count {
            let (element, word) = self.position(place, offset + 4 * done);
            let at = place.constant.wrapping_add(offset + 4 * done);
            let here = (width - word).min(count - done);
            let part = if let Some(whole) = self.kept_element(array, element) {
                self.part(whole, width, word, here)
            } else if width > 1 && here == 1 && !self.is_shared(place, at / (4 * width)) {
                let pointer = self.element(array, element);
                let pointer = self.member(pointer, word);
                self.load(pointer)
            } else {
                let pointer = self.element(array, element);
                let whole = self.load(pointer);
                self.keep_element(array, element, whole);
                self.part(whole, width, word, here)
            };
            let kind = self.heap.scalar().kind;
            parts.push(self.bits(part, kind, ScalarKind::Uint));
            done += here;
        }
        match parts.as_slice() {
            [only] => *only,
            _ => {
                let ty = self.vector_type(count, Scalar::U32);
                self.compose(ty, parts)
            }
        }
    }

    /// Stores `count` words (a `u32` or a vector of `u32`) at `offset` behind the place, unless the place is invalid.
    pub fn store_words(&mut self, place: &Place, offset: u32, count: u32, words: Value) {
        self.if_valid(place, &mut |b| {
            b.in_binding(place, &mut |b, array| {
                b.scatter(array, place, offset, count, words);
            });
        });
    }

    /// Runs `access` where the place may be touched.
    pub fn if_valid(&mut self, place: &Place, access: &mut dyn FnMut(&mut Self)) {
        match place.valid {
            Some(valid) => self.when(valid, |b| access(b)),
            None => access(self),
        }
    }

    fn scatter(&mut self, array: Value, place: &Place, offset: u32, count: u32, words: Value) {
        if let Some(found) = self.system_words(place, offset, count, true) {
            return self.scatter(array, &found, 0, count, words);
        }
        let width = self.heap.words();
        let mut done = 0;
        while done < count {
            let (element, word) = self.position(place, offset + 4 * done);
            let here = (width - word).min(count - done);
            let pointer = self.element(array, element);
            if here == width {
                let part = self.part_of(words, count, done, here);
                let part = self.bits(part, ScalarKind::Uint, self.heap.scalar().kind);
                self.store(pointer, part);
            } else {
                // Words that are not written belong to someone else: no load and store of the whole element.
                for i in 0..here {
                    let pointer = self.member(pointer, word + i);
                    let part = self.part_of(words, count, done + i, 1);
                    self.store(pointer, part);
                }
            }
            done += here;
        }
    }

    fn part_of(&mut self, words: Value, of: u32, first: u32, count: u32) -> Value {
        match of {
            1 => words,
            _ => self.part(words, of, first, count),
        }
    }
}
