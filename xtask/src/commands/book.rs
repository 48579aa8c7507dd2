//! `cargo xtask book`: the guide as a book, by mdBook.
//!
//! `docs/SUMMARY.md` lists the chapters. Some chapters lie outside of `docs`, and mdBook wants all chapters below a single
//! folder. So the command copies the chapters below `target/book/src`, each into the same folder as in the repository, so that
//! links between chapters lead to the same places as here, and writes a summary with the new paths beside the chapters.

use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::process::{self, say};
use crate::workspace::Workspace;

/// The list of chapters, with paths from the list's own folder.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Pictures of the chapters.
const IMAGES: &str = "docs/images";

/// A chapter.
#[derive(Debug, PartialEq, Eq)]
pub struct Chapter {
    /// The place of the chapter, from the root of the repository.
    pub path: String,
}

/// Runs the command.
pub fn run(workspace: &Workspace) -> Result<(), Error> {
    let book = workspace.book_dir();
    assemble(workspace, &book)?;
    if !process::in_path(&format!("mdbook{}", std::env::consts::EXE_SUFFIX)) {
        return Err(Error::NoMdBook { book });
    }
    let mut build = workspace.command_at("mdbook".into());
    process::run(build.arg("build").arg(&book))?;
    say(format!("{}", book.join("book/index.html").display()));
    Ok(())
}

/// The chapters, in order.
pub fn chapters(workspace: &Workspace) -> Result<Vec<Chapter>, Error> {
    let summary = read(&workspace.root().join(SUMMARY))?;
    let chapter = |path| Chapter {
        path: joined("docs", path),
    };
    Ok(links(&summary).map(chapter).collect())
}

/// Puts the chapters, the summary, the settings and the pictures below `book`.
fn assemble(workspace: &Workspace, book: &Path) -> Result<(), Error> {
    let (root, source) = (workspace.root(), book.join("src"));
    if source.exists() {
        fs::remove_dir_all(&source).map_err(Error::io("empty", &source))?;
    }
    for chapter in chapters(workspace)? {
        copy(&root.join(&chapter.path), &source.join(&chapter.path))?;
    }
    let images = root.join(IMAGES);
    let entries = fs::read_dir(&images).map_err(Error::io("read", &images))?;
    for entry in entries {
        let entry = entry.map_err(Error::io("read", &images))?;
        copy(&entry.path(), &source.join(IMAGES).join(entry.file_name()))?;
    }
    let summary = summary(&read(&root.join(SUMMARY))?);
    let place = source.join("SUMMARY.md");
    fs::write(&place, summary).map_err(Error::io("write", &place))?;
    copy(&root.join("docs/book.toml"), &book.join("book.toml"))
}

/// The targets of a summary's links.
fn links(summary: &str) -> impl Iterator<Item = &str> {
    let lines = summary.lines();
    lines.filter_map(|line| Some(line.split_once("](")?.1.split_once(')')?.0))
}

/// The summary with paths from the root of the repository.
fn summary(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        match line.split_once("](") {
            Some((title, rest)) => {
                let path = joined("docs", rest.trim_end_matches(')'));
                out.push_str(&format!("{title}]({path})"));
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// A path from `folder`, as a path without `..`.
pub fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(Error::io("read", path))
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    }
    fs::copy(from, to).map_err(Error::io("copy", from))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_summary_lead_from_the_root() {
        let text = "# Summary\n\n- [A](guide/a.md)\n  - [B](../b/README.md)\n";
        let rewritten = "# Summary\n\n- [A](docs/guide/a.md)\n  - [B](b/README.md)\n";
        assert_eq!(summary(text), rewritten);
        assert_eq!(
            links(rewritten).collect::<Vec<_>>(),
            ["docs/guide/a.md", "b/README.md"]
        );
    }

    #[test]
    fn paths_are_joined_without_dots() {
        assert_eq!(joined("docs/guide", "../../BENCHMARKS.md"), "BENCHMARKS.md");
        assert_eq!(joined("docs/guide", "./calls.md"), "docs/guide/calls.md");
        assert_eq!(joined("", "a.md"), "a.md");
    }

    #[test]
    fn the_book_has_all_that_it_is_made_of() {
        let workspace = Workspace::find().unwrap();
        let book = std::env::temp_dir().join(format!("xtask-book-{}", std::process::id()));
        assemble(&workspace, &book).unwrap();
        let written = read(&book.join("src/SUMMARY.md")).unwrap();
        let listed: Vec<&str> = links(&written).collect();
        assert!(listed.len() > 25, "{written}");
        for path in listed {
            assert!(book.join("src").join(path).is_file(), "{path}");
        }
        assert!(book.join("src/docs/images/raytracer.png").is_file());
        assert!(
            read(&book.join("book.toml"))
                .unwrap()
                .contains("src = \"src\"")
        );
        fs::remove_dir_all(&book).unwrap();
    }
}
