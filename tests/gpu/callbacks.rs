//! Callbacks of wgpu that use buffers of the context: they run inside whatever call submits or polls, which may have the
//! very buffer in hand. They are answered, and never wait for their own thread.

use std::sync::mpsc::channel;
use std::time::Duration;

use crate::buffers_moving::Kernels;
use crate::cases;
use crate::harness::Fixture;
use tombolo::{Buffer, Device, buffers::BufferError, device::ExecutionError};

cases![callbacks_are_answered_by_buffers_in_hand];

const LEN: usize = 64;
/// Longer than any of this takes on a machine that is busy.
const LONG: Duration = Duration::from_secs(60);

/// What a callback of the program does with a buffer, and what the calls around it do.
type Command = fn(&Buffer<u32>, &Kernels) -> Result<(), BufferError>;

const COMMANDS: [(&str, Command); 10] = [
    ("write", |data, _| data.write(0, &[7; 8]).map(drop)),
    ("fill", |data, _| data.fill(7, 0..8).map(drop)),
    ("read", |data, _| data.read_range(0..8).map(drop)),
    ("read_back", |data, _| data.read_back(0..8).map(drop)),
    ("map", |data, _| data.map(0..8).map(drop)),
    ("map_mut", |data, _| data.map_mut(0..8).map(drop)),
    ("prefetch", |data, on| data.prefetch(&on.device).map(drop)),
    ("migrate", |data, on| data.migrate(&on.device).map(drop)),
    ("discard", |data, _| {
        data.slice(0..8).and_then(|part| part.discard())
    }),
    ("evict", |data, on| data.evict(&on.device)),
];

/// Runs `callback` with the next poll or submission, which is part of `command`; what it gives.
fn inside<T: Send + 'static>(
    device: &Device,
    callback: impl FnOnce() -> T + Send + 'static,
    command: impl FnOnce(),
) -> T {
    let own = device.raw().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 16,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let (sender, receiver) = channel();
    own.map_async(wgpu::MapMode::Read, .., move |_| {
        let _ = sender.send(callback());
    });
    command();
    // Where the command had nothing to submit.
    device.finish().unwrap();
    receiver.try_recv().expect("the callback has run")
}

fn is_callback(error: &BufferError) -> bool {
    matches!(error, BufferError::Execution(error) if matches!(**error, ExecutionError::InCallback { .. }))
}

fn callbacks_are_answered_by_buffers_in_hand(f: &Fixture) {
    // Each command is submitted with the buffer in hand.
    let device = f.open(|options| options.max_batch = 1);
    let context = f.context.clone();
    let (sender, receiver) = channel();
    // A thread that waits for itself is left behind.
    let thread = std::thread::spawn(move || {
        let kernels = std::sync::Arc::new(Kernels::new(&device));
        let mut refused = 0;
        for (outer, command) in COMMANDS {
            for (inner, callback) in COMMANDS {
                let data = context.buffer_from(&[1u32; LEN]).unwrap();
                kernels.add(&data, 0).unwrap();
                // Newer on the host, so that bytes go both ways.
                data.write(8, &[2; 8]).unwrap();
                let held = data.map(56..60).unwrap();
                let (own, on) = (data.clone(), kernels.clone());
                let _ = sender.send(format!("{inner} in a callback of {outer}"));
                let told = inside(
                    &device,
                    move || {
                        let told = callback(&own, &on);
                        own.clear_error();
                        let _ = (own.statistics(), own.whereabouts());
                        drop(held);
                        told
                    },
                    || command(&data, &kernels).unwrap(),
                );
                if let Err(error) = told {
                    assert!(is_callback(&error), "{inner} in {outer}: {error}");
                    refused += 1;
                }
                // Nothing is left of the mapping.
                data.map_mut(..).unwrap();
                assert_eq!(data.read().unwrap()[16], 3, "{inner} in {outer}");
            }
        }
        refused
    });
    let mut last = String::new();
    loop {
        match receiver.recv_timeout(LONG) {
            Ok(at) => last = at,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{last} hangs"),
        }
    }
    // Those that submit with the buffer in hand have refused; else nothing was tried.
    assert!(thread.join().unwrap() >= COMMANDS.len());
}
