//! How values lie in memory of every address space, and what accesses out of range do.

use super::{bytes, fixed, words};
use crate::conformance::row::{Mismatch, Needs, Row};

pub fn rows() -> Vec<Row> {
    let mut rows = vec![members_row(), runtime_array_row(), half_row(), wide_row()];
    for space in ["function", "private", "workgroup"] {
        rows.push(copy_row(space));
        rows.push(beyond_row(space));
    }
    rows.push(beyond_storage_row());
    rows
}

/// The word of poison that results are overwritten with.
const POISON: u32 = 0xa5a5_a5a5;

/// Offsets of members by WGSL's rules, written and read back by another view of the words.
fn members_row() -> Row {
    let text = "
        struct Inner { a: u32, b: vec2<u32> }
        struct All {
            a: u32, b: vec3<u32>, c: u32, d: vec2<u32>, e: mat2x2<f32>, f: mat3x3<f32>, g: array<Inner, 2>,
            h: array<vec3<u32>, 2>, @size(32) i: u32, @align(32) j: u32, k: vec4<i32>,
        }
        @group(0) @binding(0) var<storage, read_write> all: All;
        @compute @workgroup_size(1) fn main() {
            all.a = 1u; all.b = vec3(2u, 3u, 4u); all.c = 5u; all.d = vec2(6u, 7u);
            all.e = mat2x2(1.0, 2.0, 3.0, 4.0); all.f = mat3x3(vec3(1.0), vec3(2.0), vec3(3.0));
            all.g[1].b.y = 8u; all.g[0] = Inner(9u, vec2(10u, 11u)); all.h[1] = vec3(12u, 13u, 14u);
            all.i = 15u; all.j = 16u; all.k[2] = -17;
        }";
    let float = |value: f32| Some(value.to_bits());
    let keep = Some(POISON);
    let mut expected = vec![keep; 80];
    let mut put = |offset: usize, values: &[Option<u32>]| {
        expected[offset / 4..offset / 4 + values.len()].copy_from_slice(values);
    };
    put(0, &[Some(1)]);
    put(16, &[Some(2), Some(3), Some(4), Some(5)]);
    put(32, &[Some(6), Some(7)]);
    put(40, &[float(1.0), float(2.0), float(3.0), float(4.0)]);
    put(64, &[float(1.0), float(1.0), float(1.0)]);
    put(80, &[float(2.0), float(2.0), float(2.0)]);
    put(96, &[float(3.0), float(3.0), float(3.0)]);
    // Padding of a matrix or a structure that is stored as a whole may be written.
    put(76, &[None]);
    put(92, &[None]);
    put(108, &[None]);
    put(112, &[Some(9), None, Some(10), Some(11)]);
    put(140, &[Some(8)]);
    put(160, &[Some(12), Some(13), Some(14)]);
    put(176, &[Some(15)]);
    put(224, &[Some(16)]);
    put(248, &[Some(-17i32 as u32)]);
    fixed(
        "members of structures",
        text,
        vec![bytes(&[POISON; 80])],
        expected,
    )
}

fn runtime_array_row() -> Row {
    let text = "
        struct Tail { head: vec4<u32>, tail: array<vec3<u32>> }
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @group(0) @binding(1) var<storage, read_write> tail: Tail;
        @group(0) @binding(2) var<storage> words: array<u32>;
        @compute @workgroup_size(1) fn main() {
            out[0] = arrayLength(&tail.tail); out[1] = arrayLength(&words); out[2] = tail.tail[3].y;
        }";
    let tail: Vec<u32> = (0..20).collect();
    fixed(
        "length of runtime-sized arrays",
        text,
        vec![bytes(&[POISON; 3]), bytes(&tail), bytes(&[0; 7])],
        vec![Some(4), Some(7), Some(17)],
    )
}

