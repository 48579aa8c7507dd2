//! Objects of JSON, as far as traces have them: texts, numbers, and objects in objects.
//!
//! The crate serde_json is no dependency of the library: words and values of serde_json can be compared there, so a
//! program with the crate in the build may no longer leave the type of a sum or of a literal to the compiler.

use std::fmt::{self, Write as _};

/// The members of an object.
#[derive(Debug, Default, Clone)]
pub(super) struct Object(String);

impl Object {
    pub(super) fn text(mut self, name: &str, value: &str) -> Self {
        self.put_text(name, value);
        self
    }

    pub(super) fn number(mut self, name: &str, value: impl Number) -> Self {
        self.put(name, value);
        self
    }

    pub(super) fn object(mut self, name: &str, value: &Self) -> Self {
        self.put(name, value);
        self
    }

    pub(super) fn put_text(&mut self, name: &str, value: &str) {
        self.put(name, Text(value));
    }

    pub(super) fn put(&mut self, name: &str, value: impl fmt::Display) {
        let comma = if self.0.is_empty() { "" } else { "," };
        // Writing to a text cannot fail.
        let _ = write!(self.0, "{comma}{}:{value}", Text(name));
    }
}

/// Numbers displayed as numbers of JSON: finite numbers.
pub(super) trait Number: fmt::Display {}

impl Number for u64 {}
impl Number for i32 {}
impl Number for f64 {}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.0)
    }
}

/// A text in quotes.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\0'..='\x1f' => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_members_are_apart() {
        let inner = Object::default().text("a \"name\"", "C:\\tmp\nüber\u{1}\u{7f}");
        let object = Object::default().number("n", u64::MAX).number("x", 0.5);
        assert_eq!(
            object.object("args", &inner).to_string(),
            r#"{"n":18446744073709551615,"x":0.5,"args":{"a \"name\"":"C:\\tmp\u000aüber\u0001"#
                .to_owned()
                + "\u{7f}\"}}"
        );
        assert_eq!(Object::default().to_string(), "{}");
    }
}
