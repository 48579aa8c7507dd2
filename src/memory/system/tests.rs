//! Lent ranges and their table, without a device: against sets of bytes and a map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::lends::{Lends, Rights, Source};
use super::table::{Demands, Entry, FaultList, find, words};
use super::*;

const NO_FAULTS: FaultList = FaultList {
    start: 4,
    capacity: 0,
};

fn entry(page: u64, frame: u32) -> Entry {
    Entry {
        page,
        word: frame * 1024,
        in_place: false,
        rights: Rights {
            read: Rights::ALL,
            write: Rights::ALL,
        },
    }
}

/// Whether the table lets a kernel read or write a word, asked like `tombolo_system_find` does.
fn may(table: &[u32], page: u64, word: usize, writes: usize) -> bool {
    let Some((_, flags)) = find(table, page) else {
        return false;
    };
    let row = (flags >> 3) as usize + 8 * writes + word / 128;
    flags >> writes & 1 == 1 || table[4 * row + word / 32 % 4] >> (word % 32) & 1 == 1
}

/// Whole pages lent for reading have masks, too, in the solid span or not.
#[test]
fn nothing_is_written_that_is_lent_for_reading() {
    let mut entries: Vec<Entry> = (10..20)
        .chain([40, 50])
        .zip(1..)
        .map(|(page, frame)| entry(page, frame))
        .collect();
    for entry in &mut entries {
        entry.rights.write = Rights::NONE;
    }
    entries[11].rights.read[3] = 5;
    let table = words(&entries, None, NO_FAULTS, Demands::default());
    for entry in &entries {
        for word in 0..PAGE_WORDS {
            let is_read = entry.page != 50 || word / 32 != 3 || word % 32 == 0 || word % 32 == 2;
            assert_eq!(
                may(&table, entry.page, word, 0),
                is_read,
                "{}, {word}",
                entry.page
            );
            assert!(!may(&table, entry.page, word, 1), "{}, {word}", entry.page);
        }
    }
}

proptest! {
    #[test]
    fn each_page_is_found_and_no_other(
        runs in prop::collection::vec((0u64..1 << 52, 1u64..50), 0..60),
        others in prop::collection::vec(0u64..1 << 52, 20),
    ) {
        let mut pages: Vec<u64> = runs.iter().flat_map(|&(start, len)| start..start + len).collect();
        pages.sort_unstable();
        pages.dedup();
        let entries: Vec<Entry> = (pages.iter().zip(1..)).map(|(&page, frame)| entry(page, frame)).collect();
        let table = words(&entries, None, NO_FAULTS, Demands::default());
        for entry in &entries {
            prop_assert_eq!(find(&table, entry.page), Some((entry.word, 3)));
        }
        let neighbours = pages.iter().flat_map(|page| [page.wrapping_sub(1), page + 1]);
        for page in others.iter().copied().chain(neighbours) {
            if pages.binary_search(&page).is_err() {
                prop_assert_eq!(find(&table, page), None);
            }
        }
    }

    /// Lent bytes are read, and bytes lent for writing are written where words differ.
    #[test]
    fn exactly_lent_bytes_are_read_and_written(
        lent in prop::collection::vec((0usize..12_000, 0usize..5000, any::<bool>()), 0..12),
        changes in prop::collection::vec(0usize..12_288, 0..40),
    ) {
        let mut memory: Vec<u32> = (0..4 * 1024u32).map(|i| i.wrapping_mul(0x9e37_79b9) | 0x0101_0101).collect();
        let start = memory.as_mut_ptr().expose_provenance() as u64;
        let bytes = memory.len() * 4;
        let mut lends = Lends::default();
        let mut shadow: BTreeMap<u64, bool> = BTreeMap::new();
        for (from, len, is_written) in lent {
            let range = start + from as u64..start + (from + len).min(bytes) as u64;
            let access = if is_written { SystemAccess::ReadWrite } else { SystemAccess::Read };
            for byte in range.clone() {
                *shadow.entry(byte).or_default() |= is_written;
            }
            lends.add(range, access, Source::Borrowed);
        }
        let expected: Vec<u64> = {
            let mut pages: Vec<u64> = shadow.keys().map(|byte| byte / PAGE_BYTES).collect();
            pages.dedup();
            pages
        };
        prop_assert_eq!(lends.pages(0).collect::<Vec<_>>(), expected.clone());
        let old: Vec<u8> = bytemuck::cast_slice(&memory).to_vec();
        for page in expected {
            let mut before = [0u32; PAGE_WORDS];
            lends.read(page, &mut before).unwrap();
            let read: &[u8] = bytemuck::cast_slice(&before);
            let rights = lends.rights(page);
            for (at, byte) in read.iter().enumerate() {
                let address = page * PAGE_BYTES + at as u64;
                let lent = shadow.get(&address);
                let value = lent.map_or(0, |_| old[(address - start) as usize]);
                prop_assert_eq!(*byte, value);
                let word = |mask: &lends::Mask| mask[at / 128] >> (at / 4 % 32) & 1 == 1;
                if let Some(is_written) = lent {
                    prop_assert!(word(&rights.read));
                    prop_assert!(!is_written || word(&rights.write));
                }
            }
            let mut after = before;
            for change in &changes {
                after[change / 4 % PAGE_WORDS] ^= 0xff << (change % 4 * 8);
            }
            lends.write_back(page, &before, &after).unwrap();
            for (at, byte) in bytemuck::cast_slice::<u32, u8>(&after).iter().enumerate() {
                let address = page * PAGE_BYTES + at as u64;
                if let Some(is_written) = shadow.get(&address) {
                    let there = (address - start) as usize;
                    let now = bytemuck::cast_slice::<u32, u8>(&memory)[there];
                    prop_assert_eq!(now, if *is_written { *byte } else { old[there] });
                }
            }
        }
        let now: &[u8] = bytemuck::cast_slice(&memory);
        for (at, byte) in now.iter().enumerate() {
            if !shadow.contains_key(&(start + at as u64)) {
                prop_assert_eq!(*byte, old[at]);
            }
        }
    }
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let mut lends = Lends::default();
    lends.add(0..4096, SystemAccess::ReadWrite, Source::Address);
    let mut page = [0; PAGE_WORDS];
    assert!(lends.read(0, &mut page).is_err());
    assert!(lends.write_back(0, &page, &[1; PAGE_WORDS]).is_err());
    assert_eq!(lends.write_back(0, &page, &page), Ok(0));
}
