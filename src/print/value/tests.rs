use super::super::format::{Piece, parse, unescape};
use super::*;

fn spec_of(placeholder: &str) -> Spec {
    let text = unescape(&format!("\"{placeholder}\""), 0).unwrap();
    match parse(&text, 1).unwrap().pieces.as_slice() {
        [Piece::Value { spec, .. }] => *spec,
        other => panic!("{other:?}"),
    }
}

fn rendered(ty: ValueType, words: &[u32], placeholder: &str) -> String {
    let spec = spec_of(placeholder);
    assert_eq!(ty.refusal(spec.kind), None);
    let mut out = String::new();
    ty.render(words, &spec, &mut out);
    out
}

const fn scalar(scalar: ScalarType) -> ValueType {
    ValueType {
        scalar,
        rows: 1,
        columns: 1,
    }
}

fn two(bits: u64) -> Vec<u32> {
    vec![bits as u32, (bits >> 32) as u32]
}

/// Compares each value under each placeholder with the result of `format!`.
macro_rules! compare {
    ($ty:expr, $values:expr, $words:expr, [$($placeholder:literal),* $(,)?]) => {
        for value in $values {
            $(
                assert_eq!(
                    rendered(scalar($ty), &$words(value), $placeholder),
                    format!($placeholder, value),
                    "{} of {value:?}", $placeholder
                );
            )*
        }
    };
}

macro_rules! compare_integers {
    ($ty:expr, $values:expr, $words:expr) => {
        compare!(
            $ty,
            $values,
            $words,
            [
                "{}",
                "{:?}",
                "{:5}",
                "{:<5}",
                "{:^7}",
                "{:>9}",
                "{:*^9}",
                "{:+}",
                "{:05}",
                "{:+08}",
                "{:<08}",
                "{:x}",
                "{:X}",
                "{:#x}",
                "{:#X}",
                "{:08x}",
                "{:#010x}",
                "{:o}",
                "{:#o}",
                "{:b}",
                "{:#b}",
                "{:#034b}",
                "{:e}",
                "{:E}",
                "{:.2e}",
                "{:x?}",
                "{:X?}",
                "{:#x?}",
                "{:#?}",
                "{:.3}",
                "{:_<+6}",
                "{:é>12X}",
                "{:-4}",
            ]
        );
    };
}

macro_rules! compare_floats {
    ($ty:expr, $values:expr, $words:expr) => {
        compare!(
            $ty,
            $values,
            $words,
            [
                "{}",
                "{:?}",
                "{:.3}",
                "{:.0}",
                "{:10}",
                "{:<10}",
                "{:^11.2}",
                "{:+}",
                "{:+.1}",
                "{:08.2}",
                "{:+09.3}",
                "{:010}",
                "{:e}",
                "{:E}",
                "{:.2e}",
                "{:12.1E}",
                "{:.1?}",
                "{:#?}",
                "{:#}",
                "{:~>14.5}",
                "{:x?}",
                "{:012e}",
                "{:<08}",
            ]
        );
    };
}

#[test]
fn integers_are_as_rust_formats_them() {
    let word = |v: i32| vec![v as u32];
    compare_integers!(
        ScalarType::I32,
        [0, 1, -1, 42, -37, i32::MAX, i32::MIN],
        word
    );
    compare_integers!(ScalarType::U32, [0u32, 1, 255, 65_536, u32::MAX], |v| vec![
        v
    ]);
    compare_integers!(ScalarType::I16, [0i16, -1, 99, i16::MIN], |v| vec![
        i32::from(v) as u32
    ]);
    compare_integers!(ScalarType::U16, [0u16, 1, u16::MAX], |v| vec![u32::from(v)]);
    compare_integers!(ScalarType::I64, [0i64, -1, i64::MIN, i64::MAX], |v| two(
        v as u64
    ));
    compare_integers!(ScalarType::U64, [0u64, 1 << 32, u64::MAX], two);
}

