//! Sorting, against the sorts of the standard library.

use tombolo_kernels::{Element, Error, Sort, SortPairs, Values};

use crate::data::{LENGTHS, POISON, assert_same, integers, numbers, poisoned, words};
use crate::harness::Fixture;

crate::cases![
    words_at_every_length,
    integers_of_both_signs,
    numbers_in_total_order,
    keys_that_are_sorted_already,
    equal_keys_keep_the_order_of_their_values,
    pairs_at_every_length,
    descending_pairs_are_stable,
    growing_and_shrinking_inputs,
    nothing_beside_the_results_is_written,
    arguments_that_do_not_fit_each_other,
    drawn_keys_of_few_values,
];

fn sorted<K: Element>(fixture: &Fixture, sort: &mut Sort<K>, keys: &[K]) -> Vec<K> {
    let source = fixture.device.buffer(keys).unwrap();
    let sink = poisoned::<K>(fixture, keys.len());
    sort.run(&source, &sink).unwrap().wait().unwrap();
    assert_same(&source.read().unwrap(), keys, "the input");
    sink.read().unwrap()
}

fn words_at_every_length(fixture: &Fixture) {
    let mut sort = Sort::<u32>::ascending(&fixture.device).unwrap();
    for len in LENGTHS.into_iter().filter(|&len| len < 100_000) {
        let mut keys = words(len, 1);
        let found = sorted(fixture, &mut sort, &keys);
        keys.sort_unstable();
        assert_same(&found, &keys, &format!("{len}"));
    }
}

fn integers_of_both_signs(fixture: &Fixture) {
    let mut keys = integers(20_001, 2);
    keys.extend([0, -1, 1, i32::MIN, i32::MAX, i32::MIN]);
    let mut sort = Sort::<i32>::ascending(&fixture.device).unwrap();
    let found = sorted(fixture, &mut sort, &keys);
    keys.sort_unstable();
    assert_same(&found, &keys, "ascending");
    let mut sort = Sort::<i32>::descending(&fixture.device).unwrap();
    let found = sorted(fixture, &mut sort, &keys);
    keys.reverse();
    assert_same(&found, &keys, "descending");
}

fn numbers_in_total_order(fixture: &Fixture) {
    let mut keys = numbers(20_001, 3);
    keys.extend([
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN,
    ]);
    // Subnormals and two kinds of NaN keep their bits.
    keys.extend([1, 0x8000_0001, 0x7FC0_1234, 0xFFC0_1234].map(f32::from_bits));
    let bits = |keys: &[f32]| keys.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    let mut sort = Sort::<f32>::ascending(&fixture.device).unwrap();
    let source = fixture.device.buffer(&keys).unwrap();
    let sink = poisoned::<f32>(fixture, keys.len());
    sort.run(&source, &sink).unwrap();
    keys.sort_by(f32::total_cmp);
    assert_same(&bits(&sink.read().unwrap()), &bits(&keys), "numbers");
}

fn keys_that_are_sorted_already(fixture: &Fixture) {
    let mut sort = Sort::<u32>::ascending(&fixture.device).unwrap();
    let rising: Vec<u32> = (0..10_000).map(|i| i * 1_000).collect();
    let falling: Vec<u32> = rising.iter().rev().copied().collect();
    for keys in [&rising, &falling] {
        assert_same(&sorted(fixture, &mut sort, keys), &rising, "rising");
    }
    for same in [0, 7, u32::MAX] {
        let keys = vec![same; 5_001];
        assert_same(&sorted(fixture, &mut sort, &keys), &keys, "the same");
    }
}

/// The pairs of a stable sort.
fn pairs<K: Element, V: Element>(
    keys: &[K],
    values: &[V],
    compare: impl Fn(&K, &K) -> std::cmp::Ordering,
) -> (Vec<K>, Vec<V>) {
    let mut pairs: Vec<(K, V)> = keys.iter().copied().zip(values.iter().copied()).collect();
    pairs.sort_by(|a, b| compare(&a.0, &b.0));
    pairs.into_iter().unzip()
}

fn sorted_pairs<K: Element, V: Element>(
    fixture: &Fixture,
    sort: &mut SortPairs<K, V>,
    keys: &[K],
    values: &[V],
) -> (Vec<K>, Vec<V>) {
    let source = fixture.device.buffer(keys).unwrap();
    let along = fixture.device.buffer(values).unwrap();
    let (to, moved) = (
        poisoned::<K>(fixture, keys.len()),
        poisoned::<V>(fixture, keys.len()),
    );
    sort.run(&source, &along, &to, &moved)
        .unwrap()
        .wait()
        .unwrap();
    (to.read().unwrap(), moved.read().unwrap())
}

