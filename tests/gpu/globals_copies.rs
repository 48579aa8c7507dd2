//! Copies to and from device globals, what they wait for, and what makes them fail.

use crate::cases;
use crate::globals::{each, every_device, kernel};
use crate::harness::Fixture;
use tombolo::{
    Context, Device, DeviceGlobal, Event, Launch,
    buffers::ReadError,
    device::{EventStatus, ExecutionError, WaitError},
    globals::{GlobalError, InitMode},
};

cases![
    copies_take_counts_and_starts_and_wait_for_events,
    commands_wait_for_events_of_other_devices,
    a_failed_event_of_another_device_refuses_the_command,
    bytes_are_copied_at_any_alignment,
    copies_between_variables_and_buffers_stay_in_the_batch,
    copies_with_pointers_context_buffers_and_other_variables,
    variables_that_nobody_initialises_keep_their_values,
    ranges_beyond_the_variable_are_invalid,
    a_failed_launch_is_told_by_what_it_would_have_written,
];

fn copies_take_counts_and_starts_and_wait_for_events(f: &Fixture) {
    static TABLE: DeviceGlobal<[u32; 16]> = DeviceGlobal::new("table");
    const FILL: &str = "
        var<storage, read_write> table: array<u32, 16>;
        @compute @workgroup_size(16)
        fn main(@builtin(local_invocation_index) i: u32) { table[i] = table[i] * 2u + i; }";
    each(f, |device| {
        let kernel = kernel(device, FILL, "main");
        let mut model = [0u32; 16];
        let step = |model: &mut [u32; 16]| {
            (0..16).for_each(|i| model[i] = model[i] * 2 + i as u32);
            kernel.launch().invocations(16).submit().unwrap()
        };
        // Copying in before any launch has used it, and without waiting for anything.
        TABLE.on(device).copy_in(&[7u32, 8, 9], 2).unwrap();
        model[2..5].copy_from_slice(&[7, 8, 9]);
        let first = step(&mut model);
        // One event, several, and none again.
        let second = TABLE
            .on(device)
            .after([&first])
            .copy_in(&[1u32, 2], 14)
            .unwrap();
        model[14..].copy_from_slice(&[1, 2]);
        let third = step(&mut model);
        let out = TABLE
            .on(device)
            .after([&first, &second, &third])
            .copy_out::<u32>(3, 13)
            .unwrap();
        assert_eq!(out.wait().unwrap(), model[3..]);
        let all = TABLE.on(device).read_back().unwrap().wait().unwrap();
        assert_eq!(all, [model]);
        // Elements of another type of a size that divides the variable's.
        TABLE
            .on(device)
            .copy_in(&[[5u32, 6], [7, 8]], 1)
            .unwrap()
            .wait()
            .unwrap();
        model[2..6].copy_from_slice(&[5, 6, 7, 8]);
        let pairs = TABLE
            .on(device)
            .copy_out::<[u32; 2]>(1, 2)
            .unwrap()
            .wait()
            .unwrap();
        assert_eq!(pairs, [[5, 6], [7, 8]]);
        assert_eq!(TABLE.on(device).get(4).unwrap(), 7);
        assert_eq!(
            TABLE
                .on(device)
                .copy_out::<u32>(16, 0)
                .unwrap()
                .wait()
                .unwrap(),
            [0; 0]
        );
        assert_eq!(TABLE.on(device).read().unwrap(), model);
    });
}

fn commands_wait_for_events_of_other_devices(f: &Fixture) {
    static VALUE: DeviceGlobal<u32> = DeviceGlobal::new("value");
    let source = "
        var<storage, read_write> value: u32;
        @compute @workgroup_size(1) fn main() { value += 5u; }";
    let devices: Vec<Device> = every_device(&Context::new().unwrap());
    let one = f.open(|_| {});
    let events: Vec<Event> = devices
        .iter()
        .map(|device| {
            kernel(device, source, "main")
                .launch()
                .invocations(1)
                .submit()
                .unwrap()
        })
        .collect();
    VALUE
        .on(&one)
        .after(&events)
        .write(&1)
        .unwrap()
        .wait()
        .unwrap();
    for (device, event) in devices.iter().zip(&events) {
        assert_eq!(event.status(), EventStatus::Complete);
        assert_eq!(VALUE.on(device).after(&events).read().unwrap(), 5);
    }
    assert_eq!(VALUE.on(&one).read().unwrap(), 1);
}

