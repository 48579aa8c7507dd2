//! One file per command.

pub mod adapters;
pub mod ci;
pub mod demo;
pub mod test;
