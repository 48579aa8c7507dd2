//! A work-group: its invocations in turn, and together where they wait for each other.

use std::collections::HashMap;

use naga::{Binding, BuiltIn, Handle, TypeInner};

use super::collective::Pending;
use super::dispatch::{Order, World};
use super::invocation::Invocation;
use crate::fault::Fault;
use crate::memory::{Place, Pointer};
use crate::report::{FindingKind, FunctionId, InvocationId};
use crate::value::{Scalar, Value, Vector};

impl<'m> World<'_, 'm> {
    /// Runs one work-group to its end.
    pub fn run_workgroup(
        &mut self,
        workgroup: [u32; 3],
        workgroup_linear: u64,
    ) -> Result<(), Fault> {
        self.make_workgroup_variables()?;
        let mut invocations = self.invocations(workgroup, workgroup_linear)?;
        let mut turn = 0;
        loop {
            for index in self
                .options
                .order
                .permutation(invocations.len(), workgroup_linear ^ turn << 32)
            {
                self.run(&mut invocations[index])?;
            }
            turn += 1;
            if self.release_subgroups(&mut invocations)? {
                continue;
            }
            if invocations
                .iter()
                .all(|invocation| invocation.frames.is_empty())
            {
                return Ok(());
            }
            self.release_workgroup(&mut invocations)?;
        }
    }

    fn make_workgroup_variables(&mut self) -> Result<(), Fault> {
        let mut variables = HashMap::new();
        for &handle in &self.prepared.used {
            let variable = &self.prepared.module.global_variables[handle];
            if variable.space == naga::AddressSpace::WorkGroup {
                variables.insert(
                    handle,
                    self.variable(variable.name.clone(), variable.ty, None)?,
                );
            }
        }
        self.workgroup = variables;
        Ok(())
    }

    fn invocations(
        &self,
        workgroup: [u32; 3],
        workgroup_linear: u64,
    ) -> Result<Vec<Invocation<'m>>, Fault> {
        let [width, height, _] = self.prepared.workgroup_size;
        let count = self.prepared.workgroup_invocations();
        let make = |local_index: u32| {
            let local = [
                local_index % width,
                local_index / width % height,
                local_index / width / height,
            ];
            let mut invocation = Invocation {
                id: InvocationId { workgroup, local },
                lane: local_index % self.options.subgroup_size,
                local_index,
                linear: workgroup_linear * u64::from(count) + u64::from(local_index),
                workgroup_linear,
                memory: Vec::new(),
                frames: Vec::new(),
                pending: None,
            };
            for &private in &self.privates {
                let variable = &self.prepared.module.global_variables[private];
                let initial = self.prepared.initial(private)?;
                invocation.memory.push(self.variable(
                    variable.name.clone(),
                    variable.ty,
                    initial.as_ref(),
                )?);
            }
            let arguments = self.arguments(&invocation)?;
            invocation.call(self, FunctionId::EntryPoint, &arguments, None)?;
            Ok(invocation)
        };
        (0..count).map(make).collect()
    }

    /// The arguments of the entry point: built-in values, or structures of them.
    fn arguments(&self, invocation: &Invocation<'_>) -> Result<Vec<Value>, Fault> {
        let argument = |binding: Option<&Binding>, ty: Handle<naga::Type>| match binding {
            Some(Binding::BuiltIn(builtin)) => self.builtin(invocation, *builtin),
            Some(Binding::Location { .. }) => {
                Err(Fault::Malformed("a compute entry point has no locations"))
            }
            None => match self.prepared.module.types[ty].inner {
                TypeInner::Struct { ref members, .. } => members
                    .iter()
                    .map(|member| match member.binding {
                        Some(Binding::BuiltIn(builtin)) => self.builtin(invocation, builtin),
                        _ => Err(Fault::Malformed(
                            "a member of an entry point's argument has no built-in",
                        )),
                    })
                    .collect::<Result<_, _>>()
                    .map(Value::Composite),
                _ => Err(Fault::Malformed(
                    "an entry point's argument has no built-in",
                )),
            },
        };
        let arguments = &self.prepared.entry_point.function.arguments;
        arguments
            .iter()
            .map(|found| argument(found.binding.as_ref(), found.ty))
            .collect()
    }

    fn builtin(&self, invocation: &Invocation<'_>, builtin: BuiltIn) -> Result<Value, Fault> {
        let size = self.prepared.workgroup_size;
        let InvocationId { workgroup, local } = invocation.id;
        let subgroup_size = self.options.subgroup_size;
        let triple = |values: [u32; 3]| {
            Vector::new(&values.map(Scalar::U32))
                .map(Value::Vector)
                .ok_or(Fault::Malformed("a built-in has no value"))
        };
        let one = |value: u32| Ok(Scalar::U32(value).into());
        match builtin {
            BuiltIn::GlobalInvocationId => triple([0, 1, 2].map(|axis| {
                workgroup[axis]
                    .wrapping_mul(size[axis])
                    .wrapping_add(local[axis])
            })),
            BuiltIn::LocalInvocationId => triple(local),
            BuiltIn::LocalInvocationIndex => one(invocation.local_index),
            BuiltIn::WorkGroupId => triple(workgroup),
            BuiltIn::WorkGroupSize => triple(size),
            BuiltIn::NumWorkGroups => triple(self.workgroups),
            BuiltIn::NumSubgroups => one(self
                .prepared
                .workgroup_invocations()
                .div_ceil(subgroup_size)),
            BuiltIn::SubgroupId => one(invocation.local_index / subgroup_size),
            BuiltIn::SubgroupSize => one(subgroup_size),
            BuiltIn::SubgroupInvocationId => one(invocation.lane),
            _ => Err(Fault::Unsupported(
                "a built-in that compute shaders do not have",
            )),
        }
    }

    /// Lets those invocations of each subgroup go on that wait, furthest behind, for a subgroup
    /// operation. Returns whether there were any.
    fn release_subgroups(&mut self, invocations: &mut [Invocation<'m>]) -> Result<bool, Fault> {
        let size = self.options.subgroup_size as usize;
        let mut released = false;
        for first in (0..invocations.len()).step_by(size) {
            let members = first..(first + size).min(invocations.len());
            let waiting: Vec<usize> = members
                .filter(|&index| invocations[index].pending.is_some())
                .collect();
            let places: Vec<_> = waiting
                .iter()
                .map(|&index| invocations[index].place())
                .collect();
            let Some(earliest) = places.iter().min() else {
                continue;
            };
            let together = waiting
                .iter()
                .zip(&places)
                .filter(|(_, place)| *place == earliest);
            let active: Vec<usize> = together.map(|(index, _)| *index).collect();
            if active.iter().all(|&index| {
                invocations[index]
                    .pending
                    .as_ref()
                    .is_some_and(Pending::is_of_subgroup)
            }) {
                self.resolve_subgroup(invocations, &active)?;
                released = true;
            }
        }
        Ok(released)
    }

    /// Lets the invocations pass the barrier at which all wait.
    fn release_workgroup(&mut self, invocations: &mut [Invocation<'m>]) -> Result<(), Fault> {
        let waiting = |invocation: &Invocation<'_>| invocation.pending.is_some();
        let first = invocations
            .iter()
            .position(waiting)
            .ok_or(Fault::Malformed("nobody waits"))?;
        let place = invocations[first].place();
        let elsewhere = invocations
            .iter()
            .position(|other| !waiting(other) || other.place() != place);
        if let Some(elsewhere) = elsewhere {
            let site = invocations[first].statement_site();
            return Err(Fault::BarrierInDivergentFlow {
                waiting: invocations[first].local_index,
                elsewhere: invocations[elsewhere].local_index,
                site: site.ok_or(Fault::Malformed("a barrier is no statement"))?,
                other: invocations[elsewhere].statement_site(),
            });
        }
        match invocations[first].pending.clone() {
            Some(Pending::Barrier(barrier)) => {
                self.intervals.storage += u32::from(barrier.contains(naga::Barrier::STORAGE));
                self.intervals.workgroup += u32::from(barrier.contains(naga::Barrier::WORK_GROUP));
                invocations
                    .iter_mut()
                    .for_each(|invocation| invocation.pending = None);
                Ok(())
            }
            Some(Pending::UniformLoad { pointer, .. }) => {
                self.intervals.workgroup += 1;
                self.uniform_load(invocations, pointer)?;
                self.intervals.workgroup += 1;
                Ok(())
            }
            _ => Err(Fault::Malformed("a work-group waits for something else")),
        }
    }

    fn uniform_load(
        &mut self,
        invocations: &mut [Invocation<'m>],
        first: Pointer,
    ) -> Result<(), Fault> {
        let other = invocations[0].id;
        for invocation in invocations {
            let Some(Pending::UniformLoad { pointer, result }) = invocation.pending.take() else {
                return Err(Fault::Malformed(
                    "a work-group waits for different things at one place",
                ));
            };
            let site = invocation
                .statement_site()
                .ok_or(Fault::Malformed("a uniform load is no statement"))?;
            let same = pointer.place == first.place && pointer.offset == first.offset;
            if !same
                && matches!(pointer.place, Place::WorkGroup(_))
                && self.options.detect.uniform_loads
            {
                let name = self.name(invocation, &pointer);
                self.report(
                    FindingKind::DivergentUniformLoad { other },
                    name,
                    invocation,
                    site,
                );
            }
            let value = self.load(invocation, &pointer, site)?;
            invocation.set(result, value)?;
        }
        Ok(())
    }
}

impl Order {
    /// In which order `count` things take their turns.
    pub(super) fn permutation(self, count: usize, turn: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        match self {
            Order::Ascending => {}
            Order::Descending => order.reverse(),
            Order::Shuffled(seed) => {
                fastrand::Rng::with_seed(seed ^ turn.wrapping_mul(0x9e37_79b9_7f4a_7c15))
                    .shuffle(&mut order)
            }
        }
        order
    }
}
