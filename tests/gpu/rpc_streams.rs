//! Streams between kernels and the host: of any length, in both directions, over one port.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cases;
use crate::harness::{Fixture, kernel_of};
use tombolo::{
    HostServices,
    calls::{CallStatus, CallStream, HostServicesBuilder},
    launch::LaunchError,
};

cases![
    words_arrive_in_order_whatever_their_number,
    words_come_back_in_order_whatever_their_number,
    both_directions_take_turns,
    streams_of_many_invocations_keep_apart,
    streams_pass_through_functions,
    what_ends_a_stream_is_its_status,
    a_stream_that_panics_ends_and_others_go_on,
    streams_without_ports_do_not_hang,
    abandoned_streams_are_dropped,
    stopping_ends_streams,
    streams_need_live_memory,
];

const MINUTE: Duration = Duration::from_secs(60);

const HEAD: &str = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {";

/// Runs `body` in so many invocations.
fn run(f: &Fixture, services: &HostServices, body: &str, invocations: u32, len: usize) -> Vec<u32> {
    let kernel = kernel_of(&f.device, services, &format!("{HEAD}{body}"));
    let out = f.device.buffer(&vec![0xDEAD_BEEFu32; len]).unwrap();
    let launch = kernel.launch().services(services).buffer("out", &out);
    let event = launch.invocations(invocations).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    out.read().unwrap()
}

/// What was put into each stream, by its name.
type Seen = Arc<Mutex<Vec<(u32, Vec<u32>)>>>;

struct Upload {
    name: u32,
    words: Vec<u32>,
    seen: Seen,
}

impl CallStream for Upload {
    type Output = [u32; 2];

    fn put(&mut self, words: &[u32]) {
        self.words.extend(words);
    }

    fn close(self) -> [u32; 2] {
        let sum = self
            .words
            .iter()
            .fold(0u32, |sum, word| sum.wrapping_add(*word));
        let result = [self.words.len() as u32, sum];
        self.seen.lock().unwrap().push((self.name, self.words));
        result
    }
}

/// `count` words from `seed` on.
struct Download {
    seed: u32,
    left: u32,
}

fn word(seed: u32, at: u32) -> u32 {
    (seed ^ at.wrapping_mul(0x9E37_79B9)).rotate_left(7)
}

impl CallStream for Download {
    type Output = u32;

    fn get(&mut self, room: usize, words: &mut Vec<u32>) {
        for _ in 0..(room as u32).min(self.left) {
            words.push(word(self.seed, self.left));
            self.left -= 1;
        }
    }

    fn close(self) -> u32 {
        self.left
    }
}

fn uploads(builder: HostServicesBuilder) -> (HostServices, Seen) {
    let seen = Seen::default();
    let opened = Arc::clone(&seen);
    let services = builder
        .stream("fn upload(name: u32) -> vec2<u32>", move |name: u32| {
            Upload {
                name,
                words: Vec::new(),
                seen: Arc::clone(&opened),
            }
        })
        .stream(
            "fn download(seed: u32, count: u32) -> u32",
            |seed: u32, left: u32| Download { seed, left },
        )
        .start()
        .unwrap();
    (services, seen)
}

/// Lengths around those of packets, and one of many.
fn lengths(services_payload: u32) -> Vec<u32> {
    let packet = services_payload;
    vec![
        0,
        1,
        2,
        packet - 1,
        packet,
        packet + 1,
        2 * packet,
        3 * packet - 1,
        1000,
    ]
}

/// Words of a packet, with the default payload.
const PACKET: u32 = 28;

fn words_arrive_in_order_whatever_their_number(f: &Fixture) {
    let (services, seen) = uploads(HostServices::builder());
    for count in lengths(PACKET) {
        let body = format!(
            "if id.x == 0u {{
                var s = upload_open(77u);
                for (var i = 0u; i < {count}u; i++) {{ upload_put(&s, i * i + 5u); }}
                let r = upload_close(&s);
                out[0] = r.status; out[1] = r.value.x; out[2] = r.value.y; out[3] = s.status;
            }} }}"
        );
        let got = run(f, &services, &body, 1, 4);
        let words: Vec<u32> = (0..count).map(|i| i * i + 5).collect();
        let sum = words.iter().sum::<u32>();
        let (done, closed) = (CallStatus::Done.code(), CallStatus::NoTicket.code());
        // Which the harness knows.
        let ran_out = got[0] == CallStatus::TimedOut.code();
        assert!(!ran_out, "status: TimedOut");
        assert_eq!(got, [done, count, sum, closed], "{count}");
        assert_eq!(seen.lock().unwrap().pop(), Some((77, words)), "{count}");
    }
}

