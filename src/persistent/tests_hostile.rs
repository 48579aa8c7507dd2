//! Devices writing values no server writes: real kernels, spoiled before compilation, on every adapter, with ports in a
//! single memory and in two, for handlers of a single invocation and of whole work-groups. Whatever such devices write,
//! every call has the right answer or a true error, nothing hangs, the rest of the device goes on, and the server
//! starts again.

use std::time::{Duration, Instant};

use futures::FutureExt as _;

use super::frame::places;
use super::tests_evil::*;
use crate::context::Context;
use crate::device::{Device, DeviceOptions, hooks};
use crate::kernel::{Constants, Program};
use crate::memory::DeviceBuffer;
use crate::persistent::{
    CallError, DeviceFunction, LeasePolicy, PendingCall, PersistentKernel, PersistentKernelBuilder,
    ServerError, ServerFailure,
};
use crate::rpc::port::words::Words as _;

const MINUTE: Duration = Duration::from_secs(60);
/// How long an unending lease is waited for.
const WAIT: Duration = Duration::from_millis(300);
pub(super) const PORTS: usize = 8;

type Next = DeviceFunction<(u32,), u32>;

impl Evil {
    /// Whether the failure is told of the server, also where nobody calls any more.
    fn fails_the_server(self) -> bool {
        matches!(
            self,
            Silent | Ahead | Others | TakesNext | Requests | Hides | NoDone | OtherDone | Blind
        )
    }

    /// Whether calls and server may end like that.
    fn explains(
        self,
        sealed: bool,
        has_loop_budget: bool,
        error: Option<&CallError>,
        failure: Option<&ServerFailure>,
    ) -> bool {
        let garbled = |part: &str| match (error, failure) {
            (None | Some(CallError::Server { .. }), Some(ServerFailure::Garbled { what, .. })) => {
                what.contains(part)
            }
            _ => false,
        };
        let unknown = |wanted| match (error, failure) {
            (Some(CallError::Malformed { status, .. }), None) => *status == wanted,
            _ => false,
        };
        let unsealed = matches!((error, failure), (Some(CallError::Garbled { .. }), None));
        match self {
            Status => unknown(77),
            FailedNever if sealed => unsealed,
            FailedNever | FailedNow => unknown(13),
            Silent | TakesNext => garbled("taken, and not answered"),
            Hides => garbled("written over"),
            Ahead | Others | Requests => garbled("nobody has posted"),
            Seal if sealed => unsealed,
            NoDone | OtherDone => matches!(
                (error, failure),
                (
                    None | Some(CallError::Server { .. }),
                    Some(ServerFailure::LeaseKilled { .. })
                )
            ),
            Blind => garbled("left"),
            // There the driver ends the lease.
            BeatsForEver | ForEver if has_loop_budget && failure.is_none() => error.is_none(),
            BeatsForEver | ForEver => {
                matches!(error, Some(CallError::Server { .. }))
                    && (has_loop_budget
                        || matches!(failure, Some(ServerFailure::LeaseStuck { .. })))
            }
            Nothing | Seal | Header | NoBeat | EarlyDone => error.is_none() && failure.is_none(),
        }
    }
}

const SERVER: &str = "fn next(x: u32) -> u32 { return x + 1u; }
    fn together(lane: u32, x: u32) -> u32 { return x + 1u; }";

/// As a polling caller.
fn answer(mut call: PendingCall<u32>) -> Result<u32, CallError> {
    let begun = Instant::now();
    loop {
        if let Some(result) = (&mut call).now_or_never() {
            return result;
        }
        assert!(begun.elapsed() < MINUTE, "a call is not answered");
        std::thread::yield_now();
    }
}

/// Servers on the same device: a spoiled one, and a sound one; and a kernel.
struct Bed {
    device: Device,
    spoiled: PersistentKernel,
    next: Next,
    _honest: PersistentKernel,
    other: Next,
    sums: DeviceBuffer<u32>,
    add: crate::launch::Launch,
    adds: u32,
}

fn builder(device: &Device, together: bool) -> PersistentKernelBuilder {
    let program = Program::new("server.wgsl", SERVER).unwrap();
    let builder = PersistentKernel::builder(device, &program);
    match together {
        true => builder.group_handler("together").group_size(8),
        false => builder.handler("next"),
    }
}

