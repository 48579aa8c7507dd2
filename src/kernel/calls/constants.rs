//! The constants shared by the WGSL of calls and Rust, written from Rust's.

use std::fmt::Write;

use crate::device::CallStatus;
use crate::device::call_words::{
    BEGUN, HEADER, LAYOUT_SHIFT, LINE, PREFIX, SEAL, SEAL_FACTORS, SEAL_SHIFT,
};

/// The statuses by their names in WGSL: `CALL_…` for programs, and `tombolo_status_…`, in small letters, in the
/// runtime's own texts, so no declaration of a program changes the meaning of the runtime's texts.
pub(super) const STATUSES: [(&str, CallStatus); 12] = [
    ("DONE", CallStatus::Done),
    ("TIMED_OUT", CallStatus::TimedOut),
    ("STOPPED", CallStatus::Stopped),
    ("UNKNOWN", CallStatus::Unknown),
    ("MALFORMED", CallStatus::Malformed),
    ("PANICKED", CallStatus::Panicked),
    ("PENDING", CallStatus::Pending),
    ("NO_TICKET", CallStatus::NoTicket),
    ("END", CallStatus::End),
    ("FAILED", CallStatus::Failed),
    ("TOO_MANY_TURNS", CallStatus::TooManyTurns),
    ("BUSY", CallStatus::Busy),
];

/// The constants of callers: `tombolo_header_…` for words of the header, `tombolo_layout_…` for the layout of ports, `tombolo_packet_…` for words in front of a
/// payload, `tombolo_status_…` for statuses.
pub(super) fn constants() -> String {
    let mut text = String::new();
    let header = HEADER.map(|(name, index)| ("header", name, index as u32));
    let layout = [
        ("layout", "line", LINE as u32),
        ("layout", "shift", LAYOUT_SHIFT),
    ];
    let packet = [
        ("packet", "begun", BEGUN as u32),
        ("packet", "seal", SEAL as u32),
        ("packet", "payload", PREFIX as u32),
    ];
    for (kind, name, value) in header.into_iter().chain(layout).chain(packet) {
        let _ = writeln!(text, "const tombolo_{kind}_{name} = {value}u;");
    }
    // What WGSL makes of a variable without a value: of a stream that has not been used.
    let statuses = STATUSES.map(|(name, status)| (name, status.code()));
    for (name, code) in [("UNSET", 0)].into_iter().chain(statuses) {
        let name = name.to_ascii_lowercase();
        let _ = writeln!(text, "const tombolo_status_{name} = {code}u;");
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
