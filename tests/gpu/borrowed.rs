//! Large transfers from and to memory of the program where it lies, which the embedded adapter makes without staging memory:
//! any bytes, in the order of commands, and nothing behind the return of a call. What others stage has the same results.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Constants, Device, DeviceBuffer, HostServices, Kernel, Launch, Program,
    buffers::{MemoryError, ReadError},
    device::{Aspect, EventStatus, ExecutionError},
};

cases![
    large_transfers_make_no_staging_memory,
    any_bytes_go_where_they_belong,
    memory_that_was_never_written_reads_as_zeros,
    a_write_beside_a_launch_is_seen_by_later_ones_alone,
    small_transfers_beside_a_launch_keep_their_order,
    moves_beside_a_launch_do_not_wait_for_it,
    a_read_waits_for_the_launch_before_it,
    functions_that_serve_a_launch_do_not_wait_for_it,
    transfers_of_a_lost_device_fail,
    threads_transfer_each_their_own,
];

const MIB: usize = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);
/// More bytes than one thread copies.
const LARGE: usize = 17 * MIB;
const POISON: u8 = 0xee;

fn noise(len: usize, seed: u32) -> Vec<u8> {
    let words =
        (0..len.div_ceil(4) as u32).map(|at| (at ^ seed).wrapping_mul(0x9e37_79b1) ^ at >> 9);
    let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    bytes.truncate(len);
    bytes
}

/// What so many bytes count as.
fn direct(f: &Fixture, bytes: usize) -> u64 {
    match f.is_embedded() {
        true => bytes as u64,
        false => 0,
    }
}

fn borrowed(device: &Device) -> u64 {
    device.transfer_statistics().borrowed_bytes
}

fn large_transfers_make_no_staging_memory(f: &Fixture) {
    let device = f.open(|_| {});
    let values = noise(64 * MIB, 1);
    let mut into = vec![POISON; values.len()];
    let buffer: DeviceBuffer<u8> = device.zeroed(values.len()).unwrap();
    device.finish().unwrap();
    let before = device.transfer_statistics();
    let written = buffer.write(0, &values).unwrap();
    if f.is_embedded() {
        assert_eq!(written.status(), EventStatus::Complete);
    }
    written.wait().unwrap();
    assert_eq!(borrowed(&device), direct(f, values.len()));
    assert!(buffer.read().unwrap() == values);
    assert_eq!(borrowed(&device), direct(f, 2 * values.len()));
    buffer.read_into(0, &mut into).unwrap();
    assert!(into == values);
    let after = device.transfer_statistics();
    assert_eq!(after.borrowed_bytes, direct(f, 3 * values.len()));
    assert_eq!(after.pinned_bytes, 0);
    if f.is_embedded() {
        assert_eq!(after.staging_made, before.staging_made);
        assert_eq!(after.staging_reused, before.staging_reused);
    }
}

fn any_bytes_go_where_they_belong(f: &Fixture) {
    let device = f.open(|_| {});
    let mut model = noise(LARGE + 5, 2);
    let buffer = device.buffer(&model).unwrap();
    let len = model.len();
    let ranges = [
        0..len,
        0..LARGE,
        0..LARGE + 1,
        0..LARGE + 3,
        1..LARGE,
        1..LARGE + 1,
        2..LARGE + 5,
        3..LARGE + 4,
        3..len,
        5..5,
        len - 1..len,
        len - 3..len,
        7..12,
        LARGE - 5 * MIB - 3..LARGE + 2,
    ];
    let mut all = vec![POISON; len];
    for (seed, range) in (3..).zip(ranges) {
        let values = noise(range.len(), seed);
        device.finish().unwrap();
        let before = borrowed(&device);
        buffer.write(range.start as u64, &values).unwrap();
        model[range.clone()].copy_from_slice(&values);
        // At another place of its word than on the device.
        let mut into = vec![POISON; range.len() + 9];
        let place = 5..5 + range.len();
        let start = range.start as u64;
        buffer.read_into(start, &mut into[place.clone()]).unwrap();
        assert!(into[place.clone()] == values, "{range:?}");
        let around = into[..place.start].iter().chain(&into[place.end..]);
        assert!(around.copied().all(|byte| byte == POISON), "{range:?}");
        let read = buffer.read_range(start..range.end as u64).unwrap();
        assert!(read == values, "{range:?}");
        let large = if range.len() > 4 * MIB { 3 } else { 0 };
        let expected = direct(f, large * range.len());
        assert_eq!(borrowed(&device) - before, expected, "{range:?}");
        all.fill(POISON);
        buffer.read_into(0, &mut all).unwrap();
        assert!(all == model, "{range:?}");
    }
    buffer.read_into(1, &mut all).unwrap_err();
    buffer.write(1, &all).unwrap_err();
}

