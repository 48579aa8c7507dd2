//! Many calls at a time of a server that stays on its device: a launch of their own, between two leases, on the calling
//! thread.
//!
//! Across a bus a port takes a call each quarter of a microsecond, whoever serves; a launch takes some fifty, and serves
//! thousands. The kernels are those of slices ([`packed`](super::packed)), one for each function. Compiling one takes as
//! long as a hundred thousand calls through ports: that many go through ports before, unless the program says otherwise
//! ([`BatchRoute`]). The launch is the caller's, ordered as any launch is: it sees what was recorded before, and the lease
//! on the device ends for it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::bulk::{take_all, written};
use super::core::Core;
use super::error::{CallError, ServerFailure};
use super::function::DeviceFunction;
use super::packed::{Pack, Packed, Packer};
use super::signature::{CallArguments, CallResult};
use super::sliced::Answering;
use super::suspicion::BEGINS_WITHIN;
use crate::device::server_pause::ServerLaunch;
use crate::device::wait::lock;
use crate::device::{Device, Event, ExecutionError, WaitError};
use crate::kernel::server::packing::{Packing, mark};
use crate::kernel::server::{FAILED, HandlerDeclaration, HandlerForm, SLICE_HEADER, TOO_LONG};
use crate::launch::LaunchError;
use crate::memory::{DeviceBuffer, HeapError, MemoryError, ReadBack};
use crate::rpc::is_server_thread;

/// Calls of a launch at most.
const MOST: usize = 8_192;
/// Words of the arguments of a launch at most, and of the results: fewer calls travel together where these are long.
const MOST_WORDS: usize = 1 << 20;
/// Fewer calls go through ports by default: a launch and its wait cost as much.
const LEAST: usize = 512;
/// So many calls of a function go through ports before a kernel is compiled for batches.
const BEFORE: u64 = 100_000;
/// Launches on their way at once: a running one, and the next.
const AHEAD: usize = 2;
/// How long answers of an ended launch may take.
const ARRIVAL: Duration = Duration::from_secs(10);

/// How batches of calls ([`DeviceFunction::call_all`], [`DeviceFunction::call_many`]) reach a server whose kernel stays on the
/// device. Where calls travel in slices, batches always have launches of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum BatchRoute {
    /// On hardware, batches of 512 calls and more have launches of their own once a hundred thousand calls of the function
    /// have gone in such batches, where the server serves several calls beside each other: the first of these launches
    /// compiles a kernel. All others go through ports.
    #[default]
    Auto,
    /// Through ports, as single calls.
    Ports,
    /// In launches of their own, of up to 8,192 calls and four megabytes, from the first batch on. All calls of a launch run beside each other.
    /// Each launch ends a lease of the server; a failure names it by a number of its own. Batches of handlers for batches
    /// ([`PersistentKernelBuilder::batch_handler`](crate::server::PersistentKernelBuilder::batch_handler)), urgent calls, and
    /// calls while the host has the heap go through ports.
    Launches,
}

/// What a server has for such launches.
pub(super) struct Direct {
    packer: Packer,
    route: BatchRoute,
    /// Calls through ports run beside each other, too.
    beside: bool,
    device: Device,
    /// Words of the requests, and of the answers.
    words: [usize; 2],
    idle: Mutex<Vec<Slot>>,
    /// Calls through ports in batches that a launch would have taken, by the numbers of the functions.
    before: Mutex<HashMap<u32, u64>>,
    /// The functions without a kernel for batches: compiling the kernel has failed.
    refused: Mutex<HashSet<u32>>,
    /// Numbers the launches.
    number: AtomicU32,
}

/// The memory of a launch.
struct Slot {
    requests: DeviceBuffer<u32>,
    answers: Answering,
    packs: Vec<Pack>,
}

/// A launch on its way.
struct Flight {
    slot: Slot,
    count: usize,
    number: u32,
    event: Event,
    answers: ReadBack<u32>,
    counted: ServerLaunch,
}

/// Why some calls have no launch.
enum Refused {
    /// The host has the heap: ports have calls wait.
    Held,
    Failed(CallError),
}

/// Calls of functions of `handlers` in a launch at most.
pub(super) fn most(handlers: &[Arc<HandlerDeclaration>]) -> usize {
    let words =
        |handler: &Arc<HandlerDeclaration>| handler.argument_words().max(handler.result_words());
    let longest = handlers.iter().map(words).max().unwrap_or(0).max(1);
    (MOST_WORDS / longest).clamp(1, MOST)
}

