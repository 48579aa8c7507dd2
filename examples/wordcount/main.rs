//! A program whose logic is the kernel's: it takes its file from the arguments, opens it, reads it piece by piece into
//! memory that it has allocated, counts its words on the GPU, and prints the most frequent ones itself. The host
//! grants a folder, launches until the kernel says that it is done, and counts once more to compare.

mod reference;
#[path = "../support/mod.rs"]
mod support;

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::Parser;
use tombolo::{Constants, Context, DeviceOptions, HostServices, Program, calls::FileAccess};

use reference::Counts;
use support::text::grouped;

/// Bytes that the kernel may allocate: sixteen pieces of a file.
const MEMORY: u64 = 16 * (129 << 10);

/// Counts the words of a file on the GPU, by a program that is a kernel.
///
/// The exit status is 0 only if the kernel ended well and its table is the host's.
#[derive(Parser)]
#[command(after_help = support::ADAPTERS)]
struct Arguments {
    /// A file of any size. Without it a text is made up.
    file: Option<PathBuf>,
    /// Bytes of that text, in MB.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=4096))]
    size: u64,
    /// Treat the device as one with memory of its own, where a kernel does not see what the host writes meanwhile:
    /// the file then travels in the calls themselves, by blocks.
    #[arg(long)]
    blocks: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    support::run(|| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let context = Context::new()?;
    let options = DeviceOptions::default().unified_memory(arguments.blocks.then_some(false));
    let device = context.device_with(options)?;
    show("adapter", device.name());
    let made = tempfile::tempdir()?;
    let path = match &arguments.file {
        Some(path) => path.canonicalize()?,
        None => {
            let path = made.path().join("words.txt");
            reference::write_text(&path, arguments.size * 1_000_000)?;
            path
        }
    };
    let bytes = path.metadata()?.len();
    show(
        "file",
        &format!("{} of {} bytes", path.display(), grouped(bytes)),
    );

    let start = Instant::now();
    let printed = Printed::default();
    let code = count_words(&device, &path, &printed)?;
    // Most of that is the drivers' compilers' for texts of a few MB.
    let time = start.elapsed();
    show("kernel", &format!("exit status {code} after {time:.1?}"));
    if code != 0 {
        return Ok(false);
    }

    let start = Instant::now();
    let counts = Counts::of(&path)?;
    show("host", &format!("{:.1?} for the same", start.elapsed()));
    let table = printed.0.lock().unwrap_or_else(PoisonError::into_inner);
    let difference = counts.difference(&table);
    show("self-check", difference.as_deref().unwrap_or("equal"));
    Ok(difference.is_none())
}

fn show(what: &str, value: &str) {
    println!("{:12}{value}", format!("{what}:"));
}

/// What the kernel writes to its standard output: shown, and kept.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::stdout().write_all(bytes)?;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().flush()
    }
}

/// All that the host does: grants, and launches. The kernel's exit status.
fn count_words(
    device: &tombolo::Device,
    path: &Path,
    printed: &Printed,
) -> Result<u32, Box<dyn Error>> {
    let folder = path.parent().ok_or("the file is in no folder")?;
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or("the file's name is no UTF-8")?;
    let access = FileAccess::new()
        .read_only(folder)?
        .stdout(printed.clone())
        .stderr(std::io::stderr());
    let services = HostServices::builder()
        .files(access)
        .memory(&device.heap()?, MEMORY)
        .arguments(["wordcount", name])
        .exit()
        .start()?;
    let source = include_str!("wordcount.wgsl");
    let program = Program::builder()
        .source("wordcount.wgsl", source)
        .services(&services)
        .build()?;
    let main = device.kernel(&program, "main", &Constants::new())?;
    let count = device.kernel(&program, "count", &Constants::new())?;
    let work = device.buffer(&[0u32; 3])?;
    loop {
        let launch = main.launch().services(&services).buffer("work", &work);
        launch.workgroups(1).submit()?;
        let launch = count.launch().services(&services);
        launch.indirect(&work, 0).submit()?.wait()?;
        if let Some(code) = services.exit_status() {
            return Ok(code);
        }
    }
}
