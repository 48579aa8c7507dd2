//! A row of the table: a kernel, what it is given, and what its results may be.

use core::fmt;

use super::expected::{Expected, same};
use crate::memory;
use crate::value::{Scalar, Value, Vector};

/// What an adapter must have for a row, beside WebGPU's minimum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub float16: bool,
    pub float64: bool,
    pub int64: bool,
    pub int64_atomics: bool,
    pub float_atomics: bool,
    pub subgroups: bool,
    pub subgroup_barrier: bool,
    pub immediates: bool,
    pub read_write_textures: bool,
}

impl Needs {
    /// What a scalar type needs.
    pub fn of(ty: naga::Scalar) -> Needs {
        let float = ty.kind == naga::ScalarKind::Float;
        Needs {
            float16: float && ty.width == 2,
            float64: float && ty.width == 8,
            int64: !float && ty.width == 8,
            ..Needs::default()
        }
    }

    /// What either needs.
    pub fn and(self, other: Needs) -> Needs {
        Needs {
            float16: self.float16 || other.float16,
            float64: self.float64 || other.float64,
            int64: self.int64 || other.int64,
            int64_atomics: self.int64_atomics || other.int64_atomics,
            float_atomics: self.float_atomics || other.float_atomics,
            subgroups: self.subgroups || other.subgroups,
            subgroup_barrier: self.subgroup_barrier || other.subgroup_barrier,
            immediates: self.immediates || other.immediates,
            read_write_textures: self.read_write_textures || other.read_write_textures,
        }
    }
}

/// How strictly results are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// What WGSL requires of everybody.
    Wgsl,
    /// In addition, where an operation is one of IEEE 754: its result to nearest even, nothing flushed,
    /// infinities and NaN as they come.
    Ieee,
}

/// A result that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The operands.
    pub case: String,
    pub got: String,
    pub expected: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}: got {}, expected {}",
            self.case, self.got, self.expected
        )
    }
}

/// Judges the contents of all buffers after a run.
type Check = Box<dyn Fn(&[Vec<u8>], Strictness) -> Vec<Mismatch> + Send + Sync>;

/// One kernel of the table.
pub struct Row {
    /// Unique, from the general to the special: `sin f32 x4`.
    pub name: String,
    pub needs: Needs,
    /// WGSL with entry point `main`.
    pub text: String,
    /// Contents of storage buffers, bound to group 0 in this order.
    pub buffers: Vec<Vec<u8>>,
    /// Work-groups along x.
    pub workgroups: u32,
    check: Check,
}

impl fmt::Debug for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Row")
            .field("name", &self.name)
            .field("needs", &self.needs)
            .finish_non_exhaustive()
    }
}

impl Row {
    /// A row with a judgement of its own.
    pub fn new(
        name: impl Into<String>,
        text: impl Into<String>,
        buffers: Vec<Vec<u8>>,
        check: impl Fn(&[Vec<u8>], Strictness) -> Vec<Mismatch> + Send + Sync + 'static,
    ) -> Row {
        Row {
            name: name.into(),
            needs: Needs::default(),
            text: text.into(),
            buffers,
            workgroups: 1,
            check: Box::new(check),
        }
    }

    /// Adds needs.
    pub fn needing(mut self, needs: Needs) -> Row {
        self.needs = self.needs.and(needs);
        self
    }

    /// Sets the number of work-groups.
    pub fn workgroups(mut self, workgroups: u32) -> Row {
        self.workgroups = workgroups;
        self
    }

    /// Judges the contents of the buffers after a run.
    pub fn check(&self, buffers: &[Vec<u8>], strictness: Strictness) -> Vec<Mismatch> {
        (self.check)(buffers, strictness)
    }
}

/// The type of an operand or a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueType {
    pub scalar: naga::Scalar,
    pub shape: Shape,
}

/// How many scalars a value has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Scalar,
    Vector(u8),
    /// Columns and rows.
    Matrix(u8, u8),
}