impl Direct {
    pub fn new(
        device: &Device,
        packer: Packer,
        handlers: &[Arc<HandlerDeclaration>],
        (route, beside): (BatchRoute, bool),
    ) -> Self {
        let given = handlers.iter().map(|handler| handler.argument_words());
        Self {
            words: [
                SLICE_HEADER + packer.most * given.max().unwrap_or(0),
                Packing::words(handlers, packer.most),
            ],
            packer,
            route,
            beside,
            device: device.clone(),
            idle: Mutex::default(),
            before: Mutex::default(),
            refused: Mutex::default(),
            number: AtomicU32::new(0),
        }
    }

    /// Whether `count` calls have launches of their own.
    pub fn takes(&self, handler: &HandlerDeclaration, count: usize) -> bool {
        // A function that serves a kernel may wait for no launch behind that kernel. Batches of handlers are gathered from
        // ports.
        if is_server_thread() || matches!(handler.form, HandlerForm::Batch(_)) || count == 0 {
            return false;
        }
        match self.route {
            BatchRoute::Ports => false,
            _ if lock(&self.refused).contains(&handler.opcode()) => false,
            BatchRoute::Launches => true,
            BatchRoute::Auto if count < LEAST || !self.beside => false,
            BatchRoute::Auto if self.device.capabilities().software => false,
            BatchRoute::Auto => {
                let mut before = lock(&self.before);
                let calls = before.entry(handler.opcode()).or_default();
                let takes = *calls >= BEFORE;
                *calls = calls.saturating_add(count as u64);
                takes
            }
        }
    }

    fn slot(&self) -> Result<Slot, MemoryError> {
        if let Some(slot) = lock(&self.idle).pop() {
            return Ok(slot);
        }
        let [requests, answers] = self.words;
        Ok(Slot {
            requests: self.device.zeroed(requests)?,
            answers: Answering::new(&self.device, answers)?,
            packs: Vec::new(),
        })
    }

    fn put_back(&self, slot: Slot) {
        let mut idle = lock(&self.idle);
        if idle.len() < 2 * AHEAD {
            idle.push(slot);
        }
    }

    /// Launches calls, of which the header is not written yet.
    fn launch(
        &self,
        core: &Core,
        handler: &str,
        packed: &Packed,
        (count, mut words): (usize, Vec<u32>),
    ) -> Result<Flight, Refused> {
        let counted = loop {
            if let Some(refusal) = core.refusal(handler) {
                return Err(Refused::Failed(refusal));
            }
            match core.begin_launch() {
                Some(counted) => break counted,
                None => core.sleep_out_pause(),
            }
        };
        // 0 stands for an answer that was never given.
        let number = self.number.fetch_add(1, Ordering::Relaxed) % (u32::MAX >> 4) + 1;
        if let [calls, lease, ..] = &mut words[..] {
            (*calls, *lease) = (count as u32, mark(number));
        }
        let failed = |error: LaunchError| match error {
            LaunchError::Heap(HeapError::HostAccess { .. }) => Refused::Held,
            error => Refused::Failed(CallError::Server {
                handler: handler.to_owned(),
                failure: Arc::new(ServerFailure::Launch {
                    lease: number,
                    error: Arc::new(error),
                }),
            }),
        };
        let refused = |error: MemoryError| failed(LaunchError::from(error));
        let mut slot = self.slot().map_err(refused)?;
        slot.requests.write(0, &words).map_err(refused)?;
        let known = slot.packs.iter();
        let at = { known }.position(|pack| pack.opcode == packed.opcode);
        let at = at.unwrap_or_else(|| {
            let answers = &slot.answers.memory;
            let pack = self.packer.pack(packed, &slot.requests, answers);
            slot.packs.push(pack);
            slot.packs.len() - 1
        });
        let pack = &mut slot.packs[at];
        pack.launch.set_workgroups(self.packer.groups(count));
        let range = pack.packing.answers(count);
        let event = match pack.launch.submit() {
            Ok(event) => event,
            Err(error) => {
                self.put_back(slot);
                return Err(failed(error));
            }
        };
        match slot.answers.read_back(range) {
            Ok(answers) => Ok(Flight {
                slot,
                count,
                number,
                event,
                answers,
                counted,
            }),
            Err(error) => {
                // On the device all the same, and a pause waits for the end.
                event.on_completion(move |_| drop(counted));
                Err(refused(error))
            }
        }
    }
}

