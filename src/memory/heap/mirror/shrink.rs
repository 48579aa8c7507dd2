//! Mirrors of a heap that has given memory back.

use super::Table;
use crate::memory::heap::HeapShared;

impl HeapShared {
    /// Has the mirrors give back memory behind byte `end` of the heap, where nothing is allocated. No launch is in
    /// flight, and none is recorded while the turn is held.
    ///
    /// When the heap grows again both sides begin with zeros there, and so do both shadows.
    pub(in crate::memory::heap) fn shrink_mirrors(&self, table: &mut Table, end: u64) {
        let ahead = table.ahead;
        table
            .by_device
            .retain(|id, mirror| mirror.owner.strong_count() > 0 || ahead == Some(*id));
        for mirror in table.by_device.values_mut() {
            // The changes of the last launch of a device that is gone are brought down and then dropped.
            let Some(device) = mirror.owner.upgrade() else {
                continue;
            };
            if mirror.buffers.covered <= end {
                continue;
            }
            match mirror.buffers.shrink(&device, end) {
                Ok(()) => {
                    mirror.shadow.truncate((end / 4) as usize);
                    mirror.shadow.shrink_to_fit();
                }
                // The mirror goes on unchanged, and larger than necessary.
                Err(error) => log::debug!("a mirror keeps its size: {error}"),
            }
        }
    }
}
