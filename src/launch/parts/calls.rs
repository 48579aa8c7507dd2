//! Calls of a launch's kernel: of services of the host, or of functions of a server on a device.

use std::sync::Arc;

use super::{Ending, Ground, Part, Parts, Rank, Resource, Stop, Submission};
use crate::device::completion_hook::CompletionHook;
use crate::device::queue::Recorder;
use crate::kernel::calls::CallSet;
use crate::kernel::plan::Source;
use crate::launch::callee::{Callee, Caller, Route};
use crate::launch::{Launch, LaunchError};
use crate::rpc::{HostServices, Mailbox, Services, Slice};

/// Who serves the calls of a launch.
#[derive(Debug, Clone, Default)]
pub(in crate::launch) struct Setting {
    /// The services of the host, and their ports on the kernel's device.
    services: Option<Arc<Services>>,
    mailbox: Option<Arc<Mailbox>>,
    /// Or else a server on a device, and the way to it.
    callee: Option<Arc<dyn Callee>>,
    route: Option<Route>,
}

impl Setting {
    /// The services of the host that the kernel's calls go to, or through.
    fn host(&self) -> Option<&Arc<Services>> {
        match &self.route {
            Some(Route::Host(services)) => Some(services),
            Some(Route::Ports(_)) => None,
            None => self.services.as_ref(),
        }
    }

    /// The memory to bind for `source`.
    fn bind(&self, source: Source) -> Option<Resource<'_>> {
        let whole = |(id, buffer)| Resource::whole(id, buffer);
        let ports = match &self.route {
            Some(Route::Ports(ports)) => Some(ports),
            Some(Route::Host(_)) | None => None,
        };
        match (source, ports, &self.mailbox) {
            (Source::Calls, Some(ports), _) => Some(whole((ports.id, &ports.calls))),
            (Source::Calls, None, Some(mailbox)) => Some(whole((mailbox.id, mailbox.buffer()?))),
            (Source::Posts, Some(ports), _) => {
                (ports.posts.as_ref()).map(|(id, posts)| whole((*id, posts)))
            }
            // Ports without a buffer have no posts either.
            (Source::Posts, None, Some(mailbox)) => {
                mailbox.buffer()?;
                mailbox.posts().map(whole)
            }
            (Source::Backoff, ports, mailbox) => {
                let backoff = match (ports, mailbox) {
                    (Some(ports), _) => ports.backoff.as_ref(),
                    (None, Some(mailbox)) => mailbox.backoff(),
                    (None, None) => None,
                }?;
                Some(whole((backoff.id, &backoff.buffer)))
            }
            _ => None,
        }
    }
}

/// The calls of a submission.
pub(in crate::launch) struct Calls {
    /// The carrier of the calls where calls cannot leave during the launch. A slice that is dropped leaves its answers
    /// to the next one.
    slice: Option<Arc<Slice>>,
    completion: Option<Arc<dyn CompletionHook>>,
}

impl<'s> Part<'s> for Calls {
    const RANK: Rank = Rank::HeapTurn;

    fn check(launch: &mut Launch) -> Result<(), LaunchError> {
        launch.check_services()
    }

    fn ready(launch: &Launch) -> Result<(), LaunchError> {
        match launch.callee_of_kernel() {
            Some(callee) => callee.ready(&launch.kernel.interface().entry),
            None => Ok(()),
        }
    }

    fn follow_up(launch: &Launch) -> Result<(), LaunchError> {
        match launch.callee_of_kernel() {
            Some(callee) => callee.serve(&launch.kernel.device),
            None => Ok(()),
        }
    }

    fn acquire(
        launch: &mut Launch,
        ground: &'s Ground,
        _earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        if launch.kernel.shared.compiled.calls.is_none() {
            return Ok(None);
        }
        let setting = &launch.settings.calls;
        let slice = match (setting.host(), &setting.mailbox) {
            (Some(services), Some(mailbox)) => {
                Slice::of(&ground.device, services, mailbox).map_err(LaunchError::from)?
            }
            _ => None,
        };
        let completion = match (&slice, &setting.callee, &setting.route) {
            (Some(slice), ..) => Some(Arc::clone(slice) as Arc<dyn CompletionHook>),
            (None, Some(callee), Some(Route::Ports(_))) => callee.completion_hook(&ground.device),
            (None, ..) => None,
        };
        Ok(Some(Self { slice, completion }))
    }

    fn follows(&self) -> bool {
        self.completion.is_some()
    }

    fn bind<'a>(&'a self, to: &Submission<'a>, source: Source) -> Option<Resource<'a>> {
        to.launch.settings.calls.bind(source)
    }

    /// The answers, on their way to the device.
    fn before(&mut self, _to: &Submission<'_>, queue: &mut Recorder<'_>) {
        if let Some(slice) = &self.slice {
            queue.encode(|encoder| slice.before(encoder));
        }
    }

    /// The requests, on their way to the host.
    fn after(&mut self, _to: &Submission<'_>, queue: &mut Recorder<'_>) -> Result<(), LaunchError> {
        if let Some(slice) = &self.slice {
            queue.encode(|encoder| slice.after(encoder));
        }
        Ok(())
    }

