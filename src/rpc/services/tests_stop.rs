//! Services, and servers of the host, stopped by functions of their own and of each other.

use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use super::super::port::protocol::CallStatus;
use super::HostServices;
use crate::rpc::Loopback;
use crate::server::HostServer;

const MINUTE: Duration = Duration::from_secs(60);

/// Runs `work` on a thread of its own; the thread has to end.
fn within_a_minute(work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    is_done.recv_timeout(MINUTE).unwrap();
    thread.join().unwrap();
}

/// The stopping call is answered, and later ones are told.
#[test]
fn functions_may_stop_their_own_services() {
    for threads in [1, 4] {
        within_a_minute(move || {
            let own = Arc::new(OnceLock::<HostServices>::new());
            let stopping = Arc::downgrade(&own);
            let stop = move |x: u32| {
                if let Some(own) = stopping.upgrade().as_ref().and_then(|own| own.get()) {
                    own.stop();
                }
                x + 1
            };
            let services = HostServices::builder()
                .call("fn stop(x: u32) -> u32", stop)
                .threads(threads);
            let services = services.start().unwrap();
            let mut loopback = services.loopback().unwrap();
            own.set(services).unwrap();
            // Stopping services may be taken for stopped.
            let first = loopback.call("stop", &[1], MINUTE);
            assert!(
                first == Ok(vec![2]) || first == Err(CallStatus::Stopped),
                "{first:?}"
            );
            let later = loopback.call("stop", &[1], MINUTE);
            assert_eq!(later, Err(CallStatus::Stopped));
            own.get().unwrap().stop();
        });
    }
}

/// The server's last sweep is still to come while the stopping function runs.
#[test]
fn calls_made_after_the_stop_are_never_served() {
    for threads in [1, 4] {
        within_a_minute(move || {
            let own = Arc::new(OnceLock::<(HostServices, Mutex<Loopback>)>::new());
            let stopping = Arc::downgrade(&own);
            let stop = move || {
                if let Some(own) = stopping.upgrade()
                    && let Some((services, loopback)) = own.get()
                {
                    services.stop();
                    let later = loopback.lock().unwrap().call("other", &[], MINUTE);
                    assert_eq!(later, Err(CallStatus::Stopped));
                }
            };
            let services = HostServices::builder()
                .call("fn stop()", stop)
                .call("fn other()", || ())
                .threads(threads);
            let services = services.start().unwrap();
            let mut loopback = services.loopback().unwrap();
            let spread = Mutex::new(loopback.spread(1));
            own.set((services, spread)).unwrap();
            let first = loopback.call("stop", &[], MINUTE);
            assert!(
                matches!(first, Ok(_) | Err(CallStatus::Stopped)),
                "{first:?}"
            );
            let (services, _) = own.get().unwrap();
            services.stop();
            let calls = services.statistics().functions;
            let calls = calls
                .iter()
                .map(|function| (&*function.name, function.calls));
            assert!(calls.eq([("stop", 1), ("other", 0)]), "{threads} threads");
        });
    }
}

/// Both are served at once, and neither waits for the other.
#[test]
fn functions_may_stop_each_others_services() {
    within_a_minute(|| {
        let both: Arc<[OnceLock<HostServices>; 2]> = Arc::default();
        let meeting = Arc::new(std::sync::Barrier::new(2));
        let start = |other: usize| {
            let (both, meeting) = (Arc::downgrade(&both), Arc::clone(&meeting));
            let stop = move || {
                meeting.wait();
                if let Some(both) = both.upgrade() {
                    both[other].get().unwrap().stop();
                }
                meeting.wait();
            };
            let services = HostServices::builder().call("fn stop()", stop);
            services.start().unwrap()
        };
        let services = [start(1), start(0)];
        let loopbacks = services.each_ref().map(|one| one.loopback().unwrap());
        for (place, services) in both.iter().zip(services) {
            place.set(services).unwrap();
        }
        std::thread::scope(|scope| {
            for mut loopback in loopbacks {
                scope.spawn(move || loopback.call("stop", &[], MINUTE));
            }
        });
        both.iter()
            .for_each(|services| services.get().unwrap().stop());
    });
}

/// The last handle goes in a function served by the services.
#[test]
fn functions_may_drop_their_own_services() {
    for threads in [1, 4] {
        within_a_minute(move || {
            let own = Arc::new(Mutex::new(None::<HostServices>));
            let dropping = Arc::clone(&own);
            let services = HostServices::builder()
                .call("fn end(x: u32) -> u32", move |x: u32| {
                    drop(dropping.lock().unwrap().take());
                    x + 1
                })
                .threads(threads);
            let services = services.start().unwrap();
            let mut loopback = services.loopback().unwrap();
            *own.lock().unwrap() = Some(services);
            let first = loopback.call("end", &[1], MINUTE);
            assert!(
                first == Ok(vec![2]) || first == Err(CallStatus::Stopped),
                "{first:?}"
            );
            assert!(own.lock().unwrap().is_none());
        });
    }
}

#[test]
fn functions_may_stop_their_own_server() {
    within_a_minute(|| {
        let own = Arc::new(OnceLock::<HostServer>::new());
        let stopping = Arc::downgrade(&own);
        let server = HostServer::builder().handler("fn stop(x: u32) -> u32", move |x: u32| {
            if let Some(own) = stopping.upgrade().as_ref().and_then(|own| own.get()) {
                own.stop();
            }
            x + 1
        });
        let server = server.start().unwrap();
        let stop = server.function::<(u32,), u32>("stop").unwrap();
        own.set(server).unwrap();
        assert_eq!(stop.call_timeout(&(1,), MINUTE).unwrap(), 2);
        assert!(stop.call_timeout(&(1,), MINUTE).is_err());
        own.get().unwrap().stop();
    });
}
