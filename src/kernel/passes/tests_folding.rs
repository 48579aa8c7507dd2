//! Zeros spelled out and bytes clamped before, by the pass's output as text.

use super::folding;
use super::tests_support::{kernel, occurrences, parse, text};

#[test]
fn variables_constants_and_expressions_say_their_zeros() {
    let source = kernel(
        "struct Pair { at: vec2<i32>, is_known: bool }
        const NONE = vec3<u32>();
        const FEW = array<vec2<f32>, 2>(vec2<f32>(), vec2<f32>(1.5));
        var<private> seen: bool;
        var<private> pair: Pair;",
        "var count: i32;
        var flags: array<vec2<bool>, 3>;
        let flipped = FEW[n % 2u];
        if all(vec2<i32>(count, pair.at.x) == vec2<i32>()) && any(flags[n % 3u]) != seen {
            o[n] = u32(flipped.x) + NONE[n % 3u];
        }",
    );
    let mut module = parse(&source);
    assert!(folding::run(&mut module));
    let written = text(&module, &source);
    for said in [
        "var<private> seen: bool = false;",
        "var<private> pair: Pair = Pair(vec2<i32>(0i, 0i), false);",
        "const NONE: vec3<u32> = vec3<u32>(0u, 0u, 0u);",
        "array<vec2<f32>, 2>(vec2<f32>(0f, 0f), vec2(1.5f))",
        "var count: i32 = 0i;",
        "== vec2<i32>(0i, 0i)",
    ] {
        assert!(written.contains(said), "{said}: {written}");
    }
    assert_eq!(occurrences(&written, "vec2<bool>(false, false)"), 3);
    // Nothing is left.
    assert_eq!(occurrences(&written, "()"), 0, "{written}");
    assert!(!folding::run(&mut module));
}

#[test]
fn large_arrays_matrices_and_memory_of_groups_stay_as_they_are() {
    let source = kernel(
        "var<workgroup> shared_words: array<u32, 8>;
        var<private> table: array<vec4<u32>, 17>;",
        "var turned: mat2x2<f32>;
        o[n] = shared_words[n % 8u] + table[n % 17u].x + u32(turned[n % 2u].x);",
    );
    let mut module = parse(&source);
    let before = text(&module, &source);
    assert!(!folding::run(&mut module));
    assert_eq!(text(&module, &source), before);
}

#[test]
fn bytes_are_clamped_as_numbers_before_they_are_packed() {
    let source = kernel(
        "fn packed(values: vec4<i32>) -> u32 { return pack4xI8Clamp(values * 3); }",
        "let few = vec4<i32>(id.xxyy);
        if n > 2u { o[n] = pack4xI8Clamp(few) + pack4xI8Clamp(few + 1) + packed(few) + pack4xU8Clamp(id.xxxx); }",
    );
    let mut module = parse(&source);
    assert!(folding::run(&mut module));
    let written = text(&module, &source);
    assert_eq!(occurrences(&written, "pack4xI8Clamp("), 0, "{written}");
    assert_eq!(occurrences(&written, "pack4xI8("), 3, "{written}");
    assert_eq!(occurrences(&written, "pack4xU8Clamp("), 1, "{written}");
    let bounds = "vec4<i32>(-128i, -128i, -128i, -128i), vec4<i32>(127i, 127i, 127i, 127i)";
    assert_eq!(occurrences(&written, bounds), 3, "{written}");
    assert!(!folding::run(&mut module));
}
