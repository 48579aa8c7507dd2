//! For tests: places at which they hold threads, so that interleavings that need luck happen for certain,
//! and the right to use devices.

use std::sync::{Arc, Mutex, MutexGuard};

use super::wait::lock;

/// A place in the code, and what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// The last handle of this device is gone, and nothing else of it yet.
    DeviceDropped(u64),
    /// Somebody waits for what a device that is being dropped has recorded.
    EndAwaited,
    /// Somebody begins to wait for bytes on their way from one device to another, whose copy out was submitted.
    HopBegun,
}

type Hook = Arc<dyn Fn(Point) + Send + Sync>;

static HOOK: Mutex<Option<Hook>> = Mutex::new(None);

/// Has every thread that reaches a point call `hook`.
pub(crate) fn set(hook: Option<Hook>) {
    *lock(&HOOK) = hook;
}

pub(crate) fn reach(point: Point) {
    let hook = lock(&HOOK).clone();
    if let Some(hook) = hook {
        hook(point);
    }
}

/// The right to use devices: software drivers do not stand several tests at once.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    lock(&ALONE)
}
