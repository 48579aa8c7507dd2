//! Kernels: constants, caches, limits, precompiled modules.

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Constants, DeviceBuffer, Program,
    device::Aspect,
    kernel::{CacheCounts, KernelError, Precompiled},
    launch::LaunchError,
};

cases![
    every_type_of_constant,
    half_floats_where_they_exist,
    kernels_and_modules_are_cached,
    pipelines_are_cached_on_disk,
    limits_are_named,
    pipelines_that_wgpu_refuses,
    precompiled_modules,
    precompiled_modules_take_no_private_arrays,
    what_cannot_be_made_is_refused,
    kernels_are_made_from_many_threads,
];

/// Each invocation sorts `N` numbers in a private array and writes the median: the result depends on
/// every element.
pub const MEDIAN: &str = "
override N: u32 = 5;
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;
@compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&sink) { return; }
    var window: array<u32, N>;
    for (var i = 0u; i < N; i++) {
        let value = source[id.x + i];
        var k = i;
        while k > 0u && window[k - 1u] > value { window[k] = window[k - 1u]; k--; }
        window[k] = value;
    }
    sink[id.x] = window[N / 2u];
}";

pub fn noise(len: usize) -> Vec<u32> {
    let mut x = 12345u32;
    (0..len)
        .map(|_| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            x >> 16
        })
        .collect()
}

pub fn medians(source: &[u32], n: usize) -> Vec<u32> {
    source
        .windows(n)
        .map(|window| {
            let mut window = window.to_vec();
            window.sort_unstable();
            window[n / 2]
        })
        .collect()
}

pub fn run(f: &Fixture, source: &str, constants: &Constants, len: usize) -> Vec<u32> {
    let program = Program::new("test.wgsl", source).unwrap();
    let kernel = f.device.kernel(&program, "main", constants).unwrap();
    let sink = f.device.buffer(&vec![0xdead_beefu32; len]).unwrap();
    kernel
        .launch()
        .buffer("sink", &sink)
        .workgroups(1)
        .submit()
        .unwrap()
        .wait()
        .unwrap();
    sink.read().unwrap()
}

fn every_type_of_constant(f: &Fixture) {
    let source = "
        override a: bool = false;
        @id(7) override b: i32 = -4;
        override c: u32;
        @id(9) override d: f32;
        override e = c + 1u;
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(1) fn main() {
            sink[0] = u32(a); sink[1] = bitcast<u32>(b); sink[2] = c; sink[3] = bitcast<u32>(d); sink[4] = e;
        }";
    let given = Constants::new()
        .set("a", true)
        .set_id(7, -9i32)
        .set("c", 40u32)
        .set_id(9, 2.5f32);
    assert_eq!(
        run(f, source, &given, 5),
        [1, -9i32 as u32, 40, 2.5f32.to_bits(), 41]
    );
    let least = Constants::new().set("c", 1u32).set_id(9, 0.5f32);
    assert_eq!(
        run(f, source, &least, 5),
        [0, -4i32 as u32, 1, 0.5f32.to_bits(), 2]
    );
    let program = Program::new("test.wgsl", source).unwrap();
    let refused = |constants: Constants| f.device.kernel(&program, "main", &constants).unwrap_err();
    match refused(Constants::new()) {
        KernelError::MissingConstant {
            missing, available, ..
        } => {
            let names: Vec<_> = missing.iter().map(|c| c.name.as_str()).collect();
            assert_eq!(names, ["c", "d"]);
            assert_eq!(available.len(), 5);
        }
        other => panic!("{other}"),
    }
    assert!(matches!(
        refused(Constants::new().set("z", 1u32)),
        KernelError::UnknownConstant { .. }
    ));
    assert!(matches!(
        refused(Constants::new().set("a", 1u32)),
        KernelError::WrongConstantType { .. }
    ));
    let text = refused(Constants::new().set("z", 1u32)).to_string();
    for name in ["`a: bool", "b: i32", "`c: u32", "d: f32", "`e: u32"] {
        assert!(text.contains(name), "{name} in {text}");
    }
    assert!(matches!(
        f.device.kernel(&program, "nain", &given).unwrap_err(),
        KernelError::UnknownEntryPoint { .. }
    ));
}

