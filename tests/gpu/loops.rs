//! No silent wrong answers: a loop that the adapter cuts short fails its launch, and one that runs to
//! its end never does.
//!
//! Every case knows its result from a computation on the host. Where the adapter has a loop budget, a
//! case that stays within it has to succeed, and one that exceeds it has to fail with
//! [`ExecutionError::LoopCut`]; where there is no budget, both have to succeed.

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Constants, Device, DeviceBuffer, Event, Program,
    buffers::ReadError,
    device::{ExecutionError, LoopGuardPolicy, WaitError},
};

cases![
    a_nest_of_a_million_is_whole_or_an_error,
    sixty_thousand_turns_pass,
    legitimate_exits_raise_nothing,
    cut_loops_of_every_shape_are_found,
    ghost_lanes_cannot_hide_a_cut,
    around_the_budget_no_wrong_result_passes,
    short_loops_are_not_guarded,
    the_guard_follows_the_specialization,
    results_of_a_failed_launch_are_poisoned,
    poison_is_inherited_and_ends_where_overwritten,
    clearing_drops_the_error,
    failures_without_live_memory,
    more_guarded_launches_than_records,
    a_guard_on_adapters_without_a_budget_changes_nothing,
];

/// Work on `n`, with `p` = [1000, 60000, 0, 1, 7] unknown to the compiler.
fn source(workgroup: u32, helpers: &str, body: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read_write> o: array<u32>;
@group(0) @binding(1) var<storage, read> p: array<u32>;
var<workgroup> w: array<u32, 64>;
var<workgroup> zero: u32;
{helpers}
@compute @workgroup_size({workgroup})
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(local_invocation_index) l: u32) {{
    let id = g.x; var n = 0u;
    {body}
    o[id] = n;
}}"
    )
}

fn launch(
    device: &Device,
    workgroup: u32,
    groups: u32,
    helpers: &str,
    body: &str,
) -> (Event, DeviceBuffer<u32>) {
    let program = Program::new("loops.wgsl", source(workgroup, helpers, body)).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let p = device.buffer(&[1000u32, 60_000, 0, 1, 7]).unwrap();
    let o = device
        .buffer(&vec![0xdead_beefu32; (workgroup * groups) as usize])
        .unwrap();
    let mut launch = kernel.launch().buffer("o", &o).workgroups(groups);
    if kernel.interface().argument("p").is_some() {
        launch = launch.buffer("p", &p);
    }
    let event = launch.submit().unwrap();
    (event, o)
}

/// A case: work-group size, groups, helpers, body, expected result of each invocation.
type Loop<'a> = (u32, u32, &'a str, &'a str, &'a dyn Fn(u32) -> u32);

/// Runs a case that stays within every budget.
fn fits(f: &Fixture, (workgroup, groups, helpers, body, want): Loop<'_>) {
    let (event, o) = launch(&f.device, workgroup, groups, helpers, body);
    if let Err(error) = event.wait() {
        panic!("{body}: {error}");
    }
    let expected: Vec<u32> = (0..workgroup * groups).map(want).collect();
    assert_eq!(o.read().unwrap(), expected, "{body}");
}

/// Runs a case that exceeds lavapipe's budget.
fn exceeds(f: &Fixture, case: Loop<'_>) {
    if !f.device.capabilities().needs_loop_guard() {
        return fits(f, case);
    }
    let (workgroup, groups, helpers, body, _) = case;
    let (event, o) = launch(&f.device, workgroup, groups, helpers, body);
    match event.wait() {
        Err(WaitError::Failed(error)) => {
            assert!(
                matches!(&*error, ExecutionError::LoopCut { .. }),
                "{body}: {error}"
            );
        }
        other => panic!("{body}: {other:?}, {:?}", o.read()),
    }
    assert!(o.read().is_err(), "{body}");
}

