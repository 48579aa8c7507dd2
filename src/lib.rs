//! Tombolo is a portable compute runtime on [wgpu](https://docs.rs/wgpu). The crate takes ordinary WGSL kernels and
//! ordinary Rust values and adds the missing parts of wgpu: typed launches by name, specialization reaching into
//! private arrays, pointers followed by Rust and kernels alike, variables that stay on a device, printing, calls from
//! kernels to Rust, failures reported instead of swallowed, and devices with an honest description.
//!
//! ```no_run
//! use tombolo::{Constants, Context, Program};
//!
//! fn main() -> Result<(), tombolo::Error> {
//!     let device = Context::new()?.device()?;
//!     let program = Program::new("scale.wgsl", "
//!         @group(0) @binding(0) var<storage, read_write> values: array<f32>;
//!         @group(0) @binding(1) var<uniform> factor: f32;
//!         @compute @workgroup_size(64)
//!         fn main(@builtin(global_invocation_id) id: vec3<u32>) {
//!             if id.x < arrayLength(&values) { values[id.x] *= factor; }
//!         }")?;
//!     let kernel = device.kernel(&program, "main", &Constants::new())?;
//!     let values = device.buffer(&[1.0f32, 2.0, 3.0])?;
//!     kernel.launch().buffer("values", &values).value("factor", &10.0f32).invocations(3).submit()?;
//!     assert_eq!(values.read()?, [10.0, 20.0, 30.0]);
//!     Ok(())
//! }
//! ```
//!
//! # How the rooms connect
//!
//! A [`Context`] finds the adapters of the machine, and opens a [`Device`] on one. The device was
//! *probed*: its [`Capabilities`] hold the driver's reports and the measurements of tiny kernels,
//! and [`Device::has`] answers for single [`Aspect`]s. A device owns an in-order queue of batches.
//!
//! A [`Program`] is WGSL text, checked once on the host. [`Device::kernel`] specializes an entry point with
//! [`Constants`], and compiles the result; both steps are cached. A [`Kernel`] knows its [`Interface`], and
//! [`Kernel::launch`] starts a [`Launch`], whose arguments are given by name and checked: [`DeviceBuffer`]s,
//! [`Buffer`]s, slices of them, values for uniforms, [`DeviceTexture`]s and samplers.
//!
//! [`Launch::submit`] returns an [`Event`]: wait, with or without a deadline, `.await`, or ignore the event. A failure
//! after submission is that event's [`ExecutionError`], and also the answer of every read of the launch's results,
//! until overwritten.
//!
//! Memory that kernels and host share is a [`SharedHeap`], or, a few words at a time, a [`LiveBuffer`]. A
//! [`DeviceGlobal`] stays on its device between launches. Prints of kernels go to a [`PrintTarget`], and calls of
//! kernels to [`HostServices`] given to a [`Launch`]. A [`PersistentKernel`] stays on its device, for threads to call
//! its functions. A [`ring`] carries items between a thread and kernels without calls.
//!
//! # Private arrays sized at run time
//!
//! WGSL sizes arrays in function and private space by constants alone. Here an `override` may do it,
//! directly or through other constants, in structures, nested, and behind pointers to helper
//! functions, as `sycl_ext_oneapi_private_alloca` does for SYCL:
//!
//! ```
//! # use tombolo::{Constants, Program};
//! let program = Program::new("window.wgsl", "
//!     override N: u32 = 5;
//!     @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
//!     @compute @workgroup_size(1) fn main() {
//!         var window: array<u32, N>;
//!         for (var i = 0u; i < N; i++) { window[i] = i; }
//!         sink[0] = window[N - 1u];
//!     }")?;
//! assert!(program.constants()[0].sizes_private_array);
//! # Ok::<(), tombolo::kernel::KernelError>(())
//! ```
//!
//! A length of zero or a negative length is a [`KernelError`] with the name of the array, before any submission. Arrays
//! beyond [`Capabilities::private_memory_bytes`] lie in scratch memory of the device ([`SpillPolicy`]). Helpers take
//! arrays of any length as `ptr<function, array<T>>`. `@align(A)` in front of such a variable is checked (a positive
//! multiple of the element's alignment, below 2^31 / 8) and counted; since shaders address private memory logically,
//! nothing in a kernel can observe it.
//!
//! # Pointers
//!
//! [`Context::heap`] is a [`SharedHeap`]: a value there has the same address, a [`Ptr`], in Rust and in WGSL on every
//! device of the context. Kernels follow it with `usm_<Type>(p)`, and the host looks through [`SharedHeap::host`].
//! [`Program::check_layout`] compares what both sides declare of a structure.
//!
//! What WGSL has for pointers (`p` and `q` are of type `usm_ptr`, which is an alias of `vec2<u32>`, the low word in `x`):
//!
//! | in a kernel | means |
//! | --- | --- |
//! | `let n = usm_Node(p);` | the `Node` at `p`, in place, as a `ptr<storage, Node, read_write>`: `n.value`, `*n`, `&n.next` |
//! | `usm_address(&n.next)` | the pointer to such a place, or to a device global |
//! | `usm_null()`, `usm_is_null(p)` | the null pointer, and whether `p` is null |
//! | `usm_add(p, bytes)`, `usm_sub(p, bytes)` | the pointer so many bytes (`u32`) further on, or back |
//! | `usm_offset(p, bytes)` | the same for a number with a sign (`i32`) |
//! | `usm_element(p, index, stride)` | the pointer to element `index` of an array at `p` whose elements lie `stride` bytes apart |
//! | `usm_eq(p, q)`, `usm_less(p, q)` | whether they are the same, and whether `p` lies before `q` |
//! | `usm_diff(p, q)` | bytes from `q` to `p` (`i32`), for pointers less than 2 GiB apart |
//! | `usm_bits(p)`, `usm_from_bits(bits)` | a pointer as `u64`, and back, for an `atomic<u64>` that is a pointer |
//!
//! Any type with a *name* can be followed: structures, scalars (`usm_u32`), and whatever an `alias` names. Arrays, vectors
//! and atomics are written with `<…>` and so need one: `alias Words = array<u32>;` makes `usm_Words(p)`, and
//! `alias Counter = atomic<u32>;` makes `usm_Counter(p)`, for `atomicAdd(usm_Counter(p), 1u)`. An array without a length
//! has no `arrayLength`. A call cannot stand left of `=` in WGSL: write `let place = usm_u32(p);`, and then `*place = 1u;`.
//!
//! ```
//! # use tombolo::Program;
//! let program = Program::new("sum.wgsl", "
//!     alias Words = array<u32>;
//!     alias Counter = atomic<u32>;
//!     @group(0) @binding(0) var<uniform> words: usm_ptr;
//!     @group(0) @binding(1) var<uniform> total: usm_ptr;
//!     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
//!         let w = usm_Words(words);
//!         atomicAdd(usm_Counter(total), w[id.x]);
//!         let next = usm_u32(usm_element(words, id.x + 1u, 4u));
//!         if usm_less(words, total) { *next = 0u; }
//!     }")?;
//! # Ok::<(), tombolo::kernel::KernelError>(())
//! ```
//!
//! In checked mode ([`DeviceOptions::checked_pointers`], the default of debug builds) a kernel tests for every followed
//! pointer whether the value lies in the heap; with [`DeviceOptions::checked_allocations`], whether the whole value
//! lies in a live allocation, and for an index whether the element does: pointers to freed memory fail, and pointers
//! past an end, however far. The launch fails with [`ExecutionError::Pointer`], which says what lies there, or lay. The
//! origin of a pointer is unknown: arithmetic leading from an allocation into another one finds the latter alive.
//!
//! # Buffers over several devices
//!
//! A [`Buffer`] belongs to the [`Context`] ([`Context::buffer`]): launches on any of its devices take the buffer, or
//! parts of it ([`Buffer::slice`]), and the needed bytes are brought there ([`migrate`] decides which). Nobody waits
//! for bytes when a launch is submitted. [`Event::explanation`] says what moved, and [`Placement`] where buffers live.
//!
//! # Device globals
//!
//! A storage variable without `@group` and `@binding` is a variable of the device: a single instance, shared by every
//! kernel naming the variable, alive between launches. [`DeviceGlobal`] is the declaration in Rust, usually a `static`:
//! typed and byte-wise copies, properties as types, initial values, the address. [`Device::global`] finds it by name
//! alone.
//!
//! # Printing
//!
//! Kernels may `print("x = {} v = {:.3}", x, v)`, `assert(x < n, "{} is too much", x)` and
//! `panic("no case for {}", x)`, each a statement of its own, with the format syntax of `std::fmt` for scalars,
//! vectors and matrices (which print as arrays, columns first) and, with `{:p}`, a `usm_ptr`. Widths and
//! precisions are numbers, and arguments are given, not captured. Formats are checked against the arguments when
//! the program is read ([`KernelError::Print`]).
//!
//! [`PrintOptions`], of a device or a launch ([`Launch::print_to`]), say where lines go and how many bytes of them fit.
//! A line is delivered while the kernel runs where the device has [`Aspect::LiveMemory`], and else when the launch is
//! known to have ended; [`Event::wait`] returns when everything is delivered. An assertion that fails, or a panic, is
//! [`ExecutionError::Assertion`], the launch's failure. The failing invocation stops there, invocations not yet begun
//! do not begin, and the others go on; in kernels with barriers or subgroup operations all go on to their end, since
//! none may leave the others waiting.
//!
//! ```no_run
//! # use tombolo::{Constants, Context, PrintOptions, Program, print::PrintRecord};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let device = Context::new()?.device()?;
//! let program = Program::new("roots.wgsl", r#"
//!     @compute @workgroup_size(4)
//!     fn main(@builtin(global_invocation_id) id: vec3<u32>) {
//!         let root = sqrt(f32(id.x));
//!         assert(root * root - f32(id.x) < 1e-3, "the root of {} is not {}", id.x, root);
//!         print("{:>2}: {:.3}", id.x, root);
//!     }"#)?;
//! let kernel = device.kernel(&program, "main", &Constants::new())?;
//! let options = PrintOptions::sink(|line: &PrintRecord<'_>| println!("[{}] {line}", line.invocation()));
//! kernel.launch().invocations(16).print_to(options).submit()?.wait()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Calls to the host
//!
//! [`HostServices`] are Rust functions called by kernels by name, with arguments of any host-shareable type: kernels
//! wait for the answer, collect the answer later, or post the call and go on. Streams carry words of any number both
//! ways ([`HostServicesBuilder::stream`]). Calls are served during the launch where the device has
//! [`Aspect::LiveMemory`]; elsewhere, and on Metal, calls leave behind a launch and answers arrive in front of the next
//! one, and a kernel that would have to wait inside is refused ([`LaunchError::NeedsLiveMemory`]). Files
//! ([`HostServicesBuilder::files`]), texts and string literals ([`HostServicesBuilder::texts`]), `malloc`
//! ([`HostServicesBuilder::memory`]), arguments, the clock, seeds and an exit status come with the runtime; a program
//! grants them to kernels.
//!
//! # No silent wrong answers
//!
//! Some drivers end long loops and let the kernel go on with wrong values. Where the probe finds such
//! a budget, kernels whose loops are not provably short carry a check, and a launch whose loop was cut
//! fails with [`ExecutionError::LoopCut`], which names the kernel and the line. Kernels made by
//! [`Device::precompiled_kernel`] cannot be checked.
//!
//! # Raw wgpu
//!
//! Everything can be mixed with wgpu itself, which is re-exported as [`wgpu`]: [`Device::adopt`] takes a device that
//! exists, [`Device::import`] and [`DeviceBuffer::raw`] exchange buffers, and [`Kernel::raw`] gives the pipeline. A
//! kernel without the conventions above is handed to wgpu exactly as wgpu would parse the source.
//!
//! # Features
//!
//! `vulkan`, `metal`, `dx12` and `webgpu` (all on by default) choose wgpu's backends; `gles` adds OpenGL, which has no live
//! memory; `embedded` (on by default) compiles in an adapter that runs kernels on the CPU, without a driver.
//!
//! `tracing` opens spans of the crate [tracing](https://docs.rs/tracing) for what the runtime does: compiling, launches,
//! submissions, waits, transfers, calls and leases. `trace` writes them to a file, beside the times of the devices
#![cfg_attr(feature = "trace", doc = "([`trace::Trace`]).")]
#![cfg_attr(not(feature = "trace"), doc = "(`trace::Trace`).")]
//!
//! [`Aspect`]: device::Aspect
//! [`Aspect::LiveMemory`]: device::Aspect::LiveMemory
//! [`Capabilities`]: device::Capabilities
//! [`Capabilities::private_memory_bytes`]: device::Capabilities::private_memory_bytes
//! [`SpillPolicy`]: kernel::SpillPolicy
//! [`ExecutionError`]: device::ExecutionError
//! [`ExecutionError::Assertion`]: device::ExecutionError::Assertion
//! [`ExecutionError::LoopCut`]: device::ExecutionError::LoopCut
//! [`ExecutionError::Pointer`]: device::ExecutionError::Pointer
//! [`HostServicesBuilder::files`]: calls::HostServicesBuilder::files
//! [`HostServicesBuilder::memory`]: calls::HostServicesBuilder::memory
//! [`HostServicesBuilder::stream`]: calls::HostServicesBuilder::stream
//! [`HostServicesBuilder::texts`]: calls::HostServicesBuilder::texts
//! [`Interface`]: kernel::Interface
//! [`KernelError`]: kernel::KernelError
//! [`KernelError::Print`]: kernel::KernelError::Print
//! [`LaunchError::NeedsLiveMemory`]: launch::LaunchError::NeedsLiveMemory
//! [`LiveBuffer`]: buffers::LiveBuffer
//! [`Placement`]: buffers::Placement
//! [`PrintTarget`]: print::PrintTarget
//! [`migrate`]: buffers::migrate

