//! Invocations of a subgroup that share packets: on devices with memory of their own, where one thread serves all calls.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bytemuck::{Pod, Zeroable};
use tombolo::calls::{CallStatistics, HostServicesBuilder};
use tombolo::device::Aspect;
use tombolo::server::CallError;
use tombolo::{Device, HostServices, PersistentKernel, Program};

use crate::cases;
use crate::harness::{Fixture, kernel_of, mix};
use crate::rpc::{HEAD, MINUTE};

cases![
    a_subgroup_posts_one_packet,
    several_threads_get_packets_of_their_own,
    calls_that_do_not_fit_take_several_packets,
    each_call_has_its_own_status,
    calls_without_words_are_counted,
    invocations_that_part_call_for_themselves,
    handlers_that_call_for_ever_are_ended,
];

/// Invocations of most of these launches.
const CALLERS: u32 = 4096;

/// The device as it is, and as one with memory of its own; with whether its invocations share packets.
fn devices(f: &Fixture) -> [(Device, bool); 2] {
    let devices = [
        f.open(|_| {}),
        f.open(|options| options.unified_memory = Some(false)),
    ];
    devices.map(|device| {
        let capabilities = device.capabilities();
        let is_apart = !capabilities.unified_memory && capabilities.live_memory();
        let shares = is_apart
            && device.has(Aspect::Subgroups)
            && !capabilities.needs_loop_guard()
            && capabilities.backend != tombolo::wgpu::Backend::Metal;
        (device, shares)
    })
}

fn mixing() -> HostServicesBuilder {
    HostServices::builder().call("fn mix(x: u32) -> u32", mix)
}

/// What a kernel writes into a word for each caller, and the counts of the only function.
fn called(device: &Device, services: &HostServices, body: &str) -> (Vec<u32>, CallStatistics) {
    let kernel = kernel_of(device, services, &format!("{HEAD} {body} }}"));
    let out = device.buffer(&vec![0xDEAD_BEEF; CALLERS as usize]).unwrap();
    let launch = kernel.launch().services(services).buffer("out", &out);
    let event = launch.invocations(CALLERS).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    let statistics = services.statistics().functions.remove(0);
    (out.read().unwrap(), statistics)
}

fn mixed() -> Vec<u32> {
    (0..CALLERS).map(mix).collect()
}

fn a_subgroup_posts_one_packet(f: &Fixture) {
    for (device, shares) in devices(f) {
        let services = mixing().start().unwrap();
        let (out, mix) = called(&device, &services, "out[id.x] = mix(id.x);");
        assert_eq!(out, mixed());
        assert_eq!(mix.calls, u64::from(CALLERS));
        assert_eq!(mix.bytes_in, u64::from(CALLERS) * 4);
        assert_eq!(mix.bytes_out, u64::from(CALLERS) * 4);
        let least = device.capabilities().subgroup_min_size.clamp(1, 32);
        match shares {
            true => assert!(mix.packets <= u64::from(CALLERS / least), "{mix:?}"),
            false => assert_eq!(mix.packets, mix.calls),
        }
    }
}

fn several_threads_get_packets_of_their_own(f: &Fixture) {
    for (device, _) in devices(f) {
        let services = mixing().threads(2).start().unwrap();
        let (out, mix) = called(&device, &services, "out[id.x] = mix(id.x);");
        assert_eq!(out, mixed());
        assert_eq!((mix.calls, mix.packets), (CALLERS.into(), CALLERS.into()));
    }
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct Wide {
    words: [u32; 48],
}

fn calls_that_do_not_fit_take_several_packets(f: &Fixture) {
    // Two calls of 48 words fit in what ports have at most for packets that are shared.
    let sum = |wide: Wide| {
        let words = wide.words.iter();
        (words.zip(0u32..)).fold(0u32, |sum, (&word, at)| sum.wrapping_add(mix(word ^ at)))
    };
    let of = |caller: u32| {
        let words = std::array::from_fn(|at| caller.wrapping_mul(77).wrapping_add(at as u32 * 13));
        sum(Wide { words })
    };
    for (device, shares) in devices(f) {
        let services = HostServices::builder()
            .call("fn sum(wide: Wide) -> u32", sum)
            .start()
            .unwrap();
        let source = format!(
            "struct Wide {{ words: array<u32, 48> }}
            {HEAD}
                var wide: Wide;
                for (var at = 0u; at < 48u; at++) {{ wide.words[at] = id.x * 77u + at * 13u; }}
                out[id.x] = sum(wide);
            }}"
        );
        let kernel = kernel_of(&device, &services, &source);
        let out = device.buffer(&vec![0u32; CALLERS as usize]).unwrap();
        let launch = kernel.launch().services(&services).buffer("out", &out);
        let event = launch.invocations(CALLERS).submit().unwrap();
        event.wait_timeout(MINUTE).unwrap();
        assert_eq!(
            out.read().unwrap(),
            (0..CALLERS).map(of).collect::<Vec<_>>()
        );
        let sum = services.statistics().functions.remove(0);
        assert_eq!(sum.calls, u64::from(CALLERS));
        let calls = if shares { 2 } else { 1 };
        assert!(sum.packets >= u64::from(CALLERS) / calls, "{sum:?}");
    }
}

