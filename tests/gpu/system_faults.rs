//! System allocations: pointers that lead to nothing that is lent fail the launch, and never the process.

use std::sync::Arc;

use tombolo::device::{ExecutionError, WaitError};
#[cfg(target_os = "linux")]
use tombolo::system::SystemAccess;
use tombolo::system::{SystemError, SystemMemory};
use tombolo::{DeviceBuffer, Kernel, Ptr};

use crate::cases;
use crate::harness::Fixture;
use crate::system::{NODE, boxes, kernel};
#[cfg(target_os = "linux")]
use crate::system_kinds::mapped;

cases![
    addresses_that_are_not_lent_fail_with_their_place,
    what_is_lent_for_reading_is_not_written,
    no_word_of_a_long_range_is_written_that_is_lent_for_reading,
    a_slice_ends_where_it_ends,
    nothing_changes_where_a_launch_fails,
    what_a_failed_launch_has_written_is_not_read,
    loops_that_wait_for_missing_values_end,
    memory_by_address_may_be_gone,
    memory_that_cannot_be_written_back_is_an_error,
];

const SET: &str = "@group(0) @binding(0) var<uniform> at: usm_ptr;
    @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x == 6u {
            let place = usm_u32(at);
            *place = 7u;
        }
    }";

const GET: &str = "alias Pair = vec2<u32>;
    @group(0) @binding(0) var<uniform> at: usm_ptr;
    @group(0) @binding(1) var<storage, read_write> o: array<u32>;
    @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x == 6u {
            let pair = *usm_Pair(at);
            o[0] = pair.x + pair.y;
        }
    }";

fn pointer_error(error: SystemError) -> Arc<ExecutionError> {
    match error {
        SystemError::Wait(WaitError::Failed(error)) => error,
        other => panic!("{other}"),
    }
}

/// Runs a kernel of the two above on an address.
fn run(
    kernel: &Kernel,
    o: Option<&DeviceBuffer<u32>>,
    at: u64,
    memory: &mut SystemMemory<'_>,
) -> SystemError {
    let mut launch = kernel.launch().value("at", &Ptr::<u32>::from_address(at));
    if let Some(o) = o {
        // What an earlier launch has left there.
        o.clear_error();
        launch = launch.buffer("o", o);
    }
    (launch.workgroups(2).run_system(memory)).expect_err("a wrong address")
}

fn addresses_that_are_not_lent_fail_with_their_place(f: &Fixture) {
    let (set, get) = (kernel(&f.device, SET), kernel(&f.device, GET));
    let o: DeviceBuffer<u32> = f.device.buffer(&[0]).unwrap();
    let lent = vec![1u64; 1000];
    let other = vec![2u64; 1000];
    let of = |values: &[u64]| values.as_ptr() as u64;
    let addresses = [
        (0, "a null pointer was followed"),
        (8, "not lent"),
        (of(&other), "not lent"),
        (of(&lent) + 8000, "not lent"),
        (of(&lent) - 8, "not lent"),
        (of(&lent) + 1, "misaligned"),
        (0xffff_8000_0000_0000, "not lent"),
        (u64::MAX - 7, "not lent"),
        (of(&lent) | 1 << 48, "not lent"),
        (of(&lent) + (1 << 32), "not lent"),
    ];
    for (address, reason) in addresses {
        for (kernel, o, line, pointee) in [(&set, None, 4, "u32"), (&get, Some(&o), 6, "Pair")] {
            let mut memory = SystemMemory::new();
            memory.lend(&lent);
            let error = pointer_error(run(kernel, o, address, &mut memory));
            let text = error.to_string();
            let ExecutionError::Pointer {
                line: found,
                address: at,
                invocation,
                pointee: to,
                reason: why,
                ..
            } = &*error
            else {
                panic!("{text}");
            };
            assert_eq!(
                (*found, *at, *invocation, &**to),
                (line, address, 6, pointee),
                "{text}"
            );
            assert!(why.contains(reason), "{address:#x}: {why}");
            assert!(text.contains("system.wgsl"), "{text}");
        }
    }
}