fn a_failed_event_of_another_device_refuses_the_command(f: &Fixture) {
    static VALUE: DeviceGlobal<u32> = DeviceGlobal::new("value");
    for failing in failing(f) {
        let other = f.open(|_| {});
        let event = failing.launch.clone().submit().unwrap();
        let error = VALUE.on(&other).after([&event]).write(&1).unwrap_err();
        assert!(matches!(error, GlobalError::Dependency { .. }), "{error}");
        let error = VALUE.on(&other).after([&event]).read().unwrap_err();
        assert!(matches!(error, GlobalError::Dependency { .. }), "{error}");
        assert_eq!(VALUE.on(&other).read().unwrap(), 0);
        // On its own device the failure travels with what the launch has written, and with nothing else.
        VALUE.on(&failing.device).after([&event]).write(&1).unwrap();
        let _ = failing.device.heap().unwrap().host();
        assert_eq!(VALUE.on(&failing.device).after([&event]).read().unwrap(), 1);
    }
}

/// A launch that fails after it was submitted.
struct Failing {
    device: Device,
    launch: Launch,
    is_right: fn(&ExecutionError) -> bool,
}

/// Launches that fail on this adapter, having globals at a binding of their own or behind the heap's.
fn failing(f: &Fixture) -> Vec<Failing> {
    let source = |failure: &str| {
        format!(
            "var<storage, read_write> turns: u32;
             var<storage, read_write> beside: u32;
             var<storage, read> limit: u32;
             @compute @workgroup_size(1) fn main() {{ beside = limit; {failure} }}"
        )
    };
    let make = |device: Device, failure: &str, is_right| {
        let launch = kernel(&device, &source(failure), "main")
            .launch()
            .invocations(1);
        Failing {
            device,
            launch,
            is_right,
        }
    };
    let mut all = Vec::new();
    for unified in [None, Some(false)] {
        let device = f.open_alone(|options| {
            options.checked_pointers = true;
            options.unified_memory = unified;
        });
        let null = "let p = usm_u32(usm_null()); *p = 3u; turns = 4u;";
        all.push(make(device, null, |e| {
            matches!(e, ExecutionError::Pointer { .. })
        }));
        if f.is_lavapipe() {
            let device = f.open_alone(|options| options.unified_memory = unified);
            let endless = "for (var i = 0u; i < 1000000u; i++) { turns += 1u; if turns > 900000u { break; } }";
            all.push(make(device, endless, |e| {
                matches!(e, ExecutionError::LoopCut { .. })
            }));
        }
    }
    all
}

fn bytes_are_copied_at_any_alignment(f: &Fixture) {
    static RAW: DeviceGlobal<[u8; 24]> = DeviceGlobal::new("raw");
    each(f, |device| {
        let mut model = [0u8; 24];
        let mut seed = 1u32;
        for round in 0..40u8 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let offset = (seed >> 8) as usize % 24;
            let len = (seed >> 16) as usize % (25 - offset);
            let bytes: Vec<u8> = (0..len as u8).map(|i| i.wrapping_mul(7) ^ round).collect();
            RAW.on(device).memcpy_in(&bytes, offset).unwrap();
            model[offset..offset + len].copy_from_slice(&bytes);
            let out = RAW.on(device).memcpy_out(offset / 2, 24 - offset).unwrap();
            assert_eq!(
                out.wait().unwrap(),
                model[offset / 2..offset / 2 + 24 - offset]
            );
        }
        assert_eq!(RAW.on(device).read().unwrap(), model);
    });
}

