//! Which device each place of a buffer stands for.
//!
//! Places are the buffer's own, and valid under the buffer's lock alone: no place outlives an unlock, so no command can
//! meet a place that was given to another device meanwhile. A device gets a place with its first command on the buffer.
//!
//! A set of places is one word ([`Places`]), so there are 63 places for devices, and programs that replace their devices
//! use more than that. So a place is given anew:
//!
//! 1. the place of a device that is gone, or, with all places given, of one without memory for the buffer;
//! 2. else the place of a lost device under whose name losses are told, which are told under another lost device of the
//!    same name from then on;
//! 3. else the place with the memory used least recently, whose only copies come to the host first. There is always one
//!    of the three: buffers follow any number of devices.
//!
//! Devices that only buffers still hold ([`DeviceShared::is_only_in_buffers`]) do not wait for that: their memory is
//! given up when the buffer gets its next device (`Root::place_on`).

use std::cell::OnceCell;
use std::sync::{Arc, Weak};

use crate::device::DeviceShared;
use crate::memory::migrate::{Place, Places, Residency};

/// The places of devices that there are.
const MOST: usize = Place::LIMIT as usize - 1;

/// The devices of a buffer, by their places.
pub(super) struct DevicePlaces<D = Weak<DeviceShared>, const LIMIT: usize = MOST> {
    /// A device's place is its index plus 1.
    seats: Vec<Seat<D>>,
    /// The names in messages, once they are asked for, until a seat changes.
    names: OnceCell<Vec<Option<Arc<str>>>>,
}

struct Seat<D> {
    device: D,
    /// The device's name, once it is lost.
    lost: Option<String>,
}

impl<D, const LIMIT: usize> Default for DevicePlaces<D, LIMIT> {
    fn default() -> Self {
        Self {
            seats: Vec::new(),
            names: OnceCell::new(),
        }
    }
}

/// What is to be done before a device gets a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vacancy {
    /// Nothing: the place is vacant.
    At(Place),
    /// The losses of the first place are to be told under the name of the second.
    BehindLosses(Place, Place),
    /// The memory there is to be given up.
    BehindMemory(Place),
}

/// What is known of the device at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    /// Nobody can use the device any more.
    pub(super) is_gone: bool,
    /// When the device's memory for the buffer was last used, if there is any.
    pub(super) used_at: Option<u64>,
}

fn at(place: Place) -> Option<usize> {
    (place.index() as usize).checked_sub(1)
}

impl<D, const LIMIT: usize> DevicePlaces<D, LIMIT> {
    /// The place of the device for which `is` holds.
    pub(super) fn find(&self, is: impl Fn(&D) -> bool) -> Option<Place> {
        let at = self.seats.iter().position(|seat| is(&seat.device))?;
        Place::new(at as u32 + 1).ok()
    }

