//! Scratch memory: the spilled private arrays of the invocations in flight.
//!
//! Each device has a single such buffer, as large as asked for by the largest dispatch so far. Dispatches writing the
//! same buffer run one after another, so all launches share the buffer, and the parts of a large grid do, too.

use std::sync::{Arc, Mutex};

use super::arena::buffer;
use super::{Ground, Identity, Part, Parts, Rank, Resource, Stop, Submission};
use crate::device::wait::lock;
use crate::device::{DeviceShared, unique_id};
use crate::kernel::passes::spill::SpillFacts;
use crate::kernel::pipeline::scratch_bytes;
use crate::kernel::plan::Source;
use crate::launch::dispatch::Extents;
use crate::launch::{Launch, LaunchError};

/// The buffer of a device, with its identity for the bind-group cache.
#[derive(Default)]
pub(in crate::launch) struct ScratchMemory(Mutex<Option<(u64, wgpu::Buffer)>>);

impl ScratchMemory {
    /// A buffer of at least `bytes` bytes.
    fn of(device: &Arc<DeviceShared>, bytes: u64) -> Result<(u64, wgpu::Buffer), LaunchError> {
        let mut kept = lock(&device.extensions.launch.scratch.0);
        if let Some(known) = kept.as_ref().filter(|(_, known)| known.size() >= bytes) {
            return Ok(known.clone());
        }
        // Before the new buffer: both need not fit at once.
        if let Some((id, _)) = kept.take() {
            forget(device, id);
        }
        let most = scratch_bytes(device).max(bytes);
        let size = bytes.next_power_of_two().min(most).next_multiple_of(4);
        let made = (unique_id(), buffer(device, size, "scratch memory")?);
        Ok(kept.insert(made).clone())
    }

    /// Gives the buffer back; recorded launches keep theirs.
    pub(in crate::launch) fn clear(device: &DeviceShared) {
        let kept = lock(&device.extensions.launch.scratch.0).take();
        if let Some((id, _)) = kept {
            forget(device, id);
        }
    }
}

fn forget(device: &DeviceShared, id: u64) {
    if let Some(tell) = device.buffer_gone.get() {
        tell(device, id);
    }
}

/// The work-groups of a kernel with room in scratch memory at once.
pub(in crate::launch) fn groups(device: &DeviceShared, spill: &SpillFacts) -> u64 {
    (scratch_bytes(device) / spill.group_bytes().max(4)).max(1)
}

/// The scratch memory of a submission.
pub(in crate::launch) struct Scratch {
    id: u64,
    buffer: wgpu::Buffer,
}

impl<'s> Part<'s> for Scratch {
    const RANK: Rank = Rank::HeapTurn;

    fn check(launch: &mut Launch) -> Result<(), LaunchError> {
        let spills = launch.kernel.shared.compiled.spill.is_some();
        match launch.extents()? {
            Extents::Indirect(..) | Extents::Elsewhere if spills => {
                Err(LaunchError::SpilledIndirect {
                    kernel: launch.kernel.shared.name.to_string(),
                })
            }
            _ => Ok(()),
        }
    }

    fn acquire(
        launch: &mut Launch,
        ground: &'s Ground,
        earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        let Some(spill) = &earlier.kernel(launch).compiled.spill else {
            return Ok(None);
        };
        let groups = match launch.extents()? {
            Extents::Groups(groups) => groups.largest(),
            _ => 1,
        };
        let bytes = spill.group_bytes().saturating_mul(groups);
        let (id, buffer) = ScratchMemory::of(&ground.device, bytes.max(4))?;
        Ok(Some(Self { id, buffer }))
    }

    fn identity(&self, identity: &mut Identity) {
        identity.push(self.id);
    }

    fn bind<'a>(&'a self, _to: &Submission<'a>, source: Source) -> Option<Resource<'a>> {
        (source == Source::Scratch).then(|| Resource::whole(self.id, &self.buffer))
    }
}
