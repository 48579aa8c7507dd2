//! Which copies a command needs.
//!
//! A plan is a pure function of wants, residency and routes, and carries the stamp of the residency's state:
//! committing a plan to another state is refused.
//!
//! - **A kernel that writes** is known by its bindings, not by addresses. So the bound bytes must be current first,
//!   and all of them are the new version afterwards. Only `Overwrite`, a promise of the program, spares the copy.
//! - **Sources by cost.** Places that miss the same bytes are served one after the other, each time by the cheapest
//!   hop from any place that is current by then, so one export serves many. The host keeps bytes that pass through the
//!   host, until told to let go. Only the host is a relay: going around by a third device is not looked for, since
//!   devices that can copy directly are groups in which each device can.
//! - **Copies that wait for one another** are cut at multiples of the chunk, so each waits for one earlier copy and
//!   hops overlap. Other copies stay whole, however many ranges their bytes came from.

use std::ops::Range;

use smallvec::SmallVec;

use super::extent::Held;
use super::residency::{Residency, clip, push};
use super::routes::{Route, Routes, Way};
use super::{Access, MigrateError, Place, Places, Want};

/// Why a copy is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// A command uses the bytes somewhere. The target of the copy, or of a copy waiting for it.
    Wanted {
        /// Where the command is.
        at: Place,
        /// The command's use of the bytes.
        access: Access,
        /// The place's version instead of the latest.
        held: Held,
    },
    /// The memory of a place is to be given up, and the bytes are nowhere else.
    Evicted {
        /// The place.
        from: Place,
    },
}

/// One copy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// Where the bytes are read.
    pub from: Place,
    /// Their target. Its memory is current there from then on, the host's too.
    pub to: Place,
    /// Bytes of the root buffer, any that are needed: neither end need be aligned.
    pub range: Range<u64>,
    /// Their way. [`Route::ThroughHost`] is a single hop here: an end is the host.
    pub route: Route,
    /// Their purpose.
    pub why: Why,
    /// The earlier step of the plan, by its index, that brings these bytes to this step's source.
    pub after: Option<usize>,
}

impl Step {
    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// Bytes that were wanted at places and need not be copied, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Avoided {
    /// The place has them.
    pub current: u64,
    /// Never written, or discarded.
    pub undefined: u64,
    /// The command overwrites the bytes, absent from the place.
    pub overwritten: u64,
}

impl Avoided {
    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.current
            .saturating_add(self.undefined)
            .saturating_add(self.overwritten)
    }
}

/// The copies needed by commands, in an order possible step by step.
///
/// A plan that needs none allocates nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The copies. Those through the host alternate by chunks.
    pub steps: Vec<Step>,
    /// Bytes not to be copied.
    pub avoided: Avoided,
    /// Bytes moved by a scheme that always moves whole buffers, with a single version for each place.
    pub whole_buffer: u64,
    /// Who would be current then.
    pub(super) whole: Places,
    pub(super) stamp: u64,
}

impl Plan {
    pub(super) fn empty(residency: &Residency) -> Self {
        Self {
            steps: Vec::new(),
            avoided: Avoided::default(),
            whole_buffer: 0,
            whole: residency.whole,
            stamp: residency.stamp,
        }
    }

    /// Bytes copied by its steps; on the way through the host each byte counts twice, once for each hop.
    #[must_use]
    pub fn moved(&self) -> u64 {
        let bytes = self.steps.iter().map(Step::bytes);
        bytes.fold(0, u64::saturating_add)
    }
}

/// Counts of copied and avoided bytes for a buffer, since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Bytes copied, each hop counted.
    pub moved: u64,
    /// Copies made.
    pub steps: u64,
    /// Bytes that needed no copy.
    pub avoided: Avoided,
    /// Bytes that a scheme of whole buffers, with a single version for each place, would have moved.
    pub whole_buffer: u64,
}

impl Counters {
    pub(crate) fn add(&mut self, plan: &Plan) {
        count(&mut self.moved, plan.moved(), 1);
        count(&mut self.steps, plan.steps.len() as u64, 1);
        count(&mut self.avoided.current, plan.avoided.current, 1);
        count(&mut self.avoided.undefined, plan.avoided.undefined, 1);
        count(&mut self.avoided.overwritten, plan.avoided.overwritten, 1);
        count(&mut self.whole_buffer, plan.whole_buffer, 1);
    }
}

/// Counts bytes a number of times. Buffers of absurd lengths must not overflow a counter.
fn count(counter: &mut u64, bytes: u64, times: u32) {
    *counter = counter.saturating_add(bytes.saturating_mul(u64::from(times)));
}

