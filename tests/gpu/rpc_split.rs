//! Calls that are begun in one launch and collected in another, or later in the same, on devices that show a running
//! kernel what the host writes and on devices that do not.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::cases;
use crate::harness::{Fixture, kernel_of, mix};
use crate::{rpc, rpc_failures, rpc_streams};
use tombolo::{
    Device, DeviceBuffer, HostServices, Kernel,
    calls::{CallStatus, HostServicesBuilder},
    device::{Aspect, WaitError},
    launch::LaunchError,
};

cases![
    begun_calls_are_collected_by_the_next_launch,
    answers_are_there_once_the_launch_was_waited_for,
    posted_calls_are_served_after_the_launch,
    begun_calls_are_collected_in_the_same_kernel,
    every_ticket_is_good_for_one_answer,
    tickets_that_are_none_are_told,
    ports_that_are_all_taken_give_no_ticket,
    launches_that_nobody_waits_for_overtake_answers,
    waiting_for_a_function_that_takes_long_has_a_deadline,
    stopped_services_answer_no_ticket,
    refused_launches_lose_no_answers,
    kernels_that_wait_inside_are_refused_where_they_cannot,
    garbage_in_the_ports_of_a_slice_harms_nobody,
    awaiting_a_launch_awaits_its_calls,
];

const MINUTE: Duration = Duration::from_secs(60);

/// The device as it is, as one with memory of its own, and as one that shows nothing to running kernels.
fn devices(f: &Fixture) -> [Device; 3] {
    let devices = [
        f.open(|_| {}),
        f.open(|options| options.unified_memory = Some(false)),
        f.open(|options| options.live_memory = false),
    ];
    assert!(!devices[2].has(Aspect::LiveMemory));
    devices
}

fn serving(ports: usize) -> HostServicesBuilder {
    HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .ports(ports)
}

const HEAD: &str = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
    @group(0) @binding(1) var<storage, read_write> tickets: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {";
const BEGIN: &str =
    "tickets[id.x] = mix_begin(id.x); out[id.x] = select(0u, 1u, tickets[id.x] != 0u); }";
const COLLECT: &str =
    "let r = mix_collect(tickets[id.x]); tickets[id.x] = r.status; out[id.x] = r.value; }";

struct Machine<'a> {
    device: &'a Device,
    services: &'a HostServices,
    out: DeviceBuffer<u32>,
    tickets: DeviceBuffer<u32>,
}

impl<'a> Machine<'a> {
    fn new(device: &'a Device, services: &'a HostServices, len: usize) -> Self {
        let poison = vec![0xDEAD_BEEFu32; len];
        Self {
            device,
            services,
            out: device.buffer(&poison).unwrap(),
            tickets: device.buffer(&poison).unwrap(),
        }
    }

    fn kernel(&self, body: &str) -> Kernel {
        kernel_of(self.device, self.services, &format!("{HEAD}{body}"))
    }

    fn submit(&self, kernel: &Kernel) -> tombolo::Event {
        let launch = kernel
            .launch()
            .services(self.services)
            .buffer("out", &self.out);
        let mut launch = launch
            .buffer("tickets", &self.tickets)
            .invocations(self.out.len() as u32);
        launch.submit().unwrap()
    }

    fn run(&self, kernel: &Kernel) {
        self.submit(kernel).wait_timeout(MINUTE).unwrap();
    }

    /// Collects until nothing is pending, since a live device may be quicker than its host; what `out` holds then is
    /// what each ticket gave.
    fn collect_all(&self, kernel: &Kernel) -> Vec<u32> {
        let deadline = std::time::Instant::now() + MINUTE;
        let pending = CallStatus::Pending.code();
        let mut tickets = self.tickets.read().unwrap();
        let mut statuses = vec![pending; tickets.len()];
        let mut values = vec![0; tickets.len()];
        while statuses.contains(&pending) {
            panic_after(deadline);
            self.tickets.write(0, &tickets).unwrap();
            self.run(kernel);
            let (now, out) = (self.tickets.read().unwrap(), self.out.read().unwrap());
            for (i, status) in now.into_iter().enumerate() {
                if statuses[i] == pending && status != pending {
                    (statuses[i], values[i], tickets[i]) = (status, out[i], 0);
                }
            }
        }
        self.out.write(0, &values).unwrap();
        statuses
    }
}

