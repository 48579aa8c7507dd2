//! What kernels print: every type and format against Rust's own, exact counts, order, losses.

use std::sync::{Arc, Mutex};

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Constants, Device, Kernel, PrintOptions, Program,
    kernel::KernelError,
    print::{PrintLoss, PrintRecord, PrintSink},
};

cases![
    scalars_print_as_rust_formats_them,
    vectors_and_matrices_print_as_rust_formats_arrays,
    wide_and_narrow_types_print_where_the_device_has_them,
    device_globals_print_beside_the_record_buffer,
    pointers_print_as_addresses,
    a_hundred_thousand_invocations_print_once_each,
    what_does_not_fit_is_counted_exactly,
    one_invocation_prints_in_the_order_of_its_calls,
    loops_helpers_and_branches_print,
    grids_of_several_dispatches_print_once,
    guarded_loops_and_private_arrays_print,
    two_dimensional_grids_number_their_invocations,
];

/// What a sink has taken.
#[derive(Default)]
pub struct Taken {
    pub lines: Vec<String>,
    pub places: Vec<(u32, u32, u32)>,
    pub losses: Vec<PrintLoss>,
}

pub struct Collect(pub Arc<Mutex<Taken>>);

impl PrintSink for Collect {
    fn record(&mut self, record: &PrintRecord<'_>) {
        let mut taken = self.0.lock().unwrap();
        taken.lines.push(record.text());
        let place = (record.line(), record.column(), record.invocation());
        taken.places.push(place);
    }

    fn lost(&mut self, loss: &PrintLoss) {
        self.0.lock().unwrap().losses.push(loss.clone());
    }
}

/// Options that collect, and where.
pub fn collect() -> (PrintOptions, Arc<Mutex<Taken>>) {
    let taken = Arc::<Mutex<Taken>>::default();
    (PrintOptions::sink(Collect(Arc::clone(&taken))), taken)
}

pub fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("print.wgsl", source).unwrap();
    device.kernel(&program, "main", &Constants::new()).unwrap()
}

pub fn lines(taken: &Mutex<Taken>) -> Vec<String> {
    let mut taken = taken.lock().unwrap();
    assert_eq!(taken.losses, []);
    std::mem::take(&mut taken.lines)
}

/// The device, and one on the same adapter that is forced down to what every WebGPU device has.
pub fn tiers(f: &Fixture, test: impl Fn(&Device)) {
    test(&f.device);
    test(&f.open(|options| {
        options.live_memory = false;
        options.import_host_memory = false;
    }));
}

/// What `body` prints in one invocation.
fn printed(device: &Device, body: &str) -> Vec<String> {
    // The number comes from the host, so that no compiler works anything out beforehand.
    let source = format!(
        "@group(0) @binding(0) var<uniform> one: u32;
         @compute @workgroup_size(1) fn main() {{ {body} }}"
    );
    let kernel = kernel(device, &source);
    let (options, taken) = collect();
    let launch = kernel.launch().value("one", &1u32).workgroups(1);
    let event = launch.print_to(options).submit().unwrap();
    event.wait().unwrap();
    assert_eq!(event.dropped_prints().unwrap(), 0);
    lines(&taken)
}

