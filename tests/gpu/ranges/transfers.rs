//! Writes, reads, copies, fills and maps of ranges of any bytes, of buffers of one device and of the context, and of device
//! globals.

use super::LENGTHS;
use crate::byte_copies::{Machine, machines, noise, same};
use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Buffer, Constants, DeviceBuffer, DeviceGlobal, Program,
    buffers::{MemoryError, Placement},
    heap::HeapError,
    launch::LaunchError,
};

cases![
    device_buffers_at_every_byte,
    device_buffers_copy_within_themselves,
    buffers_of_the_context_at_every_byte,
    buffers_are_written_while_commands_wait,
    fills_of_any_size_at_any_byte,
    fills_beyond_one_binding,
    device_globals_at_every_byte,
    imported_buffers_that_end_inside_a_word,
];

const SLOT: usize = 48;

/// Ranges, each with its slot, at the beginning, in the middle and at the end of `slots` slots and some bytes.
fn ranges() -> Vec<(usize, usize)> {
    let lengths = LENGTHS.flat_map(|len| (0..4).map(move |offset| (offset, len as usize)));
    lengths.collect()
}

/// How long a memory is in which all ranges have slots, the last of which ends with it.
fn bytes() -> usize {
    let ranges = ranges();
    let (offset, len) = ranges[ranges.len() - 1];
    (ranges.len() - 1) * SLOT + offset + len
}

fn device_buffers_at_every_byte(f: &Fixture) {
    let (device, all) = (&f.device, bytes());
    for commands in [false, true] {
        let mut wanted = noise(1, all);
        let buffer = device.buffer(&wanted).unwrap();
        let other = device.buffer(&noise(2, all)).unwrap();
        let mut wanted_other = noise(2, all);
        let values = noise(3, 64);
        for (slot, (offset, len)) in ranges().into_iter().enumerate() {
            let start = slot * SLOT + offset;
            let range = start as u64..(start + len) as u64;
            if !commands {
                device.finish().unwrap();
            }
            match slot % 3 {
                0 => {
                    buffer.write(range.start, &values[..len]).unwrap();
                    wanted[start..start + len].copy_from_slice(&values[..len]);
                }
                1 => {
                    buffer
                        .fill(0x5a, range.start..range.start + len as u64)
                        .unwrap();
                    wanted[start..start + len].fill(0x5a);
                }
                _ => {
                    // From another place in a word than to.
                    let from = slot / 2 * SLOT + (offset + slot) % 4;
                    other
                        .copy_to(from as u64, &buffer, range.start, len as u64)
                        .unwrap();
                    wanted[start..start + len].copy_from_slice(&wanted_other[from..from + len]);
                }
            }
            let seen = buffer.read_range(range.clone()).unwrap();
            same(&seen, &wanted[start..start + len], "a part");
            let back = buffer.read_back(range).unwrap();
            same(
                &back.wait().unwrap(),
                &wanted[start..start + len],
                "a read-back",
            );
        }
        same(&buffer.read().unwrap(), &wanted, "written");
        // Over the whole length, at once.
        other.copy_to(1, &buffer, 2, all as u64 - 2).unwrap();
        wanted[2..].copy_from_slice(&wanted_other[1..all - 1]);
        same(&buffer.read().unwrap(), &wanted, "copied");
        other.fill(7, 1..1 + all as u64 - 1).unwrap();
        wanted_other[1..].fill(7);
        same(&other.read().unwrap(), &wanted_other, "filled");
    }
}

fn device_buffers_copy_within_themselves(f: &Fixture) {
    let mut wanted = noise(4, 400);
    let buffer = f.device.buffer(&wanted).unwrap();
    for (from, to, len) in [
        (0, 20, 20),
        (1, 102, 37),
        (203, 201, 2),
        (397, 0, 3),
        (7, 12, 5),
    ] {
        buffer.copy_to(from, &buffer, to, len).unwrap();
        let (from, to, len) = (from as usize, to as usize, len as usize);
        wanted.copy_within(from..from + len, to);
    }
    same(&buffer.read().unwrap(), &wanted, "within");
    for (from, to) in [(0, 4), (4, 0), (1, 1)] {
        let refused = buffer.copy_to(from, &buffer, to, 5).unwrap_err();
        assert!(matches!(refused, MemoryError::Overlap { .. }), "{refused}");
    }
    same(&buffer.read().unwrap(), &wanted, "refused");
}