fn what_is_lent_for_reading_is_not_written(f: &Fixture) {
    let (set, get) = (kernel(&f.device, SET), kernel(&f.device, GET));
    // Whole pages, and a part of one.
    for values in [vec![3u32; 4096], vec![3u32; 40]] {
        let mut memory = SystemMemory::new();
        let pointer = memory.lend(&values);
        let at = pointer.address() + 64;
        let error = pointer_error(run(&set, None, at, &mut memory)).to_string();
        assert!(
            error.contains("memory lent for reading was written"),
            "{error}"
        );
        assert!(error.contains(&format!("{at:#x}")), "{error}");
        let o: DeviceBuffer<u32> = f.device.buffer(&[0]).unwrap();
        (get.launch()
            .value("at", &Ptr::<u32>::from_address(at))
            .buffer("o", &o))
        .workgroups(2)
        .run_system(&mut memory)
        .unwrap();
        assert_eq!(o.read().unwrap(), [6]);
        assert!(values.iter().all(|value| *value == 3));
    }
}

/// Wherever the word lies in a long run of pages, in place and in copies.
fn no_word_of_a_long_range_is_written_that_is_lent_for_reading(f: &Fixture) {
    let set = kernel(&f.device, SET);
    let values = vec![3u32; 20 * 1024];
    for (in_place, index) in crate::system::BOTH.into_iter().flat_map(|in_place| {
        // From a page's beginning to its end.
        (0..24).map(move |step| (in_place, 6000 + 43 * step))
    }) {
        let mut memory = SystemMemory::new();
        memory.set_in_place(in_place);
        let at = memory.lend(&values).address() + 4 * index;
        let error = pointer_error(run(&set, None, at, &mut memory)).to_string();
        assert!(error.contains("lent for reading was written"), "{error}");
        assert!(values.iter().all(|value| *value == 3));
    }
}

/// To the word: each index of a slice is there, and the ones on both sides are not.
fn a_slice_ends_where_it_ends(f: &Fixture) {
    let set = kernel(&f.device, SET);
    let mut values = vec![0u32; 3000];
    let start = values.as_ptr() as u64;
    for (from, to) in [(0, 1), (5, 38), (1000, 1100), (31, 2078)] {
        let mut memory = SystemMemory::new();
        memory.lend_mut(&mut values[from..to]);
        for index in [from as i64 - 1, from as i64, to as i64 - 1, to as i64] {
            let at = start.wrapping_add_signed(4 * index);
            let is_lent = (from as i64..to as i64).contains(&index);
            let mut launch = set.launch().value("at", &Ptr::<u32>::from_address(at));
            let ended = {
                launch = launch.workgroups(2);
                launch.run_system(&mut memory)
            };
            assert_eq!(ended.is_ok(), is_lent, "{index} of {from}..{to}");
        }
        drop(memory);
        for (i, value) in values.iter_mut().enumerate() {
            assert_eq!(
                std::mem::take(value),
                if i == from || i + 1 == to { 7 } else { 0 },
                "{i}"
            );
        }
    }
}

fn nothing_changes_where_a_launch_fails(f: &Fixture) {
    let source = "alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let w = usm_Words(words);
            w[id.x] = 5u;
        }";
    let kernel = kernel(&f.device, source);
    let mut values = vec![1u32; 1000];
    let mut memory = SystemMemory::new();
    // In place a launch that fails has written what it has written.
    memory.set_in_place(false);
    let pointer = memory.lend_mut(&mut values[..999]);
    let error = (kernel.launch().value("words", &pointer))
        .invocations(1000u32)
        .run_system(&mut memory)
        .unwrap_err();
    drop(memory);
    assert!(error.to_string().contains("not lent"), "{error}");
    assert!(values.iter().all(|value| *value == 1));
}

fn what_a_failed_launch_has_written_is_not_read(f: &Fixture) {
    let get = kernel(&f.device, GET);
    let o: DeviceBuffer<u32> = f.device.buffer(&[9]).unwrap();
    run(&get, Some(&o), 4096, &mut SystemMemory::new());
    let error = o.read().unwrap_err().to_string();
    assert!(error.contains("not lent"), "{error}");
    o.clear_error();
    o.write(0, &[1]).unwrap();
    assert_eq!(o.read().unwrap(), [1]);
}

