//! Scans of many segments.

use tombolo_kernels::{
    Element, Error, Max, Operator, SegmentedScan, SegmentedScanFlagged, Shape, Sum, Values,
};

use crate::data::{LENGTHS, POISON, assert_same, integers, noise, numbers, poisoned, words};
use crate::harness::Fixture;
use crate::segments::cuts;

crate::cases![
    inclusive_at_every_length,
    exclusive_at_every_length,
    flags_at_every_length,
    maxima_of_signed_integers,
    sums_of_numbers_are_near_exact_ones,
    any_offsets_will_do,
    many_levels_and_drawn_shapes,
    nothing_beside_the_results_is_written,
    arguments_that_are_too_short,
    one_object_for_growing_and_shrinking_inputs,
];

/// Whether a segment begins at each value.
fn heads(len: usize, offsets: &[u32]) -> Vec<bool> {
    let mut heads = vec![false; len];
    for &offset in offsets {
        if let Some(head) = heads.get_mut(offset as usize) {
            *head = true;
        }
    }
    heads
}

/// The scan on the host.
fn expected<T: Copy>(
    values: &[T],
    heads: &[bool],
    zero: T,
    inclusive: bool,
    add: impl Fn(T, T) -> T,
) -> Vec<T> {
    let mut running = zero;
    let step = |(&value, &head): (&T, &bool)| {
        if head {
            running = zero;
        }
        let before = running;
        running = add(running, value);
        if inclusive { running } else { before }
    };
    values.iter().zip(heads).map(step).collect()
}

fn scanned<T: Element, O: Operator<T>>(
    fixture: &Fixture,
    scan: &mut SegmentedScan<T, O>,
    values: &[T],
    offsets: &[u32],
) -> Vec<T> {
    let source = fixture.device.buffer(values).unwrap();
    let cuts = fixture.device.buffer(offsets).unwrap();
    let sink = poisoned::<T>(fixture, values.len());
    let event = scan.run(&source, &cuts, &sink).unwrap();
    event.wait().unwrap();
    sink.read().unwrap()
}

fn new<T: Element, O: Operator<T>>(fixture: &Fixture, inclusive: bool) -> SegmentedScan<T, O> {
    match inclusive {
        true => SegmentedScan::inclusive(&fixture.device).unwrap(),
        false => SegmentedScan::exclusive(&fixture.device).unwrap(),
    }
}

fn inclusive_at_every_length(fixture: &Fixture) {
    at_every_length(fixture, true);
}

fn exclusive_at_every_length(fixture: &Fixture) {
    at_every_length(fixture, false);
}

fn at_every_length(fixture: &Fixture, inclusive: bool) {
    let mut scan = new::<u32, Sum>(fixture, inclusive);
    for len in LENGTHS {
        let values = words(len, 1);
        for (name, offsets) in cuts(len) {
            // The longest input costs software adapters seconds for every way to cut.
            if len > 100_000 && offsets.len() % 3 == 0 {
                continue;
            }
            let found = scanned(fixture, &mut scan, &values, &offsets);
            let heads = heads(len, &offsets);
            let expected = expected(&values, &heads, 0, inclusive, u32::wrapping_add);
            assert_same(&found, &expected, &format!("{name} of {len}"));
        }
    }
}

fn flags_at_every_length(fixture: &Fixture) {
    let mut kinds = [true, false].map(|inclusive| {
        let scan = match inclusive {
            true => SegmentedScanFlagged::<u32, Sum>::inclusive(&fixture.device),
            false => SegmentedScanFlagged::<u32, Sum>::exclusive(&fixture.device),
        };
        (inclusive, scan.unwrap())
    });
    for len in LENGTHS {
        let values = words(len, 2);
        // Any bit makes a flag; more flags than values.
        let often = 1 + len as u32 / 100;
        let flag = |i: usize| {
            if noise(i, 3).is_multiple_of(often) {
                noise(i, 4)
            } else {
                0
            }
        };
        let flags: Vec<u32> = (0..len + 5).map(flag).collect();
        let heads: Vec<bool> = flags.iter().map(|&flag| flag != 0).collect();
        let source = fixture.device.buffer(&values).unwrap();
        let flags = fixture.device.buffer(&flags).unwrap();
        for (inclusive, scan) in &mut kinds {
            let sink = poisoned::<u32>(fixture, len);
            scan.run(&source, &flags, &sink).unwrap().wait().unwrap();
            let expected = expected(&values, &heads, 0, *inclusive, u32::wrapping_add);
            assert_same(&sink.read().unwrap(), &expected, &format!("{len}"));
        }
    }
}

fn maxima_of_signed_integers(fixture: &Fixture) {
    let values = integers(20_000, 5);
    for inclusive in [true, false] {
        let mut scan = new::<i32, Max>(fixture, inclusive);
        for (name, offsets) in cuts(values.len()) {
            let found = scanned(fixture, &mut scan, &values, &offsets);
            let heads = heads(values.len(), &offsets);
            let expected = expected(&values, &heads, i32::MIN, inclusive, i32::max);
            assert_same(&found, &expected, name);
        }
    }
}

