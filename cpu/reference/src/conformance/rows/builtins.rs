//! Built-in values of compute shaders, barriers and `workgroupUniformLoad`.

use super::fixed;
use crate::conformance::row::Row;

pub fn rows() -> Vec<Row> {
    vec![identity_row(), barrier_row(), uniform_load_row()]
}

/// A row of several work-groups whose only buffer must hold given words.
fn in_order(name: &str, text: &str, workgroups: u32, expected: Vec<u32>) -> Row {
    let buffers = vec![vec![0xa5; expected.len() * 4]];
    let expected = expected.into_iter().map(Some).collect();
    fixed(name, text, buffers, expected).workgroups(workgroups)
}

/// Who an invocation is, by arguments and by members of a structure.
fn identity_row() -> Row {
    let text = "
        struct Who {
            @builtin(local_invocation_id) local: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
            @builtin(local_invocation_index) index: u32,
        }
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(3, 2, 2) fn main(
            who: Who, @builtin(workgroup_id) group: vec3<u32>, @builtin(global_invocation_id) at: vec3<u32>,
        ) {
            let base = (group.x * 12u + who.index) * 4u;
            out[base] = who.local.x + who.local.y * 10u + who.local.z * 100u + who.index * 1000u;
            out[base + 1u] = group.x + group.y * 10u + group.z * 100u;
            out[base + 2u] = at.x + at.y * 100u + at.z * 1000u;
            out[base + 3u] = who.groups.x + who.groups.y * 10u + who.groups.z * 100u;
        }";
    let mut expected = Vec::new();
    for group in 0..5 {
        for index in 0..12 {
            let (x, y, z) = (index % 3, index / 3 % 2, index / 6);
            expected.extend([
                x + y * 10 + z * 100 + index * 1000,
                group,
                group * 3 + x + y * 100 + z * 1000,
                5 + 10 + 100,
            ]);
        }
    }
    in_order("built-in values", text, 5, expected)
}

/// A sum by halves through work-group memory, and one through storage.
fn barrier_row() -> Row {
    let text = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        var<workgroup> tile: array<u32, 64>;
        @compute @workgroup_size(64) fn main(
            @builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>
        ) {
            tile[i] = (i + group.x) * (i + 1u);
            for (var half = 32u; half > 0u; half /= 2u) {
                workgroupBarrier();
                if i < half { tile[i] += tile[i + half]; }
            }
            workgroupBarrier();
            let base = group.x * 64u;
            out[base + i] = tile[0] + i;
            storageBarrier();
            let other = out[base + (i ^ 1u)];
            storageBarrier();
            out[base + i] += other * 2u;
        }";
    let mut expected = Vec::new();
    for group in 0..3u32 {
        let sum: u32 = (0..64).map(|i| (i + group) * (i + 1)).sum();
        expected.extend((0..64).map(|i| sum + i + (sum + (i ^ 1)) * 2));
    }
    in_order("barriers", text, 3, expected)
}

fn uniform_load_row() -> Row {
    let text = "
        struct Pair { a: u32, b: vec2<u32> }
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        var<workgroup> turns: u32;
        var<workgroup> pairs: array<Pair, 3>;
        @compute @workgroup_size(32) fn main(
            @builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>
        ) {
            if i == 7u { turns = group.x + 2u; }
            var sum = 0u;
            for (var turn = 0u; turn < workgroupUniformLoad(&turns); turn++) {
                if i == turn { pairs[turn % 3u] = Pair(turn, vec2(turn * 10u, turn * 100u)); }
                let pair = workgroupUniformLoad(&pairs[turn % 3u]);
                sum += pair.a + pair.b.x + pair.b.y;
            }
            out[group.x * 32u + i] = sum;
        }";
    let mut expected = Vec::new();
    for group in 0..4u32 {
        let sum: u32 = (0..group + 2).map(|turn| turn * 111).sum();
        expected.extend([sum; 32]);
    }
    in_order("workgroupUniformLoad", text, 4, expected)
}
