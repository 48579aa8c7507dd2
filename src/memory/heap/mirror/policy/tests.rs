//! The policy against a model that pays for every launch and every look, in either place and by choice.

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn missing(bytes: u64) -> Missing {
    Missing {
        bytes,
        in_use: bytes,
        is_new: false,
    }
}

/// What a copy costs that is made of everything.
fn price(bytes: u64) -> u64 {
    SETUP + bytes / TRANSFER
}

/// A kernel with so many invocations, as a launch that finds the heap like this; where it works.
fn launch(policy: &mut Policy, invocations: u64, missing: Missing) -> Place {
    policy.launched(1, invocations);
    let place = policy.choose(missing);
    match place {
        Place::Copy => policy.entered(missing.bytes),
        Place::Host => policy.left(),
    };
    place
}

fn new(bytes: u64) -> Missing {
    Missing {
        is_new: true,
        ..missing(bytes)
    }
}

#[test]
fn launches_in_a_row_pay_for_the_copy_and_not_before() {
    let mut policy = Policy::default();
    // 25 bytes a nanosecond, 16 an invocation.
    let invocations = 1_000_000 * BUS / INVOCATION_BYTES;
    let needed = price(64 * MIB).div_ceil(1_000_000);
    for _ in 1..needed {
        assert_eq!(launch(&mut policy, invocations, new(64 * MIB)), Place::Host);
    }
    assert_eq!(launch(&mut policy, invocations, new(64 * MIB)), Place::Copy);
    assert_eq!(policy.place(), Place::Copy);
}

#[test]
fn a_host_that_looks_between_all_launches_keeps_the_heap() {
    let mut policy = Policy::default();
    let look = Look {
        moved: 0,
        searched: 240 * MIB,
    };
    for _ in 0..100_000 {
        assert_eq!(launch(&mut policy, 1024, new(240 * MIB)), Place::Host);
        policy.looked(Some(look));
    }
    // Looks without a launch cost nothing: the copy has nothing to bring.
    let mut other = Policy::default();
    launch(&mut other, 1_000_000, new(240 * MIB));
    other.looked(Some(look));
    let balance = other.balance;
    (0..10).for_each(|_| other.looked(Some(look)));
    assert_eq!(other.balance, balance);
}

#[test]
fn losses_as_large_as_the_price_bring_the_heap_back() {
    let mut policy = Policy::default();
    while launch(&mut policy, 10_000_000, new(16 * MIB)) == Place::Host {}
    let look = Look {
        moved: MIB,
        searched: 16 * MIB,
    };
    let mut rounds = 0;
    loop {
        policy.looked(Some(look));
        let missing = Missing {
            bytes: MIB,
            ..missing(16 * MIB)
        };
        if launch(&mut policy, 64, missing) == Place::Host {
            break;
        }
        rounds += 1;
        assert!(rounds < 1000);
    }
    // At once would be no hysteresis.
    assert!(rounds > 5, "{rounds}");
    // And the way to the copy is as long again.
    assert_eq!(policy.balance, 0);
    assert_eq!(launch(&mut policy, 64, missing(16 * MIB)), Place::Host);
}

#[test]
fn a_kernel_that_a_copy_does_not_help_is_not_moved_again() {
    let mut policy = Policy::default();
    policy.measured(1, Place::Host, 5_000_000, 64);
    while launch(&mut policy, 64, new(MIB)) == Place::Host {}
    policy.measured(1, Place::Copy, 5_000_000, 64);
    policy.looked(Some(Look {
        moved: 64 * MIB,
        searched: MIB,
    }));
    assert_eq!(launch(&mut policy, 64, missing(MIB)), Place::Host);
    for _ in 0..1000 {
        assert_eq!(launch(&mut policy, 64, missing(MIB)), Place::Host);
    }
    // Another kernel is another matter.
    policy.measured(2, Place::Host, 5_000_000, 64);
    policy.launched(2, 64);
    assert_eq!(policy.choose(missing(MIB)), Place::Copy);
}

#[test]
fn advice_and_prefetches_are_followed() {
    let mut policy = Policy::default();
    policy.prefetch();
    assert_eq!(launch(&mut policy, 1, new(MIB)), Place::Copy);
    // Once: the copy has to pay from then on.
    policy.looked(Some(Look::default()));
    assert_eq!(launch(&mut policy, 1, missing(MIB)), Place::Host);
    policy.advise(HeapAdvice::PreferDevice);
    for _ in 0..10 {
        assert_eq!(launch(&mut policy, 1, missing(MIB)), Place::Copy);
        policy.looked(Some(Look::default()));
    }
    policy.advise(HeapAdvice::PreferHost);
    assert!(!policy.is_open(MIB));
    policy.advise(HeapAdvice::ReadMostly);
    assert!(policy.is_open(MIB));
    // A look that brings nothing costs nothing.
    policy.balance = 1000;
    policy.launched(1, 0);
    policy.looked(Some(Look {
        moved: 0,
        searched: 64 * MIB,
    }));
    assert_eq!(policy.balance, 1000);
}

#[test]
fn a_heap_without_room_for_its_copy_is_not_tried_again_at_that_size() {
    let mut policy = Policy::default();
    policy.prefetch();
    policy.refused(64 * MIB);
    assert!(!policy.is_open(64 * MIB) && !policy.is_open(65 * MIB));
    assert!(policy.is_open(63 * MIB));
    policy.prefetch();
    assert!(policy.is_open(64 * MIB));
}

