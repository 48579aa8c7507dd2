//! The arguments of a launch: values in the uniform ring, buffers at their place, and the outcomes of buffers'
//! contents.

use std::sync::Arc;

use super::{Ending, Ground, Inherits, Part, Parts, Places, Rank, Resource, Stop, Submission};
use crate::device::outcome::Outcome;
use crate::device::queue::Recorder;
use crate::kernel::plan::Source;
use crate::kernel::reflect::ArgumentKind;
use crate::launch::arguments::Given;
use crate::launch::{Grid, Launch, textures};
use crate::memory::TextureArgument;

/// The marks of a failing launch in written memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::launch) enum Marks {
    /// Reads and later launches meet the failure.
    #[default]
    Failures,
    /// Nothing: the code served by the launch is told of each failure.
    Nothing,
}

impl Launch {
    /// Leaves no failure of the launch in its arguments, in device globals and in the heap, but for bytes lost on their
    /// way.
    pub(crate) fn unmarked(mut self) -> Self {
        self.settings.arguments = Marks::Nothing;
        self
    }

    /// The outcome marking written arguments and device globals.
    pub(in crate::launch) fn mark<'a>(&self, ending: &'a Ending) -> Option<&'a Arc<Outcome>> {
        ending.outcome.as_ref().filter(|_| self.leaves_marks())
    }

    /// Whether others meet a failure of the launch in written memory.
    pub(in crate::launch) fn leaves_marks(&self) -> bool {
        self.settings.arguments == Marks::Failures
    }
}

/// The arguments of a submission: the launch's own.
pub(in crate::launch) struct Arguments;

impl<'s> Part<'s> for Arguments {
    const RANK: Rank = Rank::Queue;

    fn acquire(
        _launch: &mut Launch,
        _ground: &'s Ground,
        _earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        Ok(Some(Self))
    }

    fn inherit(&mut self, to: &Submission<'_>, inherits: &mut Inherits) {
        for (slot, given) in to.launch.given.iter().enumerate() {
            // A kernel cannot overwrite a read-only argument, despite any promise.
            match given {
                Some(Given::Buffer {
                    view, overwrites, ..
                }) if !(*overwrites && to.launch.writes(slot)) => {
                    inherits.add(view.shared.depends_on(&view.range()));
                }
                Some(Given::Texture(TextureArgument {
                    texture: Some(texture),
                    ..
                })) => inherits.add(texture.depends_on()),
                _ => {}
            }
        }
        if let Some(Grid::Indirect { buffer, .. }) = &to.launch.grid {
            inherits.add(buffer.shared.depends_on(&buffer.range()));
        }
    }

    fn reserve(&self, to: &Submission<'_>, queue: &Recorder<'_>) -> usize {
        let values = values(to.launch);
        values
            .map(|(_, bytes, declared)| queue.uniform_footprint(bytes.len().max(declared)))
            .sum()
    }

    fn place(
        &mut self,
        to: &Submission<'_>,
        queue: &mut Recorder<'_>,
        places: &mut Places,
    ) -> Result<(), Stop> {
        for (slot, bytes, declared) in values(to.launch) {
            let offset = queue.push_uniform(bytes, declared);
            places.set(Source::Argument(slot), offset);
        }
        Ok(())
    }

    fn bind<'a>(&'a self, to: &Submission<'a>, source: Source) -> Option<Resource<'a>> {
        let Source::Argument(slot) = source else {
            return None;
        };
        let given = to.launch.given[slot].as_ref()?;
        match (given, &to.launch.interface().arguments[slot].kind) {
            (Given::Value { .. }, ArgumentKind::Uniform { layout }) => {
                Some(Resource::Ring(u64::from(layout.size)))
            }
            (Given::Buffer { view, .. }, kind) => {
                let (id, buffer, start) = given.bound()?;
                let bytes = match kind {
                    ArgumentKind::Uniform { layout } => u64::from(layout.size),
                    // Bytes behind the last whole word are padding of the buffer.
                    _ => view.bytes.next_multiple_of(4),
                };
                Some(Resource::Buffer {
                    id,
                    buffer,
                    start,
                    bytes,
                })
            }
            (Given::Texture(given), _) => Some(Resource::Texture(given)),
            (Given::Sampler(sampler), _) => Some(Resource::Sampler(sampler)),
            _ => None,
        }
    }

    fn recorded(&mut self, to: &Submission<'_>, ending: &mut Ending) {
        let outcomes = [to.launch.mark(ending), ending.lost.as_ref()];
        for texture in textures::stored(to.launch.interface(), &to.launch.given) {
            (outcomes.iter().flatten()).for_each(|outcome| texture.poison(outcome));
        }
        let buffers = &to.launch.settings.buffers;
        for slot in 0..to.launch.given.len() {
            // The books of buffers of the context are their own.
            if !to.launch.writes(slot) || buffers.iter().any(|argument| argument.slot == slot) {
                continue;
            }
            mark_written(to.launch, slot, to.launch.mark(ending));
            if ending.lost.is_some() {
                mark_written(to.launch, slot, ending.lost.as_ref());
            }
        }
    }
}

/// The values, each with its slot, and the bytes declared by the kernel.
fn values(launch: &Launch) -> impl Iterator<Item = (usize, &[u8], usize)> {
    let arguments = launch.interface().arguments.iter();
    let given = launch.given.iter().zip(arguments).enumerate();
    given.filter_map(|(slot, (given, info))| match (given, &info.kind) {
        (Some(Given::Value { bytes, .. }), ArgumentKind::Uniform { layout }) => {
            Some((slot, bytes.as_slice(), layout.size as usize))
        }
        _ => None,
    })
}

fn mark_written(launch: &Launch, slot: usize, outcome: Option<&Arc<Outcome>>) {
    let Some(Given::Buffer {
        view, overwrites, ..
    }) = &launch.given[slot]
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
