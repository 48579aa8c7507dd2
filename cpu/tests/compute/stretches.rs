//! What goes on over barriers: what all invocations share and what each keeps for itself, in loops that all leave together.

use tombolo_cpu::Options;

use crate::harness::Cpu;

const SIZE: usize = 32;
/// What every word of `out` is before a kernel runs.
const POISON: u32 = 0xdead_beef;

/// Runs a kernel with any number of lanes and, in another order, invocation by invocation. All must agree with `expected`.
fn check(source: &str, given: &[u32], expected: &[u32]) {
    for (lanes, schedule) in [(1, None), (4, None), (8, None), (32, None), (8, Some(5))] {
        let mut options = Options::default();
        options.lanes = lanes;
        options.schedule = schedule;
        let cpu = Cpu::with(options);
        let pipeline = cpu.pipeline(source);
        // What is loaded from any other buffer may change between barriers.
        let uniform = cpu.uniform(bytemuck::cast_slice(given));
        let out = cpu.buffer(bytemuck::cast_slice(&[POISON; SIZE]));
        let group = cpu.group(&pipeline, &[&uniform, &out]);
        cpu.dispatch(&pipeline, &group, [1, 1, 1]);
        assert_eq!(
            cpu.read::<u32>(&out),
            expected,
            "{lanes} lanes, schedule {schedule:?}, {given:?}"
        );
    }
}

#[test]
fn variables_in_loops_that_are_left_in_two_places() {
    let source = "
        @group(0) @binding(0) var<uniform> limits: vec4<u32>;
        @group(0) @binding(1) var<storage, read_write> out: array<u32>;
        var<workgroup> ring: array<u32, 32>;
        @compute @workgroup_size(32) fn main(@builtin(local_invocation_index) i: u32) {
            var kept = i * 3u;
            var odd = false;
            let rounds = limits[0];
            ring[i] = i;
            workgroupBarrier();
            var round = 0u;
            loop {
                if (round == rounds) { break; }
                let left = ring[(i + 1u) % 32u];
                let mine = kept ^ round;
                if (round == limits[1]) { kept += 1000u; break; }
                workgroupBarrier();
                if (i > round) { kept += left; } else if (i == round) { odd = !odd; }
                ring[i] = mine + left;
                let before = round;
                round += 1u;
                kept += before * round;
                workgroupBarrier();
            }
            out[i] = kept + select(0u, 7u, odd) + round * 100000u + ring[31u - i];
        }";
    for limits in [[5, 9], [5, 3], [0, 0], [7, 0], [40, 33]] {
        let limits = [limits[0], limits[1], 0, 0];
        let mut kept: Vec<u32> = (0..32).map(|i| i * 3).collect();
        let mut odd = [false; SIZE];
        let mut ring: Vec<u32> = (0..32).collect();
        let mut round = 0;
        while round != limits[0] {
            if round == limits[1] {
                kept.iter_mut().for_each(|kept| *kept += 1000);
                break;
            }
            let before = ring.clone();
            for i in 0..SIZE {
                let left = before[(i + 1) % SIZE];
                ring[i] = (kept[i] ^ round).wrapping_add(left);
                if i as u32 > round {
                    kept[i] = kept[i].wrapping_add(left);
                } else if i as u32 == round {
                    odd[i] = !odd[i];
                }
                kept[i] = kept[i].wrapping_add(round * (round + 1));
            }
            round += 1;
        }
        let expected: Vec<u32> = (0..SIZE)
            .map(|i| {
                kept[i]
                    .wrapping_add(7 * u32::from(odd[i]))
                    .wrapping_add(round * 100_000)
                    .wrapping_add(ring[31 - i])
            })
            .collect();
        check(source, &limits, &expected);
    }
}

#[test]
fn a_counter_that_a_stretch_reads_before_and_behind_its_step() {
    let source = "
        @group(0) @binding(0) var<uniform> given: array<vec4<u32>, 9>;
        @group(0) @binding(1) var<storage, read_write> out: array<u32>;
        var<workgroup> words: array<u32, 32>;
        @compute @workgroup_size(32) fn main(@builtin(local_invocation_index) i: u32) {
            var step = 1u;
            var sum = 0u;
            words[i] = given[i / 4u][i % 4u];
            workgroupBarrier();
            for (var turn = 0u; turn < given[8].x; turn++) {
                if (i % 3u == turn % 3u) { sum += step * words[i ^ step]; }
                step *= 2u;
                if (i < step) { sum += step; }
                if (step == 32u) { step = 1u; }
                workgroupBarrier();
                if (i == turn) { words[i] = sum; }
                if (turn < i) { sum += 1u; }
                workgroupBarrier();
            }
            out[i] = sum * 64u + step;
        }";
    for turns in [0, 1, 12] {
        let mut given: Vec<u32> = (0..32).map(|i| i * 7 % 11).collect();
        given.extend([turns, 0, 0, 0]);
        let mut words = given[..SIZE].to_vec();
        let (mut step, mut sums) = (1u32, [0u32; SIZE]);
        for turn in 0..turns {
            let before = words.clone();
            for (i, sum) in sums.iter_mut().enumerate() {
                if i as u32 % 3 == turn % 3 {
                    *sum = sum.wrapping_add(step.wrapping_mul(before[i ^ step as usize]));
                }
                if (i as u32) < step * 2 {
                    *sum = sum.wrapping_add(step * 2);
                }
                if i as u32 == turn {
                    words[i] = *sum;
                }
                *sum = sum.wrapping_add(u32::from(turn < i as u32));
            }
            step = if step == 16 { 1 } else { step * 2 };
        }
        let expected: Vec<u32> = (0..SIZE)
            .map(|i| sums[i].wrapping_mul(64).wrapping_add(step))
            .collect();
        check(source, &given, &expected);
    }
}

