//! How large a heap may grow, and the heap of a context.
//!
//! # Size
//!
//! The region allocator is given whole segments of 128 MiB at once, and memory follows up to the last allocation, at
//! least doubling: so a heap that began small is not cut into the steps by which it grew, and "no room now" is said
//! only where everything together would have fitted. Fractions are those of the smallest working set of the devices
//! that share the heap, as far as the devices tell.
//!
//! # An allocation lies in one segment
//!
//! That limits an allocation to what every device of the context binds at once, 2 GiB at most. Segments of 128 MiB, which
//! every adapter binds, are laid out first, so that a device opened later can bind the heap, too; an allocation that fits none of
//! them gets a wider one, and a later device that binds less is refused. Letting an allocation straddle a boundary was considered: the
//! host would not mind, and a pointer's segment bits say where each *byte* is. But kernels choose the binding once for
//! each pointer, not once for each access, and everything behind the pointer (members, elements at indices that only
//! the kernel knows) is an offset in that binding. Choosing anew for each access cost 1.4 to 3.2 times as much in the
//! first measurements, in every kernel that follows pointers in such a heap, since a kernel cannot know which pointers
//! straddle; and a vector or a structure across the boundary would have to be loaded word by word from two bindings.
//! Without that, unchecked kernels would silently read elsewhere. So the allocation is refused, and the error says
//! that the segment is the limit and not the heap's size.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use super::{FIRST_BYTES, GUARD_BYTES, HeapError, HeapShared, MOST_BYTES, SharedHeap};
use crate::device::heap_shape::{HeapShape, HeapSource};
use crate::device::wait::lock;
use crate::device::working_set::machine_memory;
use crate::device::{Aspect, Capabilities, Device, DeviceShared, HeapPlacement, HeapSizeError};

/// Less address space makes no heap worth its name.
const LEAST_WINDOW: u64 = 64 << 20;

/// How large a context's heap may grow: at most 4 GiB, less 64 KiB. Address space is reserved at once, memory comes as
/// needed.
///
/// Fractions are those of the *working set*: the smallest [`Capabilities::working_set_bytes`] among the opened devices
/// of the context with use of the heap in place ([`Aspect::HostImport`]) or a copy on request
/// ([`HeapPlacement::Device`](crate::heap::HeapPlacement::Device)), and never more than the machine's memory.
/// Where no such device reports a size, and for a heap outside of contexts ([`SharedHeap::new`]), this is the machine's
/// memory; where the system does not report that, 8 GiB or 512 MiB (a page of a browser, where the heap is one
/// block, taken at once). A heap in memory mapped by a device
/// ([`SharedHeap::tier`]) has that size, or the device's binding limit if smaller, and all of its memory from the
/// beginning. A device opened later may lower the bound, but not below the part already laid out.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum HeapSize {
    /// One eighth of the working set.
    Default,
    /// This part of the working set, between 0 and 1; at most the limit of a heap.
    Fraction(f64),
    /// This many bytes; rounded up to whole pages. More than a heap may have is an error.
    Bytes(u64),
    /// Grows up to a bound, and gives memory back automatically: as soon as three quarters of the heap have been free
    /// for `contract_after`, and no launch is in flight, the memory behind the last allocation goes back to the system.
    /// That is looked after whenever something is allocated or freed, the host has had access, or a launch is
    /// submitted. [`HeapSize::adaptive`] has the usual values.
    Adaptive {
        /// The bound of the heap; beyond, allocations are [`HeapError::OutOfMemory`].
        bound: HeapBound,
        /// How long the heap must have been mostly free.
        contract_after: Duration,
        /// Bytes with memory behind them from the first use on, which also stay when the heap contracts: a heap that is known to
        /// become large does not grow by doubling, each step of which has devices import it anew. 16 MiB if less.
        start: u64,
    },
}

/// The bound of a [`HeapSize::Adaptive`] heap.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum HeapBound {
    /// This part of the working set, between 0 and 1; at most the limit of a heap.
    Fraction(f64),
    /// This many bytes; rounded up to whole pages. More than a heap may have is an error.
    Bytes(u64),
}

/// For people: the bound in words.
impl fmt::Display for HeapBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fraction(fraction) => write!(f, "{fraction} of the working set"),
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
        }
    }
}

impl HeapSize {
    /// A heap growing up to three quarters of the working set, and contracting after ten seconds of being mostly free.
    pub const fn adaptive() -> Self {
        Self::Adaptive {
            bound: HeapBound::Fraction(0.75),
            contract_after: Duration::from_secs(10),
            start: 0,
        }
    }