impl<A: CallArguments, R: CallResult> DeviceFunction<A, R> {
    /// Calls the function with each of `arguments`, in launches; the answer is how many of the calls have their results.
    pub(super) fn call_in_launches(
        &self,
        direct: &Direct,
        arguments: &[A],
        results: &mut impl Extend<Result<R, CallError>>,
    ) -> usize {
        let core = &self.callee().core;
        let declaration = &self.callee().handler;
        let handler = declaration.signature.name.as_str();
        let packed = match direct.packer.packed(core, declaration.opcode()) {
            Ok(packed) => packed,
            Err(error) => {
                lock(&direct.refused).insert(declaration.opcode());
                log::warn!(
                    "calls of `{handler}` go through ports: no kernel for batches of them: {error}"
                );
                return 0;
            }
        };
        let mut flying = VecDeque::new();
        let mut done = 0;
        for calls in arguments.chunks(direct.packer.most) {
            let words = written(calls);
            match direct.launch(core, handler, &packed, (calls.len(), words)) {
                Ok(flight) => flying.push_back(Ok(flight)),
                Err(Refused::Failed(error)) => flying.push_back(Err((error, calls.len()))),
                Err(Refused::Held) => break,
            }
            done += calls.len();
            if flying.len() > AHEAD {
                self.land(direct, &packed, flying.pop_front(), results);
            }
        }
        while !flying.is_empty() {
            self.land(direct, &packed, flying.pop_front(), results);
        }
        done
    }

    /// Takes the results of a launch.
    fn land(
        &self,
        direct: &Direct,
        packed: &Packed,
        flying: Option<Result<Flight, (CallError, usize)>>,
        results: &mut impl Extend<Result<R, CallError>>,
    ) {
        let core = &self.callee().core;
        let handler = self.callee().handler.signature.name.as_str();
        let (error, count) = match flying {
            None => return,
            Some(Err(refused)) => refused,
            Some(Ok(flight)) => {
                let (count, number) = (flight.count, flight.number);
                match arrived(core, direct, flight) {
                    Ok((words, fault)) => {
                        let Some((values, marks)) = packed.packing.split(&words, count, number)
                        else {
                            return results.extend(
                                std::iter::repeat_n(server(handler, killed(core, number)), count)
                                    .map(Err),
                            );
                        };
                        take_all((values, marks), results, |status| {
                            Err(judged(core, handler, status, fault.as_ref()))
                        });
                        return;
                    }
                    Err(failure) => (server(handler, failure), count),
                }
            }
        };
        results.extend(std::iter::repeat_n(error, count).map(Err));
    }
}

/// Waits for a launch: the words of the answers, and what a call has failed with.
fn arrived(
    core: &Core,
    direct: &Direct,
    flight: Flight,
) -> Result<(Vec<u32>, Option<Arc<ExecutionError>>), ServerFailure> {
    let Flight {
        slot,
        number,
        event,
        answers,
        counted,
        ..
    } = flight;
    // A driver compiles the kernel at its first launch, and the launches before have their time, too.
    let limit = core.policy.time.saturating_add(core.policy.stuck);
    let limit = limit.max(BEGINS_WITHIN).saturating_mul(AHEAD as u32 + 1);
    let fault = match event.wait_timeout(limit) {
        Ok(()) => None,
        // The failure of a call, or the damage of another launch to the handler's data, which hides the failure.
        Err(WaitError::Failed(error))
            if matches!(
                *error,
                ExecutionError::Assertion { .. }
                    | ExecutionError::CallFailed { .. }
                    | ExecutionError::Inherited { .. }
            ) =>
        {
            Some(error)
        }
        Err(WaitError::Failed(error)) => {
            return Err(ServerFailure::LeaseFailed {
                lease: number,
                error,
            });
        }
        Err(WaitError::Deadline) => {
            event.on_completion(move |_| drop((counted, slot)));
            return Err(ServerFailure::LeaseStuck {
                lease: number,
                device: core.place(),
                waited: limit,
            });
        }
    };
    drop(counted);
    let words = answers.wait_timeout(ARRIVAL).unwrap_or_else(|error| {
        log::error!("the answers of a batch could not be read back: {error}");
        Vec::new()
    });
    direct.put_back(slot);
    Ok((words, fault))
}

fn killed(core: &Core, lease: u32) -> ServerFailure {
    ServerFailure::LeaseKilled {
        lease,
        device: core.place(),
    }
}

fn server(handler: &str, failure: ServerFailure) -> CallError {
    CallError::Server {
        handler: handler.to_owned(),
        failure: Arc::new(failure),
    }
}

/// What a status other than that of a result means.
fn judged(
    core: &Core,
    handler: &str,
    status: u32,
    fault: Option<&Arc<ExecutionError>>,
) -> CallError {
    let handler = handler.to_owned();
    match (status, fault) {
        (FAILED, Some(error)) => CallError::Failed {
            handler,
            error: Arc::clone(error),
        },
        (TOO_LONG, _) => CallError::TooManyTurns {
            handler,
            limit: core.turns,
        },
        _ => CallError::Malformed { handler, status },
    }
}
