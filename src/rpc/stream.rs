//! Streams: calls of any length. A stream holds its port from opening to end, and all words put and got go through the
//! port in packets.
//!
//! Words gather in the port and leave in packets as long as the port's payload. A packet is a call, with the kind
//! (open, put, get, close) combined with the function's number. Each packet behind the opening carries the words put
//! before, so the order is the kernel's. The host keeps one *session* for each port: for plain calls a session costs
//! one look at a flag. A packet for a stream not open is malformed, a panic ends its own session alone, and an
//! abandoned stream is dropped at the next use of the port, or with the services. The kernel's side is
//! `shaders/rpc_stream.wgsl`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use bytemuck::Pod;

use super::argument_lists::for_argument_lists;
use super::handler::{put, take};
use super::port::protocol::CallStatus;
use crate::guard::guarded;

/// The host's end of an open stream; made by the function registered with
/// [`HostServicesBuilder::stream`](crate::calls::HostServicesBuilder::stream).
///
/// Words arrive and leave in the order of the kernel's puts and gets, in packets of at most a port's payload. A stream
/// abandoned by the kernel is dropped at the next use of its port, or with the services.
pub trait CallStream: Send + 'static {
    /// The kernel's result of closing the stream; `()` for nothing.
    type Output: Pod;

    /// Takes words put by the kernel.
    fn put(&mut self, words: &[u32]) {
        let _ = words;
    }

    /// Appends at most `room` words for the kernel; further words are cut off. None means nothing to get (now): the
    /// kernel's `get` gives 0 and the status `CALL_END`.
    fn get(&mut self, room: usize, words: &mut Vec<u32>) {
        let _ = (room, words);
    }

    /// Ends the stream; all words put by the kernel have arrived.
    fn close(self) -> Self::Output;
}

/// A stream-opening Rust function, of up to twelve arguments; as [`Handler`](crate::calls::Handler).
pub trait StreamOpener<Arguments, S>: Send + Sync + 'static {
    /// Bytes of each argument.
    #[doc(hidden)]
    fn argument_bytes() -> Vec<usize>;
    /// The compiler's names for the types of the arguments, and behind them for that of the result.
    #[doc(hidden)]
    fn type_names() -> Vec<&'static str>;
    /// Opens a stream.
    #[doc(hidden)]
    fn open(&self, arguments: &[u32]) -> S;
}

macro_rules! openers {
    ($(($($argument:ident $index:tt),*))*) => {$(
        impl<Function, $($argument,)* S> StreamOpener<($($argument,)*), S> for Function
        where
            Function: Fn($($argument),*) -> S + Send + Sync + 'static,
            $($argument: Pod,)*
            S: CallStream,
        {
            fn argument_bytes() -> Vec<usize> {
                vec![$(size_of::<$argument>()),*]
            }

            fn type_names() -> Vec<&'static str> {
                vec![$(std::any::type_name::<$argument>(),)* std::any::type_name::<S::Output>()]
            }

            fn open(&self, arguments: &[u32]) -> S {
                #[allow(unused_mut, unused_variables)]
                let mut words = arguments;
                self($(take::<$argument>(&mut words)),*)
            }
        }
    )*};
}

for_argument_lists!(openers);

/// A stream without its type.
pub(super) trait Session: Send {
    fn put(&mut self, words: &[u32]);
    fn get(&mut self, room: usize, words: &mut Vec<u32>);
    fn close(self: Box<Self>, results: &mut Vec<u32>);
}

impl<S: CallStream> Session for S {
    fn put(&mut self, words: &[u32]) {
        CallStream::put(self, words);
    }

    fn get(&mut self, room: usize, words: &mut Vec<u32>) {
        CallStream::get(self, room, words);
        words.truncate(room);
    }

    fn close(self: Box<Self>, results: &mut Vec<u32>) {
        put(&CallStream::close(*self), results);
    }
}

