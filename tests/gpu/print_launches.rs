//! Launches that print: their order, what they share, where their lines go.

use std::sync::{Arc, Mutex, OnceLock};

use crate::cases;
use crate::harness::Fixture;
use crate::print::{collect, kernel, lines, tiers};
use tombolo::{
    Constants, Event, PrintOptions, Program,
    launch::LaunchError,
    print::{PrintLoss, PrintRecord, PrintSink, PrintTarget},
};

cases![
    launches_print_in_their_order,
    more_launches_than_buffers_print_everything,
    a_launch_may_be_submitted_again_and_again,
    a_dropped_device_has_printed_everything,
    sinks_may_use_the_device,
    a_sink_of_two_devices_may_wait_for_either,
    a_sink_that_panics_gets_the_next_line,
    a_sink_that_panics_is_told_of_losses_once,
    places_are_those_of_the_source,
    too_much_room_is_refused,
    kernels_that_use_every_binding_print_all_the_same,
    entry_points_that_do_not_reach_a_print_have_no_buffer,
    read_backs_deliver_what_was_printed,
];

fn launches_print_in_their_order(f: &Fixture) {
    tiers(f, |device| {
        let kernel = kernel(
            device,
            r#"@group(0) @binding(0) var<uniform> n: u32;
            @compute @workgroup_size(1) fn main() { print("{}", n); }"#,
        );
        let (options, taken) = collect();
        let mut launch = kernel
            .launch()
            .value("n", &0u32)
            .workgroups(1)
            .print_to(options);
        // All in one batch.
        for n in 0..20u32 {
            launch.set_value("n", &n).unwrap();
            launch.submit().unwrap();
        }
        assert_eq!(taken.lock().unwrap().lines.len(), 0);
        device.finish().unwrap();
        assert!(lines(&taken).into_iter().eq((0..20).map(|n| n.to_string())));
    });
}

fn more_launches_than_buffers_print_everything(f: &Fixture) {
    let kernel = kernel(
        &f.device,
        r#"@group(0) @binding(0) var<uniform> n: u32;
        @compute @workgroup_size(1) fn main() { print("{}", n); }"#,
    );
    let (options, taken) = collect();
    let mut launch = kernel
        .launch()
        .value("n", &0u32)
        .workgroups(1)
        .print_to(options.capacity(64));
    for n in 0..500u32 {
        launch.set_value("n", &n).unwrap();
        launch.submit().unwrap();
    }
    f.device.finish().unwrap();
    assert!(
        lines(&taken)
            .into_iter()
            .eq((0..500).map(|n| n.to_string()))
    );
}

fn a_launch_may_be_submitted_again_and_again(f: &Fixture) {
    tiers(f, |device| {
        // Less every time: nothing that an earlier launch has left may come again.
        let kernel = kernel(
            device,
            r#"@group(0) @binding(0) var<uniform> n: u32;
            @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                if id.x < n { print("{}", n); }
            }"#,
        );
        let (options, taken) = collect();
        let mut launch = kernel
            .launch()
            .value("n", &0u32)
            .invocations(64)
            .print_to(options);
        for n in [64u32, 40, 7, 0, 1, 64] {
            launch.set_value("n", &n).unwrap();
            launch.submit().unwrap().wait().unwrap();
            assert_eq!(lines(&taken), vec![n.to_string(); n as usize]);
        }
    });
}

fn a_dropped_device_has_printed_everything(f: &Fixture) {
    for live in [true, false] {
        let device = f.open(|options| {
            options.live_memory = live;
            options.import_host_memory = live;
        });
        let kernel = kernel(
            &device,
            r#"@compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) { print("{}", id.x); }"#,
        );
        let (options, taken) = collect();
        kernel
            .launch()
            .workgroups(1000)
            .print_to(options)
            .submit()
            .unwrap();
        drop((kernel, device));
        assert_eq!(lines(&taken).len(), 1000);
    }
}