fn a_nest_of_a_million_is_whole_or_an_error(f: &Fixture) {
    let body = "for (var i = 0u; i < p[0]; i++) {
        for (var j = 0u; j < p[0]; j++) { n += 1u; }
    }";
    let (event, o) = launch(&f.device, 1, 1, "", body);
    if !f.is_lavapipe() {
        event.wait().unwrap();
        assert_eq!(o.read().unwrap(), [1_000_000]);
        return;
    }
    let error = event
        .error()
        .or_else(|| event.wait().err().map(cause))
        .unwrap();
    match &*error {
        ExecutionError::LoopCut {
            kernel,
            file,
            line,
            column,
            excerpt,
            ..
        } => {
            assert_eq!((kernel.as_str(), file.as_str()), ("main", "loops.wgsl"));
            // The inner loop stands on line 10 of the program, behind eight blanks.
            assert_eq!((*line, *column), (10, 9), "{error}");
            assert!(excerpt.contains("for (var j = 0u;"), "{excerpt}");
        }
        other => panic!("{other}"),
    }
    assert!(matches!(o.read(), Err(ReadError::Execution(_))));
}

fn cause(error: WaitError) -> std::sync::Arc<ExecutionError> {
    match error {
        WaitError::Failed(error) => error,
        other => panic!("{other}"),
    }
}

fn sixty_thousand_turns_pass(f: &Fixture) {
    let want = |_| (0..60_000u32).map(|i| i % 3).sum();
    for workgroup in [1, 3, 8, 13, 64] {
        let body = "for (var i = 0u; i < p[1]; i++) { n += i % 3u; }";
        fits(f, (workgroup, 2, "", body, &want));
        let body = "for (var i = 0u; i < p[1] + (id % 8u) * 11u; i++) { n += 1u; }";
        fits(f, (workgroup, 3, "", body, &|g| 60_000 + g % 8 * 11));
    }
}

const FIND: &str = "fn find(x: u32, limit: u32) -> u32 {
    var i = 0u;
    loop { if i == x { return i; } i++; if i >= limit { break; } }
    return 77u;
}";

fn legitimate_exits_raise_nothing(f: &Fixture) {
    fits(f, (8, 1, FIND, "n = find(p[1], 64000u);", &|_| 60_000));
    let many = "for (var k = 0u; k < p[0]; k++) { n += find(k % 60u + p[2], 64000u); }";
    fits(
        f,
        (13, 1, FIND, many, &|_| (0..1000u32).map(|k| k % 60).sum()),
    );
    let returns =
        "loop { n += 1u; if n == 60000u + id { o[id] = n; return; } if n == p[2] { break; } }";
    fits(f, (8, 2, "", returns, &|g| 60_000 + g));
    let nested = "loop { loop { n += 1u; if n == 20000u + id * 2u { o[id] = n; return; }
        if n % 100u == 0u { break; } } if n == p[2] { break; } }";
    fits(f, (13, 2, "", nested, &|g| 20_000 + g * 2));
    let break_if = "var i = 0u; loop { var j = 0u;
        loop { n += 1u; continuing { j++; break if j == 10u + id % 3u + p[2]; } }
        continuing { i++; break if i == 1000u; } }";
    fits(f, (13, 2, "", break_if, &|g| 1000 * (10 + g % 3)));
    let continuing = "var i = 0u; loop { n += 1u; continuing {
        for (var j = 0u; j < p[4]; j++) { n += 1u; if j == 5u { break; } }
        i++; break if i == 1000u; } }";
    fits(f, (8, 2, "", continuing, &|_| 7000));
    let switches = "for (var i = 0u; i < p[0] * 10u; i++) { switch i % 5u {
        case 0u: { continue; }
        case 1u: { for (var j = 0u; j < 3u + p[2]; j++) { if j == 1u { continue; } n += 1u; } }
        case 2u: { if id % 2u == 0u { break; } n += 1u; }
        case 3u: { if i == 9003u { o[id] = n; return; } }
        default: { n += 1u; } } }";
    let reference = |g: u32| {
        let mut n = 0;
        for i in 0..10_000 {
            match i % 5 {
                0 => {}
                1 => n += 2,
                2 => n += g % 2,
                3 if i == 9003 => return n,
                3 => {}
                _ => n += 1,
            }
        }
        n
    };
    fits(f, (13, 2, "", switches, &reference));
    for workgroup in [8, 13, 64] {
        let barrier = format!(
            "let limit = workgroupUniformLoad(&zero) + 20000u;
             for (var i = 0u; i < limit; i++) {{
                w[l] = i; workgroupBarrier(); n += w[{workgroup}u - 1u - l] - i + 1u; workgroupBarrier();
             }}"
        );
        fits(f, (workgroup, 2, "", &barrier, &|_| 20_000));
    }
    let sides = "if id % 2u == 0u { for (var i = 0u; i < 40000u + p[2]; i++) { n += 1u; } }
        else { for (var i = 0u; i < 20000u + p[2]; i++) { n += 1u; } }";
    fits(
        f,
        (13, 2, "", sides, &|g| {
            if g % 2 == 0 { 40_000 } else { 20_000 }
        }),
    );
}

