//! Failing ranks, and the reports to the other ranks: each scenario is a separate program, started by this program with
//! `mpirun`.
//!
//! A scenario prints the observations of its ranks, a line for each, and the test looks for the lines.

#[path = "ranks/filters.rs"]
mod filters;
#[path = "ranks/watchdog.rs"]
mod watchdog;

use std::future::{Future as _, IntoFuture as _, poll_fn};
use std::pin::pin;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use filters::Filters;
use tombolo_mpi::{Mpi, MpiError, Operator, Options};
use watchdog::Watchdog;

/// The variable with the name of the scenario played by a process.
const SCENARIO: &str = "TOMBOLO_MPI_SCENARIO";

/// How long a scenario may take at most.
const MOST: Duration = Duration::from_secs(60);

type Scenario = (&'static str, u32, fn(), fn(&Output, &[String]));

const SCENARIOS: &[Scenario] = &[
    ("an_error_is_told", 4, an_error_is_told, saw_the_error),
    ("a_panic_is_told", 3, a_panic_is_told, saw_the_panic),
    (
        "unequal_calls_meet_a_deadline",
        3,
        unequal_calls,
        saw_deadlines,
    ),
    (
        "counts_beyond_what_mpi_has",
        3,
        small_counts,
        saw_equal_values,
    ),
    ("handles_outlive_their_session", 2, outliving, saw_the_end),
    ("a_killed_rank_ends_all", 3, killed, saw_the_kill),
    ("nothing_is_started_twice", 1, twice, saw_one_start),
];

fn main() {
    if let Ok(name) = std::env::var(SCENARIO) {
        let found = SCENARIOS.iter().find(|(known, ..)| *known == name);
        let (_, _, play, _) = found.expect("the scenario is known");
        // Ranks outlive a killed launcher.
        let watchdog = Watchdog::start(MOST);
        watchdog.begin(&name);
        return play();
    }
    let filters = Filters::from_args();
    for (name, ranks, _, judge) in SCENARIOS.iter().filter(|(name, ..)| filters.want(name)) {
        let output = start(name, *ranks);
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        eprintln!("{name}: {lines:?}");
        judge(&output, &lines);
    }
    println!("scenarios of processes passed");
}

/// Plays a scenario on some ranks, and fails if the ranks do not come to an end.
fn start(name: &str, ranks: u32) -> Output {
    let program = std::env::current_exe().expect("the program has a name");
    let mut command = Command::new("mpirun");
    command.args([
        "-n",
        &ranks.to_string(),
        "--oversubscribe",
        "--allow-run-as-root",
    ]);
    command.arg(program).env(SCENARIO, name);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("mpirun starts");
    let begun = Instant::now();
    while child.try_wait().expect("mpirun is waited for").is_none() {
        if begun.elapsed() > 2 * MOST {
            let _ = child.kill();
            panic!("{name} is not over within {:?}", 2 * MOST);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().expect("mpirun is waited for")
}

fn options(timeout: Duration) -> Options {
    let mut options = Options::default();
    options.timeout = Some(timeout);
    options
}

/// One write for the whole line, so that lines of ranks do not mix.
fn say(line: String) {
    use std::io::Write as _;
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}

/// Rank 2 ends with an error; the others wait for a message of rank 2, for all ranks, and begin something new.
fn an_error_is_told() {
    let mut told = Vec::new();
    let done = Mpi::run(options(MOST), |ranks| -> Result<(), MpiError> {
        match ranks.rank() {
            2 => ranks.send(vec![0u8], 99, 0).map(|_| ()),
            0 => {
                let error = ranks.receive(vec![0u8; 4], 2, 1).unwrap_err();
                told.push(format!("0 {error}"));
                let error = ranks.isend(vec![0u8; 4], 1, 1).unwrap_err();
                told.push(format!("0 again {error}"));
                Ok(())
            }
            rank => {
                told.push(format!("{rank} {}", ranks.barrier().unwrap_err()));
                Ok(())
            }
        }
    });
    told.into_iter().for_each(say);
    if let Err(error) = done {
        say(format!("own {error}"));
    }
}

fn saw_the_error(output: &Output, lines: &[String]) {
    let cause = "rank 2 has failed: send with rank 99, tag 0: there are 4 ranks, from 0 on";
    let expected = [
        format!("0 again send with rank 1, tag 1: {cause}"),
        format!("0 receive with rank 2, tag 1: {cause}"),
        format!("1 barrier: {cause}"),
        format!("3 barrier: {cause}"),
        "own send with rank 99, tag 0: there are 4 ranks, from 0 on".to_owned(),
    ];
    assert_eq!(lines, expected);
    assert!(output.status.success());
}

fn a_panic_is_told() {
    let mpi = Mpi::start_with(options(MOST)).unwrap();
    let ranks = mpi.ranks();
    if ranks.rank() == 1 {
        // Not a message of the test's own: the panic is contained, and the session ends during the unwinding.
        let work = std::panic::AssertUnwindSafe(move || {
            let _mpi = mpi;
            panic!("on purpose");
        });
        assert!(std::panic::catch_unwind(work).is_err());
        return;
    }
    let error = ranks.receive(vec![0u8; 4], 1, 0).unwrap_err();
    say(format!("{} {error}", ranks.rank()));
}

fn saw_the_panic(_: &Output, lines: &[String]) {
    let told = "receive with rank 1, tag 0: rank 1 has failed: its program has panicked";
    assert_eq!(lines, [format!("0 {told}"), format!("2 {told}")]);
}

/// Rank 0 reduces, and the others have forgotten to.
fn unequal_calls() {
    let mpi = Mpi::start_with(options(Duration::from_millis(200))).unwrap();
    let ranks = mpi.ranks();
    if ranks.rank() == 0 {
        let reduced = ranks.allreduce(vec![1u32; 10], vec![0u32; 10], Operator::Sum);
        match reduced {
            Err(MpiError::Deadline { operation, waited })
                if waited >= Duration::from_millis(200) =>
            {
                say(format!("deadline of {operation}"));
            }
            other => say(format!("{other:?}")),
        }
    }
}

fn saw_deadlines(_: &Output, lines: &[String]) {
    assert_eq!(lines, ["deadline of allreduce"]);
}

/// Counts of MPI are taken to end at 1000: memory goes in blocks, and is reduced in pieces.
fn small_counts() {
    const LEN: usize = 12_345;
    let mut options = options(MOST);
    options.most_count = 1000;
    let mpi = Mpi::start_with(options).unwrap();
    let ranks = mpi.ranks();
    let (rank, size) = (ranks.rank(), ranks.size());
    let of = |rank: i32| -> Vec<u32> {
        (0..LEN as u32)
            .map(|at| at * 3 + rank as u32 * 1_000_003)
            .collect()
    };
    let poison = || vec![0xdead_beefu32; LEN];
    let (_, received) = ranks
        .send_receive(of(rank), ranks.after(1), poison(), ranks.before(1), 0)
        .unwrap();
    assert_eq!(received, of(ranks.before(1)));
    let data = if rank == 1 { of(1) } else { poison() };
    assert_eq!(ranks.broadcast(data, 1).unwrap(), of(1));
    let mut sum = vec![0u32; LEN];
    for other in 0..size {
        sum.iter_mut()
            .zip(of(other))
            .for_each(|(sum, value)| *sum += value);
    }
    let (_, all) = ranks.allreduce(of(rank), poison(), Operator::Sum).unwrap();
    assert_eq!(all, sum);
    let into = (rank == 0).then(|| vec![0xdead_beefu32; LEN * size as usize]);
    let (_, gathered) = ranks.gather(of(rank), into, 0).unwrap();
    let expected: Vec<u32> = (0..size).flat_map(of).collect();
    assert!(gathered.as_ref().is_none_or(|all| *all == expected));
    let (_, own) = ranks.scatter(gathered, poison(), 0).unwrap();
    assert_eq!(own, of(rank));
    let sent = ranks.isend(of(rank), ranks.after(1), 1).unwrap();
    let short = ranks.receive(vec![0u32; LEN - 1], ranks.before(1), 1);
    assert!(
        matches!(short, Err(MpiError::Truncated { .. })),
        "{short:?}"
    );
    let _ = sent.wait();
    say(format!("{rank} equal"));
}

fn saw_equal_values(_: &Output, lines: &[String]) {
    assert_eq!(lines, ["0 equal", "1 equal", "2 equal"]);
}

/// Handles, a receive without end, and a thread awaiting an operation never begun by others are still there when the session
/// is not.
fn outliving() {
    let mpi = Mpi::start_with(options(MOST)).unwrap();
    let ranks = mpi.ranks();
    let never = ranks.ireceive(vec![0u8; 100], ranks.after(1), 7).unwrap();
    ranks.barrier().unwrap();
    // The other rank makes no such call.
    let waiting = (ranks.rank() == 0).then(|| {
        let (begun, is_begun) = channel();
        let others = ranks.clone();
        let thread = std::thread::spawn(move || {
            let mut all = pin!(others.ibarrier().unwrap().into_future());
            pollster::block_on(poll_fn(|context| {
                let polled = all.as_mut().poll(context);
                let _ = begun.send(());
                polled
            }))
        });
        is_begun.recv_timeout(MOST).unwrap();
        thread
    });
    drop(mpi);
    if let Some(thread) = waiting {
        let error = thread.join().unwrap().unwrap_err();
        assert!(matches!(error, MpiError::Finalized { .. }), "{error}");
    }
    let error = ranks.isend(vec![1u8], 0, 0).unwrap_err();
    assert!(matches!(error, MpiError::Finalized { .. }), "{error}");
    let error = never.wait().unwrap_err();
    assert!(matches!(error, MpiError::Finalized { .. }), "{error}");
    say(format!("{} outlived", ranks.rank()));
}

fn saw_the_end(output: &Output, lines: &[String]) {
    assert_eq!(lines, ["0 outlived", "1 outlived"]);
    assert!(output.status.success());
}

fn twice() {
    let mpi = Mpi::start().unwrap();
    let second = Mpi::start().unwrap_err();
    assert!(matches!(second, MpiError::AlreadyInitialized), "{second}");
    assert_eq!(mpi.ranks().size(), 1);
    drop(mpi);
    assert!(matches!(Mpi::start(), Err(MpiError::AlreadyInitialized)));
    say("once".to_owned());
}

fn saw_one_start(_: &Output, lines: &[String]) {
    assert_eq!(lines, ["once"]);
}

/// Rank 1 is ended from outside. Open MPI's launcher ends all ranks then, and there is nothing left to be reported.
fn killed() {
    let mpi = Mpi::start_with(options(MOST)).unwrap();
    let ranks = mpi.ranks();
    ranks.barrier().unwrap();
    if ranks.rank() == 1 {
        std::process::abort();
    }
    let error = ranks.receive(vec![0u8; 4], 1, 0).unwrap_err();
    assert!(
        matches!(
            error,
            MpiError::RankFailed { .. } | MpiError::Library { .. }
        ),
        "{error}"
    );
}

fn saw_the_kill(output: &Output, lines: &[String]) {
    assert!(!output.status.success());
    assert_eq!(lines, [""; 0]);
}