    /// Bytes with memory behind them from the first use on.
    pub(super) fn start(self) -> u64 {
        match self {
            Self::Adaptive { start, .. } => start.max(FIRST_BYTES),
            Self::Default | Self::Fraction(_) | Self::Bytes(_) => FIRST_BYTES,
        }
    }

    /// Refuses a start beyond the bound of the heap.
    pub(super) fn check_start(self, bound: u64) -> Result<(), HeapSizeError> {
        match self {
            Self::Adaptive { start, .. } if start > bound => {
                Err(HeapSizeError::Start { start, bound })
            }
            _ => Ok(()),
        }
    }

    /// Refuses sizes that are none.
    pub(crate) fn check(self) -> Result<(), HeapSizeError> {
        let bound = match self {
            Self::Default => return Ok(()),
            Self::Fraction(fraction) => HeapBound::Fraction(fraction),
            Self::Bytes(bytes) => HeapBound::Bytes(bytes),
            Self::Adaptive { bound, .. } => bound,
        };
        match bound {
            // No number is between any two.
            HeapBound::Fraction(fraction) if !(0.0..=1.0).contains(&fraction) => {
                Err(HeapSizeError::Fraction { fraction })
            }
            HeapBound::Bytes(bytes) if bytes > MOST_BYTES => Err(HeapSizeError::Bytes {
                bytes,
                limit: MOST_BYTES,
            }),
            HeapBound::Fraction(_) | HeapBound::Bytes(_) => Ok(()),
        }
    }

    /// The least address space for the size: all of a size in bytes, and some for a size dependent on the machine.
    pub(super) fn least_window(self) -> u64 {
        match self {
            Self::Bytes(bytes)
            | Self::Adaptive {
                bound: HeapBound::Bytes(bytes),
                ..
            } => bytes.max(LEAST_WINDOW),
            Self::Default | Self::Fraction(_) | Self::Adaptive { .. } => LEAST_WINDOW,
        }
    }

    /// The largest heap on a machine with this working set.
    pub(super) fn bound(self, working_set: u64) -> u64 {
        let part = |part: f64| (working_set as f64 * part.clamp(0.0, 1.0)) as u64;
        let bytes = match self {
            Self::Default => working_set / 8,
            Self::Fraction(fraction) => part(fraction),
            Self::Bytes(bytes) => bytes,
            Self::Adaptive { bound, .. } => match bound {
                HeapBound::Fraction(fraction) => part(fraction),
                HeapBound::Bytes(bytes) => bytes,
            },
        };
        bytes
            .clamp(2 * GUARD_BYTES, MOST_BYTES)
            .next_multiple_of(GUARD_BYTES)
    }
}

impl HeapShared {
    /// Keeps segments laid out from now on within at most that many bytes, a power of two; but for those of allocations
    /// that need more, once `device` is gone.
    pub(super) fn keep_within(&self, device: &Binder, bytes: u64) {
        let mut state = lock(&self.state);
        state.part = state.part.min(bytes);
        state.binders.push((Weak::clone(device), bytes));
        state.widest = least_bound(&mut state.binders);
    }

    /// A device with this working set has come to share the heap.
    fn limit(&self, working_set: u64) {
        let mut state = lock(&self.state);
        let bound = self.size.bound(working_set);
        state.bound = state.bound.min(bound.max(state.laid_out));
    }
}

/// The heap of a context, made on first use.
#[derive(Default)]
pub(crate) struct ContextHeap {
    wishes: Mutex<Wishes>,
    heap: OnceLock<Result<SharedHeap, HeapError>>,
}

/// A device that binds the heap, for as long as it lives.
pub(super) type Binder = Weak<dyn Any + Send + Sync>;

/// The least of the bytes that devices which still live bind at once. Forgets the others.
pub(super) fn least_bound(binders: &mut Vec<(Binder, u64)>) -> Option<u64> {
    binders.retain(|(device, _)| device.strong_count() > 0);
    binders.iter().map(|&(_, bytes)| bytes).min()
}

#[derive(Default)]
struct Wishes {
    size: Option<HeapSize>,
    /// A device can import the heap.
    imported: bool,
    /// The first device without imports, but with mapped memory of its own.
    mapping: Option<Weak<DeviceShared>>,
    /// The smallest of the devices that share the heap.
    working_set: Option<u64>,
    /// The segments in which devices bind memory, in bytes.
    binders: Vec<(Binder, u64)>,
}

impl ContextHeap {
    /// Decides about the heap's bound; without effect once the heap exists.
    pub(crate) fn set_size(&self, size: HeapSize) {
        lock(&self.wishes).size = Some(size);
    }