fn scalars_print_as_rust_formats_them(f: &Fixture) {
    tiers(f, |device| {
        let (third, x) = (1.0f32 / 3.0, 4_000_000_000u32);
        let found = printed(
            device,
            r#"let third = f32(one) / 3.0; let x = one * 4000000000u; let i = -37 * i32(one);
            print("x = {} v = {:.3}", one, third);
            print("{:08x} {:#b} {:e} {:>12} {:<12}|{:^+9}|", x, x, x, x, x, 5);
            print("{} {:?} {:5} {:#x} {:010}", i, i, i, i, i);
            print("{} {:?} {:e} {:+09.2}", third, third, third, third);
            print("{} {:?} {:7}|", one == 1u, one == 2u, one == 1u);
            print("{1} {0} {1} é {{}}\t\"{{", one, i);
            print("nothing");"#,
        );
        let i = -37;
        let wanted = [
            format!("x = {} v = {:.3}", 1, third),
            format!("{:08x} {:#b} {:e} {:>12} {:<12}|{:^+9}|", x, x, x, x, x, 5),
            format!("{} {:?} {:5} {:#x} {:010}", i, i, i, i, i),
            format!("{} {:?} {:e} {:+09.2}", third, third, third, third),
            format!("{} {:?} {:7}|", true, false, true),
            format!("{1} {0} {1} é {{}}\t\"{{", 1, i),
            "nothing".to_owned(),
        ];
        assert_eq!(found, wanted);
    });
}

