//! Copies out of a device on their way to the host: where they come from, what the bytes depend on, and where they go.

use std::ops::Range;
use std::sync::Arc;

use super::download::{Arriving, Download};
use super::error::BufferError;
#[cfg(embedded)]
use super::lent::Lent;
use super::root::State;
use crate::device::DeviceShared;
use crate::device::outcome::Outcome;
use crate::device::queue::Batch;
use crate::memory::buffer::BufferShared;
use crate::memory::migrate::{Access, Place};

/// A buffer, the outcomes of a range, and the range on its way to the host.
type Export = (Arc<BufferShared>, Vec<Arc<Outcome>>, Vec<Download>);

/// The outcomes of a range on its way to the host, and the device that resolves them, with the last batch of the copies.
pub(super) struct Exported {
    pub(super) outcomes: Vec<Arc<Outcome>>,
    pub(super) source: Option<(Arc<DeviceShared>, Arc<Batch>)>,
}

impl State {
    /// Starts to bring `range` from a device to the host. Refused, before any submission, on a thread that serves a
    /// call of the device: some drivers block a submission while a kernel runs.
    pub(super) fn export(
        &mut self,
        from: Place,
        range: &Range<u64>,
    ) -> Result<Option<Export>, BufferError> {
        let Some((shared, base, unsent)) = self.before_export(from, range)? else {
            return Ok(None);
        };
        let pieces = Download::start(&shared, base, range.clone(), unsent)?;
        if let Some(last) = pieces.last() {
            self.begin_reading(from, range, last.batch());
        }
        let depends_on = self.depends_on(from, range);
        Ok(Some((shared, depends_on, pieces)))
    }

    /// As [`Self::export`], to `to`, which has as many bytes. The device copies there itself where `may_lend` and the memory
    /// of the host can be lent to the device.
    pub(super) fn export_to<'a>(
        &mut self,
        from: Place,
        range: &Range<u64>,
        to: &'a mut [u8],
        may_lend: bool,
        arriving: &mut Arriving<'a>,
    ) -> Result<Option<Exported>, BufferError> {
        let Some((shared, base, unsent)) = self.before_export(from, range)? else {
            return Ok(None);
        };
        #[cfg(embedded)]
        let to = match may_lend {
            false => to,
            true => match Lent::start(&shared, base, range, unsent, to)? {
                Err(to) => to,
                Ok(lent) => {
                    let batch = Arc::clone(lent.batch());
                    arriving.lend(lent);
                    return Ok(Some(self.exported(from, range, &shared, Some(batch))));
                }
            },
        };
        #[cfg(not(embedded))]
        let _ = may_lend;
        let pieces = Download::start(&shared, base, range.clone(), unsent)?;
        let last = pieces.last().map(|last| Arc::clone(last.batch()));
        arriving.stage(pieces, range.start, to);
        Ok(Some(self.exported(from, range, &shared, last)))
    }

    /// The memory to copy from, the buffer's offset there, and whether recorded commands come first.
    fn before_export(
        &mut self,
        from: Place,
        range: &Range<u64>,
    ) -> Result<Option<(Arc<BufferShared>, u64, bool)>, BufferError> {
        self.may_submit_at(from, "a transfer from there")?;
        self.after_others(from, range, Access::Read)?;
        Ok(self.copy_mut(from).map(|copy| {
            let unsent = copy.is_unsent(range);
            (Arc::clone(&copy.shared), copy.base, unsent)
        }))
    }

    fn exported(
        &mut self,
        from: Place,
        range: &Range<u64>,
        shared: &BufferShared,
        last: Option<Arc<Batch>>,
    ) -> Exported {
        if let Some(last) = &last {
            self.begin_reading(from, range, last);
        }
        let outcomes = self.depends_on(from, range);
        let source = last.filter(|_| !outcomes.is_empty());
        Exported {
            source: source.map(|last| (Arc::clone(&shared.device), last)),
            outcomes,
        }
    }
}
