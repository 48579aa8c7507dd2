//! The clock, waits, random seeds, variables of the environment, and the exit status: with files and arguments the
//! needs of a `main()`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::narrow;
use super::status::FileStatus;
use super::texts::LENGTH;
use crate::clock::{Instant, SystemTime, UNIX_EPOCH};
use crate::device::wait::lock;
use crate::rpc::{HostServices, HostServicesBuilder};

/// The exit codes given by kernels for the program.
#[derive(Default)]
pub(crate) struct Exit(Mutex<Option<u32>>);

impl HostServicesBuilder {
    /// Tells kernels the time, in nanoseconds, as a `vec2<u32>` with the low word first: `clock_monotonic()` since the
    /// services were put together, never backwards; `clock_wall()` since 1970 (UTC), by the system's clock.
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

    /// Lets kernels read variables of the environment, the variables of the given names and no others:
    /// `environment(name: u32) -> TextReply`, a text ([`HostServicesBuilder::texts`]) with the variable's content at
    /// the time, to be dropped by `text_drop`. The status is `FILE_NOT_GRANTED` for other names, `FILE_NOT_FOUND` where
    /// the variable is not set, and `FILE_BAD_LENGTH` beyond 4,096 bytes.
    pub fn environment<N: AsRef<str>>(self, names: impl IntoIterator<Item = N>) -> Self {
        let granted: Vec<String> = names
            .into_iter()
            .map(|name| name.as_ref().to_owned())
            .collect();
        let texts = Arc::clone(&self.provided.texts);
        let value = move |name: u32| {
            let name = texts.get(name).ok_or(FileStatus::UnknownText)?;
            let known = granted.iter().find(|known| known.as_bytes() == name);
            let value = std::env::var_os(known.ok_or(FileStatus::NotGranted)?);
            let value = value.ok_or(FileStatus::NotFound)?.into_encoded_bytes();
            match value.len() > LENGTH {
                true => Err(FileStatus::BadLength),
                false => texts.make(value),
            }
        };
        self.texts().call(
            "fn environment(name: u32) -> TextReply",
            move |name: u32| match value(name) {
                Ok(text) => [FileStatus::Ok.code(), text],
                Err(status) => [status.code(), 0],
            },
        )
    }

    /// Lets kernels wait: `sleep(milliseconds: u32) -> u32` returns after so many milliseconds, or `longest` if less,
    /// and says how many. A serving thread waits meanwhile, and stopping the services waits for the thread; with a
    /// single thread other calls wait, too. Waiting kernels keep their device.
    pub fn sleep(self, longest: Duration) -> Self {
        let longest = u32::try_from(longest.as_millis()).unwrap_or(u32::MAX);
        let sleep = move |wanted: u32| {
            let granted = wanted.min(longest);
            std::thread::sleep(Duration::from_millis(u64::from(granted)));
            granted
        };
        self.staying(|builder| builder.call("fn sleep(milliseconds: u32) -> u32", sleep))
    }

    /// Gives kernels seeds for their random numbers: `random_seed() -> vec4<u32>`, 128 bits from the system's
    /// generator, other ones each time. All bits are 0 if the system has no generator.
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

    /// Lets kernels give an exit status of the program: `exit(code: u32)`. The first status counts; kernels go on, and
    /// so does the program; the program asks [`HostServices::exit_status`].
    pub fn exit(self) -> Self {
        let exit = Arc::clone(&self.provided.exit);
        self.call("fn exit(code: u32)", move |code: u32| {
            lock(&exit.0).get_or_insert(code);
        })
    }
}

impl HostServices {
    /// The code of the first kernel calling `exit` ([`HostServicesBuilder::exit`]), if any.
    pub fn exit_status(&self) -> Option<u32> {
        *lock(&self.shared.provided.exit.0)
    }
}
