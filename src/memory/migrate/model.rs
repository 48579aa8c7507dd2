//! A whole machine, simple-minded: an array of values for each memory, and plain loops over bytes. The model runs the
//! planner's decisions and panics on a wrong one, or on more copies than necessary.
//!
//! The model shares no decision with the planner. Every written value is a new one, so no wrong byte can look right,
//! and unwritten memory holds values that appear nowhere else.

use std::ops::Range;

use super::model_wires::Wires;
use super::*;

mod checks;

pub const LEN: usize = 48;
pub const PLACES: usize = 5;

/// A small generator (xorshift64*): chance is the same in every run.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

pub fn place(index: usize) -> Place {
    Place::new(index as u32).expect("a place")
}

fn bytes(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// The ranges of the bytes for which `is` holds.
pub fn ranges_of(is: impl Fn(usize) -> bool) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for byte in (0..LEN).filter(|&byte| is(byte)) {
        match ranges.last_mut() {
            Some(last) if last.end == byte as u64 => last.end += 1,
            _ => ranges.push(byte as u64..byte as u64 + 1),
        }
    }
    ranges
}

pub struct Machine {
    pub residency: Residency,
    routes: Routes,
    wires: Wires,
    /// The memory of each place; places may have the same.
    memory: Vec<usize>,
    values: Vec<Vec<u32>>,
    /// The latest content; `None` where undefined.
    truth: Vec<Option<u32>>,
    /// The memories with the version.
    holds: Vec<Vec<bool>>,
    lost: Vec<bool>,
    /// The version of each byte, and that which each memory has.
    version: Vec<u64>,
    seen: Vec<Vec<Option<u64>>>,
    next: u32,
    random: Random,
    pub moved: u64,
    /// The scheme of whole buffers: the latest version, and that of each memory.
    latest: u64,
    versions: Vec<u64>,
    pub whole_moved: u64,
    /// Bytes that came to their goal, and not only by.
    pub arrived: u64,
    /// Whether something happened that schemes of whole buffers cannot be compared in.
    pub broken: bool,
}

impl Machine {
    pub fn new(wires: Wires, shared: &[(usize, usize)], seed: u64) -> Self {
        let mut residency = Residency::new(LEN as u64);
        let mut memory: Vec<usize> = (0..PLACES).collect();
        for &(a, b) in shared {
            residency.share(place(a), place(b));
            let (from, to) = (memory[a], memory[b]);
            for memory in &mut memory {
                if *memory == from {
                    *memory = to;
                }
            }
        }
        let mut machine = Self {
            residency,
            routes: wires.routes(),
            wires,
            memory,
            values: vec![vec![0; LEN]; PLACES],
            truth: vec![None; LEN],
            holds: vec![vec![false; LEN]; PLACES],
            lost: vec![false; LEN],
            version: vec![0; LEN],
            seen: vec![vec![None; LEN]; PLACES],
            next: 0,
            random: Random(seed | 1),
            moved: 0,
            latest: 0,
            versions: vec![0; PLACES],
            whole_moved: 0,
            arrived: 0,
            broken: !shared.is_empty(),
        };
        for memory in 0..PLACES {
            machine.poison(memory, 0..LEN);
        }
        machine
    }

