//! Packets of streams in any order, of any length, at any port. The driver is shared with the fuzz target `streams`.
//!
//! The served calls must match a model of the streams, port by port, and an honest client at the last port gets on with
//! its own stream and calls between every two of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::port::layout::{PREFIX, PortLayout};
use super::port::protocol::CallStatus;
use super::port::server::{Dispatch, Server, Sweeper};
use super::port::words::{HostWords, Words, host_words};
use super::stream::CallStream;

/// Words making a stream misbehave.
const PANICS: u32 = 13;
/// See [`PANICS`]: gives more than there is room for, and more than it was ever given.
const FLOODS: u32 = 14;
/// See [`PANICS`]: panics when dropped.
const PANICS_LATE: u32 = 15;
/// See [`PANICS`]: panics with given words.
const PANICS_GIVING: u32 = 16;

const PORTS: usize = 4;
const HONEST: usize = PORTS - 1;
const PAYLOAD: usize = 8;

/// The numbers of the registered functions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    /// Of a function giving the sum of two words.
    pub call: u32,
    /// The streams opening [`Tape`]s with a word.
    pub streams: [u32; 2],
}

/// The ends of all tapes.
#[derive(Debug, Default)]
pub(crate) struct Tapes {
    opened: AtomicU32,
    dropped: AtomicU32,
    /// The longest packet received.
    longest: AtomicU32,
}

/// Keeps the words put, and gives the last word first.
pub(crate) struct Tape {
    words: Vec<u32>,
    tapes: Arc<Tapes>,
}

/// Panics without a word: there are many.
fn panics() {
    std::panic::resume_unwind(Box::new(()));
}

impl Tape {
    pub(crate) fn open(tapes: &Arc<Tapes>, word: u32) -> Self {
        if word == PANICS {
            panics();
        }
        tapes.opened.fetch_add(1, Ordering::Relaxed);
        Self {
            words: vec![word],
            tapes: Arc::clone(tapes),
        }
    }
}

impl CallStream for Tape {
    type Output = u32;

    fn put(&mut self, words: &[u32]) {
        (self.tapes.longest).fetch_max(words.len() as u32, Ordering::Relaxed);
        if words.contains(&PANICS) {
            panics();
        }
        self.words.extend(words);
    }

    fn get(&mut self, room: usize, words: &mut Vec<u32>) {
        if self.words.last() == Some(&FLOODS) {
            words.resize(words.len() + 2 * room + 1, FLOODS);
            return;
        }
        if self.words.last() == Some(&PANICS_GIVING) {
            words.push(PANICS_GIVING);
            panics();
        }
        let from = self.words.len().saturating_sub(room);
        words.extend(self.words.drain(from..).rev());
    }

    fn close(self) -> u32 {
        self.words.len() as u32
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        self.tapes.dropped.fetch_add(1, Ordering::Relaxed);
        if self.words.last() == Some(&PANICS_LATE) && !std::thread::panicking() {
            panics();
        }
    }
}

/// The open streams in the model: the function of each, and its words.
struct Model {
    numbers: Numbers,
    open: [Option<(u32, Vec<u32>)>; PORTS],
}

