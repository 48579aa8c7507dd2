//! The work of a server thread on a call: finding the function, running the function, and counting.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::port::layout::MAX_PAYLOAD;
use super::port::protocol::CallStatus;
use super::port::server::Dispatch;
use super::services::{Call, Function, Serve, Shared};
use super::statistics::TIMED;
use super::stream::{Packet, Sessions};
use crate::clock::Instant;
use crate::device::submissions::serve_call;
use crate::guard::guarded;
use crate::span::span;

/// Functions up to this duration are served with the answers to other calls held back meanwhile.
const QUICK: Duration = Duration::from_micros(1);

/// Facts about the functions from the calls so far.
#[derive(Default)]
pub(super) struct Known {
    /// The function called last: most calls are of the same one.
    last: Cell<Option<(u32, Option<usize>)>>,
    /// For each function, whether the last timing was quick.
    quick: Box<[Cell<bool>]>,
}

impl Known {
    /// Nothing yet.
    pub(super) fn new(shared: &Shared) -> Self {
        Self {
            last: Cell::new(None),
            quick: shared.functions.iter().map(|_| Cell::new(false)).collect(),
        }
    }
}

/// A serving thread, and the functions.
pub(super) struct Dispatcher<'s> {
    shared: &'s Shared,
    thread: usize,
    known: &'s Known,
    /// Kernels run on the serving thread, which is not to be kept.
    is_of_kernels: bool,
    /// Calls were left to threads of the services.
    left: Cell<bool>,
    /// A call was not quick.
    slow: Cell<bool>,
}

impl<'s> Dispatcher<'s> {
    pub(super) fn new(shared: &'s Shared, thread: usize, known: &'s Known) -> Self {
        Self {
            shared,
            thread,
            known,
            is_of_kernels: false,
            left: Cell::new(false),
            slow: Cell::new(false),
        }
    }

    /// For a kernel's thread, in place of the only thread of the services.
    pub(super) fn of_kernel_thread(shared: &'s Shared, known: &'s Known) -> Self {
        Self {
            is_of_kernels: true,
            ..Self::new(shared, 0, known)
        }
    }

    /// Whether calls were left for a thread of the services.
    pub(super) fn has_left(&self) -> bool {
        self.left.get()
    }

    /// Whether all calls so far could have been served by a kernel's thread as well.
    pub(super) fn was_quick(&self) -> bool {
        !self.slow.get()
    }

    /// The dispatcher in front of one set of ports.
    pub(super) fn at<'d>(&'d self, sessions: &'d Sessions) -> PortSet<'d> {
        PortSet {
            dispatcher: self,
            sessions,
        }
    }

    fn search(&self, opcode: u32) -> Option<usize> {
        let functions = &self.shared.by_opcode;
        let found = functions.binary_search_by_key(&opcode, |(opcode, _)| *opcode);
        Some(functions.get(found.ok()?)?.1)
    }

    /// The index of a function.
    fn find(&self, opcode: u32) -> Option<usize> {
        if let Some((last, found)) = self.known.last.get()
            && last == opcode
        {
            return found;
        }
        let found = self.search(opcode);
        self.known.last.set(Some((opcode, found)));
        found
    }

    fn is_quick(&self, index: usize) -> bool {
        self.known.quick.get(index).is_some_and(Cell::get)
    }

    /// Whether a kernel's thread may serve calls of a function.
    fn is_for_anybody(&self, index: usize) -> bool {
        let function = &self.shared.functions[index];
        self.is_quick(index) && !function.stays && matches!(function.serve, Serve::Call(_))
    }
}

/// A dispatcher in front of one set of ports.
pub(super) struct PortSet<'d> {
    dispatcher: &'d Dispatcher<'d>,
    sessions: &'d Sessions,
}

impl PortSet<'_> {
    /// Runs a function.
    fn run(
        &self,
        port: usize,
        function: &Function,
        packet: Option<Packet>,
        arguments: &[u32],
        results: &mut Vec<u32>,
    ) -> CallStatus {
        match (&function.serve, packet) {
            (Serve::Stream(open), Some(packet)) => {
                let packet = (function.opcode, packet);
                (self.sessions).serve(port, packet, open, arguments, results)
            }
            (Serve::Stream(_), None) => CallStatus::Unknown,
            (Serve::Call(serve), _) => {
                self.sessions.abandon(port);
                attempt(serve, arguments, results)
            }
        }
    }

    /// Serves the calls of a group, each with a status and a result of its own; how many panicked.
    fn run_group(
        &self,
        port: usize,
        (function, serve): (&Function, &Call),
        records: &[u32],
        count: usize,
        results: &mut Vec<u32>,
    ) -> usize {
        self.sessions.abandon(port);
        let words = function.argument_words;
        let mut panics = 0;
        for index in 0..count {
            let at = results.len();
            results.push(0);
            // `count` was held against the length; a call without arguments has no words.
            let record = records.get(index * words..(index + 1) * words);
            let status = attempt(serve, record.unwrap_or_default(), results);
            results[at] = status.code();
            panics += usize::from(status == CallStatus::Panicked);
            results.resize(at + 1 + function.declaration.result_words(), 0);
        }
        panics
    }
}

