//! Everything that a thread may do.

mod buffers;
mod calls;
mod device_buffers;
mod devices;
mod failures;
mod globals;
mod heap;
mod launches;
mod prints;

pub use devices::check_sums;

use crate::problem::Outcome;
use crate::worker::Worker;

/// Something that a thread may do.
pub struct Operation {
    /// Its group and its name, for `--only`.
    pub name: &'static str,
    /// How often, relative to others.
    pub weight: usize,
    pub run: fn(&mut Worker<'_>) -> Outcome,
}

macro_rules! operations {
    ($($weight:literal $group:ident :: $name:ident),* $(,)?) => {
        &[$(Operation {
            name: concat!(stringify!($group), "::", stringify!($name)),
            weight: $weight,
            run: $group::$name,
        }),*]
    };
}

pub const OPERATIONS: &[Operation] = operations![
    8 heap::allocate,
    6 heap::free,
    6 heap::read,
    4 heap::write,
    3 heap::fill,
    3 heap::copy,
    4 heap::look,
    2 heap::count_together,
    2 heap::collect,
    2 heap::ask,
    10 heap::launch,
    3 heap::copy_on_device,
    2 heap::list,
    5 buffers::make,
    4 buffers::release,
    12 buffers::launch,
    4 buffers::read,
    4 buffers::write,
    3 buffers::fill,
    3 buffers::copy,
    3 buffers::map,
    4 buffers::place,
    2 buffers::ask,
    6 buffers::shared_part,
    5 device_buffers::make,
    4 device_buffers::release,
    8 device_buffers::launch,
    4 device_buffers::read,
    3 device_buffers::write,
    3 device_buffers::copy,
    2 device_buffers::heap,
    5 launches::window,
    6 launches::sum,
    2 launches::indirect,
    2 launches::profiled,
    2 launches::queue,
    2 launches::refused,
    5 globals::launch,
    3 globals::read,
    3 globals::write,
    4 prints::print,
    3 failures::assertion,
    4 calls::wait,
    3 calls::later,
    2 calls::stopped,
    5 calls::server,
    1 calls::stop_server,
    2 devices::flush,
    2 devices::poll,
    1 devices::trim,
    1 devices::replace,
    1 devices::drop_in_flight,
    1 devices::lose,
];
