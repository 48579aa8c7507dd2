//! Calls into wgpu running callbacks of the program: a panic in a callback goes no further.
//!
//! wgpu runs callbacks (of `map_async`, of `on_submitted_work_done`, and of lost devices) inside `Device::poll` and
//! `Queue::submit`, on the calling thread. A panic unwinds through wgpu, dropping the remaining callbacks, and would
//! unwind through the runtime, in the middle of work. A callback's panic says nothing about the device, and does not
//! concern the waiting thread: the panic is logged, and the call goes on.
//!
//! wgpu may drop callbacks of the runtime's own, too, so nothing depends on a callback. With `panic = "abort"` a panic
//! in a callback ends the process, as any panic does; nothing in the runtime panics. `examples/stress` is run so, and a
//! test fails when a thread panics unannounced.

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::outcome::ExecutionError;

use crate::guard::forget;

/// The beginning of wgpu's own panics for a failed poll.
const POLL_FAILED: &str = "Error in Device::poll";
/// wgpu-hal's word for a device called lost by the driver, as wgpu formats the word.
const LOST: &str = "Parent device is lost";

/// A panic out of wgpu.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Panicked {
    /// A callback of the program.
    Callback,
    /// wgpu itself, since the driver has failed.
    Driver {
        message: String,
        /// The driver says that the device is gone.
        gone: bool,
    },
}

thread_local! {
    /// The depth of callback-running wgpu calls on this thread.
    static CALLS: Cell<u32> = const { Cell::new(0) };
    /// The number of resources held by this thread and open to requests of callbacks.
    static HELD: Cell<u32> = const { Cell::new(0) };
    /// How many of them belong to the calls around the callback on this thread. A callback may have several resources
    /// of its own, like any code.
    static AROUND: Cell<u32> = const { Cell::new(0) };
}

/// Another such call or resource, until dropped.
struct Counted(&'static std::thread::LocalKey<Cell<u32>>);

impl Counted {
    fn new(count: &'static std::thread::LocalKey<Cell<u32>>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Notes that this thread holds a resource (a turn with the heap, a buffer) while calling wgpu: a callback asking for
/// such a resource is refused then, instead of waiting for its own thread.
pub(crate) struct Held {
    _count: Counted,
    /// The note counts for the noting thread.
    _thread: PhantomData<*const ()>,
}

impl Held {
    /// # Errors
    /// [`ExecutionError::InCallback`] in a callback, where the surrounding call holds a resource.
    pub(crate) fn new(what: &'static str) -> Result<Self, ExecutionError> {
        match Self::is_refused() {
            true => Err(ExecutionError::InCallback { what }),
            false => Ok(Self::counted()),
        }
    }

    /// Whether this thread is in a callback, and the call running the callback has something in hand.
    pub(crate) fn is_refused() -> bool {
        CALLS.get() > 0 && AROUND.get() > 0
    }

    /// For a caller who has asked already, or does not wait.
    pub(crate) fn counted() -> Self {
        Self {
            _count: Counted::new(&HELD),
            _thread: PhantomData,
        }
    }
}

/// Until the drop, resources now in this thread's hands belong to the calls around a callback.
struct Around(u32);

impl Around {
    fn enter() -> Self {
        Self(AROUND.replace(HELD.get()))
    }
}

impl Drop for Around {
    fn drop(&mut self) {
        AROUND.set(self.0);
    }
}

/// Calls wgpu. With `panic = "abort"` a panic in a callback ends the process, as anywhere.
pub(super) fn contained<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    let _inside = (Counted::new(&CALLS), Around::enter());
    // wgpu drops callbacks on the way, and a thread waiting for a callback sees the drop.
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let message = text(&*panic);
        forget(panic);
        if message.starts_with(POLL_FAILED) {
            let gone = message.contains(LOST);
            return Panicked::Driver { message, gone };
        }
        log::error!("a callback that the program gave to wgpu has panicked: {message}");
        Panicked::Callback
    })
}

fn text(panic: &(dyn Any + Send)) -> String {
    (panic.downcast_ref::<String>().cloned())
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without a text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics when dropped, except during the unwinding of another panic.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                std::panic::panic_any("dropped");
            }
        }
    }

    #[test]
    fn callbacks_are_refused_what_the_call_that_runs_them_has_in_hand() {
        let refused = |result: Result<Held, ExecutionError>| {
            matches!(result, Err(ExecutionError::InCallback { what: "it" }))
        };
        // Outside of callbacks a thread may have several things.
        let outer = Held::new("it").unwrap();
        drop(Held::new("it").unwrap());
        assert!(contained(|| refused(Held::new("it"))).unwrap());
        drop(outer);
        // A call without held resources, whose callback may hold several, and an inner call with some.
        let inner = contained(|| {
            let _own = (Held::new("it").unwrap(), Held::new("it").unwrap());
            let answer = contained(|| refused(Held::new("it"))).unwrap();
            drop(Held::new("it").unwrap());
            answer
        });
        assert!(inner.unwrap());
        assert_eq!((CALLS.get(), HELD.get(), AROUND.get()), (0, 0, 0));
    }

    #[test]
    fn a_panic_is_a_callbacks_unless_wgpu_says_that_its_poll_has_failed() {
        assert_eq!(contained(|| 3), Ok(3));
        assert_eq!(
            contained(|| std::panic::panic_any("mine")),
            Err(Panicked::Callback)
        );
        assert_eq!(
            contained(|| std::panic::panic_any(7u32)),
            Err(Panicked::Callback)
        );
        assert_eq!(
            contained(|| std::panic::panic_any(Bomb)),
            Err(Panicked::Callback)
        );
        for (reason, gone) in [(LOST, true), ("Not enough memory left.", false)] {
            let message = format!("{POLL_FAILED}: {reason}");
            let thrown = message.clone();
            assert_eq!(
                contained(|| std::panic::panic_any(thrown)),
                Err(Panicked::Driver { message, gone })
            );
        }
    }
}
