//! Built-in functions on vectors as wholes, swizzles, and operators between vectors and scalars.

use naga::{BinaryOperator as Op, MathFunction as Mf, Scalar as Type};

use super::{ComponentWise, binary, exactly, no_ieee};
use crate::conformance::accuracy;
use crate::conformance::expected::Expected;
use crate::conformance::inputs::{self, Draw};
use crate::conformance::row::{Case, Operation, Row, Shape, ValueType, scalar_name};
use crate::operate;
use crate::value::Scalar;

/// Geometric functions: which operands are vectors, whether the result is one, and the least width.
const GEOMETRIC: [(&str, Mf, &[bool], bool, u8, u8); 8] = [
    ("dot", Mf::Dot, &[true, true], false, 2, 4),
    ("length", Mf::Length, &[true], false, 1, 4),
    ("distance", Mf::Distance, &[true, true], false, 2, 4),
    ("normalize", Mf::Normalize, &[true], true, 2, 4),
    ("cross", Mf::Cross, &[true, true], true, 3, 3),
    (
        "faceForward",
        Mf::FaceForward,
        &[true, true, true],
        true,
        2,
        4,
    ),
    ("reflect", Mf::Reflect, &[true, true], true, 2, 4),
    ("refract", Mf::Refract, &[true, true, false], true, 2, 4),
];

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for ty in [Type::F32, Type::F16] {
        for (name, function, operands, vector, least, most) in GEOMETRIC {
            rows.extend(
                (least..=most)
                    .map(|width| geometric_row(name, function, operands, vector, width, ty)),
            );
        }
        rows.extend(mix_rows(ty));
    }
    for ty in [Type::I32, Type::U32, Type::I64] {
        rows.extend((2..=4).map(|width| integer_dot_row(width, ty)));
    }
    for ty in [Type::F32, Type::I32, Type::U32] {
        rows.extend(with_scalar_rows(ty));
    }
    rows.extend(swizzle_rows());
    rows
}

/// Vectors of moderate size, some with zeros, and few with edges: most of what the edges of components
/// do is tested with the component-wise operators.
fn vectors(name: &str, ty: Type, counts: &[usize]) -> Vec<Vec<Vec<Scalar>>> {
    let mut draw = Draw::new(name);
    let edges = inputs::few_edges(ty);
    (0..400)
        .map(|case| {
            let scalar = |draw: &mut Draw| match case % 8 {
                0 => edges[draw.below(edges.len())],
                1 => Scalar::rounded(ty, [0.0, 1.0, -1.0][draw.below(3)]).unwrap_or(edges[0]),
                _ => draw.scalar(ty),
            };
            counts
                .iter()
                .map(|count| (0..*count).map(|_| scalar(&mut draw)).collect())
                .collect()
        })
        .collect()
}

fn geometric_row(
    name: &str,
    function: Mf,
    operands: &[bool],
    vector: bool,
    width: u8,
    ty: Type,
) -> Row {
    let types: Vec<ValueType> = operands
        .iter()
        .map(|vector| ValueType::wide(ty, if *vector { width } else { 1 }))
        .collect();
    let counts: Vec<usize> = types.iter().map(|ty| ty.scalars()).collect();
    let full_name = format!("{name} {} x{width}", scalar_name(ty));
    let case = |operands: Vec<Vec<Scalar>>| {
        let slices: Vec<&[Scalar]> = operands.iter().map(|operand| &operand[..]).collect();
        Case {
            expected: accuracy::geometric(function, &slices),
            ieee: None,
            operands,
        }
    };
    let arguments: Vec<String> = (0..types.len()).map(|index| format!("a{index}")).collect();
    Operation {
        cases: vectors(&full_name, ty, &counts)
            .into_iter()
            .map(case)
            .collect(),
        name: full_name,
        operands: types,
        result: ValueType::wide(ty, if vector { width } else { 1 }),
        expression: format!("{name}({})", arguments.join(", ")),
    }
    .row()
}