/// The WGSL name of a scalar type.
pub fn scalar_name(ty: naga::Scalar) -> &'static str {
    match (ty.kind, ty.width) {
        (naga::ScalarKind::Bool, _) => "bool",
        (naga::ScalarKind::Sint, 4) => "i32",
        (naga::ScalarKind::Uint, 4) => "u32",
        (naga::ScalarKind::Sint, _) => "i64",
        (naga::ScalarKind::Uint, _) => "u64",
        (_, 2) => "f16",
        (_, 8) => "f64",
        _ => "f32",
    }
}

impl ValueType {
    /// A scalar, or a vector of `width` components if `width` is above 1.
    pub fn wide(scalar: naga::Scalar, width: u8) -> ValueType {
        let shape = if width == 1 {
            Shape::Scalar
        } else {
            Shape::Vector(width)
        };
        ValueType { scalar, shape }
    }

    /// The type as WGSL writes it.
    pub fn name(self) -> String {
        let scalar = scalar_name(self.scalar);
        match self.shape {
            Shape::Scalar => scalar.to_owned(),
            Shape::Vector(size) => format!("vec{size}<{scalar}>"),
            Shape::Matrix(columns, rows) => format!("mat{columns}x{rows}<{scalar}>"),
        }
    }

    /// The type in memory: booleans are kept as words.
    fn stored(self) -> ValueType {
        match self.scalar.kind {
            naga::ScalarKind::Bool => ValueType {
                scalar: naga::Scalar::U32,
                ..self
            },
            _ => self,
        }
    }

    /// The number of scalars.
    pub fn scalars(self) -> usize {
        match self.shape {
            Shape::Scalar => 1,
            Shape::Vector(size) => size.into(),
            Shape::Matrix(columns, rows) => usize::from(columns) * usize::from(rows),
        }
    }

    /// Offsets of the scalars in an element of an array, and the array's stride.
    fn places(self) -> (Vec<usize>, usize) {
        let width = usize::from(self.scalar.width);
        let column = |rows: u8| {
            let size = if rows == 2 {
                naga::VectorSize::Bi
            } else if rows == 3 {
                naga::VectorSize::Tri
            } else {
                naga::VectorSize::Quad
            };
            memory::column_stride(size, self.scalar) as usize
        };
        match self.shape {
            Shape::Scalar => (vec![0], width),
            Shape::Vector(size) => (
                (0..size).map(|index| usize::from(index) * width).collect(),
                column(size),
            ),
            Shape::Matrix(columns, rows) => {
                let place = |column_index: u8, row: u8| {
                    usize::from(column_index) * column(rows) + usize::from(row) * width
                };
                let all = (0..columns)
                    .flat_map(|at| (0..rows).map(move |row| place(at, row)))
                    .collect();
                (all, usize::from(columns) * column(rows))
            }
        }
    }

    /// A value of the type, from its scalars.
    pub fn value(self, scalars: &[Scalar]) -> Option<Value> {
        match self.shape {
            Shape::Scalar => scalars.first().copied().map(Value::Scalar),
            Shape::Vector(_) => Vector::new(scalars).map(Value::Vector),
            Shape::Matrix(_, rows) => {
                let columns: Option<_> = scalars.chunks(rows.into()).map(Vector::new).collect();
                columns.map(Value::Matrix)
            }
        }
    }
}

/// Writes elements as an array of the type lies in a buffer.
pub fn encode(ty: ValueType, elements: &[Vec<Scalar>]) -> Vec<u8> {
    let (places, stride) = ty.stored().places();
    let width = usize::from(ty.stored().scalar.width);
    let mut bytes = vec![0; (stride * elements.len()).next_multiple_of(4)];
    for (index, element) in elements.iter().enumerate() {
        for (scalar, place) in element.iter().zip(&places) {
            let start = index * stride + place;
            bytes[start..start + width].copy_from_slice(&scalar.bits().to_le_bytes()[..width]);
        }
    }
    bytes
}

/// Reads elements of an array of the type.
pub fn decode(ty: ValueType, bytes: &[u8], count: usize) -> Vec<Vec<Scalar>> {
    let (places, stride) = ty.stored().places();
    let width = usize::from(ty.stored().scalar.width);
    let scalar = |start: usize| {
        let mut bits = [0; 8];
        bits[..width].copy_from_slice(&bytes[start..start + width]);
        Scalar::from_bits(ty.scalar, u64::from_le_bytes(bits)).unwrap_or(Scalar::Bool(false))
    };
    (0..count)
        .map(|index| {
            places
                .iter()
                .map(|place| scalar(index * stride + place))
                .collect()
        })
        .collect()
}

