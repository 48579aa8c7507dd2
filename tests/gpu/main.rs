//! The tests that need a device: every case runs on every adapter of the machine, as a test of its
//! own, one at a time.
//!
//! `TOMBOLO_TEST_ADAPTERS` names adapters that must be there (parts of their names, separated by
//! `;`); `cargo xtask test` sets it. An adapter that is missing, or no adapter at all, fails the
//! suite.

mod harness;
mod many_threads;
mod panics;
mod processes;

mod allocations;
mod arguments;
mod at_once;
mod atomics;
mod atomics64;
mod beside;
mod beside_functions;
mod bindings;
mod borrowed;
mod buffers;
mod buffers_ahead;
mod buffers_blocks;
mod buffers_common;
mod buffers_events;
mod buffers_exchange;
mod buffers_host;
mod buffers_lent;
mod buffers_limits;
mod buffers_moving;
mod buffers_parts;
mod buffers_places;
mod byte_copies;
mod call_arguments;
mod call_scalars;
mod call_structures;
mod callbacks;
mod cancel;
mod device_memory;
mod devices;
mod ended;
mod events;
mod exhausted;
mod fault_forms;
mod faults;
mod foundation;
mod generated;
mod globals;
mod globals_addresses;
mod globals_copies;
mod globals_names;
mod graphs;
mod grids;
mod growing;
mod handlers;
mod handlers_elsewhere;
mod heap;
mod heap_api;
mod heap_choice;
mod heap_live;
mod heap_placement;
mod heap_size;
mod host_access;
mod host_memory;
mod indirect_grids;
mod kernel_callers;
mod kernel_callers_own;
mod kernel_callers_reach;
mod kernel_limits;
mod kernels;
mod large_transfers;
mod launch_checks;
mod launches;
mod live;
mod loops;
mod memory_errors;
mod mirror;
mod mirror_agreement;
mod mirror_memory;
mod mirror_transfers;
mod never_blocks;
mod persistent;
mod persistent_again;
mod persistent_arguments;
mod persistent_batches;
mod persistent_calls;
mod persistent_cancel;
mod persistent_groups;
mod persistent_launches;
mod persistent_leases;
mod persistent_pool;
mod persistent_sliced;
mod persistent_sliced_posts;
mod persistent_threads;
mod persistent_urgent;
mod pinned;
mod pinned_transfers;
mod pointer_allocations;
mod pointer_atomics;
mod pointer_atomics64;
mod pointer_checks;
mod pointer_helpers;
mod pointer_loads;
mod pointer_types;
mod pointers;
mod print;
mod print_assert;
mod print_launches;
mod print_live;
mod private_arrays;
mod ranges;
mod rectangles;
mod ring_ends;
mod rings;
mod rpc;
mod rpc_failures;
mod rpc_groups;
mod rpc_kernel_threads;
mod rpc_packed;
mod rpc_split;
mod rpc_streams;
mod rpc_wait_budget;
mod sanitizer;
mod second_queue;
mod segment_lists;
mod segments;
mod server_beside;
mod server_leases;
mod server_pause;
mod server_polls;
mod services;
mod services_memory;
mod services_print;
mod spans;
mod spill;
mod staging_memory;
mod stress;
mod subgroups;
mod system;
mod system_faults;
mod system_hoist;
mod system_hoist_frames;
mod system_kinds;
mod system_live;
mod system_paging;
mod system_pool;
mod system_prefetch;
mod table;
mod textures;
mod textures_launches;
mod textures_refused;
mod threads;
mod transfers;
mod wgsl_types;
mod work;

/// The examples whose parts are tested here.
#[path = "../../examples/support/mod.rs"]
mod support;

#[allow(dead_code, reason = "the example uses more of it")]
#[path = "../../examples/doctor/report.rs"]
mod doctor;

#[path = "../../examples/stress/work.rs"]
mod stress_work;

#[allow(dead_code, reason = "the example uses more of it")]
#[path = "../../examples/median/filter.rs"]
mod median;

#[path = "../../examples/median/reference.rs"]
mod median_reference;

use harness::Suite;

