//! Panics fail the test in which they happen, on whatever thread, also where the runtime contains them: with
//! `panic = "abort"` each would end the process. A test that provokes one says so in its message.

use std::panic::PanicHookInfo;
use std::sync::{Mutex, PoisonError};

/// Part of the message of each panic that a test provokes.
pub const ON_PURPOSE: &str = "on purpose";

static UNEXPECTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Has every panic of the process noted from now on. Those on purpose are not printed: to print where takes longer than
/// kernels may wait on adapters that ration turns of loops.
pub fn watch() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !is_on_purpose(info) {
            note(info);
            print(info);
        }
    }));
}

fn is_on_purpose(info: &PanicHookInfo<'_>) -> bool {
    (info.payload_as_str()).is_some_and(|text| text.contains(ON_PURPOSE))
}

fn note(info: &PanicHookInfo<'_>) {
    let text = info.payload_as_str().unwrap_or("a panic without a text");
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let mut unexpected = UNEXPECTED.lock().unwrap_or_else(PoisonError::into_inner);
    unexpected.push(format!("thread `{name}` at {place}: {text}"));
}

/// The panics since it was asked last that nobody has provoked.
pub fn unexpected() -> Vec<String> {
    std::mem::take(&mut UNEXPECTED.lock().unwrap_or_else(PoisonError::into_inner))
}
