//! What accesses of lent memory cost, on every adapter of the machine.
//!
//! A kernel that follows a pointer into a slice of the host's, by what its accesses find: pages that are there (`hit`), in place
//! (`in_place`), missing pages without a pattern (`miss`), and pages in a row, most of which are fetched before they are missed
//! (`prefetched`); where pages come while the kernel runs (`_live`), and where the launch is repeated (`_sliced`). Beside it
//! the same kernel on a buffer of the device, into which all of the slice is copied first and out of which it is copied
//! afterwards: what a program does that knows what its kernel needs. And, beside the same kernel with a translation at each
//! access, kernels with several accesses of one pointee: members of a node (`members`), and elements of an array in a loop
//! (`elements`). Each row is the median of the ratios of the pairs. The last
//! lines are the rows: `ratio <row>/<adapter> = <median> (<min>..<max>)`.

mod support;

use tombolo::kernel::{KernelOptions, TranslationMode};
use tombolo::system::{SystemMemory, SystemTier};
use tombolo::{Constants, Context, Device, DeviceBuffer, Kernel, Program};

use support::{Error, Raw, pairs, spread, word};

/// Pairs measured for each row.
const PAIRS: usize = 15;

/// Words of the slice for misses: 4,096 pages.
const MANY: usize = 4 << 20;
/// Words of the slice for hits: 64 pages.
const FEW: usize = 64 << 10;

const TIERS: [(&str, SystemTier); 2] = [("live", SystemTier::Live), ("sliced", SystemTier::Sliced)];

const HEAD: &str = "
DECLARE
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    FOLLOW
    var x = id.x;
    BODY
    sink[id.x] = x;
}";

/// What the kernels do.
struct Work {
    label: &'static str,
    words: usize,
    groups: u32,
    body: &'static str,
}

const HIT: Work = Work {
    label: "hit",
    words: FEW,
    groups: 64,
    body: "for (var i = 0u; i < 500u; i++) { x = x * 5u + w[(x ^ (i * 9u)) & 65535u]; }",
};

/// A page for each of 512 steps, in no order.
const MISS: Work = Work {
    label: "miss",
    words: MANY,
    groups: 1,
    body: "for (var i = 0u; i < 8u; i++) { x += w[(((id.x * 8u + i) * 2654435761u) >> 20u) * 1024u]; }",
};

/// 1,024 pages in a row, by one invocation.
const ROW: Work = Work {
    label: "prefetched",
    words: MANY,
    groups: 1,
    body: "if id.x == 0u { for (var i = 0u; i < 1024u; i++) { x += w[i * 1024u + (x & 1u)]; } }",
};

/// A node in no order, of which seven members are read and one is written.
const MEMBERS: &str = "for (var i = 0u; i < 200u; i++) {
        let n = &nodes[((x ^ (i * 9u)) * 2654435761u) >> 20u];
        x = x * 5u + n.a + n.b * n.c + (n.d.x ^ n.d.w) + n.e + n.f[1];
        n.own[id.x % 4u] = x;
    }";

/// A node in no order, and its array from the beginning to the end.
const ELEMENTS: &str = "for (var i = 0u; i < 60u; i++) {
        let n = &nodes[((x ^ (i * 9u)) * 2654435761u) >> 20u];
        for (var k = 0u; k < 8u; k++) { x = x * 5u + n.f[k]; }
    }";

const NODES: &str = "
struct Node { a: u32, b: u32, c: u32, e: u32, d: vec4<u32>, f: array<u32, 8>, own: array<u32, 4> }
alias Nodes = array<Node>;
@group(0) @binding(0) var<uniform> first: usm_ptr;
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let nodes = usm_Nodes(first);
    var x = id.x;
    BODY
    sink[id.x] = x;
}";

fn main() -> Result<(), Error> {
    let context = Context::new()?;
    let mut rows = Vec::new();
    for adapter in context.adapters() {
        eprintln!("{}", adapter.name);
        let name = word(&adapter.name);
        let device = context.device_at(adapter.index)?;
        let mut note = |label: &str, ratios: Vec<f64>| {
            rows.push(format!("ratio {label}/{name} = {}", spread(ratios, 3)));
        };
        let hit = Case::of(&device, &HIT)?;
        note("hit", hit.ratios(&device, None, false)?);
        if hit.is_in_place()? {
            note("in_place", hit.ratios(&device, None, true)?);
        }
        for (label, body) in [("members", MEMBERS), ("elements", ELEMENTS)] {
            for (tier_name, tier) in TIERS {
                if tier == SystemTier::Live && !device.capabilities().live_memory() {
                    continue;
                }
                let ratios = kept(&device, body, tier)?;
                note(&format!("{label}_{tier_name}"), ratios);
            }
        }
        for (tier_name, tier) in TIERS {
            if tier == SystemTier::Live && !device.capabilities().live_memory() {
                continue;
            }
            for work in [&HIT, &MISS, &ROW] {
                let case = Case::of(&device, work)?;
                let ratios = case.ratios(&device, Some(tier), false)?;
                note(&format!("{}_{tier_name}", work.label), ratios);
            }
        }
    }
    for row in rows {
        println!("{row}");
    }
    Ok(())
}

