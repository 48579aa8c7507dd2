//! The decision of a device with a choice between the heap in place and a copy of its own ([`HeapPlacement::Auto`] on a
//! card): where the next launch works.
//!
//! The decision is *ski rental*: a launch in place pays rent, the time that the bus takes from its kernel, and a copy is
//! bought when the rent paid would have paid for it. So at most about twice the time of the better choice is lost, whatever the
//! program does next.
//!
//! # How it works
//!
//! All sums are nanoseconds of the device's and the host's time, put together in one *balance*: what a copy would have saved.
//! 1. Each launch adds what its kernel would save ([`Policy::launched`]): its time in place less its time on the copy, as far as
//!    either was measured; before that, the time of [`INVOCATION_BYTES`] over the bus for each invocation.
//! 2. Each *look* behind launches (an access of the host, a launch in place of another device) takes what a look costs where there
//!    is a copy ([`Policy::looked`]): a search, a round trip, and the bytes that travel.
//! 3. A launch finds the device in place: it moves to the copy once the balance reaches the price of the bytes that the copy lacks
//!    ([`Policy::choose`]). The balance stays: losses on the copy have to reach that price before the device goes back.
//! 4. A launch finds the device on its copy, and the copy behind: the missing bytes are paid for, and where the balance does not
//!    suffice the device goes back, with a balance of 0.
//!
//! In place the balance never falls below 0, so that a long time without launches is not held against the copy, and never rises
//! above twice the price of everything, so that a copy that has begun to lose is left soon.
//!
//! Nothing here knows a clock or a device: the same calls have the same answers.
//!
//! [`HeapPlacement::Auto`]: crate::heap::HeapPlacement::Auto

use std::collections::HashMap;

use crate::memory::heap::advice::HeapAdvice;

/// Bytes that an invocation is taken to move before its kernel was measured: a value read and one written.
const INVOCATION_BYTES: u64 = 16;
/// Bytes a nanosecond across a bus: PCI Express 4.0 with 16 lanes.
const BUS: u64 = 25;
/// Bytes a nanosecond of an upload or a download: pages are gathered by the host.
const TRANSFER: u64 = 4;
/// Bytes a nanosecond of the search for changes, in a card's own memory.
const SEARCH: u64 = 800;
/// Nanoseconds of a round trip with a search: submission, copy, wait.
const ROUND_TRIP: u64 = 100_000;
/// Nanoseconds for making a copy: its buffers and the pipeline of the search.
const SETUP: u64 = 1_000_000;
/// One of so many launches of a kernel is measured, once its time is known.
pub(super) const EVERY: u64 = 256;
/// Kernels whose times are remembered.
const KERNELS: usize = 1024;

/// Where the kernels of a device work on the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::memory::heap) enum Place {
    /// In the host's memory.
    #[default]
    Host,
    /// On the device's copy.
    Copy,
}

/// The last measured launches of a kernel.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    host: Option<Time>,
    copy: Option<Time>,
    launches: u64,
}

/// A measured launch.
#[derive(Debug, Clone, Copy)]
struct Time {
    nanoseconds: u64,
    invocations: u64,
}

impl Time {
    /// The time of a launch with so many invocations.
    fn of(self, invocations: u64) -> u64 {
        let scaled = u128::from(self.nanoseconds) * u128::from(invocations.max(1))
            / u128::from(self.invocations.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

/// The bytes to be sent to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::memory::heap) struct Missing {
    /// Bytes that the copy lacks.
    pub bytes: u64,
    /// Bytes of the heap in use.
    pub in_use: u64,
    /// There is no copy yet.
    pub is_new: bool,
}

impl Missing {
    /// The cost of bringing the copy up to date.
    fn price(self) -> u64 {
        let setup = if self.is_new { SETUP } else { 0 };
        setup + self.bytes / TRANSFER
    }

    /// The balance's upper limit.
    fn most(self) -> u64 {
        2 * (SETUP + self.in_use.max(self.bytes) / TRANSFER)
    }
}

/// The cost of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::memory::heap) struct Look {
    /// Bytes that travelled.
    pub moved: u64,
    /// Bytes searched for changes.
    pub searched: u64,
}

/// The known facts about a device.
#[derive(Debug, Default)]
pub(in crate::memory::heap) struct Policy {
    place: Place,
    balance: u64,
    /// Launches since the last look.
    launches: u64,
    /// A prefetch has asked for the copy.
    is_awaited: bool,
    advice: HeapAdvice,
    /// Bytes of a heap for a copy of which the device had no room.
    refused: Option<u64>,
    kernels: HashMap<u64, Times>,
}

impl Policy {
    pub(in crate::memory::heap) fn place(&self) -> Place {
        self.place
    }

