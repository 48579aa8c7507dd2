//! Device globals: named variables that live on a device, after `sycl_ext_oneapi_device_global`.
//!
//! In WGSL a device global is a storage variable without `@group` and `@binding`. In Rust the variable is a
//! [`DeviceGlobal`] of the same name, usually a `static`. Each device has an instance, shared by every kernel naming
//! the variable, zero at first, and alive as long as the device.
//!
//! - `memory`: the instances of a device;
//! - `transfer`: copies, untyped; `copies`: with pointers, buffers of the context and other variables;
//! - `typed`: accesses by the host under a declaration, and `named`: the same by name alone.
//!
//! The names are kept by the kernel room (`crate::kernel::globals`).
//!
//! The memory is a device allocation (`Device::malloc`): of the shared heap where host and device share all memory, of
//! the device's own segments elsewhere. A launch that names a variable in the heap uses the heap like any other
//! launch, and a `HostAccess` keeps the launch out. Chunks begin with bytes that belong to no variable, so the address
//! of a variable is never the address of an allocation, which a program could free.
//!
//! Outcomes are kept for each variable and device, by byte range, as for buffers. A variable whose address was given
//! out may have been written by any kernel that follows pointers: reads of such a variable also ask the heap.

mod copies;
mod error;
pub(crate) mod memory;
mod named;
mod transfer;
mod typed;

use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;

pub use crate::kernel::{
    GlobalAccess, GlobalConflict, GlobalPlace, GlobalScope, GlobalUse, InitMode,
};
pub use error::GlobalError;
pub use named::{GlobalDescription, NamedGlobal};
pub use typed::GlobalOn;

use crate::device::{Device, Event};
use crate::kernel::globals::Declaration;
use crate::kernel::{HostShareable, RustLayout};

/// The host's allowed accesses to a device global, as a type; see [`DeviceGlobal`].
pub mod host_access {
    /// The host may read the variable.
    #[derive(Debug, Clone, Copy)]
    pub struct Read;
    /// The host may write the variable.
    #[derive(Debug, Clone, Copy)]
    pub struct Write;
    /// The host may read and write the variable.
    #[derive(Debug, Clone, Copy)]
    pub struct ReadWrite;
    /// The host may neither read nor write the variable.
    #[derive(Debug, Clone, Copy)]
    pub struct NoAccess;
}

/// The unit with an instance of a device global, as a type; see [`DeviceGlobal`].
pub mod scope {
    /// One instance for each device.
    #[derive(Debug, Clone, Copy)]
    pub struct PerDevice;
    /// One instance for each module on each device.
    #[derive(Debug, Clone, Copy)]
    pub struct PerImage;
}

mod sealed {
    use super::{GlobalAccess, GlobalScope, host_access, scope};

    pub trait Access {
        const ACCESS: GlobalAccess;
    }
    impl Access for host_access::Read {
        const ACCESS: GlobalAccess = GlobalAccess::Read;
    }
    impl Access for host_access::Write {
        const ACCESS: GlobalAccess = GlobalAccess::Write;
    }
    impl Access for host_access::ReadWrite {
        const ACCESS: GlobalAccess = GlobalAccess::ReadWrite;
    }
    impl Access for host_access::NoAccess {
        const ACCESS: GlobalAccess = GlobalAccess::None;
    }

    pub trait Scope {
        const SCOPE: GlobalScope;
    }
    impl Scope for scope::PerDevice {
        const SCOPE: GlobalScope = GlobalScope::Device;
    }
    impl Scope for scope::PerImage {
        const SCOPE: GlobalScope = GlobalScope::Image;
    }
}

/// The types in [`host_access`].
pub trait AccessKind: sealed::Access {}
impl<A: sealed::Access> AccessKind for A {}

/// The types in [`scope`].
pub trait ScopeKind: sealed::Scope {}
impl<S: sealed::Scope> ScopeKind for S {}

/// The types of [`host_access`] with reads by the host.
pub trait HostReads: AccessKind {}
impl HostReads for host_access::Read {}
impl HostReads for host_access::ReadWrite {}

/// The types of [`host_access`] with writes by the host.
pub trait HostWrites: AccessKind {}
impl HostWrites for host_access::Write {}
impl HostWrites for host_access::ReadWrite {}

