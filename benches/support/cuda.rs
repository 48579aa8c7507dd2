//! CUDA as a peer: a program that does a row's work when it is asked, in a process of its own.
//!
//! The program reads lines `<row> <times>`, and answers each with the nanoseconds that the work took. It says `ready` first.

#![allow(dead_code)] // Each bench uses its part.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::measure::{Error, seconds};

/// Said where [`Peer::start`] finds no compiler.
pub const ABSENT: &str = "no CUDA here: nvcc is neither in the path nor below /usr/local/cuda";

/// The peer, waiting for the next row.
pub struct Peer {
    process: Child,
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    pairs: usize,
}

impl Peer {
    /// Compiles the peer from its source, with these arguments of `nvcc`, and starts it; `None` where there is no compiler.
    /// Rows are measured in so many pairs.
    pub fn start(source: &str, arguments: &[&str], pairs: usize) -> Result<Option<Self>, Error> {
        let folder = std::env::temp_dir().join(format!("tombolo-cuda-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let started = Self::start_in(&folder, source, arguments, pairs);
        // The program runs on without its file.
        fs::remove_dir_all(&folder)?;
        started
    }

    fn start_in(
        folder: &Path,
        text: &str,
        arguments: &[&str],
        pairs: usize,
    ) -> Result<Option<Self>, Error> {
        let (source, program) = (folder.join("peer.cu"), folder.join("peer"));
        fs::write(&source, text)?;
        let compile = |nvcc: &str| {
            Command::new(nvcc)
                .args(["-O3", "-std=c++17", "-arch=native", "-o"])
                .args([&program, &source])
                .args(arguments)
                .status()
        };
        let status = match compile("nvcc").or_else(|_| compile("/usr/local/cuda/bin/nvcc")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            status => status?,
        };
        if !status.success() {
            return Err(format!("nvcc has refused the peer: {status}").into());
        }
        let mut process = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let ask = process.stdin.take().ok_or("the peer has no input")?;
        let answers = process.stdout.take().ok_or("the peer has no output")?;
        let mut answers = BufReader::new(answers).lines();
        match answers.next().transpose()?.as_deref() {
            Some("ready") => Ok(Some(Self {
                process,
                ask,
                answers,
                pairs,
            })),
            _ => Err("the peer does not start".into()),
        }
    }

    /// Seconds that CUDA takes for the row's work.
    fn seconds(&mut self, row: &str, times: u32) -> Result<f64, Error> {
        writeln!(self.ask, "{row} {times}")?;
        let answer = self.answers.next().transpose()?;
        let nanoseconds: f64 = answer.ok_or("the peer has ended")?.parse()?;
        Ok(nanoseconds / 1e9)
    }

    /// Ratios of ours to the peer's `row`, run in turn after a warm-up.
    pub fn pairs(
        &mut self,
        row: &str,
        times: u32,
        mut ours: impl FnMut() -> Result<(), Error>,
    ) -> Result<Vec<f64>, Error> {
        let ratios: Result<Vec<f64>, Error> = (0..=self.pairs)
            .map(|_| {
                let ours = seconds(&mut ours)?;
                Ok(ours / self.seconds(row, times)?)
            })
            .collect();
        Ok(ratios?.split_off(1))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Ended already, or about to: its input is closed with this value.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
