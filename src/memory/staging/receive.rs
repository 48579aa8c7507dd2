//! Large reads: many batches with places in line at once, so no launch of another thread comes between two of these;
//! submitted one behind the other while the host copies bytes already there.
//!
//! The pieces of a buffer and the bands of a texture go the same way.
//!
//! A batch gets staging memory in its turn. So a read needs only the memory of the pieces under way, however large the
//! read is; but if another thread submits commands recorded behind the read, the rest of the read is submitted first,
//! and needs memory for all pieces.

use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};
use std::vec;

use super::coming::{Coming, Missing, check_submitted};
use super::pieces::{PIECE, Piece, pieces};
use super::pump::{self, Stages};
use super::rows::{Band, Far, Rows};
use crate::device::mapping::Mapping;
use crate::device::outcome::Outcome;
use crate::device::staging::Lent;
use crate::device::submissions::{Batch, ClosedBatch, Commands};
use crate::device::wait::lock;
use crate::device::{DeviceShared, capture};
use crate::memory::MemoryError;
use crate::memory::buffer::BufferShared;
use crate::memory::host_memory::Destination;
use crate::memory::readback::{ReadError, settle_all};
use crate::memory::texture::TextureShared;

/// Whether reading so many bytes at once takes longer than doing so by pieces.
pub(crate) fn is_large(bytes: &Range<u64>) -> bool {
    bytes.end - bytes.start > PIECE
}

/// Reads `bytes` of a buffer, not empty and within the buffer, after everything recorded before.
///
/// # Errors
/// [`ReadError::Execution`]; [`MemoryError::OutOfMemory`] without room for staging memory.
pub(crate) fn receive(
    buffer: &BufferShared,
    what: &'static str,
    bytes: Range<u64>,
    to: Destination<'_>,
) -> Result<(), ReadError> {
    let copies = pieces(bytes.clone(), PIECE).map(|piece| {
        let (buffer, words) = (buffer.raw.clone(), piece.words());
        Copy::new(piece, Far::Words { buffer, words }, what)
    });
    let depends_on = || buffer.depends_on(&bytes);
    receive_all(&buffer.device, copies.collect(), depends_on, to)
}

/// Reads bands of a texture, after everything recorded before.
///
/// # Errors
/// As [`receive`].
pub(crate) fn receive_texels(
    texture: &TextureShared,
    what: &'static str,
    bands: impl Iterator<Item = Band>,
    to: Destination<'_>,
) -> Result<(), ReadError> {
    let copies = bands.map(|band| {
        let bytes = 0..band.rows.spread();
        let texture = texture.raw.clone();
        Copy::new(Piece { bytes }, Far::Texels { texture, band }, what)
    });
    let depends_on = || texture.depends_on();
    receive_all(&texture.device, copies.collect(), depends_on, to)
}

fn receive_all(
    device: &Arc<DeviceShared>,
    copies: Vec<Copy>,
    depends_on: impl FnOnce() -> Vec<Arc<Outcome>>,
    to: Destination<'_>,
) -> Result<(), ReadError> {
    device.complete_dependencies(None);
    let (copies, depends_on) = {
        let mut queue = device.queue.lock(device);
        // With the queue in hand, so that no other thread's launch comes between.
        let depends_on = depends_on();
        let closed: Vec<_> = copies.iter().map(|copy| copy.batch(device)).collect();
        let batches = closed.iter().map(|closed| Arc::clone(&closed.batch));
        let copies: Vec<_> = batches.zip(copies).collect();
        queue.line_up(closed);
        (copies, depends_on)
    };
    let count = copies.len();
    let mut stages = Reading {
        device,
        copies: copies.into_iter(),
        to,
    };
    pump::run(
        pump::helpers(count),
        &mut stages,
        |arriving: &mut Arriving| {
            if let Some(to) = arriving.to.take() {
                let rows = arriving.rows;
                arriving.read = arriving.coming.read(|bytes| match rows {
                    Some(rows) => rows.join(bytes, to),
                    None => to.put(bytes),
                });
            }
        },
    )?;
    settle_all(device, &depends_on)
}

/// The copy of one piece, with its state.
struct Copy {
    piece: Piece,
    far: Far,
    what: &'static str,
    state: Arc<Mutex<State>>,
}

