//! Copies between the host, or buffers, and a device global, untyped.

use std::ops::Range;
use std::sync::Arc;

use super::memory::{self, Placed, names, with_host_value};
use super::{GlobalError, WaitList};
use crate::device::{Device, DeviceShared, Event, WaitError};
use crate::kernel::globals::{Declaration, HostView};
use crate::memory::buffer::BufferShared;
use crate::memory::heap::copies::direct::{self, Contents};
use crate::memory::places::Place as Copied;
use crate::memory::{HeapError, MemoryError, ReadBack, ReadError};

/// A variable in the view of a host command.
pub(super) struct Target<'d> {
    device: &'d Arc<DeviceShared>,
    name: &'d str,
    bytes: u64,
    place: Place,
}

enum Place {
    Memory(Arc<Placed>),
    /// No module has the variable; the value is kept on the host.
    Host(Declaration),
}

impl<'d> Target<'d> {
    pub fn of(
        device: &'d Arc<DeviceShared>,
        what: &'static str,
        declaration: &Declaration,
    ) -> Result<Self, GlobalError> {
        let view = names(device).host_view(declaration).map_err(Box::new)?;
        Self::new(
            device,
            what,
            declaration.name,
            declaration.bytes,
            view,
            Some(declaration),
        )
    }

    pub fn new(
        device: &'d Arc<DeviceShared>,
        what: &'static str,
        name: &'d str,
        bytes: u64,
        view: HostView,
        declaration: Option<&Declaration>,
    ) -> Result<Self, GlobalError> {
        let place = match (view, declaration) {
            (HostView::Instance(instance), _) => Place::Memory(memory::place(device, &instance)?),
            (HostView::Several(modules), _) => {
                return Err(GlobalError::SeveralModules {
                    name: name.to_owned(),
                    what,
                    modules,
                });
            }
            (HostView::Host, Some(declaration)) => Place::Host(declaration.clone()),
            (HostView::Host, None) => {
                return Err(GlobalError::Unknown {
                    name: name.to_owned(),
                    available: names(device).names(),
                });
            }
        };
        Ok(Self {
            device,
            name,
            bytes,
            place,
        })
    }

    /// The place in the device's memory; `None` where the value is kept on the host.
    pub fn placed(&self) -> Option<&Arc<Placed>> {
        match &self.place {
            Place::Memory(placed) => Some(placed),
            Place::Host(_) => None,
        }
    }

    /// Checks a range of bytes.
    pub fn range(
        &self,
        what: &'static str,
        start: u64,
        count: u64,
    ) -> Result<Range<u64>, GlobalError> {
        check_range(self.name, self.bytes, what, start, count)
    }

    pub fn write(
        &self,
        what: &'static str,
        start: u64,
        bytes: &[u8],
        after: &WaitList<'_>,
    ) -> Result<Event, GlobalError> {
        let range = self.range(what, start, bytes.len() as u64)?;
        after.wait_for_others(self.device, self.name, what)?;
        if range.is_empty() {
            return Ok(Event::complete(self.device));
        }
        match &self.place {
            Place::Memory(placed) => {
                let part = placed.part(range.start, range.end - range.start);
                let recorded = || placed.overwritten(&range);
                direct::write(self.device, what, part, Contents::Bytes(bytes), recorded)
                    .map_err(|source| self.heap(source))
            }
            Place::Host(declaration) => {
                with_host_value(self.device, declaration, |value| {
                    if let Some(to) = value.get_mut(range.start as usize..range.end as usize) {
                        to.copy_from_slice(bytes);
                    }
                });
                Ok(Event::complete(self.device))
            }
        }
    }

    pub fn read(
        &self,
        what: &'static str,
        start: u64,
        count: u64,
        after: &WaitList<'_>,
    ) -> Result<ReadBack<u8>, GlobalError> {
        let range = self.range(what, start, count)?;
        after.wait_for_others(self.device, self.name, what)?;
        if range.is_empty() {
            return Ok(ReadBack::ready(Vec::new()));
        }
        let placed = match &self.place {
            Place::Memory(placed) => placed,
            Place::Host(declaration) => {
                let bytes = with_host_value(self.device, declaration, |value| {
                    let part = value.get(range.start as usize..range.end as usize);
                    part.map(<[u8]>::to_vec).unwrap_or_default()
                });
                return Ok(ReadBack::ready(bytes));
            }
        };
        // Whole words are copied; the surroundings of the range are cut off on the way.
        let (first, last) = (range.start / 4 * 4, range.end.next_multiple_of(4));
        let part = placed.part(first, last - first);
        let words = direct::read(self.device, what, part, |buffer, uncertain| {
            let all = 0..last - first;
            for outcome in self.outcomes(placed, &range, uncertain) {
                buffer.poison(all.clone(), &outcome);
            }
        });
        let words = words.map_err(|source| self.heap(source))?;
        let values = words.read_back(range.start - first..range.end - first);
        values.map_err(|source| self.buffer(source))
    }

