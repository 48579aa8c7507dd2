//! Host memory that two devices have both imported: bytes go from one device to the other in one hop, and the host
//! touches none of them.
//!
//! The memory is cut into crates, one for each transfer under way. A crate is used again when the batch that emptied it
//! has ended.
//!
//! A crate is a shared transfer slot: one copy on either device, none by the host.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use super::hop::End;
use crate::device::import::import_host;
use crate::device::wait::lock;
use crate::device::window::Window;
use crate::device::{Aspect, DeviceShared};

/// All crates together; address space only, until crates are needed.
const WINDOW_BYTES: u64 = 4 << 30;
/// The smallest crate, and what sizes are multiples of: whole pages everywhere.
const LEAST_BYTES: u64 = 64 << 10;
/// The most that may be in one transfer; what is larger goes in several.
pub(super) const MOST_BYTES: u64 = 64 << 20;

/// The crates of a context.
#[derive(Default)]
pub(super) struct Exchange(Mutex<State>);

#[derive(Default)]
struct State {
    /// `None` inside where the system has no such window.
    window: Option<Option<Arc<Window>>>,
    /// Bytes of the window that are cut already.
    cut: u64,
    idle: Vec<Crate>,
    /// Emptied by a batch that may not have ended.
    busy: Vec<(Crate, Vec<End>)>,
}

/// A piece of memory that devices have imported.
pub(super) struct Crate {
    start: u64,
    bytes: u64,
    imports: HashMap<u64, (Weak<DeviceShared>, wgpu::Buffer)>,
}

impl Crate {
    /// The memory as the device sees it; it was given to [`Exchange::take`].
    pub(super) fn seen_by(&self, device: &DeviceShared) -> Option<&wgpu::Buffer> {
        self.imports.get(&device.id).map(|(_, buffer)| buffer)
    }
}

impl Exchange {
    /// Whether bytes can go this way between the two.
    pub(super) fn joins(a: &DeviceShared, b: &DeviceShared) -> bool {
        let imports = |device: &DeviceShared| device.capabilities.has(Aspect::HostImport);
        imports(a) && imports(b)
    }

    /// A crate of at least `bytes` bytes that both devices see; `None` where there is no memory for it, or a driver
    /// refuses the import.
    pub(super) fn take(
        &self,
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
            None => state.cut(bytes)?,
        };
        drop(state);
        (found.imports).retain(|_, (owner, _)| owner.strong_count() > 0);
        if !self.import(&mut found, a) || !self.import(&mut found, b) {
            lock(&self.0).idle.push(found);
            return None;
        }
        Some(found)
    }

    /// Has another device see a crate; false where a driver refuses.
    pub(super) fn import(&self, known: &mut Crate, device: &Arc<DeviceShared>) -> bool {
        if known.imports.contains_key(&device.id) {
            return true;
        }
        let window = lock(&self.0).window.clone().flatten();
        let Some(window) = window else { return false };
        let range = known.start..known.start + known.bytes;
        match import_host(&device.raw, &window, range, "tombolo exchange") {
            Ok(buffer) => {
                let owner = Arc::downgrade(device);
                known.imports.insert(device.id, (owner, buffer));
                true
            }
            Err(error) => {
                log::warn!("{}: {error}", device.capabilities.name);
                false
            }
        }
    }

    /// Takes a crate back; nothing uses it after all of `ends`.
    pub(super) fn give(&self, used: Crate, ends: Vec<End>) {
        let mut state = lock(&self.0);
        match ends.is_empty() {
            false => state.busy.push((used, ends)),
            true => state.idle.push(used),
        }
    }
}

impl State {
    fn cut(&mut self, bytes: u64) -> Option<Crate> {
        let window = self.window.get_or_insert_with(|| {
            let window = Window::reserve(WINDOW_BYTES);
            if let Err(error) = &window {
                log::warn!("devices exchange bytes through copies of the host: {error}");
            }
            window.ok()
        });
        let window = window.as_ref()?;
        let start = self.cut;
        if start + bytes > WINDOW_BYTES {
            return None;
        }
        window.commit(start..start + bytes).ok()?;
        self.cut += bytes;
        Some(Crate {
            start,
            bytes,
            imports: HashMap::new(),
        })
    }
}
