//! Blocks of a device's memory, out of which small buffers are carved: what is next to each other in a block has nothing
//! to do with each other.

use crate::buffers_moving::{Kernels, Random, added, pairs};
use crate::cases;
use crate::harness::Fixture;
use tombolo::{Buffer, Constants, Program, buffers::BufferError, launch::LaunchError};

cases![
    small_buffers_share_blocks,
    what_was_left_in_a_block_is_not_seen,
    what_is_written_leaves_the_blocks_of_the_others,
    blocks_count_against_the_cap,
    failures_stay_with_their_bytes,
    buffers_come_and_go_between_launches,
    bindings_of_every_kind_in_one_block,
];

/// What [`Kernels::sum`] adds up.
fn head(model: &[u32]) -> u32 {
    model
        .iter()
        .take(16)
        .fold(0, |sum, one| sum.wrapping_add(*one))
}

fn small_buffers_share_blocks(f: &Fixture) {
    let small = Kernels::new(&f.open(|_| {}));
    let memory = || small.device.buffer_memory();
    assert_eq!((memory().blocks, memory().reserved), (0, 0));
    let mut models: Vec<Vec<u32>> = (0..300u32)
        .map(|i| vec![i; 1 + i as usize * 7 % 500])
        .collect();
    let buffers: Vec<Buffer<u32>> = (models.iter())
        .map(|model| f.context.buffer_from(model).unwrap())
        .collect();
    for (buffer, model) in buffers.iter().zip(&mut models) {
        small.add(buffer, 2).unwrap();
        added(model, 2);
    }
    let wanted: u64 = models.iter().map(|model| model.len() as u64 * 4).sum();
    let now = memory();
    assert_eq!((now.used, now.buffers), (wanted, 300));
    // 300 KiB in blocks of 256 KiB.
    assert_eq!(now.blocks, 2);
    assert_eq!(now.reserved, now.block_bytes);
    assert!(
        now.block_used >= wanted && now.block_used < wanted + 300 * 16,
        "{now:?}"
    );
    assert!(now.largest_free > 0 && now.largest_free <= now.block_bytes - now.block_used);
    for (buffer, model) in buffers.iter().zip(&models) {
        assert_eq!(buffer.read().unwrap(), *model);
        assert_eq!(small.sum(buffer), head(model));
    }
    // A large one has memory of its own.
    let large: Buffer<u32> = f.context.buffer(1 << 20).unwrap();
    let before = memory();
    small.add(&large, 1).unwrap();
    assert_eq!(memory().reserved, before.reserved + (4 << 20));
    assert_eq!(memory().blocks, before.blocks);
    drop((buffers, large));
    let now = memory();
    assert_eq!((now.used, now.buffers, now.block_used), (0, 0, 0));
    // One block is kept for the next buffer, until somebody wants it back.
    assert_eq!((now.blocks, now.largest_free), (1, now.block_bytes));
    assert_eq!(small.device.trim_buffer_blocks(), now.block_bytes);
    assert_eq!((memory().blocks, memory().reserved), (0, 0));
    assert_eq!(small.device.trim_buffer_blocks(), 0);
    let again = f.context.buffer_from_vec(vec![1u32; 10]).unwrap();
    assert_eq!(small.sum(&again), 10);
}

