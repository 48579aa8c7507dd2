//! Devices whose threads never wait, as in a browser: waits are refused, and futures do everything.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context as Task, Waker};
use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use crate::launches::INCREMENT;
use crate::mirror::{Node, THIN, list};
use pollster::block_on;
use tombolo::buffers::{BufferError, ReadError};
use tombolo::device::{ExecutionError, WaitError, WaitPolicy};
use tombolo::heap::{HeapError, HeapPlacement};
use tombolo::print::PrintRecord;
use tombolo::{Constants, Context, Device, DeviceGlobal, Kernel, PrintOptions, Program, Ptr};

cases![
    a_context_and_its_devices_are_opened_by_futures,
    waits_are_refused_with_the_name_of_what_does_not_block,
    events_and_reads_are_awaited,
    failures_reach_futures,
    a_list_is_changed_and_the_host_awaits_it,
    an_access_that_is_given_up_leaves_the_heap_as_it_was,
    buffers_of_a_context_are_read_by_a_future,
    launches_without_end_are_refused_and_go_on_behind_a_wait,
];

const POISON: u32 = 0xDEAD_BEEF;

fn never(f: &Fixture) -> Device {
    f.open(|options| options.wait = WaitPolicy::Never)
}

/// As a browser's: nothing is shared with the host.
fn apart(f: &Fixture) -> Device {
    f.open_alone(|options| {
        options.wait = WaitPolicy::Never;
        options.live_memory = false;
        options.heap_placement = HeapPlacement::Device;
    })
}

fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("never_blocks.wgsl", source).unwrap();
    device.kernel(&program, "main", &Constants::new()).unwrap()
}

/// What a refusal of a wait advises.
fn instead(error: &ExecutionError) -> &'static str {
    match error {
        ExecutionError::WouldBlock { instead, .. } => instead,
        other => panic!("{other}"),
    }
}

fn a_context_and_its_devices_are_opened_by_futures(f: &Fixture) {
    let context = block_on(Context::new_async()).unwrap();
    let names = |context: &Context| context.adapters().into_iter().map(|a| a.name);
    assert!(names(&context).eq(names(&f.context)));
    let options = tombolo::DeviceOptions::default();
    let device = block_on(context.device_at_with_async(f.index, options)).unwrap();
    assert_eq!(device.name(), f.device.name());
    let words = device.buffer(&[1u32, 2, 3]).unwrap();
    assert_eq!(block_on(words.read_back(..).unwrap()).unwrap(), [1, 2, 3]);
    let best = block_on(context.device_async()).unwrap();
    assert_eq!(best.name(), context.device().unwrap().name());
}

