//! Searches a file that the system has mapped into memory, in one launch: the kernel follows the host's own pointer into it, and
//! notes what it finds in a vector of the host's. Nothing is copied by the program. Where the device cannot use the memory where
//! it is, pages travel when the kernel misses them, and the pool that holds them is smaller than the file. The lines with
//! a match are as many as `grep -c` counts, where the system has it.

#[path = "../support/mod.rs"]
mod support;

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::Parser;
use memmap2::Mmap;
use tombolo::bytemuck::{Pod, Zeroable};
use tombolo::kernel::{KernelOptions, TranslationMode};
use tombolo::system::{SystemMemory, SystemRun};
use tombolo::{Constants, Context, Device, Program, Ptr};

use support::text::grouped;

/// Matches that are noted.
const ROOM: usize = 1 << 16;
/// Bytes of the text for each invocation, as search.wgsl has it.
const BYTES: u32 = 16;

/// Searches a mapped file on the GPU.
///
/// The exit status is 0 only if the places are those that the host finds.
#[derive(Parser)]
#[command(after_help = support::ADAPTERS)]
struct Arguments {
    /// A file of less than 4 GB. Without it a text is made up.
    file: Option<PathBuf>,
    /// What to search for.
    #[arg(long, default_value = "tombolo")]
    pattern: String,
    /// MB of the text that is made up.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=4000))]
    size: u64,
    /// MB of the device's memory that hold pages at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pool: u64,
    /// Copy pages also where the device could use them where they are.
    #[arg(long)]
    copies: bool,
}

/// The uniform `task` of search.wgsl.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Task {
    text_bytes: u32,
    pattern_bytes: u32,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    support::run(|| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    if arguments.pattern.is_empty() {
        return Err("there is nothing to search for".into());
    }
    let device = Context::new()?.device()?;
    show("adapter", device.name());
    let made = tempfile::tempdir()?;
    let path = match &arguments.file {
        Some(path) => path.clone(),
        None => {
            let path = made.path().join("text.txt");
            write_text(&path, arguments.size << 20, &arguments.pattern)?;
            path
        }
    };
    let file = File::open(&path)?;
    // SAFETY: nobody changes the file meanwhile; the one made up is this program's alone.
    let text = unsafe { Mmap::map(&file) }?;
    let bytes = grouped(text.len() as u64);
    show("file", &format!("{} of {bytes} bytes", path.display()));

    let start = Instant::now();
    let (found, cost) = search(&device, &text, arguments)?;
    let time = start.elapsed();
    show(
        "kernel",
        &format!("{} matches after {time:.1?}", found.len()),
    );
    show(
        "cost",
        &format!(
            "{} parts, {} launches, {} pages copied, {} dropped, {} in place",
            cost.parts, cost.launches, cost.pages, cost.pages_dropped, cost.pages_in_place
        ),
    );

    let pattern = arguments.pattern.as_bytes();
    let start = Instant::now();
    let expected: Vec<u32> = (0u32..)
        .zip(text.windows(pattern.len()))
        .filter(|(_, window)| *window == pattern)
        .map(|(place, _)| place)
        .collect();
    show("host", &format!("{:.1?} for the same", start.elapsed()));
    let lines = lines_with(&text, &found);
    let counted = grep(&path, &arguments.pattern);
    let told = counted.map_or("not there".to_owned(), |lines| lines.to_string());
    show("grep -c", &format!("{told} lines, the kernel {lines}"));
    let is_equal = found == expected && counted.is_none_or(|counted| counted == lines);
    show("self-check", if is_equal { "equal" } else { "different" });
    Ok(is_equal)
}

fn show(what: &str, value: &str) {
    println!("{:12}{value}", format!("{what}:"));
}

/// The places of the pattern, in order, and what it took to find them.
fn search(
    device: &Device,
    text: &[u8],
    arguments: &Arguments,
) -> Result<(Vec<u32>, SystemRun), Box<dyn Error>> {
    let text_bytes = u32::try_from(text.len())
        .ok()
        .filter(|bytes| *bytes <= 4000 << 20)
        .ok_or("places are numbers of 32 bits: the file is too large for one launch")?;
    let program = Program::new("search.wgsl", include_str!("search.wgsl"))?;
    let options = KernelOptions::default().pointers(TranslationMode::System);
    let kernel = device.kernel_with(&program, "main", &Constants::new(), options)?;
    let letters: Vec<u32> = arguments.pattern.bytes().map(u32::from).collect();
    let pattern = device.buffer(&letters)?;

    let mut findings = vec![0u32; 2 + ROOM];
    findings[1] = ROOM as u32;
    let mut memory = SystemMemory::new();
    memory.set_pool_bytes(arguments.pool << 20);
    memory.set_in_place(!arguments.copies);
    let whole: Ptr<u8> = memory.lend(text);
    let kept = memory.lend_mut(&mut findings);
    let task = Task {
        text_bytes,
        pattern_bytes: letters.len() as u32,
    };
    let run = (kernel.launch())
        .value("text", &whole)
        .value("findings", &kept)
        .value("task", &task)
        .buffer("pattern", &pattern)
        .invocations(text_bytes.div_ceil(BYTES))
        .run_system(&mut memory)?;
    drop(memory);
    let count = findings[0] as usize;
    let mut found = match findings.get(2..2 + count) {
        Some(found) => found.to_vec(),
        None => return Err(format!("{count} matches, of which {ROOM} can be noted").into()),
    };
    found.sort_unstable();
    Ok((found, run))
}

/// Lines in which a match begins, of matches in order.
fn lines_with(text: &[u8], matches: &[u32]) -> u64 {
    let mut end = 0;
    let mut lines = 0;
    for at in matches.iter().map(|at| *at as usize) {
        if at < end {
            continue;
        }
        lines += 1;
        let rest = text[at..].iter().position(|byte| *byte == b'\n');
        end = rest.map_or(text.len(), |rest| at + rest + 1);
    }
    lines
}

/// The lines with a match, as `grep` counts them; `None` where there is no such program, or lines are searched for.
fn grep(path: &Path, pattern: &str) -> Option<u64> {
    if pattern.contains('\n') {
        return None;
    }
    let output = Command::new("grep")
        .env("LC_ALL", "C")
        .args(["-a", "-c", "-F", "-e", pattern, "--"])
        .arg(path)
        .output()
        .ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// Writes a text in which the pattern is rare, and lies across borders of pages, too.
fn write_text(path: &Path, bytes: u64, pattern: &str) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut written = 0;
    while written < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = match state % 997 {
            0 => pattern.to_owned(),
            1 => pattern.chars().rev().collect(),
            _ => format!("{:x}", state >> 40),
        };
        written += word.len() as u64 + 1;
        let end = if state.is_multiple_of(11) { "\n" } else { " " };
        file.write_all(word.as_bytes())?;
        file.write_all(end.as_bytes())?;
    }
    file.flush()
}
