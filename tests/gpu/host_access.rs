//! Threads beside a host that has the heap: launches and transfers wait for it, whoever has it himself is told so, and
//! nobody waits for somebody who waits for him. Every test that could hang has a deadline.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::byte_copies::{Machine, machines};
use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Buffer, Constants, Device, Kernel, Program, SharedHeap,
    buffers::{BufferError, Placement},
    heap::{HeapError, HostAccessPolicy},
    launch::LaunchError,
};

cases![
    bystanders_of_reads_are_not_refused,
    launches_wait_for_another_threads_access,
    transfers_wait_for_another_threads_access,
    policies_of_launches_and_devices,
    a_try_to_submit_waits_for_no_access,
    who_has_the_heap_is_told_at_once,
    buffers_can_be_asked_while_a_write_waits,
    writes_of_other_threads_wait_and_arrive,
    buffers_enter_the_heap_while_another_thread_has_it,
    maps_in_the_heap_are_written_back_once,
];

/// Nothing here takes so long.
const MINUTE: Duration = Duration::from_secs(60);

const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

const FOLLOW: &str = "
struct Word { value: atomic<u32> }
@group(0) @binding(0) var<uniform> at: usm_ptr;
@compute @workgroup_size(1) fn main() { let word = usm_Word(at); atomicAdd(&word.value, 1u); }";

fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("host_access.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    device.kernel(&program, "main", &Constants::new()).unwrap()
}

/// Runs `work` on another thread, which has to end in time.
fn in_time<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        scope.spawn(move || sender.send(work()));
        match receiver.recv_timeout(MINUTE) {
            Ok(done) => done,
            Err(_) => {
                // The scope would wait for it: there is no other way to tell.
                eprintln!("a thread waits for another one for ever");
                std::process::abort();
            }
        }
    })
}

/// Has another thread take the heap, and runs `work` beside it; `work` gets a function that has the thread let go.
fn beside_a_host(heap: &SharedHeap, work: impl FnOnce(&(dyn Fn() + Sync)) + Send) {
    let (taken, is_taken) = channel();
    let over = AtomicBool::new(false);
    let let_go = || over.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let host = heap.host().unwrap();
            taken.send(()).unwrap();
            while !over.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            drop(host);
        });
        is_taken.recv_timeout(MINUTE).unwrap();
        work(&let_go);
        let_go();
    });
}

fn refused(error: &LaunchError) -> bool {
    matches!(error, LaunchError::Heap(HeapError::HostAccess { .. }))
}

fn bystanders_of_reads_are_not_refused(f: &Fixture) {
    const LAUNCHES: u32 = 60;
    machines(f, |m| {
        let (plain, follow) = (kernel(&m.device, INCREMENT), kernel(&m.device, FOLLOW));
        let data = m.context.buffer_with::<u32>(64, Placement::Shared).unwrap();
        let unrelated = (m.context)
            .buffer_from_vec_with(vec![7u32; 5000], Placement::Shared)
            .unwrap();
        let word = m.heap.alloc(0u32).unwrap();
        let other = m.heap.alloc_slice(&[9u32; 1000]).unwrap();
        let over = AtomicBool::new(false);
        in_time(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Acquire) {
                        assert_eq!(unrelated.read().unwrap(), vec![7; 5000]);
                        unrelated.write(0, &[7, 7]).unwrap();
                    }
                });
                scope.spawn(|| {
                    while !over.load(Ordering::Acquire) {
                        assert_eq!(m.heap.read(other, 1000).unwrap(), vec![9; 1000]);
                    }
                });
                let mut launches = [
                    plain.launch().buffer("data", &data).invocations(64),
                    follow.launch().value("at", &word).workgroups(1),
                ];
                for i in 0..LAUNCHES {
                    for launch in &mut launches {
                        launch
                            .submit()
                            .unwrap_or_else(|e| panic!("{}, {i}: {e}", m.name));
                    }
                    m.device.heap_copy(other, other.add(500), 100).unwrap();
                }
                over.store(true, Ordering::Release);
            });
        });
        assert_eq!(data.read().unwrap(), [LAUNCHES; 64], "{}", m.name);
        assert_eq!(m.heap.read(word, 1).unwrap(), [LAUNCHES], "{}", m.name);
    });
}

