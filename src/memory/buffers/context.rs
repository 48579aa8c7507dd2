//! State common to the buffers of a context: the places of bytes, the routes between places, the thread and memory for
//! transfers, and figures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::error::BufferError;
use super::exchange::Exchange;
use super::hop::TransferThread;
use super::root::Root;
use super::statistics::BufferStatistics;
use crate::device::DeviceShared;
use crate::device::wait::lock;
use crate::memory::migrate::{Place, Route, Routes};

/// The buffers of one context.
#[derive(Default)]
pub(crate) struct ContextBuffers {
    pub(super) transfer_thread: TransferThread,
    pub(super) exchange: Exchange,
    map: Mutex<Map>,
    roots: Mutex<Vec<Weak<Root>>>,
    totals: Mutex<BufferStatistics>,
    /// Counts uses, to find the least recently used memory.
    clock: AtomicU64,
}

/// The devices with uses of buffers; a device's place is the index plus 1.
#[derive(Default)]
struct Map {
    devices: Vec<Weak<DeviceShared>>,
    routes: Arc<Routes>,
}

impl ContextBuffers {
    /// The device's place, a new one on first use.
    pub(super) fn place_of(&self, device: &Arc<DeviceShared>) -> Result<Place, BufferError> {
        let mut map = lock(&self.map);
        let place = |at: usize| {
            Place::new(at as u32 + 1).map_err(|_| BufferError::TooManyDevices {
                limit: Place::LIMIT - 1,
            })
        };
        let is_it = |known: &Weak<DeviceShared>| known.as_ptr() == Arc::as_ptr(device);
        if let Some(at) = map.devices.iter().position(is_it) {
            return place(at);
        }
        // An allocation of a buffer keeps its device open: at the place of a closed device there are no bytes.
        let gone = map
            .devices
            .iter()
            .position(|known| known.strong_count() == 0);
        let at = gone.unwrap_or(map.devices.len());
        let new = place(at)?;
        match gone {
            Some(at) => map.devices[at] = Arc::downgrade(device),
            None => map.devices.push(Arc::downgrade(device)),
        }
        let mut routes = (*map.routes).clone();
        for (other, known) in map.devices.iter().enumerate() {
            let joined = (known.upgrade()).is_some_and(|known| Exchange::joins(&known, device));
            let way = match joined {
                true => Route::SharedHost,
                false => Route::ThroughHost,
            };
            if other != at {
                routes.set_both(place(other)?, new, way, Routes::SHARED_HOST_COST);
            }
        }
        map.routes = Arc::new(routes);
        Ok(new)
    }

    /// The ways between the places.
    pub(super) fn routes(&self) -> Arc<Routes> {
        Arc::clone(&lock(&self.map).routes)
    }

    /// Removes a direct route between two devices, after a refusal.
    pub(super) fn close_route(&self, a: Place, b: Place) {
        let mut map = lock(&self.map);
        let mut routes = (*map.routes).clone();
        routes.set_both(a, b, Route::ThroughHost, 0);
        map.routes = Arc::new(routes);
    }

    /// The name of a place in messages.
    pub(super) fn name_of(&self, place: Place) -> String {
        let Some(at) = (place.index() as usize).checked_sub(1) else {
            return "the host".to_owned();
        };
        let map = lock(&self.map);
        let name = |known: &Weak<DeviceShared>| {
            (known.upgrade()).map(|device| device.capabilities.name.clone())
        };
        let Some(named) = map.devices.get(at).and_then(name) else {
            return place.to_string();
        };
        let alike = |known: &&Weak<DeviceShared>| name(known).as_ref() == Some(&named);
        match map.devices.iter().filter(alike).count() {
            0 | 1 => named,
            _ => format!("{named} ({place})"),
        }
    }

    /// Takes note of a buffer.
    pub(super) fn join(&self, root: &Arc<Root>) {
        let mut roots = lock(&self.roots);
        // Now and then.
        if roots.len().is_power_of_two() {
            roots.retain(|known| known.strong_count() > 0);
        }
        roots.push(Arc::downgrade(root));
    }

    /// The living buffers.
    pub(super) fn roots(&self) -> Vec<Arc<Root>> {
        lock(&self.roots).iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds the figures of one buffer's command to the context's.
    pub(super) fn count(&self, change: impl FnOnce(&mut BufferStatistics)) {
        change(&mut lock(&self.totals));
    }

    pub(crate) fn statistics(&self) -> BufferStatistics {
        *lock(&self.totals)
    }
}