/// The function opening a stream, from the words of its arguments.
pub(super) type Open = Box<dyn Fn(&[u32]) -> Box<dyn Session> + Send + Sync>;

/// The packets of a stream, by the value combined with its number. Packets behind the opening all carry words put by
/// the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packet {
    Open,
    Put,
    Get,
    Close,
}

impl Packet {
    /// The meaning of `opcode` to the stream of the number `base`.
    pub(super) fn of(base: u32, opcode: u32) -> Option<Self> {
        [Self::Open, Self::Put, Self::Get, Self::Close]
            .get((base ^ opcode) as usize)
            .copied()
    }
}

/// The open stream at a port.
#[derive(Default)]
struct Slot {
    /// Whether there may be a stream: a plain call costs only a look at this flag.
    taken: AtomicBool,
    /// The stream, and the number of its function.
    session: Mutex<Option<(u32, Box<dyn Session>)>>,
}

/// The open streams of a set of ports.
pub(super) struct Sessions {
    slots: Box<[Slot]>,
    /// Words of a packet.
    room: usize,
}

impl Sessions {
    pub(super) fn new(ports: usize, room: usize) -> Self {
        Self {
            slots: (0..ports).map(|_| Slot::default()).collect(),
            room,
        }
    }

    /// Whether a stream is open at a port, or was left open.
    pub(super) fn is_open(&self, port: usize) -> bool {
        let slot = self.slots.get(port);
        slot.is_some_and(|slot| slot.taken.load(Ordering::Acquire))
    }

    /// Drops the stream left open at a port, if any: the port has another owner now.
    pub(super) fn abandon(&self, port: usize) {
        let Some(slot) = self.slots.get(port) else {
            return;
        };
        if slot.taken.load(Ordering::Acquire) {
            let left = lock(slot).take();
            slot.taken.store(false, Ordering::Release);
            // The user's destructor must not end the server.
            let _ = guarded(|| drop(left));
        }
    }

    /// Serves a packet of the stream `base` at a port. A packet for a stream not open there is malformed.
    pub(super) fn serve(
        &self,
        port: usize,
        (base, packet): (u32, Packet),
        open: &Open,
        words: &[u32],
        results: &mut Vec<u32>,
    ) -> CallStatus {
        if packet == Packet::Open {
            self.abandon(port);
        }
        let Some(slot) = self.slots.get(port) else {
            return CallStatus::Malformed;
        };
        let mut held = lock(slot);
        let served = match packet {
            Packet::Open => guarded(|| open(words)).map(|session| {
                *held = Some((base, session));
                slot.taken.store(true, Ordering::Release);
            }),
            _ => {
                let Some((_, session)) = held.as_mut().filter(|(own, _)| *own == base) else {
                    return CallStatus::Malformed;
                };
                match packet {
                    Packet::Put => guarded(|| session.put(words)),
                    Packet::Get => guarded(|| {
                        session.put(words);
                        session.get(self.room, results);
                    }),
                    Packet::Open | Packet::Close => {
                        slot.taken.store(false, Ordering::Release);
                        match held.take() {
                            // Apart, since a destructor must not run while something else panics.
                            Some((_, mut session)) => match guarded(|| session.put(words)) {
                                Some(()) => guarded(|| session.close(results)),
                                None => {
                                    let _ = guarded(|| drop(session));
                                    None
                                }
                            },
                            None => Some(()),
                        }
                    }
                }
            }
        };
        if served.is_some() {
            return CallStatus::Done;
        }
        results.clear();
        let broken = held.take();
        slot.taken.store(false, Ordering::Release);
        drop(held);
        let _ = guarded(|| drop(broken));
        CallStatus::Panicked
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        for port in 0..self.slots.len() {
            self.abandon(port);
        }
    }
}

fn lock(slot: &Slot) -> std::sync::MutexGuard<'_, Option<(u32, Box<dyn Session>)>> {
    slot.session.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