fn sinks_may_use_the_device(f: &Fixture) {
    let again = kernel(
        &f.device,
        r#"@group(0) @binding(0) var<storage, read_write> sum: array<u32>;
        @compute @workgroup_size(1) fn main() { sum[0] += 1u; print("inner {}", sum[0]); }"#,
    );
    let outer = kernel(
        &f.device,
        r#"@compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) { print("{}", id.x); }"#,
    );
    let sum = f.device.zeroed::<u32>(1).unwrap();
    let (inner, taken) = collect();
    let (kernel, target) = (again.clone(), sum.clone());
    let options = PrintOptions::sink(move |_: &PrintRecord<'_>| {
        let launch = kernel.launch().buffer("sum", &target).workgroups(1);
        let event: Event = launch.print_to(inner.clone()).submit().unwrap();
        event.wait().unwrap();
    });
    let event = outer
        .launch()
        .workgroups(5)
        .print_to(options)
        .submit()
        .unwrap();
    event.wait().unwrap();
    f.device.finish().unwrap();
    assert_eq!(sum.read().unwrap(), [5]);
    assert_eq!(
        lines(&taken),
        ["inner 1", "inner 2", "inner 3", "inner 4", "inner 5"]
    );
}

fn a_sink_of_two_devices_may_wait_for_either(f: &Fixture) {
    let other = f.open(|_| {});
    let says = |device, text: &str| {
        let source = format!("@compute @workgroup_size(1) fn main() {{ print(\"{text}\"); }}");
        kernel(device, &source)
    };
    let (outer, inner) = (says(&f.device, "outer"), says(&other, "inner"));
    let target = Arc::<OnceLock<PrintTarget>>::default();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let (own, into) = (Arc::downgrade(&target), Arc::clone(&seen));
    let options = PrintOptions::sink(move |record: &PrintRecord<'_>| {
        into.lock().unwrap().push(record.text());
        if record.text() == "outer" {
            let own = own.upgrade().unwrap();
            let options = PrintOptions::to(own.get().unwrap().clone());
            let mut launch = inner.launch().workgroups(1).print_to(options);
            launch.submit().unwrap().wait().unwrap();
        }
    });
    target.set(options.target.clone()).unwrap();
    let mut launch = outer.launch().workgroups(1).print_to(options);
    launch.submit().unwrap().wait().unwrap();
    // The sink could not be given this line while it waited for it.
    other.finish().unwrap();
    assert_eq!(*seen.lock().unwrap(), ["outer", "inner"]);
}

fn a_sink_that_panics_gets_the_next_line(f: &Fixture) {
    tiers(f, |device| {
        let kernel = kernel(
            device,
            r#"@compute @workgroup_size(1) fn main() { print("one"); print("two"); print("three"); }"#,
        );
        let (seen, lines) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let (into, count) = (Arc::clone(&seen), Arc::clone(&lines));
        let options = PrintOptions::sink(move |record: &PrintRecord<'_>| {
            *count.lock().unwrap() += 1;
            // Without a message: the harness shows those of other threads as well.
            if record.text() == "two" {
                std::panic::resume_unwind(Box::new("the sink's own"));
            }
            into.lock().unwrap().push(record.text());
        });
        let event = kernel
            .launch()
            .workgroups(1)
            .print_to(options)
            .submit()
            .unwrap();
        // This thread delivers, or the runtime's.
        event.wait().unwrap();
        device.finish().unwrap();
        assert_eq!(*seen.lock().unwrap(), ["one", "three"]);
        assert_eq!(*lines.lock().unwrap(), 3);
    });
}

/// A sink that panics where lines are lost, too.
struct Touchy(Arc<Mutex<Vec<u64>>>);

impl PrintSink for Touchy {
    fn record(&mut self, _: &PrintRecord<'_>) {
        std::panic::resume_unwind(Box::new("the sink's own"));
    }

    fn lost(&mut self, loss: &PrintLoss) {
        self.0.lock().unwrap().push(loss.dropped);
        std::panic::resume_unwind(Box::new("the sink's own"));
    }
}

fn a_sink_that_panics_is_told_of_losses_once(f: &Fixture) {
    tiers(f, |device| {
        let kernel = kernel(
            device,
            r#"@compute @workgroup_size(1) fn main() {
                for (var i = 0u; i < 40u; i++) { print("{}", i); }
            }"#,
        );
        let told = Arc::new(Mutex::new(Vec::new()));
        // A line takes 16 bytes.
        let mut options = PrintOptions::sink(|_: &PrintRecord<'_>| ());
        options.target = PrintTarget::new(Touchy(Arc::clone(&told)));
        options.capacity = 160;
        let mut launch = kernel.launch().workgroups(1).print_to(options);
        let event = launch.submit().unwrap();
        assert_eq!(event.dropped_prints().unwrap(), 30);
        device.finish().unwrap();
        // The launch behind has its lines delivered.
        let (options, taken) = collect();
        let mut launch = kernel.launch().workgroups(1).print_to(options);
        launch.submit().unwrap().wait().unwrap();
        assert_eq!(lines(&taken).len(), 40);
        assert_eq!(*told.lock().unwrap(), [30]);
    });
}

