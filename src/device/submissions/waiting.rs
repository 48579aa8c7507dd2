//! Waiting for the end of a batch: looking for about as long as a short launch takes, then parked.
//!
//! The program chooses for how long threads look (`WaitPolicy`). The time counts from the submission, so a submission
//! costs a thread bounded processor time. Where the choice is the runtime's, threads look once more when recent waits
//! make an end likely ([`recent`](super::recent)). Where there is no signal, threads look at wgpu in that time, and
//! poll afterwards at distances growing to 1 ms.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::batch::Batch;
use super::contained::{Panicked, contained};
use super::ledger::End;
use super::recent::Window;
use super::{GONE, Marker, Submissions};
use crate::clock::Instant;
use crate::device::pace::Pace;

/// The longest stay inside a wait of the driver: between two waits the loss of the device is checked.
const SLICE: Duration = Duration::from_millis(100);
/// Looks at wgpu after a premature signal, or while a callback is in the way, before there is a marker more.
const LOOKS: u32 = 3;

/// How many times as long a thread looks for an end awaited by another device: a millisecond on graphics processors. A
/// sleeping thread costs every step of two devices more than a tenth of a millisecond.
const LONGER: u32 = 20;

/// The result of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The batch has ended, along with everything before.
    Done,
    Pending,
    /// This thread must not wait: [`Submissions::refused`] says why.
    Refused,
    /// The device is lost. This says nothing about running work: see [`Submissions::standing`].
    Lost(String),
}

/// The goal of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The end, as told by the driver.
    Signalled,
    /// The end, as seen by wgpu.
    Ended,
    /// Idleness of the device: nothing runs any more.
    Over,
}

/// The result of looking.
#[derive(Debug, PartialEq, Eq)]
enum Looked {
    Found,
    /// Nothing, up to this time.
    InVain(Instant),
}

/// The next step of a waiting thread, and until when.
#[derive(Debug)]
enum Step {
    /// Looks, in the window of a recent wait unless the submission is fresh.
    Look(Instant, Option<Window>),
    Sleep(Instant),
}

/// Looks for news until the time is up, at most the time between two looks too late. The current time is `now`.
fn look(
    until: Instant,
    mut now: Instant,
    mut clock: impl FnMut() -> Instant,
    mut has_news: impl FnMut() -> bool,
) -> Looked {
    while now < until {
        for _ in 0..8 {
            std::hint::spin_loop();
        }
        if has_news() {
            return Looked::Found;
        }
        now = clock();
    }
    Looked::InVain(now)
}

impl Submissions {
    /// The state of the batch, without asking wgpu; news comes by [`Self::wait`] and [`Self::collect`].
    pub(crate) fn standing(&self, batch: &Batch) -> super::Standing {
        use super::Standing;
        let Some(verdict) = batch.submission() else {
            return Standing::Recorded;
        };
        let number = batch.number();
        match self.ledger.end(number) {
            Some(End::Run) => Standing::Ended,
            Some(End::Lost) => Standing::Lost,
            None if verdict.is_err() => Standing::Refused,
            None => Standing::Submitted,
        }
    }

    /// Waits until the batch has ended, `timeout` has passed, or the device is lost. The batch was submitted, or refused.
    /// A timeout of nothing is a look.
    pub(crate) fn wait(&self, batch: &Batch, timeout: Option<Duration>) -> Progress {
        self.wait_until(batch, timeout, Until::Ended)
    }

    /// As [`Self::wait`], for a thread in need of nothing from wgpu: wgpu may still keep the resources of a light
    /// batch, until asked next, at the next submission at the latest. The driver is working by then; asked here, wgpu
    /// would take longer than the recording of a short launch.
    pub(crate) fn wait_signalled(&self, batch: &Batch, timeout: Option<Duration>) -> Progress {
        let until = match batch.is_light() {
            true => Until::Signalled,
            false => Until::Ended,
        };
        self.wait_until(batch, timeout, until)
    }

    /// Waits until nothing of the batch runs any more, or `timeout` has passed. [`Progress::Lost`]: the device is lost;
    /// then [`Self::standing`] says whether the batch is over, or unknowable.
    pub(crate) fn wait_over(&self, batch: &Batch, timeout: Option<Duration>) -> Progress {
        self.wait_until(batch, timeout, Until::Over)
    }

