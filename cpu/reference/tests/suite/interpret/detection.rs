//! What the interpreter finds wrong with kernels, and what it finds nothing wrong with.

use tombolo_cpu_reference::interpret::{Detect, Options};
use tombolo_cpu_reference::report::{Finding, FindingKind};

use super::run_with;

fn find(detect: Detect, body: &str) -> Vec<Finding> {
    let text = format!(
        "enable f16;
        @group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @group(0) @binding(1) var<storage, read_write> cells: array<atomic<u32>>;
        struct Pair {{ a: u32, b: vec3<u32> }}
        var<workgroup> shared_words: array<u32, 8>;
        var<workgroup> shared_halves: array<f16, 16>;
        var<workgroup> shared_pair: Pair;
        var<private> mine: array<u32, 4>;
        @compute @workgroup_size(8) fn main(
            @builtin(local_invocation_index) id: u32, @builtin(workgroup_id) group: vec3<u32>,
            @builtin(global_invocation_id) at: vec3<u32>
        ) {{ {body} }}"
    );
    let options = Options {
        detect,
        ..Options::default()
    };
    let (_, outcome) =
        run_with(&text, 2, &[&[0; 32], &[0; 4]], options).unwrap_or_else(|fault| panic!("{fault}"));
    outcome.findings
}

const RACES: Detect = Detect {
    out_of_range: false,
    uninitialized: false,
    races: true,
    uniform_loads: false,
    inactive_lanes: false,
};
const UNWRITTEN: Detect = Detect {
    races: false,
    uninitialized: true,
    ..RACES
};

fn races(body: &str) -> bool {
    !find(RACES, body).is_empty()
}

#[test]
fn races_in_work_group_memory_end_at_its_barrier() {
    assert!(races(
        "shared_words[id] = id; data[at.x] = shared_words[7u - id];"
    ));
    assert!(!races(
        "shared_words[id] = id; workgroupBarrier(); data[at.x] = shared_words[7u - id];"
    ));
    // The other memory's barrier orders nothing.
    assert!(races(
        "shared_words[id] = id; storageBarrier(); data[at.x] = shared_words[7u - id];"
    ));
    // Reads before a write race with it as well.
    assert!(races(
        "shared_words[id] = id; workgroupBarrier(); data[at.x] = shared_words[7u - id]; shared_words[id] = 1u;"
    ));
    assert!(races("shared_pair.b = vec3(1u); data[at.x] = 1u;"));
    assert!(!races(
        "if id == 0u { shared_pair.b = vec3(1u); } if id == 1u { shared_pair.a = 1u; }"
    ));
    assert!(!races(
        "if id == 0u { shared_pair = Pair(1u, vec3(2u)); } let pair = workgroupUniformLoad(&shared_pair);
         if id == 1u { shared_pair.a = pair.a; }"
    ));
}

#[test]
fn halves_of_a_word_race_each_by_itself() {
    assert!(!races(
        "shared_halves[2u * id] = 1h; shared_halves[2u * id + 1u] = 2h;"
    ));
    assert!(!races("shared_halves[id] = 1h;"));
    assert!(races(
        "shared_halves[id] = 1h; data[at.x] = u32(shared_halves[id ^ 1u]);"
    ));
    // The lower half of the word is read by others, the upper one is written.
    assert!(!races(
        "data[at.x] = u32(shared_halves[0]); if id == 5u { shared_halves[1] = 1h; }"
    ));
    assert!(races(
        "data[at.x] = u32(shared_halves[0]); if id == 5u { shared_halves[0] = 1h; }"
    ));
}

#[test]
fn races_in_storage_reach_across_work_groups() {
    assert!(!races(
        "data[at.x] = 1u; storageBarrier(); data[at.x ^ 1u] = 2u;"
    ));
    assert!(races(
        "data[at.x] = 1u; workgroupBarrier(); data[at.x ^ 1u] = 2u;"
    ));
    assert!(races(
        "data[at.x] = 1u; storageBarrier(); data[at.x ^ 8u] = 2u;"
    ));
    assert!(races("data[group.x * 16u] = 1u;"));
    assert!(races("if id == 0u { data[0] = 1u; }"));
    assert!(!races("if at.x == 0u { data[0] = 1u; }"));
    // Two reads do not race, nor do two atomic accesses; an atomic and a plain one do.
    assert!(!races("data[at.x] = data[20];"));
    assert!(!races(
        "atomicAdd(&cells[0], 1u); atomicStore(&cells[0], 2u); data[at.x] = atomicLoad(&cells[0]);"
    ));
}