    fn recorded(&mut self, to: &Submission<'_>, ending: &mut Ending) {
        let calls = &to.launch.settings.calls;
        if let (Some(services), Some(mailbox)) = (calls.host(), &calls.mailbox)
            && mailbox.serves_running_kernels()
        {
            let submissions = &to.launch.kernel.device.submissions;
            submissions.will_call(&ending.batch, &services.crew);
        }
        ending.hooks.extend(self.completion.take());
    }

    fn released(&mut self, to: &Submission<'_>, _ending: &mut Ending) {
        if let Some(services) = to.launch.settings.calls.host() {
            services.bell.ring();
        }
    }
}

impl Launch {
    /// The server that the kernel calls, if any.
    pub(in crate::launch) fn callee_of_kernel(&self) -> Option<&Arc<dyn Callee>> {
        let calls = self.kernel.shared.compiled.calls.as_ref();
        self.settings
            .calls
            .callee
            .as_ref()
            .filter(|_| calls.is_some())
    }

    /// Gives the services that the kernel calls. Services serve the launch from threads of their own, during the launch
    /// where the device has live memory, and after its end elsewhere and on Metal (see [`HostServices`]); the launch
    /// does not keep the services alive, and calls after the drop of the services have the status
    /// [`CallStatus::Stopped`](crate::calls::CallStatus::Stopped).
    ///
    /// The calls of a kernel go to one side: a launch that is given a server, too ([`Launch::server`]), is refused with
    /// [`LaunchError::TwoCallees`].
    pub fn services(self, services: &HostServices) -> Self {
        self.shared_services(Arc::clone(&services.shared))
    }

    pub(crate) fn shared_services(mut self, services: Arc<Services>) -> Self {
        self.settings.calls.services = Some(services);
        self.settings.calls.mailbox = None;
        self.checked = false;
        self.bound = None;
        self
    }

    /// Whether the called functions are there, on one side, with ports for the kernel.
    fn check_services(&mut self) -> Result<(), LaunchError> {
        let given = &self.settings.calls;
        if given.services.is_some() && given.callee.is_some() {
            return Err(LaunchError::TwoCallees {
                kernel: self.kernel.interface().entry.clone(),
            });
        }
        let Some(calls) = &self.kernel.shared.compiled.calls else {
            return Ok(());
        };
        if let Some(callee) = self.settings.calls.callee.clone() {
            let calls = calls.clone();
            return self.check_callee(&callee, &calls);
        }
        let kernel = || self.kernel.interface().entry.clone();
        let Some(services) = &self.settings.calls.services else {
            return Err(LaunchError::NoServices {
                kernel: kernel(),
                functions: self.called_functions(),
            });
        };
        for call in calls.0.iter() {
            let name = &call.signature.name;
            let found = services.calls.find(name);
            let other_structure = found.is_some_and(|f| f.layouts.conflict(&call.layouts));
            if found != Some(call) || other_structure {
                return Err(LaunchError::OtherServices {
                    kernel: kernel(),
                    function: call.signature.text(),
                    found: match found {
                        None => "nothing of that name".to_owned(),
                        Some(found) if other_structure => {
                            format!("{} with another structure in Rust", found.signature.text())
                        }
                        Some(found) => found.signature.text(),
                    },
                });
            }
        }
        let services = Arc::clone(services);
        self.ensure_mailbox(&services)
    }

    /// Has the services listen to the kernel's device, if they can answer the kernel's calls there.
    fn ensure_mailbox(&mut self, services: &Arc<Services>) -> Result<(), LaunchError> {
        let device = &self.kernel.device;
        let capabilities = &device.capabilities;
        let live = capabilities.live_calls();
        if !live && self.kernel.shared.compiled.waits {
            return Err(LaunchError::NeedsLiveMemory {
                kernel: self.kernel.interface().entry.clone(),
                functions: self.called_functions(),
                device: capabilities.name.clone(),
                why: capabilities.why_live_calls(),
            });
        }
        if self.settings.calls.mailbox.is_none() {
            self.settings.calls.mailbox = Some(services.mailbox(device, live)?);
        }
        Ok(())
    }

    /// The signatures of the functions that the kernel calls, for messages.
    fn called_functions(&self) -> String {
        let calls = self.kernel.shared.compiled.calls.iter();
        let calls = calls.flat_map(|calls| calls.0.iter());
        let names: Vec<String> = calls.map(|call| call.signature.text()).collect();
        names.join("`, `")
    }

    pub(crate) fn callee(mut self, callee: Arc<dyn Callee>) -> Self {
        let calls = &mut self.settings.calls;
        calls.callee = Some(callee);
        (calls.route, calls.mailbox) = (None, None);
        self.checked = false;
        self.bound = None;
        self
    }

    /// Whether the callee has the called functions, and ports for the kernel.
    fn check_callee(
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
        let route = match self.settings.calls.route.clone() {
            Some(known) => known,
            None => callee.route(&Caller {
                device: &self.kernel.device,
                kernel: &kernel,
                waits: self.kernel.shared.compiled.waits,
                packs: self.kernel.shared.compiled.packs,
            })?,
        };
        if let Route::Host(services) = &route {
            self.ensure_mailbox(services)?;
        }
        self.settings.calls.route = Some(route);
        Ok(())
    }
}
