//! Operations of subgroups.

use naga::SubgroupOperation as F;
use naga::{CollectiveOperation, Direction, Expression as E, GatherMode, Handle, ScalarKind};
use smallvec::SmallVec;

use super::{Front, scalars};
use crate::compile::{
    error::{Result, internal},
    ir::{Binary, Builtin, Statement, Subgroup, Type, Value},
    subgroup::{Combine, Function, SIZE, Scan},
};

impl Front<'_> {
    /// `subgroup_invocation_id`
    pub(super) fn lane(&mut self) -> Value {
        let index = self.b.builtin(Builtin::LocalIndex);
        let last = self.b.u32(SIZE - 1);
        self.b.binary(Binary::And, index, last)
    }

    pub(super) fn subgroup_barrier(&mut self) {
        self.subgroup(Function::Barrier, [], []);
        self.check_subgroup_barrier();
    }

    pub(super) fn ballot(&mut self, result: Handle<E>, predicate: Option<Handle<E>>) -> Result<()> {
        let predicate = match predicate {
            Some(predicate) => self.scalar(predicate)?,
            None => self.b.constant(Type::Bool, 1),
        };
        let bits = self.b.result(Type::I32);
        self.subgroup(Function::Ballot, [predicate], [bits]);
        let zero = self.b.u32(0);
        self.set_node(result, scalars([bits, zero, zero, zero]))
    }

    /// A value of another invocation.
    pub(super) fn gather(
        &mut self,
        mode: &GatherMode,
        argument: Handle<E>,
        result: Handle<E>,
    ) -> Result<()> {
        let from = self.source(mode)?;
        let values = self.values(argument)?;
        let function = match from {
            Some(_) => Function::Shuffle,
            None => Function::First,
        };
        let operands = from.into_iter().chain(values.iter().copied());
        let operands: SmallVec<[Value; 5]> = operands.collect();
        self.operate(function, operands, &values, result)
    }

    /// The invocation of the subgroup to read; `None` for the first.
    fn source(&mut self, mode: &GatherMode) -> Result<Option<Value>> {
        let lane = self.lane();
        let from = match *mode {
            GatherMode::BroadcastFirst => return Ok(None),
            GatherMode::Broadcast(lane) | GatherMode::Shuffle(lane) => self.scalar(lane)?,
            GatherMode::ShuffleDown(delta) => {
                let delta = self.scalar(delta)?;
                self.b.add(lane, delta)
            }
            GatherMode::ShuffleUp(delta) => {
                let delta = self.scalar(delta)?;
                self.b.binary(Binary::Sub, lane, delta)
            }
            GatherMode::ShuffleXor(mask) => {
                let mask = self.scalar(mask)?;
                self.b.binary(Binary::Xor, lane, mask)
            }
            GatherMode::QuadBroadcast(index) => {
                let (index, low, high) = (self.scalar(index)?, self.b.u32(3), self.b.u32(!3));
                let quad = self.b.binary(Binary::And, lane, high);
                let index = self.b.binary(Binary::And, index, low);
                self.b.binary(Binary::Or, quad, index)
            }
            GatherMode::QuadSwap(direction) => {
                let mask = self.b.u32(match direction {
                    Direction::X => 1,
                    Direction::Y => 2,
                    Direction::Diagonal => 3,
                });
                self.b.binary(Binary::Xor, lane, mask)
            }
        };
        Ok(Some(from))
    }

    /// A combination of the values of several invocations.
    pub(super) fn collect(
        &mut self,
        operation: F,
        collective: CollectiveOperation,
        argument: Handle<E>,
        result: Handle<E>,
    ) -> Result<()> {
        let info = &self.frame()?.info[argument];
        let kind = info.ty.inner_with(&self.module.types).scalar_kind();
        let kind = kind.ok_or_else(|| internal("a combination of values that are no numbers"))?;
        let by_kind = |signed, unsigned, float| match kind {
            ScalarKind::Sint => signed,
            ScalarKind::Float => float,
            _ => unsigned,
        };
        let combine = match operation {
            F::Add => Combine::Add,
            F::Mul => Combine::Mul,
            F::Min => by_kind(Combine::MinS, Combine::MinU, Combine::MinF),
            F::Max => by_kind(Combine::MaxS, Combine::MaxU, Combine::MaxF),
            F::All | F::And => Combine::And,
            F::Any | F::Or => Combine::Or,
            F::Xor => Combine::Xor,
        };
        let scan = match collective {
            CollectiveOperation::Reduce => Scan::All,
            CollectiveOperation::InclusiveScan => Scan::Inclusive,
            CollectiveOperation::ExclusiveScan => Scan::Exclusive,
        };
        let values = self.values(argument)?;
        let operands = values.iter().copied().collect();
        self.operate(Function::Combine(combine, scan), operands, &values, result)
    }

    /// An operation with as many results as operands, of the same types.
    fn operate(
        &mut self,
        function: Function,
        operands: SmallVec<[Value; 5]>,
        like: &[Value],
        result: Handle<E>,
    ) -> Result<()> {
        let results: Vec<Value> = like
            .iter()
            .map(|&value| {
                let ty = self.b.program.ty(value);
                self.b.result(ty)
            })
            .collect();
        self.subgroup(function, operands, results.iter().copied());
        self.set_node(result, scalars(results))
    }

    fn subgroup(
        &mut self,
        function: Function,
        operands: impl IntoIterator<Item = Value>,
        results: impl IntoIterator<Item = Value>,
    ) {
        self.b.push(Statement::Subgroup(Box::new(Subgroup {
            function,
            operands: operands.into_iter().collect(),
            results: results.into_iter().collect(),
            passes: SmallVec::new(),
            number: 0,
        })));
    }
}
