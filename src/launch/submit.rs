//! Submission: a checked launch becomes commands of the open batch.

use std::sync::Arc;

use super::arguments::Given;
use super::error::LaunchError;
use super::globals::LaunchGlobals;
use super::grid::Groups;
use super::groups::{bounds, offsets, push_grid};
use super::table::{Missing, Reach};
use super::{Grid, Launch};
use crate::device::Event;
use crate::device::completion_hook::CompletionHook;
use crate::device::outcome::{ExecutionError, Outcome};
use crate::device::prints::Job;
use crate::device::queue::{Dispatch, Watch};
use crate::kernel::compile::Variant;
use crate::kernel::passes::grid::BYTES as GRID_BYTES;
use crate::kernel::passes::pointers::HeapInfo;
use crate::kernel::pipeline::Kernel;
use crate::kernel::plan::{Source, heap_info_bytes};
use crate::kernel::reflect::ArgumentKind;
use crate::memory::buffers::LaunchExplanation;
use crate::memory::heap::{Turn, WaitingCommand, Writes, heap_of};
use crate::memory::{HeapError, SharedHeap};

/// What became of an attempt to submit.
enum Attempt {
    Submitted(Event),
    /// There is no room yet for some of the arguments.
    Lacks(Missing),
    /// The heap has grown meanwhile, or others have taken the last status record.
    Overtaken,
}

impl Launch {
    /// Records the launch into the device's open batch and returns its event.
    ///
    /// A grid of no invocations is no error and runs nothing. A launch using the shared heap waits while another thread
    /// has the heap ([`Launch::host_access`]).
    ///
    /// # Errors
    /// [`LaunchError`] for everything that can be known beforehand; [`LaunchError::Heap`] with
    /// [`HeapError::HostAccess`] where this thread has a [`HostAccess`](crate::HostAccess) of a heap used by the
    /// launch. What goes wrong later is the event's error.
    pub fn submit(&mut self) -> Result<Event, LaunchError> {
        if self.kernel.shared.compiled.prints.is_some() {
            // Before anything is locked: sinks may run.
            self.kernel.device.limit_prints();
        }
        let callee = self.callee.clone();
        let callee = callee.filter(|_| self.kernel.shared.compiled.calls.is_some());
        if let Some(callee) = &callee {
            callee.ready(&self.kernel.interface().entry)?;
        }
        let policy = self
            .host_access
            .unwrap_or(self.kernel.device.options.host_access);
        let mut waiting = WaitingCommand::new(policy);
        let mut moved = None;
        loop {
            if self.kernel.shared.compiled.report.is_some() {
                self.kernel.device.limit_records();
            }
            let attempt = match self.attempt(&mut moved) {
                // Nothing is held here: whoever has the heap may ask for anything.
                Err(LaunchError::Heap(HeapError::HostAccess { what })) => {
                    let heap = heap_of(&self.kernel.device)?;
                    waiting.wait(&heap.shared, what)?;
                    continue;
                }
                attempt => attempt?,
            };
            match attempt {
                Attempt::Submitted(event) => {
                    if let Some(callee) = &callee {
                        callee.serve(&self.kernel.device)?;
                    }
                    return Ok(event);
                }
                // No turn is held here: making room may wait for it.
                Attempt::Lacks(missing) => self.make_room(missing)?,
                Attempt::Overtaken => {}
            }
        }
    }