fn each_call_has_its_own_status(f: &Fixture) {
    let touchy = |x: u32| {
        assert!(x % 7 != 3, "on purpose");
        mix(x)
    };
    for (device, _) in devices(f) {
        let services = HostServices::builder()
            .call("fn touchy(x: u32) -> u32", touchy)
            .start()
            .unwrap();
        let (out, touchy) = called(
            &device,
            &services,
            "let reply = touchy_try(id.x);
            out[id.x] = select(reply.value, 1u, reply.status == CALL_PANICKED && reply.value == 0u);",
        );
        let expected = (0..CALLERS).map(|x| if x % 7 == 3 { 1 } else { mix(x) });
        assert_eq!(out, expected.collect::<Vec<_>>());
        let failing = (0..CALLERS).filter(|x| x % 7 == 3).count() as u64;
        assert_eq!((touchy.calls, touchy.panics), (CALLERS.into(), failing));
    }
}

fn calls_without_words_are_counted(f: &Fixture) {
    for (device, _) in devices(f) {
        let count = Arc::new(AtomicU32::new(0));
        let counting = Arc::clone(&count);
        let services = HostServices::builder()
            .call("fn hello()", move || {
                counting.fetch_add(1, Ordering::Relaxed);
            })
            .start()
            .unwrap();
        let (out, hello) = called(&device, &services, "hello(); out[id.x] = id.x;");
        assert_eq!(out, (0..CALLERS).collect::<Vec<_>>());
        assert_eq!(count.load(Ordering::Relaxed), CALLERS);
        assert_eq!((hello.bytes_in, hello.bytes_out), (0, 0));
    }
}

fn invocations_that_part_call_for_themselves(f: &Fixture) {
    // Of each caller as many calls as its index says, from different places; each value is seen once.
    let rounds = |caller: u32| caller.wrapping_mul(7) % 5;
    for (device, _) in devices(f) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let seeing = Arc::clone(&seen);
        let services = HostServices::builder()
            .call("fn see(x: u32) -> u32", move |x: u32| {
                seeing.lock().unwrap().push(x);
                mix(x)
            })
            .start()
            .unwrap();
        let (out, see) = called(
            &device,
            &services,
            "var sum = 0u;
            for (var i = 0u; i < id.x * 7u % 5u; i++) {
                if (id.x + i) % 3u == 0u {
                    sum += see(id.x * 8u + i);
                } else if (id.x + i) % 3u == 1u {
                    sum ^= see(id.x * 8u + i);
                    continue;
                }
                if id.x % 11u == 2u { break; }
            }
            out[id.x] = sum;",
        );
        let (mut expected, mut calls) = (Vec::new(), Vec::new());
        for caller in 0..CALLERS {
            let mut sum = 0u32;
            for i in 0..rounds(caller) {
                let x = caller * 8 + i;
                match (caller + i) % 3 {
                    0 => sum = sum.wrapping_add(mix(x)),
                    1 => sum ^= mix(x),
                    _ => {}
                }
                calls.extend(((caller + i) % 3 != 2).then_some(x));
                if (caller + i) % 3 != 1 && caller % 11 == 2 {
                    break;
                }
            }
            expected.push(sum);
        }
        assert_eq!(out, expected);
        let mut seen = seen.lock().unwrap().clone();
        seen.sort_unstable();
        calls.sort_unstable();
        assert_eq!(seen, calls);
        assert_eq!(see.calls, calls.len() as u64);
    }
}

fn handlers_that_call_for_ever_are_ended(f: &Fixture) {
    for (device, _) in devices(f) {
        let services = HostServices::builder()
            .call("fn same(x: u32) -> u32", |x: u32| x)
            .start()
            .unwrap();
        let program = Program::builder()
            .source(
                "server.wgsl",
                "fn spin(x: u32) -> u32 {
                    var y = x;
                    loop { y = same(y); if y != x { break; } }
                    return y;
                }
                fn next(x: u32) -> u32 { return same(x) + 1u; }",
            )
            .services(&services)
            .build()
            .unwrap();
        let builder = PersistentKernel::builder(&device, &program).services(&services);
        let server = builder.handler("spin").handler("next").turns(100);
        let server = server.start().unwrap();
        let spin = server.function::<(u32,), u32>("spin").unwrap();
        let next = server.function::<(u32,), u32>("next").unwrap();
        for x in 0..3 {
            let error = spin.call_timeout(&(x,), MINUTE).unwrap_err();
            // Where turns are rationed waiting for the host may take them all.
            let is_rationed = device.capabilities().needs_loop_guard();
            assert!(
                is_rationed || matches!(error, CallError::TooManyTurns { .. }),
                "{error}"
            );
            assert_eq!(next.call_timeout(&(x,), MINUTE).unwrap(), x + 1);
        }
    }
}
