//! What the names of device globals mean: types, properties, prefixes, image scope.

use std::sync::{Arc, Mutex};

use crate::cases;
use crate::globals::{each, kernel, run};
use crate::harness::Fixture;
use bytemuck::{Pod, Zeroable};
use tombolo::globals::host_access::{NoAccess, Read, ReadWrite, Write};
use tombolo::globals::scope::PerImage;
use tombolo::{
    Constants, Device, DeviceGlobal, PrintOptions, Program,
    globals::{GlobalAccess, GlobalConflict, GlobalError, InitMode},
    kernel::{HostShareable, KernelError},
    print::PrintRecord,
};

cases![
    a_name_means_one_thing,
    layouts_are_compared_member_by_member,
    a_prefix_keeps_programs_apart,
    an_image_has_an_instance_of_its_own,
    properties_that_come_too_late_are_refused,
    initial_values_come_back_as_the_init_mode_says,
    names_lead_to_variables_without_their_types,
    a_variable_without_a_size_is_a_fault_of_the_program,
    sources_keep_their_own_globals_and_lines,
];

fn a_name_means_one_thing(f: &Fixture) {
    static COUNT: DeviceGlobal<[u32; 4]> = DeviceGlobal::new("count");
    static WRONG: DeviceGlobal<[u32; 5]> = DeviceGlobal::new("count");
    let program = |name: &str, ty: &str| {
        let source = format!(
            "\n var<storage, read_write> count: {ty};\n
             @compute @workgroup_size(1) fn main() {{ let p = &count; }}
             @compute @workgroup_size(1) fn use_it() {{ let c = count; }}"
        );
        Program::new(name, source).unwrap()
    };
    let make = |device: &Device, name: &str, ty: &str| {
        device
            .kernel(&program(name, ty), "use_it", &Constants::new())
            .map(|_| ())
    };
    let device = f.open_alone(|_| {});
    make(&device, "first.wgsl", "array<u32, 4>").unwrap();
    for ty in ["array<u32, 5>", "array<f32, 4>", "vec4<u32>", "u32"] {
        let error = make(&device, "second.wgsl", ty).unwrap_err();
        let KernelError::Global { conflict, .. } = &error else {
            panic!("{error}")
        };
        let GlobalConflict::Type {
            name,
            first,
            second,
            ..
        } = &**conflict
        else {
            panic!("{error}")
        };
        assert_eq!(
            (name.as_str(), first.place.as_str()),
            ("count", "first.wgsl:2")
        );
        assert_eq!((first.bytes, second.place.as_str()), (16, "second.wgsl:2"));
        assert!(error.to_string().contains(ty), "{error}");
    }
    // The host's word counts as much.
    let error = WRONG.on(&device).read().unwrap_err();
    assert!(matches!(error, GlobalError::Conflict(_)), "{error}");
    assert!(error.to_string().contains("[u32; 5] (20 bytes)"), "{error}");
    COUNT.on(&device).read().unwrap();
    let error = WRONG.declare(&device).unwrap_err();
    assert!(matches!(error, GlobalError::Conflict(_)), "{error}");
    // And the other way round.
    let device = f.open_alone(|_| {});
    WRONG.on(&device).write(&[1; 5]).unwrap();
    let error = make(&device, "third.wgsl", "array<u32, 4>").unwrap_err();
    assert!(error.to_string().contains("third.wgsl:2"), "{error}");
    make(&device, "fourth.wgsl", "array<u32, 5>").unwrap();
}

tombolo::shared! {
    #[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
    struct Planet {
        mass: f32,
        _pad: [u32; 3],
        at: [f32; 3],
        _end: u32,
    }
}

fn layouts_are_compared_member_by_member(f: &Fixture) {
    static PLANETS: DeviceGlobal<[Planet; 2]> =
        DeviceGlobal::new("planets").layout(&Planet::LAYOUT);
    static SUN: DeviceGlobal<Planet> = DeviceGlobal::of_struct("sun");
    let source = |body: &str| {
        format!(
            "struct Planet {{ {body} }}
             var<storage, read_write> planets: array<Planet, 2>;
             var<storage, read_write> sun: Planet;
             @compute @workgroup_size(1) fn main() {{ planets[1].mass = 3.0; sun.mass = 9.0; }}"
        )
    };
    let device = f.open_alone(|_| {});
    PLANETS.declare(&device).unwrap();
    SUN.declare(&device).unwrap();
    let program = Program::new(
        "swapped.wgsl",
        source("at: vec3<f32>, mass: f32, @size(16) rest: f32"),
    )
    .unwrap();
    let error = device
        .kernel(&program, "main", &Constants::new())
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("`mass` lies at byte 0 in Rust and at byte 12 in WGSL"),
        "{text}"
    );
    assert!(text.contains("swapped.wgsl:2"), "{text}");
    run(&device, &source("mass: f32, at: vec3<f32>"), "main", 1);
    assert_eq!(SUN.on(&device).read().unwrap().mass, 9.0);
    assert_eq!(PLANETS.on(&device).get(1).unwrap().mass, 3.0);
}

