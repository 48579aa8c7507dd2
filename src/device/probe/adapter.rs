//! The probe of an adapter: on a separate device, on a separate thread, repeated until there is an answer.
//!
//! No trouble of the probe's can take the caller's device, and no hanging driver can keep the caller: the thread is
//! left behind when the time is up. Until this thread has come back the adapter gets no other, so a hanging device
//! costs the time once; and a late answer is taken by the next opener of the adapter.

#[cfg(not(web))]
use std::sync::Arc;
use std::sync::Mutex;
#[cfg(not(web))]
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
#[cfg(not(web))]
use std::thread;
#[cfg(not(web))]
use std::time::Duration;

use super::{ProbeOptions, ProbeReport, probe};
use crate::clock::Instant;
use crate::device::import::{Opened, request_device};
use crate::device::wait::lock;

#[cfg(not(web))]
/// The longest time, behind the deadline of the questions, until the thread is expected to report.
const GRACE: Duration = Duration::from_secs(5);

/// The known facts about an adapter.
#[derive(Default)]
pub(crate) struct AdapterProbe(Mutex<State>);

#[derive(Default)]
struct State {
    known: Option<ProbeReport>,
    /// A thread not yet back.
    #[cfg(not(web))]
    asking: Option<Asking>,
}

#[cfg(not(web))]
/// A thread at the questions.
struct Asking {
    begun: Instant,
    answer: Arc<Mutex<Option<ProbeReport>>>,
    /// Nothing is ever sent: that the other end is dropped is the message.
    ended: Receiver<()>,
}

impl AdapterProbe {
    /// As [`Self::ask`], on a page: while the page goes on.
    #[cfg(web)]
    pub(crate) async fn ask(&self, adapter: &wgpu::Adapter, options: &ProbeOptions) -> ProbeReport {
        let known = lock(&self.0).known.clone();
        match known {
            Some(report) if !report.ran_out() => report,
            known => {
                let (report, _opened) = probe_scratch(adapter, options, known).await;
                lock(&self.0).known = Some(report.clone());
                report
            }
        }
    }

    /// What the adapter does. Asks what was never answered; waits at most a little longer than the deadline.
    #[cfg(not(web))]
    #[allow(clippy::unused_async)] // On a page the same is asked without blocking.
    pub(crate) async fn ask(&self, adapter: &wgpu::Adapter, options: &ProbeOptions) -> ProbeReport {
        let (adapter, options) = (adapter.clone(), options.clone());
        let within = options.deadline;
        self.ask_by(within, move |known, tell| {
            let (report, opened) = pollster::block_on(probe_scratch(&adapter, &options, known));
            tell(report);
            // Before the thread counts as having come back: drivers dislike being used while a device closes.
            drop(opened);
        })
    }

    /// Asks by `questions`, which is given what is known and tells a report.
    #[cfg(not(web))]
    fn ask_by(
        &self,
        within: Duration,
        questions: impl FnOnce(Option<ProbeReport>, &dyn Fn(ProbeReport)) + Send + 'static,
    ) -> ProbeReport {
        let mut state = lock(&self.0);
        if let Some(late) = state.asking.take() {
            state.hear(late, within);
        }
        match &state.known {
            Some(report) if !report.ran_out() || state.asking.is_some() => return report.clone(),
            _ if within.is_zero() => return ProbeReport::timed_out(within, Duration::ZERO),
            _ => {}
        }
        match Asking::begin(state.known.clone(), questions) {
            Ok(asking) => state.hear(asking, within),
            Err(error) => {
                let error = format!("no thread could be started: {error}");
                return ProbeReport::failed(&error, Duration::ZERO);
            }
        }
        (state.known.clone()).unwrap_or_else(|| ProbeReport::timed_out(within, Duration::ZERO))
    }
}

#[cfg(not(web))]
impl State {
    /// Waits for an answer until `within` the time since the questions were asked, and notes it.
    fn hear(&mut self, asking: Asking, within: Duration) {
        let deadline = within.saturating_add(within.min(GRACE));
        let left = deadline.saturating_sub(asking.begun.elapsed());
        let outcome = asking.ended.recv_timeout(left);
        let answer = lock(&asking.answer).take();
        let elapsed = asking.begun.elapsed();
        let has_ended = matches!(outcome, Err(RecvTimeoutError::Disconnected));
        let silent = |known: &Option<ProbeReport>| match known {
            // What was said before stays said.
            Some(known) => known.clone(),
            None => ProbeReport::timed_out(within, elapsed),
        };
        self.known = Some(match answer {
            Some(report) => report,
            None if has_ended => ProbeReport::failed("the probe's thread panicked", elapsed),
            None => silent(&self.known),
        });
        if !has_ended {
            self.asking = Some(asking);
        }
    }
}

