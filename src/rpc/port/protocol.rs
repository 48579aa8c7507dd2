//! The protocol of a port: a client, a server, and for each a mailbox with a single writer.
//!
//! A side's own mailbox is its *outbox*, the other's is the *inbox*. Seen from both sides, with two bits a state, a
//! call goes through the states of the seed (specification: "Shared memory remote procedure calls", table "If the
//! mailbox delay is made explicit"):
//!
//! | name | client in, out | server in, out |
//! | --- | --- | --- |
//! | quiescent | 0 0 | 0 0 |
//! | work posted | 0 1 | 0 0 |
//! | | 0 1 | 1 0 |
//! | server working | 0 1 | 1 0 |
//! | result posted | 0 1 | 1 1 |
//! | | 1 1 | 1 1 |
//! | work received | 1 1 | 1 1 |
//! | client finished | 1 0 | 1 1 |
//! | | 1 0 | 0 1 |
//! | server release | 1 0 | 0 0 |
//! | | 0 0 | 0 0 |
//! | client return | 0 0 | 0 0 |
//!
//! Every move in that table follows one rule, [`next`]: *the client may move when its mailboxes agree, and then flips
//! its own; the server may move when its mailboxes differ, and then makes its own agree.* The side allowed to move owns
//! the payload.
//!
//! # Two calls in one round
//!
//! The second half of the table, from "work received" to "client return", carries nothing. Since the rule does not tell
//! the halves apart, the client may just as well post its next call there: the state of a received result *is*
//! quiescent, with the other polarity. The shortcut halves the writes and the waits of a call, and is used here
//! ([`MOVES_PER_CALL`]). The client also need not come back: an unawaited call is over with the server's answer.
//!
//! # Counters instead of bits
//!
//! A mailbox is a separate word, and the client's mailbox counts its moves rather than flipping between 0 and 1; the
//! server copies the answered number. The bit of the table is the lowest of the count. Counting closes a gap: a client
//! reading its inbox *before* taking the lock, because a kernel can load a polled word at a single place only, could
//! with bits take a port for free where two calls were posted meanwhile and only the first was answered. With counters
//! an old inbox never equals a newer outbox, unless 2^32 calls lie between.
//!
//! # Withdrawal
//!
//! A client whose turns of loops are rationed may take an unbegun call back. Both sides first write a note and then
//! look for the other's: the server notes the beginning, the client the withdrawal, with a full fence between write and
//! look. So at most one of them misses the other's note. A server finding the withdrawal answers with `Busy` and runs
//! nothing; a client finding its call begun goes on waiting for the answer, which may be `Busy` when both have found
//! the other's note. The port is free once the server has answered. A server may write the notes of several calls in
//! front of one fence; all the calls are begun then, although the server serves them one by one.

/// One of the two ends of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    /// Posts calls.
    Client,
    /// Answers the calls.
    Server,
}

/// Moves of either side in one call. The seed's machine has two moves; the second carries nothing.
#[cfg(test)]
pub(crate) const MOVES_PER_CALL: u32 = 1;

/// The rule: the value `side` writes into its outbox to move, given its inbox and its last write; `None` while the
/// other side owns the port.
///
/// The other side's word is not trusted: any two words lead to a move or to none.
pub(crate) const fn next(side: Side, inbox: u32, outbox: u32) -> Option<u32> {
    match side {
        Side::Client if inbox == outbox => Some(outbox.wrapping_add(1)),
        Side::Server if inbox != outbox => Some(inbox),
        _ => None,
    }
}

pub(crate) use crate::device::CallStatus;

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the specification, line by line: client in and out, server in and out.
    const TABLE: [(&str, [u32; 4]); 12] = [
        ("quiescent", [0, 0, 0, 0]),
        ("work posted", [0, 1, 0, 0]),
        ("", [0, 1, 1, 0]),
        ("server working", [0, 1, 1, 0]),
        ("result posted", [0, 1, 1, 1]),
        ("", [1, 1, 1, 1]),
        ("work received", [1, 1, 1, 1]),
        ("client finished", [1, 0, 1, 1]),
        ("", [1, 0, 0, 1]),
        ("server release", [1, 0, 0, 0]),
        ("", [0, 0, 0, 0]),
        ("client return", [0, 0, 0, 0]),
    ];

    #[test]
    fn every_step_of_the_specification_is_a_move_or_a_delivery() {
        for (before, after) in TABLE.iter().zip(&TABLE[1..]) {
            let ([ci, co, si, so], now) = (before.1, after.1);
            let mut allowed = vec![
                before.1,         // work that shows in no mailbox
                [so, co, si, so], // the server's mailbox arrives
                [ci, co, co, so], // the client's mailbox arrives
            ];
            if let Some(out) = next(Side::Client, ci, co) {
                allowed.push([ci, out & 1, si, so]);
            }
            if let Some(out) = next(Side::Server, si, so) {
                allowed.push([ci, co, si, out & 1]);
            }
            assert!(allowed.contains(&now), "{before:?} to {after:?}");
        }
    }

    #[test]
    fn exactly_one_side_may_move_once_everything_has_arrived() {
        for (client, server) in [
            (0, 0),
            (1, 0),
            (1, 1),
            (2, 1),
            (u32::MAX, u32::MAX),
            (0, u32::MAX),
        ] {
            let c = next(Side::Client, server, client).is_some();
            let s = next(Side::Server, client, server).is_some();
            assert!(c != s, "{client} {server}");
        }
        assert_eq!(next(Side::Client, u32::MAX, u32::MAX), Some(0));
    }
}
