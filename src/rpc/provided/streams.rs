//! Standard streams, or their replacements.

use std::io::{ErrorKind, Read, Write};
use std::sync::Mutex;

use super::status::FileStatus;
use crate::device::wait::lock;

/// Something to read from or to write to.
pub(super) enum Stream {
    Input(Mutex<Box<dyn Read + Send>>),
    Output(Mutex<Box<dyn Write + Send>>),
}

impl Stream {
    /// What is there, up to the length of `bytes`; waits until there is something.
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, FileStatus> {
        let Self::Input(input) = self else {
            return Err(FileStatus::BadMode);
        };
        let mut input = lock(input);
        loop {
            match input.read(bytes) {
                // A reader that claims more than there was room for is wrong.
                Ok(len) => return Ok(len.min(bytes.len())),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(FileStatus::of(&error)),
            }
        }
    }

    /// Writes all chunks of `next`, until there are no more, with no other writer's bytes between.
    pub fn write(&self, mut next: impl FnMut() -> Option<Vec<u8>>) -> (FileStatus, usize) {
        let Self::Output(output) = self else {
            return (FileStatus::BadMode, 0);
        };
        let mut output = lock(output);
        let mut done = 0;
        while let Some(bytes) = next() {
            if let Err(error) = output.write_all(&bytes) {
                return (FileStatus::of(&error), done);
            }
            done += bytes.len();
        }
        match output.flush() {
            Ok(()) => (FileStatus::Ok, done),
            Err(error) => (FileStatus::of(&error), done),
        }
    }
}
