//! How submissions end: signals beside wgpu's own, and work that is given up.

use std::time::Duration;

use tombolo_cpu::{Api, Loss, Options};
use wgpu::hal::Device as _;

use crate::harness::Cpu;

fn loss(cpu: &Cpu) -> Option<Loss> {
    // SAFETY: the device is only asked.
    unsafe { cpu.device.as_hal::<Api>() }.unwrap().loss()
}

/// A pipeline without bounds checks.
fn unchecked(cpu: &Cpu, source: &str) -> wgpu::ComputePipeline {
    let descriptor = wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(source.into()),
    };
    // SAFETY: wrong indices are what the tests are about.
    let module = unsafe {
        cpu.device
            .create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked())
    };
    cpu.device
        .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: Default::default(),
            cache: None,
        })
}

#[test]
fn work_groups_that_wait_for_one_that_faults_do_not_wait_for_ever() {
    for threads in [1, 2] {
        let mut options = Options::default();
        options.threads = Some(threads);
        let cpu = Cpu::with(options);
        let pipeline = unchecked(
            &cpu,
            "@group(0) @binding(0) var<storage, read_write> words: array<atomic<u32>>;
             @compute @workgroup_size(1) fn main(@builtin(workgroup_id) group: vec3<u32>) {
                 if (group.x == 5u) { atomicStore(&words[3000000000u + group.x], 1u); }
                 while (atomicLoad(&words[0]) == 0u) {}
             }",
        );
        let buffer = cpu.buffer(&[0; 64]);
        let group = cpu.group(&pipeline, &[&buffer]);
        let scope = cpu.device.push_error_scope(wgpu::ErrorFilter::Validation);
        cpu.dispatch(&pipeline, &group, [8, 1, 1]);
        let polled = cpu.device.poll(wgpu::PollType::Wait {
            submission_index: None,
            timeout: Some(Duration::from_secs(60)),
        });
        drop(pollster::block_on(scope.pop()));
        assert!(
            matches!(loss(&cpu), Some(Loss::Fault { .. })),
            "{:?}, after {polled:?}",
            loss(&cpu)
        );
    }
}

#[test]
fn submissions_signal_what_was_staged() {
    let cpu = Cpu::new();
    // SAFETY: the device makes a fence and is asked for it; nothing is destroyed.
    let device = unsafe { cpu.device.as_hal::<Api>() }.unwrap();
    // SAFETY: as above.
    let fence = unsafe { device.create_fence() }.unwrap();
    let submit = || {
        let encoder = cpu.device.create_command_encoder(&Default::default());
        cpu.queue.submit([encoder.finish()]);
    };
    {
        // SAFETY: the queue is told what to signal, and nothing else.
        let queue = unsafe { cpu.queue.as_hal::<Api>() }.unwrap();
        queue.signal_with_next(&fence, 7);
        assert!(queue.take_back(&fence));
        assert!(!queue.take_back(&fence));
    }
    submit();
    assert_eq!(fence.value(), 0);
    // SAFETY: as above.
    unsafe { cpu.queue.as_hal::<Api>() }
        .unwrap()
        .signal_with_next(&fence, 9);
    assert_eq!(fence.value(), 0);
    submit();
    assert!(fence.wait(9, Some(Duration::from_secs(60))));
    assert_eq!(fence.value(), 9);
    // SAFETY: as above.
    let queue = unsafe { cpu.queue.as_hal::<Api>() }.unwrap();
    assert!(!queue.take_back(&fence));
}
