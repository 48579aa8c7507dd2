//! Devices: choosing them, adopting them, what they say of themselves.

use std::process::{Command, ExitCode};

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Constants, Context, Device, DeviceBuffer, DeviceOptions, Program,
    buffers::MemoryError,
    device::{Aspect, Capability, DeviceError, ExecutionError},
};

cases![
    adapters_have_indices_and_names,
    devices_by_name_and_index,
    unknown_adapters_are_named,
    the_environment_chooses,
    several_devices_at_once,
    adopted_devices_work,
    adopted_devices_can_be_probed,
    the_probe_tells_what_the_adapter_does,
    probing_can_be_turned_off,
    a_probe_without_time_claims_nothing,
    live_memory_can_be_forced_off,
    host_import_can_be_forced_off,
    aspects_and_tiers_agree,
    missing_features_are_refused,
    lost_devices_answer,
    a_fault_is_the_reason_of_the_loss,
    small_programs_take_little_memory_from_a_software_driver,
];

fn adapters_have_indices_and_names(f: &Fixture) {
    let adapters = f.context.adapters();
    for (index, adapter) in adapters.iter().enumerate() {
        assert_eq!(adapter.index, index);
        assert!(!adapter.name.is_empty());
    }
    assert_eq!(adapters[f.index].name, f.device.name());
}

/// Set where this program is only to say which device it is given.
const SAY: &str = "TOMBOLO_TEST_SAY_DEVICE";

/// What the program does instead of testing, when [`SAY`] is set: environments are chosen for whole
/// processes.
pub fn as_another_program() -> Option<ExitCode> {
    std::env::var_os(SAY)?;
    let device = Context::new().and_then(|context| context.device());
    Some(match device {
        Ok(device) => {
            println!("{}", device.name());
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    })
}

fn the_environment_chooses(f: &Fixture) {
    let ask = |variable: &str, value: &str| {
        let program = std::env::current_exe().unwrap();
        let output = Command::new(program)
            .env_remove("WGPU_ADAPTER_NAME")
            .env_remove("WGPU_BACKEND")
            .env(SAY, "1")
            .env(variable, value)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        (output.status.success(), said.trim().to_owned())
    };
    let name = f.device.name();
    assert_eq!(ask("WGPU_ADAPTER_NAME", name), (true, name.to_owned()));
    let (found, said) = ask("WGPU_ADAPTER_NAME", "abacus");
    assert!(
        !found && said.contains("abacus") && said.contains(name),
        "{said}"
    );
    let backend = f.device.capabilities().backend;
    assert!(ask("WGPU_BACKEND", backend.to_str()).0);
    let (found, said) = ask("WGPU_BACKEND", "abacus");
    assert!(!found && said.contains("WGPU_BACKEND=abacus"), "{said}");
    // No machine has both.
    let foreign = if backend == wgpu::Backend::Metal {
        "dx12"
    } else {
        "metal"
    };
    let (found, said) = ask("WGPU_BACKEND", foreign);
    assert!(!found, "{said}");
}

fn devices_by_name_and_index(f: &Fixture) {
    let name = f.device.name();
    let part: String = name.chars().take(6).collect();
    let found = f.context.device_named(&part.to_uppercase()).unwrap();
    assert_eq!(found.name(), name);
    assert_eq!(f.context.device_at(f.index).unwrap().name(), name);
}

fn unknown_adapters_are_named(f: &Fixture) {
    match f.context.device_named("abacus").unwrap_err() {
        DeviceError::UnknownAdapter { wanted, available } => {
            assert_eq!(wanted, "abacus");
            assert!(available.iter().any(|name| name == f.device.name()));
        }
        other => panic!("{other}"),
    }
    let count = f.context.adapters().len();
    assert!(matches!(
        f.context.device_at(count).unwrap_err(),
        DeviceError::AdapterIndex { index, count: c } if index == c && c == count
    ));
    assert!(matches!(
        Context::with_backends(wgpu::Backends::empty()).unwrap_err(),
        DeviceError::NoAdapter { .. }
    ));
}

const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

fn increment(device: &Device, start: u32) -> Vec<u32> {
    let program = Program::new("inc.wgsl", INCREMENT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let data = device.buffer(&[start; 5]).unwrap();
    kernel
        .launch()
        .buffer("data", &data)
        .invocations(5)
        .submit()
        .unwrap();
    data.read().unwrap()
}

fn several_devices_at_once(f: &Fixture) {
    // On this adapter and on every other one.
    let mut devices: Vec<Device> = (0..3).map(|_| f.open(|_| {})).collect();
    for adapter in f.context.adapters() {
        devices.push(f.context.device_at(adapter.index).unwrap());
    }
    let program = Program::new("inc.wgsl", INCREMENT).unwrap();
    let buffers: Vec<DeviceBuffer<u32>> = devices
        .iter()
        .enumerate()
        .map(|(i, device)| {
            let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
            let data = device.buffer(&[10 * i as u32; 100]).unwrap();
            for _ in 0..=i {
                kernel
                    .launch()
                    .buffer("data", &data)
                    .invocations(100)
                    .submit()
                    .unwrap();
            }
            data
        })
        .collect();
    for (i, data) in buffers.iter().enumerate() {
        assert_eq!(data.read().unwrap(), vec![11 * i as u32 + 1; 100]);
    }
}

/// A wgpu device that was opened without any help from here.
pub fn raw_device(f: &Fixture) -> (wgpu::Device, wgpu::Queue) {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let instances = [
        instance,
        #[cfg(embedded)]
        // SAFETY: the instance is fresh and belongs to wgpu from here on.
        unsafe {
            wgpu::Instance::from_hal::<tombolo_cpu::Api>(tombolo_cpu::Instance::default())
        },
    ];
    let adapter = instances
        .iter()
        .flat_map(|instance| pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all())))
        .find(|adapter| adapter.get_info().name == f.device.name())
        .unwrap();
    pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default())).unwrap()
}

