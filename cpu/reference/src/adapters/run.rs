//! Batches of kernels: one command buffer, one read-back.

use std::sync::mpsc;
use std::time::Duration;

use wgpu::util::{BufferInitDescriptor, DeviceExt as _};

use super::Opened;
use crate::source;

/// A kernel and what it is given: storage buffers, all bound to group 0 in their order.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// WGSL.
    pub text: &'a str,
    pub entry_point: &'a str,
    pub buffers: &'a [Vec<u8>],
    pub workgroups: [u32; 3],
}

/// Why a batch has no results.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// wgpu or the driver refused a kernel.
    #[error("the kernel was refused: {0}")]
    Refused(String),
    /// The results did not come in time.
    #[error("the batch did not end within {0:?}")]
    Timeout(Duration),
    /// The device was lost, or its results could not be read.
    #[error("the device failed: {0}")]
    Device(String),
}

/// How long a batch may take. Nothing that is run here comes near it.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs a batch. For each job the contents of its buffers afterwards, or why there are none: a kernel
/// that is refused does not keep others from running.
///
/// # Errors
/// If the batch as a whole fails.
pub fn run(
    opened: &Opened,
    jobs: &[Job<'_>],
) -> Result<Vec<Result<Vec<Vec<u8>>, RunError>>, RunError> {
    let device = &opened.device;
    let prepared: Vec<Result<Prepared, RunError>> =
        jobs.iter().map(|job| prepare(device, job)).collect();
    let total: u64 = prepared
        .iter()
        .flatten()
        .flat_map(|job| &job.buffers)
        .map(wgpu::Buffer::size)
        .sum();
    let staging = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("results"),
        size: total.max(4),
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
        mapped_at_creation: false,
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    for (job, prepared) in jobs.iter().zip(&prepared) {
        if let Ok(prepared) = prepared {
            pass.set_pipeline(&prepared.pipeline);
            pass.set_bind_group(0, &prepared.group, &[]);
            let [x, y, z] = job.workgroups;
            pass.dispatch_workgroups(x, y, z);
        }
    }
    drop(pass);
    let mut offset = 0;
    for buffer in prepared.iter().flatten().flat_map(|job| &job.buffers) {
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, offset, buffer.size());
        offset += buffer.size();
    }
    let bytes = submit_and_read(opened, encoder, &staging)?;
    let mut rest = &bytes[..];
    Ok(prepared
        .into_iter()
        .map(|prepared| {
            let mut take = |buffer: &wgpu::Buffer| {
                let (contents, after) = rest.split_at(buffer.size() as usize);
                rest = after;
                contents.to_vec()
            };
            prepared.map(|prepared| prepared.buffers.iter().map(&mut take).collect())
        })
        .collect())
}

fn submit_and_read(
    opened: &Opened,
    encoder: wgpu::CommandEncoder,
    staging: &wgpu::Buffer,
) -> Result<Vec<u8>, RunError> {
    let scope = opened
        .device
        .push_error_scope(wgpu::ErrorFilter::Validation);
    opened.queue.submit([encoder.finish()]);
    if let Some(error) = pollster::block_on(scope.pop()) {
        return Err(RunError::Device(error.to_string()));
    }
    let (sender, receiver) = mpsc::channel();
    staging.map_async(wgpu::MapMode::Read, .., move |result| {
        // The receiver may have given up.
        let _ = sender.send(result);
    });
    let polled = opened.device.poll(wgpu::PollType::Wait {
        submission_index: None,
        timeout: Some(TIMEOUT),
    });
    match polled {
        Ok(_) => {}
        Err(wgpu::PollError::Timeout) => return Err(RunError::Timeout(TIMEOUT)),
        Err(error) => return Err(RunError::Device(error.to_string())),
    }
    match receiver.recv_timeout(TIMEOUT) {
        Ok(Ok(())) => {
            let bytes = staging
                .get_mapped_range(..)
                .map_err(|error| RunError::Device(error.to_string()))?
                .to_vec();
            staging.unmap();
            Ok(bytes)
        }
        Ok(Err(error)) => Err(RunError::Device(error.to_string())),
        Err(_) => Err(RunError::Timeout(TIMEOUT)),
    }
}

/// A job on a device.
struct Prepared {
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
    buffers: Vec<wgpu::Buffer>,
}

/// The bindings that the text declares. wgpu derives only those that are used, and random programs need not use all.
fn layout_entries(job: &Job<'_>) -> Result<Vec<wgpu::BindGroupLayoutEntry>, RunError> {
    let module = source::parse(job.text).map_err(|error| RunError::Refused(error.to_string()))?;
    let entry = |(_, variable): (_, &naga::GlobalVariable)| {
        let ty = match variable.space {
            naga::AddressSpace::Storage { access } => wgpu::BufferBindingType::Storage {
                read_only: !access.contains(naga::StorageAccess::STORE),
            },
            _ => wgpu::BufferBindingType::Uniform,
        };
        Some(wgpu::BindGroupLayoutEntry {
            binding: variable.binding.as_ref()?.binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty,
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        })
    };
    Ok(module.global_variables.iter().filter_map(entry).collect())
}

fn prepare(device: &wgpu::Device, job: &Job<'_>) -> Result<Prepared, RunError> {
    let entries = layout_entries(job)?;
    let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(job.text.into()),
    });
    let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: None,
        entries: &entries,
    });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some(job.entry_point),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let buffers: Vec<wgpu::Buffer> = job
        .buffers
        .iter()
        .map(|contents| {
            device.create_buffer_init(&BufferInitDescriptor {
                label: None,
                contents,
                usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
            })
        })
        .collect();
    let entries: Vec<wgpu::BindGroupEntry<'_>> = buffers
        .iter()
        .enumerate()
        .map(|(binding, buffer)| wgpu::BindGroupEntry {
            binding: binding as u32,
            resource: buffer.as_entire_binding(),
        })
        .collect();
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &layout,
        entries: &entries,
    });
    let errors = [
        pollster::block_on(internal.pop()),
        pollster::block_on(scope.pop()),
    ];
    match errors.into_iter().flatten().next() {
        Some(error) => Err(RunError::Refused(error.to_string())),
        None => Ok(Prepared {
            pipeline,
            group,
            buffers,
        }),
    }
}
