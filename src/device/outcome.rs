//! Failure as data: how a launch gone wrong *after* submission reports to the launch's event and to every reader of
//! results.
//!
//! A launch able to fail owns an [`Outcome`]. The buffers written by the launch remember the outcome until overwritten,
//! and a launch reading such a buffer inherits the outcome. Once the batch has completed, the outcome is resolved from
//! the status record left behind by the kernel.
//!
//! Only launches able to fail after submission own an outcome: guarded and checked launches, launches with assertions,
//! and readers of bytes written by such a launch. Buffers keep, per byte range, the outcomes of all writers since the
//! last overwrite ([`Taint`]): a read asks for the outcomes, a launch inherits them; a host write, a fill or a clean
//! copy ends them. `Launch::overwrite` says that a launch writes all of a buffer without reading any, as only the
//! program can know; `DeviceBuffer::clear_error` accepts the contents as they are.

use std::sync::{Arc, OnceLock, Weak};

use super::sanitizer::{KernelDefect, Listed};
use super::{CallStatus, DeviceShared};
use crate::error_text::debug_by_text;

/// Why a launch failed after submission.
///
/// The error appears in the launch's [`Event`](crate::Event), and in every read of a buffer written
/// by the launch, until that buffer is overwritten.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExecutionError {
    /// The adapter ended a loop before the kernel did, so every result of the launch is wrong.
    #[error(
        "kernel `{kernel}`: the loop at {file}:{line}:{column} was cut short by the adapter \
         (loop budget {budget} iterations per group of lanes): split the work over several launches, \
         or run it on an adapter without a loop budget\n{excerpt}"
    )]
    LoopCut {
        /// The kernel's entry point.
        kernel: String,
        /// The program's name, as given to [`Program::new`](crate::Program::new).
        file: String,
        /// 1-based line of the loop in the program's source.
        line: u32,
        /// 1-based column of the loop, in characters.
        column: u32,
        /// The measured budget, in loop iterations for all loops of one group of lanes together.
        budget: u32,
        /// The source line of the loop with a marker below.
        excerpt: String,
    },
    /// The kernel followed a pointer leading nowhere (checked mode).
    #[error(
        "kernel `{kernel}`: {reason} at {file}:{line}:{column}: pointer {address:#x}{} taken as `{pointee}`, \
         invocation {invocation}; it read as zero, and nothing was written there\n{excerpt}",
        if .found.is_empty() { String::new() } else { format!(" ({})", .found) }
    )]
    Pointer {
        /// The kernel's entry point.
        kernel: String,
        /// The program's name.
        file: Box<str>,
        /// 1-based line of the access.
        line: u32,
        /// 1-based column of the access, in characters.
        column: u32,
        /// The fault of the pointer.
        reason: &'static str,
        /// The pointer's 64 bits.
        address: u64,
        /// The allocation at the place, now or before: the end passed, or the freed allocation, and the line of the
        /// program. Empty where the kernel does not check allocations
        /// ([`DeviceOptions::checked_allocations`](crate::DeviceOptions::checked_allocations)).
        found: std::sync::Arc<String>,
        /// The type of the pointee, as declared.
        pointee: Box<str>,
        /// The invocation, counted with x fastest.
        invocation: u32,
        /// The source line with a marker below.
        excerpt: Box<str>,
    },
    /// A helper taking an array of any length was given an array shorter than an index used by the helper (checked
    /// mode).
    #[error(
        "kernel `{kernel}`: index {index} of an array of {length} elements at {file}:{line}:{column}; the last element was \
         taken instead: compare the index with `arrayLength`\n{excerpt}"
    )]
    SpanIndex {
        /// The kernel's entry point.
        kernel: String,
        /// The program's name.
        file: Box<str>,
        /// 1-based line of the access.
        line: u32,
        /// 1-based column of the access, in characters.
        column: u32,
        /// The index, from the first invocation to write an index. A negative index has its 32 bits.
        index: u32,
        /// Elements of the array given to the helper.
        length: u32,
        /// The source line with a marker below.
        excerpt: Box<str>,
    },
    /// The kernel gave up: an `assert` failed, or a `panic` was reached.
    #[error(
        "kernel `{kernel}`: {}: {message}, at {file}:{line}:{column}, invocation {invocation}\n{excerpt}",
        if *.panicked { "panic" } else { "assertion" }
    )]
    Assertion {
        /// The kernel's entry point.
        kernel: String,
        /// The program's name.
        file: Box<str>,
        /// 1-based line of the call.
        line: u32,
        /// 1-based column of the call, in characters.
        column: u32,
        /// The message with its values; `assertion failed: ` and the condition where none was given.
        message: Box<str>,
        /// The first failing invocation, counted with x fastest.
        invocation: u32,
        /// True for a `panic`.
        panicked: bool,
        /// The source line with a marker below.
        excerpt: Box<str>,
    },
    /// A call of the host failed, so the kernel went on with a zero for its result.
    #[error(
        "kernel `{kernel}`: a call of `{function}` failed: {status}; call `{function}_try` where the kernel can go \
         on without the result"
    )]
    CallFailed {
        /// The kernel's entry point.
        kernel: String,
        /// The function of the host.
        function: String,
        /// The outcome of the call.
        status: CallStatus,
    },
    /// The sanitizer of the embedded adapter found the kernel wrong (`TOMBOLO_SANITIZE`). In the results, accesses out
    /// of bounds went to the last element.
    #[error("kernel `{kernel}`: {}", Listed(.defects))]
    Sanitizer {
        /// The kernel's entry point.
        kernel: String,
        /// The defects found, in the order of their occurrence.
        defects: Arc<[KernelDefect]>,
    },
    /// The launch was cancelled by [`Event::cancel`](crate::Event::cancel): its kernel was stopped, or never begun. Memory has
    /// what the kernel wrote until then.
    #[error(
        "kernel `{kernel}` was cancelled: what it wrote is unfinished; launch it again for results"
    )]
    Cancelled {
        /// The kernel's entry point.
        kernel: String,
    },
    /// The kernel ran for longer than [`Launch::deadline`](crate::Launch::deadline) allows, and was stopped. Memory has what the
    /// kernel wrote until then.
    #[error(
        "kernel `{kernel}` was stopped at its deadline, {deadline:?} after its beginning: give it more time, or split the \
         work over several launches"
    )]
    DeadlinePassed {
        /// The kernel's entry point.
        kernel: String,
        /// The time that the launch had.
        deadline: std::time::Duration,
    },
    /// The launch read, or continued to write, a buffer left undefined by a failed launch.
    #[error("kernel `{kernel}` worked on the results of a failed launch: {cause}")]
    Inherited {
        /// The entry point of the inheriting launch.
        kernel: String,
        /// The inherited failure.
        #[source]
        cause: Arc<ExecutionError>,
    },
    /// wgpu refused the commands on submission.
    #[error("the submission was refused: {message}")]
    Refused {
        /// wgpu's own words.
        message: String,
    },
    /// A callback of the program, given to wgpu, asks for a resource held by the runtime's call around it.
    #[error(
        "{what} inside a callback of wgpu that a call of the runtime runs, which has in hand what that needs: do it when \
         the callback has returned, or on another thread"
    )]
    InCallback {
        /// The attempted operation.
        what: &'static str,
    },
    /// A function of the host serving a call of a running kernel waits for an end behind the calling kernel, and so
    /// behind the function itself; or for another device of the kernel's card, whose devices take turns; or for an end
    /// behind another kernel calling functions of the same services, on the last free thread of the services
    /// ([`threads`](crate::calls::HostServicesBuilder::threads)).
    #[error(
        "`{handler}` serves calls of kernels that run on {device}, and must not wait for what runs there ({what}), which \
         goes on when a call is answered that waits for this function: have another thread do it, or do it when the launch \
         has ended"
    )]
    InHandler {
        /// The attempted operation.
        what: &'static str,
        /// The function, as registered with the services.
        handler: String,
        /// The device's name.
        device: String,
    },
    /// The operation would block the thread, on a device whose threads never wait
    /// ([`WaitPolicy::Never`](crate::device::WaitPolicy::Never)): in a browser every device is one.
    #[error(
        "{what} would block this thread, which may not wait for the device (a page of a browser never may, and elsewhere \
         WaitPolicy::Never says so): {instead}"
    )]
    WouldBlock {
        /// The attempted operation.
        what: &'static str,
        /// The call without blocking.
        instead: &'static str,
    },
    /// The device is gone; none of its memory can be read any more.
    #[error("the device was lost: {reason}; open it again to go on")]
    DeviceLost {
        /// The driver's reason, if any.
        reason: String,
    },
}

