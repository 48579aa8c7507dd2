//! Checked mode: every way to follow a pointer that leads nowhere fails the launch with its kernel, line,
//! address and invocation, reads and writes nothing, and leaves the device alive. On every tier of the heap.

use crate::cases;
use crate::fault_forms::FORMS;
use crate::harness::Fixture;
use tombolo::{
    Constants, Context, Device, DeviceBuffer, DeviceOptions, Event, Kernel, Program, Ptr,
    SharedHeap,
    device::{ExecutionError, WaitError},
    heap::{HeapError, HeapSize},
};

cases![
    wild_pointers_in_every_form_of_access,
    values_across_the_end_of_the_heap,
    indices_beyond_an_array,
    indices_beyond_the_heap,
    the_pointer_that_is_wrong_is_named,
    one_report_of_many_faults_belongs_together,
    wrong_tags_and_the_end_of_device_memory,
    freed_memory_is_known_to_the_host_alone,
    launches_beside_a_failed_one_succeed,
];

/// The line that has to be reported ends with this.
const MARK: &str = "// here";

/// In a grid of 8 by 4 invocations, the one that does it.
const INVOCATION: u32 = 2 * 8 + 5;

const POISON: u32 = 0xdead_beef;

/// Begins each kernel. The type names of the bodies are declared here, so that lines are counted from a
/// text that is longer than the body.
const HEAD: &str = "
struct Node { value: u32, tag: u32, next: usm_ptr }
struct Row { before: u32, items: array<u32, 4>, after: u32 }
struct Shared { pad: u32, count: atomic<u32>, signed: atomic<u32>, more: u32 }
alias Word = u32;
alias Words = array<u32>;
alias Counter = atomic<u32>;
alias Matrix = mat2x2<f32>;
alias Quad = vec4<u32>;
alias Cell = usm_ptr;
@group(0) @binding(0) var<uniform> at: usm_ptr;
@group(0) @binding(1) var<uniform> index: u32;
@group(0) @binding(2) var<storage, read_write> sink: array<u32>;
@compute @workgroup_size(1) fn another() { sink[0] = index + at.x; }
";

/// A heap of its own, full to the last byte: the cases' target lies between bytes that must not change.
struct Room {
    _context: Context,
    device: Device,
    heap: SharedHeap,
    guards: Vec<(Ptr<u8>, Vec<u8>)>,
    /// Of 64 bytes, aligned to 256.
    target: Ptr<u8>,
}

/// The heap's first bytes, which are nobody's: what is wrong must never be written there.
const START: [u32; 64] = [0; 64];

fn start(heap: &SharedHeap) -> *const [u32; 64] {
    heap.base().address() as *const [u32; 64]
}

#[derive(Clone, Copy)]
enum Kind {
    Import,
    Live,
    Mirror,
    Split,
}

impl Room {
    fn new(f: &Fixture, kind: Kind) -> Self {
        let size = HeapSize::Bytes(1 << 20);
        let context = Context::with_heap(wgpu::Backends::all(), size).unwrap();
        let mut options = DeviceOptions::default();
        options.checked_pointers = true;
        match kind {
            Kind::Import => {}
            Kind::Live => options.import_host_memory = false,
            Kind::Mirror => (options.import_host_memory, options.live_memory) = (false, false),
            Kind::Split => options.unified_memory = Some(false),
        }
        let device = context.device_named_with(f.device.name(), options).unwrap();
        let heap = context.heap().unwrap();
        let pattern = |bytes: u64, seed: u64| -> Vec<u8> {
            let byte = |i: u64| (i.wrapping_mul(131) ^ (i >> 8) ^ seed) as u8 | 1;
            (0..bytes).map(byte).collect()
        };
        let before = pattern(8 << 10, 3);
        let mut guards = vec![(heap.alloc_slice(&before).unwrap(), before)];
        let target = heap.alloc_zeroed::<u8>(64).unwrap();
        loop {
            let bytes = heap.statistics().largest_free & !255;
            if bytes == 0 {
                break;
            }
            let values = pattern(bytes, 7);
            guards.push((heap.alloc_slice(&values).unwrap(), values));
        }
        Self {
            _context: context,
            device,
            heap,
            guards,
            target,
        }
    }

    fn each(f: &Fixture, test: impl Fn(&Self)) {
        for kind in [Kind::Import, Kind::Live, Kind::Mirror, Kind::Split] {
            test(&Self::new(f, kind));
        }
    }

