//! Which tests are run: arguments are parts of the tests' names, and no argument is all.

/// Parts of names; without the options of `cargo test`.
pub struct Filters(Vec<String>);

impl Filters {
    /// The filters of the command line.
    pub fn from_args() -> Self {
        let words = std::env::args().skip(1);
        Self(words.filter(|word| !word.starts_with('-')).collect())
    }

    /// Whether a test is run.
    pub fn want(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|part| name.contains(part.as_str()))
    }
}
