//! Invocations that run side by side: the results are those of one after the other, at any number of lanes.

use tombolo_cpu::Options;

use crate::harness::Cpu;

/// A device that runs so many invocations side by side, at most.
fn with(lanes: u32) -> Cpu {
    let mut options = Options::default();
    options.lanes = lanes;
    Cpu::with(options)
}

/// Runs `body` at several numbers of lanes: see [`Cpu::map`].
fn check(body: &str, expected: impl Fn(u32) -> u32) {
    let expected: Vec<u32> = (0..128).map(expected).collect();
    for lanes in [1, 4, 8, 16] {
        let out = with(lanes).map("", body, expected.len());
        assert_eq!(out, expected, "{lanes} lanes");
    }
}

/// Each pass of the outer loop, which is written out, leaves the inner loop elsewhere: what is read behind the last one is
/// not read behind the others.
#[test]
fn loops_of_passes_that_are_written_out_keep_their_lanes_apart() {
    check(
        "var x = 0u;
         for (var k = 0u; k < 3u; k++) {
             x = 0u;
             var turn = 0u;
             while (turn < 7u && k <= (i & 3u)) { turn++; x = 5u; }
         }
         out[i] = x;",
        |i| if i & 3 >= 2 { 5 } else { 0 },
    );
}

/// What a loop counts and computes is read behind it, by lanes that left it in different passes and places.
#[test]
fn what_lanes_leave_a_loop_with_is_theirs() {
    check(
        "var k = 0u;
         var x = i;
         var y = 7u;
         while (k < 40u && x != 1u) {
             if (x % 7u == 3u) { y = k; break; }
             if ((x & 1u) == 0u) { x = x / 2u; } else { x = x * 3u + 1u; y = y ^ x; }
             k++;
         }
         out[i] = k * 1000003u + x * 31u + y;",
        |i| {
            let (mut k, mut x, mut y) = (0u32, i, 7u32);
            while k < 40 && x != 1 {
                if x % 7 == 3 {
                    y = k;
                    break;
                }
                if x & 1 == 0 {
                    x /= 2;
                } else {
                    x = x.wrapping_mul(3).wrapping_add(1);
                    y ^= x;
                }
                k += 1;
            }
            (k.wrapping_mul(1_000_003))
                .wrapping_add(x.wrapping_mul(31))
                .wrapping_add(y)
        },
    );
}

/// Ways out of several loops at once, next passes of outer loops, and the end of the invocation.
#[test]
fn lanes_leave_several_loops_at_once() {
    check(
        "var sum = 0u;
         var last = 99u;
         for (var a = 0u; a < 9u; a++) {
             last = a;
             var b = a;
             loop {
                 b += 1u + (i & 1u);
                 sum = sum * 3u + b;
                 if (b > 12u) { break; }
                 if (((b ^ i) & 7u) == 5u) { a += 1u; break; }
                 if (sum % 13u == 4u) { out[i] = sum + b * 65536u + last; return; }
                 continuing { sum ^= i; break if (sum & 31u) == 7u; }
             }
             if (i % 5u == a) { continue; }
             sum += b;
         }
         out[i] = sum ^ last;",
        |i| {
            let (mut sum, mut last) = (0u32, 99);
            let mut a = 0u32;
            while a < 9 {
                last = a;
                let mut b = a;
                loop {
                    b += 1 + (i & 1);
                    sum = sum.wrapping_mul(3).wrapping_add(b);
                    if b > 12 {
                        break;
                    }
                    if (b ^ i) & 7 == 5 {
                        a += 1;
                        break;
                    }
                    if sum % 13 == 4 {
                        return sum.wrapping_add(b * 65536).wrapping_add(last);
                    }
                    sum ^= i;
                    if sum & 31 == 7 {
                        break;
                    }
                }
                if i % 5 != a {
                    sum = sum.wrapping_add(b);
                }
                a += 1;
            }
            sum ^ last
        },
    );
}

/// Both sides of a short branch are computed: neither sees what the other one assigns.
#[test]
fn sides_of_short_branches_read_what_was_there_before() {
    check(
        "var a = i;
         var b = i * 5u;
         for (var k = 0u; k < (i & 7u); k++) {
             if ((a ^ k) % 3u == 1u) { let t = a; a = b; b = t; } else { b = a + 1u; a = a ^ b; }
             if (a > b && (b & 1u) == 0u || k == 2u) { a -= b; }
         }
         out[i] = a * 17u + b;",
        |i| {
            let (mut a, mut b) = (i, i * 5);
            for k in 0..i & 7 {
                if (a ^ k) % 3 == 1 {
                    (a, b) = (b, a);
                } else {
                    b = a.wrapping_add(1);
                    a ^= b;
                }
                if a > b && b & 1 == 0 || k == 2 {
                    a = a.wrapping_sub(b);
                }
            }
            a.wrapping_mul(17).wrapping_add(b)
        },
    );
}

