//! The making of findings from a monitor's observations.

use super::{
    Access, Accessed, Finding, FindingKind, Invocation, Side, Site, Space, TextPlace, What,
    barriers::Shown,
    monitor::{Caller, KEPT, Monitor, State},
    shadow::Record,
};

impl Monitor {
    pub(super) fn out_of_bounds(
        &self,
        state: &mut State,
        caller: Caller,
        what: (Access, u32, u32),
    ) {
        if !self.watched.checks.is_some_and(|checks| checks.bounds) {
            return;
        }
        let (access, index, length) = what;
        let kind = FindingKind::OutOfBounds {
            access,
            index,
            length,
        };
        self.find(state, caller, u32::MAX, kind);
    }

    pub(super) fn race(
        &self,
        state: &mut State,
        caller: Caller,
        accessed: &Accessed,
        at: u64,
        record: Record,
    ) {
        let Some(other) = self.watched.sites.get(record.site() as usize) else {
            return;
        };
        let What::Access(other_accessed) = &other.what else {
            return;
        };
        let Some(&group) = state.ids.get(record.group as usize) else {
            return;
        };
        let kind = FindingKind::Race {
            access: accessed.access,
            offset: at - u64::from(accessed.start),
            other: Side {
                invocation: self.invocation(group, record.invocation),
                access: other_accessed.access,
                place: self.place(other),
            },
        };
        self.find(state, caller, record.site(), kind);
    }

    /// Takes in the insights from an event at a barrier.
    pub(super) fn shown(&self, state: &mut State, caller: Caller, shown: Shown) {
        let sites = &self.watched.sites;
        if let Some(((site, invocation), (other_site, other))) = shown.apart
            && self.watched.checks.is_some_and(|checks| checks.barriers)
        {
            let other_place = other_site.and_then(|site| sites.get(site as usize));
            let kind = FindingKind::BarrierApart {
                other: self.invocation(caller.group, other),
                other_place: other_place.map(|site| self.place(site)),
            };
            let waiting = Caller {
                group: caller.group,
                invocation,
                site,
            };
            self.find(state, waiting, other_site.unwrap_or(u32::MAX), kind);
        }
        let passed = shown.passed.and_then(|site| sites.get(site as usize));
        if let Some(What::Barrier { workgroup, storage }) = passed.map(|site| &site.what) {
            let group = state.group(caller.group);
            group.interval += u32::from(*workgroup);
            if *storage {
                group.clock.barrier(group.number, group.storage_interval);
                group.storage_interval += 1;
            }
        }
    }

    /// Keeps a new finding, or counts a known one.
    pub(super) fn find(
        &self,
        state: &mut State,
        caller: Caller,
        other_site: u32,
        kind: FindingKind,
    ) {
        let key = (std::mem::discriminant(&kind), caller.site, other_site);
        if let Some((_, known)) = state.found.iter_mut().find(|(other, _)| *other == key) {
            known.occurrences += 1;
            return;
        }
        let Some(site) = self.watched.sites.get(caller.site as usize) else {
            return;
        };
        if state.found.len() >= KEPT {
            state.dropped += 1;
            return;
        }
        let (space, variable) = match &site.what {
            What::Access(accessed) => (accessed.space, accessed.variable.as_deref()),
            What::Index { .. } | What::Overflow => (Space::Value, None),
            _ => (Space::Control, None),
        };
        let finding = Finding {
            kernel: self.watched.kernel.clone(),
            kind,
            space,
            variable: variable.map(str::to_owned),
            invocation: self.invocation(caller.group, caller.invocation),
            place: self.place(site),
            occurrences: 1,
            marker: self.watched.marker.clone(),
        };
        state.found.push((key, finding));
    }

    pub(super) fn invocation(&self, group: [u32; 3], index: u32) -> Invocation {
        let [x, y, _] = self.watched.workgroup_size;
        let (x, y) = (x.max(1), y.max(1));
        let local = [index % x, index / x % y, index / x / y];
        let size = self.watched.workgroup_size;
        Invocation {
            global: std::array::from_fn(|axis| {
                group[axis]
                    .wrapping_mul(size[axis])
                    .wrapping_add(local[axis])
            }),
            local,
            group,
        }
    }

    pub(super) fn place(&self, site: &Site) -> TextPlace {
        let mut place = TextPlace {
            function: site.function.clone(),
            file: None,
            span: site.span.clone(),
            line: None,
        };
        if let Some(text) = &self.watched.text {
            place.line = place.line_in(&text.text);
            place.file = Some(text.file.clone());
        }
        place
    }
}
