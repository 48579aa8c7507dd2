//! `cargo xtask call-table`: `docs/calls-table.md`, the forms of a call and all refusals, from the sources.
//!
//! The forms are the comments of the enumeration `Form`, with the paragraph `Needs:` of each. A refusal is a variant: the
//! comment says when, and the text of the error says why and what to do. Statuses have no text, but names in WGSL.

use std::fmt::Write;
use std::fs;

use crate::error::Error;
use crate::workspace::Workspace;

const PAGE: &str = "docs/calls-table.md";

const FORMS: &str = "src/kernel/calls/forms.rs";

/// What stands in front of the name in WGSL.
enum Prefix {
    /// The variant's own name in capitals, behind this.
    Made(&'static str),
    /// A literal of the source.
    Written,
}

/// Statuses: the source, the enumeration, the name in WGSL, and the heading.
const STATUSES: [(&str, &str, Prefix, &str); 3] = [
    (
        "src/device/call_status.rs",
        "CallStatus",
        Prefix::Made("CALL_"),
        "Statuses of calls",
    ),
    (
        "src/kernel/calls/service_numbers.rs",
        "FileStatus",
        Prefix::Written,
        "Statuses of files and texts",
    ),
    (
        "src/kernel/calls/service_numbers.rs",
        "FreeStatus",
        Prefix::Written,
        "Statuses of memory",
    ),
];

/// Errors: the source, the enumeration, the variants about calls (all where none is named), and the heading.
const ERRORS: [(&str, &str, &[&str], &str); 7] = [
    (
        "src/rpc/error.rs",
        "ServiceError",
        &[],
        "When services start",
    ),
    (
        "src/rpc/error.rs",
        "PortsError",
        &[],
        "When a device gets its ports",
    ),
    (
        "src/kernel/error.rs",
        "KernelError",
        &["HostCall", "HostCallLayout"],
        "When a program or a kernel is made",
    ),
    (
        "src/launch/error.rs",
        "LaunchError",
        &[
            "NoServices",
            "OtherServices",
            "TwoCallees",
            "NeedsLiveMemory",
            "WaitsForItself",
            "ServerOutOfReach",
            "ServerStopped",
            "Ports",
        ],
        "When a launch is submitted",
    ),
    (
        "src/persistent/error.rs",
        "ServerError",
        &[],
        "When a server starts, or a function is looked up",
    ),
    (
        "src/persistent/error.rs",
        "ServerFailure",
        &[],
        "When a server stops by itself",
    ),
    (
        "src/persistent/error.rs",
        "CallError",
        &[],
        "When a function of a server is called",
    ),
];

/// A variant of an enumeration.
#[derive(Debug, PartialEq, Eq)]
struct Variant {
    name: String,
    /// The paragraphs of the comment, each one line.
    comment: Vec<String>,
    /// The text of the error, as written.
    text: Option<String>,
    /// The literal behind the name: of a status, the name in WGSL.
    literal: Option<String>,
}

/// Runs the command.
pub fn run(workspace: &Workspace) -> Result<(), Error> {
    let page = workspace.root().join(PAGE);
    let text = made(workspace)?;
    fs::write(&page, text).map_err(Error::io("write", &page))
}

/// The page, from the sources of today.
fn made(workspace: &Workspace) -> Result<String, Error> {
    let read = |path: &str| {
        let path = workspace.root().join(path);
        fs::read_to_string(&path).map_err(Error::io("read", &path))
    };
    let lacks = |path: &str, what: &str| Error::NoVariant {
        path: workspace.root().join(path),
        variant: what.to_owned(),
    };
    let mut page = String::from(
        "# Calls: forms and refusals\n\n\
         Made by `cargo xtask call-table` from the comments and error texts of the sources. What each means is in the guide: \
         [Calls](guide/calls.md), [Servers](guide/servers.md).\n\n\
         ## Forms\n\n\
         Of a function `f` of the host, or of a server that the kernel calls:\n\n\
         | form | what it does | what it needs |\n| --- | --- | --- |\n",
    );
    let forms = read(FORMS)?;
    for form in variants(&forms, "Form").ok_or_else(|| lacks(FORMS, "Form"))? {
        let incomplete = || lacks(FORMS, &format!("Form::{} with `Needs:`", form.name));
        let (names, does) = (form.comment.first())
            .and_then(|comment| comment.split_once(": "))
            .ok_or_else(incomplete)?;
        let needs = form.comment.iter().find_map(|p| p.strip_prefix("Needs: "));
        row(&mut page, &[names, does, needs.ok_or_else(incomplete)?]);
    }
    for (path, name, prefix, heading) in STATUSES {
        let _ = write!(
            page,
            "\n## {heading}\n\n| WGSL | `{name}` | when |\n| --- | --- | --- |\n"
        );
        let source = read(path)?;
        for one in variants(&source, name).ok_or_else(|| lacks(path, name))? {
            let wgsl = match (&prefix, one.literal) {
                (Prefix::Written, Some(literal)) => format!("`{literal}`"),
                // A value of Rust alone.
                (Prefix::Made(_), None) if one.name == "Invalid" => "none".to_owned(),
                (Prefix::Made(prefix), _) => format!("`{prefix}{}`", capitals(&one.name)),
                (Prefix::Written, None) => return Err(lacks(path, &one.name)),
            };
            row(
                &mut page,
                &[&wgsl, &format!("`{}`", one.name), &one.comment.join(" ")],
            );
        }
    }
    for (path, name, wanted, heading) in ERRORS {
        let _ = write!(
            page,
            "\n## {heading}\n\n| `{name}` | when | what it says, and what to do |\n| --- | --- | --- |\n"
        );
        let source = read(path)?;
        let found = variants(&source, name).ok_or_else(|| lacks(path, name))?;
        if let Some(missing) = (wanted.iter()).find(|one| !found.iter().any(|v| v.name == **one)) {
            return Err(lacks(path, &format!("{name}::{missing}")));
        }
        let is_wanted = |one: &&Variant| wanted.is_empty() || wanted.contains(&one.name.as_str());
        for one in found.iter().filter(is_wanted) {
            let text = one.text.as_deref().unwrap_or("what the error inside says");
            row(
                &mut page,
                &[&format!("`{}`", one.name), &one.comment.join(" "), text],
            );
        }
    }
    Ok(page)
}

/// A row of a table.
fn row(page: &mut String, cells: &[&str]) {
    let cells = cells.iter().map(|cell| without_links(cell));
    let cells: Vec<String> = cells.map(|cell| cell.replace('|', "\\|")).collect();
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

/// A comment without the links of rustdoc, which lead nowhere on a page: names alone.
fn without_links(text: &str) -> String {
    let mut parts = text.split("[`");
    let mut found = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, behind) = part.split_once("`]").unwrap_or((part, ""));
        // Behind a name in brackets may be its path.
        let behind = match behind.strip_prefix("(crate::") {
            Some(path) => path.split_once(')').map_or("", |(_, behind)| behind),
            None => behind,
        };
        let _ = write!(found, "`{name}`{behind}");
    }
    found
}

