//! The probe's conclusions, and the agreement of host and kernel on the places of words.

use super::*;

fn talk(first_progress: u32, taken: u32, beats: (u32, u32), answered: bool) -> LiveFinding {
    judge_talk(&Talk {
        first_progress,
        taken,
        first_beat: beats.0,
        last_beat: beats.1,
        answered,
    })
}

fn found(host_to_kernel: bool, kernel_to_host: bool) -> LiveFinding {
    LiveFinding {
        host_to_kernel,
        kernel_to_host,
    }
}

#[test]
fn an_answered_kernel_proves_both_directions() {
    // Even in its last turn, and even if no beat was seen to change.
    assert_eq!(talk(7, 7, (5, 5), true), found(true, true));
}

#[test]
fn one_direction_is_proved_without_the_other() {
    assert_eq!(talk(0, 100, (1, 9), false), found(true, false));
    assert_eq!(talk(40, 100, (0, 0), false), found(false, true));
}

#[test]
fn what_is_seen_only_at_the_end_proves_nothing() {
    assert_eq!(talk(100, 100, (0, 0), false), found(false, false));
    assert_eq!(talk(0, 100, (3, 3), false), found(false, false));
}

#[test]
fn the_loop_budget_is_the_count_of_a_loop_that_was_cut_short() {
    // Marsaglia's xorshift32 (13, 17, 5), first outputs for seed 1.
    assert_eq!(xorshift(1, 1), 270_369);
    assert_eq!(xorshift(1, 2), 67_634_689);
    let judged = |limit, counted, state| judge_loop(limit, 1, counted, state).ok();
    assert_eq!(judged(2, 2, 67_634_689), Some(None));
    assert_eq!(judged(2, 1, 270_369), Some(Some(1)));
}

#[test]
fn a_count_without_its_result_is_no_measurement() {
    for (counted, state) in [
        (0, 1),
        (0, 0),
        (1, 67_634_689),
        (2, 270_369),
        (3, 67_634_689),
    ] {
        assert!(judge_loop(2, 1, counted, state).is_err(), "{counted}");
    }
}

#[test]
fn wait_budget_grows_but_not_beyond_the_loop_budget_or_the_watchdog() {
    let mut wait_budget = WaitBudget::new();
    for expected in [4_000, 16_000, 60_000, 60_000] {
        wait_budget.grow(Duration::from_millis(1));
        assert_eq!(wait_budget.turns, expected);
    }
    // 60,000 turns took half a second: a fifth of them would take as long as allowed.
    wait_budget.grow(Duration::from_millis(500));
    assert_eq!(wait_budget.turns, 12_000);
    wait_budget.grow(Duration::from_secs(3_600));
    assert_eq!(wait_budget.turns, WaitBudget::FIRST);
    wait_budget.grow(Duration::ZERO);
    assert_eq!(wait_budget.turns, 4 * WaitBudget::FIRST);
}

#[test]
fn attempts_in_vain_are_a_no_by_what_kernels_took_and_not_by_how_busy_the_device_was() {
    let attempts = |each: Duration| {
        let mut wait_budget = WaitBudget::new();
        (1..).find(|attempt| wait_budget.in_vain(*attempt, each))
    };
    assert_eq!(
        attempts(Duration::from_millis(1)),
        Some(WaitBudget::MOST_ATTEMPTS)
    );
    assert_eq!(attempts(Duration::from_millis(100)), Some(10));
    // Others had the device in between.
    assert_eq!(attempts(Duration::from_secs(3)), Some(10));
}

#[test]
fn the_offsets_are_those_of_the_kernel() {
    let source = SHADER;
    let module = naga::front::wgsl::parse_str(source).unwrap();
    let (_, ty) = module
        .types
        .iter()
        .find(|(_, ty)| ty.name.as_deref() == Some("Words"))
        .unwrap();
    let naga::TypeInner::Struct { members, span } = &ty.inner else {
        panic!("Words is no struct");
    };
    assert!(u64::from(*span) <= words::SIZE);
    for (name, offset) in [
        ("token", words::TOKEN),
        ("turns", words::TURNS),
        ("beat", words::BEAT),
        ("ack", words::ACK),
        ("progress", words::PROGRESS),
        ("first_beat", words::FIRST_BEAT),
        ("last_beat", words::LAST_BEAT),
        ("answered", words::ANSWERED),
        ("taken", words::TAKEN),
        ("done", words::DONE),
    ] {
        let member = members.iter().find(|m| m.name.as_deref() == Some(name));
        assert_eq!(member.map(|m| u64::from(m.offset)), Some(offset), "{name}");
    }
}
