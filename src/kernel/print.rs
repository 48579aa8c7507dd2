//! The text side of `print`, `assert` and `panic`: finds the calls, reads their format strings, and leaves plain
//! WGSL behind.
//!
//! - `print("x = {}", x);` becomes `tombolo_print_0(x);`
//! - `panic("x = {}", x);` becomes the same; the difference is in the function's body.
//! - `file_print(f, "x = {}", x)` becomes `file_print(f, N, tombolo_print_2(x))`, where N is the number of the format string,
//!   and the function puts the values together for the host; so do `text_print` and the other forms of these calls.
//! - `assert(c, "x = {}", x);` becomes `if !(c) { tombolo_print_1(x); };`, so the values of the message are only
//!   computed when it is needed.
//!
//! The functions are appended behind the user's text, without parameters: naga's parser compares no numbers of
//! arguments, and makes each argument concrete by its own type. The pass `passes::print` then gives them parameters and
//! bodies. Replacements end before the arguments, so faults in arguments are found at their place in the user's text.
//!
//! naga's typifier is asked for the arguments' types, so that the calls, and with them the order of evaluation, stay
//! what the user wrote.

use std::collections::HashSet;
use std::ops::Range;

use super::calls::CallSet;
use super::calls::texts::intern;
use super::diagnostic::Reporter;
use super::edit::Replacement;
use super::error::KernelError;
use super::passes::print::Fault;
use super::token::TokenStream;
use crate::print::format::{FormatError, Piece, Template, parse, unescape};
use crate::print::record::SiteKind;

const PRELUDE: &str = include_str!("../../shaders/print.wgsl");

/// The names of the sites' functions, with the site's number behind.
pub(crate) const FUNCTION: &str = "tombolo_print_";

/// The functions of the host that take a format string and values, where services have such functions.
const FORMATTED: [&str; 2] = ["file_print", "text_print"];

/// How many arguments stand in front of the format string of a call of `name`, if `name` is a form of such a function.
fn in_front(name: &str, calls: &CallSet) -> Option<usize> {
    let known = |function: &&&str| calls.find(function).is_some();
    let form = (FORMATTED.iter().filter(known)).find_map(|function| name.strip_prefix(function))?;
    match form {
        "" | "_try" | "_post" | "_begin" => Some(1),
        // Whether the invocation takes part comes first.
        "_group" | "_group_try" => Some(2),
        _ => None,
    }
}

/// A call of `print`, `assert` or `panic` in a program's text, or of a function of the host that prints.
#[derive(Clone, Debug)]
pub(crate) struct TextSite {
    pub kind: SiteKind,
    pub template: Template,
    /// Where the call stands in the user's text.
    pub place: Range<usize>,
    /// Where the arguments of the format string stand.
    pub arguments: Vec<Range<usize>>,
}

/// All such calls of a program.
#[derive(Clone, Debug)]
pub(crate) struct Prints {
    pub sites: Vec<TextSite>,
    /// The replacements.
    pub edits: Vec<Replacement>,
    /// The text to stand behind the user's.
    pub appendix: String,
    /// For the parts of the appendix belonging to a single call: bytes of the appendix, and the user's bytes.
    pub origins: Vec<(Range<usize>, Range<usize>)>,
}

/// The calls in `source`, which may call the functions `calls` of the host; nothing for programs that have none.
pub(crate) fn prints(source: &str, calls: &CallSet) -> Result<Option<Prints>, FormatError> {
    if !["print", "assert", "panic"]
        .iter()
        .any(|name| source.contains(name))
    {
        return Ok(None);
    }
    let stream = TokenStream::new(source);
    let functions = stream.functions();
    let mut found = Prints {
        sites: Vec::new(),
        edits: Vec::new(),
        appendix: format!("\n{PRELUDE}"),
        origins: Vec::new(),
    };
    for at in 0..stream.len() {
        let (kind, index) = match stream.text(at) {
            "print" => (SiteKind::Print, 0),
            "assert" => (SiteKind::Assert, 1),
            "panic" => (SiteKind::Panic, 0),
            name => match in_front(name, calls) {
                Some(index) => (SiteKind::Values, index),
                None => continue,
            },
        };
        let before = at.checked_sub(1).map_or("", |before| stream.text(before));
        // A name declared here, a member or an attribute, or that of a function of the program.
        let is_own = matches!(before, "fn" | "." | "@") || functions.contains(stream.text(at));
        if stream.text(at + 1) == "(" && !is_own {
            found.add(&stream, at, kind, index)?;
        }
    }
    Ok((!found.sites.is_empty()).then_some(found))
}

