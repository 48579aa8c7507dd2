//! Imported memory on the Vulkan drivers of this machine: all sides see the same memory, and the end of any side takes
//! nothing from the others.

mod machine;

use std::time::{Duration, Instant};

use super::*;
use crate::device::probe::Finding;
use crate::device::words::Words;
use machine::{MIB, Machine, Port, descriptor, pipeline, window};

#[test]
fn a_device_that_imports_is_otherwise_the_one_that_wgpu_opens() {
    let machine = Machine::new();
    for adapter in &machine.adapters {
        let wanted = [
            descriptor(adapter),
            wgpu::DeviceDescriptor::default(),
            wgpu::DeviceDescriptor {
                required_limits: wgpu::Limits::downlevel_defaults(),
                memory_hints: wgpu::MemoryHints::MemoryUsage,
                ..Default::default()
            },
        ];
        for descriptor in wanted {
            let plain = pollster::block_on(adapter.request_device(&descriptor))
                .unwrap()
                .0;
            let imports = pollster::block_on(request_device(adapter, &descriptor, true))
                .unwrap()
                .device;
            let without = pollster::block_on(request_device(adapter, &descriptor, false))
                .unwrap()
                .device;
            for device in [&imports, &without] {
                assert_eq!(device.features(), plain.features());
                assert_eq!(device.limits(), plain.limits());
                assert_eq!(device.adapter_info().name, plain.adapter_info().name);
            }
            assert!(matches!(
                import_limits(&without).unwrap_err(),
                ImportError::Extension { .. }
            ));
        }
    }
}

#[test]
fn what_wgpu_refuses_is_refused_with_its_words() {
    let machine = Machine::new();
    for adapter in &machine.adapters {
        let mut limits = adapter.limits();
        limits.max_bind_groups += 1;
        let refused = [
            wgpu::DeviceDescriptor {
                required_features: wgpu::Features::all() - adapter.features(),
                ..Default::default()
            },
            wgpu::DeviceDescriptor {
                required_limits: limits,
                ..Default::default()
            },
        ];
        for descriptor in refused {
            let expected = pollster::block_on(adapter.request_device(&descriptor)).unwrap_err();
            let error = pollster::block_on(request_device(adapter, &descriptor, true)).unwrap_err();
            assert_eq!(error.to_string(), expected.to_string());
        }
    }
}

#[test]
fn host_and_kernels_share_the_bytes() {
    let machine = Machine::new();
    for port in machine.ports() {
        let (window, words) = window(MIB);
        for i in 0..MIB / 4 {
            words.store_u32(i * 4, i as u32 * 7).unwrap();
        }
        // Not the beginning of the window: offsets must not be taken for addresses.
        let buffer = port.import(&window, MIB / 2..MIB).unwrap();
        assert_eq!(buffer.size(), MIB / 2);
        assert_eq!(buffer.usage(), IMPORTED_USAGE);
        port.add(&buffer, 0, MIB / 8, 5);
        for i in 0..MIB / 4 {
            let expected = i as u32 * 7 + if i >= MIB / 8 { 5 } else { 0 };
            assert_eq!(words.load_u32(i * 4), Some(expected), "{}: {i}", port.name);
        }
        // Copies and fills reach the same bytes.
        let mut encoder = port.device.create_command_encoder(&Default::default());
        encoder.clear_buffer(&buffer, 4096, Some(4096));
        encoder.copy_buffer_to_buffer(&buffer, 0, &buffer_of(&port, 8192), 0, 8192);
        port.queue.submit([encoder.finish()]);
        port.queue.write_buffer(&buffer, 8, &99_u32.to_le_bytes());
        port.queue.submit([]);
        port.finish();
        assert_eq!(words.load_u32(MIB / 2 + 4096), Some(0));
        assert_eq!(words.load_u32(MIB / 2 + 8192 - 4), Some(0));
        assert_ne!(words.load_u32(MIB / 2 + 8192), Some(0));
        assert_eq!(words.load_u32(MIB / 2 + 8), Some(99));
    }
}