/// A variable of the name `name` on every device: the Rust side of a WGSL storage variable without a binding.
///
/// A device global is a constant that owns nothing, and so may be a `static`. `T` is the whole variable: a scalar, an
/// array (`[u32; 256]`), a structure in WGSL's layout. Properties are chosen in the declaration; properties about the
/// host's access are a part of the type, and the compiler refuses other accesses.
///
/// ```no_run
/// use tombolo::{Constants, Context, DeviceGlobal, Program};
///
/// static HITS: DeviceGlobal<[u32; 4]> = DeviceGlobal::new("hits");
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let device = Context::new()?.device()?;
///     let program = Program::new("hits.wgsl", "
///         var<storage, read_write> hits: array<atomic<u32>, 4>;
///         @compute @workgroup_size(64)
///         fn main(@builtin(global_invocation_id) id: vec3<u32>) { atomicAdd(&hits[id.x % 4u], 1u); }")?;
///     let kernel = device.kernel(&program, "main", &Constants::new())?;
///     kernel.launch().invocations(64).submit()?;
///     kernel.launch().invocations(64).submit()?;
///     assert_eq!(HITS.on(&device).read()?, [32; 4]);
///     Ok(())
/// }
/// ```
///
/// A variable that the host may only read cannot be written:
///
/// ```compile_fail,E0599
/// use tombolo::{DeviceGlobal, globals::host_access::Read};
/// static TOTAL: DeviceGlobal<u32, Read> = DeviceGlobal::new("total").host_read();
/// fn set(device: &tombolo::Device) { let _ = TOTAL.on(device).write(&7); }
/// ```
///
/// a write-only global cannot be read:
///
/// ```compile_fail,E0599
/// use tombolo::{DeviceGlobal, globals::host_access::Write};
/// static SEED: DeviceGlobal<u32, Write> = DeviceGlobal::new("seed").host_write();
/// fn get(device: &tombolo::Device) { let _ = SEED.on(device).read(); }
/// ```
///
/// and one without host access neither:
///
/// ```compile_fail,E0599
/// use tombolo::{DeviceGlobal, globals::host_access::NoAccess};
/// static STATE: DeviceGlobal<u32, NoAccess> = DeviceGlobal::new("state").no_host_access();
/// fn get(device: &tombolo::Device) { let _ = STATE.on(device).read(); }
/// ```
///
/// Compiles:
///
/// ```
/// use tombolo::{Device, DeviceGlobal, globals::{GlobalError, host_access::Read, scope::PerImage}};
/// static TOTAL: DeviceGlobal<u32, Read> = DeviceGlobal::new("total").host_read();
/// static OWN: DeviceGlobal<[f32; 4], Read, PerImage> = DeviceGlobal::new("own").host_read().image_scope();
/// fn get(device: &Device) -> Result<(u32, [f32; 4]), GlobalError> {
///     Ok((TOTAL.on(device).read()?, OWN.on(device).read()?))
/// }
/// ```
///
/// A variable of image scope has no address that could be passed on:
///
/// ```compile_fail,E0599
/// use tombolo::{DeviceGlobal, globals::{scope::PerImage, host_access::ReadWrite}};
/// static OWN: DeviceGlobal<u32, ReadWrite, PerImage> = DeviceGlobal::new("own").image_scope();
/// fn address(device: &tombolo::Device) { let _ = OWN.on(device).address(); }
/// ```
///
/// # Which instance
///
/// Without image scope a device has one instance. Names are known to a [`Context`](crate::Context): its devices agree
/// on the type, and each has a separate instance. The memory is a device allocation ([`Device::malloc`]), made when the
/// host or a launch first uses the variable, and freed when the last handle of the device is dropped.
///
/// With image scope each *module* has its own instance on each device. Programs of equal name, text and prefix are the
/// same module, regardless of constants. The instance goes when the last kernel of the module does, those in the cache
/// ([`Device::trim_caches`]) included. Until a kernel names the variable its value is kept on the host, and then
/// becomes that of the first such module. In more than one module, the host's commands are
/// [`GlobalError::SeveralModules`].
pub struct DeviceGlobal<T: 'static, A = host_access::ReadWrite, S = scope::PerDevice> {
    name: &'static str,
    layout: Option<&'static RustLayout>,
    initial: Option<&'static T>,
    init: InitMode,
    properties: PhantomData<fn() -> (A, S)>,
}

impl<T> DeviceGlobal<T> {
    /// The variable of that name: with its program's prefix, if any.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            layout: None,
            initial: None,
            init: InitMode::Reset,
            properties: PhantomData,
        }
    }
}

impl<T, A, S> DeviceGlobal<T, A, S> {
    const fn with<B, R>(self) -> DeviceGlobal<T, B, R> {
        DeviceGlobal {
            name: self.name,
            layout: self.layout,
            initial: self.initial,
            init: self.init,
            properties: PhantomData,
        }
    }

    /// The host may only read.
    #[must_use]
    pub const fn host_read(self) -> DeviceGlobal<T, host_access::Read, S> {
        self.with()
    }

    /// The host may only write.
    #[must_use]
    pub const fn host_write(self) -> DeviceGlobal<T, host_access::Write, S> {
        self.with()
    }

