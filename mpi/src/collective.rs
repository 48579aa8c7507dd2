//! Operations of all ranks together: every rank makes the same call, in the same order.
//!
//! All operations are begun without waiting ([`Ranks::ibroadcast`] and so on), so that a rank waiting for others' calls can
//! stop waiting: [`Options::timeout`](crate::Options::timeout). MPI cannot take such an operation back; an abandoned
//! operation keeps its memory until the other ranks have come.

use std::os::raw::c_int;
use std::ptr;

use mpi::ffi;

use crate::datatype::Number;
use crate::error::{MpiError, Operation, check};
use crate::memory::{ReceiveMemory, SendMemory};
use crate::operator::Operator;
use crate::point_to_point::{bytes_of, bytes_of_mut};
use crate::ranks::Ranks;
use crate::request::{Core, Request, Running};
use crate::span::span;

impl Ranks {
    /// Begins to wait until all ranks have come here; the request owns nothing.
    ///
    /// # Errors
    /// [`MpiError::RankFailed`], [`MpiError::Finalized`], [`MpiError::Library`].
    pub fn ibarrier(&self) -> Result<Request<()>, MpiError> {
        let operation = Operation::new("barrier", None, None);
        Core::begin(&self.session, operation, false, (), |()| {
            Running::of_bytes(&self.session, operation, 0, |_, request| {
                // SAFETY: no memory is involved.
                unsafe { ffi::MPI_Ibarrier(self.raw(), request) }
            })
        })
    }

    /// Waits until all ranks have come here.
    ///
    /// # Errors
    /// As [`Ranks::ibarrier`] and [`Request::wait`].
    pub fn barrier(&self) -> Result<(), MpiError> {
        self.ibarrier()?.wait()
    }

    /// Begins to give the elements of the root's memory to all ranks. All memory is of the same length.
    ///
    /// # Errors
    /// As [`Ranks::ibarrier`], and [`MpiError::NoRank`] for the root.
    pub fn ibroadcast<M: ReceiveMemory>(
        &self,
        memory: M,
        root: i32,
    ) -> Result<Request<M>, MpiError> {
        let operation = Operation::new("broadcast", Some(root), None);
        self.check_rank(operation, root)?;
        let session = &self.session;
        Core::begin(session, operation, false, memory, |memory| {
            let (start, bytes) = bytes_of_mut(memory.elements_mut());
            let _span = span!("mpi broadcast", bytes = bytes);
            Running::of_bytes(session, operation, bytes, |shape, request| {
                let (count, raw) = (shape.count, shape.raw);
                // SAFETY: the request owns the memory until the operation has ended.
                unsafe { ffi::MPI_Ibcast(start.cast(), count, raw, root, self.raw(), request) }
            })
        })
    }

    /// Gives the elements of the root's memory to all ranks.
    ///
    /// # Errors
    /// As [`Ranks::ibroadcast`] and [`Request::wait`].
    pub fn broadcast<M: ReceiveMemory>(&self, memory: M, root: i32) -> Result<M, MpiError> {
        self.ibroadcast(memory, root)?.wait()
    }

    /// Begins to combine the elements of all ranks' `from`, at the root into `into`, which the other ranks leave out.
    ///
    /// # Errors
    /// As [`Ranks::ibroadcast`]; [`MpiError::Length`] where `into` is missing, or not as long as `from`;
    /// [`MpiError::NoOperator`].
    pub fn ireduce<T: Number, S: SendMemory<Item = T>, R: ReceiveMemory<Item = T>>(
        &self,
        from: S,
        into: Option<R>,
        operator: Operator,
        root: i32,
    ) -> Result<Request<(S, Option<R>)>, MpiError> {
        let operation = Operation::new("reduce", Some(root), None);
        self.check_rank(operation, root)?;
        self.combine_numbers(operation, from, into, operator, Some(root))
    }

    /// Combines the elements of all ranks' `from`, at the root into `into`, which the other ranks leave out.
    ///
    /// # Errors
    /// As [`Ranks::ireduce`] and [`Request::wait`].
    pub fn reduce<T: Number, S: SendMemory<Item = T>, R: ReceiveMemory<Item = T>>(
        &self,
        from: S,
        into: Option<R>,
        operator: Operator,
        root: i32,
    ) -> Result<(S, Option<R>), MpiError> {
        self.ireduce(from, into, operator, root)?.wait()
    }

