//! Host memory imported by two devices: bytes go from one device to the other in one hop, without a copy by the host.
//!
//! The memory is cut into shared transfer slots, one for each transfer under way: one copy on either device, none by
//! the host. A slot is reused after the end of the emptying batch; the books are in [`slots`](super::slots).
//!
//! A device keeps the imports made by the device ([`SlotImports`]), and both end together. A slot given up is dropped by all
//! devices, and the memory goes back to the system once wgpu has let go of the imports: at once where the devices have
//! been polled since the last use of the slot, else with a later look ([`Exchange::vacate`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

use super::hop::End;
use super::places::let_go;
use super::slots::{Figures, Found, Slots, Use};
use crate::device::import::import_host;
use crate::device::wait::lock;
use crate::device::window::Window;
use crate::device::{Aspect, DeviceShared};

/// All slots together; address space only, until slots are needed.
const WINDOW_BYTES: u64 = 4 << 30;
/// The most bytes of one transfer; larger uploads are divided.
pub(super) const MOST_BYTES: u64 = 64 << 20;

impl Use for End {
    fn is_over(&self) -> bool {
        self.is_reached()
    }
}

/// Host memory for bytes on the way between devices of a context, and for buffers in memory common to several devices
/// ([`Context::exchange_memory`](crate::Context::exchange_memory)).
///
/// The memory lies in slots of powers of two, kept for the next transfer of the size.
/// [`Device::trim_buffers`](crate::Device::trim_buffers) and
/// [`Device::trim_buffer_blocks`](crate::Device::trim_buffer_blocks) give unused slots back; so does the runtime
/// where a driver or the system has no more memory, or the 4 GiB for all slots are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ExchangeMemory {
    /// Slots with memory.
    pub slots: u64,
    /// Bytes of all slots.
    pub bytes: u64,
    /// Bytes of slots that wait for the next transfer.
    pub idle_bytes: u64,
    /// Imports of slots by open devices, one for each slot and device.
    pub imports: u64,
}

/// The slots imported by a device, by the beginnings in the context's window.
#[derive(Debug, Default)]
pub(crate) struct SlotImports(Mutex<BTreeMap<u64, wgpu::Buffer>>);

fn imports_of(device: &DeviceShared) -> &Mutex<BTreeMap<u64, wgpu::Buffer>> {
    &device.extensions.memory.slots.0
}

/// The slots of a context.
#[derive(Default)]
pub(super) struct Exchange(Mutex<State>);

struct State {
    /// `None` inside where the system has no such window.
    window: Option<Option<Arc<Window>>>,
    slots: Slots<End>,
    /// The devices that have imported slots.
    importers: Vec<Weak<DeviceShared>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            window: None,
            slots: Slots::new(WINDOW_BYTES),
            importers: Vec::new(),
        }
    }
}

/// A shared transfer slot: memory imported by devices. Goes back by [`Exchange::give`].
pub(super) struct Crate {
    range: Range<u64>,
}

impl Crate {
    /// The memory as a buffer of the device, if the device has imported the slot.
    pub(super) fn seen_by(&self, device: &DeviceShared) -> Option<wgpu::Buffer> {
        lock(imports_of(device)).get(&self.range.start).cloned()
    }
}

/// Why there is no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoSlot {
    /// All memory for slots is in use, or the system has no more: later there may be some.
    Full,
    /// There is no window, or a driver refuses the import.
    Refused,
}

impl Exchange {
    /// Whether both devices can import host memory.
    pub(super) fn joins(a: &DeviceShared, b: &DeviceShared) -> bool {
        let imports = |device: &DeviceShared| device.capabilities.has(Aspect::HostImport);
        imports(a) && imports(b)
    }

    /// A slot of at least `bytes` bytes, seen by both devices. May run callbacks of the program.
    pub(super) fn take(
        &self,
        bytes: u64,
        a: &Arc<DeviceShared>,
        b: &Arc<DeviceShared>,
    ) -> Result<Crate, NoSlot> {
        self.take_within(WINDOW_BYTES, bytes, a, b)
    }

    /// As [`Self::take`], for bytes sent before anybody has asked: half of the window is left to the others.
    pub(super) fn take_ahead(
        &self,
        bytes: u64,
        a: &Arc<DeviceShared>,
        b: &Arc<DeviceShared>,
    ) -> Result<Crate, NoSlot> {
        self.take_within(WINDOW_BYTES / 2, bytes, a, b)
    }

