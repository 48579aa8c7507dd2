//! Devices that exchange edges launch after launch: what is sent ahead is what the memory has, whatever comes between.

use std::time::Duration;

use crate::buffers_moving::{Kernels, pairs};
use crate::cases;
use crate::harness::{Fixture, mix};
use tombolo::device::WaitPolicy;
use tombolo::{Buffer, Event, buffers::Placement};

cases![
    edges_of_many_steps,
    edges_that_are_written_in_between,
    steps_that_nobody_waits_for,
    edges_after_a_device_has_gone,
    what_waits_in_line_outlives_its_device,
    threads_that_look_until_the_end,
];

const WORDS: usize = 64;
const EDGE: usize = 4;

/// The strips of two devices, and the edges that each wants of the other's.
fn strips() -> [(std::ops::Range<usize>, std::ops::Range<usize>); 2] {
    const HALF: usize = WORDS / 2;
    [
        (0..HALF, HALF..HALF + EDGE),
        (HALF..WORDS, HALF - EDGE..HALF),
    ]
}

fn part(buffer: &Buffer<u32>, range: &std::ops::Range<usize>) -> Buffer<u32> {
    buffer.slice(range.start as u64..range.end as u64).unwrap()
}

/// Memory of each device, whose edges are sent ahead; and, on devices that run on processors, soon memory in common.
const PLACEMENTS: [Placement; 2] = [Placement::Device, Placement::Auto];

/// Two strips in one buffer, what both devices have seen of each other's edges, and the same on the host.
struct Exchange {
    cells: Buffer<u32>,
    seen: [Buffer<u32>; 2],
    expected: Vec<u32>,
    expected_seen: [Vec<u32>; 2],
}

impl Exchange {
    fn new(f: &Fixture, placement: Placement) -> Self {
        let expected: Vec<u32> = (0..WORDS as u32).map(mix).collect();
        let poison = vec![0xdead_beef; EDGE];
        let seen = || f.context.buffer_from(&poison).unwrap();
        Self {
            cells: (f.context)
                .buffer_from_vec_with(expected.clone(), placement)
                .unwrap(),
            seen: [seen(), seen()],
            expected,
            expected_seen: [poison.clone(), poison],
        }
    }

    /// Both devices write their strips, and then look at each other's edges.
    fn step(&mut self, devices: [&Kernels; 2], amount: u32) -> Vec<Event> {
        let mut events = Vec::new();
        for ((own, _), kernels) in strips().iter().zip(devices) {
            events.push(kernels.add(&part(&self.cells, own), amount).unwrap());
            for value in &mut self.expected[own.clone()] {
                *value = value.wrapping_mul(3).wrapping_add(amount);
            }
        }
        for (at, kernels) in devices.into_iter().enumerate() {
            events.push(self.look(at, kernels));
        }
        events
    }

    fn look(&mut self, at: usize, kernels: &Kernels) -> Event {
        let (_, edge) = strips()[at].clone();
        let event = kernels.copy(&part(&self.cells, &edge), &self.seen[at]);
        self.expected_seen[at] = self.expected[edge].to_vec();
        event.unwrap()
    }

    fn check(&self, when: &str) {
        for (seen, expected) in self.seen.iter().zip(&self.expected_seen) {
            assert_eq!(&seen.read().unwrap(), expected, "{when}");
        }
        assert_eq!(self.cells.read().unwrap(), self.expected, "{when}");
    }
}

fn edges_of_many_steps(f: &Fixture) {
    for (a, b) in pairs(f) {
        let mut exchange = Exchange::new(f, Placement::Device);
        for step in 0..12 {
            let mut events = exchange.step([&a, &b], step);
            // Waited for in any order, and also not at all.
            if step % 3 > 0 {
                events.rotate_left(step as usize % 4);
                events.iter().for_each(|event| event.wait().unwrap());
            }
            if step % 4 == 3 {
                exchange.check(&format!("step {step}"));
            }
        }
        // Of each device's edge, all but those by which the habit is known.
        let found = exchange.cells.statistics();
        assert!(found.fetched_ahead >= 16, "{found:?}");
        assert!(found.sent_ahead >= found.fetched_ahead, "{found:?}");
    }
}