/// `mix` of vectors by a scalar.
fn mix_rows(ty: Type) -> Vec<Row> {
    let all = ComponentWise {
        name: "mix by one",
        operands: &[ty, ty, ty],
        result: ty,
        expression: "mix(a0, a1, a2)",
        always_scalar: &[2],
        expected: &|scalars| accuracy::component_wise(Mf::Mix, scalars),
        ieee: &no_ieee,
    };
    all.rows().into_iter().skip(1).collect()
}

fn integer_dot_row(width: u8, ty: Type) -> Row {
    let name = format!("dot {} x{width}", scalar_name(ty));
    let vector = ValueType::wide(ty, width);
    let case = |operands: Vec<Vec<Scalar>>| {
        let result = match (vector.value(&operands[0]), vector.value(&operands[1])) {
            (Some(a), Some(b)) => {
                operate::math(Mf::Dot, &[&a, &b]).and_then(|result| result.scalar())
            }
            _ => None,
        };
        Case {
            operands,
            expected: vec![exactly(result)],
            ieee: None,
        }
    };
    let count = usize::from(width);
    Operation {
        cases: vectors(&name, ty, &[count, count])
            .into_iter()
            .map(case)
            .collect(),
        name,
        operands: vec![vector, vector],
        result: ValueType::wide(ty, 1),
        expression: "dot(a0, a1)".to_owned(),
    }
    .row()
}

/// Arithmetic between a vector and a scalar, in both orders.
fn with_scalar_rows(ty: Type) -> Vec<Row> {
    let mut rows = Vec::new();
    for (symbol, operator) in [
        ("+", Op::Add),
        ("-", Op::Subtract),
        ("*", Op::Multiply),
        ("/", Op::Divide),
        ("%", Op::Modulo),
    ] {
        for scalar in [0, 1] {
            let name = format!(
                "{symbol} with scalar {}",
                if scalar == 0 { "left" } else { "right" }
            );
            let operation = ComponentWise {
                name: &name,
                operands: &[ty, ty],
                result: ty,
                expression: &format!("a0 {symbol} a1"),
                always_scalar: &[scalar],
                expected: &|scalars| match ty.kind {
                    naga::ScalarKind::Float => {
                        accuracy::arithmetic(operator, scalars[0], scalars[1])
                    }
                    _ => exactly(binary(operator, scalars)),
                },
                ieee: &|scalars| binary(operator, scalars),
            };
            rows.extend(operation.rows().into_iter().skip(1));
        }
    }
    rows
}

/// Swizzles by letters of both kinds, and components by a variable's index.
fn swizzle_rows() -> Vec<Row> {
    let mut draw = Draw::new("swizzles");
    let cases: Vec<Vec<Scalar>> = (0..64)
        .map(|_| (0..4).map(|_| draw.scalar(Type::U32)).collect())
        .collect();
    let word = |index: u8| ValueType::wide(Type::U32, index);
    let row = |name: &str, expression: &str, chosen: &dyn Fn(&[Scalar]) -> Vec<Scalar>| {
        let cases: Vec<Case> = cases
            .iter()
            .map(|operands| Case {
                expected: chosen(operands)
                    .into_iter()
                    .map(Expected::Exactly)
                    .collect(),
                operands: vec![operands.clone()],
                ieee: None,
            })
            .collect();
        Operation {
            name: format!("swizzle {name}"),
            operands: vec![word(4)],
            result: ValueType {
                scalar: Type::U32,
                shape: match chosen(&[Scalar::U32(0); 4]).len() {
                    1 => Shape::Scalar,
                    count => Shape::Vector(count as u8),
                },
            },
            expression: expression.to_owned(),
            cases,
        }
        .row()
    };
    vec![
        row("wzyx", "a0.wzyx", &|v| vec![v[3], v[2], v[1], v[0]]),
        row("rrb", "a0.rrb", &|v| vec![v[0], v[0], v[2]]),
        row("zw.y", "a0.zw.y", &|v| vec![v[3]]),
        row("composed", "vec4<u32>(a0.w, a0.xy, a0.b)", &|v| {
            vec![v[3], v[0], v[1], v[2]]
        }),
        row("by value", "a0[a0.x % 4u]", &|v| match v[0] {
            Scalar::U32(x) => vec![v[x as usize % 4]],
            _ => Vec::new(),
        }),
    ]
}
