//! The bind-group cache: a launch with the same bindings as an earlier launch makes nothing new.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use super::parts::{Arena, ScratchMemory};
use crate::device::wait::lock;
use crate::device::{Device, DeviceShared};
use crate::kernel::cache::{CacheCounts, CacheStatistics, Counter};
use crate::memory::staging;

/// Bind groups held at most; beyond this the cache is emptied, since so many different bindings do not repeat.
const CAPACITY: usize = 8192;

/// Bind groups by their contents: the layout's identity, then identity, offset and size of each
/// resource.
#[derive(Default)]
pub(crate) struct BindGroupCache {
    groups: HashMap<Box<[u64]>, wgpu::BindGroup>,
    /// Which keys mention a buffer, so its memory is not kept alive by the cache.
    users: HashMap<u64, Vec<Box<[u64]>>>,
    counter: Counter,
}

/// State of this module for each device.
#[derive(Default)]
pub(crate) struct LaunchExtension {
    groups: Mutex<BindGroupCache>,
    pub(super) arena: Arena,
    pub(super) scratch: ScratchMemory,
}

impl BindGroupCache {
    /// The group, made if it is new. A group refused by wgpu is not kept.
    pub(crate) fn get(
        &mut self,
        key: &[u64],
        buffers: &[u64],
        make: impl FnOnce() -> (wgpu::BindGroup, Option<wgpu::Error>),
    ) -> (wgpu::BindGroup, Option<wgpu::Error>) {
        if let Some(found) = self.groups.get(key) {
            self.counter.hit();
            return (found.clone(), None);
        }
        self.counter.miss();
        let (made, error) = make();
        if error.is_some() {
            return (made, error);
        }
        if self.groups.len() >= CAPACITY {
            self.groups.clear();
            self.users.clear();
        }
        self.groups.insert(key.into(), made.clone());
        for &buffer in buffers {
            let keys = self.users.entry(buffer).or_default();
            // Now and then, since groups also go with their other buffers.
            if keys.len().is_power_of_two() {
                keys.retain(|known| self.groups.contains_key(known));
            }
            keys.push(key.into());
        }
        (made, None)
    }

    /// Drops every group that mentions the buffer.
    pub(crate) fn forget(&mut self, buffer: u64) {
        for key in self.users.remove(&buffer).unwrap_or_default() {
            self.groups.remove(&key);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.groups.clear();
        self.users.clear();
    }

    pub(crate) fn statistics(&self) -> CacheCounts {
        self.counter.counts(self.groups.len())
    }
}

/// The bind groups of a device, locked.
pub(crate) fn bind_groups(device: &DeviceShared) -> MutexGuard<'_, BindGroupCache> {
    device
        .buffer_gone
        .get_or_init(|| |device, buffer| bind_groups(device).forget(buffer));
    lock(&device.extensions.launch.groups)
}

impl Device {
    /// How often each cache of the device was asked and had the answer, and how many submissions
    /// were made.
    pub fn cache_statistics(&self) -> CacheStatistics {
        let shared = &self.shared;
        // One lock at a time: launches take the queue's before the bind groups'.
        let bind_groups = bind_groups(shared).statistics();
        CacheStatistics {
            modules: shared.context.modules.statistics(),
            kernels: shared.extensions.kernels.statistics(),
            bind_groups,
            global_lookups: shared.context.globals.lookups(),
            submissions: shared.queue.lock(shared).submissions(),
        }
    }

    /// Empties the device's caches of kernels and bind groups, and the cache of modules shared by the devices of the
    /// context, and gives back the memory for arguments without bindings and for
    /// spilled arrays, and the idle staging memory of transfers.
    /// Kernels that the program holds go on working. For programs that specialize without end; others need not bother.
    pub fn trim_caches(&self) {
        let shared = &self.shared;
        Arena::clear(shared);
        ScratchMemory::clear(shared);
        staging::of(shared).trim(shared);
        bind_groups(shared).clear();
        shared.extensions.kernels.clear();
        shared.context.modules.clear();
    }
}
