//! Searches a file that the system has mapped into memory: the kernel follows the host's own pointer into it, and notes
//! what it finds in a vector of the host's. Nothing is copied by the program. Where the device cannot use the memory where
//! it is, pages travel when the kernel misses them, and the pool that holds them is smaller than the file.

#[path = "../support/mod.rs"]
mod support;

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use memmap2::Mmap;
use tombolo::bytemuck::{Pod, Zeroable};
use tombolo::kernel::{KernelOptions, TranslationMode};
use tombolo::system::{SystemMemory, SystemRun};
use tombolo::{Constants, Context, Device, Program, Ptr};

use support::text::grouped;

/// Matches noted for each part of the text.
const ROOM: usize = 1 << 16;

/// Searches a mapped file on the GPU.
///
/// The exit status is 0 only if the places are those that the host finds.
#[derive(Parser)]
#[command(after_help = support::ADAPTERS)]
struct Arguments {
    /// A file of any size. Without it a text is made up.
    file: Option<PathBuf>,
    /// What to search for.
    #[arg(long, default_value = "tombolo")]
    pattern: String,
    /// MB of the text that is made up.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4096))]
    size: u64,
    /// MB of the device's memory that hold pages at once.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pool: u64,
    /// MB of the text that a launch searches.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=512))]
    part: u64,
    /// Copy pages also where the device could use them where they are.
    #[arg(long)]
    copies: bool,
}

/// The uniform `part` of search.wgsl.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Part {
    starts: u32,
    rest: u32,
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
            "{} launches, {} pages copied, {} pages in place",
            cost.0, cost.1, cost.2
        ),
    );

    let pattern = arguments.pattern.as_bytes();
    let start = Instant::now();
    let expected: Vec<u64> = (0u64..)
        .zip(text.windows(pattern.len()))
        .filter(|(_, window)| *window == pattern)
        .map(|(place, _)| place)
        .collect();
    show("host", &format!("{:.1?} for the same", start.elapsed()));
    let is_equal = found == expected;
    show("self-check", if is_equal { "equal" } else { "different" });
    Ok(is_equal)
}

fn show(what: &str, value: &str) {
    println!("{:12}{value}", format!("{what}:"));
}

/// Launches, copied pages and pages in place.
type Cost = (u32, u64, u64);

/// The places of the pattern, in order, and what it took to find them.
fn search(
    device: &Device,
    text: &[u8],
    arguments: &Arguments,
) -> Result<(Vec<u64>, Cost), Box<dyn Error>> {
    let program = Program::new("search.wgsl", include_str!("search.wgsl"))?;
    let mut options = KernelOptions::default();
    options.pointers = TranslationMode::System;
    let kernel = device.kernel_with(&program, "main", &Constants::new(), options)?;
    let letters: Vec<u32> = arguments.pattern.bytes().map(u32::from).collect();
    let pattern = device.buffer(&letters)?;

    let mut places = Vec::new();
    let mut cost = (0, 0, 0);
    // In words, and so that each begins at a word.
    let part_bytes = (arguments.part << 20) as usize;
    for start in (0..text.len()).step_by(part_bytes) {
        let mut findings = vec![0u32; 2 + ROOM];
        findings[1] = ROOM as u32;
        let mut memory = SystemMemory::new();
        memory.set_pool_bytes(arguments.pool << 20);
        memory.set_in_place(!arguments.copies);
        let whole: Ptr<u8> = memory.lend(text);
        let kept = memory.lend_mut(&mut findings);
        let starts = part_bytes.min(text.len() - start);
        let part = Part {
            starts: starts as u32,
            rest: (text.len() - start).min(u32::MAX as usize) as u32,
            pattern_bytes: letters.len() as u32,
        };
        let run: SystemRun = (kernel.launch())
            .value("text", &whole.byte_add(start as u64))
            .value("findings", &kept)
            .value("part", &part)
            .buffer("pattern", &pattern)
            .invocations(starts.div_ceil(4) as u32)
            .run_system(&mut memory)?;
        drop(memory);
        cost.0 += run.launches;
        cost.1 += run.pages;
        cost.2 += run.pages_in_place;
        let count = findings[0] as usize;
        if count > ROOM {
            return Err(format!("{count} matches in one part: choose a smaller --part").into());
        }
        let mut found: Vec<u64> = findings[2..2 + count]
            .iter()
            .map(|at| start as u64 + u64::from(*at))
            .collect();
        found.sort_unstable();
        places.append(&mut found);
    }
    Ok((places, cost))
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
