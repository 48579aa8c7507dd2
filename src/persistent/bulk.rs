//! Many calls at a time where calls travel in slices: the caller writes the slice and reads its answers directly,
//! instead of using the ports call by call.
//!
//! Such slices and the slices of the ports take turns. All calls of a bulk slice are of one function, with a kernel of
//! its own ([`packed`](super::packed)): nothing common to all calls is said or looked up for each. Each call has a
//! *mark* (`kernel/server/packing.rs`), so a part cut off by a driver is noticed, and a failing call fails alone. The
//! mark, and a `Result` for each call, are the remaining cost over a loop written by hand.

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};

use super::core::Core;
use super::driver::Driver;
use super::error::{CallError, ServerFailure};
use super::function::DeviceFunction;
use super::packed::{Packed, Packer};
use super::port_client::PortClient;
use super::signature::{CallArguments, CallResult, take};
use crate::device::wait::lock;
use crate::kernel::server::packing;
use crate::kernel::server::{FAILED, SLICE_HEADER};

/// The calls of a slice, all of the same function.
pub(super) struct Bulk {
    /// The serving kernel.
    pub packed: Arc<Packed>,
    pub count: usize,
    /// With room for the header. Taken when sent.
    words: Mutex<Vec<u32>>,
    answers: Mutex<Option<Answers>>,
}

/// Results and marks, one for each call.
pub(super) struct Answers {
    pub lease: u32,
    pub words: Vec<u32>,
}

impl Bulk {
    pub fn take_words(&self) -> Vec<u32> {
        std::mem::take(&mut *lock(&self.words))
    }

    pub fn put_words(&self, words: Vec<u32>) {
        *lock(&self.words) = words;
    }

    /// Before the callers are told that a slice has landed.
    pub fn answer(&self, answers: Answers) {
        *lock(&self.answers) = Some(answers);
    }

    /// Whether the caller is the last holder of the slice: a relay that has ended before answering, and was started
    /// again, knows nothing of the slice.
    pub fn is_dropped(this: &Arc<Self>) -> bool {
        let is_so = Arc::strong_count(this) == 1;
        // A relay that dropped the slice had answered before, or never does.
        fence(Ordering::Acquire);
        is_so
    }

    pub fn take_answers(&self) -> Option<Answers> {
        lock(&self.answers).take()
    }
}

/// Slices written by callers and not sent yet.
#[derive(Default)]
pub(super) struct Bulks(Mutex<VecDeque<Arc<Bulk>>>);

impl Bulks {
    pub fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    fn push(&self, bulk: &Arc<Bulk>) {
        lock(&self.0).push_back(Arc::clone(bulk));
    }

    pub fn pop(&self) -> Option<Arc<Bulk>> {
        lock(&self.0).pop_front()
    }

    /// The slice could not be sent now.
    pub fn put_back(&self, bulk: Arc<Bulk>) {
        lock(&self.0).push_front(bulk);
    }

    /// The slice has no reader any more.
    pub fn forget(&self, bulk: &Arc<Bulk>) {
        lock(&self.0).retain(|known| !Arc::ptr_eq(known, bulk));
    }
}

impl<A: CallArguments, R: CallResult> DeviceFunction<A, R> {
    /// [`DeviceFunction::call_many`], in slices of half as many calls as there are ports, two of them ahead of the results.
    pub(super) fn call_in_slices(
        &self,
        arguments: &[A],
        packer: &Packer,
        results: &mut impl Extend<Result<R, CallError>>,
    ) {
        let core = &self.callee().core;
        let client = PortClient::new(core, &self.callee().handler);
        let packed = match packer.packed(core, self.callee().handler.opcode()) {
            Ok(packed) => packed,
            Err(error) => {
                let lease = core.leases.load(Ordering::Relaxed).wrapping_add(1);
                let failure = ServerFailure::Launch {
                    lease,
                    error: Arc::new(error),
                };
                let error = CallError::Server {
                    handler: self.callee().handler.signature.name.clone(),
                    failure: Arc::new(failure),
                };
                results.extend(std::iter::repeat_n(error, arguments.len()).map(Err));
                return;
            }
        };
        let driver = Driver::new(core);
        let mut flying = VecDeque::new();
        for calls in arguments.chunks(packer.most) {
            if let Some(refusal) = client.refusal() {
                flying.push_back(Err((refusal, calls.len())));
            } else {
                let bulk = Arc::new(self.bulk(&packed, calls));
                core.bulks.push(&bulk);
                driver.send();
                flying.push_back(Ok(bulk));
            }
            if flying.len() > 2 {
                land(&client, core, flying.pop_front(), results);
            }
        }
        while !flying.is_empty() {
            land(&client, core, flying.pop_front(), results);
        }
    }

    fn bulk(&self, packed: &Arc<Packed>, calls: &[A]) -> Bulk {
        Bulk {
            packed: Arc::clone(packed),
            count: calls.len(),
            words: Mutex::new(written(calls)),
            answers: Mutex::default(),
        }
    }
}

