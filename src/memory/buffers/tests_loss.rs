//! Tests of devices lost while bytes are on their way: after the copy was enqueued, and before the bytes arrive; and of
//! devices that go on meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Buffer, BufferError};
use crate::device::hooks::{self, Point};
use crate::{
    Constants, Context, Device, DeviceOptions, Event, Kernel, Program, device::EventStatus,
    launch::LaunchError,
};

const MINUTE: Duration = Duration::from_secs(60);

const SOURCE: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@compute @workgroup_size(64) fn add(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] = data[id.x] * 3u + 1u; }
}
@compute @workgroup_size(64) fn copy(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] = source[id.x]; }
}";

struct Kernels {
    device: Device,
    add: Kernel,
    copy: Kernel,
}

impl Kernels {
    fn new(device: Device) -> Self {
        let program = Program::new("loss.wgsl", SOURCE).unwrap();
        let kernel = |name| device.kernel(&program, name, &Constants::new()).unwrap();
        let (add, copy) = (kernel("add"), kernel("copy"));
        Self { device, add, copy }
    }

    fn add(&self, data: &Buffer<u32>) -> Result<Event, LaunchError> {
        let launch = self.add.launch().buffer("data", data);
        launch.invocations(data.len() as u32).submit()
    }

    fn copy(&self, source: &Buffer<u32>, data: &Buffer<u32>) -> Result<Event, LaunchError> {
        let launch = (self.copy.launch())
            .buffer("data", data)
            .buffer("source", source);
        launch.invocations(data.len() as u32).submit()
    }
}

/// Removes the hook, also where a test fails.
struct Unhook;

impl Drop for Unhook {
    fn drop(&mut self) {
        hooks::set(None);
        hooks::see_no_ends(false);
    }
}

/// Destroys the device when the first wait for bytes on their way begins.
fn lose_on_the_way(device: &Device) -> (Unhook, Arc<AtomicUsize>) {
    let lost = Arc::new(AtomicUsize::new(0));
    let (raw, shared) = (device.raw().clone(), Arc::downgrade(&device.shared));
    let count = Arc::clone(&lost);
    hooks::see_no_ends(true);
    hooks::set(Some(Arc::new(move |point| {
        if point == Point::HopBegun && count.fetch_add(1, Ordering::SeqCst) == 0 {
            raw.destroy();
            // As wgpu would report on the next call.
            if let Some(device) = shared.upgrade() {
                device.lost.raise("it was unplugged");
            }
        }
    })));
    (Unhook, lost)
}

/// Holds the first thread that begins to wait for bytes on their way, until it may go on; tells of each.
fn hold_the_first() -> (Unhook, Receiver<()>, Sender<()>) {
    let (reached, has_begun) = channel();
    let (go, may_go) = channel::<()>();
    let (begun, may_go) = (AtomicUsize::new(0), Mutex::new(may_go));
    hooks::see_no_ends(true);
    hooks::set(Some(Arc::new(move |point| {
        if point == Point::HopBegun {
            let is_first = begun.fetch_add(1, Ordering::SeqCst) == 0;
            // The test may have failed.
            let _ = reached.send(());
            if is_first {
                // Dropping the sender ends the wait, too.
                let _ = may_go.lock().unwrap().recv_timeout(MINUTE);
            }
        }
    })));
    (Unhook, has_begun, go)
}

/// A device of each adapter, paired with a device of every other adapter, and with another of the same adapter without
/// shared memory.
fn pairs() -> Vec<(Context, Kernels, Kernels)> {
    let mut pairs = Vec::new();
    let count = Context::with_backends(wgpu::Backends::VULKAN)
        .expect("a Vulkan driver: run `cargo xtask test`, which provides software drivers")
        .adapters()
        .len();
    for from in 0..count {
        for to in 0..count {
            let context = Context::with_backends(wgpu::Backends::VULKAN).unwrap();
            let options = DeviceOptions {
                import_host_memory: from != to,
                ..DeviceOptions::default()
            };
            let source = context.device_at(from).unwrap();
            let target = context.device_at_with(to, options).unwrap();
            pairs.push((context, Kernels::new(source), Kernels::new(target)));
        }
    }
    pairs
}