fn vectors_and_matrices_print_as_rust_formats_arrays(f: &Fixture) {
    let found = printed(
        &f.device,
        r#"let o = f32(one);
        print("{:?} {:.1?} {:?}", vec3<f32>(o, 2.5, -0.1), vec2<f32>(o, 9.96), vec4<i32>(1, -2, i32(one), 4));
        print("{:?} {:04x} {:?}", vec2<bool>(one == 1u, false), vec2<u32>(one, 255u), vec3<u32>(one));
        print("{:?} {:?}", mat2x3<f32>(o, 2.0, 3.0, 4.0, 5.0, 6.5), mat4x2<f32>(o, 2, 3, 4, 5, 6, 7, 8));
        print("{:#?}", vec2<f32>(o, 2.0));
        print("{:?}", mat4x4<f32>(o, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16));"#,
    );
    let wanted = [
        format!(
            "{:?} {:.1?} {:?}",
            [1.0f32, 2.5, -0.1],
            [1.0f32, 9.96],
            [1, -2, 1, 4]
        ),
        format!("{:?} [0001, 00ff] {:?}", [true, false], [1, 1, 1]),
        format!(
            "{:?} {:?}",
            [[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.5]],
            [[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]
        ),
        format!("{:#?}", [1.0f32, 2.0]),
        format!(
            "{:?}",
            std::array::from_fn::<_, 4, _>(|c| std::array::from_fn::<_, 4, _>(
                |r| (c * 4 + r + 1) as f32
            ))
        ),
    ];
    assert_eq!(found, wanted);
}

fn wide_and_narrow_types_print_where_the_device_has_them(f: &Fixture) {
    use wgpu::Features;
    let offered = Features::SHADER_F16 | Features::SHADER_INT64 | Features::SHADER_F64;
    let has = f.device.raw().adapter_info();
    let mut tested = 0;
    for (feature, head, body, wanted) in [
        (
            Features::SHADER_F16,
            "enable f16;",
            r#"let h = f16(one) / 3.0h; print("{} {:.3} {:?}", h, h, vec2<f16>(h, 2.0h));"#,
            {
                let h = half::f16::from_f32(1.0 / 3.0).to_f32();
                format!("{} {:.3} {:?}", h, h, [h, 2.0])
            },
        ),
        (
            Features::SHADER_INT64,
            "",
            r#"let u = u64(one) << 40u; let i = -i64(one) * 5000000000li;
            print("{} {:#x} {} {:?} {:x}", u, u, i, vec2<i64>(i, 7li), i);"#,
            {
                let (u, i) = (1u64 << 40, -5_000_000_000i64);
                format!("{} {:#x} {} {:?} {:x}", u, u, i, [i, 7], i)
            },
        ),
        (
            Features::SHADER_F64 | Features::SHADER_INT64,
            "",
            r#"let d = f64(one) / 3.0lf; print("{} {:.12} {:e}", d, d, d);"#,
            {
                let d = 1.0f64 / 3.0;
                format!("{} {:.12} {:e}", d, d, d)
            },
        ),
    ] {
        assert!(offered.contains(feature));
        let mut options = tombolo::DeviceOptions::default();
        options.features = feature;
        let source = format!(
            "{head} @group(0) @binding(0) var<uniform> one: u32;
             @compute @workgroup_size(1) fn main() {{ {body} }}"
        );
        let program = Program::new("wide.wgsl", source).unwrap();
        let Ok(device) = f.context.device_at_with(f.index, options) else {
            // What the adapter lacks is an error of the kernel.
            let refused = f.device.kernel(&program, "main", &Constants::new());
            let error = refused.unwrap_err();
            let typed = matches!(error, KernelError::Type(_) | KernelError::Validation(_));
            assert!(typed, "{} on {}: {error}", body, has.name);
            continue;
        };
        tested += 1;
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let (options, taken) = collect();
        let launch = kernel.launch().value("one", &1u32).workgroups(1);
        launch.print_to(options).submit().unwrap().wait().unwrap();
        assert_eq!(lines(&taken), [wanted]);
    }
    if f.is_lavapipe() {
        assert!(tested >= 2, "{tested}");
    }
}

fn device_globals_print_beside_the_record_buffer(f: &Fixture) {
    // Both have no binding in the text; only one of them is the program's.
    let kernel = kernel(
        &f.device,
        r#"var<storage, read_write> printed_so_far: array<u32, 3>;
        @compute @workgroup_size(1) fn main() {
            printed_so_far[1] += 5u;
            print("{} of {}", printed_so_far[1], arrayLength(&other));
            assert(printed_so_far[0] == 0u);
        }
        @group(0) @binding(0) var<storage, read> other: array<u32>;"#,
    );
    let interface = kernel.interface();
    assert_eq!((interface.globals.len(), interface.arguments.len()), (1, 1));
    let other = f.device.buffer(&[1u32, 2]).unwrap();
    let (options, taken) = collect();
    let mut launch = kernel.launch().buffer("other", &other).workgroups(1);
    launch = launch.print_to(options);
    launch.submit().unwrap();
    launch.submit().unwrap().wait().unwrap();
    assert_eq!(lines(&taken), ["5 of 2", "10 of 2"]);
}

fn pointers_print_as_addresses(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let node = heap.alloc([7u32, 8]).unwrap();
    let kernel = kernel(
        &f.device,
        r#"@group(0) @binding(0) var<uniform> start: usm_ptr;
        alias Numbers = array<u32, 2>;
        @compute @workgroup_size(1) fn main() {
            let numbers = usm_Numbers(start);
            print("{:p} -> {} {}", start, numbers[0], numbers[1]);
            numbers[0] = 9u;
            print("{}", numbers[0]);
        }"#,
    );
    let (options, taken) = collect();
    let mut launch = kernel
        .launch()
        .value("start", &node)
        .workgroups(1)
        .print_to(options);
    launch.submit().unwrap().wait().unwrap();
    let address = node.address();
    assert_eq!(
        lines(&taken),
        [format!("{address:#x} -> 7 8"), "9".to_owned()]
    );
}

fn a_hundred_thousand_invocations_print_once_each(f: &Fixture) {
    const COUNT: u32 = 100_000;
    tiers(f, |device| {
        let kernel = kernel(
            device,
            r#"@group(0) @binding(0) var<uniform> count: u32;
            @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                if id.x < count { print("{} {}", id.x, id.x * 2654435761u); }
            }"#,
        );
        // A line of two words takes 20 bytes: there is room for exactly as many as there are.
        let (options, taken) = collect();
        let options = options.capacity(u64::from(COUNT) * 20);
        let launch = kernel.launch().value("count", &COUNT).invocations(COUNT);
        let event = launch.print_to(options).submit().unwrap();
        event.wait().unwrap();
        assert_eq!(event.dropped_prints().unwrap(), 0);
        let mut taken = taken.lock().unwrap();
        assert_eq!(taken.losses, []);
        assert_eq!(taken.lines.len(), COUNT as usize);
        let invocations: Vec<u32> = taken.places.iter().map(|place| place.2).collect();
        for (line, id) in taken.lines.iter().zip(&invocations) {
            assert_eq!(*line, format!("{id} {}", id.wrapping_mul(2_654_435_761)));
        }
        taken.places.sort_unstable();
        assert!(taken.places.iter().map(|place| place.2).eq(0..COUNT));
    });
}

