//! The ways of bytes from place to place, and their costs.

use super::{Place, Places};

/// How a copy gets from one place to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Route {
    /// A copy on a single device: both places are devices of this crate sharing a device of wgpu.
    SameDevice,
    /// A hop through host memory visible to both places.
    SharedHost,
    /// By an export to the host's memory, an import from there, or both in a row.
    ThroughHost,
}

/// One direct hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    route: Route,
    cost: u32,
}

/// A table of routes between places.
///
/// Every device can export to the host and import from there. Two devices without a direct route of their own, or with
/// a more expensive one, exchange bytes in these two hops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routes {
    /// Places in the table; others have no direct route but to and from the host.
    places: usize,
    /// `places` × `places`, rows are sources.
    links: Vec<Option<Link>>,
    chunk: u64,
}

/// A way from a place that has the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub from: Place,
    pub to: Place,
    /// Of the direct hop; [`Route::ThroughHost`] in two hops if neither end is the host.
    pub route: Route,
    pub cost: u64,
}

impl Way {
    pub fn hops(&self) -> u32 {
        if self.route == Route::ThroughHost && !self.from.is_host() && !self.to.is_host() {
            2
        } else {
            1
        }
    }
}

impl Default for Routes {
    fn default() -> Self {
        Self::new()
    }
}

impl Routes {
    /// The default cost of a hop between the host and a device.
    pub const HOST_COST: u32 = 4;
    /// The usual cost of a copy on a single device.
    pub const SAME_DEVICE_COST: u32 = 1;
    /// The usual cost of a copy through memory visible to both devices.
    pub const SHARED_HOST_COST: u32 = 3;
    /// Bytes of a chunk unless something else is set.
    pub const CHUNK: u64 = 4 << 20;

    /// All devices exchange bytes through the host.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            places: 0,
            links: Vec::new(),
            chunk: Self::CHUNK,
        }
    }

    /// Sets the bytes of a chunk: dependent copies, such as the two hops through the host, are cut at multiples of a
    /// chunk, so a hop can begin while the other goes on. 0 cuts nowhere.
    #[must_use]
    pub fn with_chunk(mut self, bytes: u64) -> Self {
        self.chunk = bytes;
        self
    }

    /// Bytes of a chunk; 0 for no chunks.
    #[must_use]
    pub fn chunk(&self) -> u64 {
        self.chunk
    }

    /// Sets the direct route from a place to another, and its cost of a byte in relation to others.
    ///
    /// Between two devices, [`Route::ThroughHost`] takes the direct route away; the cost is that of the two hops.
    pub fn set(&mut self, from: Place, to: Place, route: Route, cost: u32) {
        let (row, column) = (from.index() as usize, to.index() as usize);
        let needed = row.max(column) + 1;
        let direct = route != Route::ThroughHost || from.is_host() || to.is_host();
        if needed > self.places && !direct {
            // Beyond the table there is no direct route.
            return;
        }
        if needed > self.places {
            let mut links = vec![None; needed * needed];
            for row in 0..self.places {
                let old = &self.links[row * self.places..][..self.places];
                links[row * needed..][..self.places].copy_from_slice(old);
            }
            self.links = links;
            self.places = needed;
        }
        self.links[row * self.places + column] = direct.then_some(Link { route, cost });
    }

    /// Sets the same route in both directions.
    pub fn set_both(&mut self, a: Place, b: Place, route: Route, cost: u32) {
        self.set(a, b, route, cost);
        self.set(b, a, route, cost);
    }

    /// The cheapest route between two places, and its cost.
    #[must_use]
    pub fn route(&self, from: Place, to: Place) -> (Route, u64) {
        let through = u64::from(self.host_link(from, Place::HOST).cost)
            + u64::from(self.host_link(Place::HOST, to).cost);
        match self.link(from, to) {
            Some(link) if from.is_host() || to.is_host() || u64::from(link.cost) <= through => {
                (link.route, u64::from(link.cost))
            }
            _ => (Route::ThroughHost, through),
        }
    }

    /// The route of the hop from or to the host.
    pub(super) fn host_route(&self, from: Place, to: Place) -> Route {
        self.host_link(from, to).route
    }

    /// The cheapest way from any place with the bytes to any place without; the lowest places win.
    pub(super) fn best(&self, have: Places, missing: Places) -> Option<Way> {
        let mut best: Option<Way> = None;
        for to in missing.iter() {
            for from in have.iter() {
                let (route, cost) = self.route(from, to);
                if best.is_none_or(|best| cost < best.cost) {
                    best = Some(Way {
                        from,
                        to,
                        route,
                        cost,
                    });
                }
            }
        }
        best
    }

    fn link(&self, from: Place, to: Place) -> Option<Link> {
        if from.is_host() || to.is_host() {
            return Some(self.host_link(from, to));
        }
        self.table(from, to)
    }

    /// Hops from and to the host always exist.
    fn host_link(&self, from: Place, to: Place) -> Link {
        self.table(from, to).unwrap_or(Link {
            route: Route::ThroughHost,
            cost: Self::HOST_COST,
        })
    }

    fn table(&self, from: Place, to: Place) -> Option<Link> {
        let (row, column) = (from.index() as usize, to.index() as usize);
        if row >= self.places || column >= self.places {
            return None;
        }
        self.links[row * self.places + column]
    }
}
