//! Messages between two ranks, from and to every kind of memory. Expected values are formulas of rank and place; memory to
//! receive into is poisoned first.

use tombolo::allocator_api2::vec::Vec as HeapVec;
use tombolo::device::Tier;
use tombolo::{Constants, Program};
use tombolo_mpi::memory::part;
use tombolo_mpi::{MpiError, Source, Tag};

use crate::{Test, World};

pub const TESTS: &[Test] = &[
    ("ranges_of_buffers_go_around", ranges_of_buffers_go_around),
    ("kernels_write_what_is_sent", kernels_write_what_is_sent),
    (
        "pinned_memory_goes_to_and_from_devices",
        pinned_memory_goes_to_and_from_devices,
    ),
    (
        "vectors_in_the_heap_are_messages",
        vectors_in_the_heap_are_messages,
    ),
    (
        "several_devices_of_a_rank_share_a_buffer",
        several_devices_of_a_rank_share_a_buffer,
    ),
    ("parts_of_memory", parts_of_memory),
    ("any_source_and_any_tag", any_source_and_any_tag),
    (
        "long_messages_are_truncated_loudly",
        long_messages_are_truncated_loudly,
    ),
    (
        "short_messages_leave_the_rest",
        short_messages_leave_the_rest,
    ),
    ("ranks_and_tags_are_checked", ranks_and_tags_are_checked),
];

/// The value at a place of a rank's own data.
pub fn value(rank: i32, place: usize) -> u32 {
    (rank as u32 + 1) * 100_003 + place as u32 * 7
}

pub fn values(rank: i32, places: std::ops::Range<usize>) -> Vec<u32> {
    places.map(|place| value(rank, place)).collect()
}

/// The poison in memory to receive into.
pub const POISON: u32 = 0xdead_beef;

fn ranges_of_buffers_go_around(world: &World) {
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    let mut all = values(rank, 0..1000);
    all[..100].fill(POISON);
    let buffer = world.context.buffer_from(&all).unwrap();
    let (to, from) = (ranks.after(1), ranks.before(1));
    let sent = buffer.map(900..1000).unwrap();
    let received = buffer.map_overwrite(0..100).unwrap();
    let (sent, received) = ranks.send_receive(sent, to, received, from, 5).unwrap();
    drop(sent);
    received.unmap().unwrap();
    let mut expected = values(from, 900..1000);
    expected.extend(values(rank, 100..1000));
    assert_eq!(buffer.read().unwrap(), expected);
}

/// A launch writes the outgoing range, and another reads the incoming range; only these bytes move.
fn kernels_write_what_is_sent(world: &World) {
    const LEN: u64 = 4096;
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    let program = Program::new(
        "add.wgsl",
        "@group(0) @binding(0) var<storage, read_write> values: array<u32>;
         @group(0) @binding(1) var<uniform> step: u32;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             if id.x < arrayLength(&values) { values[id.x] += step; }
         }",
    );
    let kernel = world
        .device
        .kernel(&program.unwrap(), "main", &Constants::new())
        .unwrap();
    let buffer = world
        .context
        .buffer_from(&values(rank, 0..LEN as usize))
        .unwrap();
    let add = |range: std::ops::Range<u64>, step: u32| {
        let part = buffer.slice(range.clone()).unwrap();
        let launch = kernel.launch().buffer("values", &part).value("step", &step);
        let mut launch = launch.invocations((range.end - range.start) as u32);
        launch.submit().unwrap()
    };
    add(0..LEN, 1);
    let before = world.context.buffer_statistics().moves.moved;
    let sent = buffer.map(LEN - 64..LEN).unwrap();
    let (to, from) = (ranks.after(1), ranks.before(1));
    let received = buffer.map_overwrite(0..64).unwrap();
    let (sent, received) = ranks.send_receive(sent, to, received, from, 1).unwrap();
    drop(sent);
    received.unmap().unwrap();
    let event = add(0..LEN, 2);
    event.wait().unwrap();
    let moved = world.context.buffer_statistics().moves.moved - before;
    assert_eq!(moved, 2 * 64 * 4, "{}", event.explanation().unwrap());
    let read = buffer.read().unwrap();
    for (place, found) in read.into_iter().enumerate() {
        let expected = match place {
            0..64 => value(from, LEN as usize - 64 + place) + 3,
            _ => value(rank, place) + 3,
        };
        assert_eq!(found, expected, "{place}");
    }
}

