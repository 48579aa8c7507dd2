//! A work-group as one function: the loop over invocations, and the effect of barriers on the loop.
//!
//! *How it works.* Without barriers, the body stands in a loop over the invocations. With barriers, an invocation
//! coming to a barrier puts the variables still needed into its frame, with the number of the barrier as its *state*,
//! and the next invocation goes on. When all have come somewhere, the loop starts over, and each continues where its
//! state says. The work-group is done when every invocation is.
//!
//! ```text
//! frames of a group with barriers        frame
//! ┌─────────┬─────────┬─────────┐        ┌───────┬───────────────────────┬───────┐
//! │ lane 0  │ lane 1  │   …     │        │ state │ variables at barriers │ slots │
//! └─────────┴─────────┴─────────┘        └───────┴───────────────────────┴───────┘
//! ```
//!
//! An operation of a subgroup is such a place too, where invocations run one by one: there, an invocation waits until
//! the others of the subgroup have come as far as possible without the invocation ([`subgroup`](super::subgroup)).
//!
//! Where invocations come to each barrier together, no states are needed: see [`stretches`](super::stretches).
//!
//! Without barriers there is a single frame, used by invocations one after the other. Where several lanes run side by
//! side, everything said here of an invocation holds for a vector of invocations, with a common state and frame.

use std::{collections::HashMap, mem::offset_of};

use cranelift_codegen::{
    entity::SecondaryMap,
    ir::{self, Block as ClifBlock, InstBuilder, MemFlagsData, condcodes::IntCC, types},
};
use cranelift_frontend::{FunctionBuilder, Switch, Variable as ClifVariable};

use super::{Emitter, lanes::PART, register, subgroup::Meeting, waits};
use crate::compile::{
    abi::{DONE, Group, STOPPED},
    error::{CompileError, Result},
    host::HostFunction,
    ir::{Barrier, Builtin, Program, Slot, Type, Variable},
    subgroup,
};

/// The state of an ended invocation. Barriers count from one; zero is the start.
const ENDED: u32 = subgroup::ENDED;

/// Bytes of the state at the start of a frame, keeping the rest aligned.
pub(super) const STATE_BYTES: u64 = 16;

/// The most bytes of a frame: offsets must fit into instructions.
const MAX_FRAME: u64 = 1 << 30;

/// Data for the loop over invocations.
pub(super) struct Region {
    /// Whether invocations wait for one another, each with a frame
    waits: bool,
    /// The running invocation
    invocation: ClifVariable,
    /// Whether an invocation has come to a barrier in this round
    pending: ClifVariable,
    /// Where the loop goes on to the next invocation
    next: ClifBlock,
    /// Where invocations continue, by the numbers of barriers
    resume: Vec<(u32, ClifBlock)>,
    /// Where variables are put at barriers
    spills: HashMap<Variable, u32>,
    slots: SecondaryMap<Slot, u32>,
    /// Where an invocation leaves the values for others of its subgroup, if invocations wait for their subgroup
    meeting: Option<Meeting>,
    /// Bytes from one frame to the next
    stride: u64,
    order: Option<Order>,
}

/// The order of invocations, where a seed decides it: behind the frames lies the order of the round.
///
/// ```text
/// ┌────────┬─────┬──────────────────────────────┐
/// │ frames │  …  │ invocation of turn 0, 1, 2 … │
/// └────────┴─────┴──────────────────────────────┘
/// ```
#[derive(Clone, Copy)]
struct Order {
    seed: u64,
    /// Counts the invocations of a round
    turn: ClifVariable,
    round: ClifVariable,
}

impl Region {
    pub(super) fn meeting(&self) -> Option<Meeting> {
        self.meeting
    }

    /// Bytes from one frame to the next.
    pub(super) fn stride(&self) -> u64 {
        self.stride
    }