/// Has the bytes on the device of `m`, so that commands of the host have to do with what lies there.
fn use_it(m: &Machine, buffer: &Buffer<u8>) {
    buffer.prefetch(&m.device).unwrap();
}

fn buffers_of_the_context_at_every_byte(f: &Fixture) {
    machines(f, |m| {
        for placement in [Placement::Auto, Placement::Device, Placement::Shared] {
            for used in [false, true] {
                let what = format!("{} {placement:?} {used}", m.name);
                let mut wanted = noise(5, bytes());
                let buffer = m
                    .context
                    .buffer_from_vec_with(wanted.clone(), placement)
                    .unwrap();
                let source_bytes = noise(6, bytes());
                let source = (m.context)
                    .buffer_from_vec_with(source_bytes.clone(), placement)
                    .unwrap();
                if used {
                    use_it(m, &buffer);
                    use_it(m, &source);
                }
                for (slot, (offset, len)) in ranges().into_iter().enumerate() {
                    let start = slot * SLOT + offset;
                    let range = start as u64..(start + len) as u64;
                    match slot % 4 {
                        0 => drop(buffer.write(range.start, &source_bytes[..len]).unwrap()),
                        1 => drop(buffer.fill(source_bytes[0], range.clone()).unwrap()),
                        2 => {
                            let from = source.slice(1..1 + len as u64).unwrap();
                            drop(from.copy_to(&buffer.slice(range.clone()).unwrap()).unwrap());
                        }
                        _ => {
                            let mut mapped = buffer.map_mut(range.clone()).unwrap();
                            same(&mapped, &wanted[start..start + len], &what);
                            mapped[..len / 2].fill(3);
                            mapped[len - 1] = 4;
                            mapped.unmap().unwrap();
                        }
                    }
                    let to = &mut wanted[start..start + len];
                    match slot % 4 {
                        0 => to.copy_from_slice(&source_bytes[..len]),
                        1 => to.fill(source_bytes[0]),
                        2 => to.copy_from_slice(&source_bytes[1..1 + len]),
                        _ => {
                            to[..len / 2].fill(3);
                            to[len - 1] = 4;
                        }
                    }
                    let seen = buffer.read_range(range).unwrap();
                    same(&seen, &wanted[start..start + len], &what);
                    if used && slot % 7 == 0 {
                        use_it(m, &buffer);
                    }
                }
                same(&buffer.read().unwrap(), &wanted, &what);
            }
        }
    });
}

fn buffers_are_written_while_commands_wait(f: &Fixture) {
    // Behind commands that are recorded and not submitted, and in front of others.
    const ADD: &str = "
        @group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&data) { data[id.x] += 0x01010101u; }
        }";
    let program = Program::new("ranges.wgsl", ADD).unwrap();
    let kernel = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let mut wanted: Vec<u8> = (0..203).map(|i| i % 100).collect();
    let buffer = f.device.buffer(&wanted).unwrap();
    for (start, len) in [(1, 6), (7, 1), (198, 5), (64, 64)] {
        let mut launch = kernel.launch().buffer("data", &buffer).invocations(51);
        launch.submit().unwrap();
        wanted.iter_mut().for_each(|byte| *byte += 1);
        buffer.write(start as u64, &vec![9; len]).unwrap();
        wanted[start..start + len].fill(9);
        launch.submit().unwrap();
        wanted.iter_mut().for_each(|byte| *byte += 1);
    }
    same(&buffer.read().unwrap(), &wanted, "in order");
}

