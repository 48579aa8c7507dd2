//! Small transfers of single devices, which the embedded adapter makes without a submission where the device has nothing to
//! do: in the order of everything before, the program's own commands of wgpu included, and of no memory that wgpu would
//! clear. What others submit has the same results.

use std::thread;
use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Constants, Device, DeviceBuffer, Kernel, Program,
    buffers::{MemoryError, ReadError},
    device::{EventStatus, ExecutionError},
};

cases![
    small_transfers_of_an_idle_device_are_copied_at_once,
    what_was_never_written_is_not_written_at_once,
    transfers_come_behind_launches_that_nobody_has_waited_for,
    transfers_come_behind_commands_of_the_program,
    buffers_of_the_program_are_left_to_wgpu,
    small_transfers_of_a_lost_device_fail,
    threads_share_a_device,
];

const MINUTE: Duration = Duration::from_secs(60);
const POISON: u8 = 0xee;

fn noise(len: usize, seed: u32) -> Vec<u8> {
    let bytes = (0..len as u32).map(|at| ((at ^ seed).wrapping_mul(0x9e37_79b1) >> 13) as u8);
    bytes.collect()
}

/// What so many bytes count as.
fn direct(f: &Fixture, bytes: usize) -> u64 {
    match f.is_embedded() {
        true => bytes as u64,
        false => 0,
    }
}

fn at_once(device: &Device) -> u64 {
    device.transfer_statistics().at_once_bytes
}

const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

fn increment(device: &Device) -> Kernel {
    let program = Program::new("at_once.wgsl", INCREMENT).unwrap();
    (device.kernel(&program, "main", &Constants::new())).unwrap()
}

fn incremented(values: &mut [u32]) {
    values.iter_mut().for_each(|value| *value += 1);
}

fn small_transfers_of_an_idle_device_are_copied_at_once(f: &Fixture) {
    let device = f.open(|_| {});
    let mut model = noise((4 << 20) + 7, 1);
    let buffer = device.buffer(&model).unwrap();
    device.finish().unwrap();
    let len = model.len();
    let before = device.transfer_statistics();
    let mut expected = before.at_once_bytes;
    for (seed, range) in (2..).zip([
        0..4096,
        0..1,
        1..2,
        5..4099,
        4095..70_001,
        len - 3..len,
        7..7,
        3..(200 << 10),
        7..len,
    ]) {
        let values = noise(range.len(), seed);
        let written = buffer.write(range.start as u64, &values).unwrap();
        if f.is_embedded() {
            assert_eq!(written.status(), EventStatus::Complete);
        }
        written.wait_timeout(MINUTE).unwrap();
        model[range.clone()].copy_from_slice(&values);
        let read = buffer.read_range(range.start as u64..range.end as u64);
        assert!(read.unwrap() == values, "{range:?}");
        let mut into = vec![POISON; range.len() + 6];
        let place = 3..3 + range.len();
        let start = range.start as u64;
        buffer.read_into(start, &mut into[place.clone()]).unwrap();
        assert!(into[place.clone()] == values, "{range:?}");
        let around = into[..place.start].iter().chain(&into[place.end..]);
        assert!(around.copied().all(|byte| byte == POISON), "{range:?}");
        // What `read_into` lends the device is another figure.
        let times = if range.len() < 256 << 10 { 3 } else { 2 };
        expected += direct(f, times * range.len());
        assert_eq!(at_once(&device), expected, "{range:?}");
    }
    let after = device.transfer_statistics();
    if f.is_embedded() {
        assert_eq!(after.staging_made, before.staging_made);
        assert_eq!(after.staging_reused, before.staging_reused);
    }
    assert!(buffer.read().unwrap() == model);
    buffer.read_range(0..len as u64 + 1).unwrap_err();
    buffer.write(1, &model).unwrap_err();
}

