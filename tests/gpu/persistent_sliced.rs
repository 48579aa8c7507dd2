//! Servers on devices whose running kernels do not see what the host writes: calls travel in slices.

use std::time::Duration;

use bytemuck::{Pod, Zeroable};

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::{MINUTE, MIX, builder, mix};
use tombolo::{
    Constants, Context, Device, DeviceOptions, PersistentKernel, Program, Ptr,
    device::{Capability, ExecutionError, Tier},
    heap::{HeapPlacement, HeapSize},
    server::{CallError, DeviceFunction, ServerError},
};

cases![
    slices_serve_one_thread,
    slices_serve_many_threads_between_launches,
    slices_serve_more_callers_than_ports,
    values_of_all_kinds_travel_in_slices,
    a_call_that_fails_in_a_slice_fails_alone,
    batches_travel_as_slices_of_their_own,
    calls_that_fail_in_a_batch_fail_alone,
    calls_of_a_batch_that_take_too_long_are_ended_alone,
    batches_of_several_functions_use_the_same_memory,
    whoever_has_the_heap_and_calls_in_slices_is_told,
    slices_end_with_their_server,
    batches_end_with_their_server,
    work_groups_serve_calls_of_slices,
    copies_of_the_heap_are_followed_in_slices,
];

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Node {
    value: u32,
    pad: u32,
    next: Ptr<Node>,
}

pub fn device(f: &Fixture) -> Device {
    f.open(|options| options.live_memory = false)
}

fn mixer(device: &Device, ports: usize) -> (PersistentKernel, DeviceFunction<(u32, u32), u32>) {
    let server = builder(device, MIX).handler("mix").ports(ports).start();
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(server.tier(), Tier::Sliced);
    let function = server.function("mix").unwrap();
    (server, function)
}

fn slices_serve_one_thread(f: &Fixture) {
    let (server, function) = mixer(&device(f), 64);
    for i in 0..500u32 {
        let result = function.call_timeout(&(i, !i), MINUTE).unwrap();
        assert_eq!(result, mix(i, !i), "call {i}");
    }
    assert_eq!(server.leases(), 500);
}

/// `calls` of each of so many threads, every result checked.
fn call_from_threads(function: &DeviceFunction<(u32, u32), u32>, threads: u32, calls: u32) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for i in 0..calls {
                    let x = thread * calls + i;
                    let result = function.call_timeout(&(x, i), MINUTE).unwrap();
                    assert_eq!(result, mix(x, i), "call {i} of thread {thread}");
                }
            });
        }
    });
}

fn slices_serve_many_threads_between_launches(f: &Fixture) {
    const LAUNCHES: u32 = 200;
    let device = device(f);
    let (server, function) = mixer(&device, 64);
    let program = Program::new(
        "ordinary.wgsl",
        "@group(0) @binding(0) var<storage, read_write> sums: array<u32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            sums[id.x] += id.x + 1u;
        }",
    )
    .unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let sums = device.buffer(&vec![0u32; 256]).unwrap();
    let mut add = kernel.launch().buffer("sums", &sums).invocations(256);
    std::thread::scope(|scope| {
        scope.spawn(|| call_from_threads(&function, 16, 250));
        for launch in 1..=LAUNCHES {
            add.submit().unwrap().wait_timeout(MINUTE).unwrap();
            if launch % 50 == 0 {
                let expected: Vec<u32> = (1..=256).map(|i| i * launch).collect();
                assert_eq!(sums.read().unwrap(), expected, "launch {launch}");
            }
        }
    });
    // They did not travel one by one.
    assert!(server.leases() < 16 * 250);
}

