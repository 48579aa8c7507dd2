//! Tests of the constants: conversion, literals, keys.

use super::super::declared::Declared;
use super::*;
use proptest::prelude::*;

fn info(
    name: &str,
    id: Option<u16>,
    ty: ConstantType,
    default: Option<ConstantValue>,
) -> ConstantInfo {
    ConstantInfo {
        name: name.into(),
        id,
        ty,
        default,
        has_initializer: default.is_some(),
        sizes_private_array: false,
        line: 1,
    }
}

fn declared() -> Declared {
    let infos = vec![
        info(
            "size",
            Some(7),
            ConstantType::U32,
            Some(ConstantValue::U32(4)),
        ),
        info("scale", None, ConstantType::F32, None),
        info(
            "offset",
            Some(1),
            ConstantType::I32,
            Some(ConstantValue::I32(0)),
        ),
        info(
            "derived",
            None,
            ConstantType::U32,
            Some(ConstantValue::U32(8)),
        ),
    ];
    Declared::new(infos, vec![true, false, true, false])
}

#[test]
fn setting_again_replaces_and_get_finds_by_name_and_id() {
    let set = Constants::new()
        .set("a", 1u32)
        .set("a", 2u32)
        .set_id(4, true);
    assert_eq!(set.iter().len(), 2);
    assert_eq!(set.get("a"), Some(ConstantValue::U32(2)));
    assert_eq!(set.get_id(4), Some(ConstantValue::Bool(true)));
    assert_eq!((set.get("b"), set.get_id(5)), (None, None));
}

#[test]
fn types_are_strict_and_wide_integers_fit_where_they_fit() {
    let check = |ty, value: ConstantValue| info("c", None, ty, None).convert(value);
    assert_eq!(
        check(ConstantType::U32, 9usize.into()).expect("fits"),
        ConstantValue::U32(9)
    );
    assert_eq!(
        check(ConstantType::I32, (-9i64).into()).expect("fits"),
        ConstantValue::I32(-9)
    );
    assert_eq!(
        check(ConstantType::U32, u64::from(u32::MAX).into()).expect("fits"),
        ConstantValue::U32(u32::MAX)
    );
    for (ty, value) in [
        (ConstantType::U32, ConstantValue::from(-1i64)),
        (ConstantType::U32, u64::MAX.into()),
        (ConstantType::I32, (1u64 << 31).into()),
        (ConstantType::F32, f32::NAN.into()),
        (ConstantType::F32, f32::INFINITY.into()),
        (ConstantType::F16, f16::INFINITY.into()),
    ] {
        assert!(
            matches!(
                check(ty, value),
                Err(KernelError::ConstantOutOfRange { .. })
            ),
            "{ty} {value}"
        );
    }
    for (ty, value) in [
        (ConstantType::I32, ConstantValue::from(1u32)),
        (ConstantType::U32, 1i32.into()),
        (ConstantType::F32, 1u64.into()),
        (ConstantType::F32, 1f64.into()),
        (ConstantType::Bool, 1usize.into()),
        (ConstantType::U32, true.into()),
        (ConstantType::F16, 1f32.into()),
    ] {
        assert!(
            matches!(check(ty, value), Err(KernelError::WrongConstantType { .. })),
            "{ty} {value}"
        );
    }
}

#[test]
fn a_key_ignores_order_spelling_and_explicit_defaults() {
    let declared = declared();
    let key = |set: Constants| declared.key("p", &set).expect("fits");
    let both = key(Constants::new().set("size", 9u32).set("offset", -1i32));
    assert_eq!(
        both,
        key(Constants::new().set_id(1, -1i64).set_id(7, 9usize))
    );
    assert_ne!(both, key(Constants::new().set("size", 9u32)));
    assert_eq!(
        key(Constants::new()),
        key(Constants::new().set("size", 4u32))
    );
    // The default of `derived` depends on other constants, so setting it is never the same as not setting it.
    assert_ne!(
        key(Constants::new()),
        key(Constants::new().set("derived", 8u32))
    );
    assert_ne!(
        key(Constants::new().set("scale", 0.0f32)),
        key(Constants::new().set("scale", -0.0f32))
    );
}

#[test]
fn unknown_and_ambiguous_constants_are_told() {
    let declared = declared();
    let unknown = declared
        .check("p", &Constants::new().set("sizes", 1u32))
        .expect_err("unknown");
    let text = unknown.to_string();
    assert!(
        text.contains("`sizes`") && text.contains("@id(7) size: u32 = 4"),
        "{text}"
    );
    assert!(text.contains("scale: f32 (no default)"), "{text}");
    assert!(matches!(
        declared.check("p", &Constants::new().set_id(9, 1u32)),
        Err(KernelError::UnknownConstant {
            wanted: OverrideKey::Id(9),
            ..
        })
    ));
    assert!(matches!(
        declared.check("p", &Constants::new().set("size", 1u32).set_id(7, 1u32)),
        Err(KernelError::AmbiguousConstant { id: Some(7), .. })
    ));
}

/// naga's value for `text` as an initializer of type `ty`.
fn read_back(ty: &str, text: &str) -> naga::Literal {
    let source = format!("enable f16; const C: {ty} = {text};");
    let module = naga::front::wgsl::parse_str(&source).unwrap_or_else(|e| panic!("{source}: {e}"));
    let (_, constant) = module.constants.iter().last().expect("one constant");
    match module.global_expressions[constant.init] {
        naga::Expression::Literal(literal) => literal,
        ref other => panic!("{source}: {other:?}"),
    }
}

#[test]
fn extreme_values_survive_the_way_through_text() {
    for v in [i32::MIN, -1, 0, i32::MAX] {
        assert_eq!(
            read_back("i32", &ConstantValue::I32(v).to_wgsl()),
            naga::Literal::I32(v)
        );
    }
    for v in [f32::MIN, f32::MAX, f32::MIN_POSITIVE, 1e-45, 0.1] {
        assert_eq!(
            read_back("f32", &ConstantValue::F32(v).to_wgsl()),
            naga::Literal::F32(v)
        );
    }
    for v in [f64::MAX, 0.1, 1e-300] {
        assert_eq!(
            read_back("f64", &ConstantValue::F64(v).to_wgsl()),
            naga::Literal::F64(v)
        );
    }
    assert_eq!(
        read_back("bool", &ConstantValue::Bool(true).to_wgsl()),
        naga::Literal::Bool(true)
    );
}

proptest! {
    #[test]
    fn values_survive_the_way_through_text(u: u32, i: i32, f in any::<f32>(), h: u16) {
        prop_assert_eq!(read_back("u32", &ConstantValue::U32(u).to_wgsl()), naga::Literal::U32(u));
        prop_assert_eq!(read_back("i32", &ConstantValue::I32(i).to_wgsl()), naga::Literal::I32(i));
        if f.is_finite() {
            prop_assert_eq!(read_back("f32", &ConstantValue::F32(f).to_wgsl()), naga::Literal::F32(f));
        }
        let h = f16::from_bits(h);
        if h.is_finite() {
            prop_assert_eq!(read_back("f16", &ConstantValue::F16(h).to_wgsl()), naga::Literal::F16(h));
        }
    }
}
