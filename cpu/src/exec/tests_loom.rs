//! Stops in every interleaving, under loom: the deciding file, compiled once more with loom's atomics and locks. With each, the
//! failure otherwise.

// The file's name from its parent.
use loom::sync;

#[path = "stop.rs"]
#[allow(dead_code, clippy::duplicate_mod)]
mod stop;

use loom::{
    sync::{Arc, atomic::Ordering},
    thread,
};

use stop::{Running, StopState, StopWord};

/// A dispatch that begins while a device is stopped: the loop looking at the word ends, or the dispatch begins behind the stop and
/// finds the word raised.
fn begin_and_stop_all(enter: impl Fn(&Running, &Arc<StopWord>) + Send + Sync + Copy + 'static) {
    loom::model(move || {
        let shared = Arc::new((Running::default(), Arc::new(StopWord::default())));
        let device = {
            let shared = shared.clone();
            thread::spawn(move || shared.0.stop_all())
        };
        enter(&shared.0, &shared.1);
        device.join().unwrap();
        assert_eq!(shared.1.word().load(Ordering::Relaxed), 1, "runs on");
    });
}

#[test]
fn a_stop_of_the_device_misses_no_dispatch_that_begins() {
    begin_and_stop_all(|running, word| assert!(running.enter(word)));
}

#[test]
#[should_panic(expected = "runs on")]
fn a_dispatch_that_looks_before_it_is_known_would_be_missed() {
    begin_and_stop_all(|running, word| {
        // The look of `enter`, without the lock around look and entry.
        let is_stopped = running.is_stopped();
        running.enter_unseen(word);
        if is_stopped {
            word.ask();
        }
    });
}

#[test]
fn of_a_stop_a_limit_and_the_end_one_decides() {
    loom::model(|| {
        let word = Arc::new(StopWord::default());
        let asker = {
            let word = word.clone();
            thread::spawn(move || word.ask())
        };
        let clock = {
            let word = word.clone();
            thread::spawn(move || word.time_is_over())
        };
        word.close();
        let at_the_end = word.state();
        let (asked, late) = (asker.join().unwrap(), clock.join().unwrap());
        let expected = match (asked, late) {
            (true, false) => StopState::Asked,
            (false, true) => StopState::TimeLimit,
            (false, false) => StopState::Over,
            (true, true) => panic!("both stopped it"),
        };
        assert_eq!((at_the_end, word.state()), (expected, expected));
    });
}

#[test]
fn a_stopped_dispatch_does_not_begin_or_finds_its_word_raised() {
    loom::model(|| {
        let shared = Arc::new((Running::default(), Arc::new(StopWord::default())));
        let asker = {
            let shared = shared.clone();
            thread::spawn(move || assert!(shared.1.ask()))
        };
        let has_begun = shared.0.enter(&shared.1);
        asker.join().unwrap();
        assert!(!has_begun || shared.1.word().load(Ordering::Relaxed) == 1);
        assert_eq!(shared.1.state(), StopState::Asked);
    });
}