debug_by_text!(ExecutionError {
    LoopCut,
    Pointer,
    SpanIndex,
    Assertion,
    CallFailed,
    Sanitizer,
    Cancelled,
    DeadlinePassed,
    Inherited,
    Refused,
    InCallback,
    InHandler,
    WouldBlock,
    DeviceLost,
});

/// The outcome of a launch, or of a transfer between devices.
#[derive(Debug)]
pub(crate) struct Outcome {
    kernel: Arc<str>,
    /// The launch's own report.
    own: OnceLock<Result<(), Arc<ExecutionError>>>,
    /// With inherited failures; known once both are.
    verdict: OnceLock<Result<(), Arc<ExecutionError>>>,
    inherits: Vec<Arc<Outcome>>,
    /// The device to settle inherited outcomes, where different from the launch's device.
    foreign: Option<Weak<DeviceShared>>,
}

impl Outcome {
    pub(crate) fn new(kernel: Arc<str>, inherits: Vec<Arc<Outcome>>) -> Arc<Self> {
        Arc::new(Self {
            kernel,
            own: OnceLock::new(),
            verdict: OnceLock::new(),
            inherits,
            foreign: None,
        })
    }

    /// The outcome of bytes on their way from `device` to another one, dependent on `inherits` there.
    pub(crate) fn of_transfer(
        device: &Arc<DeviceShared>,
        inherits: Vec<Arc<Outcome>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            kernel: "a transfer between devices".into(),
            own: OnceLock::new(),
            verdict: OnceLock::new(),
            inherits,
            foreign: Some(Arc::downgrade(device)),
        })
    }

    /// Settles the outcome with the launch's own report; failures of the inputs win, since inputs come first. Settling
    /// twice keeps the first verdict.
    pub(crate) fn settle(&self, own: Result<(), ExecutionError>) {
        let _ = self.own.set(own.map_err(Arc::new));
        // Inputs from another device may not be settled yet: the settling thread holds a queue here, and must not ask
        // for another one.
        let _ = self.verdict();
    }

    /// The known outcome of the launch, with its inputs: `None` until all is known.
    fn verdict(&self) -> Option<&Result<(), Arc<ExecutionError>>> {
        if let Some(known) = self.verdict.get() {
            return Some(known);
        }
        let own = self.own.get()?;
        let mut inherited = None;
        for input in &self.inherits {
            match input.verdict()? {
                Err(cause) if inherited.is_none() => inherited = Some(cause),
                _ => {}
            }
        }
        let inherited = inherited.map(|cause| match &**cause {
            // Nothing was done with the bytes on the way.
            _ if self.foreign.is_some() => Arc::clone(cause),
            // A chain of launches reports the failed launch, not the chain's length.
            ExecutionError::Inherited { cause, .. } => self.inherited(Arc::clone(cause)),
            _ => self.inherited(Arc::clone(cause)),
        });
        let verdict = match inherited {
            Some(error) => Err(error),
            None => own.clone(),
        };
        Some(self.verdict.get_or_init(|| verdict))
    }

    fn inherited(&self, cause: Arc<ExecutionError>) -> Arc<ExecutionError> {
        Arc::new(ExecutionError::Inherited {
            kernel: self.kernel.to_string(),
            cause,
        })
    }

    /// Has the devices settle all dependencies whose end is known. No queue may be held.
    pub(crate) fn resolve(&self) {
        if self.verdict().is_some() {
            return;
        }
        for input in &self.inherits {
            input.resolve();
        }
        if let Some(device) = self.foreign.as_ref().and_then(Weak::upgrade) {
            device.settle();
        }
    }

    /// Whether the launch or the transfer itself has failed, regardless of inherited failures; `None` while unknown.
    pub(crate) fn went_wrong(&self) -> Option<bool> {
        self.own.get().map(Result::is_err)
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.verdict().is_some()
    }

    /// True once the launch is known to have succeeded.
    pub(crate) fn succeeded(&self) -> bool {
        matches!(self.verdict(), Some(Ok(())))
    }

    pub(crate) fn failure(&self) -> Option<Arc<ExecutionError>> {
        match self.verdict() {
            Some(Err(error)) => Some(Arc::clone(error)),
            _ => None,
        }
    }
}

