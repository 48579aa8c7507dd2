//! What the sanitizer finds in kernels with planted faults, and that it finds nothing in correct ones.

use tombolo_cpu::{
    Api, Options,
    sanitizer::{Access, Checks, Finding, FindingKind, Space},
};

use crate::harness::Cpu;

fn sanitized(checks: Checks) -> Cpu {
    let mut options = Options::default();
    options.sanitizer = Some(checks);
    Cpu::with(options)
}

const DECLARATIONS: &str = "
    @group(0) @binding(0) var<storage, read_write> data: array<u32>;
    @group(0) @binding(1) var<storage, read_write> cells: array<atomic<u32>>;
    struct Pair { a: u32, b: vec3<u32> }
    var<workgroup> tile: array<u32, 8>;
    var<workgroup> pair: Pair;
    var<workgroup> counter: atomic<u32>;
    var<private> mine: array<u32, 4>;
    const TABLE = array<u32, 5>(7u, 6u, 5u, 4u, 3u);
    @compute @workgroup_size(8) fn main(
        @builtin(local_invocation_index) id: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(global_invocation_id) at: vec3<u32>
    ) { _ = arrayLength(&data); atomicAdd(&cells[7], 0u);\n";

/// Runs a body in two work-groups of eight invocations, with 32 words of data and 8 cells.
fn find_with(checks: Checks, body: &str) -> Vec<Finding> {
    let cpu = sanitized(checks);
    let source = format!("{DECLARATIONS}{body}\n}}");
    cpu.run::<u32>(&source, [2, 1, 1], &[&[0; 128], &[0; 32]]);
    cpu.findings()
}

fn find(body: &str) -> Vec<Finding> {
    find_with(Checks::default(), body)
}

#[track_caller]
fn silent(body: &str) {
    let findings = find(body);
    assert!(findings.is_empty(), "{body}: {}", findings[0]);
}

#[track_caller]
fn races(body: &str, variable: &str) -> Finding {
    let findings = find(body);
    let is_race = |finding: &&Finding| matches!(finding.kind, FindingKind::Race { .. });
    let race = findings.iter().find(is_race);
    let race = race.unwrap_or_else(|| panic!("{body}: {findings:?}"));
    assert_eq!(race.variable.as_deref(), Some(variable), "{race}");
    race.clone()
}

#[test]
fn races_in_work_group_memory_end_at_its_barrier() {
    races("tile[id] = id; data[at.x] = tile[7u - id];", "tile");
    silent("tile[id] = id; workgroupBarrier(); data[at.x] = tile[7u - id];");
    // The barrier of other memory orders nothing.
    races(
        "tile[id] = id; storageBarrier(); data[at.x] = tile[7u - id];",
        "tile",
    );
    // A write after a read races as well.
    races(
        "tile[id] = id; workgroupBarrier(); data[at.x] = tile[7u - id]; tile[id] = 1u;",
        "tile",
    );
    races("pair.b = vec3(1u);", "pair");
    silent("if id == 0u { pair.b = vec3(1u); } if id == 1u { pair.a = 1u; }");
    silent(
        "if id == 0u { pair = Pair(1u, vec3(2u)); } let seen = workgroupUniformLoad(&pair);
         if id == 1u { pair.a = seen.a; }",
    );
    // A missing barrier in a loop is a race between its passes.
    races(
        "for (var k = 0u; k < 2u; k++) { tile[id] = k; workgroupBarrier(); data[at.x] += tile[id ^ 1u]; }",
        "tile",
    );
    silent(
        "for (var k = 0u; k < 2u; k++) { tile[id] = k; workgroupBarrier(); data[at.x] += tile[id ^ 1u]; workgroupBarrier(); }",
    );
}

#[test]
fn races_in_storage_reach_across_work_groups() {
    silent("data[at.x] = 1u; storageBarrier(); data[at.x ^ 1u] = 2u;");
    races(
        "data[at.x] = 1u; workgroupBarrier(); data[at.x ^ 1u] = 2u;",
        "data",
    );
    let race = races(
        "data[at.x] = 1u; storageBarrier(); data[at.x ^ 8u] = 2u;",
        "data",
    );
    assert_eq!(race.space, Space::Storage);
    races("data[group.x * 16u] = 1u;", "data");
    races("if id == 0u { data[0] = 1u; }", "data");
    silent("if at.x == 0u { data[0] = 1u; }");
    silent("data[at.x] = data[20];");
    races("data[at.x] = data[at.x + 1u];", "data");
}

#[test]
fn atomics_do_not_race_with_each_other() {
    silent(
        "atomicAdd(&cells[0], 1u); atomicStore(&cells[0], 2u); data[at.x] = atomicLoad(&cells[0]);
         atomicMax(&counter, id); workgroupBarrier(); data[at.x] += atomicLoad(&counter);",
    );
    let cpu = sanitized(Checks::default());
    // The same memory as atomics and as plain words.
    let source = "
        @group(0) @binding(0) var<storage, read_write> cells: array<atomic<u32>>;
        @group(0) @binding(1) var<storage, read_write> plain: array<u32>;
        @compute @workgroup_size(4) fn main(@builtin(local_invocation_index) id: u32) {
            if id == 0u { atomicAdd(&cells[1], 1u); } else if id == 3u { plain[1] = 2u; }
        }";
    let pipeline = cpu.pipeline(source);
    let buffer = cpu.buffer(&[0; 64]);
    let group = cpu.group(&pipeline, &[&buffer, &buffer]);
    cpu.dispatch(&pipeline, &group, [1, 1, 1]);
    cpu.read::<u32>(&buffer);
    let findings = cpu.findings();
    let [finding] = &findings[..] else {
        panic!("{findings:?}")
    };
    let FindingKind::Race {
        access: Access::Write,
        offset: 4,
        other,
    } = &finding.kind
    else {
        panic!("{finding:?}")
    };
    assert_eq!(other.access, Access::AtomicWrite);
    assert_eq!(
        (finding.invocation.local, other.invocation.local),
        ([3, 0, 0], [0, 0, 0])
    );
}

#[test]
fn fences_around_an_atomic_order_work_groups() {
    let pass = |release: &str, acquire: &str| {
        format!(
            "if group.x == 0u {{ data[id] = id; {release} if id == 0u {{ atomicStore(&cells[0], 1u); }} }}
             else {{ let seen = atomicLoad(&cells[0]); {acquire} data[at.x] = data[id] * seen; }}"
        )
    };
    silent(&pass("storageBarrier();", "storageBarrier();"));
    races(&pass("", "storageBarrier();"), "data");
    races(&pass("storageBarrier();", ""), "data");
    races(&pass("", ""), "data");
}

#[test]
fn a_race_names_both_sides() {
    let findings =
        find("if at.x == 3u { data[5] = 1u; }\n  if at.x == 9u { data[at.x] = data[5]; }");
    let [finding] = &findings[..] else {
        panic!("{findings:?}")
    };
    let FindingKind::Race {
        access,
        offset,
        other,
    } = &finding.kind
    else {
        panic!("{finding:?}")
    };
    assert_eq!(
        (*access, other.access, *offset),
        (Access::Read, Access::Write, 20)
    );
    assert_eq!(other.invocation.group, [0, 0, 0]);
    assert_eq!(
        (other.invocation.local, other.invocation.global),
        ([3, 0, 0], [3, 0, 0])
    );
    assert_eq!(finding.invocation.group, [1, 0, 0]);
    assert_eq!(
        (finding.invocation.local, finding.invocation.global),
        ([1, 0, 0], [9, 0, 0])
    );
    let source = format!(
        "{DECLARATIONS}if at.x == 3u {{ data[5] = 1u; }}\n  if at.x == 9u {{ data[at.x] = data[5]; }}\n}}"
    );
    let first = DECLARATIONS.matches('\n').count() as u32 + 1;
    assert_eq!(other.place.line_in(&source), Some((first, 17)));
    assert_eq!(finding.place.line_in(&source), Some((first + 1, 32)));
    assert_eq!(&*finding.place.function, "main");
    // wgpu hands the text on in debug builds.
    if cfg!(debug_assertions) {
        assert_eq!(finding.place.line, Some((first + 1, 32)));
        assert!(
            finding
                .to_string()
                .contains("data race on byte 20 of `data`"),
            "{finding}"
        );
    }
}

#[test]
fn indices_out_of_bounds_are_found_in_every_address_space() {
    let cases = [
        (
            "data[at.x + 100u] = 1u;",
            Space::Storage,
            Some("data"),
            100,
            32,
        ),
        (
            "data[at.x] = data[i32(at.x) - 1];",
            Space::Storage,
            Some("data"),
            u32::MAX,
            32,
        ),
        (
            "atomicAdd(&cells[id + 8u], 1u);",
            Space::Storage,
            Some("cells"),
            8,
            8,
        ),
        (
            "if id == 3u { tile[id + 5u] = 1u; }",
            Space::WorkGroup,
            Some("tile"),
            8,
            8,
        ),
        (
            "mine[id] = 1u; data[at.x] = mine[id & 3u];",
            Space::Private,
            Some("mine"),
            4,
            4,
        ),
        (
            "var local: array<u32, 6>; local[id] = 1u; data[at.x] = local[id & 1u];",
            Space::Private,
            Some("local"),
            6,
            6,
        ),
        ("data[at.x] = TABLE[id];", Space::Value, None, 5, 5),
        (
            "let v = vec3(at.x, id, 2u); data[at.x] = v[id];",
            Space::Value,
            None,
            3,
            3,
        ),
        (
            "if id == 1u { pair.b[id + 3u] = 1u; }",
            Space::WorkGroup,
            Some("pair"),
            4,
            3,
        ),
    ];
    for (body, space, variable, index, length) in cases {
        let findings = find_with(only(|checks| checks.bounds = true), body);
        let [finding] = &findings[..] else {
            panic!("{body}: {findings:?}")
        };
        let FindingKind::OutOfBounds {
            index: found,
            length: of,
            ..
        } = finding.kind
        else {
            panic!("{body}: {finding}")
        };
        let found = (finding.space, finding.variable.as_deref(), found, of);
        assert_eq!(found, (space, variable, index, length), "{body}: {finding}");
    }
    silent(
        "data[at.x + 16u] = 1u; mine[id & 3u] = 1u; data[at.x] = mine[id & 3u] + TABLE[id % 5u];",
    );
}

/// Checks of one kind.
fn only(set: impl FnOnce(&mut Checks)) -> Checks {
    let mut checks = Checks::default();
    (checks.bounds, checks.races, checks.barriers) = (false, false, false);
    set(&mut checks);
    checks
}

#[test]
fn uniform_buffers_and_indices_through_functions_are_checked() {
    let cpu = sanitized(Checks::default());
    let pipeline = cpu.pipeline(
        "@group(0) @binding(0) var<uniform> table: array<vec4<u32>, 4>;
         @group(0) @binding(1) var<storage, read_write> out: array<u32>;
         fn pick(at: u32) -> u32 { return table[at].x; }
         @compute @workgroup_size(2) fn main(@builtin(local_invocation_index) id: u32) {
             out[id] = pick(id + 3u) + pick(9u);
         }",
    );
    let (uniform, out) = (cpu.uniform(&[1; 64]), cpu.buffer(&[0; 8]));
    let group = cpu.group(&pipeline, &[&uniform, &out]);
    cpu.dispatch(&pipeline, &group, [1, 1, 1]);
    cpu.read::<u32>(&out);
    let mut found: Vec<_> = cpu
        .findings()
        .into_iter()
        .map(|finding| {
            assert_eq!(
                (finding.space, &*finding.place.function),
                (Space::Uniform, "pick")
            );
            match finding.kind {
                FindingKind::OutOfBounds {
                    index, length: 4, ..
                } => (index, finding.occurrences),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, [(4, 1), (9, 2)]);
}

#[test]
fn barriers_that_not_all_come_to_are_found() {
    let apart = |body: &str| {
        let findings = find_with(only(|checks| checks.barriers = true), body);
        findings
            .into_iter()
            .map(|finding| match finding.kind {
                FindingKind::BarrierApart { other, other_place } => (
                    finding.invocation.local[0],
                    other.local[0],
                    other_place.is_some(),
                ),
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        apart("if id >= 6u { return; } workgroupBarrier(); data[at.x] = 1u;"),
        [(0, 7, false)]
    );
    let two = apart(
        "if data[at.x + 16u] + id >= 4u { workgroupBarrier(); data[at.x] = 1u; } else { workgroupBarrier(); data[at.x] = 2u; }",
    );
    assert_eq!(two, [(4, 0, true)]);
    assert_eq!(
        apart("workgroupBarrier(); storageBarrier(); data[at.x] = 1u;"),
        []
    );
    assert_eq!(
        apart("for (var k = 0u; k < 3u; k++) { workgroupBarrier(); } data[at.x] = 1u;"),
        []
    );
}

#[test]
fn reads_of_unwritten_memory_are_found_where_asked_for() {
    let strict = only(|checks| checks.unwritten = true);
    let unwritten = |body: &str| {
        find_with(strict, body)
            .into_iter()
            .map(|finding| match finding.kind {
                FindingKind::Unwritten { offset } => (finding.variable.unwrap_or_default(), offset),
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    let name = |name: &str, offset| vec![(name.to_owned(), offset)];
    assert_eq!(unwritten("data[at.x] = mine[2];"), name("mine", 8));
    assert_eq!(unwritten("mine[2] = 1u; data[at.x] = mine[2];"), []);
    assert_eq!(unwritten("var x: u32; data[at.x] = x;"), name("x", 0));
    assert_eq!(unwritten("var x: u32 = 0u; data[at.x] = x;"), []);
    assert_eq!(unwritten("data[at.x] = tile[3];"), name("tile", 12));
    assert_eq!(
        unwritten("tile[id] = 1u; workgroupBarrier(); data[at.x] = tile[id ^ 1u];"),
        []
    );
    // Memory is unwritten again for the next work-group.
    assert_eq!(
        unwritten("if group.x == 0u { tile[id] = 0u; } data[at.x] = tile[id];").len(),
        1
    );
    silent("data[at.x] = mine[2] + tile[3];");
}

#[test]
fn work_group_memory_that_is_not_zeroed_must_be_written() {
    let cpu = sanitized(Checks::default());
    let module = cpu
        .device
        .create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(
                format!("{DECLARATIONS} data[at.x] = tile[id]; }}").into(),
            ),
        });
    let pipeline = cpu
        .device
        .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
    let (data, cells) = (cpu.buffer(&[0; 128]), cpu.buffer(&[0; 32]));
    let group = cpu.group(&pipeline, &[&data, &cells]);
    cpu.dispatch(&pipeline, &group, [1, 1, 1]);
    cpu.read::<u32>(&data);
    let kinds: Vec<_> = cpu
        .findings()
        .into_iter()
        .map(|finding| finding.kind)
        .collect();
    assert_eq!(kinds, [FindingKind::Unwritten { offset: 0 }]);
}

#[test]
fn halves_of_a_word_race_each_by_itself() {
    let find = |body: &str| {
        let cpu = sanitized(Checks::default());
        let source = format!(
            "enable f16;
             @group(0) @binding(0) var<storage, read_write> halves: array<f16>;
             @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) id: u32) {{ {body} }}"
        );
        cpu.run::<u32>(&source, [1, 1, 1], &[&[0; 32]]);
        cpu.findings().len()
    };
    assert_eq!(find("halves[id] = 1h;"), 0);
    assert_eq!(find("halves[id] = 1h; if id == 9u { halves[id] = 2h; }"), 0);
    assert_ne!(find("halves[id] = halves[id ^ 1u];"), 0);
}

#[test]
fn memory_is_safe_where_bounds_are_not_checked() {
    let cpu = sanitized(Checks::default());
    let descriptor = wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(
            "@group(0) @binding(0) var<storage, read_write> words: array<u32>;
             @compute @workgroup_size(1) fn main(@builtin(workgroup_id) group: vec3<u32>) {
                 words[3000000000u + group.x] = 1u;
             }"
            .into(),
        ),
    };
    // SAFETY: the sanitizer checks bounds in any case.
    let module = unsafe {
        cpu.device
            .create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked())
    };
    let pipeline = cpu
        .device
        .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: Default::default(),
            cache: None,
        });
    let buffer = cpu.buffer(&[0; 64]);
    let group = cpu.group(&pipeline, &[&buffer]);
    cpu.dispatch(&pipeline, &group, [3, 1, 1]);
    cpu.read::<u32>(&buffer);
    let findings = cpu.findings();
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].occurrences, 3);
    // SAFETY: the device is only asked.
    assert_eq!(unsafe { cpu.device.as_hal::<Api>() }.unwrap().loss(), None);
}

