use super::super::builder::{HostServicesBuilder, LEAST_PAYLOAD};
use super::super::error::ServiceError;
use super::super::idle::IdlePolicy;
use super::super::port::protocol::CallStatus;
use super::*;
use crate::rpc::port::layout::PREFIX;
use std::time::Duration;

mod refusals;

const MINUTE: Duration = Duration::from_secs(60);

fn arithmetic() -> HostServicesBuilder {
    HostServices::builder()
        .call("fn sum(a: u32, b: u32) -> u32", |a: u32, b: u32| {
            a.wrapping_add(b)
        })
        .call(
            "fn scale(v: vec3<f32>, by: f32) -> vec3<f32>",
            |v: [f32; 3], by: f32| v.map(|x| x * by),
        )
        .call("fn note(x: i32)", |_: i32| ())
        .call("fn fail()", || -> () { panic!("on purpose") })
}

#[test]
fn functions_are_served() {
    let services = arithmetic().start().unwrap();
    let mut loopback = services.loopback().unwrap();
    assert_eq!(loopback.call("sum", &[2, u32::MAX], MINUTE), Ok(vec![1]));
    let bits = |values: [f32; 4]| values.map(f32::to_bits);
    let scaled = loopback
        .call("scale", &bits([1.0, 2.0, 3.0, 0.5]), MINUTE)
        .unwrap();
    assert_eq!(scaled, bits([0.5, 1.0, 1.5, 0.0])[..3]);
    assert_eq!(loopback.call("note", &[7], MINUTE), Ok(vec![]));
}

/// The payload of a function's panic may itself panic when dropped; the one serving thread lives on.
#[test]
fn panics_may_panic_when_they_are_dropped() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(Bomb));
        }
    }
    let services = HostServices::builder()
        .call("fn bomb()", || -> () {
            std::panic::resume_unwind(Box::new(Bomb))
        })
        .call("fn sum(a: u32, b: u32) -> u32", u32::wrapping_add)
        .start()
        .unwrap();
    let mut loopback = services.loopback().unwrap();
    for _ in 0..3 {
        assert_eq!(
            loopback.call("bomb", &[], MINUTE),
            Err(CallStatus::Panicked)
        );
        assert_eq!(loopback.call("sum", &[1, 2], MINUTE), Ok(vec![3]));
    }
}

#[test]
fn groups_are_served_and_hostile_ones_refused() {
    use crate::kernel::calls::{GROUP, opcode};
    let services = HostServices::builder()
        .call("fn sum(a: u32, b: u32) -> u32", u32::wrapping_add)
        .call("fn touchy(x: u32)", |x: u32| assert_ne!(x, 3, "on purpose"))
        .call("fn ring()", || ())
        .start()
        .unwrap();
    let mut loopback = services.loopback().unwrap();
    let mut call = |name: &str, words: &[u32]| {
        let count = words.first().map_or(0, |&count| count.min(4)) as usize;
        let each = if name == "sum" { 2 } else { 1 };
        loopback.exchange(opcode(name) ^ GROUP, words, count * each, MINUTE)
    };
    let done = CallStatus::Done.code();
    assert_eq!(
        call("sum", &[3, 1, 2, 3, 4, 5, 6]),
        Ok(vec![done, 3, done, 7, done, 11])
    );
    let panicked = CallStatus::Panicked.code();
    assert_eq!(
        call("touchy", &[3, 2, 3, 4]),
        Ok(vec![done, panicked, done])
    );
    assert_eq!(call("ring", &[4]), Ok(vec![done; 4]));
    assert_eq!(call("sum", &[0]), Ok(vec![]));
    // Counts not fitting the length, and many times nothing.
    let hostile: [(&str, &[u32]); 8] = [
        ("sum", &[]),
        ("sum", &[2, 1, 2, 3]),
        ("sum", &[1, 1, 2, 3]),
        ("sum", &[u32::MAX, 1, 2]),
        ("sum", &[0x8000_0001, 1, 2]),
        ("ring", &[u32::MAX]),
        ("ring", &[20_000]),
        ("ring", &[1, 1]),
    ];
    for (name, words) in hostile {
        assert_eq!(
            call(name, words),
            Err(CallStatus::Malformed),
            "{name} {words:?}"
        );
    }
    let statistics = services.statistics();
    let of = |name| {
        statistics
            .functions
            .iter()
            .find(|f| f.name == name)
            .unwrap()
    };
    assert_eq!((of("sum").calls, of("sum").malformed), (3, 5));
    assert_eq!((of("touchy").calls, of("touchy").panics), (3, 1));
    assert_eq!(of("ring").calls, 4);
}

