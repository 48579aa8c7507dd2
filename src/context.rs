//! The context: the adapters of the machine, and the devices opened on them.

mod adapter;
mod memory;
mod second_queue;

use std::sync::Arc;

pub use adapter::AdapterDescription;

use crate::device::heap_shape::segment_bytes;
use crate::device::open::{adopt, named, open, pci_address};
use crate::device::probe::{AdapterProbe, NotProbed, ProbeOptions, ProbeReport};
use crate::device::{Capabilities, Device, DeviceError, DeviceOptions};
use crate::extensions::ContextExtensions;
use crate::memory::HeapSize;

/// The backends allowed by a value of `WGPU_BACKEND`.
fn allowed(value: Option<String>) -> Result<wgpu::Backends, DeviceError> {
    let value = value.filter(|value| !value.trim().is_empty());
    let Some(value) = value else {
        return Ok(wgpu::Backends::all());
    };
    match wgpu::Backends::from_comma_list(&value) {
        none if none.is_empty() => Err(DeviceError::Environment {
            variable: "WGPU_BACKEND",
            value,
        }),
        backends => Ok(backends),
    }
}

/// Refuses what blocks where nothing may.
fn may_block(what: &'static str, instead: &'static str) -> Result<(), DeviceError> {
    may_block_on(cfg!(web), what, instead)
}

fn may_block_on(
    a_page: bool,
    what: &'static str,
    instead: &'static str,
) -> Result<(), DeviceError> {
    match a_page {
        true => Err(DeviceError::WouldBlock { what, instead }),
        false => Ok(()),
    }
}

/// The backend of the adapter compiled in, if one is.
const EMBEDDED: wgpu::Backends = if cfg!(embedded) {
    wgpu::Backends::NOOP
} else {
    wgpu::Backends::empty()
};

/// The adapters of this machine, hardware and software, and the state shared by devices opened on them.
///
/// A context is cheap to clone. Adapters keep their index for the life of the context.
#[derive(Clone)]
pub struct Context {
    shared: Arc<Shared>,
}

struct Shared {
    backends: wgpu::Backends,
    adapters: Vec<Slot>,
    extensions: Arc<ContextExtensions>,
    /// An instance for the drivers of the system; another for the embedded adapter, where compiled in
    #[cfg_attr(not(web), allow(dead_code))] // Held so that the adapters stay.
    instances: Vec<wgpu::Instance>,
}

struct Slot {
    #[cfg_attr(web, allow(dead_code))] // A page asks for another one each time.
    adapter: wgpu::Adapter,
    info: wgpu::AdapterInfo,
    /// Probing opens a scratch device; once per adapter is enough.
    probe: AdapterProbe,
}

impl Context {
    /// Finds the adapters of all backends allowed by `WGPU_BACKEND` (all, when not set).
    ///
    /// # Errors
    /// [`DeviceError::NoAdapter`] when there is none, [`DeviceError::Environment`] when `WGPU_BACKEND`
    /// names no backend. [`DeviceError::WouldBlock`] in a browser: there is [`Context::new_async`].
    pub fn new() -> Result<Self, DeviceError> {
        let backends = allowed(std::env::var("WGPU_BACKEND").ok())?;
        Self::with_backends(backends)
    }

    /// As [`Context::new`], without blocking in a browser. On systems with threads wgpu looks for adapters before the future
    /// is first pending.
    ///
    /// ```no_run
    /// use tombolo::Context;
    ///
    /// # async fn page() -> Result<(), tombolo::Error> {
    /// let context = Context::new_async().await?;
    /// let device = context.device_async().await?;
    /// let values = device.buffer(&[1u32, 2, 3])?;
    /// assert_eq!(values.read_back(..)?.await?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`DeviceError::NoAdapter`] and [`DeviceError::Environment`], as [`Context::new`].
    pub async fn new_async() -> Result<Self, DeviceError> {
        let backends = allowed(std::env::var("WGPU_BACKEND").ok())?;
        Self::with_heap_async(backends, HeapSize::Default).await
    }

    /// Finds the adapters of `backends`, regardless of the environment.
    ///
    /// # Errors
    /// [`DeviceError::NoAdapter`] when there is none.
    pub fn with_backends(backends: wgpu::Backends) -> Result<Self, DeviceError> {
        Self::with_heap(backends, HeapSize::Default)
    }

