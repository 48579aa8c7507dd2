//! `cargo xtask web`: the page of `examples/web`, built, served and, with `--test`, run in Chromium.
//!
//! # How it works
//! 1. The page is built for `wasm32-unknown-unknown` with the standard library's sources, by the toolchain that also builds for
//!    other systems ([`Toolchain`]), and wasm-bindgen, in the version of the page's own lock file, writes the calls from
//!    JavaScript.
//! 2. A server on the loopback interface serves the files: browsers give WebGPU to pages of the machine itself, or of `https`.
//! 3. `--test` opens the page in Chromium without a window, with WebGPU on its own SwiftShader; waits for the page's lines; and
//!    fails if a line is missing or says `failed`. A picture of the page goes to `out/web.png`. Then the page is opened in a
//!    browser without WebGPU, where the page has to say so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::browser::{self, Browser};
use crate::error::Error;
use crate::pages;
use crate::process::{self, say, step};
use crate::toolchain::{Part, Std, Toolchain};
use crate::workspace::Workspace;

/// Arguments of the command.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Run the page in Chromium without a window, and fail unless every check passes
    #[arg(long)]
    test: bool,
    /// Build with optimizations: longer to build, less to load
    #[arg(long)]
    release: bool,
    /// Serve on this port of the loopback interface; by default on a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
}

const TARGET: &str = "wasm32-unknown-unknown";
/// The name of the page's module.
const MODULE: &str = "tombolo_web";

/// The checks of the page, in the page's order.
const CHECKS: &[&str] = &[
    "device",
    "launch",
    "private-array",
    "batch",
    "global",
    "prints",
    "assertion",
    "pointers",
    "fault",
    "buffers",
    "large",
    "calls",
    "blocking",
    "loss",
    "picture",
];

/// How long the page may take: kernels run on the processor, and the module is not optimized.
const MOST: Duration = Duration::from_secs(300);
const SIZE: (u32, u32) = (1100, 1000);

/// Root has no sandbox, and systems that keep users from namespaces give nobody a sandbox; the only page opened is our own.
const NO_SANDBOX: &str = "--no-sandbox";
const WEBGPU: &[&str] = &[
    NO_SANDBOX,
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
];
const NO_WEBGPU: &[&str] = &[NO_SANDBOX, "--disable-blink-features=WebGPU"];

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    let mut parts = vec![Part::WasmLinker];
    let installed = browser::find();
    if args.test && installed.is_none() {
        parts.push(Part::Chromium);
    }
    let toolchain = Toolchain::provide(workspace, Std::For(&[TARGET]), &parts)?;
    say(format!("the page is built with {}", toolchain.describe()));
    let folder = step("the page", || build(workspace, &toolchain, args.release))?;
    let address = pages::serve(folder, args.port)?;
    let url = format!("http://{address}/");
    if !args.test {
        say(format!("{url} is the page; Ctrl-C ends its server"));
        loop {
            std::thread::park();
        }
    }
    let chromium = || match installed {
        Some(name) => Command::new(name),
        None => {
            let mut command = Command::new(toolchain.root().join("usr/lib/chromium/chromium"));
            toolchain.environment(&mut command);
            command
        }
    };
    step("the page in Chromium", || {
        let picture = workspace.root().join("out/web.png");
        let lines = lines_of(workspace, chromium(), WEBGPU, &url, Some(&picture))?;
        judge(&lines)
    })?;
    step("the page without WebGPU", || {
        let lines = lines_of(workspace, chromium(), NO_WEBGPU, &url, None)?;
        match lines.as_slice() {
            [line] if line.starts_with("failed device:") && line.contains("WebGPU") => Ok(()),
            _ => Err(Error::Page {
                wrong: format!("it should say that there is no WebGPU, and says {lines:?}"),
            }),
        }
    })
}

