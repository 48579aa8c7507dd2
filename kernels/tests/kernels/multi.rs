//! Primitives of several devices.

use tombolo::{Device, launch::LaunchError};
use tombolo_kernels::{Error, Max, MultiHistogram, MultiReduce, MultiScan, Scan, Sum, Values};

use crate::data::{POISON, assert_same, integers, numbers, poisoned, words};
use crate::harness::Fixture;

crate::cases![
    reductions_by_two_devices,
    scans_by_two_devices,
    histograms_by_two_devices,
    more_devices_than_parts,
    a_scan_after_another,
    parts_of_buffers_and_of_the_heap,
    what_is_refused,
];

const LENGTHS: [usize; 11] = [0, 1, 63, 64, 65, 127, 129, 257, 10_000, 100_003, 200_064];

/// The device under test with another one of the same adapter, and with one of every other adapter.
fn pairs(fixture: &Fixture) -> Vec<[Device; 2]> {
    let mut others = vec![fixture.open(|_| {})];
    for adapter in fixture.context.adapters() {
        if adapter.index != fixture.index {
            others.push(fixture.context.device_at(adapter.index).unwrap());
        }
    }
    let pair = |other| [fixture.device.clone(), other];
    others.into_iter().map(pair).collect()
}

fn sums(values: &[u32], start: u32, inclusive: bool) -> Vec<u32> {
    let mut running = start;
    let step = |&value: &u32| {
        let before = running;
        running = running.wrapping_add(value);
        if inclusive { running } else { before }
    };
    values.iter().map(step).collect()
}

fn reductions_by_two_devices(fixture: &Fixture) {
    for devices in pairs(fixture) {
        let mut sum = MultiReduce::<u32, Sum>::new(&fixture.context, &devices).unwrap();
        let mut max = MultiReduce::<i32, Max>::new(&fixture.context, &devices).unwrap();
        for len in LENGTHS {
            let (values, signed) = (words(len, 1), integers(len, 2));
            let source = fixture.context.buffer_from(&values).unwrap();
            let sink = fixture.context.buffer_from(&[POISON; 2]).unwrap();
            sum.run(&source, &sink).unwrap().wait().unwrap();
            let total = values.iter().fold(0u32, |a, &b| a.wrapping_add(b));
            assert_eq!(sink.read().unwrap(), [total, POISON], "{len}");
            let source = fixture.context.buffer_from(&signed).unwrap();
            let sink = fixture.context.buffer_from(&[POISON as i32]).unwrap();
            max.run(&source, &sink).unwrap();
            let largest = signed.iter().copied().max().unwrap_or(i32::MIN);
            assert_eq!(sink.read().unwrap(), [largest], "{len}");
        }
    }
}

fn scans_by_two_devices(fixture: &Fixture) {
    for devices in pairs(fixture) {
        let mut kinds = [
            (
                true,
                MultiScan::<u32, Sum>::inclusive(&fixture.context, &devices).unwrap(),
            ),
            (
                false,
                MultiScan::<u32, Sum>::exclusive(&fixture.context, &devices).unwrap(),
            ),
        ];
        for len in LENGTHS {
            let values = words(len, 3);
            let source = fixture.context.buffer_from(&values).unwrap();
            for (inclusive, scan) in &mut kinds {
                let sink = fixture.context.buffer_from(&vec![POISON; len + 1]).unwrap();
                for event in scan.run(&source, &sink).unwrap() {
                    event.wait().unwrap();
                }
                let mut expected = sums(&values, 0, *inclusive);
                expected.push(POISON);
                assert_same(&sink.read().unwrap(), &expected, &format!("{len}"));
            }
        }
    }
}

fn histograms_by_two_devices(fixture: &Fixture) {
    for devices in pairs(fixture) {
        let context = &fixture.context;
        for bins in [1, 100] {
            let mut histogram = MultiHistogram::<u32>::new(context, &devices, bins).unwrap();
            for len in LENGTHS {
                let values: Vec<u32> = words(len, 4).iter().map(|x| x % 111).collect();
                let source = context.buffer_from(&values).unwrap();
                let counts = context.buffer_from(&[POISON; 101]).unwrap();
                histogram.run(&source, &counts).unwrap();
                let mut expected = vec![POISON; 101];
                for (bin, count) in (0..bins).zip(&mut expected) {
                    *count = values.iter().filter(|&&value| value == bin).count() as u32;
                }
                assert_same(&counts.read().unwrap(), &expected, &format!("{len}"));
            }
        }
        let mut halves = MultiHistogram::even(context, &devices, 2, -1.0..1.0).unwrap();
        let values = numbers(5_000, 5);
        let source = context.buffer_from(&values).unwrap();
        let counts = context.buffer_from(&[POISON; 2]).unwrap();
        halves.run(&source, &counts).unwrap();
        let upper = values.iter().filter(|&&x| x >= 0.0).count() as u32;
        assert_eq!(counts.read().unwrap(), [5_000 - upper, upper]);
        let mut bits = MultiHistogram::<i32>::by(context, &devices, 2, "u32(value) & 1u").unwrap();
        let values = integers(5_000, 6);
        let source = context.buffer_from(&values).unwrap();
        bits.run(&source, &counts).unwrap();
        let odd = values.iter().filter(|&&x| x & 1 == 1).count() as u32;
        assert_eq!(counts.read().unwrap(), [5_000 - odd, odd]);
    }
}

