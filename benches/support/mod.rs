//! What the benches share: the hand-written side on raw wgpu, pairs of measurements, and the rows' lines.

#![allow(dead_code)] // Each bench uses its part.

use std::collections::BTreeMap;
use std::time::Instant;

use tombolo::{Constants, Device, Kernel, Program};

pub type Error = Box<dyn std::error::Error>;

/// The hand-written side: a pipeline with the layout that wgpu derives, and its bind group.
pub struct Raw {
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
}

impl Raw {
    /// The buffers are those of bindings 0, 1, ... of group 0.
    pub fn new(device: &Device, source: &str, buffers: &[&wgpu::Buffer]) -> Self {
        let whole = |buffer: &&wgpu::Buffer| ((*buffer).clone(), 0, buffer.size());
        let ranges: Vec<_> = buffers.iter().map(whole).collect();
        Self::with_ranges(device, source, &ranges)
    }

    /// As [`Raw::new`], with the first byte of each buffer and how many are bound.
    pub fn with_ranges(
        device: &Device,
        source: &str,
        buffers: &[(wgpu::Buffer, u64, u64)],
    ) -> Self {
        let raw = device.raw();
        let pipeline = pipeline(device, source);
        let entries: Vec<_> = (0..)
            .zip(buffers)
            .map(|(binding, (buffer, offset, bytes))| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer,
                    offset: *offset,
                    size: wgpu::BufferSize::new(*bytes),
                }),
            })
            .collect();
        let group = raw.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        Self { pipeline, group }
    }

    /// One submission of `launches` dispatches, waited for.
    pub fn run(&self, device: &Device, launches: u32, groups: u32) -> Result<(), Error> {
        let mut encoder = device
            .raw()
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.encode(&mut encoder, launches, groups);
        let index = device.raw_queue().submit([encoder.finish()]);
        device.raw().poll(wgpu::PollType::Wait {
            submission_index: Some(index),
            timeout: None,
        })?;
        Ok(())
    }

    /// Dispatches in one pass.
    pub fn encode(&self, encoder: &mut wgpu::CommandEncoder, launches: u32, groups: u32) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        for _ in 0..launches {
            pass.dispatch_workgroups(groups, 1, 1);
        }
    }
}

/// A pipeline of raw wgpu over a storage buffer and a uniform word at a dynamic offset, and its bind group.
pub fn at_offsets(
    device: &Device,
    source: &str,
    data: &wgpu::Buffer,
    values: &wgpu::Buffer,
) -> (wgpu::ComputePipeline, wgpu::BindGroup) {
    let raw = device.raw();
    let entry = |binding, ty, dynamic| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty,
            has_dynamic_offset: dynamic,
            min_binding_size: wgpu::BufferSize::new(4),
        },
        count: None,
    };
    let storage = wgpu::BufferBindingType::Storage { read_only: false };
    let layout = raw.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: None,
        entries: &[
            entry(0, storage, false),
            entry(1, wgpu::BufferBindingType::Uniform, true),
        ],
    });
    let group = raw.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &layout,
        entries: &[
            wgpu::BindGroupEntry {
                binding: 0,
                resource: data.as_entire_binding(),
            },
            wgpu::BindGroupEntry {
                binding: 1,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: values,
                    offset: 0,
                    size: wgpu::BufferSize::new(4),
                }),
            },
        ],
    });
    let layout = raw.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&layout)],
        ..Default::default()
    });
    let module = raw.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(source.into()),
    });
    let pipeline = raw.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: Some(&layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    (pipeline, group)
}

/// A pipeline of raw wgpu, with the layout that wgpu derives.
pub fn pipeline(device: &Device, source: &str) -> wgpu::ComputePipeline {
    let raw = device.raw();
    let module = raw.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(source.into()),
    });
    raw.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    })
}

pub fn ours(device: &Device, source: &str) -> Result<Kernel, Error> {
    let program = Program::new("bench.wgsl", source)?;
    Ok(device.kernel(&program, "main", &Constants::new())?)
}

/// Seconds that `work` takes.
pub fn seconds(work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Ratios of ours to theirs, run in turn `count` times after a warm-up.
pub fn pairs(
    count: usize,
    mut ours: impl FnMut() -> Result<(), Error>,
    mut theirs: impl FnMut() -> Result<(), Error>,
) -> Result<Vec<f64>, Error> {
    let ratios: Result<Vec<f64>, Error> = (0..=count)
        .map(|i| {
            // Whoever goes second finds warmer caches: take turns.
            if i % 2 == 0 {
                let a = seconds(&mut ours)?;
                Ok(a / seconds(&mut theirs)?)
            } else {
                let b = seconds(&mut theirs)?;
                Ok(seconds(&mut ours)? / b)
            }
        })
        .collect();
    Ok(ratios?.split_off(1))
}

/// The row's line, for at least one measurement.
pub fn row(label: &str, adapter: &str, limit: f64, ratios: Vec<f64>) -> String {
    let spread = spread(ratios, 3);
    format!("ratio {label}/{adapter} = {spread} goal <= {limit}")
}

/// The median, the least and the most of at least one measurement.
pub fn spread(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    format!(
        "{:.digits$} ({:.digits$}..{:.digits$})",
        values[values.len() / 2],
        values[0],
        values[values.len() - 1],
    )
}

/// What was measured for each row, with its goal.
#[derive(Default)]
pub struct Rows(BTreeMap<String, (Option<f64>, Vec<f64>)>);

impl Rows {
    /// Notes what a round has measured; the one with the number 0 warms up.
    pub fn note(&mut self, round: usize, row: String, goal: Option<f64>, value: f64) {
        if round > 0 {
            self.0
                .entry(row)
                .or_insert((goal, Vec::new()))
                .1
                .push(value);
        }
    }

    /// Prints them; `sign` says whether goals are limits from above or from below.
    pub fn print(self, sign: &str, digits: usize) {
        for (row, (goal, values)) in self.0 {
            let goal = goal.map_or(String::new(), |goal| format!(" goal {sign} {goal}"));
            println!("{row} = {}{goal}", spread(values, digits));
        }
    }
}

/// What rows call an adapter.
pub fn word(name: &str) -> &str {
    name.split([' ', '(']).next().unwrap_or("adapter")
}
