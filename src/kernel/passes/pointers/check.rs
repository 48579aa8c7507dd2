//! Checked mode: the conditions for a pointer. How a violation is noted and reported is in `notes.rs`.
//!
//! A pointer is tested at its translation, an index at its application; both tests are plain arithmetic. What failed is
//! noted where memory is touched, for a pointer may be formed and then, being null, not be followed. In a block with
//! several touches, and in the blocks inside, the first touch notes the pointer for all. The host tells the reasons
//! apart, by the address and the alignment.

use naga::{
    BinaryOperator as Op, BuiltIn, Expression, FunctionArgument, MathFunction, Module, Scalar,
    TypeInner, VectorSize,
};

use super::super::type_of;
use super::builder::{Builder, Value};
use super::place::{Checked, Place};
use crate::addresses::granules::{DEVICE_GRANULE, HEAP_GRANULE};
use crate::kernel::passes::code::Emitter;

/// Why something may not be touched.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    /// The pointer itself.
    Pointer { raw: Value, site: usize },
    /// An index behind the pointer, with the resulting address.
    Index {
        parent: Value,
        address: (Value, Value),
        site: usize,
    },
}

/// The assumed target of a pointer.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub align: u32,
    /// Bytes that must lie in the heap.
    pub bytes: u32,
    /// An array without a length follows these bytes.
    pub is_unsized: bool,
}