fn fills_of_any_size_at_any_byte(f: &Fixture) {
    fn filled<const N: usize>(
        f: &Fixture,
        wanted: &mut [u8],
        buffer: &DeviceBuffer<u8>,
        at: usize,
    ) {
        let pattern: [u8; N] = std::array::from_fn(|i| (i * 37 + at) as u8 | 1);
        // The same wgpu buffer as values of another size, from a byte on that suits it.
        let raw = buffer.raw().clone();
        let count = (wanted.len() - at) / N;
        let target: DeviceBuffer<u8> = f.device.import(raw).unwrap();
        let other: DeviceBuffer<[u8; N]> = f.device.zeroed(count).unwrap();
        other.fill(pattern, ..count as u64).unwrap();
        assert_eq!(other.read().unwrap(), vec![pattern; count]);
        let bytes: DeviceBuffer<u8> = f.device.zeroed(count * N).unwrap();
        bytes.write(0, &pattern.repeat(count)).unwrap();
        bytes
            .copy_to(0, &target, at as u64, (count * N) as u64)
            .unwrap();
        wanted[at..at + count * N].copy_from_slice(&pattern.repeat(count));
    }
    let mut wanted = noise(7, 4096);
    let buffer = f.device.buffer(&wanted).unwrap();
    filled::<1>(f, &mut wanted, &buffer, 1);
    filled::<3>(f, &mut wanted, &buffer, 2);
    filled::<5>(f, &mut wanted, &buffer, 3);
    filled::<16>(f, &mut wanted, &buffer, 1000);
    filled::<37>(f, &mut wanted, &buffer, 2001);
    same(&buffer.read().unwrap(), &wanted, "filled");
    // Longer than what goes with the parameters.
    let long: DeviceBuffer<[u32; 2000]> = f.device.zeroed(3).unwrap();
    let pattern: [u32; 2000] = std::array::from_fn(|i| i as u32 * 3);
    long.fill(pattern, 1..3).unwrap();
    assert_eq!(long.read().unwrap(), [[0; 2000], pattern, pattern]);
}

fn fills_beyond_one_binding(f: &Fixture) {
    const BINDING: u64 = 1 << 20;
    let device = f.open(|options| options.storage_binding_bytes = Some(BINDING));
    let len = 5 * BINDING as usize + 7;
    let buffer: DeviceBuffer<u8> = device.zeroed(len).unwrap();
    let mut wanted = vec![0u8; len];
    buffer.fill(0xab, 3..3 + len as u64 - 3).unwrap();
    wanted[3..].fill(0xab);
    same(&buffer.read().unwrap(), &wanted, "bytes");
    // Repetitions that do not end with a binding.
    let triples: DeviceBuffer<[u8; 3]> = device.zeroed(len / 3).unwrap();
    triples.fill([1, 2, 3], 1..1 + len as u64 / 3 - 1).unwrap();
    let seen = triples.read().unwrap();
    assert_eq!(seen[0], [0; 3]);
    assert!(seen[1..].iter().all(|triple| *triple == [1, 2, 3]));
}

fn device_globals_at_every_byte(f: &Fixture) {
    static TABLE: DeviceGlobal<[u8; 1024]> = DeviceGlobal::new("ranges_of_a_table");
    machines(f, |m| {
        let on = TABLE.on(&m.device);
        let mut wanted = [0u8; 1024];
        wanted.copy_from_slice(&noise(8, 1024));
        on.write(&wanted).unwrap();
        let buffer_bytes = noise(9, 1023);
        let buffer = m.device.buffer(&buffer_bytes).unwrap();
        let mut back = buffer_bytes.clone();
        for (slot, len) in LENGTHS.enumerate() {
            let len = len as usize;
            let (at, from) = (slot * 50 + slot % 4, slot * 40 + slot / 4 % 4);
            on.memcpy_in(&buffer_bytes[..len], at).unwrap();
            wanted[at..at + len].copy_from_slice(&buffer_bytes[..len]);
            on.copy_from_buffer(at + 22, &buffer, from, len).unwrap();
            wanted[at + 22..at + 22 + len].copy_from_slice(&back[from..from + len]);
            on.copy_to_buffer(at, &buffer, from + 200, len).unwrap();
            back[from + 200..from + 200 + len].copy_from_slice(&wanted[at..at + len]);
            let seen = on.memcpy_out(at, len).unwrap().wait().unwrap();
            same(&seen, &wanted[at..at + len], &m.name);
        }
        // Both ends.
        on.copy_from_buffer(1019, &buffer, 1018, 5).unwrap();
        wanted[1019..].copy_from_slice(&back[1018..]);
        on.copy_to_buffer(0, &buffer, 1020, 3).unwrap();
        back[1020..].copy_from_slice(&wanted[..3]);
        same(&on.read().unwrap(), &wanted, &m.name);
        same(&buffer.read().unwrap(), &back, &m.name);
    });
}

