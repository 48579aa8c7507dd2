//! How services are put together.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, RwLock};

use super::bell::Bell;
use super::error::ServiceError;
use super::handler::Handler;
use super::idle::IdlePolicy;
use super::kernel_threads::SharedRole;
use super::port::layout::{MAX_PAYLOAD, MAX_PORTS};
use super::port::protocol::CallStatus;
use super::provided::{Provided, outlive_file_size_limit};
use super::services::{Call, Function, HostServices, Serve, Shared};
use super::statistics::Counters;
use super::stream::{CallStream, Session, StreamOpener};
use crate::device::submissions::Crew;
use crate::device::wait::lock;
use crate::kernel::HostShareable;
use crate::kernel::calls::PACKED_CALLS;
use crate::kernel::calls::{CallDeclaration, CallSet, Signature};
use crate::kernel::host_layout::{KnownLayouts, ValueLayouts};

/// The longest payload of a port for calls of a subgroup in one packet, in bytes a direction: 512 with the words in
/// front. More calls go in several packets.
const MOST_PACKED_PAYLOAD: usize = 496;

/// The least payload of a port, in bytes a direction.
pub(super) const LEAST_PAYLOAD: usize = 112;

/// The most server threads: each has counters for every function.
const MAX_THREADS: usize = 256;

/// Functions of the host for kernels to call, in the making; from [`HostServices::builder`].
#[must_use = "nothing is served until `start` is called"]
pub struct HostServicesBuilder {
    functions: Vec<Function>,
    ports: Option<usize>,
    payload: usize,
    threads: usize,
    idle: IdlePolicy,
    wait_budget: Option<u32>,
    known: KnownLayouts,
    pub(super) mistake: Option<ServiceError>,
    pub(super) provided: Arc<Provided>,
}

impl fmt::Debug for HostServicesBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostServicesBuilder")
            .field("functions", &self.functions.len())
            .field("threads", &self.threads)
            .field("idle", &self.idle)
            .field("mistake", &self.mistake)
            .finish_non_exhaustive()
    }
}

impl HostServices {
    /// Services without any functions yet.
    pub fn builder() -> HostServicesBuilder {
        HostServicesBuilder {
            functions: Vec::new(),
            ports: None,
            payload: 0,
            threads: 1,
            idle: IdlePolicy::default(),
            wait_budget: None,
            known: KnownLayouts::default(),
            mistake: None,
            provided: Arc::default(),
        }
    }
}

impl HostServicesBuilder {
    /// Registers a function under its WGSL signature, such as `fn lookup(key: u32, at: vec3<f32>) -> Node`.
    ///
    /// Types are the types of the calling programs; a program with another size for a type than in Rust is refused.
    /// Several threads may run the function at once, if there are several server threads
    /// ([`HostServicesBuilder::threads`]). With one, no two functions run at once, but not all on one thread: on the
    /// embedded adapter, functions taking less than a microsecond also run on threads of kernels. If the function
    /// panics the caller gets [`CallStatus::Panicked`](crate::calls::CallStatus::Panicked).
    pub fn call<A, R>(mut self, signature: &str, function: impl Handler<A, R>) -> Self {
        let made = self.function(signature, function);
        match made {
            Ok(function) => self.functions.push(function),
            Err(mistake) => {
                self.mistake.get_or_insert(mistake);
            }
        }
        self
    }

    /// Registers a stream under the WGSL signature of its opening, such as `fn upload(name: u32) -> u32`: `function`
    /// opens a stream, and returns an object taking words from the kernel, giving words to the kernel, and owning the
    /// result. A kernel opens a stream with `upload_open`; see [`HostServices`].
    pub fn stream<A, S: CallStream>(
        mut self,
        signature: &str,
        function: impl StreamOpener<A, S>,
    ) -> Self {
        let made = self.opener(signature, function);
        match made {
            Ok(function) => self.functions.push(function),
            Err(mistake) => {
                self.mistake.get_or_insert(mistake);
            }
        }
        self
    }

