//! Parts of buffers of a context: overlapping ones agree, and ones that are apart go to devices of their own.

use crate::buffers_moving::{Kernels, Random, added, hops, pairs};
use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Buffer, Constants, Program,
    buffers::{BufferError, Placement},
    launch::LaunchError,
};

cases![
    parts_are_checked,
    decomposition_over_two_devices,
    disjoint_parts_do_not_move_the_others,
    overlapping_parts_and_the_whole_agree,
    parts_are_written_and_read_on_two_devices,
    parts_of_bytes_begin_and_end_anywhere,
    parts_of_one_buffer_in_one_launch,
    uniforms_are_parts_too,
    grids_are_read_from_parts,
    kernels_that_follow_pointers_take_parts,
    other_contexts_are_refused,
];

fn parts_are_checked(f: &Fixture) {
    let buffer: Buffer<u32> = f.context.buffer(100).unwrap();
    match buffer.slice(5..5).unwrap_err() {
        BufferError::EmptyPart { at, len } => assert_eq!((at, len), (5, 100)),
        other => panic!("{other}"),
    }
    for (start, end) in [(0, 101), (101, 101), (99, u64::MAX), (7, 3)] {
        match buffer.slice(start..end).unwrap_err() {
            BufferError::OutOfRange {
                start: a,
                end: b,
                len,
                ..
            } => {
                assert_eq!((a, b, len), (start, end, 100));
            }
            other => panic!("{other}"),
        }
    }
    let part = buffer.slice(10..20).unwrap();
    assert_eq!((part.len(), part.byte_offset()), (10, 40));
    let nested = part.slice(3..).unwrap();
    assert_eq!((nested.len(), nested.byte_offset()), (7, 52));
    assert!(part.slice(..11).is_err());
    assert!(part.read_range(5..11).is_err());
    assert!(part.write(8, &[1, 2, 3]).is_err());
    assert!(part.fill(1, 9..11).is_err());
    assert!(part.map(0..11).is_err());
    let words: Buffer<u8> = part.cast().unwrap();
    assert_eq!(words.len(), 40);
    assert!(matches!(
        words.slice(..39).unwrap().cast::<u32>().unwrap_err(),
        BufferError::ElementSize {
            start: 40,
            end: 79,
            element_bytes: 4,
            ..
        }
    ));
    assert!(matches!(
        f.context.buffer::<[u32; 0]>(4).unwrap_err(),
        BufferError::ZeroSized { .. }
    ));
    let none: Buffer<u32> = f.context.buffer(0).unwrap();
    assert!(none.is_empty() && none.read().unwrap().is_empty());
    assert!(none.slice(..).is_err());
    // Sizes of a program's mistake.
    assert!(f.context.buffer::<u64>(usize::MAX).is_err());
}

fn decomposition_over_two_devices(f: &Fixture) {
    for (one, other) in pairs(f) {
        // Seven parts in turns, the last one shorter; nobody touches the bytes behind them.
        let (len, part_len) = (6 * 333 + 101, 333);
        let values: Vec<u32> = (0..len as u32 + 55).collect();
        let input = f.context.buffer_from(&values).unwrap();
        let output = f
            .context
            .buffer_from_vec(vec![0xdead_beefu32; len + 55])
            .unwrap();
        for (index, start) in (0..len).step_by(part_len).enumerate() {
            let kernels = if index % 2 == 0 { &one } else { &other };
            let range = start as u64..(start + part_len).min(len) as u64;
            let (source, target) = (
                input.slice(range.clone()).unwrap(),
                output.slice(range).unwrap(),
            );
            kernels.copy(&source, &target).unwrap();
            kernels.add(&target, 5).unwrap();
        }
        let mut expected = values.clone();
        added(&mut expected[..len], 5);
        expected[len..].fill(0xdead_beef);
        // Every byte went up once, but for what nobody touched.
        assert_eq!(output.statistics().moves.moved, len as u64 * 4);
        assert_eq!(input.statistics().moves.moved, len as u64 * 4);
        assert_eq!(output.read().unwrap(), expected);
        assert_eq!(input.read().unwrap(), values);
    }
}

fn disjoint_parts_do_not_move_the_others(f: &Fixture) {
    for (one, other) in pairs(f) {
        let buffer = f.context.buffer_from_vec(vec![2u32; 2000]).unwrap();
        let (left, right) = (buffer.slice(..1000).unwrap(), buffer.slice(1000..).unwrap());
        let mut expected = vec![2u32; 2000];
        for turn in 0..10 {
            one.add(&left, turn).unwrap();
            other.add(&right, turn).unwrap();
            added(&mut expected, turn);
        }
        // Each half went up once, and stayed.
        assert_eq!(buffer.statistics().moves.moved, 8000);
        // An edge of one element is all that the other side needs.
        let hops = hops(&one, &other);
        other.add(&buffer.slice(999..1001).unwrap(), 100).unwrap();
        added(&mut expected[999..1001], 100);
        assert_eq!(buffer.statistics().moves.moved, 8000 + 4 * hops);
        assert_eq!(buffer.read().unwrap(), expected);
    }
}

