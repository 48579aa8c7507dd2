//! Operations of subgroups, where the device has them: judged by what each invocation says of itself, since sizes are the
//! device's own.

use std::collections::BTreeMap;

use crate::cases;
use crate::harness::Fixture;
use tombolo::{Constants, DeviceBuffer, Program, device::Aspect};

cases![
    invocations_of_a_subgroup_combine_their_values,
    only_some_take_part_in_divergent_flow,
    a_barrier_orders_memory_of_the_work_group,
];

const GROUP: u32 = 64;
const COUNT: u32 = 2 * GROUP;

/// An invocation as it says itself.
struct Member {
    index: usize,
    lane: u32,
}

/// Runs a body that leaves a word in `out[at]`. Returns the words, and the members of each subgroup by their lanes; `None` where
/// the device has no subgroups.
fn run(f: &Fixture, declarations: &str, body: &str) -> Option<(Vec<u32>, Vec<Vec<Member>>)> {
    if !f.device.has(Aspect::Subgroups) {
        return None;
    }
    let source = format!(
        "{declarations}
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @group(0) @binding(1) var<storage, read_write> who: array<vec2<u32>>;
        @compute @workgroup_size({GROUP}) fn main(
            @builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32,
            @builtin(workgroup_id) group: vec3<u32>, @builtin(subgroup_id) subgroup: u32,
            @builtin(subgroup_invocation_id) lane: u32, @builtin(subgroup_size) size: u32,
        ) {{
            let at = id.x;
            who[at] = vec2(group.x * 1000u + subgroup, lane * 1000u + size);
            {body}
        }}"
    );
    let program = Program::new("subgroups.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    let kernel = f.device.kernel(&program, "main", &Constants::new());
    let kernel = kernel.unwrap_or_else(|e| panic!("{e}"));
    let out: DeviceBuffer<u32> = f.device.buffer(&[0xdead_beef; COUNT as usize]).unwrap();
    let who: DeviceBuffer<u32> = f.device.zeroed(2 * COUNT as usize).unwrap();
    let launch = kernel.launch().buffer("out", &out).buffer("who", &who);
    launch
        .invocations(u64::from(COUNT))
        .submit()
        .unwrap()
        .wait()
        .unwrap();
    let mut subgroups: BTreeMap<u32, Vec<Member>> = BTreeMap::new();
    let capabilities = f.device.capabilities();
    for (index, words) in who.read().unwrap().chunks(2).enumerate() {
        let (lane, size) = (words[1] / 1000, words[1] % 1000);
        let sizes = capabilities.subgroup_min_size..=capabilities.subgroup_max_size;
        assert!(
            lane < size && sizes.contains(&size),
            "lane {lane} of {size}"
        );
        subgroups
            .entry(words[0])
            .or_default()
            .push(Member { index, lane });
    }
    for members in subgroups.values_mut() {
        members.sort_by_key(|member| member.lane);
        assert!(members.windows(2).all(|pair| pair[0].lane < pair[1].lane));
    }
    Some((out.read().unwrap(), subgroups.into_values().collect()))
}

fn invocations_of_a_subgroup_combine_their_values(f: &Fixture) {
    let body = "
        let v = at * 2654435761u;
        out[at] = subgroupAdd(v) ^ subgroupMax(v) * 3u ^ subgroupExclusiveAdd(v) * 5u ^ subgroupShuffleXor(v, 1u) * 7u
            ^ subgroupBroadcastFirst(v) * 11u ^ u32(subgroupAny(v % 7u == 0u)) * 13u ^ quadSwapX(v) * 17u;";
    let Some((out, subgroups)) = run(f, "", body) else {
        return;
    };
    let value = |member: &Member| (member.index as u32).wrapping_mul(2_654_435_761);
    for members in subgroups {
        let sum = |members: &[Member]| members.iter().map(value).fold(0, u32::wrapping_add);
        let most = members.iter().map(value).max().unwrap();
        let any = members.iter().any(|member| value(member) % 7 == 0);
        for (place, member) in members.iter().enumerate() {
            let beside = members.iter().find(|other| other.lane == member.lane ^ 1);
            let beside = value(beside.expect("pairs of lanes"));
            let expected = sum(&members)
                ^ most.wrapping_mul(3)
                ^ sum(&members[..place]).wrapping_mul(5)
                ^ beside.wrapping_mul(7)
                ^ value(&members[0]).wrapping_mul(11)
                ^ (u32::from(any) * 13)
                ^ beside.wrapping_mul(17);
            assert_eq!(out[member.index], expected, "invocation {}", member.index);
        }
    }
}

fn only_some_take_part_in_divergent_flow(f: &Fixture) {
    let body = "
        var sum = 7u;
        if lane % 3u == 1u {
            let ballot = countOneBits(subgroupBallot(at % 2u == 0u));
            sum = subgroupAdd(at) * 100u + ballot.x + ballot.y + ballot.z + ballot.w;
        }
        out[at] = sum;";
    let Some((out, subgroups)) = run(f, "", body) else {
        return;
    };
    for members in subgroups {
        let there: Vec<u32> = (members.iter())
            .filter(|member| member.lane % 3 == 1)
            .map(|member| member.index as u32)
            .collect();
        let even = there.iter().filter(|at| *at % 2 == 0).count() as u32;
        for member in &members {
            let expected = match member.lane % 3 {
                1 => there.iter().sum::<u32>() * 100 + even,
                _ => 7,
            };
            assert_eq!(out[member.index], expected, "invocation {}", member.index);
        }
    }
}

fn a_barrier_orders_memory_of_the_work_group(f: &Fixture) {
    if !f.device.has(Aspect::SubgroupBarrier) {
        return;
    }
    let declarations = format!("var<workgroup> words: array<u32, {GROUP}>;");
    let body = "
        // Who reads is of the subgroup: the place is told by the one that has written.
        let place = subgroupShuffleXor(local, 1u);
        words[local] = at * 3u;
        subgroupBarrier();
        out[at] = words[place];";
    let Some((out, subgroups)) = run(f, &declarations, body) else {
        return;
    };
    for members in subgroups {
        for member in &members {
            let beside = members.iter().find(|other| other.lane == member.lane ^ 1);
            let beside = beside.expect("pairs of lanes").index as u32;
            assert_eq!(out[member.index], beside * 3, "invocation {}", member.index);
        }
    }
}
