//! Two devices to work on at once.

use std::error::Error;

use tombolo::{AdapterDescription, Context, Device, DeviceOptions};

/// Which two.
#[derive(clap::Args)]
pub struct Choice {
    /// Use two devices of one adapter, even if there are others.
    #[arg(long)]
    one_adapter: bool,
    /// Share no memory of the host with the devices: bytes go through copies of it.
    #[arg(long)]
    copies: bool,
}

impl Choice {
    /// Of two adapters where the machine has them, in memory of the host.
    pub const ANY: Self = Self {
        one_adapter: false,
        copies: false,
    };

    /// The device that the environment chooses, and one of another adapter of its kind (GPU or processor); where the
    /// machine has no other, or only one is wanted, a second device of the same.
    pub fn open(&self, context: &Context) -> Result<[Device; 2], Box<dyn Error>> {
        let options = DeviceOptions::default().import_host_memory(!self.copies);
        let one = context.device_with(options.clone())?;
        let adapters = context.adapters();
        // One adapter may be there for several backends, with one address, or under one name or several where not all backends tell
        // addresses; and a GPU is not to wait for a processor.
        let software = |ty| ty == wgpu::DeviceType::Cpu;
        let capabilities = one.capabilities();
        let is_other =
            |known: &AdapterDescription| match (&known.pci_address, &capabilities.pci_address) {
                (Some(there), Some(here)) => there != here,
                _ => known.name != one.name() && known.backend == capabilities.backend,
            };
        let mut others = adapters.iter().filter(|known| {
            is_other(known) && software(known.device_type) == software(capabilities.device_type)
        });
        let other = match others.next().filter(|_| !self.one_adapter) {
            Some(other) => context.device_at_with(other.index, options)?,
            None => context.device_named_with(one.name(), options)?,
        };
        Ok([one, other])
    }
}

/// The names of devices, in a line.
pub fn names(devices: &[Device]) -> String {
    let names: Vec<&str> = devices.iter().map(Device::name).collect();
    names.join(" and ")
}
