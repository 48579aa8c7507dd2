//! The list of the parts of a launch, and the walk through the list.

use std::sync::Arc;

#[cfg(test)]
use super::counter;
#[cfg(embedded)]
use super::sanitizer;
use super::{
    Ending, Ground, Identity, Inherits, Part, Places, Rank, Resource, Stop, Submission, arguments,
    buffers, calls, cancel, globals, heap, memory, prints, scratch, staging, status, system, table,
    timing, undo, waiting,
};
use crate::device::outcome::Outcome;
use crate::device::queue::Recorder;
use crate::kernel::pipeline::KernelShared;
use crate::kernel::plan::Source;
use crate::launch::{Launch, LaunchError};

/// Does a step of the parts in reverse order.
macro_rules! in_reverse {
    ($parts:ident, $part:ident => $step:expr;) => {};
    ($parts:ident, $part:ident => $step:expr; [$($cfg:meta)?] $name:ident $($rest:tt)*) => {
        in_reverse!($parts, $part => $step; $($rest)*);
        $(#[$cfg])?
        {
            if let Some($part) = &mut $parts.$name {
                $step
            }
        }
    };
}

/// Declares the list, and the steps walking the list.
macro_rules! parts {
    ($life:lifetime; $([$($cfg:meta)?] $name:ident: $part:ty, $setting:ty;)*) => {
        /// The parts of a submission, in the order of their ranks.
        #[derive(Default)]
        pub(in crate::launch) struct Parts<$life> {
            $($(#[$cfg])? pub(in crate::launch) $name: Option<$part>,)*
        }

        /// A launch's memory for the parts between submissions.
        #[derive(Debug, Clone, Default)]
        #[allow(dead_code)] // A part without a setting has `()`.
        pub(in crate::launch) struct Settings {
            $($(#[$cfg])? pub(in crate::launch) $name: $setting,)*
        }

        /// The steps of [`Part`], of all parts.
        impl<$life> Parts<$life> {
            /// The list ascends.
            const ASCENDS: () = {
                let mut last = Rank::Roots as u8;
                $($(#[$cfg])? {
                    assert!(last <= <$part as Part<$life>>::RANK as u8);
                    last = <$part as Part<$life>>::RANK as u8;
                })*
                assert!(last == Rank::Queue as u8);
            };

            pub(in crate::launch) fn check(launch: &mut Launch) -> Result<(), LaunchError> {
                $($(#[$cfg])? { <$part>::check(launch)?; })*
                Ok(())
            }

            pub(in crate::launch) fn ready(launch: &Launch) -> Result<(), LaunchError> {
                $($(#[$cfg])? { <$part>::ready(launch)?; })*
                Ok(())
            }

            pub(in crate::launch) fn follow_up(launch: &Launch) -> Result<(), LaunchError> {
                $($(#[$cfg])? { <$part>::follow_up(launch)?; })*
                Ok(())
            }

            pub(in crate::launch) fn begin(launch: &Launch) -> Result<(), LaunchError> {
                $($(#[$cfg])? { <$part>::begin(launch)?; })*
                Ok(())
            }

            pub(in crate::launch) fn acquire(
                &mut self,
                launch: &mut Launch,
                ground: &$life Ground,
            ) -> Result<(), Stop> {
                let () = Self::ASCENDS;
                $($(#[$cfg])? {
                    // Absent parts are not written: the former part would have to be looked at, and dropped.
                    if let Some(part) = <$part>::acquire(launch, ground, self)? {
                        self.$name = Some(part);
                    }
                })*
                Ok(())
            }

            pub(in crate::launch) fn confirm(&self) -> bool {
                $($(#[$cfg])? {
                    if self.$name.as_ref().is_some_and(|part| !part.confirm()) {
                        return false;
                    }
                })*
                true
            }

            pub(in crate::launch) fn inherit(&mut self, to: &Submission<'_>) -> Inherits {
                let mut inherits = Inherits::default();
                $($(#[$cfg])? {
                    if let Some(part) = &mut self.$name {
                        part.inherit(to, &mut inherits);
                    }
                })*
                inherits
            }

            pub(in crate::launch) fn follows(&self) -> bool {
                $($(#[$cfg])? {
                    if self.$name.as_ref().is_some_and(Part::follows) {
                        return true;
                    }
                })*
                false
            }

            pub(in crate::launch) fn reserve(&self, to: &Submission<'_>, queue: &Recorder<'_>) -> usize {
                let mut bytes = 0;
                $($(#[$cfg])? {
                    bytes += self.$name.as_ref().map_or(0, |part| part.reserve(to, queue));
                })*
                bytes
            }

            pub(in crate::launch) fn place(
                &mut self,
                to: &Submission<'_>,
                queue: &mut Recorder<'_>,
            ) -> Result<Places, Stop> {
                let mut places = Places::default();
                $($(#[$cfg])? {
                    if let Some(part) = &mut self.$name {
                        part.place(to, queue, &mut places)?;
                    }
                })*
                Ok(places)
            }

            pub(in crate::launch) fn identity(&self, identity: &mut Identity) {
                $($(#[$cfg])? {
                    if let Some(part) = &self.$name {
                        part.identity(identity);
                    }
                })*
            }

            pub(in crate::launch) fn bind<'a>(
                &'a self,
                to: &Submission<'a>,
                source: Source,
            ) -> Option<Resource<'a>> {
                $($(#[$cfg])? {
                    let found = self.$name.as_ref().and_then(|part| part.bind(to, source));
                    if found.is_some() {
                        return found;
                    }
                })*
                None
            }

            pub(in crate::launch) fn enter(
                &mut self,
                to: &Submission<'_>,
                queue: &mut Recorder<'_>,
                outcome: Option<&Arc<Outcome>>,
            ) -> Result<(), LaunchError> {
                $($(#[$cfg])? {
                    if let Some(part) = &mut self.$name {
                        part.enter(to, queue, outcome)?;
                    }
                })*
                $($(#[$cfg])? {
                    if let Some(part) = &mut self.$name {
                        part.copy_in(to, queue)?;
                    }
                })*
                Ok(())
            }

            pub(in crate::launch) fn before(&mut self, to: &Submission<'_>, queue: &mut Recorder<'_>) {
                $($(#[$cfg])? {
                    if let Some(part) = &mut self.$name {
                        part.before(to, queue);
                    }
                })*
            }

            pub(in crate::launch) fn after(
                &mut self,
                to: &Submission<'_>,
                queue: &mut Recorder<'_>,
            ) -> Result<(), LaunchError> {
                let mut first = Ok(());
                in_reverse!(self, part => {
                    let done = part.after(to, queue);
                    first = first.and(done);
                }; $([$($cfg)?] $name)*);
                first
            }

            pub(in crate::launch) fn recorded(&mut self, to: &Submission<'_>, ending: &mut Ending) {
                $($(#[$cfg])? {
                    if let Some(part) = &mut self.$name {
                        part.recorded(to, ending);
                    }
                })*
            }

            pub(in crate::launch) fn released(&mut self, to: &Submission<'_>, ending: &mut Ending) {
                $($(#[$cfg])? {
                    if let Some(part) = &mut self.$name {
                        part.released(to, ending);
                    }
                })*
            }
        }
    };
}

// The part, and its setting in the launch.
parts! {
    's;
    [] buffers: buffers::Buffers<'s>, buffers::Setting;
    [] staging: staging::Staging, ();
    [] heap: heap::Heap<'s>, heap::Setting;
    [] waiting: waiting::Waiting<'s>, ();
    [] memory: memory::Memory, ();
    [] system: system::System, system::Setting;
    [] undo: undo::Undo, undo::Setting;
    [] table: table::Table, table::Setting;
    [] globals: globals::Globals, globals::Setting;
    [] calls: calls::Calls, calls::Setting;
    [] prints: prints::Prints<'s>, prints::Setting;
    [] scratch: scratch::Scratch, ();
    [] arguments: arguments::Arguments, arguments::Marks;
    [] status: status::Status<'s>, ();
    [cfg(test)] counter: counter::Counter, counter::Setting;
    [] cancel: cancel::Cancel, cancel::Setting;
    [cfg(embedded)] sanitizer: sanitizer::Sanitizer, ();
    [] timing: timing::Timing, timing::Setting;
}

impl Parts<'_> {
    /// The kernel in the form for the memory bound as the heap, where any is.
    pub(in crate::launch) fn form(&self) -> Option<&Arc<KernelShared>> {
        self.memory.as_ref().map(|memory| &memory.kernel)
    }

    /// The kernel, in the form needed by the launch.
    pub(super) fn kernel<'a>(&'a self, launch: &'a Launch) -> &'a KernelShared {
        self.form().unwrap_or(&launch.kernel.shared)
    }
}
