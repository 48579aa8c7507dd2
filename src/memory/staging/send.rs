//! Large writes. An idle device copies directly from memory that it reaches ([`direct`]). From other memory the host fills one
//! piece of staging memory while an idle device copies the piece before: each piece is a batch of its own. For a busy
//! device the pieces are filled and recorded, so that the write waits for nothing.
//!
//! The batches have their place in line before the first piece is filled, so that no launch of another thread, or of a
//! callback, sees half of a write. A thread that submits an unfilled piece fills the piece: no thread waits for the
//! writing one, which may be the thread under the callback.
//!
//! The pieces of a buffer and the bands of a texture go the same way.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::{mem, slice};

use super::coming::{AWAIT_READ, check_submitted};
use super::pieces::{PIECE, Piece, pieces};
use super::pump::{self, Stages};
use super::rows::{Band, Far};
use crate::device::queue::Recorder;
use crate::device::submissions::{Batch, ClosedBatch, Commands};
use crate::device::wait::lock;
use crate::device::{DeviceShared, Event, capture};
use crate::memory::MemoryError;
use crate::memory::buffer::BufferShared;
use crate::memory::buffers::End;
use crate::memory::pinned::direct;
use crate::memory::places::{Place, copy, is_in_words};
use crate::memory::texture::TextureShared;

/// Whether writing so many bytes at once takes longer than doing so by pieces.
pub(crate) fn is_large(bytes: &[u8]) -> bool {
    bytes.len() as u64 > PIECE
}

/// Where a write goes.
pub(crate) struct Target<'a> {
    pub buffer: &'a BufferShared,
    /// Bytes of the buffer, not empty and within the buffer.
    pub range: Range<u64>,
    /// Whether the bytes behind the last one, up to the end of the word, are unused.
    pub padded: bool,
}

/// Writes `bytes`, as many as the target has, after everything recorded before.
///
/// # Errors
/// [`MemoryError::OutOfMemory`] without room for staging memory, [`MemoryError::Execution`].
pub(crate) fn send(
    what: &'static str,
    target: &Target<'_>,
    bytes: &[u8],
) -> Result<Event, MemoryError> {
    let device = &target.buffer.device;
    // Imported before the queue is taken. A thread that serves a call of the device must not wait for the copy.
    let direct = (device.submissions.may_wait(what, AWAIT_READ).is_ok())
        .then(|| direct::source(target, bytes))
        .flatten();
    let queue = device.queue.lock(device);
    match (direct, is_in_words(&target.range, target.padded)) {
        (Some(direct), _) if queue.is_idle() => direct::send(queue, what, target, &direct),
        (_, true) if queue.is_idle() => send_by_pieces(queue, what, target, bytes),
        _ => {
            drop(queue);
            record_all(what, target, bytes)
        }
    }
}

fn send_by_pieces(
    queue: Recorder<'_>,
    what: &'static str,
    target: &Target<'_>,
    bytes: &[u8],
) -> Result<Event, MemoryError> {
    let mut rest = bytes;
    let parts = pieces(target.range.clone(), PIECE).map(|piece| {
        let (part, later) = rest.split_at(piece.len() as usize);
        rest = later;
        let (buffer, words) = (target.buffer.raw.clone(), piece.words());
        let far = Far::Words { buffer, words };
        Arc::new(Part::new(what, piece.bytes.start % 4, far, part))
    });
    let parts = Parts(parts.collect());
    let written = || target.buffer.overwritten(&target.range);
    send_parts(queue, &target.buffer.device, parts, written)
}

/// Writes bands of a texture, whose texels `bytes` has without gaps, after everything recorded before. `is_whole` says that the
/// bands are the whole texture.
///
/// # Errors
/// As [`send`].
pub(crate) fn send_texels(
    what: &'static str,
    texture: &TextureShared,
    bands: Vec<Band>,
    is_whole: bool,
    bytes: &[u8],
) -> Result<Event, MemoryError> {
    let device = &texture.device;
    let written = || {
        if is_whole {
            texture.overwritten();
        }
    };
    let queue = device.queue.lock(device);
    if bands.len() < 2 || !queue.is_idle() {
        drop(queue);
        return record_texels(what, texture, bands, written, bytes);
    }
    let mut rest = bytes;
    let parts = bands.into_iter().map(|band| {
        let (part, later) = rest.split_at(band.rows.joined() as usize);
        rest = later;
        let texture = texture.raw.clone();
        Arc::new(Part::new(what, 0, Far::Texels { texture, band }, part))
    });
    send_parts(queue, device, Parts(parts.collect()), written)
}

