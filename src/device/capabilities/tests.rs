use std::time::Duration;

use super::super::aspect::Aspect;
use super::super::import::ImportFinding;
use super::super::probe::{Finding, LiveFinding, NotProbed};
use super::super::tier::{Capability, Tier};
use super::*;

fn info(name: &str, device_type: wgpu::DeviceType) -> wgpu::AdapterInfo {
    wgpu::AdapterInfo {
        name: name.to_owned(),
        ..wgpu::AdapterInfo::new(device_type, wgpu::Backend::Vulkan)
    }
}

fn with(info: &wgpu::AdapterInfo, features: wgpu::Features, probe: ProbeReport) -> Capabilities {
    Capabilities::new(info, features, &wgpu::Limits::default(), probe)
}

#[test]
fn cards_of_one_name_are_told_apart_by_their_addresses() {
    let with = |address: &str| {
        let mut info = info("NVIDIA H200", wgpu::DeviceType::DiscreteGpu);
        info.device_pci_bus_id = address.to_owned();
        let probe = ProbeReport::not_probed(NotProbed::TurnedOff);
        self::with(&info, wgpu::Features::empty(), probe).pci_address
    };
    assert_eq!(with("0000:0d:00.0").as_deref(), Some("0000:0d:00.0"));
    assert_ne!(with("0000:0d:00.0"), with("0000:0e:00.0"));
    assert_eq!(with(""), None);
}

#[test]
fn private_memory_is_a_rule_by_driver() {
    use wgpu::DeviceType as Type;
    for (name, device_type, bytes) in [
        ("llvmpipe (LLVM 15.0.6, 256 bits)", Type::Cpu, 2_048),
        ("SwiftShader Device (Subzero)", Type::Cpu, 16_384),
        ("NVIDIA H200", Type::DiscreteGpu, 131_072),
        ("Apple M2", Type::IntegratedGpu, 8_192),
        ("unheard of", Type::Other, 8_192),
    ] {
        assert_eq!(
            named(name, device_type).private_memory_bytes,
            bytes,
            "{name}"
        );
    }
}

fn named(name: &str, device_type: wgpu::DeviceType) -> Capabilities {
    let probe = ProbeReport::not_probed(NotProbed::TurnedOff);
    with(&info(name, device_type), wgpu::Features::empty(), probe)
}

fn probed(live: (bool, bool), loop_budget: Option<u32>) -> Capabilities {
    let mut probe = ProbeReport::not_probed(NotProbed::TurnedOff);
    probe.live = Finding::Measured(LiveFinding::new(live.0, live.1));
    probe.loop_budget = Finding::Measured(loop_budget);
    probe.launch_latency = Finding::Measured(Duration::from_micros(50));
    let info = info("a GPU", wgpu::DeviceType::DiscreteGpu);
    with(&info, wgpu::Features::empty(), probe)
}

#[test]
fn software_is_known_by_type_or_by_name() {
    use wgpu::DeviceType as Type;
    for (name, device_type, software, unified) in [
        ("llvmpipe (LLVM 15.0.6, 256 bits)", Type::Cpu, true, true),
        ("SwiftShader Device (Subzero)", Type::Cpu, true, true),
        ("Microsoft Basic Render Driver", Type::Other, true, true),
        ("some processor", Type::Cpu, true, true),
        (
            "Intel(R) UHD Graphics 620",
            Type::IntegratedGpu,
            false,
            true,
        ),
        ("Apple M2", Type::Other, false, true),
        ("NVIDIA H200", Type::DiscreteGpu, false, false),
        ("Virtio-GPU Venus", Type::VirtualGpu, false, false),
        ("unheard of", Type::Other, false, false),
    ] {
        let capabilities = named(name, device_type);
        assert_eq!(capabilities.software, software, "{name}");
        assert_eq!(capabilities.has(Aspect::Software), software, "{name}");
        assert_eq!(capabilities.unified_memory, unified, "{name}");
        assert_eq!(capabilities.has(Aspect::UnifiedMemory), unified, "{name}");
        assert!(capabilities.has(Aspect::PrivateAlloca), "{name}");
    }
}

