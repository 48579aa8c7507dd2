// The ring `$name$`: what both directions have in common. Appended behind programs made with
// `ProgramBuilder::ring_from_host` and `ring_to_host`; what stands in dollar signs is put in by `ring::item`. The
// words, and the order in which they are written, are those of `ring::protocol`. All functions are for one invocation
// at a time.
$binding$ var<storage, read_write> $ring$: array<atomic<u32>>;

// Orders memory between the lines above and below, for one invocation alone; see `shaders/rpc.wgsl`.
fn tombolo_ring_fence_$name$() {}

// Reads a word that the host writes. Where there are fences for one invocation the second function's body replaces this
// one. Elsewhere processors run kernels, or nothing changes meanwhile: there an exchange that changes nothing is a
// fence, and no compiler takes the word from an earlier look. The branch is never taken: a declaration that nothing
// mentions is left out.
fn tombolo_ring_look_$name$(at: u32) -> u32 {
    if false { return tombolo_ring_fenced_look_$name$(at); }
    return atomicOr(&$ring$[at], 0u);
}
fn tombolo_ring_fenced_look_$name$(at: u32) -> u32 {
    tombolo_ring_fence_$name$();
    let seen = atomicLoad(&$ring$[at]);
    tombolo_ring_fence_$name$();
    return seen;
}

// Writes a word that the host looks at, behind everything written before.
fn tombolo_ring_publish_$name$(at: u32, value: u32) {
    if false { tombolo_ring_fenced_publish_$name$(at, value); }
    atomicExchange(&$ring$[at], value);
}
fn tombolo_ring_fenced_publish_$name$(at: u32, value: u32) {
    tombolo_ring_fence_$name$();
    atomicStore(&$ring$[at], value);
    tombolo_ring_fence_$name$();
}

// The kernel uses the ring no more, and the host is told.
fn ring_$name$_close() { tombolo_ring_publish_$name$($own_closed$u, 1u); }

// Where an item lies, so many behind the kernel's count.
fn tombolo_ring_item_$name$(index: u32) -> u32 {
    return $items$u + ((atomicLoad(&$ring$[$own$u]) + index) & atomicLoad(&$ring$[$mask$u])) * $words$u;
}
