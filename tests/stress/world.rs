//! What all threads share: one context, its devices, and the programs that run on them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tombolo::{
    Buffer, Constants, Context, Device, DeviceBuffer, DeviceOptions, HostServices, Kernel,
    PersistentKernel, PrintOptions, Program, SharedHeap, heap::HeapSize,
};

use crate::journal::Journal;
use crate::problem::{Counts, Outcome, wrong};
use crate::programs::{self, Programs};

/// Words of each thread's part of the buffer that all threads share.
pub const PART: usize = 257;

/// How devices get at the memory of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Memory {
    /// As each device can, and beside it the same device with a copy.
    Both,
    /// In place where a device can.
    InPlace,
    /// Through copies, without live memory: what a device that cannot share anything does.
    Copies,
}

/// What the command line says.
pub struct Settings {
    pub seed: u64,
    pub threads: usize,
    pub adapter: String,
    pub memory: Memory,
}

/// A device as it is now. Threads that use one keep it alive, with what lies on it.
pub struct Gear {
    pub device: Device,
    /// No other gear of the run has this number.
    pub number: u64,
    /// Has a copy of the heap instead of the heap.
    pub is_copy: bool,
    /// Every thread adds to these words and keeps account in `expected`.
    pub sums: DeviceBuffer<u32>,
    pub expected: [AtomicU32; programs::SUMS],
    server: Mutex<Option<Arc<PersistentKernel>>>,
    /// Counts up when a server is about to be stopped, and when it has been.
    pub stops: AtomicU64,
}

/// Where a device is replaced by a new one now and then.
pub struct Slot {
    adapter: usize,
    is_copy: bool,
    gear: RwLock<Arc<Gear>>,
}

pub struct World {
    pub settings: Settings,
    pub context: Context,
    pub heap: SharedHeap,
    pub programs: Programs,
    pub services: HostServices,
    /// Calls of `stress_mix` that kernels have made and waited for.
    pub calls: AtomicU64,
    /// What the function of the host has counted.
    pub served: Arc<AtomicU64>,
    pub slots: Vec<Slot>,
    /// A part for each thread.
    pub shared: Buffer<u32>,
    pub journal: Arc<Journal>,
    pub counts: Counts,
    numbers: AtomicU64,
}

impl World {
    pub fn new(settings: Settings, journal: Arc<Journal>) -> Outcome<Self> {
        let backends = wgpu::Backends::all();
        let context = Context::with_heap(backends, HeapSize::Bytes(256 << 20))?;
        let served = Arc::new(AtomicU64::new(0));
        let counting = Arc::clone(&served);
        let services = HostServices::builder()
            .call(
                "fn stress_mix(x: u32, y: u32) -> u32",
                move |x: u32, y: u32| {
                    counting.fetch_add(1, Ordering::Relaxed);
                    programs::mix(x, y)
                },
            )
            .start()?;
        let programs = Programs::new(settings.threads, &services)?;
        let heap = context.heap()?;
        let shared = context.buffer_from_vec(vec![0; PART * settings.threads])?;
        let mut world = Self {
            context,
            heap,
            programs,
            services,
            calls: AtomicU64::new(0),
            served,
            slots: Vec::new(),
            shared,
            journal,
            counts: Counts::default(),
            numbers: AtomicU64::new(0),
            settings,
        };
        world.open_slots()?;
        Ok(world)
    }

    fn open_slots(&mut self) -> Outcome {
        let copies: &[bool] = match self.settings.memory {
            Memory::Both => &[false, true],
            Memory::InPlace => &[false],
            Memory::Copies => &[true],
        };
        for adapter in self.context.adapters() {
            if !adapter.name.contains(&self.settings.adapter) {
                continue;
            }
            for &is_copy in copies {
                let gear = self.open(adapter.index, is_copy)?;
                self.slots.push(Slot {
                    adapter: adapter.index,
                    is_copy,
                    gear: RwLock::new(Arc::new(gear)),
                });
            }
        }
        match self.slots.is_empty() {
            true => wrong(format!(
                "there is no adapter with `{}` in its name",
                self.settings.adapter
            )),
            false => Ok(()),
        }
    }

    /// Opens a device of its own, as those in the slots are.
    pub fn open_alone(&self, slot: usize) -> Outcome<Device> {
        let slot = &self.slots[slot];
        Ok(self
            .context
            .device_at_with(slot.adapter, options(slot.is_copy))?)
    }

    fn open(&self, adapter: usize, is_copy: bool) -> Outcome<Gear> {
        let device = self.context.device_at_with(adapter, options(is_copy))?;
        let sums = device.zeroed(programs::SUMS)?;
        Ok(Gear {
            sums,
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
            is_copy,
            expected: std::array::from_fn(|_| AtomicU32::new(0)),
            server: Mutex::new(None),
            stops: AtomicU64::new(0),
            device,
        })
    }

    /// What is in a slot now.
    pub fn gear(&self, slot: usize) -> Arc<Gear> {
        let gear = self.slots[slot]
            .gear
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&gear)
    }

    /// Puts a new device into a slot; the other one ends when nobody uses it any more.
    pub fn replace(&self, slot: usize) -> Outcome<Arc<Gear>> {
        let place = &self.slots[slot];
        let new = Arc::new(self.open(place.adapter, place.is_copy)?);
        let mut gear = place.gear.write().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::replace(&mut *gear, new))
    }
}

/// A quiet device: what it measures is known by the other ones, and nothing is printed to the terminal.
fn options(is_copy: bool) -> DeviceOptions {
    let mut options = DeviceOptions::default();
    options.import_host_memory = !is_copy;
    options.live_memory = !is_copy;
    options.print = PrintOptions::sink(|_: &tombolo::print::PrintRecord<'_>| {});
    options
}

impl Gear {
    pub fn kernel(&self, program: &Program, constants: &Constants) -> Outcome<Kernel> {
        Ok(self.device.kernel(program, "main", constants)?)
    }

    /// The server on this device, started now if it has none.
    pub fn server(&self, programs: &Programs) -> Outcome<Arc<PersistentKernel>> {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &*server {
            return Ok(Arc::clone(server));
        }
        let builder = PersistentKernel::builder(&self.device, &programs.server);
        let started = Arc::new(builder.handler("stress_answer").start()?);
        *server = Some(Arc::clone(&started));
        Ok(started)
    }

    /// Takes the server away, so that the next one who asks starts another.
    pub fn take_server(&self) -> Option<Arc<PersistentKernel>> {
        self.server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}
