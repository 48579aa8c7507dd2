//! The files of a program's text, and the lines of each file.
//!
//! All stages of the compile pipeline read a single text; a place in the text belongs to a file, by whose name and
//! lines the place is reported. A program of a single source is a text of a single file. [`Files::join`] puts several
//! files behind each other:
//!
//! ```text
//! text     | enable f16; | a.wgsl                | b.wgsl without its directives   |
//! file       b.wgsl        a.wgsl                  b.wgsl
//! ```
//!
//! WGSL has directives (`enable`, `requires`, `diagnostic`) in front of everything else, so the directives of all
//! sources move to the front of the text. Declarations whose names begin with an underscore belong to their file: such
//! declarations are renamed, so that two files may use the same name, and so may device globals.
//!
//! WESL and naga_oil have imports of their own. Both print the module anew, losing the places of all reports of this
//! runtime, and neither knows the runtime's conventions (prints, pointers, private arrays).

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::declarations::{DeclarationKind, Head, attributes, heads, names};
use super::token::TokenStream;

/// The files of a text.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    parts: Arc<[Part]>,
    /// The name of the first source.
    name: Arc<str>,
}

/// A stretch of the text, in order; the last part has no end.
#[derive(Clone, Debug)]
struct Part {
    /// First byte in the text.
    start: usize,
    /// The bytes of the file in this part; the last part also has the bytes behind.
    bytes: Range<usize>,
    file: Arc<File>,
}

/// A source, as the program gave it.
#[derive(Debug)]
pub(crate) struct File {
    pub name: String,
    pub source: Arc<str>,
    /// The first byte of each line.
    starts: Vec<usize>,
    /// Characters in front of each block of the text.
    characters: Vec<usize>,
}

/// Bytes of a block, within which characters are counted anew.
const BLOCK: usize = 1024;

/// Characters of a line shown on either side of a place.
const EXCERPT: usize = 100;

impl Files {
    /// A text that is one file.
    pub fn one(name: &str, source: &Arc<str>) -> Self {
        super::work::count(source.len());
        let part = Part {
            start: 0,
            bytes: 0..usize::MAX,
            file: Arc::new(File::new(name, Arc::clone(source))),
        };
        Self {
            parts: [part].into(),
            name: name.into(),
        }
    }

    /// The text of several sources, each with a name of its own.
    pub fn join(sources: &[(String, Arc<str>)]) -> (Arc<str>, Self) {
        if let [(name, source)] = sources {
            return (Arc::clone(source), Self::one(name, source));
        }
        let (mut front, mut behind) = (Joined::default(), Joined::default());
        let mut taken = HashSet::new();
        let streams: Vec<TokenStream<'_>> = (sources.iter())
            .map(|(_, source)| TokenStream::new(source))
            .collect();
        let mentioned = mentioned(&streams);
        for ((name, source), stream) in sources.iter().zip(&streams) {
            super::work::count(source.len());
            let file = Arc::new(File::new(name, Arc::clone(source)));
            let heads = heads(stream);
            let mut edits = renames(name, stream, &heads, &mentioned, &mut taken);
            for directive in directives(stream, &heads) {
                front.push(&file, directive.clone(), &source[directive.clone()]);
                front.text.push('\n');
                edits.push((directive, String::new()));
            }
            edits.sort_by_key(|(range, _)| range.start);
            let mut at = 0;
            for (range, text) in edits {
                behind.push(&file, at..range.start, &source[at..range.start]);
                behind.push(&file, range.clone(), &text);
                at = range.end;
            }
            behind.push(&file, at..source.len(), &source[at..]);
            behind.text.push('\n');
        }
        let first = front.text.len();
        let moved = behind.parts.into_iter().map(|part| Part {
            start: part.start + first,
            ..part
        });
        front.parts.extend(moved);
        front.text.push_str(&behind.text);
        let files = Self {
            parts: front.parts.into(),
            name: sources.first().map_or("", |(name, _)| name).into(),
        };
        (front.text.into(), files)
    }

