//! The bind-group cache: a launch that binds what an earlier one bound makes nothing new.

use std::collections::HashMap;

use crate::kernel::cache::{CacheCounts, Counter};

/// Bind groups held at most; beyond this the cache is emptied, since whoever binds so many different
/// things is not repeating himself.
const CAPACITY: usize = 8192;

/// Bind groups by what they bind: the layout's identity, then identity, offset and size of each
/// resource.
#[derive(Default)]
pub(crate) struct BindGroupCache {
    groups: HashMap<Box<[u64]>, wgpu::BindGroup>,
    /// Which keys mention a buffer, so that its memory is not kept alive by the cache.
    users: HashMap<u64, Vec<Box<[u64]>>>,
    counter: Counter,
}

impl BindGroupCache {
    pub(crate) fn get(
        &mut self,
        key: &[u64],
        buffers: &[u64],
        make: impl FnOnce() -> wgpu::BindGroup,
    ) -> wgpu::BindGroup {
        if let Some(found) = self.groups.get(key) {
            self.counter.hit();
            return found.clone();
        }
        self.counter.miss();
        if self.groups.len() >= CAPACITY {
            self.groups.clear();
            self.users.clear();
        }
        let made = make();
        self.groups.insert(key.into(), made.clone());
        for &buffer in buffers {
            self.users.entry(buffer).or_default().push(key.into());
        }
        made
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
