//! The callee of a kernel, other than services of the host: a server on a device, in a higher module.

use std::fmt::Debug;
use std::sync::Arc;

use super::{Launch, LaunchError};
use crate::device::DeviceShared;
use crate::device::completion_hook::CompletionHook;
use crate::kernel::calls::CallSet;
use crate::rpc::Backoff;

/// The ports of a device, in the form for its kernels.
#[derive(Debug)]
pub(crate) struct KernelPorts {
    /// For the bind-group cache.
    pub id: u64,
    pub calls: wgpu::Buffer,
    /// The memory for posts of kernels, where separate.
    pub posts: Option<(u64, wgpu::Buffer)>,
    /// The memory read for delays, where needed.
    pub backoff: Option<Arc<Backoff>>,
}

/// Who calls.
pub(crate) struct Caller<'c> {
    pub device: &'c Arc<DeviceShared>,
    pub kernel: &'c str,
    /// The kernel waits for answers during the launch.
    pub waits: bool,
}

/// What serves the calls of kernels.
pub(crate) trait Callee: Send + Sync + Debug {
    fn calls(&self) -> &CallSet;
    /// The ports for the caller's device.
    fn ports(&self, caller: &Caller<'_>) -> Result<Arc<KernelPorts>, LaunchError>;
    /// Whether calls of a launch would be served now.
    fn ready(&self, kernel: &str) -> Result<(), LaunchError>;
    /// The follow-up of a launch of a kernel of that device.
    fn completion_hook(&self, device: &Arc<DeviceShared>) -> Option<Arc<dyn CompletionHook>>;
    /// A launch of that device has been recorded: serves its posted calls behind the launch, where serving is a launch
    /// as well.
    fn serve(&self, device: &Arc<DeviceShared>) -> Result<(), LaunchError>;
}

impl Launch {
    pub(crate) fn callee(mut self, callee: Arc<dyn Callee>) -> Self {
        self.callee = Some(callee);
        self.kernel_ports = None;
        self.checked = false;
        self.bound = None;
        self
    }

    /// The memory to bind for calls: for kernels to read, and for posts where separate.
    #[allow(clippy::type_complexity)] // two buffers with their numbers
    pub(super) fn ports(&self) -> Option<((u64, &wgpu::Buffer), Option<(u64, &wgpu::Buffer)>)> {
        if let Some(ports) = &self.kernel_ports {
            let posts = ports.posts.as_ref().map(|(id, posts)| (*id, posts));
            return Some(((ports.id, &ports.calls), posts));
        }
        let mailbox = self.mailbox.as_ref()?;
        Some(((mailbox.id, mailbox.buffer()?), mailbox.posts()))
    }

    /// The memory to bind for kernels that read memory for delays.
    pub(super) fn backoff(&self) -> Option<(u64, &wgpu::Buffer)> {
        let backoff = match (&self.kernel_ports, &self.mailbox) {
            (Some(ports), _) => ports.backoff.as_ref(),
            (None, Some(mailbox)) => mailbox.backoff(),
            (None, None) => None,
        };
        backoff.map(|backoff| (backoff.id, &backoff.buffer))
    }

    /// Whether the callee has the called functions, and ports for the kernel.
    pub(super) fn check_callee(
        &mut self,
        callee: &Arc<dyn Callee>,
        calls: &CallSet,
    ) -> Result<(), LaunchError> {
        let kernel = self.kernel.interface().entry.clone();
        for call in calls.0.iter() {
            let found = callee.calls().find(&call.signature.name);
            if found != Some(call) {
                return Err(LaunchError::OtherServices {
                    kernel,
                    function: call.signature.text(),
                    found: found.map_or("nothing of that name".to_owned(), |f| f.signature.text()),
                });
            }
        }
        if self.kernel_ports.is_none() {
            let caller = Caller {
                device: &self.kernel.device,
                kernel: &kernel,
                waits: self.kernel.shared.compiled.waits,
            };
            self.kernel_ports = Some(callee.ports(&caller)?);
        }
        Ok(())
    }
}