    fn take_within(
        &self,
        most: u64,
        bytes: u64,
        a: &Arc<DeviceShared>,
        b: &Arc<DeviceShared>,
    ) -> Result<Crate, NoSlot> {
        let found = self.found(bytes, most).or_else(|why| match why {
            // Idle slots of other sizes make room.
            NoSlot::Full if self.give_up(|_| true) > 0 => self.found(bytes, most),
            why => Err(why),
        })?;
        if self.import(&found, a) && self.import(&found, b) {
            return Ok(found);
        }
        // Drivers have limits of their own for what they import.
        if self.give_up(|_| true) > 0 && self.import(&found, a) && self.import(&found, b) {
            return Ok(found);
        }
        self.give(found, Vec::new());
        Err(NoSlot::Refused)
    }

    /// A slot with memory.
    fn found(&self, bytes: u64, most: u64) -> Result<Crate, NoSlot> {
        let state = &mut *lock(&self.0);
        let window = state.window.get_or_insert_with(|| {
            let window = Window::reserve(WINDOW_BYTES);
            if let Err(error) = &window {
                log::warn!("devices exchange bytes through copies of the host: {error}");
            }
            window.ok()
        });
        let window = window.as_ref().ok_or(NoSlot::Refused)?;
        let Found { range, is_new } = state.slots.take(bytes, most).ok_or(NoSlot::Full)?;
        if is_new && let Err(error) = window.commit(range.clone()) {
            log::info!("{error}");
            state.slots.give_unused(range);
            return Err(NoSlot::Full);
        }
        Ok(Crate { range })
    }

    /// Imports a slot on another device; false if the driver refuses.
    pub(super) fn import(&self, known: &Crate, device: &Arc<DeviceShared>) -> bool {
        if known.seen_by(device).is_some() {
            return true;
        }
        let window = lock(&self.0).window.clone().flatten();
        let Some(window) = window else { return false };
        let range = known.range.clone();
        match import_host(&device.raw, &window, range, "tombolo exchange") {
            Ok(buffer) => {
                lock(imports_of(device)).insert(known.range.start, buffer);
                let importers = &mut lock(&self.0).importers;
                importers.retain(|known| known.strong_count() > 0);
                if !importers
                    .iter()
                    .any(|known| known.as_ptr() == Arc::as_ptr(device))
                {
                    importers.push(Arc::downgrade(device));
                }
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
        lock(&self.0).slots.give(used.range, ends);
    }

    /// Gives up the idle slots imported by `device`, or by no open device. Returns the bytes. May run callbacks of the
    /// program.
    pub(super) fn trim(&self, device: &DeviceShared) -> u64 {
        let own: Vec<u64> = lock(imports_of(device)).keys().copied().collect();
        let mut others = Vec::new();
        for importer in self.importers() {
            others.extend(lock(imports_of(&importer)).keys().copied());
            let_go(importer);
        }
        self.give_up(|slot| own.contains(&slot.start) || !others.contains(&slot.start))
    }

    /// Gives up the idle slots chosen by `which`: imports and memory. Returns the bytes.
    fn give_up(&self, which: impl FnMut(&Range<u64>) -> bool) -> u64 {
        let given = lock(&self.0).slots.give_up(which);
        for importer in self.importers() {
            let dropped: Vec<_> = {
                let mut imports = lock(imports_of(&importer));
                let starts = given.iter().map(|slot| slot.start);
                starts.filter_map(|start| imports.remove(&start)).collect()
            };
            if !dropped.is_empty() {
                // Without a lock: wgpu runs what releases the pages, now or with a poll.
                drop(dropped);
                importer.submissions.collect();
            }
            let_go(importer);
        }
        self.vacate();
        given.iter().map(|slot| slot.end - slot.start).sum()
    }

    /// Gives back the memory of slots given up, as far as no device has the pages any more.
    fn vacate(&self) {
        let State { window, slots, .. } = &mut *lock(&self.0);
        if let Some(Some(window)) = window {
            slots.vacate(|slot| window.decommit(slot.clone()).is_ok());
        }
    }

    /// The open devices with imports.
    fn importers(&self) -> Vec<Arc<DeviceShared>> {
        let state = lock(&self.0);
        state.importers.iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn memory(&self) -> ExchangeMemory {
        self.vacate();
        let mut imports = 0;
        for importer in self.importers() {
            imports += lock(imports_of(&importer)).len() as u64;
            let_go(importer);
        }
        let Figures {
            slots,
            bytes,
            idle_bytes,
        } = lock(&self.0).slots.figures();
        ExchangeMemory {
            slots,
            bytes,
            idle_bytes,
            imports,
        }
    }
}
