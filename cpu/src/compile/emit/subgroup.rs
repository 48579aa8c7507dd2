//! Operations of subgroups: see [`subgroup`](crate::compile::subgroup).

use std::mem::offset_of;

use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, types};

use super::{Emitter, region::STATE_BYTES};
use crate::compile::{
    abi::Group,
    error::Result,
    host::HostFunction,
    ir::{Program, Statement, Subgroup, Type, visit},
    subgroup::{AT_OPERATION, ROW_BYTES},
};

/// Where in a frame an invocation leaves the values for others of its subgroup.
#[derive(Clone, Copy)]
pub(super) struct Meeting {
    /// Where loops and passes are, and how many there can be
    loops: u32,
    most_loops: u32,
    most_rows: u32,
}

impl Meeting {
    /// The space for the operations of a program, from `start` on. `None` without operations.
    pub(super) fn of(program: &Program, start: u32) -> Option<Self> {
        let mut found: Option<Self> = None;
        visit::statements(&program.body, &mut |statement| {
            if let Statement::Subgroup(operation) = statement {
                let found = found.get_or_insert(Self {
                    loops: start,
                    most_loops: 0,
                    most_rows: 0,
                });
                let rows = operation.operands.len().max(operation.results.len());
                found.most_loops = found.most_loops.max(operation.passes.len() as u32);
                found.most_rows = found.most_rows.max(rows as u32);
            }
        });
        found
    }

    fn rows(self) -> u32 {
        self.loops + 8 * self.most_loops
    }

    /// Bytes of a frame.
    pub(super) fn bytes(self) -> u64 {
        u64::from(8 * self.most_loops + ROW_BYTES * self.most_rows).next_multiple_of(16)
    }
}

const _: () = assert!(STATE_BYTES >= 16, "the head of a frame names an operation");

impl Emitter<'_> {
    pub(super) fn subgroup(&mut self, operation: &Subgroup) -> Result<()> {
        match self.region.meeting() {
            Some(meeting) => self.wait_for_subgroup(operation, meeting),
            None => self.subgroup_of_lanes(operation),
        }
    }

    /// Leaves the operands in the frame, and takes the results from there when the invocation goes on.
    fn wait_for_subgroup(&mut self, operation: &Subgroup, meeting: Meeting) -> Result<()> {
        let frame = self.frame();
        let flags = MemFlagsData::trusted();
        let head = [
            operation.operation(self.program).encode(),
            operation.number,
            operation.passes.len() as u32,
        ];
        for (word, at) in head.into_iter().zip([4, 8, 12]) {
            let word = self.int32(word);
            self.b.ins().store(flags, word, frame, at);
        }
        for (&(scope, passes), index) in operation.passes.iter().zip(0..) {
            let at = (meeting.loops + 8 * index) as i32;
            let scope = self.int32(scope.as_u32());
            self.b.ins().store(flags, scope, frame, at);
            let passes = self.value(passes)?;
            self.b.ins().store(flags, passes, frame, at + 4);
        }
        for (&operand, row) in operation.operands.iter().zip(0..) {
            let value = self.value(operand)?;
            let ty = self.program.ty(operand);
            self.store_own(ty, value, frame, meeting.rows() + ROW_BYTES * row);
        }
        self.suspend(operation.number, AT_OPERATION);
        let frame = self.frame();
        for (&result, row) in operation.results.iter().zip(0..) {
            let ty = self.program.ty(result);
            let value = self.load_own(ty, frame, meeting.rows() + ROW_BYTES * row);
            self.values[result] = value.into();
        }
        Ok(())
    }

    /// Lets the invocations go on that have come together. Returns whether there are any.
    pub(super) fn meet(&mut self, meeting: Meeting) -> ir::Value {
        let frames = self.group_field(types::I64, offset_of!(Group, frames));
        let stride = self.region.stride() as i64;
        let stride = self.b.ins().iconst(types::I64, stride);
        let mut operands = vec![(Type::I64, frames), (Type::I64, stride)];
        for word in [self.program.invocations(), meeting.loops, meeting.rows()] {
            let word = self.int32(word);
            operands.push((Type::I32, word));
        }
        let goes_on = self.call_host(HostFunction::Meet, &[], &operands, &[Type::I32]);
        goes_on[0]
    }
}
