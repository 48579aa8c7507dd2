//! What a device has written that no server writes.
//!
//! Nothing that lies in memory of a device is believed: a driver, or another kernel, may have written over it. A wrong
//! answer cannot be told from a right one; but what would have callers wait for ever, or leases follow each other without
//! end, is found here, between two leases, when nobody writes. Kernels of other devices write their
//! half of their ports themselves, and could have the server look at fault: what they miss is told to each of them.

use super::frame::Frame;
use super::settle::Calls;

/// A port, and what is wrong there.
pub(super) type Amiss = (usize, &'static str);

impl Frame {
    /// What a lease has left that no server leaves. `first`: a call that was posted before it began. `faultless`: no call has
    /// failed in it, so that it has looked at every port.
    pub fn amiss(&self, first: Option<(usize, u32)>, faultless: bool) -> Option<Amiss> {
        (0..self.layout().ports)
            .find_map(|port| Some((port, self.amiss_at(port)?)))
            .or_else(|| {
                let (port, request) = first.filter(|_| faultless)?;
                let is_left = self.request(port) == request && self.reply(port) != request;
                is_left.then_some((
                    port,
                    "a call was left that was posted before the lease began",
                ))
            })
    }

    fn amiss_at(&self, port: usize) -> Option<&'static str> {
        let (before, reply) = (self.request(port), self.reply(port));
        if reply == before {
            return None;
        }
        if self.request(port) != before {
            // The call before was answered, and another thread has posted the next one here meanwhile.
            return None;
        }
        if reply != before.wrapping_sub(1) {
            return Some("a call was answered that nobody has posted");
        }
        (self.taken(port) == before).then_some("a call was taken, and not answered")
    }
}
