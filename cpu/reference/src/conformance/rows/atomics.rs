//! Atomic functions: what they return and leave behind, alone and when all invocations contend.

use naga::{BinaryOperator as Op, MathFunction as Mf, Scalar as Type, ScalarKind};

use super::{binary, math};
use crate::conformance::inputs;
use crate::conformance::row::{Mismatch, Needs, Row, ValueType, decode, encode, scalar_name};
use crate::value::Scalar;

/// What a cell holds after a function, from what it held and the operand.
type After = fn(Scalar, Scalar) -> Option<Scalar>;

const FUNCTIONS: [(&str, After); 8] = [
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
        for (name, after) in FUNCTIONS {
            rows.push(alone_row(name, after, ty, "storage"));
            rows.push(alone_row(name, after, ty, "workgroup"));
        }
        for space in ["storage", "workgroup"] {
            rows.push(compare_exchange_row(ty, space));
            rows.push(contended_row(ty, space));
        }
    }
    for (name, after) in [FUNCTIONS[0], FUNCTIONS[1], FUNCTIONS[7]] {
        rows.push(alone_row(name, after, Type::F32, "storage"));
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

/// Declarations of cells in an address space, and the text of the cell of an invocation.
fn cells(space: &str, scalar: &str) -> (String, &'static str, &'static str) {
    match space {
        "storage" => (
            format!(
                "@group(0) @binding(0) var<storage, read_write> cells: array<atomic<{scalar}>>;\n"
            ),
            "cells[i]",
            "",
        ),
        _ => (
            format!(
                "@group(0) @binding(0) var<storage, read_write> kept: array<{scalar}>;\n\
                var<workgroup> cells: array<atomic<{scalar}>, 64>;\n"
            ),
            "cells[local]",
            "atomicStore(&cells[local], kept[i]);",
        ),
    }
}

/// Each invocation works on a cell of its own.
fn alone_row(name: &str, after: After, ty: Type, space: &str) -> Row {
    let full_name = format!("{name} {} {space}", scalar_name(ty));
    let pairs = operands(&full_name, ty);
    let (scalar, count) = (scalar_name(ty), pairs.len());
    let (declaration, cell, before) = cells(space, scalar);
    let keep = if space == "storage" {
        String::new()
    } else {
        format!("kept[i] = atomicLoad(&{cell});")
    };
    let text = format!(
        "{declaration}\
        @group(0) @binding(1) var<storage> operands: array<{scalar}>;\n\
        @group(0) @binding(2) var<storage, read_write> out: array<{scalar}>;\n\
        @compute @workgroup_size(64) fn main(\n    \
        @builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32\n) {{\n    \
        let i = id.x;\n    if i >= {count}u {{ return; }}\n    {before}\n    \
        out[i] = {name}(&{cell}, operands[i]);\n    {keep}\n}}\n"
    );
    let buffers = vec![
        column(ty, pairs.iter().map(|pair| pair.0)),
        column(ty, pairs.iter().map(|pair| pair.1)),
        vec![0xa5; count * usize::from(ty.width)],
    ];
    Row::new(full_name, text, buffers, move |buffers, _| {
        let (left, old) = (
            scalars(ty, &buffers[0], count),
            scalars(ty, &buffers[2], count),
        );
        let mut wrong = Vec::new();
        for (index, (before, operand)) in pairs.iter().enumerate() {
            let case = format!("[{before}, {operand}]");
            if old[index] != *before {
                wrong.push(mismatch(format!("{case}, returned"), old[index], before));
            }
            if let Some(after) = after(*before, *operand)
                && !close(left[index], after)
            {
                wrong.push(mismatch(format!("{case}, left"), left[index], after));
            }
        }
        wrong
    })
    .needing(needs(ty))
    .workgroups(count.div_ceil(64) as u32)
}

/// Equal; a sum of floating-point numbers may be rounded either way.
fn close(got: Scalar, expected: Scalar) -> bool {
    match (got.float(), expected.float()) {
        (Some(got), Some(expected)) => (got - expected).abs() <= expected.abs() * 1.2e-7,
        _ => got == expected,
    }
}

/// Half of the cells hold what is compared with. A weak exchange may fail all the same.
fn compare_exchange_row(ty: Type, space: &str) -> Row {
    let name = format!("atomicCompareExchangeWeak {} {space}", scalar_name(ty));
    let pairs = operands(&name, ty);
    let (scalar, count) = (scalar_name(ty), pairs.len());
    let (declaration, cell, before) = cells(space, scalar);
    let keep = if space == "storage" {
        String::new()
    } else {
        format!("kept[i] = atomicLoad(&{cell});")
    };
    let text = format!(
        "{declaration}\
        @group(0) @binding(1) var<storage> operands: array<{scalar}>;\n\
        @group(0) @binding(2) var<storage, read_write> out: array<{scalar}>;\n\
        @group(0) @binding(3) var<storage, read_write> exchanged: array<u32>;\n\
        @compute @workgroup_size(64) fn main(\n    \
        @builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32\n) {{\n    \
        let i = id.x;\n    if i >= {count}u {{ return; }}\n    {before}\n    \
        let compare = atomicLoad(&{cell}) ^ select({scalar}(0), {scalar}(1), i % 2u == 1u);\n    \
        let result = atomicCompareExchangeWeak(&{cell}, compare, operands[i]);\n    \
        out[i] = result.old_value;\n    exchanged[i] = u32(result.exchanged);\n    {keep}\n}}\n"
    );
    let buffers = vec![
        column(ty, pairs.iter().map(|pair| pair.0)),
        column(ty, pairs.iter().map(|pair| pair.1)),
        vec![0xa5; count * usize::from(ty.width)],
        vec![0xa5; count * 4],
    ];
    Row::new(name, text, buffers, move |buffers, _| {
        let (left, old) = (
            scalars(ty, &buffers[0], count),
            scalars(ty, &buffers[2], count),
        );
        let exchanged = scalars(Type::U32, &buffers[3], count);
        let mut wrong = Vec::new();
        for (index, (before, operand)) in pairs.iter().enumerate() {
            let case = format!(
                "[{before}, {operand}], {}",
                if index % 2 == 0 { "equal" } else { "different" }
            );
            let done = exchanged[index] == Scalar::U32(1);
            if old[index] != *before {
                wrong.push(mismatch(format!("{case}, old_value"), old[index], before));
            }
            if done && index % 2 == 1 {
                wrong.push(mismatch(format!("{case}, exchanged"), true, false));
            }
            let after = if done { operand } else { before };
            if left[index] != *after {
                wrong.push(mismatch(format!("{case}, left"), left[index], after));
            }
        }
        wrong
    })
    .needing(needs(ty))
    .workgroups(count.div_ceil(64) as u32)
}

/// All invocations work on the same cells. The results are those of some order.
fn contended_row(ty: Type, space: &str) -> Row {
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
