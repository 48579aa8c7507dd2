//! Reductions of many segments.

use tombolo::device::{ExecutionError, WaitError};
use tombolo_kernels::{
    And, Element, Error, Max, Min, Operator, SegmentedReduce, Shape, Sum, Values, Xor,
};

use crate::data::{LENGTHS, POISON, assert_same, integers, numbers, poisoned, words};
use crate::harness::Fixture;
use crate::segments::cuts;

crate::cases![
    sums_at_every_length,
    every_kind_of_operator,
    numbers_are_near_exact_ones,
    results_are_the_same_in_every_run,
    an_operator_of_the_programs_own,
    many_levels_and_drawn_shapes,
    nothing_beside_the_results_is_written,
    arguments_of_the_context,
    offsets_that_do_not_ascend,
    offsets_beyond_the_values,
    arguments_that_are_too_short,
    one_object_for_growing_and_shrinking_inputs,
];

/// The results on the host.
fn expected<T: Copy>(
    values: &[T],
    offsets: &[u32],
    identity: T,
    add: impl Fn(T, T) -> T,
) -> Vec<T> {
    let reduce = |pair: &[u32]| {
        let part = &values[pair[0] as usize..pair[1] as usize];
        part.iter().copied().fold(identity, &add)
    };
    offsets.windows(2).map(reduce).collect()
}

fn reduced<T: Element, O: Operator<T>>(
    fixture: &Fixture,
    reduce: &mut SegmentedReduce<T, O>,
    values: &[T],
    offsets: &[u32],
) -> Vec<T> {
    let source = fixture.device.buffer(values).unwrap();
    let cuts = fixture.device.buffer(offsets).unwrap();
    let sink = poisoned::<T>(fixture, offsets.len() - 1);
    let event = reduce.run(&source, &cuts, &sink).unwrap();
    event.wait().unwrap();
    sink.read().unwrap()
}

fn new<T: Element, O: Operator<T>>(fixture: &Fixture) -> SegmentedReduce<T, O> {
    SegmentedReduce::new(&fixture.device).unwrap()
}

fn sums_at_every_length(fixture: &Fixture) {
    let mut sum = new::<u32, Sum>(fixture);
    for len in LENGTHS {
        let values = words(len, 1);
        for (name, offsets) in cuts(len) {
            let found = reduced(fixture, &mut sum, &values, &offsets);
            let expected = expected(&values, &offsets, 0, u32::wrapping_add);
            assert_same(&found, &expected, &format!("{name} of {len}"));
        }
    }
}

fn every_kind_of_operator(fixture: &Fixture) {
    let (len, signed, bits) = (10_007, integers(10_007, 2), words(10_007, 3));
    let reals = numbers(len, 4);
    let (mut max, mut and) = (new::<i32, Max>(fixture), new::<i32, And>(fixture));
    let (mut min, mut xor) = (new::<f32, Min>(fixture), new::<u32, Xor>(fixture));
    for (name, offsets) in cuts(len) {
        let found = reduced(fixture, &mut max, &signed, &offsets);
        assert_same(
            &found,
            &expected(&signed, &offsets, i32::MIN, i32::max),
            name,
        );
        let found = reduced(fixture, &mut and, &signed, &offsets);
        assert_same(&found, &expected(&signed, &offsets, -1, |a, b| a & b), name);
        let found = reduced(fixture, &mut min, &reals, &offsets);
        assert_same(
            &found,
            &expected(&reals, &offsets, f32::INFINITY, f32::min),
            name,
        );
        let found = reduced(fixture, &mut xor, &bits, &offsets);
        assert_same(&found, &expected(&bits, &offsets, 0, |a, b| a ^ b), name);
    }
}

fn numbers_are_near_exact_ones(fixture: &Fixture) {
    let mut sum = new::<f32, Sum>(fixture);
    let values = numbers(100_003, 5);
    let exact: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
    let sizes: Vec<f64> = exact.iter().map(|x| x.abs()).collect();
    for (name, offsets) in cuts(values.len()) {
        let found = reduced(fixture, &mut sum, &values, &offsets);
        let exact = expected(&exact, &offsets, 0.0, |a, b| a + b);
        let sizes = expected(&sizes, &offsets, 0.0, |a, b| a + b);
        for (i, found) in found.into_iter().enumerate() {
            // A value takes part in 8 + 8 additions a level, of two levels, and in those of the carries.
            let bound = sizes[i] * f64::from(f32::EPSILON) / 2.0 * 64.0;
            let error = (f64::from(found) - exact[i]).abs();
            assert!(error <= bound, "{name} at {i}: {found} {}", exact[i]);
        }
    }
}

