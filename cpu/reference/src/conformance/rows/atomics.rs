//! Atomic functions: what they return and leave behind, alone and when all invocations contend.

use naga::{BinaryOperator as Op, MathFunction as Mf, Scalar as Type, ScalarKind};

use super::{binary, math};
use crate::conformance::inputs;
use crate::conformance::row::{Mismatch, Needs, Row, ValueType, decode, encode, scalar_name};
use crate::value::Scalar;

/// What a cell holds after a function, from what it held and the operand.
type Effect = fn(Scalar, Scalar) -> Option<Scalar>;

const FUNCTIONS: [(&str, Effect); 8] = [
    ("atomicAdd", |a, b| binary(Op::Add, &[a, b])),
    ("atomicSub", |a, b| binary(Op::Subtract, &[a, b])),
    ("atomicMax", |a, b| math(Mf::Max, &[a, b])),
    ("atomicMin", |a, b| math(Mf::Min, &[a, b])),
    ("atomicAnd", |a, b| binary(Op::And, &[a, b])),
    ("atomicOr", |a, b| binary(Op::InclusiveOr, &[a, b])),
    ("atomicXor", |a, b| binary(Op::ExclusiveOr, &[a, b])),
    ("atomicExchange", |_, b| Some(b)),
];

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for ty in [Type::I32, Type::U32, Type::I64, Type::U64] {
        for (name, effect) in FUNCTIONS {
            rows.push(alone_row(name, effect, ty, "storage"));
            rows.push(alone_row(name, effect, ty, "workgroup"));
        }
        for space in ["storage", "workgroup"] {
            rows.push(compare_exchange_row(ty, space));
            rows.push(contended_row(ty, space));
        }
    }
    for (name, effect) in [FUNCTIONS[0], FUNCTIONS[1], FUNCTIONS[7]] {
        rows.push(alone_row(name, effect, Type::F32, "storage"));
    }
    rows
}

fn needs(ty: Type) -> Needs {
    Needs {
        int64_atomics: ty.width == 8,
        float_atomics: ty.kind == ScalarKind::Float,
        ..Needs::of(ty)
    }
}

/// Operands in cells and beside them.
fn operands(name: &str, ty: Type) -> Vec<(Scalar, Scalar)> {
    let combinations = inputs::combinations(name, &[ty, ty], 200);
    let pairs = combinations.into_iter().filter_map(|pair| match pair[..] {
        // Sums of edges of floating point are tested with `+`.
        [a, b] if ty.kind == ScalarKind::Float => {
            let small = |scalar: Scalar| {
                scalar
                    .float()
                    .is_some_and(|value| value == 0.0 || (1e-3..1e3).contains(&value.abs()))
            };
            let sum = a.float()? + b.float()?;
            (small(a) && small(b) && sum.abs() > 1e-3).then_some((a, b))
        }
        [a, b] => Some((a, b)),
        _ => None,
    });
    pairs.collect()
}

fn column(ty: Type, scalars: impl Iterator<Item = Scalar>) -> Vec<u8> {
    encode(
        ValueType::wide(ty, 1),
        &scalars.map(|scalar| vec![scalar]).collect::<Vec<_>>(),
    )
}

fn scalars(ty: Type, bytes: &[u8], count: usize) -> Vec<Scalar> {
    decode(ValueType::wide(ty, 1), bytes, count)
        .into_iter()
        .map(|element| element[0])
        .collect()
}

fn mismatch(case: String, got: impl ToString, expected: impl ToString) -> Mismatch {
    Mismatch {
        case,
        got: got.to_string(),
        expected: expected.to_string(),
    }
}

/// Cells of which each invocation has one of its own, and an operand for each.
struct OwnCells {
    ty: Type,
    space: &'static str,
    /// What a cell holds before, and the operand.
    pairs: Vec<(Scalar, Scalar)>,
}

/// A cell after the kernel.
struct After {
    index: usize,
    before: Scalar,
    operand: Scalar,
    left: Scalar,
    /// What the function returned.
    old: Scalar,
}

impl OwnCells {
    fn new(name: &str, ty: Type, space: &'static str) -> OwnCells {
        let pairs = operands(name, ty);
        OwnCells { ty, space, pairs }
    }

