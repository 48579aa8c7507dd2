//! Host memory imported by two devices: bytes go from one device to the other in one hop, without a copy by the host.
//!
//! The memory is cut into shared transfer slots, one for each transfer under way: one copy on either device, none by
//! the host. A slot is reused after the end of the batch that emptied it.

use std::sync::{Arc, Mutex, Weak};

use smallvec::SmallVec;

use super::hop::End;
use crate::device::import::import_host;
use crate::device::wait::lock;
use crate::device::window::Window;
use crate::device::{Aspect, DeviceShared};

/// All slots together; address space only, until slots are needed.
const WINDOW_BYTES: u64 = 4 << 30;
/// The smallest slot, a multiple of the page size on all systems.
const LEAST_BYTES: u64 = 64 << 10;
/// The most bytes of one transfer; larger uploads are divided.
pub(super) const MOST_BYTES: u64 = 64 << 20;

/// The slots of a context.
#[derive(Default)]
pub(super) struct Exchange(Mutex<State>);

#[derive(Default)]
struct State {
    /// `None` inside where the system has no such window.
    window: Option<Option<Arc<Window>>>,
    /// Bytes of the window already cut into slots.
    cut: u64,
    idle: Vec<Crate>,
    /// With the ends of batches that may still use the slot.
    busy: Vec<(Crate, Vec<End>)>,
}

type Import = (u64, Weak<DeviceShared>, wgpu::Buffer);

/// A shared transfer slot: memory imported by devices.
pub(super) struct Crate {
    start: u64,
    bytes: u64,
    /// With the devices' numbers.
    imports: SmallVec<[Import; 2]>,
}

impl Crate {
    /// The memory as a buffer of the device, which was given to [`Exchange::take`].
    pub(super) fn seen_by(&self, device: &DeviceShared) -> Option<&wgpu::Buffer> {
        let mut imports = self.imports.iter();
        imports.find_map(|(id, _, buffer)| (*id == device.id).then_some(buffer))
    }
}

impl Exchange {
    /// Whether both devices can import host memory.
    pub(super) fn joins(a: &DeviceShared, b: &DeviceShared) -> bool {
        let imports = |device: &DeviceShared| device.capabilities.has(Aspect::HostImport);
        imports(a) && imports(b)
    }

    /// A slot of at least `bytes` bytes, seen by both devices; `None` without memory, or if a driver refuses the
    /// import.
    pub(super) fn take(
        &self,
        bytes: u64,
        a: &Arc<DeviceShared>,
        b: &Arc<DeviceShared>,
    ) -> Option<Crate> {
        self.take_within(WINDOW_BYTES, bytes, a, b)
    }

    /// As [`Self::take`], for bytes that nobody has asked for: half of the window is left to those that are.
    pub(super) fn take_ahead(
        &self,
        bytes: u64,
        a: &Arc<DeviceShared>,
        b: &Arc<DeviceShared>,
    ) -> Option<Crate> {
        self.take_within(WINDOW_BYTES / 2, bytes, a, b)
    }

    fn take_within(
        &self,
        most: u64,
        bytes: u64,
        a: &Arc<DeviceShared>,
        b: &Arc<DeviceShared>,
    ) -> Option<Crate> {
        let bytes = bytes.next_power_of_two().max(LEAST_BYTES);
        let mut state = lock(&self.0);
        let State { idle, busy, .. } = &mut *state;
        for at in (0..busy.len()).rev() {
            if busy[at].1.iter().all(End::is_reached) {
                idle.push(busy.swap_remove(at).0);
            }
        }
        let fits = |known: &Crate| known.bytes == bytes;
        let mut found = match idle.iter().position(fits) {
            Some(at) => idle.swap_remove(at),
            None => state.cut(bytes, most)?,
        };
        drop(state);
        (found.imports).retain(|(_, owner, _)| owner.strong_count() > 0);
        if !self.import(&mut found, a) || !self.import(&mut found, b) {
            lock(&self.0).idle.push(found);
            return None;
        }
        Some(found)
    }

    /// Imports a slot on another device; false if the driver refuses.
    pub(super) fn import(&self, known: &mut Crate, device: &Arc<DeviceShared>) -> bool {
        if known.seen_by(device).is_some() {
            return true;
        }
        let window = lock(&self.0).window.clone().flatten();
        let Some(window) = window else { return false };
        let range = known.start..known.start + known.bytes;
        match import_host(&device.raw, &window, range, "tombolo exchange") {
            Ok(buffer) => {
                let owner = Arc::downgrade(device);
                known.imports.push((device.id, owner, buffer));
                true
            }
            Err(error) => {
                log::warn!("{}: {error}", device.capabilities.name);
                false
            }
        }
    }

    /// Takes a slot back, to be reused after all of `ends`.
    pub(super) fn give(&self, used: Crate, ends: Vec<End>) {
        let mut state = lock(&self.0);
        match ends.is_empty() {
            false => state.busy.push((used, ends)),
            true => state.idle.push(used),
        }
    }
}

impl State {
    /// A new slot, with at most `most` bytes cut in all.
    fn cut(&mut self, bytes: u64, most: u64) -> Option<Crate> {
        let window = self.window.get_or_insert_with(|| {
            let window = Window::reserve(WINDOW_BYTES);
            if let Err(error) = &window {
                log::warn!("devices exchange bytes through copies of the host: {error}");
            }
            window.ok()
        });
        let window = window.as_ref()?;
        let start = self.cut;
        if start + bytes > most {
            return None;
        }
        window.commit(start..start + bytes).ok()?;
        self.cut += bytes;
        Some(Crate {
            start,
            bytes,
            imports: SmallVec::new(),
        })
    }
}
