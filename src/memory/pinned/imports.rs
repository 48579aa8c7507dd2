//! The imports of pinned memory by devices.
//!
//! A device keeps its imports ([`Imports`]), which go with the device. A region knows the importing devices
//! ([`Importers`]), so the memory is free when the vector is dropped.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{GRAIN, Region};
use crate::device::import::{import_host, import_limits};
use crate::device::wait::lock;
use crate::device::{DeviceShared, ImportError};

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

/// Pinned bytes in the device's form.
pub(crate) struct Span {
    imported: Arc<Imported>,
    start: u64,
    // Until the transfer has ended.
    _region: Arc<Region>,
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
pub(super) fn span(device: &Arc<DeviceShared>, start: *const u8, len: usize) -> Option<Span> {
    let (region, at) = Region::around(start, len)?;
    if !at.is_multiple_of(4) || !len.is_multiple_of(4) {
        return None;
    }
    let imported = import(device, &region).ok()?;
    Some(Span {
        imported,
        start: at,
        _region: region,
    })
}

impl Span {
    /// The buffers with `count` bytes of the span, each with the range there, in order.
    pub(super) fn parts(&self, count: u64) -> impl Iterator<Item = (&wgpu::Buffer, Range<u64>)> {
        let step = self.imported.step;
        let bytes = self.start..self.start + count;
        let numbered = (0u64..).zip(&self.imported.buffers);
        numbered.filter_map(move |(index, buffer)| {
            let first = index * step;
            let part = bytes.start.max(first)..bytes.end.min(first + step);
            (part.start < part.end).then(|| (buffer, part.start - first..part.end - first))
        })
    }
}
