//! One file per command.

pub mod adapters;
pub mod bench;
pub mod book;
pub mod call_table;
pub mod ci;
pub mod comments;
pub mod coverage;
pub mod cross;
pub mod demo;
pub mod deny;
pub mod features;
pub mod languages;
pub mod minimal;
pub mod miri;
pub mod mpi;
pub mod package;
pub mod peers;
pub mod port;
pub mod sanitize;
pub mod semver;
pub mod stress;
pub mod test;
pub mod web;
