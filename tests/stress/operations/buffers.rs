//! Buffers of the context, whose bytes are where they are needed.

use tombolo::{
    Buffer,
    buffers::{BufferError, Placement},
};

use crate::problem::{Outcome, expect, wrong};
use crate::programs;
use crate::worker::{Held, Worker};
use crate::world::PART;

/// Buffers that a thread has at most.
const MOST: usize = 12;

pub fn make(w: &mut Worker<'_>) -> Outcome {
    if w.buffers.len() >= MOST {
        return release(w);
    }
    let len = w.random.length(6000);
    let model = w.random.words(len);
    let placement = match w.random.below(6) {
        0 => Placement::Shared,
        1 => Placement::Device,
        _ => Placement::Auto,
    };
    w.note(format!("{len} words, {placement:?}"));
    let context = &w.world.context;
    let buffer = match w.random.below(3) {
        0 => context.buffer_from_vec_with(model.clone(), placement)?,
        1 if placement == Placement::Auto => context.buffer_from(&model)?,
        _ => {
            let buffer = context.buffer_with(len, placement)?;
            w.again("write", || buffer.write(0, &model))?;
            buffer
        }
    };
    w.buffers.push(Held { buffer, model });
    Ok(())
}

pub fn release(w: &mut Worker<'_>) -> Outcome {
    if let Some(at) = w.pick(w.buffers.len()) {
        drop(w.buffers.swap_remove(at));
    }
    Ok(())
}

/// A part of one of the buffers, or all of it.
fn part(w: &mut Worker<'_>) -> Option<(usize, std::ops::Range<usize>)> {
    let at = w.pick(w.buffers.len())?;
    let range = w.random.range(w.buffers[at].model.len());
    w.note(format!(
        "buffer of {} words, {range:?}",
        w.buffers[at].model.len()
    ));
    Some((at, range))
}

fn words(range: &std::ops::Range<usize>) -> std::ops::Range<u64> {
    range.start as u64..range.end as u64
}

pub fn launch(w: &mut Worker<'_>) -> Outcome {
    let Some((at, range)) = part(w) else {
        return Ok(());
    };
    let gear = w.gear();
    let rounds = 1 + w.random.below(2) as u32 * 30;
    let kernel = gear.kernel(&w.world.programs.work, &programs::rounds(rounds))?;
    let slice = w.buffers[at].buffer.slice(words(&range))?;
    let mut launch = kernel
        .launch()
        .buffer("data", &slice)
        .invocations(range.len());
    if w.random.below(8) == 0 {
        w.note("explain");
        launch.explain()?;
    }
    let event = w.submit(&mut launch)?;
    for word in &mut w.buffers[at].model[range] {
        *word = programs::work(*word, rounds);
    }
    w.await_event(event)
}

pub fn read(w: &mut Worker<'_>) -> Outcome {
    let Some((at, range)) = part(w) else {
        return Ok(());
    };
    let held = &w.buffers[at];
    let found = match range.len() == held.model.len() {
        true => w.again("read", || held.buffer.read())?,
        false => w.again("read", || held.buffer.read_range(words(&range)))?,
    };
    expect("a buffer of the context", &found, &held.model[range])
}

pub fn write(w: &mut Worker<'_>) -> Outcome {
    let Some((at, range)) = part(w) else {
        return Ok(());
    };
    let values = w.random.words(range.len());
    let buffer = w.buffers[at].buffer.clone();
    w.again("write", || buffer.write(range.start as u64, &values))?;
    w.buffers[at].model[range].copy_from_slice(&values);
    Ok(())
}

pub fn fill(w: &mut Worker<'_>) -> Outcome {
    let Some((at, range)) = part(w) else {
        return Ok(());
    };
    let value = w.random.word();
    let buffer = w.buffers[at].buffer.clone();
    w.again("fill", || buffer.fill(value, words(&range)))?;
    w.buffers[at].model[range].fill(value);
    Ok(())
}

pub fn copy(w: &mut Worker<'_>) -> Outcome {
    let (Some((from, range)), Some(to)) = (part(w), w.pick(w.buffers.len())) else {
        return Ok(());
    };
    if from == to || range.len() > w.buffers[to].model.len() {
        return Ok(());
    }
    let start = w.random.below(w.buffers[to].model.len() - range.len() + 1);
    let target = start..start + range.len();
    let source = w.buffers[from].buffer.slice(words(&range))?;
    let sink = w.buffers[to].buffer.slice(words(&target))?;
    w.again("copy", || source.copy_to(&sink))?;
    let values = w.buffers[from].model[range].to_vec();
    w.buffers[to].model[target].copy_from_slice(&values);
    Ok(())
}