/// The byte ranges of a buffer written by launches of uncertain or bad outcome.
#[derive(Debug, Default)]
pub(crate) struct Taint {
    ranges: Vec<(std::ops::Range<u64>, Arc<Outcome>)>,
}

impl Taint {
    pub(crate) fn add(&mut self, range: std::ops::Range<u64>, outcome: &Arc<Outcome>) {
        self.ranges.retain(|(_, known)| !known.succeeded());
        self.ranges.push((range, Arc::clone(outcome)));
    }

    /// Forgets overwritten ranges: `range` now holds defined bytes again.
    pub(crate) fn overwrite(&mut self, range: &std::ops::Range<u64>) {
        let mut kept = Vec::with_capacity(self.ranges.len());
        for (old, outcome) in self.ranges.drain(..) {
            for part in [
                old.start..old.end.min(range.start),
                old.start.max(range.end)..old.end,
            ] {
                if part.start < part.end {
                    kept.push((part, Arc::clone(&outcome)));
                }
            }
        }
        self.ranges = kept;
    }

    /// Adds an outcome for several ranges.
    pub(crate) fn add_each(
        &mut self,
        ranges: impl Iterator<Item = std::ops::Range<u64>>,
        outcome: &Arc<Outcome>,
    ) {
        self.ranges.retain(|(_, known)| !known.succeeded());
        let added = ranges.map(|range| (range, Arc::clone(outcome)));
        self.ranges.extend(added);
    }

