//! Subgroup operations. The kernel tells which lane of which subgroup each invocation was, and the
//! results are judged by that: WGSL leaves size and order of subgroups open.

use std::collections::BTreeMap;

use naga::{BinaryOperator as Op, MathFunction as Mf, Scalar as Type};

use super::{binary, math};
use crate::conformance::inputs::Draw;
use crate::conformance::row::{Mismatch, Needs, Row, ValueType, decode, encode, scalar_name};
use crate::value::Scalar;

/// Which lanes' values go into a result.
#[derive(Clone, Copy)]
enum Lanes {
    All,
    Below,
    UpToOwn,
}

/// A combination by name: the step, its identity, and whose values.
type Combination = (
    &'static str,
    fn(Scalar, Scalar) -> Option<Scalar>,
    i128,
    Lanes,
);

const COMBINATIONS: [Combination; 11] = [
    (
        "subgroupAdd",
        |a, b| binary(Op::Add, &[a, b]),
        0,
        Lanes::All,
    ),
    (
        "subgroupExclusiveAdd",
        |a, b| binary(Op::Add, &[a, b]),
        0,
        Lanes::Below,
    ),
    (
        "subgroupInclusiveAdd",
        |a, b| binary(Op::Add, &[a, b]),
        0,
        Lanes::UpToOwn,
    ),
    (
        "subgroupMul",
        |a, b| binary(Op::Multiply, &[a, b]),
        1,
        Lanes::All,
    ),
    (
        "subgroupExclusiveMul",
        |a, b| binary(Op::Multiply, &[a, b]),
        1,
        Lanes::Below,
    ),
    (
        "subgroupInclusiveMul",
        |a, b| binary(Op::Multiply, &[a, b]),
        1,
        Lanes::UpToOwn,
    ),
    ("subgroupMin", |a, b| math(Mf::Min, &[a, b]), 0, Lanes::All),
    ("subgroupMax", |a, b| math(Mf::Max, &[a, b]), 0, Lanes::All),
    (
        "subgroupAnd",
        |a, b| binary(Op::And, &[a, b]),
        0,
        Lanes::All,
    ),
    (
        "subgroupOr",
        |a, b| binary(Op::InclusiveOr, &[a, b]),
        0,
        Lanes::All,
    ),
    (
        "subgroupXor",
        |a, b| binary(Op::ExclusiveOr, &[a, b]),
        0,
        Lanes::All,
    ),
];

/// Values from other lanes: the call, and from which lane of a full subgroup of the given size.
type Gather = (&'static str, fn(u32, u32) -> Option<u32>);

const GATHERS: [Gather; 11] = [
    ("subgroupBroadcast(value, 1u)", |_, _| Some(1)),
    ("subgroupBroadcastFirst(value)", |_, _| Some(0)),
    ("subgroupShuffle(value, size - 1u - lane)", |lane, size| {
        Some(size - 1 - lane)
    }),
    ("subgroupShuffleXor(value, 1u)", |lane, _| Some(lane ^ 1)),
    ("subgroupShuffleDown(value, 1u)", |lane, _| {
        lane.checked_add(1)
    }),
    ("subgroupShuffleUp(value, 1u)", |lane, _| {
        lane.checked_sub(1)
    }),
    ("quadBroadcast(value, 3u)", |lane, _| Some(lane | 3)),
    ("quadBroadcast(value, 0u)", |lane, _| Some(lane & !3)),
    ("quadSwapX(value)", |lane, _| Some(lane ^ 1)),
    ("quadSwapY(value)", |lane, _| Some(lane ^ 2)),
    ("quadSwapDiagonal(value)", |lane, _| Some(lane ^ 3)),
];

const GROUPS: u32 = 2;
const GROUP_SIZE: u32 = 128;
const COUNT: usize = (GROUPS * GROUP_SIZE) as usize;

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for ty in [Type::U32, Type::I32, Type::F32] {
        for combination in COMBINATIONS {
            let bitwise = matches!(combination.0, "subgroupAnd" | "subgroupOr" | "subgroupXor");
            if !(bitwise && ty == Type::F32) {
                rows.push(combination_row(combination, ty, false));
            }
        }
        for gather in GATHERS {
            rows.push(gather_row(gather, ty));
        }
    }
    rows.push(combination_row(COMBINATIONS[0], Type::U32, true));
    rows.push(combination_row(COMBINATIONS[7], Type::U32, true));
    rows.extend([vote_row(false), vote_row(true)]);
    rows
}

