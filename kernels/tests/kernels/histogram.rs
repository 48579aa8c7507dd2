//! Histograms.

use tombolo_kernels::{Error, Histogram, Values};

use crate::data::{LENGTHS, POISON, assert_same, integers, numbers, poisoned, words};
use crate::harness::Fixture;

crate::cases![
    bins_of_words_at_every_length,
    numbers_of_bins,
    bins_of_equal_width,
    bins_by_an_expression,
    inputs_in_pieces,
    one_bin_for_all,
    bins_that_cannot_be_had,
    nothing_beside_the_counters_is_written,
];

fn counted(bins: usize, of: impl Iterator<Item = usize>) -> Vec<u32> {
    let mut counts = vec![0; bins];
    of.filter(|&bin| bin < bins)
        .for_each(|bin| counts[bin] += 1);
    counts
}

fn bins_of_words_at_every_length(fixture: &Fixture) {
    let mut histogram = Histogram::<u32>::new(&fixture.device, 100).unwrap();
    let counts = poisoned::<u32>(fixture, 100);
    for len in LENGTHS {
        // Some values have no bin.
        let values: Vec<u32> = words(len, 1).iter().map(|x| x % 111).collect();
        let source = fixture.device.buffer(&values).unwrap();
        histogram.run(&source, &counts).unwrap();
        let expected = counted(100, values.iter().map(|&x| x as usize));
        assert_same(&counts.read().unwrap(), &expected, &format!("{len}"));
    }
}

fn numbers_of_bins(fixture: &Fixture) {
    let values: Vec<u32> = words(50_000, 2).iter().map(|x| x % 20_000).collect();
    let source = fixture.device.buffer(&values).unwrap();
    // The last do not fit the memory of a work-group.
    for bins in [1, 2, 255, 256, 257, 1_000, 20_001] {
        let mut histogram = Histogram::<u32>::new(&fixture.device, bins).unwrap();
        let counts = poisoned::<u32>(fixture, bins as usize);
        histogram.run(&source, &counts).unwrap();
        let expected = counted(bins as usize, values.iter().map(|&x| x as usize));
        assert_same(&counts.read().unwrap(), &expected, &format!("{bins}"));
    }
}

fn bins_of_equal_width(fixture: &Fixture) {
    let mut values = numbers(50_000, 3);
    values.extend([-0.5, 0.75, 0.749_999_94, f32::INFINITY, f32::NEG_INFINITY]);
    let source = fixture.device.buffer(&values).unwrap();
    let (start, end) = (-0.5f32, 0.75f32);
    let mut histogram = Histogram::even(&fixture.device, 37, start..end).unwrap();
    let counts = poisoned::<u32>(fixture, 37);
    histogram.run(&source, &counts).unwrap();
    let scale = 37.0 / (end - start);
    let inside = values.iter().filter(|&&x| x >= start && x < end);
    let bins = inside.map(|&x| (((x - start) * scale) as usize).min(36));
    assert_same(&counts.read().unwrap(), &counted(37, bins), "widths");
}

fn bins_by_an_expression(fixture: &Fixture) {
    let values = integers(30_000, 4);
    let source = fixture.device.buffer(&values).unwrap();
    let bin = "countOneBits(bitcast<u32>(value))";
    let mut histogram = Histogram::<i32>::by(&fixture.device, 33, bin).unwrap();
    let counts = poisoned::<u32>(fixture, 33);
    histogram.run(&source, &counts).unwrap();
    let expected = counted(33, values.iter().map(|x| x.count_ones() as usize));
    assert_same(&counts.read().unwrap(), &expected, "bits");
}

fn inputs_in_pieces(fixture: &Fixture) {
    let values: Vec<u32> = words(20_000, 5).iter().map(|x| x % 16).collect();
    let source = fixture.device.buffer(&values).unwrap();
    let source = Values::from(&source);
    let mut histogram = Histogram::<u32>::new(&fixture.device, 16).unwrap();
    let counts = poisoned::<u32>(fixture, 16);
    histogram
        .run(source.slice(..7_001).unwrap(), &counts)
        .unwrap();
    histogram
        .add(source.slice(7_001..7_001).unwrap(), &counts)
        .unwrap();
    histogram
        .add(source.slice(7_001..).unwrap(), &counts)
        .unwrap();
    let expected = counted(16, values.iter().map(|&x| x as usize));
    assert_same(&counts.read().unwrap(), &expected, "pieces");
}

fn one_bin_for_all(fixture: &Fixture) {
    let source = fixture.device.buffer(&[3u32; 100_000]).unwrap();
    let counts = poisoned::<u32>(fixture, 5);
    let mut histogram = Histogram::<u32>::new(&fixture.device, 5).unwrap();
    histogram.run(&source, &counts).unwrap();
    assert_eq!(counts.read().unwrap(), [0, 0, 0, 100_000, 0]);
}

fn bins_that_cannot_be_had(fixture: &Fixture) {
    let device = &fixture.device;
    let none = Histogram::<u32>::new(device, 0).map(drop);
    assert!(matches!(none, Err(Error::Bins { bins: 0, .. })), "{none:?}");
    for range in [
        1.0..1.0,
        2.0..1.0,
        f32::NAN..1.0,
        0.0..f32::INFINITY,
        -f32::MAX..f32::MAX,
    ] {
        let refused = Histogram::even(device, 8, range.clone()).map(drop);
        assert!(
            matches!(refused, Err(Error::Bins { .. })),
            "{range:?}: {refused:?}"
        );
    }
    let mut histogram = Histogram::<u32>::new(device, 8).unwrap();
    let (source, counts) = (poisoned::<u32>(fixture, 8), poisoned::<u32>(fixture, 7));
    let refused = histogram.run(&source, &counts).unwrap_err();
    assert!(
        matches!(refused, Error::TooShort { needed: 8, .. }),
        "{refused}"
    );
    assert_eq!(counts.read().unwrap(), [POISON; 7]);
}

fn nothing_beside_the_counters_is_written(fixture: &Fixture) {
    let source = fixture.device.buffer(&words(9_000, 6)).unwrap();
    let memory = poisoned::<u32>(fixture, 200);
    let mut histogram = Histogram::<u32>::by(&fixture.device, 9, "value % 10u").unwrap();
    let counts = Values::from(&memory).slice(64..).unwrap();
    histogram.run(&source, counts).unwrap();
    let mut expected = vec![POISON; 200];
    let bins = words(9_000, 6).into_iter().map(|x| x as usize % 10);
    expected[64..73].copy_from_slice(&counted(9, bins));
    assert_same(&memory.read().unwrap(), &expected, "beside");
}
