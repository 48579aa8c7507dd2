//! Arguments of entry points.

use naga::{Binding, BuiltIn, TypeInner};

use super::{Front, Node, scalars};
use crate::compile::{
    error::{Result, internal, unsupported},
    ir::{Binary, Builtin, Value},
    subgroup,
};

impl Front<'_> {
    /// The arguments of the entry point: built-in values, alone or as members of structures.
    pub(super) fn entry_arguments(&mut self, function: &naga::Function) -> Result<Vec<Node>> {
        let mut nodes = Vec::new();
        for argument in &function.arguments {
            let mut values = Vec::new();
            match &argument.binding {
                Some(binding) => self.built_in(binding, &mut values)?,
                None => {
                    let TypeInner::Struct { members, .. } = &self.module.types[argument.ty].inner
                    else {
                        return Err(internal("an argument of an entry point without a binding"));
                    };
                    for member in members {
                        let binding = member.binding.as_ref();
                        let binding = binding
                            .ok_or_else(|| internal("a member of an argument without a binding"))?;
                        self.built_in(binding, &mut values)?;
                    }
                }
            }
            nodes.push(scalars(values));
        }
        Ok(nodes)
    }

    fn built_in(&mut self, binding: &Binding, values: &mut Vec<Value>) -> Result<()> {
        let Binding::BuiltIn(built_in) = *binding else {
            return Err(unsupported("an argument that is no built-in value"));
        };
        let size = self.b.program.workgroup_size;
        match built_in {
            BuiltIn::LocalInvocationIndex => values.push(self.b.builtin(Builtin::LocalIndex)),
            BuiltIn::GlobalInvocationId => {
                for axis in 0..3u8 {
                    values.push(self.global_id(axis));
                }
            }
            BuiltIn::WorkGroupSize => {
                values.extend(size.map(|extent| self.b.u32(extent)));
            }
            BuiltIn::SubgroupSize => values.push(self.b.u32(subgroup::SIZE)),
            BuiltIn::SubgroupInvocationId => values.push(self.lane()),
            BuiltIn::SubgroupId => {
                let index = self.b.builtin(Builtin::LocalIndex);
                let shift = self.b.u32(subgroup::SIZE.trailing_zeros());
                values.push(self.b.binary(Binary::ShrU, index, shift));
            }
            BuiltIn::NumSubgroups => {
                let count = self.b.program.invocations().div_ceil(subgroup::SIZE);
                values.push(self.b.u32(count));
            }
            _ => {
                for axis in 0..3u8 {
                    let builtin = match built_in {
                        BuiltIn::LocalInvocationId => Builtin::LocalId(axis),
                        BuiltIn::WorkGroupId => Builtin::GroupId(axis),
                        BuiltIn::NumWorkGroups => Builtin::GroupCount(axis),
                        other => {
                            return Err(unsupported(format!("the built-in value {other:?}")));
                        }
                    };
                    values.push(self.axis(builtin, axis));
                }
            }
        }
        Ok(())
    }

    fn global_id(&mut self, axis: u8) -> Value {
        let group = self.b.builtin(Builtin::GroupId(axis));
        let extent = self.b.program.workgroup_size[usize::from(axis)];
        let extent = self.b.u32(extent);
        let first = self.b.mul(group, extent);
        let local = self.axis(Builtin::LocalId(axis), axis);
        self.b.add(first, local)
    }

    /// A built-in value of an axis, known to be zero where the work-group has a single invocation along the axis.
    fn axis(&mut self, builtin: Builtin, axis: u8) -> Value {
        let extent = self.b.program.workgroup_size[usize::from(axis)];
        match builtin {
            Builtin::LocalId(_) if extent == 1 => self.b.u32(0),
            _ => self.b.builtin(builtin),
        }
    }
}
