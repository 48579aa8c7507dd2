//! Buffers of a context on two devices: of different adapters, and of one.

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Buffer, Constants, Device, Event, Kernel, Program,
    buffers::{BufferError, Placement},
    launch::LaunchError,
};

cases![
    nothing_is_allocated_before_the_first_command,
    bytes_follow_launches,
    readers_make_no_version,
    ping_pong_moves_what_changed,
    explanations_say_what_moves,
    large_buffers_arrive_whole,
    undefined_content_is_not_moved,
    buffers_are_told_where_to_be,
    fills_of_every_size,
    copies_of_parts,
];

/// Kernels of a device that work on `data`.
pub struct Kernels {
    pub device: Device,
    add: Kernel,
    copy: Kernel,
    sum: Kernel,
}

const SOURCE: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<uniform> amount: u32;
@compute @workgroup_size(64) fn add(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] = data[id.x] * 3u + amount; }
}
@compute @workgroup_size(64) fn copy(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < min(arrayLength(&data), arrayLength(&source)) { data[id.x] = source[id.x]; }
}
@compute @workgroup_size(1) fn sum() {
    var all = 0u;
    for (var i = 0u; i < 16u; i++) {
        if i < arrayLength(&source) { all += source[i]; }
    }
    data[0] = all;
}";

impl Kernels {
    pub fn new(device: &Device) -> Self {
        let program = Program::new("moving.wgsl", SOURCE).unwrap();
        let kernel = |name| device.kernel(&program, name, &Constants::new()).unwrap();
        Self {
            add: kernel("add"),
            copy: kernel("copy"),
            sum: kernel("sum"),
            device: device.clone(),
        }
    }

    /// `x * 3 + amount` for every element.
    pub fn add(&self, data: &Buffer<u32>, amount: u32) -> Result<Event, LaunchError> {
        let launch = self.add.launch().buffer("data", data);
        launch
            .value("amount", &amount)
            .invocations(data.len() as u32)
            .submit()
    }

    pub fn copy(&self, source: &Buffer<u32>, data: &Buffer<u32>) -> Result<Event, LaunchError> {
        let launch = self
            .copy
            .launch()
            .buffer("data", data)
            .buffer("source", source);
        launch.invocations(data.len() as u32).submit()
    }

    /// The sum of the first 16 elements of `source`, as the device sees it.
    pub fn sum(&self, source: &Buffer<u32>) -> u32 {
        let data = self.device.buffer(&[u32::MAX; 4]).unwrap();
        let launch = self
            .sum
            .launch()
            .buffer("data", &data)
            .buffer("source", source);
        launch.invocations(1).submit().unwrap();
        data.read().unwrap()[0]
    }
}

/// The device under test with one of every other adapter, with another one of the same adapter, and with ones that share
/// no memory with it.
pub fn pairs(f: &Fixture) -> Vec<(Kernels, Kernels)> {
    let mut others = Vec::new();
    for adapter in f.context.adapters() {
        if adapter.index != f.index {
            others.push(f.context.device_at(adapter.index).unwrap());
        }
    }
    others.push(f.open(|_| {}));
    others.push(f.open(|options| options.import_host_memory = false));
    let pair = |other: &Device| (Kernels::new(&f.device), Kernels::new(other));
    others.iter().map(pair).collect()
}

/// How often a byte is copied on its way between the two.
pub fn hops(a: &Kernels, b: &Kernels) -> u64 {
    let imports = |kernels: &Kernels| kernels.device.capabilities().host_import();
    if imports(a) && imports(b) { 1 } else { 2 }
}

fn nothing_is_allocated_before_the_first_command(f: &Fixture) {
    let before = f.device.buffer_memory();
    let huge: Buffer<u32> = f.context.buffer(1 << 40).unwrap();
    assert_eq!(huge.len(), 1 << 40);
    let buffer: Buffer<u32> = f.context.buffer(1000).unwrap();
    assert_eq!(f.device.buffer_memory().used, before.used);
    assert_eq!(buffer.read().unwrap(), vec![0; 1000]);
    assert_eq!(f.device.buffer_memory().used, before.used);
    let kernels = Kernels::new(&f.device);
    kernels.add(&buffer, 7).unwrap();
    let memory = f.device.buffer_memory();
    assert_eq!(
        (memory.used, memory.buffers),
        (before.used + 4000, before.buffers + 1)
    );
    assert_eq!(buffer.read().unwrap(), vec![7; 1000]);
    // What could never be on the device is refused when it is to be there, and nothing is lost.
    let many = huge.slice(..1 << 20).unwrap();
    match kernels.add(&many, 1).unwrap_err() {
        LaunchError::Buffer {
            argument, source, ..
        } => {
            assert_eq!(argument, "data");
            assert!(matches!(*source, BufferError::Memory(_)), "{source}");
        }
        other => panic!("{other}"),
    }
    drop(buffer);
    assert_eq!(f.device.buffer_memory().used, before.used);
}