impl Builder<'_> {
    pub fn all(&mut self, left: Value, right: Value) -> Value {
        self.binary(Op::LogicalAnd, left, right)
    }

    /// `size - min(offset, size)`
    fn rest(&mut self, size: Value, offset: Value) -> Value {
        let reached = self.lesser(offset, size);
        self.binary(Op::Subtract, size, reached)
    }

    /// The lesser of two numbers.
    pub fn lesser(&mut self, left: Value, right: Value) -> Value {
        self.add(Expression::Math {
            fun: MathFunction::Min,
            arg: left,
            arg1: Some(right),
            arg2: None,
            arg3: None,
        })
    }

    /// The first offset in a range of `size` bytes at which `bytes` bytes do not fit any more.
    fn limit(&mut self, size: Value, bytes: u32) -> Value {
        if let Some(limit) = self.limits.get(&(size, bytes)) {
            return *limit;
        }
        let last = self.word(bytes.max(1) - 1);
        self.rest(size, last)
    }

    /// Computes limits for values of `bytes` bytes at the start of the function, for use in all of the function.
    pub fn keep_limits(&mut self, bytes: u32) {
        if self.heap.status.is_none() || !self.heap.allocations.is_empty() {
            return;
        }
        for word in [2, 4] {
            if let Some(size) = self.info_words.get(&word).copied() {
                let limit = self.limit(size, bytes);
                self.limits.insert((size, bytes), limit);
            }
        }
    }

    /// Tests a pointer. A null pointer is found out by its address like any other: no heap begins at 0.
    pub fn checked_pointer(&mut self, raw: Value, target: Target, site: usize) -> Option<Checked> {
        self.heap.status?;
        let translation = self.heap.translation;
        let low = self.member(raw, 0);
        let high = self.member(raw, 1);
        let (mut strange, mut fits, mut size) = self.checked_shared(low, high, target)?;
        let mut offset = self.shared_offset(low);
        if translation.shared > 1 && target.is_unsized && self.heap.allocations.is_empty() {
            // The array ends with the heap or with its segment.
            let bytes = 1u32 << translation.segment_shift;
            let before = self.with(Op::And, offset, 0u32.wrapping_sub(bytes));
            let size_here = self.binary(Op::Subtract, size, before);
            let bytes = self.word(bytes);
            size = self.lesser(size_here, bytes);
            offset = self.binary(Op::Subtract, offset, before);
        }
        if translation.device > 0 {
            let tag = self.shifted(high, 16);
            let is_shared = self.with(Op::Equal, tag, 0);
            let device = self.checked_device(low, high, tag, target)?;
            strange = self.select(is_shared, strange, device.0);
            fits = {
                let (yes, no) = (self.all(is_shared, fits), self.not(is_shared));
                let other = self.all(no, device.1);
                self.binary(Op::LogicalOr, yes, other)
            };
            if target.is_unsized {
                size = self.select(is_shared, size, device.2);
                if offset != low {
                    offset = self.select(is_shared, offset, low);
                }
            }
        }
        let strange = match target.align {
            1 => strange,
            align => {
                let crooked = self.with(Op::And, low, align.wrapping_sub(1));
                self.binary(Op::InclusiveOr, strange, crooked)
            }
        };
        let sane = self.with(Op::Equal, strange, 0);
        let valid = self.all(sane, fits);
        self.causes.insert(valid, Cause::Pointer { raw, site });
        let remaining = target.is_unsized.then(|| self.rest(size, offset));
        Some(Checked { valid, remaining })
    }

    /// For a pointer into the shared heap: bits that must be zero, whether the value fits, and the size.
    fn checked_shared(
        &mut self,
        low: Value,
        high: Value,
        target: Target,
    ) -> Option<(Value, Value, Value)> {
        let translation = self.heap.translation;
        let base_high = self.info(1)?;
        let size = self.info(2)?;
        let offset = self.shared_offset(low);
        let high = match translation.device {
            // Where all memory is shared, pointers into the device's own carry a tag and lie in the heap.
            0 => self.with(Op::And, high, 0xffff),
            _ => high,
        };
        let strange = match translation.window_aligned {
            true => self.binary(Op::ExclusiveOr, high, base_high),
            false => {
                let base_low = self.info(0)?;
                let borrows = self.binary(Op::Less, low, base_low);
                let (one, zero) = (self.word(1), self.word(0));
                let borrow = self.select(borrows, one, zero);
                let expected = self.binary(Op::Add, base_high, borrow);
                self.binary(Op::ExclusiveOr, high, expected)
            }
        };
        if !self.heap.allocations.is_empty() {
            // No allocation lies in two segments.
            let end = self.allocation_end(offset);
            let fits = self.reaches(end, offset, target);
            return Some((strange, fits, end));
        }
        let limit = self.limit(size, target.bytes);
        let mut fits = self.binary(Op::Less, offset, limit);
        if translation.shared > 1 {
            let bytes = 1u32 << translation.segment_shift;
            let within = self.with(Op::And, offset, bytes.wrapping_sub(1));
            let limit = bytes.saturating_sub(target.bytes.max(1) - 1);
            let whole = self.with(Op::Less, within, limit);
            fits = self.all(fits, whole);
        }
        Some((strange, fits, size))
    }

    /// Whether memory ending at `end` has room for the target at `offset`. An end of 0 means no allocation.
    fn reaches(&mut self, end: Value, offset: Value, target: Target) -> Value {
        let rest = self.rest(end, offset);
        self.with(Op::GreaterEqual, rest, target.bytes.max(1))
    }

    /// Where the allocation at `offset` in the shared heap ends. Reads beyond the table give some word of the table, or
    /// zero: an end in front of the offset.
    fn allocation_end(&mut self, offset: Value) -> Value {
        let tables = self.heap.allocations.clone();
        let index = self.shifted(offset, HEAP_GRANULE.trailing_zeros());
        if let [table] = tables[..] {
            return self.word_of(table, index);
        }
        // A part has as many bytes as a segment, and so a quarter as many words.
        let shift = self.heap.translation.segment_shift - 2;
        let within = self.with(Op::And, index, (1u32 << shift) - 1);
        let part = self.shifted(index, shift);
        let mut end = self.word(0);
        for (number, table) in tables.into_iter().enumerate() {
            let here = self.with(Op::Equal, part, number as u32);
            let word = self.word_of(table, within);
            end = self.select(here, word, end);
        }
        end
    }

    /// Where the allocation at `low` in segment number `segment` of device memory ends; as above.
    fn device_allocation_end(
        &mut self,
        table: naga::Handle<naga::GlobalVariable>,
        low: Value,
        segment: Value,
    ) -> Option<Value> {
        let count = self.heap.translation.device;
        let index = self.shifted(low, DEVICE_GRANULE.trailing_zeros());
        let start = match count {
            1 => self.word(0),
            _ => {
                let info = self.global(self.heap.info?);
                let row = self.shifted(segment, 2);
                let row = self.plus(row, 1 + count.div_ceil(4));
                let column = self.with(Op::And, segment, 3);
                let row = self.element(info, row);
                let word = self.element(row, column);
                self.load(word)
            }
        };
        let index = self.binary(Op::Add, index, start);
        Some(self.word_of(table, index))
    }

    fn word_of(&mut self, table: naga::Handle<naga::GlobalVariable>, index: Value) -> Value {
        let table = self.global(table);
        let word = self.element(table, index);
        self.load(word)
    }

    /// The same for a pointer into device memory.
    fn checked_device(
        &mut self,
        low: Value,
        high: Value,
        tag: Value,
        target: Target,
    ) -> Option<(Value, Value, Value)> {
        let translation = self.heap.translation;
        let segment = self.with(Op::Subtract, tag, translation.first_tag);
        let size = match translation.device {
            1 => self.info(4)?,
            _ => {
                let info = self.global(self.heap.info?);
                let last = self.word(translation.device - 1);
                let known = self.lesser(segment, last);
                let row = self.shifted(known, 2);
                let row = self.plus(row, 1);
                let column = self.with(Op::And, known, 3);
                let row = self.element(info, row);
                let word = self.element(row, column);
                self.load(word)
            }
        };
        let known = self.with(Op::Less, segment, translation.device);
        let strange = self.with(Op::And, high, 0xffff);
        if let Some(table) = self.heap.device_allocations {
            let last = self.word(translation.device - 1);
            let segment = self.lesser(segment, last);
            let end = self.device_allocation_end(table, low, segment)?;
            // An address beyond the segment may find the word of another segment, whose end is an offset there.
            let in_segment = self.binary(Op::Less, low, size);
            let fits = self.reaches(end, low, target);
            let fits = self.all(fits, in_segment);
            let fits = self.all(fits, known);
            return Some((strange, fits, end));
        }
        let limit = self.limit(size, target.bytes);
        let fits = self.binary(Op::Less, low, limit);
        let fits = self.all(fits, known);
        Some((strange, fits, size))
    }

    /// Tests an index: below `count`, or, for an array without a length that begins at the place, within the heap.
    /// Returns the validity of the element; nothing outside checked mode.
    pub fn checked_index(
        &mut self,
        place: &Place,
        index: Value,
        stride: u32,
        count: Option<u32>,
        site: usize,
    ) -> Option<Value> {
        let parent = place.valid?;
        let fits = match count {
            Some(count) => self.with(Op::Less, index, count),
            None => {
                let remaining = place.root.remaining?;
                let from_here = self.with(Op::Subtract, remaining, place.constant);
                let count = self.divided(from_here, stride);
                self.binary(Op::Less, index, count)
            }
        };
        let valid = self.all(parent, fits);
        let raw = place.root.raw?;
        let offset = self.times(index, stride);
        let offset = self.plus(offset, place.constant);
        let low = self.member(raw, 0);
        let low = self.binary(Op::Add, low, offset);
        let high = self.member(raw, 1);
        let cause = Cause::Index {
            parent,
            address: (low, high),
            site,
        };
        self.causes.insert(valid, cause);
        Some(valid)
    }
}

/// Finds or adds built-in `wanted` among the arguments of an entry point.
pub(in super::super) fn built_in(
    module: &mut Module,
    arguments: &mut Vec<FunctionArgument>,
    wanted: BuiltIn,
) -> (u32, Option<u32>) {
    let is_it = |binding: &Option<naga::Binding>| *binding == Some(naga::Binding::BuiltIn(wanted));
    for (index, argument) in arguments.iter().enumerate() {
        if is_it(&argument.binding) {
            return (index as u32, None);
        }
        if let TypeInner::Struct { members, .. } = &module.types[argument.ty].inner
            && let Some(member) = members.iter().position(|m| is_it(&m.binding))
        {
            return (index as u32, Some(member as u32));
        }
    }
    let ty = type_of(
        module,
        TypeInner::Vector {
            size: VectorSize::Tri,
            scalar: Scalar::U32,
        },
    );
    arguments.push(FunctionArgument {
        name: None,
        ty,
        binding: Some(naga::Binding::BuiltIn(wanted)),
    });
    (arguments.len() as u32 - 1, None)
}