/// Bytes that were sent ahead and have come need no transfer: nothing is held back, and no thread waits.
#[test]
fn bytes_that_have_come_begin_no_transfer() {
    let _alone = hooks::alone();
    let adapters = Context::with_backends(wgpu::Backends::VULKAN)
        .unwrap()
        .adapters()
        .len();
    for adapter in 0..adapters {
        let context = Context::with_backends(wgpu::Backends::VULKAN).unwrap();
        let open = || Kernels::new(context.device_at(adapter).unwrap());
        let (source, target) = (open(), open());
        let mut expected: Vec<u32> = (0..300).collect();
        let data = context.buffer_from(&expected).unwrap();
        let seen = context.buffer::<u32>(300).unwrap();
        let begun = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begun);
        hooks::set(Some(Arc::new(move |point| {
            if point == Point::HopBegun {
                count.fetch_add(1, Ordering::SeqCst);
            }
        })));
        let _unhook = Unhook;
        let mut fetched = 0;
        for round in 0..5 {
            source.add(&data).unwrap().wait().unwrap();
            let before = begun.load(Ordering::SeqCst);
            target.copy(&data, &seen).unwrap().wait().unwrap();
            let was = std::mem::replace(&mut fetched, data.statistics().fetched_ahead);
            if fetched > was {
                assert_eq!(begun.load(Ordering::SeqCst), before, "round {round}");
            }
            (expected.iter_mut()).for_each(|value| *value = *value * 3 + 1);
            assert_eq!(seen.read().unwrap(), expected, "round {round}");
        }
        assert!(fetched >= 2, "{fetched}");
    }
}

/// Pairs as of [`pairs`], of devices that have no memory in common.
fn apart() -> Vec<(Context, Kernels, Kernels)> {
    let open = |context: &Context, kernels: &Kernels| {
        let options = DeviceOptions {
            import_host_memory: false,
            ..DeviceOptions::default()
        };
        let name = kernels.device.name();
        Kernels::new(context.device_named_with(name, options).unwrap())
    };
    let apart = |(_, one, other): (Context, Kernels, Kernels)| {
        let context = Context::with_backends(wgpu::Backends::VULKAN).unwrap();
        let (one, other) = (open(&context, &one), open(&context, &other));
        (context, one, other)
    };
    pairs().into_iter().map(apart).collect()
}

/// Without memory in common, too, in staging memory that is used again.
#[test]
fn bytes_are_sent_ahead_through_the_host() {
    let _alone = hooks::alone();
    for unseen in [false, true] {
        for (context, source, target) in apart() {
            let _unhook = Unhook;
            hooks::see_no_ends(unseen);
            let mut expected: Vec<u32> = (0..300).collect();
            let data = context.buffer_from(&expected).unwrap();
            let seen = context.buffer_from(&vec![0xdead_beefu32; 300]).unwrap();
            let mut made = 0;
            for round in 0..8 {
                let event = source.add(&data).unwrap();
                let looked = target.copy(&data, &seen).unwrap();
                event.wait_timeout(MINUTE).unwrap();
                looked.wait_timeout(MINUTE).unwrap();
                (expected.iter_mut()).for_each(|value| *value = *value * 3 + 1);
                let now = source.device.transfer_statistics().staging_made;
                let was = std::mem::replace(&mut made, now);
                assert!(round < 4 || made == was, "round {round}: {was}, {made}");
            }
            assert_eq!(seen.read().unwrap(), expected);
            let found = data.statistics();
            assert!(found.fetched_ahead >= 5, "{found:?}");
        }
    }
}