    /// The address of the first byte behind the heap.
    fn end(&self) -> u64 {
        let ends = self
            .guards
            .iter()
            .map(|(at, v)| at.address() + v.len() as u64);
        ends.max().unwrap()
    }

    fn kernel(&self, functions: &str, body: &str) -> (Kernel, u32) {
        let source = format!(
            "{HEAD}{functions}
@compute @workgroup_size(4, 2) fn probe(@builtin(global_invocation_id) id: vec3<u32>) {{
    let mine = id.x == 5u && id.y == 2u && index != {POISON}u;
    if !mine {{ return; }}
    sink[3] = 0u;
{body}
}}"
        );
        let marked = source.lines().position(|line| line.ends_with(MARK));
        let line = marked.expect("a marked line") as u32 + 1;
        let program = Program::new("faults.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
        let kernel = self.device.kernel(&program, "probe", &Constants::new());
        (kernel.unwrap_or_else(|e| panic!("{e}")), line)
    }

    fn launch(&self, kernel: &Kernel, at: u64, index: u32) -> (Event, DeviceBuffer<u32>) {
        let sink = self.device.buffer(&[POISON; 4]).unwrap();
        let event = kernel
            .launch()
            .value("at", &at)
            .value("index", &index)
            .buffer("sink", &sink)
            .invocations([8, 4])
            .submit()
            .unwrap();
        (event, sink)
    }

    /// The target. Nothing else may have changed, which is looked up in all of the heap.
    fn untouched(&self) -> Vec<u8> {
        self.compare(&self.guards)
    }

    /// The target. Nothing before it may have changed.
    fn target(&self) -> Vec<u8> {
        self.compare(&self.guards[..1])
    }

    fn compare(&self, guards: &[(Ptr<u8>, Vec<u8>)]) -> Vec<u8> {
        let host = self.heap.host().unwrap();
        for (at, expected) in guards {
            let seen = host.slice(*at, expected.len()).unwrap();
            if seen != expected {
                let wrong = seen.iter().zip(expected).position(|(a, b)| a != b).unwrap();
                panic!("byte {wrong} of the allocation at {at:?} was written");
            }
        }
        // SAFETY: the heap begins with pages that are never handed out; they are there as long as it has
        // allocations, and while the host has access no kernel runs.
        let start = unsafe { *start(&self.heap) };
        assert_eq!(start, START);
        host.slice(self.target, 64).unwrap().to_vec()
    }

    /// Launches with a pointer that is wrong. What it would have read is zeros, and what it would have
    /// written is nowhere.
    fn fails(&self, kernel: &Kernel, at: u64, index: u32, wanted: &Wanted) {
        let target = self.target();
        let (event, sink) = self.launch(kernel, at, index);
        check(event.wait(), wanted);
        // The buffer that it wrote is as uncertain as the heap, which is told of once.
        assert!(sink.read().is_err());
        match self.heap.host().map(|_| ()).unwrap_err() {
            HeapError::Execution(_) => {}
            other => panic!("{other}"),
        }
        assert_eq!(self.target(), target, "{at:#x}");
        sink.clear_error();
        let seen = sink.read().unwrap();
        for &word in &seen {
            assert!(word == POISON || word == 0, "{at:#x}: {seen:x?} was read");
        }
    }

    /// The same launch with a pointer that is right.
    fn works(&self, kernel: &Kernel, at: u64, index: u32) -> Vec<u32> {
        let (event, sink) = self.launch(kernel, at, index);
        event.wait().unwrap();
        self.untouched();
        sink.read().unwrap()
    }
}

struct Wanted<'a> {
    line: u32,
    reason: &'a str,
    address: u64,
}

fn check(ended: Result<(), WaitError>, wanted: &Wanted) {
    let error = match ended {
        Err(WaitError::Failed(error)) => error,
        other => panic!("{:#x}: {other:?}", wanted.address),
    };
    match &*error {
        ExecutionError::Pointer {
            kernel,
            file,
            line,
            reason,
            address,
            invocation,
            excerpt,
            ..
        } => {
            assert_eq!((kernel.as_str(), &**file), ("probe", "faults.wgsl"));
            assert_eq!(*address, wanted.address, "{error}");
            assert!(reason.contains(wanted.reason), "{error}");
            assert_eq!(*line, wanted.line, "{error}");
            assert_eq!(*invocation, INVOCATION, "{error}");
            assert!(excerpt.contains(MARK), "{error}");
        }
        other => panic!("{other}"),
    }
    let text = error.to_string();
    let place = format!("faults.wgsl:{}:", wanted.line);
    for part in [
        "`probe`",
        place.as_str(),
        "it read as zero, and nothing was written",
    ] {
        assert!(text.contains(part), "`{part}` in {text}");
    }
}

