//! Rings of a device that is gone.

use crate::cases;
use crate::harness::Fixture;
use tombolo::device::{LiveError, Tier};
use tombolo::ring::RingError;

cases![a_device_that_is_gone_has_no_rings];

fn a_device_that_is_gone_has_no_rings(f: &Fixture) {
    for live_memory in [true, false] {
        let device = f.open(|options| options.live_memory = live_memory);
        let (kernel, mut receiver) = device.ring_to_host::<u32>(4).unwrap();
        assert_eq!(receiver.ready().unwrap(), 0);
        device.raw().destroy();
        // The runtime learns of it.
        device.finish().unwrap_err();
        let refused = device.ring_from_host::<u32>(4).err().unwrap();
        match kernel.tier() {
            Tier::Live => {
                let is_lost = matches!(refused, RingError::Live(LiveError::DeviceLost { .. }));
                assert!(is_lost, "{refused}");
                // The memory outlives its device.
                assert_eq!(receiver.ready().unwrap(), 0);
            }
            _ => {
                assert!(matches!(refused, RingError::Memory(_)), "{refused}");
                let unread = receiver.ready().err().unwrap();
                assert!(matches!(unread, RingError::Read(_)), "{unread}");
            }
        }
    }
}