pub fn map(w: &mut Worker<'_>) -> Outcome {
    let Some((at, range)) = part(w) else {
        return Ok(());
    };
    let buffer = w.buffers[at].buffer.clone();
    let places = words(&range);
    match w.random.below(3) {
        0 => {
            let mapped = w.again("map", || buffer.map(places.clone()))?;
            expect("mapped words", &mapped, &w.buffers[at].model[range])
        }
        1 => {
            let mut mapped = w.again("map to write", || buffer.map_mut(places.clone()))?;
            expect(
                "words mapped to write",
                &mapped,
                &w.buffers[at].model[range.clone()],
            )?;
            let changed = w.random.range(range.len());
            let values = w.random.words(changed.len());
            mapped[changed.clone()].copy_from_slice(&values);
            mapped.unmap()?;
            let start = range.start + changed.start;
            w.buffers[at].model[start..][..values.len()].copy_from_slice(&values);
            Ok(())
        }
        _ => {
            let values = w.random.words(range.len());
            let mut mapped =
                w.again("map to overwrite", || buffer.map_overwrite(places.clone()))?;
            mapped[..].copy_from_slice(&values);
            let meanwhile = buffer.read_range(places.clone());
            if !matches!(meanwhile, Err(BufferError::Mapped { .. })) {
                return wrong("words that are mapped for writing were read");
            }
            drop(mapped);
            w.buffers[at].model[range].copy_from_slice(&values);
            Ok(())
        }
    }
}

/// Where bytes are to be.
pub fn place(w: &mut Worker<'_>) -> Outcome {
    let Some((at, range)) = part(w) else {
        return Ok(());
    };
    let gear = w.gear();
    let kind = w.random.below(5);
    let slice = w.buffers[at].buffer.slice(words(&range))?;
    match kind {
        0 | 1 => {
            w.note("prefetch");
            let event = w.again("prefetch", || slice.prefetch(&gear.device))?;
            w.await_event(event)?;
        }
        2 => {
            w.note("migrate");
            let event = w.again("migrate", || slice.migrate(&gear.device))?;
            w.await_event(event)?;
        }
        3 => {
            w.note("evict");
            w.again("evict", || slice.evict(&gear.device))?;
        }
        _ => {
            // What is there then is nobody's; so it is given a value again, by the device as often as by the host.
            w.note("discard");
            w.again("discard", || slice.discard())?;
            let value = w.random.word();
            w.again("fill", || slice.fill(value, ..))?;
            w.buffers[at].model[range].fill(value);
        }
    }
    Ok(())
}

pub fn ask(w: &mut Worker<'_>) -> Outcome {
    let Some((at, range)) = part(w) else {
        return Ok(());
    };
    let held = &w.buffers[at];
    if held.buffer.whereabouts().is_empty() {
        return wrong("a buffer with values is nowhere");
    }
    let bytes: Buffer<u8> = held.buffer.slice(words(&range))?.cast()?;
    let found = w.again("read", || bytes.read())?;
    if found != bytemuck::cast_slice::<u32, u8>(&held.model[range]) {
        return wrong("a buffer is another one as bytes");
    }
    let _ = (
        held.buffer.statistics(),
        w.world.context.buffer_statistics(),
    );
    Ok(())
}

/// This thread's part of the buffer that all threads use at once, each on any device.
pub fn shared_part(w: &mut Worker<'_>) -> Outcome {
    let part = w.own_part()?;
    let range = w.random.range(PART);
    match w.random.below(4) {
        0 => expect(
            "the shared buffer",
            &w.again("read", || part.read())?,
            &w.part,
        ),
        1 => {
            let values = w.random.words(range.len());
            w.again("write", || part.write(range.start as u64, &values))?;
            w.part[range].copy_from_slice(&values);
            Ok(())
        }
        _ => {
            let gear = w.gear();
            let kernel = gear.kernel(&w.world.programs.work, &programs::rounds(2))?;
            let slice = part.slice(words(&range))?;
            let mut launch = kernel
                .launch()
                .buffer("data", &slice)
                .invocations(range.len());
            let event = w.submit(&mut launch)?;
            for word in &mut w.part[range] {
                *word = programs::work(*word, 2);
            }
            w.await_event(event)
        }
    }
}