/// Values whose sums and products are exact.
fn inputs(name: &str, ty: Type) -> Vec<Scalar> {
    let mut draw = Draw::new(name);
    let value = |draw: &mut Draw| match ty {
        Type::F32 if name.contains("Mul") => Scalar::F32([1.0, -1.0, 1.0, 2.0, 0.5][draw.below(5)]),
        Type::F32 => Scalar::F32(draw.below(2000) as f32 - 1000.0),
        _ => draw.scalar(ty),
    };
    (0..COUNT).map(|_| value(&mut draw)).collect()
}

/// A kernel that writes a result and who it was: lane, subgroup and size of subgroups.
fn text(ty: &str, statement: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage> values: array<{ty}>;\n\
        @group(0) @binding(1) var<storage, read_write> out: array<{ty}>;\n\
        @group(0) @binding(2) var<storage, read_write> who: array<vec4<u32>>;\n\
        @compute @workgroup_size({GROUP_SIZE}) fn main(\n    \
        @builtin(global_invocation_id) id: vec3<u32>, @builtin(workgroup_id) group: vec3<u32>,\n    \
        @builtin(subgroup_invocation_id) lane: u32, @builtin(subgroup_size) size: u32,\n    \
        @builtin(subgroup_id) subgroup: u32, @builtin(num_subgroups) subgroups: u32,\n) {{\n    \
        let value = values[id.x];\n    \
        who[id.x] = vec4<u32>(lane, group.x * 1000u + subgroup, size, subgroups);\n    {statement}\n}}\n"
    )
}

/// An invocation, as it said itself.
#[derive(Clone, Copy)]
struct Member {
    index: usize,
    lane: u32,
    size: u32,
}

/// The members of each subgroup in the order of their lanes; a mismatch if they cannot be right.
fn subgroups(who: &[u8]) -> Result<Vec<Vec<Member>>, Mismatch> {
    let mut all: BTreeMap<u64, Vec<Member>> = BTreeMap::new();
    for (index, who) in decode(ValueType::wide(Type::U32, 4), who, COUNT)
        .iter()
        .enumerate()
    {
        let words: Vec<u64> = who.iter().map(|word| word.bits()).collect();
        all.entry(words[1]).or_default().push(Member {
            index,
            lane: words[0] as u32,
            size: words[2] as u32,
        });
    }
    for members in all.values_mut() {
        members.sort_by_key(|member| member.lane);
        let distinct = members.windows(2).all(|pair| pair[0].lane < pair[1].lane);
        if !distinct || members.iter().any(|member| member.lane >= member.size) {
            let lanes: Vec<u32> = members.iter().map(|member| member.lane).collect();
            return Err(Mismatch {
                case: "lanes of a subgroup".to_owned(),
                got: format!("{lanes:?}"),
                expected: "each once and below the size".to_owned(),
            });
        }
    }
    Ok(all.into_values().collect())
}

/// A row whose results are judged subgroup by subgroup.
fn row(
    name: String,
    ty: Type,
    statement: &str,
    result: impl Fn(&[Member], usize, &[Scalar]) -> Option<Scalar> + Send + Sync + 'static,
) -> Row {
    let values = inputs(&name, ty);
    let element = ValueType::wide(ty, 1);
    let buffers = vec![
        encode(
            element,
            &values.iter().map(|value| vec![*value]).collect::<Vec<_>>(),
        ),
        vec![0xa5; COUNT * 4],
        vec![0xa5; COUNT * 16],
    ];
    Row::new(
        name,
        text(scalar_name(ty), statement),
        buffers,
        move |buffers, _| {
            let subgroups = match subgroups(&buffers[2]) {
                Ok(subgroups) => subgroups,
                Err(mismatch) => return vec![mismatch],
            };
            let results = decode(element, &buffers[1], COUNT);
            let mut wrong = Vec::new();
            for members in subgroups {
                for (position, member) in members.iter().enumerate() {
                    let got = results[member.index][0];
                    let expected = result(&members, position, &values);
                    if let Some(expected) = expected
                        && !crate::conformance::expected::same(expected, got)
                    {
                        wrong.push(Mismatch {
                            case: format!(
                                "lane {} of {} ({})",
                                member.lane,
                                members.len(),
                                values[member.index]
                            ),
                            got: got.to_string(),
                            expected: expected.to_string(),
                        });
                    }
                }
            }
            wrong
        },
    )
    .needing(Needs {
        subgroups: true,
        ..Needs::default()
    })
    .workgroups(GROUPS)
}

