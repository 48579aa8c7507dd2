//! Urgent calls go before others. A function of the host, called by a handler, posts what waits behind it.

use std::sync::{Arc, Mutex, mpsc};

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::{MINUTE, MIX, Mixer, builder, is_sliced, mix, start, untimed};
use tombolo::{
    HostServices, PersistentKernel, Program,
    server::{DeviceFunction, PendingCall, ServerError},
};

cases![
    urgent_calls_are_served_first,
    urgent_calls_come_between_others,
    urgent_and_other_calls_are_each_answered,
    urgent_calls_need_ports,
];

type Note = DeviceFunction<(u32,), u32>;

const SOURCE: &str = "
    var<storage, read_write> next_note: atomic<u32>;
    @group(0) @binding(0) var<storage, read_write> order: array<u32>;
    fn write(x: u32) { order[atomicAdd(&next_note, 1u)] = x; }
    // One that calls the host, which posts others.
    fn hold(x: u32) -> u32 { write(x); return meanwhile(x); }
    fn note(x: u32) -> u32 { write(x); return x; }
    fn hold_together(lane: u32, x: u32) -> u32 {
        if lane == 0u { write(x); return meanwhile(x); }
        return 0u;
    }
    fn note_together(lane: u32, x: u32) -> u32 { if lane == 0u { write(x); } return x; }";

/// The order in which calls are served: of those posted while the call 1000 holds the server, and, if `between`, of an
/// urgent one more behind each of them.
fn order(f: &Fixture, together: bool, between: bool) -> Vec<u32> {
    const CALLS: u32 = 6;
    let device = f.open_alone(|_| {});
    let functions: Arc<Mutex<Option<[Note; 2]>>> = Arc::default();
    let (sender, receiver) = mpsc::channel();
    let own = Arc::clone(&functions);
    let services = HostServices::builder().call("fn meanwhile(x: u32) -> u32", move |x: u32| {
        let [ordinary, urgent] = own.lock().unwrap().clone().unwrap();
        let posted: Vec<PendingCall<u32>> = match x {
            1000 => {
                let ordinary = (0..CALLS).map(|x| ordinary.begin(&(x,)));
                ordinary.chain([urgent.begin(&(2000,))]).collect()
            }
            x if x < CALLS => vec![urgent.begin(&(3000 + x,))],
            _ => Vec::new(),
        };
        sender.send(posted).unwrap();
        x
    });
    let services = services.start().unwrap();
    let program = Program::builder()
        .source("server.wgsl", SOURCE)
        .services(&services);
    let order = device.buffer(&[u32::MAX; 32]).unwrap();
    let server = PersistentKernel::builder(&device, &program.build().unwrap()).services(&services);
    let server = match together {
        false => server.handler("hold").handler("note").lanes(1),
        true => server
            .group_handler("hold_together")
            .group_handler("note_together")
            .group_size(8),
    };
    // A lease that is asked to leave gets no calls, which would be posted in the order in which they are waited for.
    let server = server.leases(untimed(&device));
    let server = start(server.ports(16).urgent_ports(8).buffer("order", &order));
    let name = |name: &str| {
        if together {
            format!("{name}_together")
        } else {
            name.to_owned()
        }
    };
    let hold: Note = server.function(&name("hold")).unwrap();
    let note: Note = server.function(&name("note")).unwrap();
    let behind = if between { hold.clone() } else { note.clone() };
    *functions.lock().unwrap() = Some([behind, note.urgent().unwrap()]);
    assert_eq!(hold.call_timeout(&(1000,), MINUTE).unwrap(), 1000);
    let mut messages = if between { CALLS + 1 } else { 1 };
    while messages > 0 {
        messages -= 1;
        for call in receiver.recv_timeout(MINUTE).unwrap() {
            call.wait_timeout(MINUTE).unwrap();
        }
    }
    server.stop();
    let order = order.read().unwrap().into_iter();
    order.take_while(|&x| x != u32::MAX).collect()
}

fn urgent_calls_are_served_first(f: &Fixture) {
    if is_sliced(&f.device) {
        return;
    }
    for together in [false, true] {
        let order = order(f, together, false);
        assert_eq!(order[..2], [1000, 2000], "{together}: {order:?}");
        let mut rest = order[2..].to_vec();
        rest.sort_unstable();
        assert_eq!(rest, [0, 1, 2, 3, 4, 5]);
    }
}

fn urgent_calls_come_between_others(f: &Fixture) {
    if is_sliced(&f.device) {
        return;
    }
    for together in [false, true] {
        let order = order(f, together, true);
        assert_eq!(order[..2], [1000, 2000], "{together}: {order:?}");
        let behind = order[2..].chunks(2);
        assert_eq!(behind.len(), 6, "{order:?}");
        for pair in behind {
            assert_eq!(pair[1], 3000 + pair[0], "{order:?}");
        }
    }
}

fn urgent_and_other_calls_are_each_answered(f: &Fixture) {
    let open = |split: bool| f.open(|options| options.unified_memory = split.then_some(false));
    for (groups, split, calls) in [(1, false, 200), (3, false, 100), (2, true, 60)] {
        let builder = builder(&open(split), MIX)
            .handler("mix")
            .work_groups(groups);
        let server = start(builder.ports(7).urgent_ports(2));
        let function: Mixer = server.function("mix").unwrap();
        let urgent = function.urgent().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..6u32 {
                let function = if thread % 2 == 0 { &function } else { &urgent };
                scope.spawn(move || {
                    for i in 0..calls {
                        let result = function.call_timeout(&(thread, i), MINUTE).unwrap();
                        assert_eq!(result, mix(thread, i));
                        let begun: Vec<_> = (0..3).map(|k| function.begin(&(i, k))).collect();
                        for (call, k) in begun.into_iter().zip(0..) {
                            assert_eq!(call.wait_timeout(MINUTE).unwrap(), mix(i, k));
                        }
                    }
                    let many: Vec<_> = (0..100).map(|i| (thread, i)).collect();
                    let expected = many.iter().map(|&(x, y)| mix(x, y));
                    assert!(expected.eq(function.call_all(&many).unwrap()));
                });
            }
        });
        assert!(server.failure().is_none());
    }
}

fn urgent_calls_need_ports(f: &Fixture) {
    let server = start(builder(&f.device, MIX).handler("mix"));
    let function: Mixer = server.function("mix").unwrap();
    let refused = function.urgent();
    assert!(
        matches!(refused, Err(ServerError::NoUrgentPorts)),
        "{refused:?}"
    );
    let server = builder(&f.device, MIX)
        .handler("mix")
        .urgent_ports(1 << 15)
        .start();
    assert!(
        matches!(server, Err(ServerError::Ports { .. })),
        "{server:?}"
    );
}
