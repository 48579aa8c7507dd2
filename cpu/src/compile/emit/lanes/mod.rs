//! Several invocations side by side: vectors of 128 bits, one or more for each value differing between lanes.
//!
//! *How it works.* [`uniform`](crate::compile::passes::uniform) finds the common values of lanes. Uniform values are
//! single registers, made by the same code as for one lane. Linear values are the register of the first lane and a
//! stride. Varying values are *parts*: vectors of four lanes each; booleans are masks, all bits of a lane set or none.
//! Where lanes are parted, the *active mask* tells the lanes taking part ([`flow`]); memory is reached as vectors where
//! lanes lie side by side, and lane by lane elsewhere ([`memory`]).
//!
//! With one lane everything is uniform, and nothing of this room is used.

mod clamped;
mod contiguous;
pub(super) mod flow;
mod memory;
mod operate;
mod subgroup;
mod width;

use std::collections::HashMap;

use cranelift_codegen::ir::{
    self, Block as ClifBlock, ConstantData, InstBuilder, MemFlagsData, types,
};
use cranelift_frontend::Variable as ClifVariable;
use smallvec::SmallVec;

use super::{Emitter, register};
use crate::compile::{
    error::{Result, internal},
    ir::{Builtin, Def, Op, Program, Scope, Type, Value, Variable},
    passes::uniform::{Shape, Uniformity},
};

pub(super) use width::choose;

/// Lanes of a vector.
pub(super) const PART: u32 = 4;

/// Vectors holding a value of all lanes, the first lanes first.
pub(super) type Parts = SmallVec<[ir::Value; 2]>;

/// Variables of Cranelift holding [`Parts`].
pub(super) type PartVariables = SmallVec<[ClifVariable; 2]>;

/// Knowledge needed while code for several lanes is emitted.
pub(super) struct Lanes {
    /// Invocations side by side: one, or a multiple of [`PART`]
    pub(super) width: u32,
    pub(super) uniformity: Uniformity,
    /// Varying values
    values: HashMap<Value, Parts>,
    /// Varying variables
    variables: HashMap<Variable, PartVariables>,
    /// The lanes taking part
    active: PartVariables,
    /// Whether lanes may be missing from `active`
    parted: bool,
    /// Where to go when no lane is active
    nobody: Option<ClifBlock>,
    /// Lanes waiting at the end of a scope, where there is no other way to know them
    exited: HashMap<Scope, PartVariables>,
    /// Lanes waiting where a loop continues
    continued: HashMap<Scope, PartVariables>,
}

impl Lanes {
    pub(super) fn new(width: u32, uniformity: Uniformity) -> Self {
        Self {
            width,
            uniformity,
            values: HashMap::new(),
            variables: HashMap::new(),
            active: SmallVec::new(),
            parted: false,
            nobody: None,
            exited: HashMap::new(),
            continued: HashMap::new(),
        }
    }

    /// Whether more than one invocation runs at a time.
    pub(super) fn are_many(&self) -> bool {
        self.width > 1
    }

    fn parts(&self) -> usize {
        (self.width / PART) as usize
    }
}

/// The type of a part of values of a type.
fn vector_type(ty: Type) -> ir::Type {
    match ty {
        Type::F32 => types::F32X4,
        _ => types::I32X4,
    }
}

/// Whether values of a type can be parts.
fn has_vectors(ty: Type) -> bool {
    matches!(ty, Type::Bool | Type::I32 | Type::F32)
}

/// The bytes of four words.
fn words(values: [u32; 4]) -> ConstantData {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    bytes.as_slice().into()
}

