//! Buffers of one device.

use std::ops::Range;

use tombolo::Event;

use crate::problem::{Outcome, expect};
use crate::programs;
use crate::worker::{OnDevice, Worker};

/// Buffers that a thread has at most.
const MOST: usize = 12;

pub fn make(w: &mut Worker<'_>) -> Outcome {
    if w.on_devices.len() >= MOST {
        return release(w);
    }
    let gear = w.gear();
    let len = w.random.length(5000);
    let (buffer, model) = match w.random.below(3) {
        0 => (gear.device.zeroed(len)?, vec![0; len]),
        _ => {
            let model = w.random.words(len);
            (gear.device.buffer(&model)?, model)
        }
    };
    w.on_devices.push(OnDevice {
        gear,
        buffer,
        model,
    });
    Ok(())
}

pub fn release(w: &mut Worker<'_>) -> Outcome {
    if let Some(at) = w.pick(w.on_devices.len()) {
        drop(w.on_devices.swap_remove(at));
    }
    Ok(())
}

fn part(w: &mut Worker<'_>) -> Option<(usize, Range<usize>)> {
    let at = w.pick(w.on_devices.len())?;
    let range = w.random.range(w.on_devices[at].model.len());
    let held = &w.on_devices[at];
    w.note(format!(
        "buffer of {} words on device {}, {range:?}",
        held.model.len(),
        held.gear.number
    ));
    Some((at, range))
}

pub fn launch(w: &mut Worker<'_>) -> Outcome {
    let Some((at, _)) = part(w) else {
        return Ok(());
    };
    let rounds = 1 + w.random.below(2) as u32 * 50;
    let held = &mut w.on_devices[at];
    let kernel = held
        .gear
        .kernel(&w.world.programs.work, &programs::rounds(rounds))?;
    let mut launch = kernel
        .launch()
        .buffer("data", &held.buffer)
        .invocations(held.model.len());
    for word in &mut held.model {
        *word = programs::work(*word, rounds);
    }
    let event = w.submit(&mut launch)?;
    w.await_event(event)
}

pub fn read(w: &mut Worker<'_>) -> Outcome {
    let Some((at, range)) = part(w) else {
        return Ok(());
    };
    let kind = w.random.below(4);
    let held = &w.on_devices[at];
    let (start, end) = (range.start as u64, range.end as u64);
    let (found, range) = match kind {
        0 => (held.buffer.read()?, 0..held.model.len()),
        1 => (held.buffer.read_range(start..end)?, range),
        2 => (held.buffer.read_back(start..end)?.wait()?, range),
        _ => {
            let back = held.buffer.read_back(start..end)?;
            held.gear.device.flush()?;
            loop {
                if let Some(found) = back.try_take()? {
                    break (found, range);
                }
                std::thread::yield_now();
            }
        }
    };
    expect("a buffer of a device", &found, &held.model[range])
}

pub fn write(w: &mut Worker<'_>) -> Outcome {
    let Some((at, range)) = part(w) else {
        return Ok(());
    };
    let event = if w.random.below(2) == 0 {
        let values = w.random.words(range.len());
        let event = w.on_devices[at].buffer.write(range.start as u64, &values)?;
        w.on_devices[at].model[range].copy_from_slice(&values);
        event
    } else {
        let value = w.random.word();
        let event = w.on_devices[at].buffer.fill(
            value,
            range.start as u64..range.start as u64 + range.len() as u64,
        )?;
        w.on_devices[at].model[range].fill(value);
        event
    };
    w.await_event(event)
}

pub fn copy(w: &mut Worker<'_>) -> Outcome {
    let (Some((from, range)), Some(to)) = (part(w), w.pick(w.on_devices.len())) else {
        return Ok(());
    };
    if from == to || range.len() > w.on_devices[to].model.len() {
        return Ok(());
    }
    let start = w
        .random
        .below(w.on_devices[to].model.len() - range.len() + 1);
    let (source, target) = (&w.on_devices[from], &w.on_devices[to]);
    let copied = source.buffer.copy_to(
        range.start as u64,
        &target.buffer,
        start as u64,
        range.len() as u64,
    );
    let event: Event = copied?;
    let values = w.on_devices[from].model[range.clone()].to_vec();
    w.on_devices[to].model[start..start + range.len()].copy_from_slice(&values);
    w.await_event(event)
}

/// Between a buffer of a device and the heap.
pub fn heap(w: &mut Worker<'_>) -> Outcome {
    let (Some((at, range)), Some(block)) = (part(w), w.pick(w.blocks.len())) else {
        return Ok(());
    };
    let len = range.len().min(w.blocks[block].model.len());
    let (start, range) = (range.start as u64, range.start..range.start + len);
    let ptr = w.blocks[block].ptr;
    let gear = std::sync::Arc::clone(&w.on_devices[at].gear);
    w.order(&gear, &[block])?;
    let event = if w.random.below(2) == 0 {
        let buffer = &w.on_devices[at].buffer;
        let event = w.again("copy to the heap", || {
            buffer.copy_to_heap(start, ptr, len as u64)
        })?;
        let values = w.on_devices[at].model[range].to_vec();
        w.blocks[block].model[..len].copy_from_slice(&values);
        event
    } else {
        let buffer = &w.on_devices[at].buffer;
        let event = w.again("copy from the heap", || {
            buffer.copy_from_heap(start, ptr, len as u64)
        })?;
        let values = w.blocks[block].model[..len].to_vec();
        w.on_devices[at].model[range].copy_from_slice(&values);
        event
    };
    w.done(&gear, &[block], &event);
    w.await_event(event)
}
