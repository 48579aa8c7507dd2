//! Devices of the same card take turns.
//!
//! A card goes over from one device of a program to another only between kernels (seen with NVIDIA's driver 580; no
//! interface promises more). So a kernel waiting for a function of the host keeps every other device of the card
//! waiting, too: the function must not wait for any of the others. After four seconds NVIDIA's driver gives up all of
//! the process's devices (Xid 109). Software drivers run kernels of several devices beside each other, as far as they
//! have threads.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Submissions;
use crate::device::release::release_elsewhere;

/// A card, told apart from others as far as adapters tell.
#[derive(Debug, Clone)]
pub(super) struct Card {
    /// On the PCI bus; empty where the backend does not tell.
    address: String,
    /// By vendor and product, and by name.
    kind: (u32, u32, String),
}

impl Card {
    /// The card of an adapter, if the adapter is a card.
    pub(super) fn of(info: &wgpu::AdapterInfo) -> Option<Self> {
        let is_card = info.device_type != wgpu::DeviceType::Cpu;
        #[cfg(test)]
        let is_card = is_card || crate::device::hooks::is_every_adapter_a_card();
        is_card.then(|| Self {
            address: info.device_pci_bus_id.clone(),
            kind: (info.vendor, info.device, info.name.clone()),
        })
    }

    /// Whether both may be the same card. Without known addresses, two cards of a kind count as the same.
    pub(super) fn may_be(&self, other: &Self) -> bool {
        match self.address.is_empty() || other.address.is_empty() {
            true => self.kind == other.kind,
            false => self.address == other.address,
        }
    }
}

/// A device of a card.
struct Noted {
    id: u64,
    card: Card,
    device: Weak<Submissions>,
}

/// The open devices.
static OPEN: Mutex<Vec<Noted>> = Mutex::new(Vec::new());

/// Notes a device, for [`ask`].
pub(super) fn note(device: &Arc<Submissions>) {
    if let Some(card) = device.card.clone() {
        let mut open = OPEN.lock();
        open.retain(|noted| noted.device.strong_count() > 0);
        open.push(Noted {
            id: device.id,
            card,
            device: Arc::downgrade(device),
        });
    }
}

/// Asks the device of `card` with this number, if there.
pub(super) fn ask<R>(id: u64, card: &Card, question: impl FnOnce(&Submissions) -> R) -> Option<R> {
    let device = {
        let open = OPEN.lock();
        let is_asked = |noted: &&Noted| noted.id == id && noted.card.may_be(card);
        open.iter().find(is_asked)?.device.upgrade()?
    };
    let answer = question(&device);
    // The last holder of a device ends the device, but a thread awaited by a kernel must not.
    release_elsewhere(device);
    Some(answer)
}

#[cfg(test)]
mod tests;
