//! A device's instances: memory for each chunk of the context's table, allocated for the first variable used there, and
//! freed with the device.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::GlobalError;
use crate::device::outcome::{Outcome, Taint};
use crate::device::wait::lock;
use crate::device::{Device, DeviceShared};
use crate::kernel::globals::{Declaration, GlobalTable, Instance};
use crate::kernel::{GlobalScope, InitMode};
use crate::memory::heap::copies::direct::{Contents, Part, write};
use crate::memory::heap::device_memory::{ADDRESS_MASK, own_view};
use crate::memory::heap::{HeapError, heap_of};
use crate::memory::{BufferView, Ptr, SharedHeap};

/// The instances of one device.
#[derive(Default)]
pub(crate) struct DeviceGlobals(Mutex<State>);

#[derive(Default)]
struct State {
    /// The address of each chunk that has memory.
    chunks: HashMap<usize, Ptr<u8>>,
    placed: HashMap<u64, (Weak<Instance>, Arc<Placed>)>,
    /// Values of variables of image scope that no module names yet.
    host: HashMap<String, Vec<u8>>,
    /// The place of the chunks, if in the shared heap.
    heap: Option<SharedHeap>,
}

/// An instance in the memory of a device.
pub(crate) struct Placed {
    pub address: Ptr<u8>,
    pub bytes: u64,
    taint: Mutex<Taint>,
    /// The address was taken, so any kernel following pointers may write the variable.
    escaped: AtomicBool,
}

impl std::fmt::Debug for Placed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Placed")
            .field("address", &self.address)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let Some(heap) = &self.heap else { return };
        for chunk in self.chunks.values() {
            // Allocated here and freed once; the heap waits for commands in flight.
            let _ = heap.free(Ptr::<u8>::from_address(chunk.address() & ADDRESS_MASK));
        }
    }
}

impl Placed {
    pub fn part(&self, offset: u64, bytes: u64) -> Part {
        Part {
            ptr: self.address.byte_add(offset),
            bytes,
        }
    }

    /// The launches of uncertain or bad outcome among its writers.
    pub fn depends_on(&self, range: &std::ops::Range<u64>) -> Vec<Arc<Outcome>> {
        let mut taint = lock(&self.taint);
        match taint.is_empty() {
            true => Vec::new(),
            false => taint.touching(range),
        }
    }

    pub fn poison(&self, range: std::ops::Range<u64>, outcome: &Arc<Outcome>) {
        lock(&self.taint).add(range, outcome);
    }

    pub fn overwritten(&self, range: &std::ops::Range<u64>) {
        let mut taint = lock(&self.taint);
        if !taint.is_empty() {
            taint.overwrite(range);
        }
    }

    pub fn escape(&self) {
        self.escaped.store(true, Ordering::Relaxed);
    }

    pub fn has_escaped(&self) -> bool {
        self.escaped.load(Ordering::Relaxed)
    }
}

fn room(device: &DeviceShared) -> MutexGuard<'_, State> {
    lock(&device.extensions.globals.0)
}

/// The names of the device's context.
pub(crate) fn names(device: &DeviceShared) -> &GlobalTable {
    &device.context.globals
}

/// The instance in the device's memory: from the first time on with its initial value.
///
/// Must be called with nothing of the heap or the queue held.
pub(crate) fn place(
    device: &Arc<DeviceShared>,
    instance: &Arc<Instance>,
) -> Result<Arc<Placed>, GlobalError> {
    let failed = |source: HeapError| GlobalError::Heap {
        name: instance.name.to_string(),
        source,
    };
    let mut state = room(device);
    if let Some((_, placed)) = state.placed.get(&instance.id) {
        return Ok(Arc::clone(placed));
    }
    let chunk = match state.chunks.get(&instance.chunk) {
        Some(chunk) => *chunk,
        None => {
            let bytes = names(device).chunk_bytes(instance.chunk);
            let handle = Device {
                shared: Arc::clone(device),
            };
            let chunk = handle.malloc::<u8>(bytes as usize).map_err(failed)?;
            if device.capabilities.unified_memory {
                state.heap = Some(heap_of(device).map_err(failed)?);
            }
            state.chunks.insert(instance.chunk, chunk);
            chunk
        }
    };
    let placed = Placed {
        address: chunk.byte_add(instance.offset.into()),
        bytes: instance.bytes,
        taint: Mutex::default(),
        escaped: AtomicBool::new(false),
    };
    let declaration = instance.touch();
    let declared = declaration
        .as_ref()
        .and_then(|declaration| declaration.initial.clone());
    // The host's writes from before any module had the variable.
    let host = match instance.scope {
        GlobalScope::Image => state.host.remove(&*instance.name),
        GlobalScope::Device => None,
    };
    let initial = host.as_deref().or(declared.as_deref());
    let is_left = declaration.is_some_and(|declaration| declaration.init == InitMode::Never);
    if initial.is_none() && is_left {
        // Nothing that a launch wrote.
        placed.overwritten(&(0..u64::MAX));
    } else if let Err(error) = initialise(device, &placed, initial) {
        if let Some(host) = host {
            state.host.insert(instance.name.to_string(), host);
        }
        return Err(failed(error));
    }
    let placed = Arc::new(placed);
    state
        .placed
        .retain(|_, (instance, _)| instance.strong_count() > 0);
    let entry = (Arc::downgrade(instance), Arc::clone(&placed));
    state.placed.insert(instance.id, entry);
    Ok(placed)
}

