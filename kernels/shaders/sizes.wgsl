// The shape of work-groups, which the host chooses: a work-group takes a tile of the input.

override INVOCATIONS: u32; // a power of two
override LEVELS: u32;      // its logarithm
override ITEMS: u32;       // values of each invocation
override TILE: u32 = INVOCATIONS * ITEMS;
// With a gap behind every 32 values of a tile.
override SLOTS: u32 = TILE + TILE / 32u;

// Where value `index` of a tile lies in work-group memory: invocations that each walk along values of their own meet
// different banks of the memory.
fn slot(index: u32) -> u32 {
    return index + index / 32u;
}
