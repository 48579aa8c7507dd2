//! The guide is whole: every page of `docs` is a chapter, chapters link to chapters, and every program in them is a doc test.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::links::targets;
use super::pages;
use crate::commands::book::{Chapter, chapters, joined};
use crate::workspace::Workspace;

/// Where the programs of pages are doc tests.
const TESTED: &str = "src/pages.rs";

fn guide() -> Vec<Chapter> {
    chapters(&Workspace::find().unwrap()).unwrap()
}

/// The opening lines of a page's blocks of Rust.
fn programs(page: &str) -> impl Iterator<Item = &str> {
    let opening = |line: &&str| *line == "```rust" || line.starts_with("```rust,");
    page.lines().map(str::trim_start).filter(opening)
}

#[test]
fn every_page_is_a_chapter_once() {
    let root = Workspace::find().unwrap().root().to_path_buf();
    let listed: Vec<String> = guide().into_iter().map(|chapter| chapter.path).collect();
    let once: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "a chapter is listed twice");
    let of_docs = pages(&root);
    for page in of_docs {
        let path = page.strip_prefix(&root).unwrap().to_str().unwrap();
        let path = path.replace('\\', "/");
        if path.starts_with("docs/") && path != "docs/SUMMARY.md" {
            assert!(listed.contains(&path), "docs/SUMMARY.md lacks {path}");
        }
    }
}

#[test]
fn chapters_link_to_chapters_and_pictures() {
    let root = Workspace::find().unwrap().root().to_path_buf();
    let chapters = guide();
    let mut wrong = Vec::new();
    for chapter in &chapters {
        let text = fs::read_to_string(root.join(&chapter.path)).unwrap();
        let folder = Path::new(&chapter.path).parent().unwrap();
        for target in targets(&text) {
            let path = target.split('#').next().unwrap();
            if path.is_empty() {
                continue;
            }
            let path = joined(folder.to_str().unwrap(), path);
            let is_chapter = chapters.iter().any(|chapter| chapter.path == path);
            if !is_chapter && !path.starts_with("docs/images/") {
                wrong.push(format!("{}: {target}", chapter.path));
            }
        }
    }
    assert!(wrong.is_empty(), "not in the book:\n{}", wrong.join("\n"));
}

#[test]
fn every_program_is_run() {
    let root = Workspace::find().unwrap().root().to_path_buf();
    let tested = fs::read_to_string(root.join(TESTED)).unwrap();
    let mut count = 0;
    for page in pages(&root) {
        let path = page.strip_prefix(&root).unwrap().to_str().unwrap();
        let path = path.replace('\\', "/");
        // Pages of other crates are theirs to test.
        if path.starts_with("cpu/") || path.starts_with("kernels/") {
            continue;
        }
        let text = fs::read_to_string(&page).unwrap();
        for program in programs(&text) {
            count += 1;
            assert_eq!(program, "```rust", "{path}: a program that is not run");
            let line = format!("\"../{path}\"");
            assert!(tested.contains(&line), "{TESTED} lacks {path}");
        }
    }
    assert!(count > 15, "only {count} programs are found");
}
