//! What lies around kernels: caches, modules compiled elsewhere, programs that use wgpu themselves.

use std::time::{Duration, Instant};

use tombolo::{
    Constants, Device, DeviceOptions, Program,
    device::{Aspect, Capability},
    kernel::{KernelError, Precompiled},
};

use crate::launches::counting;
use crate::{Held, Shown, Stage, Stop, expect, held};

pub const STOPS: &[Stop] = &[
    Stop {
        name: "caches",
        shows: "nothing is made a second time",
        capability: Capability::Launches,
        run: caches,
    },
    Stop {
        name: "pipeline cache",
        shows: "compiled pipelines kept on disk",
        capability: Capability::PipelineCache,
        run: pipeline_cache,
    },
    Stop {
        name: "live memory",
        shows: "host and running kernel, talking",
        capability: Capability::LiveMemory,
        run: live_memory,
    },
    Stop {
        name: "precompiled",
        shows: "SPIR-V passed through to the driver",
        capability: Capability::PassthroughShaders,
        run: precompiled,
    },
    Stop {
        name: "wgpu",
        shows: "a device and a buffer made by wgpu",
        capability: Capability::Launches,
        run: wgpu_interoperation,
    },
];

fn caches(stage: &Stage) -> Shown {
    let device = &stage.device;
    let counters = device.zeroed::<u32>(64)?;
    let run = || -> Result<(), Box<dyn std::error::Error>> {
        let kernel = counting(device, "increment")?;
        kernel
            .launch()
            .buffer("counters", &counters)
            .invocations(64)
            .submit()?
            .wait()?;
        Ok(())
    };
    run()?;
    let before = device.cache_statistics();
    for _ in 0..10 {
        run()?;
    }
    let after = device.cache_statistics();
    let made = (
        after.modules.misses - before.modules.misses,
        after.kernels.misses - before.kernels.misses,
        after.bind_groups.misses - before.bind_groups.misses,
    );
    expect("modules, kernels, bind groups made", &made, &(0, 0, 0))?;
    held(format!(
        "{} kernels, {} bind groups",
        after.kernels.entries, after.bind_groups.entries
    ))
}

fn pipeline_cache(stage: &Stage) -> Shown {
    if !stage.device.has(Aspect::PipelineCache) {
        let why = stage.device.capabilities().explain(Aspect::PipelineCache);
        return Ok(Held::NotHere(why));
    }
    let folder = std::env::temp_dir().join(format!("tombolo-tour-{}", std::process::id()));
    let result = keep_pipelines(stage, &folder);
    // A folder that was not made is no failure, and one that stays harms nobody.
    let _ = std::fs::remove_dir_all(&folder);
    result
}

/// The kernel announces itself, waits a bounded time for the host's word, and answers from it.
fn live_memory(stage: &Stage) -> Shown {
    if !stage.device.has(Aspect::LiveMemory) {
        let why = stage.device.capabilities().explain(Aspect::LiveMemory);
        return Ok(Held::NotHere(why));
    }
    let program = Program::new("talk.wgsl", include_str!("kernels/talk.wgsl"))?;
    let kernel = stage.device.kernel(&program, "main", &Constants::new())?;
    let words = stage.device.live(4)?;
    // Many work-groups wait in turn: one alone ends before a busy machine lets the host answer.
    let mut launch = kernel.launch().buffer("words", &words).workgroups(256);
    for attempt in 1..=20u32 {
        let token = attempt * 10;
        words.store(2, token);
        let event = launch.submit()?;
        stage.device.flush()?;
        let deadline = Instant::now() + Duration::from_secs(5);
        while words.load(0) != Some(token) {
            if Instant::now() > deadline {
                return Err("the kernel's word never arrived".into());
            }
            std::hint::spin_loop();
        }
        words.store(1, token + 1);
        event.wait()?;
        if words.load(3) == Some(token + 2) {
            return held(format!("answered in mid-launch, attempt {attempt}"));
        }
    }
    Err("no kernel saw the host's word while it ran".into())
}

fn keep_pipelines(stage: &Stage, folder: &std::path::Path) -> Shown {
    let options = DeviceOptions::default().pipeline_cache(folder.to_owned());
    let device = stage.context.device_with(options.clone())?;
    let _kernel = counting(&device, "increment")?;
    let file = device.save_pipeline_cache()?;
    let bytes = std::fs::metadata(&file)?.len();
    drop(device);
    let again = stage.context.device_with(options)?;
    let _kernel = counting(&again, "increment")?;
    held(format!("{bytes} bytes, opened again"))
}

fn precompiled(stage: &Stage) -> Shown {
    let device = &stage.device;
    let capabilities = device.capabilities();
    if !device.has(Aspect::PassthroughShaders) {
        let why = capabilities.explain(Aspect::PassthroughShaders);
        return Ok(Held::NotHere(why));
    }
    if capabilities.backend != wgpu::Backend::Vulkan {
        return Ok(Held::NotHere("SPIR-V is for Vulkan".into()));
    }
    let text = Program::new("precompiled.wgsl", include_str!("kernels/precompiled.wgsl"))?;
    let interface = text.interface("square", &Constants::new())?;
    let words = bytemuck::pod_collect_to_vec(include_bytes!("kernels/precompiled.spv"));
    // SAFETY: a validator has passed the module, its bindings are those of the text that it was
    // compiled from, and it compares every index with the length of the buffer.
    let module = unsafe { Precompiled::spirv("precompiled.spv", words, interface) };
    let kernel = device.precompiled_kernel(&module, &Constants::new())?;
    let counters = device.zeroed::<u32>(300)?;
    kernel
        .launch()
        .buffer("counters", &counters)
        .invocations(300)
        .submit()?
        .wait()?;
    let squares: Vec<u32> = (0..300).map(|i| i * i).collect();
    expect("squares", &counters.read()?, &squares)?;
    match device.precompiled_kernel(&module, &Constants::new().set("N", 4u32)) {
        Err(KernelError::FeatureNotSupported { .. }) => held("specializing it refused"),
        Err(other) => Err(other.into()),
        Ok(_) => Err("a constant of a precompiled module was accepted".into()),
    }
}

fn wgpu_interoperation(stage: &Stage) -> Shown {
    // Stands for a program that has set up wgpu on its own.
    let (raw, queue) = (stage.device.raw().clone(), stage.device.raw_queue().clone());
    let theirs = raw.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 400,
        usage: wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    queue.write_buffer(&theirs, 0, bytemuck::cast_slice(&[41u32; 100]));

    let adopted = Device::adopt(raw, queue, DeviceOptions::default());
    let ours = adopted.import::<u32>(theirs)?;
    let kernel = counting(&adopted, "increment")?;
    kernel
        .launch()
        .buffer("counters", &ours)
        .invocations(100)
        .submit()?
        .wait()?;
    expect("values", &ours.read()?, &vec![42; 100])?;
    held("adopted and imported")
}