fn cut_loops_of_every_shape_are_found(f: &Fixture) {
    exceeds(
        f,
        (8, 1, FIND, "n = find(p[0] * 100u, 200000u);", &|_| 100_000),
    );
    // The memory of an earlier, legitimate return must not hide the later cut.
    let stale = "n = find(3u + p[2], 200u); n += find(p[0] * 100u, 200000u);";
    exceeds(f, (8, 1, FIND, stale, &|_| 100_003));
    let last = "var k = 0u; loop { n += find(select(4u, p[0] * 100u, k == 2u), 200000u); k++;
        if k >= 3u { break; } }";
    exceeds(f, (8, 1, FIND, last, &|_| 100_008));
    let returns =
        "loop { n += 1u; if n == p[0] * 100u + id { o[id] = n; return; } if n == p[2] { break; } }";
    exceeds(f, (8, 1, "", returns, &|g| 100_000 + g));
    let continuing = "var i = 0u; loop { n += 1u; continuing {
        for (var j = 0u; j < p[0]; j++) { n += 1u; } i++; break if i == 1000u; } }";
    exceeds(f, (8, 2, "", continuing, &|_| 1_001_000));
    // The budget belongs to all loops together.
    let two = "fn a(k: u32) -> u32 { var n = 0u; for (var i = 0u; i < k; i++) { n += 1u; } return n; }
        fn b(k: u32) -> u32 { var n = 0u; for (var i = 0u; i < k; i++) { n += a(10u + p[2]); } return n; }";
    exceeds(f, (8, 1, two, "n = a(p[1]) + b(p[0]);", &|_| 70_000));
    fits(f, (8, 1, two, "n = a(p[0]) + b(p[0]);", &|_| 11_000));
    let sides = "if id % 2u == 0u { for (var i = 0u; i < 40000u + p[2]; i++) { n += 1u; } }
        else { for (var i = 0u; i < 40000u + p[2]; i++) { n += 1u; } }";
    exceeds(f, (13, 2, "", sides, &|_| 40_000));
    for workgroup in [8, 13, 64] {
        let barrier = format!(
            "let limit = workgroupUniformLoad(&zero) + 70000u;
             for (var i = 0u; i < limit; i++) {{
                w[l] = i; workgroupBarrier(); n += w[{workgroup}u - 1u - l] - i + 1u; workgroupBarrier();
             }}"
        );
        exceeds(f, (workgroup, 2, "", &barrier, &|_| 70_000));
    }
}

