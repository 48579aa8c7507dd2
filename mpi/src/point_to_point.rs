//! Messages from one rank to another.

use std::mem::MaybeUninit;
use std::os::raw::c_int;
use std::sync::Arc;

use mpi::ffi;

use crate::error::{MpiError, Operation, check};
use crate::memory::{ReceiveMemory, SendMemory};
use crate::ranks::{Ranks, Source, Tag};
use crate::request::{Core, Envelope, Request, Running};
use crate::session::Session;
use crate::span::span;

/// The bytes of elements, and their number.
pub(crate) fn bytes_of<T: bytemuck::Pod>(elements: &[T]) -> (*const u8, u64) {
    (elements.as_ptr().cast(), size_of_val(elements) as u64)
}

/// As [`bytes_of`], for memory written by MPI.
pub(crate) fn bytes_of_mut<T: bytemuck::Pod>(elements: &mut [T]) -> (*mut u8, u64) {
    (elements.as_mut_ptr().cast(), size_of_val(elements) as u64)
}

/// A communicator, a rank there, and a tag.
pub(crate) type There = (ffi::MPI_Comm, i32, i32);

/// Begins to send `memory` on a communicator.
pub(crate) fn isend_on<M: SendMemory>(
    session: &Arc<Session>,
    operation: Operation,
    (communicator, to, tag): There,
    memory: M,
) -> Result<Request<M>, MpiError> {
    Core::begin(session, operation, false, memory, |memory| {
        let (start, bytes) = bytes_of(memory.elements());
        let _span = span!("mpi send", bytes = bytes, to = to);
        Running::of_bytes(session, operation, bytes, |shape, request| {
            let (count, raw) = (shape.count, shape.raw);
            // SAFETY: the request owns the memory until the operation has ended.
            unsafe { ffi::MPI_Isend(start.cast(), count, raw, to, tag, communicator, request) }
        })
    })
}

/// Begins to receive into `memory` on a communicator, with MPI's numbers for source and tag.
pub(crate) fn ireceive_on<M: ReceiveMemory>(
    session: &Arc<Session>,
    operation: Operation,
    (communicator, from, tag): There,
    memory: M,
) -> Result<Request<M>, MpiError> {
    Core::begin(session, operation, true, memory, |memory| {
        let (start, bytes) = bytes_of_mut(memory.elements_mut());
        let _span = span!("mpi receive", bytes = bytes, from = from);
        Running::of_bytes(session, operation, bytes, |shape, request| {
            let (count, raw) = (shape.count, shape.raw);
            // SAFETY: the request owns the memory until the operation has ended, and nobody else looks at the elements.
            unsafe { ffi::MPI_Irecv(start.cast(), count, raw, from, tag, communicator, request) }
        })
    })
}

impl Ranks {
    /// Begins to send the elements of `memory` to rank `to`.
    ///
    /// # Errors
    /// [`MpiError::NoRank`], [`MpiError::Tag`], [`MpiError::RankFailed`], [`MpiError::Finalized`], [`MpiError::Library`].
    pub fn isend<M: SendMemory>(
        &self,
        memory: M,
        to: i32,
        tag: i32,
    ) -> Result<Request<M>, MpiError> {
        let operation = Operation::new("send", Some(to), Some(tag));
        self.check_rank(operation, to)?;
        self.check_tag(operation, tag)?;
        isend_on(&self.session, operation, (self.raw(), to, tag), memory)
    }

