//! The suite of calls to servers once more: on devices that are treated as if they had memory of their own
//! (`persistent_split`), and on devices that show nothing to running kernels (`persistent_in_slices`).

use crate::harness::Fixture;
use tombolo::{Context, DeviceOptions};

/// The cases, by names that say where they run.
pub fn again() -> Vec<(String, impl Fn(&Fixture) + Clone + Send + 'static)> {
    let split: fn(&Fixture) -> Fixture = |f| Fixture {
        context: f.context.clone(),
        index: f.index,
        device: f.open(|options| options.unified_memory = Some(false)),
    };
    // Their heap is copied with each slice: it is not to be that of all other tests.
    let in_slices: fn(&Fixture) -> Fixture = |f| {
        let context = Context::new().unwrap();
        let mut options = DeviceOptions::default();
        options.live_memory = false;
        let device = context.device_at_with(f.index, options).unwrap();
        assert_eq!(device.name(), f.device.name());
        Fixture {
            context,
            index: f.index,
            device,
        }
    };
    let modules = [
        crate::persistent::CASES,
        crate::persistent_arguments::CASES,
        crate::persistent_calls::CASES,
        crate::persistent_leases::CASES,
        crate::persistent_threads::CASES,
    ];
    let configurations = [
        ("persistent_split", split),
        ("persistent_in_slices", in_slices),
    ];
    let all = configurations.into_iter().flat_map(|(module, fixture)| {
        let cases = modules.into_iter().flatten();
        cases.map(move |case| (module, fixture, case))
    });
    let cases = all.map(|(module, fixture, case)| {
        let name = case.name.rsplit("::").next().unwrap_or(case.name);
        let run = move |f: &Fixture| (case.run)(&fixture(f));
        (format!("{module}::{name}"), run)
    });
    // That one is of the host alone.
    let of_host = "persistent_in_slices::a_server_of_the_host_answers_the_same";
    cases.filter(|(name, _)| name != of_host).collect()
}
