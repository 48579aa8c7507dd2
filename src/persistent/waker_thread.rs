//! Wakes futures whose calls have been answered. Nothing on a device can wake a future, so a thread of the host looks
//! at the ports; the first waiting future starts the thread, and the thread ends after a while without futures.

use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use super::core::{Core, Stage};
use super::waker_set::WakerSet;
use crate::device::exit;
use crate::device::pace::Pace;
use crate::rpc::port::client::{Client, Posted};

/// How long the thread waits for futures before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_millis(500);
/// Looks in direct succession.
const LOOKS: u32 = 256;

/// The waiting futures: for an answer, or for any free port.
pub(super) type PendingWakers = WakerSet<Option<Posted>>;

/// Wakes `waker` when there is an answer to `posted`, or a port may be free, or the server has ended.
pub(super) fn wake_after(core: &Arc<Core>, posted: Option<Posted>, waker: &Waker) {
    let starts = core.wakers.register(posted, waker, |known, own| {
        *known == posted && (posted.is_some() || own.will_wake(waker))
    });
    if !starts {
        return;
    }
    let (weak, wakers) = (Arc::downgrade(core), Arc::clone(&core.wakers));
    let spawned = std::thread::Builder::new()
        .name("tombolo answers".to_owned())
        .spawn(move || run(&weak, &wakers));
    if let Err(error) = spawned {
        log::error!("no thread for futures ({error}): they are polled busily");
        let waiting = core.wakers.drain();
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

fn run(core: &Weak<Core>, wakers: &PendingWakers) {
    let (mut looks, mut pace) = (0, Pace::asleep());
    // Since the futures waiting for a port were woken.
    let mut ports = 0;
    loop {
        if !wakers.wait(IDLE_TIMEOUT) {
            return;
        }
        // The holder of the server ends the server; if that holder went meanwhile, this thread is the last.
        let long = ports >= LOOKS;
        ports = if long { 0 } else { ports + 1 };
        let woke = exit::inside(|| Some(core.upgrade()?.look_for_futures(long)));
        match woke {
            None => return,
            Some(true) => (looks, pace) = (0, Pace::asleep()),
            Some(false) => {
                looks += 1;
                if looks < LOOKS {
                    std::hint::spin_loop();
                    continue;
                }
                pace.rest(None);
            }
        }
    }
}

impl Core {
    /// Wakes the futures whose calls are answered, and the futures waiting for a port for long; returns whether there
    /// were any.
    fn look_for_futures(&self, long: bool) -> bool {
        // Before the look: a call without an answer then gets none.
        let ended = matches!(self.stage(), Stage::Closed | Stage::Failed);
        let client = Client::new(&self.frame, self.frame.layout(), 0);
        let woken = self.wakers.take(|posted| {
            ended
                || match posted {
                    // The port of a dropped future may have been taken again.
                    Some(posted) => client.is_over(*posted),
                    // Not at once, or a future in need of a port keeps this thread.
                    None => long,
                }
        });
        let any = !woken.is_empty();
        woken.into_iter().for_each(Waker::wake);
        any
    }
}