fn adopted_devices_work(f: &Fixture) {
    let (raw, queue) = raw_device(f);
    let device = Device::adopt(raw.clone(), queue.clone(), DeviceOptions::default());
    assert_eq!(device.name(), f.device.name());
    assert!(!device.has(Aspect::LiveMemory));
    assert_eq!(increment(&device, 41), [42; 5]);
    // Its own commands go on beside ours.
    let data = device.buffer(&[1u32; 4]).unwrap();
    device.flush().unwrap();
    queue.write_buffer(data.raw(), 0, bytemuck::bytes_of(&9u32));
    queue.submit([]);
    assert_eq!(data.read().unwrap(), [9, 1, 1, 1]);
    // A guarded kernel, since an adopted device was not probed.
    let program = Program::new(
        "open.wgsl",
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(1) fn main() {
            let turns = data[0]; var n = 0u;
            for (var i = 0u; i < turns; i++) { n += 1u; }
            data[1] = n;
         }",
    )
    .unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    assert!(kernel.is_loop_guarded());
    for turns in [1000u32, 200_000] {
        let data = device.buffer(&[turns, 0]).unwrap();
        kernel
            .launch()
            .buffer("data", &data)
            .workgroups(1)
            .submit()
            .unwrap();
        match data.read() {
            Ok(values) => assert_eq!(values, [turns, turns]),
            Err(error) => assert!(turns > 1000 && f.is_lavapipe(), "{error}"),
        }
    }
}

fn adopted_devices_can_be_probed(f: &Fixture) {
    let (raw, queue) = raw_device(f);
    let mut options = DeviceOptions::default();
    options.probe = Some(true);
    let device = Device::adopt(raw, queue, options);
    assert_eq!(
        device.capabilities().loop_budget(),
        f.device.capabilities().loop_budget()
    );
    assert_eq!(increment(&device, 1), [2; 5]);
}

fn the_probe_tells_what_the_adapter_does(f: &Fixture) {
    let capabilities = f.device.capabilities();
    if f.is_lavapipe() || f.is_swiftshader() {
        assert!(capabilities.software && capabilities.unified_memory);
        assert!(f.device.has(Aspect::LiveMemory), "{:?}", capabilities.probe);
        assert!(f.device.has(Aspect::HostImport), "{:?}", capabilities.probe);
    }
    if f.is_lavapipe() {
        let budget = capabilities.loop_budget().unwrap();
        assert!((65_000..66_000).contains(&budget), "{budget}");
        assert!(!f.device.has(Aspect::UnboundedLoops));
    }
    if f.is_swiftshader() {
        assert_eq!(capabilities.loop_budget(), None);
        assert!(f.device.has(Aspect::UnboundedLoops));
    }
}

fn probing_can_be_turned_off(f: &Fixture) {
    let device = f.open(|options| options.probe = Some(false));
    assert!(!device.has(Aspect::LiveMemory));
    assert!(device.capabilities().needs_loop_guard());
    assert_eq!(increment(&device, 3), [4; 5]);
}

fn host_import_can_be_forced_off(f: &Fixture) {
    let device = f.open(|options| options.import_host_memory = false);
    assert!(!device.has(Aspect::HostImport));
    let why = device.capabilities().explain(Aspect::HostImport);
    assert!(why.contains("import"), "{why}");
    assert_eq!(device.raw().features(), f.device.raw().features());
    assert_eq!(device.raw().limits(), f.device.raw().limits());
    assert_eq!(increment(&device, 3), [4; 5]);
}

fn a_probe_without_time_claims_nothing(f: &Fixture) {
    let context = Context::new().unwrap();
    let mut options = DeviceOptions::default();
    options.probe_deadline = std::time::Duration::ZERO;
    let hurried = context.device_named_with(f.device.name(), options).unwrap();
    assert!(!hurried.has(Aspect::LiveMemory) && !hurried.has(Aspect::HostImport));
    assert!(hurried.capabilities().needs_loop_guard());
    assert_eq!(increment(&hurried, 3), [4; 5]);
    // Who gives it time is not told what was not found without.
    let device = context.device_named(f.device.name()).unwrap();
    for aspect in [Aspect::LiveMemory, Aspect::HostImport] {
        assert_eq!(device.has(aspect), f.device.has(aspect), "{aspect:?}");
    }
}

