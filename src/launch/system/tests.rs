//! Memory lent to a launch in place while the device is lost. Other devices have copies, and so has every device on
//! Windows (`src/memory/system/in_place.rs`): a kernel going on there reaches nothing lent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::SystemError;
use crate::device::hooks::{self, Point};
use crate::kernel::{KernelOptions, TranslationMode};
use crate::system::SystemMemory;
use crate::{AdapterDescription, Constants, Context, Program};

const SLOW: &str = "
    alias Words = array<u32>;
    @group(0) @binding(0) var<uniform> words: usm_ptr;
    @compute @workgroup_size(64) fn slow(@builtin(global_invocation_id) id: vec3<u32>) {
        let w = usm_Words(words);
        var value = w[id.x];
        for (var i = 0u; i < 300u; i++) {
            for (var j = 0u; j < 1000u; j++) { value = value * 3u + (value >> 5u); }
        }
        w[id.x] = value;
    }";

/// Submissions of a launch with lent memory, needed copies included, at most: the loss is seen during each submission
/// once.
const MOST: usize = 8;

/// Removes the hook, also where a test fails.
struct Unhook;

impl Drop for Unhook {
    fn drop(&mut self) {
        hooks::set(None);
    }
}

#[test]
fn a_launch_that_is_submitted_while_its_device_is_lost_has_ended_when_its_memory_is_the_programs_again()
 {
    let _alone = hooks::alone();
    let context = Context::new().unwrap();
    let mut waited = 0;
    let in_place = |adapter: &AdapterDescription| adapter.name.contains("Tombolo");
    for adapter in context.adapters().into_iter().filter(in_place) {
        for number in 0..MOST {
            let context = Context::new().unwrap();
            let device = context.device_at(adapter.index).unwrap();
            let program = Program::new("slow.wgsl", SLOW).unwrap();
            let options = KernelOptions {
                pointers: TranslationMode::System,
                ..KernelOptions::default()
            };
            let kernel = device.kernel_with(&program, "slow", &Constants::new(), options);
            let kernel = kernel.unwrap();
            let mut words = vec![7u32; 256];
            let mut memory = SystemMemory::new();
            let pointer = memory.lend_mut(&mut words);
            let shared = Arc::downgrade(&device.shared);
            let reached = AtomicUsize::new(0);
            hooks::set(Some(Arc::new(move |point| {
                if point == Point::Submitting
                    && reached.fetch_add(1, Ordering::SeqCst) == number
                    && let Some(device) = shared.upgrade()
                {
                    device.lost.raise("it was unplugged");
                }
            })));
            let _unhook = Unhook;
            let mut launch = kernel.launch().value("words", &pointer).invocations(256);
            let run = launch.run_system(&mut memory);
            let is_lost = device.shared.lost.is_raised();
            match run {
                Ok(_) => assert!(!is_lost),
                // Of the kernel itself. By the ledger of ends, ignorant of the loss.
                Err(SystemError::Wait { .. }) => {
                    assert!(device.shared.submissions.is_idle(), "the kernel still runs");
                    waited += 1;
                }
                // Of a copy before or behind the kernel, without access to lent memory.
                Err(error) => assert!(error.to_string().contains("unplugged"), "{error}"),
            }
            if !is_lost {
                break;
            }
        }
    }
    assert!(waited > 0, "no kernel was submitted");
}