// That a hook of a launch may go to another thread is shown by way of everything that wgpu-core has.
#![recursion_limit = "256"]
// docs.rs documents with a nightly compiler, which notes at each item the feature without which the item is missing.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations, missing_docs)]
#![deny(unsafe_code)]

mod addresses;
mod clock;
mod context;
pub mod device;
mod error;
mod error_text;
mod extensions;
pub mod globals;
mod guard;
pub mod kernel;
pub mod launch;
pub(crate) mod memory;
pub(crate) mod persistent;
pub mod print;
pub mod ring;
pub(crate) mod rpc;
mod span;
mod template;
#[cfg_attr(not(feature = "trace"), doc(hidden))]
#[cfg_attr(docsrs, doc(cfg(feature = "trace")))]
pub mod trace;
pub mod work;

pub use allocator_api2;
pub use bytemuck;
pub use wgpu;

pub use context::{AdapterDescription, Context};
pub use device::{Device, DeviceOptions, Event};
pub use error::Error;
pub use globals::DeviceGlobal;
pub use kernel::{Constants, Kernel, Program};
pub use launch::Launch;
pub use memory::{Buffer, DeviceBuffer, DeviceTexture, Ptr, SharedHeap};
pub use persistent::PersistentKernel;
pub use print::PrintOptions;
pub use rpc::HostServices;

