//! The dispatches of a launch: its grid, cut into as many as the adapter needs, and the pipeline.

use std::sync::Arc;

use smallvec::SmallVec;

use super::grid::Groups;
use super::groups::BoundGroups;
use super::parts::{Places, Submission, scratch};
use super::{Grid, Launch, LaunchError};
use crate::device::queue::{Bound, Dispatch, Recorder};
use crate::kernel::compile::Variant;
use crate::kernel::passes::grid::BYTES;
use crate::kernel::pipeline::{Built, KernelShared};
use crate::kernel::plan::Source;

/// The work-groups of a grid, or their place.
pub(super) enum Extents {
    Groups(Groups),
    /// The buffer with the number of work-groups, and the byte where the number begins.
    Indirect(wgpu::Buffer, u64),
    /// In a buffer not yet on the device.
    Elsewhere,
}

/// The dispatches of a submission.
pub(super) struct Dispatches<'a> {
    plain: &'a Built,
    /// The pipeline in the place of the plain one, where the launch needs another.
    other: Option<Arc<Built>>,
    pub(super) variant: Variant,
    extents: Extents,
    /// The kernel reads the parameters of each tile.
    reads_tile: bool,
}

impl<'a> Dispatches<'a> {
    /// The dispatches of a launch whose arguments are on the device; `groups` is the grid, where known.
    pub(super) fn of(
        launch: &Launch,
        kernel: &'a KernelShared,
        groups: Option<Groups>,
    ) -> Result<Self, LaunchError> {
        let tiled = groups.is_some_and(|groups| !groups.fits_one_dispatch());
        let extents = match groups {
            Some(groups) => Extents::Groups(groups),
            None => launch.extents()?,
        };
        let variant = Variant {
            tiled,
            ..launch.variant
        };
        let other = match variant == Variant::default() {
            true => None,
            false => Some((kernel.variant(&launch.kernel.device, variant)).map_err(Box::new)?),
        };
        let built = other.as_deref().unwrap_or(&kernel.plain);
        let mut entries = built.groups.iter().flat_map(|group| &group.entries);
        let reads_tile = tiled && entries.any(|entry| entry.source == Source::Grid);
        Ok(Self {
            plain: &kernel.plain,
            other,
            variant,
            extents,
            reads_tile,
        })
    }

    /// The pipeline, and how its bind groups are made up.
    pub(super) fn built(&self) -> &Built {
        self.other.as_deref().unwrap_or(self.plain)
    }

    /// Bytes in the uniform ring, for each tile's parameters.
    pub(super) fn reserve(&self, queue: &Recorder<'_>) -> usize {
        match self.reads_tile {
            // Few enough: that was checked.
            true => self.tile_count() as usize * queue.uniform_footprint(BYTES as usize),
            false => 0,
        }
    }

    fn tile_count(&self) -> u64 {
        match &self.extents {
            Extents::Groups(groups) => groups.tile_count(),
            _ => 1,
        }
    }

    /// Refuses a grid whose tiles, together with all other values, need more of the ring than there can be.
    pub(super) fn check_room(
        &self,
        to: &Submission<'_>,
        queue: &Recorder<'_>,
        needed: usize,
    ) -> Result<(), LaunchError> {
        let most = (to.device.limits.max_buffer_size).min(u64::from(u32::MAX) / 2);
        if needed as u64 <= most || !self.reads_tile {
            return Ok(());
        }
        Err(LaunchError::GridTooManyDispatches {
            kernel: to.kernel.name.to_string(),
            dispatches: self.tile_count(),
            limit: most / queue.uniform_footprint(BYTES as usize) as u64,
        })
    }

    /// Records the dispatches.
    pub(super) fn record(
        &self,
        to: &Submission<'_>,
        queue: &mut Recorder<'_>,
        bound: &BoundGroups,
        places: &mut Places,
    ) {
        let immediates = to.launch.immediates.as_deref().unwrap_or_default();
        match &self.extents {
            Extents::Groups(extents) => {
                for (base, size) in extents.tiles() {
                    if self.reads_tile {
                        let offset = push_tile(queue, base, extents.counts);
                        places.set(Source::Grid, offset);
                    }
                    let dispatch = Dispatch::Direct(size);
                    self.launch(queue, bound, places, immediates, &dispatch);
                }
            }
            Extents::Indirect(buffer, offset) => {
                let dispatch = Dispatch::Indirect(buffer, *offset);
                self.launch(queue, bound, places, immediates, &dispatch);
            }
            Extents::Elsewhere => {}
        }
    }

