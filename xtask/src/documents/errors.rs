//! Every error that programs can be given becomes the crate's one error for all, `tombolo::Error`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace::Workspace;

/// Errors without a conversion, and why.
const APART: [(&str, &str); 4] = [
    ("Error", "the one for all itself"),
    ("PointerError", "a fault of a pass, told as a `KernelError`"),
    (
        "PointerErrorKind",
        "a fault of a pass, told as a `KernelError`",
    ),
    (
        "Diagnostic",
        "part of a `KernelError`, and never returned alone",
    ),
];

/// The types of a source file that are public and errors: by derive, or by an `impl` of their own.
fn errors(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_derived = false;
    for line in text.lines() {
        let name = ["pub enum ", "pub struct "]
            .iter()
            .find_map(|start| line.strip_prefix(start));
        if let Some(rest) = name {
            if is_derived {
                found.push(up_to_end_of_name(rest));
            }
            is_derived = false;
        } else if let Some(derives) = line.strip_prefix("#[derive(") {
            let mut derives = derives.trim_end_matches(")]").split(", ");
            is_derived = derives.any(|derive| ["Error", "thiserror::Error"].contains(&derive));
        } else if !line.starts_with("#[") && !line.starts_with("///") {
            is_derived = false;
        }
        for start in ["impl Error for ", "impl std::error::Error for "] {
            found.extend(line.strip_prefix(start).map(up_to_end_of_name));
        }
    }
    found
}

fn up_to_end_of_name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// The error types named between the brackets of `from_each!`.
fn converted(text: &str) -> Vec<&str> {
    let (_, list) = text.split_once("\nfrom_each! {\n").unwrap();
    let (list, _) = list.split_once("\n}").unwrap();
    let types = list.lines().filter_map(|line| {
        let (_, rest) = line.split_once('(')?;
        rest.strip_suffix("),")
    });
    types.collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.push(path),
        }
    }
}

#[test]
fn every_error_becomes_the_one_for_all() {
    let root = Workspace::find().unwrap().root().join("src");
    let all = fs::read_to_string(root.join("error.rs")).unwrap();
    let converted = converted(&all);
    let mut files = Vec::new();
    sources(&root, &mut files);
    files.retain(|path| path.extension().is_some_and(|ending| ending == "rs"));
    let mut seen = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        for name in errors(&text) {
            seen.push(name.to_owned());
            let is_apart = APART.iter().any(|(apart, _)| *apart == name);
            assert!(
                is_apart || converted.contains(&name),
                "{name} of {} does not become `tombolo::Error`: add it to `from_each!`",
                path.display()
            );
        }
    }
    for name in converted.iter().chain(APART.iter().map(|(name, _)| name)) {
        assert!(
            seen.iter().any(|known| known == name),
            "no error is called {name}"
        );
    }
}

#[test]
fn errors_are_found_by_derive_and_by_impl() {
    let text = "#[derive(Clone, thiserror::Error)]\n#[non_exhaustive]\npub enum A {\n}\n#[derive(Clone, Debug)]\n\
                pub struct B;\nimpl Error for B {}\n#[derive(Debug)]\npub struct C<T>(T);\n\
                #[derive(thiserror::Error, Debug)]\npub struct D<T>(T);\n";
    assert_eq!(errors(text), ["A", "B", "D"]);
    assert_eq!(
        converted("x\nfrom_each! {\n    A(A),\n    #[cfg(x)]\n    B(B),\n}\n"),
        ["A", "B"]
    );
}