fn what_was_left_in_a_block_is_not_seen(f: &Fixture) {
    let small = Kernels::new(&f.open(|_| {}));
    for round in 0..3u32 {
        let left = f.context.buffer_from_vec(vec![u32::MAX; 1000]).unwrap();
        small.add(&left, round).unwrap();
        match round {
            // Recorded and not submitted, on its way, or done.
            0 => drop(left),
            1 => left.evict(&small.device).unwrap(),
            _ => {
                small.device.finish().unwrap();
                drop(left);
            }
        }
        // Never written: zero, on the device and on the host.
        let fresh: Buffer<u32> = f.context.buffer(1000).unwrap();
        let seen = f.context.buffer_from_vec(vec![1u32; 1000]).unwrap();
        small.copy(&fresh, &seen).unwrap();
        assert_eq!(seen.read().unwrap(), vec![0; 1000], "round {round}");
        drop(seen);
        small.add(&fresh.slice(10..20).unwrap(), 5).unwrap();
        let mut expected = vec![0; 1000];
        expected[10..20].fill(5);
        assert_eq!(fresh.read().unwrap(), expected);
        assert_eq!(small.sum(&fresh), 30);
        // What was said to be overwritten, and was not.
        let promised = f.context.buffer_from_vec(vec![9u32; 1000]).unwrap();
        let program = Program::new(
            "lazy.wgsl",
            "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
             @compute @workgroup_size(1) fn main() { data[999] = 3u; }",
        )
        .unwrap();
        let kernel = small
            .device
            .kernel(&program, "main", &Constants::new())
            .unwrap();
        drop(fresh);
        kernel
            .launch()
            .overwrite("data", &promised)
            .workgroups(1)
            .submit()
            .unwrap();
        let found = promised.read().unwrap();
        assert_eq!(found[999], 3);
        assert!(found[..999].iter().all(|&value| value == 0), "{found:?}");
    }
    assert_eq!(small.device.buffer_memory().blocks, 1);
}

fn what_is_written_leaves_the_blocks_of_the_others(f: &Fixture) {
    let small = Kernels::new(&f.open(|_| {}));
    let mut models: Vec<Vec<u32>> = (1..6u32).map(|i| vec![i; 500]).collect();
    let buffers: Vec<Buffer<u32>> = (models.iter())
        .map(|model| f.context.buffer_from(model).unwrap())
        .collect();
    // All in one block: nobody says yet who is written.
    for buffer in &buffers {
        buffer.migrate(&small.device).unwrap();
    }
    assert_eq!(small.device.buffer_memory().blocks, 1);
    small.copy(&buffers[0], &buffers[1]).unwrap();
    models[1] = models[0].clone();
    assert_eq!(small.device.buffer_memory().blocks, 2);
    let relocations = || -> u64 {
        let each = buffers.iter().map(|b| b.statistics().relocations);
        each.sum()
    };
    assert_eq!(relocations(), 1);
    let mut after = 0;
    for round in 0..4u32 {
        for from in 0..5usize {
            for to in 0..5usize {
                if from == to {
                    continue;
                }
                small.add(&buffers[from], round).unwrap();
                added(&mut models[from], round);
                small.copy(&buffers[from], &buffers[to]).unwrap();
                models[to] = models[from].clone();
            }
        }
        match round {
            0..3 => after = relocations(),
            // Everybody has his place.
            _ => assert_eq!(relocations(), after),
        }
    }
    assert!((1..=10).contains(&after), "{after}");
    for (buffer, model) in buffers.iter().zip(&models) {
        assert_eq!(buffer.read().unwrap(), *model);
    }
    // Those that lie in one block and are only read stay.
    let fresh: Vec<Buffer<u32>> = (0..2u32)
        .map(|i| f.context.buffer_from_vec(vec![i; 100]).unwrap())
        .collect();
    for buffer in &fresh {
        buffer.migrate(&small.device).unwrap();
        assert_eq!(small.sum(buffer), head(&buffer.read().unwrap()));
        assert_eq!(buffer.statistics().relocations, 0);
    }
    // Nothing was moved between places for it.
    assert_eq!(buffers[4].statistics().moves.moved, 2 * 2000);
}