/// The words of calls, behind a header.
pub(super) fn written<A: CallArguments>(calls: &[A]) -> Vec<u32> {
    let given = A::words();
    let mut words = vec![0; SLICE_HEADER + calls.len() * given];
    // Without arguments there is nothing to write.
    let places = words[SLICE_HEADER..].chunks_exact_mut(given.max(1));
    for (call, words) in calls.iter().zip(places) {
        call.put(words);
    }
    words
}

/// Takes the results of calls out of the words and the marks; `judge` has the meaning of a status.
pub(super) fn take_all<R: CallResult>(
    (values, marks): (&[u32], &[u32]),
    results: &mut impl Extend<Result<R, CallError>>,
    judge: impl Fn(u32) -> Result<(), CallError>,
) {
    let taken = size_of::<R>().div_ceil(4);
    if taken > 0 && marks.iter().all(|&mark| packing::status(mark) == 1) {
        return results.extend(values.chunks_exact(taken).map(|value| Ok(take(value))));
    }
    let mut values = values.chunks_exact(taken.max(1));
    results.extend(marks.iter().map(|&mark| {
        let value = values.next().unwrap_or_default();
        match packing::status(mark) {
            1 => Ok(take(value)),
            status => judge(status).map(|()| take(value)),
        }
    }));
}

/// A slice on its way, or the reason for not sending, and the number of calls concerned.
type Flying = Result<Arc<Bulk>, (CallError, usize)>;

fn land<R: CallResult>(
    client: &PortClient<'_>,
    core: &Core,
    flying: Option<Flying>,
    results: &mut impl Extend<Result<R, CallError>>,
) {
    let (error, count) = match flying {
        None => return,
        Some(Err(refused)) => refused,
        Some(Ok(bulk)) => match client.wait_bulk(&bulk) {
            Ok(Answers { lease, words }) => {
                // The relay has found all of them.
                let split = bulk.packed.packing.split(&words, bulk.count, lease);
                take_all(split.unwrap_or_default(), results, |status| {
                    // The lease leads to the message of a failed call.
                    let word = if status == FAILED { lease } else { 0 };
                    client.judge(status, word)
                });
                return;
            }
            Err(error) => {
                core.bulks.forget(&bulk);
                (error, bulk.count)
            }
        },
    };
    results.extend(std::iter::repeat_n(error, count).map(Err));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::context::Context;
    use crate::device::{DeviceOptions, hooks};
    use crate::kernel::Program;
    use crate::persistent::PersistentKernel;
    use crate::persistent::frame::Frame;
    use crate::persistent::policy::LeasePolicy;
    use crate::rpc::port::layout::PortLayout;

    #[test]
    fn a_slice_that_its_relay_has_dropped_is_told() {
        let _alone = hooks::alone();
        let options = DeviceOptions {
            live_memory: false,
            ..DeviceOptions::default()
        };
        let device = Context::new().unwrap().device_at_with(0, options).unwrap();
        let program = Program::new("server.wgsl", "fn next(x: u32) -> u32 { return x + 1u; }");
        let server = PersistentKernel::builder(&device, &program.unwrap());
        let server = server.handler("next").start().unwrap();
        // Another set of the same functions whose relay is inactive.
        let handlers = server.core.handlers.clone();
        let frame = Frame::on_host(PortLayout::new(4, 4)).unwrap();
        let core = Core::new(1, None, frame, handlers, LeasePolicy::host(), 1);
        let core = Arc::new(core);
        let packer = server.core.packer.as_ref().unwrap();
        let packed = packer.packed(&server.core, server.core.handlers[0].opcode());
        let packed = packed.unwrap();
        let bulk = || {
            Arc::new(Bulk {
                packed: Arc::clone(&packed),
                count: 1,
                words: Mutex::default(),
                answers: Mutex::default(),
            })
        };
        let (lost, answered) = (bulk(), bulk());
        core.bulks.push(&lost);
        core.bulks.push(&answered);
        let (sender, receiver) = std::sync::mpsc::channel();
        let waiting = Arc::clone(&core);
        std::thread::spawn(move || {
            let client = PortClient::new(&waiting, &waiting.handlers[0]);
            for bulk in [lost, answered] {
                let answers = client.wait_bulk(&bulk).map(|answers| answers.lease);
                sender.send(answers).unwrap();
            }
        });
        // The behaviour of a relay failing and restarted while the caller is asleep: the stage is the same as before.
        drop(core.bulks.pop());
        let minute = Duration::from_secs(60);
        let told = receiver.recv_timeout(minute).unwrap();
        assert!(matches!(told, Err(CallError::Stopped { .. })), "{told:?}");
        let taken = core.bulks.pop().unwrap();
        taken.answer(Answers {
            lease: 7,
            words: Vec::new(),
        });
        drop(taken);
        assert_eq!(receiver.recv_timeout(minute).unwrap().unwrap(), 7);
    }
}
