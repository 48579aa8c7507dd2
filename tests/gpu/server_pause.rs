//! Servers that stay away while a program submits to wgpu's queue for itself.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::cases;
use crate::devices::raw_device;
use crate::harness::Fixture;
use crate::persistent::{MINUTE, MIX, Mixer, builder, endless, is_sliced, mix, start, until};
use crate::server_beside::Work;
use tombolo::{
    Device, DeviceOptions, HostServices, PersistentKernel, Program,
    device::{ExecutionError, PauseError, ServerPause},
    server::CallError,
    wgpu,
};

cases![
    servers_stay_away_until_the_last_guard_is_dropped,
    servers_stay_away_from_a_device_that_was_adopted,
    pauses_beside_threads_that_call,
    a_pause_that_a_handler_holds_up_says_so,
    a_server_stopped_in_a_pause_tells_its_callers,
];

/// A server that leaves the device on request alone.
fn resident(device: &Device) -> (PersistentKernel, Mixer) {
    let server = builder(device, MIX).handler("mix").leases(endless(device));
    let server = start(server);
    let function = server.function("mix").unwrap();
    (server, function)
}

fn pause(device: &Device) -> ServerPause {
    (device.pause_servers(MINUTE)).unwrap_or_else(|error| panic!("{error}"))
}

/// Two buffers of the program's own, and what it submits to wgpu's queue.
struct Raw {
    device: wgpu::Device,
    queue: wgpu::Queue,
    from: wgpu::Buffer,
    to: wgpu::Buffer,
}

impl Raw {
    fn new(device: &wgpu::Device, queue: wgpu::Queue) -> Self {
        let buffer = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: 256,
                usage: usage | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        };
        Self {
            device: device.clone(),
            queue,
            from: buffer(wgpu::BufferUsages::COPY_SRC),
            to: buffer(wgpu::BufferUsages::MAP_READ),
        }
    }

    /// Copies `value` through both buffers, and looks at what has come.
    fn copy(&self, value: u32) {
        let words = [value; 64];
        self.queue
            .write_buffer(&self.to, 0, bytemuck::cast_slice(&[!value; 64]));
        self.queue
            .write_buffer(&self.from, 0, bytemuck::cast_slice(&words));
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(&self.from, 0, &self.to, 0, 256);
        self.queue.submit([encoder.finish()]);
        let (tell, told) = channel();
        self.to.map_async(wgpu::MapMode::Read, .., move |mapped| {
            let _ = tell.send(mapped);
        });
        until("a copy of the program's own", || {
            self.device.poll(wgpu::PollType::Poll).unwrap();
            told.try_recv().is_ok_and(|mapped| mapped.is_ok())
        });
        let found = self.to.get_mapped_range(..).unwrap();
        assert_eq!(bytemuck::cast_slice::<u8, u32>(&found), words);
        drop(found);
        self.to.unmap();
    }
}

/// A call meanwhile has its usual error, and no lease begins.
fn check_away(server: &PersistentKernel, function: &Mixer, leases: u32) {
    let error = function.call_timeout(&(1, 1), Duration::from_millis(5));
    let is_late = matches!(error, Err(CallError::TimedOut { .. }));
    assert!(is_late, "{error:?}");
    assert_eq!(server.leases(), leases);
}

fn stays_away(device: &Device, raw: &Raw) {
    let (server, function) = resident(device);
    let mut work = Work::new(device);
    for round in 0..3u32 {
        assert_eq!(
            function.call_timeout(&(round, 7), MINUTE).unwrap(),
            mix(round, 7)
        );
        let (first, second) = (pause(device), pause(device));
        let leases = server.leases();
        for i in 0..5 {
            raw.copy(round * 5 + i);
            work.launched();
        }
        check_away(&server, &function, leases);
        drop(first);
        check_away(&server, &function, leases);
        std::thread::scope(|scope| {
            let called = scope.spawn(|| function.call_timeout(&(round, 9), MINUTE));
            raw.copy(1000 + round);
            assert_eq!(server.leases(), leases);
            drop(second);
            // The caller alone wakes no server that sleeps out a pause.
            assert_eq!(called.join().unwrap().unwrap(), mix(round, 9));
        });
        assert!(server.leases() > leases);
    }
    work.check();
    assert!(server.failure().is_none());
}

fn servers_stay_away_until_the_last_guard_is_dropped(f: &Fixture) {
    for live in [true, false] {
        let device = f.open(|options| options.live_memory = live);
        let raw = Raw::new(device.raw(), device.raw_queue().clone());
        stays_away(&device, &raw);
    }
}

fn servers_stay_away_from_a_device_that_was_adopted(f: &Fixture) {
    for probe in [true, false] {
        let (device, queue) = raw_device(f);
        let raw = Raw::new(&device, queue.clone());
        let mut options = DeviceOptions::default();
        options.probe = Some(probe);
        stays_away(&Device::adopt(device, queue, options), &raw);
    }
}

