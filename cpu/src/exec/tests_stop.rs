//! Stop words, and what a dispatch that begins makes of them.

use std::sync::{Arc, atomic::Ordering};

use super::stop::{Running, StopState, StopWord};

#[test]
fn the_first_of_stop_and_end_decides() {
    let word = StopWord::default();
    assert_eq!(word.state(), StopState::Open);
    assert!(word.ask());
    assert!(!word.ask() && !word.time_is_over());
    word.close();
    assert_eq!(word.state(), StopState::Asked);

    let word = StopWord::default();
    assert!(word.time_is_over() && !word.ask());
    word.close();
    assert_eq!(word.state(), StopState::TimeLimit);

    let word = StopWord::default();
    word.close();
    assert!(!word.ask() && !word.time_is_over());
    assert_eq!(word.state(), StopState::Over);
    assert_eq!(word.word().load(Ordering::Relaxed), 0);
}

#[test]
fn a_stopped_dispatch_does_not_begin_and_an_ended_one_may_again() {
    let running = Running::default();
    let (stopped, ended) = (Arc::new(StopWord::default()), Arc::new(StopWord::default()));
    assert!(stopped.ask());
    assert!(!running.enter(&stopped));
    ended.close();
    assert!(running.enter(&ended));
    assert_eq!(ended.word().load(Ordering::Relaxed), 0);
    running.leave();
    running.stop_all();
    assert!(running.enter(&ended) && running.is_stopped());
    assert_eq!(ended.word().load(Ordering::Relaxed), 1);
}
