//! A part for tests, showing how much a feature is: a counter of launches, writing the number of the launch before and
//! after the dispatches.

use std::sync::{Arc, Mutex};

use super::{Ending, Ground, Part, Parts, Rank, Stop, Submission};
use crate::device::queue::Recorder;
use crate::device::wait::lock;
use crate::launch::{Launch, LaunchError};
use crate::{Context, DeviceBuffer, Program};

/// The numbers 0, 1, 2, …, the two words where they go, and how many launches were recorded.
type Log = (wgpu::Buffer, wgpu::Buffer, Arc<Mutex<u64>>);
pub(in crate::launch) type Setting = Option<Log>;
pub(in crate::launch) struct Counter(Log);

impl Counter {
    fn write(&self, queue: &mut Recorder<'_>, at: u64) {
        let (numbers, log, count) = &self.0;
        let number = *lock(count) * 4;
        queue.encode(|encoder| encoder.copy_buffer_to_buffer(numbers, number, log, at * 4, 4));
    }
}

impl<'s> Part<'s> for Counter {
    const RANK: Rank = Rank::Queue;

    fn acquire(
        launch: &mut Launch,
        _ground: &'s Ground,
        _earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        Ok(launch.settings.counter.clone().map(Self))
    }

    fn before(&mut self, _to: &Submission<'_>, queue: &mut Recorder<'_>) {
        self.write(queue, 0);
    }

    fn after(&mut self, _to: &Submission<'_>, queue: &mut Recorder<'_>) -> Result<(), LaunchError> {
        self.write(queue, 1);
        Ok(())
    }

    fn recorded(&mut self, _to: &Submission<'_>, _ending: &mut Ending) {
        *lock(&self.0.2) += 1;
    }
}

#[test]
fn the_counter_sees_each_launch_begin_and_end() {
    let _alone = crate::device::hooks::alone();
    let context = Context::new().unwrap();
    for adapter in context.adapters() {
        let device = context.device_at(adapter.index).unwrap();
        let text = "@group(0) @binding(0) var<storage, read_write> log: array<u32, 3>;
            @compute @workgroup_size(1) fn main() { log[2] = log[0] * 100u + log[1]; }";
        let program = Program::new("counter.wgsl", text).unwrap();
        let kernel = (device.kernel(&program, "main", &Default::default())).unwrap();
        let numbers: DeviceBuffer<u32> = device.buffer(&[5, 6]).unwrap();
        let log: DeviceBuffer<u32> = device.buffer(&[9, 9, 9]).unwrap();
        let mut launch = kernel.launch().buffer("log", &log).workgroups(1);
        launch.settings.counter = Some((numbers.raw().clone(), log.raw().clone(), Arc::default()));
        launch.submit().unwrap().wait().unwrap();
        assert_eq!(log.read().unwrap(), [5, 5, 509]);
        launch.submit().unwrap().wait().unwrap();
        assert_eq!(log.read().unwrap(), [6, 6, 605]);
    }
}
