//! What an operation may end in.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Mutex, PoisonError};

/// Why the run has failed.
pub struct Problem(pub String);

pub type Outcome<T = ()> = Result<T, Problem>;

impl<E: Error> From<E> for Problem {
    fn from(error: E) -> Self {
        Self(format!("{error}\n    {error:?}"))
    }
}

/// Fails with a text.
pub fn wrong<T>(text: impl Into<String>) -> Outcome<T> {
    Err(Problem(text.into()))
}

/// Compares words, and names the first that is wrong.
pub fn expect(what: &str, found: &[u32], expected: &[u32]) -> Outcome {
    if found == expected {
        return Ok(());
    }
    if found.len() != expected.len() {
        return wrong(format!(
            "{what}: {} words instead of {}",
            found.len(),
            expected.len()
        ));
    }
    let wrong_words = found.iter().zip(expected).filter(|(a, b)| a != b).count();
    let first = found
        .iter()
        .zip(expected)
        .position(|(a, b)| a != b)
        .unwrap_or_default();
    let (is, should) = (found[first], expected[first]);
    wrong(format!(
        "{what}: {wrong_words} of {} words are wrong; the first is number {first}, {is:#x} instead of {should:#x}",
        found.len()
    ))
}

/// How often something happened that is documented, and that others bring about.
#[derive(Default)]
pub struct Counts(Mutex<BTreeMap<&'static str, u64>>);

impl Counts {
    pub fn count(&self, what: &'static str) {
        *self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(what)
            .or_default() += 1;
    }

    pub fn lines(&self) -> Vec<String> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts
            .iter()
            .map(|(what, count)| format!("{count:>8} {what}"))
            .collect()
    }
}