fn pauses_beside_threads_that_call(f: &Fixture) {
    const CALLS: u32 = 400;
    for live in [true, false] {
        let device = f.open(|options| options.live_memory = live);
        let (server, function) = resident(&device);
        std::thread::scope(|scope| {
            let call = |thread: u32| {
                for i in 0..CALLS {
                    let result = function.call_timeout(&(thread, i), MINUTE).unwrap();
                    assert_eq!(result, mix(thread, i), "call {i} of thread {thread}");
                }
            };
            let many = || {
                let calls: Vec<_> = (0..3 * CALLS).map(|i| (i, 5)).collect();
                for (i, result) in (0..).zip(function.call_many(&calls)) {
                    assert_eq!(result.unwrap(), mix(i, 5), "call {i} of many");
                }
            };
            let mut callers: Vec<_> = (0..3).map(|i| scope.spawn(move || call(i))).collect();
            callers.push(scope.spawn(many));
            let mut pauses = 0u32;
            let are_through = || callers.iter().all(|caller| caller.is_finished());
            while pauses < 20 || !are_through() {
                let guard = pause(&device);
                let leases = server.leases();
                device.finish().unwrap();
                assert_eq!(server.leases(), leases, "pause {pauses}");
                drop(guard);
                pauses += 1;
                // Pause upon pause would leave the server no time to wake.
                let end = Instant::now() + MINUTE;
                while server.leases() == leases && !are_through() {
                    assert!(
                        Instant::now() < end,
                        "nothing is served behind pause {pauses}"
                    );
                    std::thread::yield_now();
                }
            }
        });
        assert_eq!(function.call_timeout(&(3, 4), MINUTE).unwrap(), mix(3, 4));
    }
}

/// What a function of the host tells, and waits for.
type Gate = (Mutex<Sender<Result<(), PauseError>>>, Mutex<Receiver<()>>);

fn a_pause_that_a_handler_holds_up_says_so(f: &Fixture) {
    let device = f.open(|_| {});
    // No handler waits for the host in slices.
    if is_sliced(&device) {
        return;
    }
    let (reached, arrivals) = channel();
    let (open, opened) = channel();
    let gate: Gate = (Mutex::new(reached), Mutex::new(opened));
    let own: Arc<OnceLock<Device>> = Arc::default();
    let known = Arc::clone(&own);
    let services = HostServices::builder().call("fn gate(x: u32) -> u32", move |x: u32| {
        let refused = known.get().unwrap().pause_servers(MINUTE).map(drop);
        let _ = gate.0.lock().unwrap().send(refused);
        let _ = gate.1.lock().unwrap().recv_timeout(MINUTE);
        x + 1
    });
    let services = services.start().unwrap();
    own.set(device.clone()).unwrap();
    let program = Program::builder()
        .source(
            "server.wgsl",
            "fn gated(x: u32) -> u32 { return gate_try(x).status + x; }",
        )
        .services(&services)
        .build()
        .unwrap();
    let server = PersistentKernel::builder(&device, &program).services(&services);
    let server = start(server.handler("gated").leases(endless(&device)));
    let gated = server.function::<(u32,), u32>("gated").unwrap();
    std::thread::scope(|scope| {
        let called = scope.spawn(|| gated.call_timeout(&(5,), MINUTE));
        let told = arrivals.recv_timeout(MINUTE).unwrap();
        // A driver that rations turns may end the wait first.
        let is_behind = device.capabilities().loop_budget().is_some();
        match told {
            Err(PauseError::Refused(ExecutionError::InHandler { what, .. })) => {
                assert_eq!(what, "Device::pause_servers");
            }
            told => assert!(is_behind, "{told:?}"),
        }
        match device.pause_servers(Duration::from_millis(1)) {
            Err(PauseError::Timeout {
                device: name,
                launches,
                waited,
            }) => {
                assert_eq!((name.as_str(), launches), (device.name(), 1));
                assert!(waited >= Duration::from_millis(1), "{waited:?}");
            }
            paused => assert!(is_behind, "{paused:?}"),
        }
        open.send(()).unwrap();
        assert!(called.join().unwrap().unwrap() >= 5);
    });
    // A pause that has failed keeps nobody away.
    open.send(()).unwrap();
    assert!(gated.call_timeout(&(7,), MINUTE).unwrap() >= 7);
    drop(pause(&device));
    assert!(server.failure().is_none());
}

fn a_server_stopped_in_a_pause_tells_its_callers(f: &Fixture) {
    for live in [true, false] {
        let device = f.open(|options| options.live_memory = live);
        let (server, function) = resident(&device);
        assert_eq!(function.call_timeout(&(1, 2), MINUTE).unwrap(), mix(1, 2));
        let guard = pause(&device);
        let calls: Vec<_> = (0..3).map(|i| function.begin(&(i, i))).collect();
        server.stop();
        for call in calls {
            let told = call.wait_timeout(MINUTE);
            assert!(matches!(told, Err(CallError::Stopped { .. })), "{told:?}");
        }
        server.restart().unwrap();
        check_away(&server, &function, server.leases());
        drop(guard);
        assert_eq!(function.call_timeout(&(3, 4), MINUTE).unwrap(), mix(3, 4));
    }
}
