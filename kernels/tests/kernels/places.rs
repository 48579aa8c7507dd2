//! Inputs and outputs of every kind of memory.

use tombolo_kernels::{Reduce, Scan, Sum, Values};

use crate::data::{POISON, words};
use crate::harness::Fixture;

crate::cases![
    buffers_of_the_context,
    pointers_into_the_heap,
    parts_of_all_kinds_together,
    the_event_is_that_of_the_last_launch,
];

fn scan_of(values: &[u32]) -> Vec<u32> {
    let step = |sum: &mut u32, &value: &u32| {
        *sum = sum.wrapping_add(value);
        Some(*sum)
    };
    values.iter().scan(0, step).collect()
}

fn buffers_of_the_context(fixture: &Fixture) {
    let values = words(9_999, 1);
    let source = fixture.context.buffer_from(&values).unwrap();
    let sink = fixture.context.buffer_from(&[POISON; 9_999]).unwrap();
    let mut scan = Scan::<u32, Sum>::inclusive(&fixture.device).unwrap();
    scan.run(&source, &sink).unwrap();
    assert!(sink.read().unwrap() == scan_of(&values));
}

fn pointers_into_the_heap(fixture: &Fixture) {
    let heap = fixture.context.heap().unwrap();
    let values = words(9_999, 2);
    let source = heap.alloc_slice(&values).unwrap();
    let sink = heap.alloc_slice(&[POISON; 9_999]).unwrap();
    let mut scan = Scan::<u32, Sum>::inclusive(&fixture.device).unwrap();
    scan.run((source, 9_999), (sink, 9_999)).unwrap();
    assert!(heap.read(sink, 9_999).unwrap() == scan_of(&values));
    heap.free(source).unwrap();
    heap.free(sink).unwrap();
}

fn parts_of_all_kinds_together(fixture: &Fixture) {
    let heap = fixture.context.heap().unwrap();
    let values = words(5_000, 3);
    let expected = values[17..4_711]
        .iter()
        .fold(0u32, |a, &b| a.wrapping_add(b));
    let pointer = heap.alloc_slice(&values).unwrap();
    let sources = [
        Values::from(&fixture.device.buffer(&values).unwrap()),
        Values::from(&fixture.context.buffer_from(&values).unwrap()),
        Values::from((pointer, values.len())),
    ];
    let (device, context) = (
        fixture.device.buffer(&[POISON; 9]).unwrap(),
        fixture.context.buffer_from(&[POISON; 9]).unwrap(),
    );
    let shared = heap.alloc_slice(&[POISON; 9]).unwrap();
    let mut reduce = Reduce::<u32, Sum>::new(&fixture.device).unwrap();
    for (i, source) in (1..).zip(&sources) {
        // Parts of parts.
        let part = source.slice(10..4_900).unwrap().slice(7..4_701).unwrap();
        for sink in [
            Values::from(&device),
            Values::from(&context),
            Values::from((shared, 9)),
        ] {
            reduce.run(&part, sink.slice(2 * i..).unwrap()).unwrap();
        }
    }
    let mut all = [POISON; 9];
    (1..=3).for_each(|i| all[2 * i] = expected);
    assert_eq!(device.read().unwrap(), all);
    assert_eq!(context.read().unwrap(), all);
    assert_eq!(heap.read(shared, 9).unwrap(), all);
    heap.free(pointer).unwrap();
    heap.free(shared).unwrap();
}

fn the_event_is_that_of_the_last_launch(fixture: &Fixture) {
    let source = fixture.device.buffer(&words(100_000, 4)).unwrap();
    let sink = fixture.device.buffer(&[POISON; 100_000]).unwrap();
    let mut scan = Scan::<u32, Sum>::inclusive(&fixture.device).unwrap();
    let event = scan.run(&source, &sink).unwrap();
    event.wait().unwrap();
    // All commands have ended by then, since they run in order: a read has nothing to wait for.
    assert!(event.error().is_none());
    assert!(sink.read().unwrap() == scan_of(&words(100_000, 4)));
    let none = Values::from(&source).slice(..0).unwrap();
    scan.run(&none, &sink).unwrap().wait().unwrap();
}
