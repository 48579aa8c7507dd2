//! Printing: a line of each invocation on the standard output, which is led into a file meanwhile.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use opencl3::kernel::Kernel;
use opencl3::memory::Buffer;
use tombolo::{Device, DeviceBuffer, Launch, PrintOptions};

use crate::meter::Meter;
use crate::opencl::Pocl;
use crate::{Error, support};

/// Lines of a run.
const LINES: u32 = 1 << 18;
const GROUP: u32 = 64;
/// Room for all of them: 12 bytes, and 4 for each number.
const ROOM: u64 = LINES as u64 * 20;

fn number(line: u32) -> f32 {
    (line % 1000) as f32 * 0.125
}

/// The standard output, led into a file until this is dropped.
struct Redirected {
    file: File,
    /// What every run prints, in order.
    lines: Vec<String>,
    /// Where it led before.
    before: OwnedFd,
}

impl Redirected {
    fn new() -> Result<Self, Error> {
        let path = std::env::temp_dir().join(format!("tombolo-peers-{}", std::process::id()));
        let mut options = File::options();
        let file = (options.read(true).write(true).create_new(true)).open(&path)?;
        // The file is there until nobody has it open.
        std::fs::remove_file(&path)?;
        flush()?;
        let before = std::io::stdout().as_fd().try_clone_to_owned()?;
        lead(file.as_fd())?;
        let line = |line| format!("line {line} has {:.3}", number(line));
        let mut lines: Vec<String> = (0..LINES).map(line).collect();
        lines.sort_unstable();
        Ok(Self {
            file,
            lines,
            before,
        })
    }

    /// Forgets what was printed, prints, and fails unless as many bytes are there as all lines have.
    fn run(&self, print: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        self.file.set_len(0)?;
        // The standard output has the same position.
        (&self.file).rewind()?;
        print()?;
        flush()?;
        let bytes: usize = self.lines.iter().map(|line| line.len() + 1).sum();
        match self.file.metadata()?.len() == bytes as u64 {
            true => Ok(()),
            false => Err("fewer bytes, or more, were printed than all lines have".into()),
        }
    }

    /// Fails unless the last run has printed every line once; lines of invocations come in no particular order.
    fn check(&self, side: &str) -> Result<(), Error> {
        let mut text = String::new();
        (&self.file).rewind()?;
        (&self.file).read_to_string(&mut text)?;
        let mut found: Vec<&str> = text.lines().collect();
        found.sort_unstable();
        match found == self.lines {
            true => Ok(()),
            false => Err(format!("{side} has printed other lines than the kernel prints").into()),
        }
    }
}

impl Drop for Redirected {
    fn drop(&mut self) {
        // Nothing can be done about an output that is lost.
        let _ = flush();
        let _ = lead(self.before.as_fd());
    }
}

/// Leads the standard output elsewhere.
fn lead(to: BorrowedFd) -> Result<(), Error> {
    // SAFETY: both descriptors are open, and Rust's standard output has no other state than its buffer.
    match unsafe { libc::dup2(to.as_raw_fd(), libc::STDOUT_FILENO) } {
        -1 => Err(std::io::Error::last_os_error().into()),
        _ => Ok(()),
    }
}

/// Brings out what Rust and C keep.
fn flush() -> Result<(), Error> {
    std::io::stdout().flush()?;
    // SAFETY: null means all streams, which lock themselves.
    match unsafe { libc::fflush(std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}

fn ours(device: &Device) -> Result<(Launch, DeviceBuffer<f32>), Error> {
    let numbers: Vec<f32> = (0..LINES).map(number).collect();
    let numbers = device.buffer(&numbers)?;
    let kernel = support::ours(device, include_str!("kernels/print.wgsl"))?;
    let launch = (kernel.launch().buffer("x", &numbers))
        .print_to(PrintOptions::default().capacity(ROOM))
        .workgroups(LINES / GROUP);
    Ok((launch, numbers))
}

fn theirs(pocl: &Pocl) -> Result<(Kernel, Buffer<u8>), Error> {
    let numbers: Vec<f32> = (0..LINES).map(number).collect();
    let numbers = pocl.buffer(bytemuck::cast_slice(&numbers))?;
    let kernel = pocl.kernel("lines", [&numbers])?;
    Ok((kernel, numbers))
}

/// All lines are in the file when a run ends.
pub fn print_lines(meter: Meter, device: &Device, pocl: &Pocl) -> Result<Vec<f64>, Error> {
    let (mut launch, _here) = ours(device)?;
    let (kernel, _there) = theirs(pocl)?;
    let output = Redirected::new()?;
    let mut ours = || output.run(|| Ok(launch.submit()?.wait()?));
    let mut theirs = || {
        output.run(|| {
            pocl.launch(&kernel, [GROUP, 1, 1], [LINES / GROUP, 1, 1])?;
            pocl.finish()
        })
    };
    let check = |ours: &mut dyn FnMut() -> Result<(), Error>,
                 theirs: &mut dyn FnMut() -> Result<(), Error>| {
        ours()?;
        output.check("Tombolo")?;
        theirs()?;
        output.check("PoCL")
    };
    check(&mut ours, &mut theirs)?;
    let ratios = meter.pairs(&mut ours, &mut theirs)?;
    check(&mut ours, &mut theirs)?;
    Ok(ratios)
}
