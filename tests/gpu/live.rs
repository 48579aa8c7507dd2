//! Live words: seen by host and kernels at the same time, and valid longer than their device.

use std::time::{Duration, Instant};

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Constants, DeviceBuffer, Program,
    device::{Aspect, LiveError},
};

cases![
    words_are_zero_and_bounded,
    words_travel_with_launches_and_transfers,
    a_running_kernel_and_the_host_answer_each_other,
    words_outlive_their_device,
    devices_without_live_memory_say_so,
];

fn words_are_zero_and_bounded(f: &Fixture) {
    let live = f.device.live(100).unwrap();
    assert_eq!(live.len(), 100);
    for i in 0..100 {
        assert_eq!(live.load(i), Some(0));
        live.store(i, i as u32 * 3).unwrap();
    }
    for i in [100, 101, usize::MAX, usize::MAX / 4 + 1] {
        assert_eq!((live.load(i), live.store(i, 1)), (None, None));
    }
    assert_eq!(live.load(99), Some(297));
    assert!(matches!(
        f.device.live(0).unwrap_err(),
        LiveError::Size { size: 0, .. }
    ));
    assert!(matches!(
        f.device.live(usize::MAX).unwrap_err(),
        LiveError::Size { .. }
    ));
}

fn words_travel_with_launches_and_transfers(f: &Fixture) {
    let program = Program::new(
        "live.wgsl",
        "@group(0) @binding(0) var<storage, read_write> words: array<u32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&words) { words[id.x] += 1000u; }
         }",
    )
    .unwrap();
    let kernel = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let live = f.device.live(50).unwrap();
    for i in 0..50 {
        live.store(i, i as u32).unwrap();
    }
    let event = kernel
        .launch()
        .buffer("words", &live)
        .invocations(50)
        .submit()
        .unwrap();
    event.wait().unwrap();
    let copy: DeviceBuffer<u32> = f.device.zeroed(50).unwrap();
    live.as_buffer().copy_to(0, &copy, 0, 50).unwrap();
    let expected: Vec<u32> = (1000..1050).collect();
    assert_eq!(copy.read().unwrap(), expected);
    assert_eq!(live.load(49), Some(1049));
}

fn a_running_kernel_and_the_host_answer_each_other(f: &Fixture) {
    // The kernel announces itself, waits a bounded time for the host's word, and answers from it; the
    // host answers only what it has seen. Many work-groups wait one after the other, since a single one
    // ends before a busy machine gives the host its turn.
    let program = Program::new(
        "talk.wgsl",
        "@group(0) @binding(0) var<storage, read_write> words: array<atomic<u32>>;
         var<workgroup> heard: u32;
         @compute @workgroup_size(1) fn main() {
            let token = atomicLoad(&words[2]);
            atomicStore(&words[0], token);
            for (var i = 0u; i < 60000u; i++) {
                storageBarrier();
                heard = atomicLoad(&words[1]);
                if workgroupUniformLoad(&heard) == token + 1u {
                    atomicStore(&words[3], token + 2u);
                    break;
                }
            }
         }",
    )
    .unwrap();
    let kernel = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let live = f.device.live(4).unwrap();
    let answered = (0..20u32).any(|attempt| {
        let token = 1000 + attempt * 10;
        live.store(2, token).unwrap();
        let event = kernel
            .launch()
            .buffer("words", &live)
            .workgroups(256)
            .submit()
            .unwrap();
        f.device.flush().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while live.load(0) != Some(token) {
            assert!(
                Instant::now() < deadline,
                "the kernel never announced itself"
            );
            std::hint::spin_loop();
        }
        live.store(1, token + 1).unwrap();
        event.wait().unwrap();
        live.load(3) == Some(token + 2)
    });
    assert!(answered, "no kernel saw the host's answer while it ran");
}

fn words_outlive_their_device(f: &Fixture) {
    let device = f.open(|_| {});
    let live = device.live(1 << 20).unwrap();
    live.store((1 << 20) - 1, 7).unwrap();
    device.raw().destroy();
    // wgpu destroys every buffer of the device when it is polled next.
    for _ in 0..3 {
        let _ = device.raw().poll(wgpu::PollType::Poll);
    }
    assert_eq!(live.load((1 << 20) - 1), Some(7));
    live.store(0, 9).unwrap();
    drop(device);
    assert_eq!(live.load(0), Some(9));
}

fn devices_without_live_memory_say_so(f: &Fixture) {
    for device in [
        f.open(|options| options.live_memory = false),
        f.open(|options| options.probe = Some(false)),
    ] {
        assert!(matches!(
            device.live(4).unwrap_err(),
            LiveError::Unsupported { .. }
        ));
    }
    assert!(f.device.has(Aspect::LiveMemory));
}