fn places_are_those_of_the_source(f: &Fixture) {
    let kernel = kernel(
        &f.device,
        "@compute @workgroup_size(1) fn main() {\n  /* é */ print(\"a\nb\"); print(\"c\");\n    print(\"d\");\n}",
    );
    let (options, taken) = collect();
    let event = kernel.launch().workgroups(1).print_to(options).submit();
    event.unwrap().wait().unwrap();
    let places = taken.lock().unwrap().places.clone();
    assert_eq!(lines(&taken), ["a\nb", "c", "d"]);
    assert_eq!(places, [(2, 11, 0), (3, 6, 0), (4, 5, 0)]);
}

fn too_much_room_is_refused(f: &Fixture) {
    let kernel = kernel(
        &f.device,
        r#"@compute @workgroup_size(1) fn main() { print("x"); }"#,
    );
    let options = PrintOptions::to(PrintTarget::stderr()).capacity(1 << 40);
    let refused = kernel.launch().workgroups(1).print_to(options).submit();
    match refused {
        Err(LaunchError::PrintCapacity {
            capacity, limit, ..
        }) => {
            assert!(capacity == 1 << 40 && limit < capacity);
        }
        other => panic!("{other:?}"),
    }
}

fn kernels_that_use_every_binding_print_all_the_same(f: &Fixture) {
    // As many storage buffers as the adapter takes: the record buffer has to find room.
    // Adapters that bind hundreds of thousands have room whatever a kernel declares.
    let limit = (f.device.raw().limits().max_storage_buffers_per_shader_stage).min(64);
    let buffers: String = (0..limit)
        .map(|i| format!("@group(0) @binding({i}) var<storage, read_write> b{i}: array<u32>;"))
        .collect();
    let uses: String = (0..limit).map(|i| format!("b{i}[0] += 10u;")).collect();
    let last = limit - 1;
    let kernel = kernel(
        &f.device,
        &format!(
            r#"{buffers} @compute @workgroup_size(1) fn main() {{
                {uses} print("{{}} {{}}", b0[0], b{last}[0]);
            }}"#
        ),
    );
    let all: Vec<_> = (0..limit).map(|i| f.device.buffer(&[i]).unwrap()).collect();
    let (options, taken) = collect();
    let mut launch = kernel.launch().workgroups(1).print_to(options);
    for (i, buffer) in all.iter().enumerate() {
        launch = launch.buffer(&format!("b{i}"), buffer);
    }
    launch.submit().unwrap().wait().unwrap();
    assert_eq!(lines(&taken), [format!("10 {}", last + 10)]);
    for (i, buffer) in (0..limit).zip(&all) {
        assert_eq!(buffer.read().unwrap(), [i + 10]);
    }
}

fn entry_points_that_do_not_reach_a_print_have_no_buffer(f: &Fixture) {
    let program = Program::new(
        "two.wgsl",
        r#"@group(0) @binding(0) var<storage, read_write> n: u32;
        @compute @workgroup_size(1) fn silent() { n += 1u; }
        @compute @workgroup_size(1) fn loud() { n += 10u; print("{}", n); }"#,
    )
    .unwrap();
    let n = f.device.buffer(&[0u32]).unwrap();
    let (options, taken) = collect();
    for entry in ["silent", "loud", "silent"] {
        let kernel = f.device.kernel(&program, entry, &Constants::new()).unwrap();
        let launch = kernel.launch().buffer("n", &n).workgroups(1);
        launch.print_to(options.clone()).submit().unwrap();
    }
    assert_eq!(n.read().unwrap(), [12]);
    assert_eq!(lines(&taken), ["11"]);
}

fn read_backs_deliver_what_was_printed(f: &Fixture) {
    tiers(f, |device| {
        let kernel = kernel(
            device,
            r#"@group(0) @binding(0) var<storage, read_write> n: u32;
            @compute @workgroup_size(1) fn main() { n += 1u; print("{}", n); }"#,
        );
        let n = device.buffer(&[41u32]).unwrap();
        let (options, taken) = collect();
        let launch = kernel.launch().buffer("n", &n).workgroups(1);
        launch.print_to(options).submit().unwrap();
        assert_eq!(n.read().unwrap(), [42]);
        assert_eq!(lines(&taken), ["42"]);
    });
}