#[test]
fn a_race_names_both_sides() {
    let findings = find(
        Detect::ALL,
        "if at.x == 3u { data[5] = 1u; }\nif at.x == 9u { data[at.x] = data[5]; }",
    );
    let [finding] = &findings[..] else {
        panic!("{findings:?}")
    };
    let FindingKind::Race { offset: 20, other } = &finding.kind else {
        panic!("{finding:?}")
    };
    assert_eq!(
        (
            other.invocation.workgroup,
            other.invocation.local,
            other.write
        ),
        ([0, 0, 0], [3, 0, 0], true)
    );
    assert_eq!(
        (finding.invocation.workgroup, finding.invocation.local),
        ([1, 0, 0], [1, 0, 0])
    );
    assert_eq!(finding.variable.as_deref(), Some("data"));
    assert_ne!(other.site, finding.site);
}

#[test]
fn reads_of_unwritten_memory_are_found_where_nothing_was_written() {
    let unwritten = |body: &str| -> Vec<(String, u64)> {
        let found = find(UNWRITTEN, body)
            .into_iter()
            .map(|finding| match finding.kind {
                FindingKind::Uninitialized { offset } => {
                    (finding.variable.unwrap_or_default(), offset)
                }
                other => panic!("{other:?}"),
            });
        found.collect()
    };
    let name = |name: &str, offset| vec![(name.to_owned(), offset)];
    assert_eq!(unwritten("data[at.x] = mine[2];"), name("mine", 8));
    assert_eq!(unwritten("mine[2] = 1u; data[at.x] = mine[2];"), []);
    assert_eq!(unwritten("var x: u32; data[at.x] = x;"), name("x", 0));
    assert_eq!(unwritten("var x: u32 = 0u; data[at.x] = x;"), []);
    assert_eq!(unwritten("var x: u32; x += 1u;"), name("x", 0));
    assert_eq!(
        unwritten("var v: vec3<u32>; v.x = 1u; v.z = 1u; data[at.x] = v.x + v.z;"),
        []
    );
    assert_eq!(
        unwritten("var v: vec3<u32>; v.x = 1u; v.z = 1u; let w = v;"),
        name("v", 4)
    );
    assert_eq!(
        unwritten("shared_words[id] = 1u; workgroupBarrier(); data[at.x] = shared_words[id];"),
        []
    );
    assert_eq!(
        unwritten("data[at.x] = shared_words[3];"),
        name("shared_words", 12)
    );
    assert_eq!(
        unwritten("let p = workgroupUniformLoad(&shared_pair.b);"),
        name("shared_pair", 16)
    );
    // Memory is unwritten again for the next work-group.
    assert_eq!(
        unwritten("if group.x == 0u { shared_words[0] = 1u; } data[at.x] = shared_words[id];")
            .len(),
        1
    );
}

#[test]
fn findings_say_where() {
    let text = "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
fn pick(at: u32) -> u32 {
    return data[at];
}
@compute @workgroup_size(2) fn main(@builtin(local_invocation_index) id: u32) { data[id] = pick(id + 3u); }";
    let options = Options {
        detect: Detect::ALL,
        ..Options::default()
    };
    let (_, outcome) = run_with(text, 1, &[&[0; 4]], options).unwrap();
    let module = tombolo_cpu_reference::source::parse(text).unwrap();
    let lines: Vec<String> = outcome
        .findings
        .iter()
        .map(|finding| finding.describe(&module, "main", text))
        .collect();
    assert_eq!(
        lines,
        [
            "index 4 of `data`, which has 4 elements: invocation (1, 0, 0) of work-group (0, 0, 0) at `pick`, line 3"
        ]
    );
}
