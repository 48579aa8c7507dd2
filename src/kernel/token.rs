//! The tokenizer: splits WGSL text into tokens with byte spans, so the conventions of the runtime can be found before
//! naga sees the text.
//!
//! The tokenizer accepts every string and never fails: invalid WGSL stays for naga to reject, with naga's words. Two
//! simplifications are sound for that reason. Every character outside ASCII that is not blank counts as part of an
//! identifier (WGSL allows such characters in identifiers and comments only). And `<` and `>` are always tokens of
//! their own, so `array<array<f32, N>>` needs no special case; the algorithm of the WGSL specification, section 3.9
//! "Template Lists", decides which of them enclose a template list.

use std::collections::HashSet;
use std::ops::Range;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// An identifier or a keyword.
    Identifier,
    /// A numeric literal, with its suffix.
    Number,
    /// An operator, a bracket or a separator: a character, or any of `->`, `==`, `!=`, `&&`, `||`.
    Punctuation,
    /// From `//` up to, and without, the line break.
    LineComment,
    /// From `"` to the next `"` that no `\` stands before, or to the end of the text. WGSL has no such thing; the
    /// format strings of `print` are.
    Text,
    /// From `/*` to the matching `*/`, or to the end of the text.
    BlockComment,
    /// A run of blank characters.
    Blank,
    /// A character that starts no WGSL token.
    Unknown,
}

