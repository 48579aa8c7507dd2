//! Launches: arguments by their WGSL names, a grid, and an event.

mod arena;
pub(crate) mod arguments;
pub(crate) mod bind;
mod bounce;
pub(crate) mod callee;
pub(crate) mod error;
mod globals;
pub(crate) mod grid;
mod groups;
mod services;
mod submit;
mod table;
mod travel;

use std::sync::Arc;

use bytemuck::{NoUninit, Pod};

pub use error::LaunchError;
pub use grid::Extent;

use crate::kernel::pipeline::Kernel;
use crate::kernel::reflect::Interface;
use crate::memory::buffers::Passing;
use crate::memory::heap::heap_of;
use crate::memory::{BufferArgument, BufferView, Ptr};
use crate::print::PrintOptions;
use crate::rpc::{Mailbox, Services};
use arguments::{Given, check, check_aliases, describe};
use bounce::{Bounce, bounce, bounce_beside, check_bounces};

/// A launch in the making, from [`Kernel::launch`]. Arguments are given by the names of their WGSL
/// variables and checked against what the kernel declares.
///
/// A launch can be submitted again and again; [`Launch::set_value`] and [`Launch::set_buffer`] change
/// it in between. Whatever has not changed is neither checked nor bound anew.
#[derive(Debug, Clone)]
#[must_use = "nothing runs until `submit` is called"]
pub struct Launch {
    kernel: Kernel,
    given: Vec<Option<Given>>,
    immediates: Option<Vec<u8>>,
    grid: Option<Grid>,
    profiled: bool,
    print: Option<PrintOptions>,
    /// The first mistake of the builder, reported by `submit`.
    mistake: Option<LaunchError>,
    /// True while the arguments are known to be good.
    checked: bool,
    bound: Option<groups::BoundGroups>,
    /// Arguments that are buffers of the context.
    travellers: Vec<travel::Traveller>,
    /// Pointer arguments that the adapter cannot bind where they are.
    bounces: Vec<Bounce>,
    /// The kernel's device globals, once they are known to be there.
    globals: Option<globals::LaunchGlobals>,
    /// Places behind the heap for arguments that have no binding and travel there.
    scratches: table::Scratches,
    /// Arguments that share a part of the heap with one that is written; see `Variant::written`.
    written: u64,
    /// The same for the device globals.
    globals_written: bool,
    /// The services that the kernel may call, and their ports on its device.
    services: Option<Arc<Services>>,
    mailbox: Option<Arc<Mailbox>>,
    /// Or else the server on a device that it calls, and the ports for that.
    callee: Option<Arc<dyn callee::Callee>>,
    kernel_ports: Option<Arc<callee::KernelPorts>>,
}

#[derive(Debug, Clone)]
enum Grid {
    Invocations(Extent),
    Workgroups(Extent),
    Indirect {
        buffer: BufferView,
        offset: u64,
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
            profiled: false,
            print: None,
            mistake: None,
            checked: false,
            bound: None,
            travellers: Vec::new(),
            bounces: Vec::new(),
            globals: None,
            scratches: table::Scratches::new(),
            written: 0,
            globals_written: false,
            services: None,
            mailbox: None,
            callee: None,
            kernel_ports: None,
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

    fn give(mut self, argument: &str, given: Given) -> Self {
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
            Passing::Here(view) => self.give(argument, Given::Buffer { view, overwrites }),
            Passing::Wherever(part) => {
                let mut launch = self.give(argument, Given::Elsewhere(part.clone()));
                if let (Ok(slot), None) = (launch.slot(argument), &launch.mistake) {
                    launch
                        .travellers
                        .push(travel::Traveller::new(slot, part, overwrites));
                }
                launch
            }
        }
    }

    /// As [`Launch::buffer`], promising that the launch writes every byte of it without reading what
    /// it held: a failure of an earlier launch that wrote there does not spread to this one.
    /// What a [`Buffer`](crate::Buffer) of the context held is not brought to the device.
    pub fn overwrite(self, argument: &str, buffer: impl Into<BufferArgument>) -> Self {
        self.pass(argument, buffer.into(), true)
    }

