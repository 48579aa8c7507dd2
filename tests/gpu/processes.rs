//! The suite in several processes, some for each adapter.
//!
//! A process runs one test at a time: drivers that run on the processor do not stand more. Tests of different adapters
//! have nothing in common but the processor, and most of their time goes to compilers of kernels, which use one core
//! each. So where `TOMBOLO_TEST_PROCESSES` says how many processes may run at once, and the whole suite is asked for,
//! the program runs itself for each adapter, and for each share of an adapter with many tests, so that no processor is
//! left without work while the slowest adapter goes on. Every line is passed on. Test names begin with the adapter's, so
//! that nothing is lost in between.
//!
//! A process that succeeds is not enough: one that finds no adapter has no tests and fails none, and one that a driver
//! ends may do so with success. The last line has to tell of as many tests as this program knows ([`judge`]).

use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;

use libtest_mimic::{Arguments, Failed, Trial};

/// The environment's variable with the number of processes.
const VARIABLE: &str = "TOMBOLO_TEST_PROCESSES";

/// The environment's variable with the share of a process, as `2/3` for the last of three.
const SHARE: &str = "TOMBOLO_TEST_SHARE";

/// Shares of a group with many tests, and how many those are.
const SHARES: usize = 3;
const MANY: usize = 200;

/// What the tests of one process have in common.
#[derive(Debug, PartialEq)]
struct Group {
    /// The part of the names by which the process is told.
    filter: String,
    share: Share,
    /// Tests with it, of this share.
    tests: usize,
}

/// One of several parts of the tests with a filter, each a row of neighbours.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Share {
    number: usize,
    of: usize,
}

impl Share {
    const WHOLE: Self = Self { number: 0, of: 1 };

    /// Whether the test at a place among `all` tests is one of this share.
    fn has(self, place: usize, all: usize) -> bool {
        place * self.of / all.max(1) == self.number
    }

    fn parse(text: &str) -> Option<Self> {
        let (number, of) = text.split_once('/')?;
        let (number, of) = (number.parse().ok()?, of.parse().ok()?);
        (number < of).then_some(Self { number, of })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.share {
            Share::WHOLE => f.write_str(&self.filter),
            share => write!(f, "{} {share}", self.filter),
        }
    }
}

/// The groups of tests with these names, which begin with their group's.
fn groups(names: &[&str]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for name in names {
        let filter = format!("{}::", name.split("::").next().unwrap_or_default());
        if groups.iter().any(|known| known.filter == filter) {
            continue;
        }
        let all = names.iter().filter(|name| name.contains(&filter)).count();
        let of = if all < MANY { 1 } else { SHARES };
        groups.extend((0..of).map(|number| {
            let share = Share { number, of };
            Group {
                filter: filter.clone(),
                share,
                tests: (0..all).filter(|&place| share.has(place, all)).count(),
            }
        }));
    }
    groups
}

/// Keeps the tests of this process's share of those that `filter` asks for.
pub fn keep_share(filter: Option<&str>, trials: &mut Vec<Trial>) {
    let share = std::env::var(SHARE).ok();
    let Some(share) = share.as_deref().and_then(Share::parse) else {
        return;
    };
    let is_asked = |trial: &Trial| filter.is_none_or(|filter| trial.name().contains(filter));
    let all = trials.iter().filter(|trial| is_asked(trial)).count();
    let mut place = 0;
    trials.retain(|trial| {
        let is_ours = is_asked(trial) && share.has(place, all);
        place += usize::from(is_asked(trial));
        is_ours
    });
}

/// Whether all tests are asked for, with nothing that one process would have to say for all.
fn is_whole(arguments: &Arguments) -> bool {
    let asks = arguments.filter.is_some() || !arguments.skip.is_empty();
    let picks = arguments.exact || arguments.ignored || arguments.include_ignored;
    let tells = arguments.list || arguments.format.is_some() || arguments.logfile.is_some();
    !asks && !picks && !tells
}