fn what_does_not_fit_is_counted_exactly(f: &Fixture) {
    tiers(f, |device| {
        let kernel = kernel(
            device,
            r#"@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                print("{}", id.x);
            }"#,
        );
        // 16 bytes for a line: room for none, one, some, and some with a rest that is too small for one.
        for (capacity, kept) in [
            (4, 0),
            (15, 0),
            (16, 1),
            (1600, 100),
            (1612, 100),
            (1 << 20, 4096),
        ] {
            let (options, taken) = collect();
            let mut launch = kernel
                .launch()
                .invocations(4096)
                .print_to(options.capacity(capacity));
            for _ in 0..2 {
                let event = launch.submit().unwrap();
                assert_eq!(event.dropped_prints().unwrap(), 4096 - kept);
                let mut taken = taken.lock().unwrap();
                assert_eq!(taken.lines.len() as u64, kept, "{capacity}");
                let mut ids: Vec<u32> = taken.lines.iter().map(|l| l.parse().unwrap()).collect();
                ids.sort_unstable();
                ids.dedup();
                assert_eq!(ids.len() as u64, kept);
                match std::mem::take(&mut taken.losses).as_slice() {
                    [] => assert_eq!(kept, 4096),
                    [loss] => {
                        assert_eq!((loss.dropped, loss.cut), (4096 - kept, false));
                        assert_eq!(loss.capacity, capacity / 4 * 4);
                        assert!(loss.to_string().contains("PrintOptions::capacity"));
                    }
                    more => panic!("{more:?}"),
                }
                taken.lines.clear();
            }
        }
    });
}

fn one_invocation_prints_in_the_order_of_its_calls(f: &Fixture) {
    let kernel = kernel(
        &f.device,
        r#"@compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            for (var i = 0u; i < 50u; i++) {
                if (i + id.x) % 3u == 0u { print("{} {} a", id.x, i); } else { print("{} {} b", id.x, i); }
            }
        }"#,
    );
    let (options, taken) = collect();
    let event = kernel.launch().invocations(320).print_to(options).submit();
    event.unwrap().wait().unwrap();
    let mut of = vec![Vec::new(); 320];
    for line in lines(&taken) {
        let (id, rest) = line.split_once(' ').unwrap();
        of[id.parse::<usize>().unwrap()].push(rest.to_owned());
    }
    for (id, found) in of.iter().enumerate() {
        let wanted = (0..50).map(|i| format!("{i} {}", if (i + id) % 3 == 0 { 'a' } else { 'b' }));
        assert_eq!(*found, wanted.collect::<Vec<_>>(), "{id}");
    }
}

fn loops_helpers_and_branches_print(f: &Fixture) {
    let kernel = kernel(
        &f.device,
        r#"fn deep(x: u32) -> u32 { print("deep {}", x); return x + 1u; }
        fn outer(x: u32) -> u32 { let y = deep(x) * deep(x + 10u); print("outer {} {}", x, y); return y; }
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
            switch i {
                case 1: { print("case {}", outer(i)); }
                case 2, 3: { var k = 0u; loop { if k == i { break; } continuing { print("{} {}", i, k); k++; } } }
                case 4: { if i > 5u { print("never"); } else if i == 4u { print("else"); return; } print("never"); }
                default: {}
            }
        }"#,
    );
    let (options, taken) = collect();
    let event = kernel.launch().workgroups(1).print_to(options).submit();
    event.unwrap().wait().unwrap();
    let mut found = lines(&taken);
    found.sort_unstable();
    let mut wanted = vec![
        "deep 1",
        "deep 11",
        "outer 1 24",
        "case 24",
        "2 0",
        "2 1",
        "3 0",
        "3 1",
        "3 2",
        "else",
    ];
    wanted.sort_unstable();
    assert_eq!(found, wanted);
}

