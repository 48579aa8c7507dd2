//! Dependencies of commands: a machine with all possible overlap, and single cases.

use std::collections::HashMap;
use std::ops::Range;

use proptest::prelude::*;

use super::model::{LEN, PLACES, Random, place};
use super::tests::want;
use super::*;

enum Action {
    Copy(usize, usize, Range<usize>),
    /// The place, the bytes it must find, and the bytes it writes.
    Kernel(usize, Vec<(usize, u32)>, Vec<(usize, u32)>),
}

struct Command {
    waits: Vec<u64>,
    action: Action,
}

/// Commands are enqueued in order and run in any order allowed by their dependencies.
struct Queues {
    residency: Residency,
    routes: Routes,
    memory: Vec<usize>,
    values: Vec<Vec<u32>>,
    /// The latest content, were everything done at once.
    truth: Vec<Option<u32>>,
    enqueued: HashMap<u64, Command>,
    pending: Vec<u64>,
    tokens: u64,
    random: Random,
}

impl Queues {
    fn new(routes: Routes, shared: Option<(usize, usize)>, seed: u64) -> Self {
        let mut residency = Residency::new(LEN as u64);
        let mut memory: Vec<usize> = (0..PLACES).collect();
        if let Some((a, b)) = shared {
            residency.share(place(a), place(b));
            memory[a] = memory[b];
        }
        Self {
            residency,
            routes,
            memory,
            values: vec![vec![0; LEN]; PLACES],
            truth: vec![None; LEN],
            enqueued: HashMap::new(),
            pending: Vec::new(),
            tokens: 0,
            random: Random(seed | 1),
        }
    }

    fn push(&mut self, waits: Vec<u64>, action: Action) -> u64 {
        self.tokens += 1;
        self.enqueued.insert(self.tokens, Command { waits, action });
        self.pending.push(self.tokens);
        self.tokens
    }

    fn hazards(&self, at: Place, range: &Range<u64>, access: Access) -> Vec<u64> {
        let hazards = self.residency.hazards(at, range.clone(), access);
        hazards.map(|hazard| hazard.earlier.token).collect()
    }

    fn launch(&mut self, at: usize, wants: &[(Range<u64>, Access)]) {
        let wants: Vec<Want> = wants
            .iter()
            .map(|(range, access)| want(at, range.clone(), *access))
            .collect();
        let plan = self.residency.plan(&wants, &self.routes).expect("a plan");
        let mut tokens = Vec::new();
        for step in &plan.steps {
            let mut waits = self.hazards(step.from, &step.range, Access::Read);
            waits.extend(self.hazards(step.to, &step.range, Access::Overwrite));
            waits.extend(step.after.map(|after| tokens[after]));
            let (from, to) = (step.from.index() as usize, step.to.index() as usize);
            let (from, to) = (self.memory[from], self.memory[to]);
            let range = step.range.start as usize..step.range.end as usize;
            let token = self.push(waits, Action::Copy(from, to, range));
            for (at, access) in [(step.from, Access::Read), (step.to, Access::Overwrite)] {
                let begun = self.residency.begin(token, at, step.range.clone(), access);
                begun.expect("a range");
            }
            tokens.push(token);
        }
        self.residency.commit(&plan).expect("a fresh plan");
        let (mut waits, mut reads, mut writes) = (Vec::new(), Vec::new(), Vec::new());
        for want in &wants {
            waits.extend(self.hazards(want.place, &want.range, want.access));
            if want.access.needs_content() {
                let bytes = want.range.start as usize..want.range.end as usize;
                reads.extend(bytes.filter_map(|byte| Some((byte, self.truth[byte]?))));
            }
        }
        for (i, want) in wants.iter().filter(|want| want.access.writes()).enumerate() {
            for byte in want.range.start as usize..want.range.end as usize {
                let value = self.tokens as u32 * 256 + i as u32 * LEN as u32 + byte as u32 + 1;
                self.truth[byte] = Some(value);
                writes.push((byte, value));
            }
        }
        let token = self.push(waits, Action::Kernel(self.memory[at], reads, writes));
        for want in &wants {
            let range = want.range.clone();
            let begun = self
                .residency
                .begin(token, want.place, range.clone(), want.access);
            begun.expect("a range");
            if want.access.writes() {
                self.residency.wrote(want.place, range).expect("a range");
            }
        }
    }

