//! Atomic operations. Memory of a work-group needs no indivisible ones: one thread runs the whole group. Nor do copies
//! of buffers reduced by a thread apart from others ([`Group::apart`]).

use cranelift_codegen::ir::{
    self, AtomicRmwOp, BlockArg, InstBuilder, MemFlagsData, condcodes::IntCC, types,
};

use super::{
    Emitter,
    memory::{aligned, integer},
};
use crate::compile::{
    abi::Group,
    error::{Result, internal},
    ir::{Atomic, AtomicFunction as F, Base, BindingAt, Type},
};

impl Emitter<'_> {
    pub(super) fn atomic(&mut self, atomic: &Atomic) -> Result<()> {
        if self.lanes.are_many() {
            return self.atomic_lanes(atomic);
        }
        let ty = self.program.ty(atomic.result);
        let address = self.address(&atomic.place)?;
        let address = self.whole(address);
        let value = self.value(atomic.value)?;
        let compare = match atomic.compare {
            Some(compare) => Some(self.value(compare)?),
            None => None,
        };
        let old = self.atomic_at(atomic, address, value, compare)?;
        self.values[atomic.result] = old.into();
        if let (Some(exchanged), Some(compare)) = (atomic.exchanged, compare) {
            let (old, compare) = (self.as_bits(ty, old), self.as_bits(ty, compare));
            let equal = self.b.ins().icmp(IntCC::Equal, old, compare);
            self.values[exchanged] = equal.into();
        }
        Ok(())
    }

    /// An atomic operation of one lane, with its operands. Returns the old value.
    pub(super) fn atomic_at(
        &mut self,
        atomic: &Atomic,
        address: ir::Value,
        value: ir::Value,
        compare: Option<ir::Value>,
    ) -> Result<ir::Value> {
        let ty = self.program.ty(atomic.result);
        if atomic.place.base == Base::WorkGroup {
            Ok(self.exchange_alone(ty, atomic.function, address, value, compare))
        } else if ty.is_float() && atomic.function == F::Add {
            Ok(self.add_float(ty, address, value))
        } else if self.is_of_reduction(atomic) {
            self.reduce(ty, atomic.function, address, value)
        } else {
            self.exchange(ty, atomic.function, address, value, compare)
        }
    }

    fn is_of_reduction(&self, atomic: &Atomic) -> bool {
        let Base::Binding(BindingAt { first, index: None }) = atomic.place.base else {
            return false;
        };
        self.program.bindings[first].reduction.is_some()
    }

    /// Changes memory open to other threads or not, as the caller of the kernel says. Nobody needs the result.
    fn reduce(
        &mut self,
        ty: Type,
        function: F,
        address: ir::Value,
        value: ir::Value,
    ) -> Result<ir::Value> {
        let apart = self.group_field(types::I32, std::mem::offset_of!(Group, apart));
        let [alone, shared, done] = [(); 3].map(|()| self.b.create_block());
        self.b.ins().brif(apart, alone, &[], shared, &[]);
        self.b.switch_to_block(alone);
        self.exchange_alone(ty, function, address, value, None);
        self.b.ins().jump(done, &[]);
        self.b.switch_to_block(shared);
        self.exchange(ty, function, address, value, None)?;
        self.b.ins().jump(done, &[]);
        self.b.switch_to_block(done);
        Ok(self.constant(ty, 0))
    }

    /// Exchanges memory open to changes by other threads. Returns the old value.
    fn exchange(
        &mut self,
        ty: Type,
        function: F,
        address: ir::Value,
        value: ir::Value,
        compare: Option<ir::Value>,
    ) -> Result<ir::Value> {
        let value = self.as_bits(ty, value);
        let op = match function {
            F::Add => AtomicRmwOp::Add,
            F::Sub => AtomicRmwOp::Sub,
            F::And => AtomicRmwOp::And,
            F::Or => AtomicRmwOp::Or,
            F::Xor => AtomicRmwOp::Xor,
            F::MinS => AtomicRmwOp::Smin,
            F::MinU => AtomicRmwOp::Umin,
            F::MaxS => AtomicRmwOp::Smax,
            F::MaxU => AtomicRmwOp::Umax,
            F::Exchange => AtomicRmwOp::Xchg,
            F::CompareExchange => {
                let compare =
                    compare.ok_or_else(|| internal("an exchange without a comparison"))?;
                let compare = self.as_bits(ty, compare);
                let old = self.b.ins().atomic_cas(aligned(), address, compare, value);
                return Ok(self.of_bits(ty, old));
            }
        };
        let old = self
            .b
            .ins()
            .atomic_rmw(integer(ty), aligned(), op, address, value);
        Ok(self.of_bits(ty, old))
    }

    /// Adds a float, as often as somebody else was faster.
    fn add_float(&mut self, ty: Type, address: ir::Value, value: ir::Value) -> ir::Value {
        let bits = integer(ty);
        let first = self.b.ins().atomic_load(bits, aligned(), address);
        let again = self.b.create_block();
        let done = self.b.create_block();
        let expected = self.b.append_block_param(again, bits);
        let old = self.b.append_block_param(done, bits);
        self.b.ins().jump(again, &[BlockArg::Value(first)]);
        self.b.switch_to_block(again);
        let before = self.of_bits(ty, expected);
        let sum = self.b.ins().fadd(before, value);
        let sum = self.as_bits(ty, sum);
        let seen = self.b.ins().atomic_cas(aligned(), address, expected, sum);
        let taken = self.b.ins().icmp(IntCC::Equal, seen, expected);
        let seen = [BlockArg::Value(seen)];
        self.b.ins().brif(taken, done, &seen, again, &seen);
        self.b.switch_to_block(done);
        self.of_bits(ty, old)
    }

    /// Exchanges memory reached by this thread only. Returns the old value.
    fn exchange_alone(
        &mut self,
        ty: Type,
        function: F,
        address: ir::Value,
        value: ir::Value,
        compare: Option<ir::Value>,
    ) -> ir::Value {
        let flags = MemFlagsData::trusted();
        let old = self.b.ins().load(super::register(ty), flags, address, 0);
        let new = match function {
            F::Add if ty.is_float() => self.b.ins().fadd(old, value),
            F::Add => self.b.ins().iadd(old, value),
            F::Sub => self.b.ins().isub(old, value),
            F::And => self.b.ins().band(old, value),
            F::Or => self.b.ins().bor(old, value),
            F::Xor => self.b.ins().bxor(old, value),
            F::MinS => self.b.ins().smin(old, value),
            F::MinU => self.b.ins().umin(old, value),
            F::MaxS => self.b.ins().smax(old, value),
            F::MaxU => self.b.ins().umax(old, value),
            F::Exchange => value,
            F::CompareExchange => match compare {
                Some(compare) => {
                    let (a, b) = (self.as_bits(ty, old), self.as_bits(ty, compare));
                    let equal = self.b.ins().icmp(IntCC::Equal, a, b);
                    self.b.ins().select(equal, value, old)
                }
                None => value,
            },
        };
        self.b.ins().store(flags, new, address, 0);
        old
    }
}