/// Work-group sizes that fill no whole group of lanes carry lanes that belong to nobody. They can use
/// the budget up; a wrong result must not come of it unnoticed.
fn ghost_lanes_cannot_hide_a_cut(f: &Fixture) {
    for workgroup in [1u32, 3, 5, 13, 20, 61] {
        for count in [1000u32, 65_000] {
            let bodies = [
                format!(
                    "var i = 0u; loop {{ if l < {workgroup}u + p[2] && i >= p[4] {{ break; }} i++; }}
                     for (var k = 0u; k < {count}u + p[2]; k++) {{ n += 1u; }}"
                ),
                format!(
                    "var i = 0u; loop {{ if id % {workgroup}u == l && i >= p[4] {{ break; }} i++; w[0] = i; }}
                     for (var k = 0u; k < {count}u + p[2]; k++) {{ n += 1u; }}"
                ),
            ];
            for body in bodies {
                let (event, o) = launch(&f.device, workgroup, 2, "", &body);
                match event.wait() {
                    Ok(()) => assert_eq!(o.read().unwrap(), vec![count; 2 * workgroup as usize]),
                    Err(error) => {
                        assert!(f.is_lavapipe(), "{error}");
                        assert!(matches!(&*cause(error), ExecutionError::LoopCut { .. }));
                    }
                }
            }
        }
    }
}

fn around_the_budget_no_wrong_result_passes(f: &Fixture) {
    for turns in 65_520..65_552u32 {
        let bodies = [
            format!("for (var i = 0u; i < {turns}u + p[2]; i++) {{ n += 1u; }}"),
            format!("loop {{ n += 1u; continuing {{ break if n == {turns}u + p[2]; }} }}"),
            format!(
                "for (var i = 0u; i < 30000u + p[2]; i++) {{ n += 1u; }}
                 for (var i = 30000u; i < {turns}u + p[2]; i++) {{ n += 1u; }}"
            ),
        ];
        for body in bodies {
            let (event, o) = launch(&f.device, 8, 1, "", &body);
            let fits = turns < 65_533;
            match event.wait() {
                Ok(()) => {
                    assert_eq!(o.read().unwrap(), [turns; 8], "{body}");
                }
                Err(error) => {
                    assert!(f.is_lavapipe() && !fits, "{turns}: {error}");
                }
            }
        }
    }
}

fn short_loops_are_not_guarded(f: &Fixture) {
    let guarded = |body: &str| {
        let program = Program::new("g.wgsl", source(64, "", body)).unwrap();
        let kernel = f.device.kernel(&program, "main", &Constants::new());
        kernel.unwrap().is_loop_guarded()
    };
    assert!(!guarded("n = 1u;"));
    assert!(!guarded(
        "for (var i = 0u; i < 1000u; i++) { n += p[i % 5u]; }"
    ));
    let needs = f.device.capabilities().needs_loop_guard();
    assert_eq!(needs, f.is_lavapipe());
    assert_eq!(
        guarded("for (var i = 0u; i < p[0]; i++) { n += 1u; }"),
        needs
    );
}

fn the_guard_follows_the_specialization(f: &Fixture) {
    let program = Program::new(
        "turns.wgsl",
        "override turns: u32;
         @group(0) @binding(0) var<storage, read_write> o: array<u32>;
         @compute @workgroup_size(1) fn main() {
            var x = 1u;
            for (var i = 0u; i < turns; i++) { x = x * 1664525u + 1013904223u; }
            o[0] = x;
         }",
    )
    .unwrap();
    let reference = |turns| {
        (0..turns).fold(1u32, |x, _| {
            x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)
        })
    };
    for turns in [10u32, 1000, 200_000] {
        let constants = Constants::new().set("turns", turns);
        let kernel = f.device.kernel(&program, "main", &constants).unwrap();
        let long = turns > 65_000;
        assert_eq!(kernel.is_loop_guarded(), long && f.is_lavapipe());
        let o: DeviceBuffer<u32> = f.device.zeroed(1).unwrap();
        kernel
            .launch()
            .buffer("o", &o)
            .workgroups(1)
            .submit()
            .unwrap();
        match o.read() {
            Ok(values) => assert_eq!(values, [reference(turns)]),
            Err(error) => assert!(long && f.is_lavapipe(), "{error}"),
        }
    }
}

