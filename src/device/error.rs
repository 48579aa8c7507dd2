//! Why a device was not opened.

use super::capabilities::names;
use super::heap_options::HeapSizeError;
use crate::error_text::debug_by_text;

/// Advice where there is no adapter.
const NO_ADAPTER: &str = if cfg!(web) {
    "this browser gives the page no WebGPU; take one that has it, turn on its switch, and serve the page by https or from \
     the machine itself, since pages of other origins get none"
} else {
    "compile in the adapter of the feature `embedded`, whose backend is `noop` in WGPU_BACKEND; install a Vulkan driver, for \
     example the software driver lavapipe (Debian and Ubuntu: apt-get install mesa-vulkan-drivers); or set WGPU_BACKEND to \
     a backend that this machine has"
};

/// Why there is no device.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The machine has no adapter usable by wgpu.
    #[error("no compute adapter found (backends searched: {}): {NO_ADAPTER}", names(.backends.iter_names()))]
    NoAdapter {
        /// The searched backends.
        backends: wgpu::Backends,
    },
    /// No adapter has the wanted name.
    #[error("no adapter's name contains `{wanted}`; there are: {}", available.join(", "))]
    UnknownAdapter {
        /// The wanted name, through [`Context::device_named`](crate::Context::device_named) or
        /// `WGPU_ADAPTER_NAME`.
        wanted: String,
        /// The adapters' names.
        available: Vec<String>,
    },
    /// The index is beyond the adapters that there are.
    #[error("adapter {index} does not exist: there are {count}, counted from 0")]
    AdapterIndex {
        /// The index asked for.
        index: usize,
        /// How many adapters there are.
        count: usize,
    },
    /// The adapter lacks features asked for.
    #[error("{adapter} lacks {}, asked for in DeviceOptions::features", names(.missing.iter_names()))]
    MissingFeatures {
        /// The adapter's name.
        adapter: String,
        /// The missing features.
        missing: wgpu::Features,
    },
    /// The driver refused to open the device.
    #[error("{adapter} could not be opened: {source}")]
    Open {
        /// The adapter's name.
        adapter: String,
        /// wgpu's error.
        source: wgpu::RequestDeviceError,
    },
    /// The device cannot use the shared heap in the place asked for with
    /// [`DeviceOptions::heap_placement`](crate::DeviceOptions::heap_placement).
    #[error(
        "{adapter} cannot use the shared heap in place: {why}; open it with HeapPlacement::Auto or HeapPlacement::Device, \
         which keep a copy on the device"
    )]
    HeapPlacement {
        /// The adapter's name.
        adapter: String,
        /// Why not.
        why: String,
    },
    /// No heap can have the size given to the context.
    #[error(transparent)]
    HeapSize(#[from] HeapSizeError),
    /// A variable of the environment has a value that an option of the embedded adapter cannot have.
    #[error("{variable}={value} is not {expected}: correct or unset the variable")]
    EmbeddedOption {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What the value may be.
        expected: &'static str,
    },
    /// Opening would block the thread, forbidden in a page of a browser.
    #[error("{what} would block the page, which no page may: `.await` {instead}")]
    WouldBlock {
        /// The attempted operation.
        what: &'static str,
        /// The form without blocking.
        instead: &'static str,
    },
    /// An option of the embedded adapter for a device on another one.
    #[error(
        "{adapter} has no EmbeddedOptions::{option}: open the embedded adapter (WGPU_ADAPTER_NAME=embedded, or \
         Context::device_named_with(\"embedded\", …)), or leave the option out"
    )]
    NotEmbedded {
        /// The adapter.
        adapter: String,
        /// The option set.
        option: &'static str,
    },
    /// There is no queue beside the device's ([`Device::second_queue`](crate::Device::second_queue)).
    #[error(
        "{device} has no second queue: {why}; a server on the device itself gives way to launches by leases, and another \
         device of the machine works beside this one"
    )]
    SecondQueue {
        /// The device's name.
        device: String,
        /// Why not.
        why: String,
    },
    /// The environment asks for something that does not exist.
    #[error("{variable}={value} names no backend that wgpu knows: use vulkan, metal, dx12 or gl")]
    Environment {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
}

debug_by_text!(DeviceError {
    HeapPlacement,
    NoAdapter,
    UnknownAdapter,
    AdapterIndex,
    MissingFeatures,
    Open,
    HeapSize,
    EmbeddedOption,
    NotEmbedded,
    WouldBlock,
    SecondQueue,
    Environment,
});