fn words_come_back_in_order_whatever_their_number(f: &Fixture) {
    let (services, _) = uploads(HostServices::builder().payload(512));
    for count in lengths(128) {
        // One more than there are: the end is told, and told again.
        let body = format!(
            "if id.x == 0u {{
                var s = download_open(9u, {count}u);
                for (var i = 0u; i < {count}u; i++) {{ out[i] = download_get(&s); }}
                out[{count}] = s.status;
                out[{count} + 1] = download_get(&s);
                out[{count} + 2] = s.status;
                out[{count} + 3] = download_get(&s) + s.status;
                let r = download_close(&s);
                out[{count} + 4] = r.status; out[{count} + 5] = r.value;
            }} }}"
        );
        let got = run(f, &services, &body, 1, count as usize + 6);
        let ran_out = got[count as usize] == CallStatus::TimedOut.code();
        assert!(!ran_out, "status: TimedOut");
        let mut expected: Vec<u32> = (0..count).map(|i| word(9, count - i)).collect();
        let (done, end) = (CallStatus::Done.code(), CallStatus::End.code());
        expected.extend([done, 0, end, end, done, 0]);
        assert_eq!(got, expected, "{count}");
    }
}

/// Gives back what it was given since it last gave, plus 1.
struct Dialog(Vec<u32>, usize);

impl CallStream for Dialog {
    type Output = u32;

    fn put(&mut self, words: &[u32]) {
        self.0.extend(words);
        self.1 += words.len();
    }

    fn get(&mut self, room: usize, words: &mut Vec<u32>) {
        let count = room.min(self.0.len());
        words.extend(self.0.drain(..count).map(|word| word + 1));
    }

    fn close(self) -> u32 {
        self.1 as u32
    }
}

fn both_directions_take_turns(f: &Fixture) {
    let services = HostServices::builder()
        .stream("fn dialog() -> u32", || Dialog(Vec::new(), 0))
        .start()
        .unwrap();
    let body = "if id.x == 0u {
            var s = dialog_open();
            var at = 0u;
            for (var turn = 0u; turn < 10u; turn++) {
                for (var i = 0u; i < turn * 3u; i++) { dialog_put(&s, turn * 100u + i); }
                loop {
                    let word = dialog_get(&s);
                    if s.status != CALL_DONE { break; }
                    out[at] = word;
                    at += 1u;
                }
                if s.status != CALL_END { break; }
            }
            let r = dialog_close(&s);
            out[at] = r.value; out[at + 1u] = r.status;
        } }";
    let got = run(f, &services, body, 1, 137);
    let mut expected: Vec<u32> = (0..10u32)
        .flat_map(|turn| (0..turn * 3).map(move |i| turn * 100 + i + 1))
        .collect();
    expected.extend([135, CallStatus::Done.code()]);
    assert_eq!(got, expected);
}

fn streams_of_many_invocations_keep_apart(f: &Fixture) {
    let (services, seen) = uploads(HostServices::builder());
    let body = "var s = upload_open(id.x);
            for (var i = 0u; i < 20u + id.x % 50u; i++) { upload_put(&s, id.x * 1000u + i); }
            let r = upload_close(&s);
            out[id.x] = select(r.status, r.value.x, r.status == CALL_DONE);
        }";
    let got = run(f, &services, body, 128, 128);
    assert_eq!(got, (0..128).map(|id| 20 + id % 50).collect::<Vec<u32>>());
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    let expected: Vec<(u32, Vec<u32>)> = (0..128)
        .map(|id| (id, (0..20 + id % 50).map(|i| id * 1000 + i).collect()))
        .collect();
    assert_eq!(seen, expected);
}

fn streams_pass_through_functions(f: &Fixture) {
    let (services, seen) = uploads(HostServices::builder());
    let kernel = kernel_of(
        &f.device,
        &services,
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        fn text(s: ptr<function, upload_stream>, first: u32, last: u32) {
            for (var i = first; i < last; i++) { upload_put(s, i); }
        }
        fn all() -> upload_reply {
            var s = upload_open(1u);
            text(&s, 0u, 40u);
            text(&s, 100u, 140u);
            return upload_close(&s);
        }
        @compute @workgroup_size(1) fn main() { out[0] = all().value.x; }",
    );
    let out = f.device.buffer(&[0xDEAD_BEEFu32]).unwrap();
    let launch = kernel.launch().services(&services).buffer("out", &out);
    launch
        .workgroups(1)
        .submit()
        .unwrap()
        .wait_timeout(MINUTE)
        .unwrap();
    assert_eq!(out.read().unwrap(), [80]);
    let expected: Vec<u32> = (0..40).chain(100..140).collect();
    assert_eq!(seen.lock().unwrap().pop(), Some((1, expected)));
}

