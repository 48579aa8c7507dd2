//! The shared heap: the device's turn with it while the launch is recorded, and the host kept out until the launch has
//! ended.

use std::sync::Arc;

use super::memory::Reach;
use super::{Ending, Ground, Part, Parts, Rank, Stop, Submission};
use crate::device::HostAccessPolicy;
use crate::device::outcome::Outcome;
use crate::device::queue::Recorder;
use crate::kernel::reflect::ArgumentKind;
use crate::launch::arguments::Given;
use crate::launch::dispatch::Extents;
use crate::launch::{Grid, Launch, LaunchError};
use crate::memory::SharedHeap;
use crate::memory::heap::{Task, Turn, Work, Writes, heap_of};

/// The policy while another thread has the heap; the device's by default.
pub(in crate::launch) type Setting = Option<HostAccessPolicy>;

/// The device's turn with the heap.
pub(in crate::launch) struct Heap<'s> {
    pub(super) shared: &'s SharedHeap,
    pub(super) turn: Turn<'s>,
    pub(super) reach: Reach,
    /// How often the heap's segments had been imported when the turn was taken.
    imports: u64,
}

impl<'s> Part<'s> for Heap<'s> {
    const RANK: Rank = Rank::HeapTurn;

    fn begin(launch: &Launch) -> Result<(), LaunchError> {
        if launch.needs_heap() {
            heap_of(&launch.kernel.device)?
                .shared
                .check_free("a launch")?;
        }
        Ok(())
    }

    fn acquire(
        launch: &mut Launch,
        ground: &'s Ground,
        _earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        let reach = launch.reach();
        if reach != Reach::Heap && !launch.uses_heap() {
            return Ok(None);
        }
        let shared = match ground.heap.get() {
            Some(shared) => shared,
            None => {
                let found = heap_of(&ground.device)?;
                ground.heap.get_or_init(|| found)
            }
        };
        let imports = shared.shared.imports();
        let turn = launch.take_turn(shared)?;
        Ok(Some(Self {
            shared,
            turn,
            reach,
            imports,
        }))
    }

    /// After growth, commands on the old segment and on the new one, which is the same memory, would not be ordered.
    fn confirm(&self) -> bool {
        self.shared.shared.imports() == self.imports
    }

    fn enter(
        &mut self,
        to: &Submission<'_>,
        queue: &mut Recorder<'_>,
        outcome: Option<&Arc<Outcome>>,
    ) -> Result<(), LaunchError> {
        let outcome = outcome.filter(|_| to.launch.leaves_marks());
        let entered = (self.shared.shared).enter(&self.turn, to.device, &queue.batch(), outcome);
        entered.map_err(LaunchError::from)
    }

    fn recorded(&mut self, _to: &Submission<'_>, ending: &mut Ending) {
        if let Some(lost) = &ending.lost {
            self.shared.shared.report(lost);
        }
    }
}

impl Launch {
    /// Sets the behaviour of a launch using the shared heap while another thread has the heap, instead of
    /// [`DeviceOptions::host_access`](crate::DeviceOptions::host_access). For a single submission that does not wait
    /// there is [`Launch::try_submit`].
    pub fn host_access(mut self, policy: HostAccessPolicy) -> Self {
        self.settings.heap = Some(policy);
        self
    }

    /// Waits for the device's turn with the heap, and follows arguments to where they are now.
    fn take_turn<'h>(&mut self, heap: &'h SharedHeap) -> Result<Turn<'h>, LaunchError> {
        let task = Task {
            writes: self.heap_writes(),
            work: self.heap_work()?,
        };
        let turn = heap.shared.turn(&self.kernel.device, &task)?;
        let given = self.given.iter_mut().flatten();
        let arguments = given.filter_map(|given| match given {
            Given::Buffer { view, .. } => Some(view),
            _ => None,
        });
        let globals = self.settings.globals.as_mut();
        let globals = globals.and_then(|globals| globals.view.as_mut());
        let grid = match &mut self.grid {
            Some(Grid::Indirect { buffer, .. }) => Some(buffer),
            _ => None,
        };
        let mut moved = false;
        for view in arguments.chain(grid).filter(|view| view.shared.is_heap) {
            if let Some(now) = heap.shared.renew(&turn, view) {
                *view = now;
                moved = true;
            }
        }
        if let Some(view) = globals
            && let Some(now) = heap.shared.renew(&turn, view)
        {
            *view = now;
            moved = true;
        }
        if moved {
            self.bound = None;
            self.checked = false;
            self.validate()?;
        }
        Ok(turn)
    }

    /// What the launch is to a device that chooses where it uses the heap.
    fn heap_work(&self) -> Result<Work, LaunchError> {
        if self.kernel.device.capabilities.unified_memory || self.may_wait_for_host() {
            return Ok(Work::InPlace);
        }
        let groups = match self.extents()? {
            Extents::Groups(groups) => groups.total(),
            // Known to the device alone.
            _ => 1,
        };
        let [x, y, z] = self.kernel.workgroup_size().map(u64::from);
        Ok(Work::Launch {
            kernel: self.kernel.shared.compiled.id,
            invocations: groups.saturating_mul(x * y * z),
        })
    }

    /// What the launch may write of the shared heap.
    fn heap_writes(&self) -> Writes {
        let globals = (self.settings.globals.as_ref()).is_some_and(|globals| globals.in_heap());
        let compiled = &self.kernel.shared.compiled;
        if compiled.heap.is_some_and(|heap| heap.writes) || (globals && compiled.writes_globals()) {
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
        let globals = (self.settings.globals.as_ref()).is_some_and(|globals| globals.in_heap());
        grid || globals || self.given.iter().any(in_heap)
    }

    /// Whether the launch uses the shared heap, as far as known before its buffers are brought to the device.
    pub(in crate::launch) fn needs_heap(&self) -> bool {
        let parts = || {
            let mut buffers = self.settings.buffers.iter();
            buffers.any(|argument| argument.part.is_shared())
        };
        self.reach() == Reach::Heap || self.uses_heap() || parts()
    }
}
