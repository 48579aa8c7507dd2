//! Operations of subgroups: the same results where invocations run side by side and where they run one by one.

use tombolo_cpu::Options;

use crate::harness::Cpu;

/// Invocations of a subgroup.
const SIZE: u32 = 8;

fn with(lanes: u32, schedule: Option<u64>) -> Cpu {
    let mut options = Options::default();
    options.lanes = lanes;
    options.schedule = schedule;
    Cpu::with(options)
}

/// Runs a body in one work-group of so many invocations, on devices of several numbers of lanes and orders. The body
/// leaves a word for each in `out[id]`, poisoned before.
fn check(declarations: &str, size: u32, body: &str, expected: impl Fn(u32) -> u32) {
    let source = format!(
        "{declarations}
         @group(0) @binding(0) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size({size}) fn main(
             @builtin(local_invocation_index) id: u32, @builtin(subgroup_invocation_id) lane: u32,
             @builtin(subgroup_id) group: u32, @builtin(num_subgroups) groups: u32, @builtin(subgroup_size) size: u32,
         ) {{ {body} }}"
    );
    let expected: Vec<u32> = (0..size).map(expected).collect();
    for (lanes, schedule) in [(1, None), (4, None), (8, None), (16, None), (8, Some(5))] {
        let poison = vec![0xdead_beef_u32; size as usize];
        let out: Vec<u32> =
            with(lanes, schedule).run(&source, [1, 1, 1], &[bytemuck::cast_slice(&poison)]);
        assert_eq!(out, expected, "{lanes} lanes, schedule {schedule:?}");
    }
}

/// The invocations of the subgroup of an invocation, in a work-group of so many.
fn members(id: u32, of: u32) -> std::ops::Range<u32> {
    let first = id / SIZE * SIZE;
    first..of.min(first + SIZE)
}

#[test]
fn subgroups_are_declared_with_their_size() {
    let instance = crate::harness::instance(Options::default());
    let adapter = pollster::block_on(instance.request_adapter(&Default::default())).unwrap();
    assert!(
        adapter
            .features()
            .contains(wgpu::Features::SUBGROUP | wgpu::Features::SUBGROUP_BARRIER)
    );
    let info = adapter.get_info();
    assert_eq!(
        (info.subgroup_min_size, info.subgroup_max_size),
        (SIZE, SIZE)
    );
}

#[test]
fn built_in_values() {
    for of in [64, 13] {
        check(
            "",
            of,
            "out[id] = lane + group * 100u + groups * 10000u + size * 1000000u;",
            |id| id % SIZE + id / SIZE * 100 + of.div_ceil(SIZE) * 10_000 + SIZE * 1_000_000,
        );
    }
}

#[test]
fn reductions_and_scans() {
    for of in [32, 20, 1] {
        check(
            "",
            of,
            "let v = id * 2654435761u;
             out[id] = subgroupAdd(v) ^ subgroupMax(v) ^ (subgroupMin(v) * 3u) ^ subgroupXor(v * 5u)
                 ^ (subgroupAnd(v | 7u) * 7u) ^ (subgroupOr(v) * 11u) ^ (subgroupMul(v | 1u) * 13u)
                 ^ (subgroupInclusiveAdd(v) * 17u) ^ (subgroupExclusiveAdd(v) * 19u)
                 ^ (subgroupInclusiveMul(v | 1u) * 23u) ^ (subgroupExclusiveMul(v | 1u) * 29u)
                 ^ bitcast<u32>(subgroupMin(bitcast<i32>(v)) * 31) ^ bitcast<u32>(subgroupMax(bitcast<i32>(v)) * 37);",
            |id| {
                let v = |id: u32| id.wrapping_mul(2_654_435_761);
                let all = || members(id, of).map(v);
                let to = |end: u32| (members(id, of).start..end).map(v);
                let sum = |values: &mut dyn Iterator<Item = u32>| values.fold(0, u32::wrapping_add);
                let product = |values: &mut dyn Iterator<Item = u32>| {
                    values.map(|v| v | 1).fold(1, u32::wrapping_mul)
                };
                let signed = || all().map(|v| v as i32);
                sum(&mut all())
                    ^ all().max().unwrap()
                    ^ all().min().unwrap().wrapping_mul(3)
                    ^ all().fold(0, |a, v| a ^ v.wrapping_mul(5))
                    ^ all().fold(u32::MAX, |a, v| a & (v | 7)).wrapping_mul(7)
                    ^ all().fold(0, |a, v| a | v).wrapping_mul(11)
                    ^ product(&mut all()).wrapping_mul(13)
                    ^ sum(&mut to(id + 1)).wrapping_mul(17)
                    ^ sum(&mut to(id)).wrapping_mul(19)
                    ^ product(&mut to(id + 1)).wrapping_mul(23)
                    ^ product(&mut to(id)).wrapping_mul(29)
                    ^ (signed().min().unwrap() as u32).wrapping_mul(31)
                    ^ (signed().max().unwrap() as u32).wrapping_mul(37)
            },
        );
    }
}