    /// Begins to receive a message into `memory`. A shorter message leaves the remaining elements unchanged
    /// ([`Request::wait_with_envelope`] has the length).
    ///
    /// # Errors
    /// As [`Ranks::isend`]. [`MpiError::Truncated`], of the wait, for a message longer than the memory.
    pub fn ireceive<M: ReceiveMemory>(
        &self,
        memory: M,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Request<M>, MpiError> {
        let (operation, rank, tag) = self.numbers("receive", from.into(), tag.into())?;
        ireceive_on(&self.session, operation, (self.raw(), rank, tag), memory)
    }

    /// Sends, and waits until the memory may be used again.
    ///
    /// # Errors
    /// As [`Ranks::isend`] and [`Request::wait`].
    pub fn send<M: SendMemory>(&self, memory: M, to: i32, tag: i32) -> Result<M, MpiError> {
        self.isend(memory, to, tag)?.wait()
    }

    /// Receives, and waits for the message.
    ///
    /// # Errors
    /// As [`Ranks::ireceive`] and [`Request::wait`].
    pub fn receive<M: ReceiveMemory>(
        &self,
        memory: M,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<M, MpiError> {
        self.ireceive(memory, from, tag)?.wait()
    }

    /// Sends to one rank and receives from another, at the same time: ranks that all do so never wait in a circle.
    ///
    /// # Errors
    /// As [`Ranks::isend`], [`Ranks::ireceive`] and [`Request::wait`].
    pub fn send_receive<S: SendMemory, R: ReceiveMemory>(
        &self,
        sent: S,
        to: i32,
        received: R,
        from: impl Into<Source>,
        tag: i32,
    ) -> Result<(S, R), MpiError> {
        let received = self.ireceive(received, from, tag)?;
        let sent = self.isend(sent, to, tag)?;
        let received = received.wait()?;
        Ok((sent.wait()?, received))
    }

    /// Looks for a message not received yet: source, tag and length.
    ///
    /// # Errors
    /// As [`Ranks::isend`].
    pub fn probe(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Envelope>, MpiError> {
        let (operation, rank, tag) = self.numbers("probe", from.into(), tag.into())?;
        self.session.check_others(operation)?;
        probe(&self.session, operation, (self.raw(), rank, tag))
    }

    /// The operation, and MPI's numbers for source and tag.
    fn numbers(
        &self,
        name: &'static str,
        from: Source,
        tag: Tag,
    ) -> Result<(Operation, c_int, c_int), MpiError> {
        let peer = match from {
            Source::Any => None,
            Source::Rank(rank) => Some(rank),
        };
        let wanted = match tag {
            Tag::Any => None,
            Tag::Is(tag) => Some(tag),
        };
        let operation = Operation::new(name, peer, wanted);
        if let Some(rank) = peer {
            self.check_rank(operation, rank)?;
        }
        if let Some(tag) = wanted {
            self.check_tag(operation, tag)?;
        }
        // SAFETY: constants, set before `main`.
        let (any_source, any_tag) = unsafe { (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_ANY_TAG) };
        Ok((
            operation,
            peer.unwrap_or(any_source),
            wanted.unwrap_or(any_tag),
        ))
    }
}

/// Looks for a message on a communicator, with MPI's numbers for source and tag.
pub(crate) fn probe(
    session: &Session,
    operation: Operation,
    (communicator, rank, tag): There,
) -> Result<Option<Envelope>, MpiError> {
    let _open = session.enter(operation)?;
    let (mut is_there, mut bytes) = (0, 0);
    let mut status = MaybeUninit::<ffi::MPI_Status>::zeroed();
    // SAFETY: MPI writes whether there is a message, and the message's status.
    let code = unsafe {
        ffi::MPI_Iprobe(
            rank,
            tag,
            communicator,
            &raw mut is_there,
            status.as_mut_ptr(),
        )
    };
    check(operation, code, 0)?;
    if is_there == 0 {
        return Ok(None);
    }
    // SAFETY: plain data, zeroed, and written by MPI.
    let status = unsafe { status.assume_init() };
    // SAFETY: the status of a message.
    unsafe { ffi::MPI_Get_elements_x(&raw const status, ffi::RSMPI_UINT8_T, &raw mut bytes) };
    Ok(Some(Envelope {
        source: status.MPI_SOURCE,
        tag: status.MPI_TAG,
        bytes: u64::try_from(bytes).unwrap_or_default(),
    }))
}
