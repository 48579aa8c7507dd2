//! Messages pointing into the user's file: place, source line, labels and notes, for faults found in any part of the
//! pipeline, after any rewriting of the text.

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use codespan_reporting::diagnostic::{Diagnostic as Report, Label};
use codespan_reporting::files::SimpleFile;
use codespan_reporting::term;
use naga::front::wgsl::ParseError;
use naga::{Span, WithSpan};

use super::edit::EditedText;
use super::error::KernelError;
use super::text_limits::Excess;

/// A place in the source that a [`Diagnostic`] speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagnosticLabel {
    /// Line, counted from 1.
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
    /// Bytes of the source.
    pub range: Range<usize>,
    /// The message at the place; may be empty.
    pub text: String,
}

/// A fault in a program's text, or caused by the text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Name of the program, as given to [`Program::new`](super::Program::new).
    pub file: String,
    /// Line of the fault, counted from 1; 0 if the fault has no place in the text.
    pub line: u32,
    /// Column of the fault in characters, counted from 1; 0 if the fault has no place in the text.
    pub column: u32,
    /// The fault, in a sentence.
    pub message: String,
    /// Places in the source; `line` and `column` are those of the first.
    pub labels: Vec<DiagnosticLabel>,
    /// Reasons and remedies.
    pub notes: Vec<String>,
    /// All of the above as text, with the source lines, for `Display`.
    pub rendered: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rendered.trim_end())
    }
}

impl Error for Diagnostic {}

/// The file of the diagnostics of a compilation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reporter<'a> {
    /// Name of the program.
    pub file: &'a str,
    /// The text that was compiled, and the way back to the user's.
    pub text: &'a EditedText,
}

impl Reporter<'_> {
    /// A diagnostic whose labels are spans of the user's text.
    pub fn at(
        &self,
        message: String,
        labels: Vec<(Range<usize>, String)>,
        notes: Vec<String>,
    ) -> Box<Diagnostic> {
        let source = self.text.original();
        let labels = labels
            .into_iter()
            .map(|(range, text)| {
                let range = snap(source, range);
                let (line, column) = line_and_column(source, range.start);
                DiagnosticLabel {
                    line,
                    column,
                    range,
                    text,
                }
            })
            .collect::<Vec<_>>();
        let (line, column) = labels.first().map_or((0, 0), |l| (l.line, l.column));
        let mut diagnostic = Diagnostic {
            file: self.file.to_owned(),
            line,
            column,
            message,
            labels,
            notes,
            rendered: String::new(),
        };
        diagnostic.rendered = render(&diagnostic, source);
        Box::new(diagnostic)
    }

    /// A text too demanding for its readers. The place is in the compiled text.
    pub fn excess(&self, excess: Excess) -> KernelError {
        let Excess {
            what,
            found,
            limit,
            place,
            instead,
        } = excess;
        let labels = place.map(|place| (self.text.to_original(place), String::new()));
        let message = format!("{found} {what}, and {limit} are the most");
        let notes = vec![instead.to_owned()];
        KernelError::TooComplex {
            what,
            found,
            limit,
            diagnostic: self.at(message, labels.into_iter().collect(), notes),
        }
    }

    /// Findings of naga's front end in the compiled text.
    pub fn parse_error(&self, error: &ParseError) -> Box<Diagnostic> {
        let labels = error
            .labels()
            .filter_map(|(span, text)| Some((self.back(span)?, text.to_owned())));
        self.at(
            error.message().to_owned(),
            labels.collect(),
            error.notes().map(str::to_owned).collect(),
        )
    }

    /// Findings of naga's validator in the compiled text. naga reports from the outside in; here the innermost cause
    /// and the narrowest place come first, and the surrounding ones become notes.
    pub fn validation_error<E: Error>(&self, error: &WithSpan<E>) -> Box<Diagnostic> {
        let labels = error
            .spans()
            .filter_map(|(span, text)| Some((self.back(*span)?, plain(text))));
        let mut labels = labels.collect::<Vec<_>>();
        labels.sort_by_key(|(range, _)| range.len());
        let mut places = labels.into_iter();
        let labels = places
            .next()
            .into_iter()
            .chain(places.filter(|(_, text)| !is_container(text)))
            .collect();
        let mut chain = causes(error.as_inner());
        chain.insert(0, error.as_inner().to_string());
        let message = chain.pop().unwrap_or_default();
        self.at(message, labels, chain)
    }

    /// A span of the compiled text, in the user's text.
    pub fn back(&self, span: Span) -> Option<Range<usize>> {
        Some(self.text.to_original(span.to_range()?))
    }
}

/// The chain of causes below `error`, outermost first.
pub(crate) fn causes(error: &dyn Error) -> Vec<String> {
    std::iter::successors(error.source(), |e| (*e).source())
        .map(|e| e.to_string())
        .collect()
}

