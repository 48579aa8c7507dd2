//! Whether the dynamic linker will find a shared library.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process;

/// The Vulkan loader, as wgpu opens it.
pub const VULKAN_LOADER: &str = "libvulkan.so.1";

/// The places the dynamic linker looks in, read once.
pub struct Libraries {
    cache: String,
    dirs: Vec<PathBuf>,
}

impl Libraries {
    /// Reads the linker's cache.
    pub fn read() -> Self {
        // Often not in the PATH of users other than root.
        let cache = ["ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"]
            .iter()
            .find_map(|program| process::output(Command::new(program).arg("-p")).ok())
            .unwrap_or_default();
        let mut dirs: Vec<PathBuf> = env::var_os("LD_LIBRARY_PATH")
            .map(|list| {
                env::split_paths(&list)
                    .filter(|dir| dir.is_absolute())
                    .collect()
            })
            .unwrap_or_default();
        let triple = format!("{}-linux-gnu", env::consts::ARCH);
        // Distributions without a linker cache (musl) have at least the following folders.
        for base in ["/lib", "/usr/lib", "/usr/local/lib"] {
            dirs.extend([
                Path::new(base).join(&triple),
                base.into(),
                format!("{base}64").into(),
            ]);
        }
        Self { cache, dirs }
    }

    /// Whether `name`, a path or a bare file name, can be opened.
    pub fn has(&self, name: &str) -> bool {
        if name.contains('/') {
            return Path::new(name).is_file();
        }
        in_cache(&self.cache, name, env::consts::ARCH)
            || self.dirs.iter().any(|dir| dir.join(name).is_file())
    }
}

/// Whether the output of `ldconfig -p` lists `name` for the processor.
fn in_cache(cache: &str, name: &str, arch: &str) -> bool {
    let tag = match arch {
        "x86_64" => "x86-64",
        "aarch64" => "AArch64",
        _ => "",
    };
    cache.lines().any(|line| {
        line.trim_start()
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(" ("))
            .and_then(|rest| rest.split_once(')'))
            .is_some_and(|(tags, _)| tags.contains(tag))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: &str = "3 libs found in cache `/etc/ld.so.cache'\n\
        \tlibvulkan.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libvulkan.so.1\n\
        \tlibvulkan.so.1 (libc6) => /lib/i386-linux-gnu/libvulkan.so.1\n\
        \tlibGLX_nvidia.so.0 (libc6) => /lib/i386-linux-gnu/libGLX_nvidia.so.0\n";

    #[test]
    fn cache_is_searched_by_name_and_processor() {
        assert!(in_cache(CACHE, "libvulkan.so.1", "x86_64"));
        assert!(!in_cache(CACHE, "libvulkan.so.1", "aarch64"));
        assert!(!in_cache(CACHE, "libvulkan.so", "x86_64"));
        assert!(!in_cache(CACHE, "libGLX_nvidia.so.0", "x86_64"));
        assert!(!in_cache("", "libvulkan.so.1", "x86_64"));
    }
}
