//! A trace of a run: what the file says, on each adapter. One test: a trace is the whole process's.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;
use tombolo::device::Aspect;
use tombolo::trace::{Trace, TraceError};
use tombolo::{Constants, Context, HostServices, PersistentKernel, Program};

const SOURCE: &str = "
    @group(0) @binding(0) var<storage, read_write> words: array<u32>;
    @compute @workgroup_size(64) fn count_up(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&words) { words[id.x] = trace_next(words[id.x]); }
    }";

/// Launches on each adapter.
const LAUNCHES: usize = 5;

#[test]
fn a_run_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");

    let nowhere = Trace::to_file(folder.path().join("no such folder/run.json"));
    assert!(
        matches!(nowhere, Err(TraceError::Create { .. })),
        "{nowhere:?}"
    );
    // A disk that is full.
    if cfg!(target_os = "linux") {
        let (_, full) = Trace::layer("/dev/full").unwrap();
        let written = full.finish();
        assert!(
            matches!(written, Err(TraceError::Write { .. })),
            "{written:?}"
        );
    }
    let trace = Trace::to_file(&path).unwrap();
    let second = Trace::layer(folder.path().join("second.json")).map(|_| ());
    assert_eq!(second, Err(TraceError::Recording));

    let (names, timed) = run();
    trace.finish().unwrap();
    // Launches behind the end are in no file, and fail nothing.
    let _ = run();
    let subscribed = Trace::to_file(folder.path().join("third.json")).map(|_| ());
    assert_eq!(subscribed, Err(TraceError::Subscribed));

    let events: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    check_spans(&events);
    check_calls(&events, &names);
    check_bytes(&events, names.len());
    check_devices(&events, &timed);
}

/// Uses every adapter; the names of all, and of those with timestamps.
fn run() -> (Vec<String>, Vec<String>) {
    let services = HostServices::builder()
        .call("fn trace_next(x: u32) -> u32", |x: u32| x + 1)
        .start()
        .unwrap();
    let program = Program::builder()
        .source("trace.wgsl", SOURCE)
        .services(&services)
        .build()
        .unwrap();
    let served = Program::new("served.wgsl", "fn twice(x: u32) -> u32 { return 2u * x; }").unwrap();
    let context = Context::new().unwrap();
    let (mut names, mut timed) = (Vec::new(), Vec::new());
    for adapter in context.adapters() {
        let device = context.device_at(adapter.index).unwrap();
        let kernel = device
            .kernel(&program, "count_up", &Constants::new())
            .unwrap();
        let words = device.buffer(&[7u32; 40]).unwrap();
        for _ in 0..LAUNCHES {
            let mut launch = kernel
                .launch()
                .services(&services)
                .buffer("words", &words)
                .invocations(40);
            launch
                .submit()
                .unwrap()
                .wait_timeout(Duration::from_secs(120))
                .unwrap();
        }
        assert_eq!(words.read().unwrap(), [7 + LAUNCHES as u32; 40]);
        words.write(0, &[1]).unwrap().wait().unwrap();
        words.fill(9, 1..7).unwrap();
        words.copy_to(1, &words, 20, 5).unwrap();
        let expected = [vec![1], vec![9; 6], vec![12; 13], vec![9; 5], vec![12; 15]];
        assert_eq!(words.read().unwrap(), expected.concat());
        let moving = context.buffer::<u32>(3).unwrap();
        moving.write(0, &[4, 5, 6]).unwrap();
        assert_eq!(moving.read().unwrap(), [4, 5, 6]);
        let copied = context.buffer::<u32>(3).unwrap();
        copied.fill(8, ..).unwrap();
        moving.copy_to(&copied).unwrap();
        assert_eq!(copied.read().unwrap(), [4, 5, 6]);
        let server = PersistentKernel::builder(&device, &served)
            .handler("twice")
            .start()
            .unwrap();
        let twice = server.function::<(u32,), u32>("twice").unwrap();
        let answer = twice.call_timeout(&(21,), Duration::from_secs(120));
        assert_eq!(answer.unwrap(), 42);
        let begun = twice.begin(&(4,));
        assert_eq!(begun.wait_timeout(Duration::from_secs(120)).unwrap(), 8);
        assert_eq!(twice.call_all(&[(1,), (2,), (3,)]).unwrap(), [2, 4, 6]);
        names.push(device.name().to_owned());
        if device.has(Aspect::TimestampQueries) {
            timed.push(device.name().to_owned());
        }
    }
    (names, timed)
}

