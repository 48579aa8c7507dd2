//! The clock, random seeds, and the exit status: with files and arguments what a `main()` needs.

use std::sync::{Arc, Mutex};

use super::narrow;
use crate::clock::{Instant, SystemTime, UNIX_EPOCH};
use crate::device::wait::lock;
use crate::rpc::{HostServices, HostServicesBuilder};

/// The exit codes given by kernels for the program.
#[derive(Default)]
pub(crate) struct Exit(Mutex<Option<u32>>);

impl HostServicesBuilder {
    /// Tells kernels the time, in nanoseconds, as a `vec2<u32>` with the low word first: `clock_monotonic()` since the services
    /// were put together, never backwards; `clock_wall()` since 1970 (UTC), as the system's clock has it.
    pub fn clock(self) -> Self {
        let begun = Instant::now();
        self.call("fn clock_monotonic() -> vec2<u32>", move || {
            narrow(begun.elapsed().as_nanos() as u64)
        })
        .call("fn clock_wall() -> vec2<u32>", || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            narrow(since.map_or(0, |since| since.as_nanos() as u64))
        })
    }

    /// Gives kernels seeds for their random numbers: `random_seed() -> vec4<u32>`, 128 bits from the system's
    /// generator, other ones each time. All of them are 0 if the system has none.
    pub fn random(self) -> Self {
        self.call("fn random_seed() -> vec4<u32>", || {
            let mut bytes = [0u8; 16];
            if let Err(error) = getrandom::fill(&mut bytes) {
                log::error!("the system has no random bytes: {error}");
                bytes = [0; 16];
            }
            bytemuck::cast::<[u8; 16], [u32; 4]>(bytes)
        })
    }

    /// Lets kernels say with what status the program should end: `exit(code: u32)`. The first one counts; kernels go
    /// on, and so does the program, which asks [`HostServices::exit_status`].
    pub fn exit(self) -> Self {
        let exit = Arc::clone(&self.provided.exit);
        self.call("fn exit(code: u32)", move |code: u32| {
            lock(&exit.0).get_or_insert(code);
        })
    }
}

impl HostServices {
    /// The code of the first kernel that called `exit` ([`HostServicesBuilder::exit`]), if any.
    pub fn exit_status(&self) -> Option<u32> {
        *lock(&self.shared.provided.exit.0)
    }
}