fn a_prefix_keeps_programs_apart(f: &Fixture) {
    static LEFT: DeviceGlobal<u32> = DeviceGlobal::new("left::count");
    static RIGHT: DeviceGlobal<[f32; 2]> = DeviceGlobal::new("right::count");
    static PLAIN: DeviceGlobal<u32> = DeviceGlobal::new("count");
    each(f, |device| {
        let source = "
            var<storage, read_write> count: u32;
            @compute @workgroup_size(1) fn main() { count += 3u; }";
        let other = "
            var<storage, read_write> count: vec2<f32>;
            @compute @workgroup_size(1) fn main() { count.y += 0.5; }";
        for (prefix, source) in [
            ("left::", source),
            ("right::", other),
            ("", source),
            ("left::", source),
        ] {
            let program = Program::builder()
                .source("same name.wgsl", source)
                .global_prefix(prefix)
                .build()
                .unwrap();
            let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
            kernel.launch().invocations(1).submit().unwrap();
        }
        assert_eq!(LEFT.on(device).read().unwrap(), 6);
        assert_eq!(RIGHT.on(device).read().unwrap(), [0.0, 0.5]);
        assert_eq!(PLAIN.on(device).read().unwrap(), 3);
    });
}

fn an_image_has_an_instance_of_its_own(f: &Fixture) {
    static OWN: DeviceGlobal<u32, ReadWrite, PerImage> =
        DeviceGlobal::new("own").initial(&100).image_scope();
    static NOBODYS: DeviceGlobal<[u32; 3], ReadWrite, PerImage> =
        DeviceGlobal::new("nobodys").image_scope();
    let source = |step: u32| {
        format!(
            "override MORE: u32 = 0;
             var<storage, read_write> own: u32;
             @group(0) @binding(0) var<storage, read_write> sink: u32;
             @compute @workgroup_size(1) fn main() {{ own += {step}u + MORE; sink = own; }}"
        )
    };
    let run = |device: &Device, program: &Program, more: u32| {
        let constants = Constants::new().set("MORE", more);
        let kernel = device.kernel(program, "main", &constants).unwrap();
        let sink = device.zeroed::<u32>(1).unwrap();
        kernel
            .launch()
            .buffer("sink", &sink)
            .invocations(1)
            .submit()
            .unwrap();
        sink.read().unwrap()[0]
    };
    each(f, |device| {
        // Named by no kernel: the value on the host serves.
        NOBODYS
            .on(device)
            .copy_in(&[8u32, 9], 1)
            .unwrap()
            .wait()
            .unwrap();
        assert_eq!(NOBODYS.on(device).read().unwrap(), [0, 8, 9]);
        assert_eq!(
            NOBODYS.on(device).memcpy_out(4, 1).unwrap().wait().unwrap(),
            [8]
        );
        assert!(
            NOBODYS
                .on(device)
                .copy_in(&[1u32; 3], 1)
                .unwrap_err()
                .is_invalid()
        );
        let buffer = device.zeroed::<u32>(3).unwrap();
        let error = NOBODYS
            .on(device)
            .copy_to_buffer(0, &buffer, 0, 3)
            .unwrap_err();
        assert!(matches!(error, GlobalError::NotOnDevice { .. }), "{error}");
        // Written before any program exists: the first one that names it finds the value.
        assert_eq!(OWN.on(device).read().unwrap(), 100);
        OWN.on(device).write(&7).unwrap();
        let first = Program::new("first.wgsl", source(1)).unwrap();
        assert_eq!(run(device, &first, 0), 8);
        // The same module, specialized otherwise, and read from the text again.
        assert_eq!(run(device, &first, 10), 19);
        assert_eq!(
            run(device, &Program::new("first.wgsl", source(1)).unwrap(), 0),
            20
        );
        assert_eq!(OWN.on(device).read().unwrap(), 20);
        // Another module begins anew, and the name alone says nothing any more.
        let second = Program::new("second.wgsl", source(2)).unwrap();
        assert_eq!(run(device, &second, 0), 102);
        assert_eq!(run(device, &first, 0), 21);
        let error = OWN.on(device).read().unwrap_err();
        let GlobalError::SeveralModules { modules, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(modules, &["first.wgsl", "second.wgsl"]);
        assert!(error.is_invalid());
        assert!(OWN.on(device).write(&1).unwrap_err().is_invalid());
        // The instances go with their kernels: both were in the cache only.
        device.trim_caches();
        assert_eq!(OWN.on(device).read().unwrap(), 100);
        assert_eq!(run(device, &second, 0), 102);
        assert_eq!(OWN.on(device).read().unwrap(), 102);
    });
}

fn properties_that_come_too_late_are_refused(f: &Fixture) {
    static OWN: DeviceGlobal<u32, ReadWrite, PerImage> = DeviceGlobal::new("late").image_scope();
    static START: DeviceGlobal<u32> = DeviceGlobal::new("late").initial(&5);
    static PLAIN: DeviceGlobal<u32> = DeviceGlobal::new("late");
    static READ: DeviceGlobal<u32, Read> = DeviceGlobal::new("late").host_read();
    let source = "
        var<storage, read_write> late: u32;
        @compute @workgroup_size(1) fn main() { late += 1u; }";
    let device = f.open_alone(|_| {});
    // Made, and not launched yet: in time for an initial value, too late for image scope.
    let made = kernel(&device, source, "main");
    let error = OWN.declare(&device).unwrap_err();
    let late = |error: &GlobalError| matches!(error, GlobalError::Conflict(c) if matches!(**c, GlobalConflict::Late { .. }));
    assert!(late(&error), "{error}");
    START.declare(&device).unwrap();
    made.launch().invocations(1).submit().unwrap();
    assert_eq!(START.on(&device).read().unwrap(), 6);
    // Declared twice, with other properties.
    for error in [
        PLAIN.on(&device).read().unwrap_err(),
        READ.on(&device).read().unwrap_err(),
    ] {
        let other = |c: &GlobalConflict| matches!(c, GlobalConflict::Properties { .. });
        assert!(
            matches!(&error, GlobalError::Conflict(c) if other(c)),
            "{error}"
        );
    }
    let device = f.open_alone(|_| {});
    run(&device, source, "main", 1);
    let error = START.on(&device).read().unwrap_err();
    assert!(late(&error), "{error}");
    assert!(error.to_string().contains("globals.wgsl:2"), "{error}");
    assert_eq!(PLAIN.on(&device).read().unwrap(), 1);
}

fn initial_values_come_back_as_the_init_mode_says(f: &Fixture) {
    static RESET: DeviceGlobal<[u32; 2]> = DeviceGlobal::new("on_reset")
        .initial(&[3, 4])
        .init_mode(InitMode::Reset)
        .implement_in_csr(true);
    static PROGRAM: DeviceGlobal<u32> = DeviceGlobal::new("on_program")
        .initial(&9)
        .init_mode(InitMode::Reprogram);
    static OWN: DeviceGlobal<u32, ReadWrite, PerImage> =
        DeviceGlobal::new("unnamed").initial(&2).image_scope();
    const SOURCE: &str = "
        var<storage, read_write> on_reset: array<u32, 2>;
        var<storage, read_write> on_program: u32;
        var<storage, read_write> undeclared: u32;
        @compute @workgroup_size(1) fn main() { on_reset[0] += 1u; on_program += 1u; undeclared += 1u; }";
    each(f, |device| {
        RESET.declare(device).unwrap();
        PROGRAM.declare(device).unwrap();
        OWN.on(device).write(&8).unwrap();
        let state = || {
            let undeclared = device.global("undeclared").unwrap().read::<u32>().unwrap();
            let (reset, program) = (
                RESET.on(device).read().unwrap(),
                PROGRAM.on(device).read().unwrap(),
            );
            (reset, program, undeclared, OWN.on(device).read().unwrap())
        };
        let kernel = kernel(device, SOURCE, "main");
        let mut launch = kernel.launch().invocations(1);
        launch.submit().unwrap();
        assert_eq!(state(), ([4, 4], 10, 1, 8));
        let address = RESET.on(device).address().unwrap();
        launch.submit().unwrap();
        device.reset_globals().unwrap();
        launch.submit().unwrap();
        assert_eq!(state(), ([4, 4], 12, 1, 2));
        device.reprogram_globals().unwrap();
        assert_eq!(state(), ([4, 4], 9, 1, 2));
        assert_eq!(RESET.on(device).address().unwrap(), address);
    });
}

fn names_lead_to_variables_without_their_types(f: &Fixture) {
    static TOTAL: DeviceGlobal<u32, Read> = DeviceGlobal::new("total").host_read();
    static SEED: DeviceGlobal<u32, Write> = DeviceGlobal::new("seed").host_write();
    static STATE: DeviceGlobal<u32, NoAccess> = DeviceGlobal::new("state").no_host_access();
    const SOURCE: &str = "
        var<storage, read_write> total: u32;
        var<storage, read_write> seed: u32;
        var<storage, read_write> state: u32;
        var<storage, read_write> free: array<vec2<u32>, 2>;
        var<storage, read_write> unused: array<u32, 1000>;
        @compute @workgroup_size(1) fn main() { state += seed; total = state * 2u; free[1] = vec2<u32>(seed, total); }
        @compute @workgroup_size(1) fn other() { unused[3] = 1u; }";
    each(f, |device| {
        let error = device.global("free").unwrap_err();
        assert!(matches!(error, GlobalError::Unknown { .. }), "{error}");
        TOTAL.declare(device).unwrap();
        STATE.declare(device).unwrap();
        SEED.on(device).write(&21).unwrap();
        run(device, SOURCE, "main", 1);
        assert_eq!(TOTAL.on(device).read().unwrap(), 42);
        let named = |name: &str| device.global(name).unwrap();
        assert_eq!(named("total").read::<u32>().unwrap(), 42);
        assert_eq!(named("free").read::<[u32; 4]>().unwrap(), [0, 0, 21, 42]);
        assert_eq!(named("free").read_bytes(8, 1).unwrap(), [21]);
        named("free").write_bytes(9, &[1]).unwrap();
        assert_eq!(
            named("free").read::<[u32; 4]>().unwrap(),
            [0, 0, 21 + 256, 42]
        );
        named("seed").write(&1u32).unwrap();
        run(device, SOURCE, "main", 1);
        assert_eq!(TOTAL.on(device).read().unwrap(), 44);
        let denied = [
            named("total").write(&1u32).unwrap_err(),
            named("seed").read::<u32>().unwrap_err(),
            named("state").read::<u32>().unwrap_err(),
            named("state").write_bytes(0, &[0]).unwrap_err(),
        ];
        for error in denied {
            assert!(matches!(error, GlobalError::HostAccess { .. }), "{error}");
        }
        assert!(matches!(
            named("free").read::<u32>().unwrap_err(),
            GlobalError::Size { .. }
        ));
        assert!(named("free").read_bytes(15, 2).unwrap_err().is_invalid());
        assert!(
            named("free")
                .write_bytes(u64::MAX, &[1])
                .unwrap_err()
                .is_invalid()
        );
        // A variable that the entry point does not use is none of its business.
        let all = device.globals();
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["free", "seed", "state", "total"]);
        let free = &all[0];
        assert_eq!(
            (free.type_name.as_str(), free.bytes, free.in_memory),
            ("array<vec2<u32>, 2>", 16, true)
        );
        assert_eq!(
            (all[2].access, free.access),
            (GlobalAccess::None, GlobalAccess::ReadWrite)
        );
        kernel(device, SOURCE, "other");
        let unused = device.global("unused").unwrap();
        assert!(!unused.description().in_memory);
        assert_eq!(unused.read_bytes(12, 4).unwrap(), [0; 4]);
        assert!(device.global("unused").unwrap().description().in_memory);
    });
}

