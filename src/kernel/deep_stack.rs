//! A stack of known size for work that follows the depth of a text: parsers, validators and writers of naga call
//! themselves for each operator of a row and each branch in another, and so do the compilers of drivers.
//!
//! The caller's stack may be any size (threads of Rust have 2 MiB), so the work is done on a thread made for the
//! purpose. The demand of a text on that stack is limited before ([`text_limits`](super::text_limits)); a test reads
//! texts at the limits on half of the stack.
//!
//! Of the 256 MiB only what is used takes memory. Growing the caller's stack in place was the other way: that needs
//! assembly for each platform, where a thread costs some tens of microseconds for each program. A panic on the thread
//! is `KernelError::Internal`.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::Builder;

use super::error::KernelError;

/// Bytes of the stack. Only the used part takes memory.
pub(crate) const STACK_BYTES: usize = 256 << 20;

thread_local! {
    /// This thread has such a stack.
    static IS_DEEP: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, which reads the program `name`, on a deep stack.
///
/// # Errors
/// The result of `work`; [`KernelError::Internal`] where the system has no thread to give, or the work panics.
pub(crate) fn on_deep_stack<T: Send>(
    name: &str,
    work: impl FnOnce() -> Result<T, KernelError> + Send,
) -> Result<T, KernelError> {
    on_stack(name, STACK_BYTES, work)
}

/// As [`on_deep_stack`], with a stack of so many bytes.
pub(crate) fn on_stack<T: Send>(
    name: &str,
    bytes: usize,
    work: impl FnOnce() -> Result<T, KernelError> + Send,
) -> Result<T, KernelError> {
    let internal = |message: String| KernelError::Internal {
        program: name.to_owned(),
        message,
    };
    // The web has no threads to choose a stack for.
    if IS_DEEP.get() || cfg!(target_family = "wasm") {
        return work();
    }
    let guarded = || {
        IS_DEEP.set(true);
        catch_unwind(AssertUnwindSafe(work))
    };
    let done = std::thread::scope(|scope| {
        let thread = Builder::new().name("tombolo-compile".to_owned());
        let thread = thread.stack_size(bytes).spawn_scoped(scope, guarded);
        thread.map(|thread| thread.join().unwrap_or_else(Err))
    });
    match done {
        Ok(Ok(result)) => result,
        Ok(Err(payload)) => Err(internal(format!(
            "a reader or writer of shaders panicked, which is a fault of theirs and not of the text: {}",
            said(payload)
        ))),
        Err(error) => Err(internal(format!(
            "the system has no thread with a stack of {bytes} bytes: {error}"
        ))),
    }
}

/// A panic's message. The payload is dropped here, along with any panic during that drop.
fn said(payload: Box<dyn Any + Send>) -> String {
    let text = match payload.downcast_ref::<&str>() {
        Some(text) => Some((*text).to_owned()),
        None => payload.downcast_ref::<String>().cloned(),
    };
    std::mem::forget(payload);
    text.unwrap_or_else(|| "it did not say why".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_inside_such_work_needs_no_other_thread() {
        let outer = on_deep_stack("a", || {
            let here = std::thread::current().id();
            let inner = on_deep_stack("a", || Ok(std::thread::current().id()))?;
            Ok((here, inner))
        });
        let (outer, inner) = outer.unwrap();
        assert_eq!(outer, inner);
        assert_ne!(outer, std::thread::current().id());
    }

    #[test]
    fn a_stack_that_cannot_be_had_is_an_error() {
        let result = on_stack::<()>("a", usize::MAX / 4, || Ok(()));
        assert!(
            matches!(result, Err(KernelError::Internal { .. })),
            "{result:?}"
        );
    }
}
