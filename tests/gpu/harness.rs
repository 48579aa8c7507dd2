//! One named test for each case and adapter, on libtest-mimic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use tombolo::{
    Constants, Context, Device, DeviceBuffer, DeviceOptions, HostServices, Kernel, Launch, Program,
    device::{Capability, WaitError},
};

/// A test that runs on each adapter.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub run: fn(&Fixture),
}

/// Lists the cases of a module under their own names.
#[macro_export]
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub const CASES: &[$crate::harness::Case] = &[$(
            $crate::harness::Case {
                name: concat!(module_path!(), "::", stringify!($name)),
                run: $name,
            },
        )*];
    };
}

/// What a case gets: the machine, and one adapter of it with an open device.
pub struct Fixture {
    pub context: Context,
    pub index: usize,
    pub device: Device,
}

impl Fixture {
    /// A second device on the same adapter.
    pub fn open(&self, change: impl FnOnce(&mut DeviceOptions)) -> Device {
        let mut options = DeviceOptions::default();
        change(&mut options);
        self.context
            .device_at_with(self.index, options)
            .expect("another device on the same adapter")
    }

    /// A device on the same adapter in a context of its own, which shares no names with any other.
    pub fn open_alone(&self, change: impl FnOnce(&mut DeviceOptions)) -> Device {
        let mut options = DeviceOptions::default();
        change(&mut options);
        Context::new()
            .and_then(|context| context.device_named_with(self.device.name(), options))
            .expect("a device on the same adapter")
    }

    /// Where a running kernel may go on seeing what it has read of the heap: on devices with memory of their own, whose
    /// tier of pointers has to say so.
    pub fn tells_that_kernels_read_old_words(&self) -> bool {
        let capabilities = self.device.capabilities();
        let why = capabilities.tier(Capability::Pointers).why;
        assert_eq!(
            why.contains("may go on seeing"),
            !capabilities.unified_memory,
            "{why}"
        );
        !capabilities.unified_memory
    }

    pub fn is_lavapipe(&self) -> bool {
        self.device.name().contains("llvmpipe")
    }

    pub fn is_swiftshader(&self) -> bool {
        self.device.name().contains("SwiftShader")
    }

    /// Whether the adapter is hardware, whose devices take turns.
    pub fn is_card(&self) -> bool {
        !self.device.capabilities().software
    }

    /// Whether the adapter is the one of this project.
    pub fn is_embedded(&self) -> bool {
        self.device.name().contains("Tombolo")
    }
}

pub struct Suite {
    arguments: Arguments,
    context: Option<Context>,
    trials: Vec<Trial>,
}

impl Suite {
    pub fn new() -> Self {
        let mut arguments = Arguments::from_args();
        // Software drivers do not stand several tests at once in one process.
        arguments.test_threads = Some(1);
        Self {
            arguments,
            context: Context::new().ok(),
            trials: Vec::new(),
        }
    }

    /// Adds the cases of these modules, on each adapter.
    pub fn add_all(&mut self, modules: &[&[Case]]) {
        let cases = modules.iter().flat_map(|cases| cases.iter());
        self.add(cases.map(|case| (trim(case.name).to_string(), case.run)));
    }

    /// Adds tests with names of their own, on each adapter.
    pub fn add<R>(&mut self, cases: impl Iterator<Item = (String, R)>)
    where
        R: Fn(&Fixture) + Clone + Send + 'static,
    {
        self.require_adapters();
        let Some(context) = self.context.clone() else {
            return;
        };
        let cases: Vec<(String, R)> = cases.collect();
        for adapter in context.adapters() {
            let opened: Arc<Mutex<Option<Arc<Fixture>>>> = Arc::default();
            for (name, run) in cases.iter().cloned() {
                let (context, opened) = (context.clone(), Arc::clone(&opened));
                let index = adapter.index;
                let name = format!("{}::{name}", short(&adapter.name));
                self.trials.push(Trial::test(name, move || {
                    let fixture = fixture(&context, index, &opened)?;
                    attempt(|| run(&fixture))
                }));
            }
        }
    }

    /// Adds tests that need no device.
    pub fn add_trials(&mut self, trials: impl IntoIterator<Item = Trial>) {
        self.trials.extend(trials);
    }

