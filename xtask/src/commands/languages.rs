//! `cargo xtask languages`: every kernel in the languages of all backends, judged by tools of the languages.
//!
//! The suite of devices runs in a build that also writes each module for wgpu as SPIR-V, MSL, HLSL, GLSL and WGSL
//! (`src/kernel/languages.rs`): kernels of all tests, and the runtime's additions in every mode in which a test opens a device.
//! A module that naga's validator refuses for a language is counted: `Device::kernel` refuses the module as well on devices of
//! the language's backend. A module that a writer cannot write fails the command, and so does a module that a judge refuses:
//! `spirv-val` for SPIR-V and glslang for GLSL and, as far as glslang knows the language, HLSL; WGSL has to be a module again.
//! MSL has no judge here: the compiler of MSL is Apple's.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::commands::test;
use crate::error::Error;
use crate::process::{self, say, step};
use crate::provide::Switches;
use crate::toolchain::{Part, Std, Toolchain};
use crate::workspace::Workspace;

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    switches: Switches,
    /// Only judge the modules that the last run has left
    #[arg(long, conflicts_with = "suite")]
    again: bool,
    /// Passed on to the suite of devices: a part of the names of tests
    #[arg(last = true)]
    suite: Vec<OsString>,
}

/// Files of a language, by the ending of the name, and the judge of the files.
struct Language {
    name: &'static str,
    extension: &'static str,
    /// A program and its arguments, before the file's name.
    judge: Option<&'static [&'static str]>,
}

const LANGUAGES: &[Language] = &[
    Language {
        name: "SPIR-V",
        extension: "spv",
        judge: Some(&["spirv-val", "--target-env", "vulkan1.1"]),
    },
    Language {
        name: "MSL",
        extension: "metal",
        judge: None,
    },
    Language {
        name: "HLSL",
        extension: "hlsl",
        judge: Some(&[
            "glslangValidator",
            "-D",
            "-V",
            "--auto-map-bindings",
            "-S",
            "comp",
            "-o",
            "/dev/null",
        ]),
    },
    Language {
        name: "GLSL",
        extension: "comp",
        judge: Some(&["glslangValidator"]),
    },
    Language {
        name: "WGSL",
        extension: "wgsl",
        judge: None,
    },
];

/// A known fault.
struct Known {
    language: &'static str,
    /// A part of the message.
    said: &'static str,
    /// Parts of which the line named by the message has at least one, where the words alone would fit other faults.
    of_line: &'static [&'static str],
    /// Whose fault the refusal is.
    whose: &'static str,
}

impl Known {
    const fn new(language: &'static str, said: &'static str, whose: &'static str) -> Self {
        Self {
            language,
            said,
            of_line: &[],
            whose,
        }
    }

    /// Whether a message about a text reports the fault.
    fn is(&self, language: &str, text: &str, message: &str) -> bool {
        // `ERROR: file:12: …`
        let named = |place: &str| {
            let mut numbers = place.split(':').filter_map(|part| part.trim().parse().ok());
            text.lines()
                .nth(usize::checked_sub(numbers.next_back()?, 1)?)
        };
        let Some((place, _)) = message.split_once(self.said) else {
            return false;
        };
        let has = |line: &str| self.of_line.iter().any(|part| line.contains(part));
        self.language == language && (self.of_line.is_empty() || named(place).is_some_and(has))
    }

    /// The known faults reported of a text; none if anything else was reported as well.
    fn all_of(language: &str, text: &str, said: &str) -> Vec<&'static Self> {
        let errors = said.lines().filter(|line| line.contains("ERROR:"));
        // Not a fault, but the number of faults.
        let errors = errors.filter(|line| !line.contains("compilation terminated"));
        let errors = errors.filter(|line| !line.contains("compilation errors"));
        let mut messages: Vec<&str> = errors.collect();
        if messages.is_empty() {
            // Of a writer.
            messages.push(said);
        }
        let known = |message| KNOWN.iter().find(|known| known.is(language, text, message));
        let found = messages.into_iter().map(known);
        found.collect::<Option<_>>().unwrap_or_default()
    }
}

const KNOWN: &[Known] = &[
    Known::new(
        "HLSL",
        "array constructor needs one argument per array element",
        "glslang does not know the zero of an array, which Microsoft's compilers do",
    ),
    Known {
        of_line: &[".Load<", ".Store<"],
        ..Known::new(
            "HLSL",
            "')' : Expected",
            "glslang does not know loads by type, which wide integers take",
        )
    },
    Known::new(
        "HLSL",
        "' in double'",
        "glslang does not know how bits become a double",
    ),
    Known::new(
        "GLSL",
        "unsupported width",
        "OpenGL ES has no such type: its devices lack the capability, which `Device::kernel` says",
    ),
    Known::new(
        "GLSL",
        "selected version doesn't support",
        "OpenGL ES has no such type: its devices lack the capability, which `Device::kernel` says",
    ),
    Known::new(
        "HLSL",
        "push-constant",
        "naga writes immediates that are structures and no others (gfx-rs/wgpu#5683): `KernelError::Pipeline` on Direct3D 12",
    ),
];

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    let parts = [Part::SpirvTools, Part::Glslang];
    let toolchain = Toolchain::provide(workspace, Std::For(&[]), &parts)?;
    let folder = workspace.toolchain_target("languages-modules");
    if !args.again {
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(Error::io("remove", &folder))?;
        }
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        step("modules", || write(workspace, args, &folder))?;
    }
    let found = step("languages", || judge_all(&toolchain, &folder))?;
    found.report();
    match found.faults.len() {
        0 => Ok(()),
        faults => Err(Error::Languages { faults, folder }),
    }
}

