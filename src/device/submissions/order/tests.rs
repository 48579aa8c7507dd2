//! The index of a submission, read; and whose signals are believed, for random programs on a queue as wgpu keeps it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[test]
fn an_index_is_read_and_nothing_else_is_taken_for_one() {
    /// Formats as the text does.
    struct As(&'static str);
    impl Debug for As {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            // In pieces, as derived formats are.
            let (first, second) = self.0.split_at(self.0.len() / 2);
            f.write_str(first)?;
            f.write_str(second)
        }
    }
    #[derive(Debug)]
    struct SubmissionIndex {
        #[allow(dead_code)] // formatted
        index: u64,
    }
    for index in [0, 7, 12, 1_234_567_890, u64::MAX] {
        assert_eq!(index_of(&SubmissionIndex { index }), Some(index));
    }
    assert_eq!(index_of(&As("SubmissionIndex { index: 12 }")), Some(12));
    for other in [
        "",
        "12",
        "SubmissionIndex(12)",
        "SubmissionIndex { index: }",
        "SubmissionIndex { index:  }",
        "SubmissionIndex { index: +12 }",
        "SubmissionIndex { index: 0x12 }",
        "SubmissionIndex { index: 12, queue: 3 }",
        "SubmissionIndex { queue: 3, index: 12 }",
        "SubmissionIndex { index: 18446744073709551616 }",
        "SubmissionIndex { index: 1 } and so on, for longer than any index is, and then some more }",
    ] {
        assert_eq!(index_of(&As(other)), None, "{other}");
    }
}

#[test]
fn a_stride_is_a_small_number() {
    for (first, second, stride) in [
        (Some(1), Some(3), Some(2)),
        (Some(1), Some(2), Some(1)),
        (Some(1), Some(5), Some(4)),
        (Some(1), Some(6), None),
        (Some(3), Some(3), None),
        (Some(3), Some(1), None),
        (None, Some(3), None),
        (Some(1), None, None),
    ] {
        assert_eq!(stride_of(first, second), stride);
    }
}

/// What decides about a program.
struct Script<'a>(std::slice::Iter<'a, u8>);

impl Script<'_> {
    /// A number below `most`; 0 when the script is over.
    fn choose(&mut self, most: u8) -> u8 {
        self.0.next().map_or(0, |byte| byte % most)
    }
}

/// A queue of wgpu, whose submissions take what is staged, and the runtime there.
struct Model {
    index: u64,
    staged: Vec<u64>,
    /// The submissions that took the signals.
    taken: BTreeMap<u64, u64>,
    /// Indices that a marker takes.
    marker: u64,
    order: Order,
    number: u64,
    /// Nothing was submitted since the marker of a submission whose index is known.
    is_quiet: bool,
    proven: u32,
}

impl Model {
    fn new(marker: u64) -> Self {
        Self {
            index: 0,
            staged: Vec::new(),
            taken: BTreeMap::new(),
            marker,
            order: Order::default(),
            number: 0,
            is_quiet: false,
            proven: 0,
        }
    }

    fn allocate(&mut self, is_submitted: bool) -> u64 {
        self.index += 1;
        if is_submitted {
            for number in self.staged.drain(..) {
                self.taken.insert(number, self.index);
            }
        }
        self.index
    }

    /// What others do on the queue: they submit, or map memory, or ask for ends.
    fn others(&mut self, script: &mut Script<'_>) {
        while script.choose(4) == 1 {
            let is_submitted = script.choose(2) == 1;
            self.allocate(is_submitted);
            self.is_quiet = false;
        }
    }

    fn mark(&mut self) {
        for _ in 0..self.marker {
            self.allocate(false);
        }
    }

    fn run(&mut self, script: &mut Script<'_>, depth: u32) {
        self.others(script);
        match script.choose(8) {
            7 => {
                // For a thread that waits.
                self.mark();
                self.is_quiet &= self.marker == 0;
            }
            // Refused before wgpu is called.
            6 => {
                self.number += 1;
                self.mark();
                self.is_quiet &= self.marker == 0;
            }
            _ => self.submit(script, depth),
        }
    }

    fn callbacks(&mut self, script: &mut Script<'_>, depth: u32) {
        while depth < 3 && script.choose(4) == 1 {
            self.run(script, depth + 1);
        }
    }

    fn submit(&mut self, script: &mut Script<'_>, depth: u32) {
        self.number += 1;
        let number = self.number;
        let last = self.order.last();
        self.staged.push(number);
        self.others(script);
        let is_quiet = std::mem::take(&mut self.is_quiet);
        let fails = script.choose(8) == 7;
        let index = self.allocate(!fails);
        if !fails {
            self.callbacks(script, depth);
        }
        let (has_panicked, callback_fails) = (script.choose(8) == 7, script.choose(8) == 7);
        self.others(script);
        let is_taken = !self.staged.contains(&number);
        self.staged.retain(|staged| *staged != number);
        let has_failed = fails || (callback_fails && !has_panicked);
        let known = Some(index).filter(|_| fails || !has_panicked);
        let (order, stride) = (std::mem::take(&mut self.order), self.marker + 1);
        let is_own = is_taken
            && known.is_some_and(|index| {
                let next = || Some(self.allocate(true));
                order.is_own_by(stride, last, index, has_failed, next)
            });
        self.order = order;
        if is_own {
            self.proven += 1;
            assert!(!fails);
            assert_eq!(self.taken.get(&number), Some(&index));
        }
        // The steady state.
        if is_quiet && !fails && known.is_some() && !has_failed {
            assert!(is_own, "{index} behind {last}");
        }
        // Between the call and the marker.
        self.callbacks(script, depth);
        self.others(script);
        self.is_quiet = self.index == index && known.is_some();
        self.mark();
        if let Some(index) = known {
            self.order.marked(index);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_signal_is_believed_only_of_the_submission_that_took_it(
        script in prop::collection::vec(any::<u8>(), 0..200),
        marker in 0u64..=3,
    ) {
        let mut model = Model::new(marker);
        let mut script = Script(script.iter());
        while script.0.len() > 0 {
            model.run(&mut script, 0);
        }
    }
}

#[test]
fn every_submission_of_a_program_that_nobody_disturbs_is_believed_but_the_first() {
    for marker in 0..=3 {
        let mut model = Model::new(marker);
        for _ in 0..100 {
            model.run(&mut Script([].iter()), 0);
        }
        assert_eq!(model.proven, 99);
    }
}
