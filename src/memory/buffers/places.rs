//! Places for devices: a buffer's next device gets a place, and devices that nobody uses any more give theirs back.

use std::sync::Arc;

use super::context::ContextBuffers;
use super::device_allocation::DeviceAllocation;
use super::device_places::{Standing, Vacancy};
use super::error::BufferError;
use super::exchange::Exchange;
use super::root::{Root, State};
use crate::device::DeviceShared;
use crate::device::release::release_elsewhere;
use crate::memory::migrate::{MigrateError, Place, Places, Route, Routes};

/// The name of a command in errors.
const WHAT: &str = "giving up a buffer's memory there";

impl Root {
    /// The device's place in this buffer, a new one with the first command; see [`super::device_places`].
    ///
    /// # Errors
    /// Where all places have memory, the first failure to bring a device's bytes to the host. Contents are unchanged.
    pub(super) fn place_on(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
    ) -> Result<Place, BufferError> {
        if let Some(place) = state.devices.place_of(device) {
            return Ok(place);
        }
        state.notice_losses();
        self.give_up_forsaken(state);
        let mut kept = Places::EMPTY;
        let mut failed = None;
        loop {
            match state.vacancy(kept) {
                Some(Vacancy::At(place)) => {
                    state
                        .residency
                        .vacate(place)
                        .map_err(|error| state.refusal(error))?;
                    state.seat(self.context(), place, device);
                    return Ok(place);
                }
                Some(Vacancy::BehindLosses(from, to)) => {
                    state.residency.rename_losses(from, to);
                    state.devices.join_losses(from, to);
                }
                Some(Vacancy::BehindMemory(place)) => {
                    if let Err(error) = self.give_up_place(state, place) {
                        // The device may have been lost meanwhile, and has no memory then.
                        state.suspect_losses();
                        kept.insert(place);
                        failed.get_or_insert(error);
                    }
                }
                None => {
                    return Err(failed.unwrap_or(BufferError::Migrate(
                        MigrateError::TooManyPlaces {
                            index: Place::LIMIT,
                            limit: Place::LIMIT,
                        },
                    )));
                }
            }
        }
    }

    /// Gives up memory on devices that only buffers hold: nobody can use these devices again. A device that refuses its
    /// bytes keeps them.
    fn give_up_forsaken(&self, state: &mut State) {
        state.forget_all_ended();
        for place in state.places() {
            let forsaken = |copy: &DeviceAllocation| copy.shared.device.is_only_in_buffers();
            if state.copy(place).is_some_and(forsaken)
                && let Err(error) = self.give_up_place(state, place)
            {
                log::debug!("a buffer stays on a device that was dropped: {error}");
            }
        }
    }

    /// Gives up the memory at a place, after bytes with no other copy have come to the host. Common memory stays with its
    /// other devices.
    fn give_up_place(&self, state: &mut State, place: Place) -> Result<(), BufferError> {
        state.may_submit_at(place, WHAT)?;
        let Some(copy) = state.copy(place) else {
            return Ok(());
        };
        let device = Arc::clone(&copy.shared.device);
        let is_common = copy.is_common();
        if is_common && state.common_places().len() > 1 {
            let vacated = state.residency.vacate(place);
            vacated.map_err(|error| state.refusal(error))?;
            state.take_copy(place);
        } else {
            self.evict(state, place)?;
        }
        if !is_common {
            // The memory is gone, and nobody has to wait for commands there.
            state.forget_uses_of(&device);
        }
        let_go(device);
        Ok(())
    }
}

/// Drops the hold of a buffer on a device, which ends on another thread if no other hold is left: the end of a device delivers prints to
/// sinks of the program, which may ask for the buffer that is locked here.
pub(super) fn let_go(device: Arc<DeviceShared>) {
    if let Some(device) = Arc::into_inner(device) {
        release_elsewhere(device);
    }
}

impl State {
    fn vacancy(&self, kept: Places) -> Option<Vacancy> {
        let standing = |place: Place, device: &std::sync::Weak<DeviceShared>| Standing {
            is_gone: device.strong_count() == 0,
            used_at: self.copy(place).map(|copy| copy.used_at),
        };
        self.devices.vacancy(&self.residency, standing, kept)
    }

    /// Gives a vacant place to a device, with the ways from there to the others.
    fn seat(&mut self, context: &ContextBuffers, place: Place, device: &Arc<DeviceShared>) {
        // Transfers to the former device say nothing about the next one.
        self.arrivals.retain(|(_, at, _)| *at != place);
        self.devices.give(place, Arc::downgrade(device));
        for (other, known) in self.devices.iter() {
            let joins = |known: Arc<DeviceShared>| {
                Exchange::joins(&known, device) && !context.is_closed(&known, device)
            };
            let way = match known.upgrade().is_some_and(joins) {
                true => Route::SharedHost,
                false => Route::ThroughHost,
            };
            if other != place {
                (self.routes).set_both(other, place, way, Routes::SHARED_HOST_COST);
            }
        }
    }

    /// The planner's refusal, in the words of devices.
    pub(super) fn refusal(&self, error: MigrateError) -> BufferError {
        match error {
            MigrateError::Lost { place, ranges } => BufferError::Lost {
                device: self.devices.name_of(place).to_string(),
                ranges,
            },
            other => BufferError::Migrate(other),
        }
    }
}