#[test]
fn floats_are_combined_in_the_order_of_invocations() {
    check(
        "enable f16;",
        16,
        "let v = 1.0f / f32(id + 3u);
         let sums = subgroupAdd(vec3(v, v * 7.0, -v));
         let half = subgroupInclusiveAdd(f16(v));
         out[id] = bitcast<u32>(sums.x + sums.y * 3.0 + sums.z * 5.0 + subgroupMin(v) * subgroupMax(v))
             ^ bitcast<u32>(f32(half) + subgroupExclusiveMul(v));",
        |id| {
            let v = |id: u32| 1.0 / (id + 3) as f32;
            let first = members(id, 16).start;
            let sum = |scale: f32| (first + 1..first + 8).fold(v(first) * scale, |a, i| a + v(i) * scale);
            let half = |x: f32| half::f16::from_f32(x);
            let sum_of_halves = (first + 1..=id).fold(half(v(first)), |a, i| {
                half::f16::from_f32(a.to_f32() + half(v(i)).to_f32())
            });
            let product = match id - first {
                0 => 1.0,
                _ => (first + 1..id).fold(v(first), |a, i| a * v(i)),
            };
            let extremes = v(first + 7) * v(first);
            (sum(1.0) + sum(7.0) * 3.0 + -sum(1.0) * 5.0 + extremes).to_bits()
                ^ (sum_of_halves.to_f32() + product).to_bits()
        },
    );
}

#[test]
fn wide_values_too() {
    check(
        "",
        24,
        "let v = u64(id) * 0x100000001lu;
         let sum = subgroupAdd(v) + subgroupShuffleXor(v, 5u);
         let d = subgroupMax(f64(id) * 0.25lf) + subgroupBroadcastFirst(f64(id));
         out[id] = u32(sum >> 32u) * 1000u + u32(sum & 0xfffflu) + u32(d * 4.0lf) * 100000u;",
        |id| {
            let first = members(id, 24).start;
            let sum: u32 = (first..first + 8).sum::<u32>() + (id ^ 5);
            sum * 1000 + sum + ((first + 7) + first * 4) * 100_000
        },
    );
}

#[test]
fn shuffles_broadcasts_and_quads() {
    check(
        "",
        32,
        "let v = vec2(id, id * 2u);
         var sum = subgroupShuffleXor(v, 3u).y * 3u + subgroupBroadcast(id, 5u) * 5u + subgroupBroadcastFirst(v).x * 7u
             + subgroupShuffle(id, (lane * 3u) % size) * 11u + quadSwapX(id) * 13u + quadSwapY(id) * 17u
             + quadSwapDiagonal(id) * 19u + quadBroadcast(id, 2u) * 23u;
         // Of invocations that are not there, one's own.
         sum += subgroupShuffleUp(id, 2u) * 29u + subgroupShuffleDown(id, 3u) * 31u;
         out[id] = sum;",
        |id| {
            let (first, lane) = (members(id, 32).start, id % SIZE);
            let up = if lane < 2 { id } else { id - 2 };
            let down = if lane + 3 >= SIZE { id } else { id + 3 };
            (id ^ 3) * 2 * 3
                + (first + 5) * 5
                + first * 7
                + (first + lane * 3 % SIZE) * 11
                + (id ^ 1) * 13
                + (id ^ 2) * 17
                + (id ^ 3) * 19
                + (id / 4 * 4 + 2) * 23
                + up * 29
                + down * 31
        },
    );
}

