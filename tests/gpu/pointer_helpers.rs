//! The helpers of `shaders/usm.wgsl`, run by kernels: every one on the edges where a word carries or borrows
//! and on many other numbers, against the host's arithmetic of 64 bits. And the atomics behind pointers.

use crate::cases;
use crate::harness::Fixture;
use bytemuck::{Pod, Zeroable};
use tombolo::{
    Constants, Device, DeviceBuffer, Program, Ptr,
    kernel::{KernelError, KernelOptions},
};

cases![
    arithmetic_and_comparison,
    addresses_of_places,
    lengths_known_from_the_allocation_or_told,
];

/// What the kernel is given, and what it makes of it.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Input {
    a: u64,
    b: u64,
    /// A number of bytes, an index and a stride.
    n: [u32; 4],
}

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Output {
    add: u64,
    sub: u64,
    offset: u64,
    element: u64,
    nothing: u64,
    diff: i32,
    /// Null, same, before: a bit each.
    bits: u32,
}

const HELPERS: &str = "
struct Input { a: usm_ptr, b: usm_ptr, n: vec4<u32> }
struct Output {
    add: usm_ptr, sub: usm_ptr, offset: usm_ptr, element: usm_ptr, nothing: usm_ptr, diff: i32, bits: u32,
}
@group(0) @binding(0) var<storage, read> input: array<Input>;
@group(0) @binding(1) var<storage, read_write> output: array<Output>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&input) { return; }
    let i = input[id.x];
    var o: Output;
    o.add = usm_add(i.a, i.n.x);
    o.sub = usm_sub(i.a, i.n.x);
    o.offset = usm_offset(i.a, bitcast<i32>(i.n.x));
    o.element = usm_element(i.a, i.n.y, i.n.z);
    o.nothing = usm_null();
    o.diff = usm_diff(i.a, i.b);
    o.bits = select(0u, 1u, usm_is_null(i.a)) | select(0u, 2u, usm_eq(i.a, i.b))
        | select(0u, 4u, usm_less(i.a, i.b));
    output[id.x] = o;
}";

fn expected(input: &Input) -> Output {
    let Input { a, b, n } = *input;
    Output {
        add: a.wrapping_add(n[0].into()),
        sub: a.wrapping_sub(n[0].into()),
        offset: a.wrapping_add_signed((n[0] as i32).into()),
        element: a.wrapping_add(u64::from(n[1]) * u64::from(n[2])),
        nothing: 0,
        diff: a.wrapping_sub(b) as i32,
        bits: u32::from(a == 0) | u32::from(a == b) << 1 | u32::from(a < b) << 2,
    }
}

