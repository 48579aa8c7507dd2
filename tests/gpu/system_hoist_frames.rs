//! System allocations: translations that are kept while pages come and go.

use tombolo::system::{SystemError, SystemMemory, SystemTier};
use tombolo::{DeviceBuffer, Ptr};

use crate::cases;
use crate::harness::Fixture;
use crate::system_hoist::{KEPT, kernel};
use crate::system_live::numbers;

cases![
    pages_that_go_meanwhile_are_found_again,
    pages_that_are_written_stay,
    halves_of_a_pointee_lie_in_frames_apart,
    pages_that_kept_translations_touch_stay_from_launch_to_launch,
];

/// One invocation reads and, if told to, writes a node before and after it has been to as many other pages as take away
/// all that may be taken away.
const WANDER: &str = "
    struct Node { a: u32, b: u32, c: array<u32, 4> }
    alias Words = array<u32>;
    @group(0) @binding(0) var<uniform> nodes: usm_ptr;
    @group(0) @binding(1) var<uniform> words: usm_ptr;
    @group(0) @binding(2) var<storage, read_write> o: array<u32>;
    @compute @workgroup_size(1) fn main() {
        let w = usm_Words(words);
        for (var i = 0u; i < 8u; i++) {
            let n = usm_Node(usm_add(nodes, i * 4096u));
            var sum = n.a;
            WRITE
            for (var j = 0u; j < 12u; j++) {
                sum = sum * 3u + w[(i * 12u + j) % 40u * 1024u];
                sum = sum * 7u + n.c[j % 4u];
            }
            o[i] = sum * 5u + n.b;
        }
    }";

const WRITE: &str = "n.b = sum ^ 9u;";

/// Launches the kernel above, with `frames` frames, in the live tier, where 41 pages of words and 10 of nodes are lent. Nodes and words lie in pages of their own, each node
/// `begin` words behind the beginning of a page.
fn wander(f: &Fixture, write: &str, hoisted: bool, (frames, begin): (u64, usize)) {
    wander_in(
        f,
        SystemTier::Live,
        (41, 10),
        write,
        hoisted,
        (frames, begin),
    );
}

/// The same in a tier, with so many pages of words and of nodes lent. In the sliced tier the last node comes first, so that
/// its page comes before those in front, and frames of neighbours are none.
fn wander_in(
    f: &Fixture,
    tier: SystemTier,
    (word_pages, node_pages): (u32, u32),
    write: &str,
    hoisted: bool,
    (frames, begin): (u64, usize),
) {
    let mut source = WANDER.replace("WRITE", write);
    let is_sliced = tier == SystemTier::Sliced;
    if is_sliced {
        source = source.replace("i * 4096u", "(7u - i) * 4096u");
    }
    let kernel = kernel(&f.device, &source, hoisted);
    let values = numbers(word_pages * 1024);
    let mut lent = numbers(node_pages * 1024);
    let at = |i: usize| (i + 1) * 1024 - lent.as_ptr() as usize / 4 % 1024 + begin;
    let first = at(0);
    let node = |i: usize| first + if is_sliced { 7 - i } else { i } * 1024;
    let mut expected = lent.clone();
    let sums: Vec<u32> = (0..8)
        .map(|i| {
            let n = node(i);
            let mut sum = expected[n];
            if !write.is_empty() {
                expected[n + 1] = sum ^ 9;
            }
            for j in 0..12 {
                sum = sum
                    .wrapping_mul(3)
                    .wrapping_add(values[(i * 12 + j) % 40 * 1024]);
                sum = sum.wrapping_mul(7).wrapping_add(expected[n + 2 + j % 4]);
            }
            sum.wrapping_mul(5).wrapping_add(expected[n + 1])
        })
        .collect();
    let o: DeviceBuffer<u32> = f.device.buffer(&[0xdead; 8]).unwrap();
    let mut memory = SystemMemory::new();
    let nodes = memory.lend_mut(&mut lent).address() + 4 * first as u64;
    let words = memory.lend(&values);
    memory.set_tier(Some(tier));
    memory.set_pool_bytes(frames * 4096);
    let ended = (kernel
        .launch()
        .value("nodes", &Ptr::<u32>::from_address(nodes)))
    .value("words", &words)
    .buffer("o", &o)
    .workgroups(1)
    .run_system(&mut memory);
    drop(memory);
    match ended {
        Ok(run) => {
            assert_eq!(o.read().unwrap(), sums, "{hoisted} {frames}: {run:?}");
            assert!(lent == expected, "{hoisted} {frames}: {run:?}");
        }
        // On a card pages stay while a kernel runs, and a single work-group touches more than fit; a busy machine may use up a
        // ration of turns.
        Err(SystemError::PoolFull { .. })
            if tier == SystemTier::Live
                && (!crate::system_pool::makes_room(f)
                    || f.device.capabilities().needs_loop_guard()) => {}
        Err(error) => panic!("{error}"),
    }
}

fn pages_that_go_meanwhile_are_found_again(f: &Fixture) {
    for hoisted in KEPT {
        for frames in [2, 3, 5] {
            wander(f, "", hoisted, (frames, 100));
        }
    }
}

fn pages_that_are_written_stay(f: &Fixture) {
    for hoisted in KEPT {
        for frames in [11, 14] {
            wander(f, WRITE, hoisted, (frames, 100));
        }
    }
}

/// Frames of neighbouring pages are no neighbours where pages come one by one: the array of each node lies in another page
/// than the rest.
fn halves_of_a_pointee_lie_in_frames_apart(f: &Fixture) {
    for hoisted in KEPT {
        for (write, frames) in [("", 3), ("", 5), (WRITE, 12), (WRITE, 14)] {
            wander(f, write, hoisted, (frames, 1022));
        }
    }
}

/// The kernel touches 41 pages of words, 9 of nodes, and the frame of zeros; others come by patterns and have to go again.
fn pages_that_kept_translations_touch_stay_from_launch_to_launch(f: &Fixture) {
    for hoisted in KEPT {
        for (write, frames) in [("", 53), ("", 64), (WRITE, 53)] {
            let lent = (200, 100);
            wander_in(f, SystemTier::Sliced, lent, write, hoisted, (frames, 1022));
        }
    }
}
