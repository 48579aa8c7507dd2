//! How long a kernel that stays on the adapter takes to answer the host: both look at the same words of memory.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::{Error, PAIRS};

/// The kernel adds one to what it is asked.
const SOURCE: &str = "
    struct Words { question: atomic<u32>, answer: atomic<u32> }
    @group(0) @binding(0) var<storage, read_write> words: Words;
    @compute @workgroup_size(1) fn main() {
        var seen = 0u;
        loop {
            let question = atomicLoad(&words.question);
            if (question == 0xffffffffu) { break; }
            if (question != seen) {
                seen = question;
                atomicStore(&words.answer, question + 1u);
            }
        }
    }";

/// Ends the kernel.
const END: u32 = u32::MAX;

/// Questions of a measurement.
const QUESTIONS: u32 = 100_000;

/// The longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(10);

struct Words([AtomicU32; 2]);

impl Words {
    fn ask(&self, question: u32) -> Result<(), Error> {
        let [asked, answer] = &self.0;
        asked.store(question, Ordering::Release);
        let mut turns = 0u32;
        let mut begin = None;
        while answer.load(Ordering::Acquire) != question + 1 {
            std::hint::spin_loop();
            turns = turns.wrapping_add(1);
            // The clock costs more than a look.
            if turns.is_multiple_of(1 << 20)
                && begin.get_or_insert_with(Instant::now).elapsed() > PATIENCE
            {
                return Err("the resident kernel does not answer".into());
            }
        }
        Ok(())
    }
}

/// Microseconds of a round trip, by several measurements.
pub fn round_trips(adapter: &wgpu::Adapter) -> Result<Vec<f64>, Error> {
    let words = Arc::new(Words([AtomicU32::new(0), AtomicU32::new(0)]));
    let size = size_of::<Words>() as u64;
    let (device, queue) = pollster::block_on(adapter.request_device(&Default::default()))?;
    // SAFETY: the words live as long as their handle, which is the lender; host and kernel access them by atomic
    // operations.
    let buffer = unsafe {
        let address = NonNull::from(&*words).cast();
        tombolo_cpu::Buffer::from_host(address, size, Box::new(words.clone()))
    };
    let descriptor = wgpu::BufferDescriptor {
        label: None,
        size,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    };
    // SAFETY: buffers of this adapter belong to no device and know all usages; the memory is initialised.
    let buffer = unsafe { device.create_buffer_from_hal::<tombolo_cpu::Api>(buffer, &descriptor) };
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(SOURCE.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: None,
        compilation_options: Default::default(),
        cache: None,
    });
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry {
            binding: 0,
            resource: buffer.as_entire_binding(),
        }],
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups(1, 1, 1);
    drop(pass);
    queue.submit([encoder.finish()]);
    let times = ask_all(&words);
    words.0[0].store(END, Ordering::Release);
    device.poll(wgpu::PollType::wait_indefinitely())?;
    times
}

fn ask_all(words: &Words) -> Result<Vec<f64>, Error> {
    let mut times = Vec::new();
    for round in 0..=PAIRS as u32 {
        let begin = Instant::now();
        for question in 1..=QUESTIONS {
            words.ask(round * QUESTIONS + question)?;
        }
        // The first round waits for the kernel to begin.
        if round > 0 {
            times.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(QUESTIONS));
        }
    }
    Ok(times)
}