/// Bytes are asked for whose batch waits for another device itself, and is not submitted.
#[test]
fn bytes_sent_ahead_through_the_host_come_behind_their_batch() {
    let _alone = hooks::alone();
    for (context, source, target) in apart() {
        let mut expected: Vec<u32> = (0..300).collect();
        let [data, back] = [(); 2].map(|()| context.buffer_from(&expected).unwrap());
        let poison = vec![0xdead_beefu32; 300];
        let [seen, seen_back] = [(); 2].map(|()| context.buffer_from(&poison).unwrap());
        let waited = |event: Result<Event, LaunchError>| {
            event.unwrap().wait_timeout(MINUTE).unwrap();
        };
        for _ in 0..4 {
            waited(source.add(&data));
            waited(target.copy(&data, &seen));
            waited(target.add(&back));
            waited(source.copy(&back, &seen_back));
            (expected.iter_mut()).for_each(|value| *value = *value * 3 + 1);
        }
        waited(target.add(&back));
        (expected.iter_mut()).for_each(|value| *value = *value * 3 + 1);
        let before = data.statistics();
        let (_unhook, has_begun, go) = hold_the_first();
        let held = source.copy(&back, &seen_back).unwrap();
        has_begun.recv_timeout(MINUTE).unwrap();
        let made = source.add(&data).unwrap();
        let looked = target.copy(&data, &seen).unwrap();
        let batch = made.batch().unwrap();
        assert!(batch.is_closed() && batch.submission().is_none());
        assert_eq!(data.statistics().fetched_ahead, before.fetched_ahead + 1);
        go.send(()).unwrap();
        for event in [held, made, looked] {
            waited(Ok(event));
        }
        assert_eq!(seen.read().unwrap(), expected);
        assert_eq!(seen_back.read().unwrap(), expected);
    }
}

/// Where the embedded adapter copies at once, few bytes go through the host without a thread.
#[cfg(embedded)]
#[test]
fn few_bytes_that_have_come_to_the_host_are_passed_on_at_once() {
    let _alone = hooks::alone();
    let context = Context::with_backends(wgpu::Backends::NOOP).unwrap();
    let open = || {
        let options = DeviceOptions {
            import_host_memory: false,
            ..DeviceOptions::default()
        };
        Kernels::new(context.device_at_with(0, options).unwrap())
    };
    let (source, target) = (open(), open());
    let mut expected: Vec<u32> = (0..300).collect();
    let data = context.buffer_from(&expected).unwrap();
    let seen = context.buffer::<u32>(300).unwrap();
    for round in 0..3 {
        source.add(&data).unwrap().wait().unwrap();
        let event = target.copy(&data, &seen).unwrap();
        let batch = event.batch().unwrap();
        assert!(
            target.device.shared.pending_of(batch).is_empty(),
            "round {round}"
        );
        event.wait().unwrap();
        (expected.iter_mut()).for_each(|value| *value = *value * 3 + 1);
        assert_eq!(seen.read().unwrap(), expected, "round {round}");
    }
}

#[test]
fn both_devices_go_on_while_bytes_are_on_their_way() {
    let _alone = hooks::alone();
    for (context, source, target) in pairs() {
        let values: Vec<u32> = (0..3000).collect();
        let added: Vec<u32> = values.iter().map(|value| value * 3 + 1).collect();
        let [moved, of_source, of_target] = [(); 3].map(|()| context.buffer_from(&values).unwrap());
        let seen = context.buffer::<u32>(3000).unwrap();
        source.add(&moved).unwrap();
        // In the target's batch, in front of the command in wait for the bytes.
        let before = target.add(&of_target).unwrap();
        let (_unhook, has_begun, go) = hold_the_first();
        let event = target.copy(&moved, &seen).unwrap();
        has_begun.recv_timeout(MINUTE).unwrap();
        // The bytes are nowhere yet, and commands without need of the bytes end.
        before.wait_timeout(MINUTE).unwrap();
        for _ in 0..3 {
            source
                .add(&of_source)
                .unwrap()
                .wait_timeout(MINUTE)
                .unwrap();
        }
        let thrice: Vec<u32> = values.iter().map(|value| value * 27 + 13).collect();
        assert_eq!(of_source.read().unwrap(), thrice);
        assert_ne!(event.status(), EventStatus::Complete);
        go.send(()).unwrap();
        event.wait_timeout(MINUTE).unwrap();
        assert_eq!(seen.read().unwrap(), added);
        assert_eq!(of_target.read().unwrap(), added);
    }
}

