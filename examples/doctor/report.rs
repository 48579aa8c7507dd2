//! What the doctor found, as plain data with stable names: what `--json` prints, and what the tables
//! are made of.

use std::error::Error;
use std::time::Instant;

use serde::Serialize;
use tombolo::{
    AdapterDescription, Context, DeviceOptions, PersistentKernel, Program,
    device::{Aspect, Capabilities, Capability, Finding},
};

use crate::support::chain;

/// All that the doctor has to say.
#[derive(Serialize)]
pub struct Report {
    /// Version of the runtime.
    pub tombolo: &'static str,
    /// The backends that were searched.
    pub backends: Vec<String>,
    /// Why no adapter was found; `adapters` is empty then.
    pub error: Option<String>,
    /// In the order of their indices.
    pub adapters: Vec<Adapter>,
}

#[derive(Serialize)]
pub struct Adapter {
    pub index: usize,
    pub name: String,
    pub driver: String,
    pub backend: String,
    pub device_type: String,
    /// The address on the PCI bus, where the backend tells.
    pub pci_address: Option<String>,
    /// Whether `WGPU_ADAPTER_NAME` names it.
    pub named_by_environment: bool,
    /// Why it could not be opened; `details` is null then.
    pub error: Option<String>,
    pub details: Option<Details>,
}

#[derive(Serialize)]
pub struct Details {
    pub software: bool,
    pub unified_memory: bool,
    /// Where the interface tells.
    pub working_set_bytes: Option<u64>,
    pub limits: Limits,
    pub probe: Probe,
    /// To a function on the device, 512 at a time, where they travel in slices.
    pub sliced_calls_per_second: Measured<f64>,
    pub aspects: Vec<Answer>,
    pub capabilities: Vec<Rung>,
}

#[derive(Serialize)]
pub struct Limits {
    pub storage_bindings_per_stage: u32,
    pub storage_binding_bytes: u64,
    pub uniform_bindings_per_stage: u32,
    pub uniform_binding_bytes: u64,
    pub buffer_bytes: u64,
    pub bind_groups: u32,
    pub workgroup_invocations: u32,
    pub workgroup_size: [u32; 3],
    pub workgroup_storage_bytes: u32,
    pub workgroups_per_dimension: u32,
    pub private_memory_bytes: u32,
    pub subgroup_min_size: u32,
    pub subgroup_max_size: u32,
    pub storage_offset_alignment: u32,
    pub uniform_offset_alignment: u32,
}

#[derive(Serialize)]
pub struct Probe {
    /// Every question was answered, or could not be put to this adapter.
    pub complete: bool,
    pub elapsed_us: u64,
    pub live_host_to_kernel: Measured<bool>,
    pub live_kernel_to_host: Measured<bool>,
    /// A measured null is a loop that ran to its end.
    pub loop_budget: Measured<Option<u32>>,
    pub launch_latency_us: Measured<f64>,
}

#[derive(Serialize)]
pub struct Measured<T> {
    pub measured: bool,
    pub value: Option<T>,
    pub why_not: Option<String>,
}

#[derive(Serialize)]
pub struct Answer {
    pub name: &'static str,
    pub has: bool,
    pub why: String,
}

#[derive(Serialize)]
pub struct Rung {
    pub name: &'static str,
    pub tier: &'static str,
    /// Whether this version of the runtime has it.
    pub available: bool,
    pub why: String,
}

impl Report {
    /// Opens and probes every adapter whose name contains `wanted`, in any case.
    pub fn new(context: &Context, wanted: &str) -> Self {
        let backends = context.backends().iter_names();
        let wanted = wanted.to_lowercase();
        Self {
            tombolo: env!("CARGO_PKG_VERSION"),
            backends: backends.map(|(name, _)| name.to_lowercase()).collect(),
            error: None,
            adapters: context
                .adapters()
                .into_iter()
                .filter(|adapter| adapter.name.to_lowercase().contains(&wanted))
                .map(|adapter| Adapter::new(context, adapter))
                .collect(),
        }
    }

    /// A report of a machine on which no adapter was found.
    pub fn without_adapters(error: &dyn Error) -> Self {
        Self {
            tombolo: env!("CARGO_PKG_VERSION"),
            backends: Vec::new(),
            error: Some(chain(error)),
            adapters: Vec::new(),
        }
    }

    /// At least one adapter was found, all of them could be opened, and every probe completed.
    pub fn holds(&self) -> bool {
        let complete = |details: &Details| details.probe.complete;
        let well = |adapter: &Adapter| adapter.details.as_ref().is_some_and(complete);
        !self.adapters.is_empty() && self.adapters.iter().all(well)
    }
}

