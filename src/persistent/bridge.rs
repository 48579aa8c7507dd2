//! Calls of kernels whose device shares no memory with the server's: threads of the host take the calls out of the
//! ports of the kernel's device, as calls of services, and make the calls as threads of the program do.
//!
//! The kernel's text is the same on both ways, since the ports of services and the ports in [`super::block`] have one
//! layout. A call costs a thread for its whole duration, so that the number of threads bounds the calls under way; the
//! others stay in their ports.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::core::Core;
use super::error::CallError;
use super::port_client::{Deadline, PortClient};
use crate::device::CallStatus;
use crate::kernel::calls::CallSet;
use crate::kernel::server::HandlerDeclaration;
use crate::rpc::{Call, HostServices, ServiceError};

/// The most call-forwarding threads, each waiting for a call.
const MOST_THREADS: usize = 8;

/// Starts the threads forwarding calls to the server of `core`.
pub(super) fn start(core: &Arc<Core>, calls: &CallSet) -> Result<HostServices, ServiceError> {
    // A thread more than there are processors keeps a call on its way while the others look for calls.
    let threads = (core.processors + 1).min(MOST_THREADS);
    let mut services = HostServices::builder().threads(threads);
    for (handler, declaration) in core.handlers.iter().zip(calls.0.iter()) {
        let forward = forwarded(Arc::clone(core), Arc::clone(handler));
        services = services.forward(Arc::clone(declaration), forward);
    }
    services.start()
}

fn forwarded(core: Arc<Core>, handler: Arc<HandlerDeclaration>) -> Call {
    let words = (handler.result.as_ref()).map_or(0, |layout| layout.size.div_ceil(4) as usize);
    Box::new(move |arguments, results| {
        core.counters.forwarded.fetch_add(1, Ordering::Relaxed);
        let client = PortClient::new(&core, &handler);
        // Results of other calls of the packet may stand before.
        let start = results.len();
        results.resize(start + words, 0);
        let deadline = Deadline::after(None);
        let posted = client.post(arguments, deadline);
        match posted.and_then(|posted| client.wait(posted, &mut results[start..], deadline)) {
            Ok(()) => CallStatus::Done,
            Err(error) => {
                log::debug!("a forwarded call has failed: {error}");
                results.truncate(start);
                status(&error)
            }
        }
    })
}

/// The status told to a kernel for a failed call.
fn status(error: &CallError) -> CallStatus {
    match error {
        CallError::Failed { .. } => CallStatus::Failed,
        CallError::TooManyTurns { .. } => CallStatus::TooManyTurns,
        CallError::Panicked { .. } => CallStatus::Panicked,
        CallError::Garbled { .. } | CallError::Malformed { .. } => CallStatus::Malformed,
        CallError::TimedOut { .. } | CallError::Cancelled { .. } => CallStatus::TimedOut,
        CallError::HostAccess { .. } | CallError::Withdrawn { .. } => CallStatus::Busy,
        CallError::Stopped { .. } | CallError::Server { .. } => CallStatus::Stopped,
    }
}
