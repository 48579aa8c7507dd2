//! What sixty-four threads that call a server at once rely on: each has its own order, what has to be done alone is, and
//! no call is lost, served twice, or given another's arguments or answer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::{MINUTE, MIX, builder, is_sliced, mix, start, until};
use pollster::block_on;
use tombolo::{
    PersistentKernel,
    server::{CallError, DeviceFunction, LeasePolicy, PersistentKernelBuilder},
};

cases![
    calls_of_a_thread_are_served_in_its_order,
    one_lane_serves_one_call_at_a_time,
    updates_that_exclude_each_other_lose_nothing,
    few_ports_keep_callers_apart,
    long_loops_of_many_callers_fit_into_leases,
];

const THREADS: u32 = 64;

/// With short leases, so that they end while threads call.
fn start_with_leases(f: &Fixture, builder: PersistentKernelBuilder) -> PersistentKernel {
    let policy = LeasePolicy::of(f.device.capabilities()).time(Duration::from_millis(1));
    start(builder.leases(policy))
}

/// Runs `calls` in each of 64 threads, with the number of the thread, while the device is wanted by others, too.
fn from_all_threads(f: &Fixture, calls: impl Fn(u32) + Sync) {
    let calls = &calls;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || calls(thread)))
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            f.device.finish().unwrap();
        }
    });
}

/// So many words of a device global.
fn words(f: &Fixture, name: &str, count: u32) -> Vec<u32> {
    let global = f.device.global(name).unwrap();
    let bytes = global.read_bytes(0, u64::from(count) * 4).unwrap();
    bytemuck::pod_collect_to_vec(&bytes)
}

/// Calls do not wait for what is enqueued.
fn set(f: &Fixture, name: &str, words: &[u32]) {
    let global = f.device.global(name).unwrap();
    let written = global.write_bytes(0, bytemuck::cast_slice(words)).unwrap();
    written.wait_timeout(MINUTE).unwrap();
}

fn calls_of_a_thread_are_served_in_its_order(f: &Fixture) {
    const CALLS: u32 = 60;
    let source = format!(
        "{MIX}
        var<storage, read_write> ordered_last: array<atomic<u32>, {THREADS}>;
        var<storage, read_write> ordered_served: array<atomic<u32>, {THREADS}>;
        var<storage, read_write> ordered_wrong: atomic<u32>;
        fn next(thread: u32, number: u32) -> u32 {{
            let before = atomicExchange(&ordered_last[thread], number);
            if before + 1u != number {{ atomicAdd(&ordered_wrong, 1u); }}
            atomicAdd(&ordered_served[thread], 1u);
            return mix(before, thread);
        }}"
    );
    let lanes = if f.device.capabilities().needs_loop_guard() {
        1
    } else {
        4
    };
    let builder = builder(&f.device, &source).handler("next").ports(48);
    let server = start_with_leases(f, builder.lanes(lanes));
    let next: DeviceFunction<(u32, u32), u32> = server.function("next").unwrap();
    set(f, "ordered_last", &[0; THREADS as usize]);
    set(f, "ordered_served", &[0; THREADS as usize]);
    set(f, "ordered_wrong", &[0]);
    from_all_threads(f, |thread| {
        for number in 1..=CALLS {
            let call = (thread, number);
            // Each form waits for its answer before the next call is made.
            let before = match number % 4 {
                0 => next.call_timeout(&call, MINUTE).unwrap(),
                1 => next.begin(&call).wait_timeout(MINUTE).unwrap(),
                2 => block_on(next.begin(&call)).unwrap(),
                _ if number % 12 == 3 => next.call_all(&[call]).unwrap()[0],
                _ => next.call_timeout(&call, MINUTE).unwrap(),
            };
            let expected = mix(number - 1, thread);
            assert_eq!(before, expected, "call {number} of thread {thread}");
        }
    });
    server.stop();
    assert_eq!(words(f, "ordered_wrong", 1), [0]);
    assert_eq!(words(f, "ordered_last", THREADS), [CALLS; THREADS as usize]);
    assert_eq!(
        words(f, "ordered_served", THREADS),
        [CALLS; THREADS as usize]
    );
}

