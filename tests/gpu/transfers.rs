//! Transfers of every kind behind no event, one and several, between every two kinds of memory; what a
//! prefetch sends; and memory that is freed while kernels follow pointers to it. On both tiers of the heap.

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Constants, Context, Device, DeviceBuffer, DeviceOptions, Event, Kernel, Program, Ptr,
    SharedHeap,
    device::{Aspect, EventStatus, ExecutionError, WaitError},
    heap::HeapSize,
};

cases![
    copies_behind_no_one_and_several_events,
    sets_and_fills_behind_no_one_and_several_events,
    prefetches_behind_no_one_and_several_events,
    transfers_on_the_host_wait_for_every_device,
    events_of_the_same_device_are_not_waited_for,
    a_failed_event_is_told_to_who_comes_after,
    a_prefetch_sends_a_mirror_what_it_lacks,
    a_thousand_allocations_freed_while_a_kernel_follows_them,
    a_thousand_allocations_freed_behind_launches_of_a_mirror,
];

const LEN: usize = 700;

const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("transfers.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    device
        .kernel(&program, "main", &Constants::new())
        .unwrap_or_else(|e| panic!("{e}"))
}

fn increment(device: &Device, data: Ptr<u32>) -> Event {
    let kernel = kernel(device, INCREMENT);
    let mut launch = kernel.launch().pointer("data", data, LEN);
    launch = launch.invocations(LEN as u32);
    launch.submit().unwrap()
}

fn opened(context: &Context, f: &Fixture, mirrored: bool) -> Device {
    let mut options = DeviceOptions::default();
    if mirrored {
        options.import_host_memory = false;
        options.live_memory = false;
    } else {
        // Its own memory is not the heap's, even on software adapters.
        options.unified_memory = Some(false);
    }
    let device = context.device_named_with(f.device.name(), options);
    let device = device.unwrap();
    let imported = f.device.has(Aspect::HostImport) && !mirrored;
    assert_eq!(device.has(Aspect::HostImport), imported);
    device
}

/// A device, and all the others that the machine can have beside it, with a heap of their own.
struct Machine {
    _context: Context,
    heap: SharedHeap,
    device: Device,
    others: Vec<Device>,
}

fn machines(f: &Fixture, test: impl Fn(&Machine)) {
    for mirrored in [false, true] {
        let size = HeapSize::Bytes(64 << 20);
        let context = Context::with_heap(wgpu::Backends::all(), size).unwrap();
        let adapters = context.adapters().into_iter();
        let others = adapters.map(|a| context.device_at(a.index).unwrap());
        test(&Machine {
            heap: context.heap().unwrap(),
            device: opened(&context, f, mirrored),
            others: others.collect(),
            _context: context,
        });
    }
}

impl Machine {
    /// `count` allocations that hold what `value` says, each written last by another device (the first
    /// by the device itself, if `own`) in a launch that nobody has submitted; and these launches' events.
    fn written(&self, count: usize, own: bool) -> (Vec<Ptr<u32>>, Vec<Event>) {
        (0..count)
            .map(|i| {
                let values: Vec<u32> = (0..LEN).map(|k| value(i, k) - 1).collect();
                let data = self.heap.alloc_slice(&values).unwrap();
                let device = match own && i == 0 {
                    true => &self.device,
                    false => &self.others[i % self.others.len()],
                };
                (data, increment(device, data))
            })
            .unzip()
    }

    /// Copies a place of any kind into a buffer and reads it.
    fn read<T: bytemuck::Pod>(&self, ptr: Ptr<T>, len: usize) -> Vec<T> {
        let buffer: DeviceBuffer<T> = self.device.zeroed(len).unwrap();
        buffer.copy_from_heap(0, ptr, len as u64).unwrap();
        buffer.read().unwrap()
    }
}

fn value(i: usize, k: usize) -> u32 {
    (i * 100_000 + k * 7 + 1) as u32
}

fn expected(i: usize) -> Vec<u32> {
    (0..LEN).map(|k| value(i, k)).collect()
}

/// References, as `after` wants them.
fn refs(events: &[Event]) -> Vec<&Event> {
    events.iter().collect()
}

