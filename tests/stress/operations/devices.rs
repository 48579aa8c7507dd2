//! Devices: sent, awaited, polled by others, trimmed, replaced while they are used, dropped with work in flight, lost.

use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

use tombolo::buffers::BufferError;

use crate::problem::{Outcome, expect, wrong};
use crate::programs;
use crate::worker::Worker;
use crate::world::{Gear, World};

pub fn flush(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    if w.random.below(2) == 0 {
        w.note("flush");
        gear.device.flush()?;
    } else {
        w.note("finish");
        gear.device.finish()?;
    }
    Ok(())
}

/// wgpu used directly, beside the runtime.
pub fn poll(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    let (device, queue) = (gear.device.raw(), gear.device.raw_queue());
    match w.random.below(3) {
        // Never `PollType::Wait`: in wgpu-core 30 it asserts when another thread polls or submits meanwhile.
        0 => {
            w.note("raw poll");
            let _ = device.poll(wgpu::PollType::Poll);
        }
        1 => {
            w.note("raw submission");
            let (done, is_done) = channel();
            queue.on_submitted_work_done(move || {
                let _ = done.send(());
            });
            queue.submit([]);
            gear.device.finish()?;
            drop(is_done);
        }
        _ => {
            w.note("raw buffer");
            let buffer = device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: 1024,
                usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
                mapped_at_creation: false,
            });
            queue.write_buffer(&buffer, 0, &[7; 1024]);
            let (mapped, is_mapped) = channel();
            buffer.map_async(wgpu::MapMode::Read, .., move |result| {
                let _ = mapped.send(result);
            });
            queue.submit([]);
            loop {
                let _ = device.poll(wgpu::PollType::Poll);
                match is_mapped.recv_timeout(Duration::from_millis(1)) {
                    Ok(result) => break result?,
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            let bytes = buffer.slice(..).get_mapped_range()?;
            if bytes.iter().any(|&byte| byte != 7) {
                return wrong("a buffer of wgpu has other bytes than were written");
            }
        }
    }
    Ok(())
}

pub fn trim(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    gear.device.trim_caches();
    gear.device.trim_buffer_blocks();
    gear.device.trim_buffers()?;
    let _ = (
        gear.device.cache_statistics(),
        gear.device.buffer_memory(),
        gear.device.globals(),
    );
    w.world.heap.trim();
    Ok(())
}

/// What all threads have added up on a device, once nothing runs there any more.
pub fn check_sums(gear: &Gear) -> Outcome {
    let expected: Vec<u32> = gear
        .expected
        .iter()
        .map(|word| word.load(Ordering::SeqCst))
        .collect();
    expect(
        "what all threads have added up",
        &gear.sums.read()?,
        &expected,
    )
}

/// Another device takes the place of one that others still use.
pub fn replace(w: &mut Worker<'_>) -> Outcome {
    // Opening one probes it, which takes long beside everything else.
    if w.random.below(4) != 0 {
        return Ok(());
    }
    let slot = w.random.below(w.world.slots.len());
    w.note(format!("replace device {slot}"));
    let old = w.world.replace(slot)?;
    w.globals.remove(&old.number);
    let world: &World = w.world;
    world.counts.count("devices were replaced");
    Ok(())
}

/// A device of this thread's own ends while work is in flight. What it wrote into memory that others have is there.
pub fn drop_in_flight(w: &mut Worker<'_>) -> Outcome {
    let slot = w.random.below(w.world.slots.len());
    w.note("open a device");
    let device = w.world.open_alone(slot)?;
    let model = w.random.words(800);
    let buffer = w.world.context.buffer_from_vec(model.clone())?;
    let on_device = device.buffer(&model)?;
    let kernel = device.kernel(&w.world.programs.work, "main", &programs::rounds(200))?;
    let mut launch = kernel
        .launch()
        .buffer("data", &buffer)
        .invocations(model.len());
    w.submit(&mut launch)?;
    let mut launch = kernel
        .launch()
        .buffer("data", &on_device)
        .invocations(model.len());
    let event = w.submit(&mut launch)?;
    if w.random.below(2) == 0 {
        device.flush()?;
    }
    w.note("drop a device with work in flight");
    drop((device, on_device, kernel, launch));
    let expected: Vec<u32> = model
        .iter()
        .map(|&word| programs::work(word, 200))
        .collect();
    if w.random.below(2) == 0 {
        drop(event);
    } else {
        w.note("wait for an event of a device that was dropped");
        event.wait()?;
    }
    expect(
        "what a device left that was dropped",
        &buffer.read()?,
        &expected,
    )
}

/// A device of this thread's own is destroyed. Whoever asks is told what is lost, and has the rest.
pub fn lose(w: &mut Worker<'_>) -> Outcome {
    let slot = w.random.below(w.world.slots.len());
    w.note("open a device");
    let device = w.world.open_alone(slot)?;
    let model = w.random.words(600);
    let buffer = w.world.context.buffer_from_vec(model.clone())?;
    let kernel = device.kernel(&w.world.programs.work, "main", &programs::rounds(100))?;
    let mut launch = kernel.launch().buffer("data", &buffer).invocations(300);
    // As many elements as are bound change.
    let half = buffer.slice(..300)?;
    launch.set_buffer("data", &half)?;
    w.submit(&mut launch)?;
    if w.random.below(2) == 0 {
        device.finish()?;
    }
    w.note("destroy a device");
    device.raw().destroy();
    let expected: Vec<u32> = model[..300]
        .iter()
        .map(|&word| programs::work(word, 100))
        .collect();
    match half.read() {
        Ok(found) => expect("what a device left that was destroyed", &found, &expected)?,
        Err(BufferError::Lost { .. } | BufferError::Execution(_) | BufferError::Memory(_)) => {
            w.world
                .counts
                .count("bytes were lost with a device that was destroyed, and reported");
        }
        Err(error) => return Err(error.into()),
    }
    expect(
        "what was never on a device that was destroyed",
        &buffer.slice(300..)?.read()?,
        &model[300..],
    )?;
    w.note("launch on a device that was destroyed");
    let data = match device.buffer(&model) {
        Ok(data) => data,
        Err(_) => return Ok(()),
    };
    match kernel
        .launch()
        .buffer("data", &data)
        .invocations(600)
        .submit()
        .map(|event| event.wait())
    {
        Ok(Ok(())) => wrong("a device that was destroyed ran a launch"),
        _ => Ok(()),
    }
}
