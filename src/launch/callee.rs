//! The callee of a kernel, other than services of the host: a server on a device, in a higher module.

use std::fmt::Debug;
use std::sync::Arc;

use super::LaunchError;
use crate::device::DeviceShared;
use crate::device::completion_hook::CompletionHook;
use crate::kernel::calls::CallSet;
use crate::rpc::{Backoff, Services};

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

/// The way of the calls to their server.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    /// Ports that the server looks at itself.
    Ports(Arc<KernelPorts>),
    /// Services of the host, whose threads forward the calls.
    Host(Arc<Services>),
}

/// Who calls.
pub(crate) struct Caller<'c> {
    pub device: &'c Arc<DeviceShared>,
    pub kernel: &'c str,
    /// The kernel waits for answers during the launch.
    pub waits: bool,
    /// Whole work-groups call, in packets of several calls.
    pub packs: bool,
}

/// What serves the calls of kernels.
pub(crate) trait Callee: Send + Sync + Debug {
    fn calls(&self) -> &CallSet;
    /// The way for calls from the caller's device.
    fn route(&self, caller: &Caller<'_>) -> Result<Route, LaunchError>;
    /// Whether calls of a launch would be served now.
    fn ready(&self, kernel: &str) -> Result<(), LaunchError>;
    /// The follow-up of a launch of a kernel of that device, whose calls go through ports.
    fn completion_hook(&self, device: &Arc<DeviceShared>) -> Option<Arc<dyn CompletionHook>>;
    /// A launch of that device has been recorded: serves its posted calls behind the launch, where serving is a launch
    /// as well.
    fn serve(&self, device: &Arc<DeviceShared>) -> Result<(), LaunchError>;
}
