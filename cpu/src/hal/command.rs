//! Commands: the records of an encoder, and how each command runs.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use smallvec::SmallVec;
use wgpu_hal as hal;

use super::{
    BindGroup, Buffer, ComputePipeline, Fence, QuerySet, at_once::Encoding, texture::CopyRows,
};
use crate::{
    compile::abi::BoundResource,
    exec::{
        copy::copy,
        grid::Dispatch,
        limit::{Stoppable, Stops},
        loss::Loss,
        pool::Pool,
        timeline::Work,
        times::{Choice, SHORT},
    },
};

/// Bytes of copies taking less time than waking a thread.
pub(super) const SMALL_COPY: u64 = 64 * 1024;

/// The time of a command about queries.
const QUERY: Duration = Duration::from_nanos(100);

/// The resources of a dispatch, for its kernels.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) pipeline: ComputePipeline,
    pub(super) buffers: Vec<BoundResource>,
    /// Places in `buffers` used by nothing but a reduction of the kernel
    pub(super) reduced: SmallVec<[usize; 2]>,
    /// Keeps the memory of `buffers` alive
    #[expect(dead_code, reason = "kept for what its destructor does")]
    pub(super) groups: Vec<BindGroup>,
    pub(super) immediates: Arc<[u32]>,
    /// The last debug marker
    pub(super) marker: Option<Arc<str>>,
    /// What stops the dispatch, if it can be stopped by itself
    pub(super) stop: Option<Arc<Stoppable>>,
}

// SAFETY: `buffers` point into memory kept alive by `groups` and accessible from any thread.
unsafe impl Send for Bound {}
// SAFETY: as above.
unsafe impl Sync for Bound {}

/// A command.
#[derive(Clone, Debug)]
pub(super) enum Command {
    Clear(Buffer, Range<u64>),
    Copy {
        from: Buffer,
        to: Buffer,
        region: hal::BufferCopy,
    },
    CopyRows(CopyRows),
    Dispatch(Arc<Bound>, [u32; 3]),
    /// The counts are at an offset of a buffer
    DispatchIndirect(Arc<Bound>, Buffer, u64),
    /// The dispatches in front, of this stop, have ended
    Over(Arc<Stoppable>),
    Timestamp(QuerySet, u32),
    ResetQueries(QuerySet, Range<u32>),
    CopyQueries {
        set: QuerySet,
        range: Range<u32>,
        to: Buffer,
        offset: u64,
        stride: u64,
    },
}

/// Recorded commands.
#[derive(Clone, Debug, Default)]
pub struct CommandBuffer {
    pub(super) commands: Arc<Vec<Command>>,
    /// What stops dispatches among the commands
    pub(super) stops: SmallVec<[Arc<Stoppable>; 1]>,
    /// Until the commands are in line
    pub(super) encoding: Option<Arc<Encoding>>,
}

impl Command {
    /// The time of the command on one thread; `None` if unknown, or of no use.
    fn estimate(&self) -> Option<Duration> {
        match self {
            Command::Clear(_, range) => time_of_copy(range.end.saturating_sub(range.start)),
            Command::Copy { region, .. } => time_of_copy(region.size.get()),
            Command::CopyRows(copy) => time_of_copy(copy.bytes()),
            Command::Dispatch(bound, count) => {
                let (groups, operations) = bound.work(*count);
                let is_bounded = !bound.pipeline.kernel.polls;
                (is_bounded.then(|| bound.pipeline.times.estimate(groups, operations))).flatten()
            }
            Command::DispatchIndirect(..) => None,
            Command::Timestamp(..)
            | Command::ResetQueries(..)
            | Command::CopyQueries { .. }
            | Command::Over(_) => Some(QUERY),
        }
    }

