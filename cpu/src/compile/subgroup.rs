//! Operations of subgroups: the exchange between invocations coming together.
//!
//! A subgroup is [`SIZE`] consecutive invocations of a work-group, by `local_invocation_index`; the last subgroup may
//! be smaller. An operation concerns the invocations coming to the same *pass* of the operation: to the same place of
//! the text, with calls inlined, in the same passes of all loops around. The choice of invocations follows from
//! structured control flow alone, so that results are the same at any number of lanes.
//!
//! *How it works.* Where as many lanes run side by side as a subgroup has invocations, the active mask tells the lanes
//! taking part, and kernels call [`of_lanes`]. Elsewhere an invocation coming to an operation leaves the operands in
//! its frame and waits, as at a barrier. When all have come somewhere, kernels call [`meet`]. Among the waiting
//! invocations of a subgroup, the invocations at the earliest pass are complete: no others can come there. [`meet`]
//! does their operation and lets them go on. A barrier is passed when no operation is left to do.
//!
//! A point left open by WGSL is decided here: a value read from an absent invocation, or from an invocation taking no
//! part, is the reader's own.

mod meet;

use std::slice;

use super::{
    abi::BoundResource,
    ir::{Program, Subgroup, Type, fold::round_to_half},
};

pub(crate) use meet::meet;

/// Invocations of a subgroup.
pub(crate) const SIZE: u32 = 8;

/// The state of an ended invocation.
pub(crate) const ENDED: u32 = u32::MAX;

/// Part of the state of an invocation waiting for its subgroup. The rest says where the invocation goes on.
pub(crate) const AT_OPERATION: u32 = 1 << 31;

/// Part of the state of an invocation waiting for its work-group.
pub(crate) const AT_BARRIER: u32 = 1 << 30;

/// Bytes of a row in a frame.
pub(crate) const ROW_BYTES: u32 = 8;

/// The most rows: four scalars, and the number of the invocation to read.
const ROWS: usize = 5;

/// The work of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Function {
    /// Nothing but wait
    Barrier,
    /// Tells for which invocations a condition holds, by bits
    Ballot,
    /// Gives the value of the first invocation
    First,
    /// Gives the value of a chosen invocation
    Shuffle,
    Combine(Combine, Scan),
}

/// How values of invocations are combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Combine {
    Add,
    Mul,
    MinS,
    MinU,
    MinF,
    MaxS,
    MaxU,
    MaxF,
    And,
    Or,
    Xor,
}

/// Whose values are combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Scan {
    /// The values of all invocations taking part
    All,
    /// The reader's own, and the values of the invocations before
    Inclusive,
    /// The values of the invocations before
    Exclusive,
}

const COMBINES: [Combine; 11] = [
    Combine::Add,
    Combine::Mul,
    Combine::MinS,
    Combine::MinU,
    Combine::MinF,
    Combine::MaxS,
    Combine::MaxU,
    Combine::MaxF,
    Combine::And,
    Combine::Or,
    Combine::Xor,
];

const SCANS: [Scan; 3] = [Scan::All, Scan::Inclusive, Scan::Exclusive];

const TYPES: [Type; 6] = [
    Type::Bool,
    Type::I32,
    Type::I64,
    Type::F16,
    Type::F32,
    Type::F64,
];

impl Function {
    /// Whether all invocations taking part are given the same.
    pub(crate) fn is_same_for_all(self) -> bool {
        matches!(
            self,
            Self::Ballot | Self::First | Self::Combine(_, Scan::All)
        )
    }

    /// Operands before the scalars.
    fn selectors(self) -> usize {
        usize::from(self == Self::Shuffle)
    }
}

/// A function, with the type and number of its scalars.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Operation {
    pub(crate) function: Function,
    /// The type of the scalars
    ty: Type,
    /// How many scalars there are
    scalars: u32,
}

impl Subgroup {
    /// The operation to do.
    pub(crate) fn operation(&self, program: &Program) -> Operation {
        let scalars = self.operands.get(self.function.selectors()..);
        let scalars = scalars.unwrap_or_default();
        Operation {
            function: self.function,
            ty: scalars
                .first()
                .map_or(Type::I32, |&value| program.ty(value)),
            scalars: scalars.len() as u32,
        }
    }

    /// Whether operands and results fit the function.
    pub(crate) fn fits(&self, program: &Program) -> bool {
        let operation = self.operation(program);
        let (selectors, scalars) = match self.operands.split_at_checked(self.function.selectors()) {
            Some(split) => split,
            None => return false,
        };
        let are = |values: &[_], ty| values.iter().all(|&value| program.ty(value) == ty);
        let shape = match self.function {
            Function::Barrier => scalars.is_empty() && self.results.is_empty(),
            Function::Ballot => scalars.len() == 1 && self.results.len() == 1,
            _ => (1..=4).contains(&scalars.len()) && scalars.len() == self.results.len(),
        };
        let given = match self.function {
            Function::Ballot => Type::I32,
            _ => operation.ty,
        };
        let allowed = match self.function {
            Function::Barrier | Function::First | Function::Shuffle => true,
            Function::Ballot => operation.ty == Type::Bool,
            Function::Combine(combine, _) => combine.takes(operation.ty),
        };
        shape
            && allowed
            && are(selectors, Type::I32)
            && are(scalars, operation.ty)
            && are(&self.results, given)
    }
}

