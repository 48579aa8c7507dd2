//! Properties of an adapter before a device is opened.

use std::fmt;

/// The known properties of an adapter before a device is opened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AdapterDescription {
    /// The adapter's place in its context, for [`Context::device_at`](crate::Context::device_at).
    pub index: usize,
    /// The driver's name for the adapter.
    pub name: String,
    /// The backend of the adapter.
    pub backend: wgpu::Backend,
    /// Discrete, integrated, virtual, or a processor.
    pub device_type: wgpu::DeviceType,
    /// The driver's name and version, as far as known.
    pub driver: String,
    /// The address on the PCI bus, where the backend tells. On Vulkan two cards of the same name have different
    /// addresses; Direct3D 12 gives all cards of a kind the address of the first.
    pub pci_address: Option<String>,
}

/// For people: number, name, backend, kind, and further known properties, as
/// `1: NVIDIA H200 (Vulkan, discrete GPU, 570.86.15, 0000:1b:00.0)`.
impl fmt::Display for AdapterDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.device_type {
            wgpu::DeviceType::DiscreteGpu => "discrete GPU",
            wgpu::DeviceType::IntegratedGpu => "integrated GPU",
            wgpu::DeviceType::VirtualGpu => "virtual GPU",
            wgpu::DeviceType::Cpu => "processor",
            wgpu::DeviceType::Other => "of another kind",
        };
        let Self {
            index,
            name,
            backend,
            ..
        } = self;
        write!(f, "{index}: {name} ({backend:?}, {kind}")?;
        let driver = Some(self.driver.as_str()).filter(|driver| !driver.is_empty());
        for part in driver.into_iter().chain(self.pci_address.as_deref()) {
            write!(f, ", {part}")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_what_is_known_and_nothing_else() {
        let mut adapter = AdapterDescription {
            index: 1,
            name: "NVIDIA H200".to_owned(),
            backend: wgpu::Backend::Vulkan,
            device_type: wgpu::DeviceType::DiscreteGpu,
            driver: "570.86.15".to_owned(),
            pci_address: Some("0000:1b:00.0".to_owned()),
        };
        assert_eq!(
            adapter.to_string(),
            "1: NVIDIA H200 (Vulkan, discrete GPU, 570.86.15, 0000:1b:00.0)"
        );
        (adapter.driver, adapter.pci_address) = (String::new(), None);
        assert_eq!(adapter.to_string(), "1: NVIDIA H200 (Vulkan, discrete GPU)");
    }
}