    /// Looks for the end of the batch, for several times as long as a thread of the program would: at the end another
    /// device begins, and to be woken takes as long as a short launch.
    pub(crate) fn look_longer(&self, batch: &Batch, deadline: Option<Instant>) {
        let now = Instant::now();
        // Longer looks are left to the wait behind, since the wait also sees the device's loss.
        let until = now + self.spin.saturating_mul(LONGER).min(SLICE);
        let until = deadline.map_or(until, |end| end.min(until));
        look(until, now, Instant::now, || self.has_reached(batch));
    }

    fn wait_until(&self, batch: &Batch, timeout: Option<Duration>, until: Until) -> Progress {
        if let Some(answer) = self.answer(batch, until) {
            return answer;
        }
        // Waits of the runtime's own for the safety of memory are not the program's to refuse: only pages cannot wait.
        let is_look = timeout == Some(Duration::ZERO);
        if !is_look && (cfg!(web) || self.may_submit_behind(batch, "a wait").is_err()) {
            return Progress::Refused;
        }
        let _absent = match is_look {
            true => None,
            false => match self.leave_crew(batch) {
                Ok(absent) => absent,
                Err(()) => return Progress::Refused,
            },
        };
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let (mut pace, mut looks) = (Pace::default(), 0);
        loop {
            let has_reached = self.has_reached(batch);
            if has_reached && until == Until::Signalled && self.is_signalled(batch) {
                return Progress::Done;
            }
            if has_reached {
                self.collect();
                looks += 1;
                if looks > LOOKS {
                    self.prove();
                }
            }
            if let Some(answer) = self.answer(batch, until) {
                return answer;
            }
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Progress::Pending;
            }
            match has_reached {
                true if self.signal.is_none() && self.looks(batch) => thread::yield_now(),
                true => pace.rest(left),
                false => self.park(batch, deadline),
            }
        }
    }

    /// The known verdict on the batch, if useful to the waiting thread.
    fn answer(&self, batch: &Batch, until: Until) -> Option<Progress> {
        let number = batch.number();
        if self.ledger.end(number) == Some(End::Run) {
            // Launches are settled in their order: a launch submitted by a callback waits for the batch whose
            // submission ran the callback, except inside that callback.
            let is_next = self.ledger.is_sent(number) || self.is_submitting();
            return is_next.then_some(Progress::Done);
        }
        let is_lost = self.ledger.is_dead()
            || self.is_mute()
            || (until != Until::Over && self.lost.is_raised());
        is_lost.then(|| {
            let reason = self.lost.get();
            Progress::Lost(reason.unwrap_or_else(|| GONE.to_owned()))
        })
    }

    /// Whether the signal reached for the batch comes from the batch's own submission, by a running driver.
    fn is_signalled(&self, batch: &Batch) -> bool {
        let number = batch.number();
        // Work given up by a lost device is signalled, too; and a submission without a signal has the value of the last
        // signalling submission.
        (self.signal.as_ref()).is_some_and(|signal| signal.is_in_order() && signal.loss().is_none())
            && batch.is_signal_own()
            && batch.signal() == number
            && self.ledger.is_sent(number)
            && !self.lost.is_raised()
            && !self.is_mute()
    }

    /// Whether asking wgpu for the batch is worthwhile.
    pub(super) fn has_reached(&self, batch: &Batch) -> bool {
        match &self.signal {
            None => true,
            Some(signal) => match signal.reached() {
                Ok(reached) => reached >= batch.signal(),
                Err(_) => {
                    self.gone();
                    true
                }
            },
        }
    }

    /// Whether the submission of the batch is fresh enough for threads to look.
    fn looks(&self, batch: &Batch) -> bool {
        (batch.sent()).is_some_and(|sent| sent.elapsed() < self.spin)
    }

    /// Waits for the signal of the batch, for a slice at most: looks or sleeps, as the next step says.
    fn park(&self, batch: &Batch, deadline: Option<Instant>) {
        let Some(signal) = &self.signal else {
            return;
        };
        let target = batch.signal();
        let has_news = || match signal.reached() {
            Ok(reached) => reached >= target,
            Err(_) => true,
        };
        let now = Instant::now();
        let slice = now + SLICE;
        let until = deadline.map_or(slice, |end| end.min(slice));
        let step = self.step(batch.sent(), now, until);
        let found = match &step {
            Step::Look(until, _) => look(*until, now, Instant::now, has_news) == Looked::Found,
            Step::Sleep(until) => {
                let waited = signal.wait(target, until.saturating_duration_since(now));
                waited.unwrap_or_else(|_| {
                    self.gone();
                    false
                })
            }
        };
        match (&self.recent, step, batch.sent()) {
            (Some(recent), Step::Look(end, Some(window)), _) if !found && end < until => {
                recent.was_in_vain(&window);
            }
            (Some(recent), _, Some(sent)) if found => {
                let time = sent.elapsed();
                if time > self.spin {
                    recent.note(time);
                }
            }
            _ => {}
        }
    }

    /// The step now of a thread waiting for a batch sent at that time.
    fn step(&self, sent: Option<Instant>, now: Instant, until: Instant) -> Step {
        let Some(sent) = sent else {
            return Step::Sleep(until);
        };
        let after = |time| sent.checked_add(time).map_or(until, |at| at.min(until));
        let elapsed = now.saturating_duration_since(sent);
        if elapsed < self.spin {
            return Step::Look(after(self.spin), None);
        }
        match (self.recent.as_ref()).and_then(|recent| recent.next(elapsed)) {
            Some(window) if elapsed < window.range.start => Step::Sleep(after(window.range.start)),
            Some(window) => Step::Look(after(window.range.end), Some(window)),
            None => Step::Sleep(until),
        }
    }

    /// Asks wgpu for ended submissions, and runs the resulting callbacks, the program's included. Not to be called with
    /// a lock wanted by callbacks.
    pub(crate) fn collect(&self) {
        if self.ledger.is_dead() || self.is_mute() {
            return;
        }
        // wgpu panics when asking the driver for a device that is gone.
        if let Some(signal) = &self.signal
            && signal.reached().is_err()
        {
            self.gone();
            return;
        }
        if let Err(Panicked::Driver { message, gone }) =
            contained(|| self.raw.poll(wgpu::PollType::Poll))
        {
            self.lost.raise(message);
            self.mute.store(true, Ordering::Release);
            if gone {
                self.ledger.died();
            }
        }
    }

    /// Whether wgpu cannot be asked any more.
    pub(super) fn is_mute(&self) -> bool {
        self.mute.load(Ordering::Acquire)
    }

    fn gone(&self) {
        self.lost.raise(GONE);
        self.ledger.died();
    }

    /// Has wgpu report all submissions once more: another thread may hold the markers and be busy in a callback,
    /// perhaps this very thread further up.
    fn prove(&self) {
        let claim = self.ledger.claim();
        if self.proofs.fetch_max(claim, Ordering::AcqRel) >= claim {
            return;
        }
        let queue = self.queue.lock().clone();
        if let Some(queue) = queue {
            self.mark(&queue, claim);
        }
    }

    /// Registers a marker.
    pub(super) fn mark(&self, queue: &wgpu::Queue, claim: u64) {
        let marker = Marker {
            ledger: self.ledger.clone(),
            claim,
            signal: self.signal.clone(),
            lost: Arc::clone(&self.lost),
            #[cfg(web)]
            refusal: None,
        };
        #[cfg(web)]
        self.mark_late(queue, marker);
        #[cfg(not(web))]
        queue.on_submitted_work_done(move || drop(marker));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock going on by a microsecond at every question.
    fn clock(begun: Instant) -> impl FnMut() -> Instant {
        let mut now = begun;
        move || {
            now += Duration::from_micros(1);
            now
        }
    }

    #[test]
    fn looking_ends_with_the_news_and_in_any_case_in_time() {
        let begun = Instant::now();
        let until = begun + Duration::from_micros(50);
        // The news at each look, and never.
        for at in 1..=60u32 {
            let mut looks = 0;
            let has_news = || {
                looks += 1;
                looks == at
            };
            let looked = look(until, begun, clock(begun), has_news);
            match at {
                1..=50 => assert_eq!((looked, looks), (Looked::Found, at)),
                _ => assert_eq!((looked, looks), (Looked::InVain(until), 50)),
            }
        }
    }

    #[test]
    fn who_has_no_time_to_look_does_not_look() {
        let begun = Instant::now();
        for until in [begun, begun - Duration::from_micros(1)] {
            let looked = look(
                until,
                begun,
                || panic!("asked for the time"),
                || panic!("looked"),
            );
            assert_eq!(looked, Looked::InVain(begun));
        }
    }
}
