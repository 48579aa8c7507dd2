//! Gets software adapters onto the machine, installing only the missing parts.

use std::path::PathBuf;

use crate::apt::Apt;
use crate::env::AdapterEnv;
use crate::error::Error;
use crate::gpu::{self, Nodes};
use crate::icd::{self, Icd, Software};
use crate::library::{Libraries, VULKAN_LOADER};
use crate::process::say;
use crate::swiftshader::{self, Outcome};
use crate::workspace::Workspace;

const LOADER_PACKAGE: &str = "libvulkan1";
const LAVAPIPE_PACKAGE: &str = "mesa-vulkan-drivers";

/// A part of the name of the adapter compiled in.
pub const EMBEDDED: &str = "embedded";

/// Whether the adapter compiled in exists for the system and the processor.
pub const fn embedded_exists() -> bool {
    cfg!(any(
        all(unix, any(target_arch = "x86_64", target_arch = "aarch64")),
        all(windows, target_arch = "x86_64")
    ))
}

/// The switches of every command that provides adapters.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Switches {
    /// Fail where SwiftShader cannot be had (by default it is used where the distribution or a browser has it)
    #[arg(long, conflicts_with = "no_swiftshader")]
    pub swiftshader: bool,
    /// Do without SwiftShader
    #[arg(long)]
    pub no_swiftshader: bool,
    /// Do without lavapipe
    #[arg(long)]
    pub no_lavapipe: bool,
}

/// The adapters of the machine.
#[derive(Debug, Default)]
pub struct Provided {
    /// The software drivers and their manifests.
    pub software: Vec<(Software, PathBuf)>,
    /// Software drivers wanted if possible, and the reasons for their absence.
    pub absent: Vec<(Software, String)>,
    /// The GPUs' drivers.
    pub gpus: Vec<Icd>,
}

impl Provided {
    /// The environment that selects the software drivers alone.
    pub fn software_env(&self, workspace: &Workspace) -> Result<AdapterEnv, Error> {
        AdapterEnv::selecting(workspace, &self.software_manifests())
    }

    /// The environment for tests: all adapters; the adapters on the processor must turn up.
    pub fn test_env(&self, workspace: &Workspace) -> Result<AdapterEnv, Error> {
        let env = AdapterEnv::selecting(workspace, &self.all_manifests())?;
        let required = self.required_adapters().join(";");
        Ok(env.with("TOMBOLO_TEST_ADAPTERS", required))
    }

    fn software_manifests(&self) -> Vec<PathBuf> {
        self.software
            .iter()
            .map(|(_, manifest)| manifest.clone())
            .collect()
    }

    fn all_manifests(&self) -> Vec<PathBuf> {
        let gpus = self.gpus.iter().map(|icd| icd.manifest.clone());
        self.software_manifests().into_iter().chain(gpus).collect()
    }

    /// Parts of the names of the adapters on the processor; without any of the adapters the suite must fail.
    pub fn required_adapters(&self) -> Vec<&'static str> {
        let software = self.software.iter();
        let software = software.map(|(software, _)| software.adapter_name());
        let embedded = embedded_exists().then_some(EMBEDDED);
        software.chain(embedded).collect()
    }

    /// Tells which drivers are there and which are not.
    pub fn report(&self) {
        for (software, manifest) in &self.software {
            say(format!(
                "{}: {}",
                software.driver_name(),
                manifest.display()
            ));
        }
        for (software, reason) in &self.absent {
            say(format!(
                "{} is not provided here: {reason}",
                software.driver_name()
            ));
        }
        for icd in &self.gpus {
            say(format!("GPU driver: {}", icd.manifest.display()));
        }
    }
}

/// Whether wgpu finds an adapter through the system's own interface, with no Vulkan driver to install.
pub const fn system_has_adapters() -> bool {
    cfg!(any(target_os = "macos", target_os = "ios", windows))
}

/// Says why nothing is installed where [`system_has_adapters`].
pub fn say_system_has_adapters() {
    let what = if cfg!(windows) {
        "DX12 (with WARP where there is no GPU)"
    } else {
        "Metal"
    };
    say(format!("{what} is part of this system; nothing to install"));
}

