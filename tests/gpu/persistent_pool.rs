//! Pools of servers: members on several devices share the calls.

use std::sync::Arc;

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::{MINUTE, MIX, builder, mix};
use tombolo::{
    PersistentKernel,
    server::{PooledFunction, ServerPool},
};

cases![
    members_on_all_adapters_share_calls,
    calls_go_to_the_member_with_the_fewest,
    pooled_calls_are_awaited_and_cancelled,
];

fn members_on_all_adapters_share_calls(f: &Fixture) {
    let adapters: Vec<usize> = f.context.adapters().iter().map(|one| one.index).collect();
    let (context, own) = (f.context.clone(), f.index);
    // One more on this adapter, so that there are two of each pool at least.
    let members: Vec<usize> = adapters.into_iter().chain([own]).collect();
    let count = members.len();
    let pool = ServerPool::start(count, move |member| {
        let device = context.device_at(members[member]).unwrap();
        Ok::<_, tombolo::Error>(builder(&device, MIX).handler("mix").start()?)
    });
    let pool = pool.unwrap();
    let function: PooledFunction<(u32, u32), u32> = pool.function("mix").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let function = function.clone();
            scope.spawn(move || {
                for i in 0..50u32 {
                    assert_eq!(
                        function.call_timeout(&(thread, i), MINUTE).unwrap(),
                        mix(thread, i)
                    );
                }
            });
        }
    });
    let calls: Vec<(u32, u32)> = (0..500).map(|i| (i, !i)).collect();
    let results = function.call_many(&calls).into_iter().map(Result::unwrap);
    assert!(calls.iter().map(|&(x, y)| mix(x, y)).eq(results));
    assert!(function.call_many(&[]).is_empty());
    let servers = pool.servers();
    let served = (servers.iter()).map(|server| server.statistics().call_latency.count());
    let served: Vec<u64> = served.collect();
    assert!(served.iter().all(|&calls| calls > 0), "{served:?}");
    assert_eq!(served.iter().sum::<u64>(), 200);
    assert!(pool.function::<(u32,), u32>("mix").is_err());
    pool.stop();
    assert!(function.call(&(1, 2)).is_err());
}

fn calls_go_to_the_member_with_the_fewest(f: &Fixture) {
    let (context, index) = (f.context.clone(), f.index);
    let pool = ServerPool::start(2, move |_| {
        let device = context.device_at(index).unwrap();
        Ok::<_, tombolo::Error>(builder(&device, MIX).handler("mix").start()?)
    });
    let pool = pool.unwrap();
    let function: PooledFunction<(u32, u32), u32> = pool.function("mix").unwrap();
    for round in 0..6u32 {
        let count = |server: &Arc<PersistentKernel>| server.statistics().call_latency.count();
        let before: Vec<u64> = pool.servers().iter().map(count).collect();
        // A call is a member's until its caller has the answer.
        let begun = function.begin(&(round, 1));
        for i in 0..5 {
            assert_eq!(
                function.call_timeout(&(round, i), MINUTE).unwrap(),
                mix(round, i)
            );
        }
        assert_eq!(begun.wait_timeout(MINUTE).unwrap(), mix(round, 1));
        let after = pool.servers();
        let served = after.iter().map(count).zip(before);
        let mut served: Vec<u64> = served.map(|(after, before)| after - before).collect();
        served.sort_unstable();
        assert_eq!(served, [1, 5], "round {round}");
    }
}

fn pooled_calls_are_awaited_and_cancelled(f: &Fixture) {
    let (context, index) = (f.context.clone(), f.index);
    let pool = ServerPool::start(2, move |_| {
        let device = context.device_at(index).unwrap();
        Ok::<_, tombolo::Error>(builder(&device, MIX).handler("mix").start()?)
    });
    let pool = pool.unwrap();
    let function: PooledFunction<(u32, u32), u32> = pool.function("mix").unwrap();
    let begun: Vec<_> = (0..20u32).map(|i| function.begin(&(i, 3))).collect();
    let results: Vec<_> = pollster::block_on(futures::future::join_all(begun));
    for (result, i) in results.into_iter().zip(0..) {
        assert_eq!(result.unwrap(), mix(i, 3));
    }
    for i in 0..20u32 {
        let mut call = function.begin(&(i, 4));
        call.cancel();
        match call.wait_timeout(MINUTE) {
            Ok(result) => assert_eq!(result, mix(i, 4)),
            Err(error) => assert!(error.to_string().contains("has not run"), "{error}"),
        }
    }
    assert_eq!(
        function.call_with_deadline(&(1, 5), MINUTE).unwrap(),
        mix(1, 5)
    );
}