/// What a call has put in and what was there before, of all calls: one after the other, without any that began with what
/// another one began with, from nothing to the sum of all. That sum.
fn follow_each_other(mut deposits: Vec<(u32, u32)>) -> u32 {
    deposits.sort_unstable();
    deposits.iter().fold(0, |sum, &(before, amount)| {
        assert_eq!(before, sum, "with {amount} more");
        sum + amount
    })
}

const DEPOSITS: u32 = 30;

/// The deposits of 64 threads, each of another amount than those beside it.
fn deposits(f: &Fixture, deposit: &DeviceFunction<(u32,), u32>) -> Vec<(u32, u32)> {
    let all = Mutex::new(Vec::new());
    from_all_threads(f, |thread| {
        let mut own = Vec::new();
        for i in 0..DEPOSITS {
            let amount = 1 + (thread * 7 + i * 3) % 50;
            let before = deposit.call_timeout(&(amount,), MINUTE).unwrap();
            own.push((before, amount));
        }
        all.lock().unwrap().extend(own);
    });
    all.into_inner().unwrap()
}

/// One lane, and a whole work-group, serve one call at a time: handlers need no atomics then. In slices all calls run
/// beside each other, and nothing of that kind is promised.
fn one_lane_serves_one_call_at_a_time(f: &Fixture) {
    if is_sliced(&f.device) {
        return;
    }
    let deposit = "
        if alone_inside != 0u { alone_met += 1u; }
        alone_inside = 1u;
        let before = alone_balance;
        var sum = before;
        for (var i = 0u; i < amount; i++) { sum += 1u; alone_trace[i % 4u] = sum; }
        alone_balance = sum;
        alone_inside = 0u;";
    let globals = "
        var<storage, read_write> alone_inside: u32;
        var<storage, read_write> alone_met: u32;
        var<storage, read_write> alone_balance: u32;
        var<storage, read_write> alone_trace: array<u32, 4>;";
    let by_one = format!("{globals} fn deposit(amount: u32) -> u32 {{ {deposit} return before; }}");
    let by_group = format!(
        "{globals} var<workgroup> found: u32;
        fn deposit(lane: u32, amount: u32) -> u32 {{
            if lane == 0u {{ {deposit} found = before; }}
            workgroupBarrier();
            return found;
        }}"
    );
    for source in [by_one, by_group] {
        let builder = builder(&f.device, &source).ports(24);
        let builder = match source.contains("lane") {
            false => builder.handler("deposit").lanes(1),
            true => builder.group_handler("deposit"),
        };
        let server = start_with_leases(f, builder);
        let deposit = server.function::<(u32,), u32>("deposit").unwrap();
        for name in ["alone_inside", "alone_met", "alone_balance"] {
            set(f, name, &[0]);
        }
        let sum = follow_each_other(deposits(f, &deposit));
        server.stop();
        assert_eq!(words(f, "alone_met", 1), [0]);
        assert_eq!(words(f, "alone_balance", 1), [sum]);
    }
}

/// Where calls are served beside each other, in lanes and in slices, atomics exclude them.
fn updates_that_exclude_each_other_lose_nothing(f: &Fixture) {
    let source = "
        var<storage, read_write> shared_balance: atomic<u32>;
        var<storage, read_write> shared_served: atomic<u32>;
        fn deposit(amount: u32) -> u32 {
            atomicAdd(&shared_served, 1u);
            loop {
                let before = atomicLoad(&shared_balance);
                let tried = atomicCompareExchangeWeak(&shared_balance, before, before + amount);
                if tried.exchanged { return before; }
            }
            return 0u;
        }";
    let lanes = if f.device.capabilities().needs_loop_guard() {
        1
    } else {
        8
    };
    let builder = builder(&f.device, source).handler("deposit").lanes(lanes);
    let server = start_with_leases(f, builder);
    let deposit = server.function::<(u32,), u32>("deposit").unwrap();
    set(f, "shared_balance", &[0]);
    set(f, "shared_served", &[0]);
    let sum = follow_each_other(deposits(f, &deposit));
    assert_eq!(words(f, "shared_balance", 1), [sum]);
    assert_eq!(words(f, "shared_served", 1), [THREADS * DEPOSITS]);
    // In batches of several threads, too: what they found is in no order, and none found what another one did.
    let batch: Vec<(u32,)> = (0..500).map(|i| (1 + i % 9,)).collect();
    let all = Mutex::new(Vec::new());
    set(f, "shared_balance", &[0]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let found = deposit.call_all(&batch).unwrap();
                let amounts = batch.iter().map(|&(amount,)| amount);
                all.lock().unwrap().extend(found.into_iter().zip(amounts));
            });
        }
    });
    let sum = follow_each_other(all.into_inner().unwrap());
    assert_eq!(words(f, "shared_balance", 1), [sum]);
    assert_eq!(words(f, "shared_served", 1), [THREADS * DEPOSITS + 4 * 500]);
}