fn copies_behind_no_one_and_several_events(f: &Fixture) {
    machines(f, |m| {
        for count in [0, 1, 3] {
            for own in [false, true] {
                let (sources, events) = m.written(count.max(1), own);
                if count == 0 {
                    // What came before is known to have ended.
                    drop(m.heap.host().unwrap());
                }
                let after = m.device.after(&refs(&events)[..count]).unwrap();
                for (i, &from) in sources.iter().enumerate() {
                    // Shared to shared, to device memory and on, and to a buffer and back.
                    let shared = m.heap.alloc_slice(&[!0u32; LEN]).unwrap();
                    let other = m.heap.alloc_slice(&[!0u32; LEN]).unwrap();
                    let device = m.device.malloc::<u32>(LEN).unwrap();
                    let buffer = m.device.buffer(&[!0u32; LEN]).unwrap();
                    after.heap_copy(from, shared, LEN).unwrap();
                    after.heap_copy(from, device, LEN).unwrap();
                    after.heap_copy(device, other, LEN).unwrap();
                    buffer.copy_from_heap(0, from, LEN as u64).unwrap();
                    buffer.copy_to_heap(10, other.add(20), 5).unwrap();
                    let mut with_part = expected(i);
                    with_part.copy_within(10..15, 20);
                    assert_eq!(buffer.read().unwrap(), expected(i), "{count} {own}");
                    assert_eq!(m.read(device, LEN), expected(i), "{count} {own}");
                    assert_eq!(m.heap.read(shared, LEN).unwrap(), expected(i));
                    assert_eq!(m.heap.read(other, LEN).unwrap(), with_part);
                    m.device.free(device).unwrap();
                }
            }
        }
    });
}

fn sets_and_fills_behind_no_one_and_several_events(f: &Fixture) {
    // What the launches write has to be there before a part of it is filled: behind it, it would stay.
    machines(f, |m| {
        for count in [0, 1, 3] {
            let (targets, events) = m.written(count.max(1), false);
            if count == 0 {
                drop(m.heap.host().unwrap());
            }
            let after = m.device.after(&refs(&events)[..count]).unwrap();
            let mut filled = Vec::new();
            for &target in &targets {
                let device = m.device.malloc::<u32>(LEN).unwrap();
                after.heap_copy(target, device, LEN).unwrap();
                for ptr in [target, device] {
                    // One byte, as memset; a word; and a pattern of no power of two.
                    after.heap_fill(ptr.add(100).cast(), 0xabu8, 40).unwrap();
                    after.heap_fill(ptr.add(200), 0xdead_beefu32, 30).unwrap();
                    let pattern = [1u8, 2, 3, 4, 5, 6, 7];
                    after
                        .heap_fill(ptr.add(300).byte_add(1).cast(), pattern, 9)
                        .unwrap();
                }
                filled.push(device);
            }
            for (i, (target, device)) in targets.into_iter().zip(filled).enumerate() {
                let mut wanted: Vec<u8> = bytemuck::cast_slice(&expected(i)).to_vec();
                wanted[400..440].fill(0xab);
                wanted[800..920].copy_from_slice(&0xdead_beefu32.to_le_bytes().repeat(30));
                wanted[1201..1264].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7].repeat(9));
                let seen = m.heap.read(target, LEN).unwrap();
                assert_eq!(bytemuck::cast_slice::<u32, u8>(&seen), wanted, "{count}");
                assert_eq!(m.read(device.cast::<u8>(), LEN * 4), wanted, "{count}");
                m.device.free(device).unwrap();
            }
        }
    });
}

fn prefetches_behind_no_one_and_several_events(f: &Fixture) {
    machines(f, |m| {
        for count in [0, 1, 3] {
            let (data, events) = m.written(count.max(1), false);
            if count == 0 {
                drop(m.heap.host().unwrap());
            }
            let after = m.device.after(&refs(&events)[..count]).unwrap();
            for &ptr in &data {
                let event = after.heap_prefetch(ptr, LEN).unwrap();
                event.wait().unwrap();
                increment(&m.device, ptr);
            }
            let own = m.device.malloc::<u32>(LEN).unwrap();
            after.heap_prefetch(own, LEN).unwrap().wait().unwrap();
            m.device.free(own).unwrap();
            for (i, ptr) in data.into_iter().enumerate() {
                let once_more: Vec<u32> = expected(i).iter().map(|x| x + 1).collect();
                assert_eq!(m.heap.read(ptr, LEN).unwrap(), once_more, "{count}");
            }
        }
    });
}