fn wild_pointers_in_every_form_of_access(f: &Fixture) {
    Room::each(f, |room| {
        let base = room.heap.base().address();
        for &(functions, body, align) in FORMS {
            // A mark that does not end its line stands in for none.
            let (kernel, line) = room.kernel(functions, body);
            let outside = [
                // In the unused part of the window, before it, behind it, and wherever bits may lead.
                (base + (4 << 30)) - 64,
                room.end(),
                base - 64,
                base + (4 << 30),
                base ^ 1 << 40,
                (base & 0xffff_ffff) | 64 << 10,
                !0 << 6,
            ];
            let mut wrong: Vec<(u64, &str)> = vec![(0, "null")];
            // Windows maps memory below 4 GiB, too: there the low word of an address is an address in the heap.
            let outside = outside.into_iter();
            let outside = outside.filter(|at| !(base..room.end()).contains(at));
            wrong.extend(outside.map(|at| (at, "out of the heap")));
            wrong.extend([(1, "misaligned"), (u64::MAX, "misaligned")]);
            wrong.push((room.target.address() + align / 2, "misaligned"));
            wrong.push((room.target.address() + 1, "misaligned"));
            for (address, reason) in wrong {
                let wanted = Wanted {
                    line,
                    reason,
                    address,
                };
                room.fails(&kernel, address, 1, &wanted);
            }
            room.works(&kernel, room.target.address(), 1);
        }
    });
}

fn values_across_the_end_of_the_heap(f: &Fixture) {
    Room::each(f, |room| {
        let end = room.end();
        // Of 16 bytes aligned to 8, of 24 bytes aligned to 4: their first bytes lie in the heap.
        for (body, back) in [
            ("sink[1] = usm_Node(at).value; // here", 8),
            ("let n = usm_Node(at); // here\n n.value = 1u;", 8),
            ("let r = usm_Row(at); // here\n r.before = 1u;", 20),
            ("let r = usm_Row(at); // here\n r.items[index] = 1u;", 4),
            (
                "let s = usm_Shared(at); // here\n atomicAdd(&s.count, 1u);",
                12,
            ),
        ] {
            let (kernel, line) = room.kernel("", body);
            let wanted = Wanted {
                line,
                reason: "out of the heap",
                address: end - back,
            };
            room.fails(&kernel, end - back, 1, &wanted);
        }
        // The last one that fits.
        let (kernel, _) = room.kernel("", "sink[1] = usm_Node(at).value; // here");
        let last: [u8; 4] = {
            let (at, bytes) = room
                .guards
                .iter()
                .max_by_key(|(at, _)| at.address())
                .unwrap();
            let from = (end - 16 - at.address()) as usize;
            bytes[from..from + 4].try_into().unwrap()
        };
        assert_eq!(
            room.works(&kernel, end - 16, 1)[1],
            u32::from_le_bytes(last)
        );
    });
}

fn indices_beyond_an_array(f: &Fixture) {
    Room::each(f, |room| {
        let at = room.target.address();
        for body in [
            "let r = usm_Row(at);\n sink[1] = r.items[index]; // here",
            "let r = usm_Row(at);\n r.items[index] = 3u; // here",
            "let r = usm_Row(at);\n r.items[i32(index)] += 3u; // here",
            "let item = &usm_Row(at).items[index]; // here\n *item = 4u;",
            "for (var i = 0u; i < 3u; i++) {\n let r = usm_Row(at);
                r.items[i + index] = 4u; // here\n }",
        ] {
            let (kernel, line) = room.kernel("", body);
            for index in [4, 5, 1000, 0x3fff_ffff, 0x4000_0000, u32::MAX - 3] {
                let wanted = Wanted {
                    line,
                    reason: "an index",
                    // Addresses of arrays that leave 4 GiB wrap in their low word, as the index does.
                    address: (at & !0xffff_ffff)
                        | u64::from((at as u32 + 4).wrapping_add(index.wrapping_mul(4))),
                };
                room.fails(&kernel, at, index, &wanted);
            }
            room.works(&kernel, at, 1);
        }
        // A null pointer with a wrong index is a null pointer.
        let (kernel, line) = room.kernel("", "let r = usm_Row(at); // here\n r.items[index] = 3u;");
        let wanted = Wanted {
            line,
            reason: "null",
            address: 0,
        };
        room.fails(&kernel, 0, 9, &wanted);
    });
}