#[test]
fn work_groups_that_wait_for_others_end() {
    silent(
        "if group.x == 0u { loop { if atomicLoad(&cells[1]) == 8u { break; } } }
         else { atomicAdd(&cells[1], 1u); }",
    );
}

#[test]
fn markers_tell_dispatches_apart() {
    let cpu = sanitized(Checks::default());
    let pipeline = cpu.pipeline(
        "@group(0) @binding(0) var<storage, read_write> words: array<u32>;
         @compute @workgroup_size(2) fn main() { words[0] = 1u; }",
    );
    let buffer = cpu.buffer(&[0; 64]);
    let group = cpu.group(&pipeline, &[&buffer]);
    let mut encoder = cpu.device.create_command_encoder(&Default::default());
    encoder.insert_debug_marker("outside");
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups(1, 1, 1);
    for marker in ["first", "second"] {
        pass.insert_debug_marker(marker);
        pass.dispatch_workgroups(1, 1, 1);
    }
    drop(pass);
    cpu.queue.submit([encoder.finish()]);
    cpu.read::<u32>(&buffer);
    let findings = cpu.findings();
    let markers: Vec<_> = findings
        .iter()
        .map(|finding| finding.marker.as_deref())
        .collect();
    assert_eq!(markers, [Some("outside"), Some("first"), Some("second")]);
    assert!(cpu.findings().is_empty());
}