fn panic_after(deadline: std::time::Instant) {
    assert!(std::time::Instant::now() < deadline, "it takes too long");
}

fn begun_calls_are_collected_by_the_next_launch(f: &Fixture) {
    for device in devices(f) {
        let services = serving(256).start().unwrap();
        let machine = Machine::new(&device, &services, 128);
        let (begin, collect) = (machine.kernel(BEGIN), machine.kernel(COLLECT));
        for round in 0..5 {
            machine.run(&begin);
            assert_eq!(machine.out.read().unwrap(), [1; 128]);
            let tickets = machine.tickets.read().unwrap();
            let mut unique = tickets.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), 128);
            let deadline = std::time::Instant::now() + MINUTE;
            while services.statistics().functions[0].calls < (round + 1) * 128 {
                panic_after(deadline);
                std::thread::yield_now();
            }
            machine.run(&collect);
            assert_eq!(
                machine.tickets.read().unwrap(),
                [CallStatus::Done.code(); 128]
            );
            assert_eq!(
                machine.out.read().unwrap(),
                (0..128).map(mix).collect::<Vec<_>>()
            );
        }
        // They lie in one memory, or host and device have them each.
        let capabilities = device.capabilities();
        let memories = match capabilities.backend {
            tombolo::wgpu::Backend::Metal => 2,
            _ if capabilities.unified_memory && capabilities.live_memory() => 1,
            _ => 2,
        };
        let bytes = services.statistics().port_bytes;
        // Where a subgroup shares packets a port has room for 32 calls: for as many times a status and a result.
        let packs = memories == 2
            && capabilities.live_memory()
            && device.has(Aspect::Subgroups)
            && !capabilities.needs_loop_guard();
        let expected = match packs {
            true => 64 + 3 * 4 * 256 + 2 * 256 * (16u64 + 32 * 2 * 4).next_multiple_of(64),
            false => services.port_bytes(256),
        };
        assert_eq!(bytes, memories * expected);
    }
}

fn answers_are_there_once_the_launch_was_waited_for(f: &Fixture) {
    // Where calls leave with the launch, waiting for it is waiting for them.
    let device = f.open(|options| options.live_memory = false);
    let served = Arc::new(AtomicU32::new(0));
    let serving = Arc::clone(&served);
    let slow = move |x: u32| {
        // Some work, so that answers are not there by chance.
        let value = (0..20_000).fold(x, |x, _| std::hint::black_box(mix(x)));
        serving.fetch_add(1, Ordering::Relaxed);
        value
    };
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", slow)
        .start()
        .unwrap();
    let machine = Machine::new(&device, &services, 64);
    machine.run(&machine.kernel(BEGIN));
    assert_eq!(served.load(Ordering::Relaxed), 64);
    machine.run(&machine.kernel(COLLECT));
    assert_eq!(
        machine.tickets.read().unwrap(),
        [CallStatus::Done.code(); 64]
    );
    let expected: Vec<u32> = (0..64)
        .map(|x| (0..20_000).fold(x, |x, _| mix(x)))
        .collect();
    assert_eq!(machine.out.read().unwrap(), expected);
}

fn posted_calls_are_served_after_the_launch(f: &Fixture) {
    let device = f.open(|options| options.live_memory = false);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noting = Arc::clone(&seen);
    let services = HostServices::builder()
        .call(
            "fn note(x: u32, y: vec2<f32>)",
            move |x: u32, y: [f32; 2]| {
                noting.lock().unwrap().push((x, y));
            },
        )
        .ports(512)
        .start()
        .unwrap();
    let machine = Machine::new(&device, &services, 320);
    let kernel = machine
        .kernel("out[id.x] = note_post(id.x, vec2(f32(id.x) * 0.5, -1.0)); tickets[id.x] = 0u; }");
    for round in 1..4usize {
        machine.run(&kernel);
        assert_eq!(machine.out.read().unwrap(), [CallStatus::Done.code(); 320]);
        let mut seen = seen.lock().unwrap().clone();
        assert_eq!(seen.len(), round * 320);
        seen.sort_by_key(|(x, _)| *x);
        for (at, (x, y)) in seen.into_iter().enumerate() {
            let id = (at / round) as u32;
            assert_eq!((x, y), (id, [id as f32 * 0.5, -1.0]));
        }
    }
    // More than there are ports: what was posted is told and served, and what was not is told.
    let many = Machine::new(&device, &services, 1024);
    let kernel = many.kernel("out[id.x] = note_post(id.x, vec2(0.0)); tickets[id.x] = 0u; }");
    many.run(&kernel);
    let statuses = many.out.read().unwrap();
    let posted = statuses
        .iter()
        .filter(|status| **status == CallStatus::Done.code());
    assert_eq!(posted.count(), 512);
    let refused = statuses
        .iter()
        .filter(|status| **status == CallStatus::Busy.code());
    assert_eq!(refused.count(), 512);
    assert_eq!(seen.lock().unwrap().len(), 3 * 320 + 512);
}

