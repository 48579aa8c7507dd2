//! Assertions and panics of kernels: the launch fails with what, where and who, and nothing that it would have
//! written can be read.

use std::sync::Arc;

use crate::cases;
use crate::harness::Fixture;
use crate::print::{collect, kernel, lines, tiers};
use tombolo::{
    Event,
    buffers::ReadError,
    device::{ExecutionError, WaitError},
};

cases![
    an_assertion_that_holds_changes_nothing,
    an_assertion_that_fails_names_message_place_and_invocation,
    an_assertion_without_a_message_shows_its_condition,
    a_panic_is_one,
    what_a_failed_launch_wrote_cannot_be_read,
    a_failed_invocation_stops_at_once_even_in_helpers,
    invocations_that_have_not_begun_do_not_begin,
    kernels_with_barriers_go_on_to_their_end,
    messages_are_computed_only_when_needed,
    what_was_printed_before_is_delivered,
    the_first_failure_is_whole,
    a_wrong_pointer_comes_before_the_assertion_that_it_breaks,
];

fn failure(event: &Event) -> Arc<ExecutionError> {
    match event.wait() {
        Err(WaitError::Failed(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn an_assertion_that_holds_changes_nothing(f: &Fixture) {
    tiers(f, |device| {
        let kernel = kernel(
            device,
            r#"@group(0) @binding(0) var<storage, read_write> data: array<u32>;
            @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                assert(data[id.x] == id.x, "{} at {}", data[id.x], id.x);
                data[id.x] *= 2u;
                assert(data[id.x] % 2u == 0u);
            }"#,
        );
        let data = device.buffer(&(0..640).collect::<Vec<u32>>()).unwrap();
        let (options, taken) = collect();
        let launch = kernel.launch().buffer("data", &data).invocations(640);
        launch.print_to(options).submit().unwrap().wait().unwrap();
        assert!(data.read().unwrap().into_iter().eq((0..640).map(|i| i * 2)));
        assert_eq!(lines(&taken), [""; 0]);
    });
}

fn an_assertion_that_fails_names_message_place_and_invocation(f: &Fixture) {
    tiers(f, |device| {
        let kernel = kernel(
            device,
            "@group(0) @binding(0) var<storage, read_write> data: array<f32>;
fn check(x: f32, i: u32) {
    assert(x < 100.0, \"x = {:.2} at {:?}, {:#x}\", x, vec2<u32>(i, 7u), i);
}
@compute @workgroup_size(8, 4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * 16u + id.x;
    check(data[i], i);
    data[i] = 1.0;
}",
        );
        let mut values = vec![0.5f32; 128];
        values[77] = 123.456;
        let data = device.buffer(&values).unwrap();
        let launch = kernel.launch().buffer("data", &data).workgroups([2, 2]);
        let event = launch.print_to(collect().0).submit().unwrap();
        let error = failure(&event);
        let ExecutionError::Assertion {
            kernel,
            file,
            line,
            column,
            message,
            invocation,
            panicked,
            ..
        } = &*error
        else {
            panic!("{error}");
        };
        assert_eq!((kernel.as_str(), &**file), ("main", "print.wgsl"));
        assert_eq!((*line, *column, *invocation, *panicked), (3, 5, 77, false));
        assert_eq!(
            &**message,
            format!("x = {:.2} at {:?}, {:#x}", 123.456f32, [77, 7], 77)
        );
        let text = error.to_string();
        for part in [
            "print.wgsl:3:5",
            "invocation 77",
            "assert(x < 100.0",
            "kernel `main`",
        ] {
            assert!(text.contains(part), "{text}");
        }
        // The next launch of the same kernel knows nothing of it.
        let data = device.buffer(&[0.5f32; 128]).unwrap();
        let launch = kernel_again(device, &data);
        launch.wait().unwrap();
        assert_eq!(data.read().unwrap(), [1.5; 128]);
    });
}

fn kernel_again(device: &tombolo::Device, data: &tombolo::DeviceBuffer<f32>) -> Event {
    let kernel = kernel(
        device,
        r#"@group(0) @binding(0) var<storage, read_write> data: array<f32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            assert(data[id.x] < 1.0);
            data[id.x] += 1.0;
        }"#,
    );
    let launch = kernel.launch().buffer("data", data).invocations(128);
    launch.print_to(collect().0).submit().unwrap()
}

fn an_assertion_without_a_message_shows_its_condition(f: &Fixture) {
    let kernel = kernel(
        &f.device,
        "@group(0) @binding(0) var<uniform> one: u32;
@compute @workgroup_size(1) fn main() { assert(one + 1u == 3u); }",
    );
    let event = kernel.launch().value("one", &1u32).workgroups(1).submit();
    match &*failure(&event.unwrap()) {
        ExecutionError::Assertion {
            message,
            line,
            column,
            ..
        } => {
            assert_eq!(&**message, "assertion failed: one + 1u == 3u");
            assert_eq!((*line, *column), (2, 41));
        }
        other => panic!("{other}"),
    }
}

fn a_panic_is_one(f: &Fixture) {
    tiers(f, |device| {
        let kernel = kernel(
            device,
            r#"@group(0) @binding(0) var<storage, read_write> data: array<u32>;
            fn pick(x: u32) -> vec2<f32> {
                switch x { case 0: { return vec2(1.0); } case 1: { return vec2(2.0); } default: { panic("no {}", x); } }
                return vec2(3.0);
            }
            @compute @workgroup_size(1) fn main() { data[0] = u32(pick(data[0]).x); }"#,
        );
        for (given, wanted) in [(0u32, Some(1u32)), (1, Some(2)), (9, None)] {
            let data = device.buffer(&[given]).unwrap();
            let event = kernel.launch().buffer("data", &data).workgroups(1).submit();
            match (wanted, event.unwrap().wait()) {
                (Some(wanted), Ok(())) => assert_eq!(data.read().unwrap(), [wanted]),
                (None, Err(WaitError::Failed(error))) => match &*error {
                    ExecutionError::Assertion {
                        message, panicked, ..
                    } => {
                        assert_eq!((&**message, *panicked), ("no 9", true));
                        assert!(error.to_string().contains("panic: no 9"), "{error}");
                    }
                    other => panic!("{other}"),
                },
                other => panic!("{other:?}"),
            }
        }
    });
}

fn what_a_failed_launch_wrote_cannot_be_read(f: &Fixture) {
    let kernel = kernel(
        &f.device,
        r#"@group(0) @binding(0) var<storage, read> source: array<u32>;
        @group(0) @binding(1) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn main() { out[0] = source[0]; assert(source[0] < 5u); }"#,
    );
    let out = f.device.buffer(&[0xdead_beefu32]).unwrap();
    let bad = f.device.buffer(&[7u32]).unwrap();
    let good = f.device.buffer(&[3u32]).unwrap();
    let launch = kernel.launch().buffer("source", &bad).buffer("out", &out);
    launch.workgroups(1).submit().unwrap();
    match out.read() {
        Err(ReadError::Execution(error)) => {
            assert!(
                matches!(&*error, ExecutionError::Assertion { .. }),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
    // Inputs are whole, and what is written again is good again.
    assert_eq!(bad.read().unwrap(), [7]);
    let launch = kernel.launch().buffer("source", &out).buffer("out", &good);
    let inherited = launch.workgroups(1).submit().unwrap();
    assert!(matches!(
        &*failure(&inherited),
        ExecutionError::Inherited { .. }
    ));
    out.write(0, &[1]).unwrap();
    assert_eq!(out.read().unwrap(), [1]);
}

fn a_failed_invocation_stops_at_once_even_in_helpers(f: &Fixture) {
    // Live words are not poisoned, so that the test sees what was written.
    let Ok(words) = f.device.live(4) else {
        panic!("both adapters have live memory");
    };
    let kernel = kernel(
        &f.device,
        r#"@group(0) @binding(0) var<storage, read_write> words: array<atomic<u32>>;
        fn deep(x: u32) -> u32 { assert(x != 3u, "three"); atomicAdd(&words[0], 1u); return 1u; }
        fn outer(x: u32) -> u32 {
            var sum = 0u;
            for (var i = 0u; i < 10u; i++) { sum += deep(x + i); atomicAdd(&words[1], 1u); }
            atomicAdd(&words[2], 1u);
            return sum;
        }
        @compute @workgroup_size(1) fn main() { let x = outer(0u); atomicAdd(&words[3], 1u + x); }"#,
    );
    let event = kernel
        .launch()
        .buffer("words", &words)
        .workgroups(1)
        .submit();
    assert!(matches!(
        &*failure(&event.unwrap()),
        ExecutionError::Assertion { .. }
    ));
    let found: Vec<_> = (0..4).map(|i| words.load(i).unwrap()).collect();
    assert_eq!(found, [3, 3, 0, 0]);
}

fn invocations_that_have_not_begun_do_not_begin(f: &Fixture) {
    let words = f.device.live(1).unwrap();
    let kernel = kernel(
        &f.device,
        r#"@group(0) @binding(0) var<storage, read_write> words: array<atomic<u32>>;
        @compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) {
            assert(id.x != 0u, "the first");
            atomicAdd(&words[0], 1u);
        }"#,
    );
    // Two dispatches: when the second one begins, the first one has failed.
    let event = kernel
        .launch()
        .buffer("words", &words)
        .workgroups(100_000)
        .submit();
    assert!(matches!(
        &*failure(&event.unwrap()),
        ExecutionError::Assertion { .. }
    ));
    assert!(words.load(0).unwrap() < 65_536, "{:?}", words.load(0));
}

fn kernels_with_barriers_go_on_to_their_end(f: &Fixture) {
    let words = f.device.live(1).unwrap();
    let kernel = kernel(
        &f.device,
        r#"@group(0) @binding(0) var<storage, read_write> words: array<atomic<u32>>;
        var<workgroup> shared_sum: atomic<u32>;
        @compute @workgroup_size(32) fn main(@builtin(local_invocation_index) i: u32) {
            assert(i != 5u, "five is {}", i);
            atomicAdd(&shared_sum, 1u);
            workgroupBarrier();
            if i == 0u { atomicStore(&words[0], atomicLoad(&shared_sum)); }
        }"#,
    );
    let event = kernel
        .launch()
        .buffer("words", &words)
        .workgroups(1)
        .submit();
    match &*failure(&event.unwrap()) {
        ExecutionError::Assertion {
            message,
            invocation,
            ..
        } => {
            assert_eq!((&**message, *invocation), ("five is 5", 5));
        }
        other => panic!("{other}"),
    }
    assert_eq!(words.load(0), Some(32));
}

fn messages_are_computed_only_when_needed(f: &Fixture) {
    let words = f.device.live(1).unwrap();
    let kernel = kernel(
        &f.device,
        r#"@group(0) @binding(0) var<storage, read_write> words: array<atomic<u32>>;
        fn count() -> u32 { return atomicAdd(&words[0], 1u); }
        @compute @workgroup_size(1) fn main() { assert(arrayLength(&words) == 1u, "{}", count()); }"#,
    );
    let event = kernel
        .launch()
        .buffer("words", &words)
        .workgroups(10)
        .submit();
    event.unwrap().wait().unwrap();
    assert_eq!(words.load(0), Some(0));
}

fn what_was_printed_before_is_delivered(f: &Fixture) {
    tiers(f, |device| {
        let kernel = kernel(
            device,
            r#"@compute @workgroup_size(1) fn main() {
                for (var i = 0u; i < 100u; i++) { print("{}", i); assert(i < 4u, "i is {}", i); }
            }"#,
        );
        let (options, taken) = collect();
        // No room for more than two lines: the message has a place of its own.
        let event = kernel
            .launch()
            .workgroups(1)
            .print_to(options.capacity(32))
            .submit();
        let event = event.unwrap();
        match &*failure(&event) {
            ExecutionError::Assertion { message, .. } => assert_eq!(&**message, "i is 4"),
            other => panic!("{other}"),
        }
        assert_eq!(event.dropped_prints().unwrap(), 3);
        assert_eq!(taken.lock().unwrap().lines, ["0", "1"]);
    });
}

fn the_first_failure_is_whole(f: &Fixture) {
    // Everybody fails at once, in two places: message, place and invocation belong together.
    let kernel = kernel(
        &f.device,
        r#"@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x % 2u == 0u { panic("even {} {}", id.x, id.x * 3u); }
            panic("odd {}", id.x);
        }"#,
    );
    for _ in 0..10 {
        let event = kernel.launch().invocations(6400).submit().unwrap();
        match &*failure(&event) {
            ExecutionError::Assertion {
                message,
                invocation,
                line,
                ..
            } => {
                let i = *invocation;
                let wanted = match i % 2 {
                    0 => (format!("even {i} {}", i * 3), 2),
                    _ => (format!("odd {i}"), 3),
                };
                assert_eq!((message.to_string(), *line), wanted);
            }
            other => panic!("{other}"),
        }
    }
}

fn a_wrong_pointer_comes_before_the_assertion_that_it_breaks(f: &Fixture) {
    let device = f.open(|options| options.checked_pointers = true);
    let heap = f.context.heap().unwrap();
    let right = heap.alloc(7u32).unwrap();
    let kernel = kernel(
        &device,
        r#"@group(0) @binding(0) var<uniform> p: usm_ptr;
        alias Word = u32;
        @compute @workgroup_size(1) fn main() {
            let word = usm_Word(p);
            print("{}", *word);
            assert(*word == 7u, "found {}", *word);
        }"#,
    );
    let (options, taken) = collect();
    let launch = kernel
        .launch()
        .value("p", &right)
        .workgroups(1)
        .print_to(options);
    let mut launch = launch;
    launch.submit().unwrap().wait().unwrap();
    assert_eq!(lines(&taken), ["7"]);
    launch.set_value("p", &[0u32, 0]).unwrap();
    let error = failure(&launch.submit().unwrap());
    assert!(matches!(&*error, ExecutionError::Pointer { .. }), "{error}");
    assert_eq!(lines(&taken), ["0"]);
    // The launch may have written anywhere in the heap, which says so once.
    assert!(heap.host().is_err());
}
