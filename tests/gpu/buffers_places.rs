//! Buffers of a context on more devices than there are places for: 63, beside the host.

use std::sync::Arc;

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::until;
use tombolo::{
    Buffer, Context, Device, DeviceOptions, PrintOptions, device::DeviceError, print::PrintRecord,
};

cases![
    devices_beside_each_other,
    devices_one_after_the_other_that_nobody_holds,
];

/// More than there are places.
const DEVICES: u32 = 66;

fn options() -> DeviceOptions {
    let mut options = DeviceOptions::default();
    options.probe = Some(false);
    options.import_host_memory = false;
    options.live_memory = false;
    options
}

/// Writes one value of the buffer on the device, whose memory is the only place of it then.
fn write_on(device: &Device, source: &Buffer<u32>, buffer: &Buffer<u32>, at: u32) {
    let at = u64::from(at);
    source.prefetch(device).unwrap();
    let from = source.slice(at..at + 1).unwrap();
    from.copy_to(&buffer.slice(at..at + 1).unwrap()).unwrap();
}

fn devices_beside_each_other(f: &Fixture) {
    let context = Context::new().unwrap();
    let values: Vec<u32> = (0..DEVICES).map(|i| i * 3 + 7).collect();
    let source = context.buffer_from(&values).unwrap();
    let buffer = context
        .buffer_from_vec(vec![u32::MAX; values.len()])
        .unwrap();
    let on_card = context.adapters()[f.index].device_type != wgpu::DeviceType::Cpu;
    let mut devices = Vec::new();
    for at in 0..DEVICES {
        let device = match context.device_at_with(f.index, options()) {
            Ok(device) => device,
            // A card's driver may have its own limit, which other programs on the card share.
            Err(DeviceError::Open { .. }) if devices.len() > 8 && on_card => break,
            Err(error) => panic!("{error}"),
        };
        write_on(&device, &source, &buffer, at);
        devices.push(device);
    }
    let mut expected = values;
    expected[devices.len()..].fill(u32::MAX);
    let used = |device: &Device| device.buffer_memory().used > 0;
    if devices.len() as u32 == DEVICES {
        // The first ones have made room for the last ones.
        assert!(!used(&devices[0]) && !used(&devices[2]) && used(&devices[3]));
    }
    assert_eq!(buffer.read().unwrap(), expected);
    // The first one is a device like any other.
    write_on(&devices[0], &source, &buffer, 1);
    assert!(used(&devices[0]));
    assert_eq!(buffer.read().unwrap(), expected);
}

fn devices_one_after_the_other_that_nobody_holds(f: &Fixture) {
    let context = Context::new().unwrap();
    let values: Vec<u32> = (0..DEVICES).map(|i| i * 5 + 1).collect();
    let source = context.buffer_from(&values).unwrap();
    let buffer = context
        .buffer_from_vec(vec![u32::MAX; values.len()])
        .unwrap();
    // Each device that has not ended has one.
    let devices = Arc::new(());
    for at in 0..DEVICES {
        let mut options = options();
        let here = Arc::clone(&devices);
        options.print = PrintOptions::sink(move |_: &PrintRecord<'_>| {
            let _ = &here;
        });
        let device = context.device_at_with(f.index, options).unwrap();
        write_on(&device, &source, &buffer, at);
    }
    assert_eq!(buffer.read().unwrap(), values);
    // All but the last one end, on threads of their own.
    until("devices stay open", || Arc::strong_count(&devices) <= 2);
    assert_eq!(
        context.buffer_statistics().evictions,
        2 * u64::from(DEVICES - 1)
    );
}
