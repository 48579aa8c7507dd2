//! The compiler's results must be the results of compiled code: every operation on every pair of edge values, once as
//! constants and once as loaded values.

use super::run;
use crate::compile::ir::{
    Access, Base, Binary, Binding, BindingAt, BindingUse, Comparison, Conversion, Leaf, Op, Place,
    Program, Statement, Type, Unary, Value, build::Builder, fold,
};

const SINGLES: [u64; 16] = [
    0,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x3f00_0000,
    0x4020_0000,
    0x0000_0001,
    0x8080_0000,
    0x7f7f_ffff,
    0xcf00_0000,
    0x4f00_0000,
    0x4f80_0000,
    0x5f80_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
];

/// Bits prone to errors, for each type.
fn edges(ty: Type) -> Vec<u64> {
    match ty {
        Type::Bool => vec![0, 1],
        Type::I32 => vec![
            0,
            1,
            2,
            3,
            31,
            32,
            255,
            0x7fff_ffff,
            0x8000_0000,
            0x8000_0001,
            0xffff_fff1,
            0xffff_ffff,
        ],
        Type::I64 => vec![
            0,
            1,
            3,
            63,
            64,
            0xffff_ffff,
            1 << 32,
            i64::MAX as u64,
            i64::MIN as u64,
            u64::MAX - 6,
            u64::MAX,
        ],
        Type::F32 => SINGLES.to_vec(),
        Type::F16 => [
            0.0f32,
            -0.0,
            1.0,
            -1.5,
            0.333_251_95,
            65504.0,
            -65504.0,
            5.960_464_5e-8,
            6.097_555e-5,
            6.103_515_6e-5,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
        ]
        .map(|x| u64::from(x.to_bits()))
        .to_vec(),
        Type::F64 => [
            0.0f64,
            -0.0,
            1.0,
            -2.5,
            1e-310,
            1e300,
            3e9,
            -3e9,
            5e9,
            1.9e19,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ]
        .map(f64::to_bits)
        .to_vec(),
    }
}

/// A program loading operands of the given types from its buffer, computing, and storing the result behind them.
fn program(operands: &[Type], ty: Type, op: impl FnOnce(&[Value]) -> Op) -> Program {
    let mut b = Builder::new(Program {
        name: "fold".into(),
        workgroup_size: [1, 1, 1],
        ..Program::default()
    });
    let binding: Binding = b.program.bindings.push(BindingUse {
        group: 0,
        binding: 0,
        element: 0,
        array: None,
        least: 0,
        uniform: false,
        constant: false,
        shared: false,
        reduction: None,
    });
    let at = BindingAt {
        first: binding,
        index: None,
    };
    let place = |index: usize| Place::new(Base::Binding(at), 8 * index as u32);
    let mut values = Vec::new();
    for (index, &operand) in operands.iter().enumerate() {
        values.extend(b.load(place(index), [(0, operand)], Access::Plain));
    }
    let result = b.op(ty, op(&values));
    b.push(Statement::Store {
        place: place(operands.len()),
        leaves: [Leaf {
            offset: 0,
            value: result,
        }]
        .into_iter()
        .collect(),
        access: Access::Plain,
    });
    b.finish()
}

/// The bits as stored in a buffer.
fn to_host(ty: Type, bits: u64) -> u64 {
    match ty {
        Type::F16 => half::f16::from_f32(f32::from_bits(bits as u32))
            .to_bits()
            .into(),
        _ => bits,
    }
}

fn check(operands: &[Type], ty: Type, op: impl Fn(&[Value]) -> Op) {
    let mut cases: Vec<Vec<u64>> = vec![Vec::new()];
    for &operand in operands {
        cases = cases
            .iter()
            .flat_map(|case| {
                edges(operand).into_iter().map(|bits| {
                    let mut case = case.clone();
                    case.push(bits);
                    case
                })
            })
            .collect();
    }
    let run_time = program(operands, ty, &op);
    // Compiled once, run for each case: the work is in the compiling.
    let mut found = Vec::new();
    for case in &cases {
        let mut words: Vec<u64> = case
            .iter()
            .zip(operands)
            .map(|(&bits, &ty)| to_host(ty, bits))
            .collect();
        words.push(0x5555_5555_5555_5555);
        found.push((case, words));
    }
    super::run_all(
        &run_time,
        found.iter_mut().map(|(_, words)| words.as_mut_slice()),
    );
    for (case, words) in found {
        let mut b = Builder::new(Program::default());
        let constants: Vec<Value> = case
            .iter()
            .zip(operands)
            .map(|(&bits, &ty)| b.constant(ty, bits))
            .collect();
        let operation = op(&constants);
        let folded = match fold::fold(&b.program, operation, ty) {
            Some(fold::Folded::Constant(bits)) => bits,
            Some(fold::Folded::Same(value)) => b.program.constant(value).unwrap(),
            None => panic!("{operation:?} does not fold"),
        };
        let bytes = ty.host_bytes();
        let mask = if bytes == 8 {
            u64::MAX
        } else {
            (1 << (8 * bytes)) - 1
        };
        let (expected, result) = (to_host(ty, folded) & mask, words[operands.len()] & mask);
        let same = match ty {
            Type::Bool => expected == u64::from(result != 0),
            _ if ty.is_float() && is_nan(ty, expected) => is_nan(ty, result),
            _ => expected == result,
        };
        assert!(
            same,
            "{operation:?} of {ty:?} with {case:x?}: {result:#x} by code, {expected:#x} folded"
        );
    }
}