fn launches_wait_for_another_threads_access(f: &Fixture) {
    machines(f, |m| {
        let plain = kernel(&m.device, INCREMENT);
        let data = m.heap.alloc_slice(&[1u32; 64]).unwrap();
        let has_run = AtomicBool::new(false);
        beside_a_host(&m.heap, |let_go| {
            std::thread::scope(|scope| {
                let submitted = scope.spawn(|| {
                    let launch = plain.launch().pointer("data", data, 64);
                    let event = launch.invocations(64).submit();
                    has_run.store(true, Ordering::Release);
                    event.map(|event| event.wait())
                });
                // A launch that has nothing to do with the heap is not in its way.
                let own = m.device.buffer(&[3u32; 8]).unwrap();
                let launch = plain.launch().buffer("data", &own);
                launch.invocations(8).submit().unwrap();
                assert_eq!(own.read().unwrap(), [4; 8]);
                assert!(!has_run.load(Ordering::Acquire));
                let_go();
                submitted.join().unwrap().unwrap().unwrap();
            });
        });
        assert_eq!(m.heap.read(data, 64).unwrap(), [2; 64]);
    });
}

fn transfers_wait_for_another_threads_access(f: &Fixture) {
    machines(f, |m| {
        let data = m.heap.alloc_slice(&[5u32; 16]).unwrap();
        let words = m.heap.alloc_slice(&[0u32; 16]).unwrap();
        let buffer = m.device.buffer(&[0u32; 16]).unwrap();
        let commands: [&(dyn Fn() -> Result<(), HeapError> + Sync); 6] = [
            &|| m.device.heap_copy(data, words, 4).map(|_| ()),
            &|| m.device.heap_fill(words.add(4), 6, 4).map(|_| ()),
            &|| m.device.heap_prefetch(data, 4).map(|_| ()),
            &|| buffer.copy_from_heap(0, data, 4).map(|_| ()),
            &|| buffer.copy_to_heap(0, words.add(8), 4).map(|_| ()),
            &|| m.heap.atomic_u32(words.add(12)).map(|_| ()),
        ];
        for command in commands {
            beside_a_host(&m.heap, |let_go| {
                std::thread::scope(|scope| {
                    let done = scope.spawn(command);
                    let_go();
                    done.join().unwrap().unwrap();
                });
            });
        }
        let seen = m.heap.read(words, 16).unwrap();
        assert_eq!(seen, [5, 5, 5, 5, 6, 6, 6, 6, 5, 5, 5, 5, 0, 0, 0, 0]);
    });
}

fn policies_of_launches_and_devices(f: &Fixture) {
    let most = HostAccessPolicy::WaitAtMost(Duration::from_millis(5));
    for (of_device, of_launch) in [
        (HostAccessPolicy::Refuse, None),
        (HostAccessPolicy::Wait, Some(HostAccessPolicy::Refuse)),
        (most, None),
        (HostAccessPolicy::Refuse, Some(most)),
    ] {
        let device = f.open(|options| options.host_access = of_device);
        let heap = f.context.heap().unwrap();
        let data = heap.alloc_slice(&[1u32; 64]).unwrap();
        let kernel = kernel(&device, INCREMENT);
        let mut launch = kernel.launch().pointer("data", data, 64).invocations(64);
        if let Some(policy) = of_launch {
            launch = launch.host_access(policy);
        }
        let refuses = of_launch.unwrap_or(of_device) == HostAccessPolicy::Refuse;
        beside_a_host(&heap, |_| {
            let error = launch.submit().unwrap_err();
            match refuses {
                true => assert!(refused(&error), "{error}"),
                false => assert!(
                    matches!(error, LaunchError::Heap(HeapError::Deadline)),
                    "{error}"
                ),
            }
            let filled = || device.heap_fill(data, 3, 1).map(|_| ()).unwrap_err();
            match of_device {
                HostAccessPolicy::Refuse => {
                    assert!(matches!(filled(), HeapError::HostAccess { .. }));
                }
                HostAccessPolicy::WaitAtMost(_) => {
                    assert!(matches!(filled(), HeapError::Deadline));
                }
                _ => {}
            }
        });
        launch.submit().unwrap();
        assert_eq!(heap.read(data, 64).unwrap(), [2; 64]);
        heap.free(data).unwrap();
    }
}

