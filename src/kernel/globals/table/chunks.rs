//! Chunks of memory, in which variables have their places.

use std::sync::{Arc, Mutex};

use super::{Declaration, GlobalConflict, GlobalScope, Instance, Shared, Start, State};
use crate::addresses::region::{Region, RegionOptions};
use crate::device::unique_id;
use crate::kernel::globals::compare::LARGEST;

/// Bytes of the first chunk; each further chunk is twice as large, up to `LARGEST_CHUNK`, and never smaller than its
/// first variable needs.
const FIRST_CHUNK: u64 = 64 << 10;
const LARGEST_CHUNK: u64 = 16 << 20;

/// Chunks begin with unused bytes: the address of a variable must not be that of its allocation, or freeing the
/// variable's address would free the allocation.
const HEADER: u64 = 256;
/// Places suit every type and every copy of whole words. Offsets of larger variables suit every binding: a kernel using
/// a single such variable has the variable at offset 0, with nothing to add to an index.
const ALIGN: u64 = 16;
const LARGE: u64 = 256;

#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: u64,
    pub(super) region: Region,
}

impl State {
    /// The chunk `beside`, if so many variables with that many bytes fit there, or else the first chunk with room, or a
    /// new chunk.
    pub(super) fn chunk_for(&mut self, bytes: u64, count: usize, beside: Option<usize>) -> usize {
        // However they come to lie.
        let wanted = bytes.next_multiple_of(ALIGN) + LARGE * count as u64;
        let fits = |chunk: &Chunk| chunk.region.stats().largest_free >= wanted;
        if let Some(beside) = beside
            && self.chunks.get(beside).is_some_and(fits)
        {
            return beside;
        }
        if let Some(found) = self.chunks.iter().position(fits) {
            return found;
        }
        let last = self
            .chunks
            .last()
            .map_or(FIRST_CHUNK / 2, |chunk| chunk.bytes);
        let least = (wanted + HEADER).next_multiple_of(HEADER);
        let bytes = (last.min(LARGEST_CHUNK / 2) * 2).max(least);
        let mut region = Region::new(RegionOptions::default());
        // The block is neither empty nor out of place.
        let _ = region.add_block(HEADER, bytes - HEADER);
        self.chunks.push(Chunk { bytes, region });
        self.chunks.len() - 1
    }

    pub(super) fn allocate(
        &mut self,
        chunk: usize,
        name: &str,
        scope: GlobalScope,
        bytes: u64,
        host: Option<Arc<Declaration>>,
        owner: &Arc<Shared>,
    ) -> Result<Arc<Instance>, GlobalConflict> {
        let too_large = || GlobalConflict::TooLarge {
            name: name.to_owned(),
            bytes,
            limit: LARGEST,
        };
        let region = self.chunks.get_mut(chunk).map(|chunk| &mut chunk.region);
        let align = if bytes < LARGE { ALIGN } else { LARGE };
        let granted = region.and_then(|region| region.allocate(bytes.max(1), align).ok());
        let granted = granted.ok_or_else(too_large)?;
        Ok(Arc::new(Instance {
            id: unique_id(),
            name: name.into(),
            scope,
            chunk,
            offset: u32::try_from(granted.address).map_err(|_| too_large())?,
            bytes,
            allocation: granted.id,
            owner: Arc::downgrade(owner),
            start: Mutex::new(Start {
                host,
                touched: false,
            }),
        }))
    }
}