    /// Has values of the type `T`, and arrays of such values, compared field by field with the structures of programs that
    /// call. Types declared by [`shared!`](crate::shared) are compared without a word, except in a browser; other types may
    /// have a layout of their own, where members have other names, say. Values of all other types are compared by size.
    ///
    /// ```
    /// use tombolo::bytemuck::{Pod, Zeroable};
    /// use tombolo::kernel::{HostShareable, RustLayout};
    /// use tombolo::{HostServices, Program, layout_of};
    ///
    /// #[derive(Clone, Copy, Pod, Zeroable)]
    /// #[bytemuck(crate = "tombolo::bytemuck")]
    /// #[repr(C)]
    /// struct Body { mass: f32, charge: f32 }
    ///
    /// impl HostShareable for Body {
    ///     const LAYOUT: RustLayout = layout_of!(Body { mass => weight, charge });
    /// }
    ///
    /// let services = HostServices::builder()
    ///     .shared::<Body>()
    ///     .call("fn weigh(body: Body) -> f32", |body: Body| body.mass)
    ///     .start()?;
    /// let error = Program::builder().services(&services).source("swapped.wgsl", "
    ///     struct Body { charge: f32, weight: f32 }
    ///     @group(0) @binding(0) var<storage, read_write> found: f32;
    ///     @compute @workgroup_size(1) fn main() { found = weigh(Body(1.0, 2.0)); }").build().unwrap_err();
    /// assert!(error.to_string().contains("`mass` lies at byte 0 in Rust and at byte 4 in WGSL"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shared<T: HostShareable>(mut self) -> Self {
        self.known.add::<T>();
        self
    }

    /// Registers an already known function, served elsewhere.
    pub(crate) fn forward(mut self, declaration: Arc<CallDeclaration>, call: Call) -> Self {
        match self.registered(declaration, Vec::new(), Serve::Call(call)) {
            Ok(function) => self.functions.push(function),
            Err(mistake) => {
                self.mistake.get_or_insert(mistake);
            }
        }
        self
    }

    /// Has functions registered by `register` run on threads of the services alone: such functions wait, or touch
    /// files.
    pub(super) fn staying(mut self, register: impl FnOnce(Self) -> Self) -> Self {
        let others = self.functions.len();
        self = register(self);
        for function in self.functions.iter_mut().skip(others) {
            function.stays = true;
        }
        self
    }

    fn function<A, R, H: Handler<A, R>>(
        &self,
        text: &str,
        handler: H,
    ) -> Result<Function, ServiceError> {
        let serve = move |arguments: &[u32], results: &mut Vec<u32>| {
            handler.serve(arguments, results);
            CallStatus::Done
        };
        let declaration = declare(text, H::argument_bytes(), H::result_bytes(), false)?;
        let serve = Serve::Call(Box::new(serve));
        self.registered(Arc::new(declaration), H::type_names(), serve)
    }

    fn opener<A, S: CallStream, O: StreamOpener<A, S>>(
        &self,
        text: &str,
        opener: O,
    ) -> Result<Function, ServiceError> {
        let open = move |arguments: &[u32]| Box::new(opener.open(arguments)) as Box<dyn Session>;
        let declaration = declare(text, O::argument_bytes(), size_of::<S::Output>(), true)?;
        let serve = Serve::Stream(Box::new(open));
        self.registered(Arc::new(declaration), O::type_names(), serve)
    }

    /// The function, if distinct from the others and fitting a port.
    fn registered(
        &self,
        declaration: Arc<CallDeclaration>,
        types: Vec<&'static str>,
        serve: Serve,
    ) -> Result<Function, ServiceError> {
        let known = |f: &&Function| {
            (f.declaration.opcodes()).any(|known| declaration.opcodes().any(|own| own == known))
        };
        if let Some(other) = self.functions.iter().find(known) {
            return Err(ServiceError::Duplicate {
                name: declaration.signature.name.clone(),
                other: other.declaration.signature.text(),
            });
        }
        let words = declaration.argument_words().max(declaration.result_words());
        if words > MAX_PAYLOAD {
            return Err(ServiceError::TooLong {
                name: declaration.signature.name.clone(),
                bytes: words * 4,
                limit: MAX_PAYLOAD * 4,
            });
        }
        Ok(Function {
            opcode: declaration.opcode(),
            argument_words: declaration.argument_words(),
            declaration,
            types,
            serve,
            stays: false,
            counters: Box::default(),
        })
    }

    /// Sets the number of ports on each device: the most calls on their way at once (1 to 65,536). More callers are
    /// served too, but wait for each other. Default: 512 on software adapters, with few invocations at a time, and
    /// where calls leave behind a launch, with a copy of all ports; 4,096 elsewhere. No graphics interface tells how
    /// many invocations a device runs at once.
    pub fn ports(mut self, ports: usize) -> Self {
        if ports == 0 || ports > MAX_PORTS {
            self.mistake.get_or_insert(ServiceError::Ports {
                ports,
                limit: MAX_PORTS,
            });
        }
        self.ports = Some(ports);
        self
    }

    /// Makes room for at least `bytes` of arguments, and as many of results, in each port. Default: 112, or as much
    /// as the longest function needs.
    pub fn payload(mut self, bytes: usize) -> Self {
        if bytes > MAX_PAYLOAD * 4 {
            self.mistake.get_or_insert(ServiceError::TooLong {
                name: "the payload of a port".to_owned(),
                bytes,
                limit: MAX_PAYLOAD * 4,
            });
        }
        self.payload = bytes;
        self
    }

    /// Sets the number of server threads (default 1, at most 256). Several make sense for slow functions.
    pub fn threads(mut self, threads: usize) -> Self {
        if !(1..=MAX_THREADS).contains(&threads) {
            self.mistake.get_or_insert(ServiceError::Threads {
                threads,
                limit: MAX_THREADS,
            });
        }
        self.threads = threads;
        self
    }

    /// Sets the behaviour of server threads when there is nothing to do.
    pub fn idle(mut self, policy: IdlePolicy) -> Self {
        self.idle = policy;
        self
    }

    /// Limits the wait of each call to so many looks at its port, instead of waiting until served, on devices that
    /// serve calls during launches. How long a look takes is up to the device.
    pub fn wait_budget(mut self, looks: u32) -> Self {
        self.wait_budget = Some(looks);
        self
    }

    /// Starts the server threads.
    ///
    /// # Errors
    /// [`ServiceError`], for the first mistake in the builder's input.
    pub fn start(self) -> Result<HostServices, ServiceError> {
        self.start_with(cfg!(web))
    }

    /// Starts serving; `served_here` says that there are no threads for serving, and a thread awaiting a launch serves
    /// the launch's calls.
    pub(super) fn start_with(mut self, served_here: bool) -> Result<HostServices, ServiceError> {
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        // Another word for the count, or the status, of a group of one.
        let words = |f: &Function| 1 + f.argument_words.max(f.declaration.result_words());
        let longest = self.functions.iter().map(words).max().unwrap_or(0);
        let payload = longest.max(self.payload.max(LEAST_PAYLOAD).div_ceil(4));
        let together = |f: &Function| {
            let results = 1 + f.declaration.result_words();
            (1 + PACKED_CALLS * f.argument_words).max(PACKED_CALLS * results)
        };
        let plain = self.functions.iter().filter(|f| !f.declaration.stream);
        let packed = plain.map(together).max().unwrap_or(0);
        let mut by_opcode: Vec<(u32, usize)> = (self.functions.iter().enumerate())
            .flat_map(|(index, f)| f.declaration.opcodes().map(move |opcode| (opcode, index)))
            .collect();
        by_opcode.sort_unstable();
        for function in &mut self.functions {
            let layouts = function.types.iter().map(|name| self.known.of(name));
            let layouts: Vec<_> = layouts.collect();
            if layouts.iter().any(Option::is_some) {
                Arc::make_mut(&mut function.declaration).layouts = ValueLayouts(layouts);
            }
            function.counters = (0..self.threads).map(|_| Counters::default()).collect();
        }
        let calls = self.functions.iter().map(|f| Arc::clone(&f.declaration));
        let names = (self.functions.iter()).map(|f| f.declaration.signature.name.clone());
        let crew = Crew::new(names, self.threads);
        let shared = Arc::new(Shared {
            calls: CallSet(calls.collect()),
            functions: self.functions,
            by_opcode,
            ports: self.ports,
            payload,
            packed: packed.min(MOST_PACKED_PAYLOAD / 4),
            idle: self.idle,
            provided: self.provided,
            threads: self.threads,
            crew,
            role: SharedRole::default(),
            served_here,
            wait_budget: self.wait_budget,
            mailboxes: RwLock::default(),
            version: AtomicU64::new(1),
            stopped: AtomicBool::new(false),
            bell: Bell::default(),
            unknown: AtomicU64::new(0),
            oversize: AtomicU64::new(0),
            late: AtomicU64::new(0),
        });
        let services = HostServices {
            shared,
            threads: Mutex::default(),
        };
        let threads = if served_here { 0 } else { self.threads };
        for index in 0..threads {
            let shared = Arc::clone(&services.shared);
            // On failure the services are dropped, and the drop stops the existing threads.
            let thread = std::thread::Builder::new()
                .name(format!("tombolo calls {index}"))
                .spawn(move || {
                    outlive_file_size_limit();
                    shared.run(index)
                })
                .map_err(|error| ServiceError::Thread {
                    message: error.to_string(),
                })?;
            lock(&services.threads).push(thread);
        }
        Ok(services)
    }
}

/// The declaration of a function, if its signature fits the Rust types.
fn declare(
    text: &str,
    arguments: Vec<usize>,
    result: usize,
    stream: bool,
) -> Result<CallDeclaration, ServiceError> {
    let wrong = |why: String| ServiceError::Signature {
        signature: text.to_owned(),
        why,
    };
    let signature = Signature::parse(text).map_err(wrong)?;
    if arguments.len() != signature.parameters.len() {
        return Err(wrong(format!(
            "it has {} parameters, and the Rust function takes {}",
            signature.parameters.len(),
            arguments.len()
        )));
    }
    if (result == 0) != signature.result.is_none() {
        let rust = if result == 0 { "none" } else { "one" };
        return Err(wrong(format!("of a result the Rust function has {rust}")));
    }
    if let Some(index) = arguments.iter().position(|&bytes| bytes == 0) {
        let name = &signature.parameters[index].0;
        return Err(wrong(format!("the Rust type for `{name}` has no bytes")));
    }
    Ok(CallDeclaration {
        signature,
        arguments,
        result,
        layouts: ValueLayouts::default(),
        stream,
    })
}
