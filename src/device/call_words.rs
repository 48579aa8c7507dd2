//! Numbers of ports shared by Rust and WGSL: the places of the words of the header and of a packet, and the parts of a
//! seal. The WGSL has the numbers as constants written from here (`kernel::calls::constants`); `rpc::port::layout` and
//! `rpc::port::seal` tell their purpose.

/// Words in front of arguments and of results.
pub(crate) const PREFIX: usize = 4;

/// The word of the prefix with the seal.
pub(crate) const SEAL: usize = 3;

/// The word of the results' prefix with the last request begun by the server, where clients withdraw calls. The
/// client's word for the withdrawal is the seal's: nobody withdraws where the client's packets are sealed.
pub(crate) const BEGUN: usize = 2;

/// Words of a cache line: each table and each port begins on a cache line, and the header is a cache line.
pub(crate) const LINE: usize = 16;

/// The word of the header with the whole layout: the number of ports less 1, and from bit [`LAYOUT_SHIFT`] on the words
/// of payload in each direction. Callers load this word and derive all places from the layout
/// (`shaders/rpc_places.wgsl`).
pub(crate) const LAYOUT: usize = 0;
/// See [`LAYOUT`].
pub(crate) const LAYOUT_SHIFT: u32 = 16;
/// Turns a client waits for a call.
pub(crate) const WAIT_BUDGET: usize = 1;
/// Turns an invocation may wait in all its calls together; 0 for no limit.
pub(crate) const BUDGET: usize = 2;
/// Turns before a waiting invocation takes its time between two looks.
pub(crate) const BACKOFF_AFTER: usize = 3;
/// Not 0 once the services have been stopped.
pub(crate) const CLOSED: usize = 4;
/// Counts the invocations with calls, to spread them over the ports: used by kernels alone, and 32 bytes away from the
/// host's writes, since processors make atomics on a copy of that size.
pub(crate) const TICKET: usize = 13;
/// Not 0 where the invocations of a subgroup may share a packet: a single thread serves all calls, one after the other
/// anyway.
pub(crate) const PACKS: usize = 5;
/// The words of the header that kernels read, with their names in WGSL.
pub(crate) const HEADER: [(&str, usize); 7] = [
    ("layout", LAYOUT),
    ("wait_budget", WAIT_BUDGET),
    ("budget", BUDGET),
    ("backoff_after", BACKOFF_AFTER),
    ("closed", CLOSED),
    ("packs", PACKS),
    ("ticket", TICKET),
];

/// The factors of a place, of the word at that place, and of both together in a seal.
pub(crate) const SEAL_FACTORS: [u32; 3] = [0x9E37_79B1, 0x85EB_CA6B, 0xC2B2_AE35];
/// By how many bits a seal's word is shifted down.
pub(crate) const SEAL_SHIFT: u32 = 15;
