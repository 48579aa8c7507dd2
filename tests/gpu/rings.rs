//! Rings between the host and kernels: while kernels run where the device has live memory, and between launches.

use std::time::Instant;

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::MINUTE;
use tombolo::{
    Constants, Device, Launch, PersistentKernel, Program,
    device::{Capability, Tier},
    ring::{RingItem, RingReceiver, RingSender},
};

cases![
    a_million_words_go_through_both_rings_in_order,
    items_of_every_size_go_through,
    a_kernel_takes_what_is_put_while_it_runs,
    who_waits_has_launches_begin,
    several_rings_do_not_mix,
    a_kernel_ends_while_the_host_pushes,
    a_whole_group_uses_rings_in_place,
    handlers_use_rings_between_calls,
    rings_and_a_work_queue_go_together,
];

/// The devices that a case runs on: that of the adapter, and one without live memory, on which rings travel between
/// launches.
pub fn devices(f: &Fixture) -> [Device; 2] {
    let device = f.device.clone();
    let calls = device.capabilities().tier(Capability::HostCalls).tier;
    let (_sender, end) = device.ring_from_host::<u32>(1).unwrap();
    assert_eq!(end.tier(), calls, "rings are live where calls are");
    let without = f.open(|options| options.live_memory = false);
    let (_sender, end) = without.ring_from_host::<u32>(1).unwrap();
    assert_eq!(end.tier(), Tier::Sliced);
    [device, without]
}

pub fn launch(device: &Device, program: &Program) -> Launch {
    let kernel = device.kernel(program, "main", &Constants::new()).unwrap();
    kernel.launch().workgroups(1)
}

pub fn run(launch: &mut Launch) {
    launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
}

/// A program with the rings `input`, from the host, and `output`, to the host.
pub fn between<T: RingItem>(text: &str) -> Program {
    let builder = Program::builder().source("between.wgsl", text);
    let builder = builder.ring_from_host::<T>("input");
    builder.ring_to_host::<T>("output").build().unwrap()
}

/// The host's ends of two such rings, with so many slots, and a launch that has the others.
pub fn rings<T: RingItem>(
    device: &Device,
    program: &Program,
    [into, out]: [usize; 2],
) -> (RingSender<T>, RingReceiver<T>, Launch) {
    let (sender, input) = device.ring_from_host(into).unwrap();
    let (output, receiver) = device.ring_to_host(out).unwrap();
    let launch = launch(device, program).ring("input", &input);
    (sender, receiver, launch.ring("output", &output))
}

/// Takes items, changes them, and puts them. Ends when nothing was to be done for a while, or has been done often:
/// loops are limited on some adapters.
pub fn relay<T: RingItem>(change: &str) -> Program {
    let text = format!(
        "@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) lane: u32) {{
            var idle = 0u;
            for (var turn = 0u; turn < 12000u && idle < 2000u; turn++) {{
                idle++;
                if lane == 0u && ring_output_room() > 0u {{
                    let taken = ring_input_take();
                    if taken.found {{
                        var item = taken.item;
                        {change}
                        idle = select(2000u, 0u, ring_output_put(item));
                    }}
                }}
            }}
        }}"
    );
    between::<T>(&text)
}

/// Sends items through a kernel that is launched until all have come back, from one thread into another.
fn send_through<T>(device: &Device, program: &Program, slots: usize, items: &[T]) -> Vec<T>
where
    T: RingItem + Send + Sync,
{
    let (mut sender, mut receiver, mut launch) = rings::<T>(device, program, [slots, slots]);
    let came = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Pieces of uneven lengths.
            let mut left = items;
            for len in (1..=slots * 2).cycle().step_by(3) {
                let (piece, rest) = left.split_at(len.min(left.len()));
                sender.push(piece, MINUTE).unwrap();
                left = rest;
                if left.is_empty() {
                    break;
                }
            }
        });
        let popping = scope.spawn(|| {
            let mut found = vec![T::zeroed(); items.len()];
            let popped = receiver.pop(&mut found, 2 * MINUTE);
            came.store(true, std::sync::atomic::Ordering::Release);
            popped.unwrap();
            // Nothing more comes.
            assert_eq!(receiver.ready().unwrap(), 0);
            found
        });
        while !came.load(std::sync::atomic::Ordering::Acquire) {
            run(&mut launch);
        }
        popping.join().unwrap()
    })
}

