//! Layouts, views of buffers, and accesses out of range.

use naga::proc::BoundsCheckPolicy;
use tombolo_cpu_reference::fault::Fault;
use tombolo_cpu_reference::interpret::{Detect, Options};
use tombolo_cpu_reference::report::FindingKind;

use super::{run, run_with};

#[test]
fn members_lie_where_wgsl_puts_them() {
    // Offsets by WGSL's rules: a 0, b 16, c 28, d 32 (columns of 8 bytes), e 56, f 64 (stride 16), size 96.
    let text = "
        struct S { a: u32, b: vec3<u32>, c: u32, d: mat3x2<f32>, e: u32, f: array<vec3<u32>, 2> }
        @group(0) @binding(0) var<storage, read_write> s: S;
        @compute @workgroup_size(1) fn main() {
            s.a = 1u; s.b = vec3(2u, 3u, 4u); s.c = 5u;
            s.d = mat3x2<f32>(vec2(1.0, 2.0), vec2(3.0, 4.0), vec2(5.0, 6.0));
            s.e = 6u; s.f = array<vec3<u32>, 2>(vec3(7u), vec3(8u));
        }";
    let f = |value: f32| value.to_bits();
    let expected = [
        1,
        9,
        9,
        9,
        2,
        3,
        4,
        5,
        f(1.0),
        f(2.0),
        f(3.0),
        f(4.0),
        f(5.0),
        f(6.0),
        6,
        9,
        7,
        7,
        7,
        9,
        8,
        8,
        8,
        9,
    ];
    assert_eq!(run(text, 1, &[&[9; 24]]), expected);
}

#[test]
fn array_length_counts_whole_elements_behind_a_fixed_part() {
    let text = "
        struct S { head: vec4<u32>, tail: array<vec3<u32>> }
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @group(0) @binding(1) var<storage, read_write> s: S;
        @compute @workgroup_size(1) fn main() { out[0] = arrayLength(&s.tail); out[1] = arrayLength(&out); }";
    // (84 − 16) / 16 is 4 and a rest.
    assert_eq!(run(text, 1, &[&[0; 3], &[0; 21]]), [4, 3, 0]);
}

const BEYOND: &str = "
    @group(0) @binding(0) var<storage, read_write> out: array<u32>;
    @group(0) @binding(1) var<storage, read_write> at: array<i32>;
    @compute @workgroup_size(1) fn main() {
        var list = array<u32, 4>(1, 2, 3, 4);
        out[0] = list[at[0]];
        list[at[0]] = 50u;
        out[1] = list[3];
        out[2] = out[at[1]];
        out[at[1]] = 60u;
        let v = vec4(5u, 6u, 7u, 8u);
        out[3] = v[at[0]];
    }";

fn beyond(policy: BoundsCheckPolicy) -> Result<(Vec<Vec<u32>>, Vec<FindingKind>), Fault> {
    let mut options = Options {
        detect: Detect {
            out_of_range: true,
            ..Detect::default()
        },
        ..Options::default()
    };
    options.policies.index = policy;
    options.policies.buffer = policy;
    let (buffers, outcome) = run_with(
        BEYOND,
        1,
        &[&[9, 9, 9, 9, 40], &[-1i32 as u32, 1000]],
        options,
    )?;
    Ok((
        buffers,
        outcome
            .findings
            .into_iter()
            .map(|finding| finding.kind)
            .collect(),
    ))
}

#[test]
fn out_of_range_accesses_follow_the_policy_and_are_found() {
    let (buffers, findings) = beyond(BoundsCheckPolicy::Restrict).unwrap();
    assert_eq!(buffers[0], [4, 50, 40, 8, 60]);
    let found = |index, length| FindingKind::OutOfRange { index, length };
    assert_eq!(
        findings,
        [
            found(-1, 4),
            found(-1, 4),
            found(1000, 5),
            found(1000, 5),
            found(-1, 4)
        ]
    );

    let (buffers, findings) = beyond(BoundsCheckPolicy::ReadZeroSkipWrite).unwrap();
    assert_eq!(buffers[0], [0, 4, 0, 0, 40]);
    assert_eq!(findings.len(), 5);

    let fault = beyond(BoundsCheckPolicy::Unchecked).unwrap_err();
    assert!(
        matches!(
            fault,
            Fault::OutOfRange {
                index: -1,
                length: 4,
                ..
            }
        ),
        "{fault}"
    );
}

#[test]
fn narrow_and_wide_scalars_lie_in_their_own_width() {
    let text = "
        enable f16;
        struct S { h: f16, i: vec3<f16>, l: i64, d: f64, u: u64 }
        @group(0) @binding(0) var<storage, read_write> s: S;
        @compute @workgroup_size(1) fn main() {
            s.h = 1.5h; s.i = vec3(s.h, 2.0h, -0.5h); s.l = -2li; s.d = f64(s.h) * 2.0lf; s.u = u64(s.l);
        }";
    // h 0, i 8 (3 × 2 bytes), l 16, d 24, u 32.
    let d = 3.0f64.to_bits();
    let expected = [
        0x0009_3e00u32,
        9,
        0x4000_3e00,
        0x0000_b800,
        !1,
        !0,
        d as u32,
        (d >> 32) as u32,
        !1,
        !0,
    ];
    let mut got = run(text, 1, &[&[9; 10]]);
    // The bytes behind `h` and `i` are padding and keep what was there.
    assert_eq!(got[0] & 0xffff, expected[0] & 0xffff);
    got[0] = expected[0];
    assert_eq!(got, expected);
}

#[test]
fn endless_loops_end_in_a_fault() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn main() { loop { out[0] += 1u; if out[0] == 0u { break; } } }";
    let options = Options {
        step_limit: 10_000,
        ..Options::default()
    };
    assert_eq!(
        run_with(text, 1, &[&[0]], options).unwrap_err(),
        Fault::StepLimit { limit: 10_000 }
    );
}
