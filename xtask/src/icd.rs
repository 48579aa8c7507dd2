//! Vulkan drivers as the loader sees them: manifests (`*_icd.json`) that name a shared library.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::library::Libraries;

/// A software driver for the project's tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Software {
    /// Mesa's.
    Lavapipe,
    /// The driver inside Chromium.
    SwiftShader,
}

impl Software {
    /// A part of the name of the driver's adapter in wgpu.
    pub fn adapter_name(self) -> &'static str {
        match self {
            Self::Lavapipe => "llvmpipe",
            Self::SwiftShader => "SwiftShader",
        }
    }

    /// The driver's name for people.
    pub fn driver_name(self) -> &'static str {
        match self {
            Self::Lavapipe => "lavapipe",
            Self::SwiftShader => "SwiftShader",
        }
    }
}

/// The device behind a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The processor.
    Software(Software),
    /// A GPU, in the machine or not.
    Hardware,
}

/// A driver's manifest whose library is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Icd {
    /// The manifest.
    pub manifest: PathBuf,
    /// The library: a path, or a bare name for the dynamic linker.
    pub library: String,
    /// The device behind the driver.
    pub kind: Kind,
}

/// All drivers of the machine that the loader could open, best place first.
pub fn scan(libraries: &Libraries) -> Vec<Icd> {
    let var = |name: &str| env::var(name).ok();
    let found = manifests(&search_paths(&var))
        .into_iter()
        .filter_map(|manifest| {
            let text = fs::read_to_string(&manifest).ok()?;
            parse(&manifest, &text, env::consts::ARCH)
        });
    distinct(found.filter(|icd| libraries.has(&icd.library)).collect())
}

/// The manifests a user chose through the loader's own variables; empty if none was chosen.
pub fn chosen(var: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    // The loader reads the older name only where the newer one is unset.
    let list = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"]
        .iter()
        .find_map(|name| var(name).filter(|list| !list.is_empty()));
    list.map(|list| env::split_paths(&list).collect())
        .unwrap_or_default()
}

/// The files and directories where the loader, or the loader's user, would look for manifests.
fn search_paths(var: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let list = |name: &str, default: &str| -> Vec<PathBuf> {
        let list = var(name)
            .filter(|list| !list.is_empty())
            .unwrap_or_else(|| default.to_owned());
        env::split_paths(&list)
            .filter(|path| !path.as_os_str().is_empty())
            .collect()
    };
    let home = |below: &str| {
        var("HOME")
            .map(|home| format!("{home}/{below}"))
            .unwrap_or_default()
    };

    let mut paths = chosen(var);
    paths.extend(list("VK_ADD_DRIVER_FILES", ""));
    let bases = [
        list("XDG_CONFIG_HOME", &home(".config")),
        list("XDG_CONFIG_DIRS", "/etc/xdg"),
        vec!["/etc".into()],
        list("XDG_DATA_HOME", &home(".local/share")),
        list("XDG_DATA_DIRS", ""),
        // Also where XDG_DATA_DIRS leaves them out: a manifest there can be named in VK_DRIVER_FILES.
        vec!["/usr/local/share".into(), "/usr/share".into()],
        // Containers get NVIDIA's driver here, NixOS every driver there.
        vec![
            "/usr/local/nvidia/share".into(),
            "/run/opengl-driver/share".into(),
        ],
    ];
    paths.extend(
        bases
            .into_iter()
            .flatten()
            .map(|base| base.join("vulkan/icd.d")),
    );
    paths
}

/// The manifests among or inside `paths`.
fn manifests(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_file() {
            found.push(path.clone());
        } else if let Ok(entries) = fs::read_dir(path) {
            let mut inside: Vec<PathBuf> = entries
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
                .collect();
            inside.sort();
            found.extend(inside);
        }
    }
    found
}

/// Reads a manifest; `None` for a broken manifest, for another processor, or for a driver nobody can compute on.
fn parse(manifest: &Path, text: &str, arch: &str) -> Option<Icd> {
    let json: Value = serde_json::from_str(text).ok()?;
    let library = json["ICD"]["library_path"].as_str()?;
    let bits = json["ICD"]["library_arch"].as_str();
    if !for_arch(manifest.file_name()?.to_str()?, bits, arch) {
        return None;
    }
    let kind = classify(library)?;
    let library = if library.contains('/') {
        // `join` keeps an absolute path unchanged.
        manifest.parent()?.join(library).to_str()?.to_owned()
    } else {
        library.to_owned()
    };
    Some(Icd {
        manifest: manifest.to_path_buf(),
        library,
        kind,
    })
}

/// Whether a manifest is for processor `arch`: older Mesa says so in the file's name, newer in the file.
fn for_arch(file_name: &str, library_arch: Option<&str>, arch: &str) -> bool {
    const KNOWN: [&str; 9] = [
        "x86_64", "i686", "i386", "x86", "aarch64", "armv7l", "armhf", "riscv64", "ppc64le",
    ];
    let in_name = file_name
        .trim_end_matches(".json")
        .rsplit('.')
        .next()
        .unwrap_or_default();
    if KNOWN.contains(&in_name) && in_name != arch {
        return false;
    }
    match library_arch {
        Some("32") => cfg!(target_pointer_width = "32"),
        Some("64") => cfg!(target_pointer_width = "64"),
        _ => true,
    }
}

