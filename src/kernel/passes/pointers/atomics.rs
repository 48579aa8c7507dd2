//! Atomic operations behind pointers.
//!
//! Words of 32 bits are elements of the heap's bindings. Atomics of 64 bits have bindings of their own: the same memory
//! once more, as `array<atomic<u64>>`, since one variable has one type, and two variables of an entry point cannot share a
//! binding. Both are bound for writing, which wgpu allows for one buffer; a kernel reaches a word through one of the two
//! alone, as long as the program gives the word one type.

use naga::{AtomicFunction, Expression, Scalar, ScalarKind, Statement};

use super::builder::{Builder, Value};
use super::place::{Base, Place};
use crate::kernel::passes::code::Emitter;

/// The result of an atomic operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// The value before the operation.
    Before(Value),
    /// The value before a comparing exchange, and whether the exchange took place.
    Exchange(Value, Value),
}

impl Builder<'_> {
    /// Performs `fun` on the atomic of kind `scalar` at the place. Where the place is not valid nothing happens, and
    /// the result is zero.
    pub fn atomic(
        &mut self,
        place: &Place,
        scalar: Scalar,
        fun: AtomicFunction,
        value: Value,
        wants_result: bool,
    ) -> Option<Outcome> {
        let word = self.atomic_scalar(scalar);
        let value = self.bits(value, scalar.kind, word.kind);
        let (fun, comparison) = match fun {
            AtomicFunction::Exchange {
                compare: Some(compare),
            } => {
                let compare = Some(self.bits(compare, scalar.kind, word.kind));
                (AtomicFunction::Exchange { compare }, true)
            }
            AtomicFunction::Exchange { compare: None } => (fun, false),
            _ => (fun, false),
        };
        let must_have = wants_result || matches!(fun, AtomicFunction::Exchange { .. });
        let direct = place.root.selector.is_none() && place.valid.is_none();
        // Values made in a branch reach the code behind it through variables.
        let kept = (must_have && !direct).then(|| {
            let before = self.vector_type(1, word);
            let before = self.local(before);
            let exchanged = comparison.then(|| self.local(self.heap.types.bool));
            (before, exchanged)
        });
        if let (Some((before, exchanged)), Some(_)) = (kept, place.valid) {
            let ty = self.vector_type(1, word);
            let zero = self.zero(ty);
            self.store(before, zero);
            if let Some(exchanged) = exchanged {
                let zero = self.zero(self.heap.types.bool);
                self.store(exchanged, zero);
            }
        }
        let mut found = None;
        self.if_valid(place, &mut |b| {
            b.in_binding(place, &mut |b, array| {
                let Some(pointer) = b.atomic_element(array, place, scalar) else {
                    return;
                };
                let outcome = b.atomic_at(pointer, word, fun, value, comparison, must_have);
                match (outcome, kept) {
                    (Some(outcome), Some(variables)) => b.keep(outcome, variables),
                    (outcome, _) => found = outcome,
                }
            });
        });
        if let Some((before, exchanged)) = kept {
            let before = self.load(before);
            found = Some(match exchanged {
                Some(exchanged) => Outcome::Exchange(before, self.load(exchanged)),
                None => Outcome::Before(before),
            });
        }
        let signed = |b: &mut Self, v| b.bits(v, word.kind, scalar.kind);
        found.map(|outcome| match outcome {
            Outcome::Before(before) => Outcome::Before(signed(self, before)),
            Outcome::Exchange(before, exchanged) => {
                Outcome::Exchange(signed(self, before), exchanged)
            }
        })
    }

    /// The scalar as which an atomic of kind `scalar` is bound.
    fn atomic_scalar(&self, scalar: Scalar) -> Scalar {
        match (scalar.width, &self.heap.wide) {
            (8, Some(wide)) => wide.scalar,
            _ => self.heap.scalar(),
        }
    }

    /// The atomic of kind `scalar` at the place, in the binding with this array.
    fn atomic_element(&mut self, array: Value, place: &Place, scalar: Scalar) -> Option<Value> {
        match scalar.width {
            8 => self.wide_element(array, place),
            _ => self.atomic_word(array, place),
        }
    }

    /// The element at the place in the second view of the memory in `array`.
    fn wide_element(&mut self, array: Value, place: &Place) -> Option<Value> {
        let Base::Elements(base) = place.base else {
            return None;
        };
        let wide = self.second_view(array)?;
        let element = match self.heap.words() {
            1 => {
                let word = self.plus(base, place.constant / 4);
                self.shifted(word, 1)
            }
            words => {
                let first = self.times(base, words / 2);
                self.plus(first, place.constant / 8)
            }
        };
        Some(self.element(wide, element))
    }

    /// Loads an atomic of 64 bits; zero where the place is not valid.
    pub fn load_wide_atomic(&mut self, place: &Place, scalar: Scalar) -> Value {
        let word = self.atomic_scalar(scalar);
        let ty = self.vector_type(1, word);
        let kept = (place.needs_choice() || place.valid.is_some()).then(|| self.local(ty));
        if let (Some(kept), Some(_)) = (kept, place.valid) {
            let zero = self.zero(ty);
            self.store(kept, zero);
        }
        let mut found = None;
        self.if_valid(place, &mut |b| {
            b.in_binding(place, &mut |b, array| {
                let loaded = b.wide_element(array, place).map(|at| b.load(at));
                match (loaded, kept) {
                    (Some(loaded), Some(kept)) => b.store(kept, loaded),
                    (loaded, _) => found = loaded,
                }
            });
        });
        if let Some(kept) = kept {
            found = Some(self.load(kept));
        }
        let found = found.unwrap_or_else(|| self.zero(ty));
        self.bits(found, word.kind, scalar.kind)
    }

    /// Stores an atomic of 64 bits, unless the place is invalid.
    pub fn store_wide_atomic(&mut self, place: &Place, scalar: Scalar, value: Value) {
        let word = self.atomic_scalar(scalar);
        let value = self.bits(value, scalar.kind, word.kind);
        self.if_valid(place, &mut |b| {
            b.in_binding(place, &mut |b, array| {
                if let Some(pointer) = b.wide_element(array, place) {
                    b.store(pointer, value);
                }
            });
        });
    }

    fn atomic_word(&mut self, array: Value, place: &Place) -> Option<Value> {
        let found = self.system_words(place, 0, 1, true);
        let place = found.as_ref().unwrap_or(place);
        let Base::Elements(base) = place.base else {
            return None;
        };
        let element = self.plus(base, place.constant / 4);
        Some(self.element(array, element))
    }

    fn atomic_at(
        &mut self,
        pointer: Value,
        scalar: Scalar,
        fun: AtomicFunction,
        value: Value,
        comparison: bool,
        wants_result: bool,
    ) -> Option<Outcome> {
        let result = wants_result.then(|| {
            let plain = self.vector_type(1, scalar);
            let exchange = match (scalar.width, &self.heap.wide) {
                (8, Some(wide)) => Some(wide.exchange),
                _ => self.heap.types.exchange,
            };
            let ty = match comparison {
                true => exchange.unwrap_or(plain),
                false => plain,
            };
            self.add(Expression::AtomicResult { ty, comparison })
        });
        self.push(Statement::Atomic {
            pointer,
            fun,
            value,
            result,
        });
        result.map(|result| match comparison {
            true => Outcome::Exchange(self.member(result, 0), self.member(result, 1)),
            false => Outcome::Before(result),
        })
    }

    fn keep(&mut self, outcome: Outcome, (before, exchanged): (Value, Option<Value>)) {
        match (outcome, exchanged) {
            (Outcome::Before(value), _) => self.store(before, value),
            (Outcome::Exchange(value, done), Some(exchanged)) => {
                self.store(before, value);
                self.store(exchanged, done);
            }
            (Outcome::Exchange(value, _), None) => self.store(before, value),
        }
    }
}

/// The kinds of scalar that [`Builder::atomic`] takes.
pub(super) fn is_integer(scalar: Scalar) -> bool {
    matches!(scalar.width, 4 | 8) && matches!(scalar.kind, ScalarKind::Sint | ScalarKind::Uint)
}
