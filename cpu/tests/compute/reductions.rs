//! Kernels that count: many threads add to the same words, where adding is all that is done with a buffer, and where it is
//! not. Expected values are computed in Rust; no number of threads or work-groups may show.

use tombolo_cpu::Options;
use wgpu::util::DeviceExt as _;

use crate::harness::Cpu;

/// A device that runs so many work-groups side by side.
fn with_threads(threads: usize) -> Cpu {
    let mut options = Options::default();
    options.threads = Some(threads);
    Cpu::with(options)
}

/// What an invocation counts: spread, and with more in some places than in others.
fn scattered(index: u32) -> u32 {
    let mixed = index.wrapping_mul(2_654_435_761);
    (mixed ^ mixed >> 15) & mixed >> 7
}

const SCATTERED: &str =
    "fn scattered(i: u32) -> u32 { let m = i * 2654435761u; return (m ^ (m >> 15u)) & (m >> 7u); }";

#[test]
fn every_count_arrives_with_any_number_of_threads() {
    let source = format!(
        "{SCATTERED}
         @group(0) @binding(0) var<storage, read_write> bins: array<atomic<u32>>;
         @group(0) @binding(1) var<storage, read_write> bits: array<atomic<u32>>;
         @group(0) @binding(2) var<storage, read_write> odd: array<atomic<u32>>;
         @group(0) @binding(3) var<storage, read_write> most: array<atomic<u32>>;
         @group(0) @binding(4) var<storage, read_write> wide: array<atomic<u64>>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
             let word = scattered(id.x);
             let bin = word % arrayLength(&bins);
             atomicAdd(&bins[bin], id.x);
             if word % 3u == 0u {{ atomicSub(&bins[bin], 7u); }}
             atomicOr(&bits[bin], 1u << (id.x % 32u));
             atomicXor(&odd[bin], word);
             atomicMax(&most[bin], word);
             atomicAdd(&wide[bin], u64(word) << 20u);
         }}"
    );
    // Nothing but the number of bins decides whether copies pay: few, many, and more than are ever copied.
    for (bins, groups) in [(5usize, 3000u32), (61, 1), (1000, 700), (40_000, 600)] {
        let start: Vec<u32> = (0..bins as u32).map(|bin| bin * 3 + 1).collect();
        let start_wide: Vec<u64> = (0..bins as u64).map(|bin| bin << 50).collect();
        let mut expected = [(); 4].map(|()| start.clone());
        let mut wide = start_wide.clone();
        for index in 0..64 * groups {
            let word = scattered(index);
            let bin = word as usize % bins;
            let [sums, bits, odd, most] = &mut expected;
            sums[bin] = sums[bin].wrapping_add(index);
            if word.is_multiple_of(3) {
                sums[bin] = sums[bin].wrapping_sub(7);
            }
            bits[bin] |= 1 << (index % 32);
            odd[bin] ^= word;
            most[bin] = most[bin].max(word);
            wide[bin] = wide[bin].wrapping_add(u64::from(word) << 20);
        }
        for threads in [1, 2, 3, 8] {
            let cpu = with_threads(threads);
            let pipeline = cpu.pipeline(&source);
            let counted = [(); 4].map(|()| cpu.buffer(bytemuck::cast_slice(&start)));
            let counted_wide = cpu.buffer(bytemuck::cast_slice(&start_wide));
            let mut buffers: Vec<&wgpu::Buffer> = counted.iter().collect();
            buffers.push(&counted_wide);
            let group = cpu.group(&pipeline, &buffers);
            cpu.dispatch(&pipeline, &group, [groups, 1, 1]);
            let case = format!("{bins} bins, {groups} work-groups, {threads} threads");
            for (number, (buffer, expected)) in counted.iter().zip(&expected).enumerate() {
                assert_eq!(cpu.read::<u32>(buffer), *expected, "{number}: {case}");
            }
            assert_eq!(cpu.read::<u64>(&counted_wide), wide, "{case}");
        }
    }
}