#[test]
fn floats_are_as_rust_formats_them() {
    let values = [
        0.0f32,
        -0.0,
        1.0,
        -1.5,
        0.1,
        1e-7,
        1e20,
        123_456.79,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::EPSILON,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    compare_floats!(ScalarType::F32, values, |v: f32| vec![v.to_bits()]);
    let values = [0.0f64, -2.25, 0.1, 1e300, 5e-324, f64::INFINITY, f64::NAN];
    compare_floats!(ScalarType::F64, values, |v: f64| two(v.to_bits()));
    // The value of a half in 32 bits, as halves travel.
    let values = [0.5f32, 65_504.0, half::f16::from_f32(0.1).to_f32()];
    compare_floats!(ScalarType::F16, values, |v: f32| vec![v.to_bits()]);
}

#[test]
fn truth_is_as_rust_formats_it() {
    compare!(
        ScalarType::Bool,
        [true, false],
        |v| vec![u32::from(v)],
        [
            "{}", "{:?}", "{:7}", "{:>7}", "{:^7}", "{:*<7}", "{:.2}", "{:7.1}", "{:#?}", "{:07}",
            "{:+}",
        ]
    );
}

#[test]
fn vectors_are_as_rust_formats_arrays() {
    let vector = |scalar, rows| ValueType {
        scalar,
        rows,
        columns: 1,
    };
    let values = [1.0f32, -2.5, 1e-9];
    let words = values.map(f32::to_bits);
    let ty = vector(ScalarType::F32, 3);
    assert_eq!(rendered(ty, &words, "{:?}"), format!("{values:?}"));
    assert_eq!(rendered(ty, &words, "{:.2?}"), format!("{values:.2?}"));
    assert_eq!(rendered(ty, &words, "{:8.1?}"), format!("{values:8.1?}"));
    assert_eq!(rendered(ty, &words, "{:#?}"), format!("{values:#?}"));
    assert_eq!(rendered(ty, &words, "{:+}"), "[+1, -2.5, +0.000000001]");
    let numbers = [1u32, 255];
    let ty = vector(ScalarType::U32, 2);
    assert_eq!(rendered(ty, &numbers, "{:#x?}"), format!("{numbers:#x?}"));
    assert_eq!(rendered(ty, &numbers, "{:04x}"), "[0001, 00ff]");
    let truth = [true, false, true, true];
    let words = truth.map(u32::from);
    assert_eq!(
        rendered(vector(ScalarType::Bool, 4), &words, "{:?}"),
        format!("{truth:?}")
    );
}

#[test]
fn matrices_are_lists_of_their_columns() {
    let columns = [[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.5]];
    let words: Vec<u32> = columns.concat().into_iter().map(f32::to_bits).collect();
    let ty = ValueType {
        scalar: ScalarType::F32,
        rows: 3,
        columns: 2,
    };
    for (placeholder, wanted) in [
        ("{:?}", format!("{columns:?}")),
        ("{:#?}", format!("{columns:#?}")),
        ("{:5.1?}", format!("{columns:5.1?}")),
    ] {
        assert_eq!(rendered(ty, &words, placeholder), wanted);
    }
    assert_eq!(ty.name(), "mat2x3<f32>");
}

#[test]
fn pointers_are_as_rust_formats_them() {
    let ty = ValueType {
        scalar: ScalarType::U32,
        rows: 2,
        columns: 1,
    };
    for address in [0u64, 0x1, 0x7fff_1234_5678_9abc] {
        let pointer = std::ptr::without_provenance::<u8>(address as usize);
        let words = two(address);
        assert_eq!(rendered(ty, &words, "{:p}"), format!("{pointer:p}"));
        assert_eq!(rendered(ty, &words, "{:24p}"), format!("{pointer:24p}"));
        assert_eq!(rendered(ty, &words, "{:<24p}"), format!("{pointer:<24p}"));
        assert_eq!(rendered(ty, &words, "{:#p}"), format!("{pointer:#p}"));
        assert_eq!(rendered(ty, &words, "{:024p}"), format!("{pointer:024p}"));
    }
}

#[test]
fn what_rust_would_not_format_is_refused() {
    use Kind::*;
    assert!(scalar(ScalarType::F32).refusal(LowerHex).is_some());
    assert!(scalar(ScalarType::Bool).refusal(LowerExp).is_some());
    assert!(scalar(ScalarType::Bool).refusal(Binary).is_some());
    assert!(scalar(ScalarType::U32).refusal(Pointer).is_some());
    assert_eq!(scalar(ScalarType::I64).refusal(UpperHex), None);
}

#[test]
fn missing_words_are_zeros() {
    assert_eq!(rendered(scalar(ScalarType::U64), &[], "{}"), "0");
}