fn transfers_on_the_host_wait_for_every_device(f: &Fixture) {
    // The host's own transfers need no list of events: they wait for whatever uses the heap.
    machines(f, |m| {
        let (sources, events) = m.written(4, true);
        let to = m.heap.alloc_slice(&[!0u32; LEN]).unwrap();
        m.heap.copy(sources[1], to, LEN).unwrap();
        for event in &events {
            assert_eq!(event.status(), EventStatus::Complete);
        }
        assert_eq!(m.heap.read(to, LEN).unwrap(), expected(1));
        let (targets, _) = m.written(3, true);
        m.heap.fill(targets[0].add(5), 9u32, 20).unwrap();
        m.heap.fill(targets[1].cast(), 0xffu8, 8).unwrap();
        m.heap.write(targets[2].add(7), &[1u32, 2]).unwrap();
        let mut wanted: [Vec<u32>; 3] = std::array::from_fn(expected);
        wanted[0][5..25].fill(9);
        wanted[1][..2].fill(!0);
        wanted[2][7..9].copy_from_slice(&[1, 2]);
        for (target, wanted) in targets.into_iter().zip(wanted) {
            assert_eq!(m.heap.read(target, LEN).unwrap(), wanted);
        }
    });
}

fn events_of_the_same_device_are_not_waited_for(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let device = f.open(|_| {});
    let data = heap.alloc_zeroed::<u32>(LEN).unwrap();
    let events = [increment(&device, data), increment(&device, data)];
    device.after(&refs(&events)).unwrap();
    device.after(&[]).unwrap();
    // Not even submitted.
    assert_eq!(events[0].status(), EventStatus::Recorded);
    let copy = heap.alloc_zeroed::<u32>(LEN).unwrap();
    let event = device.after(&refs(&events)).unwrap();
    let event = event.heap_copy(data, copy, LEN).unwrap();
    assert_eq!(event.status(), EventStatus::Recorded);
    assert_eq!(heap.read(copy, LEN).unwrap(), [2; LEN]);
    heap.free(data).unwrap();
    heap.free(copy).unwrap();
}

fn a_failed_event_is_told_to_who_comes_after(f: &Fixture) {
    let checked = f.open(|options| options.checked_pointers = true);
    let kernel = kernel(
        &checked,
        "@group(0) @binding(0) var<uniform> at: usm_ptr;
         @compute @workgroup_size(1) fn main() { let word = usm_u32(at); *word += 1u; }",
    );
    let heap = f.context.heap().unwrap();
    let data = heap.alloc_slice(&[4u32; LEN]).unwrap();
    let launch = |at: u64| kernel.launch().value("at", &at).workgroups(1).submit();
    let bad = launch(0).unwrap();
    let good = launch(data.address()).unwrap();
    match f.device.after(&[&good, &bad]).map(|_| ()).unwrap_err() {
        WaitError::Failed(error) => match &*error {
            ExecutionError::Pointer { address: 0, .. } => {}
            other => panic!("{other}"),
        },
        other => panic!("{other}"),
    }
    assert_eq!(good.status(), EventStatus::Complete);
    f.device.after(&[&good]).unwrap();
    assert!(heap.host().is_err());
    assert_eq!(heap.read(data, 2).unwrap(), [5, 4]);
    heap.free(data).unwrap();
}

fn a_prefetch_sends_a_mirror_what_it_lacks(f: &Fixture) {
    const PAGE: u64 = 4096;
    let size = HeapSize::Bytes(64 << 20);
    let context = Context::with_heap(wgpu::Backends::all(), size).unwrap();
    let device = opened(&context, f, true);
    let heap = context.heap().unwrap();
    let words = 100_000;
    let data = heap.alloc_slice(&vec![3u32; words]).unwrap();
    let sent = || heap.mirror_statistics().uploaded;
    assert_eq!(sent(), 0);
    device.heap_prefetch(data, words).unwrap().wait().unwrap();
    let bytes = words as u64 * 4;
    assert!((bytes..bytes + 2 * PAGE).contains(&sent()), "{}", sent());
    // The launch finds it there.
    let before = sent();
    increment(&device, data);
    assert_eq!(sent(), before);
    assert_eq!(heap.mirror_statistics().downloaded, 0);
    assert_eq!(heap.read(data.add(LEN as u64 - 1), 2).unwrap(), [4, 3]);
    // Only what the host has changed since, and once.
    heap.write(data.add(50_000), &[9u32]).unwrap();
    let before = sent();
    device.heap_prefetch(data, 1).unwrap();
    assert_eq!(sent(), before + PAGE);
    device.heap_prefetch(data, words).unwrap();
    let event = device.heap_copy(data.add(50_000), data, 1).unwrap();
    assert_eq!(sent(), before + PAGE);
    event.wait().unwrap();
    assert_eq!(heap.read(data, 2).unwrap(), [9, 4]);
}