/// One binding counts, and another, of the same bytes, has to see it at once.
#[test]
fn what_is_counted_is_seen_through_another_binding() {
    let cpu = with_threads(4);
    let source = "
        @group(0) @binding(0) var<storage, read_write> counts: array<atomic<u32>>;
        @group(0) @binding(1) var<storage, read_write> seen: array<atomic<u32>>;
        @group(0) @binding(2) var<storage, read_write> wrong: atomic<u32>;
        @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
            atomicAdd(&counts[i], 1u);
            if atomicLoad(&seen[i]) == 0u { atomicAdd(&wrong, 1u); }
        }";
    let pipeline = cpu.pipeline(source);
    let (counts, wrong) = (cpu.buffer(&[0; 4 * 64]), cpu.buffer(&[0; 4]));
    let group = cpu.group(&pipeline, &[&counts, &counts, &wrong]);
    cpu.dispatch(&pipeline, &group, [2000, 1, 1]);
    assert_eq!(cpu.read::<u32>(&counts), [2000; 64]);
    assert_eq!(cpu.read::<u32>(&wrong), [0]);
}

/// Parts of one buffer that lie side by side are counted apart, and what lies between and behind them is left alone.
#[test]
fn parts_of_a_buffer_are_counted_apart() {
    let cpu = with_threads(3);
    let source = "
        @group(0) @binding(0) var<storage, read_write> low: array<atomic<u32>>;
        @group(0) @binding(1) var<storage, read_write> high: array<atomic<u32>>;
        @compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            atomicAdd(&low[id.x % 16u], 1u);
            atomicXor(&high[id.x % 13u], id.x);
        }";
    let pipeline = cpu.pipeline(source);
    let words = [9u32; 1024];
    let buffer = cpu
        .device
        .create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label: None,
            contents: bytemuck::cast_slice(&words),
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
        });
    let part = |offset: u64, bytes: u64| {
        wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: &buffer,
            offset,
            size: wgpu::BufferSize::new(bytes),
        })
    };
    let group = crate::kernel::bind(&cpu.device, &pipeline, [part(256, 64), part(512, 52)]);
    cpu.dispatch(&pipeline, &group, [1000, 1, 1]);
    let mut expected = words;
    for index in 0..32_000u32 {
        expected[64 + index as usize % 16] += 1;
        expected[128 + index as usize % 13] ^= index;
    }
    assert_eq!(cpu.read::<u32>(&buffer), expected);
}

/// The count of one dispatch is what the next one begins with, in one pass and without anybody's wait between them.
#[test]
fn dispatches_see_what_was_counted_before() {
    let cpu = with_threads(4);
    let count = cpu.pipeline(
        "@group(0) @binding(0) var<storage, read_write> bins: array<atomic<u32>>;
         @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
             atomicAdd(&bins[i % 8u], 1u);
         }",
    );
    let look = cpu.pipeline(
        "@group(0) @binding(0) var<storage, read> bins: array<u32>;
         @group(0) @binding(1) var<storage, read_write> seen: array<u32>;
         @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
             seen[i] = seen[i] * 31u + bins[i];
         }",
    );
    let (bins, seen) = (cpu.buffer(&[0; 32]), cpu.buffer(&[0; 32]));
    let counting = cpu.group(&count, &[&bins]);
    let looking = cpu.group(&look, &[&bins, &seen]);
    let mut encoder = cpu.device.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    let mut expected = 0u32;
    for round in 1..=20u32 {
        pass.set_pipeline(&count);
        pass.set_bind_group(0, &counting, &[]);
        pass.dispatch_workgroups(100, 1, 1);
        pass.set_pipeline(&look);
        pass.set_bind_group(0, &looking, &[]);
        pass.dispatch_workgroups(1, 1, 1);
        expected = expected.wrapping_mul(31).wrapping_add(round * 100 * 8);
    }
    drop(pass);
    cpu.queue.submit([encoder.finish()]);
    assert_eq!(cpu.read::<u32>(&seen), [expected; 8]);
}

/// What is bound behind a type of fixed size is left alone.
#[test]
fn a_type_of_fixed_size_is_counted_in_a_larger_buffer() {
    let cpu = with_threads(3);
    let source = "
        @group(0) @binding(0) var<storage, read_write> bins: array<atomic<u32>, 7>;
        @compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            atomicAdd(&bins[id.x % 7u], id.x);
        }";
    let mut expected = vec![9u32; 1 << 18];
    let words = expected.clone();
    let counted = cpu.run::<u32>(source, [500, 1, 1], &[bytemuck::cast_slice(&words)]);
    for index in 0..16_000u32 {
        expected[index as usize % 7] += index;
    }
    assert!(counted == expected);
}
