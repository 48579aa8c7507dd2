//! The host's side of buffers of a context: where they begin, maps, and memory of the heap.

use crate::buffers_moving::{Kernels, Random, added, pairs};
use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Buffer,
    buffers::{BufferError, Placement},
    launch::LaunchError,
};

cases![
    buffers_begin_with_what_they_are_given,
    parts_are_read_into_memory_that_is_there,
    writes_come_between_launches,
    maps_see_what_launches_wrote,
    only_what_was_touched_is_written_back,
    a_slice_borrowed_for_writing_is_touched_whole,
    mapped_ranges_are_nobody_elses,
    buffers_live_in_the_heap,
    heaps_with_a_copy_hold_buffers_too,
    shared_buffers_keep_the_order_of_launches,
    threads_work_on_parts_of_their_own,
];

fn buffers_begin_with_what_they_are_given(f: &Fixture) {
    let kernels = Kernels::new(&f.device);
    let values: Vec<u32> = (0..777).collect();
    let given = [
        f.context.buffer_from(&values).unwrap(),
        f.context.buffer_from_vec(values.clone()).unwrap(),
        f.context
            .buffer_from_vec_with(values.clone(), Placement::Shared)
            .unwrap(),
    ];
    for buffer in given {
        assert_eq!(buffer.read().unwrap(), values);
        assert_eq!(buffer.read_range(5..9).unwrap(), values[5..9]);
        assert_eq!(buffer.statistics().moves.moved, 0);
        kernels.add(&buffer, 1).unwrap();
        let mut expected = values.clone();
        added(&mut expected, 1);
        assert_eq!(buffer.read().unwrap(), expected);
    }
    let pairs = f.context.buffer_from_vec(vec![[1u8, 2, 3]; 5]).unwrap();
    assert_eq!(pairs.read().unwrap(), vec![[1, 2, 3]; 5]);
}

fn parts_are_read_into_memory_that_is_there(f: &Fixture) {
    const LEN: usize = 300;
    let kernels = Kernels::new(&f.device);
    let check = |buffer: &Buffer<u32>, model: &[u32]| {
        for (start, len) in [(0, LEN), (0, 1), (7, 100), (LEN - 1, 1), (5, 0)] {
            let mut values = vec![0xdead_beef; len + 2];
            buffer
                .read_into(start as u64, &mut values[1..=len])
                .unwrap();
            assert_eq!(values[1..=len], model[start..start + len], "{start} {len}");
            assert_eq!((values[0], values[len + 1]), (0xdead_beef, 0xdead_beef));
        }
    };
    for placement in [Placement::Auto, Placement::Shared] {
        let buffer = f.context.buffer_with::<u32>(LEN, placement).unwrap();
        let mut model = vec![0; LEN];
        check(&buffer, &model);
        // On the device, but for a part.
        kernels.add(&buffer.slice(50..120).unwrap(), 3).unwrap();
        added(&mut model[50..120], 3);
        check(&buffer, &model);
        buffer.write(60, &[9; 20]).unwrap();
        model[60..80].fill(9);
        check(&buffer, &model);
        let out = buffer.read_into(LEN as u64 - 1, &mut [0; 2]).unwrap_err();
        assert!(matches!(out, BufferError::OutOfRange { .. }), "{out}");
    }
}

fn writes_come_between_launches(f: &Fixture) {
    for (one, other) in pairs(f) {
        let buffer: Buffer<u32> = f.context.buffer(100).unwrap();
        // The first launch must not see the second write, nor the other way round.
        buffer.write(0, &[1; 100]).unwrap();
        one.add(&buffer, 0).unwrap();
        let copy: Buffer<u32> = f.context.buffer(100).unwrap();
        one.copy(&buffer, &copy).unwrap();
        buffer.write(10, &[50; 20]).unwrap();
        other.add(&buffer, 1).unwrap();
        buffer.write(20, &[9; 5]).unwrap();
        assert_eq!(copy.read().unwrap(), vec![3; 100]);
        let mut expected = vec![10u32; 100];
        expected[10..30].fill(151);
        expected[20..25].fill(9);
        assert_eq!(buffer.read().unwrap(), expected);
    }
}

fn maps_see_what_launches_wrote(f: &Fixture) {
    for (one, other) in pairs(f) {
        let buffer = f.context.buffer_from_vec((0..400u32).collect()).unwrap();
        one.add(&buffer.slice(..200).unwrap(), 1).unwrap();
        other.add(&buffer.slice(200..).unwrap(), 2).unwrap();
        let mut expected: Vec<u32> = (0..400).collect();
        added(&mut expected[..200], 1);
        added(&mut expected[200..], 2);
        let before = buffer.statistics().moves.moved;
        let mapped = buffer.map(150..250).unwrap();
        assert_eq!(*mapped, expected[150..250]);
        assert_eq!(buffer.statistics().moves.moved, before + 400);
        // Several may look.
        assert_eq!(*buffer.map(..).unwrap(), expected[..]);
        drop(mapped);
        let part = buffer.slice(100..300).unwrap();
        assert_eq!(*part.map(20..40).unwrap(), expected[120..140]);
    }
}