fn half_row() -> Row {
    let text = "enable f16;
        struct All { a: f16, b: vec3<f16>, c: mat3x2<f16>, d: array<f16, 3>, e: f32 }
        @group(0) @binding(0) var<storage, read_write> all: All;
        @compute @workgroup_size(1) fn main() {
            all.a = 1.0h; all.b = vec3<f16>(2.0h, 3.0h, 4.0h); all.c[2] = vec2<f16>(5.0h, 6.0h);
            all.d[1] = 7.0h; all.e = f32(all.b.z);
        }";
    let half = |low: f32, high: f32| {
        let bits = |value: f32| u32::from(half::f16::from_f32(value).to_bits());
        Some(bits(low) | bits(high) << 16)
    };
    let keep = Some(POISON);
    let low = |value: f32| half(value, 0.0).map(|word| word | POISON & 0xffff_0000);
    let high = |value: f32| half(0.0, value).map(|word| word | POISON & 0xffff);
    // a 0, b 8, c 16 (columns of 4 bytes), d 28, e 36.
    let expected = vec![
        low(1.0),
        keep,
        half(2.0, 3.0),
        low(4.0),
        keep,
        keep,
        half(5.0, 6.0),
        high(7.0),
        keep,
        Some(4f32.to_bits()),
    ];
    fixed(
        "members of 16 bits",
        text,
        vec![bytes(&[POISON; 10])],
        expected,
    )
    .needing(Needs {
        float16: true,
        ..Needs::default()
    })
}

fn wide_row() -> Row {
    let text = "
        struct All { a: u32, b: i64, c: vec3<u64>, d: u32 }
        @group(0) @binding(0) var<storage, read_write> all: All;
        @compute @workgroup_size(1) fn main() {
            all.a = 1u; all.b = -2li; all.c = vec3<u64>(3lu, 4lu, u64(all.b)); all.d = 5u;
        }";
    // a 0, b 8, c 32, d 56.
    let keep = Some(POISON);
    let expected = vec![
        Some(1),
        keep,
        Some(!1),
        Some(!0),
        keep,
        keep,
        keep,
        keep,
        Some(3),
        Some(0),
        Some(4),
        Some(0),
        Some(!1),
        Some(!0),
        Some(5),
        keep,
    ];
    fixed(
        "members of 64 bits",
        text,
        vec![bytes(&[POISON; 16])],
        expected,
    )
    .needing(Needs {
        int64: true,
        ..Needs::default()
    })
}

/// A declaration in a function or outside, and the name to use.
fn declared(space: &str, ty: &str) -> (String, String) {
    match space {
        "function" => (String::new(), format!("var v: {ty};")),
        _ => (format!("var<{space}> v: {ty};"), String::new()),
    }
}

/// Composites copied whole and by parts through memory of a space, which begins as zeros.
fn copy_row(space: &str) -> Row {
    let (outside, inside) = declared(space, "All");
    let text = format!(
        "struct Inner {{ a: array<vec3<u32>, 3>, b: mat2x3<f32>, c: bool }}
        struct All {{ x: u32, inner: array<Inner, 2>, y: vec2<bool> }}
        {outside}
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        fn parts(inner: Inner) -> u32 {{
            return inner.a[0].x + inner.a[1].y * 10u + inner.a[2].z * 100u + u32(inner.b[1].z) * 1000u + u32(inner.c) * 10000u;
        }}
        @compute @workgroup_size(1) fn main() {{
            {inside}
            out[0] = v.x + parts(v.inner[0]) + parts(v.inner[1]) + u32(any(v.y));
            let i = out[1];
            v.inner[i].a[i + 1u].z = 4u; v.inner[i].a[0] = vec3(1u, 2u, 3u); v.inner[i].c = true;
            v.inner[0] = v.inner[1];
            v.inner[1].b[1] = vec3<f32>(5.0, 6.0, 7.0); v.inner[1].a[i].y = 9u;
            let all = v;
            v.x = 77u; v.y[i] = true;
            out[2] = parts(all.inner[0]); out[3] = parts(all.inner[1]); out[4] = all.x + u32(all.y.y);
            out[5] = v.x + u32(v.y.y) * 100u + u32(v.y.x) * 1000u;
        }}"
    );
    let expected = [0, 1, 10_401, 17_491, 0, 177].map(Some).to_vec();
    fixed(
        &format!("copies in {space} memory"),
        &text,
        vec![bytes(&[POISON, 1, POISON, POISON, POISON, POISON])],
        expected,
    )
}