/// Buffers: of one device ([`DeviceBuffer`]), of a context ([`Buffer`]), and a few words that host and running kernels
/// see at the same time ([`LiveBuffer`](buffers::LiveBuffer)).
pub mod buffers {
    pub use crate::memory::migrate;
    pub use crate::memory::{
        ArgumentMoves, Buffer, BufferArgument, BufferError, BufferMemory, BufferStatistics,
        BufferView, CommonMemory, DeviceBuffer, ExchangeMemory, LaunchExplanation, LiveBuffer,
        MappedRead, MappedWrite, MemoryError, PinnedError, PinnedTransfer, PinnedVec, Placement,
        ReadBack, ReadError, Rect, RectError, TransferStatistics,
    };
}

/// Textures of one device ([`DeviceTexture`]), for kernels that load, sample and store by coordinates.
pub mod textures {
    pub use crate::memory::{
        DeviceTexture, TextureArgument, TextureDimension, TextureError, TextureOptions,
        TextureRegion,
    };
}

/// The shared heap: memory in which a value has one address for Rust and for kernels on every device of a context.
pub mod heap {
    pub use crate::addresses::region;
    pub use crate::device::{HeapPlacement, HeapSizeError, HostAccessPolicy, WindowError};
    pub use crate::memory::{
        AtomicTarget, AtomicView, HeapAdvice, HeapAllocation, HeapAllocator, HeapBound, HeapError,
        HeapSize, HostAccess, MirrorStatistics, PointerKind, Ptr, SharedHeap,
    };
}