/// Lanes that reach memory apart, within arrays and beyond their ends, where an index means the last element.
#[test]
fn lanes_reach_memory_apart() {
    let expected: Vec<u32> = (0..128u32)
        .map(|i| {
            let at = |k: u32| k.min(63) * 3 + 1;
            let mut x = i;
            for _ in 0..(i % 11) {
                x = at(x) % 80;
            }
            x + at(i.wrapping_mul(0x8000_0001))
        })
        .collect();
    for lanes in [1, 4, 8, 16] {
        let table: Vec<u32> = (0..64).map(|k| k * 3 + 1).collect();
        let out = with(lanes).run::<u32>(
            "@group(0) @binding(0) var<storage, read> table: array<u32>;
             @group(0) @binding(1) var<storage, read_write> out: array<u32>;
             @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                 var x = id.x;
                 for (var k = 0u; k < id.x % 11u; k++) { x = table[x] % 80u; }
                 out[id.x] = x + table[id.x * 0x80000001u];
             }",
            [2, 1, 1],
            &[bytemuck::cast_slice(&table), &[0; 512]],
        );
        assert_eq!(out, expected, "{lanes} lanes");
    }
}

/// A condition with its text, of the invocation's index `i` and of `bound`.
type Condition = (&'static str, fn(u32, u32) -> bool);

/// Branches on what grows from lane to lane, which the first lane may tell that no lane takes: around the first and the last
/// lane of every vector, and where numbers go round.
const CONDITIONS: [Condition; 20] = [
    ("i < bound", |i, bound| i < bound),
    ("bound > i", |i, bound| i < bound),
    ("i <= bound", |i, bound| i <= bound),
    ("i >= bound", |i, bound| i >= bound),
    ("i > bound", |i, bound| i > bound),
    ("i != bound", |i, bound| i != bound),
    ("i == bound", |i, bound| i == bound),
    ("bound == i", |i, bound| i == bound),
    ("i + 3u < bound", |i, bound| i + 3 < bound),
    ("i32(i) < i32(bound)", |i, bound| (i as i32) < bound as i32),
    ("i32(i) <= i32(bound)", |i, bound| i as i32 <= bound as i32),
    // The last invocation has the greatest number with a sign, 2^31 - 1.
    ("i32(i + 0x7fffffe0u) < i32(bound)", |i, bound| {
        ((i + 0x7fff_ffe0) as i32) < bound as i32
    }),
    ("i + 0x7fffffe0u <= bound", |i, bound| {
        i + 0x7fff_ffe0 <= bound
    }),
    // The last invocation has the least number with a sign, and all before it have the greatest ones.
    ("i32(i + 0x7fffffe1u) < i32(bound)", |i, bound| {
        ((i + 0x7fff_ffe1) as i32) < bound as i32
    }),
    // The last invocations go round to the least numbers.
    ("i + 0xffffffe4u < bound", |i, bound| {
        i.wrapping_add(0xffff_ffe4) < bound
    }),
    ("i - 5u == bound", |i, bound| i.wrapping_sub(5) == bound),
    ("31u - i == bound", |i, bound| 31 - i == bound),
    ("i * 2u == bound", |i, bound| i * 2 == bound),
    ("i * 0x04000000u < bound", |i, bound| {
        i * 0x0400_0000 < bound
    }),
    ("i * 0x0c000000u <= bound", |i, bound| {
        i.wrapping_mul(0x0c00_0000) <= bound
    }),
];

const BOUNDS: [u32; 24] = [
    0,
    1,
    3,
    4,
    7,
    8,
    9,
    15,
    16,
    24,
    31,
    32,
    33,
    0x0400_0000,
    0x7fff_ffdf,
    0x7fff_ffe0,
    0x7fff_ffe1,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xffff_ffe4,
    0xffff_fffb,
    0xffff_fffe,
    0xffff_ffff,
];

#[test]
fn branches_that_no_lane_of_a_vector_takes() {
    for lanes in [4, 8, 16, 32] {
        let cpu = with(lanes);
        for (text, holds) in CONDITIONS {
            // The second branch is inside the first; some lanes end before both.
            let source = format!(
                "@group(0) @binding(0) var<storage, read> bounds: array<u32>;
                 @group(0) @binding(1) var<storage, read_write> out: array<u32>;
                 @compute @workgroup_size(32) fn main(@builtin(local_invocation_index) i: u32) {{
                     if (i % 9u == bounds[0]) {{ return; }}
                     for (var k = 0u; k < arrayLength(&bounds); k++) {{
                         let bound = bounds[k];
                         let at = k * 32u + i;
                         if ({text}) {{
                             out[at] = 1u;
                             if (i < 8u) {{ out[at] += 2u; }}
                         }}
                     }}
                 }}"
            );
            let poison = [0xdead_beef_u32; 32 * BOUNDS.len()];
            let buffers: [&[u8]; 2] =
                [bytemuck::cast_slice(&BOUNDS), bytemuck::cast_slice(&poison)];
            let out: Vec<u32> = cpu.run(&source, [1, 1, 1], &buffers);
            for (at, got) in (0u32..).zip(out) {
                let (bound, i) = (BOUNDS[at as usize / 32], at % 32);
                let expected = match i % 9 != 0 && holds(i, bound) {
                    true if i < 8 => 3,
                    true => 1,
                    false => 0xdead_beef,
                };
                assert_eq!(
                    got, expected,
                    "{text}, {lanes} lanes, i = {i}, bound = {bound:#x}"
                );
            }
        }
    }
}

/// Runs a kernel for each of [`CONDITIONS`]: the words of `out` for 32 invocations and all of [`BOUNDS`] are 100 more than
/// the invocation's number in reverse where the condition holds, and poison elsewhere.
fn check_conditions(kernel: impl Fn(&str) -> String) {
    for lanes in [1, 4, 8, 16, 32] {
        let cpu = with(lanes);
        for (text, holds) in CONDITIONS {
            let pipeline = cpu.pipeline(&kernel(text));
            let bounds = cpu.uniform(bytemuck::cast_slice(&BOUNDS));
            let poison = [0xdead_beef_u32; 32 * BOUNDS.len()];
            let out = cpu.buffer(bytemuck::cast_slice(&poison));
            let group = cpu.group(&pipeline, &[&bounds, &out]);
            cpu.dispatch(&pipeline, &group, [1, 1, 1]);
            for (at, got) in (0u32..).zip(cpu.read::<u32>(&out)) {
                let (bound, i) = (BOUNDS[at as usize / 32], at % 32);
                let expected = match holds(i, bound) {
                    true => 131 - i,
                    false => 0xdead_beef,
                };
                assert_eq!(
                    got, expected,
                    "{text}, {lanes} lanes, i = {i}, bound = {bound:#x}"
                );
            }
        }
    }
}

#[test]
fn branches_that_all_lanes_of_a_vector_take() {
    check_conditions(|text| {
        format!(
            "@group(0) @binding(0) var<uniform> bounds: array<vec4<u32>, 6>;
             @group(0) @binding(1) var<storage, read_write> out: array<u32>;
             @compute @workgroup_size(32) fn main(@builtin(local_invocation_index) i: u32) {{
                 for (var k = 0u; k < 24u; k++) {{
                     let bound = bounds[k / 4u][k % 4u];
                     if ({text}) {{ out[k * 32u + i] = 131u - i; }}
                 }}
             }}"
        )
    });
}

/// No invocation behind the first that does not take the branch does, where the number compared grows up to the last.
#[test]
fn branches_that_end_a_stretch() {
    check_conditions(|text| {
        format!(
            "@group(0) @binding(0) var<uniform> bounds: array<vec4<u32>, 6>;
             @group(0) @binding(1) var<storage, read_write> out: array<u32>;
             var<workgroup> words: array<u32, 32>;
             @compute @workgroup_size(32) fn main(@builtin(local_invocation_index) i: u32) {{
                 words[i] = i;
                 workgroupBarrier();
                 for (var k = 0u; k < 24u; k++) {{
                     let bound = bounds[k / 4u][k % 4u];
                     if ({text}) {{ out[k * 32u + i] = words[31u - i] + 100u; }}
                     workgroupBarrier();
                 }}
             }}"
        )
    });
}

/// Products and quotients by powers of two are shifts. A float whose bits are a power of two is none, nor is a product of
/// which one factor differs from lane to lane.
#[test]
fn products_by_powers_of_two_are_those_by_other_numbers() {
    check(
        "let x = i * 0x9e3779b9u;
         let s = bitcast<i32>(x);
         var sum = (x * 1u) ^ (x * 64u) ^ (x * 0x80000000u);
         sum = sum * 31u + bitcast<u32>((s * 16i) ^ (s * i32(-2147483648)));
         sum = sum * 31u + (x / 8u) + (x % 32u);
         sum = sum * 31u + bitcast<u32>(f32(i) * 2.0f) + x * (1u << (i & 7u));
         out[i] = sum;",
        |i| {
            let x = i.wrapping_mul(0x9e37_79b9);
            let s = x as i32;
            let mut sum = x ^ x.wrapping_mul(64) ^ x.wrapping_mul(0x8000_0000);
            let signed = s.wrapping_mul(16) ^ s.wrapping_mul(i32::MIN);
            sum = sum.wrapping_mul(31).wrapping_add(signed as u32);
            sum = sum.wrapping_mul(31).wrapping_add(x / 8 + x % 32);
            let float = (i as f32 * 2.0).to_bits();
            (sum.wrapping_mul(31).wrapping_add(float)).wrapping_add(x.wrapping_mul(1 << (i & 7)))
        },
    );
}
