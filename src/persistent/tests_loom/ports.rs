//! Calls of waiting or dropping callers, beside an answer or the end of the server.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::{Stage, StageWord};
use crate::persistent::settle::{Calls, give_up};
use crate::rpc::port::client::{Client, Posted};
use crate::rpc::port::layout::{PREFIX, PortLayout};
use crate::rpc::port::protocol::CallStatus;
use crate::rpc::port::tests_loom::LoomWords;
use crate::rpc::port::words::{ClientWords, Words};

const PORT: usize = 0;

fn layout() -> PortLayout {
    PortLayout::new(1, 1)
}

/// The memory of a server with a single port, and the calls taken by its kernel.
struct Server {
    words: Arc<LoomWords>,
    taken: AtomicU32,
    served: AtomicU32,
    stage: StageWord,
}

impl Server {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            words: Arc::new(LoomWords::new(layout())),
            taken: AtomicU32::new(0),
            served: AtomicU32::new(0),
            stage: StageWord::default(),
        })
    }

    fn client(&self) -> Client<Arc<LoomWords>> {
        Client::new(Arc::clone(&self.words), layout(), 0)
    }

    /// A look of the kernel at its port: an answer is the argument and 1.
    fn look(&self) {
        let request = self.request(PORT);
        if request == self.taken(PORT) {
            return;
        }
        self.take(PORT, request);
        self.served.fetch_add(1, Ordering::Relaxed);
        let argument = self.words.load(layout().arguments(PORT) + PREFIX);
        self.words
            .store(layout().results(PORT) + PREFIX, argument + 1);
        self.answer(PORT, request, [1, 0]);
    }

    /// `Relay::run` at its end.
    fn close(&self) {
        let stopped = [CallStatus::Stopped.code(), 0];
        give_up(self, false, stopped);
        self.stage.set(Stage::Closed);
        give_up(self, false, stopped);
    }

    fn has_ended(&self) -> bool {
        self.stage.get() == Stage::Closed
    }
}

impl Calls for Server {
    fn ports(&self) -> usize {
        1
    }
    fn request(&self, port: usize) -> u32 {
        self.words.load(layout().request(port))
    }
    fn reply(&self, port: usize) -> u32 {
        self.words.load(layout().reply(port))
    }
    fn taken(&self, _: usize) -> u32 {
        self.taken.load(Ordering::Acquire)
    }
    fn take(&self, _: usize, request: u32) {
        self.taken.store(request, Ordering::Release);
    }
    fn answer(&self, port: usize, request: u32, head: [u32; 2]) {
        self.words.store_all(layout().results(port), &head);
        self.words.store(layout().reply(port), request);
    }
}

/// A single turn of a waiting caller: the answer, or the news of no answer to come.
type Turn = fn(&Server, Posted, &mut [u32; 1]) -> Option<Result<[u32; 2], ()>>;

/// `PortClient::wait`.
fn turn(server: &Server, posted: Posted, results: &mut [u32; 1]) -> Option<Result<[u32; 2], ()>> {
    // Before the look: a call without an answer then gets none.
    let loss = server.has_ended();
    match server.client().try_take(posted, results) {
        Some(head) => Some(Ok(head)),
        None => loss.then_some(Err(())),
    }
}

fn wait_beside_stop(turn: Turn) {
    loom::model(move || {
        let server = Server::new();
        let relay = {
            let server = Arc::clone(&server);
            thread::spawn(move || {
                server.look();
                server.close();
            })
        };
        // `PortClient::try_post`.
        if server.stage.get() == Stage::Running {
            let posted = server.client().try_post(7, &[41]).unwrap();
            let mut results = [0];
            let told = loop {
                if let Some(told) = turn(&server, posted, &mut results) {
                    break told;
                }
                thread::yield_now();
            };
            let served = server.served.load(Ordering::Relaxed);
            match told {
                Ok([1, _]) => assert_eq!((results, served), ([42], 1)),
                told => assert_eq!(served, 0, "served, and told {told:?}"),
            }
        }
        relay.join().unwrap();
    });
}

#[test]
fn whoever_waits_while_the_server_stops_is_told_what_became_of_his_call() {
    wait_beside_stop(turn);
}

#[test]
#[should_panic(expected = "served, and told Err")]
fn who_looks_at_the_server_behind_the_answer_is_told_wrongly() {
    wait_beside_stop(
        |server, posted, results| match server.client().try_take(posted, results) {
            Some(head) => Some(Ok(head)),
            None => server.has_ended().then_some(Err(())),
        },
    );
}

/// A call is dropped beside its answer, while somebody else wants the port.
fn drop_beside_answer(post: fn(&Server) -> Option<Posted>) {
    loom::model(move || {
        let server = Server::new();
        let dropped = server.client().try_post(7, &[1]).unwrap();
        let kernel = {
            let server = Arc::clone(&server);
            thread::spawn(move || {
                server.look();
                server.look();
            })
        };
        server.client().leave(dropped);
        let posted = post(&server);
        kernel.join().unwrap();
        server.look();
        let mut results = [0];
        let posted = match posted {
            Some(posted) => posted,
            // The port is nobody's now.
            None => {
                let posted = server.client().try_post(7, &[41]).unwrap();
                server.look();
                posted
            }
        };
        let taken = server.client().try_take(posted, &mut results);
        let served = server.served.load(Ordering::Relaxed);
        let told = (taken, results, served);
        assert_eq!(told, (Some([1, 0]), [42], 2), "another's answer, or call");
    });
}

#[test]
fn a_call_that_is_dropped_beside_its_answer_gives_its_port_to_the_next_one() {
    drop_beside_answer(|server| server.client().try_post(7, &[41]));
}

#[test]
#[should_panic(expected = "another's answer")]
fn a_port_is_not_free_when_its_lock_is() {
    drop_beside_answer(|server| {
        let (words, layout) = (&server.words, layout());
        if words.swap(layout.lock(PORT), 1) != 0 {
            return None;
        }
        let request = words.load(layout.request(PORT)) + 1;
        words.store(layout.arguments(PORT) + PREFIX, 41);
        words.store(layout.request(PORT), request);
        Some(Posted {
            port: PORT,
            request,
        })
    });
}