    /// `moved` is what earlier attempts have moved.
    fn attempt(&mut self, moved: &mut Option<LaunchExplanation>) -> Result<Attempt, LaunchError> {
        self.validate()?;
        self.kernel.device.lost.check().map_err(Arc::new)?;
        if self.needs_heap() {
            // Before anything is moved.
            heap_of(&self.kernel.device)?
                .shared
                .check_free("a launch")?;
        }
        let extension;
        let (roots, uses) = (self.roots(), self.uses());
        // Held until the launch is recorded: the order of launches is the order of versions.
        let mut residency = None;
        if !roots.is_empty() {
            let owner = Arc::clone(&self.kernel.device);
            extension = Arc::clone(&owner.buffers_extension);
            if let (Some(groups), _) = self.dispatches()?
                && groups.is_empty()
            {
                return Ok(Attempt::Submitted(Event::complete(&owner)));
            }
            let (acquired, told) = self.acquire_buffers(&owner, &extension, &roots, &uses)?;
            if moved
                .as_ref()
                .is_none_or(|before| before.moved() < told.moved())
            {
                *moved = Some(told);
            }
            residency = Some(acquired);
        }
        self.make_staging()?;
        let reach = self.reach();
        let shared_heap = match reach == Reach::Heap || self.uses_heap() {
            true => Some(heap_of(&self.kernel.device)?),
            false => None,
        };
        let imports = shared_heap.as_ref().map(|heap| heap.shared.imports());
        // Kept until the launch is recorded.
        let turn = match &shared_heap {
            Some(heap) => Some(self.take_turn(heap)?),
            None => None,
        };
        let found = self.memory(reach, shared_heap.as_ref().zip(turn.as_ref()))?;
        let (kernel, memory, table) = match found {
            Ok(found) => found,
            Err(missing) => return Ok(Attempt::Lacks(missing)),
        };
        let (device, shared) = (&kernel.device, &kernel.shared);
        let (groups, indirect) = self.dispatches()?;
        let tiled = match &groups {
            Some(groups) if groups.is_empty() => {
                return Ok(Attempt::Submitted(Event::complete(device)));
            }
            Some(groups) => !groups.fits_one_dispatch(),
            None => false,
        };
        let variant = Variant {
            tiled,
            written: self.written,
            globals_written: self.globals_written,
        };
        let built = &*shared.variant(device, variant).map_err(Box::new)?;
        let with_grid = built
            .groups
            .iter()
            .any(|group| group.entries.iter().any(|e| e.source == Source::Grid));

        let report = shared.compiled.report.as_ref();
        let slice = self.slice()?;
        let callee = self
            .callee
            .as_ref()
            .filter(|_| shared.compiled.calls.is_some());
        let completion = match (&slice, callee) {
            (Some(slice), _) => Some(Arc::clone(slice) as Arc<dyn CompletionHook>),
            (None, Some(callee)) => callee.completion_hook(device),
            (None, None) => None,
        };
        let prints = self.prints(&kernel)?;
        let mut queue = device.queue.lock(device);
        if shared_heap.as_ref().map(|heap| heap.shared.imports()) != imports {
            // The heap has grown meanwhile: commands on the old segment and on the new one, which is the
            // same memory, would not be ordered.
            self.give_back_prints(prints.as_ref());
            return Ok(Attempt::Overtaken);
        }
        // With the queue in hand, so nobody else's launch comes between.
        let (mut inherits, touched) = self.inputs();
        if let Some(residency) = &mut residency {
            self.migratable_inputs(residency, &mut inherits);
        }
        let outcome =
            (report.is_some() || prints.is_some() || completion.is_some() || !inherits.is_empty())
                .then(|| Outcome::new(Arc::clone(&shared.name), inherits));
        // Few enough: that was checked.
        let tiles = groups.as_ref().map_or(1, Groups::tile_count) as usize;
        let values: usize = self
            .value_bytes()
            .map(|bytes| queue.uniform_footprint(bytes))
            .sum();
        let grid_bytes = queue.uniform_footprint(GRID_BYTES as usize);
        let own_segments = memory.heap().map_or(0, |heap| heap.own.len() as u32);
        let info_size = heap_info_bytes(own_segments) as usize;
        let info_bytes = queue.uniform_footprint(info_size);
        let reads_info = shared.compiled.heap.is_some_and(|heap| heap.reads_info);
        let table_bytes = queue.uniform_footprint(table.words.len() * 4);
        let needed = values
            + table_bytes
            + if with_grid { tiles * grid_bytes } else { 0 }
            + if reads_info { info_bytes } else { 0 };
        let most = device.limits.max_buffer_size.min(u64::from(u32::MAX) / 2);
        if needed as u64 > most && with_grid {
            self.give_back_prints(prints.as_ref());
            return Err(LaunchError::GridTooManyDispatches {
                kernel: shared.name.to_string(),
                dispatches: tiles as u64,
                limit: most / grid_bytes as u64,
            });
        }
        if needed > 0 {
            queue.reserve_uniforms(needed);
        }
        let record = match report {
            Some(_) => match queue.take_record() {
                Some(record) => Some(record),
                None => {
                    // Others have taken the last one.
                    self.give_back_prints(prints.as_ref());
                    return Ok(Attempt::Overtaken);
                }
            },
            None => None,
        };
        let mut placement = self.place(&mut queue, record.map_or(0, |(_, offset)| offset));
        placement.records = prints.as_ref().and_then(|job| job.memory());
        if let (Some(heap), true) = (memory.heap(), reads_info) {
            let words = HeapInfo {
                base: heap.base,
                shared_bytes: heap.covered as u32,
                device_bytes: heap.own.iter().map(|(_, own)| own.size() as u32).collect(),
            }
            .words();
            let bytes = bytemuck::cast_slice(&words);
            placement.heap_info = queue.push_uniform(bytes, info_size);
        }
        if !table.words.is_empty() {
            let bytes: &[u8] = bytemuck::cast_slice(&table.words);
            placement.table = queue.push_uniform(bytes, bytes.len());
        }
        let form = &shared.compiled;
        let bound = self.bind(&mut queue, form, built, variant, &placement, &memory);
        // The last that may refuse: nothing is recorded yet but copies to staging memory.
        let ready = bound.and_then(|bound| {
            if let Some(heap) = &shared_heap {
                heap.shared
                    .enter(device, &queue.batch(), outcome.as_ref())?;
            }
            self.stage_in(&mut queue, device)?;
            table.copy_in(&mut queue, device)?;
            Ok(bound)
        });
        let bound = match ready {
            Ok(bound) => bound,
            Err(error) => {
                if let Some((record, _)) = record {
                    queue.give_back_record(record);
                }
                self.give_back_prints(prints.as_ref());
                return Err(error);
            }
        };

        let mirrored = prints.as_ref().and_then(|job| job.mirrored());
        if let Some((buffer, _)) = &mirrored {
            queue.encode(|encoder| encoder.clear_buffer(buffer, 0, None));
        }
        if let Some(slice) = &slice {
            queue.encode(|encoder| slice.before(encoder));
        }
        let timing = self.profiled.then(|| queue.begin_timed());
        let immediates = self.immediates.as_deref().unwrap_or_default();
        match (&groups, indirect) {
            (Some(groups), _) => {
                for (base, size) in groups.tiles() {
                    let grid = if with_grid {
                        push_grid(&mut queue, base, groups.counts)
                    } else {
                        0
                    };
                    let offsets = offsets(built, &placement, grid);
                    let bounds = bounds(built, &bound, &offsets);
                    let dispatch = Dispatch::Direct(size);
                    queue.launch(&built.pipeline, &bounds, immediates, &dispatch);
                }
            }
            (None, Some((buffer, offset))) => {
                let offsets = offsets(built, &placement, 0);
                let bounds = bounds(built, &bound, &offsets);
                let dispatch = Dispatch::Indirect(&buffer, offset);
                queue.launch(&built.pipeline, &bounds, immediates, &dispatch);
            }
            (None, None) => {}
        }
        if let Some(slot) = &timing {
            queue.end_timed(slot);
        }
        if let Some((buffer, copy)) = &mirrored {
            let bytes = buffer.size();
            queue.encode(|encoder| encoder.copy_buffer_to_buffer(buffer, 0, copy, 0, bytes));
        }
        if let Some(slice) = &slice {
            queue.encode(|encoder| slice.after(encoder));
        }
        let returned = self.stage_out(&mut queue, device);
        let returned = returned.and_then(|()| table.copy_out(&mut queue, device));
        if let Some(outcome) = &outcome {
            let asked = shared_heap.as_ref().filter(|_| shared.asks_allocations());
            let watch = report.zip(record).map(|(report, (record, _))| Watch {
                record,
                decode: match asked {
                    Some(heap) => heap.shared.explained(device, &report.0),
                    None => Arc::clone(&report.0),
                },
            });
            queue.watch(outcome, watch, prints.clone(), completion.clone());
        }
        let migrates = |index| (self.migratable.iter()).any(|argument| argument.slot == index);
        let lost = returned.err().map(|error| self.lost(&error));
        if let (Some(lost), Some(heap)) = (&lost, &shared_heap) {
            heap.shared.report(lost);
        }
        for index in touched.into_iter().filter(|&index| !migrates(index)) {
            self.mark_written(index, outcome.as_ref());
            if lost.is_some() {
                self.mark_written(index, lost.as_ref());
            }
        }
        if let (Some(globals), Some(outcome)) = (&self.globals, &outcome) {
            for (global, _) in globals.placed.iter().filter(|(_, writable)| *writable) {
                global.poison(0..global.bytes, outcome);
            }
        }
        let batch = queue.batch();
        queue.commit();
        drop(queue);
        let told = residency.map(|mut residency| {
            residency.recorded(&uses, &batch, outcome.as_ref());
            if lost.is_some() {
                residency.recorded(&uses, &batch, lost.as_ref());
            }
            Arc::new(moved.take().unwrap_or_default()) as Arc<dyn std::any::Any + Send + Sync>
        });
        if let (Some(services), Some(_)) = (&self.services, &shared.compiled.calls) {
            services.bell.ring();
        }
        let event = Event::of_batch(device, batch)
            .with_outcome(outcome)
            .with_timing(timing)
            .with_prints(prints)
            .with_note(told)
            .with_completion_hook(completion);
        Ok(Attempt::Submitted(event))
    }

