//! Interleavings of host threads, under loom: the counting of pauses, compiled once more with loom's locks and condition
//! variables, whose waits never end by their time limit. With each, the failures otherwise.

// The file's names from its parent.
use loom::sync;

#[path = "pauses.rs"]
#[allow(clippy::duplicate_mod)]
mod pauses;

// Not loom's, which minds being dropped where loom has found a deadlock.
use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use pauses::Pauses;

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Default)]
struct Shared {
    pauses: Pauses,
    /// A launch of the server is on the device.
    runs: AtomicBool,
    stops: AtomicBool,
}

impl Shared {
    fn launch(&self) {
        self.runs.store(true, Ordering::Relaxed);
        self.runs.store(false, Ordering::Relaxed);
    }

    /// A server that launches once, behind all pauses.
    fn serve(&self) {
        while !self.pauses.begin_launch() {
            self.pauses.sleep(|| false);
        }
        self.launch();
        self.pauses.end_launch();
    }

    /// What a program does with the queue for itself.
    fn work(&self) {
        let runs = self.runs.load(Ordering::Relaxed);
        assert!(!runs, "a server beside a pause");
    }

    fn pause(&self) {
        self.pauses.begin();
        assert_eq!(self.pauses.wait_for_launches(|| HOUR), 0);
        self.work();
        assert!(self.pauses.is_paused());
        self.pauses.end();
    }
}

/// Explores what the threads do beside each other; of three threads, what they do with two preemptions.
fn explore(sides: &[fn(&Shared)]) {
    let sides = sides.to_vec();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = (sides.len() > 2).then_some(2);
    model.check(move || {
        let shared = Arc::new(Shared::default());
        let (own, others) = sides.split_first().unwrap();
        let threads: Vec<_> = (others.iter())
            .map(|&side| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || side(&shared))
            })
            .collect();
        own(&shared);
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(!shared.pauses.is_paused());
        assert!(shared.pauses.begin_launch(), "a launch behind all pauses");
    });
}

#[test]
fn no_server_runs_beside_a_pause_and_each_runs_behind() {
    explore(&[Shared::pause, Shared::serve]);
}

#[test]
fn the_last_of_two_pauses_wakes_a_server() {
    explore(&[Shared::pause, Shared::pause, Shared::serve]);
}

#[test]
fn a_pause_waits_for_two_servers() {
    explore(&[Shared::pause, Shared::serve, Shared::serve]);
}

#[test]
#[should_panic(expected = "a server beside a pause")]
fn a_server_that_looks_and_counts_later_runs_beside_a_pause() {
    explore(&[Shared::pause, |shared| {
        if !shared.pauses.is_paused() {
            shared.launch();
        }
    }]);
}

#[test]
#[should_panic(expected = "a server beside a pause")]
fn a_pause_that_does_not_wait_meets_a_server() {
    let hasty = |shared: &Shared| {
        shared.pauses.begin();
        shared.work();
        shared.pauses.end();
    };
    explore(&[hasty, Shared::serve]);
}

#[test]
#[should_panic(expected = "a server beside a pause")]
fn a_pause_that_another_one_ends_meets_a_server() {
    let ended = |shared: &Shared| {
        shared.pauses.begin();
        assert_eq!(shared.pauses.wait_for_launches(|| HOUR), 0);
        shared.pauses.end();
        shared.work();
    };
    explore(&[ended, Shared::serve]);
}

fn stop(shared: &Shared) {
    shared.stops.store(true, Ordering::Release);
    shared.pauses.look();
}

fn sleep_until_stopped(shared: &Shared) {
    shared.pauses.begin();
    while !shared.stops.load(Ordering::Acquire) {
        shared.pauses.sleep(|| shared.stops.load(Ordering::Acquire));
    }
    shared.pauses.end();
}

#[test]
fn a_stop_wakes_a_server_that_sleeps_out_a_pause() {
    explore(&[sleep_until_stopped, stop]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_stop_that_is_told_first_does_not() {
    explore(&[sleep_until_stopped, |shared| {
        shared.pauses.look();
        shared.stops.store(true, Ordering::Release);
    }]);
}