impl Emitter<'_> {
    pub(super) fn shape(&self, value: Value) -> Shape {
        if self.lanes.are_many() {
            self.lanes.uniformity.value(self.program, value)
        } else {
            Shape::Uniform
        }
    }

    pub(super) fn is_uniform(&self, value: Value) -> bool {
        self.shape(value) == Shape::Uniform
    }

    /// Whether a value exists as parts only. Others have a register for the first lane.
    pub(super) fn varies(&self, value: Value) -> bool {
        self.shape(value) == Shape::Varying
    }

    pub(super) fn variable_varies(&self, variable: Variable) -> bool {
        self.lanes.are_many() && self.lanes.uniformity.variable(variable) == Shape::Varying
    }

    pub(super) fn set_vector(&mut self, value: Value, parts: Parts) {
        self.lanes.values.insert(value, parts);
    }

    /// A value of all lanes, whatever its shape.
    pub(super) fn vector(&mut self, value: Value) -> Result<Parts> {
        let Def { ty, op } = self.program.values[value];
        match (self.shape(value), op) {
            (Shape::Uniform, Op::Const(bits)) if ty == Type::Bool => Ok(self.mask(bits & 1 != 0)),
            (Shape::Uniform, _) => {
                let single = self.value(value)?;
                Ok(self.broadcast(ty, single))
            }
            (Shape::Linear(stride), _) => {
                let first = self.value(value)?;
                Ok(self.linear(first, stride))
            }
            (Shape::Varying, Op::Builtin(builtin)) => self.varying_builtin(builtin),
            (Shape::Varying, _) => match self.lanes.values.get(&value) {
                Some(parts) => Ok(parts.clone()),
                None => Err(internal(format!("{value} is used before it is computed"))),
            },
        }
    }

    /// The same in all lanes.
    fn broadcast(&mut self, ty: Type, single: ir::Value) -> Parts {
        let word = if ty == Type::Bool {
            let word = self.b.ins().uextend(types::I32, single);
            self.b.ins().ineg(word)
        } else {
            single
        };
        let part = self.b.ins().splat(vector_type(ty), word);
        std::iter::repeat_n(part, self.lanes.parts()).collect()
    }

    /// The first lane's value, and so much more in each lane than in the lane before.
    fn linear(&mut self, first: ir::Value, stride: u32) -> Parts {
        let first = self.b.ins().splat(types::I32X4, first);
        (0..self.lanes.parts() as u32)
            .map(|part| {
                let steps = [0, 1, 2, 3].map(|lane| stride.wrapping_mul(part * PART + lane));
                let steps = self.words(steps);
                self.b.ins().iadd(first, steps)
            })
            .collect()
    }

    fn words(&mut self, values: [u32; 4]) -> ir::Value {
        let constant = self.b.func.dfg.constants.insert(words(values));
        self.b.ins().vconst(types::I32X4, constant)
    }

    /// The same word in all lanes.
    fn word(&mut self, value: u32) -> ir::Value {
        self.words([value; 4])
    }

    /// A mask of all lanes, or of none.
    fn mask(&mut self, all: bool) -> Parts {
        let part = self.word(if all { u32::MAX } else { 0 });
        std::iter::repeat_n(part, self.lanes.parts()).collect()
    }

    fn varying_builtin(&mut self, builtin: Builtin) -> Result<Parts> {
        let Builtin::LocalId(axis) = builtin else {
            return Err(internal(format!("{builtin:?} varies in no known way")));
        };
        let [x, y, _] = self.program.workgroup_size;
        let (divisor, modulus) = match axis {
            0 => (1, Some(x)),
            1 => (x, Some(y)),
            _ => (x * y, None),
        };
        let first = self.local_index();
        let mut index = self.linear(first, 1);
        if divisor > 1 {
            index = self.by_lane(Type::I32, &[&index], |e, index| {
                e.b.ins().udiv_imm_u(index[0], i64::from(divisor))
            });
        }
        match modulus {
            Some(modulus) if modulus.is_power_of_two() => {
                let low = self.word(modulus - 1);
                Ok(self.each(&[&index], |e, index| e.b.ins().band(index[0], low)))
            }
            Some(modulus) => Ok(self.by_lane(Type::I32, &[&index], |e, index| {
                e.b.ins().urem_imm_u(index[0], i64::from(modulus))
            })),
            None => Ok(index),
        }
    }

    /// Does something with each part.
    fn each(
        &mut self,
        operands: &[&Parts],
        mut f: impl FnMut(&mut Self, &[ir::Value]) -> ir::Value,
    ) -> Parts {
        (0..self.lanes.parts())
            .map(|part| {
                let operands: SmallVec<[_; 3]> = operands.iter().map(|parts| parts[part]).collect();
                f(self, &operands)
            })
            .collect()
    }

    /// Does something with each lane. The result has a type.
    fn by_lane(
        &mut self,
        ty: Type,
        operands: &[&Parts],
        mut f: impl FnMut(&mut Self, &[ir::Value]) -> ir::Value,
    ) -> Parts {
        let lanes: Vec<_> = (0..self.lanes.width)
            .map(|lane| {
                let operands: SmallVec<[_; 3]> = operands
                    .iter()
                    .map(|parts| self.lane(parts, lane))
                    .collect();
                f(self, &operands)
            })
            .collect();
        self.gathered(ty, &lanes)
    }

    /// The value of a lane.
    fn lane(&mut self, parts: &Parts, lane: u32) -> ir::Value {
        let part = parts[(lane / PART) as usize];
        self.b.ins().extractlane(part, (lane % PART) as u8)
    }

    /// Parts from the values of the lanes.
    fn gathered(&mut self, ty: Type, lanes: &[ir::Value]) -> Parts {
        lanes
            .chunks(PART as usize)
            .map(|lanes| {
                let mut part = self.b.ins().scalar_to_vector(vector_type(ty), lanes[0]);
                for (index, &lane) in lanes.iter().enumerate().skip(1) {
                    part = self.b.ins().insertlane(part, lane, index as u8);
                }
                part
            })
            .collect()
    }

    /// `accept` in the lanes of a mask, `reject` in the others.
    fn blend(&mut self, mask: &Parts, accept: &Parts, reject: &Parts) -> Parts {
        self.each(&[mask, accept, reject], |e, operands| {
            let ty = e.b.func.dfg.value_type(operands[1]);
            let mask = e.cast(ty, operands[0]);
            e.b.ins().bitselect(mask, operands[1], operands[2])
        })
    }

    /// The same bits as a vector of another type.
    fn cast(&mut self, ty: ir::Type, part: ir::Value) -> ir::Value {
        if self.b.func.dfg.value_type(part) == ty {
            return part;
        }
        let flags = MemFlagsData::new().with_endianness(ir::Endianness::Little);
        self.b.ins().bitcast(ty, flags, part)
    }

    fn vector_variable(&mut self, variable: Variable) -> PartVariables {
        if let Some(known) = self.lanes.variables.get(&variable) {
            return known.clone();
        }
        let ty = vector_type(self.program.variables[variable]);
        let new = self.new_parts(ty);
        self.lanes.variables.insert(variable, new.clone());
        new
    }

    fn new_parts(&mut self, ty: ir::Type) -> PartVariables {
        (0..self.lanes.parts())
            .map(|_| self.b.declare_var(ty))
            .collect()
    }

    fn get_parts(&mut self, variables: &PartVariables) -> Parts {
        variables
            .iter()
            .map(|&variable| self.b.use_var(variable))
            .collect()
    }

    fn set_parts(&mut self, variables: &PartVariables, parts: &Parts) {
        for (&variable, &part) in variables.iter().zip(parts) {
            self.b.def_var(variable, part);
        }
    }

    /// The value of a variable in all lanes.
    pub(super) fn get_varying(&mut self, variable: Variable) -> Parts {
        let held = self.vector_variable(variable);
        self.get_parts(&held)
    }

    /// Assigns a variable, in the active lanes only if the assignment is blended.
    pub(super) fn set_varying(&mut self, variable: Variable, mut parts: Parts, blended: bool) {
        let held = self.vector_variable(variable);
        if blended && self.lanes.parted {
            let active = self.active();
            let before = self.get_parts(&held);
            parts = self.blend(&active, &parts, &before);
        }
        self.set_parts(&held, &parts);
    }

    /// Stores the value of a variable to a frame.
    pub(super) fn spill_varying(&mut self, variable: Variable, frame: ir::Value, offset: u32) {
        let parts = self.get_varying(variable);
        for (index, &part) in parts.iter().enumerate() {
            let offset = offset as i32 + 16 * index as i32;
            self.b.ins().store(vector_flags(), part, frame, offset);
        }
    }

    /// Takes the value of a variable from a frame.
    pub(super) fn restore_varying(&mut self, variable: Variable, frame: ir::Value, offset: u32) {
        let held = self.vector_variable(variable);
        let ty = vector_type(self.program.variables[variable]);
        for (index, &variable) in held.iter().enumerate() {
            let offset = offset as i32 + 16 * index as i32;
            let part = self.b.ins().load(ty, vector_flags(), frame, offset);
            self.b.def_var(variable, part);
        }
    }

    /// A value of one lane.
    fn value_of_lane(&mut self, value: Value, lane: u32) -> Result<ir::Value> {
        if self.is_uniform(value) {
            return self.value(value);
        }
        let parts = self.vector(value)?;
        let word = self.lane(&parts, lane);
        Ok(match self.program.ty(value) {
            Type::Bool => {
                let bit = self.b.ins().band_imm_u(word, 1);
                self.b.ins().ireduce(register(Type::Bool), bit)
            }
            _ => word,
        })
    }
}

/// Flags for vectors: memory is aligned to their lanes.
fn vector_flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// Whether every value that may vary has a type with vectors.
fn fits(program: &Program, uniformity: &Uniformity, value: Value) -> bool {
    has_vectors(program.ty(value)) || uniformity.value(program, value) == Shape::Uniform
}
