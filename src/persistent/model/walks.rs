//! The hand-over from lease to lease, step by step in random order: a kernel like `shaders/server_lane.wgsl`, access by
//! access; callers; a relay that interrupts, and leases dying anywhere.

use crate::kernel::server::FAILED;
use crate::persistent::frame::{Frame, places};
use crate::rpc::port::client::{Client, Posted};
use crate::rpc::port::layout::PortLayout;
use crate::rpc::port::words::Words;

const PORTS: usize = 3;
const CALLERS: usize = 4;
const CALLS: u32 = 3;
const ROUNDS: u32 = 4_000;

struct Random(u32);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as usize % count
    }
}

/// A lease: the kernel's next step, and its lane's knowledge.
#[derive(Debug, Clone, Copy)]
struct Lease {
    granted: u32,
    seen: u32,
    leaving: bool,
    next: Next,
}

#[derive(Debug, Clone, Copy)]
enum Next {
    ReadBell,
    ReadYield,
    Look {
        port: usize,
        end: usize,
    },
    Take {
        port: usize,
        end: usize,
        request: u32,
    },
    Answer {
        port: usize,
        end: usize,
        request: u32,
    },
    Wait,
    Compare {
        bell: u32,
    },
    Leave,
}

/// The kernel's end, with a count of how often each call was served.
struct Device<'f> {
    frame: &'f Frame,
    lease: Option<Lease>,
    served: Vec<u32>,
    /// Steps taken by the lease since the request to end.
    overdue: u32,
}

/// The most overdue steps: the steps before the next look at the word, and two looks at all ports.
const OVERDUE: u32 = 8 * PORTS as u32 + 8;

impl Device<'_> {
    fn launch(&mut self, granted: u32) {
        self.overdue = 0;
        self.lease = Some(Lease {
            granted,
            seen: 0,
            leaving: false,
            next: Next::ReadBell,
        });
    }

    fn step(&mut self) {
        let Some(mut lease) = self.lease else {
            return;
        };
        let (layout, words) = (self.frame.layout(), self.frame.words());
        let place = places(layout, 1);
        let is_asked = words.load(place.yielded) != lease.granted;
        self.overdue = if is_asked { self.overdue + 1 } else { 0 };
        assert!(self.overdue <= OVERDUE, "it does not end: {lease:?}");
        let all = Next::Look {
            port: 0,
            end: PORTS,
        };
        lease.next = match lease.next {
            Next::ReadBell => {
                lease.seen = words.load(place.bell);
                Next::ReadYield
            }
            Next::ReadYield => {
                lease.leaving = words.load(place.yielded) != lease.granted;
                all
            }
            Next::Look { port, end } if port >= end => match lease.leaving {
                true => Next::Leave,
                false => Next::Wait,
            },
            Next::Look { port, end } => {
                let request = words.load(layout.request(port));
                match request == words.load(layout.lock(port)) {
                    true => Next::Look {
                        port: port + 1,
                        end,
                    },
                    false => Next::Take { port, end, request },
                }
            }
            Next::Take { port, end, request } => {
                words.store(layout.lock(port), request);
                Next::Answer { port, end, request }
            }
            Next::Answer { port, end, request } => {
                let call = words.load(layout.arguments(port) + 4);
                self.served[call as usize] += 1;
                words.store(layout.results(port), 1);
                words.store(layout.results(port) + 4, call + 1000);
                words.store(layout.reply(port), request);
                Next::Look {
                    port: port + 1,
                    end,
                }
            }
            Next::Wait => match words.load(place.bell) {
                bell if bell == lease.seen => Next::Wait,
                bell => Next::Compare { bell },
            },
            Next::Compare { bell } => {
                lease.leaving = words.load(place.yielded) != lease.granted;
                // Of the counts alone: the ports below would borrow from them.
                let rings = (bell >> 16).wrapping_sub(lease.seen >> 16) & 0xffff;
                let single = !lease.leaving && rings == 1;
                lease.seen = bell;
                let hint = (bell & 0xffff) as usize;
                match single {
                    true => Next::Look {
                        port: hint,
                        end: PORTS.min(hint + 1),
                    },
                    false => all,
                }
            }
            Next::Leave => Next::Leave,
        };
        self.lease = Some(lease);
        if matches!(lease.next, Next::Leave) {
            self.lease = None;
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Caller {
    Free,
    Posted(Posted, u32),
    Rung(Posted, u32),
}

fn run(seed: u32) {
    let mut random = Random(seed);
    let frame = Frame::on_host(PortLayout::new(PORTS, 2)).unwrap();
    let mut device = Device {
        frame: &frame,
        lease: None,
        served: vec![0; CALLERS * CALLS as usize],
        overdue: 0,
    };
    let mut callers = [(Caller::Free, 0u32); CALLERS];
    // The told outcome of each call.
    let mut told = vec![0u32; CALLERS * CALLS as usize];
    let (mut interrupts, mut granted) = (0, None);
    let mut steps = 0u32;
    while told.contains(&0) {
        steps += 1;
        assert!(
            steps < 200_000,
            "a call is lost: {callers:?}, {:?}",
            device.lease
        );
        let settles = steps > 400;
        match random.below(if settles { 8 } else { 12 }) {
            0..4 => device.step(),
            // The relay launches the next lease where a call waits for one, and may be asked for the queue in between.
            4 if device.lease.is_none() && frame.is_awaited() => match granted.take() {
                Some(granted) => device.launch(granted),
                None => granted = Some(interrupts),
            },
            4 => {}
            5..8 => {
                let who = random.below(CALLERS);
                let (caller, made) = &mut callers[who];
                let mut client = Client::new(&frame, frame.layout(), who);
                *caller = match *caller {
                    Caller::Free if *made == CALLS => Caller::Free,
                    Caller::Free => {
                        let call = who as u32 * CALLS + *made;
                        match client.try_post(7, &[call]) {
                            Some(posted) => {
                                *made += 1;
                                Caller::Posted(posted, call)
                            }
                            None => Caller::Free,
                        }
                    }
                    Caller::Posted(posted, call) => {
                        frame.ring(posted.port, 1);
                        Caller::Rung(posted, call)
                    }
                    Caller::Rung(posted, call) => {
                        let mut results = [0; 1];
                        match client.try_take(posted, &mut results) {
                            None => Caller::Rung(posted, call),
                            Some([1, _]) => {
                                assert_eq!(results, [call + 1000]);
                                told[call as usize] = 1;
                                Caller::Free
                            }
                            Some(head) => {
                                assert_eq!(head, [FAILED, 9]);
                                told[call as usize] = 2;
                                Caller::Free
                            }
                        }
                    }
                };
            }
            8 | 9 => {
                interrupts += 1;
                frame.yield_to(interrupts);
            }
            // The lease dies where it stands.
            _ if random.below(8) == 0 && device.lease.is_some() => {
                device.lease = None;
                frame.give_up(true, FAILED, 9);
            }
            _ => {}
        }
    }
    for (call, (&told, &served)) in told.iter().zip(&device.served).enumerate() {
        // A call that died may have been about to be served.
        assert!(
            served == 1 && told == 1 || served == 0 && told == 2,
            "call {call}"
        );
    }
}

#[test]
fn no_call_is_lost_or_served_twice_however_leases_end() {
    for seed in 0..ROUNDS {
        run(seed);
    }
}