fn indices_beyond_the_heap(f: &Fixture) {
    Room::each(f, |room| {
        let at = room.target.address();
        let beyond = ((room.end() - at) / 4) as u32;
        for body in [
            "sink[1] = usm_Words(at)[index]; // here",
            "let w = &usm_Words(at)[index]; // here\n *w = 4u;",
            "let w = usm_Words(at);\n w[index] = 4u; // here",
        ] {
            let (kernel, line) = room.kernel("", body);
            for index in [beyond, beyond + 1, 0x3fff_ffff, 0x4000_0000, u32::MAX] {
                let low = (at as u32).wrapping_add(index.wrapping_mul(4));
                let wanted = Wanted {
                    line,
                    reason: "an index",
                    address: (at & !0xffff_ffff) | u64::from(low),
                };
                room.fails(&kernel, at, index, &wanted);
            }
            room.works(&kernel, at, 3);
        }
    });
}

fn the_pointer_that_is_wrong_is_named(f: &Fixture) {
    Room::each(f, |room| {
        let good = room.target.address();
        let bad = good + 4;
        let with = |kernel: &Kernel, [first, second, third]: [u64; 3]| {
            let sink = room.device.buffer(&[POISON; 3]).unwrap();
            let launch = kernel.launch().value("first", &first);
            let mut launch = launch.value("second", &second).value("third", &third);
            launch = launch.buffer("sink", &sink).invocations([8, 4]);
            launch.submit().unwrap().wait()
        };
        let lines = [
            "    sink[0] = usm_Node(first).value; // one",
            "    let n = usm_Node(second); // two",
            "    n.tag = 4u;",
            "    atomicAdd(&usm_Shared(third).count, 1u); // three",
        ];
        let source = format!(
            "struct Node {{ value: u32, tag: u32, next: usm_ptr }}
            struct Shared {{ pad: u32, count: atomic<u32> }}
            @group(0) @binding(0) var<uniform> first: usm_ptr;
            @group(0) @binding(1) var<uniform> second: usm_ptr;
            @group(0) @binding(2) var<storage, read_write> sink: array<u32>;
            @group(1) @binding(0) var<uniform> third: usm_ptr;
            @compute @workgroup_size(8) fn probe(@builtin(global_invocation_id) id: vec3<u32>) {{
            if id.x != 5u || id.y != 2u {{ return; }}\n{}\n}}",
            lines.join("\n")
        );
        let line = |mark: &str| source.lines().position(|l| l.ends_with(mark)).unwrap() as u32 + 1;
        let (one, two, three) = (line("// one"), line("// two"), line("// three"));
        let program = Program::new("several.wgsl", source.as_str()).unwrap();
        let kernel = room
            .device
            .kernel(&program, "probe", &Constants::new())
            .unwrap();
        with(&kernel, [good; 3]).unwrap();
        for (pointers, wanted) in [
            ([bad, good, good], (one, bad)),
            ([good, bad, good], (two, bad)),
            ([good, good, 2], (three, 2)),
            ([good, 0, bad], (two, 0)),
            ([8, bad, 2], (one, 8)),
        ] {
            let before = room.untouched();
            match with(&kernel, pointers) {
                Err(WaitError::Failed(error)) => match &*error {
                    ExecutionError::Pointer {
                        line,
                        address,
                        invocation,
                        ..
                    } => {
                        assert_eq!((*line, *address), wanted, "{pointers:x?}: {error}");
                        assert_eq!(*invocation, INVOCATION);
                    }
                    other => panic!("{other}"),
                },
                other => panic!("{pointers:x?}: {other:?}"),
            }
            assert!(room.heap.host().is_err());
            // Accesses through the other pointers, which are good, still happen.
            let after = room.untouched();
            let word = |bytes: &[u8]| u32::from_le_bytes(bytes[4..8].try_into().unwrap());
            let mut expected = word(&before);
            if pointers[1] == good {
                expected = 4;
            }
            if pointers[2] == good {
                expected += 1;
            }
            assert_eq!(word(&after), expected, "{pointers:x?}");
        }
    });
}

