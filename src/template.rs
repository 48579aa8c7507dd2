//! WGSL text with marked places: `$name$` in a template stands for the value called `name`.
//!
//! Values are templates as well, so a part may come with marks of its own. Templates are strict: a mark without a
//! value, a value without a mark and a value inside itself are mistakes of the template's author, never of a program,
//! and end every test that writes the text. In a release build such a mark stays, and naga refuses the `$`.

use std::fmt::Display;

/// A text with marks, and the marks' values.
pub(crate) struct Template {
    text: String,
    values: Vec<Value>,
}

struct Value {
    name: &'static str,
    text: String,
    /// Whether the template has to have a mark of the name.
    is_needed: bool,
}

/// A mistake in a template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mistake {
    /// The name has a mark, and no value.
    Unknown(String),
    /// The name has a value, and no mark.
    Unused(&'static str),
    /// The name has two values.
    Twice(&'static str),
    /// The value holds its own mark.
    Circle(&'static str),
}

impl Template {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            values: Vec::new(),
        }
    }

    /// Gives the value of a mandatory mark of the template.
    pub(crate) fn set(self, name: &'static str, value: impl Display) -> Self {
        self.add(name, value, true)
    }

    /// Gives the value of an optional mark, such as a constant of a layout.
    pub(crate) fn offer(self, name: &'static str, value: impl Display) -> Self {
        self.add(name, value, false)
    }

    fn add(mut self, name: &'static str, value: impl Display, is_needed: bool) -> Self {
        self.values.push(Value {
            name,
            text: value.to_string(),
            is_needed,
        });
        self
    }

    /// The text with the values.
    pub(crate) fn fill(self) -> String {
        let (text, mistakes) = self.check();
        debug_assert!(mistakes.is_empty(), "{mistakes:?} in\n{text}");
        text
    }

    /// The text with the values, as far as there are some, and what is wrong.
    pub(crate) fn check(self) -> (String, Vec<Mistake>) {
        let mut filling = Filling {
            values: &self.values,
            within: Vec::new(),
            used: vec![false; self.values.len()],
            out: String::new(),
            mistakes: Vec::new(),
        };
        filling.expand(&self.text);
        let Filling {
            used,
            out,
            mut mistakes,
            ..
        } = filling;
        for (index, value) in self.values.iter().enumerate() {
            if value.is_needed && !used[index] {
                mistakes.push(Mistake::Unused(value.name));
            }
            if self.values[..index].iter().any(|v| v.name == value.name) {
                mistakes.push(Mistake::Twice(value.name));
            }
        }
        mistakes.sort();
        mistakes.dedup();
        (out, mistakes)
    }
}

/// A template on its way to being text.
struct Filling<'t> {
    values: &'t [Value],
    /// The values around the text at hand.
    within: Vec<usize>,
    used: Vec<bool>,
    out: String,
    mistakes: Vec<Mistake>,
}

impl Filling<'_> {
    fn expand(&mut self, text: &str) {
        let mut rest = text;
        while let Some((before, name, after)) = next_mark(rest) {
            self.out.push_str(before);
            self.put(name);
            rest = after;
        }
        self.out.push_str(rest);
    }

    /// Puts the value of a mark where the mark was.
    fn put(&mut self, name: &str) {
        let values = self.values;
        let Some(index) = values.iter().position(|value| value.name == name) else {
            self.mistakes.push(Mistake::Unknown(name.to_owned()));
            self.out.push_str(&format!("${name}$"));
            return;
        };
        if self.within.contains(&index) {
            self.mistakes.push(Mistake::Circle(values[index].name));
            return;
        }
        self.used[index] = true;
        self.within.push(index);
        self.expand(&values[index].text);
        self.within.pop();
    }
}

/// The first mark of a text: what is in front of it, its name, what is behind it.
fn next_mark(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let begin = from + text[from..].find('$')?;
        let name_and_rest = &text[begin + 1..];
        let len = name_and_rest
            .find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))?;
        if len > 0 && name_and_rest[len..].starts_with('$') {
            let (name, rest) = name_and_rest.split_at(len);
            return Some((&text[..begin], name, &rest[1..]));
        }
        from = begin + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{Mistake, Template};

    #[test]
    fn values_stand_for_their_marks_wherever_they_are() {
        let text = Template::new("a $one$ b $two$$one$ c")
            .set("one", 1)
            .set("two", "[$one$ $three$]")
            .set("three", "x")
            .offer("four", "never");
        assert_eq!(text.check(), ("a 1 b [1 x]1 c".to_owned(), vec![]));
    }

    #[test]
    fn a_dollar_alone_is_text() {
        for text in [
            "$", "a$b", "$ x $", "$$", "$A$", "1 $é$ 2", "$x", "price $5",
        ] {
            assert_eq!(Template::new(text).check(), (text.to_owned(), vec![]));
        }
    }

    #[test]
    fn mistakes_are_told() {
        let check = |template: Template| template.check().1;
        let new = Template::new;
        assert_eq!(check(new("$a$")), [Mistake::Unknown("a".to_owned())]);
        assert_eq!(check(new("").set("a", 1)), [Mistake::Unused("a")]);
        assert_eq!(
            check(new("$a$").set("a", 1).set("a", 2)),
            [Mistake::Unused("a"), Mistake::Twice("a")]
        );
        assert_eq!(
            check(new("$a$").set("a", "$b$").set("b", "$a$")),
            [Mistake::Circle("a")]
        );
        // A value that only an unused value mentions is unused, too.
        assert_eq!(
            check(new("").set("a", "$b$").set("b", 1)),
            [Mistake::Unused("a"), Mistake::Unused("b")]
        );
    }
}