    /// The files of this text followed by the runtime's `appendix`; `source` is the whole text.
    pub fn extended(&self, source: &Arc<str>, appendix: &str) -> Self {
        if let [one] = &*self.parts {
            return Self::one(&one.file.name, source);
        }
        let name = format!("{} and the runtime", self.name());
        let own = Part {
            start: source.len() - appendix.len(),
            bytes: 0..usize::MAX,
            file: Arc::new(File::new(&name, appendix.into())),
        };
        Self {
            parts: self.parts.iter().cloned().chain([own]).collect(),
            name: Arc::clone(&self.name),
        }
    }

    /// The file of byte `at` of the text, and the byte in the file.
    pub fn find(&self, at: usize) -> (&Arc<File>, usize) {
        let behind = self.parts.partition_point(|part| part.start <= at);
        // A text has a part, and the first part begins with the text.
        let part = &self.parts[behind.saturating_sub(1)];
        let offset = part.bytes.start.saturating_add(at - part.start);
        (&part.file, offset.min(part.bytes.end))
    }

    /// The name of the first source.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The line of byte `at` of the text, from 1, in its file.
    pub fn line(&self, at: usize) -> u32 {
        let (file, at) = self.find(at);
        file.line(at)
    }
}

/// A text in the making.
#[derive(Default)]
struct Joined {
    text: String,
    parts: Vec<Part>,
}

impl Joined {
    /// Adds `text` for these bytes of a file.
    fn push(&mut self, file: &Arc<File>, bytes: Range<usize>, text: &str) {
        self.parts.push(Part {
            start: self.text.len(),
            bytes,
            file: Arc::clone(file),
        });
        self.text.push_str(text);
    }
}

/// Where a source would run on into the next source, and why: something is opened without being closed, or attributes stand
/// behind the last declaration.
pub(crate) fn unclosed(source: &str) -> Option<(Range<usize>, &'static str)> {
    const OPEN: &str = "this is not closed in its source";
    let stream = TokenStream::new(source);
    let is_open =
        |at: &usize| matches!(stream.text(*at), "{" | "(" | "[") && stream.partner(*at).is_none();
    if let Some(at) = (0..stream.len()).find(is_open) {
        return Some((stream.span(at..at + 1), OPEN));
    }
    // Inside an open comment, a token appended to the source is no token.
    if TokenStream::new(&format!("{source}\n;")).len() == stream.len() {
        return Some((source.rfind("/*").map_or(0..0, |at| at..at + 2), OPEN));
    }
    let place = trailing_attributes(&stream)?;
    Some((place, "no declaration of this source follows"))
}

/// The attributes at the end, as bytes.
fn trailing_attributes(stream: &TokenStream<'_>) -> Option<Range<usize>> {
    let mut at = heads(stream).last().map_or(0, |last| last.tokens.end);
    while at < stream.len() {
        let start = at;
        let found = attributes(stream, &mut at);
        if !found.is_empty() && at >= stream.len() {
            return Some(stream.span(start..stream.len()));
        }
        at = at.max(start + 1);
    }
    None
}

/// The directives of a source, each with its semicolon, as bytes.
fn directives(stream: &TokenStream<'_>, heads: &[Head<'_>]) -> Vec<Range<usize>> {
    let directives = heads
        .iter()
        .filter(|head| head.kind == DeclarationKind::Directive);
    directives
        .map(|head| stream.span(head.tokens.clone()))
        .collect()
}

/// The names mentioned by the sources, also names of structures that pointers lead to.
fn mentioned<'a>(streams: &[TokenStream<'a>]) -> HashSet<&'a str> {
    let names = streams.iter().flat_map(|stream| {
        (0..stream.len())
            .filter(|at| stream.is_identifier(*at))
            .map(|at| stream.text(at))
    });
    names
        .flat_map(|name| [Some(name), name.strip_prefix("usm_")])
        .flatten()
        .collect()
}