/// `TimedOut` as `TIMED_OUT`.
fn capitals(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

/// The variants of an enumeration, or of one that a macro of the source makes; `None` where there is no such enumeration.
fn variants(source: &str, name: &str) -> Option<Vec<Variant>> {
    let is_head = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("pub(super) ").unwrap_or(line);
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let line = line.strip_prefix("enum ").unwrap_or(line);
        line.strip_prefix(name) == Some(" {")
    };
    let mut lines = source.lines().skip_while(|line| !is_head(line));
    let head = lines.next()?;
    let indent = head.len() - head.trim_start().len();
    let (mut found, mut comment) = (Vec::new(), vec![String::new()]);
    let mut text = None;
    while let Some(line) = lines.next() {
        let depth = line.len() - line.trim_start().len();
        let line = line.trim();
        if depth <= indent && line == "}" {
            return Some(found);
        }
        if depth != indent + 4 {
            continue;
        }
        if let Some(words) = line.strip_prefix("///") {
            match (words.trim(), comment.last_mut()) {
                ("", _) | (_, None) => comment.push(String::new()),
                (words, Some(last)) if last.is_empty() => last.push_str(words),
                (words, Some(last)) => {
                    last.push(' ');
                    last.push_str(words);
                }
            }
        } else if line.starts_with("#[error(") {
            let mut attribute = line.to_owned();
            while !attribute.ends_with(")]") {
                attribute.push('\n');
                attribute.push_str(lines.next()?.trim());
            }
            text = literal(&attribute);
        } else if line.starts_with(|first: char| first.is_ascii_uppercase()) {
            let end = line.find(|c: char| !c.is_alphanumeric());
            comment.retain(|paragraph| !paragraph.is_empty());
            found.push(Variant {
                name: line[..end.unwrap_or(line.len())].to_owned(),
                comment: std::mem::replace(&mut comment, vec![String::new()]),
                text: text.take(),
                literal: literal(line),
            });
        }
    }
    None
}

/// The first literal of a text, with its continued lines joined.
fn literal(text: &str) -> Option<String> {
    let (_, behind) = text.split_once('"')?;
    let mut found = String::new();
    let mut letters = behind.chars();
    loop {
        match letters.next()? {
            '"' => return Some(found),
            '\\' => match letters.next()? {
                '\n' => {}
                letter => found.push(letter),
            },
            letter => found.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_that_of_the_sources() {
        let workspace = Workspace::find().unwrap();
        let page = fs::read_to_string(workspace.root().join(PAGE)).unwrap();
        let made = made(&workspace).unwrap();
        assert!(page == made, "{PAGE} is old: run `cargo xtask call-table`");
    }

    #[test]
    fn variants_have_comments_texts_and_names() {
        let source = "
/// Errors.
pub enum E {
    /// First line,
    /// second line.
    ///
    /// Needs: this.
    #[error(
        \"`{a}`: \\
         {b}\"
    )]
    One {
        /// A field.
        a: String,
    },
    #[error(transparent)]
    Two(#[from] Other),
}
statuses! {
    F {
        /// Done.
        Ok = 1, \"F_OK\";
    }
}";
        let found = variants(source, "E").unwrap();
        let names: Vec<_> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["One", "Two"]);
        assert_eq!(
            found[0].comment,
            ["First line, second line.", "Needs: this."]
        );
        assert_eq!(found[0].text.as_deref(), Some("`{a}`: {b}"));
        assert_eq!((found[1].text.clone(), found[1].comment.len()), (None, 0));
        let found = variants(source, "F").unwrap();
        assert_eq!(found[0].literal.as_deref(), Some("F_OK"));
        assert_eq!(variants(source, "G"), None);
        assert_eq!(capitals("TimedOut"), "TIMED_OUT");
        let linked = "a [`B`](crate::b::B), [`C::d`] (e)";
        assert_eq!(without_links(linked), "a `B`, `C::d` (e)");
    }
}
