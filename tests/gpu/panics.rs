//! Panics that nobody has announced fail the test in which they happen, on whatever thread, also where the runtime
//! contains them: with `panic = "abort"` each would end the process.

use std::panic::PanicHookInfo;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Seen {
    /// Parts of the messages of panics that a running test provokes.
    expected: Vec<String>,
    /// What came without being expected.
    unexpected: Vec<String>,
}

static SEEN: Mutex<Seen> = Mutex::new(Seen {
    expected: Vec::new(),
    unexpected: Vec::new(),
});

fn seen() -> MutexGuard<'static, Seen> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it lives panics with this text in their message are part of the test.
#[must_use = "panics are expected while it lives"]
pub struct Expected(String);

/// Announces panics whose messages contain `text`. They are not printed: to print where takes longer than kernels may
/// wait on adapters that ration turns of loops.
pub fn expect(text: &str) -> Expected {
    seen().expected.push(text.to_owned());
    Expected(text.to_owned())
}

impl Drop for Expected {
    fn drop(&mut self) {
        let mut seen = seen();
        let own = seen.expected.iter().position(|text| *text == self.0);
        if let Some(own) = own {
            seen.expected.swap_remove(own);
        }
    }
}

/// Has every panic of the process noted from now on.
pub fn watch() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !note(info) {
            print(info);
        }
    }));
}

/// True if the panic was announced.
fn note(info: &PanicHookInfo<'_>) -> bool {
    let text = info.payload_as_str().unwrap_or("a panic without a text");
    let mut seen = seen();
    if seen.expected.iter().any(|part| text.contains(part.as_str())) {
        return true;
    }
    let thread = std::thread::current();
    let place = info.location().map(ToString::to_string);
    let (name, place) = (
        thread.name().unwrap_or("without a name"),
        place.unwrap_or_default(),
    );
    seen.unexpected
        .push(format!("thread `{name}` at {place}: {text}"));
    false
}

/// The panics since it was asked last that nobody had announced.
pub fn unexpected() -> Vec<String> {
    std::mem::take(&mut seen().unexpected)
}