#[test]
fn software_that_poses_as_a_gpu_is_none() {
    let posing = named("llvmpipe", wgpu::DeviceType::VirtualGpu);
    assert!(!posing.has(Aspect::Gpu));
    assert!(posing.explain(Aspect::Gpu).contains("software"));
    assert!(named("NVIDIA H200", wgpu::DeviceType::DiscreteGpu).has(Aspect::Gpu));
}

#[test]
fn live_memory_needs_both_directions() {
    for (live, calls) in [
        ((true, true), Tier::Live),
        ((true, false), Tier::Sliced),
        ((false, true), Tier::Sliced),
        ((false, false), Tier::Sliced),
    ] {
        let capabilities = probed(live, None);
        assert_eq!(capabilities.live_memory(), live == (true, true));
        assert_eq!(capabilities.tier(Capability::HostCalls).tier, calls);
        let report = capabilities.tier(Capability::PersistentKernels);
        assert!(report.available && report.tier == calls, "{report}");
        // Nothing is imported: the heap can lie in live memory.
        let report = capabilities.tier(Capability::Pointers);
        let expected = match live {
            (true, true) => Tier::FineGrained,
            _ => Tier::CoarseGrained,
        };
        assert_eq!(report.tier, expected, "{report}");
        // The device has memory of its own.
        assert_eq!(report.why.contains(READ_BEFORE), live == (true, true));
    }
}

#[test]
fn calls_are_never_served_while_kernels_run_on_metal() {
    let mut capabilities = probed((true, true), None);
    assert!(capabilities.splits_ports());
    capabilities.backend = wgpu::Backend::Metal;
    assert!(capabilities.live_memory() && !capabilities.splits_ports());
    let report = capabilities.tier(Capability::HostCalls);
    assert!(report.available && report.tier == Tier::Sliced, "{report}");
    assert!(report.why.contains("Metal"), "{report}");
}

#[test]
fn running_kernels_follow_the_hosts_memory_where_it_is_theirs() {
    use wgpu::DeviceType as Type;
    for (of, shared, live) in [
        (Type::IntegratedGpu, true, true),
        (Type::DiscreteGpu, false, true),
        // What the probe's kernel had read by then is chance.
        (Type::DiscreteGpu, false, false),
    ] {
        let mut probe = ProbeReport::not_probed(NotProbed::TurnedOff);
        probe.host_import = Finding::Measured(ImportFinding {
            shared: true,
            live,
            alignment: 4096,
            longest: 1 << 30,
        });
        let capabilities = with(&info("a GPU", of), wgpu::Features::empty(), probe);
        assert_eq!(capabilities.unified_memory, shared);
        let why = capabilities.tier(Capability::Pointers).why;
        assert!(why.starts_with(&capabilities.explain(Aspect::HostImport)));
        // The advice stands where the bus lies between.
        assert_eq!(why.contains("HeapPlacement::Device"), !shared, "{why}");
        assert_eq!(why.contains("also while kernels run"), shared, "{why}");
        assert_eq!(why.contains(READ_BEFORE), !shared, "{why}");
    }
}

#[test]
fn pointers_need_no_copies_where_memory_is_imported() {
    let tier = |host_import| {
        let mut probe = ProbeReport::not_probed(NotProbed::TurnedOff);
        probe.host_import = host_import;
        let info = info("a GPU", wgpu::DeviceType::DiscreteGpu);
        with(&info, wgpu::Features::empty(), probe).tier(Capability::Pointers)
    };
    for (shared, live, expected) in [
        (true, true, Tier::FineGrained),
        (true, false, Tier::FineGrained),
        (false, false, Tier::CoarseGrained),
    ] {
        let report = tier(Finding::Measured(ImportFinding {
            shared,
            live,
            alignment: 4096,
            longest: 1 << 30,
        }));
        assert_eq!(report.tier, expected);
        assert_eq!(
            report.why.contains("the device has a copy"),
            !shared,
            "{report}"
        );
    }
    let report = tier(Finding::NotProbed(NotProbed::TurnedOff));
    assert_eq!(report.tier, Tier::CoarseGrained);
    assert!(report.why.contains("copy"), "{report}");
}

