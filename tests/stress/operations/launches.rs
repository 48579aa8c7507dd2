//! Launches of other shapes: private arrays, indirect grids, measured ones, queues of work, and what is refused.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tombolo::{Constants, launch::LaunchError, work::WorkQueue};

use crate::problem::{Outcome, expect, wrong};
use crate::programs::{self, SUMS};
use crate::worker::Worker;

/// A kernel that is specialized to a size of its private array.
pub fn window(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    let (n, len) = (1 + w.random.below(6), w.random.length(900));
    let data = {
        let len = w.random.length(400);
        w.random.words(len)
    };
    let plus = w.random.word();
    let kernel = gear.kernel(
        &w.world.programs.window,
        &Constants::new().set("N", n as u32),
    )?;
    let out = gear.device.zeroed::<u32>(len)?;
    let source = gear.device.buffer(&data)?;
    let mut launch = kernel
        .launch()
        .buffer("data", &source)
        .buffer("out", &out)
        .value("plus", &0u32)
        .invocations(len);
    launch.check()?;
    launch.set_value("plus", &plus)?;
    let event = w.submit(&mut launch)?;
    w.await_event(event)?;
    expect(
        "sums of windows",
        &out.read()?,
        &programs::window(&data, len, n, plus),
    )
}

/// All threads add to the same words of a device.
pub fn sum(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    let (plus, count) = (w.random.word(), 1 + w.random.below(300) as u32);
    let kernel = gear.kernel(&w.world.programs.sum, &Constants::new())?;
    let mut launch = kernel
        .launch()
        .buffer("sums", &gear.sums)
        .value("plus", &plus)
        .workgroups(count.div_ceil(64));
    let event = w.submit(&mut launch)?;
    for id in 0..count.div_ceil(64) * 64 {
        gear.expected[id as usize % SUMS].fetch_add(plus.wrapping_add(id), Ordering::Relaxed);
    }
    w.await_event(event)
}

/// The grid lies in a buffer.
pub fn indirect(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    let groups = w.random.below(5) as u32;
    let grid = gear.device.buffer(&[7u32, groups, 1, 1])?;
    let model = w.random.words(64 * 4);
    let data = gear.device.buffer(&model)?;
    let kernel = gear.kernel(&w.world.programs.work, &programs::rounds(3))?;
    let mut launch = kernel.launch().buffer("data", &data).indirect(&grid, 4);
    let event = w.submit(&mut launch)?;
    w.await_event(event)?;
    let expected: Vec<u32> = model
        .iter()
        .enumerate()
        .map(|(i, &word)| {
            if i < groups as usize * 64 {
                programs::work(word, 3)
            } else {
                word
            }
        })
        .collect();
    expect("what an indirect launch leaves", &data.read()?, &expected)
}

/// How long it took, where the device can tell.
pub fn profiled(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    let model = w.random.words(300);
    let data = gear.device.buffer(&model)?;
    let kernel = gear.kernel(&w.world.programs.work, &programs::rounds(9))?;
    let mut launch = kernel
        .launch()
        .buffer("data", &data)
        .invocations(300)
        .profiled();
    let event = match launch.submit() {
        Ok(event) => event,
        Err(LaunchError::Profiling(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    event.wait()?;
    event.gpu_time()?;
    let expected: Vec<u32> = model.iter().map(|&word| programs::work(word, 9)).collect();
    expect("what a measured launch leaves", &data.read()?, &expected)
}

/// Invocations share work among themselves.
pub fn queue(w: &mut Worker<'_>) -> Outcome {
    const NUMBERS: usize = 65;
    let gear = w.gear();
    let items: Vec<u32> = (0..1 + w.random.below(20))
        .map(|_| 1 + w.random.below(NUMBERS - 1) as u32)
        .collect();
    let queue = WorkQueue::new(&gear.device, 4096)?;
    queue.fill(&items.iter().map(|&n| [n, 0, 0, 0]).collect::<Vec<_>>())?;
    let taken = gear.device.zeroed::<u32>(NUMBERS)?;
    let kernel = gear.kernel(&w.world.programs.queue, &Constants::new())?;
    let mut launch = kernel
        .launch()
        .buffer("taken", &taken)
        .work_queue(&queue)
        .workgroups(2);
    w.note("run a queue");
    queue.run(&mut launch, Duration::from_secs(100))?;
    expect(
        "what was taken from a queue",
        &taken.read()?,
        &programs::queue(&items, NUMBERS),
    )
}

/// Launches that are wrong are refused, and change nothing.
pub fn refused(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    let kernel = gear.kernel(&w.world.programs.work, &programs::rounds(1))?;
    let data = gear.device.buffer(&[1u32, 2, 3])?;
    let missing = kernel.launch().invocations(3).submit();
    let unknown = kernel
        .launch()
        .buffer("data", &data)
        .buffer("other", &data)
        .invocations(3)
        .submit();
    let no_grid = kernel.launch().buffer("data", &data).submit();
    if !matches!(missing, Err(LaunchError::MissingArguments { .. }))
        || !matches!(unknown, Err(LaunchError::UnknownArgument { .. }))
        || !matches!(no_grid, Err(LaunchError::NoGrid { .. }))
    {
        return wrong(format!(
            "launches that are wrong: {missing:?}, {unknown:?}, {no_grid:?}"
        ));
    }
    if kernel
        .launch()
        .buffer("data", &data)
        .invocations(0)
        .submit()
        .is_err()
    {
        return wrong("a launch of nothing was refused");
    }
    expect("what refused launches leave", &data.read()?, &[1, 2, 3])
}