fn what_was_never_written_is_not_written_at_once(f: &Fixture) {
    const LEN: usize = 1000;
    let device = f.open(|_| {});
    let kernel = increment(&device);
    for (first, second) in [(0..10, 5..15), (990..1000, 3..4), (400..600, 450..460)] {
        let buffer: DeviceBuffer<u32> = device.zeroed(LEN).unwrap();
        device.finish().unwrap();
        let before = at_once(&device);
        let mut model = vec![0u32; LEN];
        assert_eq!(buffer.read().unwrap(), model);
        let zeros = at_once(&device) - before;
        assert_eq!(zeros, direct(f, 4 * LEN));
        for (range, value) in [(first, 7u32), (second, 9)] {
            let values = vec![value; range.len()];
            let written = buffer.write(range.start as u64, &values).unwrap();
            written.wait_timeout(MINUTE).unwrap();
            model[range].fill(value);
            assert_eq!(buffer.read().unwrap(), model);
        }
        // wgpu clears before this what it takes for unwritten.
        for _ in 0..2 {
            let launch = kernel.launch().buffer("data", &buffer);
            let event = launch.invocations(LEN as u32).submit().unwrap();
            event.wait_timeout(MINUTE).unwrap();
            incremented(&mut model);
            assert_eq!(buffer.read().unwrap(), model);
        }
        // All of it was written now.
        device.finish().unwrap();
        let before = at_once(&device);
        buffer.write(500, &model[500..600]).unwrap();
        assert_eq!(at_once(&device) - before, direct(f, 400));
        assert_eq!(buffer.read().unwrap(), model);
    }
}

fn transfers_come_behind_launches_that_nobody_has_waited_for(f: &Fixture) {
    const LEN: usize = 70_000;
    let device = f.open(|_| {});
    let kernel = increment(&device);
    let mut model = vec![0u32; LEN];
    let buffer = device.buffer(&model).unwrap();
    for round in 0..40u32 {
        let mut launch = kernel.launch().buffer("data", &buffer);
        launch = launch.invocations(LEN as u32);
        for _ in 0..round % 3 {
            launch.submit().unwrap();
            incremented(&mut model);
        }
        if round % 4 == 1 {
            device.flush().unwrap();
        }
        let at = (round as usize * 977) % (LEN - 50);
        let values: Vec<u32> = (0..50).map(|i| round * 1000 + i).collect();
        buffer.write(at as u64, &values).unwrap();
        model[at..at + 50].copy_from_slice(&values);
        if round % 5 == 0 {
            launch.submit().unwrap();
            incremented(&mut model);
        }
        let mut into = [u32::MAX; 90];
        let start = at.saturating_sub(20);
        buffer.read_into(start as u64, &mut into).unwrap();
        assert_eq!(into, model[start..start + 90], "{round}");
    }
    assert!(buffer.read().unwrap() == model);
}

fn transfers_come_behind_commands_of_the_program(f: &Fixture) {
    const LEN: usize = 3 << 20;
    let device = f.open(|_| {});
    let (raw, queue) = (device.raw(), device.raw_queue());
    let old = noise(LEN, 40);
    let [buffer, before, other] = [&old; 3].map(|bytes| device.buffer(bytes).unwrap());
    device.finish().unwrap();
    for round in 0..8u32 {
        let news = noise(LEN, 50 + round);
        other.write(0, &news).unwrap();
        device.finish().unwrap();
        // What takes its time, and brings the new bytes last.
        let mut encoder = raw.create_command_encoder(&Default::default());
        let end = LEN as u64;
        for _ in 0..40 {
            encoder.copy_buffer_to_buffer(before.raw(), 0, buffer.raw(), 0, end);
        }
        encoder.copy_buffer_to_buffer(other.raw(), 0, buffer.raw(), 0, end);
        queue.submit([encoder.finish()]);
        let read = buffer.read_range(end - 100..end).unwrap();
        assert_eq!(read, news[LEN - 100..], "{round}");
        // What goes to the device with the next submission, whoever makes that.
        queue.write_buffer(buffer.raw(), 400, &[round as u8; 8]);
        let read = buffer.read_range(398..410).unwrap();
        let mut expected = news[398..410].to_vec();
        expected[2..10].fill(round as u8);
        assert_eq!(read, expected, "{round}");
        queue.write_buffer(buffer.raw(), 800, &[round as u8; 8]);
        buffer.write(804, &[POISON; 2]).unwrap();
        let mut expected = vec![round as u8; 8];
        expected[4..6].fill(POISON);
        assert_eq!(buffer.read_range(800..808).unwrap(), expected, "{round}");
    }
}