fn buffer_of(port: &Port, size: u64) -> wgpu::Buffer {
    port.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size,
        usage: wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    })
}

#[test]
fn all_drivers_and_two_devices_of_each_work_on_one_memory() {
    let machine = Machine::new();
    let mut ports = machine.ports();
    ports.extend(machine.ports());
    let (window, words) = window(MIB);
    let buffers: Vec<_> = ports
        .iter()
        .map(|port| port.import(&window, 0..MIB).unwrap())
        .collect();
    let mut expected = 0_u32;
    for round in 0..3_u32 {
        for (port, buffer) in ports.iter().zip(&buffers) {
            expected = expected.wrapping_mul(3).wrapping_add(round);
            // The host reads the previous device's word, and answers in place.
            for word in (0..MIB).step_by(4) {
                words.store_u32(word, expected).unwrap();
            }
            port.add(buffer, 0, MIB / 4, 11);
            expected = expected.wrapping_add(11);
            for word in (0..MIB).step_by(4) {
                assert_eq!(words.load_u32(word), Some(expected), "{}", port.name);
            }
        }
        // Device after device, with no host between them.
        for (port, buffer) in ports.iter().zip(&buffers) {
            port.add(buffer, 0, MIB / 4, 1000);
            expected = expected.wrapping_add(1000);
        }
        for word in (0..MIB).step_by(4) {
            assert_eq!(words.load_u32(word), Some(expected));
        }
    }
    assert!(ports.len() >= 2);
}

/// Two kernels hand a word to and fro. Both are bounded, and may miss each other; of each pair of launches, at least
/// the one whose turn it is must find the word.
#[test]
fn kernels_of_all_drivers_answer_each_other() {
    const HANDOVERS: u32 = 20;
    const TALK: &str = "
        @group(0) @binding(0) var<storage, read_write> words: array<atomic<u32>>;
        @group(0) @binding(1) var<uniform> side: u32;
        // Eight invocations, because a software driver adds idle ones otherwise, which do not leave.
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) lane: u32) {
            if lane != 0u { return; }
            var seen = atomicLoad(&words[64u + side]);
            for (var turn = 0u; turn < 20000u && seen < 20u; turn++) {
                if atomicLoad(&words[0]) == 2u * seen + side {
                    seen += 1u;
                    atomicStore(&words[0], 2u * seen + side - 1u);
                }
            }
            atomicStore(&words[64u + side], seen);
        }";
    let machine = Machine::new();
    let ports = machine.ports();
    let others = machine.ports();
    let (window, words) = window(MIB);
    for one in &ports {
        for other in &others {
            for word in (0..1024).step_by(4) {
                words.store_u32(word, 0).unwrap();
            }
            let sides = [(0_u32, one), (1, other)].map(|(side, port)| {
                let talk = pipeline(&port.device, TALK);
                let buffer = port.import(&window, 0..MIB).unwrap();
                (side, port, talk, buffer)
            });
            let seen = || [256, 260].map(|offset| words.load_u32(offset));
            let done = [Some(HANDOVERS); 2];
            for _ in (0..2 * HANDOVERS).take_while(|_| seen() != done) {
                for (side, port, talk, buffer) in &sides {
                    let commands = port.commands(talk, buffer, 0, MIB, *side, 1);
                    port.queue.submit([commands]);
                }
                one.finish();
                other.finish();
            }
            let names = (&one.name, &other.name);
            assert_eq!(seen(), done, "{names:?}");
            assert_eq!(words.load_u32(0), Some(2 * HANDOVERS), "{names:?}");
        }
    }
}

