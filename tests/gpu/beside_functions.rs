//! Functions that take pointers to arguments, of kernels that also follow pointers.

use crate::beside::{bytes_of, unchecked};
use crate::cases;
use crate::harness::Fixture;
use crate::table::{Vary, done, each, kernel};
use tombolo::DeviceBuffer;

cases![
    functions_take_arguments,
    indices_in_functions_stay_within_their_argument,
];

pub const FUNCTIONS: &str = "
alias Words = array<u32>;
struct Table { scale: u32, rows: array<vec2<u32>> }
@group(0) @binding(0) var<uniform> list: usm_ptr;
@group(0) @binding(1) var<storage, read_write> a: Words;
@group(0) @binding(2) var<storage, read_write> b: Words;
@group(0) @binding(3) var<storage, read_write> t: Table;
@group(0) @binding(4) var<storage, read_write> sink: array<u32>;
@group(0) @binding(5) var<storage, read> r: Table;
fn second(it: ptr<storage, Table, read>) -> u32 { return it.rows[1].x; }
fn put(to: ptr<storage, Words, read_write>, at: u32, value: u32) { to[at] = value; }
fn twice(to: ptr<storage, Words, read_write>, at: u32, value: u32) {
    put(to, at, value);
    put(to, at + 1u, value + 1u);
}
fn count(it: ptr<storage, Words, read_write>) -> u32 { return arrayLength(it); }
fn other(first: bool) -> ptr<storage, Words, read_write> {
    if first { return &a; }
    return &b;
}
fn row(it: ptr<storage, Table, read_write>, at: u32) -> ptr<storage, vec2<u32>, read_write> { return &it.rows[at]; }
fn rows(it: ptr<storage, Table, read_write>) -> u32 { return arrayLength(&it.rows) * it.scale; }
fn bump(at: ptr<storage, vec2<u32>, read_write>) { *at = *at + vec2(1u, 2u); }
@compute @workgroup_size(1) fn main() {
    twice(&a, 3u, 40u);
    twice(&b, 0u, 50u);
    sink[0] = count(&a) * 100u + count(&b);
    let last = other(false);
    last[5] = 60u;
    sink[1] = count(other(true));
    bump(row(&t, 1u));
    bump(&t.rows[2]);
    sink[2] = rows(&t);
    sink[3] = usm_Words(list)[0];
    sink[4] = second(&r);
}";

fn functions_take_arguments(f: &Fixture) {
    each(f, &[Vary::Checked], |device, heap| {
        let kernel = kernel(device, FUNCTIONS);
        let list = heap.alloc(31u32).unwrap();
        let sink: DeviceBuffer<u32> = device.buffer(&[0xee; 5]).unwrap();
        let table = [3u32, 0, 10, 11, 20, 21, 30, 31];
        let start = |launch: tombolo::Launch| {
            launch
                .value("list", &list)
                .buffer("sink", &sink)
                .workgroups(1u32)
        };
        let expected_a = [7, 7, 7, 40, 41, 7, 7, 7, 7];
        let expected_b = [50, 51, 7, 7, 7, 60];
        let expected_t = [3, 0, 10, 11, 21, 23, 31, 33];
        let expected_sink = [906, 9, 9, 31, 20];

        let a = device.buffer(&[7u32; 9]).unwrap();
        let b = device.buffer(&[7u32; 6]).unwrap();
        let bytes: &[u8] = bytemuck::cast_slice(&table);
        let t = device.buffer(bytes).unwrap();
        let launch = kernel
            .launch()
            .buffer("a", &a)
            .buffer("b", &b)
            .buffer("t", &t);
        let r = device.buffer(bytes).unwrap();
        done(start(launch.buffer("r", &r)).submit());
        assert_eq!(sink.read().unwrap(), expected_sink);
        assert_eq!(a.read().unwrap(), expected_a);
        assert_eq!(b.read().unwrap(), expected_b);
        assert_eq!(
            t.read().unwrap(),
            bytemuck::cast_slice::<u32, u8>(&expected_t)
        );

        let room = heap.alloc_slice(&[7u32; 64]).unwrap();
        heap.write(room.add(41), &table).unwrap();
        heap.write(room.add(51), &table).unwrap();
        let launch = (kernel.launch())
            .pointer("a", room.add(1), 9)
            .pointer("b", room.add(20), 6)
            .pointer::<u8>("t", room.add(41).cast(), 32)
            .pointer::<u8>("r", room.add(51).cast(), 32);
        done(start(launch).submit());
        assert_eq!(sink.read().unwrap(), expected_sink);
        assert_eq!(heap.read(room.add(1), 9).unwrap(), expected_a);
        assert_eq!(heap.read(room.add(20), 6).unwrap(), expected_b);
        assert_eq!(heap.read(room.add(41), 8).unwrap(), expected_t);
        for at in [0, 10, 19, 26, 40, 49, 63] {
            assert_eq!(heap.read(room.add(at), 1).unwrap(), [7]);
        }
    });
}