fn begun_calls_are_collected_in_the_same_kernel(f: &Fixture) {
    // Calls that wait in between: a server that goes on answering them comes to every port meanwhile.
    let device = f.open(|_| {});
    // Two for each invocation that may run at a time, and one for each that waits.
    let services = serving(1024).start().unwrap();
    let machine = Machine::new(&device, &services, 256);
    let kernel = machine.kernel(
        "let a = mix_begin(id.x); let b = mix_begin(id.x + 1000u);
        var x = id.x;
        for (var i = 0u; i < 3u; i++) { x = mix(x); }
        var first = mix_collect(b);
        for (var i = 0u; i < 64u && first.status == CALL_PENDING; i++) { mix(i); first = mix_collect(b); }
        var second = mix_collect(a);
        for (var i = 0u; i < 64u && second.status == CALL_PENDING; i++) { mix(i); second = mix_collect(a); }
        out[id.x] = first.value ^ x; tickets[id.x] = second.value;
        if first.status != CALL_DONE || second.status != CALL_DONE { out[id.x] = first.status; }
    }",
    );
    machine.run(&kernel);
    let (out, tickets) = (machine.out.read().unwrap(), machine.tickets.read().unwrap());
    for id in 0..256u32 {
        assert_eq!(out[id as usize], mix(id + 1000) ^ mix(mix(mix(id))), "{id}");
        assert_eq!(tickets[id as usize], mix(id), "{id}");
    }
}

fn every_ticket_is_good_for_one_answer(f: &Fixture) {
    for device in devices(f) {
        let services = serving(128).start().unwrap();
        let machine = Machine::new(&device, &services, 64);
        let (begin, collect) = (machine.kernel(BEGIN), machine.kernel(COLLECT));
        machine.run(&begin);
        let tickets = machine.tickets.read().unwrap();
        assert_eq!(machine.collect_all(&collect), [CallStatus::Done.code(); 64]);
        machine.tickets.write(0, &tickets).unwrap();
        machine.run(&collect);
        assert_eq!(
            machine.tickets.read().unwrap(),
            [CallStatus::NoTicket.code(); 64]
        );
        assert_eq!(machine.out.read().unwrap(), [0; 64]);
        // Its port has other calls now.
        machine.run(&begin);
        let newer = machine.tickets.read().unwrap();
        machine.tickets.write(0, &tickets).unwrap();
        machine.run(&collect);
        assert_eq!(
            machine.tickets.read().unwrap(),
            [CallStatus::NoTicket.code(); 64]
        );
        machine.tickets.write(0, &newer).unwrap();
        assert_eq!(machine.collect_all(&collect), [CallStatus::Done.code(); 64]);
        assert_eq!(
            machine.out.read().unwrap(),
            (0..64).map(mix).collect::<Vec<_>>()
        );
    }
}

fn tickets_that_are_none_are_told(f: &Fixture) {
    for device in devices(f) {
        let services = serving(64)
            .call("fn half(x: u32) -> u32", |x: u32| x / 2)
            .start()
            .unwrap();
        let machine = Machine::new(&device, &services, 64);
        let collect = machine.kernel(COLLECT);
        let wild: Vec<u32> = (0..64u32)
            .map(|i| [0, 1, 3, u32::MAX, mix(i), mix(i) | 1][i as usize % 6])
            .collect();
        machine.tickets.write(0, &wild).unwrap();
        machine.run(&collect);
        assert_eq!(
            machine.tickets.read().unwrap(),
            [CallStatus::NoTicket.code(); 64]
        );
        // Another function's ticket stays good for that function.
        machine.run(&machine.kernel(BEGIN));
        let tickets = machine.tickets.read().unwrap();
        machine.run(&machine.kernel("out[id.x] = half_collect(tickets[id.x]).status; }"));
        assert_eq!(
            machine.out.read().unwrap(),
            [CallStatus::NoTicket.code(); 64]
        );
        machine.tickets.write(0, &tickets).unwrap();
        assert_eq!(machine.collect_all(&collect), [CallStatus::Done.code(); 64]);
    }
}

