//! Two devices to work on at once.

use std::error::Error;

use tombolo::{Context, Device};

/// The device that the environment chooses, and one of another adapter; where the machine has no other, or only
/// `one_adapter` is wanted, a second device of the same.
pub fn two(context: &Context, one_adapter: bool) -> Result<[Device; 2], Box<dyn Error>> {
    let one = context.device()?;
    let adapters = context.adapters();
    // One adapter may be there for several backends, under one name.
    let mut others = adapters.iter().filter(|known| known.name != one.name());
    if let Some(other) = others.next().filter(|_| !one_adapter) {
        let other = context.device_at(other.index)?;
        return Ok([one, other]);
    }
    let other = context.device_named(one.name())?;
    Ok([one, other])
}

/// The names of devices, in a line.
pub fn names(devices: &[Device]) -> String {
    let names: Vec<&str> = devices.iter().map(Device::name).collect();
    names.join(" and ")
}