/// Runs a function of the program; the function may panic.
fn attempt(serve: &Call, arguments: &[u32], results: &mut Vec<u32>) -> CallStatus {
    match guarded(|| serve(arguments, results)) {
        Some(status) => status,
        None => CallStatus::Panicked,
    }
}

/// The number of calls in a packet of a group: as the packet says, if its length agrees and the answers fit in a port.
fn group_of(function: &Function, arguments: &[u32]) -> Option<usize> {
    let count = *arguments.first()? as usize;
    let answers = count.checked_mul(1 + function.declaration.result_words())?;
    let words = count.checked_mul(function.argument_words)?.checked_add(1)?;
    (words == arguments.len() && answers <= MAX_PAYLOAD).then_some(count)
}

impl Dispatch for PortSet<'_> {
    fn is_quick(&self, opcode: u32) -> bool {
        let dispatcher = self.dispatcher;
        // With several threads the others rely on served calls being known.
        dispatcher.shared.threads == 1
            && (dispatcher.find(opcode)).is_none_or(|index| dispatcher.is_quick(index))
    }

    fn takes(&self, port: usize, opcode: u32) -> bool {
        let dispatcher = self.dispatcher;
        let found = dispatcher.find(opcode);
        let is_for_anybody = found.is_none_or(|index| dispatcher.is_for_anybody(index));
        if !dispatcher.is_of_kernels {
            let slow = dispatcher.slow.get();
            dispatcher.slow.set(slow || !is_for_anybody);
            return true;
        }
        let takes = is_for_anybody && !self.sessions.is_open(port);
        if !takes {
            dispatcher.left.set(true);
        }
        takes
    }

    fn dispatch(
        &self,
        port: usize,
        opcode: u32,
        arguments: &[u32],
        results: &mut Vec<u32>,
    ) -> CallStatus {
        let shared = self.dispatcher.shared;
        let Some(index) = self.dispatcher.find(opcode) else {
            // The first of its kind is worth a line; a kernel going on must not fill the log.
            if shared.unknown.fetch_add(1, Ordering::Relaxed) == 0 {
                log::warn!(
                    "a kernel called the function {opcode:#010x}, which these services do not have"
                );
            }
            return CallStatus::Unknown;
        };
        let function = &shared.functions[index];
        let _span = span!("call", function = %function.declaration.signature.name);
        let _running = serve_call(index);
        let counters = &function.counters[self.dispatcher.thread];
        let packet = match &function.serve {
            Serve::Call(_) => None,
            Serve::Stream(_) => Packet::of(function.opcode, opcode),
        };
        let group = match &function.serve {
            Serve::Call(serve) if opcode != function.opcode => Some(serve),
            _ => None,
        };
        let is_fixed = matches!(packet, None | Some(Packet::Open));
        let count = match group {
            Some(_) => group_of(function, arguments),
            None => (!is_fixed || arguments.len() == function.argument_words).then_some(1),
        };
        let Some(count) = count else {
            if counters.malformed.add(1) == 0 {
                log::warn!(
                    "a kernel called `{}` with {} words of arguments instead of {}",
                    function.declaration.signature.name,
                    arguments.len(),
                    function.argument_words
                );
            }
            return CallStatus::Malformed;
        };
        counters.calls.add(count as u64);
        let number = counters.packets.add(1);
        let begun = number.is_multiple_of(TIMED).then(Instant::now);
        let (status, panics) = match group {
            Some(serve) => {
                let records = &arguments[1..];
                let panics = self.run_group(port, (function, serve), records, count, results);
                (CallStatus::Done, panics)
            }
            None => {
                let status = self.run(port, function, packet, arguments, results);
                (status, usize::from(status == CallStatus::Panicked))
            }
        };
        if let Some(begun) = begun {
            let took = begun.elapsed();
            counters.time(took / u32::try_from(count).unwrap_or(u32::MAX).max(1));
            let quick = self.dispatcher.known.quick.get(index);
            if let Some(quick) = quick {
                quick.set(took < QUICK);
            }
        }
        // How many calls came in one packet, and their statuses, are no arguments and no results.
        let (words_in, words_out) = match group {
            Some(_) => (
                arguments.len() - 1,
                results.len() - count.min(results.len()),
            ),
            None => (arguments.len(), results.len()),
        };
        counters.bytes_in.add(words_in as u64 * 4);
        if panics > 0 {
            if status == CallStatus::Panicked {
                results.clear();
            }
            if counters.panics.add(panics as u64) == 0 {
                let name = &function.declaration.signature.name;
                log::error!(
                    "`{name}` panicked while it served a kernel; further panics are counted"
                );
            }
        }
        if status == CallStatus::Done {
            counters.bytes_out.add(words_out as u64 * 4);
        }
        status
    }

    fn oversize(&self) {
        if self
            .dispatcher
            .shared
            .oversize
            .fetch_add(1, Ordering::Relaxed)
            == 0
        {
            log::warn!("a kernel posted a call that is longer than its port");
        }
    }

    fn late(&self) {
        self.dispatcher.shared.late.fetch_add(1, Ordering::Relaxed);
    }
}