fn initialise(
    device: &Arc<DeviceShared>,
    placed: &Placed,
    initial: Option<&[u8]>,
) -> Result<(), HeapError> {
    const WHAT: &str = "initialising a device global";
    let contents = initial.map_or(Contents::Zeros, Contents::Bytes);
    // All of its last word: the bytes a kernel reads behind a value of two bytes are unused.
    let bytes = match contents {
        Contents::Zeros => placed.bytes.next_multiple_of(4),
        Contents::Bytes(_) => placed.bytes,
    };
    let all = 0..u64::MAX;
    write(device, WHAT, placed.part(0, bytes), contents, || {
        placed.overwritten(&all)
    })
    .map(|_| ())
}

/// Bytes of the device's memory as something to bind.
pub(crate) fn view(
    device: &Arc<DeviceShared>,
    start: Ptr<u8>,
    bytes: u64,
) -> Result<BufferView, HeapError> {
    const WHAT: &str = "device globals";
    if device.capabilities.unified_memory {
        return heap_of(device)?.shared.argument(device, start, bytes);
    }
    // Without asking for the heap, which devices with memory of their own may lack.
    own_view(device, WHAT, start, bytes)
}

/// Works on the value that stands in for a variable of image scope which no module names yet.
pub(crate) fn with_host_value<R>(
    device: &DeviceShared,
    declaration: &Declaration,
    work: impl FnOnce(&mut [u8]) -> R,
) -> R {
    let mut state = room(device);
    let value = state
        .host
        .entry(declaration.name.to_owned())
        .or_insert_with(|| {
            let initial = declaration.initial.as_deref();
            initial.map_or_else(|| vec![0; declaration.bytes as usize], <[u8]>::to_vec)
        });
    work(value)
}

/// Resets every variable of that init mode to its initial value.
pub(crate) fn initialise_all(
    device: &Arc<DeviceShared>,
    mode: InitMode,
) -> Result<(), GlobalError> {
    let mut state = room(device);
    let live: Vec<(Arc<Instance>, Arc<Placed>)> = state
        .placed
        .values()
        .filter_map(|(instance, placed)| Some((instance.upgrade()?, Arc::clone(placed))))
        .collect();
    for (instance, placed) in &live {
        let declaration = instance.declaration();
        let own = declaration
            .as_ref()
            .map_or(InitMode::Reset, |declaration| declaration.init);
        if own != mode {
            continue;
        }
        let initial = declaration
            .as_ref()
            .and_then(|declaration| declaration.initial.as_deref());
        initialise(device, placed, initial).map_err(|source| GlobalError::Heap {
            name: instance.name.to_string(),
            source,
        })?;
    }
    let names = names(device);
    state.host.retain(|name, _| {
        let host = names.find(name).and_then(|known| known.host);
        host.is_none_or(|host| host.init != mode)
    });
    Ok(())
}

/// Bytes of memory that the device has for its variables.
pub(crate) fn chunk_bytes(device: &DeviceShared) -> u64 {
    let state = room(device);
    let names = names(device);
    state
        .chunks
        .keys()
        .map(|chunk| names.chunk_bytes(*chunk))
        .sum()
}

/// Whether the device has memory for the instance.
pub(crate) fn is_placed(device: &DeviceShared, instance: &Instance) -> bool {
    room(device).placed.contains_key(&instance.id)
}