/// Filled in when the copy's batch is made.
#[derive(Default)]
struct State {
    memory: Option<Lent>,
    mapping: Option<Mapping>,
    refused: Option<MemoryError>,
}

impl Drop for State {
    fn drop(&mut self) {
        // In this order: memory is given back unmapped.
        self.mapping = None;
    }
}

impl Copy {
    fn new(piece: Piece, far: Far, what: &'static str) -> Self {
        Self {
            piece,
            far,
            what,
            state: Arc::default(),
        }
    }

    fn batch(&self, device: &Arc<DeviceShared>) -> ClosedBatch {
        let (state, owner) = (Arc::downgrade(&self.state), Arc::downgrade(device));
        let (what, far) = (self.what, self.far.clone());
        let count = far.staged();
        let make = move || record(&state, &owner, what, &far);
        let mut closed = ClosedBatch::with(Commands::Late(Box::new(make)));
        let state = Arc::downgrade(&self.state);
        closed.hooks.push(Box::new(move |raw| {
            let Some(state) = state.upgrade() else {
                return;
            };
            let mut state = lock(&state);
            let memory = state.memory.as_mut();
            state.mapping = memory.map(|memory| memory.map(raw, 0..count));
        }));
        closed
    }

    /// The submitted copy, on its way.
    fn coming(self, batch: Arc<Batch>) -> Result<Coming, MemoryError> {
        let mut state = lock(&self.state);
        if let Some(error) = state.refused.take() {
            return Err(error);
        }
        check_submitted("a read", &batch)?;
        match (state.mapping.take(), state.memory.take()) {
            (Some(mapping), Some(memory)) => Ok(Coming::new(batch, mapping, memory, self.piece)),
            // Unreachable: a submitted batch has recorded its copy.
            _ => Err(MemoryError::Refused {
                what: self.what,
                message: "the copy was not recorded".to_owned(),
            }),
        }
    }
}

/// Makes the commands of a copy, unless the read was given up.
fn record(
    state: &Weak<Mutex<State>>,
    owner: &Weak<DeviceShared>,
    what: &'static str,
    far: &Far,
) -> Result<wgpu::CommandBuffer, String> {
    let (Some(state), Some(device)) = (state.upgrade(), owner.upgrade()) else {
        return Err("a read was given up".to_owned());
    };
    let memory = match super::download(&device, what, far.staged()) {
        Ok(memory) => memory,
        Err(error) => {
            let message = error.to_string();
            lock(&state).refused = Some(error);
            return Err(message);
        }
    };
    let (commands, error) = capture(&device.raw, || {
        let mut encoder = (device.raw)
            .create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some(what) });
        far.fetch(&mut encoder, memory.buffer());
        encoder.finish()
    });
    match error {
        Some(error) => Err(error.to_string()),
        None => {
            lock(&state).memory = Some(memory);
            Ok(commands)
        }
    }
}

/// A read under way.
struct Reading<'a> {
    device: &'a Arc<DeviceShared>,
    copies: vec::IntoIter<(Arc<Batch>, Copy)>,
    /// The target of the pieces not begun yet.
    to: Destination<'a>,
}

/// A submitted piece.
struct Arriving<'a> {
    coming: Coming,
    rows: Option<Rows>,
    to: Option<Destination<'a>>,
    read: Result<(), Missing>,
}

impl<'a> Stages<Arriving<'a>, ReadError> for Reading<'a> {
    fn begin(&mut self) -> Result<Option<Arriving<'a>>, ReadError> {
        let Some((batch, copy)) = self.copies.next() else {
            return Ok(None);
        };
        self.device.queue.lock(self.device).submit_until(&batch);
        let rows = copy.far.rows();
        let coming = copy.coming(batch)?;
        let bytes = rows.map_or(coming.len(), |rows| rows.joined() as usize);
        Ok(Some(Arriving {
            to: Some(self.to.split_off(bytes)),
            coming,
            rows,
            read: Ok(()),
        }))
    }

    fn ready(&mut self, arriving: &Arriving<'a>) -> Result<(), ReadError> {
        Ok(arriving.coming.arrive(&self.device.submissions, None)?)
    }

    fn end(&mut self, arriving: Arriving<'a>) -> Result<(), ReadError> {
        Ok(arriving.read?)
    }
}
