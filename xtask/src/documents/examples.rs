//! The page of the examples is whole: every example has a section with its command, and its output or a picture.

use std::collections::BTreeSet;
use std::fs;

use crate::workspace::Workspace;

/// The page.
const PAGE: &str = "docs/examples.md";

/// The example whose output needs a browser, and the command of that example.
const IN_A_BROWSER: (&str, &str) = ("web", "cargo xtask web");

/// The sections of a page, each with the title.
fn sections(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let found = page.split("\n## ").skip(1);
    found.map(|section| section.split_once('\n').unwrap_or((section, "")))
}

/// What a section lacks.
fn lacks(name: &str, text: &str) -> Option<String> {
    let (is_in_browser, command) = match name == IN_A_BROWSER.0 {
        true => (true, IN_A_BROWSER.1.to_owned()),
        false => (false, format!("--example {name}")),
    };
    let has_command = text
        .lines()
        .any(|line| line.starts_with("cargo ") && line.contains(&command));
    let has_output = text.contains("\n```text\n") || text.contains("\n![");
    match (has_command, has_output || is_in_browser) {
        (false, _) => Some(format!("{name}: no command with `{command}`")),
        (_, false) => Some(format!("{name}: neither output nor picture")),
        _ => None,
    }
}

/// The names of the examples: the folders with a program, and programs that the manifest names.
fn examples() -> BTreeSet<String> {
    let workspace = Workspace::find().unwrap();
    let folders = fs::read_dir(workspace.root().join("examples")).unwrap();
    let folders = folders.map(|entry| entry.unwrap().path());
    let programs =
        folders.filter(|path| path.join("main.rs").exists() || path.join("Cargo.toml").exists());
    let mut names: BTreeSet<String> = programs
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    let manifest = fs::read_to_string(workspace.manifest()).unwrap();
    for section in manifest.split("[[example]]\nname = \"").skip(1) {
        names.insert(section.split('"').next().unwrap().to_owned());
    }
    names
}

#[test]
fn every_example_is_shown() {
    let root = Workspace::find().unwrap().root().to_path_buf();
    let page = fs::read_to_string(root.join(PAGE)).unwrap();
    let titles: BTreeSet<String> = sections(&page).map(|(title, _)| title.to_owned()).collect();
    let names = examples();
    assert!(names.len() > 12, "only {names:?} are found");
    assert_eq!(titles, names, "{PAGE} beside the examples there are");
    let wrong: Vec<String> = sections(&page)
        .filter_map(|(name, text)| lacks(name, text))
        .collect();
    assert!(wrong.is_empty(), "{PAGE}:\n{}", wrong.join("\n"));
}

#[test]
fn a_section_that_lacks_something_is_noticed() {
    let whole = "Text.\n\n```sh\ncargo run --example a\n```\n\n```text\nok\n```\n";
    assert_eq!(lacks("a", whole), None);
    assert_eq!(
        lacks("a", &whole.replace("```text\nok\n```", "![x](y.png)")),
        None
    );
    assert!(lacks("a", &whole.replace("text", "rust")).is_some());
    assert!(lacks("b", whole).is_some());
}
