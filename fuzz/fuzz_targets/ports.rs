//! Writes what the input's bytes spell into the words of ports, while a server sweeps them and an honest client calls.

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

#[path = "../../src/rpc/port/tests_hostile.rs"]
mod hostile;

// What the driver finds in its parent.
use port::{client, layout, protocol, server, words};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hostile::drive(bytes));