fn copies_between_variables_and_buffers_stay_in_the_batch(f: &Fixture) {
    static FROM: DeviceGlobal<[u32; 8]> = DeviceGlobal::new("from_values");
    static INTO: DeviceGlobal<[u32; 8]> = DeviceGlobal::new("into_values");
    const DOUBLE: &str = "
        var<storage, read_write> from_values: array<u32, 8>;
        @compute @workgroup_size(8)
        fn main(@builtin(local_invocation_index) i: u32) { from_values[i] *= 2u; }";
    each(f, |device| {
        let double = kernel(device, DOUBLE, "main");
        let buffer = device.buffer(&[100u32; 10]).unwrap();
        FROM.on(device).write(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        device.finish().unwrap();
        let submissions = device.cache_statistics().submissions;
        let event = double.launch().invocations(8).submit().unwrap();
        FROM.on(device)
            .after([&event])
            .copy_to_buffer(2, &buffer, 1, 5)
            .unwrap();
        double.launch().invocations(8).submit().unwrap();
        INTO.on(device).copy_from_buffer(3, &buffer, 2, 4).unwrap();
        if device.has(tombolo::device::Aspect::HostImport)
            || !device.has(tombolo::device::Aspect::UnifiedMemory)
        {
            assert_eq!(device.cache_statistics().submissions, submissions);
        }
        assert_eq!(
            buffer.read().unwrap(),
            [100, 6, 8, 10, 12, 14, 100, 100, 100, 100]
        );
        assert_eq!(
            FROM.on(device).read().unwrap(),
            [4, 8, 12, 16, 20, 24, 28, 32]
        );
        assert_eq!(INTO.on(device).read().unwrap(), [0, 0, 0, 8, 10, 12, 14, 0]);
        // Of any bytes: exactly they are written.
        let bytes = device.buffer(&[1u8; 8]).unwrap();
        FROM.on(device).copy_from_buffer(1, &bytes, 1, 3).unwrap();
        let seen = FROM.on(device).get(0).unwrap();
        assert_eq!(seen.to_le_bytes(), [4, 1, 1, 1]);
        let error = FROM
            .on(device)
            .copy_from_buffer(5, &buffer, 0, 4)
            .unwrap_err();
        assert!(error.is_invalid(), "{error}");
        let error = FROM
            .on(device)
            .copy_from_buffer(0, &buffer, 9, 2)
            .unwrap_err();
        assert!(matches!(error, GlobalError::Buffer { .. }), "{error}");
        let elsewhere = f.device.buffer(&[0u32; 8]).unwrap();
        let error = FROM
            .on(device)
            .copy_to_buffer(0, &elsewhere, 0, 8)
            .unwrap_err();
        assert!(matches!(error, GlobalError::Buffer { .. }), "{error}");
    });
}

fn ranges_beyond_the_variable_are_invalid(f: &Fixture) {
    static SMALL: DeviceGlobal<[u32; 4]> = DeviceGlobal::new("small");
    static SINGLE: DeviceGlobal<u32> = DeviceGlobal::new("single");
    each(f, |device| {
        let submissions = |device: &Device| device.cache_statistics().submissions;
        SMALL
            .on(device)
            .write(&[1, 2, 3, 4])
            .unwrap()
            .wait()
            .unwrap();
        let before = submissions(device);
        let on = SMALL.on(device);
        let errors = [
            on.copy_in(&[0u32; 5], 0).unwrap_err(),
            on.copy_in(&[0u32; 2], 3).unwrap_err(),
            on.copy_in(&[0u32; 1], usize::MAX).unwrap_err(),
            on.copy_out::<u32>(1, 4).unwrap_err(),
            on.copy_out::<u32>(5, 0).unwrap_err(),
            on.copy_out::<[u32; 2]>(1, 2).unwrap_err(),
            on.memcpy_in(&[0; 17], 0).unwrap_err(),
            on.memcpy_in(&[0; 2], 15).unwrap_err(),
            on.memcpy_out(3, 14).unwrap_err(),
            on.memcpy_out(usize::MAX, usize::MAX).unwrap_err(),
            on.get(4).unwrap_err(),
            on.set(4, &9).unwrap_err(),
            SINGLE.on(device).copy_in(&[1u32], 1).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, GlobalError::Invalid { .. }), "{error}");
            assert!(error.is_invalid());
            assert!(error.to_string().contains("`s"), "{error}");
        }
        device.finish().unwrap();
        assert!(submissions(device) <= before + 2, "something was submitted");
        assert_eq!(SMALL.on(device).read().unwrap(), [1, 2, 3, 4]);
    });
}