    /// Runs a command without pending dependencies, and sometimes reports its end.
    fn run_one(&mut self) {
        let ready: Vec<usize> = (0..self.pending.len())
            .filter(|&i| {
                let command = &self.enqueued[&self.pending[i]];
                command
                    .waits
                    .iter()
                    .all(|token| !self.pending.contains(token))
            })
            .collect();
        if ready.is_empty() {
            assert!(self.pending.is_empty(), "commands wait for one another");
            return;
        }
        let token = self.pending.remove(ready[self.random.below(ready.len())]);
        match &self.enqueued[&token].action {
            Action::Copy(from, to, range) => {
                for byte in range.clone() {
                    self.values[*to][byte] = self.values[*from][byte];
                }
            }
            Action::Kernel(memory, reads, writes) => {
                for &(byte, expected) in reads {
                    assert_eq!(self.values[*memory][byte], expected, "byte {byte}");
                }
                for &(byte, value) in writes {
                    self.values[*memory][byte] = value;
                }
            }
        }
        match self.random.below(3) {
            0 => self.residency.finished(token),
            1 => {
                let pending = &self.pending;
                self.residency
                    .forget_finished(|token| !pending.contains(&token));
            }
            _ => {}
        }
    }
}

fn range() -> impl Strategy<Value = Range<u64>> {
    (0..=LEN as u64, 0..=LEN as u64).prop_map(|(a, b)| a.min(b)..a.max(b))
}

fn access() -> impl Strategy<Value = Access> {
    prop::sample::select(vec![
        Access::Read,
        Access::Read,
        Access::ReadWrite,
        Access::Overwrite,
    ])
}

proptest! {
    #[test]
    fn what_commands_wait_for_is_enough(
        chunk in prop::sample::select(vec![0u64, 5, 16]),
        direct in any::<bool>(),
        shared in prop::option::of((0..PLACES, 0..PLACES)),
        launches in prop::collection::vec(
            (0..PLACES, prop::collection::vec((range(), access()), 1..4), 0..4usize),
            1..if cfg!(miri) { 8 } else { 40 }),
        seed in any::<u64>(),
    ) {
        let mut routes = Routes::new().with_chunk(chunk);
        if direct {
            routes.set_both(place(1), place(2), Route::SameDevice, Routes::SAME_DEVICE_COST);
        }
        let mut queues = Queues::new(routes, shared, seed);
        for (at, wants, run) in &launches {
            queues.launch(*at, wants);
            for _ in 0..*run {
                queues.run_one();
            }
        }
        while !queues.pending.is_empty() {
            queues.run_one();
        }
    }
}

fn buffer() -> Residency {
    Residency::new(LEN as u64)
}

/// The results of a query: kinds, tokens and bytes.
fn found(hazards: impl Iterator<Item = Hazard>) -> Vec<(HazardKind, u64, Range<u64>)> {
    hazards
        .map(|hazard| (hazard.kind, hazard.earlier.token, hazard.range))
        .collect()
}

#[test]
fn readers_wait_for_writers_and_writers_for_both() {
    use HazardKind::{ReadAfterWrite, WriteAfterRead, WriteAfterWrite};
    let mut buffer = buffer();
    let one = place(1);
    buffer
        .begin(10, one, 0..16, Access::Write)
        .expect("a range");
    buffer
        .begin(11, one, 16..32, Access::Read)
        .expect("a range");
    let found = |range, access| found(buffer.hazards(one, range, access));
    assert_eq!(found(8..24, Access::Read), [(ReadAfterWrite, 10, 8..16)]);
    assert_eq!(
        found(8..24, Access::Overwrite),
        [(WriteAfterWrite, 10, 8..16), (WriteAfterRead, 11, 16..24)]
    );
    assert_eq!(found(32..48, Access::ReadWrite), []);
    assert_eq!(found(16..16, Access::ReadWrite), []);
}

