//! What the model holds against the planner: what commands see, what is moved, and what is known of each place.

use std::ops::Range;

use super::*;

impl Machine {
    /// A command sees the latest version at a place.
    pub(super) fn check_reads(&self, at: usize, range: Range<usize>) {
        for byte in range {
            if let Some(truth) = self.truth[byte] {
                let seen = self.values[self.memory[at]][byte];
                assert_eq!(seen, truth, "byte {byte} at place {at} is not the latest");
            }
        }
    }

    /// No place gets a byte twice, none but the host on the way gets an unwanted byte, and wanted bytes cost as much as
    /// the cheapest way.
    pub(super) fn check_minimal(&self, plan: &Plan, needs: impl Fn(usize, usize, &Self) -> bool) {
        for byte in 0..LEN {
            let here: Vec<&Step> = plan
                .steps
                .iter()
                .filter(|step| bytes(&step.range).contains(&byte))
                .collect();
            let holders = self.holders(byte);
            let missing: Vec<usize> = (0..PLACES)
                .filter(|&m| needs(byte, m, self) && !self.holds[m][byte])
                .filter(|_| self.truth[byte].is_some() && !holders.is_empty())
                .collect();
            let mut arrived = [0; PLACES];
            for step in &here {
                arrived[self.memory[step.to.index() as usize]] += 1;
            }
            let host = self.memory[0];
            for (memory, &arrived) in arrived.iter().enumerate() {
                let most = missing.contains(&memory)
                    || memory == host && here.iter().any(|step| step.from.is_host());
                assert!(
                    arrived <= usize::from(most),
                    "byte {byte} goes to memory {memory} for nothing"
                );
                assert!(!missing.contains(&memory) || arrived == 1);
            }
            let cost: u32 = here
                .iter()
                .map(|step| {
                    let (from, to) = (step.from.index() as usize, step.to.index() as usize);
                    self.wires.hop(from, to).expect("a wire")
                })
                .sum();
            let cheapest = |memory: usize| {
                let targets = (0..PLACES).filter(|&p| self.memory[p] == memory);
                targets
                    .flat_map(|to| holders.iter().map(move |&from| (from, to)))
                    .map(|(from, to)| self.wires.way(from, to).0)
                    .min()
                    .expect("a holder")
            };
            let alone: u32 = missing.iter().map(|&memory| cheapest(memory)).sum();
            assert!(cost <= alone, "byte {byte} costs {cost}, not {alone}");
            if missing.len() == 1 {
                assert_eq!(cost, alone);
            }
        }
    }

    pub(super) fn check_avoided(&self, plan: &Plan, wants: &[Want]) {
        let mut expected = Avoided::default();
        for byte in 0..LEN {
            for at in 0..PLACES {
                let mut here = wants
                    .iter()
                    .filter(|want| want.place == place(at) && bytes(&want.range).contains(&byte))
                    .peekable();
                if here.peek().is_none() {
                    continue;
                }
                if self.lost[byte] {
                    // Unread, or without a plan.
                    expected.overwritten += 1;
                } else if self.truth[byte].is_none() {
                    expected.undefined += 1;
                } else if self.holds[self.memory[at]][byte] {
                    expected.current += 1;
                } else if here.all(|want| want.access == Access::Overwrite) {
                    expected.overwritten += 1;
                }
            }
        }
        assert_eq!(plan.avoided, expected);
    }

    /// The residency and the model agree about every byte at every place.
    pub fn check(&self) {
        for byte in 0..LEN {
            for at in 0..PLACES {
                let range = byte as u64..byte as u64 + 1;
                let current = match self.truth[byte] {
                    None => !self.lost[byte],
                    Some(_) => self.holds[self.memory[at]][byte],
                };
                assert_eq!(
                    self.residency.is_current(place(at), range.clone()),
                    current,
                    "byte {byte} at place {at}"
                );
                let held = match self.seen[self.memory[at]][byte] {
                    None => Held::Nothing,
                    Some(_) if self.holds[self.memory[at]][byte] => Held::Current,
                    Some(seen) => {
                        let behind = self.version[byte] - seen;
                        Held::Behind(behind.min(15) as u8)
                    }
                };
                assert_eq!(self.residency.held(place(at), range), held);
            }
        }
        // Neighbours of which the same is to be told are one.
        let told: Vec<_> = self
            .residency
            .contents()
            .map(|(range, content)| {
                let held = |at| self.residency.held(place(at), range.clone());
                let held: Vec<Held> = (0..PLACES).map(held).collect();
                (range, content, held)
            })
            .collect();
        for pair in told.windows(2) {
            let apart = pair[0].0.end < pair[1].0.start;
            assert!(apart || (pair[0].1, &pair[0].2) != (pair[1].1, &pair[1].2));
        }
        assert_eq!(self.residency.counters().moved, self.moved);
    }
}