fn one_report_of_many_faults_belongs_together(f: &Fixture) {
    Room::each(f, |room| {
        let source = "
            alias Word = u32;
            @group(0) @binding(0) var<uniform> at: usm_ptr;
            @compute @workgroup_size(64) fn probe(@builtin(global_invocation_id) id: vec3<u32>) {
                if id.x % 3u == 0u { atomicAdd(usm_Counter(usm_element(at, id.x, 4u)), 1u); }
                else { let w = usm_Counter(usm_element(at, id.x, 16u)); atomicStore(w, id.x); }
            }
            alias Counter = atomic<u32>;";
        let program = Program::new("many.wgsl", source).unwrap();
        let kernel = room
            .device
            .kernel(&program, "probe", &Constants::new())
            .unwrap();
        let at = room.target.address() + 2;
        let event = kernel.launch().value("at", &at).invocations(4096).submit();
        match event.unwrap().wait() {
            Err(WaitError::Failed(error)) => match &*error {
                ExecutionError::Pointer {
                    line,
                    address,
                    invocation,
                    ..
                } => {
                    let id = u64::from(*invocation);
                    assert!(id < 4096);
                    let (stride, expected) = if id % 3 == 0 { (4, 5) } else { (16, 6) };
                    assert_eq!((*address, *line), (at + id * stride, expected), "{error}");
                }
                other => panic!("{other}"),
            },
            other => panic!("{other:?}"),
        }
        assert!(room.heap.host().is_err());
        assert_eq!(room.untouched(), [0; 64]);
    });
}

fn wrong_tags_and_the_end_of_device_memory(f: &Fixture) {
    let room = Room::new(f, Kind::Split);
    let device = &room.device;
    let own = device.malloc::<u32>(64).unwrap();
    device.heap_fill(own, 5u32, 64).unwrap().wait().unwrap();
    let (kernel, line) = room.kernel("", "let n = usm_Node(at); // here\n n.tag = 9u;");
    let address = own.address();
    room.works(&kernel, address, 1);
    // Where the segment ends is not the program's to know: its offset has 32 bits.
    for (address, reason) in [
        (address | 0xffff_fff0, "out of the heap"),
        (address | 1 << 40, "out of the heap"),
        (address + (1 << 48), "out of the heap"),
        (address | 0xff << 56, "out of the heap"),
        (address + 4, "misaligned"),
    ] {
        let wanted = Wanted {
            line,
            reason,
            address,
        };
        room.fails(&kernel, address, 1, &wanted);
    }
    let buffer: DeviceBuffer<u32> = device.zeroed(64).unwrap();
    buffer.copy_from_heap(0, own, 64).unwrap();
    let mut expected = [5; 64];
    expected[1] = 9;
    assert_eq!(buffer.read().unwrap(), expected);
}

fn freed_memory_is_known_to_the_host_alone(f: &Fixture) {
    // Kernels test whether a pointer leads into the heap, and not into which allocation: a stale one reads
    // what lies there. The host knows.
    Room::each(f, |room| {
        let (kernel, _) = room.kernel("", "sink[1] = usm_Node(at).value; // here");
        let (stale, _) = room.guards[0];
        room.heap.free(stale).unwrap();
        let (event, _) = room.launch(&kernel, stale.address(), 1);
        event.wait().unwrap();
        let host = room.heap.host().unwrap();
        match host.get(stale).unwrap_err() {
            HeapError::NotAllocated { address, .. } => assert_eq!(address, stale.address()),
            other => panic!("{other}"),
        }
        drop(host);
        let freed_twice = room.heap.free(stale).unwrap_err();
        assert!(matches!(freed_twice, HeapError::NotAllocated { .. }));
        let launch = kernel.launch().pointer("sink", stale.cast::<u32>(), 4);
        let refused = launch
            .value("index", &1u32)
            .value("at", &0u64)
            .invocations(1);
        let error = refused.clone().submit().unwrap_err().to_string();
        assert!(error.contains("not within one live allocation"), "{error}");
    });
}

fn launches_beside_a_failed_one_succeed(f: &Fixture) {
    // A launch that failed says nothing about those before and after it in the same batch.
    Room::each(f, |room| {
        let (poke, line) = room.kernel("", "let n = usm_Node(at); // here\n n.tag += index;");
        let target = room.target.address();
        let before = room.launch(&poke, target, 3).0;
        let wrong = room.launch(&poke, 1, 3).0;
        let after = room.launch(&poke, target, 4).0;
        let wanted = Wanted {
            line,
            reason: "misaligned",
            address: 1,
        };
        check(wrong.wait(), &wanted);
        before.wait().unwrap();
        after.wait().unwrap();
        assert!(room.heap.host().is_err());
        assert_eq!(room.untouched()[4..8], 7u32.to_le_bytes());
    });
}