fn grids_of_several_dispatches_print_once(f: &Fixture) {
    tiers(f, |device| {
        let kernel = kernel(
            device,
            r#"@compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) {
                if id.x % 1000u == 7u { print("{}", id.x); }
            }"#,
        );
        let (options, taken) = collect();
        let event = kernel
            .launch()
            .workgroups(200_000)
            .print_to(options)
            .submit();
        event.unwrap().wait().unwrap();
        let places = taken.lock().unwrap().places.clone();
        let mut found: Vec<u32> = lines(&taken).iter().map(|l| l.parse().unwrap()).collect();
        let numbers: Vec<u32> = places.into_iter().map(|place| place.2).collect();
        assert_eq!(found, numbers);
        found.sort_unstable();
        assert!(found.into_iter().eq((0..200).map(|i| i * 1000 + 7)));
    });
}

fn guarded_loops_and_private_arrays_print(f: &Fixture) {
    let program = Program::new(
        "both.wgsl",
        r#"override N: u32 = 4;
        @group(0) @binding(0) var<storage, read_write> turns: array<u32>;
        var<private> sums: array<u32, N>;
        fn add(at: u32, value: u32) { sums[at % N] += value; print("{:?} {}", vec2<u32>(at, value), sums[at % N]); }
        @compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) {
            for (var k = 0u; k < turns[i]; k++) { add(k, i); }
            turns[i] = sums[0] + sums[N - 1u];
        }"#,
    )
    .unwrap();
    let device = f.open(|o| o.loop_guard = tombolo::device::LoopGuardPolicy::Budget(65_535));
    for n in [1u32, 3] {
        let constants = Constants::new().set("N", n);
        let kernel = device.kernel(&program, "main", &constants).unwrap();
        assert!(kernel.is_loop_guarded());
        let turns = device.buffer(&[0u32, 1, 5, 9]).unwrap();
        let (options, taken) = collect();
        let launch = kernel.launch().buffer("turns", &turns).workgroups(1);
        launch.print_to(options).submit().unwrap().wait().unwrap();
        let (mut wanted, mut left) = (Vec::new(), Vec::new());
        for (i, count) in [(0u32, 0u32), (1, 1), (2, 5), (3, 9)] {
            let mut sums = vec![0; n as usize];
            for k in 0..count {
                let at = (k % n) as usize;
                sums[at] += i;
                wanted.push(format!("{:?} {}", [k, i], sums[at]));
            }
            left.push(sums[0] + sums[n as usize - 1]);
        }
        let mut found = lines(&taken);
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
        assert_eq!(turns.read().unwrap(), left);
    }
}

fn two_dimensional_grids_number_their_invocations(f: &Fixture) {
    let kernel = kernel(
        &f.device,
        r#"struct Ids { @builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) i: u32 }
        @compute @workgroup_size(2, 3, 2) fn main(ids: Ids) { print("{:?}", ids.id); }"#,
    );
    let (options, taken) = collect();
    let event = kernel
        .launch()
        .workgroups([3, 2, 2])
        .print_to(options)
        .submit();
    event.unwrap().wait().unwrap();
    let places = taken.lock().unwrap().places.clone();
    let mut all: Vec<_> = places.into_iter().map(|p| p.2).zip(lines(&taken)).collect();
    all.sort_unstable();
    assert_eq!(all.len(), 6 * 6 * 4);
    for (number, line) in all {
        let id = [number % 6, number / 6 % 6, number / 36];
        assert_eq!(line, format!("{id:?}"));
    }
}