/// Three arguments side by side in one allocation, and indices that would lead from the one in the middle into
/// the others.
fn indices_in_functions_stay_within_their_argument(f: &Fixture) {
    let source = "
        alias Words = array<u32>;
        struct Tail { head: vec4<u32>, fixed: array<u32, 4>, tail: array<u32> }
        @group(0) @binding(0) var<uniform> at: vec2<u32>;
        @group(0) @binding(1) var<storage, read_write> words: Words;
        @group(0) @binding(2) var<storage, read_write> tail: Tail;
        @group(0) @binding(3) var<uniform> pointer: usm_ptr;
        fn put(to: ptr<storage, Words, read_write>, at: u32) { to[at] = 9u; }
        fn deeper(to: ptr<storage, Words, read_write>, at: u32) { put(to, at + 1u); }
        fn same(to: ptr<storage, Words, read_write>) -> ptr<storage, Words, read_write> { return to; }
        fn put_fixed(to: ptr<storage, array<u32, 4>, read_write>, at: u32) { to[at] = 9u; }
        fn put_lane(to: ptr<storage, vec4<u32>, read_write>, at: u32) { to[at] = 9u; }
        fn put_tail(to: ptr<storage, Tail, read_write>, at: u32) { to.tail[at] = 9u; }
        @compute @workgroup_size(1) fn main() {
            let i = at.x;
            switch at.y {
                case 0u: { put(&words, i); }
                case 1u: { deeper(&words, i - 1u); }
                case 2u: { put(same(&words), i); }
                case 3u: { put(&tail.tail, i); }
                case 4u: { put_tail(&tail, i); }
                case 5u: { put_fixed(&tail.fixed, i); }
                case 6u: { put_lane(&tail.head, i); }
                default: { put(usm_Words(pointer), 0u); }
            }
        }";
    each(f, &[], |device, heap| {
        let kernel = unchecked(device, source);
        let start: Vec<u32> = (1000..1064).collect();
        let last = |way: u32| match way {
            0..=2 => 20 + 11,
            3 | 4 => 32 + 8 + 7,
            5 => 32 + 7,
            _ => 32 + 3,
        };
        let room = heap.alloc_slice(&start).unwrap();
        let outside = heap.alloc_slice(&[1u32]).unwrap();
        let words = device.buffer(&start[20..32]).unwrap();

        let tail = device.buffer(bytes_of(&start[32..48])).unwrap();
        let base = kernel.launch().value("pointer", &outside).workgroups(1u32);
        let in_heap = (base.clone())
            .pointer("words", room.add(20), 12)
            .pointer::<u8>("tail", room.add(32).cast(), 64);
        let travelling = base.buffer("words", &words).buffer("tail", &tail);
        for way in 0..7u32 {
            for at in [12u32, 24, 1 << 30, u32::MAX] {
                let mut expected = start.clone();
                expected[last(way)] = 9;
                heap.write(room, &start).unwrap();
                let mut launch = in_heap.clone().value("at", &[at, way]);
                done(launch.submit());
                assert_eq!(
                    heap.read(room, 64).unwrap(),
                    expected,
                    "way {way}, index {at}"
                );
                words.write(0, &start[20..32]).unwrap();
                tail.write(0, bytes_of(&start[32..48])).unwrap();
                let mut launch = travelling.clone().value("at", &[at, way]);
                done(launch.submit());
                assert_eq!(
                    words.read().unwrap(),
                    expected[20..32],
                    "way {way}, index {at}"
                );
                assert_eq!(
                    tail.read().unwrap(),
                    bytes_of(&expected[32..48]),
                    "way {way}, index {at}"
                );
            }
        }
        let mut launch = in_heap.clone().value("at", &[0, 7]);
        done(launch.submit());
        assert_eq!(heap.read(outside, 1).unwrap(), [9]);
    });
}