fn combination_row((name, step, identity, lanes): Combination, ty: Type, divergent: bool) -> Row {
    let full_name = format!(
        "{name} {}{}",
        scalar_name(ty),
        if divergent { " divergent" } else { "" }
    );
    // In divergent flow lanes of odd numbers combine their values, the others keep their own.
    let statement = match divergent {
        false => format!("out[id.x] = {name}(value);"),
        true => format!(
            "var result = value; if lane % 2u == 1u {{ result = {name}(value); }} out[id.x] = result;"
        ),
    };
    row(
        full_name,
        ty,
        &statement,
        move |members, position, values| {
            let own = members[position];
            if divergent && own.lane.is_multiple_of(2) {
                return Some(values[own.index]);
            }
            let takes_part = |member: &&Member| {
                let in_range = match lanes {
                    Lanes::All => true,
                    Lanes::Below => member.lane < own.lane,
                    Lanes::UpToOwn => member.lane <= own.lane,
                };
                in_range && (!divergent || member.lane % 2 == 1)
            };
            let mut operands = members
                .iter()
                .filter(takes_part)
                .map(|member| values[member.index]);
            let Some(first) = operands.next() else {
                return match ty.kind {
                    naga::ScalarKind::Float => Scalar::rounded(ty, identity as f64),
                    _ => Scalar::wrapped(ty, identity),
                };
            };
            operands.try_fold(first, step)
        },
    )
}

fn gather_row((call, from): Gather, ty: Type) -> Row {
    let name = format!("{call} {}", scalar_name(ty));
    row(
        name,
        ty,
        &format!("out[id.x] = {call};"),
        move |members, position, values| {
            let own = members[position];
            // Results from lanes that do not exist are open.
            let lane = from(own.lane, own.size)?;
            members
                .iter()
                .find(|member| member.lane == lane)
                .map(|member| values[member.index])
        },
    )
}

/// `subgroupBallot`, `subgroupAll` and `subgroupAny`, in divergent flow as well.
fn vote_row(divergent: bool) -> Row {
    let name = format!("votes{}", if divergent { " divergent" } else { "" });
    let votes = "let ballot = subgroupBallot(value % 3u == 0u);
        let bits = countOneBits(ballot); let position = ballot[lane / 32u] >> (lane % 32u) & 1u;
        result = bits.x + bits.y + bits.z + bits.w + position * 1000u
            + u32(subgroupAll(value % 5u != 0u)) * 10000u + u32(subgroupAny(value % 7u == 0u)) * 100000u;";
    let statement = match divergent {
        false => format!("var result = 0u; {votes} out[id.x] = result;"),
        true => format!("var result = 7u; if lane % 2u == 1u {{ {votes} }} out[id.x] = result;"),
    };
    row(
        name,
        Type::U32,
        &statement,
        move |members, position, values| {
            let own = members[position];
            if divergent && own.lane.is_multiple_of(2) {
                return Some(Scalar::U32(7));
            }
            let voters = members
                .iter()
                .filter(|member| !divergent || member.lane % 2 == 1);
            let votes: Vec<u32> = voters
                .map(|member| values[member.index].bits() as u32)
                .collect();
            let own_value = values[own.index].bits() as u32;
            let ballot = votes.iter().filter(|value| *value % 3 == 0).count() as u32;
            Some(Scalar::U32(
                ballot
                    + u32::from(own_value.is_multiple_of(3)) * 1000
                    + u32::from(votes.iter().all(|value| value % 5 != 0)) * 10000
                    + u32::from(votes.iter().any(|value| value % 7 == 0)) * 100_000,
            ))
        },
    )
}
