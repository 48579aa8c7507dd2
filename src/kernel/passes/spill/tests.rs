//! Tests of the pass on text: modules stay valid, and arrays are gone.

use super::*;
use crate::kernel::passes::tests_support::{BINDING, kernel, occurrences, parse, text};

/// The module with every array spilled.
fn spilled(items: &str, body: &str) -> (String, SpillFacts) {
    let source = kernel(items, body);
    let mut module = parse(&source);
    let facts = run(&mut module, 0, 0, BINDING, 1 << 30).expect("fits");
    enter(&mut module, 0, &facts);
    (text(&module, &source), facts)
}

#[test]
fn arrays_become_words() {
    let (text, facts) = spilled("", "var a: array<u32, 100>; a[n] = 3u; o[0] = a[id.x];");
    assert_eq!(occurrences(&text, "array<u32, 100>"), 0, "{text}");
    assert_eq!((facts.bytes, facts.lanes), (400, 8));
}

#[test]
fn helpers_get_places() {
    let items = "
        struct S { k: array<f32, 20>, v: mat3x3<f32>, b: vec3<bool> }
        const T = array(1u, 2u, 3u);
        var<private> p: array<S, 3>;
        var<workgroup> w: array<u32, 64>;
        fn one(q: ptr<function, u32>) { *q += 1u; }
        fn first(q: ptr<private, S>) -> S { return *q; }
        fn value(s: S) -> array<f32, 20> { var t = s; t.k[1] = 2.0; return t.k; }
        fn make() -> array<u32, 64> { return array<u32, 64>(); }";
    let body = "
        var a: array<u32, 64>;
        var lone = 3u;
        one(&lone);
        one(&a[n]);
        a = w;
        w = a;
        p[1].v[2].y = f32(a[3]);
        let s = first(&p[n % 3u]);
        var k = value(s);
        for (var i = 0; i < 3; i++) { var inner: array<i32, 7>; inner[i] = i; k[i] += f32(inner[n]); }
        a = make();
        o[0] = lone + a[n] + u32(k[n]) + T[n % 3u];
        o[1] = u32(p[n].b.y);";
    let (text, _) = spilled(items, body);
    for gone in ["array<S, 3>;", "array<i32, 7>", "array<u32, 64>;"] {
        let gone = format!("var k: {gone}");
        assert_eq!(occurrences(&text, &gone), 0, "{text}");
    }
    // Once for a pointer to a variable, and once for one into scratch memory.
    assert_eq!(occurrences(&text, "fn one"), 2, "{text}");
}

#[test]
fn frames_lie_behind_those_of_all_callers() {
    let items = "
        fn leaf() -> u32 { var l: array<u32, 10>; l[3] = 1u; return l[o[1]]; }
        fn left() -> u32 { var a: array<u32, 100>; a[0] = leaf(); return a[o[2]]; }
        fn right() -> u32 { var a: array<u32, 50>; a[0] = leaf(); return a[o[2]] + leaf(); }";
    let body = "var a: array<u32, 1000>; a[n] = left() + right() + leaf(); o[0] = a[n + 1u];";
    let (_, facts) = spilled(items, body);
    assert_eq!(facts.bytes, 4 * (1000 + 100 + 10));
    let module = parse(&kernel(items, body));
    assert_eq!(private_bytes(&module, 0), 4 * (1000 + 100 + 10));
}

#[test]
fn the_largest_are_spilled_until_the_rest_fits() {
    let body = "var a: array<u32, 100>; var b: array<u32, 50>; var c: array<u32, 10>;
        a[n] = 1u; b[n] = 2u; c[n] = 3u; o[0] = a[0] + b[0] + c[0];";
    let module = parse(&kernel("", body));
    let wanted = |limit| threshold(&module, 0, SpillPolicy::Auto, limit);
    assert_eq!(wanted(640), None);
    assert_eq!(wanted(639), Some(400));
    assert_eq!(wanted(239), Some(200));
    assert_eq!(wanted(39), Some(40));
    assert_eq!(threshold(&module, 0, SpillPolicy::Never, 0), None);
    assert_eq!(threshold(&module, 0, SpillPolicy::Always, 640), Some(0));
}

#[test]
fn a_work_group_beyond_the_limit_is_refused() {
    let mut module = parse(&kernel(
        "",
        "var a: array<u32, 100>; a[n] = 1u; o[0] = a[1];",
    ));
    let error = run(&mut module, 0, 0, BINDING, 8 * 400 - 1).expect_err("too large");
    let SpillError::TooLarge {
        bytes,
        limit,
        largest,
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!((bytes, limit), (400, 399));
    assert_eq!((largest.name.as_str(), largest.bytes), ("a", 400));
}