    /// Copies to `range` of a buffer of the device, which lies at `place`.
    pub fn read_into(
        &self,
        what: &'static str,
        start: u64,
        (buffer, range, place): (&BufferShared, Range<u64>, Option<&Copied>),
        after: &WaitList<'_>,
    ) -> Result<Event, GlobalError> {
        let own = self.range(what, start, range.end - range.start)?;
        after.wait_for_others(self.device, self.name, what)?;
        let Some(target) = place else {
            return Ok(Event::complete(self.device));
        };
        match &self.place {
            Place::Memory(placed) => {
                let part = placed.part(own.start, own.end - own.start);
                let to = (buffer, range.clone(), target);
                direct::to_buffer(self.device, what, part, to, |uncertain| {
                    for outcome in self.outcomes(placed, &own, uncertain) {
                        buffer.poison(range.clone(), &outcome);
                    }
                })
                .map_err(|source| self.heap(source))
            }
            Place::Host(_) => Err(self.on_host(what)),
        }
    }

    /// Copies `range` of a buffer of the device, which lies at `place`.
    pub fn write_from(
        &self,
        what: &'static str,
        start: u64,
        (buffer, range, place): (&BufferShared, Range<u64>, Option<&Copied>),
        after: &WaitList<'_>,
    ) -> Result<Event, GlobalError> {
        let own = self.range(what, start, range.end - range.start)?;
        after.wait_for_others(self.device, self.name, what)?;
        let Some(source) = place else {
            return Ok(Event::complete(self.device));
        };
        match &self.place {
            Place::Memory(placed) => {
                let part = placed.part(own.start, own.end - own.start);
                direct::from_buffer(self.device, what, part, source, || {
                    placed.overwritten(&own);
                    for outcome in buffer.depends_on(&range) {
                        placed.poison(own.clone(), &outcome);
                    }
                })
                .map_err(|source| self.heap(source))
            }
            Place::Host(_) => Err(self.on_host(what)),
        }
    }

    /// The outcomes deciding about the bytes of `range`.
    fn outcomes(
        &self,
        placed: &Placed,
        range: &Range<u64>,
        heap: Vec<Arc<crate::device::outcome::Outcome>>,
    ) -> Vec<Arc<crate::device::outcome::Outcome>> {
        let mut found = placed.depends_on(range);
        if placed.has_escaped() {
            found.extend(heap);
        }
        found
    }

    fn heap(&self, source: HeapError) -> GlobalError {
        GlobalError::Heap {
            name: self.name.to_owned(),
            source,
        }
    }

    fn buffer(&self, source: MemoryError) -> GlobalError {
        GlobalError::Buffer {
            name: self.name.to_owned(),
            source,
        }
    }

    pub fn unreadable(&self, source: ReadError) -> GlobalError {
        GlobalError::Read {
            name: self.name.to_owned(),
            source,
        }
    }

    /// A copy on the device of a value that is not there.
    fn on_host(&self, what: &'static str) -> GlobalError {
        GlobalError::NotOnDevice {
            name: self.name.to_owned(),
            what,
        }
    }
}

/// Checks a range of bytes of a variable.
pub(super) fn check_range(
    name: &str,
    bytes: u64,
    what: &'static str,
    start: u64,
    count: u64,
) -> Result<Range<u64>, GlobalError> {
    let end = start.saturating_add(count);
    match end > bytes {
        true => Err(GlobalError::Invalid {
            name: name.to_owned(),
            what,
            start,
            end,
            bytes,
        }),
        false => Ok(start..end),
    }
}

impl WaitList<'_> {
    /// Waits for dependencies outside of the device's own queue.
    fn wait_for_others(
        &self,
        device: &Arc<DeviceShared>,
        name: &str,
        what: &'static str,
    ) -> Result<(), GlobalError> {
        let device = Device {
            shared: Arc::clone(device),
        };
        match device.after(&self.0) {
            Ok(_) | Err(WaitError::Deadline) => Ok(()),
            Err(WaitError::Failed(source)) => Err(GlobalError::Dependency {
                name: name.to_owned(),
                what,
                source,
            }),
        }
    }
}
