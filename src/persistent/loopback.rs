//! A server of the host behind the same ports: programs for a server on a device can be tried, and measured, without a
//! device.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::core::{Core, Stage};
use super::error::ServerError;
use super::frame::Frame;
use super::function::DeviceFunction;
use super::policy::LeasePolicy;
use super::signature::{CallArguments, CallResult};
use crate::clock::Instant;
use crate::device::unique_id;
use crate::device::wait::lock;
use crate::kernel::Program;
use crate::kernel::server::declared_as;
use crate::rpc::Handler;
use crate::rpc::port::layout::{MAX_PAYLOAD, PortLayout};
use crate::rpc::port::protocol::CallStatus;
use crate::rpc::port::server::{Dispatch, Server, Sweeper};
use crate::rpc::{begin_serving, is_server_thread};

/// How long the thread looks for calls before it sleeps.
const AWAKE: Duration = Duration::from_micros(50);
const SLEEP: Duration = Duration::from_secs(1);

type Serve = Box<dyn Fn(&[u32], &mut Vec<u32>) + Send + Sync>;

/// Rust functions called as functions on a device are ([`DeviceFunction`]): the loopback of
/// [`PersistentKernel`](crate::PersistentKernel).
///
/// ```
/// use tombolo::server::HostServer;
///
/// let server = HostServer::builder().handler("fn square(x: f32) -> f32", |x: f32| x * x).start()?;
/// let square = server.function::<(f32,), f32>("square")?;
/// assert_eq!(square.call(&(3.0,))?, 9.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HostServer {
    core: Arc<Core>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A [`HostServer`] in the making.
#[must_use = "nothing is served until `start` is called"]
#[derive(Default)]
pub struct HostServerBuilder {
    functions: Vec<(String, Vec<usize>, usize, Serve)>,
    ports: Option<usize>,
}

impl HostServer {
    /// A server without functions yet.
    pub fn builder() -> HostServerBuilder {
        HostServerBuilder::default()
    }

    /// As [`PersistentKernel::function`](crate::PersistentKernel::function).
    ///
    /// # Errors
    /// [`ServerError::NoHandler`]; [`ServerError::Signature`].
    pub fn function<A: CallArguments, R: CallResult>(
        &self,
        name: &str,
    ) -> Result<DeviceFunction<A, R>, ServerError> {
        DeviceFunction::of(&self.core, name)
    }

    /// As [`PersistentKernel::stop`](crate::PersistentKernel::stop). In a function that serves a call, of this or another
    /// server, nothing is waited for.
    pub fn stop(&self) {
        self.core.begin_stop();
        if !is_server_thread()
            && let Some(thread) = lock(&self.thread).take()
        {
            // Handlers are caught.
            let _ = thread.join();
        }
    }
}

impl Drop for HostServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl HostServerBuilder {
    /// Registers a function under its WGSL signature. If it panics the call fails.
    pub fn handler<A, R, H: Handler<A, R>>(mut self, signature: &str, function: H) -> Self {
        let serve = move |words: &[u32], results: &mut Vec<u32>| function.serve(words, results);
        let (arguments, result) = (H::argument_bytes(), H::result_bytes());
        (self.functions).push((signature.to_owned(), arguments, result, Box::new(serve)));
        self
    }

    /// Sets the number of ports (default 64).
    pub fn ports(mut self, ports: usize) -> Self {
        self.ports = Some(ports);
        self
    }

    /// Starts the server's thread.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(self) -> Result<HostServer, ServerError> {
        if self.functions.is_empty() {
            return Err(ServerError::NoHandlers);
        }
        let empty = Program::new("loopback", "")?;
        let (mut handlers, mut served, mut payload) = (Vec::new(), HashMap::new(), 28);
        for (signature, arguments, result, serve) in self.functions {
            let fault = |why: String| ServerError::Handler {
                handler: signature.clone(),
                why,
            };
            let handler = declared_as(&empty, &signature).map_err(fault)?;
            let given: Vec<usize> =
                (handler.parameters.iter().map(|layout| layout.size as usize)).collect();
            let gives = (handler.result.as_ref()).map_or(0, |layout| layout.size as usize);
            if given != arguments || gives != result {
                return Err(fault(format!(
                    "its arguments have {given:?} bytes and its result {gives}, and in Rust {arguments:?} and {result}"
                )));
            }
            payload = (handler.argument_words().max(handler.result_words())).max(payload);
            let entry = (handler.argument_words(), serve);
            if served.insert(handler.opcode(), entry).is_some() {
                return Err(fault("there is another of that name".to_owned()));
            }
            handlers.push(Arc::new(handler));
        }
        let ports = self.ports.unwrap_or(64);
        if ports == 0 || ports > super::builder::MAX_PORTS {
            let limit = super::builder::MAX_PORTS;
            return Err(ServerError::Ports { ports, limit });
        }
        let layout = PortLayout::new(ports, payload.min(MAX_PAYLOAD));
        let policy = LeasePolicy::host();
        let core = Arc::new(Core::new(
            unique_id(),
            None,
            Frame::on_host(layout)?,
            handlers,
            policy,
            0,
        ));
        let own = Arc::clone(&core);
        let thread = std::thread::Builder::new()
            .name("tombolo calls loopback".to_owned())
            .spawn(move || run(&own, &Dispatcher(served)))
            .map_err(|error| ServerError::Thread {
                message: error.to_string(),
            })?;
        Ok(HostServer {
            core,
            thread: Mutex::new(Some(thread)),
        })
    }
}

struct Dispatcher(HashMap<u32, (usize, Serve)>);

impl Dispatch for Dispatcher {
    fn dispatch(
        &self,
        _port: usize,
        opcode: u32,
        arguments: &[u32],
        results: &mut Vec<u32>,
    ) -> CallStatus {
        match self.0.get(&opcode) {
            None => CallStatus::Unknown,
            Some((words, _)) if *words != arguments.len() => CallStatus::Malformed,
            Some((_, serve)) => match crate::guard::guarded(|| serve(arguments, results)) {
                Some(()) => CallStatus::Done,
                None => CallStatus::Panicked,
            },
        }
    }
}

fn run(core: &Core, dispatcher: &Dispatcher) {
    begin_serving();
    let server = Server::new(&core.frame, core.frame.layout(), true).with_withdrawal(true);
    let mut sweeper = Sweeper::default();
    let mut since = Instant::now();
    loop {
        let stage = core.stage();
        if server.sweep(&mut sweeper, dispatcher) > 0 {
            since = Instant::now();
        } else if stage != Stage::Running {
            break;
        } else if since.elapsed() < AWAKE {
            std::hint::spin_loop();
        } else {
            core.sleep(SLEEP);
            since = Instant::now();
        }
    }
    core.set_stage(Stage::Closed);
}

impl std::fmt::Debug for HostServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostServer").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for HostServerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostServerBuilder").finish_non_exhaustive()
    }
}
