//! Posts what the input's bytes spell at ports with streams, while an honest client uses one.

#![no_main]

#[allow(dead_code)]
#[path = "../../src/clock.rs"]
mod clock;

#[allow(dead_code)]
#[path = "../../src/device/call_status.rs"]
mod call_status;

#[allow(dead_code)]
#[path = "../../src/device/call_words.rs"]
mod call_words;

/// What ports use of the crate.
mod device {
    pub use super::call_status::CallStatus;
    pub(crate) use super::call_words;
}

#[allow(dead_code)]
#[path = "../../src/rpc/port/mod.rs"]
mod port;

#[allow(dead_code)]
#[path = "../../src/rpc/handler.rs"]
mod handler;

#[path = "../../src/rpc/guard.rs"]
mod guard;

#[allow(dead_code)]
#[path = "../../src/rpc/stream.rs"]
mod stream;

#[path = "../../src/rpc/port/tests_streams.rs"]
mod hostile;

use std::sync::Arc;

use hostile::{Numbers, Tape, Tapes};
use port::protocol::CallStatus;
use port::server::Dispatch;
use stream::{Open, Packet, Sessions};

const NUMBERS: Numbers = Numbers {
    call: 0x1000,
    streams: [0x2000, 0x3003],
};

/// Does what the desk of the services does, without the rest of the crate.
struct Desk {
    sessions: Sessions,
    open: Open,
}

impl Dispatch for Desk {
    fn dispatch(
        &self,
        port: usize,
        opcode: u32,
        arguments: &[u32],
        results: &mut Vec<u32>,
    ) -> CallStatus {
        if opcode == NUMBERS.call {
            let &[a, b] = arguments else {
                return CallStatus::Malformed;
            };
            self.sessions.abandon(port);
            results.push(a.wrapping_add(b));
            return CallStatus::Done;
        }
        let streams = NUMBERS.streams.into_iter();
        let mut packets = streams.filter_map(|base| Some((base, Packet::of(base, opcode)?)));
        match packets.next() {
            None => CallStatus::Unknown,
            Some((_, Packet::Open)) if arguments.len() != 1 => CallStatus::Malformed,
            Some(packet) => (self.sessions).serve(port, packet, &self.open, arguments, results),
        }
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let layout = hostile::layout();
    let tapes = Arc::new(Tapes::default());
    let opened = Arc::clone(&tapes);
    let desk = Desk {
        sessions: Sessions::new(layout.ports, layout.payload),
        open: Box::new(move |words| Box::new(Tape::open(&opened, words[0]))),
    };
    hostile::drive(bytes, NUMBERS, &tapes, &desk, |port| {
        desk.sessions.abandon(port);
    });
});
