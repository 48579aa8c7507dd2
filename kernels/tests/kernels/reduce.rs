//! Reductions.

use tombolo_kernels::{
    And, Element, Max, Min, Operator, Or, Product, Reduce, Shape, Sum, Values, Xor,
};

use crate::data::{LENGTHS, POISON, integers, numbers, poisoned, words};
use crate::harness::Fixture;

crate::cases![
    integers_at_every_length,
    every_operator,
    infinities_are_values_and_identities,
    sums_of_numbers_are_near_exact_ones,
    results_are_the_same_in_every_run,
    more_groups_than_a_dispatch_has,
    an_operator_of_the_programs_own,
    nothing_beside_the_result_is_written,
    drawn_lengths_shapes_and_parts,
];

/// One result, at the first place of an output that is longer.
fn reduced<T: Element, O: Operator<T>>(
    fixture: &Fixture,
    reduce: &mut Reduce<T, O>,
    values: &[T],
) -> T {
    let source = fixture.device.buffer(values).unwrap();
    let sink = poisoned::<T>(fixture, 1);
    reduce.run(&source, &sink).unwrap().wait().unwrap();
    sink.read().unwrap()[0]
}

fn new<T: Element, O: Operator<T>>(fixture: &Fixture) -> Reduce<T, O> {
    Reduce::new(&fixture.device).unwrap()
}

fn integers_at_every_length(fixture: &Fixture) {
    let (mut sum, mut max) = (new::<u32, Sum>(fixture), new::<i32, Max>(fixture));
    for len in LENGTHS {
        let values = words(len, 1);
        let expected = values.iter().fold(0u32, |a, &b| a.wrapping_add(b));
        assert_eq!(reduced(fixture, &mut sum, &values), expected, "{len}");
        let values = integers(len, 2);
        let expected = values.iter().copied().max().unwrap_or(i32::MIN);
        assert_eq!(reduced(fixture, &mut max, &values), expected, "{len}");
    }
}

fn every_operator(fixture: &Fixture) {
    fn check<T: Element, O: Operator<T>>(
        fixture: &Fixture,
        values: &[T],
        identity: T,
        combine: impl Fn(T, T) -> T,
    ) {
        let mut reduce = new::<T, O>(fixture);
        for part in [&values[..0], &values[..1], values] {
            let expected = part.iter().copied().fold(identity, &combine);
            let name = std::any::type_name::<O>();
            assert_eq!(reduced(fixture, &mut reduce, part), expected, "{name}");
        }
    }
    // Odd factors, so that a product does not come to zero.
    let odd: Vec<u32> = words(5_000, 3).into_iter().map(|x| x | 1).collect();
    let bits: Vec<u32> = words(5_000, 4).into_iter().map(|x| 1 << (x % 31)).collect();
    let holes: Vec<i32> = bits.iter().map(|&x| !x as i32).collect();
    let signed = integers(5_000, 5);
    let reals = numbers(5_000, 6);
    check::<u32, Product>(fixture, &odd, 1, u32::wrapping_mul);
    check::<u32, Min>(fixture, &odd, u32::MAX, u32::min);
    check::<u32, Max>(fixture, &odd, 0, u32::max);
    check::<u32, Or>(fixture, &bits[..20], 0, |a, b| a | b);
    check::<u32, Xor>(fixture, &odd, 0, |a, b| a ^ b);
    check::<i32, Sum>(fixture, &signed, 0, i32::wrapping_add);
    check::<i32, Product>(fixture, &signed[..3], 1, i32::wrapping_mul);
    check::<i32, Min>(fixture, &signed, i32::MAX, i32::min);
    check::<i32, And>(fixture, &holes[..20], -1, |a, b| a & b);
    check::<f32, Min>(fixture, &reals, f32::INFINITY, f32::min);
    check::<f32, Max>(fixture, &reals, f32::NEG_INFINITY, f32::max);
    check::<f32, Product>(fixture, &[2.0, -0.5, 8.0], 1.0, |a, b| a * b);
}