#[cfg(not(web))]
impl Asking {
    fn begin(
        known: Option<ProbeReport>,
        questions: impl FnOnce(Option<ProbeReport>, &dyn Fn(ProbeReport)) + Send + 'static,
    ) -> std::io::Result<Self> {
        let answer = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&answer);
        let (end, ended) = channel();
        let begun = Instant::now();
        thread::Builder::new()
            .name("tombolo-probe".to_owned())
            .spawn(move || {
                let _end = end;
                questions(known, &|report| *lock(&slot) = Some(report));
            })?;
        Ok(Self {
            begun,
            answer,
            ended,
        })
    }
}

/// The report, and the device that is still to be closed.
async fn probe_scratch(
    adapter: &wgpu::Adapter,
    options: &ProbeOptions,
    known: Option<ProbeReport>,
) -> (ProbeReport, Option<(wgpu::Device, wgpu::Queue)>) {
    let begun = Instant::now();
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("tombolo probe"),
        required_limits: adapter.limits(),
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        ..Default::default()
    };
    match request_device(adapter, &descriptor, true).await {
        Ok(Opened { device, queue, .. }) => {
            let backend = adapter.get_info().backend;
            let report = probe(&device, &queue, backend, options, known).await;
            (report, Some((device, queue)))
        }
        Err(error) => {
            let error = format!("no device for the probe: {error}");
            (ProbeReport::failed(&error, begun.elapsed()), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Finding, NotProbed};
    use super::*;

    const SOON: Duration = Duration::from_millis(1);
    const MINUTE: Duration = Duration::from_secs(60);

    fn answer(latency: Option<u64>) -> ProbeReport {
        let mut report = ProbeReport::not_probed(NotProbed::TurnedOff);
        report.launch_latency = match latency {
            Some(micros) => Finding::Measured(Duration::from_micros(micros)),
            None => Finding::TimedOut { within: SOON },
        };
        report
    }

    #[test]
    fn what_ran_out_of_time_is_asked_again_and_nothing_else() {
        let adapter = AdapterProbe::default();
        let first = adapter.ask_by(MINUTE, |known, tell| {
            assert_eq!(known, None);
            tell(answer(None));
        });
        assert!(first.ran_out());
        // With no more time than before.
        let second = adapter.ask_by(MINUTE, |known, tell| {
            assert_eq!(known, Some(answer(None)));
            tell(answer(Some(7)));
        });
        assert_eq!(second, answer(Some(7)));
        let third = adapter.ask_by(MINUTE, |_, tell| tell(answer(Some(8))));
        assert_eq!(third, answer(Some(7)));
    }

    #[test]
    fn a_device_that_hangs_is_asked_once_and_its_late_answer_is_taken() {
        let adapter = AdapterProbe::default();
        let (release, released) = channel::<()>();
        let told = adapter.ask_by(SOON, move |_, tell| {
            let _ = released.recv();
            tell(answer(Some(7)));
        });
        assert_eq!(told.live, Finding::TimedOut { within: SOON });
        for _ in 0..3 {
            let again = adapter.ask_by(SOON, |_, _| panic!("two threads at one adapter"));
            assert!(again.ran_out());
        }
        release.send(()).unwrap();
        let late = adapter.ask_by(MINUTE, |_, _| panic!("the answer was there"));
        assert_eq!(late, answer(Some(7)));
    }

    #[test]
    fn a_probe_without_time_asks_nobody() {
        let adapter = AdapterProbe::default();
        let told = adapter.ask_by(Duration::ZERO, |_, _| panic!("there was no time"));
        assert!(told.ran_out() && told.live.measured().is_none());
        let told = adapter.ask_by(MINUTE, |_, tell| tell(answer(Some(7))));
        assert_eq!(told, answer(Some(7)));
        // What is known needs no time.
        let told = adapter.ask_by(Duration::ZERO, |_, _| panic!("it is known"));
        assert_eq!(told, answer(Some(7)));
    }
}