fn more_devices_than_parts(fixture: &Fixture) {
    let devices = [(); 3].map(|()| fixture.open(|_| {}));
    let context = &fixture.context;
    let mut scan = MultiScan::<u32, Sum>::inclusive(context, &devices).unwrap();
    let mut histogram = MultiHistogram::<u32>::by(context, &devices, 3, "value % 3u").unwrap();
    for len in [1, 65, 129, 192, 1_000] {
        let values = words(len, 7);
        let source = context.buffer_from(&values).unwrap();
        let sink = context.buffer_from(&vec![POISON; len]).unwrap();
        scan.run(&source, &sink).unwrap();
        assert_same(
            &sink.read().unwrap(),
            &sums(&values, 0, true),
            &format!("{len}"),
        );
        let counts = context.buffer_from(&[POISON; 3]).unwrap();
        histogram.run(&source, &counts).unwrap();
        let of = |bin| values.iter().filter(|&&value| value % 3 == bin).count() as u32;
        assert_eq!(counts.read().unwrap(), [of(0), of(1), of(2)], "{len}");
    }
}

fn a_scan_after_another(fixture: &Fixture) {
    let mut scan = Scan::<u32, Sum>::exclusive(&fixture.device).unwrap();
    let carry = fixture.device.buffer(&[POISON, 5]).unwrap();
    let carry = Values::from(&carry);
    for len in [0, 1, 2_048, 2_049, 100_003] {
        let values = words(len, 8);
        let source = fixture.device.buffer(&values).unwrap();
        let sink = poisoned::<u32>(fixture, len);
        scan.run_after(&source, &sink, carry.slice(1..).unwrap())
            .unwrap();
        assert_same(
            &sink.read().unwrap(),
            &sums(&values, 5, false),
            &format!("{len}"),
        );
        let refused = scan.run_after(&source, &sink, carry.slice(2..).unwrap());
        assert!(matches!(
            refused,
            Err(Error::TooShort {
                argument: "carry",
                ..
            })
        ));
    }
}

fn parts_of_buffers_and_of_the_heap(fixture: &Fixture) {
    let heap = fixture.context.heap().unwrap();
    let values = words(9_999, 9);
    let devices = [fixture.device.clone(), fixture.open(|_| {})];
    let mut sum = MultiReduce::<u32, Sum>::new(&fixture.context, &devices).unwrap();
    let total = |values: &[u32]| values.iter().fold(0u32, |a, &b| a.wrapping_add(b));
    let pointer = heap.alloc_slice(&values).unwrap();
    let sink = fixture.context.buffer_from(&[POISON; 4]).unwrap();
    sum.run((pointer, 9_999), Values::from(&sink).slice(1..).unwrap())
        .unwrap();
    let source = fixture.context.buffer_from(&values).unwrap();
    let part = Values::from(&source).slice(17..8_001).unwrap();
    sum.run(part, Values::from(&sink).slice(2..).unwrap())
        .unwrap();
    let expected = [POISON, total(&values), total(&values[17..8_001]), POISON];
    assert_eq!(sink.read().unwrap(), expected);
    heap.free(pointer).unwrap();
}

fn what_is_refused(fixture: &Fixture) {
    let context = &fixture.context;
    let none = MultiReduce::<u32, Sum>::new(context, &[]).map(drop);
    assert!(matches!(none, Err(Error::NoDevices)), "{none:?}");
    let none = MultiScan::<u32, Sum>::inclusive(context, &[]).map(drop);
    assert!(matches!(none, Err(Error::NoDevices)), "{none:?}");
    let none = MultiHistogram::<u32>::new(context, &[], 5).map(drop);
    assert!(matches!(none, Err(Error::NoDevices)), "{none:?}");
    let devices = [fixture.device.clone(), fixture.open(|_| {})];
    let none = MultiHistogram::<u32>::new(context, &devices, 0).map(drop);
    assert!(matches!(none, Err(Error::Bins { bins: 0, .. })), "{none:?}");

    let source = context.buffer_from(&words(1_000, 10)).unwrap();
    let sink = context.buffer_from(&[POISON; 4]).unwrap();
    let mut histogram = MultiHistogram::<u32>::new(context, &devices, 5).unwrap();
    let mut scan = MultiScan::<u32, Sum>::inclusive(context, &devices).unwrap();
    let few = histogram.run(&source, &sink).map(drop);
    assert!(
        matches!(few, Err(Error::TooShort { needed: 5, .. })),
        "{few:?}"
    );
    let few = scan.run(&source, &sink).map(drop);
    assert!(
        matches!(few, Err(Error::TooShort { needed: 1_000, .. })),
        "{few:?}"
    );
    assert_eq!(sink.read().unwrap(), [POISON; 4]);

    // Memory of the first device is out of the second one's reach.
    let own = fixture.device.buffer(&words(1_000, 11)).unwrap();
    let mut sum = MultiReduce::<u32, Sum>::new(context, &devices).unwrap();
    let Err(Error::Launch(refused)) = sum.run(&own, &sink) else {
        panic!("memory of another device was taken");
    };
    assert!(
        matches!(*refused, LaunchError::OtherDevice { .. }),
        "{refused}"
    );
    assert_eq!(sink.read().unwrap(), [POISON; 4]);
}