/// A kernel with `limits`, `out` and the words `ring` of the work-group; all variables begin at zero.
fn kernel(body: &str) -> String {
    format!(
        "@group(0) @binding(0) var<uniform> limits: vec4<u32>;
        @group(0) @binding(1) var<storage, read_write> out: array<u32>;
        var<workgroup> ring: array<u32, 32>;
        @compute @workgroup_size(32) fn main(@builtin(local_invocation_index) i: u32) {{
            var k = 0u;
            var mine = 0u;
            {body}
        }}"
    )
}

/// What every invocation reads of its counterpart behind a barrier, added to its own word.
fn exchanged(words: &[u32]) -> Vec<u32> {
    let pairs = words.iter().zip(words.iter().rev());
    pairs.map(|(own, other)| own.wrapping_add(*other)).collect()
}

#[test]
fn loops_without_barriers_that_may_leave_what_has_one() {
    let source = kernel(
        "loop {
            if (k == limits[0]) { return; }
            out[i] += i + k;
            if (k == limits[1]) { break; }
            k += 1u;
        }
        ring[31u - i] = out[i];
        workgroupBarrier();
        out[i] += ring[i] + k;",
    );
    for [first, second] in [[9, 2], [2, 9], [9, 0], [0, 0], [5, 5]] {
        let words = |i: u32| {
            let passes = if first <= second { first } else { second + 1 };
            (0..passes).fold(POISON, |word, k| word.wrapping_add(i + k))
        };
        let words: Vec<u32> = (0..32).map(words).collect();
        let expected = match first <= second {
            true => words,
            false => (exchanged(&words).iter())
                .map(|word| word.wrapping_add(second))
                .collect(),
        };
        check(&source, &[first, second, 0, 0], &expected);
    }
}

#[test]
fn passes_that_are_continued_in_loops_that_may_leave_what_has_a_barrier() {
    let source = kernel(
        "loop {
            k += 1u;
            if (k == limits[0]) { return; }
            if (k % 2u == 0u) { continue; }
            out[i] += i * k;
            if (k > limits[1]) { break; }
        }
        ring[31u - i] = out[i];
        workgroupBarrier();
        out[i] += ring[i];",
    );
    for [first, second] in [[90, 4], [4, 90], [1, 9], [90, 0]] {
        let (mut k, mut words) = (0, [POISON; SIZE]);
        let returned = loop {
            k += 1;
            if k == first {
                break true;
            }
            if k % 2 == 0 {
                continue;
            }
            for (i, word) in (0..).zip(&mut words) {
                *word = word.wrapping_add(i * k);
            }
            if k > second {
                break false;
            }
        };
        let expected = match returned {
            true => words.to_vec(),
            false => exchanged(&words),
        };
        check(&source, &[first, second, 0, 0], &expected);
    }
}

#[test]
fn switches_that_some_passes_leave_for_the_next_one() {
    let source = kernel(
        "loop {
            switch (limits[2] + k) % 3u {
                case 0u: {
                    out[i] += i;
                    if (k == limits[0]) { k += 2u; continue; }
                    out[i] ^= k;
                    if (k >= limits[1]) { break; }
                    out[i] += 3u;
                }
                default: { out[i] += 5u + i; }
            }
            k += 1u;
            if (k > 8u) { break; }
            ring[31u - i] = out[i];
            workgroupBarrier();
            out[i] += ring[i];
            workgroupBarrier();
        }",
    );
    for [first, second, third] in [[3, 6, 0], [0, 0, 0], [4, 1, 2], [99, 99, 1]] {
        let (mut k, mut words) = (0u32, vec![POISON; SIZE]);
        loop {
            let is_case = (third + k) % 3 == 0;
            for (i, word) in (0..).zip(&mut words) {
                if !is_case {
                    *word = word.wrapping_add(5 + i);
                    continue;
                }
                *word = word.wrapping_add(i);
                if k != first {
                    *word ^= k;
                    if k < second {
                        *word = word.wrapping_add(3);
                    }
                }
            }
            if is_case && k == first {
                k += 2;
                continue;
            }
            k += 1;
            if k > 8 {
                break;
            }
            words = exchanged(&words);
        }
        check(&source, &[first, second, third, 0], &words);
    }
}

#[test]
fn values_of_a_pass_in_the_continuing_part_of_a_loop_that_may_leave_what_has_a_barrier() {
    let source = kernel(
        "loop {
            if (k == limits[0]) { return; }
            let v = out[i];
            out[i] = v + i;
            continuing { mine += v * 3u; k += 1u; break if k == limits[1]; }
        }
        ring[31u - i] = out[i];
        workgroupBarrier();
        out[i] += ring[i] + mine;",
    );
    for [first, second] in [[9, 3], [2, 9], [9, 1], [0, 5]] {
        let mut results = vec![POISON; SIZE];
        let mut sums = [0u32; SIZE];
        let mut k = 0;
        let returned = loop {
            if k == first {
                break true;
            }
            for (i, (word, sum)) in (0..).zip(results.iter_mut().zip(&mut sums)) {
                *sum = sum.wrapping_add(word.wrapping_mul(3));
                *word = word.wrapping_add(i);
            }
            k += 1;
            if k == second {
                break false;
            }
        };
        if !returned {
            let all = exchanged(&results);
            results = (all.iter().zip(sums))
                .map(|(word, sum)| word.wrapping_add(sum))
                .collect();
        }
        check(&source, &[first, second, 0, 0], &results);
    }
}
