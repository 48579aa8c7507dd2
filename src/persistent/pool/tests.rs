//! Lost members: their leases are killed, and everybody goes on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::context::Context;
use crate::device::hooks;
use crate::kernel::Program;
use crate::persistent::{CallError, ServerFailure};

const MINUTE: Duration = Duration::from_secs(60);

/// Two members on devices of their own on an adapter, and how often each was put together.
fn pool(context: &Context, adapter: usize) -> (ServerPool, Arc<[AtomicUsize; 2]>) {
    let context = context.clone();
    let program = Program::new("server.wgsl", "fn next(x: u32) -> u32 { return x + 1u; }").unwrap();
    let started: Arc<[AtomicUsize; 2]> = Arc::default();
    let own = Arc::clone(&started);
    let pool = ServerPool::start(2, move |member| {
        own[member].fetch_add(1, Ordering::Relaxed);
        let device = context.device_at(adapter).unwrap();
        let builder = PersistentKernel::builder(&device, &program).handler("next");
        Ok::<_, crate::Error>(builder.start()?)
    });
    (pool.unwrap(), started)
}

/// Has a server fail at its next lease.
fn lose(server: &PersistentKernel) {
    let next = server.function::<(u32,), u32>("next").unwrap();
    server.core.kill.store(true, Ordering::Release);
    let begun = Instant::now();
    let error = loop {
        assert!(begun.elapsed() < MINUTE, "no lease is killed");
        // The call is answered by the lease on the device.
        server.device().finish().unwrap();
        if let Err(error) = next.call_timeout(&(1,), MINUTE) {
            break error;
        }
    };
    let CallError::Server { failure, .. } = error else {
        panic!("{error}");
    };
    assert!(
        matches!(*failure, ServerFailure::LeaseKilled { .. }),
        "{failure}"
    );
}

#[test]
fn a_lost_member_is_started_again_and_then_replaced() {
    let _alone = hooks::alone();
    let context = Context::new().unwrap();
    for adapter in context.adapters() {
        let (pool, started) = pool(&context, adapter.index);
        let next = pool.function::<(u32,), u32>("next").unwrap();
        let first = pool.servers().remove(0);
        let mut restarts = 0;
        // The second time there is no answered call in between.
        for (round, is_replaced) in [(0, false), (1, true)] {
            let server = pool.servers().remove(0);
            // As if no call of the pool had been answered since the last time.
            pool.shared.members[0]
                .failures
                .store(round, Ordering::Relaxed);
            lose(&server);
            let begun = Instant::now();
            let mut calls = 0;
            // The other member serves meanwhile, and no call fails.
            while pool.restarts() == restarts {
                assert!(begun.elapsed() < MINUTE, "round {round}");
                assert_eq!(next.call_timeout(&(calls,), MINUTE).unwrap(), calls + 1);
                calls += 1;
            }
            restarts = pool.restarts();
            let is_same = Arc::ptr_eq(&first, &pool.servers()[0]);
            assert_eq!(is_same, !is_replaced, "round {round}");
            assert_eq!(
                started[0].load(Ordering::Relaxed),
                1 + usize::from(is_replaced)
            );
        }
        assert_eq!(started[1].load(Ordering::Relaxed), 1);
        // Both serve again.
        for server in pool.servers() {
            assert!(server.failure().is_none());
            let next = server.function::<(u32,), u32>("next").unwrap();
            assert_eq!(next.call_timeout(&(5,), MINUTE).unwrap(), 6);
        }
        pool.stop();
        let error = next.call_timeout(&(1,), MINUTE).unwrap_err();
        assert!(matches!(error, CallError::Stopped { .. }), "{error}");
        assert_eq!(pool.restarts(), restarts);
    }
}

#[test]
fn a_pool_without_servers_says_why() {
    let _alone = hooks::alone();
    let context = Context::new().unwrap();
    let (pool, _) = pool(&context, 0);
    let next = pool.function::<(u32,), u32>("next").unwrap();
    // Nobody mends the members.
    pool.shared.is_stopped.store(true, Ordering::SeqCst);
    for server in pool.servers() {
        lose(&server);
    }
    let told: Mutex<Vec<CallError>> = Mutex::default();
    told.lock().unwrap().push(next.call(&(1,)).unwrap_err());
    told.lock()
        .unwrap()
        .push(next.begin(&(1,)).wait().unwrap_err());
    told.lock().unwrap().extend(
        next.call_many(&[(1,), (2,)])
            .into_iter()
            .filter_map(Result::err),
    );
    let told = told.into_inner().unwrap();
    assert_eq!(told.len(), 4);
    for error in told {
        assert!(matches!(error, CallError::Server { .. }), "{error}");
    }
    assert!(matches!(
        ServerPool::start::<ServerError>(0, |_| unreachable!()),
        Err(ServerError::EmptyPool)
    ));
}
