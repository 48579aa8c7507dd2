//! Questions to the start-up probe and the answers: plain data, without any device.

use std::fmt;
use std::time::Duration;

use crate::device::import::ImportFinding;

/// How long the start-up probe may take.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProbeOptions {
    /// When to stop measuring. Questions not measured until then are reported as such.
    pub deadline: Duration,
}

impl Default for ProbeOptions {
    /// Half a minute, needed only by a hanging device: a usual probe takes some hundredths of a second, and some
    /// seconds where several programs share the device.
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
        }
    }
}

impl ProbeOptions {
    /// Sets when to stop measuring.
    #[must_use]
    pub fn deadline(mut self, time: Duration) -> Self {
        self.deadline = time;
        self
    }
}

/// Why a question was not put to the device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotProbed {
    /// Probing was turned off.
    TurnedOff,
    /// The device cannot have the measured feature; the text says why.
    Unsupported(String),
}

impl fmt::Display for NotProbed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TurnedOff => f.write_str("probing is turned off"),
            Self::Unsupported(why) => f.write_str(why),
        }
    }
}

/// What the probe can say about one question.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding<T> {
    /// The answer was measured.
    Measured(T),
    /// The question was not asked.
    NotProbed(NotProbed),
    /// The device did not answer in the probe's time, as when other programs keep the device busy. Nothing is known
    /// then, and nothing is remembered: the next device opened on the adapter asks again.
    TimedOut {
        /// The probe's time ([`DeviceOptions::probe_deadline`](crate::DeviceOptions::probe_deadline)).
        within: Duration,
    },
    /// The attempt failed; the text is the driver's or wgpu's.
    Failed(String),
}

impl<T> Finding<T> {
    /// The measured answer, if any.
    pub fn measured(&self) -> Option<&T> {
        match self {
            Self::Measured(value) => Some(value),
            _ => None,
        }
    }

    /// Why there is no measurement, or `None` if there is one.
    pub fn why_not(&self) -> Option<String> {
        match self {
            Self::Measured(_) => None,
            Self::NotProbed(reason) => Some(reason.to_string()),
            Self::TimedOut { within } => Some(format!(
                "the device did not answer within {within:?}, as when other programs keep it busy; open it again, or \
                 give it more time with DeviceOptions::probe_deadline"
            )),
            Self::Failed(error) => Some(format!("the probe failed: {error}")),
        }
    }

    /// Whether there is no answer for want of time.
    pub(crate) const fn ran_out(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }
}

/// Which side saw the other's writes while a kernel ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveFinding {
    /// The kernel saw what the host wrote after the kernel had begun.
    pub host_to_kernel: bool,
    /// The host saw what the kernel wrote before the kernel ended.
    pub kernel_to_host: bool,
}

impl LiveFinding {
    /// A finding of the given content, for tests of code that depends on a finding.
    #[cfg(test)]
    pub(crate) const fn new(host_to_kernel: bool, kernel_to_host: bool) -> Self {
        Self {
            host_to_kernel,
            kernel_to_host,
        }
    }

    /// Both directions work: host and kernel can talk.
    pub fn both_ways(self) -> bool {
        self.host_to_kernel && self.kernel_to_host
    }
}

/// The findings of the start-up probe.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProbeReport {
    /// Whether host-coherent memory is seen by both sides while a kernel runs. `false` means not *observed* in several
    /// attempts with growing wait budgets.
    pub live: Finding<LiveFinding>,
    /// Whether host memory used by the device in place joins host and kernels.
    pub host_import: Finding<ImportFinding>,
    /// After how many turns the driver ended a loop of 2^20 turns, or `None` if it did not.
    pub loop_budget: Finding<Option<u32>>,
    /// From submitting an empty kernel to knowing that it ended: the median of several launches.
    pub launch_latency: Finding<Duration>,
    /// How long the probe took.
    pub elapsed: Duration,
}

impl ProbeReport {
    /// The report of a probe that did not happen.
    pub fn not_probed(reason: NotProbed) -> Self {
        Self {
            live: Finding::NotProbed(reason.clone()),
            host_import: Finding::NotProbed(reason.clone()),
            loop_budget: Finding::NotProbed(reason.clone()),
            launch_latency: Finding::NotProbed(reason),
            elapsed: Duration::ZERO,
        }
    }

    /// Whether a question has no answer for want of time.
    pub(crate) fn ran_out(&self) -> bool {
        self.live.ran_out()
            || self.host_import.ran_out()
            || self.loop_budget.ran_out()
            || self.launch_latency.ran_out()
    }

    /// The report of a device that did not answer `within` the time given.
    pub(super) fn timed_out(within: Duration, elapsed: Duration) -> Self {
        Self {
            live: Finding::TimedOut { within },
            host_import: Finding::TimedOut { within },
            loop_budget: Finding::TimedOut { within },
            launch_latency: Finding::TimedOut { within },
            elapsed,
        }
    }

    pub(super) fn failed(error: &str, elapsed: Duration) -> Self {
        Self {
            live: Finding::Failed(error.to_owned()),
            host_import: Finding::Failed(error.to_owned()),
            loop_budget: Finding::Failed(error.to_owned()),
            launch_latency: Finding::Failed(error.to_owned()),
            elapsed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_measured_or_says_why_not() {
        assert_eq!(Finding::Measured(3).measured(), Some(&3));
        assert_eq!(Finding::Measured(3).why_not(), None);
        for (finding, word) in [
            (
                Finding::<u32>::NotProbed(NotProbed::TurnedOff),
                "turned off",
            ),
            (
                Finding::NotProbed(NotProbed::Unsupported("no such memory".to_owned())),
                "no such memory",
            ),
            (
                Finding::TimedOut {
                    within: Duration::from_secs(30),
                },
                "within 30s",
            ),
            (Finding::Failed("device lost".to_owned()), "device lost"),
        ] {
            assert_eq!(finding.measured(), None);
            let why = finding.why_not().unwrap();
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn a_probe_that_did_not_happen_claims_nothing() {
        let report = ProbeReport::not_probed(NotProbed::TurnedOff);
        assert_eq!(report.live.measured(), None);
        assert_eq!(report.loop_budget.measured(), None);
        assert_eq!(report.launch_latency.measured(), None);
    }
}