    fn launch(
        &self,
        queue: &mut Recorder<'_>,
        bound: &BoundGroups,
        places: &Places,
        immediates: &[u8],
        dispatch: &Dispatch<'_>,
    ) {
        let mut offsets: SmallVec<[u32; 8]> = SmallVec::new();
        for plan in &self.built().groups {
            let dynamic = plan.entries.iter().filter(|entry| entry.dynamic);
            offsets.extend(dynamic.map(|entry| places.of(entry.source)));
        }
        let mut left = offsets.as_slice();
        let mut bounds: SmallVec<[Bound<'_>; 4]> = SmallVec::new();
        for (plan, group) in self.built().groups.iter().zip(&bound.groups) {
            let dynamic = plan.entries.iter().filter(|entry| entry.dynamic).count();
            let (own, rest) = left.split_at(dynamic);
            left = rest;
            bounds.push(Bound {
                index: plan.index,
                group,
                offsets: own,
            });
        }
        let held = match dispatch {
            Dispatch::Direct(_) => bound.held,
            Dispatch::Indirect(..) => u64::MAX,
        };
        queue.launch(&self.built().pipeline, &bounds, immediates, dispatch, held);
    }
}

/// `TomboloGrid`: base and size of the whole grid, in work-groups.
fn push_tile(queue: &mut Recorder<'_>, base: [u32; 3], counts: [u32; 3]) -> u32 {
    let words = [
        base[0], base[1], base[2], 0, counts[0], counts[1], counts[2], 0,
    ];
    queue.push_uniform(bytemuck::cast_slice(&words), BYTES as usize)
}

impl Launch {
    /// The work-groups to dispatch, or the buffer with their number.
    pub(super) fn extents(&self) -> Result<Extents, LaunchError> {
        let groups = |groups: Groups| {
            let spill = self.kernel.shared.compiled.spill.as_ref();
            let part = (self.settings.system.as_ref()).and_then(|lent| lent.part);
            let groups = part.map_or(groups, |part| groups.only(part));
            Extents::Groups(match spill {
                Some(spill) => groups.within(scratch::groups(&self.kernel.device, spill)),
                None => groups,
            })
        };
        if let Some(known) = self.groups.filter(|_| self.grid_checked) {
            return Ok(groups(known));
        }
        match &self.grid {
            None => Err(LaunchError::NoGrid {
                kernel: self.kernel.interface().entry.clone(),
            }),
            Some(Grid::Invocations(_) | Grid::Workgroups(_)) => {
                Ok(self.whole_grid()?.map_or(Extents::Elsewhere, groups))
            }
            Some(Grid::IndirectElsewhere { .. }) => Ok(Extents::Elsewhere),
            Some(Grid::Indirect {
                staging: Some(counts),
                ..
            }) => Ok(Extents::Indirect(counts.clone(), 0)),
            Some(Grid::Indirect { buffer, offset, .. }) => {
                let raw = buffer.shared.raw.clone();
                // Checked before, but for what is not checked yet.
                Ok(Extents::Indirect(
                    raw,
                    buffer.offset.saturating_add(*offset),
                ))
            }
        }
    }

    /// The work-groups of the whole grid, unless they are in a buffer.
    pub(super) fn whole_grid(&self) -> Result<Option<Groups>, LaunchError> {
        let (extent, in_invocations) = match &self.grid {
            Some(Grid::Invocations(extent)) => (*extent, true),
            Some(Grid::Workgroups(extent)) => (*extent, false),
            _ => return Ok(None),
        };
        let interface = self.kernel.interface();
        let limit = (self.kernel.device.limits).max_compute_workgroups_per_dimension;
        let size = interface.workgroup_size;
        Groups::new(&interface.entry, extent, in_invocations, size, limit).map(Some)
    }
}
