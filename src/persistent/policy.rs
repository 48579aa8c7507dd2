//! The length of leases, and the time after which an idle server goes to sleep.
//!
//! After two milliseconds without calls a lease is asked to leave, and the relay sleeps until the next post rings. A
//! lease ending earlier by turns or by time is renewed; a lease that made room is not, unless the policy never lets the
//! server leave: other work is not to make way again and again for a server without calls.

use std::time::Duration;

use crate::device::Capabilities;

/// The turns of a server with everything else on its device.
///
/// A server is a relay of *leases*: launches of the same polling kernel, each ending in bounded time and followed by
/// the next. All knowledge of calls lies in the ports, so callers do not notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeasePolicy {
    /// The longest lease: the burden on watchdogs and other processes with the device. Other work of this process on the
    /// device ends a lease at once. A running handler is not ended by the limit. Calls between two leases wait for the
    /// host, so longer leases make answers come more evenly.
    pub time: Duration,
    /// After so much time without calls the server leaves the device; the next call launches it again. Earlier a lease
    /// is followed by another without calls, too, unless the lease has made room for other work. [`Duration::MAX`]: the
    /// server never leaves but to make room; [`Duration::ZERO`]: as soon as the absence of calls is seen.
    pub idle: Duration,
    /// A lease still there so long after the request to end, and serving no calls, is reported as stuck, as soon as the
    /// machine has had time for this process since: on a busy machine later. The first lease has half a minute to begin:
    /// drivers compile a kernel at its first launch.
    pub stuck: Duration,
    /// How many submissions of others in close succession (within 250 microseconds, or a millisecond on software
    /// adapters) go ahead of the next lease once one has made room: 5 by default, and calls wait for as many. 0: leases
    /// and others take turns, so that each submission waits for a lease to end.
    pub gives_way: u32,
}

impl LeasePolicy {
    /// The policy suiting a device: leases of 100 ms on software adapters, out of sight of watchdogs, and of 20 ms
    /// elsewhere.
    pub fn of(capabilities: &Capabilities) -> Self {
        Self {
            time: Duration::from_millis(if capabilities.software { 100 } else { 20 }),
            idle: Duration::from_millis(2),
            stuck: Duration::from_secs(5),
            gives_way: 5,
        }
    }

    /// A server of the host has no leases.
    pub(super) fn host() -> Self {
        Self {
            time: Duration::MAX,
            idle: Duration::MAX,
            stuck: Duration::MAX,
            gives_way: 0,
        }
    }

    /// Replaces the longest lease.
    #[must_use]
    pub fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Replaces the time without calls after which the server leaves the device; [`Duration::MAX`]: never, but to make room.
    #[must_use]
    pub fn idle(mut self, time: Duration) -> Self {
        self.idle = time;
        self
    }

    /// Replaces the number of submissions in succession that go ahead of a lease.
    #[must_use]
    pub fn gives_way(mut self, submissions: u32) -> Self {
        self.gives_way = submissions;
        self
    }

    /// Replaces the time after which an unending lease is stuck.
    #[must_use]
    pub fn stuck(mut self, time: Duration) -> Self {
        self.stuck = time;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{NotProbed, ProbeReport};

    fn capabilities(
        name: &str,
        device_type: wgpu::DeviceType,
        backend: wgpu::Backend,
    ) -> Capabilities {
        let info = wgpu::AdapterInfo {
            name: name.to_owned(),
            ..wgpu::AdapterInfo::new(device_type, backend)
        };
        let probe = ProbeReport::not_probed(NotProbed::TurnedOff);
        let limits = wgpu::Limits::default();
        Capabilities::new(&info, wgpu::Features::empty(), &limits, probe)
    }

    #[test]
    fn leases_are_short_where_a_watchdog_may_look() {
        use wgpu::{Backend, DeviceType as Type};
        let ms = Duration::from_millis;
        for (name, device_type, backend, time) in [
            ("llvmpipe (LLVM 15.0.6)", Type::Cpu, Backend::Vulkan, 100),
            ("SwiftShader Device", Type::Cpu, Backend::Vulkan, 100),
            (
                "Microsoft Basic Render Driver",
                Type::Other,
                Backend::Dx12,
                100,
            ),
            ("some processor", Type::Cpu, Backend::Gl, 100),
            ("NVIDIA H200", Type::DiscreteGpu, Backend::Vulkan, 20),
            ("Radeon", Type::DiscreteGpu, Backend::Dx12, 20),
            ("Apple M2", Type::IntegratedGpu, Backend::Metal, 20),
            ("in a cloud", Type::VirtualGpu, Backend::Vulkan, 20),
            ("unheard of", Type::Other, Backend::BrowserWebGpu, 20),
        ] {
            let policy = LeasePolicy::of(&capabilities(name, device_type, backend));
            assert_eq!(policy.time, ms(time), "{name}");
            assert_eq!(policy.idle, ms(2), "{name}");
            assert_eq!(policy.stuck, ms(5000), "{name}");
            assert_eq!(policy.gives_way, 5, "{name}");
            assert_eq!(policy.gives_way(2).gives_way, 2);
            let own = policy.time(ms(1)).idle(Duration::MAX).stuck(ms(3));
            assert_eq!(
                (own.time, own.idle, own.stuck),
                (ms(1), Duration::MAX, ms(3))
            );
        }
    }
}