impl Residency {
    /// The copies that must come before commands using these ranges. Nothing changes.
    ///
    /// Wants may overlap, and be at several places: all see the current contents, so no want reads the writes of
    /// another.
    ///
    /// # Errors
    ///
    /// [`MigrateError::OutOfRange`], and [`MigrateError::Lost`] if bytes whose content is needed were lost.
    pub fn plan(&self, wants: &[Want], routes: &Routes) -> Result<Plan, MigrateError> {
        let mut planner = Planner::new(self, routes);
        match wants {
            [want] => {
                self.check(&want.range)?;
                planner.piece(want.range.clone(), wants);
            }
            _ => {
                // Between two neighbouring ends of wants, the same places want the bytes.
                let mut ends: SmallVec<[u64; 16]> = SmallVec::new();
                for want in wants {
                    self.check(&want.range)?;
                    ends.extend([want.range.start, want.range.end]);
                }
                ends.sort_unstable();
                for pair in ends.windows(2) {
                    planner.piece(pair[0]..pair[1], wants);
                }
            }
        }
        planner.count_whole(wants);
        match planner.lost_with {
            Some(place) => Err(MigrateError::Lost {
                place,
                ranges: planner.lost,
            }),
            None => Ok(planner.plan),
        }
    }
}

/// A copy of a solution for bytes at the same places and wanted at the same places.
#[derive(Debug, Clone, Copy)]
struct Move {
    from: Place,
    to: Place,
    route: Route,
    /// The place that wants the bytes.
    at: Place,
    /// The move bringing the bytes to `from`.
    after: Option<usize>,
}

type Moves = SmallVec<[Move; 4]>;

/// How many answers a planner remembers. Beyond, asking again is no dearer than looking through them.
const MOST_SOLVED: usize = 8;

pub(super) struct Planner<'a> {
    residency: &'a Residency,
    routes: &'a Routes,
    plan: Plan,
    lost: Vec<Range<u64>>,
    lost_with: Option<Place>,
    /// Questions and answers: the places with bytes, the places without, and the copies. Ranges often alternate between
    /// few of them.
    solved: SmallVec<[(Places, Places, Moves); 2]>,
    /// The steps made for the bytes just before, which can be made longer.
    previous: SmallVec<[usize; 4]>,
    previous_cut: bool,
}

impl<'a> Planner<'a> {
    pub(super) fn new(residency: &'a Residency, routes: &'a Routes) -> Self {
        Self {
            residency,
            routes,
            plan: Plan::empty(residency),
            lost: Vec::new(),
            lost_with: None,
            solved: SmallVec::new(),
            previous: SmallVec::new(),
            previous_cut: false,
        }
    }

    pub(super) fn finish(self) -> Plan {
        self.plan
    }

    /// Plans bytes that each want has all of or none.
    fn piece(&mut self, range: Range<u64>, wants: &[Want]) {
        if range.is_empty() {
            return;
        }
        let here = |want: &&Want| want.range.start < range.end && range.start < want.range.end;
        let mut needed = Places::EMPTY;
        let mut wanted = Places::EMPTY;
        for want in wants.iter().filter(here) {
            wanted.insert(want.place);
            if want.access.needs_content() {
                needed.insert(want.place);
            }
        }
        if wanted.is_empty() {
            return;
        }
        let mut defined = 0;
        for (part, extent) in self.residency.extents.overlapping(range.clone()) {
            let part = clip(part, &range);
            let bytes = part.end - part.start;
            defined += bytes;
            if let (Some(place), false) = (extent.lost, needed.is_empty()) {
                self.lost_with.get_or_insert(place);
                push(&mut self.lost, part);
                continue;
            }
            let current = wanted.common(extent.current);
            let missing = needed.without(extent.current);
            let rest = wanted.without(current).without(missing);
            count(&mut self.plan.avoided.current, bytes, current.len());
            count(&mut self.plan.avoided.overwritten, bytes, rest.len());
            if !missing.is_empty() {
                self.copy(part, extent.current, missing, &|at| Why::Wanted {
                    at,
                    access: wants
                        .iter()
                        .filter(here)
                        .filter(|want| want.place == at && want.access.needs_content())
                        .map(|want| want.access)
                        .reduce(Access::and)
                        .unwrap_or(Access::Read),
                    held: extent.held(at),
                });
            }
        }
        let undefined = range.end - range.start - defined;
        count(&mut self.plan.avoided.undefined, undefined, wanted.len());
    }

