//! How things that go wrong are told.

use tombolo::{
    Constants, Program,
    buffers::ReadError,
    device::{Capability, ExecutionError, WaitError},
};

use crate::support::text::grouped;
use crate::{Shown, Stage, Stop, expect, held};

pub const STOPS: &[Stop] = &[
    Stop {
        name: "long loops",
        shows: "1,000,000 turns: a sum, or an error",
        capability: Capability::LoopGuard,
        run: long_loop,
    },
    Stop {
        name: "diagnostics",
        shows: "faults by line and column",
        capability: Capability::Launches,
        run: diagnostics,
    },
];

fn long_loop(stage: &Stage) -> Shown {
    let device = &stage.device;
    let program = Program::new("loops.wgsl", include_str!("kernels/loops.wgsl"))?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let total = device.zeroed::<u32>(1)?;
    let mut launch = kernel
        .launch()
        .buffer("total", &total)
        .value("turns", &[300u32, 200])
        .workgroups(1);
    launch.submit()?.wait()?;
    expect("a short loop", &total.read()?, &vec![60_000])?;

    launch.set_value("turns", &[1000u32, 1000])?;
    match launch.submit()?.wait() {
        Ok(()) => {
            let sum = total.read()?;
            expect("the sum", &sum, &vec![1_000_000])?;
            held("the full sum")
        }
        Err(WaitError::Failed(error)) => {
            let ExecutionError::LoopCut { line, budget, .. } = &*error else {
                return Err(error.into());
            };
            expect("the loop's line", &(9..=10).contains(line), &true)?;
            match total.read() {
                Err(ReadError::Execution(_)) => {}
                Err(other) => return Err(other.into()),
                Ok(wrong) => return Err(format!("the wrong sum {wrong:?} could be read").into()),
            }
            let _event = total.fill(0, ..1)?;
            expect("overwritten", &total.read()?, &vec![0])?;
            let budget = grouped((*budget).into());
            held(format!("error, line {line}, after {budget}"))
        }
        Err(other) => Err(other.into()),
    }
}

fn diagnostics(_stage: &Stage) -> Shown {
    match Program::new("faulty.wgsl", include_str!("kernels/faulty.wgsl")) {
        Err(error) => {
            let Some(place) = error.diagnostic() else {
                return Err(error.into());
            };
            expect("line and column", &(place.line, place.column), &(8, 21))?;
            held(format!(
                "{}:{}:{}: {}",
                place.file, place.line, place.column, place.message
            ))
        }
        Ok(_) => Err("a program with an unknown name in it was accepted".into()),
    }
}
