//! One of the threads: its own objects, each beside a model of what it holds, and how it uses the world.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tombolo::{
    Buffer, DeviceBuffer, Event, Launch, Ptr, buffers::BufferError, globals::GlobalError,
    heap::HeapError, launch::LaunchError,
};

use crate::problem::{Outcome, wrong};
use crate::programs::WORDS;
use crate::random::Random;
use crate::world::{Gear, PART, World};

/// How long others may keep a command from being accepted.
const BLOCKED: Duration = Duration::from_secs(100);

/// Memory of the shared heap.
pub struct Block {
    pub ptr: Ptr<u32>,
    pub model: Vec<u32>,
    /// What a device has last done with it, and the number of the device's gear.
    pub last: Option<(u64, Event)>,
}

impl Block {
    pub fn new(ptr: Ptr<u32>, model: Vec<u32>) -> Self {
        Self {
            ptr,
            model,
            last: None,
        }
    }
}

/// A buffer of the context.
pub struct Held {
    pub buffer: Buffer<u32>,
    pub model: Vec<u32>,
}

/// A buffer of one device.
pub struct OnDevice {
    pub gear: Arc<Gear>,
    pub buffer: DeviceBuffer<u32>,
    pub model: Vec<u32>,
}

pub struct Worker<'w> {
    pub world: &'w World,
    pub id: usize,
    pub step: u64,
    pub random: Random,
    pub blocks: Vec<Block>,
    pub buffers: Vec<Held>,
    pub on_devices: Vec<OnDevice>,
    /// This thread's variable on each device, by the number of the gear.
    pub globals: HashMap<u64, [u32; WORDS]>,
    /// This thread's part of the buffer that all share.
    pub part: Vec<u32>,
}

impl<'w> Worker<'w> {
    pub fn new(world: &'w World, id: usize) -> Self {
        Self {
            world,
            id,
            step: 0,
            random: Random::new(world.settings.seed, id as u64),
            blocks: Vec::new(),
            buffers: Vec::new(),
            on_devices: Vec::new(),
            globals: HashMap::new(),
            part: vec![0; PART],
        }
    }

    /// Says in the journal what comes next.
    pub fn note(&self, what: impl AsRef<str>) {
        self.world.journal.note(self.id, what.as_ref());
    }

    /// One of the devices.
    pub fn gear(&mut self) -> Arc<Gear> {
        let slot = self.random.below(self.world.slots.len());
        let gear = self.world.gear(slot);
        self.note(format!(
            "on device {} of {}",
            gear.number,
            gear.device.name()
        ));
        gear
    }

    /// The part of the shared buffer that is this thread's.
    pub fn own_part(&self) -> Outcome<Buffer<u32>> {
        let start = (self.id * PART) as u64;
        Ok(self.world.shared.slice(start..start + PART as u64)?)
    }

    /// Orders what comes next on a device behind what other devices have done with these blocks: nothing else does.
    pub fn order(&self, gear: &Gear, blocks: &[usize]) -> Outcome {
        for &at in blocks {
            if let Some((number, event)) = &self.blocks[at].last
                && *number != gear.number
            {
                self.note("behind another device");
                gear.device.after(&[event])?;
            }
        }
        Ok(())
    }

    /// Remembers what a device does with these blocks.
    pub fn done(&mut self, gear: &Gear, blocks: &[usize], event: &Event) {
        for &at in blocks {
            self.blocks[at].last = Some((gear.number, event.clone()));
        }
    }

    /// Submits once nobody keeps launches out of the heap.
    pub fn submit(&self, launch: &mut Launch) -> Outcome<Event> {
        self.again("launch", || launch.submit())
    }

    /// Tries until nobody who looks at the heap is in the way.
    pub fn again<T, E: MayBeInTheWay + std::error::Error>(
        &self,
        what: &str,
        mut attempt: impl FnMut() -> Result<T, E>,
    ) -> Outcome<T> {
        self.note(what);
        let begun = Instant::now();
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(error) if !error.is_in_the_way() => return Err(error.into()),
                Err(_) => {}
            }
            self.world
                .counts
                .count("commands came again because somebody looked at the heap");
            if begun.elapsed() > BLOCKED {
                return wrong(format!("{what}: others looked at the heap for {BLOCKED:?}"));
            }
            std::thread::yield_now();
        }
    }

    /// What becomes of a launch that can only succeed.
    pub fn await_event(&mut self, event: Event) -> Outcome {
        match self.random.below(8) {
            0 | 1 => {
                self.note("wait");
                event.wait()?;
            }
            2 => {
                self.note("wait for a while");
                while event.wait_timeout(Duration::from_millis(20)).is_err() {
                    if let Some(error) = event.error() {
                        return wrong(format!("a launch failed: {error}"));
                    }
                }
            }
            3 => {
                self.note("await");
                pollster::block_on(event)?;
            }
            4 => {
                let _ = event.status();
            }
            // It goes on while others come.
            _ => {}
        }
        Ok(())
    }

    /// One of some, or none if there are none.
    pub fn pick(&mut self, len: usize) -> Option<usize> {
        (len > 0).then(|| self.random.below(len))
    }
}

/// An error of which some say that another thread looks at the heap just now, which is documented.
pub trait MayBeInTheWay {
    fn is_in_the_way(&self) -> bool;
}

impl MayBeInTheWay for HeapError {
    fn is_in_the_way(&self) -> bool {
        matches!(
            self,
            Self::HostAccess { .. } | Self::AtomicView { .. } | Self::Owned { .. }
        )
    }
}

impl MayBeInTheWay for LaunchError {
    fn is_in_the_way(&self) -> bool {
        match self {
            Self::Heap(error) => error.is_in_the_way(),
            Self::Global(error) => error.is_in_the_way(),
            Self::Buffer { source, .. } => source.is_in_the_way(),
            _ => false,
        }
    }
}

impl MayBeInTheWay for GlobalError {
    fn is_in_the_way(&self) -> bool {
        matches!(self, Self::Heap { source, .. } if source.is_in_the_way())
    }
}

impl MayBeInTheWay for BufferError {
    fn is_in_the_way(&self) -> bool {
        matches!(self, Self::Heap(error) if error.is_in_the_way())
    }
}
