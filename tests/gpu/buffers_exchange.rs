//! The host's memory through which devices pass bytes on: it is used again, and goes back.

use std::time::{Duration, Instant};

use crate::buffers_moving::{Kernels, Random, added};
use crate::cases;
use crate::harness::Fixture;
use tombolo::{Context, Device, DeviceOptions, buffers::ExchangeMemory};

cases![
    slots_wait_for_the_next_transfer_and_are_given_back,
    devices_take_their_imports_along,
    what_was_given_back_is_made_anew,
    memory_in_common_is_not_given_back,
    devices_without_import_have_none,
    anything_is_right_while_slots_come_and_go,
];

const DEADLINE: Duration = Duration::from_secs(60);
const KIB: u64 = 1 << 10;

/// A context of its own, whose figures are those of the test alone.
fn context() -> Context {
    Context::new().unwrap()
}

fn open(f: &Fixture, context: &Context) -> Kernels {
    let device = context.device_named_with(f.device.name(), DeviceOptions::default());
    Kernels::new(&device.unwrap())
}

fn exchanges(kernels: &Kernels) -> bool {
    kernels.device.capabilities().host_import()
}

/// The device writes a new buffer of `len` elements, and the other one goes on with it.
fn hand_over(context: &Context, one: &Kernels, other: &Kernels, len: usize) {
    let mut model: Vec<u32> = (0..len as u32).map(|i| i.wrapping_mul(77)).collect();
    let buffer = context.buffer_from(&model).unwrap();
    for (kernels, amount) in [(one, 3), (other, 4)] {
        kernels.add(&buffer, amount).unwrap();
        added(&mut model, amount);
    }
    assert!(buffer.read().unwrap() == model, "{len}");
    finish(&[one, other]);
}

fn finish(all: &[&Kernels]) {
    for kernels in all {
        kernels.device.finish().unwrap();
    }
}

/// Trims until nothing is left: wgpu lets go of memory when it is polled.
fn trimmed(context: &Context, devices: &[&Device]) -> ExchangeMemory {
    let begun = Instant::now();
    loop {
        for device in devices {
            device.trim_buffer_blocks();
            let _ = device.raw().poll(wgpu::PollType::Poll);
        }
        let memory = context.exchange_memory();
        if memory.bytes == 0 || begun.elapsed() > DEADLINE {
            return memory;
        }
        std::thread::yield_now();
    }
}

fn slots_wait_for_the_next_transfer_and_are_given_back(f: &Fixture) {
    let context = context();
    let (one, other) = (open(f, &context), open(f, &context));
    assert_eq!(context.exchange_memory(), ExchangeMemory::default());
    let is_there = u64::from(exchanges(&one));
    for (len, slots, bytes) in [
        (1 << 20, 1, 4096 * KIB),
        // Smaller ones have a slot of their own, also of a size that is none.
        (1000, 2, 4160 * KIB),
        (16_384, 2, 4160 * KIB),
        (1000 << 10, 2, 4160 * KIB),
        (20_000, 3, 4288 * KIB),
    ] {
        hand_over(&context, &one, &other, len);
        let memory = context.exchange_memory();
        assert_eq!(memory.slots, slots * is_there, "{len}");
        assert_eq!(memory.bytes, bytes * is_there, "{len}");
        assert_eq!(memory.idle_bytes, memory.bytes, "{len}");
        assert_eq!(memory.imports, 2 * memory.slots, "{len}");
    }
    let left = trimmed(&context, &[&one.device]);
    assert_eq!(left, ExchangeMemory::default());
    // The same by the call that gives up all memory of buffers.
    hand_over(&context, &one, &other, 5000);
    assert_eq!(context.exchange_memory().slots, is_there);
    other.device.trim_buffers().unwrap();
    let left = trimmed(&context, &[&one.device, &other.device]);
    assert_eq!(left, ExchangeMemory::default());
}

