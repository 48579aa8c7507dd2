//! Every access of memory: which bytes a pointer means, what the bounds policy says, and the shadow state.

use naga::proc::BoundsCheckPolicy;
use naga::{AddressSpace, Handle, TypeInner, VectorSize};

use super::dispatch::World;
use super::invocation::Invocation;
use super::shadow::{Access, Shadow};
use crate::fault::Fault;
use crate::memory::{self, OutOfRange, Place, Pointee, Pointer};
use crate::report::{FindingKind, RaceSide, Site};
use crate::value::{Scalar, Value};

/// Bytes of a variable, with their shadow state.
pub(super) struct Variable {
    pub bytes: Vec<u8>,
    pub shadow: Shadow,
    pub name: Option<String>,
}

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// Reads and writes at once.
    Modify,
}

impl World<'_, '_> {
    /// The pointer to an element of what `base` points to.
    pub fn element(&self, base: Pointer, index: i64, site: Site) -> Result<Pointer, Fault> {
        let (length, stride, pointee) = self.elements(&base)?;
        let in_range = u64::try_from(index).is_ok_and(|index| index < length);
        let mut pointer = Pointer { pointee, ..base };
        if in_range {
            pointer.offset += index as u64 * stride;
            return Ok(pointer);
        }
        pointer.out_of_range = base.out_of_range.or(Some(OutOfRange { index, length }));
        match self.policy(base.space) {
            BoundsCheckPolicy::Restrict => {
                let last = length.checked_sub(1).ok_or(Fault::OutOfRange {
                    index,
                    length,
                    site,
                })?;
                // As unsigned: a negative index is the last element.
                pointer.offset += u64::from(index as u32).min(last) * stride;
            }
            BoundsCheckPolicy::ReadZeroSkipWrite => pointer.valid = false,
            BoundsCheckPolicy::Unchecked => {
                return Err(Fault::OutOfRange {
                    index,
                    length,
                    site,
                });
            }
        }
        Ok(pointer)
    }

    fn policy(&self, space: AddressSpace) -> BoundsCheckPolicy {
        match space {
            AddressSpace::Storage { .. } | AddressSpace::Uniform => self.options.policies.buffer,
            _ => self.options.policies.index,
        }
    }

    /// Number of elements, bytes from one to the next, and what each is.
    fn elements(&self, base: &Pointer) -> Result<(u64, u64, Pointee), Fault> {
        let vector = |size: VectorSize, scalar: naga::Scalar| {
            (size as u64, scalar.width.into(), Pointee::Scalar(scalar))
        };
        let ty = match base.pointee {
            Pointee::Vector { size, scalar } => return Ok(vector(size, scalar)),
            Pointee::Scalar(_) => return Err(Fault::Malformed("a scalar is indexed")),
            Pointee::Type(ty) => ty,
        };
        Ok(match self.prepared.module.types[ty].inner {
            TypeInner::Vector { size, scalar } => vector(size, scalar),
            TypeInner::Matrix {
                columns,
                rows,
                scalar,
            } => (
                columns as u64,
                memory::column_stride(rows, scalar),
                Pointee::Vector { size: rows, scalar },
            ),
            TypeInner::Array {
                base: element,
                stride,
                ..
            } => {
                let length = match self.prepared.layouts.length(ty) {
                    Some(length) => length,
                    None => self.runtime_length(base, stride.into())?,
                };
                (length, stride.into(), Pointee::Type(element))
            }
            _ => {
                return Err(Fault::Malformed(
                    "something is indexed that has no elements",
                ));
            }
        })
    }

    /// Elements of a runtime-sized array: as many as the bound range holds.
    pub fn runtime_length(&self, array: &Pointer, stride: u64) -> Result<u64, Fault> {
        match array.place {
            Place::Buffer(range) => {
                Ok(self.ranges[range].size.saturating_sub(array.offset) / stride)
            }
            _ => Err(Fault::Malformed(
                "a runtime-sized array lies outside of buffers",
            )),
        }
    }

    /// `arrayLength` of what a pointer leads to.
    pub fn array_length(&self, array: &Pointer) -> Result<Scalar, Fault> {
        let (length, _, _) = self.elements(array)?;
        u32::try_from(length)
            .map(Scalar::U32)
            .map_err(|_| Fault::Unsupported("an array of 2^32 elements or more"))
    }

    /// The pointer to a member of a structure, or to an element whose index the text fixes.
    pub fn member(&self, base: Pointer, index: u32, site: Site) -> Result<Pointer, Fault> {
        if let Pointee::Type(ty) = base.pointee
            && let TypeInner::Struct { ref members, .. } = self.prepared.module.types[ty].inner
        {
            let member = members
                .get(index as usize)
                .ok_or(Fault::Malformed("a structure has no such member"))?;
            let offset = base.offset + u64::from(member.offset);
            return Ok(Pointer {
                offset,
                pointee: Pointee::Type(member.ty),
                ..base
            });
        }
        self.element(base, index.into(), site)
    }

