//! The tests of ranks: every process started by `mpirun` runs every test, in the same order, together with the others.
//!
//! `cargo xtask mpi` starts the processes, on every adapter and with several numbers of ranks. A panic of a test on one rank
//! ends all; so does a test not over in time. Arguments are parts of the names of tests.

mod collectives;
mod filters;
mod messages;
mod operators;
mod requests;
mod servers;
mod watchdog;

use std::time::Duration;

use tombolo::{Context, Device};
use tombolo_mpi::{Mpi, Options, Ranks};

use filters::Filters;
use watchdog::Watchdog;

/// How long a wait of a test takes at most: kernels run on the processor, shared by many ranks.
const MOST: Duration = Duration::from_secs(120);

/// The input of every test.
struct World {
    ranks: Ranks,
    context: Context,
    device: Device,
}

type Test = (&'static str, fn(&World));

fn main() {
    let filters = Filters::from_args();
    let mut options = Options::default();
    options.timeout = Some(MOST);
    let mpi = Mpi::start_with(options).expect("MPI starts");
    let context = Context::new().expect("there are adapters");
    let device = context.device().expect("the adapter opens");
    let world = World {
        ranks: mpi.ranks(),
        context,
        device,
    };
    let lists = [
        messages::TESTS,
        requests::TESTS,
        collectives::TESTS,
        operators::TESTS,
        servers::TESTS,
    ];
    let watchdog = Watchdog::start(2 * MOST);
    let mut count = 0;
    let wanted = (lists.into_iter().flatten()).filter(|(name, _)| filters.want(name));
    for (name, test) in wanted {
        watchdog.begin(name);
        test(&world);
        world
            .ranks
            .barrier()
            .expect("all ranks come to the end of the test");
        count += 1;
    }
    watchdog.begin("the end");
    if world.ranks.rank() == 0 {
        let (size, adapter) = (world.ranks.size(), world.device.name());
        println!("{count} tests passed with {size} ranks on {adapter}");
    }
    assert!(count > 0, "no test has such a name");
}