fn a_million_words_go_through_both_rings_in_order(f: &Fixture) {
    const WORDS: usize = 16;
    let program = relay::<[u32; WORDS]>(
        "for (var i = 0u; i < 16u; i += 5u) { item[i] = item[i] * 3u + 1u; }",
    );
    for (device, words) in devices(f).iter().zip([1 << 20, 1 << 16]) {
        let count = words / WORDS;
        let word = |at: usize| (at as u32).wrapping_mul(0x9E37_79B9);
        let item = |item: usize| std::array::from_fn(|i| word(item * WORDS + i));
        let items: Vec<[u32; WORDS]> = (0..count).map(item).collect();
        let came = send_through(device, &program, 256, &items);
        for (number, (sent, came)) in items.iter().zip(&came).enumerate() {
            let change = |i: usize| match i % 5 {
                0 => sent[i].wrapping_mul(3).wrapping_add(1),
                _ => sent[i],
            };
            assert_eq!(*came, std::array::from_fn(change), "item {number}");
        }
    }
}

fn one_size<const N: usize>(device: &Device)
where
    [f32; N]: RingItem + Send + Sync,
{
    const ITEMS: usize = 150;
    let change = match N {
        1 => "item[0] = -item[0];",
        2..=4 => "item = -item;",
        _ => "item[0] = -item[0]; item[4] = item[4] + 0.5;",
    };
    let program = relay::<[f32; N]>(change);
    let items: Vec<[f32; N]> = (0..ITEMS)
        .map(|item| std::array::from_fn(|i| (item * 64 + i) as f32 + 0.25))
        .collect();
    let came = send_through(device, &program, 8, &items);
    for (sent, came) in items.iter().zip(&came) {
        let expected = |i: usize| match (N, i) {
            (1..=4, _) | (_, 0) => -sent[i],
            (_, 4) => sent[i] + 0.5,
            _ => sent[i],
        };
        assert_eq!(*came, std::array::from_fn::<f32, N, _>(expected));
    }
}

fn items_of_every_size_go_through(f: &Fixture) {
    for device in devices(f) {
        one_size::<1>(&device);
        one_size::<2>(&device);
        one_size::<3>(&device);
        one_size::<4>(&device);
        one_size::<5>(&device);
        one_size::<7>(&device);
        one_size::<16>(&device);
        // Of a scalar, around the end of a ring with one slot.
        let items: Vec<i32> = (-40..40).collect();
        let came = send_through(&device, &relay::<i32>("item = item - 1;"), 1, &items);
        assert!(came.into_iter().eq(-41..39));
    }
}

/// The host answers what the running kernel has put, which no launch between could have brought.
fn a_kernel_takes_what_is_put_while_it_runs(f: &Fixture) {
    const ROUNDS: u32 = 20;
    let (mut sender, input) = f.device.ring_from_host::<u32>(4).unwrap();
    let (output, mut receiver) = f.device.ring_to_host::<u32>(4).unwrap();
    // Elsewhere a launch finds what was put before it: every other case runs on such a device, too.
    if input.tier() == Tier::Sliced {
        return;
    }
    let is_limited = f.device.capabilities().needs_loop_guard();
    let turns = if is_limited { 16_000 } else { 500_000_000 };
    let text = format!(
        "@group(0) @binding(0) var<storage, read_write> log: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) lane: u32) {{
            if lane != 0u {{ return; }}
            var asked = log[0];
            var is_asked = log[1] == 1u;
            for (var turn = 0u; turn < {turns}u && asked < {ROUNDS}u; turn++) {{
                if !is_asked {{ is_asked = ring_output_put(asked); }}
                let answer = ring_input_take();
                if answer.found {{
                    log[asked + 2u] = answer.item;
                    asked++;
                    is_asked = false;
                }}
            }}
            log[0] = asked;
            log[1] = u32(is_asked);
        }}"
    );
    let program = between::<u32>(&text);
    let log = f.device.buffer(&[0u32; 2 + ROUNDS as usize]).unwrap();
    let mut launch = launch(&f.device, &program)
        .buffer("log", &log)
        .ring("input", &input)
        .ring("output", &output);
    let mut most = 0;
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            for round in 0..ROUNDS {
                let mut asked = [u32::MAX];
                receiver.pop(&mut asked, 2 * MINUTE).unwrap();
                assert_eq!(asked, [round]);
                sender.push(&[round * round + 7], MINUTE).unwrap();
            }
        });
        let mut known = 0;
        let begun = Instant::now();
        while known < ROUNDS {
            assert!(begun.elapsed() < 2 * MINUTE, "{known} answers");
            run(&mut launch);
            let now = log.read_range(0..1).unwrap()[0];
            most = most.max(now - known);
            known = now;
        }
        answering.join().unwrap();
    });
    let expected: Vec<u32> = (0..ROUNDS).map(|round| round * round + 7).collect();
    assert_eq!(log.read().unwrap()[2..], expected);
    // Between launches there is one answer for each. Where loops are limited the host may be too late each time.
    assert!(
        is_limited || most >= 2,
        "at most {most} answers in a launch"
    );
}