fn ports_that_are_all_taken_give_no_ticket(f: &Fixture) {
    for device in devices(f) {
        let services = serving(40).start().unwrap();
        let machine = Machine::new(&device, &services, 64);
        machine.run(&machine.kernel(BEGIN));
        let got = machine
            .out
            .read()
            .unwrap()
            .iter()
            .filter(|got| **got == 1)
            .count();
        assert_eq!(got, 40);
        // Leaving a call frees its port once it is served.
        let leave = machine.kernel("mix_leave(tickets[id.x]); out[id.x] = tickets[id.x]; }");
        machine.run(&leave);
        let deadline = std::time::Instant::now() + MINUTE;
        while services.statistics().functions[0].calls < 40 {
            panic_after(deadline);
            std::thread::yield_now();
        }
        machine.run(&machine.kernel(BEGIN));
        let got = machine
            .out
            .read()
            .unwrap()
            .iter()
            .filter(|got| **got == 1)
            .count();
        assert_eq!(got, 40);
    }
}

fn launches_that_nobody_waits_for_overtake_answers(f: &Fixture) {
    let device = f.open(|options| options.live_memory = false);
    let services = serving(256).start().unwrap();
    let machine = Machine::new(&device, &services, 64);
    let (begin, collect) = (machine.kernel(BEGIN), machine.kernel(COLLECT));
    // In one batch: the second launch cannot have an answer, and takes nothing away.
    machine.submit(&begin);
    let kept = machine.kernel("out[id.x] = mix_collect(tickets[id.x]).status; }");
    let event = machine.submit(&kept);
    event.wait_timeout(MINUTE).unwrap();
    assert_eq!(
        machine.out.read().unwrap(),
        [CallStatus::Pending.code(); 64]
    );
    machine.run(&collect);
    assert_eq!(
        machine.tickets.read().unwrap(),
        [CallStatus::Done.code(); 64]
    );
    assert_eq!(
        machine.out.read().unwrap(),
        (0..64).map(mix).collect::<Vec<_>>()
    );
}

fn waiting_for_a_function_that_takes_long_has_a_deadline(f: &Fixture) {
    let device = f.open(|options| options.live_memory = false);
    let (leave, told_to_leave) = mpsc::channel::<()>();
    let told_to_leave = Mutex::new(told_to_leave);
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", move |x: u32| {
            let _ = told_to_leave.lock().unwrap().recv_timeout(MINUTE);
            mix(x)
        })
        .start()
        .unwrap();
    let machine = Machine::new(&device, &services, 64);
    let event = machine.submit(&machine.kernel(BEGIN));
    let early = event.wait_timeout(Duration::from_millis(50));
    assert!(matches!(early, Err(WaitError::Deadline)), "{early:?}");
    // The launch itself has ended, and what it wrote can be read.
    assert_eq!(machine.out.read().unwrap(), [1; 64]);
    drop(leave);
    event.wait_timeout(MINUTE).unwrap();
    machine.run(&machine.kernel(COLLECT));
    assert_eq!(
        machine.out.read().unwrap(),
        (0..64).map(mix).collect::<Vec<_>>()
    );
}

fn stopped_services_answer_no_ticket(f: &Fixture) {
    for device in devices(f) {
        let services = serving(64).start().unwrap();
        let machine = Machine::new(&device, &services, 64);
        let (begin, collect) = (machine.kernel(BEGIN), machine.kernel(COLLECT));
        machine.run(&begin);
        assert_eq!(machine.collect_all(&collect), [CallStatus::Done.code(); 64]);
        services.stop();
        machine.run(&begin);
        assert_eq!(machine.out.read().unwrap(), [0; 64]);
        machine.run(&collect);
        assert_eq!(
            machine.tickets.read().unwrap(),
            [CallStatus::NoTicket.code(); 64]
        );
    }
}

