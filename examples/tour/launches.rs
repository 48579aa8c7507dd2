//! Grids, batches, and the ways to learn that something is done.

use std::sync::mpsc;
use std::time::Duration;

use tombolo::{
    Constants, Device, Event, Kernel, Program,
    device::{Aspect, Capability},
};

use crate::support::text::grouped;
use crate::{Held, Shown, Stage, Stop, expect, held};

pub const STOPS: &[Stop] = &[
    Stop {
        name: "work-groups",
        shows: "their size left to the runtime",
        capability: Capability::Launches,
        run: automatic_size,
    },
    Stop {
        name: "large grids",
        shows: "more work-groups than fit a dispatch",
        capability: Capability::Launches,
        run: large_grid,
    },
    Stop {
        name: "indirect",
        shows: "a grid that another kernel decides",
        capability: Capability::Launches,
        run: indirect,
    },
    Stop {
        name: "batches",
        shows: "100 launches in one submission",
        capability: Capability::Launches,
        run: batch,
    },
    Stop {
        name: "transfers",
        shows: "fill, write and copy, in order",
        capability: Capability::Launches,
        run: transfers,
    },
    Stop {
        name: "pinned memory",
        shows: "transfers with no staging memory in between",
        capability: Capability::Launches,
        run: pinned,
    },
    Stop {
        name: "callbacks",
        shows: "all of several events, and a call at their end",
        capability: Capability::Launches,
        run: callbacks,
    },
    Stop {
        name: "events",
        shows: "launches awaited as futures",
        capability: Capability::Launches,
        run: futures,
    },
    Stop {
        name: "read-back",
        shows: "results that come while others work",
        capability: Capability::Launches,
        run: read_back,
    },
    Stop {
        name: "profiling",
        shows: "time of a launch on the device",
        capability: Capability::Profiling,
        run: profiling,
    },
];

pub fn counting(device: &Device, entry: &str) -> Result<Kernel, Box<dyn std::error::Error>> {
    let program = Program::new("counting.wgsl", include_str!("kernels/counting.wgsl"))?;
    Ok(device.kernel(&program, entry, &Constants::new())?)
}

fn automatic_size(stage: &Stage) -> Shown {
    let kernel = counting(&stage.device, "increment")?;
    let counters = stage.device.zeroed::<u32>(1000)?;
    kernel
        .launch()
        .buffer("counters", &counters)
        .invocations(1000)
        .submit()?
        .wait()?;
    expect("counters", &counters.read()?, &vec![1; 1000])?;
    let [x, y, z] = kernel.workgroup_size();
    held(format!("{x} x {y} x {z} invocations"))
}

fn large_grid(stage: &Stage) -> Shown {
    let kernel = counting(&stage.device, "number")?;
    let groups = u64::from(stage.device.capabilities().workgroups_per_dimension) + 4465;
    let counters = stage.device.zeroed::<u32>(usize::try_from(groups)?)?;
    kernel
        .launch()
        .buffer("counters", &counters)
        .workgroups(groups)
        .submit()?
        .wait()?;
    let groups = u32::try_from(groups)?;
    let expected: Vec<u32> = (0..groups).map(|group| group + groups).collect();
    expect("numbers", &counters.read()?, &expected)?;
    held(format!("{} work-groups, each once", grouped(groups.into())))
}

fn indirect(stage: &Stage) -> Shown {
    let device = &stage.device;
    let grid = device.zeroed::<u32>(3)?;
    let counters = device.zeroed::<u32>(8)?;
    let decide = counting(device, "decide")?;
    let decided = decide
        .launch()
        .buffer("counters", &grid)
        .workgroups(1)
        .submit()?;
    let number = counting(device, "number")?;
    let numbered = number
        .launch()
        .buffer("counters", &counters)
        .indirect(&grid, 0)
        .submit()?;
    decided.wait()?;
    numbered.wait()?;
    expect("numbers", &counters.read()?, &vec![5, 6, 7, 8, 9, 0, 0, 0])?;
    held("5 work-groups")
}

fn batch(stage: &Stage) -> Shown {
    let device = &stage.device;
    let counters = device.zeroed::<u32>(100)?;
    let mut launch = counting(device, "increment")?
        .launch()
        .buffer("counters", &counters)
        .invocations(100);
    device.finish()?;
    let before = device.cache_statistics().submissions;
    let mut last = launch.submit()?;
    for _ in 1..100 {
        last = launch.submit()?;
    }
    last.wait()?;
    let submissions = device.cache_statistics().submissions - before;
    expect("counters", &counters.read()?, &vec![100; 100])?;
    expect("submissions", &submissions, &1)?;
    held("each saw the one before it")
}

