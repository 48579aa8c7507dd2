// Sums over the invocations of a work-group.

var<workgroup> _sums: array<u32, INVOCATIONS>;

// The sum of the counts of all invocations before this one. Every invocation of the work-group has to call this, and may
// not do so again before a barrier.
fn counts_before(lane: u32, count: u32) -> u32 {
    _sums[lane] = count;
    // Hillis and Steele: after level k each sum covers 2^k invocations.
    for (var level = 0u; level < LEVELS; level++) {
        let reach = 1u << level;
        workgroupBarrier();
        var before = 0u;
        if lane >= reach { before = _sums[lane - reach]; }
        workgroupBarrier();
        _sums[lane] += before;
    }
    workgroupBarrier();
    return _sums[lane] - count;
}

// The sum of all counts, after a call of `counts_before`.
fn counts_of_all() -> u32 {
    return _sums[INVOCATIONS - 1u];
}
