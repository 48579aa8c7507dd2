//! Work-group memory and barriers.

use crate::harness::Cpu;

#[test]
fn a_reduction_over_a_tree() {
    let cpu = Cpu::new();
    let source = "
        @group(0) @binding(0) var<storage, read> given: array<u32>;
        @group(0) @binding(1) var<storage, read_write> out: array<u32>;
        var<workgroup> part: array<u32, 64>;
        @compute @workgroup_size(64) fn main(
            @builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>
        ) {
            let doubled = 2u * given[group.x * 64u + i];
            part[i] = doubled;
            workgroupBarrier();
            for (var step = 32u; step > 0u; step >>= 1u) {
                if (i < step) { part[i] += part[i + step]; }
                workgroupBarrier();
            }
            out[group.x * 64u + i] = part[0] + doubled;
        }";
    let given: Vec<u32> = (0..640).map(|i| i * 31 % 97).collect();
    let poison = vec![1u32; 640];
    let out: Vec<u32> = cpu.run(
        source,
        [10, 1, 1],
        &[bytemuck::cast_slice(&given), bytemuck::cast_slice(&poison)],
    );
    for (i, &found) in out.iter().enumerate() {
        let group = &given[i / 64 * 64..][..64];
        assert_eq!(
            found,
            2 * group.iter().sum::<u32>() + 2 * given[i],
            "at {i}"
        );
    }
}

#[test]
fn matrices_by_tiles() {
    let cpu = Cpu::new();
    let source = "
        const N = 48u;
        @group(0) @binding(0) var<storage, read> a: array<f32>;
        @group(0) @binding(1) var<storage, read> b: array<f32>;
        @group(0) @binding(2) var<storage, read_write> c: array<f32>;
        var<workgroup> left: array<array<f32, 16>, 16>;
        var<workgroup> right: array<array<f32, 16>, 16>;
        @compute @workgroup_size(16, 16) fn main(
            @builtin(global_invocation_id) g: vec3<u32>, @builtin(local_invocation_id) l: vec3<u32>
        ) {
            var sum = 0.0;
            for (var t = 0u; t < N / 16u; t++) {
                left[l.y][l.x] = a[g.y * N + t * 16u + l.x];
                right[l.y][l.x] = b[(t * 16u + l.y) * N + g.x];
                workgroupBarrier();
                for (var k = 0u; k < 16u; k++) { sum += left[l.y][k] * right[k][l.x]; }
                workgroupBarrier();
            }
            c[g.y * N + g.x] = sum;
        }";
    let n = 48;
    let a: Vec<f32> = (0..n * n).map(|i| (i * 7 % 23) as f32 - 11.0).collect();
    let b: Vec<f32> = (0..n * n).map(|i| (i * 5 % 19) as f32 - 9.0).collect();
    let poison = vec![f32::NAN; n * n];
    let c: Vec<f32> = cpu.run(
        source,
        [3, 3, 1],
        &[
            bytemuck::cast_slice(&a),
            bytemuck::cast_slice(&b),
            bytemuck::cast_slice(&poison),
        ],
    );
    for y in 0..n {
        for x in 0..n {
            let expected: f32 = (0..n).map(|k| a[y * n + k] * b[k * n + x]).sum();
            assert_eq!(c[y * n + x], expected, "at {x}, {y}");
        }
    }
}

#[test]
fn barriers_in_branches_loops_and_functions_that_return_values() {
    let cpu = Cpu::new();
    let source = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        var<workgroup> cell: array<u32, 32>;
        var<workgroup> turn: u32;
        fn rotate(value: u32, i: u32) -> u32 {
            cell[i] = value;
            workgroupBarrier();
            let next = cell[(i + 1u) % 32u];
            workgroupBarrier();
            return next;
        }
        @compute @workgroup_size(32) fn main(
            @builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>
        ) {
            var value = i * 3u + group.x;
            let kept = value * value;
            if (group.x % 2u == 0u) { value = rotate(value, i) + 1u; } else { value = value + 1000u; }
            for (var k = 0u; k < group.x; k++) {
                if (i == k) { turn = value; }
                let shared_turn = workgroupUniformLoad(&turn);
                value = rotate(value ^ shared_turn, i);
            }
            out[group.x * 32u + i] = value + kept;
        }";
    let poison = vec![1u32; 32 * 5];
    let out: Vec<u32> = cpu.run(source, [5, 1, 1], &[bytemuck::cast_slice(&poison)]);
    for group in 0..5u32 {
        let mut values: Vec<u32> = (0..32).map(|i| i * 3 + group).collect();
        let kept: Vec<u32> = values.iter().map(|v| v * v).collect();
        if group % 2 == 0 {
            values.rotate_left(1);
            values.iter_mut().for_each(|v| *v += 1);
        } else {
            values.iter_mut().for_each(|v| *v += 1000);
        }
        for k in 0..group {
            let turn = values[k as usize];
            values.iter_mut().for_each(|v| *v ^= turn);
            values.rotate_left(1);
        }
        for i in 0..32 {
            assert_eq!(
                out[(group * 32) as usize + i],
                values[i] + kept[i],
                "group {group}, {i}"
            );
        }
    }
}

#[test]
fn invocations_that_have_returned_are_not_waited_for() {
    let cpu = Cpu::new();
    let source = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        var<workgroup> sum: atomic<u32>;
        @compute @workgroup_size(40) fn main(@builtin(local_invocation_index) i: u32) {
            if (i >= 33u) { return; }
            atomicAdd(&sum, i);
            workgroupBarrier();
            out[i] = atomicLoad(&sum) + i;
        }";
    let poison = vec![7u32; 40];
    let out: Vec<u32> = cpu.run(source, [1, 1, 1], &[bytemuck::cast_slice(&poison)]);
    let sum: u32 = (0..33).sum();
    let expected: Vec<u32> = (0..40).map(|i| if i < 33 { sum + i } else { 7 }).collect();
    assert_eq!(out, expected);
}

#[test]
fn work_group_memory_is_zero_for_every_work_group() {
    let cpu = Cpu::new();
    let source = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        var<workgroup> seen: array<u32, 16>;
        var<workgroup> flag: bool;
        @compute @workgroup_size(16) fn main(
            @builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>
        ) {
            out[group.x * 16u + i] = seen[i] + u32(flag);
            workgroupBarrier();
            seen[i] = 5u;
            flag = true;
        }";
    let poison = vec![7u32; 16 * 9];
    let out: Vec<u32> = cpu.run(source, [9, 1, 1], &[bytemuck::cast_slice(&poison)]);
    assert_eq!(out, vec![0; 16 * 9]);
}
