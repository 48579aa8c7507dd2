//! Places in the heap: the new form of a pointer expression. A pointer is translated once, at its
//! appearance; every step behind it (a member, an index) only adds to an element index.

use naga::BinaryOperator as Op;

use super::builder::{Builder, Value};
use super::heap::Boundary;
use super::hoist::Kept;
use super::options::ZERO_WORD;
use crate::kernel::passes::code::Emitter;

/// A translated pointer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root {
    /// The pointer itself, where available.
    pub raw: Option<Value>,
    /// Byte offset in the shared heap, before the segment is split off.
    pub global: Value,
    /// Position of the first element in its binding.
    pub base: Base,
    /// Which binding: a bool (true for the first) for two of them, a number for more.
    pub selector: Option<Value>,
    /// In checked mode, bytes from the pointer to the end of the heap or segment.
    pub remaining: Option<Value>,
    /// In checked mode, whether the pointer may be dereferenced.
    pub valid: Option<Value>,
    /// Indices behind it are limited to the last element: the pointer comes from the argument table.
    pub is_limited: bool,
    /// Bytes from the pointer to the end of its target, for targets without fixed size from the argument table.
    pub bytes: Option<Value>,
    /// Those bytes tell the length of an array.
    pub tells_length: bool,
    /// The code of the pointer's site, for faults of accesses that are translated.
    pub code: u32,
}

/// A position in a binding, constant offset aside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Base {
    /// In elements of the binding.
    Elements(Value),
    /// In halves of a word, where halves are all that is known to be aligned.
    Halves(Value),
    /// Low and high word of an address of the host's memory, translated at each access.
    Address(Value, Value),
}

/// Something behind a pointer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub root: Root,
    pub base: Base,
    /// Bytes behind the base, known here and now.
    pub constant: u32,
    /// In checked mode, whether the place may be touched.
    pub valid: Option<Value>,
    /// The array of its binding, inside code made for a single binding.
    pub array: Option<Value>,
    /// What is kept of the translation of an address.
    pub kept: Option<Kept>,
}

impl Place {
    pub fn member(self, offset: u32) -> Self {
        Self {
            constant: self.constant.wrapping_add(offset),
            ..self
        }
    }

    /// Whether a pointer decides, while the kernel runs, in which binding the place lies.
    pub fn needs_choice(&self) -> bool {
        self.array.is_none() && self.root.selector.is_some()
    }
}

/// The findings of checked mode about a pointer before the split.
#[derive(Clone, Copy)]
pub(super) struct Checked {
    pub valid: Value,
    pub remaining: Option<Value>,
}