    /// Gives the `len` values at `ptr`, in the shared heap of the kernel's device, for a storage or
    /// uniform variable: the kernel reaches them through a binding of its own, as fast as any buffer.
    /// Where the adapter cannot bind at the address, the values travel through a buffer that it can.
    ///
    /// A kernel that follows pointers as well reaches a storage variable through its binding of the heap,
    /// so that both see the same memory; a uniform variable is a copy, made when the launch begins.
    ///
    /// In the kernel `arrayLength` is what `len` makes of it, and `len` values have to lie in one live
    /// allocation: this is a length known from the allocation ([`Device::find`](crate::Device::find) tells how
    /// long that is). Of a pointer that a kernel follows only the address is known, so that the number of
    /// elements has to be passed or stored beside it.
    pub fn pointer<T: Pod>(mut self, argument: &str, ptr: Ptr<T>, len: usize) -> Self {
        let device = Arc::clone(&self.kernel.device);
        let view = heap_of(&device).and_then(|heap| heap.shared.argument(&device, ptr, len as u64));
        let given = view.map_err(LaunchError::from).and_then(|view| {
            let slot = self.slot(argument)?;
            let info = &self.interface().arguments[slot];
            match self.kernel.shared.compiled.heap {
                Some(_) => bounce_beside(&device, info, slot, view),
                None => bounce(&device, info, slot, view),
            }
        });
        match given {
            Ok((view, bounce)) => {
                let mut launch = self.buffer(argument, view);
                launch.bounces.extend(bounce);
                launch
            }
            Err(error) => {
                self.mistake.get_or_insert(error);
                self
            }
        }
    }

    /// Gives a value for a `var<uniform>`: a scalar, a vector, or a structure laid out as WGSL lays it
    /// out. The value is taken at once.
    pub fn value<V: NoUninit>(self, argument: &str, value: &V) -> Self {
        let given = Given::Value {
            bytes: bytemuck::bytes_of(value).to_vec(),
            rust: std::any::type_name::<V>(),
        };
        self.give(argument, given)
    }

    /// Gives a texture view for a sampled or storage texture.
    pub fn texture(self, argument: &str, view: &wgpu::TextureView) -> Self {
        self.give(argument, Given::Texture(view.clone()))
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

    /// Runs at least `extent` invocations: work-groups are whole, so that a kernel whose grid is no
    /// multiple of its work-group size has to compare its id with a bound itself, as in plain WGSL.
    pub fn invocations(mut self, extent: impl Into<Extent>) -> Self {
        self.grid = Some(Grid::Invocations(extent.into()));
        self
    }

    /// Runs `extent` work-groups. More than the adapter dispatches at once (65,535 in a dimension) are
    /// run in several dispatches, which the kernel cannot tell from one.
    pub fn workgroups(mut self, extent: impl Into<Extent>) -> Self {
        self.grid = Some(Grid::Workgroups(extent.into()));
        self
    }

    /// Reads the three work-group counts from `buffer`, at byte `offset`, when the launch runs. Counts
    /// beyond the adapter's limit run nothing, as wgpu defines it.
    pub fn indirect(mut self, buffer: impl Into<BufferArgument>, offset: u64) -> Self {
        self.travellers
            .retain(|traveller| traveller.slot != travel::INDIRECT);
        self.grid = Some(match buffer.into().0 {
            Passing::Here(buffer) => Grid::Indirect { buffer, offset },
            Passing::Wherever(part) => {
                let traveller = travel::Traveller::new(travel::INDIRECT, part, false);
                self.travellers.push(traveller);
                Grid::IndirectElsewhere { offset }
            }
        });
        self.checked = false;
        self
    }

    /// Measures the time that the device spends on the launch: [`Event::gpu_time`](crate::Event::gpu_time).
    pub fn profiled(mut self) -> Self {
        self.profiled = true;
        self
    }

    /// Says where and how this launch prints, instead of
    /// [`DeviceOptions::print`](crate::DeviceOptions::print).
    pub fn print_to(mut self, options: PrintOptions) -> Self {
        self.print = Some(options);
        self
    }

    /// Changes the number of work-groups between two submissions.
    pub(crate) fn set_workgroups(&mut self, extent: impl Into<Extent>) {
        self.grid = Some(Grid::Workgroups(extent.into()));
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
        let given = Given::Value {
            bytes: new.to_vec(),
            rust: std::any::type_name::<V>(),
        };
        self.replace(slot, given);
        Ok(())
    }

    fn replace(&mut self, slot: usize, given: Given) {
        self.bounces.retain(|bounce| bounce.argument != slot);
        self.travellers.retain(|traveller| traveller.slot != slot);
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
            Passing::Here(view) => {
                let overwrites = false;
                self.replace(slot, Given::Buffer { view, overwrites });
            }
            Passing::Wherever(part) => {
                self.replace(slot, Given::Elsewhere(part.clone()));
                self.travellers
                    .push(travel::Traveller::new(slot, part, false));
            }
        }
        Ok(())
    }