    /// Begins to combine the elements of all ranks' `from`, on every rank into `into`, of the same length.
    ///
    /// # Errors
    /// As [`Ranks::ireduce`].
    pub fn iallreduce<T: Number, S: SendMemory<Item = T>, R: ReceiveMemory<Item = T>>(
        &self,
        from: S,
        into: R,
        operator: Operator,
    ) -> Result<Request<(S, Option<R>)>, MpiError> {
        let operation = Operation::new("allreduce", None, None);
        self.combine_numbers(operation, from, Some(into), operator, None)
    }

    /// Combines the elements of all ranks' `from`, on every rank into `into`, of the same length.
    ///
    /// # Errors
    /// As [`Ranks::iallreduce`] and [`Request::wait`].
    pub fn allreduce<T: Number, S: SendMemory<Item = T>, R: ReceiveMemory<Item = T>>(
        &self,
        from: S,
        into: R,
        operator: Operator,
    ) -> Result<(S, R), MpiError> {
        let request = self.iallreduce(from, into, operator)?;
        let operation = request.operation();
        let (from, into) = request.wait()?;
        Ok((from, into.ok_or(MpiError::Taken { operation })?))
    }

    /// Begins a reduction, to the root or, without one, to all.
    fn combine_numbers<T: Number, S: SendMemory<Item = T>, R: ReceiveMemory<Item = T>>(
        &self,
        operation: Operation,
        from: S,
        into: Option<R>,
        operator: Operator,
        root: Option<i32>,
    ) -> Result<Request<(S, Option<R>)>, MpiError> {
        let combine = operator.raw::<T>(operation)?;
        let session = &self.session;
        let is_target = root.is_none_or(|root| root == self.rank());
        Core::begin(session, operation, false, (from, into), |(from, into)| {
            let from = from.elements();
            let into = into.as_mut().map(ReceiveMemory::elements_mut);
            let into = target(operation, is_target, into, from.len())?;
            let bytes = size_of_val(from) as u64;
            let _span = span!("mpi reduce", bytes = bytes);
            let _open = session.enter(operation)?;
            // MPI's operators know no types put together of others: longer memory goes in pieces.
            let most = usize::try_from(session.options.most_count).unwrap_or(usize::MAX);
            let mut all = Running::none();
            for piece in from.chunks(most) {
                let at = all.requests.len() * most;
                // SAFETY: the request owns both memories until the operation has ended; the piece is within `from`, and
                // `into`, where used, has the same length.
                let request = unsafe {
                    let to = match is_target {
                        true => into.add(at).cast(),
                        false => ptr::null_mut(),
                    };
                    let (from, count) = (piece.as_ptr().cast(), piece.len() as c_int);
                    let mut request = ffi::RSMPI_REQUEST_NULL;
                    let code = match root {
                        Some(root) => ffi::MPI_Ireduce(
                            from,
                            to,
                            count,
                            T::raw(),
                            combine,
                            root,
                            self.raw(),
                            &raw mut request,
                        ),
                        None => ffi::MPI_Iallreduce(
                            from,
                            to,
                            count,
                            T::raw(),
                            combine,
                            self.raw(),
                            &raw mut request,
                        ),
                    };
                    check(operation, code, bytes).map(|()| request)
                };
                match request {
                    Ok(request) => all.requests.push(request),
                    Err(error) => {
                        all.failed = Some(error);
                        break;
                    }
                }
            }
            Ok((all, bytes))
        })
    }

    /// Begins to bring the elements of all ranks' `from` to the root, where they lie in `into` in the order of ranks. All
    /// `from` are of the same length; the other ranks leave `into` out.
    ///
    /// # Errors
    /// As [`Ranks::ibroadcast`]; [`MpiError::Length`] where `into` is missing, or not so long.
    pub fn igather<T: bytemuck::Pod, S: SendMemory<Item = T>, R: ReceiveMemory<Item = T>>(
        &self,
        from: S,
        into: Option<R>,
        root: i32,
    ) -> Result<Request<(S, Option<R>)>, MpiError> {
        let operation = Operation::new("gather", Some(root), None);
        self.check_rank(operation, root)?;
        let session = &self.session;
        let (is_root, ranks) = (root == self.rank(), self.size() as usize);
        Core::begin(session, operation, false, (from, into), |(from, into)| {
            let from = from.elements();
            let into = into.as_mut().map(ReceiveMemory::elements_mut);
            let into = target(operation, is_root, into, from.len().saturating_mul(ranks))?;
            let (start, bytes) = bytes_of(from);
            let _span = span!("mpi gather", bytes = bytes);
            Running::of_bytes(session, operation, bytes, |shape, request| {
                let (count, raw) = (shape.count, shape.raw);
                let (sent, received) = (start.cast(), into.cast());
                // SAFETY: the request owns both memories until the operation has ended, and the root's is as long as all
                // together.
                unsafe {
                    ffi::MPI_Igather(
                        sent,
                        count,
                        raw,
                        received,
                        count,
                        raw,
                        root,
                        self.raw(),
                        request,
                    )
                }
            })
        })
    }