fn buffers_of_the_program_are_left_to_wgpu(f: &Fixture) {
    let device = f.open(|_| {});
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let raw = device.raw().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 64,
        usage,
        mapped_at_creation: false,
    });
    let buffer: DeviceBuffer<u8> = device.import(raw.clone()).unwrap();
    let before = at_once(&device);
    let mut expected = [0u8; 64];
    for value in 1..4u8 {
        let range = usize::from(value) * 4..usize::from(value) * 4 + 8;
        let start = range.start as u64;
        let written = buffer.write(start, &[value; 8]).unwrap();
        written.wait_timeout(MINUTE).unwrap();
        expected[range].fill(value);
    }
    assert_eq!(at_once(&device), before);
    raw.map_async(wgpu::MapMode::Read, .., |mapped| mapped.unwrap());
    device
        .raw()
        .poll(wgpu::PollType::wait_indefinitely())
        .unwrap();
    assert_eq!(*raw.get_mapped_range(..).unwrap(), expected);
    // wgpu refuses commands on mapped memory.
    let written = buffer.write(0, &[9; 8]);
    assert!(written.is_err() || written.is_ok_and(|event| event.wait_timeout(MINUTE).is_err()));
    assert_eq!(*raw.get_mapped_range(..).unwrap(), expected);
}

fn is_lost(error: &ExecutionError) -> bool {
    matches!(error, ExecutionError::DeviceLost { .. })
}

fn small_transfers_of_a_lost_device_fail(f: &Fixture) {
    for polls in [false, true] {
        let device = f.open(|_| {});
        let buffer = device.buffer(&[5u32; 100]).unwrap();
        device.finish().unwrap();
        device.raw().destroy();
        if polls {
            let _ = device.raw().poll(wgpu::PollType::Poll);
        }
        for _ in 0..2 {
            match buffer.write(0, &[6; 10]).map(|e| e.wait_timeout(MINUTE)) {
                Err(MemoryError::Execution(error)) => assert!(is_lost(&error), "{error}"),
                Ok(ended) => drop(ended.unwrap_err()),
                Err(error) => panic!("{error}"),
            }
            match buffer.read_into(0, &mut [0; 10]).unwrap_err() {
                ReadError::Execution(error) | ReadError::Memory(MemoryError::Execution(error)) => {
                    assert!(is_lost(&error), "{error}");
                }
                error => panic!("{error}"),
            }
            buffer.read().unwrap_err();
        }
        assert_eq!(at_once(&device), 0);
    }
}

fn threads_share_a_device(f: &Fixture) {
    const LEN: usize = 5000;
    let device = f.open(|_| {});
    let kernel = increment(&device);
    thread::scope(|scope| {
        for number in 0..4u32 {
            let (device, kernel) = (&device, &kernel);
            scope.spawn(move || {
                let mut model = vec![number; LEN];
                let buffer = device.buffer(&model).unwrap();
                let mut into = vec![u32::MAX; LEN];
                for round in 0..60u32 {
                    if (round + number).is_multiple_of(3) {
                        let launch = kernel.launch().buffer("data", &buffer);
                        launch.invocations(LEN as u32).submit().unwrap();
                        incremented(&mut model);
                    }
                    let at = (round * 67) as usize;
                    let values = [round << 8 | number; 9];
                    buffer.write(at as u64, &values).unwrap();
                    model[at..at + 9].copy_from_slice(&values);
                    into.fill(u32::MAX);
                    buffer.read_into(0, &mut into).unwrap();
                    assert!(into == model, "{number} {round}");
                }
            });
        }
    });
}