pub fn noise(state: &mut u64) -> u64 {
    // xorshift64*, by Vigna.
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

fn inputs() -> Vec<Input> {
    const WORDS: [u32; 14] = [
        0,
        1,
        2,
        15,
        0xffff,
        0x1_0000,
        0x1_0001,
        0x7fff_ffff,
        0x8000_0000,
        0x8000_0001,
        0xffff_0000,
        0xffff_fff0,
        0xffff_fffe,
        0xffff_ffff,
    ];
    let mut inputs = Vec::new();
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for low in WORDS {
        for high in WORDS {
            let a = u64::from(high) << 32 | u64::from(low);
            for n in WORDS {
                for m in WORDS {
                    // Beside it, in the next word, and anywhere.
                    let b = match noise(&mut state) % 4 {
                        0 => a,
                        1 => a.wrapping_add_signed((n as i32).into()),
                        2 => u64::from(high) << 32 | u64::from(n),
                        _ => u64::from(m) << 32 | u64::from(n),
                    };
                    inputs.push(Input {
                        a,
                        b,
                        n: [n, m, n ^ low, 0],
                    });
                }
            }
        }
    }
    for i in 0..100_000 {
        let a = noise(&mut state) >> (i % 48);
        let near = (noise(&mut state) as i32 >> (i % 31)).into();
        let n = noise(&mut state);
        inputs.push(Input {
            a,
            b: a.wrapping_add_signed(near),
            n: [
                n as u32,
                (n >> 32) as u32 >> (i % 31),
                noise(&mut state) as u32,
                0,
            ],
        });
    }
    inputs
}

fn arithmetic_and_comparison(f: &Fixture) {
    let inputs = inputs();
    // The edges are among them: carries and borrows of either word, each answer of each comparison.
    let outputs: Vec<Output> = inputs.iter().map(expected).collect();
    for (what, there) in [
        (
            "a carry",
            inputs
                .iter()
                .zip(&outputs)
                .any(|(i, o)| o.add >> 32 != i.a >> 32),
        ),
        (
            "a borrow",
            inputs
                .iter()
                .zip(&outputs)
                .any(|(i, o)| o.sub >> 32 != i.a >> 32),
        ),
        (
            "an overflow",
            inputs.iter().zip(&outputs).any(|(i, o)| o.add < i.a),
        ),
    ] {
        assert!(there, "{what}");
    }
    for bits in [0, 2, 4, 1 | 2, 1 | 4] {
        assert!(outputs.iter().any(|o| o.bits == bits), "{bits}");
    }
    let program = Program::new("helpers.wgsl", HELPERS).unwrap();
    let kernel = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let input = f.device.buffer(&inputs).unwrap();
    let poison = Output {
        bits: u32::MAX,
        ..Output::zeroed()
    };
    let output = f.device.buffer(&vec![poison; inputs.len()]).unwrap();
    kernel
        .launch()
        .buffer("input", &input)
        .buffer("output", &output)
        .invocations(inputs.len() as u32)
        .submit()
        .unwrap();
    for ((input, seen), expected) in inputs.iter().zip(output.read().unwrap()).zip(outputs) {
        assert_eq!(seen, expected, "{input:x?}");
    }
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Inner {
    at: [f32; 3],
    weight: f32,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Outer {
    items: [Inner; 4],
    matrix: [[f32; 4]; 3],
    counts: [u32; 6],
    link: Ptr<u8>,
}

const ADDRESSES: &str = "
struct Inner { at: vec3<f32>, weight: f32 }
struct Outer { items: array<Inner, 4>, matrix: mat3x3<f32>, counts: array<atomic<u32>, 6>, link: usm_ptr }
alias Pointers = array<usm_ptr>;
alias Floats = array<f32>;
@group(0) @binding(0) var<uniform> outer: usm_ptr;
@group(0) @binding(1) var<uniform> floats: usm_ptr;
@group(0) @binding(2) var<uniform> found: usm_ptr;
@group(0) @binding(3) var<uniform> k: u32;
fn weight_of(inner: ptr<storage, Inner, read_write>) -> usm_ptr { return usm_address(&(*inner).weight); }
@compute @workgroup_size(1) fn main() {
    let o = usm_Outer(outer);
    let to = usm_Pointers(found);
    to[0] = usm_address(o);
    to[1] = usm_address(&o.items[k]);
    to[2] = usm_address(&o.items[k + 1u].at);
    to[3] = weight_of(&o.items[1]);
    to[4] = usm_address(&o.matrix[k]);
    to[5] = usm_address(&o.items[0].weight);
    to[6] = usm_address(&o.counts[k + 1u]);
    to[7] = usm_address(&o.link);
    to[8] = usm_address(&usm_Floats(floats)[1000u * k]);
    // And back.
    let w = usm_f32(to[3]);
    *w = *w + 0.5;
}";

fn addresses_of_places(f: &Fixture) {
    for (unified, checked) in [
        (None, false),
        (None, true),
        (Some(false), false),
        (Some(false), true),
    ] {
        let device = f.open(|options| {
            options.unified_memory = unified;
            options.checked_pointers = checked;
        });
        let heap = device.heap().unwrap();
        let mut outer = Outer::zeroed();
        outer.items[1].weight = 2.0;
        let place = heap.alloc(outer).unwrap();
        let floats = device.malloc::<f32>(4000).unwrap();
        let found = heap.alloc_slice(&[Ptr::<u8>::null(); 9]).unwrap();
        let program = Program::new("addresses.wgsl", ADDRESSES).unwrap_or_else(|e| panic!("{e}"));
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        kernel
            .launch()
            .value("outer", &place)
            .value("floats", &floats)
            .value("found", &found)
            .value("k", &2u32)
            .workgroups(1)
            .submit()
            .unwrap();
        let base = place.address();
        let in_counts = std::mem::offset_of!(Outer, counts) as u64;
        let in_matrix = std::mem::offset_of!(Outer, matrix) as u64;
        let in_link = std::mem::offset_of!(Outer, link) as u64;
        let expected = [
            base,
            base + 2 * 16,
            base + 3 * 16,
            base + 16 + 12,
            base + in_matrix + 2 * 16,
            base + 12,
            base + in_counts + 3 * 4,
            base + in_link,
            floats.address() + 2000 * 4,
        ];
        let seen = heap.read(found, 9).unwrap();
        assert_eq!(
            seen,
            expected.map(Ptr::from_address),
            "{unified:?} {checked}"
        );
        // Rust follows them.
        assert_eq!(heap.read(seen[3].cast::<f32>(), 1).unwrap(), [2.5]);
        assert_eq!(device.find(seen[8]).unwrap().base, floats.cast());
        heap.free(place).unwrap();
        heap.free(found).unwrap();
        device.free(floats).unwrap();
    }
}

/// How long an array is: a pointer argument's is what the launch was given, which has to lie in one
/// allocation; one behind a followed pointer has to be told.
fn lengths_known_from_the_allocation_or_told(f: &Fixture) {
    let known = "struct Tail { count: u32, items: array<vec2<u32>> }
        @group(0) @binding(0) var<storage, read> words: array<u32>;
        @group(0) @binding(1) var<storage, read> tail: Tail;
        @group(0) @binding(2) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(1) fn main() {
            sink[0] = arrayLength(&words);
            sink[1] = arrayLength(&tail.items);
            sink[2] = words[arrayLength(&words) - 1u];
            sink[3] = arrayLength(&sink);
        }";
    for live in [true, false] {
        let device = f.open(|options| options.live_memory = live);
        let kernel = kernel_of(&device, known).unwrap();
        let heap = device.heap().unwrap();
        let words = heap.alloc_slice(&(0..1000u32).collect::<Vec<_>>()).unwrap();
        let tail = heap.alloc_zeroed::<u32>(100).unwrap();
        let sink = heap.alloc_slice(&[u32::MAX; 8]).unwrap();
        let whole = |ptr: Ptr<u32>| {
            let found = heap.find(ptr).unwrap();
            (found.size - (ptr.address() - found.base.address())) as usize / 4
        };
        for (start, len) in [(0, 1000), (0, 7), (3, 997), (500, 1)] {
            assert!(len <= whole(words.add(start)));
            kernel
                .launch()
                .pointer("words", words.add(start), len)
                .pointer("tail", tail.cast::<[u32; 4]>(), 3)
                .pointer("sink", sink, whole(sink))
                .workgroups(1)
                .submit()
                .unwrap();
            let last = start as u32 + len as u32 - 1;
            // Behind the structure's 8 bytes.
            assert_eq!(heap.read(sink, 4).unwrap(), [len as u32, 5, last, 8]);
        }
        for ptr in [words, tail, sink] {
            heap.free(ptr).unwrap();
        }
    }
    let told = "alias Floats = array<f32>;
        struct Tail { count: u32, items: array<vec2<u32>> }
        @group(0) @binding(0) var<uniform> at: usm_ptr;
        @group(0) @binding(1) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(1) fn main() { sink[0] = arrayLength(#); }";
    for place in ["usm_Floats(at)", "&usm_Tail(at).items"] {
        let Err(error) = kernel_of(&f.device, &told.replace('#', place)) else {
            panic!("{place} has a length")
        };
        assert!(matches!(error, KernelError::Pointer(_)), "{error}");
        let text = error.to_string();
        for words in [
            "arrayLength",
            "pass the number of elements",
            "Launch::pointer",
        ] {
            assert!(text.contains(words), "{text}");
        }
        assert_eq!(error.diagnostic().unwrap().line, 5, "{error}");
    }
    // What the error says to do, both ways.
    let counted = "struct Tail { count: u32, items: array<vec2<u32>> }
        alias Pairs = array<vec2<u32>>;
        @group(0) @binding(0) var<uniform> at: usm_ptr;
        @group(0) @binding(1) var<uniform> count: u32;
        @group(0) @binding(2) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(1) fn main() {
            let t = usm_Tail(at);
            let pairs = usm_Pairs(usm_add(at, 8u));
            var sum = 0u;
            for (var i = 0u; i < t.count; i++) { sum += t.items[i].x; }
            for (var i = 0u; i < count; i++) { sum += pairs[i].y; }
            sink[0] = sum;
        }";
    let heap = f.context.heap().unwrap();
    let mut words = vec![5u32, 0];
    words.extend((0..10).flat_map(|i| [i * i, 1000 * i]));
    let at = heap.alloc_slice(&words).unwrap();
    let sink: DeviceBuffer<u32> = f.device.zeroed(1).unwrap();
    kernel_of(&f.device, counted)
        .unwrap()
        .launch()
        .value("at", &at)
        .value("count", &7u32)
        .buffer("sink", &sink)
        .workgroups(1)
        .submit()
        .unwrap();
    let expected = (0..5).map(|i| i * i).sum::<u32>() + (0..7).map(|i| 1000 * i).sum::<u32>();
    assert_eq!(sink.read().unwrap(), [expected]);
    heap.free(at).unwrap();
}

pub fn kernel_of(device: &Device, source: &str) -> Result<tombolo::Kernel, KernelError> {
    let program = Program::new("lengths.wgsl", source)?;
    device.kernel_with(
        &program,
        "main",
        &Constants::new(),
        KernelOptions::default(),
    )
}
