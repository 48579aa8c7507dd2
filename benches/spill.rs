//! What spilled private arrays cost, on every adapter of the machine.
//!
//! A kernel with a private array in scratch memory, and the same kernel with a scratch buffer written by hand, on raw
//! wgpu, in turn: arrays of 1 KiB to 1 MiB an invocation. By hand, the words of the invocations of a work-group lie side
//! by side, too, and nothing is set to zero first, since the kernel fills its array. Rows that end in `_by_hand` compare
//! the kernel by hand with itself in another buffer, which is what the machine and the place in memory make of equal
//! sides. Each row is the median of the ratios of the pairs. The last lines are the rows:
//! `ratio <row>/<adapter> = <median> (<min>..<max>) goal <= <limit>`.

mod support;

use tombolo::device::LoopGuardPolicy;
use tombolo::kernel::{KernelOptions, SpillPolicy};
use tombolo::{Constants, Context, Device, DeviceOptions, Program};

use support::{Error, Raw, pairs, word};

/// Places in memory measured for each row: which pages a buffer gets decides which lines of caches its words share, for as
/// long as the buffer is there.
const PLACES: usize = 8;

/// Pairs measured in each place.
const PAIRS: usize = 4;

/// Invocations of a work-group.
const LANES: u64 = 64;

/// Bytes of the largest scratch buffer: within the bindings of every adapter.
const MOST: u64 = 64 << 20;

const KERNEL: &str = "
@group(0) @binding(0) var<storage, read_write> sink: array<u32>;
HEAD
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>,
    @builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    DECLARE
    for (var i = 0u; i < WORDS; i += 8u) {
        AT(i) = id.x ^ i;
        AT(i + 1u) = id.x + i;
        AT(i + 2u) = id.x * 3u + i;
        AT(i + 3u) = id.x - i;
        AT(i + 4u) = i;
        AT(i + 5u) = id.x;
        AT(i + 6u) = id.x * 5u;
        AT(i + 7u) = i * 3u;
    }
    var x = id.x;
    for (var i = 0u; i < STEPS; i++) {
        let at = (x ^ (i * 9u)) % WORDS;
        x = x * 5u + AT(at);
        AT(at) = x;
    }
    sink[id.x] = x;
}";

fn main() -> Result<(), Error> {
    let context = Context::new()?;
    let mut rows = Vec::new();
    for adapter in context.adapters() {
        eprintln!("{}", adapter.name);
        let name = word(&adapter.name);
        // As in plain wgpu: the guard is a cost of its own, with rows of its own.
        let options = DeviceOptions::default().loop_guard(LoopGuardPolicy::Off);
        let device = context.device_at_with(adapter.index, options)?;
        for (label, words) in [
            ("1_kib", 1u64 << 8),
            ("16_kib", 1 << 12),
            ("128_kib", 1 << 15),
            ("1_mib", 1 << 18),
        ] {
            let [ratios, twins] = arrays(&device, words)?;
            rows.push(support::row(label, name, 1.05, ratios));
            rows.push(format!(
                "ratio {label}_by_hand/{name} = {}",
                support::spread(twins, 3)
            ));
        }
    }
    for row in rows {
        println!("{row}");
    }
    Ok(())
}

/// The kernel's text, with the array's elements as `at` writes them.
fn source(words: u64, head: &str, declare: &str, at: &str) -> String {
    let mut text = String::new();
    let mut rest = KERNEL;
    // `AT(index)` by hand: the indices have parentheses at most one deep.
    while let Some((before, after)) = rest.split_once("AT(") {
        text += before;
        let end = after.find(')').unwrap_or(after.len());
        text += &at.replace("INDEX", &after[..end]);
        rest = after.get(end + 1..).unwrap_or("");
    }
    text += rest;
    // Turns of both loops together stay below every adapter's loop budget for one work-group.
    let steps = 4000;
    text.replace("HEAD", head)
        .replace("DECLARE", declare)
        .replace("WORDS", &format!("{words}u"))
        .replace("STEPS", &format!("{steps}u"))
}

/// A spilled array of `words` words, and a scratch buffer by hand; then such buffers by hand on both sides.
fn arrays(device: &Device, words: u64) -> Result<[Vec<f64>; 2], Error> {
    let groups = (MOST / (4 * words * LANES)).clamp(1, 64);
    let invocations = (groups * LANES) as usize;
    let by_hand = source(
        words,
        "@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;",
        "let base = group.x * WORDS * 64u + lane;",
        "scratch[base + (INDEX) * 64u]",
    );
    let spilled = source(words, "", "var own: array<u32, WORDS>;", "own[INDEX]");
    let program = Program::new("spill.wgsl", spilled)?;
    let options = KernelOptions::default().spill(SpillPolicy::Always);
    let kernel = device.kernel_with(&program, "main", &Constants::new(), options)?;
    let (mut ratios, mut twins) = (Vec::new(), Vec::new());
    for _ in 0..PLACES {
        // Gives the scratch memory back, too.
        device.trim_caches();
        let sinks: Vec<_> = (0..3)
            .map(|_| device.zeroed::<u32>(invocations))
            .collect::<Result<_, _>>()?;
        let raw: Vec<_> = (sinks[1..].iter())
            .map(|sink| {
                let scratch = device.zeroed::<u32>(words as usize * invocations)?;
                Ok(Raw::new(device, &by_hand, &[sink.raw(), scratch.raw()]))
            })
            .collect::<Result<_, Error>>()?;
        let mut launch = kernel.launch().buffer("sink", &sinks[0]).workgroups(groups);
        let by_hand = |one: usize| raw[one].run(device, 1, groups as u32);
        ratios.extend(pairs(
            PAIRS,
            || Ok(launch.submit()?.wait()?),
            || by_hand(0),
        )?);
        twins.extend(pairs(PAIRS, || by_hand(1), || by_hand(0))?);
        let results: Vec<_> = sinks
            .iter()
            .map(|sink| sink.read())
            .collect::<Result<_, _>>()?;
        if results.iter().any(|result| *result != results[0]) {
            return Err("the spilled array and the scratch buffer differ".into());
        }
    }
    Ok([ratios, twins])
}
