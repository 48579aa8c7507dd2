//! Launches: arguments by their WGSL names, a grid, and an event.

mod aliases;
pub(crate) mod arguments;
pub(crate) mod bind;
pub(crate) mod callee;
mod check;
mod dispatch;
pub(crate) mod error;
mod graph;
pub(crate) mod grid;
mod groups;
mod parts;
mod submit;
pub(crate) mod system;
mod textures;

use std::sync::Arc;

use bytemuck::{NoUninit, Pod};

pub use error::LaunchError;
pub use graph::{GraphError, GraphNode, GraphRun, LaunchGraph};
pub use grid::Extent;

use crate::kernel::compile::Variant;
use crate::kernel::pipeline::Kernel;
use crate::kernel::reflect::Interface;
use crate::memory::buffers::Passing;
use crate::memory::heap::heap_of;
use crate::memory::{BufferArgument, BufferView, Ptr, TextureArgument};
use arguments::{Given, describe};
use parts::Settings;
use parts::buffers::{self, MigratableArgument};
pub(crate) use parts::globals::PlacedGlobals;

/// A launch in the making, from [`Kernel::launch`]. Arguments are given by the names of their WGSL
/// variables and checked against the kernel's declarations.
///
/// A launch can be submitted again and again; [`Launch::set_value`], [`Launch::set_buffer`], [`Launch::set_texture`],
/// [`Launch::set_sampler`], [`Launch::set_workgroups`] and [`Launch::set_invocations`] change it in between. Whatever has not
/// changed is neither checked nor bound anew.
#[derive(Debug, Clone)]
#[must_use = "nothing runs until `submit` is called"]
pub struct Launch {
    kernel: Kernel,
    given: Vec<Option<Given>>,
    immediates: Option<Vec<u8>>,
    grid: Option<Grid>,
    /// The first mistake of the builder, reported by `submit`.
    mistake: Option<LaunchError>,
    /// True while the arguments are known to be good.
    checked: bool,
    /// The same for the grid.
    grid_checked: bool,
    /// The work-groups of a checked grid, unless they are in a buffer.
    groups: Option<grid::Groups>,
    bound: Option<Box<groups::BoundGroups>>,
    /// Commands of its batch up to the last that was recorded for it.
    recorded: u32,
    /// The built-in bindings that the arguments ask for, but for the grid.
    variant: Variant,
    /// What the parts keep.
    settings: Settings,
}

#[derive(Debug, Clone)]
enum Grid {
    Invocations(Extent),
    Workgroups(Extent),
    Indirect {
        buffer: BufferView,
        offset: u64,
        /// The place for the counts before the launch, if the device cannot read the counts in place.
        staging: Option<wgpu::Buffer>,
    },
    /// From a buffer of the context, before it was brought to the device.
    IndirectElsewhere {
        offset: u64,
    },
}

impl Kernel {
    /// Starts a launch of this kernel.
    pub fn launch(&self) -> Launch {
        Launch {
            kernel: self.clone(),
            given: vec![None; self.interface().arguments.len()],
            immediates: None,
            grid: None,
            mistake: None,
            checked: false,
            grid_checked: false,
            groups: None,
            bound: None,
            recorded: 0,
            variant: Variant::default(),
            settings: Settings::default(),
        }
    }
}

impl Launch {
    fn interface(&self) -> &Interface {
        self.kernel.interface()
    }

    fn name(&self) -> String {
        self.interface().entry.clone()
    }

    fn slot(&self, argument: &str) -> Result<usize, LaunchError> {
        let arguments = &self.interface().arguments;
        arguments
            .iter()
            .position(|a| a.name == argument)
            .ok_or_else(|| LaunchError::UnknownArgument {
                kernel: self.name(),
                argument: argument.to_string(),
                available: describe(arguments.iter()),
            })
    }

    /// Whether the kernel has an argument of this name.
    pub(crate) fn takes(&self, argument: &str) -> bool {
        let arguments = &self.interface().arguments;
        arguments.iter().any(|one| one.name == argument)
    }

    pub(crate) fn give(mut self, argument: &str, given: Given) -> Self {
        let result = self.slot(argument).and_then(|slot| {
            if self.given[slot].is_some() {
                return Err(LaunchError::DuplicateArgument {
                    kernel: self.name(),
                    argument: argument.to_string(),
                });
            }
            self.given[slot] = Some(given);
            Ok(())
        });
        if let Err(error) = result {
            self.mistake.get_or_insert(error);
        }
        self.checked = false;
        self.bound = None;
        self
    }