/// Runs the suite; the suite leaves the modules in `folder`.
fn write(workspace: &Workspace, args: &Args, folder: &Path) -> Result<(), Error> {
    let provided = test::provide_for_tests(workspace, &args.switches)?;
    let mut command = workspace.cargo();
    command.args(["test", "--locked", "--package", "tombolo"]);
    command.args(["--test", "gpu", "--"]).args(&args.suite);
    test::environment(workspace, provided.as_ref())?.apply(&mut command);
    command
        .env("CARGO_TARGET_DIR", workspace.toolchain_target("languages"))
        .env("RUSTFLAGS", "--cfg shading_languages")
        .env("TOMBOLO_LANGUAGES", folder);
    process::run(&mut command)
}

/// The outcome of the modules in a single language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    written: usize,
    refused: usize,
    known: usize,
}

/// The outcome of all modules.
#[derive(Debug, Default)]
struct Found {
    modules: usize,
    /// By the names of the languages.
    counts: BTreeMap<&'static str, Count>,
    /// The known faults met.
    known: BTreeSet<&'static str>,
    /// The file, the kernel's program, and the fault.
    faults: Vec<(PathBuf, String, String)>,
}

impl Found {
    fn report(&self) {
        say(format!("{} modules", self.modules));
        for (language, count) in &self.counts {
            let Count {
                written,
                refused,
                known,
            } = count;
            say(format!(
                "{language}: {written} written, {refused} need what it lacks, {known} with a known fault"
            ));
        }
        for whose in &self.known {
            say(format!("known: {whose}"));
        }
        for (path, program, why) in &self.faults {
            let why = why.lines().take(6).collect::<Vec<_>>().join("\n    ");
            say(format!("{} ({program}):\n    {why}", path.display()));
        }
    }

    /// Adds a file refused by a writer or a judge.
    fn refuse(&mut self, language: &Language, path: &Path, why: String) {
        let text = fs::read_to_string(path).unwrap_or_default();
        let known = Known::all_of(language.name, &text, &why);
        if !known.is_empty() {
            self.counts.entry(language.name).or_default().known += 1;
            self.known.extend(known.iter().map(|known| known.whose));
            return;
        }
        let label = label_of(path);
        let program = fs::read_to_string(&label).unwrap_or_else(|_| "no label".to_owned());
        self.faults.push((path.to_owned(), program, why));
    }
}

/// The file with the name of a module's program.
fn label_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let module = name.split('.').next().unwrap_or_default();
    path.with_file_name(format!("{module}.label"))
}