    /// As [`Context::with_backends`], with a bound for the shared heap.
    ///
    /// # Errors
    /// [`DeviceError::NoAdapter`] when there is none; [`DeviceError::HeapSize`]; [`DeviceError::EmbeddedOption`] when
    /// `TOMBOLO_SANITIZE` or `TOMBOLO_SCHEDULE` make no sense; [`DeviceError::WouldBlock`] in a browser.
    pub fn with_heap(backends: wgpu::Backends, heap: HeapSize) -> Result<Self, DeviceError> {
        may_block("looking for adapters", "`Context::new_async`")?;
        pollster::block_on(Self::with_heap_async(backends, heap))
    }

    /// As [`Context::with_heap`], without blocking in a browser.
    ///
    /// # Errors
    /// [`DeviceError::NoAdapter`] when there is none; [`DeviceError::HeapSize`].
    pub async fn with_heap_async(
        backends: wgpu::Backends,
        heap: HeapSize,
    ) -> Result<Self, DeviceError> {
        heap.check()?;
        let searched = backends & wgpu::Instance::enabled_backend_features();
        let backends = searched | backends & EMBEDDED;
        if backends.is_empty() {
            return Err(DeviceError::NoAdapter { backends });
        }
        let (mut found, mut instances) = (Vec::new(), Vec::new());
        // An instance of no backends is a panic in wgpu.
        if !searched.is_empty() {
            let descriptor = wgpu::InstanceDescriptor {
                backends: searched,
                ..wgpu::InstanceDescriptor::new_without_display_handle()
            }
            .with_env();
            let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
                backends: searched,
                ..descriptor
            });
            found = instance.enumerate_adapters(searched).await;
            instances.push(instance);
        }
        // Behind the adapters of the system, whose indices stay the same with and without the embedded adapter.
        #[cfg(embedded)]
        if backends.intersects(EMBEDDED) {
            let embedded = crate::device::embedded::instance()?;
            found.extend(embedded.enumerate_adapters(EMBEDDED).await);
            instances.push(embedded);
        }
        let adapters: Vec<Slot> = found
            .into_iter()
            .map(|adapter| Slot {
                info: named(adapter.get_info()),
                adapter,
                probe: AdapterProbe::default(),
            })
            .collect();
        if adapters.is_empty() {
            return Err(DeviceError::NoAdapter { backends });
        }
        let extensions = Arc::<ContextExtensions>::default();
        extensions.heap.set_size(heap);
        Ok(Self {
            shared: Arc::new(Shared {
                backends,
                adapters,
                extensions,
                instances,
            }),
        })
    }

    /// The adapters found, in the order of their indices.
    pub fn adapters(&self) -> Vec<AdapterDescription> {
        let describe = |(index, slot): (usize, &Slot)| AdapterDescription {
            index,
            name: slot.info.name.clone(),
            backend: slot.info.backend,
            device_type: slot.info.device_type,
            driver: format!("{} {}", slot.info.driver, slot.info.driver_info)
                .trim()
                .to_string(),
            pci_address: pci_address(&slot.info),
        };
        self.shared
            .adapters
            .iter()
            .enumerate()
            .map(describe)
            .collect()
    }

    /// The backends that were searched.
    pub fn backends(&self) -> wgpu::Backends {
        self.shared.backends
    }

    /// Opens the device named by `WGPU_ADAPTER_NAME` (a part of the name, in any case), or else the best device:
    /// discrete before integrated before virtual before software; among equals the first.
    ///
    /// # Errors
    /// [`DeviceError::UnknownAdapter`] when the variable names none; the driver's refusal.
    pub fn device(&self) -> Result<Device, DeviceError> {
        self.device_with(DeviceOptions::default())
    }

    /// As [`Context::device`], with options.
    ///
    /// # Errors
    /// As [`Context::device`], and [`DeviceError::MissingFeatures`].
    pub fn device_with(&self, options: DeviceOptions) -> Result<Device, DeviceError> {
        match std::env::var("WGPU_ADAPTER_NAME") {
            Ok(name) if !name.trim().is_empty() => self.device_named_with(&name, options),
            _ => self.device_at_with(self.best(), options),
        }
    }

    /// As [`Context::device`], without blocking in a browser; there the device is the one that the browser prefers. On systems
    /// with threads the device is probed and opened before the future is first pending, as wgpu opens devices.
    ///
    /// # Errors
    /// As [`Context::device`].
    pub async fn device_async(&self) -> Result<Device, DeviceError> {
        self.device_with_async(DeviceOptions::default()).await
    }

    /// As [`Context::device_with`], without blocking in a browser.
    ///
    /// # Errors
    /// As [`Context::device_with`].
    pub async fn device_with_async(&self, options: DeviceOptions) -> Result<Device, DeviceError> {
        let index = match std::env::var("WGPU_ADAPTER_NAME") {
            Ok(name) if !name.trim().is_empty() => self.index_of(&name)?,
            _ => self.best(),
        };
        self.open_at(index, options).await
    }

    /// As [`Context::device_at_with`], without blocking in a browser.
    ///
    /// # Errors
    /// As [`Context::device_at_with`].
    pub async fn device_at_with_async(
        &self,
        index: usize,
        options: DeviceOptions,
    ) -> Result<Device, DeviceError> {
        self.open_at(index, options).await
    }

    /// Opens the best device, regardless of the environment.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn best_device(&self) -> Result<Device, DeviceError> {
        self.device_at(self.best())
    }

    /// Opens the first device whose name contains `name`, in any case.
    ///
    /// # Errors
    /// [`DeviceError::UnknownAdapter`] with the names that there are; the driver's refusal.
    pub fn device_named(&self, name: &str) -> Result<Device, DeviceError> {
        self.device_named_with(name, DeviceOptions::default())
    }

    /// As [`Context::device_named`], with options.
    ///
    /// # Errors
    /// As [`Context::device_named`], and [`DeviceError::MissingFeatures`].
    pub fn device_named_with(
        &self,
        name: &str,
        options: DeviceOptions,
    ) -> Result<Device, DeviceError> {
        self.device_at_with(self.index_of(name)?, options)
    }

    /// The first adapter whose name contains `name`, in any case.
    fn index_of(&self, name: &str) -> Result<usize, DeviceError> {
        let wanted = name.trim().to_lowercase();
        let adapters = &self.shared.adapters;
        let found = adapters
            .iter()
            .position(|slot| slot.info.name.to_lowercase().contains(&wanted));
        found.ok_or_else(|| DeviceError::UnknownAdapter {
            wanted: name.to_string(),
            available: adapters.iter().map(|s| s.info.name.clone()).collect(),
        })
    }

    /// Opens the device at `index` of [`Context::adapters`]. Several devices, also on one adapter, may
    /// be open at once.
    ///
    /// # Errors
    /// [`DeviceError::AdapterIndex`]; the driver's refusal; [`DeviceError::WouldBlock`] in a browser, where there is
    /// [`Context::device_async`].
    pub fn device_at(&self, index: usize) -> Result<Device, DeviceError> {
        self.device_at_with(index, DeviceOptions::default())
    }

    /// As [`Context::device_at`], with options.
    ///
    /// # Errors
    /// As [`Context::device_at`], and [`DeviceError::MissingFeatures`].
    pub fn device_at_with(
        &self,
        index: usize,
        options: DeviceOptions,
    ) -> Result<Device, DeviceError> {
        may_block("opening a device", "`Context::device_async`")?;
        pollster::block_on(self.open_at(index, options))
    }

    /// The adapter of a slot, for one device: a browser has an adapter open one device and no more (WebGPU, "adapter.[[state]]
    /// consumed"), and is asked for another.
    #[cfg(web)]
    async fn adapter(&self, slot: &Slot) -> Result<wgpu::Adapter, DeviceError> {
        let backends = self.shared.backends;
        let instance = self.shared.instances.first();
        let mut found = match instance {
            Some(instance) => instance.enumerate_adapters(backends).await,
            None => Vec::new(),
        };
        // The same question has the same answer, unless the browser has lost its graphics processor.
        let is_same = |found: &wgpu::Adapter| named(found.get_info()) == slot.info;
        let same = found.iter().position(is_same);
        match same {
            Some(index) => Ok(found.swap_remove(index)),
            None => Err(DeviceError::NoAdapter { backends }),
        }
    }

    /// The adapter of a slot.
    #[cfg(not(web))]
    #[allow(clippy::unused_async)] // A page has to ask its browser.
    async fn adapter(&self, slot: &Slot) -> Result<wgpu::Adapter, DeviceError> {
        Ok(slot.adapter.clone())
    }

    /// Probes and opens the device at `index`.
    async fn open_at(&self, index: usize, options: DeviceOptions) -> Result<Device, DeviceError> {
        let count = self.shared.adapters.len();
        let Some(slot) = self.shared.adapters.get(index) else {
            return Err(DeviceError::AdapterIndex { index, count });
        };
        let report = if options.probe.unwrap_or(true) {
            let wish = ProbeOptions {
                deadline: options.probe_deadline,
            };
            let adapter = self.adapter(slot).await?;
            slot.probe.ask(&adapter, &wish).await
        } else {
            ProbeReport::not_probed(NotProbed::TurnedOff)
        };
        let extensions = Arc::clone(&self.shared.extensions);
        let adapter = self.adapter(slot).await?;
        let device = open(&adapter, options, extensions, report).await?;
        join_heap(&device);
        Ok(device)
    }

    /// The abilities of the adapter at `index`, measured by a scratch device closed again.
    ///
    /// # Errors
    /// As [`Context::device_at`].
    pub fn capabilities(&self, index: usize) -> Result<Capabilities, DeviceError> {
        Ok(self.device_at(index)?.capabilities().clone())
    }

    fn best(&self) -> usize {
        let rank = |slot: &Slot| match slot.info.device_type {
            wgpu::DeviceType::DiscreteGpu => 0,
            wgpu::DeviceType::IntegratedGpu => 1,
            wgpu::DeviceType::VirtualGpu => 2,
            wgpu::DeviceType::Other => 3,
            wgpu::DeviceType::Cpu => 4,
        };
        let adapters = &self.shared.adapters;
        (0..adapters.len())
            .min_by_key(|&index| rank(&adapters[index]))
            .unwrap_or(0)
    }
}

