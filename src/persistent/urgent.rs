//! Urgent calls: with ports of their own, looked at first by a server.

use super::PersistentKernelBuilder;
use super::error::ServerError;
use super::function::DeviceFunction;

/// The ports for posting a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Priority {
    Ordinary,
    Urgent,
}

impl PersistentKernelBuilder {
    /// Gives urgent calls `ports` ports of their own, beside the others (default 0): see [`DeviceFunction::urgent`]. With
    /// several work-groups their number is rounded up to a multiple.
    pub fn urgent_ports(mut self, ports: usize) -> Self {
        self.urgent = ports;
        self
    }
}

impl<A, R> DeviceFunction<A, R> {
    /// The same function with urgent calls: a server looks for urgent calls first, and again behind each other served
    /// call, so that an urgent call waits for the call being served and for other urgent calls alone. With several
    /// lanes an urgent call may wait for one call of each. On adapters with a loop budget other calls wait as long as
    /// urgent ones come.
    ///
    /// In slices all waiting calls travel together, the urgent ones with the others.
    ///
    /// # Errors
    /// [`ServerError::NoUrgentPorts`] if the server was started without
    /// [`PersistentKernelBuilder::urgent_ports`](crate::server::PersistentKernelBuilder::urgent_ports).
    pub fn urgent(&self) -> Result<Self, ServerError> {
        if self.callee().core.urgent == 0 {
            return Err(ServerError::NoUrgentPorts);
        }
        let mut urgent = self.clone();
        urgent.priority = Priority::Urgent;
        Ok(urgent)
    }
}
