//! Programs that call functions of the host.

use std::sync::Arc;

use super::HostServices;
use crate::kernel::Program;
use crate::kernel::error::KernelError;

impl Program {
    /// As [`Program::new`], for a program that may call the functions of `services`; see [`HostServices`].
    ///
    /// String literals outside of `print` and its like are texts of the host, numbers to the kernel
    /// ([`HostServicesBuilder::texts`](crate::calls::HostServicesBuilder::texts)).
    ///
    /// The program may be launched with other services, too, if they have the same functions.
    ///
    /// # Errors
    /// As [`Program::new`]; [`KernelError::HostCall`] when a called function does not fit the program.
    pub fn with_services(
        name: impl Into<String>,
        source: impl Into<Arc<str>>,
        services: &HostServices,
    ) -> Result<Self, KernelError> {
        let calls = &services.shared.calls;
        Self::with_calls(name.into(), source.into(), "".into(), calls)
    }
}