/// Nobody else asks for the launches that are recorded.
fn who_waits_has_launches_begin(f: &Fixture) {
    let program = relay::<u32>("item = item + 1u;");
    for device in devices(f) {
        let (mut sender, mut receiver, mut launch) = rings::<u32>(&device, &program, [2, 2]);
        sender.push(&[1, 2], MINUTE).unwrap();
        launch.submit().unwrap();
        sender.push(&[3, 4], MINUTE).unwrap();
        let mut items = [0; 4];
        receiver.pop(&mut items[..2], MINUTE).unwrap();
        launch.submit().unwrap();
        receiver.pop(&mut items[2..], MINUTE).unwrap();
        assert_eq!(items, [2, 3, 4, 5]);
    }
}

fn several_rings_do_not_mix(f: &Fixture) {
    let text = "
        @compute @workgroup_size(1) fn main() {
            for (var turn = 0u; turn < 200u; turn++) {
                let left = ring_left_take();
                let right = ring_right_take();
                if left.found { let fits = ring_sum_put(vec2(left.item, 1u)); }
                if right.found { let fits = ring_sum_put(vec2(u32(right.item), 2u)); }
                if left.found && right.found { let fits = ring_product_put(f32(left.item) * right.item); }
            }
        }";
    let program = Program::builder()
        .source("mix.wgsl", text)
        .ring_from_host::<u32>("left")
        .ring_from_host::<f32>("right")
        .ring_to_host::<[u32; 2]>("sum")
        .ring_to_host::<f32>("product")
        .build()
        .unwrap();
    for device in devices(f) {
        let (mut left, left_end) = device.ring_from_host::<u32>(64).unwrap();
        let (mut right, right_end) = device.ring_from_host::<f32>(64).unwrap();
        let (sum_end, mut sum) = device.ring_to_host::<[u32; 2]>(256).unwrap();
        let (product_end, mut product) = device.ring_to_host::<f32>(64).unwrap();
        let mut launch = launch(&device, &program)
            .ring("left", &left_end)
            .ring("right", &right_end)
            .ring("sum", &sum_end)
            .ring("product", &product_end);
        let lefts: Vec<u32> = (0..40).map(|i| i * 1000).collect();
        let rights: Vec<f32> = (0..30u8).map(|i| f32::from(i) + 5.0).collect();
        left.push(&lefts, MINUTE).unwrap();
        right.push(&rights, MINUTE).unwrap();
        run(&mut launch);
        let mut products = [f32::NAN; 30];
        product.pop(&mut products, MINUTE).unwrap();
        for (i, found) in products.iter().enumerate() {
            assert_eq!(*found, lefts[i] as f32 * rights[i], "product {i}");
        }
        let mut sums = [[u32::MAX; 2]; 70];
        sum.pop(&mut sums, MINUTE).unwrap();
        let of = |side| {
            sums.iter()
                .filter(move |one| one[1] == side)
                .map(|one| one[0])
        };
        assert!(of(1).eq(lefts));
        assert!(of(2).eq(5..35));
        assert_eq!((sum.ready().unwrap(), product.ready().unwrap()), (0, 0));
    }
}

/// Launches that take a few items each, beside a thread that pushes: nothing is lost where one ends.
fn a_kernel_ends_while_the_host_pushes(f: &Fixture) {
    const ITEMS: u32 = 2000;
    let text = "
        @group(0) @binding(0) var<storage, read_write> sums: array<u32>;
        @compute @workgroup_size(1) fn main() {
            for (var turn = 0u; turn < 37u; turn++) {
                let taken = ring_input_take();
                if taken.found {
                    sums[0] = sums[0] * 31u + taken.item;
                    sums[1] += 1u;
                }
            }
        }";
    let program = Program::builder()
        .source("few.wgsl", text)
        .ring_from_host::<u32>("input")
        .build()
        .unwrap();
    for device in devices(f) {
        let (mut sender, input) = device.ring_from_host::<u32>(16).unwrap();
        let sums = device.buffer(&[0u32, 0]).unwrap();
        let mut launch = launch(&device, &program)
            .buffer("sums", &sums)
            .ring("input", &input);
        let items: Vec<u32> = (0..ITEMS).map(|i| i ^ 0x55).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.push(&items, 2 * MINUTE).unwrap());
            let begun = Instant::now();
            while sums.read_range(1..2).unwrap() != [ITEMS] {
                assert!(begun.elapsed() < 2 * MINUTE, "{:?}", sums.read());
                run(&mut launch);
            }
        });
        let expected = items
            .iter()
            .fold(0u32, |sum, item| sum.wrapping_mul(31).wrapping_add(*item));
        assert_eq!(sums.read().unwrap(), [expected, ITEMS]);
    }
}

