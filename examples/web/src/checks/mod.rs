//! The checks, in the order of the page.

mod blocking;
mod calls;
mod globals;
mod launches;
mod memory;
mod picture;
mod pointers;
mod prints;

use std::error::Error;
use std::pin::Pin;

use tombolo::device::{ExecutionError, WaitError};
use tombolo::{Context, Device};

use crate::page::Page;

/// What a check has seen, in a few words, or what went wrong.
pub type Found = Result<String, Box<dyn Error>>;

/// A check under way.
type Checking<'a> = Pin<Box<dyn Future<Output = Found> + 'a>>;

/// A check.
type Check = for<'a> fn(&'a Page, &'a Context, &'a Device) -> Checking<'a>;

/// All checks by name, as `cargo xtask web --test` expects them.
pub const CHECKS: &[(&str, Check)] = &[
    ("device", |_, _, device| Box::pin(launches::device(device))),
    ("launch", |_, _, device| Box::pin(launches::launch(device))),
    ("private-array", |_, _, device| {
        Box::pin(launches::private_array(device))
    }),
    ("batch", |_, _, device| Box::pin(launches::batch(device))),
    ("global", |_, _, device| Box::pin(globals::global(device))),
    ("prints", |page, _, device| {
        Box::pin(prints::prints(page, device))
    }),
    ("assertion", |_, _, device| {
        Box::pin(prints::assertion(device))
    }),
    ("pointers", |_, context, device| {
        Box::pin(pointers::list(context, device))
    }),
    ("fault", |_, context, device| {
        Box::pin(pointers::fault(context, device))
    }),
    ("buffers", |_, context, device| {
        Box::pin(memory::buffers(context, device))
    }),
    ("large", |_, _, device| Box::pin(memory::large(device))),
    ("calls", |_, _, device| Box::pin(calls::calls(device))),
    ("blocking", |_, context, device| {
        Box::pin(blocking::blocking(context, device))
    }),
    ("loss", |_, context, _| Box::pin(blocking::loss(context))),
    ("picture", |page, _, device| {
        Box::pin(picture::picture(page, device))
    }),
];

/// Fails unless both are the same.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, expected: T) -> Result<(), String> {
    match got == expected {
        true => Ok(()),
        false => Err(format!("{what} is {got:?} and not {expected:?}")),
    }
}

/// The error of a command that should have failed.
pub fn failure(result: Result<(), WaitError>) -> Result<std::sync::Arc<ExecutionError>, String> {
    match result {
        Err(WaitError::Failed(error)) => Ok(error),
        other => Err(format!("it should have failed, and is {other:?}")),
    }
}