impl Operation {
    /// A number for the operation.
    pub(crate) fn encode(self) -> u32 {
        let function = match self.function {
            Function::Barrier => 0,
            Function::Ballot => 1,
            Function::First => 2,
            Function::Shuffle => 3,
            Function::Combine(combine, scan) => {
                4 + combine as u32 * SCANS.len() as u32 + scan as u32
            }
        };
        function | (self.ty as u32) << 8 | self.scalars << 16
    }

    /// The operation with a number. `None` if there is none.
    fn decode(number: u32) -> Option<Self> {
        let function = match number & 0xff {
            0 => Function::Barrier,
            1 => Function::Ballot,
            2 => Function::First,
            3 => Function::Shuffle,
            other => {
                let combine = (other as usize - 4) / SCANS.len();
                let scan = (other as usize - 4) % SCANS.len();
                Function::Combine(*COMBINES.get(combine)?, SCANS[scan])
            }
        };
        let ty = *TYPES.get((number >> 8 & 0xff) as usize)?;
        let scalars = number >> 16;
        (scalars as usize <= ROWS - function.selectors()).then_some(Self {
            function,
            ty,
            scalars,
        })
    }

    /// Rows of operands, by the types of their values.
    fn given(self) -> impl Iterator<Item = Type> {
        let selectors = std::iter::repeat_n(Type::I32, self.function.selectors());
        selectors.chain(std::iter::repeat_n(self.ty, self.scalars as usize))
    }

    /// Rows of results, by the types of their values.
    fn taken(self) -> impl Iterator<Item = Type> {
        let ty = match self.function {
            Function::Ballot => Type::I32,
            _ => self.ty,
        };
        std::iter::repeat_n(ty, self.scalars as usize)
    }

    /// Does the operation for the invocations that `lanes` has bits for: takes rows of operands, and leaves rows of
    /// results. Values given to all alike are given to other invocations, too.
    fn run(self, rows: &mut [Row; ROWS], lanes: u32) {
        let takes_part = |lane: u32| lane < SIZE && lanes >> lane & 1 != 0;
        match self.function {
            Function::Barrier => {}
            Function::Ballot => {
                let bits =
                    (0..SIZE).filter(|&lane| takes_part(lane) && rows[0][lane as usize] != 0);
                rows[0] = [bits.fold(0, |bits, lane| bits | 1 << lane); SIZE as usize];
            }
            Function::First => {
                let first = lanes.trailing_zeros().min(SIZE - 1) as usize;
                for row in rows.iter_mut().take(self.scalars as usize) {
                    *row = [row[first]; SIZE as usize];
                }
            }
            Function::Shuffle => {
                let from: [usize; SIZE as usize] = std::array::from_fn(|lane| {
                    let from = rows[0][lane] as u32;
                    if takes_part(from) {
                        from as usize
                    } else {
                        lane
                    }
                });
                for row in 0..self.scalars as usize {
                    let given = rows[row + 1];
                    rows[row] = from.map(|lane| given[lane]);
                }
            }
            Function::Combine(combine, scan) => {
                for row in rows.iter_mut().take(self.scalars as usize) {
                    self.combine(row, (combine, scan), lanes);
                }
            }
        }
    }

    fn combine(self, row: &mut Row, (combine, scan): (Combine, Scan), lanes: u32) {
        let mut so_far = None;
        for (lane, value) in row.iter_mut().enumerate() {
            if lanes >> lane & 1 == 0 {
                continue;
            }
            let before = so_far;
            let with = match before {
                None => *value,
                Some(before) => combine.step(self.ty, before, *value),
            };
            so_far = Some(with);
            *value = match scan {
                Scan::Exclusive => before.unwrap_or_else(|| combine.identity(self.ty)),
                _ => with,
            };
        }
        if let (Scan::All, Some(all)) = (scan, so_far) {
            *row = [all; SIZE as usize];
        }
    }
}

/// The values of the invocations of a subgroup, as bits: a boolean is not zero, a half float is the bits of its `f32`.
type Row = [u64; SIZE as usize];

impl Combine {
    fn takes(self, ty: Type) -> bool {
        match self {
            Self::Add | Self::Mul => ty != Type::Bool,
            Self::MinF | Self::MaxF => ty.is_float(),
            Self::And | Self::Or | Self::Xor => !ty.is_float(),
            Self::MinS | Self::MinU | Self::MaxS | Self::MaxU => {
                matches!(ty, Type::I32 | Type::I64)
            }
        }
    }