    /// `crossing` are the variables in need of a place in frames.
    pub(super) fn new(
        b: &mut FunctionBuilder,
        program: &Program,
        mut crossing: Vec<Variable>,
        (width, seed): (u32, Option<u64>),
    ) -> Result<Self> {
        let mut region = Self {
            waits: waits(program, width),
            meeting: None,
            invocation: b.declare_var(types::I32),
            pending: b.declare_var(types::I32),
            next: b.create_block(),
            resume: Vec::new(),
            spills: HashMap::new(),
            slots: SecondaryMap::new(),
            stride: 0,
            order: seed.map(|seed| Order {
                seed,
                turn: b.declare_var(types::I32),
                round: b.declare_var(types::I32),
            }),
        };
        let mut end = STATE_BYTES;
        crossing.sort_unstable();
        crossing.dedup();
        for variable in crossing {
            region.spills.insert(variable, end as u32);
            end += 16 * u64::from(width.div_ceil(PART));
        }
        if width == 1 {
            region.meeting = Meeting::of(program, end as u32);
        }
        end += region.meeting.map_or(0, |meeting| meeting.bytes());
        for (slot, &bytes) in &program.slots {
            region.slots[slot] = end.min(MAX_FRAME) as u32;
            end += (u64::from(bytes) * u64::from(width)).next_multiple_of(16);
        }
        if end > MAX_FRAME {
            return Err(CompileError::TooLarge {
                what: "private memory of an invocation".into(),
                needed: end,
                limit: MAX_FRAME,
                remedy: "keep so much data in a storage buffer",
            });
        }
        region.stride = end.next_multiple_of(64);
        Ok(region)
    }
}