    /// Forgets overwritten ranges: `within` gives those that have bytes of a range, in rising order and apart.
    pub(crate) fn overwrite_each<I: Iterator<Item = std::ops::Range<u64>>>(
        &mut self,
        within: impl Fn(&std::ops::Range<u64>) -> I,
    ) {
        let mut kept = Vec::with_capacity(self.ranges.len());
        for (old, outcome) in self.ranges.drain(..) {
            if outcome.succeeded() {
                continue;
            }
            let mut start = old.start;
            for gone in within(&old) {
                if start < gone.start {
                    kept.push((start..gone.start, Arc::clone(&outcome)));
                }
                start = gone.end;
            }
            if start < old.end {
                kept.push((start..old.end, outcome));
            }
        }
        self.ranges = kept;
    }

    /// The outcomes on which the bytes of `range` depend, without outcomes known to be good.
    pub(crate) fn touching(&mut self, range: &std::ops::Range<u64>) -> Vec<Arc<Outcome>> {
        self.touching_any(|old| old.start < range.end && range.start < old.end)
    }

    /// The outcomes of ranges of which `touches` is true, without outcomes known to be good.
    pub(crate) fn touching_any(
        &mut self,
        touches: impl Fn(&std::ops::Range<u64>) -> bool,
    ) -> Vec<Arc<Outcome>> {
        self.ranges.retain(|(_, known)| !known.succeeded());
        let mut found: Vec<Arc<Outcome>> = Vec::new();
        for (old, outcome) in &self.ranges {
            if touches(old) && !found.iter().any(|seen| Arc::ptr_eq(seen, outcome)) {
                found.push(Arc::clone(outcome));
            }
        }
        found
    }

