//! Names of kernels for `perf`: a list of code by address, in a file sought by `perf report`.
//!
//! A line for each kernel: address and bytes in hexadecimal digits, and the name. Lines stay when a kernel is gone; where the
//! memory is used again, `perf` has two names for the code. Kernels are functions without frame pointers: `perf` names the kernel
//! of a sample, not the caller.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    ops::Range,
    path::PathBuf,
    sync::{Mutex, OnceLock, PoisonError},
};

/// Where `perf` looks.
fn path() -> PathBuf {
    format!("/tmp/perf-{}.map", std::process::id()).into()
}

/// The file of the process, or why there is none.
fn file() -> &'static Result<Mutex<File>, io::Error> {
    static FILE: OnceLock<Result<Mutex<File>, io::Error>> = OnceLock::new();
    FILE.get_or_init(|| {
        if !cfg!(target_os = "linux") {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            // Everybody may make files there: the name must not lead to another file.
            options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
        }
        options.open(path()).map(Mutex::new)
    })
}

/// Lists a kernel. The log has the reason for a failure to list: the kernel runs all the same.
pub(crate) fn list(name: &str, code: Range<usize>) {
    // A name is the rest of the line.
    let name: String = name.chars().filter(|c| !c.is_control()).collect();
    let line = format!("{:x} {:x} kernel {name}\n", code.start, code.len());
    let written = match file() {
        Ok(file) => {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(line.as_bytes()).map_err(|e| e.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = written {
        let path = path();
        log::warn!(
            "`perf` does not know the kernel {name}: {}: {error}",
            path.display()
        );
    }
}