fn blocks_count_against_the_cap(f: &Fixture) {
    const CAP: u64 = 4 << 20;
    let small = Kernels::new(&f.open(|options| options.buffer_bytes = Some(CAP)));
    let mut random = Random(7);
    let mut models: Vec<Vec<u32>> = (0..40u32)
        .map(|i| {
            let len = match i % 8 {
                0 => 1 + random.below(400 << 10),
                _ => 1 + random.below(6 << 10),
            };
            vec![i; len as usize]
        })
        .collect();
    let buffers: Vec<Buffer<u32>> = (models.iter())
        .map(|model| f.context.buffer_from(model).unwrap())
        .collect();
    let mut blocks = 0;
    for step in 0..150u32 {
        let (a, b) = (random.below(40) as usize, random.below(40) as usize);
        let shorter = models[a].len().min(models[b].len());
        if step % 3 == 0 && a != b {
            let part = |at: usize| buffers[at].slice(..shorter as u64).unwrap();
            small.copy(&part(a), &part(b)).unwrap();
            let copied = models[a][..shorter].to_vec();
            models[b][..shorter].copy_from_slice(&copied);
        } else {
            small.add(&buffers[a], step).unwrap();
            added(&mut models[a], step);
        }
        let now = small.device.buffer_memory();
        assert!(now.reserved <= CAP, "{now:?}");
        assert!(now.used <= now.reserved && now.block_bytes <= now.reserved);
        blocks = blocks.max(now.blocks);
    }
    assert!(blocks > 1);
    for (buffer, model) in buffers.iter().zip(&models) {
        assert_eq!(buffer.read().unwrap(), *model);
    }
    // One that needs all there is gets it, blocks and all.
    let evicted = f.context.buffer_statistics().evictions;
    let all: Buffer<u32> = f.context.buffer(1 << 20).unwrap();
    small.add(&all, 1).unwrap();
    let now = small.device.buffer_memory();
    assert_eq!((now.blocks, now.reserved, now.buffers), (0, CAP, 1));
    assert!(f.context.buffer_statistics().evictions > evicted);
    for (buffer, model) in buffers.iter().zip(&models) {
        assert_eq!(buffer.read().unwrap(), *model);
    }
}

