//! Ranks of MPI for [Tombolo](tombolo): where one machine is not enough.
//!
//! Each rank is a process with a context and devices of its own. Ranges of buffers travel between ranks as messages
//! ([`Ranks::isend`], [`Ranks::ireceive`]), from and to memory in use by devices anyway ([`memory`]). All ranks together
//! broadcast, gather, scatter and reduce.
//!
//! ```no_run
//! use tombolo_mpi::Mpi;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let mpi = Mpi::start()?;
//!     let ranks = mpi.ranks();
//!     let context = tombolo::Context::new()?;
//!     let rows = context.buffer_from(&[ranks.rank(); 64])?;
//!     // The last row goes to the next rank, and the first comes from the one before.
//!     let sent = ranks.isend(rows.map(48..64)?, ranks.after(1), 0)?;
//!     let received = ranks.ireceive(rows.map_overwrite(0..16)?, ranks.before(1), 0)?;
//!     received.wait()?.unmap()?;
//!     drop(sent.wait()?);
//!     Ok(())
//! }
//! ```
//!
//! # How the rooms connect
//!
//! `session.rs` starts and ends MPI, by the crate `mpi` (rsmpi), and looks for failed ranks. `request.rs` has the requests
//! under way, and `keeper.rs` the requests without a waiter; `point_to_point.rs` and `collective.rs` begin operations on
//! [`memory`], whose bytes `datatype.rs` describes to MPI; `wgsl_operator.rs` combines on devices; `server/` calls other
//! ranks' functions.
//!
//! MPI's functions are called by rsmpi's bindings and not by rsmpi's safe layer. The safe layer has no results, since MPI
//! ends the process at an error unless told otherwise, and requests of the safe layer borrow memory until the end of a
//! scope.
//!
//! Every wait may have a deadline, and every error names the operation, the other rank and the tag. See `docs/mpi.md`.
#![warn(missing_docs)]

mod backoff;
mod collective;
mod datatype;
mod error;
mod event;
mod keeper;
pub mod memory;
mod operator;
mod point_to_point;
mod ranks;
mod request;
mod server;
mod session;
#[path = "../../src/span.rs"]
mod span;
mod wgsl_operator;

pub use datatype::Number;
pub use error::{MpiError, Operation};
pub use event::RequestEvent;
pub use operator::Operator;
pub use ranks::{Ranks, Source, Tag};
pub use request::{Envelope, Request, RequestFuture, RequestStatus};
pub use server::{RemoteCall, RemoteCallFuture, RemoteFunction, RemoteServer, RemoteServerBuilder};
pub use session::{Mpi, Options};
pub use wgsl_operator::{Values, WgslOperator};