    /// A kernel with buffers for cells, operands and what the function returns, and further ones. `body`
    /// makes statements of the text of the invocation's cell; the invocation is `i`.
    fn text(&self, declarations: &str, body: impl Fn(&str) -> String) -> String {
        let (scalar, count) = (scalar_name(self.ty), self.pairs.len());
        let (cells, cell, fill, keep) = match self.space {
            "storage" => (
                format!("var<storage, read_write> cells: array<atomic<{scalar}>>;"),
                "cells[i]",
                "",
                "",
            ),
            _ => (
                format!(
                    "var<storage, read_write> kept: array<{scalar}>;\n\
                    var<workgroup> cells: array<atomic<{scalar}>, 64>;"
                ),
                "cells[local]",
                "atomicStore(&cells[local], kept[i]);",
                "kept[i] = atomicLoad(&cells[local]);",
            ),
        };
        let body = body(cell);
        format!(
            "@group(0) @binding(0) {cells}\n\
            @group(0) @binding(1) var<storage> operands: array<{scalar}>;\n\
            @group(0) @binding(2) var<storage, read_write> out: array<{scalar}>;\n\
            {declarations}\
            @compute @workgroup_size(64) fn main(\n    \
            @builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32\n) {{\n    \
            let i = id.x;\n    if i >= {count}u {{ return; }}\n    {fill}\n    {body}\n    {keep}\n}}\n"
        )
    }

    /// The contents of the buffers of each such kernel.
    fn buffers(&self) -> Vec<Vec<u8>> {
        vec![
            column(self.ty, self.pairs.iter().map(|pair| pair.0)),
            column(self.ty, self.pairs.iter().map(|pair| pair.1)),
            vec![0xa5; self.pairs.len() * usize::from(self.ty.width)],
        ]
    }

    /// A row that judges cell by cell.
    fn row(
        self,
        name: String,
        text: String,
        buffers: Vec<Vec<u8>>,
        judge: impl Fn(&After, &[Vec<u8>]) -> Vec<Mismatch> + Send + Sync + 'static,
    ) -> Row {
        let OwnCells { ty, pairs, .. } = self;
        let count = pairs.len();
        let check = move |buffers: &[Vec<u8>], _| {
            let left = scalars(ty, &buffers[0], count);
            let old = scalars(ty, &buffers[2], count);
            let cells = pairs
                .iter()
                .enumerate()
                .map(|(index, &(before, operand))| After {
                    index,
                    before,
                    operand,
                    left: left[index],
                    old: old[index],
                });
            cells.flat_map(|cell| judge(&cell, buffers)).collect()
        };
        Row::new(name, text, buffers, check)
            .needing(needs(ty))
            .workgroups(count.div_ceil(64) as u32)
    }
}

/// A function alone: what it returns and leaves.
fn alone_row(name: &str, effect: Effect, ty: Type, space: &'static str) -> Row {
    let full_name = format!("{name} {} {space}", scalar_name(ty));
    let cells = OwnCells::new(&full_name, ty, space);
    let text = cells.text("", |cell| format!("out[i] = {name}(&{cell}, operands[i]);"));
    let buffers = cells.buffers();
    cells.row(full_name, text, buffers, move |cell, _| {
        let case = format!("[{}, {}]", cell.before, cell.operand);
        let mut wrong = Vec::new();
        if cell.old != cell.before {
            wrong.push(mismatch(format!("{case}, returned"), cell.old, cell.before));
        }
        if let Some(expected) = effect(cell.before, cell.operand)
            && !close(cell.left, expected)
        {
            wrong.push(mismatch(format!("{case}, left"), cell.left, expected));
        }
        wrong
    })
}

/// Equal; a sum of floating-point numbers may be rounded either way.
fn close(got: Scalar, expected: Scalar) -> bool {
    match (got.float(), expected.float()) {
        (Some(got), Some(expected)) => (got - expected).abs() <= expected.abs() * 1.2e-7,
        _ => got == expected,
    }
}

