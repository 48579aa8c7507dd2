//! What kernels ask the host for while they run.

use tombolo::{Aspect, Capability, Constants, FileAccess, HostServices, Program};

use crate::{Held, Shown, Stage, Stop, expect, held};

pub const STOPS: &[Stop] = &[Stop {
    name: "files",
    shows: "a kernel that copies a file, and says how it went",
    capability: Capability::HostCalls,
    run: files,
}];

/// Each invocation copies a block of a file that the first launch has opened; only the folder is granted.
fn files(stage: &Stage) -> Shown {
    if !stage.device.has(Aspect::LiveMemory) {
        let why = stage.device.capabilities().explain(Aspect::LiveMemory);
        return Ok(Held::NotHere(why));
    }
    let folder = tempfile::tempdir()?;
    let text: Vec<u8> = (0..10_000u32).flat_map(|i| (i * i).to_le_bytes()).collect();
    std::fs::write(folder.path().join("from.bin"), &text)?;
    let services = HostServices::builder()
        .files(FileAccess::new().read_write(folder.path())?)
        .exit()
        .start()?;
    let source = include_str!("kernels/copy_file.wgsl");
    let program = Program::with_services("copy_file.wgsl", source, &services)?;
    let files = stage.device.zeroed::<u32>(2)?;
    for (entry, groups) in [
        ("open", 1),
        ("copy", text.len().div_ceil(256 * 32) as u32),
        ("close", 1),
    ] {
        let kernel = stage.device.kernel(&program, entry, &Constants::new())?;
        let launch = kernel.launch().services(&services).buffer("files", &files);
        launch.workgroups(groups).submit()?.wait()?;
    }
    expect("exit status", &services.exit_status(), &Some(0))?;
    let copied = std::fs::read(folder.path().join("to.bin"))?;
    expect("the copy", &(copied == text), &true)?;
    held(format!(
        "{} bytes, opened by name, copied by blocks",
        text.len()
    ))
}