#[test]
fn growing_by_blocks_leaves_earlier_imports_valid() {
    const BLOCK: u64 = 64 * MIB;
    let machine = Machine::new();
    for port in machine.ports() {
        let window = Window::reserve(Window::ALIGNMENT).unwrap();
        let mut blocks = Vec::new();
        for block in 0..6_u64 {
            let range = block * BLOCK..(block + 1) * BLOCK;
            window.commit(range.clone()).unwrap();
            blocks.push((
                port.import(&window, range.clone()).unwrap(),
                window.pin(range).unwrap(),
            ));
            // Every block so far, at both ends.
            for (buffer, _) in &blocks {
                port.add(buffer, 0, 1024, 1);
                port.add(buffer, BLOCK - 4096, 1024, 1);
            }
        }
        for (index, (_, words)) in (0_u32..).zip(&blocks) {
            for word in [0, 4092, BLOCK - 4096, BLOCK - 4] {
                assert_eq!(words.load_u32(word), Some(6 - index), "{}", port.name);
            }
            assert_eq!(words.load_u32(4096), Some(0));
        }
    }
}

#[test]
fn a_longer_import_over_a_shorter_one_is_the_same_memory_or_refused() {
    let machine = Machine::new();
    for port in machine.ports() {
        let (window, words) = window(4 * MIB);
        let short = port.import(&window, 0..MIB).unwrap();
        let long = match port.import(&window, 0..4 * MIB) {
            Err(ImportError::Refused { .. }) => continue,
            other => other.unwrap(),
        };
        port.add(&short, 0, 1024, 1);
        port.add(&long, 0, 1024, 10);
        drop(short);
        port.finish();
        port.add(&long, 0, 1024, 100);
        assert_eq!(words.load_u32(64), Some(111), "{}", port.name);
    }
}

#[test]
fn pages_under_a_device_stay_until_it_has_finished() {
    let machine = Machine::new();
    for port in machine.ports() {
        let window = Window::reserve(Window::ALIGNMENT).unwrap();
        window.commit(0..16 * MIB).unwrap();
        let buffer = port.import(&window, 0..16 * MIB).unwrap();
        let in_use = || {
            let error = window.decommit(0..16 * MIB).err();
            error.map(|error| matches!(error, WindowError::InUse { .. }))
        };
        assert_eq!(in_use(), Some(true));
        let commands = (0..5).map(|_| port.adding(&buffer, 0, 4 * MIB, 1));
        port.queue.submit(commands.collect::<Vec<_>>());
        drop(buffer);
        // The submission holds the buffer until wgpu has seen its end.
        assert_eq!(in_use(), Some(true));
        let words = window.pin(0..16 * MIB).unwrap();
        port.finish();
        assert_eq!(words.load_u32(16 * MIB - 4), Some(5), "{}", port.name);
        drop(words);
        assert_eq!(in_use(), None);
        // The same pages, zero again, for another import.
        window.commit(0..16 * MIB).unwrap();
        let again = port.import(&window, 0..16 * MIB).unwrap();
        port.add(&again, 0, 4 * MIB, 3);
        let words = window.pin(0..16 * MIB).unwrap();
        assert_eq!(words.load_u32(16 * MIB - 4), Some(3), "{}", port.name);
    }
}

#[test]
fn pages_are_free_when_a_device_is_gone() {
    let machine = Machine::new();
    for port in machine.ports() {
        let window = Window::reserve(Window::ALIGNMENT).unwrap();
        window.commit(0..16 * MIB).unwrap();
        let buffer = port.import(&window, 0..16 * MIB).unwrap();
        let commands = (0..5).map(|_| port.adding(&buffer, 0, 4 * MIB, 1));
        port.queue.submit(commands.collect::<Vec<_>>());
        // The launches have no waiter, and no thread polls.
        drop((buffer, port));
        window.decommit(0..16 * MIB).unwrap();
    }
}

#[test]
fn memory_outlives_a_device_and_a_device_its_window() {
    let machine = Machine::new();
    for port in machine.ports() {
        let (window, words) = window(MIB);
        let buffer = port.import(&window, 0..MIB).unwrap();
        let other = Port::open(
            machine
                .adapters
                .iter()
                .find(|adapter| adapter.get_info().name == port.name)
                .unwrap(),
        );
        let kept = other.import(&window, 0..MIB).unwrap();
        port.add(&buffer, 0, 16, 4);
        // wgpu destroys every buffer of the device on the next poll.
        port.device.destroy();
        for _ in 0..3 {
            let _ = port.device.poll(wgpu::PollType::Poll);
        }
        assert_eq!(words.load_u32(60), Some(4));
        drop((words, window));
        // Only the import holds the window now.
        other.add(&kept, 0, 16, 4);
        other.add(&kept, 0, 16, 4);
    }
}

