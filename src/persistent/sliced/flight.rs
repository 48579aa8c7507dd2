//! A slice on its way: calls written into the slice, the launch, and the answers at the launch's end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Calls, Flight, Slices, Slot, Taken};
use crate::clock::Instant;
use crate::device::server_pause::ServerLaunch;
use crate::device::{Event, ExecutionError};
use crate::kernel::server::packing::mark;
use crate::kernel::server::{FAILED, SLICE_ENTRY, SLICE_HEADER, SLICE_PREFIX};
use crate::launch::LaunchError;
use crate::memory::{HeapError, MemoryError, ReadBack};
use crate::persistent::bulk::Answers;
use crate::persistent::core::{Core, Stage};
use crate::persistent::error::ServerFailure;
use crate::persistent::packed::{Pack, Packed};
use crate::persistent::statistics::Cause;

/// Between two attempts to launch while the host has the heap.
const HELD: Duration = Duration::from_micros(200);

/// How long answers of an ended slice may take.
const ARRIVAL: Duration = Duration::from_secs(10);

impl Slices {
    /// Sends a slice; `false` if the device could not be had now.
    pub(super) fn send(
        &mut self,
        core: &Core,
        mut slot: Slot,
        calls: Calls,
        counted: ServerLaunch,
    ) -> Result<bool, ServerFailure> {
        // 0 stands for an answer that was never given.
        let lease = match core.leases.load(Ordering::Relaxed).wrapping_add(1) {
            0 => 1,
            lease => lease,
        };
        core.leases.store(lease, Ordering::Relaxed);
        let mut words = match &calls {
            Calls::Ports(calls) => self.written(core, calls),
            Calls::Bulk(bulk) => bulk.take_words(),
        };
        if let [count, number, ..] = &mut words[..] {
            let is_packed = matches!(calls, Calls::Bulk(_));
            let word = if is_packed { mark(lease) } else { lease };
            (*count, *number) = (calls.len() as u32, word);
        }
        let submitted = self.submit(core, &mut slot, &calls, &words);
        match &calls {
            Calls::Ports(_) => self.words = words,
            // For another attempt.
            Calls::Bulk(bulk) if submitted.is_err() => bulk.put_words(words),
            Calls::Bulk(_) => {}
        }
        match submitted {
            Ok((event, answers)) => {
                core.held.store(false, Ordering::Release);
                self.flights.push_back(Flight {
                    slot,
                    lease,
                    calls,
                    event,
                    answers,
                    counted,
                    since: Instant::now(),
                });
                Ok(true)
            }
            // Nothing was sent.
            Err(LaunchError::Heap(HeapError::HostAccess { .. })) => {
                self.free.push(slot);
                if core.stage() != Stage::Running {
                    // Taken for good: such calls get the news of the stop.
                    return Ok(false);
                }
                match calls {
                    Calls::Ports(calls) => {
                        for call in calls {
                            core.frame.take(call.port, call.request.wrapping_sub(1));
                        }
                        self.looked = None;
                    }
                    Calls::Bulk(bulk) => core.bulks.put_back(bulk),
                }
                // There was none.
                core.leases.store(lease.wrapping_sub(1), Ordering::Relaxed);
                core.held.store(true, Ordering::Release);
                core.landed.ring();
                // Slices on their way land meanwhile.
                let waits = self.flights.is_empty();
                if waits {
                    std::thread::sleep(HELD);
                }
                Ok(waits)
            }
            Err(error) => {
                if let Some(launched) = &self.lost {
                    // On the device all the same, and a pause waits for the end.
                    launched.on_completion(move |_| drop(counted));
                }
                self.free.push(slot);
                self.unanswered.push(calls);
                let error = Arc::new(error);
                Err(ServerFailure::Launch { lease, error })
            }
        }
    }

    /// Calls as they travel, with room for the header.
    pub(super) fn written(&mut self, core: &Core, calls: &[Taken]) -> Vec<u32> {
        let mut words = std::mem::take(&mut self.words);
        let given = self.shape.given;
        words.clear();
        words.resize(SLICE_HEADER + calls.len() * given, 0);
        let rest = words[SLICE_HEADER..].chunks_exact_mut(given);
        for (call, words) in calls.iter().zip(rest) {
            core.frame.posted(call.port, words);
        }
        words
    }