fn sums_of_numbers_are_near_exact_ones(fixture: &Fixture) {
    let values = numbers(50_021, 6);
    let exact: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
    let sizes: Vec<f64> = exact.iter().map(|x| x.abs()).collect();
    let mut scan = new::<f32, Sum>(fixture, true);
    for (name, offsets) in cuts(values.len()) {
        let found = scanned(fixture, &mut scan, &values, &offsets);
        let heads = heads(values.len(), &offsets);
        let exact = expected(&exact, &heads, 0.0, true, |a, b| a + b);
        let sizes = expected(&sizes, &heads, 0.0, true, |a, b| a + b);
        for (i, found) in found.into_iter().enumerate() {
            // As in the tests of scans.
            let bound = sizes[i] * f64::from(f32::EPSILON) / 2.0 * 96.0;
            let error = (f64::from(found) - exact[i]).abs();
            assert!(error <= bound, "{name} at {i}: {found} {}", exact[i]);
        }
    }
}

fn any_offsets_will_do(fixture: &Fixture) {
    let values = words(9_001, 7);
    let mut scan = new::<u32, Sum>(fixture, true);
    let many: Vec<u32> = words(3_000, 8).iter().map(|x| x % 20_000).collect();
    for offsets in [&[][..], &[u32::MAX, 9_001, 9_002, 5_000, 3, 3], &many] {
        let found = scanned(fixture, &mut scan, &values, offsets);
        let heads = heads(values.len(), offsets);
        let expected = expected(&values, &heads, 0, true, u32::wrapping_add);
        assert_same(&found, &expected, &format!("{} offsets", offsets.len()));
    }
}

fn many_levels_and_drawn_shapes(fixture: &Fixture) {
    for (invocations, items) in [(8, 1), (2, 3), (1, 2), (64, 1), (16, 64), (32, 33)] {
        let shape = Shape { invocations, items };
        let inclusive = items != 3;
        let scan = SegmentedScan::<u32, Sum>::with_shape(&fixture.device, shape, inclusive);
        let mut scan = scan.unwrap();
        for len in [1, 63, 1_999] {
            let values = words(len, 9);
            for (name, offsets) in cuts(len) {
                // So many work-groups cost software adapters seconds.
                if shape.tile() < 9 && offsets.len() > 5_000 {
                    continue;
                }
                let found = scanned(fixture, &mut scan, &values, &offsets);
                let heads = heads(len, &offsets);
                let expected = expected(&values, &heads, 0, inclusive, u32::wrapping_add);
                assert_same(&found, &expected, &format!("{name} of {len}, {shape:?}"));
            }
        }
    }
    for (invocations, items) in [(0, 1), (3, 1), (1 << 20, 1), (64, 0), (64, 65)] {
        let shape = Shape { invocations, items };
        let refused = SegmentedScan::<u32, Sum>::with_shape(&fixture.device, shape, true);
        assert!(matches!(refused, Err(Error::Shape { .. })), "{shape:?}");
    }
}

fn nothing_beside_the_results_is_written(fixture: &Fixture) {
    let values = words(5_001, 10);
    let (_, offsets) = cuts(5_000).swap_remove(4);
    let source = fixture.context.buffer_from(&values).unwrap();
    let cuts = fixture.device.buffer(&offsets).unwrap();
    let sink = poisoned::<u32>(fixture, 6_000);
    let mut scan = new::<u32, Sum>(fixture, true);
    let part = Values::from(&source).slice(1..).unwrap();
    scan.run(part, &cuts, Values::from(&sink).slice(67..).unwrap())
        .unwrap();
    let mut all = vec![POISON; 67];
    let heads = heads(5_000, &offsets);
    all.extend(expected(&values[1..], &heads, 0, true, u32::wrapping_add));
    all.resize(6_000, POISON);
    assert_same(&sink.read().unwrap(), &all, "parts");
}

fn arguments_that_are_too_short(fixture: &Fixture) {
    let (source, sink) = (poisoned::<u32>(fixture, 100), poisoned::<u32>(fixture, 100));
    let few = Values::from(&sink).slice(..99).unwrap();
    let mut scan = new::<u32, Sum>(fixture, true);
    let mut flagged = SegmentedScanFlagged::<u32, Sum>::inclusive(&fixture.device).unwrap();
    for (refused, name) in [
        (scan.run(&source, &source, &few), "sink"),
        (flagged.run(&source, &source, &few), "sink"),
        (flagged.run(&source, &few, &sink), "flags"),
    ] {
        let refused = refused.unwrap_err();
        let Error::TooShort {
            argument, needed, ..
        } = &refused
        else {
            panic!("{refused}");
        };
        assert_eq!((*argument, *needed), (name, 100));
    }
    assert_eq!(sink.read().unwrap(), [POISON; 100]);
}

fn one_object_for_growing_and_shrinking_inputs(fixture: &Fixture) {
    let mut scan = new::<u32, Sum>(fixture, false);
    // Recorded one behind the other: the marks of a call are gone in the next.
    let runs: Vec<_> = [10_000, 100, 70_000, 2_049, 0, 69_999]
        .into_iter()
        .map(|len| {
            let values = words(len, 11);
            let (_, offsets) = cuts(len).swap_remove(4);
            let source = fixture.device.buffer(&values).unwrap();
            let cuts = fixture.device.buffer(&offsets).unwrap();
            let sink = poisoned::<u32>(fixture, len);
            scan.run(&source, &cuts, &sink).unwrap();
            let heads = heads(len, &offsets);
            (expected(&values, &heads, 0, false, u32::wrapping_add), sink)
        })
        .collect();
    for (expected, sink) in runs {
        assert_same(&sink.read().unwrap(), &expected, "in a row");
    }
}