fn classify(library: &str) -> Option<Kind> {
    let file = library
        .rsplit('/')
        .next()
        .unwrap_or(library)
        .to_ascii_lowercase();
    if file.contains("lvp") || file.contains("lavapipe") {
        Some(Kind::Software(Software::Lavapipe))
    } else if file.contains("swiftshader") {
        Some(Kind::Software(Software::SwiftShader))
    } else if file.contains("mock") || file.contains("null") {
        None
    } else {
        Some(Kind::Hardware)
    }
}

/// Drops manifests of a library already listed: twice in the list would be twice the same adapter.
fn distinct(icds: Vec<Icd>) -> Vec<Icd> {
    let mut seen = HashSet::new();
    icds.into_iter()
        .filter(|icd| {
            let library = fs::canonicalize(&icd.library).unwrap_or_else(|_| (&icd.library).into());
            seen.insert(library)
        })
        .collect()
}

/// The first driver of a kind of software.
pub fn software(icds: &[Icd], software: Software) -> Option<&Icd> {
    icds.iter().find(|icd| icd.kind == Kind::Software(software))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(library: &str) -> String {
        format!(
            r#"{{"ICD": {{"api_version": "1.3.230", "library_path": "{library}"}}, "file_format_version": "1.0.0"}}"#
        )
    }

    fn icd(path: &str, library: &str) -> Option<Icd> {
        parse(Path::new(path), &manifest(library), "x86_64")
    }

    #[test]
    fn kinds_are_told_by_the_library() {
        let kind = |library| icd("/m/a.json", library).map(|icd| icd.kind);
        assert_eq!(
            kind("/usr/lib/libvulkan_lvp.so"),
            Some(Kind::Software(Software::Lavapipe))
        );
        assert_eq!(
            kind("./libvk_swiftshader.so"),
            Some(Kind::Software(Software::SwiftShader))
        );
        assert_eq!(kind("libGLX_nvidia.so.0"), Some(Kind::Hardware));
        assert_eq!(kind("libVkICD_mock_icd.so"), None);
    }

    #[test]
    fn relative_libraries_lie_beside_their_manifest() {
        let library = |library| icd("/m/a.json", library).map(|icd| icd.library);
        assert_eq!(
            library("./libvk_swiftshader.so").as_deref(),
            Some("/m/./libvk_swiftshader.so")
        );
        assert_eq!(
            library("/usr/lib/libvulkan_lvp.so").as_deref(),
            Some("/usr/lib/libvulkan_lvp.so")
        );
        assert_eq!(
            library("libvulkan_lvp.so").as_deref(),
            Some("libvulkan_lvp.so")
        );
    }

    #[test]
    fn manifests_for_other_processors_are_skipped() {
        assert!(icd("/m/lvp_icd.x86_64.json", "libvulkan_lvp.so").is_some());
        assert!(icd("/m/lvp_icd.json", "libvulkan_lvp.so").is_some());
        assert!(icd("/m/lvp_icd.i686.json", "libvulkan_lvp.so").is_none());
        assert!(icd("/m/lvp_icd.aarch64.json", "libvulkan_lvp.so").is_none());
        let other = if cfg!(target_pointer_width = "64") {
            "32"
        } else {
            "64"
        };
        assert!(!for_arch("lvp_icd.json", Some(other), "x86_64"));
    }

    #[test]
    fn broken_manifests_are_no_drivers() {
        for text in [
            "",
            "{",
            "[]",
            r#"{"ICD": {}}"#,
            r#"{"ICD": {"library_path": 3}}"#,
        ] {
            assert_eq!(
                parse(Path::new("/m/a.json"), text, "x86_64"),
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn one_library_is_listed_once() {
        let icds = [
            icd("/etc/nvidia.json", "libGLX_nvidia.so.0"),
            icd("/usr/nvidia.json", "libGLX_nvidia.so.0"),
        ];
        let kept = distinct(icds.into_iter().flatten().collect());
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].manifest, Path::new("/etc/nvidia.json"));
    }

    #[cfg(unix)]
    #[test]
    fn the_users_choice_comes_first() {
        let var = |name: &str| match name {
            "VK_DRIVER_FILES" => Some("/a.json:/b.json".to_owned()),
            "VK_ICD_FILENAMES" => Some("/old.json".to_owned()),
            "XDG_DATA_HOME" => Some("/data".to_owned()),
            "HOME" => Some("/home/u".to_owned()),
            _ => None,
        };
        let paths = search_paths(&var);
        assert_eq!(
            paths[..2],
            [PathBuf::from("/a.json"), PathBuf::from("/b.json")]
        );
        assert!(!paths.contains(&"/old.json".into()));
        for dir in [
            "/home/u/.config",
            "/etc",
            "/data",
            "/usr/local/share",
            "/usr/share",
            "/usr/local/nvidia/share",
        ] {
            assert!(
                paths.contains(&Path::new(dir).join("vulkan/icd.d")),
                "{dir}"
            );
        }
    }

    #[test]
    fn no_choice_is_empty() {
        assert!(chosen(&|_| None).is_empty());
        assert!(chosen(&|_| Some(String::new())).is_empty());
    }
}
