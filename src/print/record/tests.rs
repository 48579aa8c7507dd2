use proptest::prelude::*;

use super::super::format::{parse, unescape};
use super::super::value::ScalarType;
use super::*;

fn site(kind: SiteKind, text: &str, words: usize) -> Option<Site> {
    let ty = ValueType {
        scalar: ScalarType::U32,
        rows: 1,
        columns: 1,
    };
    Some(Site {
        file: "a.wgsl".into(),
        kind,
        line: 3,
        column: 5,
        excerpt: String::new(),
        template: parse(&unescape(text, 0).unwrap(), words).unwrap(),
        arguments: vec![ty; words],
    })
}

/// Sites printing nothing, one and three words, an assertion, and an unreachable site.
fn sites() -> Sites {
    Sites {
        kernel: "main".into(),
        sites: vec![
            site(SiteKind::Print, "\"none\"", 0),
            site(SiteKind::Print, "\"{}\"", 1),
            site(SiteKind::Print, "\"{} {} {}\"", 3),
            site(SiteKind::Assert, "\"{}\"", 1),
            None,
        ],
    }
}

/// A buffer as a kernel would leave it.
fn written(records: &[(u32, u32, Vec<u32>)], capacity: usize) -> Vec<u32> {
    let mut words = vec![0; HEADER_WORDS + capacity];
    let mut at = 0;
    for (code, invocation, values) in records {
        let mut record = vec![*code, *invocation];
        record.extend(values);
        record.push(check(at as u32, record.iter().copied()));
        words[HEADER_WORDS + at..HEADER_WORDS + at + record.len()].copy_from_slice(&record);
        at += record.len();
    }
    words[HEAD] = at as u32;
    words
}

/// Everything readable, and how the reading ended.
fn read(words: &[u32]) -> (Vec<(u32, String)>, Step) {
    let (sites, mut at, mut found) = (sites(), 0, Vec::new());
    let capacity = words.len() - HEADER_WORDS;
    loop {
        let step = read_record(
            &sites,
            at,
            capacity,
            |index| words.get(index).copied(),
            |record, _| found.push((record.invocation(), record.text())),
        );
        match step {
            Step::Next(next) => {
                assert!(next > at && next <= capacity);
                at = next;
            }
            end => return (found, end),
        }
    }
}

#[test]
fn records_come_back_in_order() {
    let words = written(
        &[(2, 7, vec![41]), (1, 8, vec![]), (3, 9, vec![1, 2, 3])],
        20,
    );
    let (found, end) = read(&words);
    let wanted = [(7, "41"), (8, "none"), (9, "1 2 3")];
    assert_eq!(found, wanted.map(|(i, s)| (i, s.to_owned())));
    assert_eq!(end, Step::End);
}

#[test]
fn an_empty_buffer_has_no_records() {
    assert_eq!(read(&vec![0; HEADER_WORDS + 8]), (vec![], Step::End));
}

#[test]
fn a_record_of_which_any_word_is_missing_is_not_there() {
    let whole = written(&[(3, 9, vec![1, 2, 3])], 6);
    for missing in HEADER_WORDS..whole.len() {
        let mut words = whole.clone();
        words[missing] = 0;
        assert_eq!(read(&words), (vec![], Step::Torn), "word {missing}");
    }
}

#[test]
fn a_record_at_another_place_is_none() {
    // Leftovers of an earlier launch are not taken for new records, even among new ones.
    let mut words = written(&[(2, 7, vec![41]), (2, 7, vec![41])], 20);
    let (first, second) = (HEADER_WORDS..HEADER_WORDS + 4, HEADER_WORDS + 4);
    words.copy_within(first, second);
    assert_eq!(read(&words).1, Step::Torn);
}

#[test]
fn codes_of_nothing_that_prints_end_the_reading() {
    for code in [0, 4, 5, 6, u32::MAX] {
        let words = written(&[(code, 0, vec![1])], 8);
        assert_eq!(read(&words), (vec![], Step::Torn), "{code}");
    }
}

proptest! {
    #[test]
    fn no_words_make_the_reader_panic_or_read_outside(
        mut words in prop::collection::vec(prop_oneof![0u32..6, any::<u32>()], HEADER_WORDS..HEADER_WORDS + 40),
        head in prop_oneof![0u32..64, any::<u32>()],
    ) {
        words[HEAD] = head;
        read(&words);
    }

    #[test]
    fn one_changed_bit_is_noticed(
        records in prop::collection::vec((1u32..4, any::<u32>()), 1..6),
        bit in any::<prop::sample::Index>(),
    ) {
        let records: Vec<_> = records
            .into_iter()
            .map(|(code, value)| (code, value, vec![value; [0, 1, 3][code as usize - 1]]))
            .collect();
        let whole = written(&records, 64);
        let (all, end) = read(&whole);
        prop_assert_eq!(all.len(), records.len());
        prop_assert_eq!(end, Step::End);
        let mut words = whole.clone();
        let bit = bit.index(whole[HEAD] as usize * 32);
        words[HEADER_WORDS + bit / 32] ^= 1 << (bit % 32);
        let (found, end) = read(&words);
        prop_assert_eq!(end, Step::Torn);
        prop_assert_eq!(&found[..], &all[..found.len()]);
    }
}
