//! What kernels ask the host for while they run.

use tombolo::{
    Constants, HostServices, PersistentKernel, Program,
    calls::FileAccess,
    device::{Aspect, Capability},
    server::CallError,
};

use crate::{Held, Shown, Stage, Stop, expect, held};

pub const STOPS: &[Stop] = &[
    Stop {
        name: "files",
        shows: "a kernel that copies a file, and says how it went",
        capability: Capability::HostCalls,
        run: files,
    },
    Stop {
        name: "server",
        shows: "a kernel that stays, and is called by threads",
        capability: Capability::PersistentKernels,
        run: server,
    },
];

/// Threads call a function that lives on the device, and ordinary launches run in between.
fn server(stage: &Stage) -> Shown {
    let program = Program::new("digits.wgsl", include_str!("kernels/digits.wgsl"))?;
    let server = PersistentKernel::builder(&stage.device, &program)
        .handler("digit_sum")
        .start()?;
    let digit_sum = server.function::<(u32,), u32>("digit_sum")?;
    let called = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u32)
            .map(|thread| {
                let digit_sum = &digit_sum;
                scope.spawn(move || {
                    (0..250u32).try_fold(0, |right, i| {
                        let x = (4 * i + thread) * 7919;
                        let expected = x
                            .to_string()
                            .bytes()
                            .map(|digit| u32::from(digit - b'0'))
                            .sum();
                        Ok::<_, CallError>(right + u32::from(digit_sum.call(&(x,))? == expected))
                    })
                })
            })
            .collect();
        for _ in 0..10 {
            stage.device.finish()?;
        }
        let mut right = 0;
        for thread in threads {
            right += thread.join().map_err(|_| "a caller panicked")??;
        }
        Ok::<_, Box<dyn std::error::Error>>(right)
    })?;
    expect("right answers", &called, &1000)?;
    held(format!(
        "1000 calls of 4 threads, {} leases",
        server.leases()
    ))
}

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
    let program = Program::builder()
        .source("copy_file.wgsl", source)
        .services(&services)
        .build()?;
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
