//! The shared heap: allocation, the host's accesses, launches with pointers.

use std::sync::atomic::Ordering;

use bytemuck::{Pod, Zeroable};
use tombolo::allocator_api2::vec::Vec as HeapVec;
use tombolo::{Ptr, heap::HeapError};

use crate::problem::{Outcome, expect, wrong};
use crate::programs;
use crate::worker::{Block, Worker};

/// Allocations that a thread has at most.
const MOST: usize = 24;

pub fn allocate(w: &mut Worker<'_>) -> Outcome {
    if w.blocks.len() >= MOST {
        return free(w);
    }
    let len = w.random.length(3000);
    let heap = &w.world.heap;
    let block = match w.random.below(3) {
        0 => {
            let model = vec![0; len];
            heap.alloc_zeroed(len).map(|ptr| Block::new(ptr, model))
        }
        1 => {
            let align = 4 << w.random.below(7);
            let model = w.random.words(len);
            match heap.alloc_bytes(4 * len as u64, align) {
                Ok(bytes) if bytes.address() % align != 0 => {
                    return wrong("an alignment was not kept");
                }
                Ok(bytes) => {
                    let ptr: Ptr<u32> = bytes.cast();
                    w.again("first write", || heap.write(ptr, &model))?;
                    Ok(Block::new(ptr, model))
                }
                Err(error) => Err(error),
            }
        }
        _ => {
            let model = w.random.words(len);
            heap.alloc_slice(&model).map(|ptr| Block::new(ptr, model))
        }
    };
    match block {
        Ok(block) => w.blocks.push(block),
        Err(HeapError::OutOfMemory { .. }) if !w.blocks.is_empty() => return free(w),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Also while launches use it: nothing else comes there before they have ended.
pub fn free(w: &mut Worker<'_>) -> Outcome {
    let Some(at) = w.pick(w.blocks.len()) else {
        return Ok(());
    };
    let block = w.blocks.swap_remove(at);
    Ok(w.world.heap.free(block.ptr)?)
}

pub fn read(w: &mut Worker<'_>) -> Outcome {
    let Some(at) = w.pick(w.blocks.len()) else {
        return Ok(());
    };
    let block = &w.blocks[at];
    let range = w.random.range(block.model.len());
    let ptr = block.ptr.add(range.start as u64);
    let found = w.again("read", || w.world.heap.read(ptr, range.len()))?;
    expect("memory of the heap", &found, &block.model[range])
}

pub fn write(w: &mut Worker<'_>) -> Outcome {
    let Some(at) = w.pick(w.blocks.len()) else {
        return Ok(());
    };
    let range = w.random.range(w.blocks[at].model.len());
    let values = w.random.words(range.len());
    let ptr = w.blocks[at].ptr.add(range.start as u64);
    w.again("write", || w.world.heap.write(ptr, &values))?;
    w.blocks[at].model[range].copy_from_slice(&values);
    Ok(())
}

pub fn fill(w: &mut Worker<'_>) -> Outcome {
    let Some(at) = w.pick(w.blocks.len()) else {
        return Ok(());
    };
    let range = w.random.range(w.blocks[at].model.len());
    let value = w.random.word();
    let ptr = w.blocks[at].ptr.add(range.start as u64);
    if w.random.below(2) == 0 {
        w.again("fill", || w.world.heap.fill(ptr, value, range.len()))?;
    } else {
        let gear = w.gear();
        w.order(&gear, &[at])?;
        let event = w.again("fill on the device", || {
            gear.device.heap_fill(ptr, value, range.len())
        })?;
        w.done(&gear, &[at], &event);
        w.await_event(event)?;
    }
    w.blocks[at].model[range].fill(value);
    Ok(())
}

/// From one block to another one.
fn two(w: &mut Worker<'_>) -> Option<(usize, usize, usize)> {
    let (from, to) = (w.pick(w.blocks.len())?, w.pick(w.blocks.len())?);
    let len = w.blocks[from].model.len().min(w.blocks[to].model.len());
    (from != to).then(|| (from, to, 1 + w.random.below(len)))
}

pub fn copy(w: &mut Worker<'_>) -> Outcome {
    let Some((from, to, len)) = two(w) else {
        return Ok(());
    };
    let (source, target) = (w.blocks[from].ptr, w.blocks[to].ptr);
    w.again("copy", || w.world.heap.copy(source, target, len))?;
    let values = w.blocks[from].model[..len].to_vec();
    w.blocks[to].model[..len].copy_from_slice(&values);
    Ok(())
}

pub fn copy_on_device(w: &mut Worker<'_>) -> Outcome {
    let Some((from, to, len)) = two(w) else {
        return Ok(());
    };
    let gear = w.gear();
    w.order(&gear, &[from, to])?;
    let (source, target) = (w.blocks[from].ptr, w.blocks[to].ptr);
    if w.random.below(4) == 0 {
        let event = w.again("prefetch", || gear.device.heap_prefetch(source, len))?;
        w.await_event(event)?;
    }
    let event = w.again("copy on the device", || {
        gear.device.heap_copy(source, target, len)
    })?;
    w.done(&gear, &[from, to], &event);
    w.await_event(event)?;
    let values = w.blocks[from].model[..len].to_vec();
    w.blocks[to].model[..len].copy_from_slice(&values);
    Ok(())
}

/// An access of the host to all of a thread's memory at once.
pub fn look(w: &mut Worker<'_>) -> Outcome {
    w.note("access");
    let mut host = w.world.heap.host()?;
    for block in &w.blocks {
        expect(
            "memory that the host looks at",
            host.slice(block.ptr, block.model.len())?,
            &block.model,
        )?;
    }
    if let Some(at) = w.pick(w.blocks.len()) {
        let range = w.random.range(w.blocks[at].model.len());
        let values = w.random.words(range.len());
        let block = &mut w.blocks[at];
        let words = host.slice_mut(block.ptr, block.model.len())?;
        words[range.clone()].copy_from_slice(&values);
        block.model[range].copy_from_slice(&values);
    }
    Ok(())
}

/// Words that are changed without an access.
pub fn count_together(w: &mut Worker<'_>) -> Outcome {
    let Some(at) = w.pick(w.blocks.len()) else {
        return Ok(());
    };
    let plus = w.random.word();
    let (ptr, len) = (w.blocks[at].ptr, w.blocks[at].model.len());
    // A view waits for no launch, and this thread may have some that change these words; a read waits.
    w.again("read", || w.world.heap.read(ptr, len))?;
    let view = w.again("atomic view", || w.world.heap.atomic_u32_slice(ptr, len))?;
    for (word, model) in view.iter().zip(&mut w.blocks[at].model) {
        let before = word.fetch_add(plus, Ordering::Relaxed);
        if before != *model {
            return wrong(format!(
                "an atomic word held {before:#x} instead of {model:#x}"
            ));
        }
        *model = model.wrapping_add(plus);
    }
    Ok(())
}

/// A collection of Rust in the heap.
pub fn collect(w: &mut Worker<'_>) -> Outcome {
    // SAFETY: what lives in the collection is reached by no launch, since no pointer to it leaves this function, and
    // kernels of this program stay within the memory that they are given.
    let allocator = unsafe { w.world.heap.allocator() };
    let values = {
        let len = w.random.length(500);
        w.random.words(len)
    };
    w.note("collection");
    let mut collection = HeapVec::new_in(allocator);
    collection.extend(values.iter().copied());
    if w.world.heap.pointer_to(collection.as_ptr()).is_none() {
        return wrong("a collection of the heap does not lie in it");
    }
    expect("a collection", &collection, &values)
}

/// Questions, and what has to be refused.
pub fn ask(w: &mut Worker<'_>) -> Outcome {
    let heap = &w.world.heap;
    w.note("questions");
    for block in &w.blocks {
        let found = heap.find(block.ptr);
        let bytes = 4 * block.model.len() as u64;
        if found.is_none_or(|found| found.size < bytes) {
            return wrong(format!("{bytes} bytes at {:?} are not known", block.ptr));
        }
    }
    if heap.read(Ptr::<u32>::null(), 1).is_ok() || heap.free(Ptr::<u32>::null()).is_ok() {
        return wrong("null was taken for memory");
    }
    if heap.alloc_bytes(8, 3).is_ok() || heap.alloc_zeroed::<u32>(1 << 40).is_ok() {
        return wrong("an impossible allocation was made");
    }
    let statistics = heap.statistics();
    if statistics.in_use > heap.bound() || heap.committed() > heap.bound() {
        return wrong("the heap is larger than its bound");
    }
    heap.trim();
    Ok(())
}

pub fn launch(w: &mut Worker<'_>) -> Outcome {
    let Some(at) = w.pick(w.blocks.len()) else {
        return Ok(());
    };
    let gear = w.gear();
    w.order(&gear, &[at])?;
    let rounds = 1 + w.random.below(3) as u32 * 20;
    let kernel = gear.kernel(&w.world.programs.work, &programs::rounds(rounds))?;
    let block = &w.blocks[at];
    let mut launch = kernel
        .launch()
        .pointer("data", block.ptr, block.model.len())
        .invocations(block.model.len());
    let event = w.submit(&mut launch)?;
    w.done(&gear, &[at], &event);
    for word in &mut w.blocks[at].model {
        *word = programs::work(*word, rounds);
    }
    w.await_event(event)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Node {
    value: u32,
    padding: u32,
    next: Ptr<Node>,
}

/// A list that Rust builds and a kernel changes.
pub fn list(w: &mut Worker<'_>) -> Outcome {
    let heap = &w.world.heap;
    let mut nodes: Vec<(Ptr<Node>, u32)> = Vec::new();
    for value in {
        let len = w.random.length(60);
        w.random.words(len)
    } {
        let next = nodes.last().map_or_else(Ptr::null, |(ptr, _)| *ptr);
        nodes.push((
            heap.alloc(Node {
                value,
                padding: 0,
                next,
            })?,
            value,
        ));
    }
    let first = nodes.last().map_or_else(Ptr::null, |(ptr, _)| *ptr);
    let gear = w.gear();
    let plus = w.random.word();
    let kernel = gear.kernel(&w.world.programs.list, &tombolo::Constants::new())?;
    let mut launch = kernel
        .launch()
        .value("list", &first)
        .value("plus", &plus)
        .workgroups(1);
    let event = w.submit(&mut launch)?;
    w.await_event(event)?;
    for (ptr, value) in nodes {
        let node = w.again("read a node", || heap.read(ptr, 1))?[0];
        if node.value != value.wrapping_add(plus) {
            return wrong(format!(
                "a node of a list holds {:#x} instead of {value:#x} + {plus:#x}",
                node.value
            ));
        }
        heap.free(ptr)?;
    }
    Ok(())
}