/// A program that copies `source` to `sink`, `turns` loop turns later.
const SLOW_COPY: &str = "
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;
@group(0) @binding(2) var<uniform> turns: u32;
@compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var n = 0u;
    for (var i = 0u; i < turns; i++) { n += 1u; }
    if id.x < arrayLength(&sink) { sink[id.x] = source[id.x] + n; }
}";

struct SlowCopy {
    kernel: tombolo::Kernel,
}

impl SlowCopy {
    fn new(device: &Device) -> Self {
        let program = Program::new("slow_copy.wgsl", SLOW_COPY).unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        Self { kernel }
    }

    fn run(&self, source: &DeviceBuffer<u32>, sink: &DeviceBuffer<u32>, turns: u32) -> Event {
        self.kernel
            .launch()
            .buffer("source", source)
            .buffer("sink", sink)
            .value("turns", &turns)
            .invocations(sink.len())
            .submit()
            .unwrap()
    }
}

const TOO_MANY: u32 = 100_000;

fn results_of_a_failed_launch_are_poisoned(f: &Fixture) {
    let copy = SlowCopy::new(&f.device);
    let source = f.device.buffer(&[1u32; 8]).unwrap();
    let sink = f.device.buffer(&[7u32; 8]).unwrap();
    let event = copy.run(&source, &sink, TOO_MANY);
    if !f.is_lavapipe() {
        event.wait().unwrap();
        assert_eq!(sink.read().unwrap(), [1 + TOO_MANY; 8]);
        return;
    }
    // Reading says so whether or not anybody has asked the event.
    assert!(matches!(sink.read(), Err(ReadError::Execution(_))));
    assert!(event.wait().is_err());
    assert_eq!(event.status(), tombolo::device::EventStatus::Failed);
    assert!(pollster::block_on(event.into_future()).is_err());
    assert!(pollster::block_on(sink.read_back(..).unwrap()).is_err());
    // What was only read is as good as before.
    assert_eq!(source.read().unwrap(), [1; 8]);
}

fn poison_is_inherited_and_ends_where_overwritten(f: &Fixture) {
    if !f.is_lavapipe() {
        return;
    }
    let copy = SlowCopy::new(&f.device);
    let source = f.device.buffer(&[1u32; 8]).unwrap();
    let a: DeviceBuffer<u32> = f.device.zeroed(8).unwrap();
    let b: DeviceBuffer<u32> = f.device.zeroed(8).unwrap();
    let c: DeviceBuffer<u32> = f.device.zeroed(8).unwrap();
    // All in one batch: nobody knows of the failure when the others are recorded.
    copy.run(&source, &a, TOO_MANY);
    let second = copy.run(&a, &b, 1);
    b.copy_to(0, &c, 0, 4).unwrap();
    match &*cause(second.wait().unwrap_err()) {
        ExecutionError::Inherited { kernel, cause } => {
            assert_eq!(kernel, "main");
            assert!(matches!(**cause, ExecutionError::LoopCut { .. }));
        }
        other => panic!("{other}"),
    }
    assert!(b.read().is_err());
    assert!(c.read_range(..4).is_err());
    assert_eq!(c.read_range(4..).unwrap(), [0; 4]);
    // Overwritten by the host, by a fill, by a copy, and by a launch that says so.
    a.write(0, &[5; 4]).unwrap();
    assert_eq!(a.read_range(..4).unwrap(), [5; 4]);
    assert!(a.read().is_err());
    a.fill(6, 4..8).unwrap();
    assert_eq!(a.read().unwrap(), [5, 5, 5, 5, 6, 6, 6, 6]);
    a.copy_to(0, &c, 0, 4).unwrap();
    assert_eq!(c.read().unwrap(), [5, 5, 5, 5, 0, 0, 0, 0]);
    copy.kernel
        .launch()
        .buffer("source", &source)
        .overwrite("sink", &b)
        .value("turns", &2u32)
        .invocations(8)
        .submit()
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(b.read().unwrap(), [3; 8]);
    // What a kernel only reads it does not overwrite, whatever it is said to do.
    copy.run(&source, &b, TOO_MANY);
    let event = copy
        .kernel
        .launch()
        .overwrite("source", &b)
        .buffer("sink", &a)
        .value("turns", &2u32)
        .invocations(8)
        .submit()
        .unwrap();
    assert_eq!(event.wait().is_err(), f.is_lavapipe());
    assert_eq!(a.read().is_err(), f.is_lavapipe());
}

