//! Ranges of a buffer in a dispatch. wgpu allows a buffer a single use there: a writable range shares the buffer only
//! with other storage bindings, and then all of them are bound for writing, by a variant of the kernel
//! ([`Variant`]). The ranges themselves have to be apart.
//!
//! Arguments, device globals and the counts of an indirect grid are judged here, by [`Bound::beside`]. Parts of buffers
//! of the context are compared before they have a place on a device (`parts::buffers`).

use super::LaunchError;
use super::arguments::Given;
use crate::kernel::compile::Variant;
use crate::kernel::reflect::{ArgumentKind, Interface};
use crate::memory::BufferView;

/// How a range is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// As a uniform, or as the counts of a grid.
    Apart,
    /// As storage read by the kernel.
    Read,
    /// As storage writable by the kernel, or bound so because of others.
    Write,
}

/// A range bound by a dispatch.
pub(super) struct Bound<'l> {
    pub view: &'l BufferView,
    pub bound_as: Use,
    /// The index of an argument, with the question whether arguments are staged: asked for ranges that meet, only.
    pub argument: Option<(usize, IsStaged<'l>)>,
}

/// Whether an argument is bound elsewhere: in staging memory.
pub(super) type IsStaged<'l> = &'l dyn Fn(usize, &BufferView) -> bool;

/// The relation of two ranges.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    /// Nothing: different buffers, no writes, or copies in between.
    Nothing,
    /// Storage of one buffer, apart: both have to be bound for writing.
    Neighbours,
    /// No dispatch takes both.
    Aliased,
}

impl Bound<'_> {
    pub(super) fn is_staged(&self) -> bool {
        let Some((index, is_staged)) = self.argument else {
            return false;
        };
        is_staged(index, self.view)
    }

    pub(super) fn beside(&self, other: &Self) -> Meeting {
        let uses = [self.bound_as, other.bound_as];
        if self.view.shared.raw != other.view.shared.raw || !uses.contains(&Use::Write) {
            return Meeting::Nothing;
        }
        let (a, b) = (self.view.range(), other.view.range());
        let are_apart = a.end <= b.start || b.end <= a.start;
        match are_apart {
            true if self.is_staged() || other.is_staged() => Meeting::Nothing,
            true if !uses.contains(&Use::Apart) => Meeting::Neighbours,
            _ => Meeting::Aliased,
        }
    }
}

/// The buffer arguments of a kernel, by index.
pub(super) fn arguments<'l>(
    interface: &'l Interface,
    given: &'l [Option<Given>],
    is_staged: IsStaged<'l>,
) -> impl Iterator<Item = (usize, Bound<'l>)> {
    let arguments = interface.arguments.iter().zip(given).enumerate();
    arguments.filter_map(move |(index, (info, given))| match given {
        Some(Given::Buffer { view, .. }) => {
            let bound_as = match info.kind {
                ArgumentKind::Storage { writable: true, .. } => Use::Write,
                ArgumentKind::Storage { .. } => Use::Read,
                _ => Use::Apart,
            };
            let bound = Bound {
                view,
                bound_as,
                argument: Some((index, is_staged)),
            };
            Some((index, bound))
        }
        _ => None,
    })
}

/// Whether an argument is bound for writing, or can be.
fn is_nameable(index: usize, argument: &Bound<'_>) -> bool {
    argument.bound_as == Use::Write || Variant::names(index)
}

/// Finds two arguments with the same buffer, either of which the kernel may write.
///
/// Arguments may lie in the same buffer as long as their bytes are apart: slices of one buffer, and all arguments in
/// the shared heap. The result has a bit for each argument to be bound for writing because of another argument; no
/// bits for arguments bound elsewhere according to `is_staged`, nor, according to `through_heap`, for a kernel that
/// reaches its arguments in the heap through the heap.
pub(super) fn check_aliases(
    kernel: &str,
    interface: &Interface,
    given: &[Option<Given>],
    is_staged: IsStaged<'_>,
    through_heap: bool,
) -> Result<u64, LaunchError> {
    let (mut written, mut writable) = (0u64, 0u64);
    for (first, one) in arguments(interface, given, is_staged) {
        if one.bound_as == Use::Write && Variant::names(first) {
            writable |= 1 << first;
        }
        let later = arguments(interface, given, is_staged).filter(|(second, _)| *second > first);
        for (second, other) in later {
            match one.beside(&other) {
                Meeting::Nothing => {}
                Meeting::Neighbours if one.view.shared.is_heap && through_heap => {}
                Meeting::Neighbours if is_nameable(first, &one) && is_nameable(second, &other) => {
                    let named = |index| u64::from(Variant::names(index)) << (index % 64);
                    written |= named(first) | named(second);
                }
                Meeting::Neighbours | Meeting::Aliased => {
                    return Err(LaunchError::Aliased {
                        kernel: kernel.to_string(),
                        first: interface.arguments[first].name.clone(),
                        second: interface.arguments[second].name.clone(),
                    });
                }
            }
        }
    }
    // Arguments written by the kernel anyway need no other form.
    Ok(written & !writable)
}