/// Looks at every file, and has the files with a judge judged.
fn judge_all(toolchain: &Toolchain, folder: &Path) -> Result<Found, Error> {
    let entries = fs::read_dir(folder).map_err(Error::io("list", folder))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let found = Mutex::new(Found::default());
    let failed = Mutex::new(None);
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = look(toolchain, path, &found) {
                next.store(files.len(), Ordering::Relaxed);
                *locked(&failed) = Some(error);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    if let Some(error) = locked(&failed).take() {
        return Err(error);
    }
    let mut found = found
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    found.faults.sort();
    if found.modules == 0 {
        return Err(Error::NoModules {
            folder: folder.to_owned(),
        });
    }
    Ok(found)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The kind of a file, by the file's name.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// The label of a module.
    Label,
    /// The module in a language, by the language's place in the list.
    Written(usize),
    /// Why the validator refuses the module for the language.
    Refused(usize),
    /// Why the writer failed.
    Failed(usize),
}

fn kind(path: &Path) -> Option<Kind> {
    let name = path.file_name()?.to_str()?;
    let mut parts = name.split('.').skip(1);
    let (first, second) = (parts.next()?, parts.next());
    if first == "label" {
        return Some(Kind::Label);
    }
    let language = LANGUAGES.iter().position(|one| one.extension == first)?;
    match second {
        None => Some(Kind::Written(language)),
        Some("refused") => Some(Kind::Refused(language)),
        Some("failed") => Some(Kind::Failed(language)),
        Some(_) => None,
    }
}

fn look(toolchain: &Toolchain, path: &Path, found: &Mutex<Found>) -> Result<(), Error> {
    match kind(path) {
        None => {}
        Some(Kind::Label) => locked(found).modules += 1,
        Some(Kind::Refused(language)) => {
            let name = LANGUAGES[language].name;
            locked(found).counts.entry(name).or_default().refused += 1;
        }
        Some(Kind::Failed(language)) => {
            let why = fs::read_to_string(path).map_err(Error::io("read", path))?;
            locked(found).refuse(&LANGUAGES[language], path, why);
        }
        Some(Kind::Written(language)) => {
            let language = &LANGUAGES[language];
            let verdict = judge(toolchain, language, path)?;
            let mut found = locked(found);
            found.counts.entry(language.name).or_default().written += 1;
            if let Err(why) = verdict {
                found.refuse(language, path, why);
            }
        }
    }
    Ok(())
}

/// The answer of the language's judge about a file.
fn judge(
    toolchain: &Toolchain,
    language: &Language,
    path: &Path,
) -> Result<Result<(), String>, Error> {
    let Some([program, args @ ..]) = language.judge else {
        return Ok(Ok(()));
    };
    let mut command = Command::new(toolchain.tool(program));
    toolchain.environment(&mut command);
    command.args(args);
    if language.extension == "hlsl" {
        let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
        command.args(["-e", entry_of(&text)]);
    }
    command.arg(path);
    let output = command
        .output()
        .map_err(|source| process::spawn_error(&command, source))?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    let said = [output.stdout, output.stderr].concat();
    Ok(Err(String::from_utf8_lossy(&said).into_owned()))
}

/// The entry point named in the first line of a text.
fn entry_of(text: &str) -> &str {
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("// ").unwrap_or("main")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_by_their_names() {
        let kind = |name: &str| kind(Path::new(name));
        assert_eq!(kind("/m/00ff.label"), Some(Kind::Label));
        assert_eq!(kind("/m/00ff.spv"), Some(Kind::Written(0)));
        assert_eq!(kind("/m/00ff.metal.refused"), Some(Kind::Refused(1)));
        assert_eq!(kind("/m/00ff.hlsl.failed"), Some(Kind::Failed(2)));
        assert_eq!(kind("/m/00ff"), None);
        assert_eq!(kind("/m/00ff.hlsl.other"), None);
        assert_eq!(
            label_of(Path::new("/m/00ff.hlsl.failed")),
            Path::new("/m/00ff.label")
        );
    }

    #[test]
    fn a_text_names_its_entry_point() {
        assert_eq!(entry_of("// main_1\nvoid main_1() {}"), "main_1");
        assert_eq!(entry_of("void main() {}"), "main");
    }

    /// The library's list and [`LANGUAGES`] name the same files.
    #[test]
    fn the_languages_are_those_that_the_library_writes() {
        let workspace = Workspace::find().unwrap();
        let text = fs::read_to_string(workspace.root().join("src/kernel/languages.rs")).unwrap();
        for language in LANGUAGES {
            let line = format!("extension: \"{}\"", language.extension);
            assert_eq!(text.matches(&line).count(), 1, "{}", language.name);
        }
        assert_eq!(text.matches("extension: \"").count(), LANGUAGES.len());
    }

    #[test]
    fn what_fails_is_a_fault_of_its_language() {
        let mut found = Found::default();
        found.refuse(
            &LANGUAGES[2],
            Path::new("/no/00ff.hlsl.failed"),
            "no such thing".to_owned(),
        );
        assert_eq!(found.faults.len(), 1);
        assert_eq!(found.faults[0].1, "no label");
        let (said, whose) = (KNOWN[0].said, KNOWN[0].whose);
        let language = LANGUAGES
            .iter()
            .find(|one| one.name == KNOWN[0].language)
            .unwrap();
        found.refuse(
            language,
            Path::new("/no/00ff.hlsl"),
            format!("ERROR: {said}"),
        );
        assert_eq!(
            (found.faults.len(), found.counts[language.name].known),
            (1, 1)
        );
        assert!(found.known.contains(whose));
        // A known fault of a language is a new fault of another.
        found.refuse(&LANGUAGES[0], Path::new("/no/00ff.spv"), said.to_owned());
        assert_eq!(found.faults.len(), 2);
    }

    #[test]
    fn what_fits_many_faults_is_known_of_some_lines_only() {
        let known = KNOWN
            .iter()
            .find(|known| !known.of_line.is_empty())
            .unwrap();
        let text = "uint a;\nuint64_t b = words.Load<uint64_t>(0);\nint c = (1;\n";
        let error = |line: usize| format!("ERROR: x.hlsl:{line}: '{}", known.said);
        let is_known = |language, said: String| !Known::all_of(language, text, &said).is_empty();
        let end = "ERROR: 2 compilation errors.  No code generated.";
        assert!(is_known("HLSL", format!("x.hlsl\n{}\n{end}", error(2))));
        for line in [0, 1, 3, 4] {
            assert!(!is_known("HLSL", error(line)), "{line}");
            // Beside a known fault.
            let both = format!("{}\n{}", error(2), error(line));
            assert!(!is_known("HLSL", both), "{line}");
        }
        assert!(!is_known("GLSL", error(2)));
    }
}
