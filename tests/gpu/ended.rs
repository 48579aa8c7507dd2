//! When work of a device has ended: the host gets memory that kernels write when they have ended and not before,
//! whatever else happens meanwhile to the device, its queue, or a callback of the program.
//!
//! The kernel of these tests adds to a word for as long as it runs, and it is known how often: whoever sees another
//! number has looked too early. Nothing here is timed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::cases;
use crate::harness::Fixture;
use crate::panics::ON_PURPOSE;
use tombolo::{
    Constants, Context, Device, DeviceBuffer, DeviceOptions, Event, Kernel, Launch, PrintOptions,
    Program, Ptr, SharedHeap,
    device::{EventStatus, ExecutionError},
    heap::HeapError,
    print::PrintRecord,
};

cases![
    a_refused_batch_hides_none_before_it,
    a_batch_with_mapped_memory_hides_none_before_it,
    a_refused_batch_frees_nothing_that_kernels_write,
    a_panic_in_a_callback_is_no_loss,
    a_panic_while_a_batch_is_submitted_leaves_it_a_verdict,
    a_destroyed_device_still_has_the_heap,
    reads_come_behind_what_a_refused_batch_hides,
    lines_come_although_a_callback_before_them_panics,
    callbacks_may_flush,
    callbacks_that_ask_for_the_heap_are_answered,
    callbacks_that_wait_for_their_own_batch_are_told,
];

/// Work-groups, and additions that the first invocation of each makes.
const GROUPS: u32 = 1500;
const TURNS: u32 = 2000;

/// Adds to the first word, again and again, and reads what it has added to.
const COUNT: &str = "
alias Count = atomic<u32>;
@group(0) @binding(0) var<uniform> at: usm_ptr;
@group(0) @binding(1) var<uniform> turns: u32;
@compute @workgroup_size(1) fn main() {
    let count = usm_Count(at);
    for (var i = 0u; i < turns; i++) { atomicAdd(count, 1u); }
}";

/// Adds to each word as often, and takes as long.
const LONG: &str = "
@group(0) @binding(0) var<storage, read_write> sums: array<atomic<u32>>;
@compute @workgroup_size(1) fn main() {
    for (var i = 0u; i < 2000u; i++) { atomicAdd(&sums[i & 63u], 1u); }
}";

/// Adds one to each word.
const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("ended.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    (device.kernel(&program, "main", &Constants::new())).unwrap_or_else(|e| panic!("{e}"))
}

/// A device with a heap of its own, and a word of it that a kernel counts in.
struct Counter {
    device: Device,
    heap: SharedHeap,
    at: Ptr<u32>,
    launch: Launch,
    launches: u32,
}

impl Counter {
    fn new(f: &Fixture) -> Self {
        let context = Context::new().unwrap();
        let mut options = DeviceOptions::default();
        options.checked_pointers = false;
        let device = (context.device_named_with(f.device.name(), options)).unwrap();
        Self::of(&context, device)
    }

    fn of(context: &Context, device: Device) -> Self {
        let heap = context.heap().unwrap();
        let at = heap.alloc(0u32).unwrap();
        let kernel = kernel(&device, COUNT);
        let turns = |turns: u32| {
            let launch = kernel.launch().value("at", &at).value("turns", &turns);
            launch.workgroups(GROUPS)
        };
        // Compiled and imported before it matters.
        turns(0).submit().unwrap().wait().unwrap();
        let launch = turns(TURNS);
        Self {
            device,
            heap,
            at,
            launch,
            launches: 0,
        }
    }

    /// Starts a kernel that counts for a long time.
    fn start(&mut self) -> Event {
        let event = self.launch.submit().unwrap();
        self.device.flush().unwrap();
        self.launches += 1;
        event
    }

    /// A launch that uses the heap, and an argument.
    fn other(&self, argument: &DeviceBuffer<u32>) -> Launch {
        let source = "
            @group(0) @binding(0) var<uniform> at: usm_ptr;
            @group(0) @binding(1) var<storage, read_write> data: array<u32>;
            @compute @workgroup_size(1) fn main() { let word = usm_u32(at); data[0] += *word; }";
        kernel(&self.device, source)
            .launch()
            .value("at", &self.at)
            .buffer("data", argument)
            .workgroups(1)
    }

