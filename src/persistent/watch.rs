//! Wakes futures whose calls have been answered. Nothing on a device can do that, so a thread of the host looks at the
//! ports for them; it is started by the first future that has to wait, and ends when there has been none for a while.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use super::core::{Core, Stage};
use crate::device::exit;
use crate::device::wait::lock;
use crate::rpc::port::client::{Client, Posted};

/// How long the thread waits for futures before it ends.
const PATIENCE: Duration = Duration::from_millis(500);
/// Looks that follow each other at once.
const LOOKS: u32 = 256;
/// The first and the longest sleep between two looks.
const NAP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// The futures that wait.
#[derive(Default)]
pub(super) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: bool,
    /// What each one waits for: an answer, or any free port.
    waiting: Vec<(Option<Posted>, Waker)>,
}

impl Watch {
    /// Has the thread look at the stage of the server.
    pub fn look(&self) {
        self.changed.notify_all();
    }
}

/// Wakes `waker` when there is an answer to `posted`, or a port may be free, or the server has ended.
pub(super) fn wake_after(core: &Arc<Core>, posted: Option<Posted>, waker: &Waker) {
    let mut state = lock(&core.watch.state);
    let same = |(known, own): &&mut (Option<Posted>, Waker)| {
        *known == posted && (posted.is_some() || own.will_wake(waker))
    };
    match state.waiting.iter_mut().find(same) {
        Some((_, known)) => known.clone_from(waker),
        None => state.waiting.push((posted, waker.clone())),
    }
    if !state.running {
        let (weak, watch) = (Arc::downgrade(core), Arc::clone(&core.watch));
        let spawned = std::thread::Builder::new()
            .name("tombolo answers".to_owned())
            .spawn(move || run(&weak, &watch));
        match spawned {
            Ok(_) => state.running = true,
            Err(error) => {
                log::error!("no thread for futures ({error}): they are polled busily");
                let waiting = std::mem::take(&mut state.waiting);
                drop(state);
                waiting.into_iter().for_each(|(_, waker)| waker.wake());
                return;
            }
        }
    }
    drop(state);
    core.watch.changed.notify_all();
}

fn run(core: &Weak<Core>, watch: &Watch) {
    let (mut looks, mut naps) = (0, 0u32);
    // Since those that wait for a port were woken.
    let mut ports = 0;
    loop {
        let mut state = lock(&watch.state);
        if state.waiting.is_empty() {
            let waited = watch.changed.wait_timeout(state, PATIENCE);
            let (now, time) = waited.unwrap_or_else(PoisonError::into_inner);
            state = now;
            if state.waiting.is_empty() && time.timed_out() {
                state.running = false;
                return;
            }
        }
        drop(state);
        // Whoever holds the server is the one who ends it; if it went meanwhile, this has it last.
        let long = ports >= LOOKS;
        ports = if long { 0 } else { ports + 1 };
        let woke = exit::inside(|| Some(core.upgrade()?.look_for_futures(long)));
        match woke {
            None => return,
            Some(true) => (looks, naps) = (0, 0),
            Some(false) => {
                looks += 1;
                if looks < LOOKS {
                    std::hint::spin_loop();
                    continue;
                }
                std::thread::sleep(NAP.0.saturating_mul(1 << naps.min(16)).min(NAP.1));
                naps += 1;
            }
        }
    }
}

impl Core {
    /// Wakes the futures that have what they wait for, and those that wait for a port if they have done so for long;
    /// whether there were any.
    fn look_for_futures(&self, long: bool) -> bool {
        // Before the look: what has no answer then gets none.
        let ended = matches!(self.stage(), Stage::Closed | Stage::Failed);
        let client = Client::new(&self.frame, self.frame.layout(), 0);
        let mut woken = Vec::new();
        lock(&self.watch.state).waiting.retain(|(posted, waker)| {
            let ready = ended
                || match posted {
                    // Of a future that was dropped the port may have been taken again.
                    Some(posted) => client.is_over(*posted),
                    // Not at once, or whoever wants a port keeps this thread.
                    None => long,
                };
            if ready {
                woken.push(waker.clone());
            }
            !ready
        });
        let any = !woken.is_empty();
        woken.into_iter().for_each(Waker::wake);
        any
    }
}