fn infinities_are_values_and_identities(fixture: &Fixture) {
    let mut min = new::<f32, Min>(fixture);
    let all = [f32::INFINITY; 300];
    assert_eq!(reduced(fixture, &mut min, &all), f32::INFINITY);
    assert_eq!(
        reduced(fixture, &mut min, &[1.0, f32::NEG_INFINITY]),
        f32::NEG_INFINITY
    );
    // Larger than every finite value: no value is taken for the identity.
    assert_eq!(reduced(fixture, &mut min, &[f32::MAX; 5]), f32::MAX);
}

fn sums_of_numbers_are_near_exact_ones(fixture: &Fixture) {
    let mut sum = new::<f32, Sum>(fixture);
    for len in LENGTHS {
        let values = numbers(len, 7);
        let exact: f64 = values.iter().map(|&x| f64::from(x)).sum();
        let sizes: f64 = values.iter().map(|&x| f64::from(x.abs())).sum();
        // Each value takes part in 16 + 8 additions a level, of three levels at most, and each rounds by half a unit.
        let bound = sizes * f64::from(f32::EPSILON) / 2.0 * 72.0;
        let found = f64::from(reduced(fixture, &mut sum, &values));
        assert!((found - exact).abs() <= bound, "{len}: {found} {exact}");
    }
}

fn results_are_the_same_in_every_run(fixture: &Fixture) {
    let values = numbers(100_003, 8);
    let mut sum = new::<f32, Sum>(fixture);
    let first = reduced(fixture, &mut sum, &values).to_bits();
    for _ in 0..5 {
        assert_eq!(reduced(fixture, &mut sum, &values).to_bits(), first);
        let mut another = new::<f32, Sum>(fixture);
        assert_eq!(reduced(fixture, &mut another, &values).to_bits(), first);
    }
}

fn more_groups_than_a_dispatch_has(fixture: &Fixture) {
    let shape = Shape {
        invocations: 4,
        items: 1,
    };
    let limit = fixture.device.capabilities().workgroups_per_dimension;
    // Some adapters have no such limit in reach.
    let groups = limit.min(65_535) as usize + 3;
    let values = words(groups * 4 - 1, 9);
    let mut sum = Reduce::<u32, Sum>::with_shape(&fixture.device, shape).unwrap();
    let expected = values.iter().fold(0u32, |a, &b| a.wrapping_add(b));
    assert_eq!(reduced(fixture, &mut sum, &values), expected);
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
    assert_eq!(reduced(fixture, &mut sum, &[1 << 20; 5_000]), u32::MAX);
    assert_eq!(reduced(fixture, &mut sum, &[1 << 10; 5_000]), 5_000 << 10);
}

fn nothing_beside_the_result_is_written(fixture: &Fixture) {
    let source = fixture.device.buffer(&words(9_000, 10)).unwrap();
    let sink = poisoned::<u32>(fixture, 70);
    let mut sum = new::<u32, Sum>(fixture);
    // An offset that adapters can bind, and one that they cannot.
    for at in [64, 3] {
        let part = Values::from(&sink).slice(at..).unwrap();
        sum.run(&source, part).unwrap();
    }
    let expected = words(9_000, 10)
        .iter()
        .fold(0u32, |a, &b| a.wrapping_add(b));
    for (i, found) in sink.read().unwrap().into_iter().enumerate() {
        let expected = if [64, 3].contains(&i) {
            expected
        } else {
            POISON
        };
        assert_eq!(found, expected, "{i}");
    }
}

fn drawn_lengths_shapes_and_parts(fixture: &Fixture) {
    use proptest::prelude::*;
    let values = words(30_000, 11);
    let source = fixture.device.buffer(&values).unwrap();
    let sink = poisoned::<u32>(fixture, 1);
    let kernels = [(8, 1), (32, 3), (64, 5), (128, 2)].map(|(invocations, items)| {
        let shape = Shape { invocations, items };
        let reduce = Reduce::<u32, Sum>::with_shape(&fixture.device, shape).unwrap();
        std::cell::RefCell::new(reduce)
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
        kernels[kernel].borrow_mut().run(part, &sink).unwrap();
        let expected = values[start..end]
            .iter()
            .fold(0u32, |a, &b| a.wrapping_add(b));
        prop_assert_eq!(sink.read().unwrap()[0], expected);
        Ok(())
    });
    result.unwrap();
}