    /// The type behind a pointer where accesses are atomic.
    pub fn atomic_scalar(&self, pointer: &Pointer) -> Option<naga::Scalar> {
        match pointer.pointee {
            Pointee::Type(ty) => match self.prepared.module.types[ty].inner {
                TypeInner::Atomic(scalar) => Some(scalar),
                _ => None,
            },
            _ => None,
        }
    }

    /// The value behind a pointer.
    pub fn load(
        &mut self,
        invocation: &mut Invocation<'_>,
        pointer: &Pointer,
        site: Site,
    ) -> Result<Value, Fault> {
        self.note(invocation, pointer, Kind::Read, site)?;
        self.read_unnoted(invocation, pointer)
    }

    /// Reads without a record in the shadow state: the first half of an atomic operation.
    pub fn read_unnoted(
        &self,
        invocation: &Invocation<'_>,
        pointer: &Pointer,
    ) -> Result<Value, Fault> {
        if !pointer.valid {
            return self.zero_behind(pointer);
        }
        let (module, layouts) = (self.prepared.module, &self.prepared.layouts);
        memory::read(
            module,
            layouts,
            pointer.pointee,
            self.bytes(invocation, pointer)?,
        )
    }

    fn zero_behind(&self, pointer: &Pointer) -> Result<Value, Fault> {
        let zero =
            |scalar| Scalar::zero(scalar).ok_or(Fault::Malformed("a pointer to an abstract type"));
        match pointer.pointee {
            Pointee::Scalar(scalar) => zero(scalar).map(Value::Scalar),
            Pointee::Vector { size, scalar } => {
                Ok(crate::value::Vector::splat(size, zero(scalar)?).into())
            }
            Pointee::Type(ty) => memory::zero(
                self.prepared.module,
                &|ty| self.prepared.layouts.length(ty),
                ty,
            ),
        }
    }

    /// Stores a value behind a pointer.
    pub fn store(
        &mut self,
        invocation: &mut Invocation<'_>,
        pointer: &Pointer,
        value: &Value,
        site: Site,
    ) -> Result<(), Fault> {
        self.note(invocation, pointer, Kind::Write, site)?;
        self.overwrite(invocation, pointer, value)
    }

    /// Writes without a record in the shadow state: the second half of an atomic operation.
    pub fn overwrite(
        &mut self,
        invocation: &mut Invocation<'_>,
        pointer: &Pointer,
        value: &Value,
    ) -> Result<(), Fault> {
        if !pointer.valid {
            return Ok(());
        }
        let prepared = self.prepared;
        let bytes = self.bytes_mut(invocation, pointer)?;
        memory::write(
            prepared.module,
            &prepared.layouts,
            pointer.pointee,
            value,
            bytes,
        )
    }

