//! All kinds of work at once, in a program that a panic ends wherever it happens, also where the runtime would contain
//! it: what `panic = "abort"` makes of any program.

use std::process::{Command, ExitCode};

use crate::harness::Fixture;
use crate::{cases, stress_work};
use tombolo::{Context, DeviceOptions};

cases![
    nothing_panics_while_everything_runs,
    nothing_panics_with_copies
];

/// Has the program do the work instead of testing: on the adapter of that name, with copies if the name ends in `+`.
const ADAPTER: &str = "TOMBOLO_TEST_STRESS";
const ROUNDS: u32 = 150;

/// The work, in a process that ends at the first panic.
pub fn as_another_program() -> Option<ExitCode> {
    let adapter = std::env::var(ADAPTER).ok()?;
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        std::process::abort();
    }));
    let (name, with_copies) = match adapter.strip_suffix('+') {
        Some(name) => (name, true),
        None => (adapter.as_str(), false),
    };
    let mut options = DeviceOptions::default();
    options.live_memory = !with_copies;
    options.import_host_memory = !with_copies;
    let device = Context::new().and_then(|context| context.device_named_with(name, options));
    let rounds = if with_copies { ROUNDS / 4 } else { ROUNDS };
    let done = match device {
        Ok(device) => stress_work::run(&device, rounds).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

fn run(f: &Fixture, with_copies: bool) {
    let name = format!("{}{}", f.device.name(), if with_copies { "+" } else { "" });
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).env(ADAPTER, name).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(!said.contains("panicked"), "{said}");
}

fn nothing_panics_while_everything_runs(f: &Fixture) {
    run(f, false);
}

fn nothing_panics_with_copies(f: &Fixture) {
    run(f, true);
}
