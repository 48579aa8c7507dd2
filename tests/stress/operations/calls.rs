//! Calls: of kernels to Rust, and of threads to a kernel that stays on a device.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tombolo::{
    Constants, HostServices, Program,
    calls::CallStatus,
    device::{Aspect, ExecutionError, WaitError},
    server::{CallError, DeviceFunction},
};

use crate::problem::{Outcome, Problem, expect, wrong};
use crate::programs::mix;
use crate::worker::Worker;
use crate::world::Gear;

/// Whether a launch ended for the lack of turns: lavapipe has 65,535 for all loops of a launch, and how many a kernel
/// needs that waits depends on how busy the machine is. The error says so.
fn ran_out(error: &ExecutionError) -> bool {
    match error {
        ExecutionError::CallFailed { status, .. } => {
            matches!(status, CallStatus::TimedOut | CallStatus::Busy)
        }
        ExecutionError::Inherited { cause, .. } => ran_out(cause),
        _ => false,
    }
}

fn may_run_out(w: &Worker<'_>, gear: &Gear, error: WaitError) -> Outcome {
    match error {
        WaitError::Failed(error)
            if gear.device.capabilities().needs_loop_guard() && ran_out(&error) =>
        {
            w.world
                .counts
                .count("kernels that waited ran out of turns, and said so");
            Ok(())
        }
        error => Err(error.into()),
    }
}

/// A kernel that waits for the host's answers.
pub fn wait(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    let kernel = gear.kernel(&w.world.programs.call, &Constants::new());
    if gear.is_copy && !gear.device.has(Aspect::LiveMemory) {
        // The host sees nothing of a running kernel: refused when the kernel is made, or when it is launched.
        return match kernel {
            Err(_) => Ok(()),
            Ok(kernel) => {
                let data = gear.device.buffer(&[1u32])?;
                match kernel
                    .launch()
                    .services(&w.world.services)
                    .buffer("data", &data)
                    .invocations(1)
                    .submit()
                {
                    Err(_) => Ok(()),
                    Ok(_) => wrong("a kernel that waits was accepted where nobody can answer"),
                }
            }
        };
    }
    let kernel = kernel?;
    let model = {
        let len = w.random.length(64);
        w.random.words(len)
    };
    let data = gear.device.buffer(&model)?;
    let mut launch = kernel
        .launch()
        .services(&w.world.services)
        .buffer("data", &data)
        .invocations(model.len());
    let event = w.submit(&mut launch)?;
    w.note("wait for a kernel that calls");
    if let Err(error) = event.wait() {
        return may_run_out(w, &gear, error);
    }
    w.world
        .calls
        .fetch_add(model.len() as u64, Ordering::Relaxed);
    let expected: Vec<u32> = model.iter().zip(0..).map(|(&x, i)| mix(x, i)).collect();
    expect("answers of the host", &data.read()?, &expected)
}

/// A kernel that begins calls, and one that collects the answers.
pub fn later(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    let model = {
        let len = w.random.length(40);
        w.random.words(len)
    };
    let len = model.len();
    let data = gear.device.buffer(&model)?;
    let tickets = gear.device.zeroed::<u32>(len)?;
    let states = gear.device.buffer(&vec![CallStatus::Pending.code(); len])?;
    let kernel = |program: &Program| gear.kernel(program, &Constants::new());
    let (begin, collect) = (
        kernel(&w.world.programs.begin)?,
        kernel(&w.world.programs.collect)?,
    );
    let mut begin = begin
        .launch()
        .services(&w.world.services)
        .buffer("data", &data)
        .buffer("tickets", &tickets)
        .invocations(len);
    let event = w.submit(&mut begin)?;
    if let Err(error) = event.wait() {
        return may_run_out(w, &gear, error);
    }
    let mut collect = collect.launch().services(&w.world.services);
    collect = collect
        .buffer("data", &data)
        .buffer("tickets", &tickets)
        .buffer("states", &states)
        .invocations(len);
    // 0 where no port was free: others have theirs taken until they collect.
    let given = tickets.read()?;
    for turn in 0.. {
        w.note(format!("collect for time {turn}"));
        let event = w.submit(&mut collect)?;
        if let Err(error) = event.wait() {
            return may_run_out(w, &gear, error);
        }
        let mut is_complete = true;
        for (state, &ticket) in states.read()?.into_iter().zip(&given) {
            match CallStatus::from_code(state) {
                CallStatus::Done if ticket != 0 => {}
                CallStatus::NoTicket if ticket == 0 => {}
                CallStatus::Pending => is_complete = false,
                other => {
                    return wrong(format!(
                        "a call that was begun with the ticket {ticket:#x}: {other}"
                    ));
                }
            }
        }
        if is_complete {
            break;
        }
    }
    if given.contains(&0) {
        w.world
            .counts
            .count("launches began calls of which some found no free port, and said so");
    }
    let answer = |((&x, i), &ticket): ((&u32, u32), &u32)| match ticket {
        0 => x,
        _ => mix(x, i),
    };
    let expected: Vec<u32> = model.iter().zip(0..).zip(&given).map(answer).collect();
    expect("answers that were collected", &data.read()?, &expected)
}