    /// Gives a buffer, or a slice of one, for a storage or uniform variable. The latest bytes of a [`Buffer`](crate::Buffer) of
    /// the context are brought to the kernel's device when the launch is submitted.
    pub fn buffer(self, argument: &str, buffer: impl Into<BufferArgument>) -> Self {
        self.pass(argument, buffer.into(), false)
    }

    fn pass(self, argument: &str, buffer: BufferArgument, overwrites: bool) -> Self {
        match buffer.0 {
            Passing::Here(view) => self.give(argument, Given::buffer(view, overwrites)),
            Passing::Wherever(part) => {
                let mut launch = self.give(argument, Given::Elsewhere(part.clone()));
                if let (Ok(slot), None) = (launch.slot(argument), &launch.mistake) {
                    launch
                        .settings
                        .buffers
                        .push(MigratableArgument::new(slot, part, overwrites));
                }
                launch
            }
        }
    }

    /// As [`Launch::buffer`], promising that the launch writes every byte without reading the old contents: a failure
    /// of an earlier launch writing there does not spread to this launch. What a [`Buffer`](crate::Buffer) of the
    /// context held is not brought to the device.
    pub fn overwrite(self, argument: &str, buffer: impl Into<BufferArgument>) -> Self {
        self.pass(argument, buffer.into(), true)
    }

    /// Gives the `len` values at `ptr`, in the shared heap of the kernel's device, for a storage or uniform variable:
    /// the kernel reaches the values through a separate binding, as fast as any buffer. Where the adapter cannot bind
    /// at the address, or the values end inside a word of 4 bytes with other data behind, the launch works on a copy,
    /// and exactly the values' bytes come back.
    ///
    /// A kernel that also follows pointers reaches a storage variable through its binding of the heap, and so sees the
    /// same memory both ways, unless the values begin or end inside a word; a uniform variable is a copy, made at the
    /// start of the launch.
    ///
    /// In the kernel `arrayLength` follows from `len`, and `len` values have to lie in the same live allocation, whose
    /// length is known ([`Device::find`](crate::Device::find) returns the length). For a pointer followed by a kernel
    /// only the address is known, so the number of elements has to be passed or stored beside the pointer.
    pub fn pointer<T: Pod>(mut self, argument: &str, ptr: Ptr<T>, len: usize) -> Self {
        let device = Arc::clone(&self.kernel.device);
        let view = heap_of(&device).and_then(|heap| heap.shared.argument(&device, ptr, len as u64));
        match view {
            Ok(view) => self.buffer(argument, view),
            Err(error) => {
                self.mistake.get_or_insert(error.into());
                self
            }
        }
    }

    /// Gives a value for a `var<uniform>`: a scalar, a vector, or a structure laid out as WGSL lays it
    /// out. The value is taken at once.
    pub fn value<V: NoUninit>(self, argument: &str, value: &V) -> Self {
        self.give(argument, Given::of_value(value))
    }

    /// Gives a texture for a sampled or storage texture: a [`DeviceTexture`](crate::DeviceTexture), or a
    /// [`wgpu::TextureView`] of the program's own. A texture of the runtime is checked against the declaration, and stays until
    /// the launch has ended.
    pub fn texture(self, argument: &str, texture: impl Into<TextureArgument>) -> Self {
        self.give(argument, Given::Texture(texture.into()))
    }

    /// Gives a sampler.
    pub fn sampler(self, argument: &str, sampler: &wgpu::Sampler) -> Self {
        self.give(argument, Given::Sampler(sampler.clone()))
    }

    /// Gives the value of the kernel's `var<immediate>`.
    pub fn immediate<V: NoUninit>(mut self, value: &V) -> Self {
        self.immediates = Some(bytemuck::bytes_of(value).to_vec());
        self.checked = false;
        self
    }

    /// Runs at least `extent` invocations: work-groups are whole, so a kernel whose grid is no
    /// multiple of the work-group size has to compare its id with a bound itself, as in plain WGSL.
    pub fn invocations(mut self, extent: impl Into<Extent>) -> Self {
        self.set_grid(Grid::Invocations(extent.into()));
        self
    }