fn devices_take_their_imports_along(f: &Fixture) {
    let context = context();
    let (one, other, third) = (open(f, &context), open(f, &context), open(f, &context));
    let is_there = u64::from(exchanges(&one));
    hand_over(&context, &one, &other, 1 << 18);
    hand_over(&context, &other, &third, 100);
    let memory = context.exchange_memory();
    assert_eq!((memory.slots, memory.imports), (2 * is_there, 4 * is_there));
    drop(other);
    // A device may end on another thread.
    let begun = Instant::now();
    while context.exchange_memory().imports > 2 * is_there && begun.elapsed() < DEADLINE {
        std::thread::yield_now();
    }
    let memory = context.exchange_memory();
    assert_eq!((memory.slots, memory.imports), (2 * is_there, 2 * is_there));
    drop(third);
    while context.exchange_memory().imports > is_there && begun.elapsed() < DEADLINE {
        std::thread::yield_now();
    }
    assert_eq!(context.exchange_memory().imports, is_there);
    // The slot that no open device has goes as well.
    let left = trimmed(&context, &[&one.device]);
    assert_eq!(left, ExchangeMemory::default());
    let next = open(f, &context);
    hand_over(&context, &one, &next, 1 << 18);
    assert_eq!(context.exchange_memory().imports, 2 * is_there);
}

fn what_was_given_back_is_made_anew(f: &Fixture) {
    let context = context();
    let (one, other) = (open(f, &context), open(f, &context));
    for round in 0..3 {
        for len in [1 << 19, 7, 1 << 17, 1] {
            hand_over(&context, &one, &other, len);
            if round == 1 {
                other.device.trim_buffer_blocks();
            }
        }
        let left = trimmed(&context, &[&one.device, &other.device]);
        assert_eq!(left, ExchangeMemory::default());
    }
}

fn memory_in_common_is_not_given_back(f: &Fixture) {
    let context = context();
    let (one, other) = (open(f, &context), open(f, &context));
    let mut model: Vec<u32> = (0..50_000).collect();
    let buffer = context.buffer_from(&model).unwrap();
    let mut is_common = false;
    for turn in 0..12u32 {
        let event = [&one, &other][turn as usize % 2]
            .add(&buffer, turn)
            .unwrap();
        added(&mut model, turn);
        is_common = event.explanation().unwrap().buffers[0].common.is_some();
    }
    finish(&[&one, &other]);
    one.device.trim_buffer_blocks();
    other.device.trim_buffer_blocks();
    let memory = context.exchange_memory();
    assert_eq!(memory.idle_bytes, 0);
    if is_common {
        assert!(memory.slots >= 1 && memory.imports >= 2, "{memory:?}");
    }
    one.add(&buffer, 5).unwrap();
    added(&mut model, 5);
    assert!(buffer.read().unwrap() == model);
    drop(buffer);
    finish(&[&one, &other]);
    let left = trimmed(&context, &[&one.device, &other.device]);
    assert_eq!(left, ExchangeMemory::default());
}

fn devices_without_import_have_none(f: &Fixture) {
    let context = context();
    let one = open(f, &context);
    let mut options = DeviceOptions::default();
    options.import_host_memory = false;
    let other = context.device_named_with(f.device.name(), options).unwrap();
    hand_over(&context, &one, &Kernels::new(&other), 10_000);
    assert_eq!(context.exchange_memory(), ExchangeMemory::default());
    other.trim_buffer_blocks();
}

fn anything_is_right_while_slots_come_and_go(f: &Fixture) {
    let context = context();
    let mut devices = [open(f, &context), open(f, &context), open(f, &context)];
    let mut random = Random(91);
    let len = 40_000usize;
    let mut model: Vec<u32> = (0..len as u32).collect();
    let buffer = context.buffer_from(&model).unwrap();
    for step in 0..150u32 {
        let which = random.below(3) as usize;
        let kernels = &devices[which];
        // Small after large, and the other way round.
        let most = [10, 1000, len as u64][random.below(3) as usize];
        let count = 1 + random.below(most);
        let start = random.below(len as u64 - count + 1);
        let part = buffer.slice(start..start + count).unwrap();
        let at = start as usize..(start + count) as usize;
        match random.below(10) {
            0..=5 => {
                kernels.add(&part, step).unwrap();
                added(&mut model[at], step);
            }
            6 => drop(kernels.device.trim_buffer_blocks()),
            7 => drop(kernels.device.trim_buffers().unwrap()),
            8 if random.below(4) == 0 => {
                buffer.evict(&kernels.device).unwrap();
                devices[which] = open(f, &context);
            }
            _ => assert!(part.read().unwrap() == model[at], "step {step}"),
        }
    }
    assert!(buffer.read().unwrap() == model);
    let memory = context.exchange_memory();
    assert!(memory.idle_bytes <= memory.bytes && memory.imports <= 3 * memory.slots);
}