#[test]
fn bytes_for_one_device_come_while_those_for_another_are_on_their_way() {
    let _alone = hooks::alone();
    for (context, one, other) in pairs() {
        let values: Vec<u32> = (0..3000).collect();
        let added: Vec<u32> = values.iter().map(|value| value * 3 + 1).collect();
        let [of_one, of_other] = [(); 2].map(|()| context.buffer_from(&values).unwrap());
        let poison = vec![0xdead_beef; 3000];
        let [seen_by_one, seen_by_other] = [(); 2].map(|()| context.buffer_from(&poison).unwrap());
        for (device, buffer) in [(&one, &of_one), (&other, &of_other)] {
            device.add(buffer).unwrap().wait_timeout(MINUTE).unwrap();
        }
        let (_unhook, has_begun, go) = hold_the_first();
        let held = other.copy(&of_one, &seen_by_other).unwrap();
        has_begun.recv_timeout(MINUTE).unwrap();
        let event = one.copy(&of_other, &seen_by_one).unwrap();
        // Before anybody waits: a thread of the context has begun with the bytes.
        has_begun.recv_timeout(MINUTE).unwrap();
        event.wait_timeout(MINUTE).unwrap();
        assert_ne!(held.status(), EventStatus::Complete);
        go.send(()).unwrap();
        held.wait_timeout(MINUTE).unwrap();
        assert_eq!(seen_by_one.read().unwrap(), added);
        assert_eq!(seen_by_other.read().unwrap(), added);
    }
}

#[test]
fn a_source_that_is_lost_on_the_way_takes_only_what_it_had_alone() {
    let _alone = hooks::alone();
    for (context, source, target) in pairs() {
        let name = source.device.name().to_owned();
        let values: Vec<u32> = (0..3000).collect();
        let buffer = context.buffer_from(&values).unwrap();
        let apart = context.buffer_from(&values).unwrap();
        let part = |range: std::ops::Range<u64>| buffer.slice(range).unwrap();
        let added = |values: &[u32]| -> Vec<u32> { values.iter().map(|v| v * 3 + 1).collect() };
        // Only there; there and with the host; only with the host.
        source.add(&part(0..1000)).unwrap();
        part(1000..2000).prefetch(&source.device).unwrap();
        // The target's work without the source.
        let first = target.add(&apart).unwrap();
        let seen = context.buffer::<u32>(3000).unwrap();
        let event = {
            let (_unhook, begun) = lose_on_the_way(&source.device);
            // Enqueued while all is well.
            let event = target.copy(&buffer, &seen).unwrap();
            let told = event.wait().unwrap_err().to_string();
            assert!(begun.load(Ordering::SeqCst) > 0);
            assert!(told.contains("unplugged"), "{told}");
            event
        };
        assert!(event.wait().is_err());
        first.wait().unwrap();
        // Bytes without another copy are reported, with the name of the lost device.
        let lost = |error: BufferError| match error {
            BufferError::Lost { device, ranges } => {
                assert!(device.contains(&name), "{device}");
                ranges
            }
            error => panic!("{error}"),
        };
        assert_eq!(
            lost(buffer.read().unwrap_err()),
            std::slice::from_ref(&(0..4000))
        );
        assert_eq!(
            lost(part(900..1100).read().unwrap_err()),
            std::slice::from_ref(&(3600..4000))
        );
        match target.add(&part(999..1001)).unwrap_err() {
            LaunchError::Buffer { source, .. } => {
                assert_eq!(lost(*source), std::slice::from_ref(&(3996..4000)))
            }
            error => panic!("{error}"),
        }
        // Values computed from the lost bytes are not there either.
        assert!(matches!(seen.read(), Err(BufferError::Execution(_))));
        // The rest goes on, on the host and on the other device.
        assert_eq!(part(1000..3000).read().unwrap(), values[1000..]);
        target.add(&part(1000..3000)).unwrap().wait().unwrap();
        assert_eq!(part(1000..3000).read().unwrap(), added(&values[1000..]));
        assert_eq!(apart.read().unwrap(), added(&values));
        buffer.write(0, &[5; 1000]).unwrap();
        target.add(&buffer).unwrap();
        let found = buffer.read().unwrap();
        assert_eq!(found[..1000], [16; 1000]);
        assert_eq!(found[1000..], added(&added(&values[1000..])));
        seen.clear_error();
        target.copy(&buffer, &seen).unwrap().wait().unwrap();
        assert_eq!(seen.read().unwrap(), found);
    }
}

