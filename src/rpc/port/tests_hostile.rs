//! A client writing anything anywhere. The driver is shared with the fuzz target `ports`.

use super::client::Client;
use super::layout::{MAX_PAYLOAD, PREFIX, PortLayout};
use super::protocol::CallStatus;
use super::server::{Dispatch, Server, Sweeper};
use super::words::{Words, host_words};
use std::sync::Arc;

/// Answers `[opcode, length]`, and as many words as the first argument asks for.
struct Generous;

impl Dispatch for Generous {
    fn dispatch(
        &self,
        _port: usize,
        opcode: u32,
        arguments: &[u32],
        results: &mut Vec<u32>,
    ) -> CallStatus {
        assert!(arguments.len() <= MAX_PAYLOAD);
        results.extend([opcode, arguments.len() as u32]);
        let more = arguments.first().map_or(0, |&word| word % 64);
        results.extend(std::iter::repeat_n(0xABCD, more as usize));
        CallStatus::Done
    }
}

/// Lets the bytes write words anywhere, between sweeps, while an honest client goes on calling through the last port.
/// Only the words of that port are left to the attacker.
pub(crate) fn drive(bytes: &[u8]) {
    let layout = PortLayout::new(4, 8);
    let honest = layout.ports - 1;
    let words = host_words(layout.words() + 64);
    let server = Server::new(Arc::clone(&words), layout, false);
    let mut sweeper = Sweeper::default();
    let spared = |index: usize| {
        let own = [
            layout.lock(honest),
            layout.request(honest),
            layout.reply(honest),
        ];
        let ends = [layout.arguments(honest), layout.results(honest)];
        own.contains(&index) || ends.iter().any(|&end| (end..end + 16).contains(&index))
    };
    // Words a server must never touch: everything but its own tables and results.
    let is_servers = |index: usize| {
        (0..layout.ports).any(|port| {
            let results = layout.results(port);
            index == layout.reply(port)
                || (results..results + PREFIX + layout.payload).contains(&index)
        })
    };
    let mut number = 0;
    for chunk in bytes.chunks(7) {
        let mut raw = [0; 7];
        raw[..chunk.len()].copy_from_slice(chunk);
        let [kind, low, high, a, b, c, d] = raw;
        let index = match kind % 8 {
            0 => layout.request(usize::from(low) % honest),
            1 => layout.reply(usize::from(low) % honest),
            2 => layout.arguments(usize::from(low) % honest),
            3 => layout.arguments(usize::from(low) % honest) + 1,
            4 => usize::from(low) % 16,
            _ => usize::from(u16::from_le_bytes([low, high])) % layout.words(),
        };
        if !spared(index) {
            words.store(index, u32::from_le_bytes([a, b, c, d]));
        }
        if kind & 0x80 == 0 {
            continue;
        }
        let before: Vec<u32> = (0..layout.words() + 64).map(|i| words.load(i)).collect();
        let served = server.sweep(&mut sweeper, &Generous);
        assert!(served <= layout.ports);
        for (index, &word) in before.iter().enumerate() {
            assert!(
                words.load(index) == word || is_servers(index),
                "word {index}"
            );
        }
        // For any writes, a single look settles each port.
        assert_eq!(server.sweep(&mut sweeper, &Generous), 0);
        number += 1;
        let mut client = Client::new(Arc::clone(&words), layout, honest);
        let posted = client.try_post(number, &[0, 1, 2]);
        // The honest client only ever uses a free port of its own.
        let Some(posted) = posted else {
            panic!("the honest port is not free")
        };
        server.sweep(&mut sweeper, &Generous);
        let mut results = [0; 2];
        assert_eq!(
            client.try_collect(posted, &mut results),
            Some(CallStatus::Done)
        );
        assert_eq!(results, [number, 3]);
    }
}

#[cfg(test)]
mod cases {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 2000 }))]

        #[test]
        fn a_hostile_client_harms_nobody_else(bytes in prop::collection::vec(any::<u8>(), 0..if cfg!(miri) { 60 } else { 400 })) {
            super::drive(&bytes);
        }
    }
}