    /// Adds the steps that bring bytes from their places to all places missing them.
    pub(super) fn copy(
        &mut self,
        range: Range<u64>,
        have: Places,
        missing: Places,
        why: &dyn Fn(Place) -> Why,
    ) {
        let known = self
            .solved
            .iter()
            .find(|known| (known.0, known.1) == (have, missing));
        let moves = match known {
            Some(known) => Moves::from_slice(&known.2),
            None => {
                let moves = self.solve(have, missing);
                if self.solved.len() >= MOST_SOLVED {
                    self.solved.clear();
                }
                self.solved.push((have, missing, moves.clone()));
                moves
            }
        };
        // Copies waiting for each other go chunk by chunk, and so can overlap.
        let cut = moves.iter().any(|step| step.after.is_some()) && self.routes.chunk() > 0;
        let chunk = if cut { self.routes.chunk() } else { u64::MAX };
        let mut start = range.start;
        while start < range.end {
            let end = (start / chunk + 1).saturating_mul(chunk).min(range.end);
            self.emit(start..end, &moves, cut, why);
            start = end;
        }
    }

    /// The cheapest copies, place by place: each source has the bytes by then.
    fn solve(&self, have: Places, missing: Places) -> Moves {
        let mut moves = Moves::new();
        let mut have = have;
        let mut missing = missing;
        while !missing.is_empty() {
            // A place gets the bytes of any place with the same memory.
            let targets: Places = missing
                .iter()
                .map(|place| self.residency.memory_of(place))
                .fold(Places::EMPTY, Places::union);
            let Some(way) = self.routes.best(have, targets) else {
                break;
            };
            let memory = self.residency.memory_of(way.to);
            let at = missing.common(memory).iter().next().unwrap_or(way.to);
            self.add(&mut moves, way, at);
            for step in &moves {
                have = have.union(self.residency.memory_of(step.to));
            }
            missing = missing.without(have);
        }
        moves
    }

    fn add(&self, moves: &mut Moves, way: Way, at: Place) {
        let brought = |place: Place| {
            moves
                .iter()
                .position(|step| self.residency.memory_of(step.to).contains(place))
        };
        let after = brought(way.from);
        if way.hops() == 1 {
            moves.push(Move {
                from: way.from,
                to: way.to,
                route: way.route,
                at,
                after,
            });
            return;
        }
        let host = Place::HOST;
        let export = moves.len();
        moves.push(Move {
            from: way.from,
            to: host,
            route: self.routes.host_route(way.from, host),
            at,
            after,
        });
        moves.push(Move {
            from: host,
            to: way.to,
            route: self.routes.host_route(host, way.to),
            at,
            after: Some(export),
        });
    }

    fn emit(&mut self, range: Range<u64>, moves: &[Move], cut: bool, why: &dyn Fn(Place) -> Why) {
        let joins =
            self.previous_cut == cut && !(cut && range.start.is_multiple_of(self.routes.chunk()));
        let mut made: SmallVec<[usize; 4]> = SmallVec::new();
        for step in moves {
            let after = step.after.map(|earlier| made[earlier]);
            let why = why(step.at);
            let longer = self.previous.iter().copied().find(|&index| {
                let old = &self.plan.steps[index];
                joins
                    && old.range.end == range.start
                    && (old.from, old.to, old.route, old.after)
                        == (step.from, step.to, step.route, after)
                    && old.why.and(why).is_some()
            });
            made.push(match longer {
                Some(index) => {
                    let old = &mut self.plan.steps[index];
                    old.range.end = range.end;
                    old.why = old.why.and(why).unwrap_or(why);
                    index
                }
                None => {
                    self.plan.steps.push(Step {
                        from: step.from,
                        to: step.to,
                        range: range.clone(),
                        route: step.route,
                        why,
                        after,
                    });
                    self.plan.steps.len() - 1
                }
            });
        }
        self.previous = made;
        self.previous_cut = cut;
    }

    /// The result of a scheme with a single version for each place and buffer.
    fn count_whole(&mut self, wants: &[Want]) {
        let len = self.residency.len();
        for want in wants.iter().filter(|want| !want.range.is_empty()) {
            let overwrites = !want.access.needs_content() && want.range == (0..len);
            let plan = &mut self.plan;
            if overwrites || plan.whole.is_empty() || plan.whole.contains(want.place) {
                continue;
            }
            let targets = self.residency.memory_of(want.place);
            let Some(way) = self.routes.best(plan.whole, targets) else {
                continue;
            };
            count(&mut plan.whole_buffer, len, way.hops());
            plan.whole = plan.whole.union(self.residency.memory_of(way.to));
            if way.hops() > 1 {
                plan.whole = plan.whole.union(self.residency.memory_of(Place::HOST));
            }
        }
    }
}

impl Why {
    /// The joint reason of two copies that are joined, if made for the same place.
    pub(super) fn and(self, other: Self) -> Option<Self> {
        match (self, other) {
            (
                Self::Wanted { at, access, held },
                Self::Wanted {
                    at: other_at,
                    access: other_access,
                    held: other_held,
                },
            ) if at == other_at => Some(Self::Wanted {
                at,
                access: access.and(other_access),
                held: held.and(other_held),
            }),
            (Self::Evicted { from }, Self::Evicted { from: other }) if from == other => Some(self),
            _ => None,
        }
    }
}