/// A kernel with translations that are kept, and with a translation at each access. All pages are there when the last
/// launch begins, of which the live tier has none but in its frames: what is missed is missed by both.
fn kept(device: &Device, body: &str, tier: SystemTier) -> Result<Vec<f64>, Error> {
    let program = Program::new("members.wgsl", NODES.replace("BODY", body))?;
    let kernel = |hoisted: bool| {
        let options = KernelOptions::default()
            .pointers(TranslationMode::System)
            .hoisted(hoisted);
        device.kernel_with(&program, "main", &Constants::new(), options)
    };
    let kernels = [kernel(true)?, kernel(false)?];
    // 4,096 nodes of 80 bytes, some of them over a border of pages.
    let values: Vec<u32> = (0u32..)
        .map(|i| i.wrapping_mul(0x9e37_79b9))
        .take(4096 * 20)
        .collect();
    let sinks = [
        device.zeroed::<u32>(64 * 16)?,
        device.zeroed::<u32>(64 * 16)?,
    ];
    let run = |side: usize| -> Result<(), Error> {
        let mut values = values.clone();
        let mut memory = SystemMemory::new();
        let pointer = memory.lend_mut(&mut values);
        memory.set_in_place(false);
        memory.set_tier(Some(tier));
        (kernels[side].launch().value("first", &pointer))
            .buffer("sink", &sinks[side])
            .workgroups(16)
            .run_system(&mut memory)?;
        Ok(())
    };
    let ratios = pairs(PAIRS, || run(0), || run(1))?;
    if sinks[0].read()? != sinks[1].read()? {
        return Err("translations that are kept lead elsewhere".into());
    }
    Ok(ratios)
}

/// A kernel, its peer, and what both work on.
struct Case<'w> {
    work: &'w Work,
    values: Vec<u32>,
    kernel: Kernel,
    sink: DeviceBuffer<u32>,
    raw: Raw,
    copy: DeviceBuffer<u32>,
    raw_sink: DeviceBuffer<u32>,
}

impl<'w> Case<'w> {
    fn of(device: &Device, work: &'w Work) -> Result<Self, Error> {
        let text = |declare: &str, follow: &str| {
            HEAD.replace("DECLARE", declare)
                .replace("FOLLOW", follow)
                .replace("BODY", work.body)
        };
        let ours = text(
            "alias Words = array<u32>; @group(0) @binding(0) var<uniform> words: usm_ptr;",
            "let w = usm_Words(words);",
        );
        let theirs = text(
            "@group(0) @binding(0) var<storage, read_write> w: array<u32>;",
            "",
        );
        let program = Program::new("system.wgsl", ours)?;
        let options = KernelOptions::default().pointers(TranslationMode::System);
        let kernel = device.kernel_with(&program, "main", &Constants::new(), options)?;
        let values: Vec<u32> = (0u32..)
            .map(|i| i.wrapping_mul(0x9e37_79b9) & !1)
            .take(work.words)
            .collect();
        let copy = device.zeroed::<u32>(work.words)?;
        let lanes = 64 * work.groups as usize;
        let [sink, raw_sink] = [device.zeroed::<u32>(lanes)?, device.zeroed::<u32>(lanes)?];
        let raw = Raw::new(device, &theirs, &[copy.raw(), raw_sink.raw()]);
        Ok(Self {
            work,
            values,
            kernel,
            sink,
            raw,
            copy,
            raw_sink,
        })
    }

    /// Lends the slice anew, and launches.
    fn run(
        &self,
        tier: Option<SystemTier>,
        in_place: bool,
    ) -> Result<tombolo::system::SystemRun, Error> {
        let mut memory = SystemMemory::new();
        let pointer = memory.lend(&self.values);
        memory.set_in_place(in_place);
        memory.set_tier(tier);
        if tier.is_some() {
            // So small that nothing counts as a small range, which is fetched before it is missed.
            memory.set_pool_bytes(6 * self.values.len() as u64);
        }
        Ok((self.kernel.launch().value("words", &pointer))
            .buffer("sink", &self.sink)
            .workgroups(u64::from(self.work.groups))
            .run_system(&mut memory)?)
    }

    fn is_in_place(&self) -> Result<bool, Error> {
        Ok(self.run(None, true)?.pages_in_place > 0)
    }

    fn ratios(
        &self,
        device: &Device,
        tier: Option<SystemTier>,
        in_place: bool,
    ) -> Result<Vec<f64>, Error> {
        let mut back = vec![0u32; self.values.len()];
        let ratios = pairs(
            PAIRS,
            || self.run(tier, in_place).map(|_| ()),
            || {
                self.copy.write(0, &self.values)?;
                self.raw.run(device, 1, self.work.groups)?;
                Ok(self.copy.read_into(0, &mut back)?)
            },
        )?;
        let run = self.run(tier, in_place)?;
        eprintln!("  {} {tier:?}: {run:?}", self.work.label);
        if self.sink.read()? != self.raw_sink.read()? || back != self.values {
            return Err(format!("{}: both sides differ", self.work.label).into());
        }
        Ok(ratios)
    }
}
