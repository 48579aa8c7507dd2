//! How the places of the model are connected.

use super::model::{PLACES, place};
use super::*;

/// How devices are connected, in the model's own words.
#[derive(Debug, Clone)]
pub struct Wires {
    /// Costs of direct hops; `None` between devices that have none.
    pub cost: [[Option<u32>; PLACES]; PLACES],
    pub chunk: u64,
}

impl Wires {
    pub fn routes(&self) -> Routes {
        let mut routes = Routes::new().with_chunk(self.chunk);
        for from in 0..PLACES {
            for to in (0..PLACES).filter(|&to| to != from) {
                if let Some(cost) = self.cost[from][to] {
                    let route = match (from, to) {
                        (0, _) | (_, 0) => Route::ThroughHost,
                        _ if cost % 2 == 0 => Route::SameDevice,
                        _ => Route::SharedHost,
                    };
                    routes.set(place(from), place(to), route, cost);
                }
            }
        }
        routes
    }

    pub fn hop(&self, from: usize, to: usize) -> Option<u32> {
        let usual = (from == 0 || to == 0).then_some(Routes::HOST_COST);
        self.cost[from][to].or(usual)
    }

    /// Cost and hops of the cheapest way; a direct one wins where both cost the same.
    pub fn way(&self, from: usize, to: usize) -> (u32, u64) {
        if from == 0 || to == 0 {
            return (self.hop(from, to).expect("a hop of the host"), 1);
        }
        let around = self.hop(from, 0).zip(self.hop(0, to));
        let around = around.map(|(there, back)| there + back).expect("two hops");
        match self.hop(from, to) {
            Some(cost) if cost <= around => (cost, 1),
            _ => (around, 2),
        }
    }
}
