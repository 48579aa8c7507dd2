//! The ledger against a model of a queue in which everything that may go wrong does: refused submissions, callbacks
//! that submit, threads asking in between, wgpu calling a device lost whose kernels run on, and drivers giving devices
//! up. Every sequence of steps up to a length is tried, and long ones at random.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{End, Ledger};

/// The reports to a ledger from a runtime with a wrong notion of an end. Each has to be caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// A refused submission is over at once.
    RefusedIsOver,
    /// wgpu's word that the device is lost is taken for the driver's.
    LostIsDead,
    /// A marker stands for the submission about to be made.
    ClaimsGiven,
    /// The marker is registered in front of its submission.
    MarksBefore,
    /// Nothing is registered behind a refused submission.
    LeavesRefused,
}

const MUTANTS: [Mutant; 5] = [
    Mutant::RefusedIsOver,
    Mutant::LostIsDead,
    Mutant::ClaimsGiven,
    Mutant::MarksBefore,
    Mutant::LeavesRefused,
];

/// A step of a participant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The submitter gives a number, and calls wgpu.
    Begin,
    /// The driver gets the commands.
    Accept,
    /// wgpu refuses them.
    Refuse,
    /// A callback in the call submits, in one go.
    Nested,
    /// The call returns, and the submitter notes the return.
    Return,
    /// Another thread registers a marker.
    Prove,
    /// The device ends the oldest submission.
    End,
    /// wgpu is asked, and lets go of markers.
    Poll,
    /// wgpu calls the device lost, while kernels run on.
    Lose,
    /// The driver gives the device up, and a thread notices.
    Die,
}

const STEPS: [Step; 10] = [
    Step::Begin,
    Step::Accept,
    Step::Refuse,
    Step::Nested,
    Step::Return,
    Step::Prove,
    Step::End,
    Step::Poll,
    Step::Lose,
    Step::Die,
];

/// The submission whose call has not returned.
#[derive(Clone, Copy)]
struct Call {
    number: u64,
    /// Whether wgpu has decided, and how.
    accepted: Option<bool>,
}

#[derive(Default)]
struct Model {
    ledger: Ledger,
    /// Numbers that the driver has got, in order.
    accepted: Vec<u64>,
    /// How many of them have ended by themselves.
    ended: usize,
    call: Option<Call>,
    /// The number claimed by each marker, and the accepted submissions before.
    markers: Vec<(u64, usize)>,
    /// Numbers whose calls have returned.
    returned: Vec<u64>,
    is_dead: bool,
}

impl Model {
    fn mark(&mut self, claim: u64) {
        self.markers.push((claim, self.accepted.len()));
    }

    fn note(&mut self, number: u64, accepted: bool, mutant: Option<Mutant>) {
        self.ledger.sent(number);
        self.returned.push(number);
        match mutant {
            Some(Mutant::RefusedIsOver) if !accepted => self.ledger.ended(number),
            Some(Mutant::LeavesRefused) if !accepted => {}
            Some(Mutant::MarksBefore) => {}
            _ => self.mark(number),
        }
    }

    /// Takes a step; false for a senseless one.
    fn step(&mut self, step: Step, mutant: Option<Mutant>) -> bool {
        match (step, self.call) {
            (Step::Begin, None) => {
                let number = self.ledger.give();
                if mutant == Some(Mutant::MarksBefore) {
                    self.mark(number);
                }
                let accepted = None;
                self.call = Some(Call { number, accepted });
            }
            (Step::Accept, Some(call)) if call.accepted.is_none() && !self.is_dead => {
                self.accepted.push(call.number);
                self.call = Some(Call {
                    accepted: Some(true),
                    ..call
                });
            }
            (Step::Refuse, Some(call)) if call.accepted.is_none() => {
                self.call = Some(Call {
                    accepted: Some(false),
                    ..call
                });
            }
            // wgpu runs callbacks behind a submission that has reached the driver.
            (Step::Nested, Some(call)) if call.accepted == Some(true) && !self.is_dead => {
                let number = self.ledger.give();
                self.accepted.push(number);
                self.note(number, true, mutant);
            }
            (Step::Return, Some(call)) if call.accepted.is_some() => {
                self.call = None;
                self.note(call.number, call.accepted == Some(true), mutant);
            }
            (Step::Prove, _) => {
                let claim = match mutant {
                    Some(Mutant::ClaimsGiven) => self.ledger.given.lock().last,
                    _ => self.ledger.claim(),
                };
                self.mark(claim);
            }
            (Step::End, _) if self.ended < self.accepted.len() && !self.is_dead => self.ended += 1,
            (Step::Poll, _) if !self.is_dead => {
                let ended = self.ended;
                let ledger = &self.ledger;
                self.markers.retain(|&(claim, before)| {
                    let stays = before > ended;
                    if !stays {
                        ledger.ended(claim);
                    }
                    stays
                });
            }
            (Step::Lose, _) => {
                if mutant == Some(Mutant::LostIsDead) {
                    self.ledger.died();
                }
            }
            (Step::Die, _) if !self.is_dead => {
                self.is_dead = true;
                self.ledger.died();
            }
            _ => return false,
        }
        true
    }

