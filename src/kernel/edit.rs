//! Text edits with a memory of their origin: the text compiled by naga is the user's text with a few replacements, and
//! every span must lead back to the user's line and column.
//!
//! An `override` that sizes an array outside work-group memory becomes a `const` with its value. `EditedText`
//! remembers the replacements and maps every span of the new text back. Padding replacements with blanks, so that
//! offsets stay, was the first design; a map has no case in which the value is longer than the declaration.

use std::ops::Range;
use std::sync::Arc;

/// A replacement: bytes of the original, and the new text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replacement {
    /// Bytes of the original text.
    pub range: Range<usize>,
    /// The replacement.
    pub text: String,
}

#[derive(Clone, Debug)]
struct Edit {
    original: Range<usize>,
    new: Range<usize>,
}

/// An original text, the text made from it, and the way back.
#[derive(Clone, Debug)]
pub(crate) struct EditedText {
    original: Arc<str>,
    text: Arc<str>,
    edits: Vec<Edit>,
}

impl EditedText {
    /// A text with no edits.
    pub fn unchanged(original: Arc<str>) -> Self {
        Self {
            text: Arc::clone(&original),
            original,
            edits: Vec::new(),
        }
    }

    /// Applies `replacements`, in any order. Of two overlapping edits, the earlier counts (the longer if both start
    /// together): a blanked declaration swallows the edits inside.
    pub fn new(original: Arc<str>, mut replacements: Vec<Replacement>) -> Self {
        replacements.sort_by_key(|r| (r.range.start, std::cmp::Reverse(r.range.end)));
        let mut text = String::with_capacity(original.len());
        let mut edits = Vec::with_capacity(replacements.len());
        let mut at = 0;
        for replacement in replacements {
            let range = replacement.range;
            if range.start < at || range.end < range.start || original.get(range.clone()).is_none()
            {
                continue;
            }
            text.push_str(original.get(at..range.start).unwrap_or(""));
            let start = text.len();
            text.push_str(&replacement.text);
            at = range.end;
            edits.push(Edit {
                original: range,
                new: start..text.len(),
            });
        }
        text.push_str(original.get(at..).unwrap_or(""));
        Self {
            original,
            text: text.into(),
            edits,
        }
    }

    /// Puts `appendix` behind the text. `origins` gives, for bytes of the text, the bytes of the original that caused
    /// them.
    pub fn append(mut self, appendix: &str, origins: &[(Range<usize>, Range<usize>)]) -> Self {
        let start = self.text.len();
        self.text = format!("{}{appendix}", self.text).into();
        for (bytes, original) in origins {
            self.edits.push(Edit {
                original: original.clone(),
                new: start + bytes.start..start + bytes.end,
            });
        }
        self
    }

    /// The text before the edits.
    pub fn original(&self) -> &Arc<str> {
        &self.original
    }

    /// The text after the edits.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The bytes of the original that `range` of the new text came from. Where an end of it lies within a
    /// replacement, the whole of the replaced bytes belong to the answer.
    pub fn to_original(&self, range: Range<usize>) -> Range<usize> {
        let start = self.map(
            range.start,
            |edit, at| (edit.new.start..edit.new.end).contains(&at),
            |e| e.start,
        );
        let end = self.map(
            range.end,
            |edit, at| edit.new.start < at && at <= edit.new.end,
            |e| e.end,
        );
        start..end.max(start)
    }

    fn map(
        &self,
        at: usize,
        inside: fn(&Edit, usize) -> bool,
        pick: fn(&Range<usize>) -> usize,
    ) -> usize {
        // Only the last edit starting at or before `at` can contain the position.
        let after = self.edits.partition_point(|edit| edit.new.start <= at);
        for edit in self.edits.iter().take(after).rev() {
            if inside(edit, at) {
                return pick(&edit.original);
            }
            if edit.new.end <= at {
                return (edit.original.end + (at - edit.new.end)).min(self.original.len());
            }
        }
        at.min(self.original.len())
    }
}

/// Blanks as many bytes as `text` has, keeping its line feeds: removes text without moving anything.
pub(crate) fn blank(text: &str) -> String {
    text.bytes()
        .map(|b| if b == b'\n' { '\n' } else { ' ' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn replace(range: Range<usize>, text: &str) -> Replacement {
        Replacement {
            range,
            text: text.into(),
        }
    }

    #[test]
    fn positions_behind_and_inside_a_replacement_map_back() {
        let edited = EditedText::new("ab CD ef".into(), vec![replace(3..5, "12345")]);
        assert_eq!(&**edited.text(), "ab 12345 ef");
        assert_eq!(edited.to_original(9..11), 6..8);
        assert_eq!(edited.to_original(4..6), 3..5);
        assert_eq!(edited.to_original(0..2), 0..2);
        assert_eq!(edited.to_original(1..7), 1..5);
        assert_eq!(edited.to_original(7..11), 3..8);
        assert_eq!(edited.to_original(100..200), 8..8);
    }

    #[test]
    fn an_outer_replacement_swallows_inner_ones() {
        let edited = EditedText::new(
            "abcdef".into(),
            vec![replace(2..3, "X"), replace(1..5, "_")],
        );
        assert_eq!(&**edited.text(), "a_f");
    }

    #[test]
    fn blanking_keeps_length_and_lines() {
        assert_eq!(blank("é\nb"), "  \n ");
    }

    proptest! {
        /// The model tags every byte of the new text with the byte of the original, or the replacement, it
        /// comes from, and answers by looking the tags up.
        #[test]
        fn agrees_with_a_byte_by_byte_model(
            pieces in prop::collection::vec(("[a-z]{0,5}", prop::option::of("[A-Z]{1,5}")), 0..8),
            cut in any::<(prop::sample::Index, prop::sample::Index)>(),
        ) {
            let mut original = String::new();
            let mut replacements = Vec::new();
            let mut tags: Vec<Range<usize>> = Vec::new();
            for (text, new) in &pieces {
                let start = original.len();
                original.push_str(text);
                // Two bytes are added to each replaced piece so no edit is empty.
                match new {
                    Some(new) => {
                        original.push_str("--");
                        replacements.push(replace(start..original.len(), new));
                        tags.extend(new.bytes().map(|_| start..original.len()));
                    }
                    None => tags.extend((start..original.len()).map(|i| i..i + 1)),
                }
            }
            let edited = EditedText::new(original.as_str().into(), replacements);
            prop_assert_eq!(edited.text().len(), tags.len());
            if !tags.is_empty() {
                let (a, b) = (cut.0.index(tags.len()), cut.1.index(tags.len()));
                let (first, last) = (a.min(b), a.max(b));
                prop_assert_eq!(edited.to_original(first..last + 1), tags[first].start..tags[last].end);
            }
        }
    }
}
