use proptest::prelude::*;

use super::*;

fn place(index: u32) -> Place {
    Place::new(index).expect("a place")
}

#[test]
fn a_range_is_sent_once_it_was_fetched_often_and_no_more_after_being_sent_in_vain() {
    let mut ahead: SentAhead<u32> = SentAhead::default();
    let (to, edge, strip) = (place(2), 8..16, 0..64);
    for _ in 1..OFTEN {
        assert_eq!(ahead.fetch(to, &edge), (None, None));
        assert_eq!(ahead.wanted(&strip), []);
    }
    assert_eq!(ahead.fetch(to, &edge), (None, None));
    assert_eq!(ahead.wanted(&strip), [(to, edge.clone())]);
    // Only a write of the whole range makes all its bytes new.
    assert_eq!(ahead.wanted(&(9..64)), []);
    assert_eq!(ahead.wanted(&(0..15)), []);
    for number in 0..10 {
        ahead.send(to, edge.clone(), number);
        assert_eq!(ahead.fetch(place(3), &edge), (None, None));
        assert_eq!(ahead.fetch(to, &(8..15)), (None, None));
        assert_eq!(ahead.fetch(to, &edge), (Some(number), None));
        assert_eq!(ahead.fetch(to, &edge), (None, None));
        assert_eq!(ahead.written(&strip), []);
    }
    for number in 0..VAIN {
        assert!(ahead.wanted(&strip).contains(&(to, edge.clone())));
        ahead.send(to, edge.clone(), number);
        assert_eq!(ahead.written(&(0..8)), []);
        assert_eq!(ahead.written(&(16..64)), []);
        assert_eq!(ahead.written(&(15..64)), [number]);
    }
    assert!(!ahead.wanted(&strip).contains(&(to, edge)));
}

#[test]
fn what_a_forgotten_habit_has_sent_is_given_back() {
    let mut ahead: SentAhead<u64> = SentAhead::default();
    let range = |at: u64| at * 4..at * 4 + 4;
    for at in 0..MOST as u64 {
        (0..OFTEN).for_each(|_| assert_eq!(ahead.fetch(place(2), &range(at)), (None, None)));
        ahead.send(place(2), range(at), at);
    }
    for at in 0..MOST as u64 {
        let other = range(at + 100);
        assert_eq!(ahead.fetch(place(2), &other), (None, Some(at)));
    }
    assert_eq!(ahead.take_all(), []);
}

#[test]
fn large_ranges_are_never_sent() {
    let mut ahead: SentAhead<u32> = SentAhead::default();
    let large = 0..MOST_BYTES + 1;
    (0..10).for_each(|_| assert_eq!(ahead.fetch(place(2), &large), (None, None)));
    assert_eq!(ahead.wanted(&large), []);
}

#[derive(Debug, Clone)]
enum Step {
    Write(Range<u64>),
    Fetch(u32, Range<u64>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0..6u64, 1..4u64).prop_map(|(start, len)| start * 4..(start + len) * 4);
    let step = prop_oneof![
        range().prop_map(Step::Write),
        (1..4u32, range()).prop_map(|(to, range)| Step::Fetch(to, range)),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    /// Against memory with a version for each byte: what is fetched is what is there, whatever was sent when.
    #[test]
    fn what_is_fetched_is_what_the_memory_has(steps in steps()) {
        let mut memory = vec![0u32; 64];
        let mut ahead: SentAhead<Vec<u32>> = SentAhead::default();
        let bytes = |memory: &[u32], range: &Range<u64>| {
            memory[range.start as usize..range.end as usize].to_vec()
        };
        for (version, step) in steps.into_iter().enumerate() {
            match step {
                Step::Write(range) => {
                    ahead.written(&range);
                    memory[range.start as usize..range.end as usize].fill(version as u32 + 1);
                    for (to, range) in ahead.wanted(&range) {
                        let sent = bytes(&memory, &range);
                        ahead.send(to, range, sent);
                    }
                }
                Step::Fetch(to, range) => {
                    if let (Some(sent), _) = ahead.fetch(place(to), &range) {
                        prop_assert_eq!(sent, bytes(&memory, &range));
                    }
                }
            }
            prop_assert!(ahead.sent.len() <= ahead.habits.len() && ahead.habits.len() <= MOST);
        }
    }
}
