//! What transfers between host and device cost beside raw wgpu with staging memory that is made once and kept, on every
//! adapter of the machine.
//!
//! Both sides run on the same wgpu device, in turn, and each row is the median of the ratios of the pairs. Small transfers are
//! measured twice, on a fresh device and after one of 256 MiB each way: what came before must not show. Both sides do equal
//! work: `read` returns a new vector, and by hand one is made as well, whose pages the system gives while it is filled;
//! `read_into` goes to memory that is used again and again, on both sides. In rows that end with
//! `_pinned` the runtime's side has pinned memory, and the other side copies between ordinary and staging memory. In rows that
//! begin with `buffer_` the runtime's side has a buffer of the context, which keeps what is written on the host as well: one copy
//! more than by hand. Rows that begin with `launch_` launch a kernel and read what it wrote; by hand both are one submission.
//! The last lines are the rows: `ratio <row> = <median> (<min>..<max>) goal <= <limit>`.

mod support;

use tombolo::{Constants, Context, Device, DeviceBuffer, Program};

use support::{Error, Raw, pairs, word};

/// Pairs measured for each row.
const PAIRS: usize = 11;
/// Small transfers in a measurement.
const TIMES: usize = 200;
const SMALL: usize = 4 << 10;
const LARGE: usize = 64 << 20;
/// What comes before.
const HUGE: usize = 256 << 20;

fn main() -> Result<(), Error> {
    let context = Context::new()?;
    let mut rows = Vec::new();
    for adapter in context.adapters() {
        eprintln!("{}", adapter.name);
        let device = context.device_at(adapter.index)?;
        let name = word(&adapter.name);
        let mut row = |label: &str, limit: f64, ratios: Vec<f64>| {
            rows.push(support::row(label, name, limit, ratios));
        };
        // Where the host waits for a card, waiting awake is most of what there is to win.
        let launch_read = match device.capabilities().software {
            true => 1.25,
            false => 0.6,
        };
        row("launch_read_4k", launch_read, launch_reads(&device)?);
        row("read_4k", 1.25, reads(&device, SMALL, TIMES)?);
        row("write_4k", 1.25, writes(&device, &[9; SMALL], TIMES)?);
        row("read_64m", 1.10, reads(&device, LARGE, 1)?);
        row(
            "read_into_64m",
            1.10,
            reads_into(&device, &mut vec![1; LARGE])?,
        );
        row("write_64m", 1.10, writes(&device, &vec![9; LARGE], 1)?);
        row(
            "buffer_read_into_64m",
            1.50,
            buffer_reads(&context, &device)?,
        );
        row("buffer_write_64m", 2.00, buffer_writes(&context, &device)?);
        let mut pinned = context.pinned_vec::<u8>(LARGE)?;
        let ratios = reads_into(&device, &mut pinned)?;
        row("read_into_64m_pinned", 1.10, ratios);
        row("write_64m_pinned", 1.10, writes(&device, &pinned, 1)?);
        let device = context.device_at(adapter.index)?;
        {
            let huge: DeviceBuffer<u8> = device.zeroed(HUGE)?;
            huge.write(0, &vec![1; HUGE])?;
            assert_eq!(huge.read()?.len(), HUGE);
        }
        row(
            "launch_read_4k_after_256m",
            launch_read,
            launch_reads(&device)?,
        );
        row("read_4k_after_256m", 1.25, reads(&device, SMALL, TIMES)?);
        row(
            "write_4k_after_256m",
            1.25,
            writes(&device, &[9; SMALL], TIMES)?,
        );
        let made = device.transfer_statistics().staging_made;
        reads(&device, SMALL, TIMES)?;
        assert_eq!(device.transfer_statistics().staging_made, made);
    }
    for row in rows {
        println!("{row}");
    }
    Ok(())
}

/// Reads of `bytes` bytes into a new vector, against the same by hand.
fn reads(device: &Device, bytes: usize, times: usize) -> Result<Vec<f64>, Error> {
    let data = device.buffer(&vec![7u8; bytes])?;
    device.finish()?;
    let staging = download(device, bytes);
    pairs(
        PAIRS,
        || {
            for _ in 0..times {
                assert_eq!(data.read()?[0], 7);
            }
            Ok(())
        },
        || {
            for _ in 0..times {
                let mut values = Vec::new();
                read_by_hand(device, &data, &staging, |bytes| values = bytes.to_vec())?;
                assert_eq!(values[0], 7);
            }
            Ok(())
        },
    )
}

/// Adds one to 1,024 words.
const ADD: &str = "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) { data[id.x] += 1u; }";

/// Launches whose 4 KiB are read into a new vector each time, against the same by hand.
fn launch_reads(device: &Device) -> Result<Vec<f64>, Error> {
    let words = SMALL / 4;
    let groups = (words / 64) as u32;
    let program = Program::new("add.wgsl", ADD)?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let [ours, theirs] = [
        device.buffer(&vec![0u32; words])?,
        device.buffer(&vec![0u32; words])?,
    ];
    device.finish()?;
    let staging = download(device, SMALL);
    let raw = Raw::new(device, ADD, &[theirs.raw()]);
    let (mut launched, mut launched_by_hand) = (0, 0);
    pairs(
        PAIRS,
        || {
            for _ in 0..TIMES {
                let launch = kernel.launch().buffer("data", &ours);
                { launch.workgroups(groups) }.submit()?;
                launched += 1;
                assert_eq!(ours.read()?[words - 1], launched);
            }
            Ok(())
        },
        || {
            for _ in 0..TIMES {
                let mut encoder = device.raw().create_command_encoder(&Default::default());
                raw.encode(&mut encoder, 1, groups);
                let mut values = Vec::new();
                read_encoded(device, encoder, theirs.raw(), &staging, |bytes| {
                    values = bytemuck::pod_collect_to_vec::<u8, u32>(bytes);
                })?;
                launched_by_hand += 1;
                assert_eq!(values[words - 1], launched_by_hand);
            }
            Ok(())
        },
    )
}

