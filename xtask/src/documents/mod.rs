//! The rules of every page of the repository: paths and links of a page lead somewhere, the programs of a page are run, the
//! guide is whole, every example is shown, and the sources are as the map says.

mod errors;
mod examples;
mod guide;
mod links;
mod paths;
mod rooms;
mod template;

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace::Workspace;

/// The pages of the root, of `docs` and of the folders with their own page. Not the changelog: an old change is told there with
/// the names of the day.
fn pages(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    below(&root.join("docs"), &mut found);
    below(&root.join("templates"), &mut found);
    for folder in ["", "cpu", "kernels"] {
        of(&root.join(folder), &mut found);
    }
    found.retain(|path| path.file_name().is_some_and(|name| name != "CHANGELOG.md"));
    found.sort();
    found
}

/// The pages in a folder.
fn of(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    found.extend(paths.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
}

/// The pages in a folder and all folders below it.
fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    of(folder, found);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            below(&path, found);
        }
    }
}

/// The lines of a page without the code: outside of fenced blocks.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        !is_code && !fence
    })
}

#[test]
fn pages_everywhere_are_found() {
    let root = Workspace::find().unwrap().root().to_path_buf();
    let pages = pages(&root);
    for name in [
        "ARCHITECTURE.md",
        "BENCHMARKS.md",
        "README.md",
        "cpu/ARCHITECTURE.md",
        "docs/memory.md",
        "docs/guide/porting/opencl.md",
        "kernels/README.md",
        "templates/first-kernel/README.md",
    ] {
        assert!(pages.contains(&root.join(name)), "{name} is not looked at");
    }
}

/// Bytes of ARCHITECTURE.md at most: a map is read in one sitting. Reasons go to the head of a module, tables to a page of
/// `docs/`.
const MAP_BYTES: u64 = 14 << 10;

#[test]
fn the_map_stays_a_map() {
    let root = Workspace::find().unwrap().root().to_path_buf();
    let bytes = fs::metadata(root.join("ARCHITECTURE.md")).unwrap().len();
    assert!(
        bytes <= MAP_BYTES,
        "ARCHITECTURE.md has {bytes} bytes, more than {MAP_BYTES}: move details to a page below docs/"
    );
}

#[test]
fn blocks_are_no_prose() {
    let page = "a\n```sh\nb\n```\nc\n  ```toml\n  d\n  ```\ne";
    assert_eq!(prose(page).collect::<Vec<_>>(), ["a", "c", "e"]);
}
