//! Which devices can call a server on another one, and what is said where they cannot.

use tombolo::{Device, DeviceOptions, PersistentKernel, launch::LaunchError, server::ServerError};

use crate::cases;
use crate::harness::Fixture;
use crate::kernel_callers::{CALL, KINDS, POISON, builder, caller, start};

cases![
    software_adapters_call_each_other,
    devices_that_share_nothing_are_refused,
    devices_out_of_reach_are_refused,
];

/// A device on another adapter; where there is none, on the same.
pub fn other(f: &Fixture) -> Device {
    let adapters = f.context.adapters();
    let mut indices = adapters.iter().map(|adapter| adapter.index);
    let index = indices.find(|&index| index != f.index);
    let index = index.unwrap_or(f.index);
    f.context.device_at(index).unwrap()
}

/// Whether running kernels of a device see what others write into pages of the host.
fn shares(device: &Device) -> bool {
    let capabilities = device.capabilities();
    capabilities.unified_memory && capabilities.host_import() && capabilities.live_memory()
}

/// Whether kernels of one device can call a server on another. Where one of them has memory of its own they cannot, and
/// then it is seen that they are told so: no test ends without having tested anything.
pub fn can_share(f: &Fixture, other: &Device) -> bool {
    if shares(&f.device) && shares(other) {
        return true;
    }
    let software = |device: &Device| device.capabilities().software;
    assert!(
        !software(&f.device) || !software(other),
        "software adapters work in the host's memory, and have to share it"
    );
    refuse(&f.device, other);
    false
}

/// The server is refused, or else the launch that calls it.
fn refuse(device: &Device, other: &Device) {
    for kind in KINDS {
        match (shares(other), kind(other).callers(1).start()) {
            (true, server) => {
                out_of_reach(reach(&server.unwrap(), device));
            }
            (false, server) => {
                let error = server.unwrap_err();
                assert!(
                    matches!(error, ServerError::NoKernelsCall { .. }),
                    "{error}"
                );
            }
        }
    }
}

fn reach(server: &PersistentKernel, device: &Device) -> Result<(), LaunchError> {
    let kernel = caller(device, server, CALL);
    let results = device.buffer(&[POISON; 8]).unwrap();
    let launch = kernel.launch().buffer("results", &results);
    let launch = launch.value("seed", &0u32).server(server).invocations(8);
    launch.clone().check()
}

fn out_of_reach(result: Result<(), LaunchError>) -> String {
    let error = result.unwrap_err();
    assert!(
        matches!(error, LaunchError::ServerOutOfReach { .. }),
        "{error}"
    );
    error.to_string()
}

/// Servers of `mix` of both kinds, one after the other, on another device, whose words kernels of this one can reach; none
/// where they cannot.
pub fn reached(f: &Fixture) -> impl Iterator<Item = PersistentKernel> {
    let other = other(f);
    let kinds = can_share(f, &other).then_some(KINDS);
    (kinds.into_iter().flatten()).map(move |kind| start(kind(&other).callers(1)))
}

/// The tests of kernels that call another device test that, on lavapipe and SwiftShader: by two adapters of different make.
fn software_adapters_call_each_other(f: &Fixture) {
    if !(f.is_lavapipe() || f.is_swiftshader()) {
        return;
    }
    let other = other(f);
    let adapters = f.context.adapters();
    let software = |name: &str| name.contains("llvmpipe") || name.contains("SwiftShader");
    if adapters
        .iter()
        .filter(|adapter| software(&adapter.name))
        .count()
        == adapters.len()
    {
        assert_eq!(other.name() == f.device.name(), adapters.len() == 1);
        assert!(can_share(f, &other));
        assert_eq!(reached(f).count(), KINDS.len());
    }
}

fn devices_that_share_nothing_are_refused(f: &Fixture) {
    let own_memory = |options: &mut DeviceOptions| options.unified_memory = Some(false);
    let copies = |options: &mut DeviceOptions| options.import_host_memory = false;
    let blind = |options: &mut DeviceOptions| options.live_memory = false;
    let other = other(f);
    for device in [f.open(own_memory), f.open(copies), f.open(blind)] {
        assert!(!shares(&device));
        refuse(&device, &other);
        refuse(&other, &device);
        refuse(&device, &device);
    }
}

fn devices_out_of_reach_are_refused(f: &Fixture) {
    let other = other(f);
    let shares = can_share(f, &other);
    let refused = |result: Result<(), LaunchError>, part: &str| {
        let text = out_of_reach(result);
        // Where a device has memory of its own nothing else matters.
        assert!(text.contains(part) || !shares, "{text}");
    };
    // Nobody was expected.
    let server = start(builder(&other));
    refused(
        reach(&server, &f.device),
        "PersistentKernelBuilder::callers",
    );
    let blind = |options: &mut DeviceOptions| options.live_memory = false;
    // A server whose calls travel in slices.
    let sliced = start(builder(&f.open(blind)));
    refused(reach(&sliced, &other), "DeviceOptions::live_memory");
    let error = builder(&f.open(|options| options.import_host_memory = false)).callers(1);
    let error = error.start().unwrap_err();
    assert!(
        matches!(error, ServerError::NoKernelsCall { .. }),
        "{error}"
    );
    for kind in KINDS {
        let error = kind(&f.open(blind)).callers(1).start().unwrap_err();
        assert!(
            matches!(error, ServerError::NoKernelsCall { .. }),
            "{error}"
        );
    }
    if !shares {
        return;
    }
    let server = start(builder(&other).callers(1));
    refused(reach(&server, &f.open(blind)), "DeviceOptions::live_memory");
    reach(&server, &f.device).unwrap();
    reach(&server, &f.device).unwrap();
    refused(reach(&server, &f.open(|_| {})), "1 devices call it already");
}
