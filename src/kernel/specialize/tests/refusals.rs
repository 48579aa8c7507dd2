//! Lengths, sizes and alignments that are refused, and what the errors name.

use super::*;

#[test]
fn lengths_below_one_are_refused_by_name() {
    let source = kernel(
        "override N: u32 = 16;",
        "var tmp: array<f32, N>; out[0] = tmp[0];",
    );
    match bad(&source, n(0)) {
        KernelError::PrivateArrayLength {
            array,
            function,
            length,
            diagnostic,
        } => {
            assert_eq!(
                (array.as_str(), function.as_deref(), length),
                ("tmp", Some("main"), Some(0))
            );
            assert_eq!((diagnostic.line, diagnostic.column), (3, 61));
        }
        other => panic!("{other}"),
    }
    let signed = kernel(
        "override N: i32 = 16;",
        "var tmp: array<f32, N>; out[0] = tmp[0];",
    );
    let error = bad(&signed, Constants::new().set("N", -4i32));
    assert!(
        matches!(
            error,
            KernelError::PrivateArrayLength {
                length: Some(-4),
                ..
            }
        ),
        "{error}"
    );
    let flag = kernel(
        "override B: bool = true;",
        "var tmp: array<f32, B>; out[0] = tmp[0];",
    );
    let error = bad(&flag, Constants::new().set("B", false));
    assert!(
        matches!(
            error,
            KernelError::PrivateArrayLength {
                length: Some(0),
                ..
            }
        ),
        "{error}"
    );
    let shorter = kernel(
        "override N: u32 = 16;",
        "var tmp: array<f32, N - 4u>; out[0] = tmp[0];",
    );
    let error = bad(&shorter, n(4));
    assert!(
        matches!(
            error,
            KernelError::PrivateArrayLength {
                length: Some(0),
                ..
            }
        ),
        "{error}"
    );
    // Unsigned arithmetic wraps in WGSL.
    let error = bad(&shorter, n(3));
    assert!(
        matches!(error, KernelError::PrivateArrayTooLarge { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("wraps"), "{error}");
    let signed = kernel(
        "override N: i32 = 16;",
        "var tmp: array<f32, N / (N - 4)>; out[0] = tmp[0];",
    );
    let error = bad(&signed, Constants::new().set("N", 4i32));
    assert!(
        matches!(error, KernelError::PrivateArrayLength { length: None, .. }),
        "{error}"
    );
    let local = kernel(
        "override N: u32 = 16;",
        "const K = N - 4u; var tmp: array<f32, K>; out[0] = tmp[0];",
    );
    let error = bad(&local, n(4));
    assert!(
        matches!(error, KernelError::PrivateArrayLength { length: None, .. }),
        "{error}"
    );
}

#[test]
fn arrays_beyond_the_limit_are_refused_with_their_bytes() {
    let source = kernel(
        "override N: u32 = 16;",
        "var a: array<f32, N>; var b: array<vec2<f32>, N>; out[0] = a[0] + b[0].x;",
    );
    for value in [1 << 18, u32::MAX] {
        match bad(&source, n(value)) {
            KernelError::PrivateArrayTooLarge {
                array,
                bytes,
                limit,
                ..
            } => {
                let (name, each) = if value == u32::MAX {
                    ("a", 4)
                } else {
                    ("b", 8)
                };
                assert_eq!(
                    (array.as_str(), bytes, limit),
                    (name, u64::from(value) * each, 1 << 20)
                );
            }
            other => panic!("{other}"),
        }
    }
    // Each fits, the sum does not.
    let error = bad(&source, n(100_000));
    assert!(
        matches!(
            &error,
            KernelError::PrivateArrayTooLarge {
                bytes: 800_000,
                total: 1_200_000,
                ..
            }
        ),
        "{error}"
    );
    good(&source, n(87_381));
}

#[test]
fn the_aligned_form_checks_its_alignment() {
    let source = |align: &str| {
        kernel(
            "const A = 32; override W: u32 = 8; override N: u32 = 3;",
            &format!("@align({align}) var t: array<vec2<f32>, N>; out[0] = t[0].x;"),
        )
    };
    let found = |align: &str, set| good(&source(align), set).private_arrays[0].clone();
    let info = found("16", Constants::new());
    assert_eq!((info.align, info.bytes), (16, 32));
    assert_eq!(found("A", Constants::new()).align, 32);
    assert_eq!(found("W", Constants::new()).align, 8);
    assert_eq!(found("W * 3", Constants::new().set("W", 16u32)).bytes, 48);
    for (align, value) in [
        ("0", 0),
        ("-8", -8),
        ("4", 4),
        ("12", 12),
        ("268435456", 268_435_456),
    ] {
        match bad(&source(align), Constants::new()) {
            KernelError::PrivateAlignment {
                align,
                element,
                diagnostic,
                ..
            } => {
                assert_eq!((align, element, diagnostic.line), (Some(value), 8, 3));
            }
            other => panic!("{other}"),
        }
    }
    let scalar = kernel("", "@align(16) var t: f32; out[0] = t;");
    assert!(matches!(
        bad(&scalar, Constants::new()),
        KernelError::PrivateAlignment { .. }
    ));
}