fn a_thousand_allocations_freed_while_a_kernel_follows_them(f: &Fixture) {
    const COUNT: usize = 1000;
    // Each invocation goes round and round in an allocation that it finds through a pointer.
    let source = "
        alias Cells = array<usm_ptr>;
        alias Words = array<u32, 16>;
        @group(0) @binding(0) var<uniform> cells: usm_ptr;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let words = usm_Words(usm_Cells(cells)[id.x]);
            for (var i = 0u; i < 2000u; i++) { words[i % 16u] += 1u; }
        }";
    for mirrored in [false, true] {
        let size = HeapSize::Bytes(64 << 20);
        let context = Context::with_heap(wgpu::Backends::all(), size).unwrap();
        let device = opened(&context, f, mirrored);
        let heap = context.heap().unwrap();
        let kernel = kernel(&device, source);
        let places: Vec<Ptr<u32>> = (0..COUNT as u32)
            .map(|i| heap.alloc_slice(&[i; 16]).unwrap())
            .collect();
        let cells = heap.alloc_slice(&places).unwrap();
        let mut launch = kernel.launch().value("cells", &cells);
        launch = launch.invocations(COUNT as u32);
        let event = launch.submit().unwrap();
        let busy = heap.statistics().in_use;
        let (early, late) = places.split_at(COUNT / 2);
        let free = |places: &[Ptr<u32>]| {
            for &place in places {
                heap.free(place).unwrap();
                assert_eq!(heap.find(place), None);
            }
        };
        // Before it runs, and while it may.
        free(early);
        assert_eq!(heap.statistics().in_use, busy);
        device.flush().unwrap();
        free(late);
        heap.free(cells).unwrap();
        assert_eq!(heap.allocations(), []);
        // Where the launch may still write nothing new lies, and the host's values stay.
        let fresh: Vec<Ptr<u32>> = (0..COUNT as u32)
            .map(|i| heap.alloc_slice(&[!i; 16]).unwrap())
            .collect();
        event.wait().unwrap();
        for (i, &place) in fresh.iter().enumerate() {
            assert_eq!(heap.read(place, 16).unwrap(), [!(i as u32); 16]);
        }
        device.finish().unwrap();
        let left: u64 = fresh.iter().map(|&p| heap.find(p).unwrap().size).sum();
        assert_eq!(heap.statistics().in_use, left);
    }
}

fn a_thousand_allocations_freed_behind_launches_of_a_mirror(f: &Fixture) {
    let size = HeapSize::Bytes(64 << 20);
    let context = Context::with_heap(wgpu::Backends::all(), size).unwrap();
    let device = opened(&context, f, true);
    let heap = context.heap().unwrap();
    let kernel = kernel(&device, INCREMENT);
    let add = |data: Ptr<u32>| {
        let mut launch = kernel.launch().pointer("data", data, 64).invocations(64);
        launch.submit().unwrap();
    };
    let kept = heap.alloc_zeroed::<u32>(64).unwrap();
    let mut others = Vec::new();
    for round in 0..1000u32 {
        let data = heap.alloc_slice(&[round; 64]).unwrap();
        add(data);
        heap.free(data).unwrap();
        assert!(heap.find(data).is_none());
        let other = heap.alloc_slice(&[round ^ 0xffff; 64]).unwrap();
        add(kept);
        if round % 2 == 0 {
            add(other);
        }
        others.push((other, (round ^ 0xffff) + u32::from(round % 2 == 0)));
        if round % 50 == 49 {
            let host = heap.host().unwrap();
            assert_eq!(host.slice(kept, 64).unwrap(), [round + 1; 64]);
            for &(other, value) in &others {
                assert_eq!(host.slice(other, 64).unwrap(), [value; 64]);
            }
            drop(host);
            for (other, _) in others.drain(..) {
                heap.free(other).unwrap();
            }
        }
    }
    heap.free(kept).unwrap();
    device.finish().unwrap();
    assert_eq!(heap.statistics().in_use, 0);
}