fn clearing_drops_the_error(f: &Fixture) {
    let copy = SlowCopy::new(&f.device);
    let source = f.device.buffer(&[1u32; 8]).unwrap();
    let sink: DeviceBuffer<u32> = f.device.zeroed(8).unwrap();
    copy.run(&source, &sink, TOO_MANY);
    assert_eq!(sink.read().is_err(), f.is_lavapipe());
    sink.clear_error();
    assert!(sink.read().is_ok());
}

fn failures_without_live_memory(f: &Fixture) {
    let device = f.open(|options| {
        options.live_memory = false;
        options.loop_guard = LoopGuardPolicy::Budget(65_535);
    });
    let copy = SlowCopy::new(&device);
    assert!(copy.kernel.is_loop_guarded());
    let source = device.buffer(&[1u32; 8]).unwrap();
    let good: DeviceBuffer<u32> = device.zeroed(8).unwrap();
    let bad: DeviceBuffer<u32> = device.zeroed(8).unwrap();
    for round in 0..5 {
        let first = copy.run(&source, &good, round);
        let second = copy.run(&source, &bad, TOO_MANY);
        let third = copy.run(&source, &good, round + 1);
        third.wait().unwrap();
        first.wait().unwrap();
        assert_eq!(good.read().unwrap(), [round + 2; 8]);
        assert_eq!(second.wait().is_err(), f.is_lavapipe());
        assert_eq!(bad.read().is_err(), f.is_lavapipe());
    }
}

fn more_guarded_launches_than_records(f: &Fixture) {
    for live in [true, false] {
        let device = f.open(|options| {
            options.live_memory = live;
            options.loop_guard = LoopGuardPolicy::Budget(65_535);
        });
        let copy = SlowCopy::new(&device);
        let source = device.buffer(&[1u32; 8]).unwrap();
        let sinks: Vec<DeviceBuffer<u32>> = (0..7).map(|_| device.zeroed(8).unwrap()).collect();
        let mut events = Vec::new();
        for i in 0..700usize {
            let turns = if i % 7 == 3 { TOO_MANY } else { i as u32 % 7 };
            events.push(copy.run(&source, &sinks[i % 7], turns));
        }
        for (i, event) in events.iter().enumerate() {
            let failed = event.wait().is_err();
            assert_eq!(failed, i % 7 == 3 && f.is_lavapipe(), "launch {i}");
        }
        for (i, sink) in sinks.iter().enumerate() {
            if i == 3 {
                assert_eq!(sink.read().is_err(), f.is_lavapipe());
            } else {
                assert_eq!(sink.read().unwrap(), [1 + i as u32; 8]);
            }
        }
    }
}

fn a_guard_on_adapters_without_a_budget_changes_nothing(f: &Fixture) {
    let device = f.open(|options| options.loop_guard = LoopGuardPolicy::Budget(65_535));
    let body = "for (var i = 0u; i < p[0]; i++) { for (var j = 0u; j < p[0]; j++) { n += 1u; } }";
    let (event, o) = launch(&device, 13, 2, "", body);
    if f.is_lavapipe() {
        // Which has that budget.
        assert!(event.wait().is_err());
        return;
    }
    event.wait().unwrap();
    assert_eq!(o.read().unwrap(), vec![1_000_000; 26]);
}