impl Model {
    /// The outcome of a call at a port.
    fn serve(
        &mut self,
        port: usize,
        opcode: u32,
        length: u32,
        words: &[u32],
    ) -> (CallStatus, Vec<u32>) {
        use CallStatus::{Done, Malformed, Panicked, Unknown};
        let failed = |status| (status, Vec::new());
        let Some(words) = words.get(..length as usize) else {
            return failed(Malformed);
        };
        if opcode == self.numbers.call {
            let &[a, b] = words else {
                return failed(Malformed);
            };
            self.open[port] = None;
            return (Done, vec![a.wrapping_add(b)]);
        }
        let streams = self.numbers.streams;
        let Some(stream) = (streams.into_iter()).find(|stream| (stream ^ opcode) < 4) else {
            return failed(Unknown);
        };
        let kind = stream ^ opcode;
        if kind == 0 {
            return match *words {
                [PANICS] => {
                    self.open[port] = None;
                    failed(Panicked)
                }
                [word] => {
                    self.open[port] = Some((stream, vec![word]));
                    failed(Done)
                }
                _ => failed(Malformed),
            };
        }
        let open = &mut self.open[port];
        let Some((_, held)) = open.as_mut().filter(|(own, _)| *own == stream) else {
            return failed(Malformed);
        };
        held.extend(words);
        if words.contains(&PANICS) {
            *open = None;
            return failed(Panicked);
        }
        match kind {
            1 => failed(Done),
            2 if held.last() == Some(&PANICS_GIVING) => {
                *open = None;
                failed(Panicked)
            }
            2 if held.last() == Some(&FLOODS) => (Done, vec![FLOODS; PAYLOAD]),
            2 => {
                let from = held.len().saturating_sub(PAYLOAD);
                (Done, held.drain(from..).rev().collect())
            }
            _ => {
                let (len, last) = (held.len() as u32, held.last().copied());
                *open = None;
                match last {
                    Some(PANICS_LATE) => failed(Panicked),
                    _ => (Done, vec![len]),
                }
            }
        }
    }
}

/// The words of the ports, as used by clients.
struct Ports {
    words: Arc<HostWords>,
    layout: PortLayout,
}

impl Ports {
    /// Posts a call, of the claimed length or as long as there is room.
    fn post(&self, port: usize, opcode: u32, length: u32, words: &[u32]) {
        let at = self.layout.arguments(port);
        self.words.store(at, opcode);
        self.words.store(at + 1, length);
        self.words
            .store_all(at + PREFIX, &words[..words.len().min(PAYLOAD)]);
        let request = self.layout.request(port);
        let next = self.words.load(request).wrapping_add(1);
        self.words.store(request, next);
    }

    /// The server's input at a port: opcode, length and payload.
    fn posted(&self, port: usize) -> (u32, u32, [u32; PAYLOAD]) {
        let at = self.layout.arguments(port);
        let mut words = [0; PAYLOAD];
        self.words.load_all(at + PREFIX, &mut words);
        (self.words.load(at), self.words.load(at + 1), words)
    }

    fn answer(&self, port: usize) -> (CallStatus, Vec<u32>) {
        let at = self.layout.results(port);
        let length = self.words.load(at + 1) as usize;
        assert!(length <= PAYLOAD, "port {port} has {length} results");
        let mut words = vec![0; length];
        self.words.load_all(at + PREFIX, &mut words);
        (CallStatus::from_code(self.words.load(at)), words)
    }

    /// Whether only the honest client writes there.
    fn is_spared(&self, index: usize) -> bool {
        let layout = self.layout;
        let ends = [layout.arguments(HONEST), layout.results(HONEST)];
        [
            layout.lock(HONEST),
            layout.request(HONEST),
            layout.reply(HONEST),
        ]
        .contains(&index)
            || ends.iter().any(|&end| (end..end + 16).contains(&index))
    }
}

/// The honest client's next posts: calls, and streams of a few words in both directions.
fn honest(numbers: Numbers, turn: u32) -> (u32, Vec<u32>) {
    let [stream, _] = numbers.streams;
    // Beyond all words with a meaning to a tape.
    let word = 100 + turn;
    match turn % 6 {
        0 => (numbers.call, vec![word, u32::MAX]),
        1 => (stream, vec![word]),
        2 => (stream ^ 1, vec![word; PAYLOAD]),
        3 => (stream ^ 2, vec![word, word + 1]),
        4 => (stream ^ 2, vec![]),
        _ => (stream ^ 3, vec![word; 3]),
    }
}

