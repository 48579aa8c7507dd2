//! The plan of a server: decided, and refused where impossible, before anything is compiled.

use std::sync::Arc;

use super::{PersistentKernelBuilder, fault};
use crate::device::LoopGuardPolicy;
use crate::kernel::server::{self, HandlerDeclaration, HandlerForm};
use crate::persistent::error::ServerError;
use crate::rpc::port::layout::{MAX_PAYLOAD, PortLayout};

/// The least words of a port, in each direction: two cache lines with their prefix.
const LEAST_PAYLOAD: usize = 28;
/// The most ports: places in the bell.
pub(in crate::persistent) const MAX_PORTS: usize = 1 << 15;
/// The most devices with calling kernels.
const MAX_CALLERS: usize = 16;
/// The most lanes serving calls by themselves.
const MAX_LANES: usize = 64;
/// The most ports of a lane that are looked at all the time, instead of a bell.
const POLLED: usize = 8;
/// The most work-groups of a server: more than a server should take of a card's multiprocessors.
const MAX_GROUPS: usize = 64;
/// Turns of loops per call by default on adapters without a budget: a second on a software adapter, and so less than
/// the time after which a lease serving no calls counts as stuck.
const TURNS: u32 = 1 << 25;
/// Turns after which a lease ends on such an adapter: before the count ends.
const MOST: u32 = 1 << 31;
/// Turns of a ration kept for the end of a lease and for a compiler's additions.
const RESERVE: u32 = 4_096;
/// The ration of an adapter with a ration of unstated size.
const LEAST_BUDGET: u32 = 65_535;

/// The decisions about a server.
pub(super) struct Plan {
    pub handlers: Vec<Arc<HandlerDeclaration>>,
    pub layout: PortLayout,
    /// Lanes that serve calls by themselves look at all their ports all the time.
    pub polls: bool,
    /// Turns of loops of a lease, on adapters with rations.
    pub budget: Option<u32>,
    /// Invocations serving each call together, if any do.
    pub together: Option<u32>,
    /// The first ports, for urgent calls.
    pub urgent: usize,
    /// Invocations of a work-group serving calls by themselves.
    pub lanes: usize,
    /// Work-groups, each with so many.
    pub groups: usize,
    /// Turns after which a lease ends.
    pub most: u32,
    /// Turns allowed to a call.
    pub turns: u32,
    /// Whether the program calls functions of the host.
    pub calls: bool,
}

impl Plan {
    pub fn of(builder: &PersistentKernelBuilder) -> Result<Self, ServerError> {
        let (ports, callers) = (builder.ports, builder.callers);
        let all_ports = ports.saturating_add(builder.urgent);
        if ports == 0 || all_ports > MAX_PORTS {
            return Err(ServerError::Ports {
                ports: all_ports,
                limit: MAX_PORTS,
            });
        }
        if callers > MAX_CALLERS {
            return Err(ServerError::Callers {
                callers,
                limit: MAX_CALLERS,
            });
        }
        if builder.handlers.is_empty() {
            return Err(ServerError::NoHandlers);
        }
        let handlers = server::declarations(&builder.program, &builder.handlers).map_err(fault)?;
        for handler in &handlers {
            let capabilities = builder.device.shared.shader_capabilities;
            if let Some(why) = handler.refusal(capabilities) {
                return Err(ServerError::Handler {
                    handler: handler.signature.name.clone(),
                    why,
                });
            }
        }
        let budget = builder.budget();
        let is_cooperative = (handlers.iter()).any(|handler| handler.form.is_cooperative());
        let together = match is_cooperative {
            true => Some(builder.checked_group()?),
            false => None,
        };
        check_batches(&handlers, together)?;
        let lanes = builder.checked_lanes(together, budget)?;
        // Where the invocations of a work-group take turns none would be served but the first one's calls.
        let apart = together.is_none() && builder.device.capabilities().invocations_take_turns();
        let (groups, lanes) = match apart {
            true => (builder.checked_groups()? * lanes, 1),
            false => (builder.checked_groups()?, lanes),
        };
        // As many ports for each work-group.
        let urgent = builder.urgent.next_multiple_of(groups);
        let ports = urgent + ports.next_multiple_of(groups);
        let layout = PortLayout::new(ports, payload(&handlers)?);
        let calls = builder.program.calls_host();
        let (most, turns) = share(budget, builder.turns, calls);
        Ok(Self {
            handlers,
            layout,
            polls: false,
            budget,
            together,
            lanes,
            groups,
            urgent,
            most,
            turns,
            calls,
        })
    }

    /// The same for a kernel that polls ports over a bus.
    pub fn across_bus(self) -> Self {
        let each = self.layout.ports.div_ceil(self.groups * self.lanes);
        Self {
            layout: self.layout.in_packets(),
            polls: self.together.is_none() && self.budget.is_none() && each <= POLLED,
            ..self
        }
    }