fn number(event: &Value, field: &str) -> f64 {
    event[field]
        .as_f64()
        .unwrap_or_else(|| panic!("{field} of {event}"))
}

/// The spans of each thread lie in each other or apart, and all kinds are there.
fn check_spans(events: &[Value]) {
    let mut threads: HashMap<u64, Vec<(f64, f64)>> = HashMap::new();
    let mut names: HashMap<&str, usize> = HashMap::new();
    for event in events.iter().filter(|event| event["cat"] == "host") {
        let begin = number(event, "ts");
        let span = (begin, begin + number(event, "dur"));
        threads
            .entry(event["tid"].as_u64().unwrap())
            .or_default()
            .push(span);
        *names.entry(event["name"].as_str().unwrap()).or_default() += 1;
    }
    for kind in [
        "compile", "launch", "submit", "wait", "read", "write", "fill", "copy", "call", "begin",
        "lease",
    ] {
        assert!(names.contains_key(kind), "no `{kind}` in {names:?}");
    }
    for spans in threads.values_mut() {
        spans.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let mut open: Vec<f64> = Vec::new();
        for &(begin, end) in spans.iter() {
            // Times are rounded to nanoseconds.
            open.retain(|&outer| outer > begin + 0.002);
            assert!(
                open.iter().all(|&outer| end <= outer + 0.002),
                "{begin}..{end} leaves a span around it"
            );
            open.push(end);
        }
    }
}

/// A call of a kernel tells the function of the host; a call of a server the handler, the device, and how many calls
/// there are.
fn check_calls(events: &[Value], devices: &[String]) {
    let of = |name: &str, function: &str| -> Vec<&Value> {
        let is_so = |event: &&Value| event["name"] == name && event["args"]["function"] == function;
        events.iter().filter(is_so).collect()
    };
    let (of_kernels, of_servers) = (of("call", "trace_next"), of("call", "twice"));
    assert!(!of_kernels.is_empty());
    let all = events
        .iter()
        .filter(|event| event["name"] == "call")
        .count();
    assert_eq!(all, of_kernels.len() + of_servers.len());
    for device in devices {
        let here = |calls: &[&Value]| -> Vec<String> {
            let here = calls
                .iter()
                .filter(|call| call["args"]["device"] == **device);
            let counts = here.map(|call| call["args"]["count"].to_string());
            counts.collect()
        };
        assert_eq!(here(&of_servers), ["null", "3"], "{device}");
        for name in ["begin", "wait"] {
            assert_eq!(here(&of(name, "twice")), ["null"], "{name} on {device}");
        }
    }
}

/// Fills and copies tell their bytes, on each device.
fn check_bytes(events: &[Value], devices: usize) {
    for (name, bytes) in [("fill", 24), ("copy", 20), ("fill", 12), ("copy", 12)] {
        let is_so = |event: &&Value| event["name"] == name && event["args"]["bytes"] == bytes;
        let found = events.iter().filter(is_so).count();
        assert_eq!(found, devices, "{name} of {bytes} bytes");
    }
}

/// Each device with timestamps has a track of its own, with every launch on it, one behind the other.
fn check_devices(events: &[Value], timed: &[String]) {
    let (leases, of_devices): (Vec<&Value>, Vec<&Value>) = events
        .iter()
        .filter(|event| event["cat"] == "device")
        .partition(|event| event["name"] != "count_up");
    let is_lease = |event: &&Value| event["name"] == "tombolo_server_main";
    assert!(leases.iter().all(is_lease), "{leases:?}");
    assert_eq!(
        of_devices.len(),
        timed.len() * LAUNCHES,
        "{timed:?}: {of_devices:?}"
    );
    for name in timed {
        let named =
            |event: &&Value| event["name"] == "process_name" && event["args"]["name"] == **name;
        let track = events
            .iter()
            .find(named)
            .unwrap_or_else(|| panic!("no track of {name}"));
        let launches: Vec<&&Value> = of_devices
            .iter()
            .filter(|event| event["pid"] == track["pid"])
            .collect();
        assert_eq!(launches.len(), LAUNCHES, "{name}");
    }
}