/// Fills staging memory for all of the bands, and records the copies.
fn record_texels(
    what: &'static str,
    texture: &TextureShared,
    bands: Vec<Band>,
    written: impl FnOnce(),
    bytes: &[u8],
) -> Result<Event, MemoryError> {
    let device = &texture.device;
    let mut filled: Vec<Option<wgpu::Buffer>> = vec![None; bands.len()];
    let mut rest = bytes;
    let parts = bands.iter().zip(&mut filled).map(|(band, memory)| {
        let (part, later) = rest.split_at(band.rows.joined() as usize);
        rest = later;
        (band.rows, part, memory)
    });
    pump::run_all(
        parts.collect(),
        |_| Ok(()),
        |(rows, bytes, memory)| {
            **memory = Some(super::of(device).filled_rows(device, what, *rows, bytes)?);
            Ok::<_, MemoryError>(())
        },
    )?;
    let mut queue = device.queue.lock(device);
    for (band, memory) in bands.into_iter().zip(&filled) {
        let texture = texture.raw.clone();
        let far = Far::Texels { texture, band };
        if let Some(memory) = memory {
            queue.encode(|encoder| far.store(encoder, memory));
        }
    }
    written();
    let batch = queue.batch();
    queue.commit();
    drop(queue);
    for memory in filled.into_iter().flatten() {
        super::of(device).give_upload(memory, End::of(device, Arc::clone(&batch)));
    }
    Ok(Event::of_batch(device, batch))
}

/// Lines up the batches of all parts, and has them filled and submitted one after the other. `written` is called with the
/// queue in hand.
fn send_parts(
    mut queue: Recorder<'_>,
    device: &Arc<DeviceShared>,
    parts: Parts,
    written: impl FnOnce(),
) -> Result<Event, MemoryError> {
    let closed: Vec<_> = parts.0.iter().map(|part| part.batch(device)).collect();
    let batches: Vec<_> = closed.iter().map(|c| Arc::clone(&c.batch)).collect();
    written();
    queue.line_up(closed);
    drop(queue);
    let mut stages = Sending {
        device,
        next: batches.iter().zip(&parts.0),
        last: None,
    };
    let sent = pump::run(
        pump::helpers(batches.len()),
        &mut stages,
        |(_, part): &mut Sent<'_>| part.fill(device),
    );
    // From here on no thread reads the bytes.
    drop(parts);
    sent?;
    // Mapped by the poll at the end of the write.
    super::of(device).reclaim(device);
    Ok(match batches.last() {
        Some(last) => Event::of_batch(device, Arc::clone(last)),
        None => Event::complete(device),
    })
}

/// A write under way.
struct Sending<'a, I> {
    device: &'a Arc<DeviceShared>,
    next: I,
    /// The last submitted batch.
    last: Option<&'a Arc<Batch>>,
}

type Sent<'a> = (&'a Arc<Batch>, &'a Arc<Part>);

impl<'a, I: Iterator<Item = Sent<'a>>> Stages<Sent<'a>, MemoryError> for Sending<'a, I> {
    fn begin(&mut self) -> Result<Option<Sent<'a>>, MemoryError> {
        Ok(self.next.next())
    }

    fn ready(&mut self, _: &Sent<'a>) -> Result<(), MemoryError> {
        Ok(())
    }

    fn end(&mut self, (batch, part): Sent<'a>) -> Result<(), MemoryError> {
        if let (true, Some(last)) = (part.is_refused(), self.last) {
            // Staging memory of the pieces before is reusable after their copies.
            let _ = self.device.submissions.wait(last, None);
            super::of(self.device).reclaim(self.device);
            self.device.submissions.collect();
            part.fill_again(self.device);
        }
        self.device.queue.lock(self.device).submit_until(batch);
        self.last = Some(batch);
        match part.refusal() {
            Some(error) => Err(error),
            None => check_submitted("a write", batch),
        }
    }
}

