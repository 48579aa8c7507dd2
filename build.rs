//! Names the one condition that several places of the crate share, so that it is written once.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(vulkan)");
    // Vulkan exists in wgpu on these systems, and elsewhere only behind features that are not enabled here.
    let system = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let has_it = matches!(system.as_str(), "windows" | "linux" | "android" | "freebsd");
    if has_it && env::var_os("CARGO_FEATURE_VULKAN").is_some() {
        println!("cargo::rustc-cfg=vulkan");
    }
}