fn half_floats_where_they_exist(f: &Fixture) {
    let source = "
        enable f16;
        override h: f16 = 1.5h;
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(1) fn main() { sink[0] = u32(f32(h) * 4.0); }";
    let program = Program::new("half.wgsl", source).unwrap();
    let constants = Constants::new().set("h", half::f16::from_f32(2.25));
    if f.device.has(Aspect::Fp16) {
        assert_eq!(run(f, source, &constants, 1), [9]);
        assert_eq!(run(f, source, &Constants::new(), 1), [6]);
    } else {
        let error = f.device.kernel(&program, "main", &constants).unwrap_err();
        assert!(error.diagnostic().is_some(), "{error}");
    }
}

fn kernels_and_modules_are_cached(f: &Fixture) {
    let context = tombolo::Context::new().unwrap();
    let first = context.device_at(f.index).unwrap();
    let second = context.device_at(f.index).unwrap();
    let program = Program::new("median.wgsl", MEDIAN).unwrap();
    let seven = || Constants::new().set("N", 7u32);
    let counts = |hits, misses, entries| {
        let mut counts = CacheCounts::default();
        (counts.hits, counts.misses, counts.entries) = (hits, misses, entries);
        counts
    };
    for _ in 0..10 {
        first.kernel(&program, "main", &seven()).unwrap();
    }
    let statistics = first.cache_statistics();
    assert_eq!(statistics.kernels, counts(9, 1, 1));
    assert_eq!(statistics.modules, counts(0, 1, 1));
    // The same text in another program is the same kernel, a default is the value it stands for, and
    // another device of the context shares the module.
    let again = Program::new("median.wgsl", MEDIAN).unwrap();
    first.kernel(&again, "main", &seven()).unwrap();
    assert_eq!(first.cache_statistics().kernels, counts(10, 1, 1));
    first.kernel(&program, "main", &Constants::new()).unwrap();
    let five = Constants::new().set("N", 5u32);
    first.kernel(&program, "main", &five).unwrap();
    assert_eq!(first.cache_statistics().kernels.entries, 2);
    second.kernel(&program, "main", &seven()).unwrap();
    assert_eq!(second.cache_statistics().kernels, counts(0, 1, 1));
    assert_eq!(second.cache_statistics().modules.entries, 2);
    // Another text of the same name is another kernel.
    let other = Program::new("median.wgsl", MEDIAN.replace("N / 2u", "0u")).unwrap();
    first.kernel(&other, "main", &seven()).unwrap();
    assert_eq!(first.cache_statistics().kernels.entries, 3);
    // Trimmed, they are empty, and what is held goes on.
    let held = first.kernel(&program, "main", &seven()).unwrap();
    first.trim_caches();
    let statistics = first.cache_statistics();
    assert_eq!(
        (statistics.kernels.entries, statistics.modules.entries),
        (0, 0)
    );
    assert_eq!(held.private_arrays()[0].length, 7);
    first.kernel(&program, "main", &seven()).unwrap();
    assert_eq!(first.cache_statistics().kernels.entries, 1);
}

