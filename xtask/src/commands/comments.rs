//! `cargo xtask comments`: how often comments say *it* and *that* in place of names.
//!
//! A comment whose subject is a pronoun has to be decoded. The sources of naga, wgpu-core and wgpu-hal (30), counted in this
//! way, have 44, 49 and 44 pronouns in 1,000 words of comments.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::error::Error;
use crate::workspace::Workspace;

/// Sources by room.
const ROOMS: [&str; 17] = [
    "cpu/src",
    "kernels/src",
    "mpi/src",
    "src",
    "src/addresses",
    "src/context",
    "src/device",
    "src/globals",
    "src/kernel",
    "src/launch",
    "src/memory",
    "src/persistent",
    "src/print",
    "src/ring",
    "src/rpc",
    "src/trace",
    "xtask/src",
];

const PRONOUNS: [&str; 16] = [
    "he", "it", "its", "one", "that", "them", "these", "they", "this", "those", "what", "whatever",
    "which", "who", "whoever", "whom",
];

/// Options of the command.
#[derive(Parser)]
pub struct Args {
    /// Folders, or files; the rooms of the sources where none is given
    folders: Vec<PathBuf>,
    /// How many files to list of each, those with most pronouns first
    #[arg(long, value_name = "N", default_value_t = 0)]
    files: usize,
}

/// The words of comments, and the pronouns among these.
#[derive(Clone, Copy, Default)]
struct Count {
    words: usize,
    pronouns: usize,
}

impl Count {
    fn of(text: &str) -> Self {
        let mut count = Self::default();
        let mut in_code = false;
        for comment in text.lines().filter_map(comment) {
            if comment.trim_start().starts_with("```") {
                in_code = !in_code;
                continue;
            }
            if in_code {
                continue;
            }
            // Every second part stands between backticks.
            for prose in comment.split('`').step_by(2) {
                let words = prose.split(|c: char| !c.is_ascii_alphabetic() && c != '\'');
                for word in words.filter(|word| !word.is_empty()) {
                    count.words += 1;
                    let word = word.to_ascii_lowercase();
                    count.pronouns += usize::from(PRONOUNS.contains(&word.as_str()));
                }
            }
        }
        count
    }

    fn add(self, other: Self) -> Self {
        Self {
            words: self.words + other.words,
            pronouns: self.pronouns + other.pronouns,
        }
    }

    fn per_thousand(self) -> f64 {
        1000.0 * self.pronouns as f64 / self.words.max(1) as f64
    }
}

/// The comment on a line.
fn comment(line: &str) -> Option<&str> {
    let at = match line.trim_start().starts_with("//") {
        true => line.find("//")?,
        false => line.find(" // ")? + 1,
    };
    Some(line[at..].trim_start_matches(['/', '!']))
}

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    let rooms = ROOMS.iter().map(PathBuf::from);
    let folders: Vec<PathBuf> = match args.folders.is_empty() {
        true => rooms.collect(),
        false => args.folders.clone(),
    };
    println!("per 1,000  pronouns    words");
    for folder in folders {
        let mut files = Vec::new();
        collect(&workspace.root().join(&folder), &mut files)?;
        let all = files
            .iter()
            .fold(Count::default(), |all, (_, count)| all.add(*count));
        row(all, &folder);
        files.sort_by_key(|(_, count)| std::cmp::Reverse(count.pronouns));
        for (file, count) in files.iter().take(args.files) {
            row(*count, file.strip_prefix(workspace.root()).unwrap_or(file));
        }
    }
    Ok(())
}

fn row(count: Count, path: &Path) {
    let rate = count.per_thousand();
    println!(
        "{rate:>9.1} {:>9} {:>8}  {}",
        count.pronouns,
        count.words,
        path.display()
    );
}

/// Counts the files of Rust below a path.
fn collect(path: &Path, files: &mut Vec<(PathBuf, Count)>) -> Result<(), Error> {
    if path.is_dir() {
        for entry in fs::read_dir(path).map_err(Error::io("list", path))? {
            collect(&entry.map_err(Error::io("list", path))?.path(), files)?;
        }
    } else if path.extension().is_some_and(|kind| kind == "rs") {
        let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
        files.push((path.to_path_buf(), Count::of(&text)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_comments_alone_count() {
        let text = "//! What it says.\nlet that = \"it\"; // and that too\n    /// `it` is no word of a sentence\n\
            /// ```\n/// let it = those;\n/// ```\nlet address = \"http://it\";\n";
        let count = Count::of(text);
        // "What it says", "and that too", "is no word of a sentence".
        assert_eq!((count.words, count.pronouns), (12, 3));
        assert_eq!(count.per_thousand(), 250.0);
        assert_eq!(Count::of("let it = 1;").per_thousand(), 0.0);
    }
}
