//! Launches that fail: who reads what they would have written is told, until it is overwritten or cleared.

use tombolo::{
    Constants,
    buffers::ReadError,
    device::{ExecutionError, WaitError},
};

use crate::problem::{Outcome, expect, wrong};
use crate::programs;
use crate::worker::Worker;

pub fn assertion(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    let model = {
        let len = w.random.length(500);
        w.random.words(len)
    };
    let bad = model[w.random.below(model.len())];
    let data = gear.device.buffer(&model)?;
    let kernel = gear.kernel(&w.world.programs.assert, &Constants::new())?;
    let mut launch = kernel
        .launch()
        .buffer("data", &data)
        .value("bad", &bad)
        .invocations(model.len());
    let event = w.submit(&mut launch)?;
    // One more that would go on with what is wrong.
    let next = gear.kernel(&w.world.programs.work, &programs::rounds(1))?;
    let mut next = next.launch().buffer("data", &data).invocations(model.len());
    let inherited = w.random.below(2) == 0;
    let after = if inherited {
        Some(w.submit(&mut next)?)
    } else {
        None
    };
    w.note("wait for a failure");
    match event.wait() {
        Err(WaitError::Failed(error)) if matches!(*error, ExecutionError::Assertion { .. }) => {}
        other => return wrong(format!("a launch whose assertion fails: {other:?}")),
    }
    if let Some(after) = after {
        match after.wait() {
            Err(WaitError::Failed(error)) if matches!(*error, ExecutionError::Inherited { .. }) => {
            }
            other => return wrong(format!("a launch behind one that failed: {other:?}")),
        }
    }
    match data.read() {
        Err(ReadError::Execution(_)) => {}
        other => {
            return wrong(format!(
                "what a failed launch wrote was read: {:?}",
                other.map(|words| words.len())
            ));
        }
    }
    if w.random.below(2) == 0 {
        data.clear_error();
        data.read()?;
        return Ok(());
    }
    let fresh = w.random.words(model.len());
    data.write(0, &fresh)?;
    expect(
        "what was written behind a failed launch",
        &data.read()?,
        &fresh,
    )
}