    /// A launch that uses the heap, and that is refused when it is submitted: an argument is gone that was there when it
    /// was bound.
    fn refused(&self) -> Launch {
        let argument = self.device.zeroed::<u32>(4).unwrap();
        let mut launch = self.other(&argument);
        launch.submit().unwrap().wait().unwrap();
        argument.raw().destroy();
        launch
    }

    /// Submits it; the event tells what has become of it.
    fn send(&self, launch: &mut Launch) -> Event {
        let event = launch.submit().unwrap();
        let _ = self.device.flush();
        event
    }

    /// What the host sees as soon as it is let in, with the failures that it was told before.
    fn seen(&self) -> (u32, Vec<HeapError>) {
        let mut told = Vec::new();
        loop {
            match self.heap.host() {
                Ok(host) => {
                    let first = *host.get(self.at).unwrap();
                    // A kernel that still runs would go on counting.
                    std::thread::yield_now();
                    let then = *host.get(self.at).unwrap();
                    assert_eq!(first, then, "somebody writes while the host looks");
                    return (first, told);
                }
                Err(error) if told.len() < 8 => told.push(error),
                Err(error) => panic!("still told: {error}"),
            }
        }
    }

    fn expected(&self) -> u32 {
        self.launches * GROUPS * TURNS
    }
}

fn is_refused(event: &Event) -> bool {
    matches!(
        event.error().as_deref(),
        Some(ExecutionError::Refused { .. })
    )
}

fn a_refused_batch_hides_none_before_it(f: &Fixture) {
    let mut counter = Counter::new(f);
    let mut refused = counter.refused();
    let event = counter.start();
    assert!(is_refused(&counter.send(&mut refused)));
    let (seen, _) = counter.seen();
    assert_eq!(seen, counter.expected());
    event.wait().unwrap();
}

fn a_batch_with_mapped_memory_hides_none_before_it(f: &Fixture) {
    let mut counter = Counter::new(f);
    let raw = counter.device.raw().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 16,
        usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: true,
    });
    let argument = counter.device.import::<u32>(raw.clone()).unwrap();
    let mut refused = counter.other(&argument);
    let event = counter.start();
    // wgpu submits nothing that uses mapped memory.
    assert!(is_refused(&counter.send(&mut refused)));
    let (seen, _) = counter.seen();
    assert_eq!(seen, counter.expected());
    event.wait().unwrap();
    raw.unmap();
}