fn equal_keys_keep_the_order_of_their_values(fixture: &Fixture) {
    let keys: Vec<u32> = words(30_000, 4).iter().map(|x| x % 5).collect();
    let values: Vec<u32> = (0..30_000).collect();
    let mut sort = SortPairs::<u32, u32>::ascending(&fixture.device).unwrap();
    let found = sorted_pairs(fixture, &mut sort, &keys, &values);
    let expected = pairs(&keys, &values, u32::cmp);
    assert_same(&found.0, &expected.0, "keys");
    assert_same(&found.1, &expected.1, "values");
}

fn pairs_at_every_length(fixture: &Fixture) {
    let mut sort = SortPairs::<i32, f32>::ascending(&fixture.device).unwrap();
    for len in LENGTHS.into_iter().filter(|&len| len <= 10_000) {
        let (keys, values) = (integers(len, 5), numbers(len, 6));
        let found = sorted_pairs(fixture, &mut sort, &keys, &values);
        let expected = pairs(&keys, &values, i32::cmp);
        assert_same(&found.0, &expected.0, &format!("keys, {len}"));
        assert_same(&found.1, &expected.1, &format!("values, {len}"));
    }
}

fn descending_pairs_are_stable(fixture: &Fixture) {
    let keys: Vec<f32> = numbers(9_001, 7)
        .iter()
        .map(|x| (x * 10.0).round())
        .collect();
    let values: Vec<i32> = (0..9_001).collect();
    let mut sort = SortPairs::<f32, i32>::descending(&fixture.device).unwrap();
    let found = sorted_pairs(fixture, &mut sort, &keys, &values);
    let expected = pairs(&keys, &values, |a, b| b.total_cmp(a));
    assert_same(&found.0, &expected.0, "keys");
    assert_same(&found.1, &expected.1, "values");
}

fn growing_and_shrinking_inputs(fixture: &Fixture) {
    let mut sort = Sort::<u32>::ascending(&fixture.device).unwrap();
    // Recorded one behind the other, so that all share scratch memory before any of them has run.
    let runs: Vec<_> = [3_000, 10, 9_000, 0, 8_999]
        .into_iter()
        .map(|len| {
            let keys = words(len, len as u32);
            let source = fixture.device.buffer(&keys).unwrap();
            let sink = poisoned::<u32>(fixture, len);
            sort.run(&source, &sink).unwrap();
            (keys, sink)
        })
        .collect();
    for (mut keys, sink) in runs {
        keys.sort_unstable();
        assert_same(&sink.read().unwrap(), &keys, &format!("{}", keys.len()));
    }
}

fn nothing_beside_the_results_is_written(fixture: &Fixture) {
    let mut keys = words(3_000, 8);
    let source = fixture.device.buffer(&keys).unwrap();
    let memory = poisoned::<u32>(fixture, 3_200);
    let mut sort = Sort::<u32>::ascending(&fixture.device).unwrap();
    // More room than keys, from an offset that adapters can bind, and from one that they cannot.
    for start in [64, 37] {
        memory.fill(POISON, ..).unwrap();
        let sink = Values::from(&memory).slice(start..).unwrap();
        sort.run(Values::from(&source).slice(1..).unwrap(), sink)
            .unwrap();
        let mut expected = vec![POISON; 3_200];
        keys[1..].sort_unstable();
        expected[start as usize..][..2_999].copy_from_slice(&keys[1..]);
        assert_same(&memory.read().unwrap(), &expected, "beside");
    }
}

fn arguments_that_do_not_fit_each_other(fixture: &Fixture) {
    let (a, b) = (poisoned::<u32>(fixture, 10), poisoned::<u32>(fixture, 10));
    let (c, d) = (poisoned::<u32>(fixture, 10), poisoned::<u32>(fixture, 9));
    let mut sort = SortPairs::<u32, u32>::ascending(&fixture.device).unwrap();
    let refusals = [
        (sort.run(&a, &d, &b, &c), "values"),
        (sort.run(&a, &b, &d, &c), "sorted_keys"),
        (sort.run(&a, &b, &c, &d), "sorted_values"),
    ];
    for (refused, name) in refusals {
        let refused = refused.unwrap_err();
        let Error::TooShort {
            argument,
            needed: 10,
            len: 9,
        } = &refused
        else {
            panic!("{refused}");
        };
        assert_eq!(*argument, name);
    }
}

fn drawn_keys_of_few_values(fixture: &Fixture) {
    use proptest::prelude::*;
    let sort = SortPairs::<u32, u32>::ascending(&fixture.device).unwrap();
    let sort = std::cell::RefCell::new(sort);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(12)
    });
    let drawn = (0usize..6_000, any::<u32>(), 0u32..32, any::<u32>());
    let result = runner.run(&drawn, |(len, seed, rotated, mask)| {
        let mask = mask.rotate_left(rotated) & mask;
        let keys: Vec<u32> = words(len, seed).iter().map(|x| x & mask).collect();
        let values: Vec<u32> = (0..len as u32).collect();
        let found = sorted_pairs(fixture, &mut sort.borrow_mut(), &keys, &values);
        prop_assert!(found == pairs(&keys, &values, u32::cmp));
        Ok(())
    });
    result.unwrap();
}