/// One combination of operands, and what may come of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// The scalars of each operand.
    pub operands: Vec<Vec<Scalar>>,
    /// For each scalar of the result.
    pub expected: Vec<Expected>,
    /// What IEEE 754 gives for each scalar, where it defines the operation.
    pub ieee: Option<Vec<Scalar>>,
}

/// An expression of WGSL over operands `a0` to `a3`, and cases of it.
pub struct Operation {
    pub name: String,
    pub operands: Vec<ValueType>,
    pub result: ValueType,
    pub expression: String,
    pub cases: Vec<Case>,
}

impl Operation {
    /// The kernel that evaluates all cases, one by each invocation.
    pub fn row(self) -> Row {
        let mut needs = Needs::of(self.result.scalar);
        let mut text = String::new();
        let mut loads = String::new();
        let mut buffers = Vec::new();
        for (index, ty) in self.operands.iter().enumerate() {
            needs = needs.and(Needs::of(ty.scalar));
            let stored = ty.stored().name();
            text +=
                &format!("@group(0) @binding({index}) var<storage> in{index}: array<{stored}>;\n");
            let load = match ty.scalar.kind {
                naga::ScalarKind::Bool => format!("in{index}[i] != {stored}(0u)"),
                _ => format!("in{index}[i]"),
            };
            loads += &format!("    let a{index} = {load};\n");
            let column: Vec<Vec<Scalar>> = self
                .cases
                .iter()
                .map(|case| case.operands[index].clone())
                .collect();
            buffers.push(encode(*ty, &column));
        }
        if needs.float16 {
            text.insert_str(0, "enable f16;\n");
        }
        let output = self.operands.len();
        let stored = self.result.stored().name();
        let expression = match self.result.scalar.kind {
            naga::ScalarKind::Bool => {
                format!("select({stored}(0u), {stored}(1u), {})", self.expression)
            }
            _ => self.expression.clone(),
        };
        let count = self.cases.len();
        text += &format!(
            "@group(0) @binding({output}) var<storage, read_write> out: array<{stored}>;\n\
            @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n    \
            let i = id.x;\n    if i >= {count}u {{ return; }}\n{loads}    out[i] = {expression};\n}}\n"
        );
        let nothing = vec![vec![Scalar::U32(0); self.result.scalars()]; count];
        buffers.push(encode(self.result, &nothing).iter().map(|_| 0xa5).collect());
        let workgroups = count.div_ceil(64) as u32;
        let name = self.name.clone();
        Row::new(name, text, buffers, move |buffers, strictness| {
            self.check(&buffers[output], strictness)
        })
        .needing(needs)
        .workgroups(workgroups)
    }

    fn check(&self, output: &[u8], strictness: Strictness) -> Vec<Mismatch> {
        let results = decode(self.result, output, self.cases.len());
        let mut mismatches = Vec::new();
        for (case, result) in self.cases.iter().zip(results) {
            for (index, got) in result.iter().enumerate() {
                let allowed = case
                    .expected
                    .get(index)
                    .is_some_and(|expected| expected.accepts(*got));
                let ieee = case.ieee.as_ref().and_then(|ieee| ieee.get(index));
                let exact =
                    strictness == Strictness::Wgsl || ieee.is_none_or(|ieee| same(*ieee, *got));
                if allowed && exact {
                    continue;
                }
                let expected = match (allowed, ieee) {
                    (true, Some(ieee)) => ieee.to_string(),
                    _ => case
                        .expected
                        .get(index)
                        .map(Expected::to_string)
                        .unwrap_or_default(),
                };
                let component = if result.len() > 1 {
                    format!("[{index}] of ")
                } else {
                    String::new()
                };
                mismatches.push(Mismatch {
                    case: format!("{component}{:?}", case.operands),
                    got: got.to_string(),
                    expected,
                });
            }
        }
        mismatches
    }
}