fn imported_buffers_that_end_inside_a_word(f: &Fixture) {
    use wgpu::BufferUsages as U;
    let imported = |size, usage| {
        let raw = f.device.raw().create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage,
            mapped_at_creation: false,
        });
        f.device.import::<u8>(raw).unwrap()
    };
    let is_misaligned = |error: MemoryError| {
        assert!(matches!(error, MemoryError::Misaligned { .. }), "{error}");
        assert!(error.to_string().contains("multiple of 4"), "{error}");
    };
    let copies = U::COPY_SRC | U::COPY_DST;
    let short = imported(38, copies | U::STORAGE);
    let whole = f.device.buffer(&noise(10, 38)).unwrap();
    is_misaligned(short.write(30, &[1; 8]).unwrap_err());
    is_misaligned(short.fill(1, 37..38).unwrap_err());
    is_misaligned(short.read_back(36..37).map(|_| ()).unwrap_err());
    is_misaligned(short.copy_to(35, &whole, 0, 3).unwrap_err());
    is_misaligned(whole.copy_to(0, &short, 35, 3).unwrap_err());
    // In front of its last word all is well.
    short.write(0, &noise(11, 36)).unwrap();
    short.fill(9, 1..35).unwrap();
    let mut wanted = noise(11, 36);
    wanted[1..35].fill(9);
    same(&short.read_range(..36).unwrap(), &wanted, "imported");
    // Without the usages that parts of words need.
    let plain = imported(40, copies);
    let needs = |error: MemoryError, usage: U| match error {
        MemoryError::MissingUsage { needed, .. } => assert_eq!(needed, usage),
        other => panic!("{other}"),
    };
    needs(
        plain.write(1, &[1, 2]).unwrap_err(),
        U::COPY_DST | U::STORAGE,
    );
    needs(plain.fill(1, ..40).unwrap_err(), U::STORAGE);
    plain.write(4, &[1, 2, 3, 4]).unwrap();
    plain.fill(0, 8..40).unwrap();
    assert_eq!(plain.read_range(4..12).unwrap(), [1, 2, 3, 4, 0, 0, 0, 0]);
    let mute = imported(40, U::STORAGE);
    needs(mute.write(0, &[0; 4]).unwrap_err(), U::COPY_DST);
    needs(mute.read_back(..).map(|_| ()).unwrap_err(), U::COPY_SRC);
    needs(mute.copy_to(0, &whole, 0, 4).unwrap_err(), U::COPY_SRC);
    // Launches bind it as a whole, and cannot work on a copy of a part of it.
    let program = Program::new(
        "ranges.wgsl",
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(1) fn main() { data[0] += 1u; }",
    );
    let kernel = (f.device).kernel(&program.unwrap(), "main", &Constants::new());
    let kernel = kernel.unwrap();
    let launch = |view| kernel.launch().buffer("data", view).workgroups(1).submit();
    launch(mute.slice(..)).unwrap();
    match launch(mute.slice(..6)).unwrap_err() {
        LaunchError::Misaligned { needed, bytes, .. } => {
            assert_eq!((needed, bytes), (copies, 6));
        }
        other => panic!("{other}"),
    }
    match launch(short.slice(..)).unwrap_err() {
        LaunchError::Memory(error) => is_misaligned(error),
        other => panic!("{other}"),
    }
    // Transfers with the heap have the same rules.
    let heap = f.context.heap().unwrap();
    let ptr = heap.alloc_slice(&[1u8; 40]).unwrap();
    match short.copy_from_heap(30, ptr, 8).unwrap_err() {
        HeapError::Buffer(error) => is_misaligned(error),
        other => panic!("{other}"),
    }
    heap.free(ptr).unwrap();
}
