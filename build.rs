//! Names the conditions that several places of the crate share, so that each is written once.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let system = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let vendor = env::var("CARGO_CFG_TARGET_VENDOR").unwrap_or_default();
    // Vulkan exists in wgpu on these systems, and elsewhere only behind features that are not enabled here.
    let may_have_vulkan = matches!(system.as_str(), "windows" | "linux" | "android" | "freebsd");
    let vulkan = may_have_vulkan && has("VULKAN");
    let dx12 = system == "windows" && has("DX12");
    let metal = vendor == "apple" && has("METAL");
    // The adapter of this project's own makes code for these processors, and keeps it in memory of these systems.
    let family = env::var("CARGO_CFG_TARGET_FAMILY").unwrap_or_default();
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let may_embed = family.split(',').any(|name| match name {
        "unix" => matches!(arch.as_str(), "x86_64" | "aarch64"),
        "windows" => arch == "x86_64",
        _ => false,
    });
    let embedded = may_embed && has("EMBEDDED");
    // A page of a browser: no threads, nothing may block, and WebGPU is the only backend.
    condition("web", family == "wasm" && system == "unknown");
    condition("vulkan", vulkan);
    condition("embedded", embedded);
    // OpenGL, on the systems where wgpu has it by this feature alone.
    condition("gles", may_have_vulkan && has("GLES"));
    // Whether a backend of the build has memory that the host and running kernels see at once.
    condition("live_memory", vulkan || dx12 || metal || embedded);
    // Given to the compiler from outside, by a task that looks at the languages of all backends.
    println!("cargo::rustc-check-cfg=cfg(shading_languages)");
    // Whether submissions of a backend of the build can signal a fence of the runtime's own.
    condition("signals", vulkan || dx12 || metal || embedded);
    // Set by cargo-fuzz, whose targets compile some files of the crate alone.
    println!("cargo::rustc-check-cfg=cfg(fuzzing)");
}

/// Whether the crate is built with a feature, given in capital letters.
fn has(feature: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{feature}")).is_some()
}

fn condition(name: &str, holds: bool) {
    println!("cargo::rustc-check-cfg=cfg({name})");
    if holds {
        println!("cargo::rustc-cfg={name}");
    }
}
