//! What a device has written that no server writes.
//!
//! Nothing that lies in memory of a device is believed: a driver, or another kernel, may have written over it. A wrong
//! answer cannot be told from a right one; but what would have callers wait for ever, or leases follow each other without
//! end, is found here, between two leases, when nobody writes. Kernels of other devices write their
//! half of their ports themselves, and could have the server look at fault: what they miss is told to each of them.
//!
//! No server writes a reply to anything but a posted call, takes a call without answering, or leaves a call posted
//! before the lease began (`ServerFailure::Garbled`). An answer with a wrong seal when the lease is over is
//! `CallError::Garbled`. A restart puts all words right.

use super::frame::Frame;
use super::settle::{self, Calls};

/// Something that leases in a row have left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Missed<T>(Option<(T, u32)>);

impl<T> Missed<T> {
    pub const NONE: Self = Self(None);
}

impl<T: PartialEq + Copy> Missed<T> {
    /// Notes what the last one has left; how many have.
    pub fn note(&mut self, left: Option<T>) -> u32 {
        self.0 = left.map(|left| match self.0 {
            Some((known, leases)) if known == left => (left, leases.saturating_add(1)),
            _ => (left, 1),
        });
        self.0.map_or(0, |(_, leases)| leases)
    }
}

/// A port, and what is wrong there.
pub(super) type Amiss = (usize, &'static str);

impl Frame {
    /// What a lease has left that no server leaves. `first`: a call that it has seen and could answer, if there was one.
    pub fn amiss(&self, first: Option<(usize, u32)>) -> Option<Amiss> {
        let amiss_at = |port| Some((port, self.amiss_at(port)?));
        (0..self.layout().ports).find_map(amiss_at).or_else(|| {
            let call = first.filter(|&call| settle::is_left(self, call))?;
            Some((
                call.0,
                "a call was left that was posted before the lease began",
            ))
        })
    }

    /// A call without an answer that is not where the kernel looks for it: whoever posts it is not at the end of that, or
    /// something has written over it.
    pub fn first_hidden(&self) -> Option<(usize, u32)> {
        let calls = (0..self.layout().ports).map(|port| (port, self.request(port)));
        let mut left = calls.filter(|&call| settle::is_left(self, call));
        left.find(|&(port, _)| !self.is_shown(port))
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