/// A list whose last node is not lent: what would be read there is a zero for ever.
fn loops_that_wait_for_missing_values_end(f: &Fixture) {
    let source = format!(
        "{NODE}
        @group(0) @binding(0) var<uniform> first: usm_ptr;
        @group(0) @binding(1) var<uniform> last: usm_ptr;
        @compute @workgroup_size(1) fn main() {{
            var p = first;
            loop {{
                if usm_eq(p, last) {{ break; }}
                p = usm_Node(p).next;
            }}
        }}"
    );
    let kernel = kernel(&f.device, &source);
    let (nodes, first) = boxes(30);
    let mut memory = SystemMemory::new();
    for node in nodes.iter().filter(|node| node.tag != 7) {
        memory.lend_value(&**node);
    }
    let missing = std::ptr::from_ref(&*nodes[7]) as u64;
    let error = (kernel.launch().value("first", &first))
        .value("last", &Ptr::<u32>::from_address(1))
        .workgroups(1)
        .run_system(&mut memory)
        .unwrap_err();
    match &*pointer_error(error) {
        ExecutionError::Pointer { address, line, .. } => {
            assert_eq!((*address, *line), (missing + 8, 9))
        }
        other => panic!("{other}"),
    }
}

#[cfg(target_os = "linux")]
fn memory_by_address_may_be_gone(f: &Fixture) {
    let (set, get) = (kernel(&f.device, SET), kernel(&f.device, GET));
    let o: DeviceBuffer<u32> = f.device.buffer(&[0]).unwrap();
    let mut values = vec![4u32; 2000];
    let pointer = (values.as_mut_ptr() as u64 + 4000) & !7;
    // SAFETY: three pages that nobody else knows, the one in the middle closed at once. Given back, it would be the next that
    // any thread of a driver is given.
    let hole = unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            3 * 4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(at.byte_add(4096), 4096, libc::PROT_NONE), 0);
        at as u64 + 4096
    };
    let mut memory = SystemMemory::new();
    // SAFETY: kernels below write words of `values` alone, which are looked at when the launches have returned.
    unsafe { memory.lend_process(SystemAccess::ReadWrite) };
    memory.set_pool_bytes(4 << 20);
    for address in [0, 8, hole, hole + 4088, 0xffff_8000_0000_0000, u64::MAX - 7] {
        for (kernel, o) in [(&set, None), (&get, Some(&o))] {
            match &*pointer_error(run(kernel, o, address, &mut memory)) {
                ExecutionError::Pointer {
                    address: at,
                    invocation: 6,
                    ..
                } => assert_eq!(*at, address),
                other => panic!("{other}"),
            }
        }
    }
    o.clear_error();
    (set.launch().value("at", &Ptr::<u32>::from_address(pointer)))
        .workgroups(2)
        .run_system(&mut memory)
        .unwrap();
    (get.launch()
        .value("at", &Ptr::<u32>::from_address(pointer))
        .buffer("o", &o))
    .workgroups(2)
    .run_system(&mut memory)
    .unwrap();
    assert_eq!(o.read().unwrap(), [11]);
    let at = (pointer - values.as_ptr() as u64) as usize / 4;
    values[at] -= 3;
    assert!(values.iter().all(|value| *value == 4));
}

#[cfg(not(target_os = "linux"))]
fn memory_by_address_may_be_gone(_: &Fixture) {}

/// Memory that is there for reading only, and lent by its address for writing.
#[cfg(target_os = "linux")]
fn memory_that_cannot_be_written_back_is_an_error(f: &Fixture) {
    use std::io::Write;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[1; 8192]).unwrap();
    let bytes = mapped(&file, 8192);
    let mut memory = SystemMemory::new();
    let at = bytes.as_ptr() as u64 + 4096;
    // SAFETY: nothing can be written there, which is what the launch is to find out.
    unsafe { memory.lend_range(at, 4096, SystemAccess::ReadWrite) };
    let error = run(&kernel(&f.device, SET), None, at + 16, &mut memory);
    match error {
        SystemError::WriteBack { address } => assert_eq!(address, at + 16),
        other => panic!("{other}"),
    }
    assert!(bytes.iter().all(|byte| *byte == 1));
}

#[cfg(not(target_os = "linux"))]
fn memory_that_cannot_be_written_back_is_an_error(_: &Fixture) {}
