//! Arguments of a server: buffers, values, textures and samplers, used by handlers by the names of their variables.
//!
//! Several kernels serve the calls of one server: the polling kernel or the kernels of slices, a kernel for the batches of
//! each function, and one for calls of kernels on the same device. Each is launched again and again, with the same
//! arguments: a lease or a slice is an ordinary launch as far as memory is concerned, so that the bytes of a
//! [`Buffer`](crate::Buffer) come to the server's device before, and are there for other launches behind it.
//!
//! A failure is a call's, and told to its caller. Arguments, device globals and the heap are not marked with the
//! failure (`Launch::unmarked`): a single asserting handler would else fail every later call, and every look of the
//! host.

use bytemuck::NoUninit;

use super::PersistentKernelBuilder;
use crate::launch::Launch;
use crate::launch::arguments::Given;
use crate::memory::TextureArgument;
use crate::memory::buffers::BufferArgument;

/// Arguments by name, in the order given.
#[derive(Debug, Clone, Default)]
pub(super) struct Arguments(Vec<(String, Argument)>);

#[derive(Debug, Clone)]
enum Argument {
    Buffer(BufferArgument),
    /// A value, a texture or a sampler.
    Other(Given),
}

/// The handlers of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Serves {
    /// All: an argument unknown to the kernel is a mistake.
    AllHandlers,
    /// A single one: arguments of the others are left out.
    OneHandler,
}

impl Arguments {
    fn add(&mut self, name: &str, argument: Argument) {
        self.0.push((name.to_owned(), argument));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives the arguments to a launch of a call-serving kernel.
    pub fn give(&self, mut launch: Launch, serves: Serves) -> Launch {
        for (name, argument) in &self.0 {
            if serves == Serves::OneHandler && !launch.takes(name) {
                continue;
            }
            launch = match argument {
                Argument::Buffer(buffer) => launch.buffer(name, buffer.clone()),
                Argument::Other(given) => launch.give(name, given.clone()),
            };
        }
        launch.unmarked()
    }
}

/// Arguments, by the names of variables with a binding. Arguments are given once, and keep their places as long as the
/// server lives; a name unused by all handlers, or a missing name, is an error of [`PersistentKernelBuilder::start`]
/// ([`ServerError::Launch`](crate::server::ServerError::Launch), with the error of a launch).
///
/// A lease works on the arguments as a launch does. Writes, copies and launches on the device before a call are seen by
/// the call; a call's writes are seen by reads, copies and launches that begin when the call has returned, and the
/// server leaves the device for such work. Failing calls leave their writes up to the failure. The bytes of a
/// [`Buffer`](crate::Buffer) of the context come to the device when a lease begins: writes of the host or another
/// device during a lease are seen by the next lease, and [`Device::finish`](crate::Device::finish) ends the running
/// one.
impl PersistentKernelBuilder {
    /// Gives a buffer, or a slice of a buffer, for a storage or uniform variable.
    ///
    /// ```
    /// # use tombolo::{Context, PersistentKernel, Program};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = Context::new()?.device()?;
    /// let program = Program::new("table.wgsl", "
    ///     @group(0) @binding(0) var<storage, read> squares: array<u32>;
    ///     fn square(x: u32) -> u32 { return squares[x]; }")?;
    /// let squares = device.buffer(&[0u32, 1, 4, 9])?;
    /// let server = PersistentKernel::builder(&device, &program).handler("square").buffer("squares", &squares).start()?;
    /// assert_eq!(server.function::<(u32,), u32>("square")?.call(&(3,))?, 9);
    /// # Ok(()) }
    /// ```
    pub fn buffer(mut self, argument: &str, buffer: impl Into<BufferArgument>) -> Self {
        self.arguments
            .add(argument, Argument::Buffer(buffer.into()));
        self
    }

    /// Gives a value for a `var<uniform>`: a scalar, a vector, or a structure laid out as WGSL lays it out. The value is
    /// taken at once, and stays.
    pub fn value<V: NoUninit>(mut self, argument: &str, value: &V) -> Self {
        let given = Given::of_value(value);
        self.arguments.add(argument, Argument::Other(given));
        self
    }

    /// Gives a texture for a sampled or storage texture: a [`DeviceTexture`](crate::DeviceTexture), or a
    /// [`wgpu::TextureView`] of the program's own.
    pub fn texture(mut self, argument: &str, texture: impl Into<TextureArgument>) -> Self {
        let given = Given::Texture(texture.into());
        self.arguments.add(argument, Argument::Other(given));
        self
    }

    /// Gives a sampler.
    pub fn sampler(mut self, argument: &str, sampler: &wgpu::Sampler) -> Self {
        let given = Given::Sampler(sampler.clone());
        self.arguments.add(argument, Argument::Other(given));
        self
    }
}
