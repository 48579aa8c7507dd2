//! The ranks of a session, and the common parts of their operations.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mpi::ffi;
use mpi::traits::AsRaw;

use crate::error::{MpiError, Operation};
use crate::session::Session;

/// All ranks of a session, as seen by this rank. Cheap to clone, and for any thread.
#[derive(Clone)]
pub struct Ranks {
    pub(crate) session: Arc<Session>,
}

/// From whom a message may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From any rank.
    Any,
    /// From the given rank alone.
    Rank(i32),
}

impl From<i32> for Source {
    fn from(rank: i32) -> Self {
        Self::Rank(rank)
    }
}

/// Which tag a message may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// Any tag.
    Any,
    /// The given tag alone.
    Is(i32),
}

impl From<i32> for Tag {
    fn from(tag: i32) -> Self {
        Self::Is(tag)
    }
}

impl Ranks {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session }
    }

    /// This rank, from 0 on.
    pub fn rank(&self) -> i32 {
        self.session.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> i32 {
        self.session.size
    }

    /// The rank `steps` behind this rank, on a ring of all.
    pub fn after(&self, steps: i32) -> i32 {
        self.on_ring(i64::from(steps))
    }

    /// The rank `steps` in front of this rank, on a ring of all.
    pub fn before(&self, steps: i32) -> i32 {
        self.on_ring(-i64::from(steps))
    }

    fn on_ring(&self, steps: i64) -> i32 {
        (i64::from(self.rank()) + steps).rem_euclid(i64::from(self.size())) as i32
    }

    /// The largest tag of a message.
    pub fn most_tag(&self) -> i32 {
        self.session.most_tag
    }

    /// How long a wait without an explicit time takes at most: [`Options::timeout`](crate::Options::timeout).
    pub fn timeout(&self) -> Option<Duration> {
        self.session.timeout()
    }

    /// Reports the failure of this rank to all other ranks: their waits, and all operations begun later, fail with
    /// [`MpiError::RankFailed`] and `reason`. A rank with the report of another rank's failure has nothing more to report.
    pub fn fail(&self, reason: &str) {
        self.session.tell_failure(reason);
    }

    pub(crate) fn raw(&self) -> ffi::MPI_Comm {
        self.session.messages.as_raw()
    }

    /// # Errors
    /// [`MpiError::NoRank`].
    pub(crate) fn check_rank(&self, operation: Operation, rank: i32) -> Result<(), MpiError> {
        match (0..self.size()).contains(&rank) {
            true => Ok(()),
            false => Err(MpiError::NoRank {
                operation,
                size: self.size(),
            }),
        }
    }

    /// # Errors
    /// [`MpiError::Tag`].
    pub(crate) fn check_tag(&self, operation: Operation, tag: i32) -> Result<(), MpiError> {
        let most = self.most_tag();
        match (0..=most).contains(&tag) {
            true => Ok(()),
            false => Err(MpiError::Tag { operation, most }),
        }
    }
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranks")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}