fn refused_launches_lose_no_answers(f: &Fixture) {
    let device = f.open(|options| options.live_memory = false);
    let services = serving(64).start().unwrap();
    let machine = Machine::new(&device, &services, 64);
    machine.run(&machine.kernel(BEGIN));
    let collect = machine.kernel(COLLECT);
    // Of a grid that is too large: refused after everything else was made.
    let launch = collect
        .launch()
        .services(&services)
        .buffer("out", &machine.out);
    let mut launch = launch
        .buffer("tickets", &machine.tickets)
        .workgroups([1, u32::MAX, u32::MAX]);
    let error = launch.submit().unwrap_err();
    assert!(
        matches!(error, LaunchError::GridTooManyDispatches { .. }),
        "{error}"
    );
    machine.run(&collect);
    assert_eq!(
        machine.tickets.read().unwrap(),
        [CallStatus::Done.code(); 64]
    );
}

fn kernels_that_wait_inside_are_refused_where_they_cannot(f: &Fixture) {
    let device = f.open(|options| options.live_memory = false);
    let services = serving(64).start().unwrap();
    let machine = Machine::new(&device, &services, 64);
    let kernel =
        machine.kernel("out[id.x] = mix_try(id.x).value; tickets[id.x] = mix_begin(1u); }");
    let launch = kernel
        .launch()
        .services(&services)
        .buffer("out", &machine.out);
    let mut launch = launch.buffer("tickets", &machine.tickets).invocations(64);
    let error = launch.submit().unwrap_err();
    assert!(
        matches!(&error, LaunchError::NeedsLiveMemory { .. }),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("_begin") && text.contains("_collect"),
        "{text}"
    );
    assert_eq!(machine.out.read().unwrap(), [0xDEAD_BEEF; 64]);
}

fn garbage_in_the_ports_of_a_slice_harms_nobody(f: &Fixture) {
    let device = f.open(|options| options.live_memory = false);
    let services = serving(64).start().unwrap();
    let machine = Machine::new(&device, &services, 256);
    let hostile = machine.kernel(
        "// Never; but a program that calls nothing has no ports to spoil.
        if out[0] == 0u { out[0] = mix_begin(0u); tickets[0] = 0u; }
        let words = arrayLength(&tombolo_calls);
        var x = id.x * 2654435761u + 12345u;
        for (var i = 0u; i < 64u; i++) {
            x = x * 1664525u + 1013904223u;
            atomicStore(&tombolo_posts[16u + (x >> 8u) % (words - 16u)], x ^ (x << 13u));
        }
        out[id.x] = x;
    }",
    );
    for _ in 0..3 {
        machine.run(&hostile);
    }
    // Others are not touched, and the server is alive.
    let other = f.open(|options| options.live_memory = false);
    let honest = Machine::new(&other, &services, 64);
    honest.run(&honest.kernel(BEGIN));
    honest.run(&honest.kernel(COLLECT));
    assert_eq!(
        honest.out.read().unwrap(),
        (0..64).map(mix).collect::<Vec<_>>()
    );
    assert!(services.statistics().unknown + services.statistics().oversize > 0);
}

fn awaiting_a_launch_awaits_its_calls(f: &Fixture) {
    let device = f.open(|options| options.live_memory = false);
    let services = serving(64).start().unwrap();
    let machine = Machine::new(&device, &services, 64);
    let event = machine.submit(&machine.kernel(BEGIN));
    pollster::block_on(async { event.await }).unwrap();
    assert_eq!(services.statistics().functions[0].calls, 64);
    machine.run(&machine.kernel(COLLECT));
    assert_eq!(
        machine.out.read().unwrap(),
        (0..64).map(mix).collect::<Vec<_>>()
    );
}

/// The cases of calls and streams once more, on devices whose ports lie in two memories.
pub fn again() -> Vec<(String, impl Fn(&Fixture) + Clone + Send + 'static)> {
    let modules = [rpc::CASES, rpc_failures::CASES, rpc_streams::CASES];
    let cases = modules.into_iter().flatten().map(|case| {
        let run = move |f: &Fixture| {
            (case.run)(&Fixture {
                context: f.context.clone(),
                index: f.index,
                device: f.open(|options| options.unified_memory = Some(false)),
            });
        };
        let name = case.name.trim_start_matches("gpu::");
        (format!("rpc_split::{name}"), run)
    });
    cases.collect()
}