fn results_are_the_same_in_every_run(fixture: &Fixture) {
    let values = numbers(100_003, 6);
    let (_, offsets) = cuts(values.len()).swap_remove(5);
    let bits = |found: Vec<f32>| found.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let first = bits(reduced(
        fixture,
        &mut new::<f32, Sum>(fixture),
        &values,
        &offsets,
    ));
    for _ in 0..3 {
        let again = bits(reduced(
            fixture,
            &mut new::<f32, Sum>(fixture),
            &values,
            &offsets,
        ));
        assert_same(&again, &first, "again");
    }
}

/// Addition that stops at the largest number.
struct Saturating;

impl Operator<u32> for Saturating {
    const IDENTITY: &'static str = "0u";
    const COMBINE: &'static str = "capped(a, b)";
    const FUNCTIONS: &'static str = "fn capped(a: u32, b: u32) -> u32 { return a + min(b, ~a); }";
}

fn an_operator_of_the_programs_own(fixture: &Fixture) {
    let mut sum = new::<u32, Saturating>(fixture);
    let found = reduced(
        fixture,
        &mut sum,
        &[1 << 20; 10_000],
        &[0, 3, 3, 9_000, 10_000],
    );
    assert_eq!(found, [3 << 20, 0, u32::MAX, 1_000 << 20]);
}

fn many_levels_and_drawn_shapes(fixture: &Fixture) {
    // Tiles of two come to eleven levels.
    for (invocations, items) in [(8, 1), (2, 3), (1, 2), (64, 1), (16, 64), (32, 33)] {
        let shape = Shape { invocations, items };
        let mut sum = SegmentedReduce::<u32, Sum>::with_shape(&fixture.device, shape).unwrap();
        for len in [1, 63, 1_999] {
            let values = words(len, 7);
            for (name, offsets) in cuts(len) {
                // So many work-groups cost software adapters seconds.
                if shape.tile() < 9 && offsets.len() > 5_000 {
                    continue;
                }
                let found = reduced(fixture, &mut sum, &values, &offsets);
                let expected = expected(&values, &offsets, 0, u32::wrapping_add);
                assert_same(&found, &expected, &format!("{name} of {len}, {shape:?}"));
            }
        }
    }
    for shape in [(0, 1), (3, 1), (1 << 20, 1), (64, 0), (64, 65)] {
        let (invocations, items) = shape;
        let shape = Shape { invocations, items };
        let refused = SegmentedReduce::<u32, Sum>::with_shape(&fixture.device, shape);
        assert!(matches!(refused, Err(Error::Shape { .. })), "{shape:?}");
    }
}

fn nothing_beside_the_results_is_written(fixture: &Fixture) {
    let values = words(9_000, 8);
    let (_, offsets) = cuts(8_999).swap_remove(4);
    let source = fixture.device.buffer(&values).unwrap();
    let cuts = fixture.device.buffer(&offsets).unwrap();
    let sink = poisoned::<u32>(fixture, 1_200);
    let mut sum = new::<u32, Sum>(fixture);
    // Parts that adapters cannot bind where they are.
    let part = Values::from(&source).slice(1..).unwrap();
    let results = Values::from(&sink).slice(67..).unwrap();
    sum.run(part, &cuts, results).unwrap();
    let mut all = vec![POISON; 67];
    all.extend(expected(&values[1..], &offsets, 0, u32::wrapping_add));
    all.resize(1_200, POISON);
    assert_same(&sink.read().unwrap(), &all, "beside");
}

fn arguments_of_the_context(fixture: &Fixture) {
    let heap = fixture.context.heap().unwrap();
    let values = words(20_000, 9);
    let (_, offsets) = cuts(values.len()).swap_remove(5);
    let source = fixture.context.buffer_from(&values).unwrap();
    let pointer = heap.alloc_slice(&offsets).unwrap();
    let sink = fixture
        .context
        .buffer_from(&vec![POISON; offsets.len()])
        .unwrap();
    let mut sum = new::<u32, Sum>(fixture);
    sum.run(&source, (pointer, offsets.len()), &sink).unwrap();
    let mut all = expected(&values, &offsets, 0, u32::wrapping_add);
    // A launch that writes a part of a buffer leaves the rest as it was.
    all.push(POISON);
    assert_same(&sink.read().unwrap(), &all, "context");
    heap.free(pointer).unwrap();
}

