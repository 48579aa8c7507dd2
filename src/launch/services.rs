//! The services that a launch's kernel calls.

use std::sync::Arc;

use super::{Launch, LaunchError};
use crate::rpc::{HostServices, Services, Slice};

impl Launch {
    /// Gives the services that the kernel calls. Services serve the launch from threads of their own, during the launch
    /// where the device has live memory, and after its end elsewhere and on Metal (see [`HostServices`]); the launch
    /// does not keep the services alive, and calls after the drop of the services have the status
    /// [`CallStatus::Stopped`](crate::CallStatus::Stopped).
    pub fn services(self, services: &HostServices) -> Self {
        self.shared_services(Arc::clone(&services.shared))
    }

    pub(crate) fn shared_services(mut self, services: Arc<Services>) -> Self {
        self.services = Some(services);
        self.mailbox = None;
        self.checked = false;
        self.bound = None;
        self
    }

    /// Whether the called functions are there, with ports for the kernel.
    pub(super) fn check_services(&mut self) -> Result<(), LaunchError> {
        let Some(calls) = &self.kernel.shared.compiled.calls else {
            return Ok(());
        };
        if let Some(callee) = self.callee.clone() {
            let calls = calls.clone();
            return self.check_callee(&callee, &calls);
        }
        let kernel = || self.kernel.interface().entry.clone();
        let names = || {
            let names = calls.0.iter().map(|call| call.signature.text());
            names.collect::<Vec<_>>().join("`, `")
        };
        let Some(services) = &self.services else {
            return Err(LaunchError::NoServices {
                kernel: kernel(),
                functions: names(),
            });
        };
        for call in calls.0.iter() {
            let name = &call.signature.name;
            let found = services.calls.find(name);
            if found != Some(call) {
                return Err(LaunchError::OtherServices {
                    kernel: kernel(),
                    function: call.signature.text(),
                    found: found.map_or("nothing of that name".to_owned(), |f| f.signature.text()),
                });
            }
        }
        let device = &self.kernel.device;
        let capabilities = &device.capabilities;
        let live = capabilities.live_calls();
        if !live && self.kernel.shared.compiled.waits {
            return Err(LaunchError::NeedsLiveMemory {
                kernel: kernel(),
                functions: names(),
                device: capabilities.name.clone(),
                why: capabilities.why_live_calls(),
            });
        }
        if self.mailbox.is_none() {
            self.mailbox = Some(services.mailbox(device, live)?);
        }
        Ok(())
    }

    /// The carrier of the kernel's calls where calls cannot leave during the launch.
    pub(super) fn slice(&self) -> Result<Option<Arc<Slice>>, LaunchError> {
        let (Some(services), Some(mailbox)) = (&self.services, &self.mailbox) else {
            return Ok(None);
        };
        let slice = Slice::of(&self.kernel.device, services, mailbox);
        slice.map_err(|message| LaunchError::Refused {
            kernel: self.kernel.interface().entry.clone(),
            message,
        })
    }
}