impl Emitter<'_> {
    /// Emits everything. Returns the bytes of all frames.
    pub(super) fn work_group(&mut self) -> Result<u64> {
        if !self.polling.is_empty() {
            let never = self.never();
            let entered = self.b.create_block();
            let stopped = self.stopped;
            self.b.ins().brif(never, stopped, &[], entered, &[]);
            self.b.switch_to_block(stopped);
            self.return_stopped();
            self.b.switch_to_block(entered);
        }
        if self.stretches.is_some() {
            self.block(&self.program.body)?;
        } else {
            self.rounds()?;
        }
        let done = self.int32(DONE);
        self.b.ins().return_(&[done]);
        let order = match self.region.order {
            Some(_) => 4 * u64::from(self.program.invocations()),
            None => 0,
        };
        Ok(self.frames_bytes() + order)
    }

    /// Lets invocations run by turns, until all have ended.
    fn rounds(&mut self) -> Result<()> {
        let invocations = self.program.invocations();
        let zero = self.int32(0);
        self.b.def_var(self.region.invocation, zero);
        self.b.def_var(self.region.pending, zero);
        if self.region.waits {
            self.clear_states();
        }
        if let Some(order) = self.region.order {
            let zero = self.int32(0);
            self.b.def_var(order.round, zero);
        }
        let round = self.b.create_block();
        let lane = self.b.create_block();
        let body = self.b.create_block();
        let next = self.region.next;
        let end = self.b.create_block();
        self.b.ins().jump(round, &[]);
        self.b.switch_to_block(round);
        let zero = self.int32(0);
        self.b.def_var(self.region.invocation, zero);
        self.b.def_var(self.region.pending, zero);
        self.begin_round();
        self.b.ins().jump(lane, &[]);
        let over = self.b.create_block();
        self.b.switch_to_block(body);
        self.begin_lanes(over);
        self.block(&self.program.body)?;
        self.b.ins().jump(over, &[]);
        self.b.switch_to_block(over);
        if self.region.waits {
            self.set_state(ENDED);
        }
        self.b.ins().jump(next, &[]);
        // Where each invocation begins is known when all barriers are.
        self.b.switch_to_block(lane);
        self.take_turn();
        self.enter(body, next);
        self.b.switch_to_block(next);
        let counter = match self.region.order {
            Some(order) => order.turn,
            None => self.region.invocation,
        };
        let index = self.b.use_var(counter);
        let width = i64::from(self.lanes.width);
        let index = self.b.ins().iadd_imm_s(index, width);
        self.b.def_var(counter, index);
        let more = self
            .b
            .ins()
            .icmp_imm_u(IntCC::UnsignedLessThan, index, i64::from(invocations));
        let over = self.b.create_block();
        self.b.ins().brif(more, lane, &[], over, &[]);
        self.b.switch_to_block(over);
        let pending = match self.region.meeting {
            Some(meeting) => self.meet(meeting),
            None => self.b.use_var(self.region.pending),
        };
        self.b.ins().brif(pending, round, &[], end, &[]);
        self.b.switch_to_block(end);
        Ok(())
    }

    /// Bytes of all frames.
    fn frames_bytes(&self) -> u64 {
        let frames = if self.region.waits {
            u64::from(self.program.invocations() / self.lanes.width)
        } else {
            1
        };
        self.region.stride * frames
    }

    /// Has the order of the round written, if a seed decides it.
    fn begin_round(&mut self) {
        let Some(Order { seed, turn, round }) = self.region.order else {
            return;
        };
        let zero = self.int32(0);
        self.b.def_var(turn, zero);
        let order = self.order_of_round();
        let seed = self.b.ins().iconst(types::I64, seed as i64);
        let count = self.int32(self.program.invocations());
        let number = self.b.use_var(round);
        let mut operands = vec![(Type::I64, order), (Type::I64, seed), (Type::I32, count)];
        for axis in 0..3 {
            let id = self.builtin(Builtin::GroupId(axis));
            operands.push((Type::I32, id));
        }
        operands.push((Type::I32, number));
        self.call_host(HostFunction::Shuffle, &[], &operands, &[]);
        let number = self.b.ins().iadd_imm_s(number, 1);
        self.b.def_var(round, number);
    }

    /// Where the order of the round lies.
    fn order_of_round(&mut self) -> ir::Value {
        let frames = self.group_field(types::I64, offset_of!(Group, frames));
        let bytes = self.frames_bytes() as i64;
        self.b.ins().iadd_imm_s(frames, bytes)
    }

    /// Chooses the invocation of the turn, if a seed decides the order.
    fn take_turn(&mut self) {
        let Some(order) = self.region.order else {
            return;
        };
        let turn = self.b.use_var(order.turn);
        let turn = self.b.ins().uextend(types::I64, turn);
        let offset = self.b.ins().ishl_imm_u(turn, 2);
        let start = self.order_of_round();
        let at = self.b.ins().iadd(start, offset);
        let flags = MemFlagsData::trusted();
        let invocation = self.b.ins().load(types::I32, flags, at, 0);
        self.b.def_var(self.region.invocation, invocation);
    }

    /// Starts or continues an invocation by its state.
    fn enter(&mut self, body: ClifBlock, next: ClifBlock) {
        if !self.region.waits {
            self.b.ins().jump(body, &[]);
            return;
        }
        let frame = self.frame();
        let state = self
            .b
            .ins()
            .load(types::I32, MemFlagsData::trusted(), frame, 0);
        let mut switch = Switch::new();
        switch.set_entry(0, body);
        for &(barrier, block) in &self.region.resume {
            switch.set_entry(u128::from(barrier) + 1, block);
        }
        switch.emit(&mut self.b, state, next);
    }

    fn clear_states(&mut self) {
        let start = self.b.create_block();
        let end = self.b.create_block();
        self.b.ins().jump(start, &[]);
        self.b.switch_to_block(start);
        self.set_state(0);
        let index = self.b.use_var(self.region.invocation);
        let width = i64::from(self.lanes.width);
        let index = self.b.ins().iadd_imm_s(index, width);
        self.b.def_var(self.region.invocation, index);
        let count = i64::from(self.program.invocations());
        let more = self
            .b
            .ins()
            .icmp_imm_u(IntCC::UnsignedLessThan, index, count);
        self.b.ins().brif(more, start, &[], end, &[]);
        self.b.switch_to_block(end);
    }

    fn set_state(&mut self, state: u32) {
        let frame = self.frame();
        let state = self.int32(state);
        self.b.ins().store(MemFlagsData::trusted(), state, frame, 0);
    }

    /// The frame of the running invocation.
    pub(super) fn frame(&mut self) -> ir::Value {
        let frames = self.group_field(types::I64, offset_of!(Group, frames));
        if !self.region.waits {
            return frames;
        }
        let index = self.b.use_var(self.region.invocation);
        let index = self.b.ins().uextend(types::I64, index);
        let index = self.b.ins().udiv_imm_u(index, i64::from(self.lanes.width));
        let stride = self.region.stride as i64;
        let offset = self.b.ins().imul_imm_s(index, stride);
        self.b.ins().iadd(frames, offset)
    }

    /// Where a slot lies in a frame.
    pub(super) fn slot_offset(&self, slot: Slot) -> u32 {
        self.region.slots[slot]
    }

    /// Chooses the running invocation.
    pub(super) fn set_invocation(&mut self, index: ir::Value) {
        self.b.def_var(self.region.invocation, index);
    }

    pub(super) fn local_index(&mut self) -> ir::Value {
        self.b.use_var(self.region.invocation)
    }

    pub(super) fn barrier(&mut self, barrier: &Barrier) -> Result<()> {
        if barrier.storage {
            self.b.ins().fence();
        }
        if !barrier.waits || !self.region.waits || self.stretches.is_some() {
            return Ok(());
        }
        let kind = match self.region.meeting {
            Some(_) => subgroup::AT_BARRIER,
            None => 0,
        };
        self.suspend(barrier.number, kind);
        Ok(())
    }

    /// Lets the others run until the invocation goes on, by the number of the barrier or the operation. `kind` is a
    /// part of the state of an invocation that somebody must let go on.
    pub(super) fn suspend(&mut self, number: u32, kind: u32) {
        let mut live: Vec<Variable> = match self.live.get(&number) {
            Some(live) => live.iter().collect(),
            None => Vec::new(),
        };
        live.sort_unstable();
        for &variable in &live {
            self.spill(variable);
        }
        self.set_state(kind | (number + 1));
        let one = self.int32(1);
        self.b.def_var(self.region.pending, one);
        self.b.ins().jump(self.region.next, &[]);
        let resume = self.b.create_block();
        self.region.resume.push((number, resume));
        self.b.switch_to_block(resume);
        self.resume_lanes();
        for &variable in &live {
            self.restore(variable);
        }
    }

    /// Puts a variable into the frame of the invocation.
    pub(super) fn spill(&mut self, variable: Variable) {
        let (frame, offset) = (self.frame(), self.region.spills[&variable]);
        if self.variable_varies(variable) {
            self.spill_varying(variable, frame, offset);
            return;
        }
        let held = self.variable(variable);
        let value = self.b.use_var(held);
        (self.b.ins()).store(MemFlagsData::trusted(), value, frame, offset as i32);
    }

    /// Takes a variable from the frame of the invocation.
    pub(super) fn restore(&mut self, variable: Variable) {
        let (frame, offset) = (self.frame(), self.region.spills[&variable]);
        if self.variable_varies(variable) {
            self.restore_varying(variable, frame, offset);
            return;
        }
        let ty = register(self.program.variables[variable]);
        let flags = MemFlagsData::trusted();
        let value = self.b.ins().load(ty, flags, frame, offset as i32);
        let held = self.variable(variable);
        self.b.def_var(held, value);
    }

    fn return_stopped(&mut self) {
        let stopped = self.int32(STOPPED);
        self.b.ins().return_(&[stopped]);
    }
}
