//! Whether a GPU's driver has a GPU to drive: distributions install the drivers of all makes together.

use std::fs::{self, File};
use std::path::Path;

use crate::icd::{Icd, Kind};

/// The device nodes that the user may open.
#[derive(Debug, Default)]
pub struct Nodes {
    nvidia: bool,
    directx: bool,
    /// The kernel driver of each render node, where the kernel tells.
    render: Vec<Option<String>>,
}

impl Nodes {
    /// Looks at the machine.
    pub fn read() -> Self {
        let nvidia = ["/dev/nvidiactl", "/dev/nvidia0"]
            .iter()
            .all(|node| openable(Path::new(node)));
        let render = fs::read_dir("/dev/dri").into_iter().flatten().flatten();
        let render = render
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("renderD"))
            .filter(|entry| openable(&entry.path()))
            .map(|entry| {
                let device = Path::new("/sys/class/drm")
                    .join(entry.file_name())
                    .join("device/uevent");
                fs::read_to_string(device)
                    .ok()
                    .as_deref()
                    .and_then(kernel_driver)
            })
            .collect();
        Self {
            nvidia,
            directx: openable(Path::new("/dev/dxg")),
            render,
        }
    }

    /// Whether the driver behind `library` would find a device.
    fn serve(&self, library: &str) -> bool {
        let file = library.rsplit('/').next().unwrap_or(library);
        if file.contains("nvidia") {
            return self.nvidia;
        }
        if file.contains("dzn") {
            return self.directx;
        }
        // In most virtual machines such a driver's device only draws pixels, and nothing short of a try tells which.
        if file.contains("virtio") || file.contains("gfxstream") {
            return false;
        }
        let drivers = kernel_drivers(file);
        self.render.iter().any(|node| match (node, drivers) {
            (Some(node), Some(drivers)) => drivers.contains(&node.as_str()),
            _ => true,
        })
    }
}

/// The GPUs' drivers with a GPU to drive.
pub fn usable(icds: &[Icd], nodes: &Nodes) -> Vec<Icd> {
    icds.iter()
        .filter(|icd| icd.kind == Kind::Hardware && nodes.serve(&icd.library))
        .cloned()
        .collect()
}

/// The kernel drivers a Vulkan driver works with; `None` if not known here.
fn kernel_drivers(file: &str) -> Option<&'static [&'static str]> {
    const TABLE: [(&str, &[&str]); 9] = [
        ("intel", &["i915", "xe"]),
        ("radeon", &["amdgpu"]),
        ("amdvlk", &["amdgpu"]),
        ("nouveau", &["nouveau"]),
        ("freedreno", &["msm", "msm_dpu", "msm_drm", "adreno"]),
        ("panfrost", &["panfrost", "panthor"]),
        ("broadcom", &["v3d", "vc4", "vc4-drm"]),
        ("asahi", &["asahi"]),
        ("powervr", &["powervr", "pvrsrvkm"]),
    ];
    TABLE
        .iter()
        .find(|(part, _)| file.contains(part))
        .map(|(_, drivers)| *drivers)
}

fn kernel_driver(uevent: &str) -> Option<String> {
    uevent
        .lines()
        .find_map(|line| line.strip_prefix("DRIVER="))
        .map(str::to_owned)
}

/// An existing node closed to the user is no GPU to the user.
fn openable(node: &Path) -> bool {
    File::options().read(true).write(true).open(node).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icd::Software;

    fn hardware(library: &str) -> Icd {
        Icd {
            manifest: format!("/m/{library}.json").into(),
            library: library.into(),
            kind: Kind::Hardware,
        }
    }

    fn render(driver: Option<&str>) -> Nodes {
        Nodes {
            render: vec![driver.map(str::to_owned)],
            ..Nodes::default()
        }
    }

    #[test]
    fn manifests_without_their_gpu_do_not_count() {
        let icds = [
            hardware("/usr/lib/libvulkan_intel.so"),
            hardware("/usr/lib/libvulkan_radeon.so"),
            hardware("libGLX_nvidia.so.0"),
            Icd {
                kind: Kind::Software(Software::Lavapipe),
                ..hardware("/usr/lib/libvulkan_lvp.so")
            },
        ];
        assert!(usable(&icds, &Nodes::default()).is_empty());
        assert_eq!(usable(&icds, &render(Some("amdgpu"))), icds[1..2]);
        assert_eq!(usable(&icds, &render(Some("i915"))), icds[..1]);
        let nvidia = Nodes {
            nvidia: true,
            ..render(Some("nvidia"))
        };
        assert_eq!(usable(&icds, &nvidia), icds[2..3]);
    }

    #[test]
    fn what_is_not_known_gets_the_benefit_of_the_doubt() {
        assert!(render(None).serve("libvulkan_intel.so"));
        assert!(render(Some("newdriver")).serve("libvulkan_newmake.so"));
        assert!(!render(Some("virtio-pci")).serve("libvulkan_virtio.so"));
    }

    #[test]
    fn the_kernel_names_its_driver() {
        assert_eq!(
            kernel_driver("DRIVER=i915\nPCI_CLASS=30000\n").as_deref(),
            Some("i915")
        );
        assert_eq!(kernel_driver("PCI_CLASS=30000\n"), None);
    }
}