    /// Whether some handlers serve batches of calls.
    pub fn has_batches(&self) -> bool {
        let mut handlers = self.handlers.iter();
        handlers.any(|handler| matches!(handler.form, HandlerForm::Batch(_)))
    }

    /// All invocations that end a lease: of a work-group that serves calls together one does for all.
    pub fn servers(&self) -> usize {
        self.groups * self.lanes
    }

    /// Turns after which a lease ends when no call takes any: all of the ration.
    pub fn most_without_turns(&self) -> u32 {
        self.budget
            .map_or(self.most, |budget| (budget / 8 * 7).saturating_sub(RESERVE))
    }
}

/// Words of a port in each direction.
fn payload(handlers: &[Arc<HandlerDeclaration>]) -> Result<usize, ServerError> {
    let mut payload = LEAST_PAYLOAD;
    for handler in handlers {
        let words = handler.argument_words().max(handler.result_words());
        if words > MAX_PAYLOAD {
            return Err(ServerError::TooLong {
                handler: handler.signature.name.clone(),
                bytes: words * 4,
                limit: MAX_PAYLOAD * 4,
            });
        }
        payload = payload.max(words);
    }
    Ok(payload)
}

/// Each invocation of a work-group answers one call of a batch.
fn check_batches(
    handlers: &[Arc<HandlerDeclaration>],
    together: Option<u32>,
) -> Result<(), ServerError> {
    let limit = together.unwrap_or(0);
    let is_wrong = |handler: &&Arc<HandlerDeclaration>| matches!(handler.form, HandlerForm::Batch(calls) if !(1..=limit).contains(&calls));
    match handlers.iter().find(is_wrong) {
        None => Ok(()),
        Some(handler) => Err(ServerError::Batch {
            handler: handler.signature.name.clone(),
            limit,
        }),
    }
}

/// After how many turns a lease ends, and how many a call may take.
fn share(budget: Option<u32>, wanted: Option<u32>, calls: bool) -> (u32, u32) {
    match budget {
        None => (MOST, wanted.unwrap_or(TURNS).clamp(1, TURNS)),
        Some(budget) => {
            let all = budget.saturating_sub(RESERVE);
            let turns = wanted.unwrap_or(all / 2).clamp(1, (all / 8 * 7).max(1));
            // A caller waiting for the host gets nearly all of the budget.
            let most = all.saturating_sub(turns);
            (
                (if calls { most.min(all / 16) } else { most }).max(1),
                turns,
            )
        }
    }
}

impl PersistentKernelBuilder {
    /// Turns of loops that a lease has, if rationed.
    fn budget(&self) -> Option<u32> {
        let capabilities = self.device.capabilities();
        match self.device.shared.options.loop_guard {
            LoopGuardPolicy::Budget(budget) => {
                Some(budget.min(capabilities.loop_budget().unwrap_or(budget)))
            }
            LoopGuardPolicy::WhereNeeded | LoopGuardPolicy::Off => (capabilities
                .needs_loop_guard())
            .then(|| capabilities.loop_budget().unwrap_or(LEAST_BUDGET)),
        }
    }

    fn checked_groups(&self) -> Result<usize, ServerError> {
        match (1..=MAX_GROUPS).contains(&self.groups) {
            true => Ok(self.groups),
            false => Err(ServerError::WorkGroups {
                groups: self.groups,
                limit: MAX_GROUPS,
            }),
        }
    }

    /// The invocations of a group serving calls together.
    fn checked_group(&self) -> Result<u32, ServerError> {
        let (size, limits) = (self.group, &self.device.shared.limits);
        let limit =
            (limits.max_compute_workgroup_size_x).min(limits.max_compute_invocations_per_workgroup);
        match size.is_power_of_two() && (8..=limit).contains(&size) {
            true => Ok(size),
            false => Err(ServerError::GroupSize { size, limit }),
        }
    }

    /// The invocations that serve calls by themselves. Groups of lanes share their budget, and take turns, where
    /// processors run kernels.
    fn checked_lanes(
        &self,
        together: Option<u32>,
        budget: Option<u32>,
    ) -> Result<usize, ServerError> {
        let limit = if budget.is_some() { 1 } else { MAX_LANES };
        if let Some(lanes) = self.lanes
            && !(1..=limit).contains(&lanes)
        {
            return Err(ServerError::Lanes { lanes, limit });
        }
        Ok(match (together, self.lanes) {
            (Some(_), _) => 1,
            (None, Some(lanes)) => lanes,
            (None, None) if self.device.capabilities().software || budget.is_some() => 1,
            (None, None) if self.device.capabilities().splits_ports() => MAX_LANES,
            (None, None) => 32,
        })
    }
}