fn overlapping_parts_and_the_whole_agree(f: &Fixture) {
    for (seed, (one, other)) in pairs(f).into_iter().enumerate() {
        let mut random = Random(seed as u64 + 100);
        let buffer: Buffer<u32> = f.context.buffer(256).unwrap();
        let mut model = vec![0u32; 256];
        for step in 0..60 {
            let start = random.below(255);
            let end = start + 1 + random.below(256 - start);
            let part = buffer.slice(start..end).unwrap();
            let kernels = if random.below(2) == 0 { &one } else { &other };
            kernels.add(&part, step).unwrap();
            added(&mut model[start as usize..end as usize], step);
            if step % 7 == 0 {
                // A part that lies across, and the whole.
                let middle = buffer.slice(60..200).unwrap();
                assert_eq!(middle.read().unwrap(), model[60..200]);
                assert_eq!(buffer.read().unwrap(), model);
            }
        }
        assert_eq!(buffer.read().unwrap(), model);
    }
}

fn parts_are_written_and_read_on_two_devices(f: &Fixture) {
    for (one, other) in pairs(f) {
        let main = f.context.buffer_from_vec(vec![0u32; 600]).unwrap();
        let (first, second) = (main.slice(..256).unwrap(), main.slice(256..512).unwrap());
        first.write(0, &(0..256).collect::<Vec<u32>>()).unwrap();
        one.add(&first, 1).unwrap();
        first.prefetch(&other.device).unwrap();
        first.copy_to(&second).unwrap();
        other.add(&second, 2).unwrap();
        let mut a: Vec<u32> = (0..256).collect();
        added(&mut a, 1);
        let mut b = a.clone();
        added(&mut b, 2);
        assert_eq!(first.read().unwrap(), a);
        assert_eq!(second.read().unwrap(), b);
        one.add(&main, 3).unwrap();
        let mut all = [a, b, vec![0; 88]].concat();
        added(&mut all, 3);
        assert_eq!(main.read().unwrap(), all);
        assert_eq!(first.read().unwrap(), all[..256]);
    }
}

/// Adds 1 to each byte, and some to what lies behind the part in its last word.
const BYTES: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) {
        var all = 0u;
        for (var i = 0u; i < 32u; i += 8u) { all |= (((data[id.x] >> i) + 1u) & 255u) << i; }
        data[id.x] = all;
    }
}";

fn parts_of_bytes_begin_and_end_anywhere(f: &Fixture) {
    let program = Program::new("bytes.wgsl", BYTES).unwrap();
    for (one, other) in pairs(f) {
        let kernels = [&one, &other].map(|kernels| {
            kernels
                .device
                .kernel(&program, "main", &Constants::new())
                .unwrap()
        });
        let mut model: Vec<u8> = (0..=250).collect();
        let buffer = f.context.buffer_from(&model).unwrap();
        let mut turn = 0;
        for start in [0u64, 1, 2, 3, 64, 67, 128, 200] {
            for len in [4u64, 5, 6, 7, 8, 45] {
                let part = buffer.slice(start..start + len).unwrap();
                kernels[turn % 2]
                    .launch()
                    .buffer("data", &part)
                    .invocations(12)
                    .submit()
                    .unwrap();
                turn += 1;
                let at = start as usize..(start + len) as usize;
                model[at]
                    .iter_mut()
                    .for_each(|byte| *byte = byte.wrapping_add(1));
            }
        }
        // The very end, which is none of a word.
        let tail = buffer.slice(246..).unwrap();
        kernels[0]
            .launch()
            .buffer("data", &tail)
            .invocations(2)
            .submit()
            .unwrap();
        model[246..]
            .iter_mut()
            .for_each(|byte| *byte = byte.wrapping_add(1));
        assert_eq!(buffer.read().unwrap(), model);
        assert_eq!(buffer.slice(77..99).unwrap().read().unwrap(), model[77..99]);
    }
}

fn parts_of_one_buffer_in_one_launch(f: &Fixture) {
    for placement in [Placement::Device, Placement::Shared] {
        let kernels = Kernels::new(&f.device);
        let values: Vec<u32> = (0..512).collect();
        let buffer = f
            .context
            .buffer_from_vec_with(values.clone(), placement)
            .unwrap();
        // One is read and another one written, also where neither begins at a place that adapters bind.
        for (from, to, len) in [(0, 256, 256), (256, 0, 100), (3, 301, 99)] {
            let part = |at: u64| buffer.slice(at..at + len).unwrap();
            let before = buffer.read().unwrap();
            kernels.copy(&part(from), &part(to)).unwrap();
            let mut expected = before.clone();
            let (a, b, n) = (from as usize, to as usize, len as usize);
            expected[b..b + n].copy_from_slice(&before[a..a + n]);
            assert_eq!(
                buffer.read().unwrap(),
                expected,
                "{placement:?} {from} {to}"
            );
        }
        // Bytes that both have are refused.
        let part = |at: u64| buffer.slice(at..at + 50).unwrap();
        assert!(matches!(
            kernels.copy(&part(0), &part(49)).unwrap_err(),
            LaunchError::Aliased { .. }
        ));
    }
}