    /// Brings the elements of all ranks' `from` to the root.
    ///
    /// # Errors
    /// As [`Ranks::igather`] and [`Request::wait`].
    pub fn gather<T: bytemuck::Pod, S: SendMemory<Item = T>, R: ReceiveMemory<Item = T>>(
        &self,
        from: S,
        into: Option<R>,
        root: i32,
    ) -> Result<(S, Option<R>), MpiError> {
        self.igather(from, into, root)?.wait()
    }

    /// Begins to deal the root's `from` out to all ranks, as many elements to each as its `into` has, in the order of ranks.
    /// The other ranks leave `from` out.
    ///
    /// # Errors
    /// As [`Ranks::ibroadcast`]; [`MpiError::Length`] where `from` is missing, or not so long.
    pub fn iscatter<T: bytemuck::Pod, S: SendMemory<Item = T>, R: ReceiveMemory<Item = T>>(
        &self,
        from: Option<S>,
        into: R,
        root: i32,
    ) -> Result<Request<(Option<S>, R)>, MpiError> {
        let operation = Operation::new("scatter", Some(root), None);
        self.check_rank(operation, root)?;
        let session = &self.session;
        let (is_root, ranks) = (root == self.rank(), self.size() as usize);
        Core::begin(session, operation, false, (from, into), |(from, into)| {
            let into = into.elements_mut();
            let needed = into.len().saturating_mul(ranks);
            let from = match (is_root, from.as_ref().map(SendMemory::elements)) {
                (false, _) => ptr::null(),
                (true, Some(from)) if from.len() == needed => from.as_ptr(),
                (true, from) => {
                    let len = from.map_or(0, <[T]>::len);
                    return Err(wrong_length(operation, "the root's memory", len, needed));
                }
            };
            let (start, bytes) = bytes_of_mut(into);
            let _span = span!("mpi scatter", bytes = bytes);
            Running::of_bytes(session, operation, bytes, |shape, request| {
                let (count, raw) = (shape.count, shape.raw);
                let (sent, received) = (from.cast(), start.cast());
                // SAFETY: as for a gather.
                unsafe {
                    ffi::MPI_Iscatter(
                        sent,
                        count,
                        raw,
                        received,
                        count,
                        raw,
                        root,
                        self.raw(),
                        request,
                    )
                }
            })
        })
    }

    /// Deals the root's `from` out to all ranks.
    ///
    /// # Errors
    /// As [`Ranks::iscatter`] and [`Request::wait`].
    pub fn scatter<T: bytemuck::Pod, S: SendMemory<Item = T>, R: ReceiveMemory<Item = T>>(
        &self,
        from: Option<S>,
        into: R,
        root: i32,
    ) -> Result<(Option<S>, R), MpiError> {
        self.iscatter(from, into, root)?.wait()
    }
}

fn wrong_length(operation: Operation, what: &'static str, len: usize, needed: usize) -> MpiError {
    MpiError::Length {
        operation,
        what,
        len,
        needed,
    }
}

/// The start of the memory for a result. The rank of the result has to have the memory.
fn target<T>(
    operation: Operation,
    is_target: bool,
    into: Option<&mut [T]>,
    needed: usize,
) -> Result<*mut T, MpiError> {
    match (is_target, into) {
        (false, _) => Ok(ptr::null_mut()),
        (true, Some(into)) if into.len() == needed => Ok(into.as_mut_ptr()),
        (true, into) => {
            let len = into.map_or(0, |into| into.len());
            Err(wrong_length(
                operation,
                "the memory for the result",
                len,
                needed,
            ))
        }
    }
}
