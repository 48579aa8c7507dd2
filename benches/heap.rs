//! What the place of the shared heap costs, on every adapter of the machine: in place, in the host's memory, with a copy in
//! the device's own, and where the device likes (`_auto`, [`HeapPlacement`]).
//!
//! - `copy_*`: a kernel that copies through pointers, against the same kernel over typed buffers of the device; `copy_auto` once
//!   a device that chooses has moved.
//! - `launches_device`: launches that follow pointers, with no access of the host in between, against the same in place.
//! - `touch_*`: the host writes 4 KiB of a heap with 240 MiB in use, a kernel changes them, the host reads them; against
//!   hand-written wgpu with a buffer of 4 KiB. `touch_argument_*`: the same, with the bytes as an argument of the launch.
//!
//! The last lines are the rows: `ratio <row>/<adapter> = <median> (<min>..<max>) goal <= <limit>`.

mod support;

use tombolo::{
    AdapterDescription, Context, Device, DeviceBuffer, DeviceOptions, Kernel, Ptr, SharedHeap,
    bytemuck,
    heap::{HeapPlacement, HeapSize},
    wgpu,
};

use support::{Error, Raw, ours, pairs, row, word};

/// Pairs measured for each row.
const PAIRS: usize = 11;

/// The most rounds until a device that chooses has moved.
const WARM_UP: usize = 100;

/// Words that host and kernel change in turn.
const WORDS: usize = 1024;

const COPY: &str = "
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> sink: array<vec4<u32>>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    sink[id.x] = source[id.x];
}";

const COPY_BEHIND_POINTERS: &str = "
alias Rows = array<vec4<u32>>;
@group(0) @binding(0) var<uniform> source: usm_ptr;
@group(0) @binding(1) var<uniform> sink: usm_ptr;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let here = usm_Rows(source);
    let there = usm_Rows(sink);
    there[id.x] = here[id.x];
}";

const TOUCH: &str = "
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    words[id.x] += 1u;
}";

const TOUCH_BEHIND_POINTER: &str = "
alias Words = array<u32>;
@group(0) @binding(0) var<uniform> words: usm_ptr;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let place = usm_Words(words);
    place[id.x] += 1u;
}";

fn main() -> Result<(), Error> {
    let _ = env_logger::try_init();
    let context = Context::new()?;
    let mut rows = Vec::new();
    for adapter in context.adapters() {
        eprintln!("{}", adapter.name);
        let name = word(&adapter.name);
        let mut add = |label: &str, limit: f64, ratios: Vec<f64>| {
            rows.push(row(label, name, limit, ratios));
        };
        let [in_place, on_device] = [HeapPlacement::InPlace, HeapPlacement::Device]
            .map(|placement| open(&adapter, placement));
        // An adapter may have no way to use the host's memory.
        let in_place = in_place.ok();
        let on_device = on_device?;
        let is_software = on_device.device.capabilities().software;
        let crosses_bus = !on_device.device.capabilities().unified_memory;
        if let Some(side) = &in_place {
            let limit = if crosses_bus { 100.0 } else { 1.11 };
            add("copy_in_place", limit, side.copies(is_software)?);
        }
        add("copy_device", 1.11, on_device.copies(is_software)?);
        let auto = open(&adapter, HeapPlacement::Auto)?;
        add("copy_auto", 1.11, auto.copies(is_software)?);
        drop(auto);
        // Without the history of the other rows.
        let auto = open(&adapter, HeapPlacement::Auto)?;
        let block = [in_place.as_ref(), Some(&on_device), Some(&auto)]
            .into_iter()
            .flatten()
            .map(|side| side.fill().map(|words| (side, words)))
            .collect::<Result<Vec<_>, Error>>()?;
        if let [(here, at), (there, at_copy), _] = block[..] {
            let ratios = pairs(PAIRS, || there.launches(at_copy), || here.launches(at))?;
            add("launches_device", 1.1, ratios);
        }
        for (side, words) in &block {
            let label = match side.device.capabilities().heap_placement {
                HeapPlacement::Device => "device",
                HeapPlacement::InPlace => "in_place",
                _ => "auto",
            };
            let searches = side.heap.residence(&side.device) == HeapPlacement::Device;
            // Software adapters search the copy with the host's processors.
            let limit = if is_software && searches { 2000.0 } else { 5.0 };
            let (by_pointer, by_argument) = side.touches(*words)?;
            add(&format!("touch_{label}"), limit, by_pointer);
            add(&format!("touch_argument_{label}"), limit, by_argument);
            eprintln!("{label}: {:?}", side.heap.mirror_statistics());
        }
    }
    for row in rows {
        println!("{row}");
    }
    Ok(())
}