    /// The host may neither read nor write.
    #[must_use]
    pub const fn no_host_access(self) -> DeviceGlobal<T, host_access::NoAccess, S> {
        self.with()
    }

    /// Each module has its own instance (`device_image_scope`). The declaration must be known before the first kernel
    /// that names the variable is made: see [`DeviceGlobal::declare`].
    #[must_use]
    pub const fn image_scope(self) -> DeviceGlobal<T, A, scope::PerImage> {
        self.with()
    }

    /// Its value at first, and after a reset; zero otherwise. The declaration must be known before the variable is
    /// first used on a device: see [`DeviceGlobal::declare`].
    #[must_use]
    pub const fn initial(mut self, value: &'static T) -> Self {
        self.initial = Some(value);
        self
    }

    /// The time of a reset to the initial value (`init_mode`; default: [`InitMode::Reset`]).
    #[must_use]
    pub const fn init_mode(mut self, mode: InitMode) -> Self {
        self.init = mode;
        self
    }

    /// Accepted for programs that come from SYCL, and without effect: the property is about control and status
    /// registers of FPGAs.
    #[must_use]
    pub const fn implement_in_csr(self, _yes: bool) -> Self {
        self
    }

    /// The layout of `T`, or of the structure in an array `T`: compared, field by field, with the declarations of
    /// programs. Otherwise only sizes are compared.
    #[must_use]
    pub const fn layout(mut self, layout: &'static RustLayout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// The variable's name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<T: HostShareable> DeviceGlobal<T> {
    /// As [`DeviceGlobal::new`], for a structure declared by [`shared!`](crate::shared): the layout is compared with
    /// the declarations of programs.
    pub const fn of_struct(name: &'static str) -> Self {
        Self::new(name).layout(&T::LAYOUT)
    }
}

impl<T: Pod, A: AccessKind, S: ScopeKind> DeviceGlobal<T, A, S> {
    /// Makes the declaration known to the context of `device`, as any use by the host does. Properties that decide
    /// about the making of kernels (image scope, an initial value) must be known before the first kernel naming the
    /// variable.
    ///
    /// # Errors
    /// [`GlobalError::Conflict`] where the name is known with another type or other properties.
    pub fn declare(&self, device: &Device) -> Result<(), GlobalError> {
        let names = memory::names(&device.shared);
        names
            .declare(&self.declaration())
            .map_err(|conflict| Box::new(conflict).into())
    }

    /// The instance on `device`, for commands.
    pub fn on<'a>(&'a self, device: &Device) -> GlobalOn<'a, T, A, S> {
        GlobalOn::new(self, device)
    }

    fn declaration(&self) -> Declaration {
        Declaration {
            name: self.name,
            type_name: std::any::type_name::<T>(),
            bytes: size_of::<T>() as u64,
            layout: self.layout,
            scope: S::SCOPE,
            access: A::ACCESS,
            init: self.init,
            initial: self
                .initial
                .map(|value| Arc::from(bytemuck::bytes_of(value))),
        }
    }
}

impl<T, A, S> std::fmt::Debug for DeviceGlobal<T, A, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceGlobal")
            .field("name", &self.name)
            .field("type", &std::any::type_name::<T>())
            .finish_non_exhaustive()
    }
}

/// The events that a command waits for.
#[derive(Debug, Clone, Default)]
struct WaitList<'a>(Vec<&'a Event>);

impl Device {
    /// Resets every device global of this device with init mode [`InitMode::Reset`] to its initial value, in the order
    /// of the queue; other globals keep their values. Addresses stay the same.
    ///
    /// # Errors
    /// [`GlobalError::Heap`] where the memory cannot be written now.
    pub fn reset_globals(&self) -> Result<(), GlobalError> {
        memory::initialise_all(&self.shared, InitMode::Reset)
    }

    /// The same for those whose init mode is [`InitMode::Reprogram`].
    ///
    /// # Errors
    /// As [`Device::reset_globals`].
    pub fn reprogram_globals(&self) -> Result<(), GlobalError> {
        memory::initialise_all(&self.shared, InitMode::Reprogram)
    }

    /// The device globals known by name to this device's context, in the order of their names.
    pub fn globals(&self) -> Vec<GlobalDescription> {
        named::describe(&self.shared)
    }

    /// The device global of that name, without its type: accesses against its declaration in Rust, if any, are typed
    /// errors.
    ///
    /// # Errors
    /// [`GlobalError::Unknown`] for a name without any kernel or declaration yet.
    pub fn global(&self, name: &str) -> Result<NamedGlobal, GlobalError> {
        NamedGlobal::find(self, name)
    }

    /// Bytes of memory allocated by this device for device globals.
    pub fn global_bytes(&self) -> u64 {
        memory::chunk_bytes(&self.shared)
    }
}