/// The arguments of a call, each word of which tells whose it is.
fn letter(thread: u32, i: u32) -> [u32; 16] {
    std::array::from_fn(|word| mix(thread << 16 | i, word as u32))
}

fn few_ports_keep_callers_apart(f: &Fixture) {
    const CALLS: u32 = 30;
    let source = format!(
        "{MIX}
        var<storage, read_write> few_served: array<atomic<u32>, {}>;
        fn answer(id: u32, letter: array<u32, 16>) -> array<u32, 16> {{
            atomicAdd(&few_served[id], 1u);
            var answer = letter;
            for (var i = 0u; i < 16u; i++) {{ answer[i] = mix(letter[15u - i], id); }}
            return answer;
        }}",
        THREADS * CALLS
    );
    let builder = builder(&f.device, &source).handler("answer").ports(3);
    let server = start_with_leases(f, builder);
    let answer = server
        .function::<(u32, [u32; 16]), [u32; 16]>("answer")
        .unwrap();
    set(f, "few_served", &[0; (THREADS * CALLS) as usize]);
    // Calls that somebody waited for to the end.
    let answered = Mutex::new(vec![false; (THREADS * CALLS) as usize]);
    from_all_threads(f, |thread| {
        for i in 0..CALLS {
            let id = thread * CALLS + i;
            let letter = letter(thread, i);
            let call = (id, letter);
            let result = match i % 5 {
                // Whoever gives up leaves his port to the server, and the next one has it.
                0 => answer.call_timeout(&call, Duration::from_micros(u64::from(id % 300))),
                1 => {
                    drop(answer.begin(&call));
                    continue;
                }
                2 => block_on(answer.begin(&call)),
                _ => answer.call_timeout(&call, MINUTE),
            };
            match result {
                Err(CallError::TimedOut { .. }) if i % 5 == 0 => {}
                result => {
                    let expected = std::array::from_fn(|i| mix(letter[15 - i], id));
                    assert_eq!(result.unwrap(), expected, "call {i} of thread {thread}");
                    answered.lock().unwrap()[id as usize] = true;
                }
            }
        }
    });
    server.stop();
    let served = words(f, "few_served", THREADS * CALLS);
    for (id, (&count, &is_answered)) in served.iter().zip(&*answered.lock().unwrap()).enumerate() {
        let least = u32::from(is_answered);
        assert!((least..=1).contains(&count), "call {id}: {count} times");
    }
}

/// Calls that are posted together, each of which takes a good part of what an adapter with a loop budget has.
fn long_loops_of_many_callers_fit_into_leases(f: &Fixture) {
    let source = "
        fn triangle(n: u32) -> u32 { var sum = 0u; for (var i = 0u; i <= n; i++) { sum += i; } return sum; }
        fn together(lane: u32, n: u32) -> u32 { return triangle(n); }";
    for name in ["triangle", "together"] {
        let builder = builder(&f.device, source).ports(16);
        let server = start(match name {
            "triangle" => builder.handler(name),
            _ => builder.group_handler(name),
        });
        let triangle = server.function::<(u32,), u32>(name).unwrap();
        // Each goes on until all have had their share: none is kept waiting by those who call again at once.
        let served: Vec<AtomicU32> = (0..8).map(|_| AtomicU32::new(0)).collect();
        let count = |one: &AtomicU32| one.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for (thread, own) in (0..).zip(&served) {
                let (triangle, served) = (&triangle, &served);
                scope.spawn(move || {
                    until("a caller is kept waiting", || {
                        let n = 15_000 + 100 * thread + 50 * (count(own) % 20);
                        let result = triangle.call_timeout(&(n,), MINUTE).unwrap();
                        assert_eq!(result, n * (n + 1) / 2, "{name}: {n}");
                        own.fetch_add(1, Ordering::Relaxed);
                        served.iter().all(|one| count(one) >= 20)
                    });
                });
            }
        });
    }
}