#[test]
fn refusals_are_typed_and_leave_nothing_behind() {
    let machine = Machine::new();
    for port in machine.ports() {
        let limits = import_limits(&port.device).unwrap();
        let window = Window::reserve(Window::ALIGNMENT).unwrap();
        let page = window.page_size();
        assert!(matches!(
            port.import(&window, 0..MIB).unwrap_err(),
            ImportError::Window(WindowError::NotCommitted { .. })
        ));
        assert!(matches!(
            port.import(&window, 0..page / 2).unwrap_err(),
            ImportError::Window(WindowError::Range { .. })
        ));
        if limits.alignment > page {
            window.commit(0..page).unwrap();
            let error = port.import(&window, 0..page).unwrap_err();
            assert!(matches!(error, ImportError::Alignment { .. }));
            window.decommit(0..page).unwrap();
        }
        // Untouched pages cost nothing, but a small machine may refuse that many all the same.
        let beyond = 0..limits.longest + limits.alignment.max(page);
        if beyond.end <= window.size() && window.commit(beyond.clone()).is_ok() {
            let error = port.import(&window, beyond).unwrap_err();
            assert!(matches!(error, ImportError::TooLong { .. }), "{error}");
        }
        // A failure pins nothing.
        window.decommit(0..window.size()).unwrap();
        let adapter = machine
            .adapters
            .iter()
            .find(|a| a.get_info().name == port.name);
        let plain =
            pollster::block_on(request_device(adapter.unwrap(), &Default::default(), false))
                .unwrap();
        window.commit(0..MIB).unwrap();
        assert!(matches!(
            import_host(&plain.device, &window, 0..MIB, "none").unwrap_err(),
            ImportError::Extension { .. }
        ));
        window.decommit(0..MIB).unwrap();
    }
}

/// What the probe has for it.
const WITHIN: Duration = Duration::from_secs(20);

#[test]
fn the_probe_finds_that_imported_memory_is_shared() {
    let machine = Machine::new();
    for port in machine.ports() {
        let deadline = Instant::now() + WITHIN;
        let found = probe_import(&port.device, &port.queue, WITHIN, deadline);
        let Finding::Measured(found) = found else {
            panic!("{}: {:?}", port.name, found.why_not());
        };
        assert!(found.shared, "{}", port.name);
        assert!(found.alignment.is_power_of_two() && found.longest >= found.alignment);
    }
}

#[test]
fn the_probe_of_a_plain_device_says_why_not() {
    let machine = Machine::new();
    for adapter in &machine.adapters {
        let opened = pollster::block_on(request_device(adapter, &Default::default(), false));
        let Opened { device, queue, .. } = opened.unwrap();
        let found = probe_import(&device, &queue, WITHIN, Instant::now() + WITHIN);
        let why = found.why_not().unwrap();
        assert!(why.contains("VK_EXT_external_memory_host"), "{why}");
    }
}

#[test]
fn the_probe_and_its_kernel_agree_on_where_words_lie() {
    let source = probe::SHADER;
    let module = naga::front::wgsl::parse_str(source).unwrap();
    let words = module
        .types
        .iter()
        .find(|(_, ty)| ty.name.as_deref() == Some("Words"));
    let naga::TypeInner::Struct { members, .. } = &words.unwrap().1.inner else {
        panic!("Words is no struct");
    };
    for (name, offset) in probe::words::ALL {
        let member = members.iter().find(|m| m.name.as_deref() == Some(name));
        assert_eq!(member.map(|m| u64::from(m.offset)), Some(offset), "{name}");
    }
}