#[test]
fn kernels_are_not_remembered_without_end() {
    let mut policy = Policy::default();
    for kernel in 0..3 * KERNELS as u64 {
        policy.measured(kernel, Place::Host, 1, 1);
        assert!(policy.kernels.len() <= KERNELS);
    }
}

#[test]
fn a_kernel_is_measured_first_and_now_and_then_and_by_its_invocations() {
    let mut policy = Policy::default();
    assert!(policy.is_due(1, Place::Host) && policy.is_due(1, Place::Host));
    policy.measured(1, Place::Host, 1000, 10);
    assert!(!policy.is_due(1, Place::Host) && policy.is_due(1, Place::Copy));
    policy.measured(1, Place::Copy, 100, 10);
    let due = (0..10 * EVERY).filter(|_| policy.is_due(1, Place::Host));
    assert_eq!(due.count(), 10);
    assert_eq!(policy.saving(1, 10), 900);
    assert_eq!(policy.saving(1, 1000), 90_000);
    // Known to the device alone.
    policy.measured(2, Place::Host, 777, 0);
    assert_eq!(policy.saving(2, 0), 777);
    assert!(policy.saving(1, u64::MAX / 1000) > u64::MAX / 100);
}

/// What happens to a heap.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A launch that takes so long in place, and a part of that on the copy; it changes so many bytes.
    Launch { host: u64, copy: u64, writes: u64 },
    /// The host looks, and changes so many bytes.
    Look { writes: u64 },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (1_000u64..5_000_000, 1u64..40, 0u64..MIB).prop_map(|(host, part, writes)| Event::Launch {
            host,
            copy: host / part,
            writes,
        }),
        1 => (0u64..MIB).prop_map(|writes| Event::Look { writes }),
    ]
}

/// A machine that works in one place all the time, or by the policy.
struct Machine {
    policy: Option<Policy>,
    place: Place,
    in_use: u64,
    /// Bytes that the copy lacks; `None` for no copy.
    lacks: Option<u64>,
    /// Bytes that the copy has changed.
    ahead: u64,
    has_launched: bool,
    spent: u64,
}

impl Machine {
    fn new(place: Option<Place>, in_use: u64) -> Self {
        Self {
            policy: place.is_none().then(Policy::default),
            place: place.unwrap_or_default(),
            in_use,
            lacks: None,
            ahead: 0,
            has_launched: false,
            spent: 0,
        }
    }

    fn missing(&self) -> Missing {
        Missing {
            bytes: self.lacks.unwrap_or(self.in_use),
            in_use: self.in_use,
            is_new: self.lacks.is_none(),
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Launch { host, copy, writes } => {
                let missing = self.missing();
                if let Some(policy) = &mut self.policy {
                    policy.measured(7, Place::Host, host, 64);
                    policy.measured(7, Place::Copy, copy, 64);
                    policy.launched(7, 64);
                    self.place = policy.choose(missing);
                    match self.place {
                        Place::Copy => policy.entered(missing.bytes),
                        Place::Host => policy.left(),
                    };
                }
                match self.place {
                    Place::Copy => {
                        self.spent += missing.price() + copy;
                        self.lacks = Some(0);
                        self.ahead = (self.ahead + writes).min(self.in_use);
                    }
                    Place::Host => {
                        self.bring_down();
                        self.spent += host;
                        self.lacks = self.lacks.map(|_| self.in_use);
                    }
                }
                self.has_launched = true;
            }
            Event::Look { writes } => {
                let look = Look {
                    moved: self.ahead,
                    searched: self.in_use,
                };
                self.bring_down();
                if let Some(policy) = &mut self.policy {
                    policy.looked(Some(look));
                }
                self.has_launched = false;
                self.lacks = self.lacks.map(|lacks| (lacks + writes).min(self.in_use));
            }
        }
    }

    fn bring_down(&mut self) {
        if self.place == Place::Copy && self.has_launched && self.lacks == Some(0) {
            self.spent += ROUND_TRIP + self.in_use / SEARCH + self.ahead / TRANSFER;
        }
        self.ahead = 0;
    }
}

proptest! {
    /// Whatever happens: not much more than twice the time of the better place, and a constant.
    #[test]
    fn little_is_lost(
        in_use in (1u64..256).prop_map(|mib| mib * MIB),
        history in prop::collection::vec(event(), 1..400),
        repeats in 1usize..6,
    ) {
        let mut host = Machine::new(Some(Place::Host), in_use);
        let mut copy = Machine::new(Some(Place::Copy), in_use);
        let mut chosen = Machine::new(None, in_use);
        for event in (0..repeats).flat_map(|_| history.iter().copied()) {
            host.step(event);
            copy.step(event);
            chosen.step(event);
        }
        let best = host.spent.min(copy.spent);
        let constant = 6 * price(in_use);
        prop_assert!(chosen.spent <= 3 * best + constant, "{} for {}", chosen.spent, best);
    }

    /// The same events have the same answers.
    #[test]
    fn nothing_is_left_to_chance(history in prop::collection::vec(event(), 1..50)) {
        let run = || {
            let mut machine = Machine::new(None, 8 * MIB);
            history.iter().map(|event| { machine.step(*event); machine.place }).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}