    /// The neutral value. Only sums and products of no values ask for it.
    fn identity(self, ty: Type) -> u64 {
        match (self, ty) {
            (Self::Mul, Type::F16 | Type::F32) => 1f32.to_bits().into(),
            (Self::Mul, Type::F64) => 1f64.to_bits(),
            (Self::Mul, _) => 1,
            _ => 0,
        }
    }

    fn step(self, ty: Type, a: u64, b: u64) -> u64 {
        match ty {
            Type::Bool => u64::from(self.integer(u64::from(a != 0), u64::from(b != 0)) & 1 != 0),
            Type::I32 => {
                let widen = |word: u64| match self {
                    Self::MinS | Self::MaxS => i64::from(word as u32 as i32) as u64,
                    _ => u64::from(word as u32),
                };
                u64::from(self.integer(widen(a), widen(b)) as u32)
            }
            Type::I64 => self.integer(a, b),
            Type::F16 | Type::F32 => {
                let [a, b] = [a, b].map(|bits| f32::from_bits(bits as u32));
                let result = match self {
                    Self::Mul => a * b,
                    Self::MinF => smaller(a, b),
                    Self::MaxF => chosen(b > a, b, a),
                    _ => a + b,
                };
                let result = match ty {
                    Type::F16 => round_to_half(result),
                    _ => result,
                };
                result.to_bits().into()
            }
            Type::F64 => {
                let [a, b] = [a, b].map(f64::from_bits);
                let result = match self {
                    Self::Mul => a * b,
                    Self::MinF => smaller(a, b),
                    Self::MaxF => chosen(b > a, b, a),
                    _ => a + b,
                };
                result.to_bits()
            }
        }
    }

    fn integer(self, a: u64, b: u64) -> u64 {
        match self {
            Self::Mul => a.wrapping_mul(b),
            Self::MinS => (a as i64).min(b as i64) as u64,
            Self::MaxS => (a as i64).max(b as i64) as u64,
            Self::MinU => a.min(b),
            Self::MaxU => a.max(b),
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
            Self::Add | Self::MinF | Self::MaxF => a.wrapping_add(b),
        }
    }
}

/// As `min` of kernels: the first, unless the second is smaller.
fn smaller<T: PartialOrd>(a: T, b: T) -> T {
    chosen(b < a, b, a)
}

fn chosen<T>(condition: bool, accept: T, reject: T) -> T {
    if condition { accept } else { reject }
}

/// Called by kernels where a subgroup runs side by side: rows of as many columns, of four bytes each. Booleans are masks.
///
/// # Safety
/// The contract of [`HostFn`](super::host::HostFn), with the width of a subgroup, and `which` the number of an operation.
pub(crate) unsafe extern "C" fn of_lanes(
    _resources: *const *const BoundResource,
    operands: *const u32,
    results: *mut u32,
    lanes: u32,
    _width: u32,
    which: u32,
) {
    let Some(operation) = Operation::decode(which) else {
        return;
    };
    let mut rows = [[0; SIZE as usize]; ROWS];
    for (row, _) in operation.given().enumerate() {
        // SAFETY: by contract, there are as many rows.
        let words =
            unsafe { slice::from_raw_parts(operands.add(row * SIZE as usize), SIZE as usize) };
        for (bits, &word) in rows[row].iter_mut().zip(words) {
            *bits = word.into();
        }
    }
    operation.run(&mut rows, lanes);
    for (row, ty) in operation.taken().enumerate() {
        // SAFETY: by contract, there are as many rows.
        let words =
            unsafe { slice::from_raw_parts_mut(results.add(row * SIZE as usize), SIZE as usize) };
        for (word, &bits) in words.iter_mut().zip(&rows[row]) {
            *word = match ty {
                Type::Bool => u32::from(bits != 0).wrapping_neg(),
                _ => bits as u32,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(function: Function, ty: Type, scalars: u32) -> Operation {
        Operation {
            function,
            ty,
            scalars,
        }
    }

    #[test]
    fn numbers_stand_for_operations() {
        let combines = COMBINES
            .into_iter()
            .flat_map(|combine| SCANS.map(|scan| Function::Combine(combine, scan)));
        let functions = [
            Function::Barrier,
            Function::Ballot,
            Function::First,
            Function::Shuffle,
        ];
        for function in functions.into_iter().chain(combines) {
            for ty in TYPES {
                for scalars in 0..=4 {
                    let operation = operation(function, ty, scalars);
                    assert_eq!(Operation::decode(operation.encode()), Some(operation));
                }
            }
        }
        assert_eq!(Operation::decode(u32::MAX), None);
    }

    #[test]
    fn halves_are_rounded_at_each_step() {
        let bits = |value: f32| u64::from(value.to_bits());
        let mut rows = [[0; SIZE as usize]; ROWS];
        rows[0] = [2048.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0].map(bits);
        let sum = Function::Combine(Combine::Add, Scan::All);
        operation(sum, Type::F16, 1).run(&mut rows, 0b111);
        assert_eq!(rows[0], [bits(2048.0); SIZE as usize]);
    }
}