/// Reads out of range give some element or zero; writes change some element or none.
fn beyond_row(space: &str) -> Row {
    let (outside, inside) = declared(space, "array<u32, 4>");
    let text = format!(
        "{outside}
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @group(0) @binding(1) var<storage> at: array<i32>;
        @compute @workgroup_size(1) fn main() {{
            {inside}
            for (var i = 0u; i < 4u; i++) {{ v[i] = i + 1u; }}
            for (var i = 0u; i < 6u; i++) {{ out[i] = v[at[i]]; }}
            let vector = vec3(1u, 2u, 3u);
            out[6] = vector[at[0]]; out[7] = vector[at[2]];
            for (var i = 0u; i < 6u; i++) {{ v[at[i]] = 9u; }}
            for (var i = 0u; i < 4u; i++) {{ out[8u + i] = v[i]; }}
        }}"
    );
    Row::new(
        format!("out of range in {space} memory"),
        text,
        vec![
            bytes(&[POISON; 12]),
            bytes(&OUTSIDE.map(|index| index as u32)),
        ],
        move |buffers, _| {
            let mut wrong = Vec::new();
            for (index, got) in words(&buffers[0]).into_iter().enumerate() {
                let (allowed, expected) = match index {
                    0..6 => (got <= 4, "an element or zero"),
                    6..8 => (got <= 3, "a component or zero"),
                    _ => (
                        got == index as u32 - 7 || got == 9,
                        "the element or what was written",
                    ),
                };
                if !allowed {
                    let case = format!("result {index}");
                    wrong.push(Mismatch {
                        case,
                        got: got.to_string(),
                        expected: expected.to_owned(),
                    });
                }
            }
            wrong
        },
    )
}

/// Indices that are no elements of any array here.
const OUTSIDE: [i32; 6] = [-1, 4, 1000, i32::MIN, i32::MAX, 1 << 30];

/// As above for a bound range, with words before and behind it that must not change.
fn beyond_storage_row() -> Row {
    let text = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @group(0) @binding(1) var<storage> at: array<i32>;
        @group(0) @binding(2) var<storage, read_write> list: array<u32, 4>;
        @group(0) @binding(3) var<storage, read_write> tail: array<u32>;
        @compute @workgroup_size(1) fn main() {
            for (var i = 0u; i < 6u; i++) { out[i] = list[at[i]]; out[6u + i] = tail[at[i]]; }
            for (var i = 0u; i < 6u; i++) { list[at[i]] = 9u; tail[at[i]] = 9u; }
        }";
    let buffers = vec![
        bytes(&[POISON; 12]),
        bytes(&OUTSIDE.map(|index| index as u32)),
        bytes(&[1, 2, 3, 4]),
        bytes(&[1, 2, 3, 4]),
    ];
    Row::new(
        "out of range in storage memory",
        text,
        buffers,
        |buffers, _| {
            let mut wrong = Vec::new();
            for (index, got) in words(&buffers[0]).into_iter().enumerate() {
                if got > 4 {
                    let case = format!("result {index}");
                    wrong.push(Mismatch {
                        case,
                        got: got.to_string(),
                        expected: "an element or zero".to_owned(),
                    });
                }
            }
            for list in 2..4 {
                for (index, got) in words(&buffers[list]).into_iter().enumerate() {
                    if got != index as u32 + 1 && got != 9 {
                        let case = format!("element {index} of buffer {list}");
                        wrong.push(Mismatch {
                            case,
                            got: got.to_string(),
                            expected: "itself or what was written".to_owned(),
                        });
                    }
                }
            }
            wrong
        },
    )
}
