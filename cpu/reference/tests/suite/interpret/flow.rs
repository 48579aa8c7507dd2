//! Control flow, calls and pointers.

use super::run;

#[test]
fn loops_with_continue_break_and_return_in_them() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        fn first_multiple(base: u32, above: u32) -> u32 {
            var i = above;
            loop {
                i += 1u;
                if i % base != 0u { continue; }
                if i > 1000u { break; }
                return i;
                continuing { if i == 7777u { } }
            }
            return 0u;
        }
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var sum = 0u;
            for (var i = 0u; i < 10u; i++) {
                if i == id.x { continue; }
                for (var j = 0u; j < 10u; j++) {
                    if j > i { break; }
                    sum += 1u;
                }
            }
            var countdown = id.x;
            while countdown > 0u { countdown -= 1u; sum += 100u; }
            var turns = 0u;
            loop { turns += 1u; continuing { sum += 1000u; break if turns >= id.x + 2u; } }
            out[id.x] = sum * 10000u + first_multiple(7u, id.x * 10u);
        }";
    let expected: Vec<u32> = (0..4)
        .map(|id| {
            let nested: u32 = (0..10).filter(|i| *i != id).map(|i| i + 1).sum();
            let sum = nested + 100 * id + 1000 * (id + 2);
            sum * 10000 + (id * 10 + 1..).find(|i| i % 7 == 0).unwrap()
        })
        .collect();
    assert_eq!(run(text, 1, &[&[0; 4]]), expected);
}

#[test]
fn switches_with_shared_bodies_and_a_default_in_the_middle() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> out: array<i32>;
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) id: u32) {
            var result = 0;
            for (var turn = 0; turn < 3; turn++) {
                switch i32(id) - 2 {
                    case -1, 1: { result += 10; }
                    default: { result += 1; if turn == 1 { break; } result += 1; }
                    case 0: { continue; }
                    case 3: { result = 77; break; }
                }
                result += 100;
            }
            out[id] = result;
        }";
    let expected: Vec<u32> = (0..8)
        .map(|id| match id - 2 {
            -1 | 1 => 330,
            0 => 0,
            3 => 177,
            _ => 305,
        })
        .collect();
    assert_eq!(run(text, 1, &[&[9; 8]]), expected);
}

#[test]
fn pointers_into_arrays_structures_vectors_and_matrices() {
    let text = "
        struct Inner { a: array<vec3<f32>, 3>, m: mat3x2<f32> }
        struct Outer { n: u32, inner: array<Inner, 2> }
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        var<private> hidden: Outer;
        fn change(p: ptr<private, Inner>, at: u32) { (*p).a[at][at] = 5.0; (*p).m[at].y = 2.0; }
        fn bump(p: ptr<function, array<u32, 4>>, at: u32) -> u32 { (*p)[at] += 3u; return (*p)[at]; }
        @compute @workgroup_size(1) fn main() {
            hidden.n = 1u;
            let p = &hidden.inner[hidden.n];
            change(p, 2u);
            var list = array<u32, 4>(1, 2, 3, 4);
            let q = &list;
            let r = bump(q, 3u);
            let copy = hidden.inner[1];
            out[0] = u32(copy.a[2].z * 10.0 + copy.m[2].y);
            out[1] = r * 10u + list[3];
            out[2] = u32(hidden.inner[0].a[2].z);
            var v = vec4<i32>(1, 2, 3, 4);
            v[hidden.n] = -7;
            v.w = v.y;
            out[3] = u32(v.w + v.x + 100);
        }";
    assert_eq!(run(text, 1, &[&[9; 4]]), [52, 77, 0, 94]);
}

#[test]
fn a_variable_in_a_loop_is_zero_at_each_turn() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn main() {
            var sum = 0u;
            for (var i = 0u; i < 5u; i++) { var fresh: u32; fresh += i; sum += fresh; }
            out[0] = sum;
        }";
    assert_eq!(run(text, 1, &[&[9]]), [10]);
}

#[test]
fn results_of_modf_frexp_and_compare_exchange_have_their_members() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @group(0) @binding(1) var<storage, read_write> cell: array<atomic<u32>>;
        @compute @workgroup_size(1) fn main() {
            let parts = modf(-3.25);
            out[0] = u32(-parts.fract * 100.0);
            out[1] = u32(-parts.whole);
            let split = frexp(vec2(12.0, 0.25));
            out[2] = u32(split.fract.x * 100.0) + u32(split.exp.x) * 1000u;
            out[3] = u32(split.fract.y * 100.0) + u32(split.exp.y + 10) * 1000u;
            let no = atomicCompareExchangeWeak(&cell[0], 8u, 1u);
            out[4] = no.old_value * 10u + u32(no.exchanged);
            let yes = atomicCompareExchangeWeak(&cell[0], 9u, 1u);
            out[5] = yes.old_value * 10u + u32(yes.exchanged);
            out[6] = atomicLoad(&cell[0]);
            out[7] = atomicMax(&cell[1], 3u) + atomicSub(&cell[1], 1u);
        }";
    assert_eq!(
        run(text, 1, &[&[99; 8], &[9, 2]]),
        [25, 3, 4075, 9050, 90, 91, 1, 5]
    );
}