#[test]
fn what_is_planned_says_so() {
    let capabilities = probed((true, true), None);
    for &capability in Capability::ALL {
        let report = capabilities.tier(capability);
        assert_eq!(report.available, capability.available());
        assert_eq!(report.to_string().contains("planned"), !report.available);
        assert!(!report.why.is_empty());
    }
    // Nothing is at present.
    assert!(
        Capability::ALL
            .iter()
            .all(|capability| capability.available())
    );
}

#[test]
fn loops_are_checked_unless_a_long_one_was_seen_to_end() {
    let cut = probed((true, true), Some(65_535));
    assert_eq!(cut.loop_budget(), Some(65_535));
    assert!(cut.needs_loop_guard() && !cut.has(Aspect::UnboundedLoops));
    assert!(cut.explain(Aspect::UnboundedLoops).contains("65535"));

    let free = probed((true, true), None);
    assert_eq!(free.loop_budget(), None);
    assert!(!free.needs_loop_guard() && free.has(Aspect::UnboundedLoops));
    assert_eq!(free.tier(Capability::LoopGuard).tier, Tier::NotNeeded);

    let unknown = named("a GPU", wgpu::DeviceType::DiscreteGpu);
    assert_eq!(unknown.loop_budget(), None);
    assert!(unknown.needs_loop_guard() && !unknown.has(Aspect::UnboundedLoops));
    assert!(
        unknown
            .explain(Aspect::UnboundedLoops)
            .contains("turned off")
    );
}

#[test]
fn features_of_the_device_decide_their_aspects() {
    let info = info("a GPU", wgpu::DeviceType::DiscreteGpu);
    for &aspect in Aspect::ALL {
        let Some(feature) = aspect.feature() else {
            continue;
        };
        let probe = ProbeReport::not_probed(NotProbed::TurnedOff);
        let alone = with(&info, feature, probe.clone());
        let others = with(&info, wgpu::Features::all() - feature, probe);
        assert!(alone.has(aspect), "{aspect}");
        assert!(!others.has(aspect), "{aspect}");
    }
    let probe = ProbeReport::not_probed(NotProbed::TurnedOff);
    let timed = with(&info, wgpu::Features::TIMESTAMP_QUERY, probe);
    assert_eq!(timed.tier(Capability::Profiling).tier, Tier::Full);
    let cache = timed.tier(Capability::PipelineCache);
    assert_eq!(cache.tier, Tier::Unsupported);
    assert!(cache.why.contains("PIPELINE_CACHE"), "{}", cache.why);
}

#[test]
fn every_aspect_has_a_name_of_its_own_and_an_explanation() {
    let capabilities = probed((false, true), None);
    let mut names: Vec<_> = Aspect::ALL.iter().map(|aspect| aspect.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Aspect::ALL.len());
    for &aspect in Aspect::ALL {
        assert!(!capabilities.explain(aspect).is_empty(), "{aspect}");
    }
    assert!(
        capabilities
            .explain(Aspect::LiveMemory)
            .contains("did not see what the host wrote")
    );
}

#[test]
fn packets_are_shared_where_they_are_sealed_and_turns_are_free() {
    let packs = |device_type, features, live, loop_budget| {
        let mut probe = ProbeReport::not_probed(NotProbed::TurnedOff);
        probe.live = Finding::Measured(LiveFinding::new(live, live));
        probe.loop_budget = Finding::Measured(loop_budget);
        with(&info("a GPU", device_type), features, probe).packs_calls()
    };
    let (subgroups, none) = (wgpu::Features::SUBGROUP, wgpu::Features::empty());
    let apart = wgpu::DeviceType::DiscreteGpu;
    assert!(packs(apart, subgroups, true, None));
    assert!(!packs(apart, none, true, None));
    assert!(!packs(apart, subgroups, false, None));
    assert!(!packs(apart, subgroups, true, Some(65_535)));
    let together = wgpu::DeviceType::IntegratedGpu;
    assert!(!packs(together, subgroups, true, None));
}