#[test]
fn only_those_that_come_along_take_part() {
    check(
        "",
        16,
        "var seen = 0u;
         for (var i = 0u; i < lane; i++) {
            if lane % 2u == 1u { seen = seen * 10u + countOneBits(subgroupBallot().x); }
            if i == 4u { continue; }
            if seen == 4321u { break; }
            seen += u32(subgroupAll(lane > 1u)) * 1000000u;
         }
         if lane == 3u { out[id] = subgroupAdd(7u); return; }
         out[id] = seen * 10u + subgroupMin(lane + subgroupAdd(select(0u, 1u, lane < 4u)));",
        |id| {
            // A model that goes pass by pass, with the invocations that are still there.
            let mut seen = [0u32; 8];
            let mut inside = [true; 8];
            for i in 0..8u32 {
                (0..8).for_each(|lane| inside[lane] &= i < lane as u32);
                let odd = (0..8).filter(|&lane| inside[lane] && lane % 2 == 1).count() as u32;
                for lane in (1..8).step_by(2).filter(|&lane| inside[lane]) {
                    seen[lane] = seen[lane].wrapping_mul(10).wrapping_add(odd);
                }
                if i == 4 {
                    continue;
                }
                (0..8).for_each(|lane| inside[lane] &= seen[lane] != 4321);
                let all = (0..8).all(|lane| !inside[lane] || lane > 1);
                for lane in (0..8).filter(|&lane| inside[lane]) {
                    seen[lane] = seen[lane].wrapping_add(u32::from(all) * 1_000_000);
                }
            }
            match id % 8 {
                3 => 7,
                // The sum of the other lanes' numbers below four is added to each: the least is that of lane 0.
                lane => seen[lane as usize].wrapping_mul(10).wrapping_add(3),
            }
        },
    );
}

#[test]
fn passes_of_loops_part_those_that_skip_ahead() {
    // An invocation that continues is in a later pass: it waits there for those that are still in this one.
    check(
        "",
        16,
        "var sum = 0u;
         for (var i = 0u; i < 6u; i++) {
             if (lane + i) % 3u == 0u { continue; }
             for (var j = 0u; j < lane % 4u; j++) {
                 sum = sum * 3u + subgroupAdd(lane + i + j);
             }
             sum = sum * 5u + subgroupMax(lane * 2u + i);
         }
         out[id] = sum;",
        |id| {
            let mut sums = [0u32; 8];
            for i in 0..6u32 {
                let here: Vec<u32> = (0..8)
                    .filter(|lane| !(lane + i).is_multiple_of(3))
                    .collect();
                for j in 0..3 {
                    let there = || here.iter().copied().filter(|lane| j < lane % 4);
                    let all: u32 = there().map(|lane| lane + i + j).sum();
                    for lane in there() {
                        let sum = &mut sums[lane as usize];
                        *sum = sum.wrapping_mul(3).wrapping_add(all);
                    }
                }
                let most = here.iter().map(|lane| lane * 2 + i).max().unwrap();
                for &lane in &here {
                    let sum = &mut sums[lane as usize];
                    *sum = sum.wrapping_mul(5).wrapping_add(most);
                }
            }
            sums[id as usize % 8]
        },
    );
}

#[test]
fn the_continuing_part_of_a_pass_comes_before_the_next_pass() {
    // Invocations that have nothing to do in `continuing` are in the next pass at once, and wait there for the others. In
    // work-groups of four, invocations run one by one whatever the number of lanes.
    for of in [16, 4] {
        check(
            "",
            of,
            "var sum = 0u;
             var i = 0u;
             loop {
                 sum = sum * 3u + subgroupAdd(lane + i + 1u);
                 continuing {
                     i++;
                     if (lane + i) % 2u == 0u {
                         sum = sum * 5u + subgroupMax(lane * 2u + i);
                         // Of an invocation that takes no part, one's own.
                         sum = sum * 7u + quadSwapX(lane + 1u);
                     } else {
                         for (var j = 0u; j < lane % 3u; j++) { sum = sum * 11u + subgroupAdd(j + i); }
                     }
                     break if i > lane % 5u;
                 }
             }
             out[id] = sum + subgroupXor(1u << lane) * 1000003u;",
            |id| {
                let size = of.min(SIZE);
                let mut sums = [0u32; SIZE as usize];
                let mut add = |lane: u32, times: u32, more: u32| {
                    let sum = &mut sums[lane as usize];
                    *sum = sum.wrapping_mul(times).wrapping_add(more);
                };
                let mut inside: Vec<u32> = (0..size).collect();
                for i in 1..=5u32 {
                    let all = inside.iter().map(|lane| lane + i).sum();
                    inside.iter().for_each(|&lane| add(lane, 3, all));
                    let (even, odd): (Vec<u32>, Vec<u32>) =
                        inside.iter().partition(|&lane| (lane + i).is_multiple_of(2));
                    for &lane in &even {
                        add(lane, 5, even.last().unwrap() * 2 + i);
                        add(lane, 7, lane + 1);
                    }
                    for j in 0..2 {
                        let there: Vec<u32> =
                            odd.iter().copied().filter(|lane| j < lane % 3).collect();
                        let all = there.len() as u32 * (j + i);
                        there.iter().for_each(|&lane| add(lane, 11, all));
                    }
                    inside.retain(|lane| i <= lane % 5);
                }
                let everyone = (1u32 << size) - 1;
                sums[(id % SIZE) as usize].wrapping_add(everyone.wrapping_mul(1_000_003))
            },
        );
    }
}