fn pinned_memory_goes_to_and_from_devices(world: &World) {
    const LEN: usize = 1 << 16;
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    let source = world.device.buffer(&values(rank, 0..LEN)).unwrap();
    let target = world.device.buffer(&[POISON; LEN]).unwrap();
    let mut sent = world.context.pinned_vec::<u32>(LEN).unwrap();
    let mut received = world.context.pinned_vec::<u32>(LEN).unwrap();
    received.fill(POISON);
    source.read_into(0, &mut sent).unwrap();
    let (to, from) = (ranks.after(1), ranks.before(1));
    let (_, received) = ranks.send_receive(sent, to, received, from, 2).unwrap();
    target.write(0, &received).unwrap();
    assert_eq!(target.read().unwrap(), values(from, 0..LEN));
}

/// Memory reached by kernels through pointers: received values are there for kernels, without any copy.
fn vectors_in_the_heap_are_messages(world: &World) {
    const LEN: usize = 300;
    let heap = world.context.heap().unwrap();
    // SAFETY: the only launch reaching the blocks ends before the vectors are looked at again.
    let allocator = unsafe { heap.allocator() };
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    let mut sent = HeapVec::new_in(allocator.clone());
    sent.extend(values(rank, 0..LEN));
    let mut received = HeapVec::new_in(allocator);
    received.resize(LEN, POISON);
    let place = received.as_ptr();
    let (to, from) = (ranks.after(1), ranks.before(1));
    let (sent, received) = ranks.send_receive(sent, to, received, from, 3).unwrap();
    assert_eq!(received.as_ptr(), place);
    assert_eq!(received.as_slice(), values(from, 0..LEN));
    assert_eq!(sent.as_slice(), values(rank, 0..LEN));
    // Devices with a copy of the heap refuse launches while the host has vectors there.
    if heap.tier(&world.device) == Tier::CoarseGrained {
        return;
    }
    let program = Program::new(
        "sum.wgsl",
        "alias Words = array<u32>;
         @group(0) @binding(0) var<storage, read_write> sum: array<u32>;
         @group(0) @binding(1) var<uniform> words: usm_ptr;
         @group(0) @binding(2) var<uniform> count: u32;
         @compute @workgroup_size(1) fn main() {
             for (var i = 0u; i < count; i++) { sum[0] += usm_Words(words)[i]; }
         }",
    );
    let kernel = world
        .device
        .kernel(&program.unwrap(), "main", &Constants::new())
        .unwrap();
    let sum = world.device.zeroed::<u32>(1).unwrap();
    let words = heap.pointer_to(place).unwrap();
    let launch = kernel.launch().buffer("sum", &sum).value("words", &words);
    let launch = launch.value("count", &(LEN as u32)).invocations(1).submit();
    launch.unwrap().wait().unwrap();
    let expected: u32 = values(from, 0..LEN).iter().sum();
    assert_eq!(sum.read().unwrap(), [expected]);
}

fn several_devices_of_a_rank_share_a_buffer(world: &World) {
    const LEN: u64 = 512;
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    let devices = [world.device.clone(), world.context.device().unwrap()];
    let program = Program::new(
        "number.wgsl",
        "@group(0) @binding(0) var<storage, read_write> values: array<u32>;
         @group(0) @binding(1) var<uniform> first: u32;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             if id.x < arrayLength(&values) { values[id.x] = first + 7u * id.x; }
         }",
    );
    let program = program.unwrap();
    let buffer = world.context.buffer_from(&[POISON; LEN as usize]).unwrap();
    let half = LEN / 2;
    for (at, device) in devices.iter().enumerate() {
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let first = at as u64 * half;
        let part = buffer.slice(first..first + half).unwrap();
        let launch = kernel.launch().buffer("values", &part);
        let launch = launch.value("first", &value(rank, first as usize));
        launch.invocations(half as u32).submit().unwrap();
    }
    // Across the seam of both devices.
    let sent = buffer.map(half - 50..half + 50).unwrap();
    let (to, from) = (ranks.after(1), ranks.before(1));
    let received = vec![POISON; 100];
    let (_, received) = ranks.send_receive(sent, to, received, from, 4).unwrap();
    let start = half as usize - 50;
    assert_eq!(received, values(from, start..start + 100));
}

