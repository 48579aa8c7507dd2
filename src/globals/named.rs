//! Device globals by name alone, for tools and for programs whose kernels come from elsewhere.

use std::sync::Arc;

use bytemuck::Pod;

use super::memory::{is_placed, names};
use super::transfer::{Target, check_range};
use super::{GlobalError, WaitList};
use crate::device::{Device, DeviceShared, Event};
use crate::kernel::globals::HostView;
use crate::kernel::{GlobalAccess, GlobalScope, InitMode, TypeLayout};

/// The known properties of a device global.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GlobalDescription {
    /// The name, with its program's prefix.
    pub name: String,
    /// The type: in WGSL's spelling, once a kernel names the variable, and in Rust's before.
    pub type_name: String,
    /// The layout, once a kernel names the variable.
    pub layout: Option<TypeLayout>,
    /// Bytes of the variable.
    pub bytes: u64,
    /// The unit with an instance.
    pub scope: GlobalScope,
    /// The host's allowed accesses.
    pub access: GlobalAccess,
    /// The time of a reset to the initial value.
    pub init: InitMode,
    /// This device has memory for the variable; for image scope, for the instance of some module.
    pub in_memory: bool,
}

/// A device global of a device, from [`Device::global`], without its type.
#[derive(Clone)]
pub struct NamedGlobal {
    device: Arc<DeviceShared>,
    description: GlobalDescription,
}

pub(super) fn describe(device: &Arc<DeviceShared>) -> Vec<GlobalDescription> {
    let names = names(device).names();
    names
        .into_iter()
        .filter_map(|name| describe_one(device, &name))
        .collect()
}

fn describe_one(device: &Arc<DeviceShared>, name: &str) -> Option<GlobalDescription> {
    let known = names(device).find(name)?;
    let host = known.host.as_ref();
    Some(GlobalDescription {
        name: name.to_owned(),
        type_name: known.type_name,
        layout: known.layout,
        bytes: known.bytes,
        scope: known.scope,
        access: host.map_or(GlobalAccess::ReadWrite, |host| host.access),
        init: host.map_or(InitMode::Reset, |host| host.init),
        in_memory: known
            .instances
            .iter()
            .any(|instance| is_placed(device, instance)),
    })
}

impl NamedGlobal {
    pub(super) fn find(device: &Device, name: &str) -> Result<Self, GlobalError> {
        let device = Arc::clone(&device.shared);
        match describe_one(&device, name) {
            Some(description) => Ok(Self {
                device,
                description,
            }),
            None => Err(GlobalError::Unknown {
                name: name.to_owned(),
                available: names(&device).names(),
            }),
        }
    }

    /// The known properties.
    pub fn description(&self) -> &GlobalDescription {
        &self.description
    }

    fn target(&self, what: &'static str) -> Result<Target<'_>, GlobalError> {
        let name = &self.description.name;
        let known = names(&self.device).find(name);
        let host = known.and_then(|known| known.host);
        let view = names(&self.device)
            .view_of(name)
            .map_err(Box::new)?
            .unwrap_or(HostView::Host);
        Target::new(
            &self.device,
            what,
            name,
            self.description.bytes,
            view,
            host.as_deref(),
        )
    }

    fn allow(&self, what: &'static str, allowed: [GlobalAccess; 2]) -> Result<(), GlobalError> {
        let access = self.description.access;
        match allowed.contains(&access) {
            true => Ok(()),
            false => Err(GlobalError::HostAccess {
                name: self.description.name.clone(),
                what,
                access,
            }),
        }
    }

    /// Reads `count` bytes from byte `offset` on; waits until everything recorded before is done.
    ///
    /// # Errors
    /// [`GlobalError::HostAccess`] where its declaration does not let the host read; [`GlobalError::Invalid`] beyond
    /// the end; [`GlobalError::Read`] with the failure of the writing launch.
    pub fn read_bytes(&self, offset: u64, count: u64) -> Result<Vec<u8>, GlobalError> {
        const WHAT: &str = "reading bytes";
        self.allow(WHAT, [GlobalAccess::Read, GlobalAccess::ReadWrite])?;
        check_range(
            &self.description.name,
            self.description.bytes,
            WHAT,
            offset,
            count,
        )?;
        let target = self.target(WHAT)?;
        let values = target.read(WHAT, offset, count, &WaitList::default())?;
        values.wait().map_err(|error| target.unreadable(error))
    }

    /// Writes bytes from byte `offset` on.
    ///
    /// # Errors
    /// [`GlobalError::HostAccess`] where its declaration does not let the host write; [`GlobalError::Invalid`] beyond
    /// the end.
    pub fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<Event, GlobalError> {
        const WHAT: &str = "writing bytes";
        self.allow(WHAT, [GlobalAccess::Write, GlobalAccess::ReadWrite])?;
        let count = bytes.len() as u64;
        check_range(
            &self.description.name,
            self.description.bytes,
            WHAT,
            offset,
            count,
        )?;
        self.target(WHAT)?
            .write(WHAT, offset, bytes, &WaitList::default())
    }

    /// Reads the whole variable as a value of `V`.
    ///
    /// # Errors
    /// [`GlobalError::Size`] where `V` has another size; otherwise as [`NamedGlobal::read_bytes`].
    pub fn read<V: Pod>(&self) -> Result<V, GlobalError> {
        self.check_size::<V>("reading")?;
        let bytes = self.read_bytes(0, self.description.bytes)?;
        Ok(bytemuck::pod_read_unaligned(&bytes))
    }

    /// Writes the whole variable.
    ///
    /// # Errors
    /// [`GlobalError::Size`] where `V` has another size; otherwise as [`NamedGlobal::write_bytes`].
    pub fn write<V: Pod>(&self, value: &V) -> Result<Event, GlobalError> {
        self.check_size::<V>("writing")?;
        self.write_bytes(0, bytemuck::bytes_of(value))
    }

    fn check_size<V>(&self, what: &'static str) -> Result<(), GlobalError> {
        let (bytes, rust_bytes) = (self.description.bytes, size_of::<V>() as u64);
        match bytes == rust_bytes {
            true => Ok(()),
            false => Err(GlobalError::Size {
                name: self.description.name.clone(),
                what,
                bytes,
                rust: std::any::type_name::<V>(),
                rust_bytes,
            }),
        }
    }
}

impl std::fmt::Debug for NamedGlobal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamedGlobal")
            .field("device", &self.device.capabilities.name)
            .field("description", &self.description)
            .finish()
    }
}