/// A device in a context of its own, with the heap in one of the places.
struct Side {
    device: Device,
    heap: SharedHeap,
    /// Changes words behind a pointer.
    touch: Kernel,
    /// Changes the words of an argument.
    touch_argument: Kernel,
    /// The same by hand.
    by_hand: ByHand,
}

fn open(adapter: &AdapterDescription, placement: HeapPlacement) -> Result<Side, Error> {
    let size = HeapSize::Bytes(512 << 20);
    let context = Context::with_heap(wgpu::Backends::all(), size)?;
    let options = DeviceOptions::default()
        .checked_pointers(false)
        .heap_placement(placement);
    let device = context.device_at_with(adapter.index, options)?;
    Ok(Side {
        heap: device.heap()?,
        touch: ours(&device, TOUCH_BEHIND_POINTER)?,
        touch_argument: ours(&device, TOUCH)?,
        by_hand: ByHand::new(&device),
        device,
    })
}

impl Side {
    /// Copies through pointers, against the same between typed buffers.
    fn copies(&self, is_software: bool) -> Result<Vec<f64>, Error> {
        // More than a card's caches hold.
        let (bytes, launches): (usize, _) = if is_software {
            (8 << 20, 2)
        } else {
            (96 << 20, 20)
        };
        let values: Vec<u32> = (0..bytes as u32 / 4).collect();
        let (source, sink) = (
            self.heap.alloc_slice(&values)?,
            self.heap.alloc_zeroed::<u32>(values.len())?,
        );
        let (typed_source, typed_sink) = (
            self.device.buffer(&values)?,
            self.device.zeroed::<u32>(values.len())?,
        );
        let (behind, typed) = (
            ours(&self.device, COPY_BEHIND_POINTERS)?,
            ours(&self.device, COPY)?,
        );
        let groups = (bytes / 16 / 256) as u32;
        let mut behind = (behind.launch().value("source", &source))
            .value("sink", &sink)
            .workgroups(groups);
        let mut typed = (typed.launch().buffer("source", &typed_source))
            .buffer("sink", &typed_sink)
            .workgroups(groups);
        let run = |launch: &mut tombolo::Launch| -> Result<(), Error> {
            for _ in 1..launches {
                launch.submit()?;
            }
            Ok(launch.submit()?.wait()?)
        };
        // A device that chooses moves when nothing is under way, and never where all memory is one.
        let chooses = self.device.capabilities().heap_placement == HeapPlacement::Auto;
        let mut rounds = 0;
        while chooses
            && !self.device.capabilities().unified_memory
            && self.heap.residence(&self.device) == HeapPlacement::InPlace
            && rounds < WARM_UP
        {
            run(&mut behind)?;
            rounds += 1;
        }
        if chooses {
            let residence = self.heap.residence(&self.device);
            eprintln!("auto: {residence:?} after {rounds} rounds");
        }
        let [mut ours_fastest, mut typed_fastest] = [f64::MAX; 2];
        let ratios = pairs(
            PAIRS,
            || {
                let taken = support::seconds(|| run(&mut behind))?;
                ours_fastest = ours_fastest.min(taken);
                Ok(())
            },
            || {
                let taken = support::seconds(|| run(&mut typed))?;
                typed_fastest = typed_fastest.min(taken);
                Ok(())
            },
        )?;
        let rate = [ours_fastest, typed_fastest]
            .map(|taken| 2.0 * (bytes * launches) as f64 / taken / 1e9);
        eprintln!(
            "copies: {:.1} GB/s through pointers, {:.1} between buffers",
            rate[0], rate[1]
        );
        if self.heap.read(sink, values.len())? != values {
            return Err("the copy is wrong".into());
        }
        self.heap.free(source)?;
        self.heap.free(sink)?;
        Ok(ratios)
    }

