//! Clients and servers under loom: the real code, with the orderings of Rust's memory model explored.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};

use super::client::Client;
use super::layout::{LINE, PortLayout};
use super::protocol::CallStatus;
use super::server::{Dispatch, Private, Server, Sweeper};
use super::words::{ClientWords, Words};

/// Words known to loom; only the words of the test, by their index.
pub(crate) struct LoomWords(Vec<(usize, AtomicU32)>);

impl LoomWords {
    /// The mailboxes, the lock, and two words of payload a direction.
    pub fn new(layout: PortLayout) -> Self {
        let mut used = Vec::new();
        for port in 0..layout.ports {
            used.extend([layout.lock(port), layout.request(port), layout.reply(port)]);
            let (a, r) = (layout.arguments(port), layout.results(port));
            used.extend([a, a + 1, a + 4, r, r + 4]);
        }
        Self(
            used.into_iter()
                .map(|index| (index, AtomicU32::new(0)))
                .collect(),
        )
    }

    fn word(&self, index: usize) -> Option<&AtomicU32> {
        self.0
            .iter()
            .find(|(at, _)| *at == index)
            .map(|(_, word)| word)
    }
}

impl Words for LoomWords {
    fn load(&self, index: usize) -> u32 {
        self.word(index)
            .map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn store(&self, index: usize, value: u32) {
        if let Some(word) = self.word(index) {
            word.store(value, Ordering::Release);
        }
    }
}

impl ClientWords for LoomWords {
    fn swap(&self, index: usize, value: u32) -> u32 {
        self.word(index)
            .map_or(0, |word| word.swap(value, Ordering::AcqRel))
    }
}

impl Words for Arc<LoomWords> {
    fn load(&self, index: usize) -> u32 {
        (**self).load(index)
    }
    fn store(&self, index: usize, value: u32) {
        (**self).store(index, value);
    }
}

impl ClientWords for Arc<LoomWords> {
    fn swap(&self, index: usize, value: u32) -> u32 {
        (**self).swap(index, value)
    }
}

struct LoomPrivate(Vec<[AtomicU32; 2]>);

impl Private for LoomPrivate {
    fn try_lock(&self, port: usize) -> bool {
        self.0[port][0].swap(1, Ordering::AcqRel) == 0
    }
    fn unlock(&self, port: usize) {
        self.0[port][0].store(0, Ordering::Release);
    }
    fn answered(&self, port: usize) -> u32 {
        self.0[port][1].load(Ordering::Acquire)
    }
    fn set_answered(&self, port: usize, request: u32) {
        self.0[port][1].store(request, Ordering::Release);
    }

    fn line(&self, _: usize) -> Option<&[std::sync::atomic::AtomicU32; LINE]> {
        None
    }
}

struct Next<'a>(&'a AtomicU32);

impl Dispatch for Next<'_> {
    fn dispatch(
        &self,
        _port: usize,
        opcode: u32,
        arguments: &[u32],
        results: &mut Vec<u32>,
    ) -> CallStatus {
        assert_eq!((opcode, arguments.len()), (9, 1));
        self.0.fetch_add(1, Ordering::Relaxed);
        results.push(arguments[0] + 1);
        CallStatus::Done
    }
}

fn server(words: &Arc<LoomWords>, layout: PortLayout) -> Server<Arc<LoomWords>, LoomPrivate> {
    let own = (0..layout.ports).map(|_| [AtomicU32::new(0), AtomicU32::new(0)]);
    Server::with_private(Arc::clone(words), LoomPrivate(own.collect()), layout)
}

#[test]
fn a_result_is_seen_with_its_mailbox() {
    loom::model(|| {
        let layout = PortLayout::new(1, 1);
        let words = Arc::new(LoomWords::new(layout));
        let server = server(&words, layout);
        let serving = loom::thread::spawn(move || {
            let served = AtomicU32::new(0);
            let mut sweeper = Sweeper::default();
            for _ in 0..2 {
                server.serve(0, &mut sweeper, &Next(&served));
            }
        });
        let mut client = Client::new(Arc::clone(&words), layout, 0);
        let posted = client.try_post(9, &[41]).unwrap();
        let mut results = [0];
        if let Some(status) = client.try_collect(posted, &mut results) {
            assert_eq!((status, results), (CallStatus::Done, [42]));
        }
        serving.join().unwrap();
    });
}

#[test]
fn two_servers_serve_a_call_once() {
    loom::model(|| {
        let layout = PortLayout::new(1, 1);
        let words = Arc::new(LoomWords::new(layout));
        let server = Arc::new(server(&words, layout));
        let served = Arc::new(AtomicU32::new(0));
        let mut client = Client::new(Arc::clone(&words), layout, 0);
        let posted = client.try_post(9, &[41]).unwrap();
        let other = {
            let (server, served) = (Arc::clone(&server), Arc::clone(&served));
            loom::thread::spawn(move || {
                server.serve(0, &mut Sweeper::default(), &Next(&served));
            })
        };
        server.serve(0, &mut Sweeper::default(), &Next(&served));
        other.join().unwrap();
        assert_eq!(served.load(Ordering::Relaxed), 1);
        let mut results = [0];
        assert_eq!(
            client.try_collect(posted, &mut results),
            Some(CallStatus::Done)
        );
        assert_eq!(results, [42]);
    });
}

#[test]
fn two_clients_never_share_a_port() {
    loom::model(|| {
        let layout = PortLayout::new(1, 1);
        let words = Arc::new(LoomWords::new(layout));
        let other = {
            let words = Arc::clone(&words);
            loom::thread::spawn(move || Client::new(words, layout, 0).try_post(9, &[1]).is_some())
        };
        let mine = Client::new(Arc::clone(&words), layout, 0)
            .try_post(9, &[2])
            .is_some();
        let theirs = other.join().unwrap();
        assert!(mine || theirs);
        assert!(!(mine && theirs));
    });
}
