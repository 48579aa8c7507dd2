struct RingTaken_$name$ { found: bool, item: $type$ }

// Items that the host has put, and nobody has taken.
fn ring_$name$_ready() -> u32 {
    return tombolo_ring_look_$name$($other$u) - atomicLoad(&$ring$[$own$u]);
}

// An item in place, so many behind the first that is ready. It stays until it is released.
fn ring_$name$_at(index: u32) -> $type$ {
    let at = tombolo_ring_item_$name$(index);
    return $load$;
}

// Gives the slots of so many items back, which were ready and are read.
fn ring_$name$_release(count: u32) {
    tombolo_ring_publish_$name$($own$u, atomicLoad(&$ring$[$own$u]) + count);
}

// Takes an item, if one is ready.
fn ring_$name$_take() -> RingTaken_$name$ {
    var taken: RingTaken_$name$;
    if ring_$name$_ready() != 0u {
        taken.found = true;
        taken.item = ring_$name$_at(0u);
        ring_$name$_release(1u);
    }
    return taken;
}

// Whether the host puts nothing more, and everything is taken. The end is looked at before the count.
fn ring_$name$_finished() -> bool {
    let closed = tombolo_ring_look_$name$($other_closed$u);
    let ready = ring_$name$_ready();
    return closed != 0u && ready == 0u;
}
