//! Minima and maxima as loops, by the pass's output as text.

use super::extrema;
use super::tests_support::{occurrences, parse, text};

const SOURCE: &str = "
@group(0) @binding(0) var<storage, read_write> a: array<atomic<u32>>;
@group(0) @binding(1) var<storage, read_write> b: array<atomic<i32>, 4>;
var<workgroup> shared_words: array<atomic<u32>, 8>;
fn raised(at: u32, by: u32) -> u32 {
    let scaled = by * 3u;
    let was = atomicMax(&a[at], scaled);
    return was + scaled;
}
@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) lane: u32) {
    var sum = raised(lane, 7u);
    switch lane {
        case 1u: { sum += u32(atomicMin(&b[lane & 3u], -5)); }
        default: { atomicMin(&shared_words[lane], sum); }
    }
    for (var i = 0u; i < 4u; i++) {
        if atomicMax(&a[i], sum) == 3u { continue; }
        atomicAdd(&a[i], 1u);
    }
}";

#[test]
fn every_operation_becomes_a_loop() {
    let mut module = parse(SOURCE);
    assert!(extrema::run(&mut module));
    let written = text(&module, SOURCE);
    assert_eq!(occurrences(&written, "atomicMax("), 0, "{written}");
    assert_eq!(occurrences(&written, "atomicMin("), 0, "{written}");
    assert_eq!(
        occurrences(&written, "atomicCompareExchangeWeak("),
        4,
        "{written}"
    );
    assert_eq!(occurrences(&written, " max("), 2, "{written}");
    assert_eq!(occurrences(&written, " min("), 2, "{written}");
    assert_eq!(occurrences(&written, "loop {"), 5, "{written}");
    assert_eq!(occurrences(&written, "atomicAdd("), 1, "{written}");
    // What else there was is still there.
    assert_eq!(occurrences(&written, "(by * 3u)"), 1, "{written}");
}

#[test]
fn modules_without_stay_as_they_are() {
    let source = "@group(0) @binding(0) var<storage, read_write> a: array<atomic<u32>>;
        @compute @workgroup_size(8) fn main() { atomicAdd(&a[0], 1u); }";
    let mut module = parse(source);
    let before = text(&module, source);
    assert!(!extrema::run(&mut module));
    assert_eq!(text(&module, source), before);
}