fn memory_that_was_never_written_reads_as_zeros(f: &Fixture) {
    let device = f.open(|_| {});
    let kernel = kernel(&device, INCREMENT);
    let words = LARGE / 4 + 3;
    for at in [None, Some(0), Some(1), Some(words - LARGE / 4)] {
        let buffer: DeviceBuffer<u32> = device.zeroed(words).unwrap();
        let mut model = vec![0; words];
        device.finish().unwrap();
        if let Some(at) = at {
            let values = bytemuck::pod_collect_to_vec::<u8, u32>(&noise(LARGE - 8, 4));
            buffer.write(at as u64, &values).unwrap();
            model[at..at + values.len()].copy_from_slice(&values);
        }
        let mut into = vec![0xdead_beef_u32; words];
        buffer.read_into(0, &mut into).unwrap();
        assert!(into == model, "{at:?}");
        // What wgpu takes for unwritten it clears before the first use.
        let launch = kernel.launch().buffer("data", &buffer);
        launch.invocations(words as u32).submit().unwrap();
        model
            .iter_mut()
            .for_each(|word| *word = word.wrapping_add(1));
        assert!(buffer.read().unwrap() == model, "{at:?}");
    }
}

const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let at = id.x + id.y * groups.x * 64u;
    if at < arrayLength(&data) { data[at] += 1u; }
}";

/// Waits for the host, then copies some words to `seen`, and adds one to each of these.
const GATED: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@group(0) @binding(1) var<storage, read_write> seen: array<u32>;
@group(0) @binding(2) var<uniform> step: u32;
@compute @workgroup_size(1) fn main() {
    _ = gate_try(1u);
    for (var i = 0u; i < arrayLength(&seen); i++) {
        seen[i] = data[i * step];
        data[i * step] += 1u;
    }
}";

const WORDS: usize = LARGE / 4;
const SEEN: usize = 1000;
const STEP: usize = WORDS / SEEN;

fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("borrowed.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    (device.kernel(&program, "main", &Constants::new())).unwrap_or_else(|e| panic!("{e}"))
}

/// A launch that waits until the gate is opened, which calls `inside` meanwhile. On an adapter with a loop budget it may go on
/// before.
struct Gated {
    data: DeviceBuffer<u32>,
    seen: DeviceBuffer<u32>,
    launch: Launch,
    reached: Receiver<()>,
    open: Sender<()>,
    _services: HostServices,
}

impl Gated {
    fn new(device: &Device, inside: impl Fn(&DeviceBuffer<u32>) + Send + Sync + 'static) -> Self {
        assert!(device.has(Aspect::LiveMemory));
        let data: DeviceBuffer<u32> = device.zeroed(WORDS).unwrap();
        let seen = device.buffer(&[0xdead_beef_u32; SEEN]).unwrap();
        let ((open, opened), (reach, reached)) = (channel(), channel());
        let (opened, own) = (Mutex::new(opened), data.clone());
        let gate = move |_: u32| -> u32 {
            inside(&own);
            let _ = reach.send(());
            let opened: Result<(), _> = opened.lock().unwrap().recv_timeout(MINUTE);
            assert!(!matches!(opened, Err(RecvTimeoutError::Timeout)));
            1
        };
        let services = HostServices::builder().call("fn gate(x: u32) -> u32", gate);
        let services = services.start().unwrap();
        let program = Program::builder()
            .source("borrowed.wgsl", GATED)
            .services(&services)
            .build()
            .unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new());
        let launch = kernel.unwrap().launch().services(&services);
        let launch = launch.buffer("data", &data).buffer("seen", &seen);
        let launch = launch.value("step", &(STEP as u32));
        Self {
            launch: launch.workgroups(1),
            data,
            seen,
            reached,
            open,
            _services: services,
        }
    }

    /// Starts the launch, and returns when it waits.
    fn start(&mut self) -> tombolo::Event {
        let event = self.launch.submit().unwrap();
        self.data.device().flush().unwrap();
        self.reached.recv_timeout(MINUTE).unwrap();
        event
    }
}

fn values(seed: u32) -> Vec<u32> {
    bytemuck::pod_collect_to_vec(&noise(LARGE, seed))
}