    /// A test for each adapter that has to be there.
    fn require_adapters(&mut self) {
        let found: Vec<String> = self
            .context
            .iter()
            .flat_map(|context| context.adapters())
            .map(|adapter| adapter.name)
            .collect();
        let required = std::env::var("TOMBOLO_TEST_ADAPTERS").unwrap_or_default();
        let mut required: Vec<&str> = required
            .split(';')
            .filter(|name| !name.is_empty())
            .collect();
        if required.is_empty() {
            required.push("");
        }
        for wanted in required {
            let there = found.iter().any(|name| name.contains(wanted));
            let found = found.clone();
            let (wanted, label) = (
                wanted.to_string(),
                if wanted.is_empty() { "any" } else { wanted },
            );
            self.trials.push(Trial::test(
                format!("adapter_is_present::{label}"),
                move || {
                    if there {
                        Ok(())
                    } else {
                        Err(Failed::from(format!(
                            "no adapter `{wanted}` among {found:?}: run `cargo xtask test`, which \
                             provides the software adapters"
                        )))
                    }
                },
            ));
        }
    }

    pub fn run(mut self) -> ExitCode {
        let names: Vec<&str> = self.trials.iter().map(Trial::name).collect();
        if let Some(status) = crate::processes::run(&self.arguments, &names) {
            return status;
        }
        crate::processes::keep_share(self.arguments.filter.as_deref(), &mut self.trials);
        libtest_mimic::run(&self.arguments, self.trials).exit_code()
    }
}

fn fixture(
    context: &Context,
    index: usize,
    opened: &Mutex<Option<Arc<Fixture>>>,
) -> Result<Arc<Fixture>, Failed> {
    let mut slot = opened.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(fixture) = &*slot {
        return Ok(Arc::clone(fixture));
    }
    let fixture = Arc::new(Fixture {
        context: context.clone(),
        index,
        device: context.device_at(index)?,
    });
    *slot = Some(Arc::clone(&fixture));
    Ok(fixture)
}

fn attempt(test: impl FnOnce()) -> Result<(), Failed> {
    let result = catch_unwind(AssertUnwindSafe(test));
    let unexpected = crate::panics::unexpected();
    if result.is_ok() && !unexpected.is_empty() {
        let text = format!("panics in ordinary work: {}", unexpected.join("; "));
        return Err(Failed::from(text));
    }
    result.map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string()));
        Failed::from(text.unwrap_or_else(|| "the test panicked".into()))
    })
}

/// `llvmpipe (LLVM 15.0.6, 256 bits)` is `llvmpipe`, in test names.
pub fn short(name: &str) -> String {
    // The adapter of this project has the project's name first.
    let name = name.strip_prefix("Tombolo ").unwrap_or(name);
    name.split([' ', '(']).next().unwrap_or(name).to_string()
}

/// Drops the name of the test crate.
fn trim(name: &str) -> &str {
    name.split_once("::").map_or(name, |(_, rest)| rest)
}

/// The kernel `main` of a program that calls functions of `services`.
pub fn kernel_of(device: &Device, services: &HostServices, source: &str) -> Kernel {
    let program = Program::builder()
        .source("calls.wgsl", source)
        .services(services)
        .build();
    let program = program.unwrap_or_else(|error| panic!("{error}"));
    device.kernel(&program, "main", &Constants::new()).unwrap()
}

/// Runs `kernel` with `out` bound, of `len` words, which are poisoned before; as large as `sized` makes it. How it ended.
pub fn run_with(
    kernel: &Kernel,
    services: &HostServices,
    len: usize,
    sized: impl FnOnce(Launch) -> Launch,
) -> (DeviceBuffer<u32>, Result<(), WaitError>) {
    let out = kernel.device().buffer(&vec![0xDEAD_BEEFu32; len]).unwrap();
    let launch = kernel.launch().services(services).buffer("out", &out);
    let event = sized(launch).submit().unwrap();
    let result = event.wait_timeout(Duration::from_secs(60));
    (out, result)
}

/// What functions of the host answer in tests.
pub fn mix(x: u32) -> u32 {
    (x ^ 0x9E37_79B9).wrapping_mul(0x85EB_CA6B).rotate_left(13)
}

/// Runs a part of a test on a stack of 16 MiB. Debug builds copy a value of a megabyte from frame to frame, and the first
/// thread of a process has 1 or 2 MiB on Windows.
pub fn with_large_stack(part: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(16 << 20);
        let thread = builder.spawn_scoped(scope, part).unwrap();
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}