fn bytes_follow_launches(f: &Fixture) {
    for (one, other) in pairs(f) {
        let values: Vec<u32> = (0..5000).map(|i| i * 7 + 3).collect();
        let buffer = f.context.buffer_from(&values).unwrap();
        let mut expected = values;
        for (turn, kernels) in [&one, &other, &one, &one, &other].into_iter().enumerate() {
            kernels.add(&buffer, turn as u32).unwrap();
            for value in &mut expected {
                *value = value.wrapping_mul(3).wrapping_add(turn as u32);
            }
        }
        assert_eq!(buffer.read().unwrap(), expected);
        // Up once, then to the other device, back, and to the other one again; the reading is the last.
        let hops = hops(&one, &other);
        assert_eq!(buffer.statistics().moves.moved, 20_000 * (1 + 3 * hops + 1));
    }
}

fn readers_make_no_version(f: &Fixture) {
    for (one, other) in pairs(f) {
        let buffer = f.context.buffer_from_vec(vec![5u32; 4096]).unwrap();
        for _ in 0..3 {
            assert_eq!(one.sum(&buffer), 80);
            assert_eq!(other.sum(&buffer), 80);
        }
        // Each device got it once, from the host, and the host still has it.
        assert_eq!(buffer.statistics().moves.moved, 2 * 16_384);
        assert_eq!(buffer.read().unwrap(), vec![5; 4096]);
        assert_eq!(buffer.statistics().moves.moved, 2 * 16_384);
        assert_eq!(buffer.statistics().moves.avoided.current, 5 * 16_384);
    }
}

fn ping_pong_moves_what_changed(f: &Fixture) {
    for (one, other) in pairs(f) {
        let hops = hops(&one, &other);
        let buffer = f.context.buffer_from_vec(vec![1u32; 3000]).unwrap();
        assert_eq!((one.sum(&buffer), other.sum(&buffer)), (16, 16));
        let before = buffer.statistics().moves.moved;
        // Nothing has changed: nothing moves.
        for _ in 0..10 {
            assert_eq!((one.sum(&buffer), other.sum(&buffer)), (16, 16));
        }
        assert_eq!(buffer.statistics().moves.moved, before);
        // A part has changed, and is all that moves; it ends inside a page and begins inside one.
        let part = buffer.slice(5..12).unwrap();
        one.add(&part, 1).unwrap();
        assert_eq!(other.sum(&buffer), 16 + 7 * 3);
        assert_eq!(buffer.statistics().moves.moved, before + 28 * hops);
        assert_eq!((one.sum(&buffer), other.sum(&buffer)), (37, 37));
        assert_eq!(buffer.statistics().moves.moved, before + 28 * hops);
    }
}

