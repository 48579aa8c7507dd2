//! Operations of subgroups whose invocations run side by side: a call with a row for each operand, and the active mask.

use std::mem::offset_of;

use cranelift_codegen::ir::{self, InstBuilder, types};

use super::{PART, Parts, vector_flags, vector_type};
use crate::compile::{
    abi::Group,
    emit::{Emitter, call::Role, fixed, register},
    error::Result,
    host::HostFunction,
    ir::{Subgroup, Type},
    subgroup::{Function, SIZE},
};

/// Bytes of a row.
const ROW: u32 = 4 * SIZE;

impl Emitter<'_> {
    pub(in crate::compile::emit) fn subgroup_of_lanes(
        &mut self,
        operation: &Subgroup,
    ) -> Result<()> {
        if operation.function == Function::Barrier {
            // The lanes are together, and do each statement together.
            return Ok(());
        }
        let entries = self.area(Role::Entries, 0);
        let given = self.area(Role::Given, ROW * operation.operands.len() as u32);
        let taken = self.area(Role::Taken, ROW * operation.results.len() as u32);
        for (&operand, row) in operation.operands.iter().zip(0..) {
            let parts = self.vector(operand)?;
            for (&part, index) in parts.iter().zip(0..) {
                let at = (ROW * row + 16 * index) as i32;
                self.b.ins().store(vector_flags(), part, given, at);
            }
        }
        let lanes = match self.active_bits() {
            Some(bits) => bits,
            None => self.int32((1 << SIZE) - 1),
        };
        let function = HostFunction::Subgroup(operation.operation(self.program));
        let functions = self.group_field(types::I64, offset_of!(Group, functions));
        let at = 8 * function.index() as i32;
        let code = self.b.ins().load(types::I64, fixed(), functions, at);
        let signature = self.host_signature();
        let width = self.int32(SIZE);
        let which = self.int32(function.which());
        let arguments = [entries, given, taken, lanes, width, which];
        self.b.ins().call_indirect(signature, code, &arguments);
        for (&result, row) in operation.results.iter().zip(0..) {
            let ty = self.program.ty(result);
            let at = ROW * row;
            if !self.varies(result) {
                let value = self.first_of_row(ty, taken, at);
                self.values[result] = value.into();
                continue;
            }
            let parts: Parts = (0..SIZE / PART)
                .map(|index| {
                    let at = (at + 16 * index) as i32;
                    let ty = vector_type(ty);
                    self.b.ins().load(ty, vector_flags(), taken, at)
                })
                .collect();
            self.set_vector(result, parts);
        }
        Ok(())
    }

    /// The value given to all lanes alike.
    fn first_of_row(&mut self, ty: Type, row: ir::Value, at: u32) -> ir::Value {
        if ty != Type::Bool {
            return self.load_own(ty, row, at);
        }
        let mask = self.load_own(Type::I32, row, at);
        let bit = self.b.ins().band_imm_u(mask, 1);
        self.b.ins().ireduce(register(Type::Bool), bit)
    }
}
