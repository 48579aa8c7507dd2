//! Checks of every state.

use super::super::ANSWER;
use super::{ClientAt, ServerAt, Setup, State, withdrawal};

impl State {
    /// A client reads its own result, of a call served once; or the withdrawal of a call served by nobody.
    pub(super) fn check_result(&self, id: u32, result: u32) -> Result<(), String> {
        if result == withdrawal::BUSY {
            return self.check_busy(id);
        }
        if result != id + ANSWER {
            return Err(format!("call {id} got {result}"));
        }
        match self.served[id as usize] {
            1 => Ok(()),
            times => Err(format!("call {id} returned, and was served {times} times")),
        }
    }

    fn check_busy(&self, id: u32) -> Result<(), String> {
        if self.served[id as usize] != 0 {
            return Err(format!("call {id} was served, and told as withdrawn"));
        }
        match self
            .clients
            .iter()
            .any(|(at, _)| matches!(at, ClientAt::Begun(..)))
        {
            true => Ok(()),
            false => Err(format!("call {id} is told as withdrawn, and nobody asked")),
        }
    }

    /// Whether a call was served once, or taken back by its client and not served.
    pub(super) fn has_ended(&self, setup: &Setup, id: usize) -> bool {
        let may_miss = self.withdrawn[id] || (setup.withdraws && self.left[id]);
        match self.served[id] {
            0 => may_miss,
            times => times == 1 && !self.withdrawn[id],
        }
    }

    /// Nobody is beside another at either end of a port.
    pub(super) fn exclusion(&self) -> Result<(), String> {
        for port in 0..self.memory.ports.len() {
            let clients = self.clients.iter().filter(|(at, _)| {
                matches!(at, ClientAt::Writing(p, _) | ClientAt::Written(p, _) | ClientAt::Waiting(p, _)
                    | ClientAt::Withdrawing(p, _) | ClientAt::Begun(p, _) if *p == port)
            });
            let servers = self.servers.iter().filter(|at| {
                matches!(at, ServerAt::Beginning(p, _) | ServerAt::Working(p, _) | ServerAt::Answering(p, ..) | ServerAt::Answered(p, _) if *p == port)
            });
            let kept = self.kept.iter().chain(&self.begun).flatten();
            let kept = kept.filter(|(p, _)| *p == port);
            if clients.count() > 1 || servers.count() + kept.count() > 1 {
                return Err(format!("two at one end of port {port}"));
            }
        }
        Ok(())
    }
}
