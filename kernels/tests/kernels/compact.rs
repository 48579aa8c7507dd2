//! Compaction.

use tombolo_kernels::{Compact, CompactFlagged, Error, Values};

use crate::data::{LENGTHS, POISON, assert_same, numbers, poisoned, words};
use crate::harness::Fixture;

crate::cases![
    values_by_a_condition_at_every_length,
    values_by_their_place,
    values_by_flags,
    all_and_none,
    what_does_not_fit_is_counted,
    nothing_beside_the_results_is_written,
    inputs_and_outputs_that_do_not_fit_each_other,
    a_condition_that_is_no_wgsl,
];

fn values_by_a_condition_at_every_length(fixture: &Fixture) {
    let mut compact = Compact::<f32>::by(&fixture.device, "value < -0.25").unwrap();
    for len in LENGTHS {
        let values = numbers(len, 1);
        let source = fixture.device.buffer(&values).unwrap();
        let (kept, count) = (
            poisoned::<f32>(fixture, len + 1),
            poisoned::<u32>(fixture, 1),
        );
        compact.run(&source, &kept, &count).unwrap();
        let expected: Vec<f32> = values.into_iter().filter(|&x| x < -0.25).collect();
        assert_eq!(count.read().unwrap(), [expected.len() as u32], "{len}");
        let found = kept.read_range(..expected.len() as u64).unwrap();
        assert_same(&found, &expected, &format!("{len}"));
        let rest = kept.read_range(expected.len() as u64..).unwrap();
        assert!(rest.iter().all(|x| x.to_bits() == POISON), "{len}");
    }
}

fn values_by_their_place(fixture: &Fixture) {
    let condition = "index % 7u == 3u && value != 0";
    let mut compact = Compact::<i32>::by(&fixture.device, condition).unwrap();
    let values: Vec<i32> = (0..10_000).map(|i| i % 5 - 2).collect();
    let source = fixture.device.buffer(&values).unwrap();
    let (kept, count) = (
        poisoned::<i32>(fixture, 10_000),
        poisoned::<u32>(fixture, 1),
    );
    compact.run(&source, &kept, &count).unwrap();
    let chosen = values
        .iter()
        .enumerate()
        .filter(|&(i, &x)| i % 7 == 3 && x != 0);
    let expected: Vec<i32> = chosen.map(|(_, &x)| x).collect();
    assert_eq!(count.read().unwrap(), [expected.len() as u32]);
    let found = kept.read_range(..expected.len() as u64).unwrap();
    assert_same(&found, &expected, "places");
}

fn values_by_flags(fixture: &Fixture) {
    let mut compact = CompactFlagged::<u32>::new(&fixture.device).unwrap();
    for len in [0, 1, 2_048, 30_001] {
        let (values, noise) = (words(len, 2), words(len, 3));
        // Any bit makes a flag.
        let flags: Vec<u32> = noise.iter().map(|x| x & (x >> 3) & 0x8000_0010).collect();
        let source = fixture.device.buffer(&values).unwrap();
        // More flags than values.
        let longer = [&flags[..], &[1; 5]].concat();
        let longer = fixture.device.buffer(&longer).unwrap();
        let (kept, count) = (
            poisoned::<u32>(fixture, len + 1),
            poisoned::<u32>(fixture, 1),
        );
        compact.run(&source, &longer, &kept, &count).unwrap();
        let chosen = values.iter().zip(&flags).filter(|&(_, &flag)| flag != 0);
        let mut expected: Vec<u32> = chosen.map(|(&x, _)| x).collect();
        assert_eq!(count.read().unwrap(), [expected.len() as u32], "{len}");
        expected.resize(len + 1, POISON);
        assert_same(&kept.read().unwrap(), &expected, &format!("{len}"));
    }
}

fn all_and_none(fixture: &Fixture) {
    let values = words(5_000, 4);
    let source = fixture.device.buffer(&values).unwrap();
    for (condition, expected) in [("true", &values[..]), ("false", &[])] {
        let mut compact = Compact::<u32>::by(&fixture.device, condition).unwrap();
        let (kept, count) = (poisoned::<u32>(fixture, 5_000), poisoned::<u32>(fixture, 1));
        compact.run(&source, &kept, &count).unwrap();
        assert_eq!(count.read().unwrap(), [expected.len() as u32]);
        let mut all = expected.to_vec();
        all.resize(5_000, POISON);
        assert_same(&kept.read().unwrap(), &all, condition);
    }
}

fn what_does_not_fit_is_counted(fixture: &Fixture) {
    let values: Vec<u32> = (0..6_000).collect();
    let source = fixture.device.buffer(&values).unwrap();
    let kept = poisoned::<u32>(fixture, 2_100);
    let count = poisoned::<u32>(fixture, 1);
    let mut compact = Compact::<u32>::by(&fixture.device, "value % 2u == 1u").unwrap();
    compact.run(&source, &kept, &count).unwrap();
    assert_eq!(count.read().unwrap(), [3_000]);
    let expected: Vec<u32> = (0..2_100).map(|i| 2 * i + 1).collect();
    assert_same(&kept.read().unwrap(), &expected, "the first ones");
}

fn nothing_beside_the_results_is_written(fixture: &Fixture) {
    let values: Vec<u32> = (0..3_000).collect();
    let source = fixture.device.buffer(&values).unwrap();
    let memory = poisoned::<u32>(fixture, 4_000);
    let counts = poisoned::<u32>(fixture, 3);
    let mut compact = Compact::<u32>::by(&fixture.device, "value >= 10u").unwrap();
    let kept = Values::from(&memory).slice(64..3_064).unwrap();
    let count = Values::from(&counts).slice(1..2).unwrap();
    let part = Values::from(&source).slice(5..).unwrap();
    compact.run(part, kept, count).unwrap();
    assert_eq!(counts.read().unwrap(), [POISON, 2_990, POISON]);
    let mut expected = vec![POISON; 64];
    expected.extend(10..3_000);
    expected.resize(4_000, POISON);
    assert_same(&memory.read().unwrap(), &expected, "beside");
}

fn inputs_and_outputs_that_do_not_fit_each_other(fixture: &Fixture) {
    let buffer = poisoned::<u32>(fixture, 100);
    let (kept, count) = (poisoned::<u32>(fixture, 100), poisoned::<u32>(fixture, 1));
    let mut compact = CompactFlagged::<u32>::new(&fixture.device).unwrap();
    let few = Values::from(&kept).slice(..99).unwrap();
    let none = Values::from(&count).slice(..0).unwrap();
    let refusals = [
        (compact.run(&buffer, &few, &kept, &count), "flags", 100),
        (compact.run(&buffer, &buffer, &none, &count), "kept", 1),
        (compact.run(&buffer, &buffer, &kept, &none), "count", 1),
    ];
    for (refused, name, least) in refusals {
        let refused = refused.unwrap_err();
        let Error::TooShort {
            argument, needed, ..
        } = &refused
        else {
            panic!("{refused}");
        };
        assert_eq!((*argument, *needed), (name, least));
    }
}

fn a_condition_that_is_no_wgsl(fixture: &Fixture) {
    let refused = Compact::<u32>::by(&fixture.device, "value").unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, Error::Kernel(_)), "{text}");
    assert!(text.contains("choice.wgsl"), "{text}");
}
