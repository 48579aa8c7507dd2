//! The steps of a withdrawal: either side has written its note, and looks for the other's once its own has arrived.

use super::super::super::protocol::Side;
use super::super::NOTE;
use super::{ClientAt, Flaw, ServerAt, Setup, State};

/// The answer to a withdrawn call.
pub(super) const BUSY: u32 = u32::MAX;

impl State {
    /// The state after client `index` has looked whether its call is begun.
    pub(super) fn withdraw(
        &self,
        setup: &Setup,
        index: usize,
        port: usize,
        request: u32,
    ) -> Option<State> {
        let memory = &self.memory;
        if setup.flaw != Flaw::NoWithdrawFence && !memory.note_arrived(Side::Client, port) {
            return None;
        }
        let call = self.clients[index].1;
        let mut state = self.clone();
        if memory.ports[port].server_seen[NOTE] == request {
            state.clients[index].0 = ClientAt::Begun(port, request);
        } else {
            state.memory.ports[port].client_lock = false;
            state.withdrawn[Self::id(setup, index, call) as usize] = true;
            state.clients[index] = (ClientAt::Search, call + 1);
        }
        Some(state)
    }

    /// The state after server `index` has looked for a withdrawal of the call being begun.
    pub(super) fn begin(
        &self,
        setup: &Setup,
        index: usize,
        port: usize,
        request: u32,
    ) -> Option<State> {
        let memory = &self.memory;
        if setup.flaw != Flaw::NoBeginFence && !memory.note_arrived(Side::Server, port) {
            return None;
        }
        let mut state = self.clone();
        let is_withdrawn =
            memory.ports[port].client_seen[NOTE] != 0 && setup.flaw != Flaw::NoWithdrawLook;
        state.servers[index] = match is_withdrawn {
            true => ServerAt::Answering(port, request, BUSY),
            false => ServerAt::Working(port, request),
        };
        Some(state)
    }

    /// The state after server `index` has left the call being begun for later, to begin another call with it.
    pub(super) fn begin_more(
        &self,
        setup: &Setup,
        index: usize,
        port: usize,
        request: u32,
    ) -> Option<State> {
        setup.batches.then(|| {
            let mut state = self.clone();
            state.begun[index].push((port, request));
            state.servers[index] = ServerAt::Search;
            state
        })
    }

    /// The state after server `index` has come back to the first call left so.
    pub(super) fn next_begun(&self, index: usize) -> Option<State> {
        let &(port, request) = self.begun[index].first()?;
        let mut state = self.clone();
        state.begun[index].remove(0);
        state.servers[index] = ServerAt::Beginning(port, request);
        Some(state)
    }
}
