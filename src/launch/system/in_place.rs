//! Launches on the host's own processor, with lent memory used in place (`src/memory/system/in_place.rs`).

// The window's own pages are looked at before and after kernels run.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::{Run, SystemError, WHAT, wait_until_over};
use crate::device::DeviceShared;
use crate::launch::parts::system::Lent;
use crate::memory::system::in_place::{InPlace, OwnPages};
use crate::memory::system::table::Demands;
use crate::memory::{DeviceBuffer, MemoryError};

impl Run<'_, '_> {
    /// The window of lent memory that the device uses in place, if any.
    pub(super) fn window(&self) -> Option<InPlace> {
        let is_wanted = self.memory.in_place && self.device.capabilities.unified_memory;
        let room = usize::try_from(self.most_pages).unwrap_or(usize::MAX);
        let window = || InPlace::around(&self.memory.lends, room, 4 * self.most_words);
        (is_wanted && is_host(&self.device)).then(window).flatten()
    }

    /// A single launch, whose pool is a window of the host's address space.
    pub(super) fn in_place(&mut self) -> Result<(), SystemError> {
        let lends = &self.memory.lends;
        for page in lends.pages(0) {
            self.fetch(page)?;
        }
        self.report.pages_in_place = self.frames.count_in_place();
        let faults = self.faults(None);
        let table = self.frames.table(lends, faults, Demands::default());
        let image = self.frames.image().to_vec();
        let take = |words: u64| self.pools().take(&self.device, words, self.most_words);
        let [table_buffer, flags] = [take(table.len() as u64)?, take(faults.start.into())?];
        table_buffer.write(0, &table)?;
        flags.write(0, &vec![0; faults.start as usize])?;
        let Some(window) = self.frames.in_place() else {
            return Ok(());
        };
        // SAFETY: the launch is not made yet.
        let own = unsafe { window.own_words() };
        own[..image.len()].copy_from_slice(&image);
        let (address, bytes, keeper) = window.window();
        let raw = window_buffer(&self.device, address, bytes, keeper)?;
        let pool = DeviceBuffer::wrap(&self.device, raw, bytes / 4);
        let lent = Arc::new(Lent::new(vec![pool, table_buffer, flags]));
        self.launch.settings.system = Some(Arc::clone(&lent));
        self.launch.bound = None;
        self.report.launches += 1;
        let event = self.launch.submit()?;
        let ended = event.wait();
        // Whatever `wait` returns: lent memory must not be given back while a kernel may use the memory.
        wait_until_over(&self.device, &event);
        self.launch.settings.system = None;
        let done = match ended {
            Ok(()) => {
                (self.flags_of_writes(&lent)).and_then(|flags| self.write_back(&lent, &flags))
            }
            Err(error) => Err(error.into()),
        };
        if let Ok(Lent { buffers, .. }) = Arc::try_unwrap(lent) {
            // The pool is no buffer of ours.
            let kept = buffers.into_iter().skip(1);
            kept.for_each(|buffer| self.pools().give(buffer));
        }
        done
    }
}

/// Whether the device is the host's own processor, for which a buffer is any range of the host's address space.
fn is_host(device: &DeviceShared) -> bool {
    #[cfg(embedded)]
    return device.raw.adapter_info().backend == crate::device::embedded::BACKEND;
    #[cfg(not(embedded))]
    return {
        let _ = device;
        false
    };
}

/// A buffer over a window of the host's address space; the buffer keeps `keeper`.
fn window_buffer(
    device: &DeviceShared,
    address: u64,
    bytes: u64,
    keeper: Arc<OwnPages>,
) -> Result<wgpu::Buffer, MemoryError> {
    #[cfg(embedded)]
    let made = crate::device::embedded::over_window(&device.raw, address, bytes, Box::new(keeper));
    #[cfg(not(embedded))]
    let made: Result<wgpu::Buffer, String> = {
        let _ = (device, address, bytes, keeper);
        Err("this device is not the host's processor".to_owned())
    };
    made.map_err(|message| MemoryError::Refused {
        what: WHAT,
        message,
    })
}
