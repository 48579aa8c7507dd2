//! Ends the process when a thread does not go on, and tells what all of them were doing.

use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::journal::Journal;

/// A thread that looks at the journal once a second, until it is dropped.
pub struct Watchdog {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches; an operation may take as long as `timeout`.
    pub fn start(journal: Arc<Journal>, timeout: Duration, headline: String) -> Self {
        let (end, ended) = channel();
        let thread = std::thread::spawn(move || watch(&journal, timeout, &headline, &ended));
        Self {
            end: Some(end),
            thread: Some(thread),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(journal: &Journal, timeout: Duration, headline: &str, ended: &Receiver<()>) {
    while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
        let Some((thread, time)) = journal.slowest() else {
            continue;
        };
        if time > timeout {
            eprintln!(
                "\nstress: thread {thread} has been at one operation for {time:?}\n{headline}"
            );
            eprintln!("{}", journal.dump());
            system_threads();
            // Not `exit`, which waits for threads of the runtime, the very ones that may hang.
            std::process::abort();
        }
    }
}

/// Where the system says that each thread is, and the stacks where there is a debugger.
fn system_threads() {
    let tasks = std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    for task in tasks {
        let read = |name: &str| {
            let text = std::fs::read_to_string(task.path().join(name));
            text.map_or_else(|_| "?".to_owned(), |text| text.trim().to_owned())
        };
        eprintln!(
            "task {}: {} waits in {}, system call {}",
            task.file_name().to_string_lossy(),
            read("comm"),
            read("wchan"),
            read("syscall")
        );
    }
    let pid = std::process::id().to_string();
    let stacks = Command::new("gdb")
        .args(["-batch", "-p", &pid, "-ex", "thread apply all backtrace 24"])
        .output();
    match stacks {
        Ok(output) => eprintln!("{}", String::from_utf8_lossy(&output.stdout)),
        Err(_) => eprintln!("no stacks: there is no gdb"),
    }
}