    /// All places, each with its device.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &D)> {
        let seats = self.seats.iter().enumerate();
        seats.filter_map(|(at, seat)| Some((Place::new(at as u32 + 1).ok()?, &seat.device)))
    }

    /// The place for another device, and what has to come first: do that, and ask again. No memory in `kept` is given up;
    /// `None` if only such memory is left.
    pub(super) fn vacancy(
        &self,
        residency: &Residency,
        standing: impl Fn(Place, &D) -> Standing,
        kept: Places,
    ) -> Option<Vacancy> {
        let mut vacant = None;
        let mut losses: Vec<Place> = Vec::new();
        let mut oldest: Option<(u64, Place)> = None;
        for (place, device) in self.iter() {
            let standing = standing(place, device);
            match standing.used_at {
                Some(used_at) => {
                    let is_older = oldest.is_none_or(|(known, _)| used_at < known);
                    if is_older && !kept.contains(place) {
                        oldest = Some((used_at, place));
                    }
                }
                None if !residency.losses_at(place).is_empty() => losses.push(place),
                None if standing.is_gone => return Some(Vacancy::At(place)),
                None => vacant = vacant.or(Some(place)),
            }
        }
        if self.seats.len() < LIMIT {
            return Some(Vacancy::At(Place::new(self.seats.len() as u32 + 1).ok()?));
        }
        if let Some(place) = vacant {
            return Some(Vacancy::At(place));
        }
        for (index, from) in losses.iter().enumerate() {
            let mut earlier = losses[..index].iter();
            if let Some(to) = earlier.find(|to| self.lost_name(**to) == self.lost_name(*from)) {
                return Some(Vacancy::BehindLosses(*from, *to));
            }
        }
        match (oldest, &losses[..]) {
            (Some((_, place)), _) => Some(Vacancy::BehindMemory(place)),
            // As many names of lost devices as places.
            (None, [first, .., last]) => Some(Vacancy::BehindLosses(*last, *first)),
            (None, _) => None,
        }
    }

    /// Gives a vacant place to a device.
    pub(super) fn give(&mut self, place: Place, device: D) {
        self.names.take();
        let seat = Seat { device, lost: None };
        match at(place).and_then(|at| self.seats.get_mut(at)) {
            Some(known) => *known = seat,
            None => self.seats.push(seat),
        }
    }

    /// The name under which losses at a place are told.
    pub(super) fn lost_name(&self, place: Place) -> Option<&str> {
        self.seats.get(at(place)?)?.lost.as_deref()
    }

    /// Keeps the name of a device that is lost: losses are told under it.
    pub(super) fn note_loss(&mut self, place: Place, name: &str) {
        self.names.take();
        if let Some(seat) = at(place).and_then(|at| self.seats.get_mut(at)) {
            seat.lost = Some(name.to_owned());
        }
    }

    /// Adds the name of a lost device to that of another one, as losses of both are told there from now on.
    pub(super) fn join_losses(&mut self, from: Place, to: Place) {
        self.names.take();
        let name = self.lost_name(from).map(str::to_owned);
        let Some(seat) = at(to).and_then(|at| self.seats.get_mut(at)) else {
            return;
        };
        match (&mut seat.lost, name) {
            (Some(known), Some(name)) if *known != name => *known = format!("{known} or {name}"),
            (Some(_), _) => {}
            (lost @ None, name) => *lost = name,
        }
    }
}

impl<const LIMIT: usize> DevicePlaces<Weak<DeviceShared>, LIMIT> {
    /// The device's place, if it has one.
    pub(super) fn place_of(&self, device: &Arc<DeviceShared>) -> Option<Place> {
        // A seat keeps the address from being used anew.
        self.find(|known| known.as_ptr() == Arc::as_ptr(device))
    }

    /// The name of a place in messages.
    pub(super) fn name_of(&self, place: Place) -> Arc<str> {
        let Some(at) = at(place) else {
            return "the host".into();
        };
        let names = self.names.get_or_init(|| self.make_names());
        match names.get(at) {
            Some(Some(name)) => Arc::clone(name),
            _ => place.to_string().into(),
        }
    }

    /// The names of all places; places of devices with one name are told apart by their numbers.
    fn make_names(&self) -> Vec<Option<Arc<str>>> {
        let name = |seat: &Seat<Weak<DeviceShared>>| match &seat.lost {
            Some(name) => Some(name.clone()),
            None => (seat.device.upgrade()).map(|device| device.capabilities.name.clone()),
        };
        let names: Vec<Option<String>> = self.seats.iter().map(name).collect();
        let named = (1..).zip(&names).map(|(index, name)| {
            let name = name.as_ref()?;
            let alike = names.iter().filter(|other| other.as_ref() == Some(name));
            Some(match (alike.count(), Place::new(index)) {
                (2.., Ok(place)) => format!("{name} ({place})").into(),
                _ => name.as_str().into(),
            })
        });
        named.collect()
    }
}
