//! What the adapters of this machine are, what they can do, and how the runtime will run on them.

mod file;
mod report;
#[path = "../support/mod.rs"]
mod support;
mod table;

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use tombolo::Context;

use report::Report;

/// Examines the compute adapters of this machine.
///
/// For each: what it is, its limits, what tiny kernels measured on it, which aspects it has, and in
/// which tier each capability of the runtime will run, and why. The exit status is 0 if there is an
/// adapter, all could be opened, and every measurement was completed.
#[derive(Parser)]
#[command(after_help = "\
All adapters are examined, whichever WGPU_ADAPTER_NAME chooses for other programs. WGPU_BACKEND
restricts the search to a backend (vulkan, metal, dx12, gl; noop is the adapter compiled in).")]
struct Arguments {
    /// Only adapters whose name contains NAME, in any case.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    adapter: String,
    /// One JSON object, for tools.
    #[arg(long)]
    json: bool,
    /// One file for an issue: versions, the system, environment variables that matter, and all that
    /// was found.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    report: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    support::run(|| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let context = match (Context::new(), &arguments.report) {
        (Ok(context), _) => context,
        (Err(error), Some(path)) => {
            write(path, &Report::without_adapters(&error))?;
            return Err(error.into());
        }
        (Err(error), None) => return Err(error.into()),
    };
    let report = Report::new(&context, &arguments.adapter);
    if report.adapters.is_empty() {
        let names: Vec<_> = context.adapters().into_iter().map(|a| a.name).collect();
        let wanted = &arguments.adapter;
        return Err(format!(
            "no adapter's name contains `{wanted}`; there are: {}",
            names.join(", ")
        )
        .into());
    }
    if let Some(path) = &arguments.report {
        write(path, &report)?;
        return Ok(report.holds());
    }
    let text = if arguments.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        table::page(&report)
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // `doctor | head` is no failure of the doctor.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(report.holds()),
    }
}

/// Writes the file for an issue, and says so.
fn write(path: &Path, report: &Report) -> Result<(), Box<dyn Error>> {
    let text = file::text(report, environment())?;
    std::fs::write(path, text)
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    println!(
        "{} is written; look it through before it goes to anybody",
        path.display()
    );
    Ok(())
}

/// The environment; what is no text is shown as far as it is.
fn environment() -> impl Iterator<Item = (String, String)> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(move |(name, value)| (text(name), text(value)))
}
