//! Memory of the host that is lent to the launch: the pool, the table and the faults, which `src/launch/system` fills and
//! reads.

use std::sync::Arc;

use super::{Ground, Identity, Part, Parts, Rank, Resource, Stop, Submission};
use crate::kernel::plan::Source;
use crate::launch::grid::GridPart;
use crate::launch::{Launch, LaunchError};
use crate::memory::DeviceBuffer;

/// The buffers of a launch with lent memory, in the order of their bindings: pool, table, faults, and, where pages come while
/// the kernel runs, their places.
#[derive(Debug)]
pub(in crate::launch) struct Lent {
    pub(in crate::launch) buffers: Vec<DeviceBuffer<u32>>,
    /// The work-groups that are launched, where not all of them are.
    pub(in crate::launch) part: Option<GridPart>,
}

impl Lent {
    /// For all work-groups.
    pub(in crate::launch) fn new(buffers: Vec<DeviceBuffer<u32>>) -> Self {
        Self {
            buffers,
            part: None,
        }
    }

    /// The frames.
    pub(in crate::launch) fn pool(&self) -> &DeviceBuffer<u32> {
        &self.buffers[0]
    }

    /// The faults, and the flags of the frames.
    pub(in crate::launch) fn faults(&self) -> &DeviceBuffer<u32> {
        &self.buffers[2]
    }
}

/// The buffers, while such a launch is made.
pub(in crate::launch) type Setting = Option<Arc<Lent>>;

/// The buffers of a submission.
pub(in crate::launch) struct System(Arc<Lent>);

impl<'s> Part<'s> for System {
    const RANK: Rank = Rank::HeapTurn;

    fn begin(launch: &Launch) -> Result<(), LaunchError> {
        match launch.kernel.shared.compiled.system && launch.settings.system.is_none() {
            true => Err(LaunchError::NoSystemMemory {
                kernel: launch.name(),
            }),
            false => Ok(()),
        }
    }

    fn acquire(
        launch: &mut Launch,
        _ground: &'s Ground,
        _earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        Ok(launch.settings.system.clone().map(Self))
    }

    fn identity(&self, identity: &mut Identity) {
        identity.extend(self.0.buffers.iter().map(|buffer| buffer.shared.id));
    }

    fn bind<'a>(&'a self, _to: &Submission<'a>, source: Source) -> Option<Resource<'a>> {
        let Source::System(index) = source else {
            return None;
        };
        let buffer = self.0.buffers.get(index as usize)?;
        Some(Resource::whole(buffer.shared.id, buffer.raw()))
    }
}
