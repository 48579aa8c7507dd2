//! Indices that grow from invocation to invocation but at a limit: neighbours in pictures, whose edges stay inside.
//! Invocations that run side by side take the words at once where none meets the limit, and find the same as one by one.

use tombolo_cpu::Options;

use crate::harness::Cpu;

/// Words to choose among.
const WORDS: u32 = 40;
/// Invocations, in two work-groups.
const COUNT: u32 = 128;

/// An index in WGSL, of the invocation `i` and of two numbers that all have in common, and the same in Rust.
type Form = (&'static str, fn(u32, u32, u32) -> u32);

/// Which invocations take part, in WGSL and in Rust.
type Guard = (&'static str, fn(u32) -> bool);

const ALL: Guard = ("true", |_| true);
const SOME: Guard = ("(i & 7u) != 3u", |i| i & 7 != 3);

const FORMS: [Form; 10] = [
    ("min(i + a, b)", |i, a, b| i.wrapping_add(a).min(b)),
    ("min(b, i - a)", |i, a, b| i.wrapping_sub(a).min(b)),
    ("min(max(i + a, b) - b, 39u)", |i, a, b| {
        i.wrapping_add(a).max(b).wrapping_sub(b).min(39)
    }),
    ("max(b, min(i + a, 39u))", |i, a, b| {
        i.wrapping_add(a).min(39).max(b)
    }),
    ("u32(clamp(i32(i + a), 0, i32(b)))", |i, a, b| {
        (i.wrapping_add(a) as i32).clamp(0, b as i32) as u32
    }),
    ("u32(min(max(i32(i) - i32(a), -3) + 3, 39))", |i, a, _| {
        let moved = (i as i32).wrapping_sub(a as i32).max(-3);
        moved.wrapping_add(3).min(39) as u32
    }),
    ("min(i + a, 20u) + min(b, 19u)", |i, a, b| {
        i.wrapping_add(a).min(20) + b.min(19)
    }),
    (
        "u32(clamp(max(i32(i + a), i32(b)) + 30, 0, 39))",
        |i, a, b| {
            let least = (i.wrapping_add(a) as i32).max(b as i32);
            least.wrapping_add(30).clamp(0, 39) as u32
        },
    ),
    // Neither of these ever grows by one from each to the next.
    ("min(a - i, b)", |i, a, b| a.wrapping_sub(i).min(b)),
    ("min(min(i + a, 2u * i), b)", |i, a, b| {
        i.wrapping_add(a).min(2 * i).min(b)
    }),
];

/// With these the invocations' numbers meet limits anywhere, and go round at both ends of signed and unsigned numbers.
const MOVES: [u32; 12] = [
    0,
    1,
    5,
    31,
    63,
    100,
    0x7fff_ffc1,
    0x7fff_fff0,
    0x8000_0000,
    0xffff_ff81,
    0xffff_ffc3,
    0xffff_fff0,
];
const LIMITS: [u32; 5] = [0, 3, 17, 36, 39];

fn words() -> Vec<u32> {
    let word = |i: u32| i.wrapping_mul(0x9e37_79b9) ^ 0x5bd1;
    (0..WORDS).map(word).collect()
}

/// Runs a form with all moves and limits at several numbers of lanes. Of `declarations`, `fill` and `memory`, which the form
/// indexes; invocations that are not `active` store nothing.
fn check((form, index): Form, [declarations, fill, memory]: [&str; 3], (guard, active): Guard) {
    let source = format!(
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @group(0) @binding(1) var<storage> limits: array<u32, 2>;
         @group(0) @binding(2) var<storage, read_write> out: array<u32>;
         {declarations}
         @compute @workgroup_size(64)
         fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) here: u32) {{
             {fill}
             let i = id.x;
             let a = limits[0];
             let b = limits[1];
             if ({guard}) {{ out[i] = {memory}[{form}]; }}
         }}"
    );
    let words = words();
    for lanes in [1, 4, 8, 16] {
        let mut options = Options::default();
        options.lanes = lanes;
        let cpu = Cpu::with(options);
        for a in MOVES {
            for b in LIMITS {
                let poison = vec![0xdead_beef_u32; COUNT as usize];
                let buffers = [&words[..], &[a, b], &poison[..]];
                let out: Vec<u32> = cpu.run(
                    &source,
                    [COUNT / 64, 1, 1],
                    &buffers.map(bytemuck::cast_slice::<u32, u8>),
                );
                for (i, got) in (0..).zip(out) {
                    let expected = match active(i) {
                        true => words[index(i, a, b) as usize],
                        false => 0xdead_beef,
                    };
                    assert_eq!(
                        got, expected,
                        "{form} in {memory}, {lanes} lanes, i = {i}, a = {a:#x}, b = {b}"
                    );
                }
            }
        }
    }
}

const STORAGE: [&str; 3] = ["", "", "data"];
/// Of a known size.
const WORK_GROUP: [&str; 3] = [
    "var<workgroup> kept: array<u32, 40>;",
    "if (here < 40u) { kept[here] = data[here]; } workgroupBarrier();",
    "kept",
];

#[test]
fn words_of_buffers_are_found_on_both_sides_of_a_limit() {
    FORMS.into_iter().for_each(|form| check(form, STORAGE, ALL));
}

#[test]
fn words_of_work_group_memory_are_found_on_both_sides_of_a_limit() {
    FORMS
        .into_iter()
        .for_each(|form| check(form, WORK_GROUP, ALL));
}

#[test]
fn words_are_found_by_some_of_the_invocations() {
    for memory in [STORAGE, WORK_GROUP] {
        check(FORMS[0], memory, SOME);
        check(FORMS[4], memory, SOME);
    }
}