fn pipelines_are_cached_on_disk(f: &Fixture) {
    let folder = std::env::temp_dir().join(format!("tombolo-test-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let device = f.open(|options| options.pipeline_cache = Some(folder.clone()));
    let program = Program::new("median.wgsl", MEDIAN).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new());
    kernel.unwrap();
    match device.save_pipeline_cache() {
        Ok(path) => {
            assert!(f.device.has(Aspect::PipelineCache));
            assert!(std::fs::metadata(&path).unwrap().len() > 0);
            let whole = std::fs::read(&path).unwrap();
            // It is read back, also when it is damaged, or no cache at all.
            for damage in 0..4 {
                let mut bytes = whole.clone();
                match damage {
                    0 => {}
                    1 => bytes[whole.len() / 2] ^= 1,
                    2 => bytes.truncate(whole.len() - 1),
                    _ => bytes = b"nonsense".to_vec(),
                }
                std::fs::write(&path, bytes).unwrap();
                let again = f.open(|options| options.pipeline_cache = Some(folder.clone()));
                let kernel = again.kernel(&program, "main", &Constants::new()).unwrap();
                let source = noise(104);
                let input = again.buffer(&source).unwrap();
                let output: DeviceBuffer<u32> = again.zeroed(100).unwrap();
                kernel
                    .launch()
                    .buffer("source", &input)
                    .buffer("sink", &output)
                    .invocations(100)
                    .submit()
                    .unwrap();
                assert_eq!(output.read().unwrap(), medians(&source, 5));
                // What is saved then is whole.
                again.save_pipeline_cache().unwrap();
                let saved = std::fs::read(&path).unwrap();
                assert!(saved.len() > 100 && saved[..16] == whole[..16], "{damage}");
            }
        }
        Err(error) => assert!(!f.device.has(Aspect::PipelineCache), "{error}"),
    }
    assert!(f.device.save_pipeline_cache().is_err());
    drop(device);
    let _ = std::fs::remove_dir_all(&folder);
}

fn limits_are_named(f: &Fixture) {
    let device = &f.device;
    let refused = |source: String| {
        let program = Program::new("limits.wgsl", source).unwrap();
        device
            .kernel(&program, "main", &Constants::new())
            .unwrap_err()
    };
    let capabilities = f.device.capabilities();
    // Some GPUs have more than a kernel can be written with.
    let most = capabilities.storage_bindings_per_stage.min(1000);
    let is_reached = most == capabilities.storage_bindings_per_stage;
    let many = if is_reached { most + 1 } else { 0 };
    let (mut source, mut body) = (String::new(), String::new());
    for i in 0..many {
        // There is a way around the number of bindings, and it leads through memory whose words are of one kind.
        let (ty, one) = [("u32", "1u"), ("i32", "1i")][i as usize % 2];
        source += &format!(
            "@group(0) @binding({i}) var<storage, read_write> b{i}: array<atomic<{ty}>>;\n"
        );
        body += &format!("atomicMin(&b{i}[0], {one}); ");
    }
    if is_reached {
        let error = refused(format!(
            "{source} @compute @workgroup_size(1) fn main() {{ {body} }}"
        ));
        match &error {
            KernelError::Limit {
                what: "storage buffers",
                wanted,
                limit,
                ..
            } => assert_eq!(
                (*wanted, *limit),
                (u64::from(many), u64::from(many - 1)),
                "{error}"
            ),
            other => panic!("{other}"),
        }
    }
    let bytes = capabilities.workgroup_storage_bytes + 4;
    let error = refused(format!(
        "var<workgroup> tile: array<u32, {}>;
         @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
         @compute @workgroup_size(1) fn main() {{ tile[sink[1]] = 1u; sink[0] = tile[sink[2]]; }}",
        bytes / 4
    ));
    assert!(
        matches!(&error, KernelError::Limit { what, .. } if what.contains("workgroup memory")),
        "{error}"
    );
    let side = capabilities.workgroup_invocations + 1;
    let error = refused(format!(
        "@group(0) @binding(0) var<storage, read_write> sink: array<u32>;
         @compute @workgroup_size({side}) fn main() {{ sink[0] = 1u; }}"
    ));
    assert!(matches!(error, KernelError::Limit { .. }), "{error}");
}

const DOUBLE: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] *= 2u; }
}";

/// The SPIR-V of `DOUBLE`, made by naga without wgpu's help.
/// Of all that a device may lack wgpu itself looks after formats of textures: none is atomic that is not of whole numbers.
fn pipelines_that_wgpu_refuses(f: &Fixture) {
    let text = "@group(0) @binding(0) var picture: texture_storage_2d<rgba32float, atomic>;
        @group(0) @binding(1) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(1) fn main() { data[0] = textureDimensions(picture).x; }";
    let program = Program::new("atomic.wgsl", text).unwrap();
    for _ in 0..2 {
        match f.device.kernel(&program, "main", &Constants::new()) {
            Err(KernelError::Pipeline {
                program,
                entry,
                message,
            }) => {
                assert_eq!((program.as_str(), entry.as_str()), ("atomic.wgsl", "main"));
                assert!(message.contains("Atomic storage textures"), "{message}");
            }
            other => panic!("{:?}", other.map(|_| ())),
        }
    }
    f.device.finish().unwrap();
}

