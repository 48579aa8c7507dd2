//! Drivers of slices: the relay, a separate thread, or callers of batches during their wait, in turn. With waiting
//! callers as drivers there is no thread to wake between the end of a slice, its answers, and the next slice.
//!
//! While there are such callers the relay stands back. Should no caller be driving, because all are busy with arguments
//! or results, the relay drives after a moment.
//!
//! A caller that finds the slices in other hands asks for them, and is woken when they are given back.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, MutexGuard, TryLockError};
use std::time::Duration;

use super::core::{Core, Stage};
use super::sliced::Slices;
use crate::device::wait::lock;
use crate::rpc::port::protocol::CallStatus;

/// How long it leaves slices to callers without looking.
const STANDS_BACK: Duration = Duration::from_millis(5);

/// The relay, which is a thread.
pub(super) struct SlicedRelay(pub Arc<Core>);

impl SlicedRelay {
    pub fn run(self) -> Self {
        let core = &self.0;
        let Some(slices) = &core.slices else {
            return self;
        };
        loop {
            // Before the look at the callers: the last of them rings.
            let known = core.parker.bell.count();
            let stage = core.stage();
            if matches!(stage, Stage::Closed | Stage::Failed) {
                return self;
            }
            let is_driven = stage == Stage::Running && core.drivers.load(Ordering::Acquire) > 0;
            if is_driven {
                core.parker.bell.sleep(known, STANDS_BACK);
                if let Some(mut turn) = Turn::unless_taken(core) {
                    turn.slices.turn(core);
                }
            } else if !Turn::of(core, lock(slices)).slices.turn(core) {
                match core.stage() {
                    Stage::Failed => return self,
                    // Since before the last look.
                    _ if stage == Stage::Stopping => break,
                    _ if core.is_paused() => core.sleep_out_pause(),
                    // The poster of a call wakes the relay.
                    _ => core.sleep(Duration::MAX),
                }
            }
        }
        let stopped = CallStatus::Stopped.code();
        core.frame.give_up(false, stopped, 0);
        core.set_stage(Stage::Closed);
        // Posted by callers whose look came before.
        core.frame.give_up(false, stopped, 0);
        self
    }
}

/// The slices in one's hands.
struct Turn<'c> {
    slices: MutexGuard<'c, Slices>,
    /// Behind the end of the turn: the slices are given back first.
    _hand_over: HandOver<'c>,
}

/// Wakes a caller that found the slices taken. The caller may sleep for long, and be the only driver.
struct HandOver<'c>(&'c Core);

impl Drop for HandOver<'_> {
    fn drop(&mut self) {
        // Either the caller finds the slices free, or this thread finds the caller's request.
        fence(Ordering::SeqCst);
        if self.0.turn_wanted.swap(false, Ordering::AcqRel) {
            self.0.landed.ring();
        }
    }
}

impl<'c> Turn<'c> {
    fn of(core: &'c Core, slices: MutexGuard<'c, Slices>) -> Self {
        Self {
            slices,
            _hand_over: HandOver(core),
        }
    }

    fn unless_taken(core: &'c Core) -> Option<Self> {
        match core.slices.as_ref()?.try_lock() {
            Ok(slices) => Some(Self::of(core, slices)),
            Err(TryLockError::Poisoned(poisoned)) => Some(Self::of(core, poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// As [`Turn::unless_taken`]; the current holder rings [`Core::landed`] when giving the slices back.
    fn or_ask(core: &'c Core) -> Option<Self> {
        Self::unless_taken(core).or_else(|| {
            core.turn_wanted.store(true, Ordering::Release);
            fence(Ordering::SeqCst);
            Self::unless_taken(core)
        })
    }

    /// If the server runs: the end of the server is up to the relay. With the slices in hand, since the relay ends when
    /// it finds none after the server was asked to stop.
    fn while_running(self, core: &Core) -> Option<Self> {
        (core.stage() == Stage::Running).then_some(self)
    }
}

/// A waiting caller as the driver of slices.
pub(super) struct Driver<'c>(&'c Core);

impl<'c> Driver<'c> {
    pub fn new(core: &'c Core) -> Self {
        core.drivers.fetch_add(1, Ordering::AcqRel);
        Self(core)
    }

    /// Sends the caller's slice, if the device has room. Otherwise the current driver does.
    pub fn send(&self) {
        let turn = Turn::unless_taken(self.0);
        if let Some(mut turn) = turn.and_then(|turn| turn.while_running(self.0)) {
            turn.slices.send_bulk(self.0);
        }
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        if self.0.drivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            // What is left is the relay's.
            self.0.parker.bell.ring();
        }
    }
}

impl Core {
    /// Moves slices on by one turn; `false` if somebody else does so, or there is nothing to do. In the former case
    /// [`Core::landed`] is rung when he is done.
    pub fn drive(&self) -> bool {
        let turn = Turn::or_ask(self);
        let Some(mut turn) = turn.and_then(|turn| turn.while_running(self)) else {
            return false;
        };
        let turned = turn.slices.turn(self);
        if turned {
            // The device is not to wait for whoever takes the answers.
            turn.slices.send_bulk(self);
        }
        turned
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc;

    use super::*;
    use crate::kernel::server::SliceShape;
    use crate::persistent::frame::Frame;
    use crate::persistent::policy::LeasePolicy;
    use crate::rpc::port::layout::PortLayout;

    #[test]
    fn whoever_finds_the_slices_taken_is_woken_when_they_are_not() {
        let minute = Duration::from_secs(60);
        let frame = Frame::on_host(PortLayout::new(4, 4)).unwrap();
        let mut core = Core::new(1, None, frame, Vec::new(), LeasePolicy::host(), 1);
        let shape = SliceShape {
            given: 4,
            taken: 4,
            turns: 1,
            fails: false,
            together: None,
            group: 0,
        };
        core.slices = Some(Mutex::new(Slices::new(shape, Vec::new())));
        let core = Arc::new(core);
        let (asked, has_asked) = mpsc::channel();
        let (given, has_given) = mpsc::channel();
        let (woken, is_woken) = mpsc::channel();
        let turn = Turn::unless_taken(&core).unwrap();
        let waiting = Arc::clone(&core);
        std::thread::spawn(move || {
            let known = waiting.landed.count();
            assert!(!waiting.drive());
            asked.send(()).unwrap();
            has_given.recv_timeout(minute).unwrap();
            // Far longer than the other side waits, unless the bell was rung since.
            waiting.landed.sleep(known, minute * 60);
            woken.send(waiting.landed.count() - known).unwrap();
        });
        has_asked.recv_timeout(minute).unwrap();
        drop(turn);
        given.send(()).unwrap();
        assert_eq!(is_woken.recv_timeout(minute).unwrap(), 1);
        // Without a request there is no one to wake.
        let known = core.landed.count();
        drop(Turn::or_ask(&core));
        assert_eq!(core.landed.count(), known);
    }
}
