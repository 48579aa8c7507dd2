//! Calls of functions in Rust. See [`host`](crate::compile::host).

use std::mem::offset_of;

use cranelift_codegen::ir::{
    self, AbiParam, InstBuilder, MemFlagsData, Signature, StackSlot, StackSlotData, StackSlotKind,
    types,
};

use super::Emitter;
use crate::compile::{
    abi::Group,
    error::Result,
    host::HostFunction,
    ir::{Call, Type},
};

/// Lanes side by side.
const WIDTH: u32 = 1;

/// The purpose of an area of the stack.
#[derive(Clone, Copy)]
pub(super) enum Role {
    Entries,
    Given,
    Taken,
}

/// The areas of the stack, by [`Role`]. A call is made before another call is prepared.
#[derive(Default)]
pub(super) struct Areas([Option<StackSlot>; 3]);

impl Emitter<'_> {
    pub(super) fn call(&mut self, call: &Call) -> Result<()> {
        let mut resources = Vec::new();
        for &at in &call.resources {
            resources.push(self.buffer(at)?);
        }
        let mut operands = Vec::new();
        for &operand in &call.operands {
            operands.push((self.program.ty(operand), self.value(operand)?));
        }
        let types: Vec<_> = call.results.iter().map(|&r| self.program.ty(r)).collect();
        let results = self.call_host(call.function, &resources, &operands, &types);
        for (&result, value) in call.results.iter().zip(results) {
            self.values[result] = value.into();
        }
        Ok(())
    }

    /// Calls a function with the addresses of bound entries and with operands. Returns its results.
    pub(super) fn call_host(
        &mut self,
        function: HostFunction,
        resources: &[ir::Value],
        operands: &[(Type, ir::Value)],
        results: &[Type],
    ) -> Vec<ir::Value> {
        let entries = self.area(Role::Entries, 8 * resources.len() as u32);
        for (index, &resource) in resources.iter().enumerate() {
            self.b
                .ins()
                .store(MemFlagsData::trusted(), resource, entries, 8 * index as i32);
        }
        let rows =
            |types: &mut dyn Iterator<Item = Type>| -> u32 { types.map(Type::own_bytes).sum() };
        let given = self.area(Role::Given, rows(&mut operands.iter().map(|&(ty, _)| ty)));
        let taken = self.area(Role::Taken, rows(&mut results.iter().copied()));
        let mut offset = 0;
        for &(ty, value) in operands {
            self.store_own(ty, value, given, offset);
            offset += ty.own_bytes() * WIDTH;
        }
        let lanes = self.int32(1);
        let width = self.int32(WIDTH);
        let functions = self.group_field(types::I64, offset_of!(Group, functions));
        let at = 8 * function.index() as i32;
        let code = self.b.ins().load(types::I64, super::fixed(), functions, at);
        let signature = self.host_signature();
        let which = self.int32(function.which());
        let arguments = [entries, given, taken, lanes, width, which];
        self.b.ins().call_indirect(signature, code, &arguments);
        let mut values = Vec::new();
        let mut offset = 0;
        for &ty in results {
            values.push(self.load_own(ty, taken, offset));
            offset += ty.own_bytes() * WIDTH;
        }
        values
    }

    /// Memory of the stack for so many bytes. All calls share the memory, so a kernel of many calls has a small stack.
    pub(super) fn area(&mut self, role: Role, bytes: u32) -> ir::Value {
        let known = self.areas.0[role as usize];
        let slot = known.unwrap_or_else(|| {
            let data = StackSlotData::new(StackSlotKind::ExplicitSlot, 8, 4);
            self.b.create_sized_stack_slot(data)
        });
        self.areas.0[role as usize] = Some(slot);
        let data = &mut self.b.func.sized_stack_slots[slot];
        data.size = data.size.max(bytes);
        self.b.ins().stack_addr(types::I64, slot, 0)
    }

    pub(super) fn host_signature(&mut self) -> ir::SigRef {
        if let Some(known) = self.host_signature {
            return known;
        }
        let mut signature = Signature::new(self.convention);
        for ty in [
            types::I64,
            types::I64,
            types::I64,
            types::I32,
            types::I32,
            types::I32,
        ] {
            signature.params.push(AbiParam::new(ty));
        }
        let signature = self.b.import_signature(signature);
        self.host_signature = Some(signature);
        signature
    }
}
