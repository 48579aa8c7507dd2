//! The monitor of a dispatch: called by the kernels at the sites of their text.
//!
//! A dispatch with a monitor runs on one thread. The thread knows the monitor while resuming a fiber of the dispatch
//! ([`observing`]); calls of kernels find the monitor there.

use std::{
    cell::Cell,
    collections::HashMap,
    ptr::NonNull,
    slice,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{
    Access, Accessed, Checks, Finding, FindingKind, Ledger, Memory, Site, Space, What,
    barriers::Round,
    clocks::{Clock, Published},
    ledger::{Places, Text},
    shadow::{Interval, Record, Shadow},
    site::ROWS,
};
use crate::compile::abi::BoundResource;

/// Different findings kept of a dispatch. A kernel wrong at so many places is wrong.
pub(super) const KEPT: usize = 64;

/// A monitor's knowledge of its dispatch.
pub(crate) struct Watched {
    pub(crate) kernel: String,
    pub(crate) sites: Arc<[Site]>,
    pub(crate) workgroup_size: [u32; 3],
    /// Whether work-group memory is zero when a work-group begins
    pub(crate) zero_workgroup: bool,
    /// `None` where statements are counted, and nothing is checked
    pub(crate) checks: Option<Checks>,
    pub(crate) text: Option<Text>,
    /// The debug marker before the dispatch
    pub(crate) marker: Option<Arc<str>>,
}

/// The monitor of a dispatch.
///
/// The making of findings is in [`report`](super::report).
pub(crate) struct Monitor {
    pub(super) watched: Watched,
    /// Whether statements are counted, and their time is taken
    times: bool,
    state: Mutex<State>,
}

pub(super) struct State {
    buffers: Shadow,
    published: Published,
    groups: HashMap<[u32; 3], Group>,
    /// Ids by number
    pub(super) ids: Vec<[u32; 3]>,
    pub(super) found: Vec<(Key, Finding)>,
    /// Different findings beyond the kept ones
    pub(super) dropped: u64,
    /// Executions, by site
    counts: Vec<u64>,
    /// Time of statements, by site
    times: Vec<Duration>,
    /// The running statement, and since when
    running: Option<(u32, Instant)>,
}

/// The identity of findings of a dispatch: the nature, the site, and the other site of a race.
pub(super) type Key = (std::mem::Discriminant<FindingKind>, u32, u32);

/// A running work-group.
pub(super) struct Group {
    pub(super) number: u32,
    memory: Shadow,
    round: Round,
    /// Barriers on work-group memory
    pub(super) interval: u32,
    /// Barriers on storage
    pub(super) storage_interval: u32,
    pub(super) clock: Clock,
    /// Barriers of subgroups, by invocation
    waits: HashMap<u32, u32>,
    /// Written words of variables, by slot and invocation
    written: HashMap<(u32, u32), Vec<bool>>,
}

thread_local! {
    /// The monitor of the thread's running dispatch.
    static CURRENT: Cell<Option<NonNull<Monitor>>> = const { Cell::new(None) };
}

/// Runs `f` to resume a fiber of a dispatch with the given monitor.
pub(crate) fn observing<R>(monitor: Option<&Monitor>, f: impl FnOnce() -> R) -> R {
    let Some(monitor) = monitor else { return f() };
    let before = CURRENT.replace(Some(NonNull::from(monitor)));
    let result = f();
    CURRENT.set(before);
    result
}

/// Called by instrumented kernels: see [`site`](super::site) for the operands. `which` is the number of the site.
///
/// # Safety
/// As of [`HostFn`](crate::compile::host::HostFn).
pub(crate) unsafe extern "C" fn check(
    resources: *const *const BoundResource,
    operands: *const u32,
    _results: *mut u32,
    _lanes: u32,
    _width: u32,
    which: u32,
) {
    let Some(monitor) = CURRENT.get() else { return };
    // SAFETY: `observing` has the monitor by reference while the calling fiber runs.
    let monitor = unsafe { monitor.as_ref() };
    let Some(site) = monitor.watched.sites.get(which as usize) else {
        return;
    };
    // SAFETY: kernels pass as many words as the site says: both come from the same lowering.
    let words = unsafe { slice::from_raw_parts(operands, site.rows()) };
    let bound = match &site.what {
        What::Access(accessed) if accessed.has_resource() => {
            // SAFETY: kernels pass the entry of the binding for such a site.
            Some(unsafe { **resources })
        }
        _ => None,
    };
    monitor.observe(which, site, words, bound);
}

impl Accessed {
    /// Whether calls pass the entry of a binding.
    pub(crate) fn has_resource(&self) -> bool {
        matches!(self.space, Space::Storage | Space::Uniform)
    }
}

/// The caller: an invocation at a site.
#[derive(Clone, Copy)]
pub(super) struct Caller {
    pub(super) group: [u32; 3],
    pub(super) invocation: u32,
    pub(super) site: u32,
}

impl Monitor {
    pub(crate) fn new(watched: Watched) -> Self {
        let halves = watched.sites.iter().any(|site| match &site.what {
            What::Access(accessed) => {
                let odd = |&(offset, bytes): &(u32, u32)| !(offset | bytes).is_multiple_of(4);
                let steps = accessed
                    .steps
                    .iter()
                    .any(|(stride, _)| !stride.is_multiple_of(4));
                steps || accessed.runs.iter().any(odd)
            }
            _ => false,
        });
        let statement = |site: &Site| matches!(site.what, What::Statement(_));
        let times = watched.sites.iter().any(statement);
        // Half floats are accessed each by itself.
        let unit = if halves { 2 } else { 4 };
        Self {
            times,
            state: Mutex::new(State {
                buffers: Shadow::new(unit),
                published: Published::default(),
                groups: HashMap::new(),
                ids: Vec::new(),
                found: Vec::new(),
                dropped: 0,
                counts: vec![0; watched.sites.len()],
                times: vec![Duration::ZERO; watched.sites.len()],
                running: None,
            }),
            watched,
        }
    }

    /// Stops the clock while the monitor works, and lets the clock go on for the running statement.
    fn observe(&self, which: u32, site: &Site, words: &[u32], bound: Option<BoundResource>) {
        if !self.times {
            let state = self.state.lock();
            return self.look(
                &mut state.unwrap_or_else(PoisonError::into_inner),
                (which, site),
                words,
                bound,
            );
        }
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let running = state.running.take();
        if let Some((before, since)) = running
            && let Some(time) = state.times.get_mut(before as usize)
        {
            *time = time.saturating_add(now.saturating_duration_since(since));
        }
        self.look(&mut state, (which, site), words, bound);
        let next = match site.what {
            What::Statement(_) => Some(which),
            _ => running.map(|(before, _)| before),
        };
        state.running = next.map(|next| (next, Instant::now()));
    }

    fn look(
        &self,
        state: &mut State,
        (which, site): (u32, &Site),
        words: &[u32],
        bound: Option<BoundResource>,
    ) {
        let &[x, y, z, invocation, ref words @ ..] = words else {
            return;
        };
        let caller = Caller {
            group: [x, y, z],
            invocation,
            site: which,
        };
        match &site.what {
            What::Statement(_) => {
                if let Some(count) = state.counts.get_mut(which as usize) {
                    *count = count.saturating_add(1);
                }
            }
            What::Access(accessed) => self.access(state, caller, accessed, words, bound),
            What::Index { length } => {
                if let &[index] = words
                    && index >= *length
                {
                    self.out_of_bounds(state, caller, (Access::Read, index, *length));
                }
            }
            What::Barrier { .. } => {
                let of = self.invocations();
                let group = state.group(caller.group);
                let shown = group.round.wait(which, invocation, of);
                self.shown(state, caller, shown);
            }
            What::Overflow => {
                if words.first().is_some_and(|&overflowed| overflowed != 0) {
                    self.find(state, caller, u32::MAX, FindingKind::IndexOverflow);
                }
            }
            What::SubgroupBarrier => {
                let group = state.group(caller.group);
                *group.waits.entry(invocation).or_default() += 1;
            }
            What::End => {
                let of = self.invocations();
                let shown = state.group(caller.group).round.end(invocation, of);
                self.shown(state, caller, shown);
            }
            What::Declare { slot, written } => {
                let group = state.group(caller.group);
                if *written {
                    group.written.remove(&(*slot, invocation));
                } else {
                    group.written.insert((*slot, invocation), Vec::new());
                }
            }
        }
    }

    fn invocations(&self) -> u32 {
        self.watched.workgroup_size.iter().product()
    }

    /// The end of a work-group.
    pub(crate) fn end_group(&self, id: [u32; 3]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.groups.remove(&id);
        // Time between work-groups is no statement's.
        state.running = None;
    }

    /// Hands over findings and counts.
    pub(crate) fn finish(&self, ledger: &Ledger) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let found = std::mem::take(&mut state.found);
        let mut counts: HashMap<usize, (u64, Duration, &Site)> = HashMap::new();
        let sites = self.watched.sites.iter().zip(&state.counts);
        for ((site, &count), &time) in sites.zip(&state.times) {
            if let What::Statement(number) = site.what {
                let (sum, times, _) = counts.entry(number).or_insert((0, Duration::ZERO, site));
                *sum = sum.saturating_add(count);
                *times = times.saturating_add(time);
            }
        }
        // Of several statements at the same place, the most often executed one counts.
        let mut places = Places::new();
        for (count, time, site) in counts.into_values() {
            let (most, times) = places.entry(self.place(site)).or_default();
            *most = count.max(*most);
            *times = times.saturating_add(time);
        }
        if state.dropped > 0 {
            log::warn!(
                "kernel `{}`: the first {KEPT} findings are kept, {} more are not",
                self.watched.kernel,
                state.dropped
            );
        }
        drop(state);
        ledger.add(found.into_iter().map(|(_, finding)| finding).collect());
        if !places.is_empty() {
            let marker = self.watched.marker.as_ref();
            ledger.count(&self.watched.kernel, marker, places);
        }
    }

    fn access(
        &self,
        state: &mut State,
        caller: Caller,
        accessed: &Accessed,
        words: &[u32],
        bound: Option<BoundResource>,
    ) {
        let Some(checks) = self.watched.checks else {
            return;
        };
        let mut words = words;
        let access = accessed.access;
        if let (Some(count), &[index, ref rest @ ..]) = (accessed.bindings, words) {
            if index >= count {
                self.out_of_bounds(state, caller, (access, index, count));
                return;
            }
            words = rest;
        }
        let mut offset = u64::from(accessed.offset);
        for (&index, &(stride, count)) in words.iter().zip(&accessed.steps) {
            let length = count
                .or(bound.map(|bound| bound.length))
                .unwrap_or(u32::MAX);
            if index >= length {
                // The substitute access shows nothing about the program.
                self.out_of_bounds(state, caller, (access, index, length));
                return;
            }
            offset += u64::from(index) * u64::from(stride);
        }
        let unwritten = self.unwritten(state, caller, accessed, offset);
        // The shadow also knows the written bytes.
        let looks = checks.races || checks.unwritten || !self.watched.zero_workgroup;
        let raced = if looks {
            self.races(state, caller, accessed, (offset, bound))
        } else {
            None
        };
        if let Some(at) = unwritten {
            let offset = at - u64::from(accessed.start);
            self.find(state, caller, u32::MAX, FindingKind::Unwritten { offset });
        }
        if let Some((at, record)) = raced.filter(|_| checks.races) {
            self.race(state, caller, accessed, at, record);
        }
    }

    /// Notes an access. Returns the first racing byte, from the start of the memory, and the earlier access.
    fn races(
        &self,
        state: &mut State,
        caller: Caller,
        accessed: &Accessed,
        (offset, bound): (u64, Option<BoundResource>),
    ) -> Option<(u64, Record)> {
        let State {
            buffers,
            published,
            groups,
            ids,
            ..
        } = state;
        let group = group_of(groups, ids, caller.group);
        let subgroup = group.waits.get(&caller.invocation).copied().unwrap_or(0);
        let record = |group_interval| {
            let interval = Interval {
                group: group_interval,
                subgroup,
            };
            Record::new(group.number, caller.invocation, interval, caller.site)
        };
        let mut raced = None;
        match accessed.memory {
            Memory::WorkGroup => {
                let now = record(group.interval);
                for &(start, bytes) in &accessed.runs {
                    let run = (offset + u64::from(start), bytes.into());
                    let found = group.memory.access(run, accessed.access, now, &|_| false);
                    raced = raced.or(found);
                }
            }
            Memory::Shared => {
                let base = bound?.address.addr() as u64;
                let now = record(group.storage_interval);
                let clock = &group.clock;
                let ordered = |earlier: &Record| clock.knows(earlier.group, earlier.interval.group);
                for &(start, bytes) in &accessed.runs {
                    let run = (base + offset + u64::from(start), bytes.into());
                    let found = buffers.access(run, accessed.access, now, &ordered);
                    raced = raced.or(found.map(|(at, record)| (at - base, record)));
                }
                let address = base + offset;
                match accessed.access {
                    Access::AtomicRead => group.clock.read(address, published),
                    Access::AtomicWrite => {
                        group.clock.read(address, published);
                        group.clock.write(address, published);
                    }
                    Access::Read | Access::Write => {}
                }
            }
            Memory::Slot(_) | Memory::Constant => {}
        }
        raced
    }

    /// Notes writes. Returns the first unwritten byte of a read, from the start of the memory.
    fn unwritten(
        &self,
        state: &mut State,
        caller: Caller,
        accessed: &Accessed,
        offset: u64,
    ) -> Option<u64> {
        let strict = self.watched.checks.is_some_and(|checks| checks.unwritten);
        let group = state.group(caller.group);
        let reads = accessed.access != Access::Write;
        match accessed.memory {
            Memory::WorkGroup => {
                let checked = reads && (strict || !self.watched.zero_workgroup);
                let mut runs = accessed.runs.iter().filter(|_| checked);
                runs.find_map(|&(start, bytes)| {
                    let run = (offset + u64::from(start), u64::from(bytes));
                    group.memory.first_unwritten(run)
                })
            }
            Memory::Slot(slot) if strict => {
                let written = group.written.get_mut(&(slot, caller.invocation))?;
                let mut found = None;
                for &(start, bytes) in &accessed.runs {
                    let first = ((offset + u64::from(start)) / 4) as usize;
                    let end = first + (bytes as usize).div_ceil(4);
                    if accessed.access == Access::Read {
                        let unwritten = |&word: &usize| written.get(word) != Some(&true);
                        found = found.or((first..end).find(unwritten).map(|word| word as u64 * 4));
                    } else {
                        if written.len() < end {
                            written.resize(end, false);
                        }
                        written[first..end].fill(true);
                    }
                }
                found
            }
            _ => None,
        }
    }
}

impl State {
    pub(super) fn group(&mut self, id: [u32; 3]) -> &mut Group {
        group_of(&mut self.groups, &mut self.ids, id)
    }
}

fn group_of<'a>(
    groups: &'a mut HashMap<[u32; 3], Group>,
    ids: &mut Vec<[u32; 3]>,
    id: [u32; 3],
) -> &'a mut Group {
    groups.entry(id).or_insert_with(|| {
        ids.push(id);
        Group {
            number: (ids.len() - 1) as u32,
            memory: Shadow::new(4),
            round: Round::default(),
            interval: 0,
            storage_interval: 0,
            clock: Clock::default(),
            waits: HashMap::new(),
            written: HashMap::new(),
        }
    })
}

const _: () = assert!(ROWS == 4);