#[test]
fn what_cannot_be_served_is_a_status() {
    let services = arithmetic().start().unwrap();
    let mut loopback = services.loopback().unwrap();
    assert_eq!(
        loopback.call("product", &[2, 3], MINUTE),
        Err(CallStatus::Unknown)
    );
    assert_eq!(
        loopback.call("sum", &[2], MINUTE),
        Err(CallStatus::Malformed)
    );
    assert_eq!(
        loopback.call("fail", &[], MINUTE),
        Err(CallStatus::Panicked)
    );
    assert_eq!(
        loopback.call("sum", &[2; 100], MINUTE),
        Err(CallStatus::Malformed)
    );
    // The ports go on.
    assert_eq!(loopback.call("sum", &[2, 3], MINUTE), Ok(vec![5]));
    let statistics = services.statistics();
    assert_eq!(statistics.unknown, 1);
    let of = |name| {
        statistics
            .functions
            .iter()
            .find(|f| f.name == name)
            .unwrap()
    };
    assert_eq!((of("sum").calls, of("sum").malformed), (1, 1));
    assert_eq!((of("sum").bytes_in, of("sum").bytes_out), (8, 4));
    assert_eq!((of("fail").calls, of("fail").panics), (1, 1));
    assert_eq!(of("sum").latency.iter().sum::<u64>(), 1);
    assert!(of("sum").latency_quantile(0.5).is_some());
}

#[test]
fn many_threads_call_at_once_and_nothing_is_lost() {
    let services = arithmetic().threads(2).ports(8).start().unwrap();
    let loopback = services.loopback().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let mut loopback = loopback.spread(thread as usize);
            scope.spawn(move || {
                for round in 0..500u32 {
                    let got = loopback.call("sum", &[thread * 1000, round], MINUTE);
                    assert_eq!(got, Ok(vec![thread * 1000 + round]));
                }
            });
        }
    });
    assert_eq!(services.statistics().functions[0].calls, 3000);
}

#[test]
fn stopped_services_answer_nobody_and_hold_nobody() {
    let services = arithmetic().start().unwrap();
    let mut loopback = services.loopback().unwrap();
    assert_eq!(loopback.call("sum", &[1, 2], MINUTE), Ok(vec![3]));
    services.stop();
    services.stop();
    assert_eq!(
        loopback.call("sum", &[1, 2], MINUTE),
        Err(CallStatus::Stopped)
    );
    // Also ports made afterwards.
    assert_eq!(
        services.loopback().unwrap().call("sum", &[1, 2], MINUTE),
        Err(CallStatus::Stopped)
    );
}

#[test]
fn stopping_waits_for_the_call_that_is_being_served() {
    let (entered, wait_for_entry) = std::sync::mpsc::channel();
    let (leave, told_to_leave) = std::sync::mpsc::channel();
    let ended = Arc::new(AtomicBool::new(false));
    let (entered, told_to_leave) = (Mutex::new(entered), Mutex::new(told_to_leave));
    let flag = Arc::clone(&ended);
    let slow = move || {
        entered.lock().unwrap().send(()).unwrap();
        told_to_leave.lock().unwrap().recv_timeout(MINUTE).unwrap();
        flag.store(true, Ordering::Release);
    };
    let services = HostServices::builder()
        .call("fn slow()", slow)
        .start()
        .unwrap();
    let mut loopback = services.loopback().unwrap();
    let caller = std::thread::spawn(move || loopback.call("slow", &[], MINUTE));
    wait_for_entry.recv_timeout(MINUTE).unwrap();
    std::thread::scope(|scope| {
        let stopper = scope.spawn(|| services.stop());
        assert!(!ended.load(Ordering::Acquire));
        leave.send(()).unwrap();
        stopper.join().unwrap();
    });
    assert!(ended.load(Ordering::Acquire));
    let status = caller.join().unwrap();
    assert!(
        matches!(status, Ok(_) | Err(CallStatus::Stopped)),
        "{status:?}"
    );
}

#[test]
fn a_call_that_nobody_serves_in_time_says_so() {
    let (leave, told_to_leave) = std::sync::mpsc::channel::<()>();
    let told_to_leave = Mutex::new(told_to_leave);
    let slow = move || {
        let _ = told_to_leave.lock().unwrap().recv_timeout(MINUTE);
    };
    let services = HostServices::builder()
        .call("fn slow()", slow)
        .start()
        .unwrap();
    let mut loopback = services.loopback().unwrap();
    assert_eq!(
        loopback.call("slow", &[], Duration::ZERO),
        Err(CallStatus::TimedOut)
    );
    drop(leave);
}

#[test]
fn sizes_are_what_was_asked_for() {
    let services = arithmetic().ports(7).payload(1000).start().unwrap();
    let _loopback = services.loopback().unwrap();
    let pad = |bytes: u64| bytes.next_multiple_of(64);
    let bytes = 64 + 3 * pad(28) + 14 * pad(1016);
    assert_eq!(services.statistics().port_bytes, bytes);
    assert_eq!(services.port_bytes(7), bytes);
    // The shortest port: prefix and payload are two cache lines a direction.
    let services = arithmetic().start().unwrap();
    assert_eq!(services.port_bytes(1), 64 + 3 * 64 + 2 * 128);
    const { assert!(PREFIX * 4 + LEAST_PAYLOAD == 128) };
}

#[test]
fn idle_servers_wake_for_calls() {
    // The server threads go to sleep at once, and for an hour.
    let hour = Duration::from_secs(3600);
    let idle = IdlePolicy::new().looks(0).sleeps(hour, hour);
    let services = arithmetic().idle(idle).start().unwrap();
    let mut loopback = services.loopback().unwrap();
    for round in 0..20 {
        assert_eq!(
            loopback.call("sum", &[round, 1], MINUTE),
            Ok(vec![round + 1])
        );
    }
}