fn slices_serve_more_callers_than_ports(f: &Fixture) {
    let (_server, function) = mixer(&device(f), 3);
    call_from_threads(&function, 16, 50);
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
struct Body {
    place: [f32; 3],
    mass: f32,
    charges: [i32; 4],
}

fn values_of_all_kinds_travel_in_slices(f: &Fixture) {
    let device = device(f);
    let source = "
        struct Body { place: vec3<f32>, mass: f32, charges: array<i32, 4> }
        var<storage, read_write> visits: atomic<u32>;
        fn moved(body: Body, by: vec3<f32>, scale: f32) -> Body {
            var other = body;
            other.place = body.place * scale + by;
            for (var i = 0; i < 4; i++) { other.charges[i] = body.charges[3 - i] - i; }
            return other;
        }
        fn visit(count: u32) { atomicAdd(&visits, count); }
        fn visited() -> u32 { return atomicLoad(&visits); }
        fn turn(m: mat2x2<f32>, v: vec2<f32>) -> vec2<f32> { return m * v; }";
    let server = builder(&device, source)
        .handler("moved")
        .handler("visit")
        .handler("visited")
        .handler("turn")
        .start();
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let moved = server
        .function::<(Body, [f32; 3], f32), Body>("moved")
        .unwrap();
    let visit = server.function::<(u32,), ()>("visit").unwrap();
    let visited = server.function::<(), u32>("visited").unwrap();
    let turn = server
        .function::<([f32; 4], [f32; 2]), [f32; 2]>("turn")
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8i32 {
            let (moved, visit, turn) = (&moved, &visit, &turn);
            scope.spawn(move || {
                for i in 0..40i32 {
                    let (a, b) = (thread as f32, i as f32);
                    let body = Body {
                        place: [a, b, 3.0],
                        mass: a * 100.0 + b,
                        charges: [i, thread, -i, 7],
                    };
                    let result = moved
                        .call_timeout(&(body, [1.0, 2.0, b], 2.0), MINUTE)
                        .unwrap();
                    let expected = Body {
                        place: [2.0 * a + 1.0, 2.0 * b + 2.0, 6.0 + b],
                        mass: body.mass,
                        charges: [7, -i - 1, thread - 2, i - 3],
                    };
                    assert_eq!(result, expected);
                    visit.call_timeout(&(i as u32 + 1,), MINUTE).unwrap();
                    let turned = turn.call_timeout(&([a, 1.0, 2.0, b], [3.0, 4.0]), MINUTE);
                    assert_eq!(turned.unwrap(), [3.0 * a + 8.0, 3.0 + 4.0 * b]);
                }
            });
        }
    });
    // 1 to 40, of 8 threads.
    assert_eq!(visited.call_timeout(&(), MINUTE).unwrap(), 8 * 820);
    // Without arguments, or without a result, in batches.
    for result in visit.call_many(&[(2,); 100]) {
        result.unwrap();
    }
    for result in visited.call_many(&[(); 100]) {
        assert_eq!(result.unwrap(), 8 * 820 + 200);
    }
    // What does not fit is told before anything is called.
    let error = server.function::<(u32,), u32>("turn").unwrap_err();
    assert!(matches!(error, ServerError::Signature { .. }), "{error}");
    let error = server.function::<(), ()>("turned").unwrap_err();
    assert!(matches!(error, ServerError::NoHandler { .. }), "{error}");
}

fn a_call_that_fails_in_a_slice_fails_alone(f: &Fixture) {
    let device = device(f);
    let source =
        "fn half(x: u32) -> u32 { assert(x % 2u == 0u, \"half a number\"); return x / 2u; }";
    let server = builder(&device, source).handler("half").start();
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let half = server.function::<(u32,), u32>("half").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let half = &half;
            scope.spawn(move || {
                for i in 0..20u32 {
                    let x = thread * 20 + i;
                    match (x % 2, half.call_timeout(&(x,), MINUTE)) {
                        (0, result) => assert_eq!(result.unwrap(), x / 2),
                        (_, Err(CallError::Failed { handler, error })) => {
                            assert_eq!(handler, "half");
                            assert!(
                                matches!(*error, ExecutionError::Assertion { .. }),
                                "{error}"
                            );
                            assert!(error.to_string().contains("half a number"), "{error}");
                        }
                        (_, other) => panic!("{x}: {other:?}"),
                    }
                }
            });
        }
    });
    assert!(server.failure().is_none());
}

