//! Open files and streams: reads and writes of any length, at positions or at a cursor.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::sync::{Arc, Mutex};

use super::folder::{read_at, write_at};
use super::heap_accessor::CHUNK;
use super::quota::Quota;
use super::status::FileStatus;
use super::streams::Stream;
use crate::device::wait::lock;
pub(super) use crate::kernel::calls::service_numbers::{
    FILE_APPEND as APPEND, FILE_CREATE as CREATE, FILE_NEW as NEW, FILE_READ as READ,
    FILE_TRUNCATE as TRUNCATE, FILE_WRITE as WRITE,
};

/// `FileReply` and `FileHandle` in WGSL.
pub(super) type Reply = [u32; 2];

/// An open file.
pub(super) struct Open {
    pub file: File,
    pub cursor: Mutex<u64>,
    pub mode: u32,
    pub quota: Arc<Quota>,
}

/// The thing behind a handle.
pub(super) enum Handle<'a> {
    Stream(&'a Stream),
    File(Arc<Open>),
}

pub(super) fn reply(status: FileStatus, bytes: usize) -> Reply {
    [status.code(), bytes as u32]
}

/// A position in the system's range, some bytes further on.
pub(super) fn advanced(at: u64, by: usize) -> Result<u64, FileStatus> {
    let sum = at
        .checked_add(by as u64)
        .filter(|&sum| sum <= i64::MAX as u64);
    sum.ok_or(FileStatus::BadPosition)
}

impl Handle<'_> {
    /// Reads up to `bytes` bytes and gives them to `sink`, with their places, multiples of [`CHUNK`].
    pub fn read(&self, at: Option<u64>, bytes: usize, mut sink: impl FnMut(usize, &[u8])) -> Reply {
        let open = match self {
            Self::Stream(_) if at.is_some() => return reply(FileStatus::NotSeekable, 0),
            Self::Stream(stream) => {
                let mut chunk = vec![0; bytes.min(CHUNK)];
                return match stream.read(&mut chunk) {
                    Ok(len) => {
                        sink(0, &chunk[..len]);
                        reply(FileStatus::Ok, len)
                    }
                    Err(status) => reply(status, 0),
                };
            }
            Self::File(open) => open,
        };
        if open.mode & READ == 0 {
            return reply(FileStatus::BadMode, 0);
        }
        let mut done = 0;
        let status = open.with_cursor(at, |start| {
            if let Err(status) = advanced(start, bytes) {
                return (status, 0);
            }
            let mut chunk = vec![0; bytes.min(CHUNK)];
            // Filled as far as this chunk goes, so the places of chunks are whole words.
            let mut filled = 0;
            while done + filled < bytes {
                let end = chunk.len().min(bytes - done);
                match read_at(
                    &open.file,
                    &mut chunk[filled..end],
                    start + (done + filled) as u64,
                ) {
                    Ok(0) => break,
                    Ok(len) => filled += len,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => {
                        sink(done, &chunk[..filled]);
                        done += filled;
                        return (FileStatus::of(&error), done);
                    }
                }
                if filled == end {
                    sink(done, &chunk[..filled]);
                    done += filled;
                    filled = 0;
                }
            }
            if filled > 0 {
                sink(done, &chunk[..filled]);
                done += filled;
            }
            (FileStatus::Ok, done)
        });
        reply(status, done)
    }

    /// Writes the chunks of `next` until there are no more.
    pub fn write(&self, at: Option<u64>, mut next: impl FnMut() -> Option<Vec<u8>>) -> Reply {
        let open = match self {
            Self::Stream(_) if at.is_some() => return reply(FileStatus::NotSeekable, 0),
            Self::Stream(stream) => {
                let (status, done) = stream.write(next);
                return reply(status, done);
            }
            Self::File(open) => open,
        };
        if open.mode & (WRITE | APPEND) == 0 {
            return reply(FileStatus::BadMode, 0);
        }
        let appends = open.mode & APPEND != 0;
        if appends && at.is_some() {
            return reply(FileStatus::NotSeekable, 0);
        }
        let mut done = 0;
        let status = open.with_cursor(at, |start| {
            while let Some(bytes) = next() {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    if !appends && let Err(status) = advanced(start, done + rest.len()) {
                        return (status, done);
                    }
                    let granted = open.quota.take(rest.len());
                    if granted == 0 {
                        return (FileStatus::Full, done);
                    }
                    let part = &rest[..granted];
                    let written = match appends {
                        true => (&open.file).write(part),
                        false => write_at(&open.file, part, start + done as u64),
                    };
                    let used = *written.as_ref().unwrap_or(&0);
                    open.quota.give_back(granted - used.min(granted));
                    match written {
                        Ok(0) => return (FileStatus::Full, done),
                        Ok(len) => {
                            done += len;
                            rest = &rest[len.min(rest.len())..];
                        }
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) => return (FileStatus::of(&error), done),
                    }
                }
            }
            (FileStatus::Ok, done)
        });
        reply(status, done)
    }
}

impl Open {
    pub fn size(&self) -> Result<u64, FileStatus> {
        let metadata = self.file.metadata();
        metadata.map(|m| m.len()).map_err(|e| FileStatus::of(&e))
    }

    /// Has `work` start at a position, or at the cursor, which then moves by the bytes done.
    fn with_cursor(
        &self,
        at: Option<u64>,
        work: impl FnOnce(u64) -> (FileStatus, usize),
    ) -> FileStatus {
        let Some(at) = at else {
            let mut cursor = lock(&self.cursor);
            let (status, done) = work(*cursor);
            *cursor = match self.mode & APPEND != 0 && done > 0 {
                true => self.size().unwrap_or(*cursor),
                false => cursor.saturating_add(done as u64),
            };
            return status;
        };
        work(at).0
    }
}