/// naga labels places with its own type names and handle numbers, which say nothing to a user:
/// `naga::ir::Function [3]` becomes `function`.
fn plain(label: &str) -> String {
    match label.strip_prefix("naga::") {
        Some(rest) => {
            let path = rest.split([' ', '<']).next().unwrap_or(rest);
            path.rsplit("::").next().unwrap_or(path).to_lowercase()
        }
        None => label.to_owned(),
    }
}

/// Whether a label names a whole declaration, which adds lines but no information to a narrower place in it.
fn is_container(label: &str) -> bool {
    matches!(label, "function" | "entrypoint")
}

/// `range`, moved inwards or outwards to lie on characters of `source`.
fn snap(source: &str, range: Range<usize>) -> Range<usize> {
    let start = source.floor_char_boundary(range.start);
    let end = source.ceil_char_boundary(range.end.min(source.len()));
    start..end.max(start)
}

/// Line and column, both from 1, of byte `at`; columns count characters.
pub(crate) fn line_and_column(source: &str, at: usize) -> (u32, u32) {
    let before = source
        .get(..source.floor_char_boundary(at))
        .unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    let line = before.bytes().filter(|&b| b == b'\n').count() + 1;
    let column = before.get(line_start..).map_or(0, |l| l.chars().count()) + 1;
    (
        u32::try_from(line).unwrap_or(u32::MAX),
        u32::try_from(column).unwrap_or(u32::MAX),
    )
}

/// The lines of a text: finds places without reading the text again for each.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    source: Arc<str>,
    /// The first byte of each line.
    starts: Vec<usize>,
    /// Characters in front of each block of the text.
    characters: Vec<usize>,
}

/// Bytes of a block, within which characters are counted anew.
const BLOCK: usize = 1024;

/// Characters of a line shown on either side of a place.
const EXCERPT: usize = 100;

