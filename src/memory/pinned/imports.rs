//! The imports of pinned memory by devices.
//!
//! A device keeps its imports ([`Imports`]), which go with the device. A region knows the importing devices
//! ([`Importers`]), so the memory is free when the vector is dropped.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{GRAIN, Region};
use crate::device::import::{import_host, import_limits};
use crate::device::wait::lock;
use crate::device::{DeviceShared, ImportError};
use crate::memory::staging::{self, Piece};

/// The pinned memory that a device has imported, or could not import.
#[derive(Debug, Default)]
pub(crate) struct Imports(Mutex<Vec<Import>>);

#[derive(Debug)]
struct Import {
    /// The first address of the region.
    start: usize,
    result: Result<Arc<Imported>, ImportError>,
}

/// The importing devices of a region.
#[derive(Default)]
pub(super) struct Importers(Mutex<Vec<Weak<DeviceShared>>>);

/// Buffers of a device over all bytes of a region, one behind the other.
#[derive(Debug)]
pub(super) struct Imported {
    buffers: Vec<wgpu::Buffer>,
    /// Bytes of each buffer but the last.
    step: u64,
}

/// Bytes of the host in the device's form.
pub(crate) struct Span<'a> {
    imported: Arc<Imported>,
    start: u64,
    /// Until the transfer has ended.
    held: Held,
    bytes: PhantomData<&'a [u8]>,
}

/// Whose bytes a span is of.
enum Held {
    Pinned(#[expect(dead_code, reason = "kept until the end")] Arc<Region>),
    /// What a transfer has borrowed, for as long as the loan lives.
    #[cfg(embedded)]
    Borrowed(#[expect(dead_code, reason = "ends with its drop")] crate::device::embedded::Loan),
}

fn of(device: &DeviceShared) -> &Imports {
    &device.extensions.memory.pinned
}

impl Importers {
    /// Has all devices drop their imports of the region that begins at `start` and ends here. wgpu keeps what is in use.
    pub(super) fn forget(&mut self, start: usize) {
        let devices = std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        for device in devices.iter().filter_map(Weak::upgrade) {
            let mut imports = lock(&of(&device).0);
            let found = imports.iter().position(|import| import.start == start);
            let import = found.map(|index| imports.swap_remove(index));
            // Without the lock: wgpu runs what releases the pages.
            drop(imports);
            drop(import);
        }
    }
}

/// The region's import on the device, made now where new.
pub(super) fn import(
    device: &Arc<DeviceShared>,
    region: &Arc<Region>,
) -> Result<Arc<Imported>, ImportError> {
    let start = region.start().addr();
    // Held meanwhile: some drivers import the same pages only once.
    let mut imports = lock(&of(device).0);
    if let Some(known) = imports.iter().find(|import| import.start == start) {
        return known.result.clone();
    }
    let result = make(device, region).map(Arc::new);
    if let Err(error) = &result {
        log::info!(
            "{}: transfers of pinned memory are staged: {error}",
            device.capabilities.name
        );
    }
    imports.push(Import {
        start,
        result: result.clone(),
    });
    lock(&region.imported.0).push(Arc::downgrade(device));
    result
}

fn make(device: &DeviceShared, region: &Region) -> Result<Imported, ImportError> {
    let longest = import_limits(&device.raw)?.longest / GRAIN * GRAIN;
    let step = longest.min(region.bytes);
    let ranges = (0..region.bytes)
        .step_by(step.max(GRAIN) as usize)
        .map(|start| start..region.bytes.min(start + step.max(GRAIN)));
    let buffers = ranges
        .map(|range| import_host(&device.raw, &region.window, range, "pinned memory"))
        .collect::<Result<_, _>>()?;
    Ok(Imported { buffers, step })
}

/// The device's import of the pinned memory around `len` bytes at `start`; `None` for other memory, for bytes that are
/// no whole words, and where the device cannot import.
pub(super) fn span<'a>(
    device: &Arc<DeviceShared>,
    start: *const u8,
    len: usize,
) -> Option<Span<'a>> {
    let (region, at) = Region::around(start, len)?;
    if !at.is_multiple_of(4) || !len.is_multiple_of(4) {
        return None;
    }
    let imported = import(device, &region).ok()?;
    Some(Span {
        imported,
        start: at,
        held: Held::Pinned(region),
        bytes: PhantomData,
    })
}

impl Span<'_> {
    /// The words of a buffer around borrowed memory.
    #[cfg(embedded)]
    pub(super) fn borrowed(buffer: wgpu::Buffer, loan: crate::device::embedded::Loan) -> Self {
        let step = buffer.size();
        let buffers = vec![buffer];
        Self {
            imported: Arc::new(Imported { buffers, step }),
            start: 0,
            held: Held::Borrowed(loan),
            bytes: PhantomData,
        }
    }

    /// Whether the device leaves the bytes alone once the span is dropped.
    pub(super) fn is_on_loan(&self) -> bool {
        !matches!(self.held, Held::Pinned(_))
    }

    /// Counts bytes that a device has copied from or to the span.
    pub(crate) fn count(&self, device: &DeviceShared, bytes: u64) {
        let staging = staging::of(device);
        match self.held {
            Held::Pinned(_) => staging.count_pinned(bytes),
            #[cfg(embedded)]
            Held::Borrowed(_) => staging.count_borrowed(bytes),
        }
    }

    /// The copies between the span and `bytes` of another buffer, as many: pairs of a buffer of the span with its range, in
    /// whole words, and the place in the other buffer.
    pub(crate) fn copies(
        &self,
        bytes: Range<u64>,
    ) -> impl Iterator<Item = (&wgpu::Buffer, Range<u64>, u64)> {
        let step = self.imported.step;
        let other = Piece { bytes }.words();
        let start = self.start;
        let words = start..start + (other.end - other.start);
        let numbered = (0u64..).zip(&self.imported.buffers);
        numbered.filter_map(move |(index, buffer)| {
            let first = index * step;
            let part = words.start.max(first)..words.end.min(first + step);
            let at = other.start + part.start.saturating_sub(start);
            let here = part.start.saturating_sub(first)..part.end.saturating_sub(first);
            (part.start < part.end).then_some((buffer, here, at))
        })
    }
}
