//! Ends the process where a test is not over in time, whatever the test waits for.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Looks after the running test.
pub struct Watchdog {
    running: Arc<Mutex<(String, Instant)>>,
}

impl Watchdog {
    /// Starts the thread of the watchdog.
    pub fn start(most: Duration) -> Self {
        let running = Arc::new(Mutex::new((String::new(), Instant::now())));
        let seen = Arc::clone(&running);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(200));
                let (name, begun) = seen.lock().expect("no test panics with it").clone();
                if begun.elapsed() > most {
                    eprintln!("the test {name} is not over within {most:?}");
                    std::process::abort();
                }
            }
        });
        Self { running }
    }

    /// Notes the begin of a test.
    pub fn begin(&self, name: &str) {
        *self.running.lock().expect("the thread does not panic") =
            (name.to_owned(), Instant::now());
    }
}