/// One invocation looks and commits, and all read and write.
fn a_whole_group_uses_rings_in_place(f: &Fixture) {
    const LEN: usize = 32;
    let text = "
        var<workgroup> count: u32;
        @compute @workgroup_size(32) fn main(@builtin(local_invocation_index) lane: u32) {
            for (var round = 0u; round < 4u; round++) {
                if lane == 0u { count = min(32u, min(ring_input_ready(), ring_output_room())); }
                let found = workgroupUniformLoad(&count);
                if lane < found {
                    let mirrored = ring_input_at(found - 1u - lane);
                    ring_output_set(lane, mirrored * 2.0);
                }
                storageBarrier();
                workgroupBarrier();
                if lane == 0u {
                    ring_input_release(found);
                    ring_output_commit(found);
                }
                storageBarrier();
                workgroupBarrier();
            }
        }";
    let program = between::<f32>(text);
    for device in devices(f) {
        let (mut sender, mut receiver, mut launch) =
            rings::<f32>(&device, &program, [LEN * 2, LEN * 2]);
        for round in 0..5u16 {
            let sent: Vec<f32> = (0..50u16).map(|i| f32::from(round * 100 + i)).collect();
            sender.push(&sent, MINUTE).unwrap();
            run(&mut launch);
            let mut came = [f32::NAN; 50];
            receiver.pop(&mut came, MINUTE).unwrap();
            let pieces = sent.chunks(LEN).flat_map(|piece| piece.iter().rev());
            let expected: Vec<f32> = pieces.map(|value| value * 2.0).collect();
            assert_eq!(came[..], expected, "round {round}");
        }
    }
}

fn handlers_use_rings_between_calls(f: &Fixture) {
    let text = "
        fn add(count: u32, by: u32) -> u32 {
            let done = min(count, min(ring_input_ready(), ring_output_room()));
            for (var i = 0u; i < done; i++) { ring_output_set(i, ring_input_at(i) + by); }
            ring_input_release(done);
            ring_output_commit(done);
            return done;
        }
        fn idle() -> u32 { return 4u; }";
    let program = between::<u32>(text);
    for device in devices(f) {
        let (mut sender, input) = device.ring_from_host::<u32>(16).unwrap();
        let (output, mut receiver) = device.ring_to_host::<u32>(16).unwrap();
        let builder = PersistentKernel::builder(&device, &program);
        let builder = builder.handler("add").handler("idle").lanes(1);
        let builder = builder.ring("input", &input).ring("output", &output);
        let server = builder.start().unwrap();
        assert_eq!(server.tier(), input.tier());
        let add = server.function::<(u32, u32), u32>("add").unwrap();
        let idle = server.function::<(), u32>("idle").unwrap();
        for round in 0..60u32 {
            let len = 1 + round % 16;
            let sent: Vec<u32> = (0..len).map(|i| round * 1000 + i).collect();
            sender.push(&sent, MINUTE).unwrap();
            assert_eq!(idle.call_timeout(&(), MINUTE).unwrap(), 4);
            assert_eq!(add.call_timeout(&(16, round), MINUTE).unwrap(), len);
            let mut came = [u32::MAX; 16];
            assert_eq!(receiver.try_pop(&mut came).unwrap(), len as usize);
            let expected = sent.iter().map(|value| value + round);
            assert!(
                came[..len as usize].iter().copied().eq(expected),
                "round {round}"
            );
            if round % 20 == 0 {
                // The lease ends; the ring stays as it is.
                device.finish().unwrap();
            }
        }
        assert_eq!(add.call_timeout(&(16, 0), MINUTE).unwrap(), 0);
        drop(server);
    }
}

/// Texts behind a program that have variables of their own.
fn rings_and_a_work_queue_go_together(f: &Fixture) {
    let text = "
        @group(0) @binding(0) var<storage, read_write> total: u32;
        @compute @workgroup_size(1) fn main() {
            for (var turn = 0u; turn < 50u; turn++) {
                let taken = ring_input_take();
                if taken.found { let fits = work_put(vec4(taken.item, 0u, 0u, 0u)); }
                let work = work_take();
                if work.found {
                    total += work.item.x;
                    work_done();
                }
            }
        }";
    let program = Program::builder()
        .source("both.wgsl", text)
        .ring_from_host::<u32>("input")
        .work_queue()
        .build()
        .unwrap();
    for device in devices(f) {
        let queue = tombolo::work::WorkQueue::new(&device, 16).unwrap();
        let (mut sender, input) = device.ring_from_host::<u32>(16).unwrap();
        let total = device.buffer(&[0u32]).unwrap();
        let mut launch = launch(&device, &program)
            .buffer("total", &total)
            .work_queue(&queue)
            .ring("input", &input);
        sender.push(&[3, 4, 5], MINUTE).unwrap();
        run(&mut launch);
        assert_eq!(total.read().unwrap(), [12]);
    }
}
