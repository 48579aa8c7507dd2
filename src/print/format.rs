//! Format strings, in the syntax of Rust's `std::fmt`: positional arguments, explicit or in order, with fill,
//! alignment, sign, `#`, `0`, width, precision and type. Widths and precisions are numbers; Rust's forms with other
//! arguments or names are refused with a hint at the right form.

use std::ops::Range;

use super::value::ValueType;

/// The demands of a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub fill: char,
    pub align: Option<Align>,
    pub sign: bool,
    pub alternate: bool,
    pub zero: bool,
    pub width: Option<u16>,
    pub precision: Option<u16>,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Center,
    Right,
}

/// The type of a placeholder: the trait used by Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Display,
    Debug,
    DebugLowerHex,
    DebugUpperHex,
    LowerHex,
    UpperHex,
    Octal,
    Binary,
    LowerExp,
    UpperExp,
    Pointer,
}

impl Kind {
    const ALL: [(&'static str, Self); 11] = [
        ("", Self::Display),
        ("?", Self::Debug),
        ("x?", Self::DebugLowerHex),
        ("X?", Self::DebugUpperHex),
        ("x", Self::LowerHex),
        ("X", Self::UpperHex),
        ("o", Self::Octal),
        ("b", Self::Binary),
        ("e", Self::LowerExp),
        ("E", Self::UpperExp),
        ("p", Self::Pointer),
    ];

    /// As it is written in a placeholder.
    pub fn text(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or("", |(text, _)| text)
    }

    pub fn is_debug(self) -> bool {
        matches!(
            self,
            Self::Debug | Self::DebugLowerHex | Self::DebugUpperHex
        )
    }
}

/// A part of a format string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Value {
        argument: usize,
        spec: Spec,
        /// Where the placeholder stands in the program's text.
        place: Range<usize>,
    },
}

/// A format string, read.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Template {
    pub pieces: Vec<Piece>,
}

impl Template {
    /// Appends the text of values of these types, whose words follow each other.
    pub fn write(&self, types: &[ValueType], words: &[u32], out: &mut String) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Value { argument, spec, .. } => {
                    let before = types.iter().take(*argument);
                    let start = before.map(|ty| ty.words()).sum();
                    if let Some(ty) = types.get(*argument) {
                        ty.render(words.get(start..).unwrap_or_default(), spec, out);
                    }
                }
            }
        }
    }
}

/// An error of a format string, and its place in the program's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FormatError {
    pub place: Range<usize>,
    pub message: String,
}

/// A character of a string literal and its bytes in the program's text.
pub(crate) type Placed = (char, Range<usize>);

/// The characters of a string literal, quotes included; `at` is the literal's beginning in the text. Escapes are
/// Rust's.
pub(crate) fn unescape(literal: &str, at: usize) -> Result<Vec<Placed>, FormatError> {
    let fail = |place: Range<usize>, message: &str| {
        Err(FormatError {
            place,
            message: message.to_owned(),
        })
    };
    let inner = literal
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let Some(inner) = inner else {
        return fail(at..at + literal.len(), "this string has no end");
    };
    let mut placed = Vec::new();
    let mut chars = inner
        .char_indices()
        .map(|(i, c)| (at + 1 + i, c))
        .peekable();
    while let Some((start, c)) = chars.next() {
        if c != '\\' {
            placed.push((c, start..start + c.len_utf8()));
            continue;
        }
        let Some((escape_at, escape)) = chars.next() else {
            return fail(start..start + 1, "this string has no end");
        };
        let mut end = escape_at + escape.len_utf8();
        let decoded = match escape {
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            '0' => Some('\0'),
            '\\' | '"' | '\'' => Some(escape),
            '\n' => {
                while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {}
                continue;
            }
            'x' => {
                let digits: String = chars.by_ref().take(2).map(|(_, c)| c).collect();
                end += digits.len();
                let is_number = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
                let value = u8::from_str_radix(&digits, 16).ok();
                value.filter(|v| is_number && v.is_ascii()).map(char::from)
            }
            'u' => {
                let rest: String = chars
                    .by_ref()
                    .map(|(_, c)| c)
                    .take_while(|c| *c != '}')
                    .collect();
                end += rest.len() + 1;
                let digits = rest.strip_prefix('{').map(|digits| digits.replace('_', ""));
                digits
                    .filter(|digits| !digits.starts_with('+'))
                    .and_then(|digits| u32::from_str_radix(&digits, 16).ok())
                    .and_then(char::from_u32)
            }
            _ => None,
        };
        let place = start..end.min(at + literal.len());
        match decoded {
            Some(c) => placed.push((c, place)),
            None => {
                return fail(
                    place,
                    r#"unknown escape: there are \n, \r, \t, \0, \\, \", \x41 and \u{1F41A}"#,
                );
            }
        }
    }
    Ok(placed)
}