fn transfers(stage: &Stage) -> Shown {
    let (a, b) = (
        stage.device.buffer(&[1u32; 64])?,
        stage.device.zeroed::<u32>(64)?,
    );
    let commands = [
        a.copy_to(0, &b, 0, 64)?,
        a.fill(2, ..64)?,
        a.copy_to(0, &b, 16, 16)?,
        a.write(0, &[3; 64])?,
        a.copy_to(0, &b, 48, 16)?,
    ];
    for command in &commands {
        command.wait()?;
    }
    let expected: Vec<u32> = (0..64).map(|i| [1, 2, 1, 3][i / 16]).collect();
    expect("copied", &b.read()?, &expected)?;
    match a.copy_to(60, &b, 0, 5) {
        Err(tombolo::buffers::MemoryError::OutOfRange { .. }) => {
            held("a copy beyond the end refused")
        }
        Err(other) => Err(other.into()),
        Ok(_) => Err("a copy from beyond the end was accepted".into()),
    }
}

fn pinned(stage: &Stage) -> Shown {
    const LEN: usize = 2 << 20;
    let mut values = stage.context.pinned_vec::<u32>(LEN)?;
    for (value, i) in values.iter_mut().zip(0..) {
        *value = i;
    }
    let buffer = stage.device.zeroed::<u32>(LEN)?;
    stage.device.finish()?;
    let before = stage.device.transfer_statistics().pinned_bytes;
    buffer.write(0, &values)?;
    values.fill(0);
    buffer.read_into(0, &mut values)?;
    if let Some(i) = (0..LEN).find(|&i| values[i] != i as u32) {
        return Err(format!("value {i} came back as {}", values[i]).into());
    }
    let direct = stage.device.transfer_statistics().pinned_bytes - before;
    match values.import(&stage.device) {
        Ok(()) => {
            expect("bytes copied directly", &direct, &(LEN as u64 * 8))?;
            held(format!("{} bytes copied directly", grouped(direct)))
        }
        Err(error) => {
            expect("bytes copied directly", &direct, &0)?;
            held(format!("staged: {error}"))
        }
    }
}

fn callbacks(stage: &Stage) -> Shown {
    let kernel = counting(&stage.device, "increment")?;
    let counters = [(); 3].map(|()| stage.device.zeroed::<u32>(64));
    let (sender, receiver) = mpsc::channel();
    let mut events = Vec::new();
    for (number, counters) in counters.into_iter().enumerate() {
        let launch = kernel.launch().buffer("counters", &counters?);
        let event = launch.invocations(64).submit()?;
        let sender = sender.clone();
        event.on_completion(move |result| {
            // Nobody listens any more where the tour has ended with an error.
            let _ = sender.send((number, result.is_ok()));
        });
        events.push(event);
    }
    Event::wait_all(&events.iter().collect::<Vec<_>>())?;
    let mut told = [(); 3].map(|()| receiver.recv_timeout(Duration::from_secs(60)).ok());
    // What ends with one submission ends in no order.
    told.sort_unstable();
    expect("told", &told, &[0, 1, 2].map(|number| Some((number, true))))?;
    held("three launches, each told when it ended")
}

fn futures(stage: &Stage) -> Shown {
    let kernel = counting(&stage.device, "increment")?;
    let buffers = (0..8)
        .map(|_| stage.device.zeroed::<u32>(256))
        .collect::<Result<Vec<_>, _>>()?;
    let mut events = Vec::new();
    for buffer in &buffers {
        let launch = kernel.launch().buffer("counters", buffer);
        events.push(launch.invocations(256).submit()?);
    }
    let all = events.into_iter().map(IntoFuture::into_future);
    pollster::block_on(futures::future::try_join_all(all))?;
    for buffer in &buffers {
        expect("counters", &buffer.read()?, &vec![1; 256])?;
    }
    held("8 awaited at once")
}

fn read_back(stage: &Stage) -> Shown {
    let kernel = counting(&stage.device, "increment")?;
    let counters = stage.device.zeroed::<u32>(1 << 20)?;
    let _event = kernel
        .launch()
        .buffer("counters", &counters)
        .invocations(1 << 20)
        .submit()?;
    let pending = counters.read_back(..)?;
    let mut work = 0u64;
    let values = loop {
        if let Some(values) = pending.try_take()? {
            break values;
        }
        // Anything may happen here; the device goes on meanwhile.
        work += 1;
        std::thread::yield_now();
    };
    expect(
        "sum",
        &values.iter().map(|&v| u64::from(v)).sum::<u64>(),
        &(1 << 20),
    )?;
    held(format!("4 MiB, after {} early looks", grouped(work)))
}

fn profiling(stage: &Stage) -> Shown {
    let device = &stage.device;
    if !device.has(Aspect::TimestampQueries) {
        return Ok(Held::NotHere(
            device.capabilities().explain(Aspect::TimestampQueries),
        ));
    }
    let counters = device.zeroed::<u32>(1 << 20)?;
    let kernel = counting(device, "increment")?;
    let launch = kernel
        .launch()
        .buffer("counters", &counters)
        .invocations(1 << 20);
    let time = launch.profiled().submit()?.gpu_time()?;
    held(format!("{time:.1?} for 2^20 invocations"))
}
