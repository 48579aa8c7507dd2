// What the invocations of a subgroup tell each other that call together; see `rpc_packed_of.wgsl`. As they stand here a
// subgroup is one invocation. The bodies are put in after parsing, where calls are packed: programs need not enable
// subgroups for it.

// How many of the invocations that are here come before this one, and how many there are.
fn tombolo_subgroup_rank() -> u32 { return 0u; }
fn tombolo_subgroup_count() -> u32 { return 1u; }
// The first one's word, and the sum of all.
fn tombolo_subgroup_first(word: u32) -> u32 { return word; }
fn tombolo_subgroup_sum(word: u32) -> u32 { return word; }

// Whether the services want packets to be shared.
fn tombolo_call_packs() -> bool { return atomicLoad(&tombolo_calls[tombolo_header_packs]) != 0u; }