fn a_variable_without_a_size_is_a_fault_of_the_program(_: &Fixture) {
    let source = "
        var<storage, read_write> list: array<u32>;
        @compute @workgroup_size(1) fn main() { list[0] = 1u; }";
    let error = Program::new("list.wgsl", source).unwrap_err();
    let diagnostic = error.diagnostic().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(diagnostic.line, 2, "{error}");
    assert!(error.to_string().contains("`list`"), "{error}");
}

/// Two sources with a global of the same name each, and prints that say where they are.
fn sources_keep_their_own_globals_and_lines(f: &Fixture) {
    let device = f.open_alone(|_| {});
    let program = Program::builder()
        .source(
            "main.wgsl",
            "var<storage, read_write> _count: u32;
            @group(0) @binding(0) var<storage, read_write> out: array<u32>;
            @compute @workgroup_size(1) fn main() {
                _count += 1u;
                out[0] = _count;
                out[1] = ten();
                print(\"main {}\", _count);
            }",
        )
        .source(
            "lib/ten.wgsl",
            "var<storage, read_write> _count: u32;
            fn ten() -> u32 {
                _count += 10u;

                print(\"ten {}\", _count);
                return _count;
            }",
        )
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let out = device.buffer(&[0xdead_beefu32; 2]).unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    let options = PrintOptions::sink(move |record: &PrintRecord<'_>| {
        let place = (record.file().to_owned(), record.line());
        sink.lock().unwrap().push((place, record.text()));
    });
    let mut launch = kernel
        .launch()
        .buffer("out", &out)
        .workgroups(1)
        .print_to(options);
    for round in 1..3u32 {
        launch.submit().unwrap().wait().unwrap();
        assert_eq!(out.read().unwrap(), [round, 10 * round]);
        let expected = [
            (
                ("lib/ten.wgsl".to_owned(), 5),
                format!("ten {}", 10 * round),
            ),
            (("main.wgsl".to_owned(), 7), format!("main {round}")),
        ];
        assert_eq!(*lines.lock().unwrap(), expected);
        lines.lock().unwrap().clear();
    }
}