fn a_failed_launch_is_told_by_what_it_would_have_written(f: &Fixture) {
    static TURNS: DeviceGlobal<u32> = DeviceGlobal::new("turns");
    static BESIDE: DeviceGlobal<u32> = DeviceGlobal::new("beside");
    static LIMIT: DeviceGlobal<u32> = DeviceGlobal::new("limit");
    let inherit = "
        var<storage, read> turns: u32;
        @group(0) @binding(0) var<storage, read_write> sink: u32;
        @compute @workgroup_size(1) fn main() { sink = turns; }";
    for Failing {
        device,
        mut launch,
        is_right,
    } in failing(f)
    {
        LIMIT.on(&device).write(&11).unwrap();
        let event = launch.submit().unwrap();
        assert!(matches!(event.wait(), Err(WaitError::Failed(error)) if is_right(&error)));
        for error in [
            TURNS.on(&device).read().unwrap_err(),
            BESIDE.on(&device).read().unwrap_err(),
        ] {
            let GlobalError::Read {
                source: ReadError::Execution(error),
                ..
            } = &error
            else {
                panic!("{error}")
            };
            assert!(is_right(error), "{error}");
        }
        // Copies and launches pass the failure on.
        let buffer = device.buffer(&[1u32, 2]).unwrap();
        TURNS.on(&device).copy_to_buffer(0, &buffer, 1, 1).unwrap();
        assert!(buffer.read().is_err());
        assert_eq!(buffer.read_range(0..1).unwrap(), [1]);
        let sink = device.zeroed::<u32>(1).unwrap();
        let event = kernel(&device, inherit, "main")
            .launch()
            .buffer("sink", &sink)
            .invocations(1)
            .submit()
            .unwrap();
        assert!(matches!(event.wait(), Err(WaitError::Failed(_))));
        assert!(sink.read().is_err());
        // What nobody but a stray pointer could have written is told of by the heap, and of that once.
        let _ = device.heap().unwrap().host();
        assert_eq!(LIMIT.on(&device).read().unwrap(), 11);
        // Until it is overwritten.
        TURNS.on(&device).write(&5).unwrap();
        assert_eq!(TURNS.on(&device).read().unwrap(), 5);
        assert!(BESIDE.on(&device).read().is_err());
        device.reset_globals().unwrap();
        assert_eq!(BESIDE.on(&device).read().unwrap(), 0);
    }
}