/// System allocations: memory of the host, whatever allocated it, lent to launches whose kernels follow pointers into it.
pub mod system {
    pub use crate::launch::system::{SystemError, SystemRun};
    pub use crate::memory::{SystemAccess, SystemMemory, SystemTier};
}

/// Calls from kernels to Rust.
pub mod calls {
    pub use crate::device::CallStatus;
    pub use crate::rpc::{
        CallStatistics, CallStream, FileAccess, FileStatus, FreeStatus, Handler, HostServices,
        HostServicesBuilder, IdlePolicy, KernelAllocation, KernelAllocations, Loopback, PortsError,
        RootMode, ServiceError, ServiceStatistics, StreamOpener,
    };
}

/// Servers: kernels that stay on a device, for threads and other kernels to call their functions.
pub mod server {
    pub use crate::persistent::{
        BatchRoute, CallArguments, CallError, CallResult, CallSequence, DeviceFunction, HostServer,
        HostServerBuilder, LatencyHistogram, LeasePolicy, PendingCall, PersistentKernel,
        PersistentKernelBuilder, PooledCall, PooledFunction, ServerError, ServerFailure,
        ServerPool, ServerStatistics,
    };
}

/// Internals of the macros.
#[doc(hidden)]
pub mod __private {
    pub use crate::kernel::host_layout::{MaybeNested, NoLayout, SharedStructure};
    #[cfg(not(target_family = "wasm"))]
    pub use inventory;
}

#[cfg(doctest)]
mod pages;
