//! What the WGSL of calls has in common with Rust, written from Rust's constants.

use std::fmt::Write;

use crate::device::CallStatus;
use crate::device::call_words::{BEGUN, HEADER, PREFIX, SEAL, SEAL_FACTORS, SEAL_SHIFT};

/// The statuses that the runtime's own texts tell apart.
const STATUSES: [(&str, CallStatus); 8] = [
    ("done", CallStatus::Done),
    ("timed_out", CallStatus::TimedOut),
    ("stopped", CallStatus::Stopped),
    ("malformed", CallStatus::Malformed),
    ("pending", CallStatus::Pending),
    ("no_ticket", CallStatus::NoTicket),
    ("end", CallStatus::End),
    ("busy", CallStatus::Busy),
];

/// The constants of callers: `tombolo_header_…` for words of the header, `tombolo_packet_…` for words in front of a
/// payload, `tombolo_status_…` for statuses.
pub(super) fn constants() -> String {
    let mut text = String::new();
    let header = HEADER.map(|(name, index)| ("header", name, index as u32));
    let packet = [
        ("packet", "begun", BEGUN as u32),
        ("packet", "seal", SEAL as u32),
        ("packet", "payload", PREFIX as u32),
    ];
    let statuses = STATUSES.map(|(name, status)| ("status", name, status.code()));
    // What WGSL makes of a variable without a value: of a stream that has not been used.
    let unset = [("status", "unset", 0)];
    let statuses = unset.into_iter().chain(statuses);
    for (kind, name, value) in header.into_iter().chain(packet).chain(statuses) {
        let _ = writeln!(text, "const tombolo_{kind}_{name} = {value}u;");
    }
    text
}

/// What a word at a place adds to a seal: a statement, and the expression behind it.
pub(crate) fn mixed(at: &str, word: &str) -> [String; 2] {
    let [place, value, both] = SEAL_FACTORS;
    [
        format!("let mixed = ({word} ^ ({at} * {place:#x}u)) * {value:#x}u;"),
        format!("(mixed ^ (mixed >> {SEAL_SHIFT}u)) * {both:#x}u"),
    ]
}