impl Lines {
    pub fn new(source: &Arc<str>) -> Self {
        let bytes = source.as_bytes();
        let breaks = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let mut characters = vec![0];
        let mut before = 0;
        for block in bytes.chunks(BLOCK) {
            before += block.iter().filter(|byte| begins_character(**byte)).count();
            characters.push(before);
        }
        Self {
            source: Arc::clone(source),
            starts: std::iter::once(0)
                .chain(breaks.map(|(at, _)| at + 1))
                .collect(),
            characters,
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

/// Bytes of a line shown as a whole.
const LONG_LINE: usize = 1000;

/// Whether any of the places is in a line, or over lines, too long for a screen.
fn has_long_line(source: &str, labels: &[DiagnosticLabel]) -> bool {
    let bytes = source.as_bytes();
    labels.iter().any(|label| {
        let start = label.range.start.min(bytes.len());
        let end = label.range.end.clamp(start, bytes.len());
        let before = bytes[..start]
            .iter()
            .rev()
            .take_while(|byte| **byte != b'\n');
        let behind = bytes[end..].iter().take_while(|byte| **byte != b'\n');
        let shown = start - before.count()..end + behind.count();
        let mut lines = bytes[shown].split(|byte| *byte == b'\n');
        lines.any(|line| line.len() > LONG_LINE)
    })
}

/// A report that shows a part of the first place's line.
fn render_part(diagnostic: &Diagnostic, lines: &Lines, label: &DiagnosticLabel) -> String {
    let notes: String = (diagnostic.notes.iter())
        .map(|note| format!("      = {note}\n"))
        .collect();
    format!(
        "error: {}\n     --> {}:{}:{}\n{} {}\n{notes}",
        diagnostic.message,
        diagnostic.file,
        diagnostic.line,
        diagnostic.column,
        lines.excerpt(label.range.start),
        label.text
    )
}

fn render(diagnostic: &Diagnostic, source: &str) -> String {
    // Control characters would disturb the terminal. Each is replaced by a character of as many bytes, so the spans
    // still fit.
    let printable = source
        .chars()
        .map(|c| match c {
            _ if !c.is_control() || c.is_whitespace() => c,
            _ if c.len_utf8() == 1 => '?',
            _ => '\u{b7}',
        })
        .collect::<String>();
    if let Some(label) = diagnostic.labels.first()
        && has_long_line(source, &diagnostic.labels)
    {
        return render_part(diagnostic, &Lines::new(&printable.into()), label);
    }
    let file = SimpleFile::new(diagnostic.file.as_str(), printable);
    let labels = diagnostic.labels.iter().enumerate().map(|(i, label)| {
        let make = if i == 0 {
            Label::primary
        } else {
            Label::secondary
        };
        make((), label.range.clone()).with_message(&label.text)
    });
    let mut notes = diagnostic.notes.clone();
    if diagnostic.labels.is_empty() {
        notes.insert(0, format!("in {}", diagnostic.file));
    }
    let report = Report::error()
        .with_message(&diagnostic.message)
        .with_labels(labels.collect())
        .with_notes(notes);
    let config = term::Config::default();
    term::emit_into_string(&config, &file, &report).unwrap_or_else(|error| {
        format!(
            "error: {}\n  --> {}:{}:{} (the source line cannot be shown: {error})\n",
            diagnostic.message, diagnostic.file, diagnostic.line, diagnostic.column
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::edit::Replacement;
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_count_from_one() {
        assert_eq!(line_and_column("é\nüx", 5), (2, 2));
        assert_eq!(line_and_column("", 0), (1, 1));
        assert_eq!(line_and_column("a\n", 2), (2, 1));
        assert_eq!(line_and_column("é", 1), (1, 1));
        assert_eq!(line_and_column("a", 99), (1, 2));
    }

    #[test]
    fn lines_find_what_reading_the_text_finds() {
        let long = "ü".repeat(3000) + "x\r\n" + &"abc\n".repeat(2000) + "é\n\nlast";
        for source in ["", "\n", "a", "é\nüx", "a\n", long.as_str()] {
            let lines = Lines::new(&source.into());
            for at in 0..source.len() + 3 {
                assert_eq!(lines.place(at), line_and_column(source, at), "{at}");
                assert_eq!(lines.line(at), lines.place(at).0, "{at}");
            }
        }
        let lines = Lines::new(&"ab\ncd é;\r\nx".into());
        assert_eq!(lines.excerpt(8), "    2 | cd é;\n      |     ^");
        let lines = Lines::new(&long.as_str().into());
        let excerpt = lines.excerpt(3000);
        let (text, marker) = excerpt.split_once('\n').unwrap();
        assert!(excerpt.len() < 700, "{excerpt}");
        assert_eq!(
            text.chars().nth(marker.chars().count() - 1),
            Some('ü'),
            "{excerpt}"
        );
    }

    #[test]
    fn a_parse_error_behind_a_longer_replacement_keeps_its_column() {
        let source = "const N = 1; fn f() { let é = 1; let y = missing; }";
        let text = EditedText::new(
            source.into(),
            vec![Replacement {
                range: 10..11,
                text: "123456789".into(),
            }],
        );
        let error = naga::front::wgsl::parse_str(text.text()).expect_err("unknown identifier");
        let diagnostic = Reporter {
            file: "a.wgsl",
            text: &text,
        }
        .parse_error(&error);
        let column = source
            .chars()
            .collect::<String>()
            .find("missing")
            .map(|b| source[..b].chars().count() + 1);
        assert_eq!(
            (diagnostic.line, Some(diagnostic.column as usize)),
            (1, column)
        );
        assert!(
            diagnostic.rendered.contains("a.wgsl:1:42"),
            "{}",
            diagnostic.rendered
        );
        assert!(
            diagnostic.rendered.contains("const N = 1;"),
            "{}",
            diagnostic.rendered
        );
    }

    #[test]
    fn an_error_without_a_place_names_the_file() {
        let text = EditedText::unchanged("".into());
        let diagnostic = Reporter {
            file: "b.wgsl",
            text: &text,
        }
        .at("broken".into(), vec![], vec![]);
        assert_eq!((diagnostic.line, diagnostic.column), (0, 0));
        assert!(diagnostic.to_string().contains("b.wgsl"));
    }

    #[test]
    fn control_characters_and_odd_spans_do_not_disturb_the_report() {
        let text = EditedText::unchanged("a\u{1b}b\u{9b}é\n".into());
        let reporter = Reporter {
            file: "c",
            text: &text,
        };
        for start in 0..9 {
            for end in 0..12 {
                let shown = reporter
                    .at("m".into(), vec![(start..end, "l".into())], vec![])
                    .to_string();
                assert!(!shown.contains('\u{1b}') && !shown.contains('\u{9b}'));
            }
        }
    }

    #[test]
    fn of_a_long_line_a_part_is_shown() {
        let source = "x + ".repeat(10_000);
        let text = EditedText::unchanged(source.as_str().into());
        let reporter = Reporter {
            file: "long.wgsl",
            text: &text,
        };
        let diagnostic = reporter.at(
            "too much".into(),
            vec![(20_000..20_001, "l".into())],
            vec!["less".into()],
        );
        let shown = diagnostic.to_string();
        assert!(shown.len() < 700, "{}", shown.len());
        for part in ["too much", "long.wgsl:1:20001", "x + x", "= less"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn labels_of_naga_become_words() {
        assert_eq!(plain("naga::ir::Function [3]"), "function");
        assert_eq!(
            plain("naga::arena::Range<naga::ir::Expression> [1..2]"),
            "range"
        );
        assert_eq!(plain("this call"), "this call");
    }
}