/// The parts of a write under way: after the drop no thread reads the bytes.
struct Parts(Vec<Arc<Part>>);

impl Drop for Parts {
    fn drop(&mut self) {
        self.0.iter().for_each(|part| part.close());
    }
}

/// The bytes of one piece, with the state of their copy.
struct Part {
    what: &'static str,
    /// Where the bytes begin in their first word.
    at: u64,
    far: Far,
    source: Source,
    state: Mutex<State>,
    changed: Condvar,
}

/// The caller's bytes. The caller does not go on before all parts are closed.
struct Source {
    start: *const u8,
    len: usize,
}

// SAFETY: the bytes are read only, and only while nobody can have changed or freed the memory; see `Part::fill`.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

enum State {
    /// The source is unread.
    Empty,
    /// A thread reads the source.
    Filling,
    Filled(wgpu::Buffer),
    /// There was no memory.
    Refused(MemoryError),
    /// The bytes were recorded, or abandoned. The source may be gone.
    Over,
}

impl Part {
    fn new(what: &'static str, at: u64, far: Far, source: &[u8]) -> Self {
        Self {
            what,
            at,
            far,
            source: Source {
                start: source.as_ptr(),
                len: source.len(),
            },
            state: Mutex::new(State::Empty),
            changed: Condvar::new(),
        }
    }

    /// Copies the bytes to staging memory, unless another thread has begun.
    fn fill(&self, device: &DeviceShared) {
        match &mut *lock(&self.state) {
            state @ State::Empty => *state = State::Filling,
            _ => return,
        }
        let mut filled = Filled {
            part: self,
            state: State::Over,
        };
        // SAFETY: the part is not closed, and stays open until filled: `close` waits for the end of the filling. Until
        // all parts are closed the write neither returns nor unwinds, and so the borrowed slice is there unchanged.
        let bytes = unsafe { slice::from_raw_parts(self.source.start, self.source.len) };
        let (staging, what) = (super::of(device), self.what);
        let memory = match self.far.rows() {
            Some(rows) => staging.filled_rows(device, what, rows, bytes),
            None => staging.filled(device, what, self.at, bytes),
        };
        filled.state = match memory {
            Ok(memory) => State::Filled(memory),
            Err(error) => State::Refused(error),
        };
    }

    fn is_refused(&self) -> bool {
        matches!(*lock(&self.state), State::Refused(_))
    }

    /// Tries once more.
    fn fill_again(&self, device: &DeviceShared) {
        match &mut *lock(&self.state) {
            state @ State::Refused(_) => *state = State::Empty,
            _ => return,
        }
        self.fill(device);
    }

    /// Why there was no memory.
    fn refusal(&self) -> Option<MemoryError> {
        match &*lock(&self.state) {
            State::Refused(error) => Some(error.clone()),
            _ => None,
        }
    }

    /// The filled memory; once.
    fn take(&self, device: &DeviceShared) -> Result<wgpu::Buffer, String> {
        self.fill(device);
        let mut state = self.settled();
        match &*state {
            State::Refused(error) => Err(error.to_string()),
            _ => match mem::replace(&mut *state, State::Over) {
                State::Filled(memory) => Ok(memory),
                _ => Err("a write was given up".to_owned()),
            },
        }
    }

    /// Ends the use of the source.
    fn close(&self) {
        *self.settled() = State::Over;
    }

