//! Loads and stores.

use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, condcodes::IntCC, types};

use super::{Emitter, fixed, register};
use crate::compile::{
    abi::{BoundResource, Group},
    error::Result,
    ir::{Access, Base, Count, Leaf, Place, Step, Type},
    passes::range,
};

/// An address: a register and a constant.
#[derive(Clone, Copy)]
pub(super) struct Address {
    pub(super) base: ir::Value,
    pub(super) offset: u32,
    /// Whether scalars lie there in the layout of kernels
    own: bool,
    /// Whether nobody writes there while the kernel runs
    pub(super) constant: bool,
}

impl Emitter<'_> {
    pub(super) fn load(&mut self, place: &Place, leaves: &[Leaf], access: Access) -> Result<()> {
        if self.spreads(place) {
            return self.load_lanes(place, leaves, access);
        }
        let address = self.address(place)?;
        for leaf in leaves {
            let ty = self.program.ty(leaf.value);
            let at = self.displaced(address, leaf.offset);
            let value = match access {
                Access::Atomic if is_atomic(ty) => self.load_atomic(ty, at),
                _ => self.load_scalar(ty, at),
            };
            self.values[leaf.value] = value.into();
        }
        Ok(())
    }

    pub(super) fn store(&mut self, place: &Place, leaves: &[Leaf], access: Access) -> Result<()> {
        if self.spreads(place) || leaves.iter().any(|leaf| !self.is_uniform(leaf.value)) {
            return self.store_lanes(place, leaves, access);
        }
        let address = self.address(place)?;
        for leaf in leaves {
            let ty = self.program.ty(leaf.value);
            let value = self.value(leaf.value)?;
            let at = self.displaced(address, leaf.offset);
            match access {
                Access::Atomic if is_atomic(ty) => self.store_atomic(ty, value, at),
                _ => self.store_scalar(ty, value, at),
            }
        }
        Ok(())
    }

    /// The address of a place. Indices are limited to the elements present, if the policy is to check bounds.
    pub(super) fn address(&mut self, place: &Place) -> Result<Address> {
        let (base, constant) = match place.base {
            Base::Binding(at) => {
                let constant = self.program.bindings[at.first].constant;
                let entry = self.buffer(at)?;
                let field = std::mem::offset_of!(BoundResource, address);
                (self.buffer_field(entry, types::I64, field), constant)
            }
            Base::WorkGroup => {
                let field = std::mem::offset_of!(Group, workgroup);
                (self.group_field(types::I64, field), false)
            }
            Base::Immediates => {
                let field = std::mem::offset_of!(Group, immediates);
                (self.group_field(types::I64, field), true)
            }
            Base::Table(table) => {
                let field = std::mem::offset_of!(Group, tables);
                let tables = self.group_field(types::I64, field);
                let offset = i64::from(self.table_offsets[table]);
                (self.b.ins().iadd_imm_s(tables, offset), true)
            }
            Base::Slot(slot) => {
                let frame = self.frame();
                let offset = i64::from(self.slot_offset(slot));
                (self.b.ins().iadd_imm_s(frame, offset), false)
            }
        };
        let mut base = base;
        for step in &place.steps {
            let offset = self.step(step)?;
            base = self.b.ins().iadd(base, offset);
        }
        Ok(Address {
            base,
            offset: place.offset,
            own: place.base.is_own(),
            constant,
        })
    }

    /// The bytes added to an address by an index.
    fn step(&mut self, step: &Step) -> Result<ir::Value> {
        let index = self.value(step.index)?;
        let index = self.limited(step, index)?;
        Ok(self.scaled(index, step.stride))
    }

    /// An index within bounds, if the policy is to check bounds.
    pub(super) fn limited(&mut self, step: &Step, index: ir::Value) -> Result<ir::Value> {
        Ok(match self.last_index(step)? {
            Some(last) => self.b.ins().umin(index, last),
            None => index,
        })
    }

    /// The greatest index of a step. `None` if a greater index is impossible, or bounds are not checked.
    pub(super) fn last_index(&mut self, step: &Step) -> Result<Option<ir::Value>> {
        if !self.options.checks_bounds {
            return Ok(None);
        }
        Ok(match step.count {
            Count::Fixed(count) if range::greatest(self.program, step.index) < count => None,
            Count::Fixed(count) => Some(self.int32(count - 1)),
            Count::Bound(at) => {
                let entry = self.buffer(at)?;
                let field = std::mem::offset_of!(BoundResource, last);
                Some(self.buffer_field(entry, types::I32, field))
            }
        })
    }

    /// An index multiplied by the bytes between elements.
    pub(super) fn scaled(&mut self, index: ir::Value, stride: u32) -> ir::Value {
        let index = self.b.ins().uextend(types::I64, index);
        self.multiplied(index, stride)
    }

    /// An index of 64 bits, multiplied by the bytes between elements.
    pub(super) fn multiplied(&mut self, index: ir::Value, stride: u32) -> ir::Value {
        if stride.is_power_of_two() {
            let shift = i64::from(stride.trailing_zeros());
            self.b.ins().ishl_imm_u(index, shift)
        } else {
            self.b.ins().imul_imm_s(index, i64::from(stride))
        }
    }

    /// An address some bytes further on, with an offset fit for instructions.
    pub(super) fn displaced(&mut self, address: Address, bytes: u32) -> Address {
        let offset = u64::from(address.offset) + u64::from(bytes);
        if let Ok(small) = i32::try_from(offset) {
            return Address {
                offset: small as u32,
                ..address
            };
        }
        Address {
            base: self.b.ins().iadd_imm_s(address.base, offset as i64),
            offset: 0,
            ..address
        }
    }

    pub(super) fn load_scalar(&mut self, ty: Type, at: Address) -> ir::Value {
        let flags = if at.constant { fixed() } else { plain() };
        let offset = at.offset as i32;
        match ty {
            Type::Bool => {
                let word = self.b.ins().load(types::I32, flags, at.base, offset);
                self.b.ins().icmp_imm_u(IntCC::NotEqual, word, 0)
            }
            Type::F16 if !at.own => {
                let bits = self.b.ins().uload16(types::I32, flags, at.base, offset);
                self.half_from_bits(bits)
            }
            _ => self.b.ins().load(register(ty), flags, at.base, offset),
        }
    }

    pub(super) fn store_scalar(&mut self, ty: Type, value: ir::Value, at: Address) {
        let offset = at.offset as i32;
        match ty {
            Type::Bool => {
                let word = self.b.ins().uextend(types::I32, value);
                self.b.ins().store(plain(), word, at.base, offset);
            }
            Type::F16 if !at.own => {
                let bits = self.half_bits(value);
                self.b.ins().istore16(plain(), bits, at.base, offset);
            }
            _ => {
                self.b.ins().store(plain(), value, at.base, offset);
            }
        }
    }

    /// Loads a scalar from memory in the layout of kernels.
    pub(super) fn load_own(&mut self, ty: Type, base: ir::Value, offset: u32) -> ir::Value {
        let at = Address {
            base,
            offset,
            own: true,
            constant: false,
        };
        self.load_scalar(ty, at)
    }

    /// Stores a scalar to memory in the layout of kernels.
    pub(super) fn store_own(&mut self, ty: Type, value: ir::Value, base: ir::Value, offset: u32) {
        let at = Address {
            base,
            offset,
            own: true,
            constant: false,
        };
        self.store_scalar(ty, value, at);
    }

    pub(super) fn load_atomic(&mut self, ty: Type, at: Address) -> ir::Value {
        let address = self.whole(at);
        let bits = self.b.ins().atomic_load(integer(ty), aligned(), address);
        self.of_bits(ty, bits)
    }

    pub(super) fn store_atomic(&mut self, ty: Type, value: ir::Value, at: Address) {
        let address = self.whole(at);
        let bits = self.as_bits(ty, value);
        if self.orders_stores {
            // Atomic operations of WGSL are relaxed, and memory in need of an order has barriers. An atomic store of
            // Cranelift's is a store and a full fence, slower than all else in many a loop.
            self.b.ins().store(aligned(), bits, address, 0);
            return;
        }
        self.b.ins().atomic_store(aligned(), bits, address);
    }

    /// An address in one register.
    pub(super) fn whole(&mut self, at: Address) -> ir::Value {
        match at.offset {
            0 => at.base,
            offset => self.b.ins().iadd_imm_s(at.base, i64::from(offset)),
        }
    }

    /// A number as the integer with its bits.
    pub(super) fn as_bits(&mut self, ty: Type, value: ir::Value) -> ir::Value {
        if ty.is_float() {
            self.b
                .ins()
                .bitcast(integer(ty), MemFlagsData::new(), value)
        } else {
            value
        }
    }

    /// The number with the bits of an integer.
    pub(super) fn of_bits(&mut self, ty: Type, bits: ir::Value) -> ir::Value {
        if ty.is_float() {
            self.b
                .ins()
                .bitcast(register(ty), MemFlagsData::new(), bits)
        } else {
            bits
        }
    }
}

/// Whether an access of a scalar can be indivisible.
pub(super) fn is_atomic(ty: Type) -> bool {
    !matches!(ty, Type::Bool | Type::F16)
}

/// The integer type with as many bits.
pub(super) fn integer(ty: Type) -> ir::Type {
    match ty.bits() {
        64 => types::I64,
        _ => types::I32,
    }
}

/// Flags for memory that somebody may write, at any address: imported memory may be aligned to four bytes only.
fn plain() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// Flags for atomic accesses.
pub(super) fn aligned() -> MemFlagsData {
    MemFlagsData::trusted()
}
