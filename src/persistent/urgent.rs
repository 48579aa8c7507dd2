//! Urgent calls: they have ports of their own, at which a server looks first.

use super::PersistentKernelBuilder;
use super::error::ServerError;
use super::function::DeviceFunction;

/// Which ports a call may be posted at.
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
    /// The same function, whose calls are urgent: a server looks for them first, and again behind each other call that it has
    /// served, so that an urgent call waits for the call that is being served and for other urgent calls alone. With several
    /// lanes it may wait for one call of each. On adapters with a loop budget other calls wait as long as urgent ones come.
    ///
    /// In slices all calls that wait travel together, the urgent ones with them.
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
