//! This package has no code. It pins published crates that ship WGSL compute shaders, so that
//!
//! ```text
//! cargo fetch --locked --manifest-path corpus/Cargo.toml --target <host>
//! ```
//!
//! brings their sources into cargo's registry folder, where `tests/corpus` reads the shaders. The
//! test does this by itself when the sources are missing. Nothing here is ever built.
//!
//! To add a crate: pin it in `Cargo.toml`, run `cargo generate-lockfile` or `cargo update -p` in this
//! folder, and list its entry points in `tests/corpus/shaders`.