fn parts_of_memory(world: &World) {
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    let sent = part(values(rank, 0..100), 30..50).unwrap();
    let received = part(vec![POISON; 60], 10..30).unwrap();
    let (to, from) = (ranks.after(1), ranks.before(1));
    let (_, received) = ranks.send_receive(sent, to, received, from, 6).unwrap();
    let received = received.into_whole();
    assert_eq!(received[10..30], values(from, 30..50));
    assert!(
        received[..10]
            .iter()
            .chain(&received[30..])
            .all(|&value| value == POISON)
    );
}

fn any_source_and_any_tag(world: &World) {
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    let sent = ranks.isend(values(rank, 0..3), 0, 40 + rank).unwrap();
    if rank == 0 {
        let mut seen = vec![false; ranks.size() as usize];
        for _ in 0..ranks.size() {
            let request = ranks
                .ireceive(vec![POISON; 5], Source::Any, Tag::Any)
                .unwrap();
            let (received, envelope) = request.wait_with_envelope().unwrap();
            assert_eq!(envelope.tag, 40 + envelope.source);
            assert_eq!(envelope.bytes, 12);
            assert_eq!(received[..3], values(envelope.source, 0..3));
            assert!(!std::mem::replace(
                &mut seen[envelope.source as usize],
                true
            ));
        }
        assert!(seen.iter().all(|&seen| seen));
    }
    sent.wait().unwrap();
    // From all, before the next test receives from any.
    ranks.barrier().unwrap();
}

fn long_messages_are_truncated_loudly(world: &World) {
    let ranks = &world.ranks;
    let sent = ranks.isend(vec![1u32; 9], ranks.after(1), 7).unwrap();
    let error = ranks
        .receive(vec![POISON; 4], ranks.before(1), 7)
        .unwrap_err();
    match error {
        MpiError::Truncated {
            operation,
            capacity,
        } => {
            assert_eq!(
                (operation.name, operation.peer),
                ("receive", Some(ranks.before(1)))
            );
            assert_eq!((operation.tag, capacity), (Some(7), 16));
        }
        other => panic!("{other}"),
    }
    // To oneself the library may tell the sender as well.
    let _ = sent.wait();
}

fn short_messages_leave_the_rest(world: &World) {
    let (ranks, rank) = (&world.ranks, world.ranks.rank());
    let buffer = world.context.buffer_from(&[POISON; 8]).unwrap();
    let sent = ranks.isend(values(rank, 0..3), ranks.after(1), 8).unwrap();
    let request = ranks
        .ireceive(buffer.map_mut(..).unwrap(), ranks.before(1), 8)
        .unwrap();
    let (mapped, envelope) = request.wait_with_envelope().unwrap();
    assert_eq!(envelope.bytes, 12);
    mapped.unmap().unwrap();
    let mut expected = values(ranks.before(1), 0..3);
    expected.resize(8, POISON);
    assert_eq!(buffer.read().unwrap(), expected);
    sent.wait().unwrap();
}

fn ranks_and_tags_are_checked(world: &World) {
    let ranks = &world.ranks;
    for wrong in [-1, ranks.size()] {
        let error = ranks.isend(vec![1u8], wrong, 0).unwrap_err();
        assert!(
            matches!(error, MpiError::NoRank { size, .. } if size == ranks.size()),
            "{error}"
        );
        let error = ranks.ireceive(vec![1u8], wrong, 0).unwrap_err();
        assert!(matches!(error, MpiError::NoRank { .. }), "{error}");
        let error = ranks.ibroadcast(vec![1u8], wrong).unwrap_err();
        assert!(matches!(error, MpiError::NoRank { .. }), "{error}");
    }
    let error = ranks.isend(vec![1u8], 0, -3).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "send with rank 0, tag -3: tags are between 0 and {}",
            ranks.most_tag()
        )
    );
    let farthest = (i64::from(ranks.rank()) + (1 << 31)) % i64::from(ranks.size());
    assert_eq!(i64::from(ranks.before(i32::MIN)), farthest);
    if let Some(above) = ranks.most_tag().checked_add(1) {
        let error = ranks.ireceive(vec![1u8], 0, above).unwrap_err();
        assert!(matches!(error, MpiError::Tag { .. }), "{error}");
    }
}