    /// The record buffer of the launch, if its kernel prints.
    fn prints(&self, kernel: &Kernel) -> Result<Option<Arc<Job>>, LaunchError> {
        let Some(sites) = &kernel.shared.compiled.prints else {
            return Ok(None);
        };
        let device = &kernel.device;
        let options = self.print.as_ref().unwrap_or(&device.options.print);
        let words = (options.capacity / 4).max(1) as usize;
        let job = device.prints.take(device, sites, options, words);
        job.map(Some).map_err(|message| LaunchError::Refused {
            kernel: kernel.shared.name.to_string(),
            message,
        })
    }

    fn give_back_prints(&self, job: Option<&Arc<Job>>) {
        if let Some(job) = job {
            self.kernel.device.prints.give_back(job);
        }
    }

    /// Waits for the device's turn with the heap, and follows arguments to where they are now.
    fn take_turn<'h>(&mut self, heap: &'h SharedHeap) -> Result<Turn<'h>, LaunchError> {
        let turn = heap.shared.turn(&self.kernel.device, &self.heap_writes())?;
        let mut moved = false;
        for given in self.given.iter_mut().flatten() {
            if let Given::Buffer { view, .. } = given
                && view.shared.is_heap
                && let Some(now) = heap.shared.renew(&turn, view)
            {
                *view = now;
                moved = true;
            }
        }
        if let Some(view) = self
            .globals
            .as_mut()
            .and_then(|globals| globals.view.as_mut())
            && let Some(now) = heap.shared.renew(&turn, view)
        {
            *view = now;
            moved = true;
        }
        if let Some(Grid::Indirect { buffer, .. }) = &mut self.grid
            && buffer.shared.is_heap
            && let Some(now) = heap.shared.renew(&turn, buffer)
        {
            *buffer = now;
            moved = true;
        }
        if moved {
            self.bound = None;
            self.checked = false;
            self.validate()?;
        }
        Ok(turn)
    }

    /// What the launch may write of the shared heap.
    fn heap_writes(&self) -> Writes {
        let globals = (self.globals.as_ref()).is_some_and(LaunchGlobals::in_heap);
        if self.kernel.shared.compiled.heap.is_some() || globals {
            return Writes::Anywhere;
        }
        let arguments = self.kernel.interface().arguments.iter().zip(&self.given);
        let written = arguments.filter_map(|(info, given)| match (&info.kind, given) {
            (
                ArgumentKind::Storage {
                    writable: false, ..
                },
                _,
            ) => None,
            (_, Some(Given::Buffer { view, .. })) if view.shared.is_heap => {
                Some(view.address..view.address + view.bytes)
            }
            _ => None,
        });
        Writes::Ranges(written.collect())
    }

    /// Whether an argument, or the grid, lies in the shared heap, so the host has to keep out.
    fn uses_heap(&self) -> bool {
        let in_heap = |given: &Option<Given>| matches!(given, Some(Given::Buffer { view, .. }) if view.shared.is_heap);
        let grid =
            matches!(&self.grid, Some(Grid::Indirect { buffer, .. }) if buffer.shared.is_heap);
        let globals = (self.globals.as_ref()).is_some_and(|globals| globals.in_heap());
        grid || globals || self.given.iter().any(in_heap)
    }

    /// Whether the launch uses the shared heap, as far as known before its buffers are brought to the device.
    pub(super) fn needs_heap(&self) -> bool {
        let parts = || {
            self.migratable
                .iter()
                .any(|argument| argument.part.is_shared())
        };
        self.reach() == Reach::Heap || self.uses_heap() || parts()
    }

    /// The outcome of bytes that did not come back from staging memory.
    fn lost(&self, error: &LaunchError) -> Arc<Outcome> {
        let lost = Outcome::new(Arc::clone(&self.kernel.shared.name), Vec::new());
        let message = error.to_string();
        lost.settle(Err(ExecutionError::Refused { message }));
        lost
    }

    /// The work-groups to dispatch, or the buffer with their number.
    #[allow(clippy::type_complexity)] // an either of two private things
    pub(super) fn dispatches(
        &self,
    ) -> Result<(Option<Groups>, Option<(wgpu::Buffer, u64)>), LaunchError> {
        let device = &self.kernel.device;
        let interface = self.kernel.interface();
        let groups = |extent, in_invocations| {
            Groups::new(
                &interface.entry,
                extent,
                in_invocations,
                interface.workgroup_size,
                device.limits.max_compute_workgroups_per_dimension,
            )
        };
        match &self.grid {
            None => Err(LaunchError::NoGrid {
                kernel: interface.entry.clone(),
            }),
            Some(Grid::Invocations(extent)) => Ok((Some(groups(*extent, true)?), None)),
            Some(Grid::Workgroups(extent)) => Ok((Some(groups(*extent, false)?), None)),
            // Asked before the buffer is here; it says nothing of the grid.
            Some(Grid::IndirectElsewhere { .. }) => Ok((None, None)),
            Some(Grid::Indirect {
                staging: Some(counts),
                ..
            }) => Ok((None, Some((counts.clone(), 0)))),
            Some(Grid::Indirect { buffer, offset, .. }) => {
                let raw = buffer.shared.raw.clone();
                // Checked before, but for what is not checked yet.
                Ok((None, Some((raw, buffer.offset.saturating_add(*offset)))))
            }
        }
    }

    /// The outcomes inherited by the launch from its inputs, and the arguments written by the launch.
    fn inputs(&self) -> (Vec<Arc<Outcome>>, Vec<usize>) {
        let mut inherits: Vec<Arc<Outcome>> = Vec::new();
        let mut written = Vec::new();
        let arguments = &self.kernel.interface().arguments;
        for (index, (info, given)) in arguments.iter().zip(&self.given).enumerate() {
            let Some(Given::Buffer {
                view, overwrites, ..
            }) = given
            else {
                continue;
            };
            let writable = matches!(info.kind, ArgumentKind::Storage { writable: true, .. });
            if writable {
                written.push(index);
            }
            // A kernel cannot overwrite a read-only argument, whatever was promised.
            if !(*overwrites && writable) {
                for outcome in view.shared.depends_on(&view.range()) {
                    if !inherits.iter().any(|known| Arc::ptr_eq(known, &outcome)) {
                        inherits.push(outcome);
                    }
                }
            }
        }
        for (global, _) in self
            .globals
            .iter()
            .flat_map(|globals| globals.placed.iter())
        {
            for outcome in global.depends_on(&(0..global.bytes)) {
                if !inherits.iter().any(|known| Arc::ptr_eq(known, &outcome)) {
                    inherits.push(outcome);
                }
            }
        }
        if let Some(Grid::Indirect { buffer, .. }) = &self.grid {
            inherits.extend(buffer.shared.depends_on(&buffer.range()));
        }
        (inherits, written)
    }

    fn mark_written(&self, index: usize, outcome: Option<&Arc<Outcome>>) {
        let Some(Given::Buffer {
            view, overwrites, ..
        }) = &self.given[index]
        else {
            return;
        };
        if *overwrites {
            view.shared.overwritten(&view.range());
        }
        if let Some(outcome) = outcome {
            view.shared.poison(view.range(), outcome);
        }
    }
}