/// The tokens of each argument of the call whose brackets are `open` and `close`.
fn arguments(stream: &TokenStream<'_>, open: usize, close: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let (mut start, mut at) = (open + 1, open + 1);
    while at < close {
        match stream.partner(at) {
            Some(partner) if partner > at => at = partner,
            _ if stream.text(at) == "," => {
                found.push(start..at);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    // A comma behind the last argument is allowed.
    if start < close {
        found.push(start..close);
    }
    found
}

/// The format of a call of `name` at `place`, whose arguments are `given`, with so many values to show; and the text of the
/// format string, the argument with the number `index`.
fn template(
    stream: &TokenStream<'_>,
    (kind, index): (SiteKind, usize),
    name: &str,
    given: &[Range<usize>],
    values: usize,
    place: &Range<usize>,
) -> Result<(Template, String), FormatError> {
    let fail = |place: Range<usize>, message: String| Err(FormatError { place, message });
    match given.get(index) {
        Some(tokens) if tokens.len() == 1 && stream.is_text(tokens.start) => {
            let literal = stream.span(tokens.clone());
            let chars = unescape(stream.slice(tokens.clone()), literal.start)?;
            let text = chars.iter().map(|(char, _)| *char).collect();
            Ok((parse(&chars, values)?, text))
        }
        None if kind == SiteKind::Assert => {
            let condition = stream.slice(given[0].clone());
            let pieces = vec![Piece::Text(format!("assertion failed: {condition}"))];
            Ok((Template { pieces }, String::new()))
        }
        Some(tokens) => {
            let message = format!("`{name}` needs a format string here, in quotes");
            fail(stream.span(tokens.clone()), message)
        }
        None => {
            let message = format!("`{name}` needs a format string, in quotes");
            fail(place.clone(), message)
        }
    }
}

impl Prints {
    fn add(
        &mut self,
        stream: &TokenStream<'_>,
        at: usize,
        kind: SiteKind,
        index: usize,
    ) -> Result<(), FormatError> {
        let name = stream.text(at);
        let whole = stream.span(at..at + 1);
        let fail = |place: Range<usize>, message: String| Err(FormatError { place, message });
        let open = at + 1;
        let Some(close) = stream.partner(open) else {
            return fail(whole, format!("the brackets of this `{name}` do not close"));
        };
        let place = stream.span(at..close + 1);
        let before = at.checked_sub(1).map_or("", |before| stream.text(before));
        let is_statement = matches!(before, ";" | "{" | "}") && stream.text(close + 1) == ";";
        if kind != SiteKind::Values && !is_statement {
            let message = format!("`{name}` is a statement of its own: it has no value");
            return fail(place, message);
        }
        let given = arguments(stream, open, close);
        if kind == SiteKind::Assert && given.is_empty() {
            return fail(place, "`assert` needs a condition".into());
        }
        let text = given.get(index).cloned();
        let values = given.get(index + 1..).unwrap_or_default();
        if let Some(empty) = given.iter().find(|tokens| tokens.is_empty()) {
            let place = stream.span(empty.start..empty.start + 1);
            return fail(place, "an argument is missing here".into());
        }
        let (template, format) =
            template(stream, (kind, index), name, &given, values.len(), &place)?;
        let arguments: Vec<_> = values.iter().map(|t| stream.span(t.clone())).collect();
        let shown: HashSet<usize> = (template.pieces.iter())
            .filter_map(|piece| match piece {
                Piece::Value { argument, .. } => Some(*argument),
                _ => None,
            })
            .collect();
        if let Some(unused) = (0..arguments.len()).find(|index| !shown.contains(index)) {
            let message =
                "this argument is never shown: the format string has no placeholder for it";
            return fail(arguments[unused].clone(), message.into());
        }

        let function = format!("{FUNCTION}{}", self.sites.len());
        let mut edit = |tokens: Range<usize>, text: String| {
            let range = stream.span(tokens);
            self.edits.push(Replacement { range, text });
        };
        // Up to the comma behind the format string, if there is one.
        let head = text.as_ref().map_or(close, |text| text.end);
        let head = head + usize::from(head < close && stream.text(head) == ",");
        match kind {
            SiteKind::Print | SiteKind::Panic => edit(at..head, format!("{function}(")),
            SiteKind::Values => {
                let start = text.map_or(close, |text| text.start);
                edit(start..head, format!("{}u, {function}(", intern(&format)));
                edit(close..close + 1, "))".into());
            }
            SiteKind::Assert => {
                edit(at..open + 1, "if !(".into());
                let condition = given[0].end;
                if condition < head {
                    edit(condition..head, format!(") {{ {function}("));
                    edit(close..close + 1, "); }".into());
                } else {
                    edit(close..close + 1, format!(") {{ {function}(); }}"));
                }
            }
        }
        // naga orders functions by calls: these calls put the helpers before the function.
        let (result, helpers) = match kind {
            SiteKind::Print => (
                "",
                "_ = tombolo_print_reserve(0u); _ = tombolo_print_mix(0u, 0u);",
            ),
            SiteKind::Assert | SiteKind::Panic => ("", "_ = tombolo_print_claim(0u);"),
            SiteKind::Values => (" -> PrintValues", "return PrintValues();"),
        };
        let start = self.appendix.len();
        self.appendix
            .push_str(&format!("fn {function}(){result} {{ {helpers} }}\n"));
        self.origins.push((start..self.appendix.len(), whole));
        self.sites.push(TextSite {
            kind,
            template,
            place,
            arguments,
        });
        Ok(())
    }

    /// The pass's finding, as an error at the argument or its placeholder.
    pub fn error(&self, fault: Fault, reporter: Reporter<'_>) -> KernelError {
        let site = self.sites.get(fault.site);
        let argument = fault.argument.and_then(|i| site?.arguments.get(i).cloned());
        let mut labels: Vec<_> = (argument.or_else(|| site.map(|s| s.place.clone())))
            .map(|place| (place, String::new()))
            .into_iter()
            .collect();
        if let Some(place) = fault.placeholder {
            labels.push((place, "shown here".into()));
        }
        KernelError::Print(reporter.at(fault.message, labels, Vec::new()))
    }
}

/// The text for naga of a program without other conventions.
#[cfg(test)]
pub(crate) fn edited(source: &str, prints: &Prints) -> String {
    let text = super::edit::EditedText::new(source.into(), prints.edits.clone());
    text.append(&prints.appendix, &prints.origins)
        .text()
        .to_string()
}

#[cfg(test)]
mod tests;
