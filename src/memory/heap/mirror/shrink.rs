//! Mirrors of a heap that has given memory back.

use super::{Shadow, Table};
use crate::memory::heap::HeapShared;

impl HeapShared {
    /// Has the mirrors give back memory behind byte `end` of the heap, where nothing is allocated. No launch is in
    /// flight, and none is recorded while the turn is held.
    ///
    /// When the heap grows again both sides begin with zeros there, and sums of zeros are zeros.
    pub(in crate::memory::heap) fn shrink_mirrors(&self, table: &mut Table, end: u64) {
        self.forget_gone(table);
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
                    if let Shadow::Kept(words) = &mut mirror.shadow {
                        words.truncate((end / 4) as usize);
                        words.shrink_to_fit();
                    }
                }
                // The mirror goes on unchanged, and larger than necessary.
                Err(error) => log::debug!("a mirror keeps its size: {error}"),
            }
        }
        self.mirrors.take_stock(table);
    }
}
