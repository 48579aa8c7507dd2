//! Letting go of a device where nobody may enter its driver.
//!
//! A thread awaited by running kernels must stay out of drivers. NVIDIA's driver (580, H100) holds a lock of the whole
//! process while a device is opened or ended, and the call lasts until the card has switched contexts, after the end of
//! running kernels. If such a kernel waits for an answer of a thread in wait for the lock, nothing moves until the
//! driver gives the card's contexts up (Xid 109, after four seconds): every device of the process is lost. So such
//! threads hand a possibly last hold of a device to another thread.

use std::any::Any;
use std::sync::Mutex;

use super::exit;
use super::wait::lock;

/// Holds left over when no thread could be had.
static LEFT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

/// Drops `value` on another thread.
pub(crate) fn release_elsewhere(value: impl Send + 'static) {
    lock(&LEFT).push(Box::new(value));
    // A page has no threads, and no kernels waiting for a thread.
    if cfg!(web) {
        return release();
    }
    let spawned = std::thread::Builder::new()
        .name("tombolo release".to_owned())
        .spawn(|| exit::ending(release));
    if let Err(error) = spawned {
        log::warn!("memory of a device that was dropped is kept, for want of a thread: {error}");
    }
}

fn release() {
    let left = std::mem::take(&mut *lock(&LEFT));
    drop(left);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread::ThreadId;
    use std::time::Duration;

    use super::*;

    struct Tells(Sender<ThreadId>);

    impl Drop for Tells {
        fn drop(&mut self) {
            let _ = self.0.send(std::thread::current().id());
        }
    }

    #[test]
    fn values_end_on_another_thread() {
        let (tell, told) = channel();
        release_elsewhere(Tells(tell));
        let thread = told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_ne!(thread, std::thread::current().id());
    }
}