    /// Runs `extent` work-groups. More than the adapter dispatches at once (65,535 in a dimension) are
    /// run in several dispatches, which the kernel cannot tell from one.
    pub fn workgroups(mut self, extent: impl Into<Extent>) -> Self {
        self.set_grid(Grid::Workgroups(extent.into()));
        self
    }

    fn set_grid(&mut self, grid: Grid) {
        self.settings
            .buffers
            .retain(|argument| argument.slot != buffers::INDIRECT);
        self.grid = Some(grid);
        self.grid_checked = false;
    }

    /// Reads the three work-group counts from `buffer`, at byte `offset`, at the start of the launch: the counts
    /// written by earlier commands, on whichever device. Counts beyond the adapter's limit run nothing, as wgpu defines
    /// it.
    pub fn indirect(mut self, buffer: impl Into<BufferArgument>, offset: u64) -> Self {
        match buffer.into().0 {
            Passing::Here(buffer) => self.set_grid(Grid::Indirect {
                buffer,
                offset,
                staging: None,
            }),
            Passing::Wherever(part) => {
                self.set_grid(Grid::IndirectElsewhere { offset });
                let argument = MigratableArgument::new(buffers::INDIRECT, part, false);
                self.settings.buffers.push(argument);
            }
        }
        self
    }

    /// Changes the grid between two submissions: see [`Launch::workgroups`].
    pub fn set_workgroups(&mut self, extent: impl Into<Extent>) {
        self.set_grid(Grid::Workgroups(extent.into()));
    }

    /// Changes the grid between two submissions: see [`Launch::invocations`].
    pub fn set_invocations(&mut self, extent: impl Into<Extent>) {
        self.set_grid(Grid::Invocations(extent.into()));
    }

    /// Replaces, or first gives, the value of a `var<uniform>` between two submissions.
    ///
    /// # Errors
    /// [`LaunchError::UnknownArgument`].
    pub fn set_value<V: NoUninit>(&mut self, argument: &str, value: &V) -> Result<(), LaunchError> {
        let slot = self.slot(argument)?;
        let new = bytemuck::bytes_of(value);
        // Same size: still good, and bound to the same place.
        if let Some(Given::Value { bytes, .. }) = &mut self.given[slot]
            && bytes.len() == new.len()
        {
            bytes.copy_from_slice(new);
            return Ok(());
        }
        self.replace(slot, Given::of_value(value));
        Ok(())
    }

    fn replace(&mut self, slot: usize, given: Given) {
        self.settings
            .buffers
            .retain(|argument| argument.slot != slot);
        self.given[slot] = Some(given);
        self.checked = false;
        self.bound = None;
    }

    /// Replaces, or first gives, a buffer between two submissions.
    ///
    /// # Errors
    /// [`LaunchError::UnknownArgument`].
    pub fn set_buffer(
        &mut self,
        argument: &str,
        buffer: impl Into<BufferArgument>,
    ) -> Result<(), LaunchError> {
        let slot = self.slot(argument)?;
        match buffer.into().0 {
            Passing::Here(view) => self.replace(slot, Given::buffer(view, false)),
            Passing::Wherever(part) => {
                self.replace(slot, Given::Elsewhere(part.clone()));
                self.settings
                    .buffers
                    .push(MigratableArgument::new(slot, part, false));
            }
        }
        Ok(())
    }

    /// Replaces, or first gives, a texture between two submissions.
    ///
    /// # Errors
    /// [`LaunchError::UnknownArgument`].
    pub fn set_texture(
        &mut self,
        argument: &str,
        texture: impl Into<TextureArgument>,
    ) -> Result<(), LaunchError> {
        self.set(argument, Given::Texture(texture.into()))
    }

    /// Replaces, or first gives, a sampler between two submissions.
    ///
    /// # Errors
    /// [`LaunchError::UnknownArgument`].
    pub fn set_sampler(
        &mut self,
        argument: &str,
        sampler: &wgpu::Sampler,
    ) -> Result<(), LaunchError> {
        self.set(argument, Given::Sampler(sampler.clone()))
    }

    fn set(&mut self, argument: &str, given: Given) -> Result<(), LaunchError> {
        let slot = self.slot(argument)?;
        self.replace(slot, given);
        Ok(())
    }
}