impl Adapter {
    fn new(context: &Context, adapter: AdapterDescription) -> Self {
        let (details, error) = match context.capabilities(adapter.index) {
            Ok(capabilities) => {
                let slices = slices(context, adapter.index);
                (Some(Details::new(&capabilities, slices)), None)
            }
            Err(error) => (None, Some(chain(&error))),
        };
        let named = std::env::var("WGPU_ADAPTER_NAME").unwrap_or_default();
        let named = named.trim().to_lowercase();
        Self {
            index: adapter.index,
            named_by_environment: !named.is_empty() && adapter.name.to_lowercase().contains(&named),
            name: adapter.name,
            driver: adapter.driver,
            backend: adapter.backend.to_str().to_owned(),
            device_type: format!("{:?}", adapter.device_type),
            pci_address: adapter.pci_address,
            error,
            details,
        }
    }
}

impl Details {
    fn new(of: &Capabilities, slices: Result<f64, Box<dyn Error>>) -> Self {
        let aspect = |&aspect: &Aspect| Answer {
            name: aspect.name(),
            has: of.has(aspect),
            why: of.explain(aspect),
        };
        let rung = |&capability: &Capability| {
            let report = of.tier(capability);
            Rung {
                name: capability.name(),
                tier: report.tier.name(),
                available: report.available,
                why: report.why,
            }
        };
        Self {
            software: of.software,
            unified_memory: of.unified_memory,
            working_set_bytes: of.working_set_bytes,
            limits: Limits::new(of),
            probe: Probe::new(of),
            sliced_calls_per_second: Measured {
                measured: slices.is_ok(),
                why_not: slices.as_ref().err().map(|error| chain(&**error)),
                value: slices.ok(),
            },
            aspects: Aspect::ALL.iter().map(aspect).collect(),
            capabilities: Capability::ALL.iter().map(rung).collect(),
        }
    }
}

impl Limits {
    fn new(of: &Capabilities) -> Self {
        Self {
            storage_bindings_per_stage: of.storage_bindings_per_stage,
            storage_binding_bytes: of.storage_binding_bytes,
            uniform_bindings_per_stage: of.uniform_bindings_per_stage,
            uniform_binding_bytes: of.uniform_binding_bytes,
            buffer_bytes: of.buffer_bytes,
            bind_groups: of.bind_groups,
            workgroup_invocations: of.workgroup_invocations,
            workgroup_size: of.workgroup_size,
            workgroup_storage_bytes: of.workgroup_storage_bytes,
            workgroups_per_dimension: of.workgroups_per_dimension,
            private_memory_bytes: of.private_memory_bytes,
            subgroup_min_size: of.subgroup_min_size,
            subgroup_max_size: of.subgroup_max_size,
            storage_offset_alignment: of.storage_offset_alignment,
            uniform_offset_alignment: of.uniform_offset_alignment,
        }
    }
}

impl Probe {
    fn new(of: &Capabilities) -> Self {
        let probe = &of.probe;
        Self {
            complete: answered(&probe.live)
                && answered(&probe.loop_budget)
                && answered(&probe.launch_latency),
            elapsed_us: u64::try_from(probe.elapsed.as_micros()).unwrap_or(u64::MAX),
            live_host_to_kernel: Measured::new(&probe.live, |live| live.host_to_kernel),
            live_kernel_to_host: Measured::new(&probe.live, |live| live.kernel_to_host),
            loop_budget: Measured::new(&probe.loop_budget, |&budget| budget),
            launch_latency_us: Measured::new(&probe.launch_latency, |time| {
                time.as_nanos() as f64 / 1e3
            }),
        }
    }
}

/// Calls a second to a server that is made to work in slices: the middle one of five batches.
fn slices(context: &Context, index: usize) -> Result<f64, Box<dyn Error>> {
    const CALLS: u32 = 512;
    let options = DeviceOptions::default().live_memory(false);
    let device = context.device_at_with(index, options)?;
    let program = Program::new("doctor.wgsl", "fn next(x: u32) -> u32 { return x + 1u; }")?;
    let server = PersistentKernel::builder(&device, &program).handler("next");
    let server = server.ports(2 * CALLS as usize).start()?;
    let next = server.function::<(u32,), u32>("next")?;
    let calls: Vec<(u32,)> = (0..CALLS).map(|x| (x,)).collect();
    let mut times = Vec::new();
    for round in 0..6 {
        let begun = Instant::now();
        for (result, x) in next.call_many(&calls).into_iter().zip(1..) {
            if result? != x {
                return Err("a call in a slice was answered wrongly".into());
            }
        }
        // The first one warms up.
        if round > 0 {
            times.push(begun.elapsed());
        }
    }
    times.sort();
    Ok(f64::from(CALLS) / times[times.len() / 2].as_secs_f64())
}

/// Measured, or not a question for this adapter; running out of time and failing are neither.
fn answered<T>(finding: &Finding<T>) -> bool {
    matches!(finding, Finding::Measured(_) | Finding::NotProbed(_))
}

impl<T> Measured<T> {
    fn new<F>(finding: &Finding<F>, value: impl Fn(&F) -> T) -> Self {
        Self {
            measured: finding.measured().is_some(),
            value: finding.measured().map(value),
            why_not: finding.why_not(),
        }
    }
}