fn uniforms_are_parts_too(f: &Fixture) {
    let program = Program::new(
        "scale.wgsl",
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @group(0) @binding(1) var<uniform> factor: vec4<u32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&data) { data[id.x] *= factor.y; }
         }",
    )
    .unwrap();
    for (one, other) in pairs(f) {
        let factors = f.context.buffer_from_vec((0..64u32).collect()).unwrap();
        let data = f.context.buffer_from_vec(vec![1u32; 100]).unwrap();
        for (kernels, start) in [(&one, 4), (&other, 9), (&one, 1)] {
            let kernel = kernels
                .device
                .kernel(&program, "main", &Constants::new())
                .unwrap();
            let part = factors.slice(start..start + 4).unwrap();
            let launch = kernel
                .launch()
                .buffer("data", &data)
                .buffer("factor", &part);
            launch.invocations(100).submit().unwrap();
        }
        assert_eq!(data.read().unwrap(), vec![5 * 10 * 2; 100]);
        // Uniforms are read: they are where they were.
        assert_eq!(factors.read().unwrap(), (0..64).collect::<Vec<u32>>());
    }
}

fn grids_are_read_from_parts(f: &Fixture) {
    let program = Program::new(
        "count.wgsl",
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) { data[id.x] += 1u; }",
    )
    .unwrap();
    for (one, other) in pairs(f) {
        let data: Buffer<u32> = f.context.buffer(10).unwrap();
        let counts: Buffer<u32> = f.context.buffer(8).unwrap();
        let kernel = other
            .device
            .kernel(&program, "main", &Constants::new())
            .unwrap();
        let part = counts.slice(2..).unwrap();
        let mut launch = kernel.launch().buffer("data", &data).indirect(&part, 8);
        for _ in 0..2 {
            // The other device makes the numbers: 1 group in each direction, and later 4 in the first.
            one.add(&counts.slice(4..7).unwrap(), 1).unwrap();
            launch.submit().unwrap();
            one.add(&counts.slice(5..7).unwrap(), 0).unwrap();
            counts.write(5, &[1, 1]).unwrap();
            launch.submit().unwrap();
            counts.write(5, &[0, 0]).unwrap();
        }
        assert_eq!(data.read().unwrap()[..5], [4, 2, 2, 2, 0]);
        let refused = |buffer: &Buffer<u32>, offset| {
            let launch = kernel
                .launch()
                .buffer("data", &data)
                .indirect(buffer, offset);
            { launch }.submit().unwrap_err()
        };
        assert!(matches!(refused(&part, 16), LaunchError::Indirect { .. }));
        assert!(matches!(refused(&data, 0), LaunchError::Aliased { .. }));
    }
}

fn kernels_that_follow_pointers_take_parts(f: &Fixture) {
    let program = Program::new(
        "follow.wgsl",
        "alias Words = array<u32>;
         @group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @group(0) @binding(1) var<uniform> words: vec2<u32>;
         @compute @workgroup_size(1) fn main() {
            let p = usm_Words(words);
            for (var i = 0u; i < 8u; i++) { data[i] += p[i]; }
         }",
    )
    .unwrap();
    let heap = f.context.heap().unwrap();
    let words = heap.alloc_slice(&[1u32, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    for (one, other) in pairs(f) {
        for placement in [Placement::Device, Placement::Shared] {
            let buffer = f
                .context
                .buffer_from_vec_with(vec![10u32; 40], placement)
                .unwrap();
            let part = buffer.slice(5..13).unwrap();
            for kernels in [&one, &other] {
                let kernel = kernels
                    .device
                    .kernel(&program, "main", &Constants::new())
                    .unwrap();
                let launch = kernel.launch().buffer("data", &part).value("words", &words);
                launch.workgroups(1).submit().unwrap();
            }
            let mut expected = vec![10u32; 40];
            (0..8).for_each(|i| expected[5 + i] += 2 * (i as u32 + 1));
            assert_eq!(buffer.read().unwrap(), expected, "{placement:?}");
        }
    }
    heap.free(words).unwrap();
}

fn other_contexts_are_refused(f: &Fixture) {
    let stranger = f.open_alone(|_| {});
    let buffer: Buffer<u32> = f.context.buffer(10).unwrap();
    match Kernels::new(&stranger).add(&buffer, 1).unwrap_err() {
        LaunchError::Buffer { source, .. } => {
            assert!(
                matches!(*source, BufferError::OtherContext { .. }),
                "{source}"
            );
        }
        other => panic!("{other}"),
    }
    assert!(matches!(
        buffer.prefetch(&stranger).unwrap_err(),
        BufferError::OtherContext { .. }
    ));
}