/// Builds the page, and returns the folder with the page's files.
fn build(
    workspace: &Workspace,
    toolchain: &Toolchain,
    is_optimized: bool,
) -> Result<PathBuf, Error> {
    let example = workspace.root().join("examples/web");
    let manifest = example.join("Cargo.toml");
    let mut cargo = toolchain.cargo(workspace, "web");
    cargo.args(["build", "--locked", "--package", "tombolo-web"]);
    cargo.arg("--manifest-path").arg(&manifest);
    toolchain.build_for(&mut cargo, TARGET, "std,panic_abort");
    if is_optimized {
        cargo.arg("--release");
    }
    if let Some(linker) = toolchain.wasm_linker() {
        cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
    }
    process::run(&mut cargo)?;
    let profile = if is_optimized { "release" } else { "debug" };
    let built = workspace.toolchain_target("web").join(TARGET).join(profile);
    let folder = workspace.toolchain_target("web-page");
    fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    let mut bindgen = workspace.cargo();
    bindgen.args([
        "run",
        "--quiet",
        "--locked",
        "--package",
        "tombolo-web-bindgen",
    ]);
    bindgen.arg("--manifest-path").arg(&manifest);
    bindgen
        .arg("--target-dir")
        .arg(workspace.toolchain_target("web-tools"));
    bindgen.arg("--").arg(built.join(format!("{MODULE}.wasm")));
    process::run(bindgen.arg(&folder))?;
    let page = folder.join("index.html");
    fs::copy(example.join("index.html"), &page).map_err(Error::io("write", &page))?;
    Ok(folder)
}

/// Opens the page, waits for the lines of the checks, and keeps a picture of the page.
fn lines_of(
    workspace: &Workspace,
    chromium: Command,
    switches: &[&str],
    url: &str,
    picture: Option<&Path>,
) -> Result<Vec<String>, Error> {
    let profile = workspace.toolchain_target("browser-profile");
    let mut browser = Browser::start(chromium, switches, &profile, SIZE)?;
    browser.open(url)?;
    let lines = browser.value_of("checks", MOST)?;
    let lines: Vec<String> = (lines.as_array().into_iter().flatten())
        .filter_map(|line| Some(line.as_str()?.to_owned()))
        .collect();
    for line in browser.said().iter().chain(&lines) {
        say(line);
    }
    if let Some(picture) = picture {
        let png = browser.screenshot()?;
        let folder = picture.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        fs::write(picture, png).map_err(Error::io("write", picture))?;
        say(format!("{} shows the page", picture.display()));
    }
    Ok(lines)
}

/// Whether the page has told of every check, and every check has passed.
fn judge(lines: &[String]) -> Result<(), Error> {
    let has_passed = |name: &&str| {
        let begin = format!("ok {name}: ");
        lines.iter().any(|line| line.starts_with(&begin))
    };
    let missing: Vec<&str> = CHECKS
        .iter()
        .filter(|name| !has_passed(name))
        .copied()
        .collect();
    let failed: Vec<&str> = (lines.iter().map(String::as_str))
        .filter(|line| !line.starts_with("ok "))
        .collect();
    match missing.is_empty() && failed.is_empty() && lines.len() == CHECKS.len() {
        true => {
            say(format!("{} checks of the page passed", lines.len()));
            Ok(())
        }
        false => Err(Error::Page {
            wrong: format!(
                "of {} checks these have not passed: {}; the page says: {}",
                CHECKS.len(),
                missing.join(", "),
                failed.join("; ")
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_these_checks() {
        let root = Workspace::find().unwrap().root().to_owned();
        let text = fs::read_to_string(root.join("examples/web/src/checks/mod.rs")).unwrap();
        let (_, list) = text.split_once("CHECKS: &[(&str, Check)] = &[").unwrap();
        let (list, _) = list.split_once("\n];").unwrap();
        let names: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        assert_eq!(names, CHECKS);
    }

    #[test]
    fn a_line_that_is_missing_or_has_failed_is_an_error() {
        let mut lines: Vec<String> = CHECKS
            .iter()
            .map(|name| format!("ok {name}: fine"))
            .collect();
        judge(&lines).unwrap();
        let last = lines.pop().unwrap();
        let error = judge(&lines).unwrap_err().to_string();
        assert!(error.contains("picture"), "{error}");
        lines.push(last.replace("ok", "failed"));
        let error = judge(&lines).unwrap_err().to_string();
        assert!(error.contains("failed picture: fine"), "{error}");
        lines.pop();
        lines.push("failed page: unreachable".to_owned());
        judge(&lines).unwrap_err();
    }
}
