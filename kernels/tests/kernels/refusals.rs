//! What is refused, and with which error.

use tombolo::launch::LaunchError;
use tombolo_kernels::{Error, Operator, Reduce, Scan, Shape, Sum, Values};

use crate::data::{POISON, poisoned, words};
use crate::harness::Fixture;

crate::cases![
    outputs_that_are_too_short,
    parts_that_are_not_there,
    shapes_that_cannot_be_had,
    an_input_that_is_the_output,
    memory_of_another_device,
    an_operator_that_is_no_wgsl,
    pointers_to_nothing,
];

fn outputs_that_are_too_short(fixture: &Fixture) {
    let source = fixture.device.buffer(&words(100, 1)).unwrap();
    let sink = poisoned::<u32>(fixture, 99);
    let mut scan = Scan::<u32, Sum>::inclusive(&fixture.device).unwrap();
    let refused = scan.run(&source, &sink).unwrap_err();
    let Error::TooShort {
        argument,
        len,
        needed,
    } = &refused
    else {
        panic!("{refused}");
    };
    assert_eq!((*argument, *len, *needed), ("sink", 99, 100));
    assert_eq!(
        format!("{refused:?}"),
        "`sink` has 99 values, and 100 are needed"
    );
    let mut reduce = Reduce::<u32, Sum>::new(&fixture.device).unwrap();
    let none = Values::from(&sink).slice(..0).unwrap();
    let refused = reduce.run(&source, none).unwrap_err();
    assert!(
        matches!(refused, Error::TooShort { needed: 1, .. }),
        "{refused}"
    );
    assert_eq!(sink.read().unwrap(), [POISON; 99]);
}

fn parts_that_are_not_there(fixture: &Fixture) {
    let buffer = poisoned::<u32>(fixture, 10);
    let values = Values::from(&buffer);
    for (start, end) in [(0, 11), (11, 11), (3, 2), (5, u64::MAX)] {
        let refused = values.slice(start..end).unwrap_err();
        assert!(
            matches!(refused, Error::OutOfRange { len: 10, .. }),
            "{refused}"
        );
    }
    // Of a part, the part's own end counts.
    let refused = values.slice(2..6).unwrap().slice(..5).unwrap_err();
    assert!(
        matches!(refused, Error::OutOfRange { len: 4, .. }),
        "{refused}"
    );
    assert!(values.slice(10..).unwrap().is_empty());
}

fn shapes_that_cannot_be_had(fixture: &Fixture) {
    for (invocations, items) in [(0, 1), (3, 1), (1 << 20, 1), (64, 0), (64, 65), (256, 64)] {
        let shape = Shape { invocations, items };
        let refused = Scan::<u32, Sum>::with_shape(&fixture.device, shape, true);
        match refused {
            Err(Error::Shape { .. }) => {}
            // As much memory as this some adapters have.
            Ok(_) if items == 64 => {}
            other => panic!("{shape:?}: {other:?}"),
        }
    }
}

fn an_input_that_is_the_output(fixture: &Fixture) {
    let buffer = poisoned::<u32>(fixture, 100);
    let mut scan = Scan::<u32, Sum>::inclusive(&fixture.device).unwrap();
    let refused = scan.run(&buffer, &buffer).unwrap_err();
    let Error::Launch(inner) = &refused else {
        panic!("{refused}");
    };
    assert!(matches!(**inner, LaunchError::Aliased { .. }), "{refused}");
    assert_eq!(buffer.read().unwrap(), [POISON; 100]);
}

fn memory_of_another_device(fixture: &Fixture) {
    let other = fixture.open(|_| {});
    let source = other.buffer(&words(100, 1)).unwrap();
    let sink = poisoned::<u32>(fixture, 100);
    let mut scan = Scan::<u32, Sum>::inclusive(&fixture.device).unwrap();
    let refused = scan.run(&source, &sink).unwrap_err();
    let Error::Launch(inner) = &refused else {
        panic!("{refused}");
    };
    assert!(
        matches!(**inner, LaunchError::OtherDevice { .. }),
        "{refused}"
    );
}

/// Names a function that there is not.
#[derive(Debug)]
struct Faulty;

impl Operator<u32> for Faulty {
    const IDENTITY: &'static str = "0u";
    const COMBINE: &'static str = "missing(a, b)";
}

fn an_operator_that_is_no_wgsl(fixture: &Fixture) {
    let refused = Reduce::<u32, Faulty>::new(&fixture.device).unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, Error::Kernel(_)), "{text}");
    assert!(
        text.contains("operator.wgsl") && text.contains("missing"),
        "{text}"
    );
}

fn pointers_to_nothing(fixture: &Fixture) {
    let sink = poisoned::<u32>(fixture, 1);
    let mut reduce = Reduce::<u32, Sum>::new(&fixture.device).unwrap();
    let refused = reduce.run((tombolo::Ptr::null(), 5), &sink).unwrap_err();
    let Error::Launch(inner) = &refused else {
        panic!("{refused}");
    };
    assert!(matches!(**inner, LaunchError::Heap(_)), "{refused}");
}