    /// The state, once no thread fills the part.
    fn settled(&self) -> std::sync::MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        while matches!(*state, State::Filling) {
            let changed = self.changed.wait(state);
            state = changed.unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// The batch with the copy.
    fn batch(self: &Arc<Self>, device: &Arc<DeviceShared>) -> ClosedBatch {
        let (part, owner) = (Arc::clone(self), Arc::downgrade(device));
        let memory = Arc::new(Mutex::new(None));
        let used = Arc::clone(&memory);
        let mut closed = ClosedBatch::with(Commands::Late(Box::new(move || {
            let (memory, commands) = part.record(&owner)?;
            *lock(&used) = Some(memory);
            Ok(commands)
        })));
        let (owner, batch) = (Arc::downgrade(device), Arc::clone(&closed.batch));
        closed.hooks.push(Box::new(move |_| {
            if let (Some(device), Some(memory)) = (owner.upgrade(), lock(&memory).take()) {
                super::of(&device).give_upload(memory, End::of(&device, batch));
            }
        }));
        closed
    }

    fn record(
        &self,
        owner: &Weak<DeviceShared>,
    ) -> Result<(wgpu::Buffer, wgpu::CommandBuffer), String> {
        let device = owner.upgrade().ok_or("the device was dropped")?;
        let memory = self.take(&device)?;
        let (commands, error) = capture(&device.raw, || {
            let mut encoder =
                (device.raw).create_command_encoder(&wgpu::CommandEncoderDescriptor {
                    label: Some("tombolo copy to a device"),
                });
            self.far.store(&mut encoder, &memory);
            encoder.finish()
        });
        match error {
            None => Ok((memory, commands)),
            Some(error) => Err(error.to_string()),
        }
    }
}

/// Sets the state of a part after the filling, also in an unwind.
struct Filled<'a> {
    part: &'a Part,
    state: State,
}

impl Drop for Filled<'_> {
    fn drop(&mut self) {
        *lock(&self.part.state) = mem::replace(&mut self.state, State::Over);
        self.part.changed.notify_all();
    }
}

/// Fills staging memory for all of the bytes, and records the copies.
fn record_all(what: &'static str, target: &Target<'_>, bytes: &[u8]) -> Result<Event, MemoryError> {
    let device = &target.buffer.device;
    let pieces: Vec<_> = pieces(target.range.clone(), PIECE).collect();
    let count = pieces.len();
    let mut stages = Filling {
        pieces: pieces.into_iter(),
        rest: bytes,
        filled: Vec::new(),
    };
    pump::run(
        pump::helpers(count),
        &mut stages,
        |loaded: &mut Loaded<'_>| {
            let at = loaded.piece.bytes.start % 4;
            loaded.memory = Some(super::of(device).filled(device, what, at, loaded.bytes));
        },
    )?;
    let filled = stages.filled;
    let mut queue = device.queue.lock(device);
    let mut copied = Ok(());
    for (piece, memory) in &filled {
        let source = Place::in_buffer(memory, piece.bytes.start % 4, true);
        let is_last = piece.bytes.end == target.range.end;
        let raw = &target.buffer.raw;
        // All pieces but the last end with a word.
        let to = Place::in_buffer(raw, piece.bytes.start, is_last && target.padded);
        copied = copied.and_then(|()| copy(&mut queue, device, &source, &to, piece.len()));
    }
    if copied.is_ok() {
        target.buffer.overwritten(&target.range);
    }
    let batch = queue.batch();
    queue.commit();
    drop(queue);
    // Copies recorded before a refusal still read the memory.
    for (_, memory) in filled {
        super::of(device).give_upload(memory, End::of(device, Arc::clone(&batch)));
    }
    copied.map(|()| Event::of_batch(device, batch))
}

struct Filling<'a, I> {
    pieces: I,
    rest: &'a [u8],
    filled: Vec<(Piece, wgpu::Buffer)>,
}

struct Loaded<'a> {
    piece: Piece,
    bytes: &'a [u8],
    memory: Option<Result<wgpu::Buffer, MemoryError>>,
}

impl<'a, I: Iterator<Item = Piece>> Stages<Loaded<'a>, MemoryError> for Filling<'a, I> {
    fn begin(&mut self) -> Result<Option<Loaded<'a>>, MemoryError> {
        Ok(self.pieces.next().map(|piece| {
            let (bytes, rest) = self.rest.split_at(piece.len() as usize);
            self.rest = rest;
            Loaded {
                piece,
                bytes,
                memory: None,
            }
        }))
    }

    fn ready(&mut self, _: &Loaded<'a>) -> Result<(), MemoryError> {
        Ok(())
    }

    fn end(&mut self, loaded: Loaded<'a>) -> Result<(), MemoryError> {
        if let Some(memory) = loaded.memory {
            self.filled.push((loaded.piece, memory?));
        }
        Ok(())
    }
}
