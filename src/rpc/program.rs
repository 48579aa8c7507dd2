//! Programs calling functions of the host.

use super::HostServices;
use crate::kernel::ProgramBuilder;

impl ProgramBuilder {
    /// Lets the program call the functions of `services`; see [`HostServices`].
    ///
    /// String literals outside of `print` and its like are texts of the host, numbers to the kernel
    /// ([`HostServicesBuilder::texts`](crate::calls::HostServicesBuilder::texts)).
    ///
    /// The program may be launched with other services, too, given the same functions.
    pub fn services(self, services: &HostServices) -> Self {
        self.callee("services", &services.shared.calls)
    }
}
