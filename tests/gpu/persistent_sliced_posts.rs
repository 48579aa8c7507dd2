//! Handlers that post to the host where calls travel in slices.

use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::MINUTE;
use crate::persistent_sliced::device;
use tombolo::{
    HostServices, PersistentKernel, Program,
    launch::LaunchError,
    server::{CallError, DeviceFunction, LeasePolicy, ServerError, ServerFailure},
};

cases![
    handlers_in_slices_post_to_the_host_and_do_not_wait,
    a_post_that_waits_for_its_own_server_is_told,
];

fn handlers_in_slices_post_to_the_host_and_do_not_wait(f: &Fixture) {
    let device = device(f);
    let (sender, receiver) = mpsc::channel();
    let services = HostServices::builder()
        .call("fn note(x: u32)", move |x: u32| {
            let _ = sender.send(x);
        })
        .call("fn twice(x: u32) -> u32", |x: u32| 2 * x)
        .start()
        .unwrap();
    let serve = |source: &str| {
        let program = Program::builder()
            .source("server.wgsl", source)
            .services(&services)
            .build()
            .unwrap();
        let builder = PersistentKernel::builder(&device, &program).handler("work");
        builder.services(&services)
    };
    let server = serve("fn work(x: u32) -> u32 { note_post(x); return x + 1u; }").start();
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let work = server.function::<(u32,), u32>("work").unwrap();
    for x in 0..50 {
        assert_eq!(work.call_timeout(&(x,), MINUTE).unwrap(), x + 1);
        // Whoever has the answer knows that the post has arrived.
        assert_eq!(receiver.try_recv(), Ok(x));
    }
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let work = &work;
            scope.spawn(move || {
                for x in thread * 20..thread * 20 + 20 {
                    assert_eq!(work.call_timeout(&(x,), MINUTE).unwrap(), x + 1);
                }
            });
        }
    });
    let mut noted: Vec<u32> = receiver.try_iter().collect();
    noted.sort_unstable();
    assert!(noted.into_iter().eq(0..160));
    server.stop();
    let error = serve("fn work(x: u32) -> u32 { return twice(x); }")
        .start()
        .unwrap_err();
    assert!(
        matches!(
            error,
            ServerError::Launch(LaunchError::NeedsLiveMemory { .. })
        ),
        "{error}"
    );
}

/// A slice has not ended before what it has posted is served, and what is served there waits for the next one.
fn a_post_that_waits_for_its_own_server_is_told(f: &Fixture) {
    let device = device(f);
    let twice: Arc<OnceLock<DeviceFunction<(u32,), u32>>> = Arc::default();
    let (sender, receiver) = mpsc::channel();
    let inner = Arc::clone(&twice);
    let services = HostServices::builder().call("fn note(x: u32)", move |x: u32| {
        let twice = inner.get().unwrap();
        let _ = sender.send(twice.call_timeout(&(x,), MINUTE));
    });
    let services = services.start().unwrap();
    let source = "
        fn work(x: u32) -> u32 { note_post(x); return x + 1u; }
        fn twice(x: u32) -> u32 { return 2u * x; }";
    let program = Program::builder()
        .source("server.wgsl", source)
        .services(&services)
        .build()
        .unwrap();
    let policy = LeasePolicy::of(device.capabilities()).stuck(Duration::from_secs(1));
    let server = PersistentKernel::builder(&device, &program).services(&services);
    let server = server.handler("work").handler("twice").leases(policy);
    let server = server.start().unwrap_or_else(|error| panic!("{error}"));
    let twice = twice.get_or_init(|| server.function("twice").unwrap());
    let work = server.function::<(u32,), u32>("work").unwrap();
    let serves = || {
        server.restart_timeout(MINUTE).unwrap();
        match twice.call_timeout(&(7,), MINUTE) {
            Ok(result) => assert_eq!(result, 14),
            // A busy machine may take a slice for stuck that is only slow.
            Err(CallError::Server { failure, .. }) => {
                let stuck = matches!(*failure, ServerFailure::LeaseStuck { .. });
                assert!(stuck, "{failure}");
                server.restart_timeout(MINUTE).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    };
    // Drivers compile a slice when it first runs. The time for that is not the slice's.
    serves();
    let outer = work.call_timeout(&(5,), MINUTE);
    // On a busy machine the slice itself may take so long. Nobody waits for it then, and what it posts is served when
    // somebody waits for the device.
    device.finish().unwrap();
    for result in [outer, receiver.recv_timeout(MINUTE).unwrap()] {
        let Err(CallError::Server { failure, .. }) = result else {
            panic!("{result:?}");
        };
        let stuck = matches!(*failure, ServerFailure::LeaseStuck { .. });
        assert!(stuck, "{failure}");
    }
    serves();
}
