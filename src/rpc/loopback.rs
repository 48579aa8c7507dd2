//! Loopback: calls from threads of the host.

use std::sync::Arc;
use std::time::Duration;

use super::error::PortsError;
use super::mailbox::Mailbox;
use super::services::{HostServices, Shared};
use crate::clock::Instant;
use crate::device::CallStatus;

/// Calls from threads of the host, over memory of the host: what a kernel can call can be tried, and measured, without
/// a device. From [`HostServices::loopback`]; each has separate ports, shared by its clones.
#[derive(Clone)]
pub struct Loopback {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    client: super::mailbox::HostClient,
    _owner: Arc<()>,
}

impl HostServices {
    /// Ports in the host's memory, for calls from threads.
    ///
    /// # Errors
    /// [`PortsError::Memory`] where the host has no memory for so many ports.
    pub fn loopback(&self) -> Result<Loopback, PortsError> {
        let owner = Arc::new(());
        let mailbox = self.shared.host_mailbox(Arc::downgrade(&owner))?;
        Ok(Loopback {
            shared: Arc::clone(&self.shared),
            client: mailbox.client(0),
            mailbox,
            _owner: owner,
        })
    }
}

impl Loopback {
    /// A clone with another start for its search for a free port, so threads do not meet.
    #[must_use]
    pub fn spread(&self, start: usize) -> Self {
        Self {
            client: self.mailbox.client(start),
            ..self.clone()
        }
    }

    /// Calls the function `name`, as a kernel would. `arguments` are the arguments in order, each beginning a word; the
    /// result is the function's, in words.
    ///
    /// # Errors
    /// The status of a call that failed; [`CallStatus::TimedOut`] when it was not served within `timeout`.
    pub fn call(
        &mut self,
        name: &str,
        arguments: &[u32],
        timeout: Duration,
    ) -> Result<Vec<u32>, CallStatus> {
        let declaration = self.shared.calls.find(name);
        let (opcode, words) = match declaration {
            Some(call) => (call.opcode(), call.result_words()),
            None => (crate::kernel::calls::opcode(name), 0),
        };
        self.exchange(opcode, arguments, words, timeout)
    }

    /// Hands over a packet, and gives `words` of the answer.
    pub(super) fn exchange(
        &mut self,
        opcode: u32,
        arguments: &[u32],
        words: usize,
        timeout: Duration,
    ) -> Result<Vec<u32>, CallStatus> {
        if arguments.len() > self.shared.payload {
            return Err(CallStatus::Malformed);
        }
        let mut results = vec![0; words];
        let mut posted = None;
        let mut turns = 0u32;
        let begun = Instant::now();
        loop {
            match posted {
                // Before anything is posted, as in kernels: the last sweep of services that are stopped would serve the call.
                None if self.client.is_closed() => return Err(CallStatus::Stopped),
                None => posted = self.client.try_post(opcode, arguments),
                Some(call) => match self.client.try_collect(call, &mut results) {
                    Some(CallStatus::Done) => return Ok(results),
                    Some(failed) => return Err(failed),
                    None => {}
                },
            }
            turns = turns.wrapping_add(1);
            if !turns.is_multiple_of(64) {
                std::hint::spin_loop();
                continue;
            }
            let waited = begun.elapsed();
            let failed = match self.client.is_closed() {
                true => Some(CallStatus::Stopped),
                false => (waited >= timeout).then_some(CallStatus::TimedOut),
            };
            if let Some(failed) = failed {
                if let Some(call) = posted {
                    self.client.leave(call);
                }
                return Err(failed);
            }
            self.shared.bell.ring_if_asleep();
            if waited >= AWAKE {
                std::thread::sleep(NAP);
            }
        }
    }
}

/// A caller looks again and again for this long, as servers do, and then sleeps between two looks.
const AWAKE: Duration = Duration::from_micros(50);
const NAP: Duration = Duration::from_micros(20);

impl std::fmt::Debug for Loopback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loopback").finish_non_exhaustive()
    }
}