/// A call begun in one mailbox could not be collected in the other.
#[test]
fn an_owner_has_one_mailbox_however_many_are_made() {
    let services = arithmetic().start().unwrap();
    let owners = [Arc::new(()), Arc::new(())];
    let mailbox = |at: usize| {
        let owner = Arc::downgrade(&owners[at]);
        services.shared.host_mailbox(owner).unwrap()
    };
    let (first, other) = (mailbox(0), mailbox(1));
    assert!(Arc::ptr_eq(&first, &mailbox(0)));
    assert!(!Arc::ptr_eq(&first, &other));
    assert!(Arc::ptr_eq(&other, &mailbox(1)));
}

/// As on a page, without threads.
#[test]
fn calls_of_launches_are_served_by_whoever_awaits_them() {
    use crate::device::hooks;
    use crate::{Constants, Context, DeviceOptions, Program};
    use std::sync::atomic::AtomicU32;

    let _alone = hooks::alone();
    let sum = Arc::new(AtomicU32::new(0));
    let (seen, here) = (Arc::clone(&sum), std::thread::current().id());
    let services = HostServices::builder()
        .call("fn note(x: u32)", move |x: u32| {
            assert_eq!(std::thread::current().id(), here);
            seen.fetch_add(x, Ordering::Relaxed);
        })
        .call("fn square(x: u32) -> u32", |x: u32| x * x)
        .start_with(true)
        .unwrap();
    let source = "
        @group(0) @binding(0) var<storage, read_write> tickets: array<u32>;
        @group(0) @binding(1) var<storage, read_write> squares: array<u32>;
        @compute @workgroup_size(16) fn begin(@builtin(local_invocation_index) i: u32) {
            note_post(i + 1u);
            tickets[i] = square_begin(i);
        }
        @compute @workgroup_size(16) fn collect(@builtin(local_invocation_index) i: u32) {
            let reply = square_collect(tickets[i]);
            if reply.status == CALL_DONE { squares[i] = reply.value; }
        }";
    let program = Program::builder().source("here.wgsl", source);
    let program = program.services(&services).build().unwrap();
    for adapter in Context::new().unwrap().adapters() {
        let options = DeviceOptions {
            live_memory: false,
            wait: crate::device::WaitPolicy::Never,
            ..DeviceOptions::default()
        };
        let device = Context::new().unwrap();
        let device = device.device_at_with(adapter.index, options).unwrap();
        sum.store(0, Ordering::Relaxed);
        let (tickets, squares) = (
            device.buffer(&[u32::MAX; 16]).unwrap(),
            device.buffer(&[u32::MAX; 16]).unwrap(),
        );
        for entry in ["begin", "collect"] {
            let kernel = device.kernel(&program, entry, &Constants::new()).unwrap();
            let names = kernel.interface().arguments.iter().map(|a| a.name.clone());
            let mut launch = kernel.launch().services(&services).workgroups(1);
            for name in names.collect::<Vec<_>>() {
                launch = match &*name {
                    "tickets" => launch.buffer("tickets", &tickets),
                    _ => launch.buffer("squares", &squares),
                };
            }
            pollster::block_on(launch.submit().unwrap()).unwrap();
            assert_eq!(sum.load(Ordering::Relaxed), 136, "{}", adapter.name);
        }
        let expected: Vec<u32> = (0..16).map(|i| i * i).collect();
        let squares = pollster::block_on(squares.read_back(..).unwrap()).unwrap();
        assert_eq!(squares, expected, "{}", adapter.name);
    }
}

/// Remains at the ports of a dropped device: the device's driver may be entered when the last hold of the device goes,
/// and a thread awaited by kernels of other devices must not enter the driver.
#[test]
fn threads_that_serve_let_go_of_ports_elsewhere() {
    struct Left(std::sync::mpsc::Sender<Option<String>>);
    impl crate::calls::CallStream for Left {
        type Output = u32;
        fn put(&mut self, _: &[u32]) {}
        fn get(&mut self, _: usize, _: &mut Vec<u32>) {}
        fn close(self) -> u32 {
            0
        }
    }
    impl Drop for Left {
        fn drop(&mut self) {
            let _ = self
                .0
                .send(std::thread::current().name().map(str::to_owned));
        }
    }
    let (tell, told) = std::sync::mpsc::channel();
    let services = HostServices::builder()
        .stream("fn left() -> u32", move || Left(tell.clone()))
        .start()
        .unwrap();
    let mut gone = services.loopback().unwrap();
    gone.exchange(crate::kernel::calls::opcode("left"), &[], 0, MINUTE)
        .unwrap();
    drop(gone);
    // The next client has the ports forgotten.
    let _next = services.loopback().unwrap();
    let thread = told.recv_timeout(MINUTE).unwrap();
    assert!(
        !thread
            .as_ref()
            .is_some_and(|name| name.starts_with("tombolo calls")),
        "{thread:?}"
    );
}
