//! Arguments of launches that are ranges of any bytes: slices, parts, and pointers.

use super::{LENGTHS, OFFSETS};
use crate::byte_copies::{Machine, machines, noise, same};
use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Constants, DeviceBuffer, Kernel, Launch, Program, Ptr,
    buffers::{BufferArgument, Placement},
    kernel::KernelError,
};

cases![
    kernels_change_exactly_their_range,
    kernels_that_follow_pointers_do_so_too,
    kernels_with_more_arguments_than_bindings_do_so_too,
    what_lies_behind_a_range_is_zero_to_a_kernel,
    ranges_are_read_and_promised_to_be_overwritten,
    uniforms_begin_anywhere,
    staged_arguments_are_counted,
];

/// Inverts every bit that it sees.
const INVERT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] = ~data[id.x]; }
}";

/// The same, and follows a pointer, so that it has the whole heap bound.
const FOLLOW: &str = "
struct Word { value: u32 }
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@group(0) @binding(1) var<uniform> at: usm_ptr;
@compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] = ~data[id.x]; }
    if id.x == 0u { let word = usm_Word(at); word.value += 1u; }
}";

/// Bytes between the places where ranges begin, which every adapter binds.
const SLOT: u64 = 512;

fn kernel(m: &Machine, source: &str) -> Result<Kernel, KernelError> {
    let program = Program::new("ranges.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    m.device.kernel(&program, "main", &Constants::new())
}

/// Memory of each kind whose ranges are given to launches.
enum Memory {
    Device(DeviceBuffer<u8>),
    Context(tombolo::Buffer<u8>),
    Heap(Ptr<u8>, usize),
    Own(Ptr<u8>, usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Device,
    Context(Placement),
    Heap,
    Own,
}

const KINDS: [Kind; 5] = [
    Kind::Device,
    Kind::Context(Placement::Device),
    Kind::Context(Placement::Shared),
    Kind::Heap,
    Kind::Own,
];

impl Memory {
    fn new(m: &Machine, kind: Kind, bytes: &[u8]) -> Self {
        match kind {
            Kind::Device => Self::Device(m.device.buffer(bytes).unwrap()),
            Kind::Context(placement) => {
                let made = m.context.buffer_from_vec_with(bytes.to_vec(), placement);
                Self::Context(made.unwrap())
            }
            Kind::Heap => Self::Heap(m.heap.alloc_slice(bytes).unwrap(), bytes.len()),
            Kind::Own => {
                let own = m.device.malloc::<u8>(bytes.len()).unwrap();
                let buffer = m.device.buffer(bytes).unwrap();
                buffer.copy_to_heap(0, own, bytes.len() as u64).unwrap();
                Self::Own(own, bytes.len())
            }
        }
    }

    /// Gives a range for `data`.
    fn give(&self, launch: Launch, range: std::ops::Range<u64>) -> Launch {
        let len = (range.end - range.start) as usize;
        match self {
            Self::Device(buffer) => launch.buffer("data", buffer.slice(range)),
            Self::Context(buffer) => launch.buffer("data", buffer.slice(range).unwrap()),
            Self::Heap(ptr, _) | Self::Own(ptr, _) => {
                launch.pointer("data", ptr.byte_add(range.start), len)
            }
        }
    }

    /// What it holds in the end.
    fn take(self, m: &Machine) -> Vec<u8> {
        match self {
            Self::Device(buffer) => buffer.read().unwrap(),
            Self::Context(buffer) => buffer.read().unwrap(),
            Self::Heap(ptr, len) => {
                let bytes = m.heap.read(ptr, len).unwrap();
                m.heap.free(ptr).unwrap();
                bytes
            }
            Self::Own(ptr, len) => {
                let buffer: DeviceBuffer<u8> = m.device.zeroed(len).unwrap();
                buffer.copy_from_heap(0, ptr, len as u64).unwrap();
                m.device.free(ptr).unwrap();
                buffer.read().unwrap()
            }
        }
    }
}

/// Launches `kernel` on every range of one large memory, and on ranges that end with the memory they lie in.
fn invert(
    m: &Machine,
    kind: Kind,
    what: &str,
    launch: impl Fn() -> Launch,
    lengths: impl Iterator<Item = u64> + Clone,
) {
    let submit = |memory: &Memory, range: std::ops::Range<u64>| {
        let mut launch = memory.give(launch(), range.clone()).invocations(8);
        let submitted = launch.submit();
        submitted.unwrap_or_else(|e| panic!("{what}, {range:?}: {e}"));
    };
    let places: Vec<(u64, u64)> = (lengths.clone())
        .flat_map(|len| OFFSETS.map(|offset| (offset, len)))
        .collect();
    let bytes = places.len() as u64 * SLOT;
    let mut wanted = noise(1, bytes as usize);
    let memory = Memory::new(m, kind, &wanted);
    for (slot, (offset, len)) in places.iter().enumerate() {
        let start = slot as u64 * SLOT + offset;
        submit(&memory, start..start + len);
        let changed = &mut wanted[start as usize..(start + len) as usize];
        changed.iter_mut().for_each(|byte| *byte = !*byte);
    }
    same(&memory.take(m), &wanted, what);
    // At the end of a buffer.
    for (offset, len) in lengths.flat_map(|len| [0, 1, 2, 3].map(|offset| (offset, len))) {
        let bytes = offset + len;
        let mut wanted = noise(2, bytes as usize);
        let memory = Memory::new(m, kind, &wanted);
        submit(&memory, offset..bytes);
        let changed = &mut wanted[offset as usize..];
        changed.iter_mut().for_each(|byte| *byte = !*byte);
        same(&memory.take(m), &wanted, what);
    }
}

fn kernels_change_exactly_their_range(f: &Fixture) {
    machines(f, |m| {
        let kernel = kernel(m, INVERT).unwrap();
        for kind in KINDS {
            let what = format!("{}, {kind:?}", m.name);
            invert(m, kind, &what, || kernel.launch(), LENGTHS.step_by(3));
        }
    });
}

fn kernels_that_follow_pointers_do_so_too(f: &Fixture) {
    machines(f, |m| {
        let kernel = kernel(m, FOLLOW).unwrap();
        let word = m.heap.alloc(0u32).unwrap();
        for kind in KINDS {
            let what = format!("{}, {kind:?} beside pointers", m.name);
            let launch = || kernel.launch().value("at", &word);
            invert(m, kind, &what, launch, LENGTHS.step_by(3));
        }
        let launches = LENGTHS.step_by(3).count() * (OFFSETS.len() + 4) * KINDS.len();
        assert_eq!(m.heap.read(word, 1).unwrap(), [launches as u32]);
        m.heap.free(word).unwrap();
    });
}

fn kernels_with_more_arguments_than_bindings_do_so_too(f: &Fixture) {
    // More storage buffers than the adapter has bindings for: the last ones go into the argument table.
    let count = f
        .device
        .raw()
        .limits()
        .max_storage_buffers_per_shader_stage
        .min(64);
    let mut source = String::new();
    let mut body = String::new();
    for i in 0..count {
        source += &format!("@group(0) @binding({i}) var<storage, read> a{i}: array<u32>;\n");
        body += &format!("sum += a{i}[0];\n");
    }
    source += &format!(
        "@group(1) @binding(0) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            var sum = 0u;
            {body}
            if id.x < arrayLength(&data) {{ data[id.x] = data[id.x] ^ sum; }}
        }}"
    );
    machines(f, |m| {
        let kernel = kernel(m, &source).unwrap();
        let ones = m.device.buffer(&[u32::MAX]).unwrap();
        let zeros: DeviceBuffer<u32> = m.device.zeroed(1).unwrap();
        for kind in KINDS {
            let what = format!("{}, {kind:?} in the table", m.name);
            let launch = || {
                (0..count).fold(kernel.launch(), |launch, i| {
                    launch.buffer(&format!("a{i}"), if i == 0 { &ones } else { &zeros })
                })
            };
            invert(m, kind, &what, launch, [1, 6, 19].into_iter());
        }
    });
}