fn precompiled() -> Precompiled {
    let module = naga::front::wgsl::parse_str(DOUBLE).unwrap();
    let info = naga::valid::Validator::new(
        naga::valid::ValidationFlags::all(),
        naga::valid::Capabilities::empty(),
    )
    .validate(&module)
    .unwrap();
    let words =
        naga::back::spv::write_vec(&module, &info, &naga::back::spv::Options::default(), None)
            .unwrap();
    let interface = Program::new("double.wgsl", DOUBLE)
        .unwrap()
        .interface("main", &Constants::new())
        .unwrap();
    // SAFETY: naga made the words from the very text that the interface comes from.
    unsafe { Precompiled::spirv("double.spv", words, interface) }
}

fn precompiled_modules(f: &Fixture) {
    // What the runtime would have to bind in it, it cannot.
    let global = "var<storage, read_write> hits: u32;
        @compute @workgroup_size(1) fn main() { hits += 1u; }";
    let program = Program::new("global.wgsl", global).unwrap();
    let interface = program.interface("main", &Constants::new()).unwrap();
    // SAFETY: the words never reach a driver, since the interface is refused.
    let module = unsafe { Precompiled::spirv("global.spv", Vec::new(), interface) };
    match f.device.precompiled_kernel(&module, &Constants::new()) {
        Err(KernelError::FeatureNotSupported { what, .. }) => {
            assert_eq!(what, "the device global `hits`");
        }
        other => panic!("{other:?}"),
    }
    let module = precompiled();
    let kernel = f.device.precompiled_kernel(&module, &Constants::new());
    if !f.device.has(Aspect::PassthroughShaders) {
        assert!(matches!(
            kernel.unwrap_err(),
            KernelError::FeatureNotSupported { .. }
        ));
        return;
    }
    let kernel = kernel.unwrap();
    let data = f.device.buffer(&[1u32, 2, 3]).unwrap();
    kernel
        .launch()
        .buffer("data", &data)
        .invocations(3)
        .submit()
        .unwrap();
    assert_eq!(data.read().unwrap(), [2, 4, 6]);
    let error = kernel
        .launch()
        .buffer("data", &data)
        .workgroups(70_000)
        .submit()
        .unwrap_err();
    assert!(matches!(error, LaunchError::PrecompiledGrid { .. }));
}

fn precompiled_modules_take_no_private_arrays(f: &Fixture) {
    let module = precompiled();
    let constants = Constants::new().set("N", 9u32);
    let error = f
        .device
        .precompiled_kernel(&module, &constants)
        .unwrap_err();
    match &error {
        KernelError::FeatureNotSupported { what, why, .. } => {
            assert!(
                what.contains('N') && why.contains("private arrays"),
                "{error}"
            );
        }
        other => panic!("{other}"),
    }
}

fn what_cannot_be_made_is_refused(f: &Fixture) {
    let clash = Program::new(
        "clash.wgsl",
        "@group(0) @binding(0) var<storage, read_write> a: array<u32>;
         @group(0) @binding(0) var<storage, read_write> b: array<u32>;
         @compute @workgroup_size(1) fn main() { a[0] = b[0]; }",
    );
    match clash.map(|_| ()).unwrap_err() {
        KernelError::Validation(diagnostic) => assert_eq!(diagnostic.line, 2),
        other => panic!("{other}"),
    }
    // Valid WGSL, but more invocations than an adapter takes.
    let crowd = "@compute @workgroup_size(8192) fn main() {}";
    let program = Program::new("crowd.wgsl", crowd).unwrap();
    let made = f.device.kernel(&program, "main", &Constants::new());
    match made.map(|_| ()).unwrap_err() {
        KernelError::Limit { .. } => {}
        other => panic!("{other}"),
    }
}

fn kernels_are_made_from_many_threads(f: &Fixture) {
    let device = f.open(|_| {});
    let program = Program::new("median.wgsl", MEDIAN).unwrap();
    std::thread::scope(|scope| {
        for t in 0..8u32 {
            let (device, program) = (&device, &program);
            scope.spawn(move || {
                for i in 0..30u32 {
                    let n = (t + i) % 5 + 1;
                    let constants = Constants::new().set("N", n);
                    let kernel = device.kernel(program, "main", &constants).unwrap();
                    assert_eq!(kernel.private_arrays()[0].length, n);
                }
            });
        }
    });
    assert_eq!(device.cache_statistics().kernels.entries, 5);
}