fn a_try_to_submit_waits_for_no_access(f: &Fixture) {
    machines(f, |m| {
        let kernel = kernel(&m.device, INCREMENT);
        let data = m.heap.alloc_slice(&[1u32; 64]).unwrap();
        let plain = m.device.buffer(&[5u32; 64]).unwrap();
        // Whatever the launch says of submissions that wait.
        let most = HostAccessPolicy::WaitAtMost(MINUTE);
        for policy in [HostAccessPolicy::Wait, most, HostAccessPolicy::Refuse] {
            let launch = kernel.launch().invocations(64).host_access(policy);
            let mut in_heap = launch.clone().pointer("data", data, 64);
            let mut beside = launch.buffer("data", &plain);
            in_time(|| {
                beside_a_host(&m.heap, |_| {
                    for _ in 0..2 {
                        let error = in_heap.try_submit().unwrap_err();
                        assert!(refused(&error), "{error}");
                        beside.try_submit().unwrap().wait().unwrap();
                    }
                });
            });
            in_heap.try_submit().unwrap().wait().unwrap();
        }
        assert_eq!(m.heap.read(data, 64).unwrap(), [1 + 3; 64]);
        assert_eq!(plain.read().unwrap(), [5 + 6; 64]);
        let host = m.heap.host().unwrap();
        let mut launch = kernel.launch().pointer("data", data, 64).invocations(64);
        let error = launch.try_submit().unwrap_err();
        assert!(refused(&error), "{error}");
        drop(host);
        m.heap.free(data).unwrap();
    });
}

fn who_has_the_heap_is_told_at_once(f: &Fixture) {
    machines(f, |m| {
        let plain = kernel(&m.device, INCREMENT);
        let shared = (m.context)
            .buffer_from_vec_with(vec![1u32; 64], Placement::Shared)
            .unwrap();
        // It lies in the heap from its first command on.
        shared.write(20, &[1]).unwrap();
        let mut mapped = shared.map_mut(0..4).unwrap();
        mapped[0] = 3;
        let data = m.heap.alloc_slice(&[1u32; 64]).unwrap();
        let host = m.heap.host().unwrap();
        let of_buffer = |error: BufferError| {
            let is_it = matches!(error, BufferError::Heap(HeapError::HostAccess { .. }));
            assert!(is_it, "{}: {error}", m.name);
        };
        let of_heap = |error: HeapError| {
            assert!(
                matches!(error, HeapError::HostAccess { .. }),
                "{}: {error}",
                m.name
            );
        };
        of_buffer(shared.slice(10..).unwrap().read().unwrap_err());
        of_buffer(shared.write(10, &[2]).unwrap_err());
        of_buffer(shared.fill(2, 10..).unwrap_err());
        of_buffer(shared.map(10..).map(|_| ()).unwrap_err());
        of_buffer(mapped.unmap().unwrap_err());
        of_heap(m.heap.host().map(|_| ()).unwrap_err());
        of_heap(m.heap.read(data, 1).map(|_| ()).unwrap_err());
        of_heap(m.heap.atomic_u32(data).map(|_| ()).unwrap_err());
        of_heap(
            m.device
                .heap_copy(data, data.add(9), 1)
                .map(|_| ())
                .unwrap_err(),
        );
        let mut launch = plain.launch().buffer("data", &shared).invocations(64);
        for error in [
            launch.check().unwrap_err(),
            launch.submit().map(|_| ()).unwrap_err(),
        ] {
            assert!(refused(&error), "{}: {error}", m.name);
        }
        // What has nothing to do with the heap goes on, and so does what only asks.
        let apart = m
            .context
            .buffer_from_vec_with(vec![1u32; 64], Placement::Device)
            .unwrap();
        plain
            .launch()
            .buffer("data", &apart)
            .invocations(64)
            .submit()
            .unwrap();
        assert_eq!(apart.read().unwrap(), [2; 64]);
        assert!(!shared.whereabouts().is_empty());
        // It may lend the access to threads that only look.
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4u64)
                .map(|i| {
                    let host = &host;
                    scope.spawn(move || *host.get(data.add(i)).unwrap())
                })
                .collect();
            assert!(
                threads
                    .into_iter()
                    .all(|thread| thread.join().unwrap() == 1)
            );
        });
        drop(host);
        assert_eq!(shared.read().unwrap(), [1; 64]);
        launch.submit().unwrap();
        assert_eq!(shared.read().unwrap(), [2; 64]);
    });
}