#[test]
fn a_target_that_is_lost_on_the_way_loses_only_what_it_wrote() {
    let _alone = hooks::alone();
    for (context, source, target) in pairs() {
        let buffer = context.buffer_from_vec(vec![1u32; 1000]).unwrap();
        source.add(&buffer).unwrap();
        let event = {
            let (_unhook, _) = lose_on_the_way(&target.device);
            let seen = context.buffer::<u32>(1000).unwrap();
            let event = target.copy(&buffer, &seen).unwrap();
            assert!(event.wait().is_err());
            // Nothing of the written bytes is left.
            match seen.read().unwrap_err() {
                BufferError::Lost { ranges, .. } => {
                    assert_eq!(ranges, std::slice::from_ref(&(0..4000)))
                }
                BufferError::Execution(_) => {}
                error => panic!("{error}"),
            }
            event
        };
        drop(event);
        // The bytes to read are still at the source.
        assert_eq!(buffer.read().unwrap(), vec![4; 1000]);
        source.add(&buffer).unwrap().wait().unwrap();
        assert_eq!(buffer.read().unwrap(), vec![13; 1000]);
    }
}

/// Several transfers under way from one device, where the first finds the loss.
#[test]
fn all_transfers_of_a_lost_source_are_told() {
    let _alone = hooks::alone();
    for (context, source, target) in pairs() {
        let buffers: Vec<Buffer<u32>> = (0..4u32)
            .map(|i| context.buffer_from_vec(vec![i; 500]).unwrap())
            .collect();
        for buffer in &buffers {
            source.add(buffer).unwrap();
        }
        // One buffer is also with the host.
        buffers[0].evict(&source.device).unwrap();
        buffers[0].prefetch(&source.device).unwrap();
        let mut events = Vec::new();
        {
            let (_unhook, _) = lose_on_the_way(&source.device);
            for buffer in &buffers {
                let seen = context.buffer::<u32>(500).unwrap();
                // Launches enqueued after the loss are refused, or find the bytes elsewhere.
                match target.copy(buffer, &seen) {
                    Ok(event) => events.push((seen, event)),
                    Err(LaunchError::Buffer { source, .. }) => {
                        assert!(matches!(*source, BufferError::Lost { .. }), "{source}");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            for (_, event) in &events {
                let _ = event.wait();
            }
        }
        for (seen, event) in &events {
            match event.wait() {
                // Success is never reported for bytes that did not arrive.
                Ok(()) => assert_eq!(seen.read().unwrap(), vec![1; 500]),
                Err(_) => assert!(seen.read().is_err()),
            }
        }
        let found: Vec<bool> = buffers.iter().map(|b| b.read().is_ok()).collect();
        assert!(found[0], "the host had it");
        assert_eq!(buffers[0].read().unwrap(), vec![1; 500]);
        for buffer in &buffers[1..] {
            match buffer.read() {
                Err(BufferError::Lost { ranges, .. }) => {
                    assert_eq!(ranges, std::slice::from_ref(&(0..2000)))
                }
                other => panic!("{other:?}"),
            }
            buffer.write(0, &[7; 500]).unwrap();
            target.add(buffer).unwrap();
            assert_eq!(buffer.read().unwrap(), vec![22; 500]);
        }
    }
}