#[test]
fn switches_and_functions_with_operations_inside() {
    check(
        "fn combined(x: u32, way: u32) -> u32 {
             switch way % 3u {
                 case 0u: { return subgroupAdd(x); }
                 case 1u: { if x > 9u { return 1u; } return subgroupMax(x) * 100u; }
                 default: { return combined_more(x) + subgroupMin(x); }
             }
         }
         fn combined_more(x: u32) -> u32 { return subgroupXor(x) * 1000u; }",
        24,
        "out[id] = combined(id, lane) + subgroupAdd(1u) * 1000000u;",
        |id| {
            let group = || members(id, 24);
            let way = |id: u32| id % 8 % 3;
            let there = |w: u32| group().filter(move |&id| way(id) == w);
            let value = match way(id) {
                0 => there(0).sum(),
                1 if id > 9 => 1,
                1 => there(1).filter(|&id| id <= 9).max().unwrap() * 100,
                _ => there(2).fold(0, |a, b| a ^ b) * 1000 + there(2).min().unwrap(),
            };
            value + 8_000_000
        },
    );
}

#[test]
fn barriers_of_both_kinds_among_operations() {
    for of in [64, 20] {
        check(
            "var<workgroup> shared_words: array<u32, 64>;
             var<workgroup> total: atomic<u32>;",
            of,
            "shared_words[id] = id + 1u;
             subgroupBarrier();
             var sum = 0u;
             for (var i = 0u; i < size; i++) {
                 let at = group * size + i;
                 if at < ORDER { sum += shared_words[at]; }
             }
             if lane == 0u { atomicAdd(&total, subgroupAdd(sum)); }
             workgroupBarrier();
             out[id] = sum * 10000u + atomicLoad(&total) + subgroupMax(id);"
                .replace("ORDER", &format!("{of}u"))
                .as_str(),
            |id| {
                let sum: u32 = members(id, of).map(|id| id + 1).sum();
                let total: u32 = (1..=of).sum();
                sum * 10_000 + total + members(id, of).last().unwrap()
            },
        );
    }
}

#[test]
fn the_sanitizer_knows_barriers_of_subgroups() {
    let source = |last: u32| {
        format!(
            "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
             var<workgroup> words: array<u32, 16>;
             @compute @workgroup_size(16) fn main(@builtin(local_invocation_index) id: u32) {{
                 words[id] = id;
                 subgroupBarrier();
                 out[id] = words[id ^ {last}u] + subgroupAdd(1u);
             }}"
        )
    };
    let mut options = Options::default();
    options.sanitizer = Some(Default::default());
    let cpu = Cpu::with(options);
    let poison = [7u32; 16];
    let out: Vec<u32> = cpu.run(&source(7), [1, 1, 1], &[bytemuck::cast_slice(&poison)]);
    let expected: Vec<u32> = (0..16).map(|id| (id ^ 7) + 8).collect();
    assert_eq!((cpu.findings(), out), (Vec::new(), expected));
    // Another subgroup has not waited.
    cpu.run::<u32>(&source(15), [1, 1, 1], &[bytemuck::cast_slice(&poison)]);
    let findings = cpu.findings();
    assert!(
        matches!(
            findings[..],
            [tombolo_cpu::sanitizer::Finding {
                kind: tombolo_cpu::sanitizer::FindingKind::Race { .. },
                ..
            }]
        ),
        "{findings:?}"
    );
}