#[test]
fn other_memory_is_no_hazard_and_shared_memory_is() {
    let mut buffer = buffer();
    buffer.share(place(0), place(2));
    buffer
        .begin(1, place(2), 0..8, Access::Write)
        .expect("a range");
    assert_eq!(
        found(buffer.hazards(place(1), 0..8, Access::Write)).len(),
        0
    );
    assert_eq!(found(buffer.hazards(place(0), 0..8, Access::Read)).len(), 1);
}

#[test]
fn writers_on_two_devices_without_order_are_told() {
    let mut buffer = buffer();
    buffer
        .begin(1, place(1), 0..24, Access::Write)
        .expect("a range");
    buffer
        .begin(2, place(1), 40..48, Access::Read)
        .expect("a range");
    let conflicts = |at, range, access, ordered: fn(u64) -> bool| {
        found(buffer.conflicts(place(at), range, access, ordered))
    };
    let both = (HazardKind::WriteAfterWrite, 1, 16..24);
    assert_eq!(conflicts(2, 16..32, Access::Write, |_| false), [both]);
    // Behind it, beside it, and on the same device, in the queue's order.
    assert_eq!(conflicts(2, 16..32, Access::Write, |token| token == 1), []);
    assert_eq!(conflicts(2, 24..40, Access::Write, |_| false), []);
    assert_eq!(conflicts(1, 16..32, Access::Write, |_| false), []);
    // Two that read never disagree.
    assert_eq!(conflicts(2, 40..48, Access::Read, |_| false), []);
    let late = (HazardKind::WriteAfterRead, 2, 40..41);
    assert_eq!(conflicts(2, 30..41, Access::Overwrite, |_| false), [late]);
}

#[test]
fn a_writer_stands_for_what_it_waited_for() {
    let mut buffer = buffer();
    for token in 0..100 {
        buffer
            .begin(token, place(1), 0..8, Access::Read)
            .expect("a range");
    }
    buffer
        .begin(100, place(1), 4..48, Access::Write)
        .expect("a range");
    assert_eq!(buffer.unfinished().count(), 101);
    buffer
        .begin(101, place(1), 0..48, Access::Write)
        .expect("a range");
    assert_eq!(buffer.unfinished().count(), 1);
    buffer.finished(101);
    assert_eq!(buffer.unfinished().count(), 0);
    // Each end of a range that is out of the buffer is told.
    let beyond = buffer.begin(1, place(1), 40..49, Access::Read);
    assert!(matches!(
        beyond,
        Err(MigrateError::OutOfRange { end: 49, .. })
    ));
}

#[test]
fn a_place_that_leaves_a_common_memory_leaves_its_commands_there() {
    let [one, other, alone] = [1, 2, 3].map(place);
    let mut buffer = Residency::new(100);
    buffer.share(one, other);
    buffer.begin(7, one, 0..60, Access::ReadWrite).unwrap();
    buffer.begin(8, alone, 0..60, Access::Read).unwrap();
    buffer.wrote(one, 0..60).unwrap();
    buffer.vacate(one).unwrap();
    let tokens = |at: Place| -> Vec<u64> {
        let hazards = buffer.hazards(at, 50..70, Access::Overwrite);
        hazards.map(|hazard| hazard.earlier.token).collect()
    };
    assert_eq!(tokens(other), [7]);
    assert_eq!(tokens(alone), [8]);
    // The next device there has memory of its own.
    assert_eq!(tokens(one), []);
    assert!(buffer.is_current(other, 0..60) && !buffer.is_current(one, 0..60));
}