fn spoiled(device: &Device, together: bool, stuck: Duration) -> (PersistentKernel, Next) {
    let policy = LeasePolicy::of(device.capabilities());
    let policy = policy.time(Duration::from_millis(5)).stuck(stuck);
    let mut server = builder(device, together).ports(PORTS).leases(policy);
    server.spoil = Some(spoil);
    let server = server.start().unwrap_or_else(|error| panic!("{error}"));
    let name = if together { "together" } else { "next" };
    let next = server.function(name).unwrap();
    (server, next)
}

impl Bed {
    fn new(device: Device, together: bool) -> Self {
        // Drivers compile when a kernel is launched first.
        let (spoiled, next) = spoiled(&device, together, MINUTE);
        let honest = builder(&device, false).start().unwrap();
        let add = "@group(0) @binding(0) var<storage, read_write> sums: array<u32>;
            @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                sums[id.x] = sums[id.x] * 3u + id.x;
            }";
        let program = Program::new("ordinary.wgsl", add).unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let sums = device.buffer(&[1u32; 64]).unwrap();
        Self {
            next,
            other: honest.function("next").unwrap(),
            add: kernel.launch().buffer("sums", &sums).invocations(64),
            _honest: honest,
            device,
            spoiled,
            sums,
            adds: 0,
        }
    }

    fn does(&self, evil: Evil) {
        let frame = &self.spoiled.core.frame;
        let at = evil_at(&places(frame.layout(), 1));
        frame.words().store(at, evil as u32);
    }

    /// The rest of the device: a kernel with a checked result, and another server.
    fn goes_on(&mut self, what: &str) {
        self.adds += 1;
        self.add.submit().unwrap().wait_timeout(MINUTE).unwrap();
        let expected: Vec<u32> = (0..64)
            .map(|i| (0..self.adds).fold(1u32, |sum, _| sum.wrapping_mul(3).wrapping_add(i)))
            .collect();
        assert_eq!(self.sums.read().unwrap(), expected, "{what}");
        assert_eq!(
            self.other.call_timeout(&(self.adds,), MINUTE).unwrap(),
            self.adds + 1,
            "{what}"
        );
    }

    /// Calls until a call fails, or the server; the outcome of both.
    fn call(&self, evil: Evil) -> (Option<CallError>, Option<ServerFailure>) {
        let calls = |thread: u32| {
            (0..40).find_map(|i| {
                let x = thread * 1000 + i;
                let result = match thread {
                    0 => answer(self.next.begin(&(x,))),
                    _ => self.next.call_timeout(&(x,), MINUTE),
                };
                match result {
                    Ok(answer) => assert_eq!(answer, x + 1, "{evil:?}"),
                    Err(error) => return Some(error),
                }
                // Leases end, and begin.
                if i % 4 == 3 && !matches!(evil, BeatsForEver | ForEver) {
                    self.device.finish().unwrap();
                }
                None
            })
        };
        let error = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|thread| scope.spawn(move || calls(thread)))
                .collect();
            (threads.into_iter()).fold(None, |known, thread| thread.join().unwrap().or(known))
        });
        if evil.fails_the_server() {
            let begun = Instant::now();
            while self.spoiled.failure().is_none() {
                assert!(
                    begun.elapsed() < MINUTE,
                    "{evil:?}: the server does not fail"
                );
                std::thread::yield_now();
            }
        }
        (
            error,
            self.spoiled.failure().map(|failure| (*failure).clone()),
        )
    }

    /// Does what it should again.
    fn recovers(&mut self, evil: Evil) {
        self.does(Nothing);
        let begun = Instant::now();
        loop {
            assert!(
                begun.elapsed() < MINUTE,
                "{evil:?}: the server does not start again"
            );
            match self.spoiled.restart() {
                Ok(()) => {}
                Err(ServerError::StillStuck { .. }) => continue,
                Err(error) => panic!("{evil:?}: {error}"),
            }
            match self.next.call_timeout(&(41,), MINUTE) {
                Ok(answer) => break assert_eq!(answer, 42, "{evil:?}"),
                // A busy machine may take a lease for stuck again, and a lease's last deeds may be seen late.
                Err(CallError::Server { .. } | CallError::Garbled { .. }) => {}
                Err(error) => panic!("{evil:?}: {error}"),
            }
        }
    }
}

