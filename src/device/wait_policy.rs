//! How a thread waits for a device: looking, then asleep.

use std::fmt;
use std::time::Duration;

/// How a thread waits for the end of a submission ([`DeviceOptions::wait`](crate::DeviceOptions::wait)).
///
/// A thread that sleeps is woken through the driver and the scheduler of the system, which takes longer than a short launch.
/// A thread that looks sees the end at once, and keeps a processor busy meanwhile. So a thread looks for about the length of a
/// short launch, and then sleeps. The time to look counts from the submission, not from the beginning of the wait: however
/// often, and for whatever in it, a thread waits, a submission costs a thread no more processor time than that, with two
/// exceptions: for the end of what another device waits for, threads look for twenty times as long, once for each exchange, and
/// [`Auto`](Self::Auto) has them look once more.
///
/// ```no_run
/// use std::time::Duration;
/// use tombolo::{Context, DeviceOptions, device::WaitPolicy};
///
/// // Launches of a tenth of a millisecond, each of which is waited for at once.
/// let options = DeviceOptions::default().wait(WaitPolicy::Spin(Duration::from_micros(200)));
/// let device = Context::new()?.device_with(options)?;
/// # Ok::<(), tombolo::device::DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum WaitPolicy {
    /// Decided by the runtime: 50 µs of looking on graphics processors, and none on processors, whose kernels want the very
    /// core that would look. In longer waits on graphics processors threads look again, for less than a millisecond,
    /// when earlier waits of the device took as long; on the average once in vain for each wait, at most.
    #[default]
    Auto,
    /// Threads sleep at once: the least processor time, and the longest way back.
    Park,
    /// Threads look for so long after a submission, and then sleep. `Duration::MAX` has threads look until the end.
    Spin(Duration),
    /// Threads never wait: what would block is refused with
    /// [`ExecutionError::WouldBlock`](crate::device::ExecutionError::WouldBlock), which names what to `.await` instead. The
    /// policy of every device in a browser, whatever its options say, and elsewhere for programs whose threads belong to an
    /// executor.
    Never,
}

/// For people: the variant in words.
impl fmt::Display for WaitPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("decided by the runtime"),
            Self::Park => f.write_str("sleep at once"),
            Self::Spin(Duration::MAX) => f.write_str("look until the end"),
            Self::Spin(time) => write!(f, "look for {time:?}, then sleep"),
            Self::Never => f.write_str("never wait"),
        }
    }
}

impl WaitPolicy {
    /// About as long as a short launch takes on a graphics processor, from which a parked thread is woken by an interrupt.
    const SHORT_LAUNCH: Duration = Duration::from_micros(50);

    /// How long after a submission threads look, on a device of this kind.
    pub(super) fn looks_for(self, kind: wgpu::DeviceType) -> Duration {
        match self {
            Self::Auto if kind == wgpu::DeviceType::Cpu => Duration::ZERO,
            Self::Auto => Self::SHORT_LAUNCH,
            Self::Park | Self::Never => Duration::ZERO,
            Self::Spin(time) => time,
        }
    }

    /// Whether threads look once more when an end is likely, on graphics processors.
    pub(super) fn foresees(self) -> bool {
        self == Self::Auto
    }

    /// Whether waits of the program are refused.
    pub(super) fn never_blocks(self) -> bool {
        cfg!(web) || self == Self::Never
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_left_to_their_kernels_unless_a_program_wants_otherwise() {
        use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu, Other};
        let second = Duration::from_secs(1);
        for kind in [DiscreteGpu, IntegratedGpu, Other] {
            assert_eq!(
                WaitPolicy::default().looks_for(kind),
                Duration::from_micros(50)
            );
        }
        let foresees = [
            WaitPolicy::Auto,
            WaitPolicy::Park,
            WaitPolicy::Spin(second),
            WaitPolicy::Never,
        ];
        assert_eq!(
            foresees.map(WaitPolicy::foresees),
            [true, false, false, false]
        );
        assert_eq!(WaitPolicy::default().looks_for(Cpu), Duration::ZERO);
        for kind in [Cpu, DiscreteGpu] {
            assert_eq!(WaitPolicy::Park.looks_for(kind), Duration::ZERO);
            assert_eq!(WaitPolicy::Spin(second).looks_for(kind), second);
        }
    }
}