/// The places of names private to a source, and the new names, which end with the file's name and are not `taken` by
/// another file. Local names that hide a private name are renamed alike. Members of structures keep their own names,
/// and so do overrides and entry points, since the host asks for both by name.
fn renames(
    file: &str,
    stream: &TokenStream<'_>,
    heads: &[Head<'_>],
    mentioned: &HashSet<&str>,
    taken: &mut HashSet<String>,
) -> Vec<(Range<usize>, String)> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let stem: String = file.trim_end_matches(".wgsl").chars().map(plain).collect();
    let is_asked_for = |head: &Head<'_>| {
        head.kind == DeclarationKind::Override
            || head.attributes.iter().any(|one| one.name == "compute")
    };
    let mut own: Vec<&str> = (names(stream, heads).into_iter())
        .filter(|(name, head)| name.starts_with('_') && !is_asked_for(&heads[*head]))
        .map(|(name, _)| name)
        .collect();
    // The same names in every run.
    own.sort_unstable();
    let new: HashMap<&str, String> = (own.into_iter())
        .map(|name| {
            let mut new = format!("{name}_{stem}");
            while mentioned.contains(new.as_str()) || taken.contains(&new) {
                new.push('0');
            }
            taken.insert(new.clone());
            (name, new)
        })
        .collect();
    let structures = heads
        .iter()
        .filter(|head| head.kind == DeclarationKind::Struct);
    let members: HashSet<usize> = structures
        .flat_map(|head| head.tokens.clone())
        .filter(|at| stream.text(at + 1) == ":")
        .collect();
    let is_name = |at: &usize| {
        let is_access = *at > 0 && stream.text(at - 1) == ".";
        stream.is_identifier(*at) && !is_access && !members.contains(at)
    };
    (0..stream.len())
        .filter(is_name)
        .filter_map(|at| {
            let text = stream.text(at);
            let name = new.get(text).cloned().or_else(|| {
                // The target of a pointer to a structure of the file's own.
                let pointee = new.get(text.strip_prefix("usm_")?)?;
                Some(format!("usm_{pointee}"))
            });
            Some((stream.span(at..at + 1), name?))
        })
        .collect()
}

impl File {
    pub fn new(name: &str, source: Arc<str>) -> Self {
        let bytes = source.as_bytes();
        let breaks = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let mut characters = vec![0];
        let mut before = 0;
        for block in bytes.chunks(BLOCK) {
            before += block.iter().filter(|byte| begins_character(**byte)).count();
            characters.push(before);
        }
        Self {
            name: name.to_owned(),
            starts: std::iter::once(0)
                .chain(breaks.map(|(at, _)| at + 1))
                .collect(),
            characters,
            source,
        }
    }

    /// The line of byte `at`, from 1.
    pub fn line(&self, at: usize) -> u32 {
        let line = self.starts.partition_point(|start| *start <= at);
        u32::try_from(line).unwrap_or(u32::MAX)
    }

    /// Line and column of byte `at`, both from 1; columns count characters.
    pub fn place(&self, at: usize) -> (u32, u32) {
        let at = self.source.floor_char_boundary(at);
        let line = self.line(at);
        let start = self.starts.get(line as usize - 1).copied().unwrap_or(0);
        let column = self.characters_before(at) - self.characters_before(start) + 1;
        (line, u32::try_from(column).unwrap_or(u32::MAX))
    }

    fn characters_before(&self, at: usize) -> usize {
        let block = at / BLOCK;
        let counted = self.characters.get(block).copied().unwrap_or(0);
        let rest = self.source.as_bytes().get(block * BLOCK..at);
        counted
            + rest.map_or(0, |rest| {
                rest.iter().filter(|byte| begins_character(**byte)).count()
            })
    }

    /// The line of byte `at` with its number, and a marker below the place. Of a long line only the part around the
    /// place.
    pub fn excerpt(&self, at: usize) -> String {
        let at = self.source.floor_char_boundary(at);
        let line = self.line(at);
        let start = self.starts.get(line as usize - 1).copied().unwrap_or(0);
        let end = (self.starts.get(line as usize)).map_or(self.source.len(), |next| next - 1);
        let from = self
            .source
            .ceil_char_boundary(at.saturating_sub(EXCERPT).max(start));
        let to = self.source.floor_char_boundary((at + EXCERPT).min(end));
        let before = self.source.get(from..at).unwrap_or_default();
        let behind = self.source.get(at..to.max(at)).unwrap_or_default();
        let (cut, more) = (
            if from > start { "…" } else { "" },
            if to < end { "…" } else { "" },
        );
        let indent = before.chars().count() + cut.chars().count();
        let behind = behind.trim_end_matches('\r');
        format!(
            "{line:>5} | {cut}{before}{behind}{more}\n      | {}^",
            " ".repeat(indent)
        )
    }
}

/// Whether a byte of UTF-8 is the first of a character.
fn begins_character(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

#[cfg(test)]
mod tests;