fn waits_are_refused_with_the_name_of_what_does_not_block(f: &Fixture) {
    let device = never(f);
    let data = device.buffer(&[POISON; 64]).unwrap();
    let kernel = kernel(&device, INCREMENT);
    let mut launch = kernel.launch().buffer("data", &data).invocations(64);
    let event = launch.submit().unwrap();
    for refused in [event.wait(), event.wait_timeout(Duration::MAX)] {
        let Err(WaitError::Failed(error)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(instead(&error), "`.await` the event");
    }
    // A look is no wait.
    assert!(matches!(
        event.wait_timeout(Duration::ZERO),
        Ok(()) | Err(WaitError::Deadline)
    ));
    let Err(ReadError::Execution(error)) = data.read() else {
        panic!("read");
    };
    assert!(instead(&error).contains("read_back"), "{error}");
    assert!(instead(&device.finish().unwrap_err()).contains("await"));
    device.flush().unwrap();
    let heap = f.context.heap().unwrap();
    let word = heap.alloc(7u32).unwrap();
    let follow = "@group(0) @binding(0) var<uniform> word: usm_ptr;
        @compute @workgroup_size(1) fn main() { let at = usm_u32(word); *at = *at + 1u; }";
    let launch = self::kernel(&device, follow).launch().value("word", &word);
    let event = launch.workgroups(1).submit().unwrap();
    match heap.host() {
        Err(HeapError::Execution(error)) => assert!(instead(&error).contains("host_async")),
        // The kernel may have ended by now, and then nothing is waited for.
        Ok(access) => drop(access),
        Err(other) => panic!("{other}"),
    }
    assert_eq!(block_on(heap.host_async()).unwrap().get(word).unwrap(), &8);
    block_on(event).unwrap();
    assert_eq!(
        block_on(data.read_back(..).unwrap()).unwrap(),
        [POISON + 1; 64]
    );
    heap.free(word).unwrap();
}

static COUNT: DeviceGlobal<u32> = DeviceGlobal::new("never_blocks_count");

fn events_and_reads_are_awaited(f: &Fixture) {
    for device in [never(f), apart(f)] {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let options = PrintOptions::sink(move |line: &PrintRecord<'_>| {
            sink.lock().unwrap().push(line.to_string());
        });
        let kernel = kernel(
            &device,
            "var<storage, read_write> never_blocks_count: atomic<u32>;
            @compute @workgroup_size(1) fn main() {
                print(\"{}\", atomicAdd(&never_blocks_count, 1u));
            }",
        );
        for _ in 0..20 {
            let mut launch = kernel.launch().workgroups(1).print_to(options.clone());
            block_on(launch.submit().unwrap()).unwrap();
        }
        let expected: Vec<String> = (0..20).map(|count| count.to_string()).collect();
        assert_eq!(*lines.lock().unwrap(), expected);
        let count = COUNT.on(&device).read_back().unwrap();
        assert_eq!(block_on(count).unwrap(), [20]);
    }
}

fn failures_reach_futures(f: &Fixture) {
    for device in [never(f), apart(f)] {
        let data = device.buffer(&[1u32, 20, 3]).unwrap();
        let out = device.buffer(&[POISON; 3]).unwrap();
        let kernel = kernel(
            &device,
            "@group(0) @binding(0) var<storage, read> data: array<u32>;
            @group(0) @binding(1) var<storage, read_write> out: array<u32>;
            @compute @workgroup_size(3) fn main(@builtin(local_invocation_index) i: u32) {
                assert(data[i] < 10u, \"{} is too much\", data[i]);
                out[i] = data[i];
            }",
        );
        let launch = || {
            let launch = kernel.launch().buffer("data", &data).buffer("out", &out);
            launch.workgroups(1).submit().unwrap()
        };
        let failed = block_on(launch()).unwrap_err();
        let is_it = |error: &ExecutionError| {
            matches!(error, ExecutionError::Assertion { invocation: 1, .. })
        };
        assert!(
            matches!(&failed, WaitError::Failed(error) if is_it(error)),
            "{failed}"
        );
        // Also where nobody has awaited the launch before.
        let _ = launch();
        let read = block_on(out.read_back(..).unwrap()).unwrap_err();
        assert!(
            matches!(&read, ReadError::Execution(error) if is_it(error)),
            "{read}"
        );
        out.write(0, &[4, 5, 6]).unwrap();
        assert_eq!(block_on(out.read_back(..).unwrap()).unwrap(), [4, 5, 6]);
    }
}

fn a_list_is_changed_and_the_host_awaits_it(f: &Fixture) {
    let device = apart(f);
    let heap = device_heap(&device);
    let kernel = kernel(&device, THIN);
    let first = list(&heap, 100);
    let sum = device.buffer(&[f32::NAN]).unwrap();
    let launch = kernel.launch().value("first", &first).buffer("sum", &sum);
    let mut launch = launch.workgroups(1);
    launch.submit().unwrap();
    assert_eq!(block_on(sum.read_back(..).unwrap()).unwrap(), [4950.0]);
    let expected: Vec<Node> = (0..100).step_by(2).map(|tag| node(tag, 2.0)).collect();
    let host = block_on(heap.host_async()).unwrap();
    assert_eq!(seen(&host, first), expected);
    // One thread has the heap once.
    let again = block_on(heap.host_async()).unwrap_err();
    assert!(matches!(again, HeapError::HostAccess { .. }), "{again}");
    let refused = launch.submit().unwrap_err().to_string();
    assert!(refused.contains("host"), "{refused}");
    drop(host);
    // What the host changes goes up, and what the kernel changes comes down once more.
    block_on(heap.host_async())
        .unwrap()
        .get_mut(first)
        .unwrap()
        .value = 5.0;
    block_on(launch.submit().unwrap()).unwrap();
    let total = 5.0 + expected.iter().map(|node| node.value).sum::<f32>();
    assert_eq!(block_on(sum.read_back(..).unwrap()).unwrap(), [total]);
    let host = block_on(heap.host_async()).unwrap();
    assert_eq!(host.get(first).unwrap().value, 10.0);
    assert_eq!(seen(&host, first).len(), 25);
}

fn an_access_that_is_given_up_leaves_the_heap_as_it_was(f: &Fixture) {
    let device = apart(f);
    let heap = device_heap(&device);
    let kernel = kernel(&device, THIN);
    let first = list(&heap, 1000);
    let sum = device.buffer(&[f32::NAN]).unwrap();
    let launch = kernel.launch().value("first", &first).buffer("sum", &sum);
    let mut launch = launch.workgroups(1);
    let mut left = 1000usize;
    for polls in [1, 2, 3, 5, 8, 13] {
        launch.submit().unwrap();
        left = left.div_ceil(2);
        {
            let mut future = pin!(heap.host_async());
            let mut task = Task::from_waker(Waker::noop());
            for _ in 0..polls {
                if let std::task::Poll::Ready(access) = future.as_mut().poll(&mut task) {
                    drop(access.unwrap());
                    break;
                }
            }
        }
        let host = block_on(heap.host_async()).unwrap();
        assert_eq!(seen(&host, first).len(), left, "behind {polls} polls");
        drop(host);
    }
}

/// The heap of the device's own context.
fn device_heap(device: &Device) -> tombolo::SharedHeap {
    device.heap().unwrap()
}

fn node(tag: u32, times: f32) -> Node {
    Node {
        value: tag as f32 * times,
        tag,
        next: Ptr::null(),
    }
}

/// The nodes, without what leads from one to the next.
fn seen(host: &tombolo::heap::HostAccess, first: Ptr<Node>) -> Vec<Node> {
    let (mut at, mut seen) = (first, Vec::new());
    while !at.is_null() {
        let found = *host.get(at).unwrap();
        seen.push(Node {
            next: Ptr::null(),
            ..found
        });
        at = found.next;
    }
    seen
}

fn buffers_of_a_context_are_read_by_a_future(f: &Fixture) {
    let context = Context::new().unwrap();
    let options = apart(f).options().clone();
    let device = context.device_named_with(f.device.name(), options);
    let device = device.unwrap();
    let data = context.buffer_from(&[POISON; 1000]).unwrap();
    let launch = kernel(&device, INCREMENT).launch().buffer("data", &data);
    let mut launch = launch.invocations(1000);
    launch.submit().unwrap();
    let Err(BufferError::Execution(error)) = data.read() else {
        panic!("read");
    };
    assert!(instead(&error).contains("read_async"), "{error}");
    assert_eq!(block_on(data.read_async()).unwrap(), [POISON + 1; 1000]);
    data.write(500, &[7; 500]).unwrap();
    launch.submit().unwrap();
    let read = block_on(data.read_async()).unwrap();
    assert!(read[..500].iter().all(|word| *word == POISON + 2));
    assert!(read[500..].iter().all(|word| *word == 8));
}

fn launches_without_end_are_refused_and_go_on_behind_a_wait(f: &Fixture) {
    const LAUNCHES: u32 = 2_000;
    // Nothing of the batch goes before somebody asks for it.
    let device = f.open_alone(|options| {
        options.wait = WaitPolicy::Never;
        options.live_memory = false;
        (options.min_batch, options.max_batch) = (2 * LAUNCHES, 2 * LAUNCHES);
    });
    let count = device.buffer(&[0u32]).unwrap();
    let kernel = kernel(
        &device,
        "@group(0) @binding(0) var<storage, read_write> count: u32;
        @compute @workgroup_size(1) fn main() { assert(count < 100000u); count++; }",
    );
    let (mut last, mut refused) = (None, 0);
    for _ in 0..LAUNCHES {
        let mut launch = kernel.launch().buffer("count", &count).workgroups(1);
        let event = match launch.submit() {
            Ok(event) => event,
            Err(tombolo::launch::LaunchError::Execution(error)) => {
                assert!(instead(&error).contains("earlier launch"), "{error}");
                refused += 1;
                block_on::<tombolo::device::EventFuture>(last.take().unwrap()).unwrap();
                launch.submit().unwrap()
            }
            Err(other) => panic!("{other}"),
        };
        last = Some(event.into_future());
    }
    assert!(refused > 0);
    assert_eq!(block_on(count.read_back(..).unwrap()).unwrap(), [LAUNCHES]);
}