fn buffers_can_be_asked_while_a_write_waits(f: &Fixture) {
    // The one that has the heap asks for the very buffer that another thread waits to write.
    machines(f, |m| {
        let shared = (m.context)
            .buffer_from_vec_with(vec![1u32; 64], Placement::Shared)
            .unwrap();
        kernel(&m.device, INCREMENT)
            .launch()
            .buffer("data", &shared)
            .invocations(64)
            .submit()
            .unwrap();
        let waits = AtomicU32::new(0);
        in_time(|| {
            std::thread::scope(|scope| {
                let host = m.heap.host().unwrap();
                let writers = [
                    scope.spawn(|| {
                        waits.fetch_add(1, Ordering::Release);
                        shared.write(0, &[9; 8])
                    }),
                    scope.spawn(|| {
                        waits.fetch_add(1, Ordering::Release);
                        shared.fill(8, 8..16)
                    }),
                ];
                while waits.load(Ordering::Acquire) < 2 {
                    std::thread::yield_now();
                }
                // Often enough that they have got to where they wait.
                for _ in 0..1000 {
                    assert_eq!(shared.whereabouts().len(), 1);
                    assert!(shared.read().is_err());
                    assert_eq!(shared.statistics().evictions, 0);
                    std::thread::yield_now();
                }
                drop(host);
                for writer in writers {
                    writer.join().unwrap().unwrap();
                }
            });
        });
        let mut wanted = vec![2u32; 64];
        wanted[..8].fill(9);
        wanted[8..16].fill(8);
        assert_eq!(shared.read().unwrap(), wanted, "{}", m.name);
    });
}

fn writes_of_other_threads_wait_and_arrive(f: &Fixture) {
    machines(f, |m| {
        let buffers: Vec<Buffer<u32>> = (0..4)
            .map(|_| m.context.buffer_with(100, Placement::Shared).unwrap())
            .collect();
        let kernel = kernel(&m.device, INCREMENT);
        in_time(|| {
            std::thread::scope(|scope| {
                for (t, buffer) in buffers.iter().enumerate() {
                    let (kernel, buffers) = (&kernel, &buffers);
                    scope.spawn(move || {
                        let mut wanted = vec![0u32; 100];
                        for round in 0..12u32 {
                            buffer.write(round.into(), &[round; 7]).unwrap();
                            wanted[round as usize..][..7].fill(round);
                            let launch = kernel.launch().buffer("data", buffer);
                            launch.invocations(100).submit().unwrap();
                            wanted.iter_mut().for_each(|word| *word += 1);
                            // Somebody else's is asked for, whoever works with it.
                            assert!(buffers[(t + 1) % 4].whereabouts().len() <= 1);
                            if round % 5 == t as u32 {
                                assert_eq!(buffer.read().unwrap(), wanted);
                            }
                        }
                        assert_eq!(buffer.read().unwrap(), wanted);
                    });
                }
            });
        });
    });
}

fn buffers_enter_the_heap_while_another_thread_has_it(f: &Fixture) {
    // A shared buffer gets its memory with the first command; nobody waits for that with the buffer locked.
    machines(f, |m: &Machine| {
        let plain = kernel(&m.device, INCREMENT);
        let shared = (m.context)
            .buffer_from_vec_with(vec![1u32; 64], Placement::Shared)
            .unwrap();
        beside_a_host(&m.heap, |let_go| {
            std::thread::scope(|scope| {
                let launched = scope.spawn(|| {
                    let launch = plain.launch().buffer("data", &shared);
                    launch.invocations(64).submit().map(|_| ())
                });
                assert!(shared.whereabouts().len() <= 1);
                let_go();
                launched.join().unwrap().unwrap();
            });
        });
        assert_eq!(shared.read().unwrap(), [2; 64]);
    });
}

fn maps_in_the_heap_are_written_back_once(f: &Fixture) {
    machines(f, |m| {
        let shared = (m.context)
            .buffer_from_vec_with((0..200u32).collect(), Placement::Shared)
            .unwrap();
        let plain = kernel(&m.device, INCREMENT);
        let mut mapped = shared.map_mut(10..110).unwrap();
        // Between the parts that are touched a launch works on what is not mapped; the rest stays as it is.
        mapped[0] = 1000;
        mapped[50..60].fill(2000);
        mapped[99] = 3000;
        let behind = shared.slice(110..).unwrap();
        plain
            .launch()
            .buffer("data", &behind)
            .invocations(90)
            .submit()
            .unwrap();
        mapped.unmap().unwrap();
        let mut wanted: Vec<u32> = (0..200).collect();
        wanted[110..].iter_mut().for_each(|word| *word += 1);
        wanted[10] = 1000;
        wanted[60..70].fill(2000);
        wanted[109] = 3000;
        assert_eq!(shared.read().unwrap(), wanted, "{}", m.name);
    });
}