fn is_nan(ty: Type, bits: u64) -> bool {
    match ty {
        Type::F16 => half::f16::from_bits(bits as u16).is_nan(),
        Type::F64 => f64::from_bits(bits).is_nan(),
        _ => f32::from_bits(bits as u32).is_nan(),
    }
}

#[test]
fn unary_operations() {
    let all = [Type::I32, Type::I64, Type::F16, Type::F32, Type::F64];
    for ty in all {
        let ops: &[Unary] = if ty.is_float() {
            &[
                Unary::Negate,
                Unary::Abs,
                Unary::Sqrt,
                Unary::Ceil,
                Unary::Floor,
                Unary::Trunc,
                Unary::Nearest,
            ]
        } else {
            &[
                Unary::Negate,
                Unary::Abs,
                Unary::Not,
                Unary::CountOnes,
                Unary::LeadingZeros,
                Unary::TrailingZeros,
                Unary::ReverseBits,
            ]
        };
        for &op in ops {
            check(&[ty], ty, |v| Op::Unary(op, v[0]));
        }
    }
    check(&[Type::Bool], Type::Bool, |v| Op::Unary(Unary::Not, v[0]));
}

#[test]
fn binary_operations() {
    for ty in [Type::I32, Type::I64] {
        for op in [
            Binary::Add,
            Binary::Sub,
            Binary::Mul,
            Binary::DivS,
            Binary::DivU,
            Binary::RemS,
            Binary::RemU,
            Binary::And,
            Binary::Or,
            Binary::Xor,
            Binary::Shl,
            Binary::ShrU,
            Binary::ShrS,
            Binary::MinS,
            Binary::MinU,
            Binary::MaxS,
            Binary::MaxU,
        ] {
            check(&[ty, ty], ty, |v| Op::Binary(op, v[0], v[1]));
        }
    }
    for op in [Binary::Shl, Binary::ShrU, Binary::ShrS] {
        check(&[Type::I64, Type::I32], Type::I64, |v| {
            Op::Binary(op, v[0], v[1])
        });
    }
    for ty in [Type::F16, Type::F32, Type::F64] {
        for op in [
            Binary::Add,
            Binary::Sub,
            Binary::Mul,
            Binary::DivF,
            Binary::MinF,
            Binary::MaxF,
        ] {
            check(&[ty, ty], ty, |v| Op::Binary(op, v[0], v[1]));
        }
    }
    for op in [Binary::And, Binary::Or, Binary::Xor] {
        check(&[Type::Bool, Type::Bool], Type::Bool, |v| {
            Op::Binary(op, v[0], v[1])
        });
    }
}

#[test]
fn comparisons_and_choices() {
    for ty in [Type::I32, Type::I64] {
        for op in [
            Comparison::Eq,
            Comparison::Ne,
            Comparison::LtS,
            Comparison::LeS,
            Comparison::LtU,
            Comparison::LeU,
        ] {
            check(&[ty, ty], Type::Bool, |v| Op::Compare(op, v[0], v[1]));
        }
    }
    for ty in [Type::F16, Type::F32, Type::F64] {
        for op in [
            Comparison::Eq,
            Comparison::Ne,
            Comparison::LtF,
            Comparison::LeF,
        ] {
            check(&[ty, ty], Type::Bool, |v| Op::Compare(op, v[0], v[1]));
        }
    }
    for ty in [
        Type::Bool,
        Type::I32,
        Type::I64,
        Type::F16,
        Type::F32,
        Type::F64,
    ] {
        check(&[Type::Bool, ty, ty], ty, |v| Op::Select {
            condition: v[0],
            accept: v[1],
            reject: v[2],
        });
    }
}

#[test]
fn conversions() {
    let floats = [Type::F16, Type::F32, Type::F64];
    for float in floats {
        for int in [Type::I32, Type::I64] {
            for op in [Conversion::SignedToFloat, Conversion::UnsignedToFloat] {
                check(&[int], float, |v| Op::Convert(op, v[0]));
            }
            for op in [Conversion::FloatToSigned, Conversion::FloatToUnsigned] {
                check(&[float], int, |v| Op::Convert(op, v[0]));
            }
        }
        for to in floats {
            check(&[float], to, |v| Op::Convert(Conversion::Float, v[0]));
        }
        check(&[float, float, float], float, |v| {
            Op::MultiplyAdd(v[0], v[1], v[2])
        });
    }
    for op in [Conversion::WidenS, Conversion::WidenU] {
        check(&[Type::I32], Type::I64, |v| Op::Convert(op, v[0]));
    }
    check(&[Type::I64], Type::I32, |v| {
        Op::Convert(Conversion::Narrow, v[0])
    });
    for (from, to) in [
        (Type::I32, Type::F32),
        (Type::F32, Type::I32),
        (Type::I64, Type::F64),
        (Type::F64, Type::I64),
        (Type::I32, Type::F16),
        (Type::F16, Type::I32),
    ] {
        check(&[from], to, |v| Op::Convert(Conversion::Bits, v[0]));
    }
}

#[test]
fn a_store_is_where_it_should_be() {
    let program = program(&[Type::I32], Type::I32, |v| Op::Unary(Unary::Not, v[0]));
    let mut words = [5u64, 9];
    let status = run(&program, &mut [bytemuck::cast_slice_mut(&mut words)]);
    assert_eq!((status, words), (0, [5, u64::from(!5u32)]));
}