#[test]
fn overflow_of_indices_is_found_on_request() {
    let mut checks = Checks::default();
    checks.index_overflow = true;
    checks.races = false;
    let found = |body: &str| {
        let findings = find_with(checks, body);
        let overflows = |finding: &Finding| finding.kind == FindingKind::IndexOverflow;
        assert!(findings.iter().all(overflows), "{body}: {findings:?}");
        findings
            .iter()
            .map(|finding| finding.occurrences)
            .sum::<u64>()
    };
    // Of 16 invocations, those whose product does not fit; the remainder is in range.
    assert_eq!(found("data[at.x] = data[(at.x * 0x20000000u) % 8u];"), 8);
    assert_eq!(
        found("let n = (at.x - 3u) & 7u; data[at.x] = u32(TABLE[n % 5u]);"),
        3
    );
    assert_eq!(
        found("let n = i32(at.x) * 0x10000000i; data[at.x] = u32(TABLE[u32(n + 5i) % 5u]);"),
        8
    );
    // Through selections and conversions, and in another function.
    assert_eq!(
        found("data[at.x] = data[u32(i32(select(at.x + 0xfffffff8u, 0u, at.x > 9u))) & 7u];"),
        8
    );
    // What fits, what is no index, and what comes out of a variable.
    assert_eq!(
        found("data[at.x] = (data[at.x * 2u % 32u] + 7u) * 0xffffffffu;"),
        0
    );
    assert_eq!(
        found("var n = at.x * 0x20000000u; data[at.x] = data[n % 8u];"),
        0
    );
    assert_eq!(
        find("data[at.x] = TABLE[(at.x * 0x20000000u) % 5u];").len(),
        0
    );
}