    fn value(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn poison(&mut self, memory: usize, range: Range<usize>) {
        for byte in range {
            self.values[memory][byte] = self.value();
            self.holds[memory][byte] = false;
            self.seen[memory][byte] = None;
        }
    }

    fn only_at(&self, memory: usize, byte: usize) -> bool {
        self.holds[memory][byte]
            && (0..PLACES).all(|other| other == memory || !self.holds[other][byte])
    }

    /// The places whose memory has the latest version of a byte.
    fn holders(&self, byte: usize) -> Vec<usize> {
        (0..PLACES)
            .filter(|&p| self.holds[self.memory[p]][byte])
            .collect()
    }

    /// Commands using ranges, all at once: all reads come before all writes.
    pub fn launch(&mut self, wants: &[Want]) {
        let before = self.residency.clone();
        let plan = self.residency.plan(wants, &self.routes);
        let needs = |byte: usize, memory: usize, machine: &Self| {
            wants.iter().any(|want| {
                want.access.needs_content()
                    && bytes(&want.range).contains(&byte)
                    && machine.memory[want.place.index() as usize] == memory
            })
        };
        let lost = ranges_of(|byte| self.lost[byte] && (0..PLACES).any(|m| needs(byte, m, self)));
        let plan = match plan {
            Err(MigrateError::Lost { ranges, .. }) => {
                assert_eq!(ranges, lost, "the lost bytes among those wanted");
                return;
            }
            Err(other) => panic!("{other}"),
            Ok(plan) => plan,
        };
        assert_eq!(lost, [], "lost bytes were not told");
        assert_eq!(
            before.contents().collect::<Vec<_>>(),
            self.residency.contents().collect::<Vec<_>>(),
            "planning changed something"
        );
        self.check_minimal(&plan, |byte, memory, machine| needs(byte, memory, machine));
        self.check_avoided(&plan, wants);
        self.run(&plan);
        self.whole_scheme(&plan, wants);
        let mut writers = wants.iter().filter(|want| want.access.writes());
        if let Some(first) = writers.next() {
            // A single version for each place cannot show the writes of several.
            self.broken |= writers.any(|other| other.place != first.place);
        }
        self.residency.commit(&plan).expect("a fresh plan");
        for want in wants.iter().filter(|want| want.access.needs_content()) {
            self.check_reads(want.place.index() as usize, bytes(&want.range));
        }
        for want in wants.iter().filter(|want| want.access.writes()) {
            self.write(want);
        }
    }

    fn write(&mut self, want: &Want) {
        let at = want.place.index() as usize;
        let memory = self.memory[at];
        let mut told = want.range.clone();
        let all = want.access == Access::Overwrite;
        if at == 0 && !all {
            // The host knows the touched part, and reports no more.
            let some = self
                .random
                .below(told.end as usize - told.start as usize + 1) as u64;
            told.end = told.start + some;
        }
        for byte in bytes(&told) {
            if all || self.random.below(2) == 0 {
                self.values[memory][byte] = self.value();
            }
            // Bytes not written by the command stay: content, even where undefined.
            self.truth[byte] = Some(self.values[memory][byte]);
            self.lost[byte] = false;
            // A version held nowhere else is as if never written.
            if !self.only_at(memory, byte) {
                self.version[byte] += 1;
            }
            self.seen[memory][byte] = Some(self.version[byte]);
            for other in 0..PLACES {
                self.holds[other][byte] = other == memory;
            }
        }
        self.residency
            .wrote(want.place, told.clone())
            .expect("a range");
        if !told.is_empty() {
            self.latest += 1;
            self.versions[memory] = self.latest;
        }
    }

    /// Runs the copies in any order allowed by their dependencies.
    fn run(&mut self, plan: &Plan) {
        let mut left: Vec<usize> = (0..plan.steps.len()).collect();
        let mut done = vec![false; plan.steps.len()];
        for (index, step) in plan.steps.iter().enumerate() {
            assert!(step.after.is_none_or(|after| after < index));
        }
        while !left.is_empty() {
            let ready: Vec<usize> = (0..left.len())
                .filter(|&i| plan.steps[left[i]].after.is_none_or(|after| done[after]))
                .collect();
            let chosen = ready[self.random.below(ready.len())];
            let index = left.remove(chosen);
            done[index] = true;
            let step = &plan.steps[index];
            assert!(!step.range.is_empty(), "an empty copy");
            let (from, to) = (step.from.index() as usize, step.to.index() as usize);
            assert!(
                self.wires.hop(from, to).is_some(),
                "no wire from {from} to {to}"
            );
            let (from, to) = (self.memory[from], self.memory[to]);
            if let Why::Wanted { at, .. } = step.why
                && to == self.memory[at.index() as usize]
            {
                self.arrived += step.bytes();
            }
            for byte in bytes(&step.range) {
                assert!(self.holds[from][byte], "byte {byte} is not at its source");
                assert!(!self.holds[to][byte], "byte {byte} is there already");
                self.values[to][byte] = self.values[from][byte];
                self.holds[to][byte] = true;
                self.seen[to][byte] = Some(self.version[byte]);
                self.moved += 1;
            }
        }
    }

    /// A single version for each place, and buffers moving whole.
    fn whole_scheme(&mut self, plan: &Plan, wants: &[Want]) {
        let mut moved = 0;
        for want in wants.iter().filter(|want| !want.range.is_empty()) {
            let at = self.memory[want.place.index() as usize];
            let all = want.access == Access::Overwrite && want.range == (0..LEN as u64);
            if all || self.versions[at] == self.latest || self.broken {
                continue;
            }
            let (_, hops) = (0..PLACES)
                .filter(|&from| self.versions[from] == self.latest)
                .map(|from| self.wires.way(from, at))
                .min_by_key(|way| way.0)
                .expect("a source");
            moved += hops * LEN as u64;
            self.versions[at] = self.latest;
            if hops == 2 {
                self.versions[0] = self.latest;
            }
        }
        self.whole_moved += moved;
        if !self.broken {
            assert_eq!(plan.whole_buffer, moved, "bytes of whole buffers");
        }
    }

    pub fn discard(&mut self, range: Range<u64>) {
        self.residency.discard(range.clone()).expect("a range");
        for byte in bytes(&range) {
            self.truth[byte] = None;
            self.lost[byte] = false;
            for memory in 0..PLACES {
                self.holds[memory][byte] = false;
                self.seen[memory][byte] = None;
            }
        }
        // A scheme of whole buffers learns nothing from this, unless all is gone.
        if self.truth.iter().all(Option::is_none) && !self.lost.contains(&true) {
            self.latest = 0;
            self.versions.fill(0);
        }
    }

    fn lose(&mut self, memory: usize, range: Range<usize>) -> Vec<Range<u64>> {
        let lost = ranges_of(|byte| range.contains(&byte) && self.only_at(memory, byte));
        for byte in lost.iter().flat_map(bytes) {
            self.lost[byte] = true;
            self.truth[byte] = None;
        }
        self.poison(memory, range);
        self.broken = true;
        lost
    }

    /// A device is lost, and another takes its place.
    pub fn lose_device(&mut self, device: usize) {
        let told = self.residency.lost(place(device));
        let memory = self.memory[device];
        if (0..PLACES).any(|other| other != device && self.memory[other] == memory) {
            // Others still have the memory. The new device has another.
            assert_eq!(told, [], "nothing is lost with memory that others have");
            let vacant = (0..PLACES).find(|m| !self.memory.contains(m));
            self.memory[device] = vacant.expect("as many memories as places");
            self.poison(self.memory[device], 0..LEN);
            self.broken = true;
            return;
        }
        assert_eq!(told, self.lose(memory, 0..LEN));
    }

    /// A copy to a place fails.
    pub fn fail(&mut self, at: usize, range: Range<u64>) {
        let told = self.residency.failed(place(at), range.clone());
        let told = told.expect("a range");
        assert_eq!(told, self.lose(self.memory[at], bytes(&range)));
    }

    pub fn evict(&mut self, at: usize) {
        let memory = self.memory[at];
        let clean = ranges_of(|byte| self.holds[memory][byte] && !self.only_at(memory, byte));
        let only = ranges_of(|byte| self.only_at(memory, byte));
        let host = memory == self.memory[0];
        let eviction = self.residency.evictable(place(at), &self.routes);
        assert_eq!(eviction.clean, clean);
        assert_eq!(eviction.kept, if host { only.clone() } else { Vec::new() });
        let copied = ranges_of(|byte| {
            let mut steps = eviction.plan.steps.iter();
            steps.any(|step| bytes(&step.range).contains(&byte))
        });
        assert_eq!(copied, if host { Vec::new() } else { only.clone() });
        if !only.is_empty() {
            let refused = self.residency.evicted(place(at), 0..LEN as u64);
            let ranges = only.clone();
            let place = place(at);
            assert_eq!(refused, Err(MigrateError::OnlyCopy { place, ranges }));
        }
        if host && !only.is_empty() {
            return;
        }
        self.run(&eviction.plan);
        self.residency.commit(&eviction.plan).expect("a fresh plan");
        let evicted = self.residency.evicted(place(at), 0..LEN as u64);
        evicted.expect("nothing is only there");
        self.poison(memory, 0..LEN);
        self.broken = true;
    }

    /// A place is given to another device: what is only there comes to the host first, and losses are told elsewhere.
    pub fn vacate(&mut self, at: usize) {
        let memory = self.memory[at];
        let is_shared = (0..PLACES).any(|other| other != at && self.memory[other] == memory);
        if !is_shared {
            let ranges = ranges_of(|byte| self.only_at(memory, byte));
            if !ranges.is_empty() {
                let place = place(at);
                let refused = self.residency.vacate(place);
                assert_eq!(refused, Err(MigrateError::OnlyCopy { place, ranges }));
            }
            self.evict(at);
        }
        let ranges = self.residency.losses_at(place(at));
        if !ranges.is_empty() {
            let (one, other) = (place(at), place(at % (PLACES - 1) + 1));
            let told = MigrateError::Lost {
                place: one,
                ranges: ranges.clone(),
            };
            assert_eq!(self.residency.vacate(one), Err(told));
            self.residency.rename_losses(one, other);
            for byte in ranges.into_iter().flatten() {
                let mut told = self.residency.contents();
                let is_other = |(range, content): (Range<u64>, Content)| {
                    range.contains(&byte) && content == Content::Lost(other)
                };
                assert!(told.any(is_other), "byte {byte}");
            }
        }
        self.residency.vacate(place(at)).expect("nothing is there");
        if is_shared {
            let vacant = (0..PLACES).find(|m| !self.memory.contains(m));
            self.memory[at] = vacant.expect("as many memories as places");
        }
        self.poison(self.memory[at], 0..LEN);
        assert_eq!(self.residency.memory_of(place(at)), Places::of(place(at)));
        assert_eq!(self.residency.held(place(at), 0..LEN as u64), Held::Nothing);
        self.broken = true;
    }
}