    /// Puts 240 MiB into use; the answer is in the middle.
    fn fill(&self) -> Result<Ptr<u32>, Error> {
        let values = vec![7u32; 30 << 20];
        let blocks = [
            self.heap.alloc_slice(&values)?,
            self.heap.alloc_slice(&values)?,
        ];
        let words = blocks[0].add(20 << 20);
        self.launches(words)?;
        self.round(words, false)?;
        Ok(words)
    }

    fn launches(&self, words: Ptr<u32>) -> Result<(), Error> {
        let mut launch = self.touch.launch().value("words", &words).workgroups(1);
        for _ in 0..1000 {
            launch.submit()?;
        }
        Ok(launch.submit()?.wait()?)
    }

    /// A round trip of 4 KiB, ours.
    fn round(&self, words: Ptr<u32>, is_argument: bool) -> Result<(), Error> {
        let values: Vec<u32> = (0..WORDS as u32).collect();
        self.heap.write(words, &values)?;
        let launch = match is_argument {
            true => self.touch_argument.launch().pointer("words", words, WORDS),
            false => self.touch.launch().value("words", &words),
        };
        launch.workgroups(WORDS as u32 / 64).submit()?;
        let seen = self.heap.read(words, WORDS)?;
        match seen
            .iter()
            .zip(&values)
            .all(|(now, before)| *now == before + 1)
        {
            true => Ok(()),
            false => Err("the words are wrong".into()),
        }
    }

    fn touches(&self, words: Ptr<u32>) -> Result<(Vec<f64>, Vec<f64>), Error> {
        let measure = |is_argument| {
            let mut fastest = f64::MAX;
            let ratios = pairs(
                PAIRS,
                || {
                    let taken = support::seconds(|| self.round(words, is_argument))?;
                    fastest = fastest.min(taken);
                    Ok(())
                },
                || self.by_hand.round(&self.device),
            );
            eprintln!("touch: {:.1} us, argument: {is_argument}", fastest * 1e6);
            ratios
        };
        Ok((measure(false)?, measure(true)?))
    }
}

/// The round trip in hand-written wgpu, with kept memory for the read-back.
struct ByHand {
    words: DeviceBuffer<u32>,
    staging: wgpu::Buffer,
    touch: Raw,
}

impl ByHand {
    fn new(device: &Device) -> Self {
        let bytes = WORDS as u64 * 4;
        let words: DeviceBuffer<u32> = device.zeroed(WORDS).expect("4 KiB");
        let staging = device.raw().create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let touch = Raw::new(device, TOUCH, &[words.raw()]);
        Self {
            words,
            staging,
            touch,
        }
    }

    fn round(&self, device: &Device) -> Result<(), Error> {
        let values: Vec<u32> = (0..WORDS as u32).collect();
        let queue = device.raw_queue();
        queue.write_buffer(self.words.raw(), 0, bytemuck::cast_slice(&values));
        let mut encoder = device
            .raw()
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.touch.encode(&mut encoder, 1, WORDS as u32 / 64);
        encoder.copy_buffer_to_buffer(self.words.raw(), 0, &self.staging, 0, self.staging.size());
        queue.submit([encoder.finish()]);
        let (told, heard) = std::sync::mpsc::channel();
        let whole = self.staging.slice(..);
        whole.map_async(wgpu::MapMode::Read, move |mapped| {
            let _ = told.send(mapped);
        });
        device.raw().poll(wgpu::PollType::wait_indefinitely())?;
        heard.recv()??;
        let seen: Vec<u32> = bytemuck::cast_slice(&whole.get_mapped_range()?).to_vec();
        self.staging.unmap();
        match seen
            .iter()
            .zip(&values)
            .all(|(now, before)| *now == before + 1)
        {
            true => Ok(()),
            false => Err("the words are wrong by hand".into()),
        }
    }
}