fn batches_travel_as_slices_of_their_own(f: &Fixture) {
    let device = device(f);
    let (server, function) = mixer(&device, 64);
    // More than fit in a slice, and not a multiple of it.
    let calls: Vec<(u32, u32)> = (0..1001).map(|i: u32| (i, i.rotate_left(9))).collect();
    let expected: Vec<u32> = calls.iter().map(|&(x, y)| mix(x, y)).collect();
    let batch = || -> Vec<u32> {
        let results = function.call_many(&calls).into_iter();
        results.map(Result::unwrap).collect()
    };
    assert_eq!(batch(), expected);
    assert_eq!(server.leases(), 1001u32.div_ceil(32));
    assert_eq!(function.call_all(&calls).unwrap(), expected);
    assert!(function.call_many(&[]).is_empty());
    // Beside each other, and beside calls that come one by one: none keeps the others waiting.
    std::thread::scope(|scope| {
        let batches = [0; 4].map(|_| scope.spawn(batch));
        call_from_threads(&function, 4, 50);
        for batch in batches {
            assert_eq!(batch.join().unwrap(), expected);
        }
    });
}

fn calls_that_fail_in_a_batch_fail_alone(f: &Fixture) {
    let device = device(f);
    let source = "
        fn half(x: u32) -> u32 { assert(x % 2u == 0u, \"half a number\"); return x / 2u; }
        fn twice(x: u32, p: usm_ptr) -> vec2<u32> { return vec2(2u * x, p.x); }";
    let server = builder(&device, source).handler("half").handler("twice");
    let server = server.ports(32).start();
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let half = server.function::<(u32,), u32>("half").unwrap();
    let calls: Vec<(u32,)> = (0..100).map(|x| (x,)).collect();
    for (result, x) in half.call_many(&calls).into_iter().zip(0u32..) {
        match (x % 2, result) {
            (0, result) => assert_eq!(result.unwrap(), x / 2),
            (_, Err(CallError::Failed { error, .. })) => {
                assert!(error.to_string().contains("half a number"), "{error}");
            }
            (_, other) => panic!("{x}: {other:?}"),
        }
    }
    // All or none: the first failure is told, and all calls are made.
    let error = half.call_all(&calls).unwrap_err();
    assert!(matches!(error, CallError::Failed { .. }), "{error}");
    let even: Vec<(u32,)> = (0..100).map(|x| (2 * x,)).collect();
    let halves: Vec<u32> = (0..100).collect();
    assert_eq!(half.call_all(&even).unwrap(), halves);
    assert!(server.failure().is_none());
    // A function with more words beside it sets how far calls lie apart.
    let twice = server
        .function::<(u32, Ptr<u32>), [u32; 2]>("twice")
        .unwrap();
    let calls: Vec<(u32, Ptr<u32>)> = (0..40)
        .map(|x| (x, Ptr::from_address(u64::from(x) * 8)))
        .collect();
    for (result, x) in twice.call_many(&calls).into_iter().zip(0u32..) {
        assert_eq!(result.unwrap(), [2 * x, 8 * x]);
    }
}

fn calls_of_a_batch_that_take_too_long_are_ended_alone(f: &Fixture) {
    let device = device(f);
    let source = "fn sum(n: u32) -> u32 {
            var sum = 0u;
            for (var i = 1u; i <= n; i++) { sum += i; }
            return sum;
        }";
    let server = builder(&device, source).handler("sum").turns(1000);
    let server = server.ports(256).start();
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let sum = server.function::<(u32,), u32>("sum").unwrap();
    let calls: Vec<(u32,)> = (0..300)
        .map(|x| (if x % 7 == 3 { 5000 } else { x },))
        .collect();
    for (result, &(n,)) in sum.call_many(&calls).into_iter().zip(&calls) {
        match (n, result) {
            (5000, Err(CallError::TooManyTurns { limit, .. })) => assert_eq!(limit, 1000),
            (n, result) => assert_eq!(result.unwrap(), n * (n + 1) / 2),
        }
    }
    assert!(server.failure().is_none());
}

fn batches_of_several_functions_use_the_same_memory(f: &Fixture) {
    let device = device(f);
    let source = "
        var<storage, read_write> visits: atomic<u32>;
        fn pair(x: u32) -> vec2<u32> { return vec2(x, ~x); }
        fn same(x: u32) -> u32 { return x; }
        fn seven() -> array<u32, 7> { return array<u32, 7>(7, 6, 5, 4, 3, 2, 1); }
        fn visit(count: u32) { atomicAdd(&visits, count); }
        fn visited() -> u32 { return atomicLoad(&visits); }";
    let server = builder(&device, source)
        .handler("pair")
        .handler("same")
        .handler("seven")
        .handler("visit")
        .handler("visited")
        .ports(100)
        .start();
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let pair = server.function::<(u32,), [u32; 2]>("pair").unwrap();
    let same = server.function::<(u32,), u32>("same").unwrap();
    let seven = server.function::<(), [u32; 7]>("seven").unwrap();
    let visit = server.function::<(u32,), ()>("visit").unwrap();
    let visited = server.function::<(), u32>("visited").unwrap();
    // What looks like the end of a call, in this lease or in one of the next.
    let value = |i: u32| (server.leases() + i % 4) << 4 | 1;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for count in 0..40 {
                let calls: Vec<(u32,)> = (0..count * 3).map(|i| (value(i),)).collect();
                for (result, (x,)) in pair.call_many(&calls).into_iter().zip(calls) {
                    assert_eq!(result.unwrap(), [x, !x]);
                }
            }
        });
        scope.spawn(|| {
            for count in 0..40 {
                let calls: Vec<(u32,)> = (0..130 - count * 3).map(|i| (value(i),)).collect();
                for (result, (x,)) in same.call_many(&calls).into_iter().zip(calls) {
                    assert_eq!(result.unwrap(), x);
                }
            }
        });
        scope.spawn(|| {
            for count in 0..40 {
                for result in seven.call_many(&vec![(); count]) {
                    assert_eq!(result.unwrap(), [7, 6, 5, 4, 3, 2, 1]);
                }
                for result in visit.call_many(&vec![(3,); count]) {
                    result.unwrap();
                }
                assert_eq!(same.call_timeout(&(9,), MINUTE).unwrap(), 9);
            }
        });
    });
    // None was lost, and none served twice.
    assert_eq!(visited.call_timeout(&(), MINUTE).unwrap(), 3 * 780);
}

