//! The template, a crate of its own. The template's program is built and run as an example of the workspace; here the
//! template's manifests are looked over, without a build or a network.

use std::fs;
use std::path::PathBuf;

use crate::process;
use crate::workspace::Workspace;

fn folder() -> PathBuf {
    let root = Workspace::find().unwrap().root().to_path_buf();
    root.join("templates/first-kernel")
}

/// The manifest made by cargo-generate.
fn generated(name: &str, checkout: &str) -> String {
    let text = fs::read_to_string(folder().join("Cargo.toml.liquid")).unwrap();
    let text = text.replace("{{project-name}}", name);
    let text = text.replace("{{tombolo}}", checkout);
    assert!(!text.contains("{{"), "an unknown placeholder: {text}");
    text
}

#[test]
fn a_copy_has_the_manifest_that_is_generated() {
    let copied = fs::read_to_string(folder().join("Cargo.toml")).unwrap();
    assert_eq!(generated("first-kernel", "../.."), copied);
}

#[test]
fn a_new_crate_resolves_with_what_is_locked_here() {
    let workspace = Workspace::find().unwrap();
    let place = std::env::temp_dir().join(format!("xtask-template-{}", std::process::id()));
    fs::create_dir_all(place.join("src")).unwrap();
    let checkout = workspace.root().to_str().unwrap().replace('\\', "/");
    fs::write(place.join("Cargo.toml"), generated("made", &checkout)).unwrap();
    fs::write(place.join("src/main.rs"), "fn main() {}\n").unwrap();
    fs::copy(
        workspace.root().join("Cargo.lock"),
        place.join("Cargo.lock"),
    )
    .unwrap();
    let mut tree = workspace.cargo();
    tree.args([
        "tree",
        "--offline",
        "--depth",
        "1",
        "--edges",
        "normal",
        "--manifest-path",
    ]);
    let tree = process::output_with_messages(tree.arg(place.join("Cargo.toml"))).unwrap();
    fs::remove_dir_all(&place).unwrap();
    for name in ["made v", "bytemuck v", "tombolo v"] {
        assert!(tree.contains(name), "{name}: {tree}");
    }
}