fn devices(context: &Context) -> impl Iterator<Item = (Device, bool)> {
    let all = context.adapters().into_iter().flat_map(|adapter| {
        [None, Some(false)].map(|unified_memory| (adapter.index, unified_memory))
    });
    all.map(|(index, unified_memory)| {
        let options = DeviceOptions {
            unified_memory,
            ..DeviceOptions::default()
        };
        let device = context.device_at_with(index, options).unwrap();
        let sealed = device.capabilities().splits_ports();
        (device, sealed)
    })
}

#[test]
fn whatever_a_kernel_writes_everybody_is_told_and_the_device_goes_on() {
    let _alone = hooks::alone();
    let context = Context::new().unwrap();
    for together in [false, true] {
        for (device, sealed) in devices(&context) {
            let has_loop_budget = device.capabilities().loop_budget().is_some();
            let mut bed = Bed::new(device, together);
            for evil in EVILS {
                if evil == BeatsForEver {
                    // From here on leases are waited for.
                    (bed.spoiled, bed.next) = spoiled(&bed.device, together, WAIT);
                }
                bed.does(evil);
                let (error, failure) = bed.call(evil);
                assert!(
                    evil.explains(sealed, has_loop_budget, error.as_ref(), failure.as_ref()),
                    "{evil:?} by {}, sealed: {sealed}, together: {together}: {error:?}, {failure:?}",
                    bed.device.name()
                );
                if matches!(evil, BeatsForEver | ForEver) {
                    // Nothing else can run there before.
                    bed.does(Nothing);
                }
                let what = format!("{evil:?}");
                bed.goes_on(&what);
                bed.recovers(evil);
                bed.goes_on(&what);
            }
            // The server stops in the middle of any work of the kernel.
            for evil in [Others, Silent, Blind, NoDone] {
                bed.recovers(evil);
                bed.does(evil);
                drop(bed.next.begin(&(1,)));
                bed.spoiled.stop();
                let error = bed.next.call_timeout(&(1,), MINUTE).unwrap_err();
                assert!(
                    matches!(error, CallError::Stopped { .. } | CallError::Server { .. }),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn slices_that_are_answered_wrongly_are_told() {
    let _alone = hooks::alone();
    let context = Context::new().unwrap();
    for adapter in context.adapters() {
        for together in [false, true] {
            let options = DeviceOptions {
                live_memory: false,
                ..DeviceOptions::default()
            };
            let device = context.device_at_with(adapter.index, options).unwrap();
            let mut server = builder(&device, together).ports(PORTS);
            server.spoil = Some(spoil_slices);
            let server = server.start().unwrap_or_else(|error| panic!("{error}"));
            let name = if together { "together" } else { "next" };
            let next: Next = server.function(name).unwrap();
            for (round, evil) in (0..3u32).flat_map(|round| SLICE_EVILS.map(|evil| (round, evil))) {
                // Others in the same slice, or another one.
                let others = [1, 2, 3].map(|x| next.begin(&(x,)));
                let error = next.call_timeout(&(evil,), MINUTE).unwrap_err();
                let is_lost = evil == SLICE_EVILS[2];
                match &error {
                    CallError::Malformed { status, .. } if !is_lost => {
                        assert_eq!(*status, evil / 1000, "round {round}");
                    }
                    CallError::Server { failure, .. } if is_lost => assert!(
                        matches!(**failure, ServerFailure::LeaseKilled { .. }),
                        "{failure}"
                    ),
                    error => panic!("{evil}: {error}"),
                }
                for (other, x) in others.into_iter().zip(1..) {
                    match answer(other) {
                        Ok(answer) => assert_eq!(answer, x + 1),
                        Err(CallError::Server { .. }) if is_lost => {}
                        Err(error) => panic!("{evil}: {error}"),
                    }
                }
                assert_eq!(server.failure().is_some(), is_lost);
                server.restart().unwrap();
                assert_eq!(next.call_timeout(&(7,), MINUTE).unwrap(), 8);
            }
            assert_eq!(server.statistics().killed, 3);
        }
    }
}
