//! Every path that a page names exists.
//!
//! A path is a text that looks like a path, in a code span or in a drawing (an indented block) or as the target of a link;
//! fenced blocks are left out. Paths lead from the root of the repository, from the page's own folder, or from `src` in either;
//! in the guide also from the template, the likeness of the reader's own crate, and on the page of the CPU adapter from the
//! adapter's compiler. `*` stands for any part of a name.

use std::fs;
use std::path::{Path, PathBuf};

use super::pages;
use crate::workspace::Workspace;

/// Endings of names that stand for files everywhere.
const ENDINGS: [&str; 6] = [".rs", ".wgsl", ".md", ".toml", ".yml", ".txt"];

/// The texts of code spans, the words of drawings with a folder and a known ending, and the targets of links, in order.
fn mentioned(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_code = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            if line.starts_with("    ") {
                let words = line.split(|c: char| c.is_whitespace() || ",;:()".contains(c));
                let paths = words.filter(|word| {
                    word.contains('/') && ENDINGS.iter().any(|ending| word.ends_with(ending))
                });
                found.extend(paths.map(str::to_owned));
            }
            found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
            let targets = line.split("](").skip(1);
            found.extend(targets.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())));
        }
    }
    found
}

/// Whether a mention is meant as a path.
fn is_path(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./*".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '.')
        && text.chars().all(plain)
        && (text.contains('/') || ENDINGS.iter().any(|ending| text.ends_with(ending)))
        && !text.starts_with("target/")
}

/// Whether a file or folder of the name is below `folder`.
fn exists(folder: &Path, path: &str) -> bool {
    let mut here: Vec<PathBuf> = vec![folder.into()];
    for part in path.trim_end_matches('/').split('/') {
        here = match part.split_once('*') {
            None => here.into_iter().map(|dir| dir.join(part)).collect(),
            Some((start, end)) => {
                let entries = here.iter().filter_map(|dir| fs::read_dir(dir).ok());
                let paths = entries
                    .flatten()
                    .filter_map(|entry| Some(entry.ok()?.path()));
                paths
                    .filter(|path| {
                        path.file_name().is_some_and(|name| {
                            let name = name.to_string_lossy();
                            name.starts_with(start) && name.ends_with(end)
                        })
                    })
                    .collect()
            }
        };
    }
    here.iter().any(|path| path.exists())
}

#[test]
fn every_path_that_a_page_names_exists() {
    let root = Workspace::find().unwrap().root().to_path_buf();
    let mut wrong = Vec::new();
    for page in pages(&root) {
        let text = fs::read_to_string(&page).unwrap();
        let own = page.parent().unwrap();
        let mut folders = vec![root.clone(), root.join("src"), own.into()];
        folders.extend(["src", "src/compile"].map(|below| own.join(below)));
        if own.starts_with(root.join("docs/guide")) {
            folders.push(root.join("templates/first-kernel"));
        }
        for path in mentioned(&text).into_iter().filter(|text| is_path(text)) {
            if !folders.iter().any(|folder| exists(folder, &path)) {
                wrong.push(format!("{}: {path}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "no such files:\n{}", wrong.join("\n"));
}

#[test]
fn spans_and_links_are_found_outside_of_code() {
    let page = "`src/a.rs` and [b](docs/b.md), `x`\n```sh\ncat `c/d.rs`\n```\n`e/`\n\n    f ─▶ src/g.rs, h.rs";
    assert_eq!(
        mentioned(page),
        ["src/a.rs", "x", "docs/b.md", "e/", "src/g.rs"]
    );
}

#[test]
fn paths_are_told_from_other_code() {
    for path in [
        "src/a.rs",
        "lib.rs",
        ".ci/run",
        "tests/gpu/print*.rs",
        "docs/",
    ] {
        assert!(is_path(path), "{path}");
    }
    for other in [
        "usm_add(p, q)",
        "1/14",
        "https://wgpu.rs",
        "Launch::submit",
        "target/debug",
        "x",
    ] {
        assert!(!is_path(other), "{other}");
    }
}

#[test]
fn a_path_that_is_missing_is_noticed() {
    let root = Workspace::find().unwrap().root().to_path_buf();
    assert!(
        exists(&root, "src/lib.rs") && exists(&root, "shaders/rpc*.wgsl") && exists(&root, "src/")
    );
    assert!(!exists(&root, "src/missing.rs") && !exists(&root, "shaders/missing*.wgsl"));
}