/// Half of the cells hold what is compared with. A weak exchange may fail all the same.
fn compare_exchange_row(ty: Type, space: &'static str) -> Row {
    let scalar = scalar_name(ty);
    let name = format!("atomicCompareExchangeWeak {scalar} {space}");
    let cells = OwnCells::new(&name, ty, space);
    let declarations = "@group(0) @binding(3) var<storage, read_write> exchanged: array<u32>;\n";
    let text = cells.text(declarations, |cell| {
        format!(
            "let compare = atomicLoad(&{cell}) ^ select({scalar}(0), {scalar}(1), i % 2u == 1u);\n    \
            let result = atomicCompareExchangeWeak(&{cell}, compare, operands[i]);\n    \
            out[i] = result.old_value;\n    exchanged[i] = u32(result.exchanged);"
        )
    });
    let count = cells.pairs.len();
    let mut buffers = cells.buffers();
    buffers.push(vec![0xa5; count * 4]);
    cells.row(name, text, buffers, move |cell, buffers| {
        let different = cell.index % 2 == 1;
        let exchanged = buffers[3].chunks_exact(4).nth(cell.index) == Some(&1u32.to_le_bytes());
        let case = format!(
            "[{}, {}], {}",
            cell.before,
            cell.operand,
            if different { "different" } else { "equal" }
        );
        let mut wrong = Vec::new();
        if cell.old != cell.before {
            wrong.push(mismatch(
                format!("{case}, old_value"),
                cell.old,
                cell.before,
            ));
        }
        if exchanged && different {
            wrong.push(mismatch(format!("{case}, exchanged"), true, false));
        }
        let expected = if exchanged { cell.operand } else { cell.before };
        if cell.left != expected {
            wrong.push(mismatch(format!("{case}, left"), cell.left, expected));
        }
        wrong
    })
}

/// All invocations work on the same cells. The results are those of some order.
fn contended_row(ty: Type, space: &'static str) -> Row {
    let name = format!("contended atomics {} {space}", scalar_name(ty));
    let scalar = scalar_name(ty);
    const GROUPS: usize = 4;
    const INVOCATIONS: usize = 64 * GROUPS;
    let declaration = match space {
        "storage" => format!(
            "@group(0) @binding(0) var<storage, read_write> cells: array<atomic<{scalar}>, 5>;\n"
        ),
        _ => format!(
            "@group(0) @binding(0) var<storage, read_write> kept: array<{scalar}>;\n\
            var<workgroup> cells: array<atomic<{scalar}>, 5>;\n"
        ),
    };
    let keep = match space {
        "storage" => "",
        _ => {
            "workgroupBarrier(); if local < 5u { kept[group.x * 5u + local] = atomicLoad(&cells[local]); }"
        }
    };
    let text = format!(
        "{declaration}\
        @group(0) @binding(1) var<storage, read_write> tickets: array<{scalar}>;\n\
        @compute @workgroup_size(64) fn main(\n    @builtin(global_invocation_id) id: vec3<u32>,\n    \
        @builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32\n) {{\n    \
        let value = {scalar}(id.x);\n    \
        tickets[id.x] = atomicAdd(&cells[0], {scalar}(1));\n    \
        atomicMax(&cells[1], value);\n    \
        atomicXor(&cells[2], value * {scalar}(2654435) + {scalar}(17));\n    \
        atomicOr(&cells[3], {scalar}(1) << (id.x % 31u));\n    \
        atomicSub(&cells[4], value);\n    {keep}\n}}\n"
    );
    let width = usize::from(ty.width);
    let shared = space == "storage";
    let sets = if shared { 1 } else { GROUPS };
    let buffers = vec![vec![0; 5 * width * sets], vec![0xa5; INVOCATIONS * width]];
    Row::new(name, text, buffers, move |buffers, _| {
        let cells = scalars(ty, &buffers[0], 5 * sets);
        let tickets = scalars(ty, &buffers[1], INVOCATIONS);
        let mut wrong = Vec::new();
        for set in 0..sets {
            let members = if shared {
                0..INVOCATIONS
            } else {
                set * 64..set * 64 + 64
            };
            let mut drawn: Vec<i128> = tickets[members.clone()]
                .iter()
                .filter_map(|ticket| ticket.integer())
                .collect();
            drawn.sort_unstable();
            if drawn != (0..members.len() as i128).collect::<Vec<_>>() {
                wrong.push(mismatch(
                    format!("tickets of set {set}"),
                    format!("{drawn:?}"),
                    "each once",
                ));
            }
            let ids = members.map(|id| id as i128);
            let expected = [
                ids.clone().count() as i128,
                ids.clone().max().unwrap_or(0),
                ids.clone().fold(0, |all, id| all ^ (id * 2_654_435 + 17)),
                ids.clone().fold(0, |all, id| all | 1 << (id % 31)),
                -ids.sum::<i128>(),
            ];
            for (index, expected) in expected.iter().enumerate() {
                let (got, expected) = (cells[set * 5 + index], Scalar::wrapped(ty, *expected));
                if Some(got) != expected {
                    wrong.push(mismatch(
                        format!("cell {index} of set {set}"),
                        got,
                        format!("{expected:?}"),
                    ));
                }
            }
        }
        wrong
    })
    .needing(needs(ty))
    .workgroups(GROUPS as u32)
}
