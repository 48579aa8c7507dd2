//! The suite in several processes, one for each adapter.
//!
//! A process runs one test at a time: drivers that run on the processor do not stand more. Tests of different adapters
//! have nothing in common but the processor, and most of their time goes to compilers of kernels, which use one core
//! each. So where `TOMBOLO_TEST_PROCESSES` says how many processes may run at once, and the whole suite is asked for,
//! the program runs itself for each adapter and passes on every line. Test names begin with the adapter's, so that
//! nothing is lost in between.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;

use libtest_mimic::Arguments;

/// The environment's variable with the number of processes.
const VARIABLE: &str = "TOMBOLO_TEST_PROCESSES";

/// Runs a process for the tests of each group, whose names begin with the group's; `None` where this process is to run
/// them itself.
pub fn run(arguments: &Arguments, groups: Vec<String>) -> Option<ExitCode> {
    let most: usize = std::env::var(VARIABLE).ok()?.parse().ok()?;
    let is_whole = arguments.filter.is_none() && arguments.skip.is_empty() && !arguments.list;
    if !is_whole || most < 2 || groups.len() < 2 {
        return None;
    }
    // The last is taken first.
    let waiting = Mutex::new(groups.into_iter().rev().collect::<Vec<_>>());
    let next = || waiting.lock().unwrap_or_else(|e| e.into_inner()).pop();
    let failed: Vec<String> = thread::scope(|scope| {
        let worker = || {
            let mut failed = Vec::new();
            while let Some(group) = next() {
                if let Err(why) = run_group(&group) {
                    failed.push(format!("{group}: {why}"));
                }
            }
            failed
        };
        let workers: Vec<_> = (0..most).map(|_| scope.spawn(worker)).collect();
        (workers.into_iter())
            .flat_map(|worker| worker.join().expect("a worker does not panic"))
            .collect()
    });
    for failure in &failed {
        println!("FAILED {failure}");
    }
    Some(match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn run_group(group: &str) -> Result<(), String> {
    let told = |error: io::Error| error.to_string();
    let mut child = Command::new(std::env::current_exe().map_err(told)?)
        .args(std::env::args_os().skip(1))
        .arg(format!("{group}::"))
        .env_remove(VARIABLE)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(told)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        scope.spawn(|| pass_on(out, |line| println!("{line}")));
        scope.spawn(|| pass_on(err, |line| eprintln!("{line}")));
    });
    let status = child.wait().map_err(told)?;
    match status.success() {
        true => Ok(()),
        false => Err(status.to_string()),
    }
}

/// Passes on every line until the other side has closed the pipe.
fn pass_on(pipe: Option<impl io::Read>, print: impl Fn(&str)) {
    for line in pipe
        .into_iter()
        .flat_map(|pipe| BufReader::new(pipe).split(b'\n'))
    {
        let Ok(line) = line else {
            return;
        };
        print(&String::from_utf8_lossy(&line));
    }
}
