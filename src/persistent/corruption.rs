//! Corruption: writes of a device never made by a server.
//!
//! Memory of a device is never trusted: a driver, or another kernel, may have written there. A wrong answer cannot be
//! told from a right one; but corruption that would have callers wait for ever, or leases follow each other without
//! end, is found here, between two leases, when nothing writes. Kernels of other devices write their half of their
//! ports themselves, and could make the server look at fault: each such kernel is told of its own misses.
//!
//! No server writes a reply to anything but a posted call, takes a call without answering, or leaves a call posted
//! before the lease began (`ServerFailure::Garbled`). An answer with a wrong seal when the lease is over is
//! `CallError::Garbled`. A restart puts all words right.

use super::frame::Frame;
use super::settle::{self, Calls};

/// Something left by leases in a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Missed<T>(Option<(T, u32)>);

impl<T> Missed<T> {
    pub const NONE: Self = Self(None);
}

impl<T: PartialEq + Copy> Missed<T> {
    /// Notes the finding of the last lease; returns how many leases in a row have the same.
    pub fn note(&mut self, left: Option<T>) -> u32 {
        self.0 = left.map(|left| match self.0 {
            Some((known, leases)) if known == left => (left, leases.saturating_add(1)),
            _ => (left, 1),
        });
        self.0.map_or(0, |(_, leases)| leases)
    }
}

/// A port, and the fault there.
pub(super) type Corruption = (usize, &'static str);

impl Frame {
    /// A lease's traces, never left by a server. `first`: a call seen and answerable by the lease, if there was one.
    pub fn corruption(&self, first: Option<(usize, u32)>) -> Option<Corruption> {
        let corruption_at = |port| Some((port, self.corruption_at(port)?));
        (0..self.layout().ports)
            .find_map(corruption_at)
            .or_else(|| {
                let call = first.filter(|&call| settle::is_left(self, call))?;
                Some((
                    call.0,
                    "a call was left that was posted before the lease began",
                ))
            })
    }

    /// An unanswered call, hidden from the kernel: its post is unfinished, or the place was written over.
    pub fn first_hidden(&self) -> Option<(usize, u32)> {
        let calls = (0..self.layout().ports).map(|port| (port, self.request(port)));
        let mut left = calls.filter(|&call| settle::is_left(self, call));
        left.find(|&(port, _)| !self.is_shown(port))
    }

    fn corruption_at(&self, port: usize) -> Option<&'static str> {
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