fn what_lies_behind_a_range_is_zero_to_a_kernel(f: &Fixture) {
    const SHOW: &str = "
        @group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @group(0) @binding(1) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&data) { sink[id.x] = data[id.x]; data[id.x] = 0xffffffffu; }
            if id.x == 7u { sink[7] = arrayLength(&data); }
        }";
    machines(f, |m| {
        let kernel = kernel(m, SHOW).unwrap();
        for kind in KINDS {
            let bytes = noise(3, 64);
            for (start, len) in [(0u64, 5u64), (1, 4), (3, 7), (2, 17), (16, 1)] {
                let memory = Memory::new(m, kind, &bytes);
                let mut launch = memory.give(kernel.launch(), start..start + len);
                // Twice: staging memory that is used again holds what the kernel has left behind the range.
                for wanted in [
                    &bytes[start as usize..(start + len) as usize],
                    &vec![0xff; len as usize],
                ] {
                    let sink = m.device.buffer(&[0xdead_beef_u32; 8]).unwrap();
                    launch = match launch.set_buffer("sink", &sink) {
                        Ok(()) => launch.invocations(8),
                        Err(error) => panic!("{error}"),
                    };
                    launch.submit().unwrap();
                    let mut words = vec![0xdead_beef_u32; 8];
                    let count = len.div_ceil(4) as usize;
                    words[..count].fill(0);
                    words[7] = count as u32;
                    bytemuck::cast_slice_mut::<u32, u8>(&mut words)[..wanted.len()]
                        .copy_from_slice(wanted);
                    let seen = sink.read().unwrap();
                    assert_eq!(seen, words, "{} {kind:?} {start} {len}", m.name);
                }
            }
        }
    });
}

