//! The way from services into the shared heap: every pointer given by a kernel goes through here.
//!
//! A service may look while the host waits for the heap (the host waits for the very kernel being served), not while
//! the host has the heap; never while a heap-using kernel runs on a device with a copy, since fetching the changes
//! would wait for the caller, or on a device with memory of its own, whose caches keep old words (`FILE_NO_POINTERS`;
//! `docs/calls.md`, *Two memories*). The bytes are words of one live allocation, held from reuse, read and written as
//! atomics (`memory/heap/serve.rs`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::memory::Arena;
use super::status::FileStatus;
use crate::memory::{AtomicView, HeapError, Ptr, SharedHeap};

/// Bytes that go through the host's own memory at once; whole words.
pub(super) const CHUNK: usize = 64 << 10;

/// The heap for kernels' pointers, if the services have been given one.
#[derive(Default)]
pub(crate) struct HeapAccessor {
    pub(super) heap: OnceLock<SharedHeap>,
    pub(super) arena: OnceLock<Arena>,
}

/// Bytes in the heap, pointed to by a kernel.
pub(super) struct Place {
    /// `None` for no bytes.
    words: Option<AtomicView<[AtomicU32]>>,
    pub bytes: usize,
}

impl HeapAccessor {
    /// The bytes meant by a kernel: all inside a live allocation, or memory from `malloc`.
    pub(super) fn place(&self, at: Ptr<u32>, bytes: u32) -> Result<Place, FileStatus> {
        if bytes == 0 {
            return Ok(Place {
                words: None,
                bytes: 0,
            });
        }
        let heap = self.heap.get().ok_or(FileStatus::NoPointers)?;
        if let Some(arena) = self.arena.get()
            && !arena.allows(at.address(), bytes.into())
        {
            return Err(FileStatus::BadPointer);
        }
        let words = heap.serve(at, bytes.into()).map_err(|error| match error {
            HeapError::Unsupported { .. }
            | HeapError::HostAccess { .. }
            | HeapError::AtomicView { .. } => FileStatus::NoPointers,
            _ => FileStatus::BadPointer,
        })?;
        Ok(Place {
            words: Some(words),
            bytes: bytes as usize,
        })
    }
}

impl Place {
    fn words(&self, start: usize) -> &[AtomicU32] {
        let words = self.words.as_deref().unwrap_or_default();
        words.get(start / 4..).unwrap_or_default()
    }

    /// Writes `bytes` from byte `start` on, a multiple of four. Bytes beyond the place are left out, and bytes behind
    /// the last one are unchanged.
    pub fn write(&self, start: usize, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.bytes.saturating_sub(start))];
        let (whole, rest) = bytes.as_chunks::<4>();
        let words = self.words(start);
        for (word, bytes) in words.iter().zip(whole) {
            // The answer to the call releases the bytes.
            word.store(u32::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        if let (false, Some(word)) = (rest.is_empty(), words.get(whole.len())) {
            let mut last = [0; 4];
            last[..rest.len()].copy_from_slice(rest);
            let mask = (1u32 << (8 * rest.len())) - 1;
            let last = u32::from_le_bytes(last);
            let merged = |old: u32| Some(old & !mask | last);
            // Never fails: the closure always gives a value.
            let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, merged);
        }
    }

    /// Reads bytes from byte `start` on, a multiple of four, until `bytes` is full or the place ends; how many.
    pub fn read(&self, start: usize, bytes: &mut [u8]) -> usize {
        let len = bytes.len().min(self.bytes.saturating_sub(start));
        for (word, bytes) in self.words(start).iter().zip(bytes[..len].chunks_mut(4)) {
            let word = word.load(Ordering::Relaxed).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HeapSize;

    #[test]
    fn bytes_go_in_and_out_without_touching_their_neighbours() {
        let heap_accessor = HeapAccessor::default();
        assert_eq!(
            heap_accessor.place(Ptr::null(), 4).map(|_| ()),
            Err(FileStatus::NoPointers)
        );
        let heap = SharedHeap::new(HeapSize::Bytes(16 << 20)).unwrap();
        let words = heap.alloc_slice(&[0xAAu8; 32]).unwrap();
        heap_accessor.heap.get_or_init(|| heap.clone());
        for len in 0..=12usize {
            heap.write(words, &[0xAA; 32]).unwrap();
            let bytes: Vec<u8> = (1..=len as u8).collect();
            let place = heap_accessor
                .place(words.cast::<u32>().add(1), len as u32)
                .unwrap();
            place.write(0, &bytes);
            let mut back = [0x55; 16];
            assert_eq!(place.read(0, &mut back), len);
            assert_eq!(
                (&back[..len], &back[len..]),
                (&bytes[..], &[0x55; 16][len..])
            );
            drop(place);
            let now = heap.read(words, 32).unwrap();
            assert_eq!(&now[4..4 + len], &bytes[..]);
            assert!(now[..4].iter().chain(&now[4 + len..]).all(|&b| b == 0xAA));
        }
        // Bytes beyond are left out.
        let place = heap_accessor.place(words.cast(), 5).unwrap();
        place.write(4, &[77, 78, 79]);
        place.write(8, &[80]);
        drop(place);
        assert_eq!(heap.read(words, 9).unwrap()[4..], [77, 2, 3, 4, 5]);
    }
}
