use std::any::type_name;

use super::*;

crate::shared! {
    #[allow(dead_code)]
    struct Pair {
        first: u32,
        second: f32,
    }
}

/// A structure of the name `Twice`, of two that one function declares. The compiler's names tell them apart by nothing.
macro_rules! twice {
    ($ty:ty) => {{
        crate::shared! {
            #[allow(dead_code)]
            struct Twice {
                one: $ty,
            }
        }
        type_name::<Twice>()
    }};
}

#[test]
fn structures_are_found_by_name_also_in_arrays() {
    let known = KnownLayouts::default();
    for (name, dimensions) in [
        (type_name::<Pair>(), 0),
        (type_name::<[Pair; 3]>(), 1),
        (type_name::<[[Pair; 3]; 17]>(), 2),
    ] {
        let found = known.of(name).unwrap();
        assert_eq!(
            (found.structure.name, found.dimensions),
            ("Pair", dimensions)
        );
    }
    for name in [type_name::<u32>(), type_name::<[f32; 4]>(), "Pair", ""] {
        assert!(known.of(name).is_none(), "{name}");
    }
}

#[test]
fn a_name_of_two_structures_tells_of_neither() {
    let name = twice!(u32);
    assert_eq!(twice!(f32), name);
    assert!(KnownLayouts::default().of(name).is_none());
}

#[test]
fn named_structures_come_first() {
    #[allow(dead_code)]
    struct Own {
        first: u32,
    }
    impl HostShareable for Own {
        const LAYOUT: RustLayout = crate::layout_of!(Own { first => other });
    }
    let mut known = KnownLayouts::default();
    assert!(known.of(type_name::<Own>()).is_none());
    known.add::<Own>();
    let found = known.of(type_name::<[Own; 2]>()).unwrap();
    assert_eq!(found.structure.fields[0].member_name(), Some("other"));
}

#[test]
fn functions_conflict_where_both_know_of_different_structures() {
    let known = KnownLayouts::default();
    let pair = known.of(type_name::<Pair>());
    let pairs = known.of(type_name::<[Pair; 2]>());
    let conflict = |one: &[Option<ValueLayout>], two: &[Option<ValueLayout>]| {
        ValueLayouts(one.to_vec()).conflict(&ValueLayouts(two.to_vec()))
    };
    assert!(!conflict(&[pair, None], &[pair, pairs]));
    assert!(!conflict(&[], &[pair]));
    assert!(conflict(&[None, pair], &[None, pairs]));
}
