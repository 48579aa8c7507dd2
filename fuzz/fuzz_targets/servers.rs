//! Writes what the input's bytes spell into the memory of a server on a device, while callers post calls and look for their
//! answers, and the relay gives calls up.

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

#[path = "../../src/persistent/settle.rs"]
mod settle;

#[path = "../../src/persistent/tests_bytes.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hostile::drive(bytes, &hostile::Split::new(bytes.len().is_multiple_of(2))));