/// A token: kind and bytes in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The kind.
    pub kind: TokenKind,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Token {
    /// Its bytes in the text.
    pub fn span(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// Line breaks that end a line comment: WGSL section 3.2.
fn is_line_break(c: char) -> bool {
    matches!(c, '\u{a}'..='\u{d}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Blank space: WGSL section 3.2 (Unicode Pattern_White_Space).
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{200e}' | '\u{200f}') || is_line_break(c)
}

fn starts_identifier(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic() || (!c.is_ascii() && !is_blank(c))
}

fn continues_identifier(c: char) -> bool {
    starts_identifier(c) || c.is_ascii_digit()
}

/// Splits `source` into tokens, blanks and comments included. Their spans cover `source` in order, without gaps.
pub(crate) fn tokenize(source: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let start = source.len() - rest.len();
        let (kind, length) = next_token(rest, first);
        // `length` counts whole characters from the start of `rest`, so the split is on a boundary.
        let (_, after) = rest.split_at(length);
        tokens.push(Token {
            kind,
            start,
            end: start + length,
        });
        rest = after;
    }
    tokens
}

/// Kind and length in bytes of the token that `rest`, whose first character is `first`, starts with.
fn next_token(rest: &str, first: char) -> (TokenKind, usize) {
    let prefix = |accept: fn(char) -> bool| rest.find(|c| !accept(c)).unwrap_or(rest.len());
    let second = rest.chars().nth(1);
    match first {
        _ if is_blank(first) => (TokenKind::Blank, prefix(is_blank)),
        _ if starts_identifier(first) => (TokenKind::Identifier, prefix(continues_identifier)),
        '0'..='9' => (TokenKind::Number, number_length(rest)),
        '.' if second.is_some_and(|c| c.is_ascii_digit()) => {
            (TokenKind::Number, number_length(rest))
        }
        '/' if second == Some('/') => (
            TokenKind::LineComment,
            rest.find(is_line_break).unwrap_or(rest.len()),
        ),
        '/' if second == Some('*') => (TokenKind::BlockComment, block_comment_length(rest)),
        '"' => (TokenKind::Text, text_length(rest)),
        '-' if second == Some('>') => (TokenKind::Punctuation, 2),
        '=' | '!' if second == Some('=') => (TokenKind::Punctuation, 2),
        '&' | '|' if second == Some(first) => (TokenKind::Punctuation, 2),
        '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | ',' | ';' | ':' | '.' | '@' | '=' | '+'
        | '-' | '*' | '/' | '%' | '&' | '|' | '^' | '!' | '~' => (TokenKind::Punctuation, 1),
        _ => (TokenKind::Unknown, first.len_utf8()),
    }
}

/// Length of the number at the start of `rest`. Greedy: a malformed number stays a single token for naga to reject.
fn number_length(rest: &str) -> usize {
    let hexadecimal = rest.starts_with("0x") || rest.starts_with("0X");
    let mut previous = ' ';
    for (at, c) in rest.char_indices() {
        let sign_of_exponent = matches!(c, '+' | '-')
            && if hexadecimal {
                matches!(previous, 'p' | 'P')
            } else {
                matches!(previous, 'e' | 'E')
            };
        if !(c.is_ascii_alphanumeric() || c == '.' || sign_of_exponent) {
            return at;
        }
        previous = c;
    }
    rest.len()
}

/// Length of the string at the start of `rest`, quotes included.
fn text_length(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    rest.len()
}

/// Length of the block comment at the start of `rest`; such comments nest.
fn block_comment_length(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(pair) = bytes.get(at..at + 2) {
        match pair {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

/// The tokens of a text that mean something (no blanks, no comments), and which brackets belong together.
#[derive(Debug)]
pub(crate) struct TokenStream<'a> {
    source: &'a str,
    tokens: Vec<Token>,
    partner: Vec<Option<usize>>,
    /// For each token, the first `;` at or behind the token outside of any bracket opened behind it.
    semicolons: Vec<usize>,
}

impl<'a> TokenStream<'a> {
    /// Tokenizes `source` and matches brackets and template lists.
    pub fn new(source: &'a str) -> Self {
        let tokens = tokenize(source)
            .into_iter()
            .filter(|t| {
                !matches!(
                    t.kind,
                    TokenKind::Blank | TokenKind::LineComment | TokenKind::BlockComment
                )
            })
            .collect::<Vec<_>>();
        let mut stream = Self {
            source,
            partner: vec![None; tokens.len()],
            semicolons: Vec::new(),
            tokens,
        };
        stream.match_brackets();
        stream.find_semicolons();
        stream.match_templates();
        stream
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The text of token `at`; empty beyond the end, so look-ahead needs no bounds test.
    pub fn text(&self, at: usize) -> &'a str {
        super::work::count(1);
        self.tokens
            .get(at)
            .and_then(|t| self.source.get(t.span()))
            .unwrap_or("")
    }

    /// The names behind `fn`: the functions that the text declares.
    pub fn functions(&self) -> HashSet<&'a str> {
        let names = (1..self.len()).filter(|&at| self.text(at - 1) == "fn");
        names.map(|at| self.text(at)).collect()
    }

    /// Whether token `at` is an identifier or a keyword.
    pub fn is_identifier(&self, at: usize) -> bool {
        self.tokens
            .get(at)
            .is_some_and(|t| t.kind == TokenKind::Identifier)
    }

    /// Whether token `at` is a string.
    pub fn is_text(&self, at: usize) -> bool {
        self.tokens
            .get(at)
            .is_some_and(|t| t.kind == TokenKind::Text)
    }

    /// The partner of the bracket at `at`. `<` and `>` have a partner only as a template list.
    pub fn partner(&self, at: usize) -> Option<usize> {
        self.partner.get(at).copied().flatten()
    }

    /// The `;` that ends the statement at `at`, or the end of the text.
    pub fn semicolon(&self, at: usize) -> usize {
        self.semicolons.get(at).copied().unwrap_or(self.len())
    }

    /// The bytes from the first to the last token of `range`; empty at the end of the text for an empty range.
    pub fn span(&self, range: Range<usize>) -> Range<usize> {
        match self.tokens.get(range) {
            Some([first, .., last]) => first.start..last.end,
            Some([only]) => only.span(),
            _ => self.source.len()..self.source.len(),
        }
    }

    /// The text from the first to the last token of `range`.
    pub fn slice(&self, range: Range<usize>) -> &'a str {
        self.source.get(self.span(range)).unwrap_or("")
    }

    /// Whether token `at` touches the next token.
    fn adjacent(&self, at: usize) -> bool {
        match (self.tokens.get(at), self.tokens.get(at + 1)) {
            (Some(a), Some(b)) => a.end == b.start,
            _ => false,
        }
    }

    fn pair(&mut self, open: usize, close: usize) {
        if let Some(slot) = self.partner.get_mut(open) {
            *slot = Some(close);
        }
        if let Some(slot) = self.partner.get_mut(close) {
            *slot = Some(open);
        }
    }

    fn match_brackets(&mut self) {
        /// The kinds of brackets, by opening and closing token.
        const KINDS: [(&str, &str); 3] = [("(", ")"), ("[", "]"), ("{", "}")];
        let mut open: Vec<(usize, usize)> = Vec::new();
        // The number of open brackets of each kind: a closing bracket without an open one is not looked for.
        let mut count = [0usize; 3];
        for at in 0..self.len() {
            let text = self.text(at);
            if let Some(kind) = KINDS.iter().position(|(opens, _)| *opens == text) {
                open.push((at, kind));
                count[kind] += 1;
            } else if let Some(kind) = KINDS.iter().position(|(_, closes)| *closes == text)
                && count[kind] > 0
            {
                // One is there, and each taken off here was put on once.
                while let Some((opened_at, other)) = open.pop() {
                    count[other] -= 1;
                    if other == kind {
                        self.pair(opened_at, at);
                        break;
                    }
                }
            }
        }
    }

    /// Finds the end of each statement, from the last token to the first.
    fn find_semicolons(&mut self) {
        let mut found = vec![self.len(); self.len() + 1];
        for at in (0..self.len()).rev() {
            found[at] = match self.text(at) {
                ";" => at,
                "(" | "[" | "{" => {
                    let close = self.partner(at).unwrap_or(at);
                    found[close + 1]
                }
                _ => found[at + 1],
            };
        }
        self.semicolons = found;
    }

    /// Template list discovery of the WGSL specification, on tokens.
    fn match_templates(&mut self) {
        let mut candidates: Vec<(usize, usize)> = Vec::new();
        let mut depth = 0usize;
        let mut at = 0;
        while at < self.len() {
            match self.text(at) {
                "<" => {
                    let compares =
                        self.adjacent(at) && matches!(self.text(at + 1), "=" | "<" | "==");
                    if compares {
                        at += 1;
                    } else if at > 0 && self.is_identifier(at - 1) {
                        candidates.push((at, depth));
                    }
                }
                ">" => match candidates.last() {
                    Some(&(open, opened_at)) if opened_at == depth => {
                        candidates.pop();
                        self.pair(open, at);
                    }
                    _ => {
                        if self.adjacent(at) && self.text(at + 1) == "=" {
                            at += 1;
                        }
                    }
                },
                "(" | "[" => depth += 1,
                ")" | "]" => {
                    while candidates.last().is_some_and(|c| c.1 >= depth) {
                        candidates.pop();
                    }
                    depth = depth.saturating_sub(1);
                }
                ";" | "{" | ":" | "=" => {
                    depth = 0;
                    candidates.clear();
                }
                "&&" | "||" => {
                    while candidates.last().is_some_and(|c| c.1 >= depth) {
                        candidates.pop();
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(source: &str) -> Vec<&str> {
        let stream = TokenStream::new(source);
        (0..stream.len()).map(|i| stream.text(i)).collect()
    }

    #[test]
    fn splits_numbers_operators_and_identifiers() {
        assert_eq!(
            texts("a_1=0x1e-5+1e-5f*.5-0x1p-3f>>=b->c==d&&!é2;"),
            [
                "a_1", "=", "0x1e", "-", "5", "+", "1e-5f", "*", ".5", "-", "0x1p-3f", ">", ">",
                "=", "b", "->", "c", "==", "d", "&&", "!", "é2", ";"
            ]
        );
    }

    #[test]
    fn strings_hide_brackets_comments_and_escaped_quotes() {
        assert_eq!(
            texts(r#"print("a { // \"b\\", x); "open"#),
            [
                "print",
                "(",
                r#""a { // \"b\\""#,
                ",",
                "x",
                ")",
                ";",
                r#""open"#
            ]
        );
    }

    #[test]
    fn comments_nest_and_end_at_every_line_break() {
        assert_eq!(
            texts("a/* x /* y */ b */c//d\u{2028}e//f\u{85}g//h\u{b}i//j"),
            ["a", "c", "e", "g", "i"]
        );
        assert_eq!(texts("a /* /* */ b"), ["a"]);
        assert_eq!(texts("a /*/ b */ c"), ["a", "c"]);
    }

    #[test]
    fn template_lists_are_told_from_comparisons() {
        let templates = |source: &str| {
            let s = TokenStream::new(source);
            (0..s.len())
                .filter(|&i| s.text(i) == "<" && s.partner(i).is_some())
                .count()
        };
        assert_eq!(
            templates("var t: array<array<f32, N>, M>= array<array<f32, N>, M>();"),
            4
        );
        assert_eq!(templates("if (a < b && c > d) {}"), 0);
        assert_eq!(templates("if (a < b || c > (d)) {}"), 0);
        assert_eq!(templates("x = a[i < n] > b;"), 0);
        assert_eq!(templates("let a = b <= c; let d = e > f;"), 0);
        assert_eq!(templates("let a = 1 << b; let d = e >> f;"), 0);
        assert_eq!(
            templates("var<private> p: ptr<function, array<u32, (A > B)>>;"),
            3
        );
    }

    proptest! {
        #[test]
        fn every_string_is_covered_in_order(source in "\\PC*|[-a-z0-9<>/*.e+=\\n é\u{2028}]{0,60}") {
            let mut at = 0;
            for token in tokenize(&source) {
                prop_assert_eq!(token.start, at);
                prop_assert!(token.end > token.start);
                prop_assert!(source.get(token.span()).is_some());
                at = token.end;
            }
            prop_assert_eq!(at, source.len());
            let stream = TokenStream::new(&source);
            for i in 0..stream.len() {
                if let Some(p) = stream.partner(i) {
                    prop_assert_eq!(stream.partner(p), Some(i));
                }
            }
        }
    }
}