    /// Answers the calls of a slice that has ended.
    pub(super) fn land(
        &mut self,
        core: &Core,
        flight: Flight,
        end: Result<(), Arc<ExecutionError>>,
    ) -> (Slot, Result<(), ServerFailure>) {
        let Flight {
            slot,
            lease,
            calls,
            answers,
            ..
        } = flight;
        match end {
            Ok(()) => {}
            // The failure of a call, or the damage of another launch to the handler's data, which hides the failure.
            Err(error)
                if matches!(
                    *error,
                    ExecutionError::Assertion { .. }
                        | ExecutionError::CallFailed { .. }
                        | ExecutionError::Inherited { .. }
                ) =>
            {
                core.note_fault(lease, error);
            }
            Err(error) => {
                core.counters.ended(Cause::Failed);
                self.unanswered.push(calls);
                return (slot, Err(ServerFailure::LeaseFailed { lease, error }));
            }
        }
        let words = answers.wait_timeout(ARRIVAL).unwrap_or_else(|error| {
            log::error!("the answers of lease {lease} could not be read back: {error}");
            Vec::new()
        });
        let missing = match &calls {
            Calls::Ports(calls) => self.answer(core, calls, lease, &words),
            Calls::Bulk(bulk) => {
                let packing = bulk.packed.packing;
                let missing = packing.split(&words, bulk.count, lease).is_none();
                if !missing {
                    bulk.answer(Answers { lease, words });
                }
                missing
            }
        };
        core.ended.store(lease, Ordering::Release);
        if missing {
            core.counters.ended(Cause::Killed);
            self.unanswered.push(calls);
            let device = core.place();
            return (slot, Err(ServerFailure::LeaseKilled { lease, device }));
        }
        core.landed.ring();
        (slot, Ok(()))
    }

    /// Answers calls out of the ports; whether an answer was missing.
    pub(super) fn answer(&self, core: &Core, calls: &[Taken], lease: u32, words: &[u32]) -> bool {
        let mut missing = false;
        let mut answers = words.chunks_exact(self.shape.taken);
        for &Taken { port, request } in calls {
            let answer = answers.next().filter(|answer| answer[1] == lease);
            let Some(answer) = answer else {
                missing = true;
                continue;
            };
            // The lease leads a caller to the message of a failed call.
            let word = if answer[0] == FAILED { lease } else { 0 };
            let head = [answer[0], word];
            (core.frame).answer(port, request, head, &answer[SLICE_PREFIX..]);
        }
        missing
    }

    /// Sends `words` with a launch that serves `calls`, and asks for the answers.
    pub(super) fn submit(
        &mut self,
        core: &Core,
        slot: &mut Slot,
        calls: &Calls,
        words: &[u32],
    ) -> Result<(Event, ReadBack<u32>), LaunchError> {
        let refused = |error: MemoryError| LaunchError::from(error);
        let count = calls.len();
        let (launch, answers, range) = match calls {
            Calls::Ports(_) => {
                let range = 0..(count * self.shape.taken) as u64;
                (&mut slot.launch, &slot.answers, range)
            }
            Calls::Bulk(bulk) => {
                let at = Self::pack(core, slot, &bulk.packed)?;
                let pack = &mut slot.packs[at];
                let range = pack.packing.answers(count);
                (&mut pack.launch, &slot.packed, range)
            }
        };
        slot.requests.write(0, words).map_err(refused)?;
        let groups = self.shape.groups(count);
        #[cfg(test)]
        // The part left out by a driver that cuts a dispatch.
        let groups = groups - u32::from(core.kill.swap(false, Ordering::AcqRel));
        launch.set_workgroups(groups);
        let event = launch.submit()?;
        #[cfg(test)]
        let range = match core.deaf.swap(false, Ordering::AcqRel) {
            true => u64::MAX - 1..u64::MAX,
            false => range,
        };
        match answers.read_back(range) {
            Ok(answers) => Ok((event, answers)),
            Err(error) => {
                self.lost = Some(event);
                Err(refused(error))
            }
        }
    }

    /// The place of the slot's launch of that kernel.
    pub(super) fn pack(
        core: &Core,
        slot: &mut Slot,
        packed: &Packed,
    ) -> Result<usize, LaunchError> {
        let known = |pack: &Pack| pack.opcode == packed.opcode;
        if let Some(known) = slot.packs.iter().position(known) {
            return Ok(known);
        }
        let Some(packer) = &core.packer else {
            return Err(LaunchError::Refused {
                kernel: SLICE_ENTRY.to_owned(),
                message: "the server sends no slices of one function".to_owned(),
            });
        };
        let pack = packer.pack(packed, &slot.requests, &slot.packed.memory);
        slot.packs.push(pack);
        Ok(slot.packs.len() - 1)
    }
}