fn batches_end_with_their_server(f: &Fixture) {
    let (server, function) = mixer(&device(f), 64);
    let calls: Vec<(u32, u32)> = (0..500).map(|i| (i, !i)).collect();
    let check = |results: Vec<Result<u32, CallError>>| {
        assert_eq!(results.len(), calls.len());
        let mut stopped = false;
        for (result, &(x, y)) in results.into_iter().zip(&calls) {
            match result {
                Ok(result) => assert_eq!(result, mix(x, y)),
                Err(CallError::Stopped { .. }) => stopped = true,
                Err(error) => panic!("{error}"),
            }
        }
        stopped
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| while !check(function.call_many(&calls)) {});
        }
        while server.leases() < 40 {
            std::thread::sleep(Duration::from_micros(100));
        }
        server.stop();
    });
    assert!(check(function.call_many(&calls)));
    server.restart().unwrap();
    assert!(!check(function.call_many(&calls)));
}

fn whoever_has_the_heap_and_calls_in_slices_is_told(f: &Fixture) {
    let device = device(f);
    let source = "fn add(p: usm_ptr, by: u32) -> u32 {
            let values = usm_Words(p);
            return atomicAdd(&values[0], by) + by;
        }
        alias Words = array<atomic<u32>>;";
    let server = builder(&device, source).handler("add").start();
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let add = server.function::<(Ptr<u32>, u32), u32>("add").unwrap();
    let heap = device.heap().unwrap();
    let value = heap.alloc(5u32).unwrap();
    assert_eq!(add.call_timeout(&(value, 2), MINUTE).unwrap(), 7);
    let before = server.leases();
    let access = heap.host().unwrap();
    let error = add.call_timeout(&(value, 0), MINUTE).unwrap_err();
    assert!(matches!(error, CallError::HostAccess { .. }), "{error}");
    for result in add.call_many(&[(value, 0); 3]) {
        let error = result.unwrap_err();
        assert!(matches!(error, CallError::HostAccess { .. }), "{error}");
    }
    assert!(server.leases() <= before + 1);
    drop(access);
    // Those that were told so may be served yet, beside this one.
    assert_eq!(add.call_timeout(&(value, 4), MINUTE).unwrap(), 11);
}