/// What the launch reports about these offsets for `len` values.
fn fault_of(fixture: &Fixture, len: usize, offsets: &[u32]) -> String {
    let source = fixture.device.buffer(&words(len, 10)).unwrap();
    let cuts = fixture.device.buffer(offsets).unwrap();
    let sink = poisoned::<u32>(fixture, offsets.len() - 1);
    let mut sum = new::<u32, Sum>(fixture);
    let event = sum.run(&source, &cuts, &sink).unwrap();
    assert!(sink.read().is_err(), "{offsets:?}");
    match event.wait().unwrap_err() {
        WaitError::Failed(error) => match &*error {
            ExecutionError::Assertion { .. } | ExecutionError::Inherited { .. } => {
                error.to_string()
            }
            other => panic!("{other}"),
        },
        other => panic!("{other}"),
    }
}

fn offsets_that_do_not_ascend(fixture: &Fixture) {
    let fault = fault_of(fixture, 100, &[0, 50, 40, 100]);
    assert!(
        fault.contains("offset 2 is 40, less than the one before"),
        "{fault}"
    );
    // At the seam of two tiles, and over many of them.
    let mut offsets: Vec<u32> = (0..=9_000).collect();
    offsets[1_024] = 0;
    fault_of(fixture, 9_000, &offsets);
    offsets.reverse();
    fault_of(fixture, 9_000, &offsets);
    let mut sawtooth: Vec<u32> = (0..20_000).map(|i| i % 7_000).collect();
    fault_of(fixture, 7_000, &sawtooth);
    sawtooth.rotate_left(3_500);
    fault_of(fixture, 7_000, &sawtooth);
}

fn offsets_beyond_the_values(fixture: &Fixture) {
    let fault = fault_of(fixture, 100, &[0, 50, 101]);
    assert!(
        fault.contains("offset 2 is 101, and there are 100 values"),
        "{fault}"
    );
    let fault = fault_of(fixture, 0, &[0, 0, u32::MAX]);
    assert!(fault.contains("offset 2 is 4294967295"), "{fault}");
    let mut many = vec![0; 10_000];
    many.push(u32::MAX);
    fault_of(fixture, 5_000, &many);
}

fn arguments_that_are_too_short(fixture: &Fixture) {
    let buffer = poisoned::<u32>(fixture, 100);
    let offsets = fixture.device.buffer(&[0u32, 5, 100]).unwrap();
    let sink = poisoned::<u32>(fixture, 1);
    let mut sum = new::<u32, Sum>(fixture);
    let none = Values::from(&offsets).slice(..0).unwrap();
    for (refused, name, least) in [
        (sum.run(&buffer, &none, &sink), "offsets", 1),
        (sum.run(&buffer, &offsets, &sink), "sink", 2),
    ] {
        let refused = refused.unwrap_err();
        let Error::TooShort {
            argument, needed, ..
        } = &refused
        else {
            panic!("{refused}");
        };
        assert_eq!((*argument, *needed), (name, least));
    }
    assert_eq!(sink.read().unwrap(), [POISON]);
}

fn one_object_for_growing_and_shrinking_inputs(fixture: &Fixture) {
    let mut sum = new::<u32, Sum>(fixture);
    // Recorded one behind the other, so that all share scratch memory before any of them has run.
    let runs: Vec<_> = [10_000, 100, 70_000, 2_049, 0, 69_999]
        .into_iter()
        .map(|len| {
            let values = words(len, 11);
            let (_, offsets) = cuts(len).swap_remove(4);
            let source = fixture.device.buffer(&values).unwrap();
            let cuts = fixture.device.buffer(&offsets).unwrap();
            let sink = poisoned::<u32>(fixture, offsets.len() - 1);
            sum.run(&source, &cuts, &sink).unwrap();
            (expected(&values, &offsets, 0, u32::wrapping_add), sink)
        })
        .collect();
    for (expected, sink) in runs {
        assert_same(&sink.read().unwrap(), &expected, "in a row");
    }
}
