//! Printing while the kernel runs, where there is live memory, and at its end elsewhere.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::cases;
use crate::harness::Fixture;
use crate::print::kernel;
use tombolo::{Event, PrintOptions, device::EventStatus, print::PrintRecord};

cases![
    lines_are_seen_while_the_kernel_runs,
    without_live_memory_lines_come_at_the_end,
    lines_that_arrive_live_are_the_same_as_at_the_end,
];

/// Work-groups that say so, and wait a bounded time for the host to answer what they said. Many wait one after the
/// other, since a single one ends before a busy machine gives the host its turn.
const TALK: &str = r#"@group(0) @binding(0) var<storage, read_write> words: array<atomic<u32>>;
    @group(0) @binding(1) var<uniform> token: u32;
    @compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) {
        print("waiting {}", id.x);
        for (var i = 0u; i < 60000u; i++) {
            if atomicLoad(&words[0]) == token { print("seen"); break; }
        }
    }"#;

fn lines_are_seen_while_the_kernel_runs(f: &Fixture) {
    let kernel = kernel(&f.device, TALK);
    let words = Arc::new(f.device.live(1).unwrap());
    let seen = (1..=20u32).any(|token| {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let (answer, into) = (Arc::clone(&words), Arc::clone(&lines));
        let options = PrintOptions::sink(move |record: &PrintRecord<'_>| {
            answer.store(0, token).unwrap();
            into.lock().unwrap().push(record.text());
        });
        let launch = kernel
            .launch()
            .buffer("words", &*words)
            .value("token", &token);
        let event = launch.workgroups(256).print_to(options).submit().unwrap();
        event.wait().unwrap();
        let lines = lines.lock().unwrap();
        let waited = lines
            .iter()
            .filter(|line| line.starts_with("waiting"))
            .count();
        assert_eq!(waited, 256);
        // Only the sink gives this token, and only when a line has arrived.
        lines.iter().any(|line| line == "seen")
    });
    assert!(seen, "no running kernel saw the answer to what it printed");
}

fn without_live_memory_lines_come_at_the_end(f: &Fixture) {
    let device = f.open(|options| {
        options.live_memory = false;
        options.import_host_memory = false;
    });
    let kernel = kernel(&device, TALK);
    let words = device.zeroed::<u32>(1).unwrap();
    let event = Arc::<OnceLock<Event>>::default();
    let statuses = Arc::<Mutex<Vec<EventStatus>>>::default();
    let (of, into) = (Arc::clone(&event), Arc::clone(&statuses));
    let options = PrintOptions::sink(move |_: &PrintRecord<'_>| {
        into.lock().unwrap().push(of.get().unwrap().status());
    });
    let launch = kernel
        .launch()
        .buffer("words", &words)
        .value("token", &1u32);
    let launched = launch.workgroups(16).print_to(options).submit().unwrap();
    // Nothing is submitted before somebody waits.
    event.set(launched.clone()).unwrap();
    launched.wait().unwrap();
    assert_eq!(*statuses.lock().unwrap(), [EventStatus::Complete; 16]);
}

fn lines_that_arrive_live_are_the_same_as_at_the_end(f: &Fixture) {
    // Long enough for the delivering thread to meet records half written.
    let kernel = kernel(
        &f.device,
        r#"@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            for (var i = 0u; i < 100u; i++) {
                print("{} {} {:?}", id.x, i, vec4<u32>(id.x * i, id.x + i, id.x ^ i, i));
            }
        }"#,
    );
    for _ in 0..3 {
        let (wrong, count) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (bad, total) = (Arc::clone(&wrong), Arc::clone(&count));
        let options = PrintOptions::sink(move |record: &PrintRecord<'_>| {
            total.fetch_add(1, Ordering::Relaxed);
            let [id, i, a, b, c, d] = record.words() else {
                panic!("{record:?}");
            };
            let right =
                record.invocation() == *id && [*a, *b, *c, *d] == [id * i, id + i, id ^ i, *i];
            bad.fetch_add(u32::from(!right), Ordering::Relaxed);
        });
        let launch = kernel.launch().invocations(6400);
        let event = launch
            .print_to(options.capacity(64 << 20))
            .submit()
            .unwrap();
        event.wait().unwrap();
        assert_eq!(event.dropped_prints().unwrap(), 0);
        assert_eq!(count.load(Ordering::Relaxed), 640_000);
        assert_eq!(wrong.load(Ordering::Relaxed), 0);
    }
}