    /// Whether something up to this number runs, or may yet.
    fn runs(&self, number: u64) -> bool {
        let running = &self.accepted[self.ended..];
        let undecided =
            (self.call).is_some_and(|call| call.number <= number && call.accepted.is_none());
        !self.is_dead && (undecided || running.iter().any(|&one| one <= number))
    }

    /// The numbers with a wrong answer of the ledger.
    fn wrong(&self) -> Option<u64> {
        let has_ended_well = |number: u64| {
            let running = &self.accepted[self.ended..];
            !running.iter().any(|&one| one <= number)
        };
        self.returned.iter().copied().find(|&number| {
            let end = self.ledger.end(number);
            end.is_some() && self.runs(number)
                || end == Some(End::Run) && !has_ended_well(number)
                || end == Some(End::Lost) && !self.is_dead
        })
    }

    /// Everything ends, and wgpu is asked: the numbers that the ledger still takes for running.
    fn left(mut self) -> Option<u64> {
        if let Some(call) = self.call {
            if call.accepted.is_none() {
                self.step(Step::Refuse, None);
            }
            self.step(Step::Return, None);
        }
        while self.step(Step::End, None) {}
        self.step(Step::Poll, None);
        let over = |number: u64| self.ledger.end(number).is_some();
        (self.returned.iter().copied()).find(|&number| !over(number))
    }
}

/// The fault in a sequence of steps; `None` also where one makes no sense.
fn fault(steps: &[Step], mutant: Option<Mutant>) -> Option<u64> {
    let mut model = Model::default();
    for &step in steps {
        if !model.step(step, mutant) {
            return None;
        }
        if let Some(number) = model.wrong() {
            return Some(number);
        }
    }
    model.left()
}

/// All sequences that make sense, up to `most` steps.
fn explore(most: usize, mutant: Option<Mutant>, found: &mut dyn FnMut(&[Step])) {
    let mut open = vec![Vec::new()];
    while let Some(steps) = open.pop() {
        for step in STEPS {
            let mut next: Vec<Step> = steps.clone();
            next.push(step);
            let mut model = Model::default();
            if !next.iter().all(|&step| model.step(step, mutant)) {
                continue;
            }
            if fault(&next, mutant).is_some() {
                found(&next);
            } else if next.len() < most {
                open.push(next);
            }
        }
    }
}

#[test]
fn nothing_is_taken_for_ended_that_runs_in_any_short_sequence() {
    explore(7, None, &mut |steps| panic!("{steps:?}"));
}

#[test]
fn each_mutant_is_caught_by_a_short_sequence() {
    for mutant in MUTANTS {
        let mut caught = 0;
        explore(6, Some(mutant), &mut |_| caught += 1);
        assert!(caught > 0, "{mutant:?}");
    }
}

#[test]
fn nothing_is_taken_for_ended_that_runs_in_long_sequences() {
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    for _ in 0..2000 {
        let mut model = Model::default();
        for _ in 0..200 {
            // Devices seldom die.
            let step = match STEPS[random(STEPS.len())] {
                Step::Die if random(50) > 0 => continue,
                step => step,
            };
            model.step(step, None);
            assert_eq!(model.wrong(), None);
        }
        assert_eq!(model.left(), None);
    }
}

#[test]
fn what_was_never_given_a_number_is_not_over() {
    let ledger = Ledger::default();
    ledger.died();
    assert_eq!([ledger.end(0), ledger.end(1)], [None, Some(End::Lost)]);
}

/// A submission ending during a question has not been lost: the answer is a single look, not two.
#[test]
fn what_ends_while_others_ask_is_not_lost() {
    const SUBMISSIONS: u64 = 20_000;
    let (ledger, asked) = (Ledger::default(), AtomicU64::new(0));
    let mut lost = 0;
    std::thread::scope(|scope| {
        // Each ends at some point during a question, whichever point that is.
        scope.spawn(|| {
            for number in 1..=SUBMISSIONS {
                while asked.load(Ordering::Acquire) < number {
                    std::thread::yield_now();
                }
                ledger.ended(number);
            }
        });
        // Counted, for an assertion here would leave the other thread waiting.
        for number in 1..=SUBMISSIONS {
            asked.store(number, Ordering::Release);
            let end = loop {
                match ledger.end(number) {
                    None => std::hint::spin_loop(),
                    Some(end) => break end,
                }
            };
            lost += u64::from(end == End::Lost);
        }
    });
    assert_eq!(lost, 0);
}
