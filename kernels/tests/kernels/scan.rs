//! Scans.

use tombolo_kernels::{Element, Max, Operator, Scan, Shape, Sum, Values};

use crate::data::{LENGTHS, POISON, assert_same, integers, numbers, poisoned, words};
use crate::harness::Fixture;

crate::cases![
    inclusive_at_every_length,
    exclusive_at_every_length,
    maxima_of_signed_integers,
    sums_of_numbers_are_near_exact_ones,
    three_levels_and_more_groups_than_a_dispatch_has,
    nothing_behind_the_results_is_written,
    one_object_for_growing_and_shrinking_inputs,
    drawn_lengths_shapes_and_parts,
];

/// The scan on the host.
fn expected<T: Copy>(values: &[T], zero: T, inclusive: bool, add: impl Fn(T, T) -> T) -> Vec<T> {
    let mut running = zero;
    let step = |&value: &T| {
        let before = running;
        running = add(running, value);
        if inclusive { running } else { before }
    };
    values.iter().map(step).collect()
}

fn scanned<T: Element, O: Operator<T>>(
    fixture: &Fixture,
    scan: &mut Scan<T, O>,
    values: &[T],
) -> Vec<T> {
    let source = fixture.device.buffer(values).unwrap();
    let sink = poisoned::<T>(fixture, values.len());
    scan.run(&source, &sink).unwrap().wait().unwrap();
    sink.read().unwrap()
}

fn inclusive_at_every_length(fixture: &Fixture) {
    at_every_length(fixture, true);
}

fn exclusive_at_every_length(fixture: &Fixture) {
    at_every_length(fixture, false);
}

fn at_every_length(fixture: &Fixture, inclusive: bool) {
    let mut scan = match inclusive {
        true => Scan::<u32, Sum>::inclusive(&fixture.device).unwrap(),
        false => Scan::<u32, Sum>::exclusive(&fixture.device).unwrap(),
    };
    for len in LENGTHS {
        let values = words(len, 1);
        let found = scanned(fixture, &mut scan, &values);
        let expected = expected(&values, 0, inclusive, u32::wrapping_add);
        assert_same(&found, &expected, &format!("{len}"));
    }
}

fn maxima_of_signed_integers(fixture: &Fixture) {
    let mut scan = Scan::<i32, Max>::exclusive(&fixture.device).unwrap();
    // Slowly rising, so that the largest value changes all along.
    let noise = integers(20_000, 2).into_iter().enumerate();
    let values: Vec<i32> = noise
        .map(|(i, x)| x / 1_000 + 50 * i as i32 - 1_000_000)
        .collect();
    let found = scanned(fixture, &mut scan, &values);
    assert_same(
        &found,
        &expected(&values, i32::MIN, false, i32::max),
        "maxima",
    );
}

fn sums_of_numbers_are_near_exact_ones(fixture: &Fixture) {
    let mut scan = Scan::<f32, Sum>::inclusive(&fixture.device).unwrap();
    let values = numbers(100_003, 3);
    let found = scanned(fixture, &mut scan, &values);
    let (mut exact, mut sizes) = (0.0f64, 0.0f64);
    for (i, (&value, found)) in values.iter().zip(found).enumerate() {
        exact += f64::from(value);
        sizes += f64::from(value.abs());
        // At most 24 additions a level, of two levels up and two down.
        let bound = sizes * f64::from(f32::EPSILON) / 2.0 * 96.0;
        assert!(
            (f64::from(found) - exact).abs() <= bound,
            "{i}: {found} {exact}"
        );
    }
}

fn three_levels_and_more_groups_than_a_dispatch_has(fixture: &Fixture) {
    let shape = Shape {
        invocations: 8,
        items: 1,
    };
    let limit = fixture.device.capabilities().workgroups_per_dimension;
    let values = words((limit.min(65_535) as usize + 2) * 8 - 3, 4);
    let mut scan = Scan::<u32, Sum>::with_shape(&fixture.device, shape, true).unwrap();
    let found = scanned(fixture, &mut scan, &values);
    assert_same(
        &found,
        &expected(&values, 0, true, u32::wrapping_add),
        "levels",
    );
}

fn nothing_behind_the_results_is_written(fixture: &Fixture) {
    let values = words(5_001, 5);
    let source = fixture.device.buffer(&values).unwrap();
    let sink = poisoned::<u32>(fixture, 6_000);
    let mut scan = Scan::<u32, Sum>::inclusive(&fixture.device).unwrap();
    let part = Values::from(&source).slice(1..).unwrap();
    scan.run(part, Values::from(&sink).slice(64..).unwrap())
        .unwrap();
    let mut all = vec![POISON; 64];
    all.extend(expected(&values[1..], 0, true, u32::wrapping_add));
    all.resize(6_000, POISON);
    assert_same(&sink.read().unwrap(), &all, "parts");
}

fn one_object_for_growing_and_shrinking_inputs(fixture: &Fixture) {
    let mut scan = Scan::<u32, Sum>::exclusive(&fixture.device).unwrap();
    // Recorded one behind the other, so that all share scratch memory before any of them has run.
    let runs: Vec<_> = [10_000, 100, 70_000, 2_049, 0, 69_999]
        .into_iter()
        .map(|len| {
            let values = words(len, len as u32);
            let source = fixture.device.buffer(&values).unwrap();
            let sink = poisoned::<u32>(fixture, len);
            scan.run(&source, &sink).unwrap();
            (values, sink)
        })
        .collect();
    for (values, sink) in runs {
        let expected = expected(&values, 0, false, u32::wrapping_add);
        assert_same(
            &sink.read().unwrap(),
            &expected,
            &format!("{}", values.len()),
        );
    }
}

fn drawn_lengths_shapes_and_parts(fixture: &Fixture) {
    use proptest::prelude::*;
    let values = words(20_000, 6);
    let source = fixture.device.buffer(&values).unwrap();
    let kernels = [(8, 1, true), (32, 3, false), (64, 5, true), (128, 2, false)];
    let kernels = kernels.map(|(invocations, items, inclusive)| {
        let shape = Shape { invocations, items };
        let scan = Scan::<u32, Sum>::with_shape(&fixture.device, shape, inclusive).unwrap();
        (inclusive, std::cell::RefCell::new(scan))
    });
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(40)
    });
    let drawn = (0..kernels.len(), 0..=values.len(), 0..=values.len());
    let result = runner.run(&drawn, |(kernel, a, b)| {
        let (start, end) = (a.min(b), a.max(b));
        let part = Values::from(&source)
            .slice(start as u64..end as u64)
            .unwrap();
        let sink = poisoned::<u32>(fixture, end - start + 1);
        let (inclusive, scan) = &kernels[kernel];
        scan.borrow_mut().run(part, &sink).unwrap();
        let mut all = expected(&values[start..end], 0, *inclusive, u32::wrapping_add);
        all.push(POISON);
        prop_assert!(
            sink.read().unwrap() == all,
            "{start}..{end} of shape {kernel}"
        );
        Ok(())
    });
    result.unwrap();
}