impl Device {
    /// Builds a device around a wgpu device and queue that the program already has. Both go on working
    /// as before; the program's own error handlers stay in place. Nothing may be submitted on the hal queue behind wgpu's
    /// back ([`Device::raw_queue`]). Servers on the device are asked to leave by [`Device::pause_servers`].
    ///
    /// Adopted devices are probed only with [`DeviceOptions::probe`] set to `Some(true)`: the probe's
    /// tiny kernels run on the device itself.
    pub fn adopt(device: wgpu::Device, queue: wgpu::Queue, options: DeviceOptions) -> Device {
        let device = adopt(device, queue, options);
        join_heap(&device);
        device
    }
}

/// Lets the heap of the device's context know the device's working set.
fn join_heap(device: &Device) {
    let heap = &device.shared.context.heap;
    heap.keep_within(&device.shared, segment_bytes(&device.shared.limits));
    heap.join(&device.shared);
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("adapters", &self.adapters())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_backends() {
        let allowed = |value: &str| allowed(Some(value.to_owned()));
        assert_eq!(super::allowed(None).unwrap(), wgpu::Backends::all());
        assert_eq!(allowed(" ").unwrap(), wgpu::Backends::all());
        assert_eq!(
            allowed("vulkan,metal").unwrap(),
            wgpu::Backends::VULKAN | wgpu::Backends::METAL
        );
        for nonsense in ["vulcan", ",", "a b"] {
            let error = allowed(nonsense).unwrap_err();
            assert!(
                matches!(&error, DeviceError::Environment { value, .. } if value == nonsense),
                "{error}"
            );
        }
    }

    #[test]
    fn a_page_is_told_what_does_not_block() {
        super::may_block_on(false, "a", "b").unwrap();
        let error = super::may_block_on(true, "opening a device", "`x`").unwrap_err();
        assert!(matches!(
            error,
            DeviceError::WouldBlock { instead: "`x`", .. }
        ));
        assert!(error.to_string().contains("opening a device"), "{error}");
    }
}