    fn run(&self, pool: Option<&Pool>, stops: &Stops) -> Result<(), Loss> {
        match self {
            Command::Clear(buffer, range) => {
                if let Some((start, bytes)) = buffer.range(range.clone()) {
                    // SAFETY: the range lies in the buffer, kept alive by the command. wgpu orders commands on the buffer, and
                    // the host does not access the buffer meanwhile.
                    unsafe { start.write_bytes(0, bytes) };
                    buffer.written(range);
                }
                Ok(())
            }
            Command::Copy { from, to, region } => {
                let bytes = region.size.get();
                let source = from.copied(region.src_offset..region.src_offset + bytes);
                let target = to.copied(region.dst_offset..region.dst_offset + bytes);
                if let (Some(source), Some(target)) = (source, target) {
                    let (source, target, count) = source.common(&target);
                    let threads = pool.map_or(1, Pool::threads);
                    // SAFETY: as above.
                    unsafe { copy(source, target, count, threads) };
                    to.written(&(region.dst_offset..region.dst_offset + bytes));
                }
                Ok(())
            }
            Command::CopyRows(copy) => {
                copy.run();
                Ok(())
            }
            Command::Dispatch(bound, count) => bound.run(*count, pool, stops),
            Command::DispatchIndirect(bound, buffer, offset) => {
                let Some((start, _)) = buffer.range(*offset..*offset + 12) else {
                    return Ok(());
                };
                // SAFETY: the range lies in the buffer, and holds three numbers at any alignment.
                let count = unsafe { start.cast::<[u32; 3]>().read_unaligned() };
                bound.run(count, pool, stops)
            }
            Command::Over(stop) => {
                stop.word.close();
                Ok(())
            }
            Command::Timestamp(set, index) => {
                set.write_timestamp(*index);
                Ok(())
            }
            Command::ResetQueries(set, range) => {
                set.reset(range.clone());
                Ok(())
            }
            Command::CopyQueries {
                set,
                range,
                to,
                offset,
                stride,
            } => {
                let mut offset = *offset;
                for value in set.results(range.clone()) {
                    if let Some((start, _)) = to.range(offset..offset + 8) {
                        // SAFETY: the range lies in the buffer, as above.
                        unsafe { start.cast::<u64>().write_unaligned(value) };
                    }
                    offset += stride;
                }
                Ok(())
            }
        }
    }
}

/// The time of a copy of few bytes: eight of them in a nanosecond.
fn time_of_copy(bytes: u64) -> Option<Duration> {
    (bytes <= SMALL_COPY).then(|| QUERY + Duration::from_nanos(bytes / 8))
}

impl Bound {
    /// The work-groups and estimated operations of a dispatch.
    fn work(&self, count: [u32; 3]) -> (u64, u64) {
        let groups = count.iter().fold(1u64, |n, &c| n.saturating_mul(c.into()));
        (groups, groups.saturating_mul(self.pipeline.kernel.cost))
    }

    /// Runs a dispatch on as many threads as pay, and as there are.
    fn run_on(
        &self,
        pool: Option<&Pool>,
        dispatch: Dispatch,
        stop: &Arc<AtomicU32>,
    ) -> Result<(), Loss> {
        let (groups, operations) = self.work(dispatch.count);
        let choice = match self.pipeline.kernel.polls {
            // A long wait is possible: other work-groups are to run meanwhile.
            true => Choice::Spread,
            false => self.pipeline.times.choose(groups, operations),
        };
        match (choice, pool) {
            (Choice::Spread, Some(pool)) => pool.run(dispatch, stop),
            (Choice::Timed, _) => {
                let begin = Instant::now();
                let result = Pool::run_alone(dispatch, stop);
                // The time of a stopped dispatch says nothing of others.
                if stop.load(Ordering::Relaxed) == 0 {
                    self.pipeline.times.note(groups, begin.elapsed());
                }
                result
            }
            _ => Pool::run_alone(dispatch, stop),
        }
    }

    fn run(&self, count: [u32; 3], pool: Option<&Pool>, stops: &Stops) -> Result<(), Loss> {
        stops.run(self.stop.as_deref(), |stop| {
            self.run_until(count, pool, stop)
        })
    }