/// Runs a process for each group of the tests with these names; `None` where this process is to run them itself.
pub fn run(arguments: &Arguments, names: &[&str]) -> Option<ExitCode> {
    let most: usize = std::env::var(VARIABLE).ok()?.parse().ok()?;
    let groups = groups(names);
    if !is_whole(arguments) || most < 2 || groups.len() < 2 {
        return None;
    }
    // The last is taken first.
    let waiting = Mutex::new(groups.iter().rev().collect::<Vec<_>>());
    let next = || waiting.lock().unwrap_or_else(|e| e.into_inner()).pop();
    let failed: Vec<String> = thread::scope(|scope| {
        let worker = || {
            let mut failed = Vec::new();
            while let Some(group) = next() {
                if let Err(why) = run_group(group) {
                    failed.push(format!("{group} {why}"));
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
    for group in &groups {
        println!("{group} {} tests", group.tests);
    }
    Some(match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn run_group(group: &Group) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let arguments = std::env::args_os().skip(1);
    let mut process = Command::new(program);
    let print = |line: &str, is_error: bool| match is_error {
        false => println!("{line}"),
        true => eprintln!("{line}"),
    };
    run_as(process.args(arguments).arg(&group.filter), group, print)
}

/// Runs a process for the tests of a group; `print` gets each line, and whether it was written as an error.
fn run_as(
    process: &mut Command,
    group: &Group,
    print: impl Fn(&str, bool) + Sync,
) -> Result<(), String> {
    let told = |error: io::Error| error.to_string();
    let mut child = process
        .env_remove(VARIABLE)
        .env(SHARE, group.share.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(told)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let mut summary = None;
    thread::scope(|scope| {
        scope.spawn(|| {
            pass_on(out, |line| {
                print(line, false);
                summary = passed(line).or(summary);
            });
        });
        scope.spawn(|| pass_on(err, |line| print(line, true)));
    });
    let status = child.wait().map_err(told)?;
    judge(status.success(), &status.to_string(), summary, group.tests)
}

/// The number of passed tests, in the line that comes behind all tests.
fn passed(line: &str) -> Option<usize> {
    let mut words = line.strip_prefix("test result: ")?.split(' ');
    let counted = words.by_ref().take_while(|word| *word != "passed;").last();
    counted?.parse().ok()
}

/// Whether a process has passed as many tests as it has.
fn judge(succeeded: bool, status: &str, passed: Option<usize>, tests: usize) -> Result<(), String> {
    match (succeeded, passed) {
        (false, _) => Err(status.to_owned()),
        (true, None) => Err(format!(
            "ended with {status} before its tests had: {tests} are known"
        )),
        (true, Some(passed)) if passed != tests => {
            Err(format!("passed {passed} tests of {tests} that are known"))
        }
        (true, Some(_)) => Ok(()),
    }
}

/// Passes on every line until the other side has closed the pipe.
fn pass_on(pipe: Option<impl io::Read>, mut print: impl FnMut(&str)) {
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

/// Tests of this module, which need no device.
pub fn trials() -> [Trial; 4] {
    let trial = |name: &str, test: fn()| {
        Trial::test(format!("processes::{name}"), move || {
            test();
            Ok::<_, Failed>(())
        })
    };
    [
        trial("names_make_groups", names_make_groups),
        trial("shares_make_the_whole", shares_make_the_whole),
        trial(
            "a_process_is_believed_by_its_count",
            a_process_is_believed_by_its_count,
        ),
        trial(
            "a_process_without_tests_has_not_passed",
            a_process_without_tests_has_not_passed,
        ),
    ]
}

fn names_make_groups() {
    let names = ["there::one", "one::a", "one::b::c", "two::a", "one::d"];
    let group = |filter: &str, tests| Group {
        filter: filter.to_owned(),
        share: Share::WHOLE,
        tests,
    };
    // A filter is found anywhere in a name.
    let expected = [group("there::", 1), group("one::", 3), group("two::", 1)];
    assert_eq!(groups(&names), expected);
    assert_eq!(groups(&["one::a", "someone::a"])[0], group("one::", 2));
    assert_eq!(groups(&[]), []);
    let whole =
        |arguments: &[&str]| is_whole(&Arguments::from_iter([&["gpu"], arguments].concat()));
    assert!(whole(&[]) && whole(&["--nocapture"]) && whole(&["--test-threads", "1"]));
    for part in [
        &["mirror"][..],
        &["--exact"],
        &["--skip", "mirror"],
        &["--list"],
        &["--ignored"],
        &["--format", "json"],
    ] {
        assert!(!whole(part), "{part:?}");
    }
}

fn shares_make_the_whole() {
    for all in [0, 1, 2, 3, 199, 200, 1037] {
        let names: Vec<String> = (0..all).map(|i| format!("one::{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let groups = groups(&names);
        assert_eq!(groups.iter().map(|group| group.tests).sum::<usize>(), all);
        for place in 0..all {
            let owners = groups.iter().filter(|group| group.share.has(place, all));
            assert_eq!(owners.count(), 1, "{place} of {all}");
        }
        for group in &groups {
            let text = group.share.to_string();
            assert_eq!(Share::parse(&text), Some(group.share));
        }
    }
    assert_eq!((Share::parse("3/3"), Share::parse("1")), (None, None));
}

fn a_process_is_believed_by_its_count() {
    let line = "test result: ok. 27 passed; 0 failed; 0 ignored; 0 measured; 2470 filtered out; finished in 14.56s";
    assert_eq!(passed(line), Some(27));
    for other in [
        "test one::passed; ... ok",
        "test result: ok.",
        "",
        "7 passed;",
    ] {
        assert_eq!(passed(other), None, "{other}");
    }
    assert_eq!(judge(true, "0", Some(27), 27), Ok(()));
    // A driver that is gone; one that has ended the process; a crash, and a test that failed.
    for (succeeded, passed) in [
        (true, Some(0)),
        (true, Some(26)),
        (true, Some(28)),
        (true, None),
        (false, None),
        (false, Some(27)),
    ] {
        let verdict = judge(succeeded, "the status", passed, 27);
        assert!(verdict.is_err(), "{succeeded} {passed:?}");
    }
}

/// A whole process, as it would be without its adapter.
fn a_process_without_tests_has_not_passed() {
    let absent = Group {
        filter: "no_such_adapter::".to_owned(),
        share: Share::WHOLE,
        tests: 3,
    };
    let program = std::env::current_exe().unwrap();
    let verdict = run_as(
        Command::new(program).arg(&absent.filter),
        &absent,
        |_, _| {},
    );
    assert_eq!(
        verdict,
        Err("passed 0 tests of 3 that are known".to_owned())
    );
}
