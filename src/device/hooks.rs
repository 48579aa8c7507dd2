//! For tests: points to hold threads, so rare interleavings happen for certain, and the right to use devices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::wait::lock;

/// A place in the code, and the device there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// The last handle of this device is gone, and nothing else of the device yet.
    DeviceDropped(u64),
    /// A thread waits for commands recorded by a device that is being dropped.
    EndAwaited,
    /// A thread begins to wait for bytes on their way between devices, with the copy out submitted.
    HopBegun,
    /// A thread is about to give a batch to the driver, which may keep the thread.
    Submitting,
    /// This device is about to be sent a part of the heap.
    HeapSent(u64),
}

type Hook = Arc<dyn Fn(Point) + Send + Sync>;

static HOOK: Mutex<Option<Hook>> = Mutex::new(None);

/// Has every thread reaching a point call `hook`.
pub(crate) fn set(hook: Option<Hook>) {
    *lock(&HOOK) = hook;
}

pub(crate) fn reach(point: Point) {
    let hook = lock(&HOOK).clone();
    if let Some(hook) = hook {
        hook(point);
    }
}

/// The point that refuses the next thread.
static REFUSED: Mutex<Option<Point>> = Mutex::new(None);

/// Has the next step at a point fail, once.
pub(crate) fn refuse(point: Point) {
    *lock(&REFUSED) = Some(point);
}

/// Whether the step at the point is to fail.
pub(crate) fn is_refused(point: Point) -> bool {
    lock(&REFUSED)
        .take_if(|refused| *refused == point)
        .is_some()
}

static SEES_NO_ENDS: AtomicBool = AtomicBool::new(false);

/// Has mere looks for bytes from another device find none.
pub(crate) fn see_no_ends(unseen: bool) {
    SEES_NO_ENDS.store(unseen, Ordering::Release);
}

pub(crate) fn sees_no_ends() -> bool {
    SEES_NO_ENDS.load(Ordering::Acquire)
}

static CARDS: AtomicBool = AtomicBool::new(false);

/// Until this value's drop, opened devices count as devices of a card, taking turns.
pub(crate) struct Cards(());

impl Cards {
    pub(crate) fn begin() -> Self {
        CARDS.store(true, Ordering::Release);
        Self(())
    }
}

impl Drop for Cards {
    fn drop(&mut self) {
        CARDS.store(false, Ordering::Release);
    }
}

pub(crate) fn is_every_adapter_a_card() -> bool {
    CARDS.load(Ordering::Acquire)
}

/// The right to use devices: software drivers do not stand several tests at once.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    lock(&ALONE)
}
