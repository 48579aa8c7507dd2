// Items that there is room for.
fn ring_$name$_room() -> u32 {
    let taken = tombolo_ring_look_$name$($other$u);
    return atomicLoad(&$ring$[$mask$u]) + 1u - (atomicLoad(&$ring$[$own$u]) - taken);
}

// Writes an item in place, so many behind the next one. The host sees it when it is committed.
fn ring_$name$_set(index: u32, item: $type$) {
    let at = tombolo_ring_item_$name$(index);
$store$
}

// Shows the host so many items that are written.
fn ring_$name$_commit(count: u32) {
    tombolo_ring_publish_$name$($own$u, atomicLoad(&$ring$[$own$u]) + count);
}

// Puts an item; false if there is no room now.
fn ring_$name$_put(item: $type$) -> bool {
    let fits = ring_$name$_room() != 0u;
    if fits {
        ring_$name$_set(0u, item);
        ring_$name$_commit(1u);
    }
    return fits;
}

// Whether the host takes nothing more.
fn ring_$name$_closed() -> bool { return tombolo_ring_look_$name$($other_closed$u) != 0u; }