fn edges_that_are_written_in_between(f: &Fixture) {
    for placement in PLACEMENTS {
        for (pair, (a, b)) in pairs(f).into_iter().enumerate() {
            let mut exchange = Exchange::new(f, placement);
            let mut state = mix(pair as u32 + 1);
            let mut draw = |below: u32| {
                state = mix(state.wrapping_add(0x9e37_79b9));
                (state >> 8) % below
            };
            for step in 0..60 {
                let _ = exchange.step([&a, &b], step);
                // After some steps that make a habit, something else is done to bytes that may have been sent.
                if step % 6 < 3 {
                    continue;
                }
                let start = WORDS / 2 - EDGE + draw(2 * EDGE as u32) as usize;
                let range = start..start + 1 + draw(EDGE as u32) as usize;
                let there = part(&exchange.cells, &range);
                match draw(5) {
                    0 => {
                        there.write(0, &vec![step; range.len()]).unwrap();
                        exchange.expected[range].fill(step);
                    }
                    1 => {
                        there.fill(step ^ 7, ..).unwrap();
                        exchange.expected[range].fill(step ^ 7);
                    }
                    kind => {
                        // By its own device, or by the other.
                        let kernels = if kind % 2 == 0 { &a } else { &b };
                        kernels.add(&there, kind).unwrap();
                        for value in &mut exchange.expected[range] {
                            *value = value.wrapping_mul(3).wrapping_add(kind);
                        }
                    }
                }
                let _ = exchange.look(0, &a);
                let _ = exchange.look(1, &b);
                exchange.check(&format!("step {step}"));
            }
        }
    }
}

/// Many more steps than may wait in line.
fn steps_that_nobody_waits_for(f: &Fixture) {
    for placement in PLACEMENTS {
        for (a, b) in pairs(f) {
            let mut exchange = Exchange::new(f, placement);
            let mut last = Vec::new();
            for step in 0..40 {
                last = exchange.step([&a, &b], step);
            }
            // A wait that ends too early leaves the batches in line, and nothing is lost by it.
            for event in &last {
                let _ = event.wait_timeout(Duration::ZERO);
            }
            let first = last.swap_remove(0);
            pollster::block_on(first).unwrap();
            last.iter().for_each(|event| event.wait().unwrap());
            exchange.check("the last step");
        }
    }
}

fn edges_after_a_device_has_gone(f: &Fixture) {
    for placement in PLACEMENTS {
        let mut exchange = Exchange::new(f, placement);
        let stays = Kernels::new(&f.device);
        for round in 0..3 {
            // A device with the place of the last one.
            let goes = Kernels::new(&f.open(|_| {}));
            for step in 0..7 {
                let _ = exchange.step([&stays, &goes], round * 10 + step);
            }
            drop(goes);
            exchange.check(&format!("round {round}"));
        }
    }
}

fn what_waits_in_line_outlives_its_device(f: &Fixture) {
    for placement in PLACEMENTS {
        let long: Buffer<u32> = f.context.buffer_from(&vec![1; 1 << 22]).unwrap();
        for round in 0..3 {
            let stays = Kernels::new(&f.device);
            let goes = Kernels::new(&f.open(|_| {}));
            let mut exchange = Exchange::new(f, placement);
            for step in 0..4 {
                let _ = exchange.step([&stays, &goes], round * 10 + step);
            }
            // So that everything behind is still in line when the device goes.
            for _ in 0..8 {
                stays.add(&long, 1).unwrap();
            }
            for step in 4..6 {
                let _ = exchange.step([&stays, &goes], round * 10 + step);
            }
            // With everything that the other device has memory for.
            let Exchange {
                cells,
                seen: [seen, seen_by_other],
                expected_seen,
                ..
            } = exchange;
            drop((cells, seen_by_other, goes));
            assert_eq!(seen.read().unwrap(), expected_seen[0], "round {round}");
        }
    }
}

fn threads_that_look_until_the_end(f: &Fixture) {
    for placement in PLACEMENTS {
        let open =
            || Kernels::new(&f.open(|options| options.wait = WaitPolicy::Spin(Duration::MAX)));
        let (a, b) = (open(), open());
        let mut exchange = Exchange::new(f, placement);
        for step in 0..8 {
            let _ = exchange.step([&a, &b], step);
        }
        exchange.check("the last step");
    }
}