    pub(in crate::memory::heap) fn advice(&self) -> HeapAdvice {
        self.advice
    }

    pub(in crate::memory::heap) fn advise(&mut self, advice: HeapAdvice) {
        self.advice = advice;
        self.refused = None;
    }

    /// Asks for the copy at the next launch that can have it.
    pub(in crate::memory::heap) fn prefetch(&mut self) {
        self.is_awaited = true;
        self.refused = None;
    }

    /// Whether a launch may find itself on the copy: nothing has to be asked about the heap otherwise.
    pub(in crate::memory::heap) fn is_open(&self, committed: u64) -> bool {
        let has_room = self.refused.is_none_or(|refused| committed < refused);
        has_room && self.advice != HeapAdvice::PreferHost
    }

    /// A launch of this kernel is about to be recorded.
    pub(in crate::memory::heap) fn launched(&mut self, kernel: u64, invocations: u64) {
        let saved = self.saving(kernel, invocations);
        self.launches += 1;
        self.balance = self.balance.saturating_add(saved);
    }

    fn saving(&self, kernel: u64, invocations: u64) -> u64 {
        let times = self.kernels.get(&kernel).copied().unwrap_or_default();
        let guess = invocations.saturating_mul(INVOCATION_BYTES) / BUS;
        let [host, copy] =
            [times.host, times.copy].map(|time| time.map(|time| time.of(invocations)));
        host.unwrap_or(guess).saturating_sub(copy.unwrap_or(0))
    }

    /// Where the next launch, or a transfer, should work.
    pub(in crate::memory::heap) fn choose(&mut self, missing: Missing) -> Place {
        self.balance = self.balance.min(missing.most());
        let price = missing.price();
        let is_told = self.is_awaited || self.advice == HeapAdvice::PreferDevice;
        match is_told || self.balance >= price {
            true => Place::Copy,
            false => Place::Host,
        }
    }

    /// The device works on its copy from now on, or still does; so many bytes were sent.
    pub(in crate::memory::heap) fn entered(&mut self, sent: u64) -> bool {
        let has_moved = self.place == Place::Host;
        if !has_moved {
            self.balance = self.balance.saturating_sub(sent / TRANSFER);
        }
        (self.place, self.is_awaited) = (Place::Copy, false);
        has_moved
    }

    /// A launch works in place from now on: as chosen, or because it has to. Whether the device has moved.
    pub(in crate::memory::heap) fn left(&mut self) -> bool {
        let has_moved = self.place == Place::Copy;
        if has_moved {
            (self.place, self.balance) = (Place::Host, 0);
        }
        has_moved
    }

    /// The device had no room for a copy of so many bytes.
    pub(in crate::memory::heap) fn refused(&mut self, bytes: u64) {
        self.refused = Some(bytes);
        self.is_awaited = false;
    }

    /// Somebody else looks at the heap; without a cost where nothing was written.
    pub(in crate::memory::heap) fn looked(&mut self, look: Option<Look>) {
        let has_launched = std::mem::take(&mut self.launches) > 0;
        let Some(look) = look.filter(|_| has_launched) else {
            return;
        };
        let moved = look.moved / TRANSFER;
        let cost = match self.advice {
            // Mostly read memory is rarely changed: a copy stays good.
            HeapAdvice::ReadMostly => moved,
            _ => ROUND_TRIP + look.searched / SEARCH + moved,
        };
        self.balance = self.balance.saturating_sub(cost);
    }

    fn times(&mut self, kernel: u64) -> &mut Times {
        if self.kernels.len() >= KERNELS && !self.kernels.contains_key(&kernel) {
            self.kernels.clear();
        }
        self.kernels.entry(kernel).or_default()
    }

    /// Whether the next launch of the kernel is to be measured in this place.
    pub(in crate::memory::heap) fn is_due(&mut self, kernel: u64, place: Place) -> bool {
        let times = self.times(kernel);
        times.launches += 1;
        let known = match place {
            Place::Host => times.host,
            Place::Copy => times.copy,
        };
        known.is_none() || times.launches.is_multiple_of(EVERY)
    }

    /// A launch of the kernel took so many nanoseconds.
    pub(in crate::memory::heap) fn measured(
        &mut self,
        kernel: u64,
        place: Place,
        nanoseconds: u64,
        invocations: u64,
    ) {
        let time = Time {
            nanoseconds,
            invocations,
        };
        let times = self.times(kernel);
        match place {
            Place::Host => times.host = Some(time),
            Place::Copy => times.copy = Some(time),
        }
    }
}

#[cfg(test)]
mod tests;
