//! Records: the words left behind by a kernel, checked before any use. A kernel may have written anything, so sizes
//! come from the program and never from the buffer, and words not fitting together end the reading.

use std::fmt;
use std::sync::Arc;

use super::format::Template;
use super::value::ValueType;

/// Words in front of the records.
pub(crate) const HEADER_WORDS: usize = 72;
/// Word of the header: how many words were handed out.
pub(crate) const HEAD: usize = 0;
/// Words of the header: how many records did not fit.
pub(crate) const DROPPED: [usize; 2] = [1, 2];
/// Word of the header: the code of the first failed assertion.
pub(crate) const FAILED_SITE: usize = 4;
/// Word of the header: its invocation.
pub(crate) const FAILED_INVOCATION: usize = 5;
/// First word of the header with values of its message.
pub(crate) const FAILED_VALUES: usize = 8;
/// The most words for the values of a record.
pub(crate) const MAX_VALUES: usize = 64;
/// Words of a record beside its values: code, invocation, check.
pub(crate) const EXTRA_WORDS: usize = 3;

const _: () = assert!(FAILED_VALUES + MAX_VALUES == HEADER_WORDS);

/// The initial value of a record's check, so zeros do not pass for a record.
const CHECK_SEED: u32 = 0x746d_626c;

/// The action of a place in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiteKind {
    Print,
    Assert,
    Panic,
    /// Values for a function of the host that prints: no record is left.
    Values,
}

impl SiteKind {
    /// Whether invocations give up there.
    pub fn fails(self) -> bool {
        matches!(self, Self::Assert | Self::Panic)
    }
}

/// A printing place in a program, as seen by a single kernel.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The name of the source.
    pub file: Arc<str>,
    pub kind: SiteKind,
    pub line: u32,
    pub column: u32,
    /// The source line with a marker below.
    pub excerpt: String,
    pub template: Template,
    pub arguments: Vec<ValueType>,
}

impl Site {
    pub fn values(&self) -> usize {
        self.arguments.iter().map(|ty| ty.words()).sum()
    }

    /// Appends the text of its values.
    pub fn write_text(&self, words: &[u32], out: &mut String) {
        self.template.write(&self.arguments, words, out);
    }

    /// The text of its values.
    pub fn text(&self, words: &[u32]) -> String {
        let mut out = String::new();
        self.write_text(words, &mut out);
        out
    }
}

/// All printing places of a kernel; unreachable ones are `None`.
#[derive(Debug)]
pub(crate) struct Sites {
    pub kernel: String,
    pub sites: Vec<Option<Site>>,
}

impl Sites {
    /// The site with the given code: a number, counted from 1.
    pub fn site(&self, code: u32) -> Option<&Site> {
        let index = (code as usize).checked_sub(1)?;
        self.sites.get(index)?.as_ref()
    }
}

/// One step of the check over the words of a record. The kernel's side is `tombolo_print_mix`.
pub(crate) fn mix(hash: u32, word: u32) -> u32 {
    let mixed = (hash ^ word).wrapping_mul(0x9e37_79b1);
    mixed ^ (mixed >> 15)
}

/// The check of a record: over its words, and its place.
pub(crate) fn check(at: u32, words: impl IntoIterator<Item = u32>) -> u32 {
    words.into_iter().fold(CHECK_SEED ^ at, mix)
}

/// Where a reader of records stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A record was read; the next begins at the word given here.
    Next(usize),
    /// Nothing (more) is there.
    End,
    /// Not a whole record: still being written, or overwritten.
    Torn,
}

/// Reads the record at word `at` of the `capacity` words behind the header, and hands the record over with the
/// beginning of the next.
pub(crate) fn read_record(
    sites: &Sites,
    at: usize,
    capacity: usize,
    word: impl Fn(usize) -> Option<u32>,
    take: impl FnOnce(&PrintRecord<'_>, usize),
) -> Step {
    let head = word(HEAD).unwrap_or(0);
    if at >= (head as usize).min(capacity) {
        return Step::End;
    }
    let word = |index: usize| word(HEADER_WORDS + index).unwrap_or(0);
    let code = word(at);
    let Some(site) = sites.site(code).filter(|s| s.kind == SiteKind::Print) else {
        return Step::Torn;
    };
    let values = site.values();
    let end = at + values + EXTRA_WORDS;
    if values > MAX_VALUES || end > capacity {
        return Step::Torn;
    }
    let mut words = [0; MAX_VALUES];
    for (slot, index) in words.iter_mut().zip(0..values) {
        *slot = word(at + 2 + index);
    }
    let words = &words[..values];
    let invocation = word(at + 1);
    let all = [code, invocation].into_iter().chain(words.iter().copied());
    if check(at as u32, all) != word(end - 1) {
        return Step::Torn;
    }
    let record = PrintRecord {
        sites,
        site,
        invocation,
        words,
    };
    take(&record, end);
    Step::Next(end)
}

/// A line printed by a kernel.
///
/// The text is made on demand (`to_string`, or [`PrintRecord::text`]), so a merely counting sink costs next to nothing.
#[derive(Clone, Copy)]
pub struct PrintRecord<'a> {
    sites: &'a Sites,
    site: &'a Site,
    invocation: u32,
    words: &'a [u32],
}

impl PrintRecord<'_> {
    /// The entry point of the kernel.
    pub fn kernel(&self) -> &str {
        &self.sites.kernel
    }

    /// The name of the source, as given to [`Program::new`](crate::Program::new).
    pub fn file(&self) -> &str {
        &self.site.file
    }

    /// 1-based line of the `print` in the program's source.
    pub fn line(&self) -> u32 {
        self.site.line
    }

    /// 1-based column of the `print`, in characters.
    pub fn column(&self) -> u32 {
        self.site.column
    }

    /// The invocation: its position in the grid, counted with x fastest (modulo 2^32).
    pub fn invocation(&self) -> u32 {
        self.invocation
    }

    /// The 32-bit words of the arguments, in order: a scalar of up to 32 bits is a single word (a `bool` 0 or 1, an
    /// `f16` as `f32`), a scalar of 64 bits two (low, high); vectors and matrices are their components in order.
    pub fn words(&self) -> &[u32] {
        self.words
    }

    /// The text, without a line break at its end unless in the format.
    pub fn text(&self) -> String {
        self.site.text(self.words)
    }

    /// Appends the text.
    pub(crate) fn write_text(&self, out: &mut String) {
        self.site.write_text(self.words, out);
    }

    /// Place and invocation, to stand in front of the text.
    pub(crate) fn location(&self) -> String {
        let (file, line, column) = (self.file(), self.line(), self.column());
        format!("{file}:{line}:{column} [{}]: ", self.invocation)
    }
}

impl fmt::Display for PrintRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Debug for PrintRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrintRecord")
            .field("kernel", &self.kernel())
            .field("line", &self.line())
            .field("invocation", &self.invocation)
            .field("text", &self.text())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
