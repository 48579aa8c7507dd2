//! The errors of the tasks, each with the remedy.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use thiserror::Error;

/// Packages to install by hand where xtask cannot.
pub const BY_HAND: &str = "  Debian, Ubuntu:  sudo apt-get install mesa-vulkan-drivers libvulkan1
  Fedora:          sudo dnf install mesa-vulkan-drivers vulkan-loader
  Arch:            sudo pacman -S vulkan-swrast vulkan-icd-loader
  macOS, Windows:  nothing (Metal and DX12 are part of the system)";

/// The tools to build and start MPI programs with, to install by hand.
const MPI_BY_HAND: &str =
    "  Debian, Ubuntu:  sudo apt-get install libopenmpi-dev openmpi-bin libclang-dev
  Fedora:          sudo dnf install openmpi-devel clang-devel
  Arch:            sudo pacman -S openmpi clang
  macOS:           brew install open-mpi llvm";

/// The tasks without a need for a driver.
pub const EMBEDDED_ALONE: &str = "Nothing needs to be installed for the adapter that is compiled in: `cargo xtask demo` falls back on it, and \
     `cargo xtask test --no-lavapipe --no-swiftshader` tests on it alone";

/// The error of every task.
#[derive(Debug, Error)]
pub enum Error {
    /// Not started inside the repository.
    #[error(
        "no workspace with an xtask member here or above; start `cargo xtask` inside the repository"
    )]
    NoWorkspace,
    /// A program could not be started.
    #[error("cannot start `{program}`: {source}; is it installed and in PATH?")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A program ran and failed.
    #[error("`{command}` failed ({status}); its own messages are above")]
    Failed {
        /// The whole command line.
        command: String,
        /// The exit status of the program.
        status: ExitStatus,
    },
    /// The file system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The action tried.
        action: &'static str,
        /// The path of the action.
        path: PathBuf,
        /// Why the action failed.
        source: io::Error,
    },
    /// There is no mdBook to build the guide with.
    #[error(
        "mdbook is not in PATH: `cargo install mdbook` builds it (once, some minutes), and `cargo xtask book` then makes \
         pages of {}; docs/SUMMARY.md lists the same chapters", book.display()
    )]
    NoMdBook {
        /// Where the chapters were put together.
        book: PathBuf,
    },
    /// A driver is missing and there is no apt-get for the installation.
    #[error(
        "this machine lacks {missing} and has no apt-get to install it with; install it by hand and try again:\n{BY_HAND}\n{EMBEDDED_ALONE}"
    )]
    NoPackageManager {
        /// The Debian names of the missing packages.
        missing: String,
    },
    /// Ranks of MPI cannot be built or started here.
    #[error("this machine lacks {packages}, {why}; install by hand and try again:\n{MPI_BY_HAND}")]
    NoMpi {
        /// The Debian names of the missing packages.
        packages: String,
        /// Why the packages are not installed now.
        why: String,
    },
    /// PoCL cannot be started here.
    #[error(
        "this machine lacks {packages}, {why}; install by hand (Fedora and Arch: pocl ocl-icd) and try \
         again, or leave its rows out with --no-pocl"
    )]
    NoPocl {
        /// The Debian names of the missing packages.
        packages: String,
        /// Why the packages are not installed now.
        why: String,
    },
    /// A program was traced, and the program's work is not in the file.
    #[error("{} has no span `{span}`, which every rank of the program enters", path.display())]
    NoSpan {
        /// The trace.
        path: PathBuf,
        /// The span looked for.
        span: &'static str,
    },
    /// Installing needs root, and there is no way to become root.
    #[error(
        "`{command}` needs root and there is no sudo here; run it as root, or install by hand, and try again:\n{BY_HAND}\n{EMBEDDED_ALONE}"
    )]
    NeedsRoot {
        /// The command for root to run.
        command: String,
    },
    /// The package manager was asked and failed.
    #[error(
        "{source}\nIf it cannot be made to work, install a software Vulkan driver by hand and try again:\n{BY_HAND}"
    )]
    Install {
        /// The failure of the package manager.
        source: Box<Error>,
    },
    /// The packages are there and the driver is not.
    #[error(
        "{packages} are installed, yet {what} cannot be found; the distribution's build for this processor may leave \
         it out. A driver of your own can be named with VK_DRIVER_FILES=/path/to/its_icd.json"
    )]
    StillMissing {
        /// The installed packages.
        packages: String,
        /// The thing expected of the packages.
        what: &'static str,
    },
    /// SwiftShader was demanded, and the machine's distribution has none.
    #[error(
        "SwiftShader cannot be provided: {reason}; leave --swiftshader out to go on without it"
    )]
    NoSwiftShader {
        /// Why not.
        reason: String,
    },
    /// The distribution has SwiftShader, but fetching it failed; never a reason to test less in silence.
    #[error("fetching SwiftShader failed: {source}\nTo go on without it, add --no-swiftshader")]
    FetchSwiftShader {
        /// The failure of the fetch.
        source: Box<Error>,
    },
    /// A package file is not what the package lists announce.
    #[error(
        "the downloaded {file} is not the file that the package lists announce; if the lists are old, `apt-get update` \
         helps"
    )]
    WrongPackage {
        /// The file's name.
        file: String,
    },
    /// No toolchain here can build the standard library.
    #[error(
        "no Rust toolchain here can build the standard library, which builds for other systems and for sanitizers need: \
         {reason}. With rustup, `rustup component add rust-src` adds the sources to the toolchain in use; on Debian, \
         rustc-web is version {needed} or later once `apt-get update` has run"
    )]
    NoToolchain {
        /// The toolchains looked at, and their lacks.
        reason: String,
        /// The oldest sufficient version of Rust.
        needed: &'static str,
    },
    /// A program that only Debian's packages bring is neither installed nor can be unpacked.
    #[error(
        "{what} needs `{program}`, which is not in PATH, and this machine has no apt-get to take it from; Debian has it \
         in the package {package}"
    )]
    NoTool {
        /// The task.
        what: &'static str,
        /// The program.
        program: &'static str,
        /// The Debian package of the program.
        package: &'static str,
    },
    /// A target unknown to the task.
    #[error("{name} is none of the targets that are built here: {known}")]
    UnknownTarget {
        /// The name asked for.
        name: String,
        /// The known names.
        known: String,
    },
    /// A bench absent from the library.
    #[error("{name} is none of the benches: {known}")]
    UnknownBench {
        /// The name asked for.
        name: String,
        /// The known names.
        known: String,
    },
    /// A bench ended well, and printed no row.
    #[error(
        "the bench {bench} has printed no line of the form `<kind> <row> = <median> (<least>..<most>)`"
    )]
    NoRows {
        /// The bench.
        bench: String,
    },
    /// A source lacks what a table lists.
    #[error("{} has no {variant}, which docs/calls-table.md lists: change the lists of xtask/src/commands/call_table.rs", path.display())]
    NoVariant {
        /// The source.
        path: PathBuf,
        /// The enumeration or variant.
        variant: String,
    },
    /// The page lacks the markers of a table.
    #[error(
        "{} has no table between `{}` and `{}`, or none between `{}` and `{}`, or `{}` and `{}`; put back what is missing of these six lines",
        path.display(),
        crate::rows::BEGIN,
        crate::rows::END,
        crate::rows::behind::BEGIN,
        crate::rows::behind::END,
        crate::rows::machines::BEGIN,
        crate::rows::machines::END
    )]
    NoTable {
        /// The page.
        path: PathBuf,
    },
    /// Packages were unpacked, and an expected file is not there.
    #[error("{} is missing although its package was unpacked; remove {} and try again", path.display(), store.display())]
    Incomplete {
        /// The missing file.
        path: PathBuf,
        /// The folder of the unpacked packages.
        store: PathBuf,
    },
    /// A browser did not do as asked.
    #[error("the browser failed: {why}")]
    Browser {
        /// The fault of the browser.
        why: String,
    },
    /// The page is not as expected.
    #[error("the page failed: {wrong}")]
    Page {
        /// The fault of the page.
        wrong: String,
    },
    /// Kernels cannot be written in a language of a backend, or are wrong there.
    #[error(
        "{faults} files of kernels are wrong in the language of a backend, where there are any in {}: a pass makes what the \
         language lacks, or naga's writer fails", folder.display()
    )]
    Languages {
        /// How many.
        faults: usize,
        /// The folder of the files.
        folder: PathBuf,
    },
    /// The suite has left no kernels to look at.
    #[error(
        "no test has left a kernel in {}: no name has the part that was asked for, or the folder is of another run", folder.display()
    )]
    NoModules {
        /// The folder for kernels.
        folder: PathBuf,
    },
    /// The registry would refuse an archive.
    #[error(
        "{} has {bytes} bytes, and the registry takes at most {most}: `include` in the manifest says what is packed",
        path.display()
    )]
    LargeArchive {
        /// The archive.
        path: PathBuf,
        /// The size of the archive.
        bytes: u64,
        /// The largest archive that the registry takes.
        most: u64,
    },
    /// There is no rustup to take a toolchain from.
    #[error(
        "this task needs the nightly toolchain, and rustup, which provides toolchains and is not in PATH; https://rustup.rs says \
         how to install it"
    )]
    NoRustup,
    /// There is nothing to read the counters of instrumented code with.
    #[error(
        "coverage needs llvm-cov and llvm-profdata of the compiler's own version of LLVM: with rustup they are the component \
         llvm-tools, which this task adds; without, name them in the variables LLVM_COV and LLVM_PROFDATA"
    )]
    NoLlvmTools,
    /// No file of the sources was counted.
    #[error(
        "no line of the sources was counted: the arguments behind `--` have run no test of the published crates"
    )]
    NoCoverage,
    /// There is no tag to compare with.
    #[error(
        "there is no tag to compare the public items with: name a commit with --baseline-rev, or a release in the registry \
         with `-- --baseline-version VERSION`"
    )]
    NoBaseline,
    /// Every adapter was opted out of.
    #[error(
        "no adapter is left: there is no usable GPU here, and both software adapters are turned off; leave out \
         --no-lavapipe or --no-swiftshader"
    )]
    NoAdapter,
    /// The path lists of the Vulkan loader cannot hold such a path.
    #[error("the path {} holds a `:`, which separates paths in VK_DRIVER_FILES; set CARGO_TARGET_DIR to a directory without one", path.display())]
    ColonInPath {
        /// The path.
        path: PathBuf,
    },
}

impl Error {
    /// Wraps an [`io::Error`] with the action tried and the path.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