/// Reads the format string `text` for `arguments` arguments.
pub(crate) fn parse(text: &[Placed], arguments: usize) -> Result<Template, FormatError> {
    let mut template = Template::default();
    let mut literal = String::new();
    let mut next_argument = 0;
    let mut rest = text;
    while let Some(((c, place), after)) = rest.split_first() {
        rest = after;
        let doubled = after.first().is_some_and(|(next, _)| next == c);
        match c {
            '{' | '}' if doubled => {
                literal.push(*c);
                rest = after.get(1..).unwrap_or_default();
            }
            '}' => {
                return Err(FormatError {
                    place: place.clone(),
                    message: "`}` belongs to no placeholder: write `}}` for the character".into(),
                });
            }
            '{' => {
                let Some(close) = after.iter().position(|(c, _)| *c == '}') else {
                    return Err(FormatError {
                        place: place.clone(),
                        message: "`{` begins a placeholder that does not end: write `{{` for the \
                                  character"
                            .into(),
                    });
                };
                let inside: String = after[..close].iter().map(|(c, _)| *c).collect();
                let place = place.start..after[close].1.end;
                let fail = |message: String| FormatError {
                    place: place.clone(),
                    message,
                };
                let (argument, spec) = placeholder(&inside).map_err(fail)?;
                let argument = argument.unwrap_or_else(|| {
                    next_argument += 1;
                    next_argument - 1
                });
                if argument >= arguments {
                    return Err(fail(match arguments {
                        0 => "there is no argument for this placeholder".into(),
                        1 => format!("there is no argument {argument}: only one is given"),
                        n => format!("there is no argument {argument}: only {n} are given"),
                    }));
                }
                if !literal.is_empty() {
                    template
                        .pieces
                        .push(Piece::Text(std::mem::take(&mut literal)));
                }
                template.pieces.push(Piece::Value {
                    argument,
                    spec,
                    place,
                });
                rest = after.get(close + 1..).unwrap_or_default();
            }
            c => literal.push(*c),
        }
    }
    if !literal.is_empty() {
        template.pieces.push(Piece::Text(literal));
    }
    Ok(template)
}

/// The text between `{` and `}`.
fn placeholder(inside: &str) -> Result<(Option<usize>, Spec), String> {
    let (argument, spec) = inside.split_once(':').unwrap_or((inside, ""));
    let argument = match argument.trim() {
        "" => None,
        number if number.bytes().all(|b| b.is_ascii_digit()) => {
            let number = number.parse();
            Some(number.map_err(|_| "this number is no index of an argument".to_owned())?)
        }
        name => {
            return Err(format!(
                "names are not captured: write `{{}}` and give `{name}` as an argument"
            ));
        }
    };
    Ok((argument, specification(spec.trim_end())?))
}

fn specification(text: &str) -> Result<Spec, String> {
    let align = |c: char| match c {
        '<' => Some(Align::Left),
        '^' => Some(Align::Center),
        '>' => Some(Align::Right),
        _ => None,
    };
    let mut spec = Spec {
        fill: ' ',
        align: None,
        sign: false,
        alternate: false,
        zero: false,
        width: None,
        precision: None,
        kind: Kind::Display,
    };
    let mut rest = text;
    let mut chars = text.chars();
    let (first, second) = (chars.next(), chars.next());
    if let (Some(fill), Some(found)) = (first, second.and_then(align)) {
        (spec.fill, spec.align) = (fill, Some(found));
        rest = chars.as_str();
    } else if let Some(found) = first.and_then(align) {
        spec.align = Some(found);
        rest = rest.get(1..).unwrap_or("");
    }
    let flag = |rest: &mut &str, c: char| match rest.strip_prefix(c) {
        Some(after) => {
            *rest = after;
            true
        }
        None => false,
    };
    spec.sign = flag(&mut rest, '+');
    if !spec.sign {
        // Accepted and without effect, as in Rust.
        flag(&mut rest, '-');
    }
    spec.alternate = flag(&mut rest, '#');
    spec.zero = !rest.starts_with("0$") && flag(&mut rest, '0');
    if rest.contains('$') || rest.contains('*') {
        return Err("widths and precisions are not taken from arguments: write the number".into());
    }
    spec.width = number(&mut rest)?;
    if let Some(after) = rest.strip_prefix('.') {
        rest = after;
        spec.precision = number(&mut rest)?;
        if spec.precision.is_none() {
            return Err("a precision is a number: `{:.3}`".into());
        }
    }
    let kind = Kind::ALL.iter().find(|(text, _)| *text == rest);
    spec.kind = kind.map(|(_, kind)| *kind).ok_or_else(|| {
        format!(
            "`{rest}` is no format: there are `?`, `x`, `X`, `o`, `b`, `e`, `E`, `p`, `x?`, `X?`"
        )
    })?;
    Ok(spec)
}

/// The number at the start of `rest`, if there is one.
fn number(rest: &mut &str) -> Result<Option<u16>, String> {
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (digits, after) = rest.split_at(end);
    *rest = after;
    match digits {
        "" => Ok(None),
        digits => match digits.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(format!(
                "{digits} is too much: widths and precisions go up to {}",
                u16::MAX
            )),
        },
    }
}

#[cfg(test)]
mod tests;
