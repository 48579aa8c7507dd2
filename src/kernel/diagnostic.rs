//! Messages pointing into the user's file: place, source line, labels and notes, for faults found in any part of the
//! pipeline, after any rewriting of the text.

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use codespan_reporting::diagnostic::{Diagnostic as Report, Label};
use codespan_reporting::files::SimpleFiles;
use codespan_reporting::term;
use naga::front::wgsl::ParseError;
use naga::{Span, WithSpan};

use super::edit::EditedText;
use super::error::KernelError;
use super::files::{File, Files};
use super::text_limits::Excess;

/// A place in the source that a [`Diagnostic`] speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiagnosticLabel {
    /// The source of the program that the place is in.
    pub file: String,
    /// Line, counted from 1.
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
    /// Bytes of that source.
    pub range: Range<usize>,
    /// The message at the place; may be empty.
    pub text: String,
}

/// A fault in a program's text, or caused by the text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Name of the source, as given to [`Program::new`](super::Program::new) or
    /// [`ProgramBuilder::source`](super::ProgramBuilder::source); of the first one, if the fault has no place in the text.
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

/// What the diagnostics of a compilation speak of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reporter<'a> {
    /// The files of the user's text.
    pub files: &'a Files,
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
        let mut shown: Vec<Arc<File>> = Vec::new();
        let labels = labels
            .into_iter()
            .map(|(range, text)| {
                let range = snap(source, range);
                let (file, start) = self.files.find(range.start);
                // A place in a text that the runtime has put behind the files is none of theirs.
                let range = snap(&file.source, start..start.saturating_add(range.len()));
                let (line, column) = file.place(range.start);
                shown.push(Arc::clone(file));
                DiagnosticLabel {
                    file: file.name.clone(),
                    line,
                    column,
                    range,
                    text,
                }
            })
            .collect::<Vec<_>>();
        let (line, column) = labels.first().map_or((0, 0), |l| (l.line, l.column));
        let file = labels
            .first()
            .map_or(self.files.name(), |label| &label.file);
        let mut diagnostic = Diagnostic {
            file: file.to_owned(),
            line,
            column,
            message,
            labels,
            notes,
            rendered: String::new(),
        };
        diagnostic.rendered = render(&diagnostic, &shown);
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

/// Bytes of a line shown as a whole.
const LONG_LINE: usize = 1000;

/// Whether the place is in a line, or over lines, too long for a screen.
fn is_in_long_line(source: &str, range: &Range<usize>) -> bool {
    let bytes = source.as_bytes();
    let start = range.start.min(bytes.len());
    let end = range.end.clamp(start, bytes.len());
    let before = bytes[..start]
        .iter()
        .rev()
        .take_while(|byte| **byte != b'\n');
    let behind = bytes[end..].iter().take_while(|byte| **byte != b'\n');
    let shown = start - before.count()..end + behind.count();
    let mut lines = bytes[shown].split(|byte| *byte == b'\n');
    lines.any(|line| line.len() > LONG_LINE)
}

/// A report that shows a part of the first place's line.
fn render_part(diagnostic: &Diagnostic, file: &File, label: &DiagnosticLabel) -> String {
    let notes: String = (diagnostic.notes.iter())
        .map(|note| format!("      = {note}\n"))
        .collect();
    let file = File::new("", printable(&file.source).into());
    format!(
        "error: {}\n     --> {}:{}:{}\n{} {}\n{notes}",
        diagnostic.message,
        diagnostic.file,
        diagnostic.line,
        diagnostic.column,
        file.excerpt(label.range.start),
        label.text
    )
}

/// The text without control characters, which would disturb the terminal. Each is replaced by a character of as many bytes, so
/// that spans still fit.
fn printable(source: &str) -> String {
    let plain = |c: char| match c {
        _ if !c.is_control() || c.is_whitespace() => c,
        _ if c.len_utf8() == 1 => '?',
        _ => '\u{b7}',
    };
    source.chars().map(plain).collect()
}

/// The report; `files` are those of the labels.
fn render(diagnostic: &Diagnostic, files: &[Arc<File>]) -> String {
    let places = || diagnostic.labels.iter().zip(files);
    if let (Some((label, file)), true) = (
        places().next(),
        places().any(|(label, file)| is_in_long_line(&file.source, &label.range)),
    ) {
        return render_part(diagnostic, file, label);
    }
    let mut shown = SimpleFiles::new();
    let mut ids: Vec<(&Arc<File>, usize)> = Vec::new();
    let labels = places().enumerate().map(|(i, (label, file))| {
        let known = ids.iter().find(|(known, _)| Arc::ptr_eq(known, file));
        let id = known.map(|(_, id)| *id).unwrap_or_else(|| {
            let id = shown.add(file.name.as_str(), printable(&file.source));
            ids.push((file, id));
            id
        });
        let make = if i == 0 {
            Label::primary
        } else {
            Label::secondary
        };
        make(id, label.range.clone()).with_message(&label.text)
    });
    let labels = labels.collect::<Vec<_>>();
    let mut notes = diagnostic.notes.clone();
    if diagnostic.labels.is_empty() {
        notes.insert(0, format!("in {}", diagnostic.file));
    }
    let report = Report::error()
        .with_message(&diagnostic.message)
        .with_labels(labels)
        .with_notes(notes);
    let config = term::Config::default();
    term::emit_into_string(&config, &shown, &report).unwrap_or_else(|error| {
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
            files: &Files::one("a.wgsl", text.original()),
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
            files: &Files::one("b.wgsl", text.original()),
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
            files: &Files::one("c", text.original()),
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
            files: &Files::one("long.wgsl", text.original()),
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
