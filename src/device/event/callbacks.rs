//! Callbacks at the end of commands, and the device's thread to run callbacks.
//!
//! Futures are woken by threads with locks possibly in hand, or serving calls of kernels. A callback is the program's
//! own code, and may wait and submit; so the waker of a callback only puts the callback in a queue, and a thread with
//! nothing in hand polls and calls. The first callback starts the thread, and the thread ends with the device.

// On a page callbacks are tasks of the page, and none of this has a thread.
#![cfg_attr(web, allow(dead_code))]

use std::collections::VecDeque;
use std::future::Future;
#[cfg(not(web))]
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::{Event, EventFuture, WaitError};
use crate::device::exit::{self, Worker};
use crate::device::outcome::ExecutionError;
use crate::device::wait::lock;
use crate::guard::guarded;

/// The result of a command.
type Ended = Result<(), Arc<ExecutionError>>;
type Callback = Box<dyn FnOnce(Ended) + Send>;

impl Event {
    /// Calls `callback` with the result when the command is done: when [`Event::wait`] would return. The batch with the
    /// command is submitted for that, and nobody has to wait.
    ///
    /// Callbacks of a device run one after the other, on a thread of the runtime's, and never on the calling thread,
    /// also where the command is done already. A callback may do anything, waiting and submitting included; others wait
    /// for its end meanwhile. Callbacks of a device whose commands end by themselves run in the order of the ends, as
    /// far as the ends can be told apart. A panic in a callback is logged and goes no further. A pending callback keeps
    /// the device alive; when the process ends, pending callbacks are not run.
    ///
    /// What the host has done by itself, such as a write of a [`Buffer`](crate::Buffer), has no device: each callback gets a
    /// thread of its own.
    ///
    /// Where no thread can be started, the calling thread waits for the command and runs `callback`. In a browser
    /// `callback` is a task of the page.
    ///
    /// ```no_run
    /// # use tombolo::{Constants, Context, DeviceBuffer, Program};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = Context::new()?.device()?;
    /// # let program = Program::new("nothing.wgsl", "@compute @workgroup_size(1) fn main() {}")?;
    /// # let kernel = device.kernel(&program, "main", &Constants::new())?;
    /// let event = kernel.launch().workgroups(1).submit()?;
    /// event.on_completion(|result| match result {
    ///     Ok(()) => println!("done"),
    ///     Err(error) => eprintln!("{error}"),
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_completion(&self, callback: impl FnOnce(Ended) + Send + 'static) {
        #[cfg(web)]
        {
            let event = self.clone();
            wasm_bindgen_futures::spawn_local(async move {
                let ended = result_of(event.await);
                callback(ended);
            });
        }
        #[cfg(not(web))]
        self.call_on_thread(callback);
    }

    #[cfg(not(web))]
    fn call_on_thread(&self, callback: impl FnOnce(Ended) + Send + 'static) {
        let Some(device) = &self.device else {
            return call_apart(callback);
        };
        let queue = &device.callbacks;
        if !queue.has_thread() {
            callback(result_of(self.wait()));
            return;
        }
        let task = Arc::new(Task {
            pending: Mutex::new(Some((self.clone().into_future(), Box::new(callback)))),
            queue: Arc::clone(&queue.tasks),
        });
        task.wake();
    }
}

/// Runs the callback of a command that the host has done, which has no device with a thread for callbacks.
#[cfg(not(web))]
fn call_apart(callback: impl FnOnce(Ended) + Send + 'static) {
    let callback: Arc<Mutex<Option<Callback>>> = Arc::new(Mutex::new(Some(Box::new(callback))));
    let call = {
        let callback = Arc::clone(&callback);
        move || {
            let taken = lock(&callback).take();
            if let Some(callback) = taken {
                exit::inside(|| run(callback, Ok(())));
            }
        }
    };
    let thread = std::thread::Builder::new().name("tombolo-callback".into());
    if let Err(error) = thread.spawn(call) {
        log::error!("no thread for a callback ({error}): the calling thread runs it");
        let left = lock(&callback).take();
        if let Some(callback) = left {
            run(callback, Ok(()));
        }
    }
}

/// The result of a wait without a deadline, never late.
fn result_of(waited: Result<(), WaitError>) -> Ended {
    match waited {
        Ok(()) | Err(WaitError::Deadline) => Ok(()),
        Err(WaitError::Failed(error)) => Err(error),
    }
}

/// The callbacks of a device with a possible run ahead, and their thread.
#[derive(Default)]
pub(crate) struct CallbackQueue {
    tasks: Arc<Tasks>,
    /// Whether the thread could be started.
    started: OnceLock<bool>,
    worker: Worker,
}

impl CallbackQueue {
    fn has_thread(&self) -> bool {
        *self.started.get_or_init(|| {
            let tasks = Arc::clone(&self.tasks);
            let spawned = std::thread::Builder::new()
                .name("tombolo-callbacks".into())
                .spawn(move || tasks.work());
            match spawned {
                Ok(worker) => self.worker.is(worker),
                Err(error) => {
                    log::error!("no thread for callbacks ({error}): they are waited for");
                    return false;
                }
            }
            true
        })
    }
}

impl Drop for CallbackQueue {
    fn drop(&mut self) {
        self.tasks.close();
        self.worker.join();
    }
}

/// Tasks to look at.
#[derive(Default)]
struct Tasks {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    tasks: VecDeque<Arc<Task>>,
    is_closed: bool,
}

impl Tasks {
    fn push(&self, task: Arc<Task>) {
        let mut state = lock(&self.state);
        if !state.is_closed {
            state.tasks.push_back(task);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// The device is gone: every callback with a possible run ahead keeps the device alive.
    fn close(&self) {
        let left = {
            let mut state = lock(&self.state);
            state.is_closed = true;
            std::mem::take(&mut state.tasks)
        };
        self.changed.notify_all();
        drop(left);
    }

    fn work(&self) {
        while let Some(task) = self.next() {
            // The task may have the last handle of the device.
            exit::inside(move || {
                task.run();
                drop(task);
            });
        }
    }

    fn next(&self) -> Option<Arc<Task>> {
        let mut state = lock(&self.state);
        loop {
            if let Some(task) = state.tasks.pop_front() {
                return Some(task);
            }
            if state.is_closed {
                return None;
            }
            state = (self.changed.wait(state)).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A callback and the awaited command.
struct Task {
    /// `None` once called.
    pending: Mutex<Option<(EventFuture, Callback)>>,
    queue: Arc<Tasks>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let queue = Arc::clone(&self.queue);
        queue.push(self);
    }
}

impl Task {
    /// Calls the callback if its command is done, and else has the task woken then.
    fn run(self: &Arc<Self>) {
        let mut pending = lock(&self.pending);
        let Some((future, _)) = pending.as_mut() else {
            return;
        };
        let waker = Waker::from(Arc::clone(self));
        let ended = match Pin::new(future).poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => return,
            Poll::Ready(waited) => result_of(waited),
        };
        let task = pending.take();
        drop(pending);
        if let Some((_future, callback)) = task {
            run(callback, ended);
        }
    }
}

/// Runs a callback, whose panic goes no further.
fn run(callback: Callback, ended: Ended) {
    if guarded(|| callback(ended)).is_none() {
        log::error!("a callback at the end of a command has panicked");
    }
}
