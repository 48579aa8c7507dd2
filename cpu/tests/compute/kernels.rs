//! Compiled kernels that another device takes over.

use tombolo_cpu::{Api, KernelDataError, Options};

use crate::harness::Cpu;

const SOURCE: &str = "
    override factor: u32 = 3u;
    @group(0) @binding(0) var<storage, read_write> out: array<u32>;
    var<workgroup> shared_words: array<u32, 16>;
    const TABLE = array(5u, 7u, 11u, 13u);
    @compute @workgroup_size(16) fn main(@builtin(local_invocation_index) i: u32) {
        shared_words[i] = TABLE[i & 3u] * factor + out[i];
        workgroupBarrier();
        out[i] = shared_words[i ^ 1u];
    }";

/// Runs the kernel with a cache of wgpu, or without, and checks what it computes.
fn run(cpu: &Cpu, factor: u32, cached: bool) {
    let device = &cpu.device;
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(SOURCE.into()),
    });
    // SAFETY: there are no data.
    let cache = cached.then(|| unsafe {
        device.create_pipeline_cache(&wgpu::PipelineCacheDescriptor {
            label: None,
            data: None,
            fallback: false,
        })
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: None,
        compilation_options: wgpu::PipelineCompilationOptions {
            constants: &[("factor", factor.into())],
            ..Default::default()
        },
        cache: cache.as_ref(),
    });
    let given: Vec<u32> = (0..16).map(|i| i * 100).collect();
    let buffer = cpu.buffer(bytemuck::cast_slice(&given));
    let group = cpu.group(&pipeline, &[&buffer]);
    cpu.dispatch(&pipeline, &group, [1, 1, 1]);
    let expected: Vec<u32> = (0..16)
        .map(|i: u32| [5, 7, 11, 13][(i ^ 1) as usize & 3] * factor + (i ^ 1) * 100)
        .collect();
    assert_eq!(cpu.read::<u32>(&buffer), expected);
}

fn export(cpu: &Cpu) -> Vec<u8> {
    // SAFETY: the device is only asked.
    unsafe { cpu.device.as_hal::<Api>() }
        .unwrap()
        .export_kernels()
}

fn import(cpu: &Cpu, data: &[u8]) -> Result<usize, KernelDataError> {
    // SAFETY: the data are those of a device of this process, or refused.
    unsafe {
        let device = cpu.device.as_hal::<Api>().unwrap();
        device.import_kernels(data)
    }
}

/// Kernels that were compiled and found for a device, besides those that wgpu has made for itself.
fn counts(cpu: &Cpu, f: impl FnOnce()) -> (u64, u64) {
    let counts = || {
        // SAFETY: the device is only asked.
        let device = unsafe { cpu.device.as_hal::<Api>() };
        device.unwrap().kernel_counts()
    };
    let before = counts();
    f();
    let after = counts();
    (after.compiled - before.compiled, after.found - before.found)
}

#[test]
fn kernels_are_taken_over() {
    let first = Cpu::new();
    assert_eq!(counts(&first, || run(&first, 3, true)), (1, 0));
    assert_eq!(counts(&first, || run(&first, 3, true)), (0, 1));
    // Other constants are another kernel, and without a cache none is kept.
    assert_eq!(counts(&first, || run(&first, 4, true)), (1, 0));
    assert_eq!(counts(&first, || run(&first, 3, false)), (1, 0));
    let data = export(&first);

    let second = Cpu::new();
    assert_eq!(import(&second, &data), Ok(2));
    assert_eq!(counts(&second, || run(&second, 3, true)), (0, 1));
    assert_eq!(counts(&second, || run(&second, 5, true)), (1, 0));
    // What was taken over and not used is passed on.
    assert_eq!(import(&Cpu::new(), &export(&second)), Ok(3));

    // Another number of lanes is another kernel.
    let mut options = Options::default();
    options.lanes = 4;
    let third = Cpu::with(options);
    assert_eq!(import(&third, &data), Ok(2));
    assert_eq!(counts(&third, || run(&third, 3, true)), (1, 0));
}

#[test]
fn instrumented_kernels_are_not_kept() {
    let plain = Cpu::new();
    run(&plain, 3, true);
    let mut options = Options::default();
    options.sanitizer = Some(Default::default());
    let checked = Cpu::with(options);
    assert_eq!(import(&checked, &export(&plain)), Ok(1));
    assert_eq!(counts(&checked, || run(&checked, 3, true)), (1, 0));
    assert_eq!(counts(&checked, || run(&checked, 3, true)), (1, 0));
}

#[test]
fn other_data_are_refused() {
    let cpu = Cpu::new();
    run(&cpu, 3, true);
    let data = export(&cpu);
    assert_eq!(
        import(&cpu, b"something else"),
        Err(KernelDataError::NoKernels)
    );
    let mut damaged = data.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(import(&cpu, &damaged), Err(KernelDataError::Damaged));
    assert_eq!(
        import(&cpu, &data[..data.len() - 1]),
        Err(KernelDataError::Damaged)
    );
    let mut other = data.clone();
    let at = other.windows(11).position(|w| w == b"tombolo-cpu").unwrap();
    let at = other[at + 1..]
        .windows(11)
        .position(|w| w == b"tombolo-cpu")
        .map_or(at, |next| at + 1 + next);
    other[at] = b'T';
    assert!(matches!(
        import(&cpu, &other),
        Err(KernelDataError::OtherBuild { .. })
    ));
    // Nothing of it was taken over.
    assert_eq!(export(&cpu), data);
}