fn words_seen(values: &[u32]) -> Vec<u32> {
    values.iter().step_by(STEP).take(SEEN).copied().collect()
}

fn incremented(mut values: Vec<u32>) -> Vec<u32> {
    let touched = values.iter_mut().step_by(STEP).take(SEEN);
    touched.for_each(|word| *word = word.wrapping_add(1));
    values
}

fn a_write_beside_a_launch_is_seen_by_later_ones_alone(f: &Fixture) {
    let device = f.open(|_| {});
    let mut gated = Gated::new(&device, |_| ());
    let (old, mut new) = (values(5), values(6));
    gated.data.write(0, &old).unwrap().wait().unwrap();
    let event = gated.start();
    let before = borrowed(&device);
    let written = gated.data.write(0, &new).unwrap();
    // The values were taken at once.
    new.fill(0);
    if f.is_embedded() {
        // Neither has the write waited.
        assert_eq!(event.status(), EventStatus::Submitted);
        assert_ne!(written.status(), EventStatus::Complete);
        assert_eq!(borrowed(&device), before);
    }
    let again = gated.launch.submit().unwrap();
    gated.open.send(()).unwrap();
    gated.open.send(()).unwrap();
    event.wait_timeout(MINUTE).unwrap();
    again.wait_timeout(MINUTE).unwrap();
    // The second launch has seen the new values; and the first the old ones, which it left to the write.
    assert_eq!(gated.seen.read().unwrap(), words_seen(&values(6)));
    assert!(gated.data.read().unwrap() == incremented(values(6)));
    // And once alone, for what the first has seen.
    gated.data.write(0, &old).unwrap();
    device.finish().unwrap();
    let event = gated.start();
    gated.data.write(0, &values(7)).unwrap();
    gated.open.send(()).unwrap();
    event.wait_timeout(MINUTE).unwrap();
    assert_eq!(gated.seen.read().unwrap(), words_seen(&old));
    assert!(gated.data.read().unwrap() == values(7));
}

fn small_transfers_beside_a_launch_keep_their_order(f: &Fixture) {
    let device = f.open(|_| {});
    let mut gated = Gated::new(&device, |_| ());
    let old = values(12);
    gated.data.write(0, &old).unwrap().wait().unwrap();
    let event = gated.start();
    let at_once = || device.transfer_statistics().at_once_bytes;
    let before = at_once();
    let written = gated.data.write(0, &[77, 78]).unwrap();
    if f.is_embedded() {
        assert_eq!(event.status(), EventStatus::Submitted);
        assert_ne!(written.status(), EventStatus::Complete);
        assert_eq!(at_once(), before);
    }
    let read = thread::scope(|scope| {
        let (begun, begins) = channel();
        let data = &gated.data;
        let read = scope.spawn(move || {
            begun.send(()).unwrap();
            let mut into = [0xdead_beef_u32; 3];
            data.read_into(0, &mut into).map(|()| into)
        });
        begins.recv_timeout(MINUTE).unwrap();
        gated.open.send(()).unwrap();
        read.join().unwrap().unwrap()
    });
    assert_eq!(read, [77, 78, old[2]]);
    event.wait_timeout(MINUTE).unwrap();
    assert_eq!(gated.seen.read().unwrap(), words_seen(&old));
    let mut model = incremented(old);
    model[..2].copy_from_slice(&[77, 78]);
    assert!(gated.data.read().unwrap() == model);
}

fn moves_beside_a_launch_do_not_wait_for_it(f: &Fixture) {
    let device = f.open(|_| {});
    let mut gated = Gated::new(&device, |_| ());
    gated.data.write(0, &values(13)).unwrap().wait().unwrap();
    let event = gated.start();
    let before = borrowed(&device);
    let moved = values(14);
    let buffer = f.context.buffer_from(&moved).unwrap();
    let arrived = buffer.prefetch(&device).unwrap();
    if f.is_embedded() {
        assert_eq!(event.status(), EventStatus::Submitted);
        assert_ne!(arrived.status(), EventStatus::Complete);
        assert_eq!(borrowed(&device), before);
    }
    gated.open.send(()).unwrap();
    event.wait_timeout(MINUTE).unwrap();
    arrived.wait_timeout(MINUTE).unwrap();
    // The device has them, and the host no more.
    buffer.migrate(&device).unwrap();
    let mut into = vec![0xdead_beef_u32; moved.len()];
    buffer.read_into(0, &mut into).unwrap();
    assert!(into == moved);
    assert_eq!(borrowed(&device) - before, direct(f, 4 * moved.len()));
}

