//! The doctor's report for people: one page for each adapter.

use crate::report::{Adapter, Details, Limits, Measured, Probe, Report};
use crate::support::text::{WIDTH, grouped, hanging};

/// Columns to the left of what is said about a thing.
const INDENT: usize = 28;

/// Columns to the left of a reason.
const REASON: usize = INDENT + 16;

/// The whole report.
pub fn page(report: &Report) -> String {
    let mut out = format!(
        "tombolo {}; {} found (backends searched: {})\n",
        report.tombolo,
        match report.adapters.len() {
            1 => "1 adapter".to_owned(),
            many => format!("{many} adapters"),
        },
        report.backends.join(", ")
    );
    for adapter in &report.adapters {
        out.push('\n');
        out.push_str(&describe(adapter));
    }
    out
}

fn describe(adapter: &Adapter) -> String {
    let title = format!("{}  {}", adapter.index, adapter.name);
    let mut out = format!(
        "{title}\n{}\n",
        "=".repeat(title.chars().count().min(WIDTH))
    );
    let mut line = |name: &str, text: &str| out.push_str(&row(name, text));
    let (memory, kind) = match &adapter.details {
        Some(details) => (
            if details.unified_memory {
                "unified: host and device use the same memory"
            } else {
                "discrete: the device has memory of its own"
            },
            if details.software {
                "software"
            } else {
                "hardware"
            },
        ),
        None => ("unknown", "not opened"),
    };
    line("backend", &adapter.backend);
    line("driver", &adapter.driver);
    line("type", &format!("{}, {kind}", adapter.device_type));
    if let Some(address) = &adapter.pci_address {
        line("PCI address", address);
    }
    line("memory", memory);
    if let Some(working_set) = adapter.details.as_ref().and_then(|d| d.working_set_bytes) {
        line("working set", &bytes(working_set));
    }
    if adapter.named_by_environment {
        line("chosen", "WGPU_ADAPTER_NAME names it");
    }
    if let Some(error) = &adapter.error {
        line("error", error);
    }
    if let Some(details) = &adapter.details {
        limits(&details.limits, &mut out);
        probe(&details.probe, &mut out);
        let slices = say(&details.sliced_calls_per_second, |rate| {
            format!("{} a second, 512 at a time", grouped(*rate as u64))
        });
        out.push_str(&row("calls in slices", &slices));
        aspects(details, &mut out);
        capabilities(details, &mut out);
    }
    out
}

fn row(name: &str, text: &str) -> String {
    hanging(&format!("  {name} "), INDENT, text)
}

fn heading(text: &str, out: &mut String) {
    out.push_str(&format!("\n  {text}\n"));
}

fn limits(limits: &Limits, out: &mut String) {
    heading("LIMITS", out);
    let mut line = |name: &str, text: String| out.push_str(&row(name, &text));
    let bindings =
        |count: u32, size: u64| format!("{} of up to {}", grouped(count.into()), bytes(size));
    line(
        "storage buffers a kernel",
        bindings(
            limits.storage_bindings_per_stage,
            limits.storage_binding_bytes,
        ),
    );
    line(
        "uniform buffers a kernel",
        bindings(
            limits.uniform_bindings_per_stage,
            limits.uniform_binding_bytes,
        ),
    );
    line("bind groups a kernel", limits.bind_groups.to_string());
    line(
        "one buffer",
        format!("up to {}", bytes(limits.buffer_bytes)),
    );
    line(
        "binding offsets",
        format!(
            "multiples of {} (storage) and {} (uniform) bytes",
            limits.storage_offset_alignment, limits.uniform_offset_alignment
        ),
    );
    let [x, y, z] = limits.workgroup_size.map(|n| grouped(n.into()));
    line(
        "work-group",
        format!(
            "up to {} invocations, {x} x {y} x {z}; {} of shared memory",
            grouped(limits.workgroup_invocations.into()),
            bytes(limits.workgroup_storage_bytes.into())
        ),
    );
    line(
        "dispatch",
        format!(
            "up to {} work-groups in a dimension; larger grids take several",
            grouped(limits.workgroups_per_dimension.into())
        ),
    );
    line(
        "private arrays",
        format!(
            "up to {} for an invocation",
            bytes(limits.private_memory_bytes.into())
        ),
    );
    let (min, max) = (limits.subgroup_min_size, limits.subgroup_max_size);
    line(
        "subgroup",
        match (min, max) {
            (0, 0) => "size unknown".to_owned(),
            (min, max) if min == max => format!("{min} invocations"),
            (min, max) => format!("{min} to {max} invocations"),
        },
    );
}

fn probe(probe: &Probe, out: &mut String) {
    let took = probe.elapsed_us as f64 / 1e3;
    let state = if probe.complete {
        "took"
    } else {
        "INCOMPLETE after"
    };
    heading(&format!("PROBE ({state} {took:.1} ms)"), out);
    let mut line = |name: &str, text: String| out.push_str(&row(name, &text));
    let seen = |by: &'static str| {
        move |seen: &bool| format!("{} by {by}", if *seen { "seen" } else { "not seen" })
    };
    line(
        "writes of the host",
        say(&probe.live_host_to_kernel, seen("a running kernel")),
    );
    line(
        "writes of a kernel",
        say(
            &probe.live_kernel_to_host,
            seen("the host while the kernel ran"),
        ),
    );
    line(
        "loop budget",
        say(&probe.loop_budget, |budget| match budget {
            Some(turns) => format!(
                "the driver silently ends loops after {} turns",
                grouped((*turns).into())
            ),
            None => "none: a loop of 1,048,576 turns ran to its end".to_owned(),
        }),
    );
    line(
        "launch latency",
        say(&probe.launch_latency_us, |us| {
            format!("{us:.1} \u{b5}s from submitting an empty kernel to knowing its end")
        }),
    );
}

fn say<T>(measured: &Measured<T>, value: impl Fn(&T) -> String) -> String {
    match (&measured.value, &measured.why_not) {
        (Some(found), _) => value(found),
        (None, Some(why)) => format!("not measured: {why}"),
        (None, None) => "not measured".to_owned(),
    }
}

fn aspects(details: &Details, out: &mut String) {
    heading("ASPECTS", out);
    // What there is needs no excuse; what there is not needs a reason.
    let (has, lacks): (Vec<_>, Vec<_>) = details.aspects.iter().partition(|aspect| aspect.has);
    let has: Vec<_> = has.iter().map(|aspect| aspect.name).collect();
    out.push_str(&row("yes", &has.join(", ")));
    for aspect in lacks {
        let head = format!("  no   {}", aspect.name);
        out.push_str(&hanging(&head, INDENT, &aspect.why));
    }
}

fn capabilities(details: &Details, out: &mut String) {
    heading(
        "CAPABILITIES OF THE RUNTIME, AND THE TIER THAT EACH RUNS IN",
        out,
    );
    for rung in &details.capabilities {
        let head = format!("  {:24}  {}", rung.name, rung.tier);
        let why = if rung.available {
            rung.why.clone()
        } else {
            format!("(planned) {}", rung.why)
        };
        out.push_str(&hanging(&head, REASON, &why));
    }
}

/// A size in the largest binary unit that loses no more than it shows.
fn bytes(size: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = size as f64;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if value.fract() == 0.0 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}