fn explanations_say_what_moves(f: &Fixture) {
    let (one, other) = pairs(f).swap_remove(0);
    let buffer = f.context.buffer_from_vec(vec![1u32; 1024]).unwrap();
    one.add(&buffer.slice(..256).unwrap(), 1).unwrap();
    let mut launch = other
        .add
        .launch()
        .buffer("data", &buffer)
        .value("amount", &1u32)
        .invocations(1024);
    let before = launch.explain().unwrap();
    // Asking moves nothing.
    assert_eq!(launch.explain().unwrap(), before);
    assert_eq!(other.device.buffer_memory().buffers, 0);
    let event = launch.submit().unwrap();
    assert_eq!(event.explanation(), Some(&before));
    let [moves] = &before.buffers[..] else {
        panic!("{before}")
    };
    assert_eq!(moves.arguments, ["data"]);
    assert_eq!(moves.moves.moved, 1024 * hops(&one, &other) + 3072);
    assert_eq!(moves.moves.avoided.total(), 0);
    let ranges: Vec<_> = moves
        .moves
        .movements
        .iter()
        .map(|step| step.range.clone())
        .collect();
    assert!(
        ranges.contains(&(0..1024)) && ranges.contains(&(1024..4096)),
        "{before}"
    );
    let text = before.to_string();
    for part in [
        "`data`",
        one.device.name(),
        other.device.name(),
        "the host",
        "0..1024",
        "1024..4096",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(launch.submit().unwrap().explanation().unwrap().moved(), 0);
    let placed = f.context.buffer_with::<u32>(16, Placement::Shared).unwrap();
    one.add(&placed, 2).unwrap();
    assert_eq!(
        other
            .add(&placed, 3)
            .unwrap()
            .explanation()
            .unwrap()
            .moved(),
        0
    );
    assert_eq!(placed.read().unwrap(), vec![9; 16]);
}

/// `x * 3 + amount`, as the kernel does it.
pub fn added(values: &mut [u32], amount: u32) {
    for value in values {
        *value = value.wrapping_mul(3).wrapping_add(amount);
    }
}

fn large_buffers_arrive_whole(f: &Fixture) {
    // More than is moved at once in every way, and no multiple of anything.
    let len = (70 << 18) + 3;
    let (one, other) = pairs(f).swap_remove(0);
    let far = Kernels::new(&f.open(|options| options.import_host_memory = false));
    let mut values: Vec<u32> = (0..len as u32)
        .map(|i| i.wrapping_mul(2_654_435_761))
        .collect();
    let buffer = f.context.buffer_from(&values).unwrap();
    for (turn, kernels) in [&one, &other, &far].into_iter().enumerate() {
        kernels.add(&buffer, turn as u32).unwrap();
        added(&mut values, turn as u32);
    }
    let found = buffer.read().unwrap();
    let wrong = found.iter().zip(&values).position(|(a, b)| a != b);
    assert_eq!(wrong, None);
}

fn undefined_content_is_not_moved(f: &Fixture) {
    for (one, other) in pairs(f) {
        let source = f.context.buffer_from_vec(vec![9u32; 2048]).unwrap();
        let target = f.context.buffer_from_vec(vec![1u32; 2048]).unwrap();
        one.add(&target, 0).unwrap();
        let before = target.statistics().moves;
        // The launch says that it writes everything.
        let launch = other
            .copy
            .launch()
            .overwrite("data", &target)
            .buffer("source", &source);
        launch.invocations(2048).submit().unwrap();
        let after = target.statistics().moves;
        assert_eq!(after.moved, before.moved);
        assert_eq!(after.avoided.overwritten, before.avoided.overwritten + 8192);
        assert_eq!(target.read().unwrap(), vec![9; 2048]);
        // Half of it is declared to be nobody's: only the other half moves.
        let before = target.statistics().moves;
        target.slice(..1024).unwrap().discard().unwrap();
        one.copy(
            &source.slice(..1024).unwrap(),
            &target.slice(..1024).unwrap(),
        )
        .unwrap();
        one.add(&target.slice(1024..).unwrap(), 0).unwrap();
        let after = target.statistics().moves;
        assert_eq!(after.moved, before.moved + 4096 * hops(&one, &other));
        assert_eq!(after.avoided.undefined, before.avoided.undefined + 4096);
        assert_eq!(target.read().unwrap(), [[9; 1024], [27; 1024]].concat());
        // Memory without contents.
        let empty: Buffer<u32> = f.context.buffer(64).unwrap();
        let used = other.device.buffer_memory().used;
        empty.migrate_undefined(&other.device).unwrap();
        assert_eq!(other.device.buffer_memory().used, used + 256);
        assert_eq!(empty.statistics().moves.moved, 0);
    }
}

fn buffers_are_told_where_to_be(f: &Fixture) {
    for (one, other) in pairs(f) {
        let hops = hops(&one, &other);
        let buffer = f.context.buffer_from_vec((0..999u32).collect()).unwrap();
        let moved = || buffer.statistics().moves.moved;
        buffer.prefetch(&one.device).unwrap().wait().unwrap();
        assert_eq!(moved(), 3996);
        one.add(&buffer, 1).unwrap();
        assert_eq!(moved(), 3996);
        let memory = other.device.buffer_memory().used;
        buffer.migrate(&other.device).unwrap().wait().unwrap();
        assert_eq!(moved(), 3996 * (1 + hops));
        assert_eq!(other.device.buffer_memory().used, memory + 3996);
        // The other device is the only one that has it now.
        let here = buffer.whereabouts();
        assert_eq!(here.len(), 1);
        assert_eq!((here[0].0.clone(), here[0].1.len()), (0..3996, 1));
        other.add(&buffer, 2).unwrap();
        buffer.evict(&other.device).unwrap();
        assert_eq!(moved(), 3996 * (2 + hops));
        assert_eq!(other.device.buffer_memory().used, memory);
        assert_eq!(
            buffer.whereabouts(),
            [(0..3996, vec!["the host".to_owned()])]
        );
        let mut expected: Vec<u32> = (0..999).collect();
        added(&mut expected, 1);
        added(&mut expected, 2);
        assert_eq!(buffer.read().unwrap(), expected);
        assert_eq!(moved(), 3996 * (2 + hops));
    }
}

fn fills_of_every_size(f: &Fixture) {
    fn filled<T>(f: &Fixture, value: T, start: u64, end: u64)
    where
        T: tombolo::bytemuck::Pod + Send + Sync + PartialEq + std::fmt::Debug,
    {
        let old: T = tombolo::bytemuck::pod_read_unaligned(&vec![0xee; size_of::<T>()]);
        let mut expected = vec![old; 300];
        expected[start as usize..end as usize].fill(value);
        let buffer = f.context.buffer_from_vec(vec![old; 300]).unwrap();
        buffer.fill(value, start..end).unwrap();
        assert_eq!(buffer.read().unwrap(), expected);
        // On a device, where the buffer is.
        let buffer = f.context.buffer_from_vec(vec![old; 300]).unwrap();
        buffer.migrate(&f.device).unwrap();
        buffer.fill(value, start..end).unwrap();
        assert_eq!(buffer.read().unwrap(), expected);
        let part = buffer.slice(start..end).unwrap();
        assert_eq!(part.read().unwrap(), vec![value; (end - start) as usize]);
    }
    for (start, end) in [(0, 300), (3, 7), (1, 299), (299, 300)] {
        filled(f, 0xabu8, start, end);
        filled(f, 0x1234u16, start, end);
        filled(f, [1u8, 2, 3], start, end);
        filled(f, 0x1234_5678u32, start, end);
        filled(f, [7u32, 8, 9, 10], start, end);
        filled(f, [0x5au8; 37], start, end);
    }
}

fn copies_of_parts(f: &Fixture) {
    for (one, other) in pairs(f) {
        let values: Vec<u8> = (0..200).collect();
        let source = f.context.buffer_from(&values).unwrap();
        let target: Buffer<u8> = f.context.buffer(200).unwrap();
        let mut expected = vec![0u8; 200];
        let devices = [
            None,
            Some(&one.device),
            Some(&other.device),
            Some(&one.device),
        ];
        for (turn, device) in devices.into_iter().enumerate() {
            if let Some(device) = device {
                source.prefetch(device).unwrap();
            }
            let (from, to, len) = (turn * 3 + 1, turn * 41 + 2, 37 + turn);
            let range = |at: usize| at as u64..(at + len) as u64;
            let part = source.slice(range(from)).unwrap();
            part.copy_to(&target.slice(range(to)).unwrap()).unwrap();
            expected[to..to + len].copy_from_slice(&values[from..from + len]);
        }
        assert_eq!(target.read().unwrap(), expected);
        // Within one buffer, if the parts are apart.
        let part = |range: std::ops::Range<u64>| source.slice(range).unwrap();
        part(0..50).copy_to(&part(101..151)).unwrap();
        assert_eq!(part(101..151).read().unwrap(), values[..50]);
        let refused = part(0..50).copy_to(&part(49..99));
        assert!(matches!(refused.unwrap_err(), BufferError::Overlap { .. }));
        let refused = part(0..50).copy_to(&part(100..151));
        assert!(matches!(
            refused.unwrap_err(),
            BufferError::OutOfRange { .. }
        ));
    }
}

/// Numbers that are the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