/// Services that are stopped while a kernel calls them: it is told, or it has the answer.
pub fn stopped(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    if gear.is_copy {
        return Ok(());
    }
    let services = HostServices::builder()
        .call("fn stress_mix(x: u32, y: u32) -> u32", mix)
        .start()?;
    let program = Program::builder()
        .source("stopped.wgsl", STOPPED)
        .services(&services)
        .build()?;
    let kernel = gear.kernel(&program, &Constants::new())?;
    let (data, states) = (
        gear.device.buffer(&[5u32; 16])?,
        gear.device.zeroed::<u32>(16)?,
    );
    let mut launch = kernel
        .launch()
        .services(&services)
        .buffer("data", &data)
        .buffer("states", &states)
        .invocations(16);
    let event = w.submit(&mut launch)?;
    gear.device.flush()?;
    if w.random.below(2) == 0 {
        services.stop();
    } else {
        drop(services);
    }
    w.note("wait for a kernel whose services have stopped");
    if let Err(error) = event.wait() {
        return may_run_out(w, &gear, error);
    }
    let (data, states) = (data.read()?, states.read()?);
    for (i, (&word, &state)) in data.iter().zip(&states).enumerate() {
        let is_right = match state {
            state if state == CallStatus::Done.code() => word == mix(5, i as u32),
            state if state == CallStatus::Stopped.code() => word == 5,
            state if [CallStatus::TimedOut.code(), CallStatus::Busy.code()].contains(&state) => {
                word == 5 && gear.device.capabilities().needs_loop_guard()
            }
            _ => false,
        };
        if !is_right {
            return wrong(format!(
                "call {i} of stopped services: status {state}, value {word:#x}"
            ));
        }
    }
    Ok(())
}

const STOPPED: &str = "
    @group(0) @binding(0) var<storage, read_write> data: array<u32>;
    @group(0) @binding(1) var<storage, read_write> states: array<u32>;
    @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        let reply = stress_mix_try(data[id.x], id.x);
        states[id.x] = reply.status;
        if reply.status == CALL_DONE { data[id.x] = reply.value; }
    }";

/// A thread calls a kernel.
pub fn server(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    let stops = gear.stops.load(Ordering::SeqCst);
    let called = call(w, &gear);
    match called {
        // Others stop and start servers all the time.
        Err(Called::Refused(CallError::Stopped { .. }))
            if stops != gear.stops.load(Ordering::SeqCst) || stops % 2 == 1 =>
        {
            w.world
                .counts
                .count("calls came to a server that was being stopped");
            Ok(())
        }
        Err(Called::Refused(CallError::HostAccess { .. })) => {
            w.world
                .counts
                .count("calls were refused because somebody looked at the heap");
            Ok(())
        }
        Err(Called::Refused(error)) => Err(error.into()),
        Err(Called::Other(problem)) => Err(problem),
        Ok(()) => Ok(()),
    }
}

enum Called {
    Refused(CallError),
    Other(Problem),
}

impl From<CallError> for Called {
    fn from(error: CallError) -> Self {
        Self::Refused(error)
    }
}

impl From<Problem> for Called {
    fn from(problem: Problem) -> Self {
        Self::Other(problem)
    }
}

fn call(w: &mut Worker<'_>, gear: &Gear) -> Result<(), Called> {
    const TIMEOUT: Duration = Duration::from_secs(100);
    w.note("server");
    let server = gear.server(&w.world.programs)?;
    let answer: DeviceFunction<(u32, u32), u32> =
        server.function("stress_answer").map_err(Problem::from)?;
    let calls: Vec<(u32, u32)> = (0..1 + w.random.below(20))
        .map(|i| (w.random.word(), i as u32))
        .collect();
    let expected: Vec<u32> = calls.iter().map(|&(x, y)| mix(x, y)).collect();
    let found = match w.random.below(5) {
        0 => {
            w.note("call_all");
            answer.call_all(&calls)?
        }
        1 => {
            w.note("call_many");
            answer
                .call_many(&calls)
                .into_iter()
                .collect::<Result<_, _>>()?
        }
        2 => {
            w.note("begin and wait");
            let pending: Vec<_> = calls.iter().map(|call| answer.begin(call)).collect();
            pending
                .into_iter()
                .map(|call| call.wait_timeout(TIMEOUT))
                .collect::<Result<_, _>>()?
        }
        3 => {
            w.note("begin, and drop some");
            let mut answers = Vec::new();
            for (i, arguments) in calls.iter().enumerate() {
                let pending = answer.begin(arguments);
                answers.push(if i % 3 == 0 {
                    expected[i]
                } else {
                    pollster::block_on(pending)?
                });
            }
            answers
        }
        _ => {
            w.note("call");
            calls
                .iter()
                .map(|call| answer.call_timeout(call, TIMEOUT))
                .collect::<Result<_, _>>()?
        }
    };
    Ok(expect("answers of a server", &found, &expected)?)
}

/// Stops a server, starts it again, or lets it go, while others call it.
pub fn stop_server(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    let Some(server) = gear.take_server() else {
        return Ok(());
    };
    gear.stops.fetch_add(1, Ordering::SeqCst);
    match w.random.below(3) {
        0 => {
            w.note("stop a server");
            server.stop();
        }
        1 => {
            w.note("stop a server and start it again");
            server.stop();
            server.restart()?;
        }
        _ => w.note("drop a server"),
    }
    drop(server);
    gear.stops.fetch_add(1, Ordering::SeqCst);
    Ok(())
}