    /// Checks the launch without submitting it.
    ///
    /// # Errors
    /// What [`Launch::submit`] would refuse.
    pub fn check(&mut self) -> Result<(), LaunchError> {
        if self.checked {
            return Ok(());
        }
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        let device = &self.kernel.device;
        let interface = self.kernel.interface();
        let name = &interface.entry;
        let missing: Vec<_> = interface
            .arguments
            .iter()
            .zip(&self.given)
            .filter(|(_, given)| given.is_none())
            .map(|(info, _)| info)
            .collect();
        if let Some(info) = missing.iter().find(|info| {
            matches!(
                info.kind,
                crate::kernel::reflect::ArgumentKind::Unsupported { .. }
            )
        }) {
            return Err(LaunchError::UnsupportedArgument {
                kernel: name.clone(),
                argument: info.name.clone(),
                wgsl: info.kind.noun(),
            });
        }
        if !missing.is_empty() {
            return Err(LaunchError::MissingArguments {
                kernel: name.clone(),
                missing: describe(missing.into_iter()),
            });
        }
        let compiled = &self.kernel.shared.compiled;
        let reaches_heap = compiled.heap.is_some();
        for (index, (info, given)) in interface.arguments.iter().zip(&self.given).enumerate() {
            if let Some(given) = given {
                let through_heap = match given {
                    Given::Buffer { view, .. } if view.shared.is_heap => reaches_heap,
                    _ => compiled.table.contains(&index),
                };
                check(device, name, info, given, through_heap)?;
            }
        }
        self.written = check_aliases(name, interface, &self.given, reaches_heap)?;
        if self.globals.is_none() {
            self.globals = globals::LaunchGlobals::of(&self.kernel)?;
        }
        if let Some(globals) = &self.globals {
            (self.written, self.globals_written) =
                globals.check_aliases(name, interface, &self.given, self.written)?;
        }
        check_bounces(name, interface, &self.given, &self.bounces)?;
        self.check_immediates()?;
        self.check_services()?;
        self.check_indirect()?;
        self.checked = true;
        Ok(())
    }

    fn check_immediates(&self) -> Result<(), LaunchError> {
        let name = self.name();
        match (&self.interface().immediates, &self.immediates) {
            (None, None) => Ok(()),
            (Some(layout), None) => Err(LaunchError::MissingArguments {
                kernel: name,
                missing: format!("its var<immediate> ({layout})"),
            }),
            (None, Some(_)) => Err(LaunchError::UnknownArgument {
                kernel: name,
                argument: "var<immediate>".into(),
                available: describe(self.interface().arguments.iter()),
            }),
            (Some(layout), Some(bytes)) if bytes.len() != layout.size as usize => {
                Err(LaunchError::UniformSize {
                    kernel: name,
                    argument: "var<immediate>".into(),
                    wgsl: layout.wgsl.as_str().into(),
                    size: layout.size,
                    padding: layout.padding_note().into(),
                    value: "the immediate value",
                    value_bytes: bytes.len(),
                })
            }
            (Some(_), Some(_)) => Ok(()),
        }
    }

    fn check_indirect(&self) -> Result<(), LaunchError> {
        let Some(Grid::Indirect { buffer, offset }) = &self.grid else {
            return Ok(());
        };
        const ARGUMENT: &str = "the indirect buffer";
        let device = &self.kernel.device;
        if !Arc::ptr_eq(device, &buffer.shared.device) {
            return Err(LaunchError::OtherDevice {
                kernel: self.name(),
                argument: ARGUMENT.into(),
                device: device.capabilities.name.clone(),
                other: buffer.shared.device.capabilities.name.clone(),
            });
        }
        let end = offset.saturating_add(12);
        let outside = buffer.out_of_range.is_some() || end > buffer.bytes;
        if outside || !(buffer.offset + offset).is_multiple_of(4) {
            return Err(LaunchError::Indirect {
                kernel: self.name(),
                offset: *offset,
                bytes: buffer.bytes,
            });
        }
        let needed = wgpu::BufferUsages::INDIRECT;
        if !buffer.shared.raw.usage().contains(needed) {
            return Err(LaunchError::MissingUsage {
                kernel: self.name(),
                argument: ARGUMENT.into(),
                needed,
            });
        }
        let arguments = self.interface().arguments.iter().zip(&self.given);
        for (info, given) in arguments {
            if let (
                crate::kernel::reflect::ArgumentKind::Storage { writable: true, .. },
                Some(Given::Buffer { view, .. }),
            ) = (&info.kind, given)
                && view.shared.raw == buffer.shared.raw
            {
                return Err(LaunchError::Aliased {
                    kernel: self.name(),
                    first: info.name.clone(),
                    second: ARGUMENT.into(),
                });
            }
        }
        Ok(())
    }
}