    /// Runs a dispatch, until `stop` is set.
    fn run_until(
        &self,
        count: [u32; 3],
        pool: Option<&Pool>,
        stop: &Arc<AtomicU32>,
    ) -> Result<(), Loss> {
        if count.contains(&0) {
            return Ok(());
        }
        let monitor = self.pipeline.monitor(self.marker.as_ref());
        let schedule = self.pipeline.schedule();
        let dispatch = Dispatch {
            kernel: self.pipeline.kernel.clone(),
            buffers: self.buffers.clone(),
            reduced: self.reduced.clone(),
            immediates: self.immediates.clone(),
            count,
            zero_workgroup: self.pipeline.zero_workgroup,
            monitor: monitor.clone(),
            schedule,
        };
        // A single thread has a single order, and a monitor a single view of the order.
        let alone = monitor.is_some() || schedule.is_some();
        let result = match alone {
            true => Pool::run_alone(dispatch, stop),
            false => self.run_on(pool, dispatch, stop),
        };
        if let Some(monitor) = monitor {
            self.pipeline.finish(&monitor);
        }
        result
    }
}

/// Command buffers of one submission.
pub(super) struct Submission {
    pub(super) buffers: Vec<CommandBuffer>,
    /// Raised in order at the end of the submission
    pub(super) fences: Vec<(Fence, hal::FenceValue)>,
}

impl Work for Submission {
    fn is_small(&self) -> bool {
        let commands = (self.buffers.iter()).flat_map(|buffer| buffer.commands.iter());
        let mut left = SHORT;
        for command in commands {
            let rest = (command.estimate()).and_then(|time| left.checked_sub(time));
            let Some(rest) = rest else {
                return false;
            };
            left = rest;
        }
        true
    }

    fn run(&self, pool: Option<&Pool>, stops: &Stops) -> Result<(), Loss> {
        for command in self
            .buffers
            .iter()
            .flat_map(|buffer| buffer.commands.iter())
        {
            command.run(pool, stops)?;
        }
        Ok(())
    }

    fn finish(self) {
        // Before anybody is told of the end: a told caller's stop comes too late.
        for stop in self.buffers.iter().flat_map(|buffer| &buffer.stops) {
            stop.word.close();
        }
        drop(self.buffers);
        for (fence, value) in &self.fences {
            fence.signal(*value);
        }
    }

    /// Waits end as after a run: the device's later answers to wgpu report the loss.
    fn give_up(self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;

    /// The first 12 bytes of a buffer, copied to memory on loan with byte 1 as the first.
    fn copy_to(to: &Buffer) -> Command {
        let from = Buffer::new(16, false).unwrap();
        let (start, bytes) = from.range(0..16).unwrap();
        // SAFETY: nobody else has the buffer yet.
        unsafe { start.write_bytes(5, bytes) };
        let size = wgpu_types::BufferSize::new(12).unwrap();
        Command::Copy {
            from,
            to: to.clone(),
            region: hal::BufferCopy {
                src_offset: 0,
                dst_offset: 0,
                size,
            },
        }
    }

    fn cleared(bytes: u64, times: usize) -> Submission {
        let buffer = Buffer::new(bytes, false).unwrap();
        let commands = vec![Command::Clear(buffer, 0..bytes); times];
        let buffer = CommandBuffer {
            commands: Arc::new(commands),
            stops: SmallVec::new(),
            encoding: None,
        };
        Submission {
            buffers: vec![buffer.clone(), buffer],
            fences: Vec::new(),
        }
    }

    #[test]
    fn many_short_commands_are_long_together() {
        assert!(cleared(64, 0).is_small());
        assert!(cleared(SMALL_COPY, 1).is_small());
        assert!(!cleared(SMALL_COPY, 2).is_small());
        assert!(!cleared(SMALL_COPY + 1, 1).is_small());
        assert!(cleared(64, 100).is_small());
        assert!(!cleared(64, 200).is_small());
    }

    #[test]
    fn copies_leave_memory_alone_that_is_on_loan_no_more() {
        let mut bytes = [7u8; 12];
        let address = NonNull::from(&mut bytes).cast::<u8>();
        // SAFETY: the bytes are not accessed otherwise before the loan is dropped.
        let (to, loan) = unsafe { Buffer::lend(address, 9, 1) };
        let copy = copy_to(&to);
        copy.run(None, &Stops::default()).unwrap();
        drop(loan);
        assert_eq!(bytes, [5, 5, 5, 5, 5, 5, 5, 5, 5, 7, 7, 7]);
        bytes.fill(9);
        copy.run(None, &Stops::default()).unwrap();
        let clear = Command::Clear(to, 0..12);
        clear.run(None, &Stops::default()).unwrap();
        assert_eq!(bytes, [9; 12]);
    }
}
