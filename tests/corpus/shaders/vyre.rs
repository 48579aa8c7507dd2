//! Shaders of `vyre`: hashes, and data structures in work-group memory that a list of commands drives.

use crate::entry::{Entry, Fill::*, entry};

const P: &str = "vyre";

pub const ENTRIES: &[Entry] = &[
    entry(
        P,
        "src/lower/wgsl/compiler/recursive_descent.wgsl",
        "compiler_primitives_recursive_descent",
        [1, 1, 1],
        &[
            ("tokens", Ints(2, 24)),
            (
                "transitions",
                Words("0, 0, 1, 5, 0, 1, 0, 6, 1, 0, 0, 0, 1, 1, 1, 7"),
            ),
            (
                "transition_push",
                Words("4294967295, 3, 4294967295, 4294967295"),
            ),
            ("params", Words("24, 4, 0, 0, 64, 64")),
        ],
    ),
    entry(
        P,
        "src/lower/wgsl/compiler/visitor_walk.wgsl",
        "compiler_primitives_visitor_walk",
        [1, 1, 1],
        &[
            ("child_offsets", Words("0, 2, 4, 4, 4, 5, 5")),
            ("children", Words("1, 2, 3, 4, 5")),
            ("status", Poison(4)),
            ("params", Words("6, 0, 64")),
        ],
    ),
    entry(
        P,
        "src/ops/buffer/byte_swap_u32/byte_swap_u32.wgsl",
        "buffer_byte_swap_u32",
        [4, 1, 1],
        &[("input_words", Bits(256)), ("output_words", Poison(256))],
    ),
    entry(
        P,
        "src/ops/buffer/wgsl/byte_swap_u64.wgsl",
        "buffer_byte_swap_u64",
        [4, 1, 1],
        &[("input_words", Bits(512)), ("output_words", Poison(512))],
    ),
    entry(
        P,
        "src/ops/hash/wgsl/blake3.wgsl",
        "hash_blake3",
        [1, 1, 1],
        &[("input_words", Bits(11))],
    ),
    entry(
        P,
        "src/ops/hash/wgsl/md5.wgsl",
        "hash_md5",
        [1, 1, 1],
        &[("input_words", Bits(11))],
    ),
    entry(
        P,
        "src/ops/hash/wgsl/ripemd160.wgsl",
        "hash_ripemd160",
        [1, 1, 1],
        &[("input_words", Bits(11))],
    ),
    entry(
        P,
        "src/ops/workgroup/primitives/state_machine/state_machine.wgsl",
        "workgroup_state_machine_kernel",
        [1, 1, 1],
        &[
            (
                "state_machine_events",
                Stairs {
                    each: 50,
                    modulo: 3,
                    len: 384,
                },
            ),
            (
                "state_machine_transitions",
                Rows([(0, 3), (0, 3), (0, 3), (0, 9)], 8),
            ),
            ("state_machine_params", Words("0, 8, 6, 0")),
        ],
    ),
    entry(
        P,
        "src/ops/workgroup/primitives/string_interner/string_interner.wgsl",
        "workgroup_string_interner_intern",
        [1, 1, 1],
        &[
            (
                "interner_commands",
                Rows([(1, 4), (0, 32), (1, 4), (0, 64)], 60),
            ),
            ("interner_source_bytes", Ints(0x0101_0101, 64)),
        ],
    ),
    entry(
        P,
        "src/ops/workgroup/primitives/typed_arena/typed_arena.wgsl",
        "workgroup_typed_arena_alloc",
        [1, 1, 1],
        &[(
            "arena_commands",
            Rows([(1, 6), (0, 16), (0, 1000), (0, 64)], 60),
        )],
    ),
    entry(
        P,
        "src/ops/workgroup/primitives/union_find/union_find.wgsl",
        "workgroup_union_find_kernel",
        [1, 1, 1],
        &[(
            "union_find_commands",
            Rows([(1, 4), (0, 64), (0, 20), (0, 20)], 60),
        )],
    ),
    entry(
        P,
        "src/ops/workgroup/primitives/visitor/visitor.wgsl",
        "workgroup_visitor_visit",
        [1, 1, 1],
        &[(
            "visitor_commands",
            Rows([(1, 3), (0, 300), (0, 1), (0, 64)], 60),
        )],
    ),
    entry(
        P,
        "src/ops/workgroup/queue_fifo/queue_fifo.wgsl",
        "workgroup_queue_fifo_kernel",
        [1, 1, 1],
        &[(
            "fifo_commands",
            Rows([(1, 5), (0, 64), (0, 1000), (0, 1)], 60),
        )],
    ),
    entry(
        P,
        "src/ops/workgroup/queue_priority/queue_priority.wgsl",
        "workgroup_queue_priority_kernel",
        [1, 1, 1],
        &[(
            "heap_commands",
            Rows([(1, 4), (0, 64), (0, 1000), (0, 10)], 60),
        )],
    ),
    entry(
        P,
        "src/ops/workgroup/stack/stack.wgsl",
        "workgroup_stack_kernel",
        [1, 1, 1],
        &[(
            "stack_commands",
            Rows([(1, 6), (0, 64), (0, 1000), (0, 1)], 60),
        )],
    ),
];
