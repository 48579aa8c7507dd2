//! Memory read by callers as a delay, on devices with a loop budget. A turn costs the same whatever its contents, so a
//! waiting caller fills each turn with slow work: a walk of dependent loads, wide enough to miss the caches
//! (`shaders/rpc.wgsl`).
//!
//! Why memory: a caller's turns are rationed, and a ration of lavapipe lasts 27 ms of looks. A waiting turn holds 64
//! loads, each at a place decided by the load before. How wide the loads roam grows with each turn, from 4 KiB to 64
//! MiB: the first turns take a microsecond, so that answers are not seen late, and later ones ten: there every load has
//! to miss caches and the tables of pages. The ration then lasts a quarter of a second of processor time. Loads,
//! because a masked-out lane skips loads: lanes without a wait hardly pay. Also tried: 64 atomics take 0.5 µs; denormal
//! numbers are flushed; subgroup operations take no time to speak of. A pass drops the walk where nothing is rationed
//! (`kernel/calls/bind.rs`), and the memory exists only where a service has ports, or a kernel waits for pages of lent
//! memory.

use std::sync::{Arc, Mutex};

use crate::device::wait::lock;
use crate::device::{DeviceShared, LiveError, capture, unique_id};

/// Bytes of the widest walk of `tombolo_call_backoff`: 2^20 lines.
const WIDEST: u64 = 64 << 20;
/// With less there is no walk to speak of.
const LEAST: u64 = 64 << 10;

/// The memory of one device.
#[derive(Debug)]
pub(crate) struct Backoff {
    /// For the bind-group cache.
    pub(crate) id: u64,
    pub(crate) buffer: wgpu::Buffer,
}

/// The device's memory for all its ports.
#[derive(Debug, Default)]
pub(crate) struct KeptBackoff(Mutex<Option<Arc<Backoff>>>);

impl Backoff {
    /// The memory of `device`, where its kernels use such memory; all ports of a device share the memory. With too
    /// little memory for the widest walk the walk is narrower, and callers wait for a shorter time: places beyond the
    /// end are the last place.
    ///
    /// # Errors
    /// There is no memory at all.
    pub(crate) fn of(device: &DeviceShared) -> Result<Option<Arc<Self>>, LiveError> {
        let capabilities = &device.capabilities;
        if !capabilities.needs_loop_guard() {
            return Ok(None);
        }
        let mut kept = lock(&device.extensions.backoff.0);
        if let Some(known) = &*kept {
            return Ok(Some(Arc::clone(known)));
        }
        let limits = &device.limits;
        let most = limits
            .max_storage_buffer_binding_size
            .min(limits.max_buffer_size);
        let mut size = WIDEST.min(most);
        loop {
            let descriptor = wgpu::BufferDescriptor {
                label: Some("tombolo backoff"),
                size,
                usage: wgpu::BufferUsages::STORAGE,
                mapped_at_creation: false,
            };
            let (buffer, error) = capture(&device.raw, || device.raw.create_buffer(&descriptor));
            match error {
                None => {
                    let id = unique_id();
                    let made = Arc::new(Self { id, buffer });
                    return Ok(Some(Arc::clone(kept.insert(made))));
                }
                Some(wgpu::Error::OutOfMemory { .. }) if size / 4 >= LEAST => {
                    log::warn!(
                        "{}: no {size} bytes for callers to back off in; calls are given up sooner",
                        capabilities.name
                    );
                    size /= 4;
                }
                Some(wgpu::Error::OutOfMemory { .. }) => {
                    return Err(LiveError::OutOfMemory { size });
                }
                Some(error) => return Err(LiveError::Hal(error.to_string())),
            }
        }
    }
}