impl Builder<'_> {
    /// Loads the needed words of the uniform, before anything else in the function.
    pub fn read_info(&mut self) {
        let translation = self.heap.translation;
        let mut wanted = Vec::new();
        if !translation.window_aligned {
            wanted.push(0);
        }
        if self.heap.status.is_some() {
            wanted.extend([1, 2, ZERO_WORD]);
            if translation.device == 1 {
                wanted.push(4);
            }
        }
        for index in wanted {
            if let Some(word) = self.info(index) {
                self.info_words.insert(index, word);
            }
        }
    }

    /// A word of the uniform that describes the heap.
    pub fn info(&mut self, index: u32) -> Option<Value> {
        if let Some(word) = self.info_words.get(&index) {
            return Some(*word);
        }
        let variable = self.heap.info?;
        let info = self.global(variable);
        let quad = self.member(info, index / 4);
        let word = self.member(quad, index % 4);
        Some(self.load(word))
    }

    /// Byte offset in the shared heap of the pointer with the low word `low`.
    pub fn shared_offset(&mut self, low: Value) -> Value {
        match self.heap.translation.window_aligned {
            true => low,
            false => match self.info(0) {
                Some(base) => self.binary(Op::Subtract, low, base),
                None => low,
            },
        }
    }

    /// Translates a pointer from its memory form.
    pub fn root_of_pointer(&mut self, raw: Value, align: u32, checked: Option<Checked>) -> Root {
        let translation = self.heap.translation;
        let low = self.member(raw, 0);
        let shared = self.shared_offset(low);
        if translation.device == 0 {
            return self.root_of_offset(Some(raw), shared, align, checked);
        }
        let high = self.member(raw, 1);
        let tag = self.shifted(high, 16);
        let is_shared = self.with(Op::Equal, tag, 0);
        let (segment, mut offset) = self.split(shared, true);
        if offset != low {
            offset = self.select(is_shared, offset, low);
        }
        let selector = if translation.bindings() == 2 {
            match translation.shared_first {
                true => is_shared,
                false => self.with(Op::NotEqual, tag, 0),
            }
        } else {
            let (shared_first, device_first) = match translation.shared_first {
                true => (0, translation.shared),
                false => (translation.device, 0),
            };
            let shared = match segment {
                Some(segment) => self.plus(segment, shared_first),
                None => self.word(shared_first),
            };
            let device = match translation.device {
                1 => self.word(device_first),
                _ => self.with(
                    Op::Add,
                    tag,
                    device_first.wrapping_sub(translation.first_tag),
                ),
            };
            self.select(is_shared, shared, device)
        };
        self.root(Some(raw), shared, offset, Some(selector), align, checked)
    }

    /// Translates a byte offset in the shared heap.
    pub fn root_of_offset(
        &mut self,
        raw: Option<Value>,
        global: Value,
        align: u32,
        checked: Option<Checked>,
    ) -> Root {
        let translation = self.heap.translation;
        let (selector, offset) = match translation.shared {
            2 => {
                let (_, offset) = self.split(global, false);
                let size = 1u32 << translation.segment_shift;
                (Some(self.with(Op::Less, global, size)), offset)
            }
            _ => self.split(global, true),
        };
        self.root(raw, global, offset, selector, align, checked)
    }

    /// Segment of the shared heap (where there are several, and the segment is `wanted`) and offset inside.
    fn split(&mut self, global: Value, wanted: bool) -> (Option<Value>, Value) {
        let translation = self.heap.translation;
        if translation.shared < 2 {
            return (None, global);
        }
        let mask = (1u32 << translation.segment_shift).wrapping_sub(1);
        let segment = wanted.then(|| self.shifted(global, translation.segment_shift));
        (segment, self.with(Op::And, global, mask))
    }

    fn root(
        &mut self,
        raw: Option<Value>,
        global: Value,
        offset: Value,
        selector: Option<Value>,
        align: u32,
        checked: Option<Checked>,
    ) -> Root {
        let base = match align < 4 {
            true => Base::Halves(self.shifted(offset, 1)),
            false => Base::Elements(self.shifted(offset, self.heap.shift())),
        };
        Root {
            raw,
            global,
            base,
            selector,
            remaining: checked.and_then(|c| c.remaining),
            valid: checked.map(|c| c.valid),
            is_limited: false,
            bytes: None,
            tells_length: false,
            code: 0,
        }
    }

    /// Pointer and size in bytes of the variable in `row` of the argument table.
    pub fn row(&mut self, row: u32) -> Option<(Value, Value)> {
        let table = self.global(self.heap.table?);
        let row = self.member(table, row);
        let row = self.load(row);
        let low = self.member(row, 0);
        let high = self.member(row, 1);
        let bytes = self.member(row, 2);
        Some((self.pair(low, high), bytes))
    }

    /// The root as a root from the argument table, ending after `bytes` bytes unless of fixed size.
    pub fn limited_to(&mut self, root: Root, bytes: Option<Value>, tells_length: bool) -> Root {
        let remaining = match (root.remaining, bytes) {
            (Some(remaining), Some(bytes)) => Some(self.lesser(remaining, bytes)),
            (remaining, _) => remaining,
        };
        Root {
            remaining,
            // In checked mode an index beyond the last is reported, and not replaced by another.
            is_limited: root.valid.is_none(),
            bytes,
            tells_length: tells_length && bytes.is_some(),
            ..root
        }
    }

    /// Bytes from the place, in a variable from the table, to the variable's end.
    fn rest_of_variable(&mut self, place: &Place) -> Option<Value> {
        let bytes = place.root.bytes?;
        Some(match place.constant {
            0 => bytes,
            constant => self.with(Op::Subtract, bytes, constant),
        })
    }

    /// Elements of an array without a length that begins at the place, behind a variable from the table.
    pub fn length(&mut self, place: &Place, stride: u32) -> Option<Value> {
        match place.root.tells_length {
            true => self.most(place, stride),
            false => None,
        }
    }

    /// Elements of such an array that an index may reach.
    fn most(&mut self, place: &Place, stride: u32) -> Option<Value> {
        let bytes = self.rest_of_variable(place)?;
        Some(self.divided(bytes, stride))
    }

    /// `index`, or the last index if smaller, behind a variable from the table.
    pub fn limited(
        &mut self,
        place: &Place,
        index: Value,
        stride: u32,
        count: Option<u32>,
    ) -> Value {
        let last = match (place.root.is_limited, count) {
            (false, _) => None,
            (true, Some(count)) => Some(self.word(count.saturating_sub(1))),
            (true, None) => self
                .most(place, stride)
                .map(|length| self.with(Op::Subtract, length, 1)),
        };
        match last {
            Some(last) => self.lesser(index, last),
            None => index,
        }
    }

    pub fn place(&mut self, root: Root) -> Place {
        Place {
            root,
            base: root.base,
            constant: 0,
            valid: root.valid,
            array: None,
            kept: None,
        }
    }

    /// The place `index * stride` bytes further on; `valid` replaces the place's own in checked mode.
    pub fn step(&mut self, place: Place, index: Value, stride: u32, valid: Option<Value>) -> Place {
        let unit = self.heap.element.bytes();
        let (base, constant) = match place.base {
            Base::Elements(at) if stride.is_multiple_of(unit) => {
                let steps = self.times(index, stride / unit);
                (
                    Base::Elements(self.binary(Op::Add, at, steps)),
                    place.constant,
                )
            }
            Base::Address(low, high) => {
                (self.system_step((low, high), index, stride), place.constant)
            }
            _ => {
                // Only halves have a stride that is no multiple of the element, a word then.
                let at = self.halves(place.base);
                let steps = self.times(index, stride / 2);
                (
                    Base::Halves(self.binary(Op::Add, at, steps)),
                    place.constant,
                )
            }
        };
        Place {
            root: place.root,
            base,
            constant,
            valid,
            array: None,
            kept: None,
        }
    }

    fn halves(&mut self, base: Base) -> Value {
        match base {
            Base::Halves(at) => at,
            Base::Elements(at) => self.times(at, self.heap.element.bytes() / 2),
            // Addresses are moved as a whole.
            Base::Address(low, _) => low,
        }
    }

    /// Bytes from the root to the place, the variable part.
    fn moved(&mut self, place: &Place) -> Option<Value> {
        if place.base == place.root.base {
            return None;
        }
        let (from, to, unit) = match (place.root.base, place.base) {
            (Base::Elements(from), Base::Elements(to)) => (from, to, self.heap.element.bytes()),
            (from, to) => (self.halves(from), self.halves(to), 2),
        };
        let distance = self.binary(Op::Subtract, to, from);
        Some(self.times(distance, unit))
    }

    /// The place in its boundary form.
    pub fn boundary(&mut self, place: &Place) -> Value {
        match self.heap.boundary {
            Boundary::Pointer => self.address(place),
            Boundary::Offset => {
                let mut at = place.root.global;
                if let Some(moved) = self.moved(place) {
                    at = self.binary(Op::Add, at, moved);
                }
                self.plus(at, place.constant)
            }
        }
    }

    /// `at`, a place in its boundary form, with the bytes that follow in its variable; for memory outside of variables,
    /// the largest number.
    pub fn with_bytes(&mut self, at: Value, place: &Place) -> Value {
        let bytes = match self.rest_of_variable(place) {
            Some(bytes) => bytes,
            None => self.word(u32::MAX),
        };
        let ty = self.heap.boundary_type(true);
        self.compose(ty, vec![at, bytes])
    }

    /// Takes the result of [`Self::with_bytes`] apart.
    pub fn parted(&mut self, value: Value) -> (Value, Option<Value>) {
        match self.heap.boundary {
            Boundary::Offset => {
                let bytes = self.member(value, 1);
                (self.member(value, 0), Some(bytes))
            }
            Boundary::Pointer => {
                let bytes = self.member(value, 2);
                (self.part(value, 3, 0, 2), Some(bytes))
            }
        }
    }

    /// The address of the place; null for a forbidden place.
    pub fn address(&mut self, place: &Place) -> Value {
        if let Base::Address(low, high) = place.base {
            return self.system_address((low, high), place.constant);
        }
        let zero = self.word(0);
        let Some(raw) = place.root.raw else {
            // Without the pointer there is only an offset; that form is not chosen where addresses are wanted.
            let low = self.boundary(place);
            return self.pair(low, zero);
        };
        let moved = self.moved(place);
        let address = if moved.is_none() && place.constant == 0 {
            raw
        } else {
            let low = self.member(raw, 0);
            let high = self.member(raw, 1);
            let distance = match moved {
                Some(moved) => self.plus(moved, place.constant),
                None => self.word(place.constant),
            };
            let sum = self.binary(Op::Add, low, distance);
            let wrapped = self.binary(Op::Less, sum, low);
            let one = self.word(1);
            let carry = self.select(wrapped, one, zero);
            let high = self.binary(Op::Add, high, carry);
            self.pair(sum, high)
        };
        match place.valid {
            Some(valid) => {
                let null = self.zero(self.heap.types.vec2);
                self.select(valid, address, null)
            }
            None => address,
        }
    }
}