    /// The bytes from where a pointer leads to the end of its variable.
    fn bytes<'a>(
        &'a self,
        invocation: &'a Invocation<'_>,
        pointer: &Pointer,
    ) -> Result<&'a [u8], Fault> {
        let (bytes, start, end) = match pointer.place {
            Place::Buffer(range) => {
                let range = &self.ranges[range];
                (
                    &self.buffers[range.buffer][..],
                    range.offset,
                    range.offset + range.size,
                )
            }
            Place::WorkGroup(variable) => {
                let bytes = &self.workgroup_variable(variable)?.bytes;
                (&bytes[..], 0, bytes.len() as u64)
            }
            Place::Invocation(index) => {
                let bytes = &invocation.memory[index].bytes;
                (&bytes[..], 0, bytes.len() as u64)
            }
            Place::Immediate => (self.immediates, 0, self.immediates.len() as u64),
            Place::BindingArray(_) => {
                return Err(Fault::Malformed("a binding array is accessed as a whole"));
            }
        };
        bytes
            .get((start + pointer.offset) as usize..end as usize)
            .ok_or(Fault::Malformed("a pointer leads out of its variable"))
    }

    fn bytes_mut<'a>(
        &'a mut self,
        invocation: &'a mut Invocation<'_>,
        pointer: &Pointer,
    ) -> Result<&'a mut [u8], Fault> {
        let (bytes, start, end) = match pointer.place {
            Place::Buffer(range) => {
                let range = &self.ranges[range];
                (
                    &mut self.buffers[range.buffer][..],
                    range.offset,
                    range.offset + range.size,
                )
            }
            Place::WorkGroup(variable) => {
                let bytes = &mut self.workgroup_variable_mut(variable)?.bytes;
                let length = bytes.len() as u64;
                (&mut bytes[..], 0, length)
            }
            Place::Invocation(index) => {
                let bytes = &mut invocation.memory[index].bytes;
                let length = bytes.len() as u64;
                (&mut bytes[..], 0, length)
            }
            Place::Immediate | Place::BindingArray(_) => {
                return Err(Fault::Malformed("read-only memory is written"));
            }
        };
        bytes
            .get_mut((start + pointer.offset) as usize..end as usize)
            .ok_or(Fault::Malformed("a pointer leads out of its variable"))
    }

    pub fn workgroup_variable(
        &self,
        handle: Handle<naga::GlobalVariable>,
    ) -> Result<&Variable, Fault> {
        self.workgroup.get(&handle).ok_or(Fault::Malformed(
            "a work-group variable is used that nothing refers to",
        ))
    }

    fn workgroup_variable_mut(
        &mut self,
        handle: Handle<naga::GlobalVariable>,
    ) -> Result<&mut Variable, Fault> {
        self.workgroup.get_mut(&handle).ok_or(Fault::Malformed(
            "a work-group variable is used that nothing refers to",
        ))
    }

    /// Records an access in the shadow state, and reports what is wrong with it.
    pub fn note(
        &mut self,
        invocation: &mut Invocation<'_>,
        pointer: &Pointer,
        kind: Kind,
        site: Site,
    ) -> Result<(), Fault> {
        let detect = self.options.detect;
        if detect.out_of_range
            && let Some(OutOfRange { index, length }) = pointer.out_of_range
        {
            let name = self.name(invocation, pointer);
            self.report(
                FindingKind::OutOfRange { index, length },
                name,
                invocation,
                site,
            );
        }
        // Nobody else accesses an invocation's memory, and buffers come written.
        let (uninitialized, races) = match pointer.place {
            Place::WorkGroup(_) => (detect.uninitialized, detect.races),
            Place::Invocation(_) => (detect.uninitialized, false),
            Place::Buffer(_) => (false, detect.races),
            Place::Immediate | Place::BindingArray(_) => (false, false),
        };
        if !pointer.valid || !(uninitialized || races) {
            return Ok(());
        }
        let mut leaves = Vec::new();
        let prepared = self.prepared;
        memory::for_each_leaf(
            prepared.module,
            &prepared.layouts,
            pointer.pointee,
            pointer.offset,
            &mut |offset, scalar, _| {
                leaves.push((offset, u64::from(scalar.width)));
                Ok(())
            },
        )?;
        if uninitialized {
            self.note_initialization(invocation, pointer, kind, &leaves, site);
        }
        if races {
            self.note_race(invocation, pointer, kind, &leaves, site);
        }
        Ok(())
    }

    fn note_initialization(
        &mut self,
        invocation: &mut Invocation<'_>,
        pointer: &Pointer,
        kind: Kind,
        leaves: &[(u64, u64)],
        site: Site,
    ) {
        let shadow = match pointer.place {
            Place::WorkGroup(variable) => self
                .workgroup
                .get_mut(&variable)
                .map(|variable| &mut variable.shadow),
            Place::Invocation(index) => Some(&mut invocation.memory[index].shadow),
            _ => None,
        };
        let Some(shadow) = shadow else {
            return;
        };
        let mut unwritten = None;
        if kind != Kind::Write {
            unwritten = leaves
                .iter()
                .find_map(|(offset, size)| shadow.first_unwritten(*offset, *size));
        }
        // What was reported once is not reported again at every later read.
        leaves
            .iter()
            .for_each(|(offset, size)| shadow.write(*offset, *size));
        if let Some(offset) = unwritten {
            let name = self.name(invocation, pointer);
            self.report(
                FindingKind::Uninitialized { offset },
                name,
                invocation,
                site,
            );
        }
    }

    fn note_race(
        &mut self,
        invocation: &mut Invocation<'_>,
        pointer: &Pointer,
        kind: Kind,
        leaves: &[(u64, u64)],
        site: Site,
    ) {
        let side = RaceSide {
            invocation: invocation.id,
            site,
            write: kind != Kind::Read,
            atomic: self.atomic_scalar(pointer).is_some(),
        };
        let interval = self.intervals;
        let access = |interval| Access {
            invocation: invocation.linear,
            workgroup: invocation.workgroup_linear,
            interval,
            side,
        };
        let (shadow, access, start) = match pointer.place {
            Place::Buffer(range) => {
                let range = &self.ranges[range];
                (
                    self.buffer_shadows.get_mut(range.buffer),
                    access(interval.storage),
                    range.offset,
                )
            }
            Place::WorkGroup(variable) => {
                let shadow = self
                    .workgroup
                    .get_mut(&variable)
                    .map(|variable| &mut variable.shadow);
                (shadow, access(interval.workgroup), 0)
            }
            _ => return,
        };
        let Some(shadow) = shadow else {
            return;
        };
        let mut race = None;
        for (offset, size) in leaves {
            race = race.or(shadow.access(start + offset, *size, access));
        }
        if let Some((offset, other)) = race {
            let name = self.name(invocation, pointer);
            self.report(
                FindingKind::Race {
                    offset: offset - start,
                    other,
                },
                name,
                invocation,
                site,
            );
        }
    }

    /// The name of the variable that a pointer leads into.
    pub fn name(&self, invocation: &Invocation<'_>, pointer: &Pointer) -> Option<String> {
        match pointer.place {
            Place::Buffer(range) => self.ranges[range].name.clone(),
            Place::WorkGroup(variable) => {
                self.prepared.module.global_variables[variable].name.clone()
            }
            Place::Invocation(index) => invocation.memory[index].name.clone(),
            Place::Immediate | Place::BindingArray(_) => None,
        }
    }
}