    /// The known outcome of `range`, for as many bytes from `at` on.
    pub(crate) fn moved(&self, range: &std::ops::Range<u64>, at: u64) -> Self {
        let inside = self.ranges.iter().filter_map(|(old, outcome)| {
            let (start, end) = (old.start.max(range.start), old.end.min(range.end));
            let moved = |byte: u64| byte - range.start + at;
            (start < end).then(|| (moved(start)..moved(end), Arc::clone(outcome)))
        });
        Self {
            ranges: inside.collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn failed(kernel: &str) -> Arc<Outcome> {
        let outcome = Outcome::new(kernel.into(), Vec::new());
        outcome.settle(Err(ExecutionError::Refused {
            message: "test".into(),
        }));
        outcome
    }

    #[test]
    fn failure_is_inherited_and_names_the_first_cause() {
        let first = failed("first");
        let second = Outcome::new("second".into(), vec![first]);
        second.settle(Ok(()));
        let third = Outcome::new("third".into(), vec![second]);
        third.settle(Ok(()));
        match third.failure().as_deref() {
            Some(ExecutionError::Inherited { kernel, cause }) => {
                assert_eq!(kernel, "third");
                assert!(matches!(**cause, ExecutionError::Refused { .. }));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_depends_on_something_unknown_is_unknown_itself() {
        let input = Outcome::new("input".into(), Vec::new());
        // As a transfer's: the transfer was made, and the outcome of the bytes is not known yet.
        let moved = Outcome::new("moved".into(), vec![Arc::clone(&input)]);
        moved.settle(Ok(()));
        let last = Outcome::new("last".into(), vec![moved]);
        last.settle(Ok(()));
        assert!(!last.is_settled() && !last.succeeded() && last.failure().is_none());
        last.resolve();
        assert!(!last.is_settled());
        input.settle(Err(ExecutionError::Refused {
            message: "test".into(),
        }));
        match last.failure().as_deref() {
            Some(ExecutionError::Inherited { kernel, cause }) => {
                assert_eq!(kernel, "last");
                assert!(matches!(**cause, ExecutionError::Refused { .. }));
            }
            other => panic!("{other:?}"),
        }
        let good = Outcome::new("good".into(), Vec::new());
        let next = Outcome::new("next".into(), vec![Arc::clone(&good)]);
        next.settle(Ok(()));
        assert!(!next.succeeded());
        good.settle(Ok(()));
        assert!(next.succeeded());
    }

    #[test]
    fn the_first_verdict_stays() {
        let outcome = Outcome::new("k".into(), Vec::new());
        assert!(!outcome.is_settled());
        outcome.settle(Ok(()));
        outcome.settle(Err(ExecutionError::Refused {
            message: "late".into(),
        }));
        assert!(outcome.succeeded());
    }

    proptest! {
        /// The model is a plain array: for each byte the set of launches since the last overwriting
        /// of the byte.
        #[test]
        fn taint_agrees_with_a_byte_map(ops in prop::collection::vec((any::<bool>(), 0u64..40, 0u64..40), 1..40)) {
            let mut taint = Taint::default();
            let mut model: Vec<Vec<usize>> = vec![Vec::new(); 40];
            let mut outcomes = Vec::new();
            for (write, a, b) in ops {
                let range = a.min(b)..a.max(b);
                if write {
                    let outcome = Outcome::new("k".into(), Vec::new());
                    if range.start < range.end {
                        taint.add(range.clone(), &outcome);
                    }
                    for byte in range { model[byte as usize].push(outcomes.len()); }
                    outcomes.push(outcome);
                } else {
                    taint.overwrite(&range);
                    for byte in range { model[byte as usize].clear(); }
                }
            }
            for byte in 0..40u64 {
                let mut found: Vec<usize> = taint.touching(&(byte..byte + 1)).iter()
                    .map(|o| outcomes.iter().position(|k| Arc::ptr_eq(k, o)).unwrap())
                    .collect();
                found.sort_unstable();
                prop_assert_eq!(&found, &model[byte as usize]);
            }
        }
    }
}