    /// Takes note of a device of the context that binds memory in segments of so many bytes.
    pub(crate) fn keep_within(&self, device: &Arc<DeviceShared>, segment_bytes: u64) {
        let device: Arc<dyn Any + Send + Sync> = Arc::<DeviceShared>::clone(device);
        let binder = Arc::downgrade(&device);
        let mut wishes = lock(&self.wishes);
        if let Some(Ok(heap)) = self.heap.get() {
            heap.shared.keep_within(&binder, segment_bytes);
        } else {
            least_bound(&mut wishes.binders);
            wishes.binders.push((binder, segment_bytes));
        }
    }

    /// Takes note of a device of the context.
    pub(crate) fn join(&self, device: &Arc<DeviceShared>) {
        let capabilities = &device.capabilities;
        if capabilities.imports_heap() {
            lock(&self.wishes).imported = true;
        } else if capabilities.has(Aspect::LiveMemory)
            && capabilities.heap_placement != HeapPlacement::Device
        {
            let mut wishes = lock(&self.wishes);
            let known = wishes.mapping.as_ref().map_or(0, Weak::strong_count);
            if known == 0 {
                wishes.mapping = Some(Arc::downgrade(device));
            }
        }
        self.count(capabilities);
    }

    /// Takes note of a device's working set.
    pub(super) fn count(&self, device: &Capabilities) {
        let shares = device.imports_heap() || device.heap_placement == HeapPlacement::Device;
        let Some(bytes) = device.working_set_bytes.filter(|_| shares) else {
            return;
        };
        let mut wishes = lock(&self.wishes);
        let working_set = wishes.working_set.map_or(bytes, |known| known.min(bytes));
        wishes.working_set = Some(working_set);
        if let Some(Ok(heap)) = self.heap.get() {
            heap.shared.limit(working_set.min(system_memory()));
        }
    }

    /// Makes `heap` the heap of the context, unless it has one.
    #[cfg(test)]
    pub(in crate::memory) fn put(&self, heap: SharedHeap) {
        let _ = self.heap.set(Ok(heap));
    }

    pub(crate) fn heap(&self) -> Result<SharedHeap, HeapError> {
        if let Some(known) = self.heap.get() {
            return known.clone();
        }
        // Held, so no device joins between the question and the answer.
        let mut wishes = lock(&self.wishes);
        let size = wishes.size.unwrap_or(HeapSize::Default);
        let system = system_memory();
        let working_set = wishes.working_set.map_or(system, |known| known.min(system));
        let binders = std::mem::take(&mut wishes.binders);
        let make = || {
            let mapping = wishes.mapping.as_ref().and_then(Weak::upgrade);
            if let Some(device) = mapping.filter(|_| !wishes.imported) {
                let told = device.capabilities.working_set_bytes.unwrap_or(system);
                match SharedHeap::mapped(size, told.min(system), &device) {
                    Ok(heap) => return Ok(heap),
                    // `SharedHeap::tier` returns the tier, too.
                    Err(error) => log::warn!("the shared heap is not in mapped memory: {error}"),
                }
            }
            SharedHeap::with(size, working_set, Box::new(crate::clock::Instant::now))
        };
        let heap = self.heap.get_or_init(|| {
            let heap = make()?;
            for (device, bytes) in &binders {
                heap.shared.keep_within(device, *bytes);
            }
            Ok(heap)
        });
        heap.clone()
    }
}

impl HeapSource for ContextHeap {
    fn shape(
        &self,
        device: &Arc<DeviceShared>,
        with_tables: bool,
    ) -> Result<HeapShape, Box<dyn Error>> {
        let heap = self.heap()?;
        let mut view = heap.shared.view(device)?;
        if with_tables {
            heap.shared.add_tables(device, &mut view)?;
        }
        Ok(view.shape(device))
    }
}

impl Device {
    /// The heap shared by the host and the devices of this device's context.
    ///
    /// # Errors
    /// [`HeapError::NoWindow`] where the system has no address space for a heap.
    pub fn heap(&self) -> Result<SharedHeap, HeapError> {
        heap_of(&self.shared)
    }
}

/// The heap of the device's context.
pub(crate) fn heap_of(device: &DeviceShared) -> Result<SharedHeap, HeapError> {
    device.context.heap.heap()
}

/// The heap of the device's context, if there is one yet.
pub(crate) fn known_heap(device: &DeviceShared) -> Option<SharedHeap> {
    let known = device.context.heap.heap.get()?;
    known.as_ref().ok().cloned()
}

/// Bytes of the machine's memory; 8 GiB where the system cannot be asked.
pub(super) fn system_memory() -> u64 {
    // A page gets what its browser gives it, and takes all of a heap at once: an eighth of this is 64 MiB.
    const UNKNOWN: u64 = if cfg!(web) { 512 << 20 } else { 8 << 30 };
    machine_memory().unwrap_or(UNKNOWN)
}