fn main() -> std::process::ExitCode {
    if let Some(status) = devices::as_another_program()
        .or_else(stress::as_another_program)
        .or_else(exhausted::as_another_program)
    {
        return status;
    }
    let _ = env_logger::builder().is_test(true).try_init();
    panics::watch();
    let mut suite = Suite::new();
    suite.add_all(&[
        allocations::CASES,
        arguments::CASES,
        at_once::CASES,
        atomics::CASES,
        atomics64::CASES,
        beside::CASES,
        beside_functions::CASES,
        bindings::CASES,
        borrowed::CASES,
        buffers::CASES,
        buffers_ahead::CASES,
        buffers_blocks::CASES,
        buffers_common::CASES,
        buffers_events::CASES,
        buffers_exchange::CASES,
        buffers_host::CASES,
        buffers_lent::CASES,
        buffers_limits::CASES,
        buffers_moving::CASES,
        buffers_parts::CASES,
        buffers_places::CASES,
        byte_copies::CASES,
        call_arguments::CASES,
        call_scalars::CASES,
        call_structures::CASES,
        callbacks::CASES,
        cancel::CASES,
        ranges::launches::CASES,
        host_access::CASES,
        launch_checks::CASES,
        memory_errors::CASES,
        host_memory::CASES,
        indirect_grids::CASES,
        staging_memory::CASES,
        ranges::transfers::CASES,
        device_memory::CASES,
        devices::CASES,
        ended::CASES,
        exhausted::CASES,
        events::CASES,
        faults::CASES,
        foundation::CASES,
        generated::CASES,
        globals::CASES,
        globals_addresses::CASES,
        globals_copies::CASES,
        globals_names::CASES,
        graphs::CASES,
        grids::CASES,
        growing::CASES,
        handlers::CASES,
        handlers_elsewhere::CASES,
        heap::CASES,
        heap_api::CASES,
        heap_choice::CASES,
        heap_live::CASES,
        heap_placement::CASES,
        heap_size::CASES,
        kernel_callers::CASES,
        kernel_callers_own::CASES,
        kernel_callers_reach::CASES,
        kernel_limits::CASES,
        kernels::CASES,
        large_transfers::CASES,
        launches::CASES,
        live::CASES,
        loops::CASES,
        mirror::CASES,
        mirror_agreement::CASES,
        mirror_memory::CASES,
        mirror_transfers::CASES,
        never_blocks::CASES,
        persistent::CASES,
        persistent_arguments::CASES,
        persistent_batches::CASES,
        persistent_calls::CASES,
        persistent_cancel::CASES,
        persistent_groups::CASES,
        persistent_launches::CASES,
        persistent_leases::CASES,
        persistent_pool::CASES,
        persistent_sliced::CASES,
        persistent_sliced_posts::CASES,
        persistent_threads::CASES,
        persistent_urgent::CASES,
        rectangles::CASES,
        ring_ends::CASES,
        rings::CASES,
        pinned::CASES,
        pinned_transfers::CASES,
        pointer_allocations::CASES,
        pointer_atomics::CASES,
        pointer_atomics64::CASES,
        pointer_checks::CASES,
        pointer_helpers::CASES,
        pointer_loads::CASES,
        pointer_types::CASES,
        pointers::CASES,
        print::CASES,
        print_assert::CASES,
        print_launches::CASES,
        print_live::CASES,
        private_arrays::CASES,
        rpc::CASES,
        rpc_failures::CASES,
        rpc_groups::CASES,
        rpc_kernel_threads::CASES,
        rpc_packed::CASES,
        rpc_wait_budget::CASES,
        rpc_split::CASES,
        rpc_streams::CASES,
        sanitizer::CASES,
        segments::CASES,
        second_queue::CASES,
        server_beside::CASES,
        server_leases::CASES,
        server_pause::CASES,
        server_polls::CASES,
        services::CASES,
        services_memory::CASES,
        services_print::CASES,
        spans::CASES,
        spill::CASES,
        stress::CASES,
        subgroups::CASES,
        system::CASES,
        system_faults::CASES,
        system_hoist::CASES,
        system_hoist_frames::CASES,
        system_kinds::CASES,
        system_live::CASES,
        system_paging::CASES,
        system_pool::CASES,
        system_prefetch::CASES,
        table::CASES,
        textures::CASES,
        textures_launches::CASES,
        textures_refused::CASES,
        threads::CASES,
        transfers::CASES,
        work::CASES,
    ]);
    suite.add_trials(processes::trials());
    suite.add(heap_live::again().into_iter());
    suite.add(persistent_again::again().into_iter());
    suite.add(rpc_split::again().into_iter());
    suite.run()
}