fn live_memory_can_be_forced_off(f: &Fixture) {
    let device = f.open(|options| options.live_memory = false);
    assert!(!device.has(Aspect::LiveMemory));
    let why = device.capabilities().explain(Aspect::LiveMemory);
    assert!(why.contains("DeviceOptions::live_memory"), "{why}");
    assert_eq!(increment(&device, 3), [4; 5]);
}

fn aspects_and_tiers_agree(f: &Fixture) {
    let capabilities = f.device.capabilities();
    for &aspect in Aspect::ALL {
        assert_eq!(f.device.has(aspect), capabilities.has(aspect));
        assert!(!capabilities.explain(aspect).is_empty(), "{aspect}");
    }
    for &capability in Capability::ALL {
        let report = capabilities.tier(capability);
        assert_eq!(report.capability, capability);
        assert!(!report.why.is_empty(), "{capability}");
    }
    assert_ne!(f.device.has(Aspect::Cpu), f.device.has(Aspect::Gpu));
}

fn missing_features_are_refused(f: &Fixture) {
    let all = wgpu::Features::all() - wgpu::Features::all_experimental_mask();
    let error = f.context.device_at_with(f.index, {
        let mut options = DeviceOptions::default();
        options.features = all;
        options
    });
    match error.unwrap_err() {
        DeviceError::MissingFeatures { adapter, missing } => {
            assert_eq!(adapter, f.device.name());
            assert!(!missing.is_empty());
        }
        other => panic!("{other}"),
    }
}

fn lost_devices_answer(f: &Fixture) {
    let device = f.open(|_| {});
    let program = Program::new("inc.wgsl", INCREMENT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let data = device.buffer(&[1u32; 4]).unwrap();
    let event = kernel
        .launch()
        .buffer("data", &data)
        .invocations(4)
        .submit()
        .unwrap();
    event.wait().unwrap();
    device.raw().destroy();
    // Whatever is asked now, the answer is an error, not a panic and not a wait without end.
    let again = kernel
        .launch()
        .buffer("data", &data)
        .invocations(4)
        .submit();
    if let Ok(event) = again {
        assert!(event.wait().is_err());
    }
    assert!(data.read().is_err());
    assert!(data.write(0, &[1]).is_err() || device.finish().is_err());
    for made in [
        device.zeroed::<u32>(4).map(drop),
        device.buffer(&[1u32; 4]).map(drop),
    ] {
        let error = made.unwrap_err();
        assert!(
            matches!(&error, MemoryError::Execution(lost) if matches!(**lost, ExecutionError::DeviceLost { .. })),
            "{error}"
        );
    }
}

/// A kernel of the program's own that faults, before launches of the runtime: none of them ends well, and all say why.
fn a_fault_is_the_reason_of_the_loss(f: &Fixture) {
    // Elsewhere a kernel without checks may do anything.
    if !f.is_embedded() {
        return;
    }
    let device = f.open(|_| {});
    let data = device.buffer(&[1u32; 4]).unwrap();
    let program = Program::new("inc.wgsl", INCREMENT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let descriptor = wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(
            "@group(0) @binding(0) var<storage, read_write> words: array<u32>;
             @compute @workgroup_size(1) fn far() { words[3000000000u + words[0]] = 1u; }"
                .into(),
        ),
    };
    let raw = device.raw();
    // SAFETY: the fault is what is tested: the adapter promises that it ends the device and nothing else.
    let module = unsafe {
        raw.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked())
    };
    let pipeline = raw.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: None,
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let words = raw.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 64,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    });
    let group = raw.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry {
            binding: 0,
            resource: words.as_entire_binding(),
        }],
    });
    let mut encoder = raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups(1, 1, 1);
    drop(pass);
    device.raw_queue().submit([encoder.finish()]);
    let launch = kernel.launch().buffer("data", &data).invocations(4);
    let error = match launch.clone().submit() {
        Ok(event) => event.wait().unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("the kernel far was ended by"), "{error}");
    let error = device.finish().unwrap_err().to_string();
    assert!(error.contains("the kernel far was ended by"), "{error}");
}

/// Such a driver fills with zeros what it gives.
fn small_programs_take_little_memory_from_a_software_driver(f: &Fixture) {
    let device = f.open(|_| {});
    let words: DeviceBuffer<u32> = device.zeroed(16).unwrap();
    assert_eq!(words.read().unwrap(), [0; 16]);
    // wgpu tells of its own memory only, and not on every backend.
    let report = device.raw().generate_allocator_report();
    if let Some(report) = report.filter(|_| !f.is_card()) {
        assert!(report.total_reserved_bytes <= 32 << 20, "{report:?}");
    }
}
