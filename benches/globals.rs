//! What device globals cost, on every adapter of the machine.
//!
//! Kernels reach the same table through a device global and through a binding of the user's own, in hand-written
//! wgpu, in turn; and launches are made in a context that knows one name, and in one that knows ten thousand. Each row
//! is the median of the ratios of the pairs. The last lines are the rows:
//! `ratio <row>/<adapter> = <median> (<min>..<max>) goal <= <limit>`.

mod support;

use tombolo::{Context, Device, DeviceGlobal, DeviceOptions, Launch};

use support::{Error, Raw, ours, pairs, word};

/// Pairs measured for each row: many short ones, so that a busy machine disturbs few of them.
const PAIRS: usize = 101;

/// Words of the table.
const WORDS: usize = 1 << 14;

/// Accesses by each invocation: a constant in the kernels, and below every adapter's loop budget, so that no loop is
/// guarded.
const STEPS: u32 = 1000;

/// Work-groups of 64 invocations.
const GROUPS: u32 = 64;

/// Launches in a measured batch, and names in the context that has many.
const LAUNCHES: u32 = 500;
const NAMES: usize = 10_000;

static TABLE: DeviceGlobal<[u32; WORDS]> = DeviceGlobal::new("table");

fn main() -> Result<(), Error> {
    let context = Context::new()?;
    let mut rows = Vec::new();
    for adapter in context.adapters() {
        eprintln!("{}", adapter.name);
        let name = word(&adapter.name);
        let mut row = |label: &str, limit: f64, ratios: Vec<f64>| {
            rows.push(support::row(label, name, limit, ratios));
        };
        // Memory that the host shares, and the device's own: both ways in which a variable may lie.
        for (label, unified) in [("", None), ("_own_memory", Some(false))] {
            let options = DeviceOptions::default().unified_memory(unified);
            let device = context.device_at_with(adapter.index, options)?;
            row(&format!("read{label}"), 1.02, access(&device, READ)?);
            row(&format!("write{label}"), 1.02, access(&device, WRITE)?);
            row(&format!("atomic{label}"), 1.02, access(&device, ATOMIC)?);
        }
        let device = context.device_at(adapter.index)?;
        row("launch", 1.5, launches(&device)?);
        let [few, many] = names(&adapter.name)?;
        row("launch_10000_names", 1.05, many_names(&few, &many)?);
    }
    for row in rows {
        println!("{row}");
    }
    Ok(())
}

const READ: &str = "
BOUND var<storage, read_write> table: array<u32, WORDS>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var x = id.x;
    for (var i = 0u; i < STEPS; i++) { x = (x * 5u + table[(x ^ i) % WORDS] + 1u) & 0xffffffu; }
    table[id.x % WORDS] = x & 1u;
}";

const WRITE: &str = "
BOUND var<storage, read_write> table: array<u32, WORDS>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    for (var i = 0u; i < STEPS; i++) { table[(id.x * 4u + (i & 3u)) % WORDS] += i ^ id.x; }
}";

const ATOMIC: &str = "
BOUND var<storage, read_write> table: array<atomic<u32>, WORDS>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    for (var i = 0u; i < STEPS; i++) { atomicAdd(&table[(id.x * 7u + i * 13u) % WORDS], i); }
}";

fn source(text: &str, bound: &str) -> String {
    text.replace("BOUND", bound)
        .replace("WORDS", &format!("{WORDS}u"))
        .replace("STEPS", &format!("{STEPS}u"))
}

/// The same kernel with a device global and with a binding.
fn access(device: &Device, text: &str) -> Result<Vec<f64>, Error> {
    let table = device.buffer(&[0u32; WORDS])?;
    TABLE.on(device).write(&[0; WORDS])?;
    device.finish()?;
    let bound = source(text, "@group(0) @binding(0)");
    let raw = Raw::new(device, &bound, &[table.raw()]);
    let kernel = ours(device, &source(text, ""))?;
    let mut launch = kernel.launch().workgroups(GROUPS);
    let ratios = pairs(
        PAIRS,
        || Ok(launch.submit()?.wait()?),
        || raw.run(device, 1, GROUPS),
    )?;
    // Additions come to the same in any order; otherwise the row means nothing.
    if text == ATOMIC && table.read()? != TABLE.on(device).read()? {
        return Err("the global and the buffer differ".into());
    }
    Ok(ratios)
}

const STEP_BOUND: &str = "
@group(0) @binding(0) var<storage, read_write> steps: u32;
@compute @workgroup_size(1) fn main() { steps += 1u; }";

/// Launches of a kernel that names a variable, against those of one that is given a buffer.
fn launches(device: &Device) -> Result<Vec<f64>, Error> {
    let buffer = device.buffer(&[0u32])?;
    let bound = ours(device, STEP_BOUND)?;
    let named = ours(device, &STEP_BOUND.replace("@group(0) @binding(0)", ""))?;
    let mut bound = bound.launch().buffer("steps", &buffer).workgroups(1u32);
    let mut named = named.launch().workgroups(1u32);
    let run = |launch: &mut Launch| -> Result<(), Error> {
        for _ in 0..LAUNCHES {
            launch.submit()?;
        }
        Ok(device.finish()?)
    };
    pairs(PAIRS, || run(&mut named), || run(&mut bound))
}

/// Devices of two contexts: one that knows a single name, and one that knows many.
fn names(adapter: &str) -> Result<[Device; 2], Error> {
    let few = Context::new()?.device_named(adapter)?;
    let many = Context::new()?.device_named(adapter)?;
    for number in 0..NAMES {
        // Names live as long as their declarations, which are constants.
        let name: &'static str = Box::leak(format!("name{number}").into_boxed_str());
        DeviceGlobal::<[u32; 4]>::new(name).declare(&many)?;
    }
    assert_eq!(many.globals().len(), NAMES);
    Ok([few, many])
}

const COUNT: &str = "
var<storage, read_write> name5000: vec4<u32>;
@compute @workgroup_size(1) fn main() { name5000.x += 1u; }";

fn many_names(few: &Device, many: &Device) -> Result<Vec<f64>, Error> {
    let kernels = [ours(few, COUNT)?, ours(many, COUNT)?];
    // A new launch each time: nothing is remembered from the one before.
    let run = |index: usize| -> Result<(), Error> {
        for _ in 0..LAUNCHES {
            kernels[index].launch().workgroups(1u32).submit()?;
        }
        Ok([few, many][index].finish()?)
    };
    pairs(PAIRS, || run(1), || run(0))
}