fn a_refused_batch_frees_nothing_that_kernels_write(f: &Fixture) {
    let mut counter = Counter::new(f);
    let mut refused = counter.refused();
    counter.start();
    assert!(is_refused(&counter.send(&mut refused)));
    let heap = &counter.heap;
    heap.free(counter.at).unwrap();
    // What is allocated while the kernel may run lies elsewhere.
    let mut others = Vec::new();
    while counter.device.finish().is_ok() && others.is_empty() {
        others.push(heap.alloc(7u32).unwrap());
    }
    let early = heap.alloc(7u32).unwrap();
    let host = loop {
        match heap.host() {
            Ok(host) => break host,
            Err(HeapError::Execution(_)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(*host.get(early).unwrap(), 7);
    for ptr in others {
        assert_eq!(*host.get(ptr).unwrap(), 7);
    }
}

/// A buffer of the program's own, whose callback comes with the next poll, and panics.
fn panics_at_the_next_poll(device: &Device) -> (wgpu::Buffer, Arc<AtomicBool>) {
    let buffer = device.raw().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 16,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let came = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&came);
    buffer.map_async(wgpu::MapMode::Read, .., move |_| {
        told.store(true, Ordering::SeqCst);
        panic!("{ON_PURPOSE}");
    });
    // wgpu calls back at once when a buffer is dropped.
    (buffer, came)
}

fn a_panic_in_a_callback_is_no_loss(f: &Fixture) {
    let mut counter = Counter::new(f);
    let event = counter.start();
    let (_buffer, came) = panics_at_the_next_poll(&counter.device);
    let (seen, told) = counter.seen();
    assert_eq!(seen, counter.expected());
    assert!(came.load(Ordering::SeqCst));
    assert!(told.is_empty(), "{told:?}");
    event.wait().unwrap();
    // The device is as good as before.
    counter.start().wait().unwrap();
    assert_eq!(counter.seen().0, counter.expected());
}

fn a_panic_while_a_batch_is_submitted_leaves_it_a_verdict(f: &Fixture) {
    let mut counter = Counter::new(f);
    let data = counter.device.buffer(&[1u32; 100]).unwrap();
    counter.device.finish().unwrap();
    let mut increment = kernel(&counter.device, INCREMENT)
        .launch()
        .buffer("data", &data)
        .invocations(100);
    let first = counter.start();
    let event = increment.submit().unwrap();
    let (_buffer, came) = panics_at_the_next_poll(&counter.device);
    counter.device.flush().unwrap();
    assert!(came.load(Ordering::SeqCst));
    assert_ne!(event.status(), EventStatus::Recorded);
    assert_eq!(counter.seen().0, counter.expected());
    first.wait().unwrap();
    event.wait().unwrap();
    assert_eq!(data.read().unwrap(), [2; 100]);
}

fn a_destroyed_device_still_has_the_heap(f: &Fixture) {
    let mut counter = Counter::new(f);
    let mut again = counter.launch.clone();
    counter.start();
    counter.device.raw().destroy();
    // Refused, by whoever notices first.
    if let Ok(event) = again.submit() {
        assert!(event.wait().is_err());
        assert_eq!(event.status(), EventStatus::Failed);
    }
    let (seen, told) = counter.seen();
    assert_eq!(seen, counter.expected());
    let is_loss = |error: &HeapError| matches!(error, HeapError::Execution(e) if matches!(**e, ExecutionError::DeviceLost { .. }));
    assert!(told.iter().all(is_loss), "{told:?}");
    // Nothing is had from it any more.
    assert!(counter.device.zeroed::<u32>(4).is_err());
    assert!(counter.device.malloc::<u32>(4).is_err());
}

fn reads_come_behind_what_a_refused_batch_hides(f: &Fixture) {
    let mut counter = Counter::new(f);
    let mut refused = counter.refused();
    counter.start();
    assert!(is_refused(&counter.send(&mut refused)));
    let mut word = None;
    for _ in 0..8 {
        match counter.heap.read(counter.at, 1) {
            Ok(words) => {
                word = Some(words[0]);
                break;
            }
            Err(HeapError::Execution(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(word, Some(counter.expected()));
}

fn lines_come_although_a_callback_before_them_panics(f: &Fixture) {
    // Lines, records and calls travel in copies, whose callbacks wgpu drops behind one that panics. The barrier has all
    // invocations say their line, also those that begin when the first has failed.
    let device = f.open(|options| {
        options.live_memory = false;
        options.import_host_memory = false;
    });
    let source = "
        @group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) lane: u32) {
            print(\"{}\", data[0] + lane);
            assert(data[0] < 9u, \"too many\");
            workgroupBarrier();
        }";
    let data = device.buffer(&[0u32; 4]).unwrap();
    let (lines, told) = (Arc::new(Mutex::new(Vec::new())), Arc::default());
    let (taken, came): (_, Arc<AtomicU32>) = (Arc::clone(&lines), Arc::clone(&told));
    let sink = PrintOptions::sink(move |line: &PrintRecord<'_>| {
        taken.lock().unwrap().push(line.to_string());
    });
    let mut launch = kernel(&device, source)
        .launch()
        .buffer("data", &data)
        .workgroups(1)
        .print_to(sink);
    // A long kernel, and behind it a copy of the program's own.
    let sums = device.zeroed::<u32>(64).unwrap();
    let mut long = kernel(&device, LONG)
        .launch()
        .buffer("sums", &sums)
        .workgroups(GROUPS);
    for round in 0..10u32 {
        data.write(0, &[round]).unwrap();
        long.submit().unwrap();
        device.flush().unwrap();
        let raw = device.raw();
        let buffer = raw.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 256,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(sums.raw(), 0, &buffer, 0, 256);
        device.raw_queue().submit([encoder.finish()]);
        let came = Arc::clone(&came);
        buffer.map_async(wgpu::MapMode::Read, .., move |_| {
            came.fetch_add(1, Ordering::SeqCst);
            panic!("{ON_PURPOSE}");
        });
        let event = launch.submit().unwrap();
        match event.wait() {
            Ok(()) => assert!(round < 9),
            Err(error) => assert!(
                round == 9 && error.to_string().contains("too many"),
                "{error}"
            ),
        }
        let lines = std::mem::take(&mut *lines.lock().unwrap());
        let wanted: Vec<String> = (round..round + 8).map(|n| n.to_string()).collect();
        assert_eq!(lines, wanted);
    }
    assert_eq!(told.load(Ordering::SeqCst), 10);
    let wanted: u32 = sums.read().unwrap().iter().sum();
    assert_eq!(wanted, 10 * GROUPS * TURNS);
}

fn callbacks_that_ask_for_the_heap_are_answered(f: &Fixture) {
    let counter = Counter::new(f);
    let (heap, device) = (counter.heap.clone(), counter.device.clone());
    let mut launch = counter.launch.clone();
    let (sender, receiver) = std::sync::mpsc::channel();
    let buffer = device.raw().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 16,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let own = heap.clone();
    buffer.map_async(wgpu::MapMode::Read, .., move |_| {
        // Runs while the heap is waited for below.
        let launched = launch
            .submit()
            .map(|_| ())
            .map_err(|error| error.to_string());
        let looked = own.host().map(|_| ()).map_err(|error| error.to_string());
        sender.send((launched, looked)).unwrap();
    });
    let mut long = counter.launch.clone();
    long.submit().unwrap();
    drop(heap.host().unwrap());
    let (launched, looked) = receiver.try_recv().expect("the callback has run");
    for answer in [launched, looked] {
        let error = answer.expect_err("the host has the heap");
        assert!(
            error.contains("callback") || error.contains("HostAccess"),
            "{error}"
        );
    }
    drop(heap.host().unwrap());
}

fn callbacks_may_flush(f: &Fixture) {
    let device = f.open(|_| {});
    let data = device.buffer(&[1u32; 100]).unwrap();
    device.finish().unwrap();
    let launch = kernel(&device, INCREMENT)
        .launch()
        .buffer("data", &data)
        .invocations(100);
    let (mut inside, mut outside) = (launch.clone(), launch);
    let buffer = device.raw().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 16,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let (sender, receiver) = std::sync::mpsc::channel();
    let own = device.clone();
    outside.submit().unwrap();
    buffer.map_async(wgpu::MapMode::Read, .., move |_| {
        // Runs inside the flush below.
        let event = inside.submit().unwrap();
        own.flush().unwrap();
        sender.send(event).unwrap();
    });
    device.flush().unwrap();
    let event = receiver.try_recv().expect("the callback has run");
    event.wait().unwrap();
    assert_eq!(data.read().unwrap(), [3; 100]);
}

fn callbacks_that_wait_for_their_own_batch_are_told(f: &Fixture) {
    let device = f.open(|_| {});
    let data = device.buffer(&[1u32; 100]).unwrap();
    device.finish().unwrap();
    let mut launch = kernel(&device, INCREMENT)
        .launch()
        .buffer("data", &data)
        .invocations(100);
    let buffer = device.raw().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 16,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let (sender, receiver) = std::sync::mpsc::channel();
    let event = launch.submit().unwrap();
    let own = event.clone();
    buffer.map_async(wgpu::MapMode::Read, .., move |_| {
        sender.send(own.wait()).unwrap();
    });
    device.flush().unwrap();
    // Either it is had, or it is said that it cannot be had there; nothing waits for ever.
    if let Err(error) = receiver.try_recv().expect("the callback has run") {
        assert!(error.to_string().contains("callback"), "{error}");
    }
    event.wait().unwrap();
    assert_eq!(data.read().unwrap(), [2; 100]);
}