/// Lets the bytes post packets and write words, between sweeps. `dispatch` is made for ports of [`PORTS`] and payloads
/// of [`PAYLOAD`]; streams opened there count in `tapes`. `abandon` drops the open stream of a port.
pub(crate) fn drive(
    bytes: &[u8],
    numbers: Numbers,
    tapes: &Tapes,
    dispatch: &impl Dispatch,
    abandon: impl Fn(usize),
) {
    let layout = layout();
    let ports = Ports {
        words: host_words(layout.words() + 64),
        layout,
    };
    let server = Server::new(Arc::clone(&ports.words), layout, true);
    let mut sweeper = Sweeper::default();
    let mut model = Model {
        numbers,
        open: Default::default(),
    };
    let mut answered = [0; PORTS];
    let mut turns = 0..;
    for chunk in bytes.chunks(8) {
        let mut raw = [0; 8];
        raw[..chunk.len()].copy_from_slice(chunk);
        let [kind, at, length, payload @ ..] = raw;
        let port = usize::from(at) % HONEST;
        let [a, b, c, d, e] = payload;
        let word = u32::from_le_bytes([a, b, c, d]);
        let [first, second] = numbers.streams;
        let opcode = match kind % 16 {
            0 => Some(numbers.call),
            low @ 1..=4 => Some(first ^ u32::from(low - 1)),
            low @ 5..=8 => Some(second ^ u32::from(low - 5)),
            9 => Some(first ^ u32::from(a)),
            10 => Some(word),
            _ => None,
        };
        match opcode {
            // Small words, with a meaning more often.
            Some(opcode) => {
                let words: Vec<u32> = (payload.into_iter().cycle().take(PAYLOAD))
                    .map(|byte| u32::from(byte % 32))
                    .collect();
                let length = match length {
                    255 => u32::MAX,
                    254 => 1 << 30,
                    _ => u32::from(length) % (PAYLOAD as u32 + 2),
                };
                ports.post(port, opcode, length, &words);
            }
            None => {
                let index = match kind % 16 {
                    11 => layout.request(port),
                    12 => layout.arguments(port) + usize::from(length) % 2,
                    13 => layout.reply(port),
                    14 => usize::from(length) % 16,
                    _ => usize::from(u16::from_le_bytes([length, e])) % layout.words(),
                };
                if !ports.is_spared(index) {
                    ports.words.store(index, word);
                }
            }
        }
        if kind & 0x80 != 0 {
            continue;
        }
        let turn = turns.next().unwrap_or(0);
        let (opcode, words) = honest(numbers, turn);
        ports.post(HONEST, opcode, words.len() as u32, &words);
        let mut expected = Vec::new();
        for (port, answered) in answered.iter_mut().enumerate() {
            let request = ports.words.load(layout.request(port));
            if std::mem::replace(answered, request) == request {
                continue;
            }
            let (opcode, length, words) = match port {
                // By the intended post.
                HONEST => {
                    let mut padded = [0; PAYLOAD];
                    padded[..words.len()].copy_from_slice(&words);
                    (opcode, words.len() as u32, padded)
                }
                _ => ports.posted(port),
            };
            expected.push((port, model.serve(port, opcode, length, &words)));
        }
        assert_eq!(server.sweep(&mut sweeper, dispatch), expected.len());
        for (port, expected) in expected {
            assert!(port != HONEST || expected.0 == CallStatus::Done);
            assert_eq!(ports.answer(port), expected, "port {port}, turn {turn}");
            let reply = ports.words.load(layout.reply(port));
            assert_eq!(reply, answered[port], "port {port}, turn {turn}");
        }
        // Kept streams are the open ones: nothing piles up, and nothing is forgotten.
        let kept = |tapes: &Tapes| {
            tapes.opened.load(Ordering::Relaxed) - tapes.dropped.load(Ordering::Relaxed)
        };
        assert_eq!(kept(tapes) as usize, model.open.iter().flatten().count());
    }
    assert!(tapes.longest.load(Ordering::Relaxed) as usize <= PAYLOAD);
    (0..PORTS).for_each(abandon);
    let opened = tapes.opened.load(Ordering::Relaxed);
    assert_eq!(tapes.dropped.load(Ordering::Relaxed), opened);
}

/// The driven ports.
pub(crate) fn layout() -> PortLayout {
    PortLayout::new(PORTS, PAYLOAD)
}
