//! `cargo xtask demo`: the tour, on the best adapter of the machine: a GPU, an installed software driver, or the adapter
//! compiled in. Nothing is installed where the adapter compiled in exists, so that the demo needs neither root nor a package
//! server; the command `cargo xtask adapters` installs drivers.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::env::AdapterEnv;
use crate::error::Error;
use crate::gpu::{self, Nodes};
use crate::icd::{self, Icd, Kind};
use crate::library::{Libraries, VULKAN_LOADER};
use crate::process::{self, say};
use crate::provide::{self, EMBEDDED, Switches};
use crate::workspace::Workspace;

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    /// Run on the processor even where there is a GPU
    #[arg(long)]
    software: bool,
    /// Passed on to the tour
    #[arg(last = true)]
    tour: Vec<OsString>,
}

/// The driver for the tour.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    /// The driver named in the environment.
    Users(PathBuf),
    /// A GPU's driver, with the driver's manifest.
    Gpu(PathBuf),
    /// An installed software driver, with the driver's manifest.
    Software(PathBuf),
    /// No driver: the adapter compiled in serves.
    Embedded,
    /// No driver, on a processor without code of the adapter compiled in; a driver must be installed.
    Install,
}

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    let mut tour = workspace.cargo();
    tour.args([
        "run",
        "--release",
        "--package",
        "tombolo",
        "--example",
        "tour",
        "--",
    ])
    .args(&args.tour);
    let mut on_gpu = false;
    if provide::system_has_adapters() && args.software && provide::embedded_exists() {
        say("running on the adapter that is compiled in");
        tour.env("WGPU_ADAPTER_NAME", EMBEDDED);
    } else if provide::system_has_adapters() {
        provide::say_system_has_adapters();
    } else {
        match look(args.software) {
            Choice::Users(manifest) => {
                say(format!(
                    "using the driver your environment names: {}",
                    manifest.display()
                ));
            }
            Choice::Gpu(manifest) => {
                say(format!("found a GPU; its driver is {}", manifest.display()));
                on_gpu = true;
                // The variables name no existing driver, or the driver would have been the user's choice.
                tour.env_remove("VK_DRIVER_FILES")
                    .env_remove("VK_ICD_FILENAMES");
            }
            Choice::Software(manifest) => {
                say(format!("running in software, on {}", manifest.display()));
                AdapterEnv::selecting(workspace, &[manifest])?.apply(&mut tour);
            }
            Choice::Embedded => {
                say(
                    "no GPU and no software Vulkan driver here: running on the adapter that is compiled in \
                     (`cargo xtask adapters` installs drivers)",
                );
                tour.env("WGPU_ADAPTER_NAME", EMBEDDED);
            }
            Choice::Install => {
                say("no GPU and no software Vulkan driver found on this machine");
                let switches = Switches {
                    no_swiftshader: true,
                    ..Switches::default()
                };
                let provided = provide::provide(workspace, &switches)?;
                provided.report();
                provided.software_env(workspace)?.apply(&mut tour);
            }
        }
    }
    say(format!("running `{}`", process::display(&tour)));
    let result = process::run(&mut tour);
    if result.is_err() && on_gpu {
        say("if the GPU's driver is at fault: `cargo xtask demo --software` runs without it");
    }
    result
}

fn look(software: bool) -> Choice {
    let libraries = Libraries::read();
    let icds = icd::scan(&libraries);
    let gpus = if software {
        Vec::new()
    } else {
        gpu::usable(&icds, &Nodes::read())
    };
    let users = icd::chosen(&|name| std::env::var(name).ok());
    let users = users
        .into_iter()
        .find(|manifest| !software && manifest.exists());
    let otherwise = match provide::embedded_exists() {
        true => Choice::Embedded,
        false => Choice::Install,
    };
    choose(libraries.has(VULKAN_LOADER), users, &gpus, &icds, otherwise)
}

fn choose(
    loader: bool,
    users: Option<PathBuf>,
    gpus: &[Icd],
    icds: &[Icd],
    otherwise: Choice,
) -> Choice {
    // Without the loader no driver is of use.
    if !loader {
        return otherwise;
    }
    if let Some(manifest) = users {
        return Choice::Users(manifest);
    }
    if let Some(gpu) = gpus.first() {
        return Choice::Gpu(gpu.manifest.clone());
    }
    icds.iter()
        .find(|icd| matches!(icd.kind, Kind::Software(_)))
        .map_or(otherwise, |icd| Choice::Software(icd.manifest.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icd::Software;

    fn icd(manifest: &str, kind: Kind) -> Icd {
        Icd {
            manifest: manifest.into(),
            library: format!("{manifest}.so"),
            kind,
        }
    }

    #[test]
    fn the_best_there_is() {
        let gpu = icd("/g.json", Kind::Hardware);
        let software = icd("/l.json", Kind::Software(Software::Lavapipe));
        let icds = [gpu.clone(), software];
        let gpus = [gpu];
        let chosen = |loader, users: Option<&str>, gpus, icds| {
            choose(
                loader,
                users.map(PathBuf::from),
                gpus,
                icds,
                Choice::Embedded,
            )
        };
        assert_eq!(
            chosen(true, Some("/u.json"), &gpus, &icds),
            Choice::Users("/u.json".into())
        );
        assert_eq!(
            chosen(true, None, &gpus, &icds),
            Choice::Gpu("/g.json".into())
        );
        assert_eq!(
            chosen(true, None, &[], &icds),
            Choice::Software("/l.json".into())
        );
        assert_eq!(chosen(true, None, &[], &icds[..1]), Choice::Embedded);
        assert_eq!(chosen(false, None, &gpus, &icds), Choice::Embedded);
        assert_eq!(
            choose(false, None, &gpus, &icds, Choice::Install),
            Choice::Install
        );
    }
}
