//! Interleavings of host threads, under loom: the deciding files, compiled once more with loom's atomics, locks and
//! condition variables, whose waits never end by their time limit. With each, the failures otherwise.

// The files' names from their parent.
use loom::sync;

#[path = "../../rpc/bell.rs"]
#[allow(dead_code, clippy::duplicate_mod)]
mod bell;
#[path = "../interrupts.rs"]
#[allow(clippy::duplicate_mod)]
mod interrupts;
#[path = "../parker.rs"]
#[allow(clippy::duplicate_mod)]
mod parker;
#[path = "../stage.rs"]
#[allow(dead_code, clippy::duplicate_mod)]
mod stage;

mod futures;
mod ports;

// Not loom's, which minds being dropped where loom has found a deadlock.
use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

use bell::Bell;
use interrupts::Interrupts;
use parker::Parker;
use stage::{Stage, StageWord};

const HOUR: Duration = Duration::from_secs(3600);

/// A word written by a thread and seen by another.
#[derive(Debug, Default)]
struct Word(AtomicU32);

impl Word {
    fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    fn set(&self, value: u32) {
        self.0.store(value, Ordering::Release);
    }
}

/// A relay sleeping until there is a call, and a caller.
fn sleep_and_call(
    sleep: impl Fn(&Parker, &Word) + Sync + Send + 'static,
    call: impl Fn(&Parker, &Word) + Sync + Send + 'static,
) {
    let (sleep, call) = (Arc::new(sleep), Arc::new(call));
    loom::model(move || {
        let shared = Arc::new((Parker::default(), Word::default()));
        let caller = {
            let (shared, call) = (Arc::clone(&shared), Arc::clone(&call));
            thread::spawn(move || call(&shared.0, &shared.1))
        };
        while shared.1.get() == 0 {
            sleep(&shared.0, &shared.1);
        }
        caller.join().unwrap();
    });
}

fn sleep(parker: &Parker, posted: &Word) {
    parker.sleep(|| (posted.get() == 0).then_some(HOUR));
}

fn call(parker: &Parker, posted: &Word) {
    posted.set(1);
    parker.wake();
}

#[test]
fn a_call_wakes_a_relay_that_goes_to_sleep() {
    sleep_and_call(sleep, call);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_relay_that_looks_before_it_says_that_it_sleeps_misses_a_call() {
    let hasty = |parker: &Parker, posted: &Word| {
        let idle = posted.get() == 0;
        parker.sleep(|| idle.then_some(HOUR));
    };
    sleep_and_call(hasty, call);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_caller_who_looks_at_the_relay_before_he_posts_does_not_wake_it() {
    sleep_and_call(sleep, |parker, posted| {
        parker.wake();
        posted.set(1);
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_neither_sees_the_other() {
    loom::model(|| {
        let shared = Arc::new((Word::default(), Bell::default(), Word::default()));
        let caller = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (asleep, bell, posted) = &*shared;
                posted.set(1);
                if asleep.get() != 0 {
                    bell.ring();
                }
            })
        };
        let (asleep, bell, posted) = &*shared;
        let known = bell.count();
        asleep.set(1);
        if posted.get() == 0 {
            bell.sleep(known, HOUR);
        }
        caller.join().unwrap();
    });
}

/// A relay sleeping until the server is to stop, and the stopping thread.
fn sleep_and_stop(stop: fn(&Parker, &StageWord)) {
    loom::model(move || {
        let shared = Arc::new((Parker::default(), StageWord::default()));
        let stopper = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || stop(&shared.0, &shared.1))
        };
        let (parker, stage) = &*shared;
        while stage.get() == Stage::Running {
            parker.sleep(|| (stage.get() == Stage::Running).then_some(HOUR));
        }
        stopper.join().unwrap();
    });
}

#[test]
fn a_stop_wakes_a_relay_that_goes_to_sleep() {
    sleep_and_stop(|parker, stage| {
        assert!(stage.begin_stop());
        parker.bell.ring();
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_stop_that_rings_first_does_not() {
    sleep_and_stop(|parker, stage| {
        parker.bell.ring();
        stage.begin_stop();
    });
}

/// Two askers for the queue at a time; afterwards the lease has been told of the last count.
fn ask_twice(ask: fn(&Interrupts, &Word)) {
    loom::model(move || {
        let shared = Arc::new((Interrupts::default(), Word::default()));
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || ask(&shared.0, &shared.1))
        };
        ask(&shared.0, &shared.1);
        other.join().unwrap();
        assert_eq!(shared.0.count(), 2);
        assert_eq!(shared.1.get(), 2, "told of an older count");
    });
}

#[test]
fn a_lease_is_told_of_whoever_asked_last() {
    ask_twice(|interrupts, word| interrupts.ask(|number| word.set(number)));
}

#[test]
#[should_panic(expected = "told of an older count")]
fn who_does_not_look_again_takes_the_other_back() {
    ask_twice(|interrupts, word| {
        let first = std::cell::Cell::new(true);
        interrupts.ask(|number| {
            if first.take() {
                word.set(number);
            }
        });
    });
}

#[test]
#[should_panic(expected = "told of an older count")]
fn without_fences_who_looks_again_sees_nothing_new() {
    loom::model(|| {
        let shared = Arc::new((Word::default(), Word::default()));
        let ask = |(count, word): &(Word, Word)| {
            let mut number = count.0.fetch_add(1, Ordering::AcqRel) + 1;
            loop {
                word.set(number);
                let last = count.get();
                if last == number {
                    return;
                }
                number = last;
            }
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || ask(&shared))
        };
        ask(&shared);
        other.join().unwrap();
        fence(Ordering::SeqCst);
        assert_eq!(shared.1.get(), 2, "told of an older count");
    });
}