/// Provides the software adapters the switches ask for.
pub fn provide(workspace: &Workspace, switches: &Switches) -> Result<Provided, Error> {
    let apt = Apt::find();
    let icds = ready(apt.as_ref(), switches)?;
    let mut provided = Provided {
        gpus: gpu::usable(&icds, &Nodes::read()),
        ..Provided::default()
    };
    if !switches.no_lavapipe {
        let lavapipe =
            icd::software(&icds, Software::Lavapipe).ok_or_else(|| Error::StillMissing {
                packages: format!("{LAVAPIPE_PACKAGE} and {LOADER_PACKAGE}"),
                what: "lavapipe's manifest and library",
            })?;
        provided
            .software
            .push((Software::Lavapipe, lavapipe.manifest.clone()));
    }
    if !switches.no_swiftshader {
        let outcome = match icd::software(&icds, Software::SwiftShader) {
            Some(icd) => Outcome::Here(icd.manifest.clone()),
            None => swiftshader::provide(workspace, apt.as_ref())?,
        };
        match outcome {
            Outcome::Here(manifest) => provided.software.push((Software::SwiftShader, manifest)),
            Outcome::NotHere(reason) if switches.swiftshader => {
                return Err(Error::NoSwiftShader { reason });
            }
            Outcome::NotHere(reason) => provided.absent.push((Software::SwiftShader, reason)),
        }
    }
    Ok(provided)
}

/// The drivers of the machine, once the loader and lavapipe are there.
fn ready(apt: Option<&Apt>, switches: &Switches) -> Result<Vec<Icd>, Error> {
    let libraries = Libraries::read();
    let icds = icd::scan(&libraries);
    let lavapipe = switches.no_lavapipe || icd::software(&icds, Software::Lavapipe).is_some();
    let packages = missing_packages(libraries.has(VULKAN_LOADER), lavapipe);
    // Where no driver is wanted the loader has nothing to load.
    let unwanted = switches.no_lavapipe && switches.no_swiftshader;
    if packages.is_empty() || unwanted {
        return Ok(icds);
    }
    let apt = apt.ok_or_else(|| Error::NoPackageManager {
        missing: packages.join(" and "),
    })?;
    say(format!(
        "installing {} with apt-get: a software Vulkan driver needs it",
        packages.join(" and ")
    ));
    apt.install(&packages).map_err(|error| match error {
        Error::NeedsRoot { .. } => error,
        other => Error::Install {
            source: Box::new(other),
        },
    })?;
    let libraries = Libraries::read();
    if !libraries.has(VULKAN_LOADER) {
        return Err(Error::StillMissing {
            packages: packages.join(" and "),
            what: "the Vulkan loader",
        });
    }
    Ok(icd::scan(&libraries))
}

fn missing_packages(loader: bool, lavapipe: bool) -> Vec<&'static str> {
    let mut packages = Vec::new();
    if !lavapipe {
        packages.push(LAVAPIPE_PACKAGE);
    }
    if !loader {
        packages.push(LOADER_PACKAGE);
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icd::Kind;

    #[test]
    fn nothing_is_installed_twice() {
        assert!(missing_packages(true, true).is_empty());
        assert_eq!(missing_packages(true, false), ["mesa-vulkan-drivers"]);
        assert_eq!(missing_packages(false, true), ["libvulkan1"]);
        assert_eq!(
            missing_packages(false, false),
            ["mesa-vulkan-drivers", "libvulkan1"]
        );
    }

    #[test]
    fn tests_need_the_software_adapters_and_take_the_gpus_along() {
        let gpu = Icd {
            manifest: "/g.json".into(),
            library: "libg.so".into(),
            kind: Kind::Hardware,
        };
        let mut provided = Provided {
            software: vec![
                (Software::Lavapipe, "/l.json".into()),
                (Software::SwiftShader, "/s.json".into()),
            ],
            gpus: vec![gpu],
            ..Provided::default()
        };
        let with_embedded = |software: &[&'static str]| {
            let embedded = embedded_exists().then_some(EMBEDDED);
            [software, embedded.as_slice()].concat()
        };
        let both = with_embedded(&["llvmpipe", "SwiftShader"]);
        assert_eq!(provided.required_adapters(), both);
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(
            provided.all_manifests(),
            paths(&["/l.json", "/s.json", "/g.json"])
        );
        assert_eq!(
            provided.software_manifests(),
            paths(&["/l.json", "/s.json"])
        );
        provided.software.pop();
        let one = with_embedded(&["llvmpipe"]);
        assert_eq!(provided.required_adapters(), one);
    }
}