fn ranges_are_read_and_promised_to_be_overwritten(f: &Fixture) {
    const COPY: &str = "
        @group(0) @binding(0) var<storage, read> source: array<u32>;
        @group(0) @binding(1) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&data) { data[id.x] = source[id.x]; }
        }";
    machines(f, |m| {
        let kernel = kernel(m, COPY).unwrap();
        let given = noise(4, 250);
        let buffer = m.device.buffer(&given).unwrap();
        for placement in [Placement::Device, Placement::Shared] {
            let mut wanted = noise(5, 400);
            let target = m
                .context
                .buffer_from_vec_with(wanted.clone(), placement)
                .unwrap();
            for (at, len) in [(1u64, 9u64), (33, 16), (77, 3), (381, 19)] {
                let part: BufferArgument = target.slice(at..at + len).unwrap().into();
                let mut launch = kernel.launch().overwrite("data", part).invocations(8);
                launch
                    .set_buffer("source", buffer.slice(at / 2..at / 2 + len))
                    .unwrap();
                launch.submit().unwrap();
                let from = (at / 2) as usize..(at / 2 + len) as usize;
                wanted[at as usize..(at + len) as usize].copy_from_slice(&given[from]);
            }
            same(&target.read().unwrap(), &wanted, &m.name);
        }
        // What is only read stays as it is, wherever it begins.
        same(&buffer.read().unwrap(), &given, &m.name);
    });
}

fn uniforms_begin_anywhere(f: &Fixture) {
    const UNIFORM: &str = "
        @group(0) @binding(0) var<uniform> data: vec4<u32>;
        @group(0) @binding(1) var<storage, read_write> sink: array<vec4<u32>>;
        @compute @workgroup_size(1) fn main() { sink[0] = data; }";
    machines(f, |m| {
        let kernel = kernel(m, UNIFORM).unwrap();
        for kind in KINDS {
            let bytes = noise(6, 600);
            let memory = Memory::new(m, kind, &bytes);
            for (start, len) in [(0u64, 16u64), (1, 16), (4, 17), (258, 200), (584, 16)] {
                let sink = m.device.buffer(&[[1u32; 4]]).unwrap();
                let launch = memory.give(kernel.launch(), start..start + len);
                launch.buffer("sink", &sink).workgroups(1).submit().unwrap();
                let seen = sink.read().unwrap();
                let wanted = &bytes[start as usize..start as usize + 16];
                same(
                    bytemuck::cast_slice(&seen),
                    wanted,
                    &format!("{} {kind:?} {start}", m.name),
                );
            }
            same(&memory.take(m), &bytes, &m.name);
        }
    });
}

fn staged_arguments_are_counted(f: &Fixture) {
    let device = f.open(|_| {});
    let program = Program::new("ranges.wgsl", INVERT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let data: DeviceBuffer<u32> = device.zeroed(1000).unwrap();
    let staged = || {
        let told = device.transfer_statistics();
        (told.staged_arguments, told.staged_argument_bytes)
    };
    let mut launch = kernel.launch().buffer("data", &data).invocations(8);
    launch.submit().unwrap();
    assert_eq!(staged(), (0, 0));
    // No adapter binds at every word.
    if device.capabilities().storage_offset_alignment > 4 {
        launch.set_buffer("data", data.slice(1..6)).unwrap();
        launch.submit().unwrap();
        launch.submit().unwrap();
        assert_eq!(staged(), (2, 40));
    }
    launch.set_buffer("data", &data).unwrap();
    let before = staged();
    launch.submit().unwrap();
    assert_eq!(staged(), before);
    device.finish().unwrap();
}
