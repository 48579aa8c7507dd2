//! String literals of programs that call the host. WGSL has no strings: a literal's text stays here, and its number
//! stands in the program, a `u32` taken for a text by functions of the host.
//!
//! A number depends on the text alone, except for two texts with the same number: a program is then the same text to
//! drivers and their caches every time. Texts are kept for the life of the process, and there are as many as programs
//! have literals: kernels add none.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use super::opcode;
use crate::device::wait::lock;
use crate::kernel::edit::Replacement;
use crate::kernel::token::TokenStream;
use crate::print::format::{FormatError, unescape};

/// Set in the numbers of literals, and in those of no other texts.
pub(crate) const LITERAL: u32 = 1 << 31;

static TEXTS: LazyLock<Mutex<HashMap<u32, Arc<str>>>> = LazyLock::new(Mutex::default);

/// The number of a text.
pub(crate) fn intern(text: &str) -> u32 {
    let mut texts = lock(&TEXTS);
    let mut id = LITERAL | opcode(text);
    loop {
        match texts.get(&id) {
            Some(known) if **known == *text => return id,
            // There are never 2^31 literals.
            Some(_) => id = LITERAL | id.wrapping_add(1),
            None => {
                texts.insert(id, text.into());
                return id;
            }
        }
    }
}

/// The text of a number that [`intern`] gave.
pub(crate) fn literal(id: u32) -> Option<Arc<str>> {
    lock(&TEXTS).get(&id).cloned()
}

/// The replacements of the literals of `source`, except in `taken` places.
pub(crate) fn literals(
    source: &str,
    taken: &[Replacement],
) -> Result<Vec<Replacement>, FormatError> {
    if !source.contains('"') {
        return Ok(Vec::new());
    }
    let stream = TokenStream::new(source);
    let mut taken: Vec<_> = taken.iter().map(|edit| edit.range.clone()).collect();
    taken.sort_by_key(|range| range.start);
    let mut edits = Vec::new();
    for at in (0..stream.len()).filter(|&at| stream.is_text(at)) {
        let range = stream.span(at..at + 1);
        // Such places do not overlap: only the last place beginning before can hold the literal.
        let before = taken.partition_point(|place| place.start <= range.start);
        if taken[..before]
            .last()
            .is_some_and(|place| place.contains(&range.start))
        {
            continue;
        }
        let chars = unescape(stream.text(at), range.start)?;
        let text: String = chars.into_iter().map(|(char, _)| char).collect();
        let text = format!("{}u", intern(&text));
        edits.push(Replacement { range, text });
    }
    Ok(edits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_become_numbers_that_lead_back() {
        let source =
            "let a = file_open(\"data.txt\", 1u); // \"not this\"\nlet b = f(\"a\\\"\\n\");";
        let edits = literals(source, &[]).unwrap();
        assert_eq!(edits.len(), 2);
        for (edit, text) in edits.iter().zip(["data.txt", "a\"\n"]) {
            let id: u32 = edit.text.strip_suffix('u').unwrap().parse().unwrap();
            assert_eq!((id & LITERAL, id), (LITERAL, intern(text)));
            assert_eq!(literal(id).as_deref(), Some(text));
        }
        assert_eq!(&source[edits[0].range.clone()], "\"data.txt\"");
        let taken = Replacement {
            range: 0..40,
            text: String::new(),
        };
        assert_eq!(literals(source, &[taken]).unwrap(), edits[1..]);
        assert!(literals("f(\"open", &[]).is_err());
        assert_eq!(literal(LITERAL | opcode("never a literal")), None);
    }

    #[test]
    fn texts_with_the_same_number_are_told_apart() {
        let first = intern("the first of two");
        // As if another text had its number.
        lock(&TEXTS).insert(LITERAL | opcode("the second of two"), "another".into());
        let second = intern("the second of two");
        assert_ne!(second, LITERAL | opcode("the second of two"));
        assert_eq!(literal(second).as_deref(), Some("the second of two"));
        assert_eq!(intern("the second of two"), second);
        assert_eq!(intern("the first of two"), first);
    }
}
