//! The errors of the crate: each variant of each public error is met by a test, and every error named in a paragraph `# Errors`
//! exists.
//!
//! An error is an enumeration that derives `Error`, and stands in a test by name: `BufferError::Range`. A test's text is a file
//! with `test` in the name, everything below `tests`, and the text behind `mod tests {` in other files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::workspace::Workspace;

/// Variants not met by any test, and why.
const UNMET: &[(&str, &str)] = &[
    ("HeapError::System", "only the system refuses it"),
    (
        "WindowError::OutOfMemory",
        "only a system that promises no memory beyond what it has refuses it",
    ),
    (
        "ImportError::NotCoherent",
        "only a driver without coherent memory says so",
    ),
    (
        "LiveError::NotCoherent",
        "only a driver without coherent memory says so",
    ),
    (
        "ServerError::Live",
        "ports are small beside what drivers have; `LiveError` itself is met",
    ),
    (
        "LaunchError::UnsupportedArgument",
        "kernels with such arguments are refused when they are made, unless a driver takes them",
    ),
    (
        "GlobalError::NoAddress",
        "what has no place is no variable of a device, of which alone the address can be asked",
    ),
    (
        "RegionError::TooManyRanges",
        "it takes two thousand million allocations",
    ),
];

/// Enumerations whose variants nobody outside meets: the error for all, made by a macro of all other errors; and the contents
/// of a diagnostic, with nothing but words.
const NOT_MATCHED: [&str; 2] = ["Error", "PointerErrorKind"];

/// The program's own text and the text of the tests.
#[derive(Default)]
struct Texts {
    own: String,
    tests: String,
}

impl Texts {
    /// The files below a folder.
    fn read(&mut self, folder: &Path, are_tests: bool) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let are_tests = are_tests || name.contains("test");
            if path.is_dir() {
                self.read(&path, are_tests);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                self.add(&fs::read_to_string(&path).unwrap(), are_tests);
            }
        }
    }

    fn add(&mut self, text: &str, are_tests: bool) {
        let at = match are_tests {
            true => 0,
            false => text.find("\nmod tests {").unwrap_or(text.len()),
        };
        self.own.push_str(&text[..at]);
        self.tests.push_str(&text[at..]);
    }
}

/// The public errors, each with all variants.
fn errors(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut errors = BTreeMap::new();
    let mut derives = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(derived) = line.strip_prefix("#[derive(") {
            let mut traits = derived.trim_end_matches(")]").split(", ");
            derives = traits.any(|one| one == "Error" || one == "thiserror::Error");
        } else if let Some(rest) = line.strip_prefix("pub enum ") {
            let name = rest.split(' ').next().unwrap_or_default();
            if std::mem::take(&mut derives) {
                let body = lines.by_ref().take_while(|line| *line != "}");
                errors.insert(name, body.filter_map(variant).collect());
            }
        }
    }
    errors
}

/// The variant at the beginning of a line of an enumeration.
fn variant(line: &str) -> Option<&str> {
    let text = line.strip_prefix("    ")?;
    let is_name = text.starts_with(|first: char| first.is_ascii_uppercase());
    is_name.then(|| text.split(|c: char| !c.is_alphanumeric()).next())?
}

/// The errors that paragraphs `# Errors` name as `Enumeration::Variant`.
fn documented(text: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut is_paragraph = false;
    for line in text.lines() {
        let Some(comment) = line.trim_start().strip_prefix("///") else {
            is_paragraph = false;
            continue;
        };
        match comment.trim() {
            "# Errors" => is_paragraph = true,
            heading if heading.starts_with("# ") => is_paragraph = false,
            line if is_paragraph => found.extend(paths(line)),
            _ => {}
        }
    }
    found
}

/// Pairs of names with a `::` between them.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    text.split(move |c| !is_path(c)).filter_map(|path| {
        let variant = path.rfind("::")?;
        let start = path[..variant].rfind("::").map_or(0, |at| at + 2);
        Some(&path[start..])
    })
}

/// The faults in the errors of a text.
fn wrong(texts: &Texts, unmet: &[(&str, &str)]) -> Vec<String> {
    let errors = errors(&texts.own);
    let met: BTreeSet<&str> = paths(&texts.tests).collect();
    let mut wrong = Vec::new();
    let matched = errors
        .iter()
        .filter(|(error, _)| !NOT_MATCHED.contains(error));
    for (error, variants) in matched {
        for variant in variants {
            let path = format!("{error}::{variant}");
            let is_excused = unmet.iter().any(|(name, _)| *name == path);
            match (met.contains(path.as_str()), is_excused) {
                (false, false) => wrong.push(format!("{path} is met by no test")),
                (true, true) => wrong.push(format!("{path} is met, and need not be excused")),
                _ => {}
            }
        }
    }
    let exists = |path: &str| {
        let (error, variant) = path.split_once("::").unwrap_or_default();
        (errors.get(error)).is_none_or(|variants| variants.contains(&variant))
    };
    let named = documented(&texts.own);
    let named = named.into_iter().chain(unmet.iter().map(|(name, _)| *name));
    wrong.extend(
        named
            .filter(|path| !exists(path))
            .map(|path| format!("{path} is named, and is no error")),
    );
    wrong
}

#[test]
fn every_documented_error_is_met_by_a_test() {
    let root = Workspace::find().unwrap().root().to_path_buf();
    let mut texts = Texts::default();
    texts.read(&root.join("src"), false);
    texts.read(&root.join("tests"), true);
    let errors = errors(&texts.own);
    for error in ["BufferError", "KernelError", "LaunchError", "WindowError"] {
        assert!(errors[error].len() > 4, "{error}: {:?}", errors[error]);
    }
    assert!(documented(&texts.own).len() > 100);
    let wrong = wrong(&texts, UNMET);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_missing_is_noticed() {
    let own = "
/// Why not.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It is shut.
    #[error(\"shut\")]
    Shut,
    /// Far.
    Far {
        /// How far.
        Miles: u32,
    },
    Odd(#[from] Other),
}

/// No error.
#[derive(Clone)]
pub enum Kind {
    One,
}

impl Door {
    /// Opens it.
    ///
    /// # Errors
    /// [`OpenError::Shut`](crate::door::OpenError::Shut) and [`OpenError::Wide`], as [`Other::Thing`].
    ///
    /// # Panics
    /// [`OpenError::Never`].
    pub fn open() {}
}

#[cfg(test)]
mod tests {
    fn far() { matches!(error, OpenError::Far { .. }); }
}
";
    let mut texts = Texts::default();
    texts.add(own, false);
    texts.add("assert!(error, crate::OpenError::Odd(_));", true);
    assert_eq!(errors(&texts.own)["OpenError"], ["Shut", "Far", "Odd"]);
    assert_eq!(
        wrong(
            &texts,
            &[("OpenError::Odd", "rare"), ("OpenError::Gone", "old")]
        ),
        [
            "OpenError::Shut is met by no test",
            "OpenError::Odd is met, and need not be excused",
            "OpenError::Wide is named, and is no error",
            "OpenError::Gone is named, and is no error",
        ]
    );
    assert!(wrong(&texts, &[("OpenError::Shut", "rare")]).len() == 1);
}