fn slices_end_with_their_server(f: &Fixture) {
    let (server, function) = mixer(&device(f), 64);
    assert_eq!(function.call_timeout(&(1, 2), MINUTE).unwrap(), mix(1, 2));
    // While others call: each call has its answer, or is told that there is none.
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let function = &function;
            scope.spawn(move || {
                for i in 0.. {
                    match function.call_timeout(&(thread, i), MINUTE) {
                        Ok(result) => assert_eq!(result, mix(thread, i)),
                        Err(CallError::Stopped { .. }) => return,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        while server.leases() < 20 {
            std::thread::yield_now();
        }
        server.stop();
    });
    server.stop();
    let error = function.call_timeout(&(1, 2), MINUTE).unwrap_err();
    assert!(matches!(error, CallError::Stopped { .. }), "{error}");
    server.restart().unwrap();
    server.restart().unwrap();
    call_from_threads(&function, 4, 25);
    drop(server);
    let error = function.call_timeout(&(1, 2), MINUTE).unwrap_err();
    assert!(matches!(error, CallError::Stopped { .. }), "{error}");
}

fn work_groups_serve_calls_of_slices(f: &Fixture) {
    let device = device(f);
    // The lanes add up what they count, by halves.
    let source = "
        var<workgroup> sums: array<u32, 64>;
        fn total(lane: u32, first: u32, step: u32) -> u32 {
            sums[lane] = first + lane * step;
            for (var half = 32u; half > 0u; half /= 2u) {
                workgroupBarrier();
                if lane < half { sums[lane] += sums[lane + half]; }
            }
            workgroupBarrier();
            return sums[0];
        }
        fn alone(x: u32) -> u32 { return x + 1u; }";
    let server = builder(&device, source)
        .group_handler("total")
        .handler("alone")
        .start();
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let total = server.function::<(u32, u32), u32>("total").unwrap();
    let alone = server.function::<(u32,), u32>("alone").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let (total, alone) = (&total, &alone);
            scope.spawn(move || {
                for i in 0..25 {
                    let result = total.call_timeout(&(thread, i), MINUTE).unwrap();
                    assert_eq!(result, 64 * thread + 2016 * i);
                    assert_eq!(alone.call_timeout(&(i,), MINUTE).unwrap(), i + 1);
                }
            });
        }
    });
    // In batches, too: a group for each call.
    let calls: Vec<(u32, u32)> = (0..100).map(|i| (i, 3 * i)).collect();
    for (result, i) in total.call_many(&calls).into_iter().zip(0u32..) {
        assert_eq!(result.unwrap(), 64 * i + 2016 * 3 * i);
    }
}

/// A device that keeps a copy of the heap has live memory all the same.
fn copies_of_the_heap_are_followed_in_slices(f: &Fixture) {
    let context = Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(16 << 20)).unwrap();
    let mut options = DeviceOptions::default();
    options.heap_placement = HeapPlacement::Device;
    let device = (context.device_named_with(f.device.name(), options)).unwrap();
    let source = "
        struct Node { value: u32, next: usm_ptr }
        fn push(last: usm_ptr, next: usm_ptr) -> u32 {
            let node = usm_Node(last);
            node.next = next;
            return node.value;
        }
        fn plain(x: u32) -> u32 { return x + 1u; }";
    let server = builder(&device, source).handler("push").start().unwrap();
    assert_eq!(server.tier(), Tier::Sliced);
    let push = (server.function::<(Ptr<Node>, Ptr<Node>), u32>("push")).unwrap();
    let heap = context.heap().unwrap();
    let node = |value| Node {
        value,
        pad: 0,
        next: Ptr::null(),
    };
    // What the host makes between two calls is seen by the next one, and what a call writes by the host behind it.
    let first = heap.alloc(node(0)).unwrap();
    let mut last = first;
    for value in 1..20 {
        let new = heap.alloc(node(value)).unwrap();
        let expected = value - 1;
        assert_eq!(push.call_timeout(&(last, new), MINUTE).unwrap(), expected);
        last = new;
    }
    let host = heap.host_timeout(MINUTE).unwrap();
    let (mut place, mut values) = (first, Vec::new());
    while !place.is_null() {
        let node = host.get(place).unwrap();
        values.push(node.value);
        place = node.next;
    }
    drop(host);
    assert!(values.into_iter().eq(0..20));
    // Other handlers stay live, unless the device shows running kernels nothing.
    let plain = builder(&device, source).handler("plain").start().unwrap();
    assert_eq!(
        plain.tier(),
        f.device
            .capabilities()
            .tier(Capability::PersistentKernels)
            .tier
    );
}
