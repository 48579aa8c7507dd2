//! The host's part in place of the kernel: looking for calls without answers, and answering calls that no lease will.

/// The calls at ports, as seen by the host. A request is the number of a call.
pub(super) trait Calls {
    fn ports(&self) -> usize;
    /// The last posted request.
    fn request(&self, port: usize) -> u32;
    /// The last answered request.
    fn reply(&self, port: usize) -> u32;
    /// The request taken last by a kernel.
    fn taken(&self, port: usize) -> u32;
    fn take(&self, port: usize, request: u32);
    /// Answers without results.
    fn answer(&self, port: usize, request: u32, head: [u32; 2]);
}

/// Whether there is a call without an answer at some port.
pub(super) fn is_awaited(calls: &impl Calls) -> bool {
    first_awaited(calls).is_some()
}

/// The port of a call without an answer, and its request.
pub(super) fn first_awaited(calls: &impl Calls) -> Option<(usize, u32)> {
    first_awaited_from(calls, 0)
}

/// The same, where the search begins at some port.
pub(super) fn first_awaited_from(calls: &impl Calls, start: usize) -> Option<(usize, u32)> {
    let ports = calls.ports();
    let ports = (start..ports).chain(0..start.min(ports));
    (ports.map(|port| (port, calls.request(port))))
        .find(|&(port, request)| request != calls.reply(port))
}

/// Whether a call, by its port and request, still has no answer.
pub(super) fn is_left(calls: &impl Calls, (port, request): (usize, u32)) -> bool {
    calls.request(port) == request && calls.reply(port) != request
}

/// Answers every unanswered call, or only those taken by the kernel. Only while no lease runs.
pub(super) fn give_up(calls: &impl Calls, taken_only: bool, head: [u32; 2]) {
    for port in 0..calls.ports() {
        let request = calls.request(port);
        let is_taken = calls.taken(port) == request;
        if !taken_only {
            // Notes about later calls are void.
            calls.take(port, request);
        }
        if !taken_only || is_taken {
            give_up_at(calls, (port, request), head);
        }
    }
}

/// The same for a single call, if still without an answer.
pub(super) fn give_up_at(calls: &impl Calls, (port, request): (usize, u32), head: [u32; 2]) {
    if is_left(calls, (port, request)) {
        calls.take(port, request);
        calls.answer(port, request, head);
    }
}