/// Reads of `bytes` bytes into memory that is there, against the same by hand.
fn reads_into(device: &Device, ours: &mut [u8]) -> Result<Vec<f64>, Error> {
    let bytes = ours.len();
    let data = device.buffer(&vec![7u8; bytes])?;
    device.finish()?;
    let staging = download(device, bytes);
    let mut theirs = vec![1u8; bytes];
    pairs(
        PAIRS,
        || {
            data.read_into(0, ours)?;
            assert_eq!(ours[bytes - 1], 7);
            Ok(())
        },
        || {
            read_by_hand(device, &data, &staging, |bytes| {
                theirs.copy_from_slice(bytes)
            })?;
            assert_eq!(theirs[bytes - 1], 7);
            Ok(())
        },
    )
}

/// Reads of a buffer of the context that the device has written last, into memory that is there, against the same by hand.
fn buffer_reads(context: &Context, device: &Device) -> Result<Vec<f64>, Error> {
    let data = context.buffer_from_vec(vec![1u8; LARGE])?;
    data.prefetch(device)?.wait()?;
    data.fill(7, ..)?;
    device.finish()?;
    let by_hand = device.buffer(&vec![7u8; LARGE])?;
    device.finish()?;
    let staging = download(device, LARGE);
    let (mut ours, mut theirs) = (vec![1u8; LARGE], vec![1u8; LARGE]);
    pairs(
        PAIRS,
        || {
            data.read_into(0, &mut ours)?;
            assert_eq!(ours[LARGE - 1], 7);
            Ok(())
        },
        || {
            read_by_hand(device, &by_hand, &staging, |bytes| {
                theirs.copy_from_slice(bytes)
            })?;
            assert_eq!(theirs[LARGE - 1], 7);
            Ok(())
        },
    )
}

/// Writes of a buffer of the context, which keeps the bytes on the host, and its move to the device, against a write by hand.
fn buffer_writes(context: &Context, device: &Device) -> Result<Vec<f64>, Error> {
    let values = vec![9u8; LARGE];
    let data = context.buffer_from_vec(vec![1u8; LARGE])?;
    data.prefetch(device)?.wait()?;
    write_pairs(device, &values, 1, || {
        data.write(0, &values)?;
        data.prefetch(device)?.wait()?;
        Ok(())
    })
}

/// Staging memory as a program makes it for itself.
fn download(device: &Device, bytes: usize) -> wgpu::Buffer {
    device.raw().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: bytes as u64,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    })
}

fn read_by_hand(
    device: &Device,
    data: &DeviceBuffer<u8>,
    staging: &wgpu::Buffer,
    take: impl FnOnce(&[u8]),
) -> Result<(), Error> {
    let encoder = device.raw().create_command_encoder(&Default::default());
    read_encoded(device, encoder, data.raw(), staging, take)
}

/// Reads a buffer behind the commands of `encoder`.
fn read_encoded(
    device: &Device,
    mut encoder: wgpu::CommandEncoder,
    data: &wgpu::Buffer,
    staging: &wgpu::Buffer,
    take: impl FnOnce(&[u8]),
) -> Result<(), Error> {
    encoder.copy_buffer_to_buffer(data, 0, staging, 0, staging.size());
    let index = device.raw_queue().submit([encoder.finish()]);
    staging.map_async(wgpu::MapMode::Read, .., |mapped| {
        mapped.expect("it is mapped")
    });
    wait(device, index)?;
    take(&staging.get_mapped_range(..)?);
    staging.unmap();
    Ok(())
}

/// Writes of `bytes` bytes, each waited for, against the same by hand.
fn writes(device: &Device, values: &[u8], times: usize) -> Result<Vec<f64>, Error> {
    let data: DeviceBuffer<u8> = device.zeroed(values.len())?;
    device.finish()?;
    write_pairs(device, values, times, || {
        for _ in 0..times {
            data.write(0, values)?.wait()?;
        }
        Ok(())
    })
}

/// What `ours` takes, against `times` writes by hand, each waited for.
fn write_pairs(
    device: &Device,
    values: &[u8],
    times: usize,
    ours: impl FnMut() -> Result<(), Error>,
) -> Result<Vec<f64>, Error> {
    let bytes = values.len();
    let data: DeviceBuffer<u8> = device.zeroed(bytes)?;
    device.finish()?;
    let raw = device.raw();
    let staging = raw.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: bytes as u64,
        usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: true,
    });
    pairs(PAIRS, ours, || {
        for _ in 0..times {
            staging
                .get_mapped_range_mut(..)?
                .slice(..)
                .copy_from_slice(values);
            staging.unmap();
            let mut encoder = raw.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&staging, 0, data.raw(), 0, bytes as u64);
            let index = device.raw_queue().submit([encoder.finish()]);
            staging.map_async(wgpu::MapMode::Write, .., |mapped| {
                mapped.expect("it is mapped")
            });
            wait(device, index)?;
        }
        Ok(())
    })
}

/// Waits for the end of a submission, and for what was mapped behind it.
fn wait(device: &Device, index: wgpu::SubmissionIndex) -> Result<(), Error> {
    device.raw().poll(wgpu::PollType::Wait {
        submission_index: Some(index),
        timeout: None,
    })?;
    Ok(())
}