fn what_ends_a_stream_is_its_status(f: &Fixture) {
    let (services, seen) = uploads(HostServices::builder());
    // Closed twice, and used when closed.
    let body = "if id.x == 0u {
            var s = upload_open(1u);
            upload_put(&s, 4u);
            out[0] = upload_close(&s).value.y;
            upload_put(&s, 5u);
            out[1] = upload_get(&s);
            out[2] = upload_close(&s).status;
            // What was never opened.
            var t: upload_stream;
            upload_put(&t, 5u);
            out[3] = upload_get(&t) + t.status;
            out[4] = upload_close(&t).status;
        } }";
    let got = run(f, &services, body, 1, 5);
    let none = CallStatus::NoTicket.code();
    assert_eq!(got, [4, 0, none, 0, none]);
    assert_eq!(seen.lock().unwrap().as_slice(), [(1, vec![4])]);
}

fn a_stream_that_panics_ends_and_others_go_on(f: &Fixture) {
    struct Touchy(u32);
    impl CallStream for Touchy {
        type Output = u32;
        fn put(&mut self, words: &[u32]) {
            assert!(!words.contains(&13), "on purpose");
            self.0 += words.len() as u32;
        }
        fn close(self) -> u32 {
            self.0
        }
    }
    let services = HostServices::builder()
        .stream("fn touchy() -> u32", || Touchy(0))
        .start()
        .unwrap();
    let body = "var s = touchy_open();
            for (var i = 0u; i < 60u; i++) { touchy_put(&s, select(i + 100u, 13u, i == 40u && id.x % 4u == 1u)); }
            let r = touchy_close(&s);
            out[id.x] = r.status * 1000u + r.value;
        }";
    let got = run(f, &services, body, 32, 32);
    let expected: Vec<u32> = (0..32)
        .map(|id| match id % 4 {
            1 => CallStatus::Panicked.code() * 1000,
            _ => CallStatus::Done.code() * 1000 + 60,
        })
        .collect();
    assert_eq!(got, expected);
    assert_eq!(services.statistics().functions[0].panics, 8);
}

fn streams_without_ports_do_not_hang(f: &Fixture) {
    let (services, _) = uploads(HostServices::builder().ports(5));
    let body = "var s = upload_open(id.x);
            upload_put(&s, 1u);
            let r = upload_close(&s);
            out[id.x] = r.status;
        }";
    let got = run(f, &services, body, 64, 64);
    let done = got
        .iter()
        .filter(|status| **status == CallStatus::Done.code())
        .count();
    let none = got
        .iter()
        .filter(|status| **status == CallStatus::Busy.code())
        .count();
    assert_eq!(done + none, 64, "{got:?}");
    assert!(done >= 5, "{got:?}");
    // All ports are back.
    let got = run(f, &services, body, 5, 5);
    assert_eq!(got, [CallStatus::Done.code(); 5]);
}

fn abandoned_streams_are_dropped(f: &Fixture) {
    struct Counted(Arc<()>);
    impl CallStream for Counted {
        type Output = u32;
        fn close(self) -> u32 {
            Arc::strong_count(&self.0) as u32
        }
    }
    let alive = Arc::new(());
    let opened = Arc::clone(&alive);
    let services = HostServices::builder()
        .stream("fn counted() -> u32", move || Counted(Arc::clone(&opened)))
        .ports(64)
        .start()
        .unwrap();
    let body = "var s = counted_open(); out[id.x] = s.status; }";
    assert_eq!(
        run(f, &services, body, 32, 32),
        [CallStatus::Done.code(); 32]
    );
    assert_eq!(Arc::strong_count(&alive), 2 + 32);
    drop(services);
    assert_eq!(Arc::strong_count(&alive), 1);
}

fn stopping_ends_streams(f: &Fixture) {
    let (services, _) = uploads(HostServices::builder());
    services.stop();
    let body = "var s = upload_open(id.x);
            upload_put(&s, 1u);
            out[id.x] = upload_close(&s).status;
        }";
    assert_eq!(
        run(f, &services, body, 32, 32),
        [CallStatus::Stopped.code(); 32]
    );
}

fn streams_need_live_memory(f: &Fixture) {
    let device = f.open(|options| options.live_memory = false);
    let (services, _) = uploads(HostServices::builder());
    let kernel = kernel_of(
        &device,
        &services,
        &format!("{HEAD} var s = upload_open(id.x); out[id.x] = upload_close(&s).status; }}"),
    );
    let out = device.buffer(&[7u32; 32]).unwrap();
    let launch = kernel.launch().services(&services).buffer("out", &out);
    let error = launch.invocations(32).submit().unwrap_err();
    assert!(
        matches!(&error, LaunchError::NeedsLiveMemory { .. }),
        "{error}"
    );
}