fn copies_with_pointers_context_buffers_and_other_variables(f: &Fixture) {
    static ONE: DeviceGlobal<[u32; 8]> = DeviceGlobal::new("one_of_two");
    static TWO: DeviceGlobal<[u32; 8]> = DeviceGlobal::new("two_of_two");
    const DOUBLE: &str = "
        var<storage, read_write> one_of_two: array<u32, 8>;
        @compute @workgroup_size(8)
        fn main(@builtin(local_invocation_index) i: u32) { one_of_two[i] *= 2u; }";
    each(f, |device| {
        let double = kernel(device, DOUBLE, "main");
        ONE.on(device).write(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        TWO.on(device).write(&[50; 8]).unwrap();
        double.launch().invocations(8).submit().unwrap();
        // Behind pointers: the heap's memory and the device's own.
        let own = device.malloc::<u32>(8).unwrap();
        ONE.on(device).copy_to_pointer(2, own, 5).unwrap();
        double.launch().invocations(8).submit().unwrap();
        TWO.on(device).copy_from_pointer(1, own, 5).unwrap();
        assert_eq!(
            TWO.on(device).read().unwrap(),
            [50, 6, 8, 10, 12, 14, 50, 50]
        );
        // Between variables, and inside one.
        let (one, two) = (ONE.on(device), TWO.on(device));
        one.copy_to_global::<u32, _, _, _>(0, &two, 5, 3).unwrap();
        two.copy_to_global::<u32, _, _, _>(4, &two, 2, 4).unwrap();
        assert_eq!(two.read().unwrap(), [50, 6, 12, 4, 8, 12, 8, 12]);
        // Buffers of the context.
        let buffer = f.context.buffer::<u32>(6).unwrap();
        buffer.write(0, &[9; 6]).unwrap();
        one.copy_to_context_buffer(1, &buffer, 2, 3).unwrap();
        assert_eq!(buffer.read().unwrap(), [9, 9, 8, 12, 16, 9]);
        two.copy_from_context_buffer(6, &buffer, 4, 2).unwrap();
        assert_eq!(two.read().unwrap()[5..], [12, 16, 9]);
        // Nothing is copied beyond any end.
        for error in [
            one.copy_to_pointer(5, own, 4).unwrap_err(),
            one.copy_from_pointer(9, own, 1).unwrap_err(),
            one.copy_to_global::<u32, _, _, _>(0, &two, 6, 3)
                .unwrap_err(),
            one.copy_to_context_buffer(6, &buffer, 0, 3).unwrap_err(),
        ] {
            assert!(error.is_invalid(), "{error}");
        }
        for error in [
            one.copy_from_context_buffer(0, &buffer, 4, 3).unwrap_err(),
            one.copy_to_context_buffer(0, &buffer, 4, 3).unwrap_err(),
        ] {
            assert!(
                matches!(error, GlobalError::ContextBuffer { .. }),
                "{error}"
            );
        }
        let null = tombolo::Ptr::<u32>::null();
        for error in [
            one.copy_from_pointer(0, null, 1).unwrap_err(),
            one.copy_to_pointer(0, null, 1).unwrap_err(),
        ] {
            assert!(matches!(error, GlobalError::Heap { .. }), "{error}");
        }
        let error = one.copy_to_global::<u32, _, _, _>(0, &TWO.on(&f.device), 0, 1);
        assert!(
            matches!(error, Err(GlobalError::Buffer { .. })),
            "{error:?}"
        );
        one.copy_to_pointer(8, null, 0).unwrap();
        one.copy_from_pointer(8, null, 0).unwrap();
        assert_eq!(two.read().unwrap(), [50, 6, 12, 4, 8, 12, 16, 9]);
        device.free(own).unwrap();
    });
}

fn variables_that_nobody_initialises_keep_their_values(f: &Fixture) {
    static KEPT: DeviceGlobal<[u32; 4]> = DeviceGlobal::new("kept").init_mode(InitMode::Never);
    static BEGUN: DeviceGlobal<[u32; 4]> = DeviceGlobal::new("begun")
        .init_mode(InitMode::Never)
        .initial(&[1, 2, 3, 4]);
    each(f, |device| {
        KEPT.on(device).write(&[9, 8, 7, 6]).unwrap();
        assert_eq!(BEGUN.on(device).get(2).unwrap(), 3);
        BEGUN.on(device).set(2, &30).unwrap();
        device.reset_globals().unwrap();
        device.reprogram_globals().unwrap();
        assert_eq!(KEPT.on(device).read().unwrap(), [9, 8, 7, 6]);
        assert_eq!(BEGUN.on(device).read().unwrap(), [1, 2, 30, 4]);
    });
}