fn a_slice_borrowed_for_writing_is_touched_whole(f: &Fixture) {
    for (one, _) in pairs(f) {
        let values: Vec<u32> = (0..500u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
        let buffer = f.context.buffer_from(&values).unwrap();
        let mut expected = values;
        one.add(&buffer, 0).unwrap();
        added(&mut expected, 0);
        let mut mapped = buffer.map_mut(100..400).unwrap();
        mapped[..=4].fill(9);
        expected[100..105].fill(9);
        assert!(mapped.touched().iter().eq([&(0..5)]));
        // To look is not to touch.
        assert_eq!(mapped.iter().max(), expected[100..400].iter().max());
        assert!(mapped.touched().iter().eq([&(0..5)]));
        mapped.sort_unstable();
        expected[100..400].sort_unstable();
        assert_eq!(*mapped, expected[100..400]);
        assert!(mapped.touched().iter().eq([&(0..300)]));
        mapped.unmap().unwrap();
        assert_eq!(buffer.read().unwrap(), expected);
        // Dropped, by a slice of the whole.
        let reverse = |values: &mut [u32]| values.reverse();
        reverse(&mut buffer.map_mut(0..200).unwrap());
        expected[..200].reverse();
        one.add(&buffer, 0).unwrap();
        added(&mut expected, 0);
        assert_eq!(buffer.read().unwrap(), expected);
    }
}

fn only_what_was_touched_is_written_back(f: &Fixture) {
    for (one, other) in pairs(f) {
        let buffer = f.context.buffer_from_vec(vec![1u32; 1000]).unwrap();
        one.add(&buffer, 0).unwrap();
        let mut expected = vec![3u32; 1000];
        let mut mapped = buffer.map_mut(100..900).unwrap();
        assert_eq!(*mapped, [3; 800]);
        mapped[7] = 70;
        mapped[10..20].fill(80);
        mapped[15..=24].fill(81);
        mapped[799] += 1;
        assert_eq!(mapped.touched(), [7..8, 10..25, 799..800]);
        mapped.unmap().unwrap();
        expected[107] = 70;
        expected[110..115].fill(80);
        expected[115..125].fill(81);
        expected[899] = 4;
        // The device gets what was touched, and nothing else.
        let before = buffer.statistics().moves.moved;
        one.add(&buffer, 0).unwrap();
        added(&mut expected, 0);
        assert_eq!(buffer.statistics().moves.moved, before + 4 * (1 + 15 + 1));
        assert_eq!(buffer.read().unwrap(), expected);
        // Dropped without a word it comes back, too; untouched, nothing does.
        buffer.map_mut(..).unwrap()[0] = 5;
        expected[0] = 5;
        drop(buffer.map_mut(..).unwrap());
        let mut fresh = buffer.map_overwrite(990..).unwrap();
        assert_eq!(*fresh, [0; 10]);
        fresh[..].fill(6);
        drop(fresh);
        expected[990..].fill(6);
        let before = buffer.statistics().moves.moved;
        other.add(&buffer.slice(..1).unwrap(), 0).unwrap();
        assert_eq!(buffer.statistics().moves.moved, before + 4);
        expected[0] = 15;
        assert_eq!(buffer.read().unwrap(), expected);
    }
}

fn mapped_ranges_are_nobody_elses(f: &Fixture) {
    let kernels = Kernels::new(&f.device);
    let buffer = f.context.buffer_from_vec(vec![1u32; 100]).unwrap();
    let part = |range: std::ops::Range<u64>| buffer.slice(range).unwrap();
    let refused = |error: LaunchError| match error {
        LaunchError::Buffer { source, .. } => match *source {
            BufferError::Mapped { range, .. } => assert_eq!(range, 80..160),
            other => panic!("{other}"),
        },
        other => panic!("{other}"),
    };
    let reading = buffer.map(20..40).unwrap();
    refused(kernels.add(&part(30..50), 1).unwrap_err());
    assert!(matches!(
        buffer.write(39, &[1]).unwrap_err(),
        BufferError::Mapped { writing: false, .. }
    ));
    assert!(buffer.map_mut(0..21).is_err());
    kernels.add(&part(0..20), 1).unwrap();
    // Readers are welcome.
    assert_eq!(kernels.sum(&part(20..40)), 16);
    drop(reading);
    let writing = buffer.map_mut(20..40).unwrap();
    assert!(matches!(
        buffer.read().unwrap_err(),
        BufferError::Mapped { writing: true, .. }
    ));
    assert!(buffer.map(39..40).is_err());
    let data: Buffer<u32> = f.context.buffer(20).unwrap();
    refused(kernels.copy(&part(20..40), &data).unwrap_err());
    assert_eq!(buffer.read_range(40..).unwrap(), vec![1; 60]);
    drop(writing);
    kernels.add(&buffer, 1).unwrap();
    let mut expected = vec![4; 100];
    expected[..20].fill(13);
    assert_eq!(buffer.read().unwrap(), expected);
    // What was refused left nothing mapped.
    buffer.write(0, &[0; 100]).unwrap();
}

fn buffers_live_in_the_heap(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    for (one, other) in pairs(f) {
        let values: Vec<u32> = (0..600).collect();
        let ptr = heap.alloc_slice(&values).unwrap();
        let buffer = f.context.buffer_in(ptr, 600).unwrap();
        one.add(&buffer, 1).unwrap();
        other.add(&buffer.slice(100..300).unwrap(), 2).unwrap();
        one.add(&buffer, 3).unwrap();
        let mut expected = values;
        added(&mut expected, 1);
        added(&mut expected[100..300], 2);
        added(&mut expected, 3);
        assert_eq!(buffer.read().unwrap(), expected);
        // The pointer leads to the same values, and what is written there is in the buffer.
        assert_eq!(heap.read(ptr, 600).unwrap(), expected);
        heap.write(ptr.add(5), &[1, 2, 3]).unwrap();
        expected[5..8].copy_from_slice(&[1, 2, 3]);
        other.add(&buffer, 4).unwrap();
        added(&mut expected, 4);
        buffer.write(590, &[7; 10]).unwrap();
        expected[590..].fill(7);
        assert_eq!(*buffer.map(..).unwrap(), expected[..]);
        assert_eq!(heap.read(ptr, 600).unwrap(), expected);
        assert_eq!(buffer.statistics().moves.moved, 0);
        heap.free(ptr).unwrap();
        assert!(matches!(
            one.add(&buffer, 1).unwrap_err(),
            LaunchError::Buffer { .. } | LaunchError::Heap(_)
        ));
        assert!(f.context.buffer_in(ptr, 600).is_err());
    }
    let leaked = heap.allocations().len();
    let buffer = f
        .context
        .buffer_with::<u32>(100, Placement::Shared)
        .unwrap();
    assert_eq!(heap.allocations().len(), leaked);
    Kernels::new(&f.device)
        .add(&buffer, 1)
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(heap.allocations().len(), leaked + 1);
    drop(buffer);
    assert_eq!(heap.allocations().len(), leaked);
}

fn heaps_with_a_copy_hold_buffers_too(f: &Fixture) {
    let context = tombolo::Context::new().unwrap();
    let mut options = tombolo::DeviceOptions::default();
    options.live_memory = false;
    let device = context.device_at_with(f.index, options).unwrap();
    let heap = context.heap().unwrap();
    assert_eq!(heap.tier(&device), tombolo::device::Tier::CoarseGrained);
    let kernels = [
        Kernels::new(&device),
        Kernels::new(&context.device_at(f.index).unwrap()),
    ];
    let ptr = heap.alloc_slice(&[4u32; 300]).unwrap();
    let buffer = context.buffer_in(ptr, 300).unwrap();
    let mut expected = vec![4u32; 300];
    for (turn, kernels) in [0, 1, 1, 0, 1].map(|i| &kernels[i]).into_iter().enumerate() {
        let range = turn * 10..300 - turn;
        kernels
            .add(
                &buffer.slice(range.start as u64..range.end as u64).unwrap(),
                1,
            )
            .unwrap();
        added(&mut expected[range], 1);
    }
    assert_eq!(buffer.read().unwrap(), expected);
    assert_eq!(heap.read(ptr, 300).unwrap(), expected);
}

fn shared_buffers_keep_the_order_of_launches(f: &Fixture) {
    for (one, other) in pairs(f) {
        let buffer = f
            .context
            .buffer_with::<u32>(40_000, Placement::Shared)
            .unwrap();
        let mut expected = vec![0u32; 40_000];
        let mut random = Random(7);
        for turn in 0..30 {
            let kernels = if random.below(2) == 0 { &one } else { &other };
            let start = random.below(1000) as usize;
            kernels
                .add(&buffer.slice(start as u64..).unwrap(), turn)
                .unwrap();
            added(&mut expected[start..], turn);
        }
        let found = buffer.read().unwrap();
        let wrong = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(wrong, None);
        assert_eq!(buffer.statistics().moves.moved, 0);
    }
}

fn threads_work_on_parts_of_their_own(f: &Fixture) {
    for (one, other) in pairs(f) {
        let buffer = f.context.buffer_from_vec(vec![1u32; 8000]).unwrap();
        let edge = f.context.buffer_from_vec(vec![1u32; 64]).unwrap();
        std::thread::scope(|scope| {
            for (index, kernels) in [&one, &other, &one, &other].into_iter().enumerate() {
                let (buffer, edge) = (&buffer, &edge);
                scope.spawn(move || {
                    let start = index as u64 * 2000;
                    let part = buffer.slice(start..start + 2000).unwrap();
                    for turn in 0..15 {
                        kernels.add(&part, turn).unwrap();
                        // Everybody reads what nobody writes.
                        assert_eq!(kernels.sum(edge), 16);
                        if turn % 5 == 0 {
                            let _ = part.read().unwrap();
                        }
                    }
                });
            }
        });
        let mut expected = vec![1u32; 8000];
        (0..15).for_each(|turn| added(&mut expected, turn));
        assert_eq!(buffer.read().unwrap(), expected);
        assert_eq!(buffer.statistics().conflicts, 0);
    }
}
