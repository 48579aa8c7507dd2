//! Taking a frame away, in every order of steps: the host gives a frame to two pages in turn, while an invocation reads
//! or writes the first page.
//!
//! The model has a single order of steps. The head of the parent module argues why processors and compilers keep this
//! order.

use std::collections::HashSet;

/// The rules; the model can leave out each rule.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// An invocation looks at the place again behind its access.
    looks_again: bool,
    /// An invocation marks the frame as written before the second look, and the host looks at the mark behind the
    /// place.
    marks_first: bool,
    /// A page's place differs each time the page comes.
    generations: bool,
}

const ALL: Rules = Rules {
    looks_again: true,
    marks_first: true,
    generations: true,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Lane {
    Begins,
    /// Has found this place.
    Found(u32),
    /// Has also loaded the word of this page, or has marked the frame.
    Accessed(u32, usize),
    /// May write.
    Takes,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Host {
    Begins,
    /// Has taken back the place with this word.
    TookBack(u32),
    /// The frame is free.
    Free,
    /// The frame has the words of the other page.
    Filled,
    /// The page stays.
    Kept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct World {
    /// The places of the two pages.
    places: [u32; 2],
    /// The page whose words are in the frame.
    words: usize,
    is_written: bool,
    generation: u32,
    /// The page that has the frame.
    owner: usize,
    swaps: u32,
    lane: Lane,
    host: Host,
}

impl World {
    fn new() -> Self {
        Self {
            places: [1, 0],
            words: 0,
            is_written: false,
            generation: 1,
            owner: 0,
            swaps: 0,
            lane: Lane::Begins,
            host: Host::Begins,
        }
    }

    /// A step of the host; `None` where no step is left.
    fn host(mut self, rules: Rules) -> Option<Self> {
        let (old, new) = (self.owner, 1 - self.owner);
        self.host = match self.host {
            Host::Begins if self.swaps == 3 => return None,
            Host::Begins if self.is_written => Host::Kept,
            Host::Begins => Host::TookBack(std::mem::take(&mut self.places[old])),
            Host::TookBack(place) if self.is_written => {
                self.places[old] = place;
                Host::Kept
            }
            Host::TookBack(_) => Host::Free,
            Host::Free => {
                self.words = new;
                Host::Filled
            }
            Host::Filled => {
                self.generation += u32::from(rules.generations);
                self.places[new] = self.generation;
                (self.owner, self.swaps) = (new, self.swaps + 1);
                Host::Begins
            }
            Host::Kept => return None,
        };
        Some(self)
    }

    /// A step of an invocation that reads or writes page 0; an error where the invocation takes words of page 1 for
    /// words of page 0.
    fn lane(mut self, rules: Rules, writes: bool) -> Result<Option<Self>, Self> {
        self.lane = match self.lane {
            Lane::Begins if self.places[0] == 0 => return Ok(None),
            Lane::Begins => Lane::Found(self.places[0]),
            Lane::Found(place) if writes && rules.marks_first => {
                self.is_written = true;
                Lane::Accessed(place, 0)
            }
            Lane::Found(place) => Lane::Accessed(place, self.words),
            Lane::Accessed(place, _) if rules.looks_again && self.places[0] != place => {
                Lane::Begins
            }
            Lane::Accessed(..) if writes => Lane::Takes,
            Lane::Accessed(_, 0) => Lane::Ended,
            Lane::Accessed(..) => return Err(self),
            Lane::Takes if self.words != 0 => return Err(self),
            Lane::Takes => {
                self.is_written = true;
                Lane::Ended
            }
            // The written frame stays with its page.
            Lane::Ended if writes && self.words != 0 => return Err(self),
            Lane::Ended => return Ok(None),
        };
        Ok(Some(self))
    }
}

/// Walks through all orders of steps; returns the wrong worlds.
fn wrong(rules: Rules, writes: bool) -> Vec<World> {
    let (mut seen, mut left, mut found) = (HashSet::new(), vec![World::new()], Vec::new());
    while let Some(world) = left.pop() {
        if !seen.insert(world) {
            continue;
        }
        left.extend(world.host(rules));
        match world.lane(rules, writes) {
            Ok(next) => left.extend(next),
            Err(world) => found.push(world),
        }
    }
    // An invocation ends, somewhere.
    assert!(seen.iter().any(|world| world.lane == Lane::Ended));
    found
}

#[test]
fn no_invocation_takes_another_page_for_its_own() {
    for writes in [false, true] {
        assert_eq!(wrong(ALL, writes), []);
    }
}

/// Each rule is needed.
#[test]
fn without_a_rule_an_invocation_errs() {
    let blind = Rules {
        looks_again: false,
        ..ALL
    };
    let late = Rules {
        marks_first: false,
        ..ALL
    };
    let same = Rules {
        generations: false,
        ..ALL
    };
    assert!(!wrong(blind, false).is_empty() && !wrong(blind, true).is_empty());
    assert!(!wrong(late, true).is_empty());
    assert!(!wrong(same, false).is_empty());
}