fn failures_stay_with_their_bytes(f: &Fixture) {
    let small = Kernels::new(&f.open(|_| {}));
    let program = Program::new(
        "fail.wgsl",
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(1) fn fail() { data[0] = 1u; assert(data[1] > 100u, \"too small\"); }",
    )
    .unwrap();
    let kernel = small
        .device
        .kernel(&program, "fail", &Constants::new())
        .unwrap();
    let new = |value: u32| f.context.buffer_from_vec(vec![value; 100]).unwrap();
    let (good, bad, other) = (new(1), new(2), new(3));
    for buffer in [&good, &bad, &other] {
        buffer.migrate(&small.device).unwrap();
    }
    let part = bad.slice(50..60).unwrap();
    kernel
        .launch()
        .buffer("data", &part)
        .workgroups(1)
        .submit()
        .unwrap();
    // It leaves the block, and the failure goes along.
    small.copy(&other, &bad.slice(..40).unwrap()).unwrap();
    assert_eq!(bad.statistics().relocations, 1);
    assert_eq!(bad.slice(..40).unwrap().read().unwrap(), vec![3; 40]);
    assert_eq!(bad.slice(60..).unwrap().read().unwrap(), vec![2; 40]);
    match part.read().unwrap_err() {
        BufferError::Execution(error) => assert!(error.to_string().contains("too small")),
        error => panic!("{error}"),
    }
    assert!(matches!(bad.read(), Err(BufferError::Execution(_))));
    // Those next to it know nothing of it, and neither does who comes where it was.
    assert_eq!(good.read().unwrap(), vec![1; 100]);
    assert_eq!(other.read().unwrap(), vec![3; 100]);
    drop((good, bad));
    let next = [new(4), new(5)];
    for (buffer, value) in next.iter().zip([4, 5]) {
        assert_eq!(small.sum(buffer), value * 16);
        assert_eq!(buffer.read().unwrap(), vec![value; 100]);
    }
}

fn buffers_come_and_go_between_launches(f: &Fixture) {
    for (seed, (one, other)) in pairs(f).into_iter().enumerate() {
        let mut random = Random(seed as u64 + 99);
        let mut live: Vec<(Buffer<u32>, Vec<u32>)> = Vec::new();
        for step in 0..250u32 {
            let kernels = [&one, &other][random.below(2) as usize];
            if live.len() < 3 || (live.len() < 12 && random.below(3) == 0) {
                let len = 1 + random.below(3000) as usize;
                let (buffer, model) = match random.below(2) {
                    0 => (f.context.buffer(len).unwrap(), vec![0; len]),
                    _ => (
                        f.context.buffer_from_vec(vec![step; len]).unwrap(),
                        vec![step; len],
                    ),
                };
                live.push((buffer, model));
            }
            let at = random.below(live.len() as u64) as usize;
            let (buffer, model) = &mut live[at];
            let start = random.below(model.len() as u64);
            let part = buffer.slice(start..).unwrap();
            let here = start as usize..;
            match random.below(9) {
                0..=2 => {
                    kernels.add(&part, step).unwrap();
                    added(&mut model[here], step);
                }
                3 => {
                    part.fill(step, ..).unwrap();
                    model[here].fill(step);
                }
                4 => buffer.evict(&kernels.device).unwrap(),
                5 => assert_eq!(part.read().unwrap(), model[here], "step {step}"),
                6 => {
                    assert_eq!(kernels.sum(buffer), head(model), "step {step}");
                }
                7 => {
                    live.swap_remove(at);
                }
                _ => {
                    let from = random.below(live.len() as u64) as usize;
                    if from != at {
                        let len = live[from].1.len().min(live[at].1.len());
                        let source = live[from].0.slice(..len as u64).unwrap();
                        let target = live[at].0.slice(..len as u64).unwrap();
                        kernels.copy(&source, &target).unwrap();
                        let copied = live[from].1[..len].to_vec();
                        live[at].1[..len].copy_from_slice(&copied);
                    }
                }
            }
        }
        for (buffer, model) in &live {
            assert_eq!(buffer.read().unwrap(), *model);
        }
    }
}

fn bindings_of_every_kind_in_one_block(f: &Fixture) {
    let device = f.open(|_| {});
    let program = Program::new(
        "kinds.wgsl",
        "struct Factors { a: u32, b: u32, c: u32, d: u32 }
         @group(0) @binding(0) var<uniform> factors: Factors;
         @group(0) @binding(1) var<storage, read> left: array<u32>;
         @group(0) @binding(2) var<storage, read> right: array<u32>;
         @group(0) @binding(3) var<storage, read_write> sums: array<u32>;
         @group(0) @binding(4) var<storage, read_write> products: array<u32>;
         @compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) {
            let at = min(id.x, arrayLength(&left) - 1u);
            sums[id.x] += factors.a * left[at] + factors.d * right[at];
            products[id.x] = left[at] * right[at] + arrayLength(&products);
         }",
    )
    .unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let new = |values: Vec<u32>| f.context.buffer_from_vec(values).unwrap();
    let factors = new(vec![3, 0, 0, 5]);
    let grid = new(vec![8, 1, 1]);
    let (left, right) = (new((0..8).collect()), new((10..18).collect()));
    let (sums, products) = (new(vec![1; 8]), new(vec![0; 8]));
    // Where they come to lie in one block at first.
    for buffer in [&factors, &grid, &left, &right, &sums, &products] {
        buffer.migrate(&device).unwrap();
    }
    assert_eq!(device.buffer_memory().blocks, 1);
    for round in 1..4u32 {
        let launch = kernel
            .launch()
            .buffer("factors", &factors)
            .buffer("left", &left)
            .buffer("right", &right)
            .buffer("sums", &sums)
            .buffer("products", &products);
        launch.indirect(&grid, 0).submit().unwrap();
        let expected = (0..8).map(|i| 1 + round * (3 * i + 5 * (10 + i)));
        assert_eq!(sums.read().unwrap(), expected.collect::<Vec<u32>>());
        let expected = (0..8).map(|i| i * (10 + i) + 8);
        assert_eq!(products.read().unwrap(), expected.collect::<Vec<u32>>());
    }
    let all = [&factors, &grid, &left, &right, &sums, &products];
    let moved: u64 = all.iter().map(|b| b.statistics().relocations).sum();
    assert!((2..=5).contains(&moved), "{moved}");
    // Parts of one buffer beside another of the block, all in one launch.
    let err: Result<_, LaunchError> = kernel
        .launch()
        .buffer("factors", &factors)
        .buffer("left", &left)
        .buffer("right", left.slice(4..).unwrap())
        .buffer("sums", sums.slice(4..).unwrap())
        .buffer("products", sums.slice(..4).unwrap())
        .workgroups(4)
        .submit();
    err.unwrap();
    let expected: Vec<u32> = (4..8)
        .map(|i| 1 + 3 * (3 * i + 5 * (10 + i)) + 3 * (i - 4) + 5 * i)
        .collect();
    assert_eq!(sums.slice(4..).unwrap().read().unwrap(), expected);
}