fn a_read_waits_for_the_launch_before_it(f: &Fixture) {
    let device = f.open(|_| {});
    let mut gated = Gated::new(&device, |_| ());
    let old = values(8);
    gated.data.write(0, &old).unwrap().wait().unwrap();
    gated.start();
    let read = thread::scope(|scope| {
        let (begun, begins) = channel();
        let data = &gated.data;
        let read = scope.spawn(move || {
            begun.send(()).unwrap();
            let mut into = vec![0xdead_beef_u32; WORDS];
            data.read_into(0, &mut into).map(|()| into)
        });
        begins.recv_timeout(MINUTE).unwrap();
        // The read may have begun or not; the launch is before it in any case.
        gated.open.send(()).unwrap();
        read.join().unwrap().unwrap()
    });
    assert!(read == incremented(old));
    // Of launches that nobody has submitted.
    let kernel = kernel(&device, INCREMENT);
    let groups = (WORDS as u32).div_ceil(64);
    let launch = kernel.launch().buffer("data", &gated.data);
    let mut launch = launch.workgroups([1000, groups.div_ceil(1000), 1]);
    let mut model = read;
    for _ in 0..3 {
        launch.submit().unwrap();
        model
            .iter_mut()
            .for_each(|word| *word = word.wrapping_add(1));
        assert!(gated.data.read().unwrap() == model);
    }
}

fn functions_that_serve_a_launch_do_not_wait_for_it(f: &Fixture) {
    let device = f.open(|_| {});
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let mut gated = Gated::new(&device, move |data| {
        let mut into = vec![7u32; WORDS];
        let read = data.read_into(0, &mut into).unwrap_err();
        let again = data.read().unwrap_err();
        let written = data.write(0, &values(9)).map(drop);
        let untouched = into == vec![7; WORDS];
        let _ = tell.lock().unwrap().send((read, again, written, untouched));
    });
    let event = gated.start();
    let (read, again, written, untouched) = told.recv_timeout(MINUTE).unwrap();
    for error in [read, again] {
        assert!(
            matches!(&error, ReadError::Execution(why) if matches!(**why, ExecutionError::InHandler { .. })),
            "{error}"
        );
    }
    written.unwrap();
    assert!(untouched);
    gated.open.send(()).unwrap();
    event.wait_timeout(MINUTE).unwrap();
    assert_eq!(gated.seen.read().unwrap(), [0; SEEN]);
    assert!(gated.data.read().unwrap() == values(9));
}

fn is_lost(error: &ExecutionError) -> bool {
    matches!(error, ExecutionError::DeviceLost { .. })
}

fn transfers_of_a_lost_device_fail(f: &Fixture) {
    let device = f.open(|_| {});
    let buffer = device.buffer(&values(10)).unwrap();
    device.finish().unwrap();
    device.raw().destroy();
    for _ in 0..2 {
        match buffer
            .write(0, &values(11))
            .map(|event| event.wait_timeout(MINUTE))
        {
            Err(MemoryError::Execution(error)) => assert!(is_lost(&error), "{error}"),
            Ok(ended) => drop(ended.unwrap_err()),
            Err(error) => panic!("{error}"),
        }
        match buffer.read_into(0, &mut vec![0; WORDS]).unwrap_err() {
            ReadError::Execution(error) | ReadError::Memory(MemoryError::Execution(error)) => {
                assert!(is_lost(&error), "{error}");
            }
            error => panic!("{error}"),
        }
        buffer.read().unwrap_err();
    }
}

fn threads_transfer_each_their_own(f: &Fixture) {
    let device = f.open(|_| {});
    thread::scope(|scope| {
        for number in 0..4u32 {
            let device = &device;
            scope.spawn(move || {
                let values = noise(5 * MIB + number as usize, 20 + number);
                let buffer: DeviceBuffer<u8> = device.zeroed(values.len()).unwrap();
                let mut into = vec![POISON; values.len()];
                for _ in 0..4 {
                    buffer.fill(POISON, ..values.len() as u64).unwrap();
                    buffer.write(0, &values).unwrap();
                    into.fill(POISON);
                    buffer.read_into(0, &mut into).unwrap();
                    assert!(into == values, "{number}");
                    assert!(buffer.read().unwrap() == values, "{number}");
                }
            });
        }
    });
}
