// Radix sort, one digit of 4 bits: a launch moves all keys to their places by this digit and leaves keys with the same digit in
// their order, so that launches for all digits, from the lowest on, sort. Each work-group counts the digits of a tile; a
// scan of the counts, all tiles of digit 0 first, gives the place where the keys of each digit of each tile begin; then
// each work-group sorts its tile by the digit and moves it. The host puts `counts_before`, and `ordered` and `bits_of`, which
// make a key a number and back, beside this source.

const DIGITS = 16u;
// Counters of the work-group are halves of words, those of digits d and d + 8 in one.
const PAIRS = 8u;
// Counters of each digit that share the work of counting.
const COPIES = 16u;

override DESCENDING: bool;

@group(0) @binding(0) var<storage, read> keys: array<u32>;
@group(0) @binding(1) var<storage, read_write> digit_counts: array<u32>;
@group(0) @binding(2) var<storage, read> digit_starts: array<u32>;
@group(0) @binding(3) var<storage, read_write> sorted_keys: array<u32>;
@group(0) @binding(4) var<storage, read> values: array<u32>;
@group(0) @binding(5) var<storage, read_write> sorted_values: array<u32>;
@group(0) @binding(6) var<uniform> shift: u32;

var<workgroup> copies: array<atomic<u32>, DIGITS * COPIES>;
// Keys, counters, sorted keys and sorted values, one after the other.
var<workgroup> tile: array<u32, SLOTS>;
// Where the keys of each digit go, as seen from their places in the sorted tile.
var<workgroup> bases: array<u32, DIGITS>;

var<private> own_keys: array<u32, ITEMS>;
var<private> own_values: array<u32, ITEMS>;
var<private> own_ranks: array<u32, ITEMS>;
var<private> own_places: array<u32, ITEMS>;

// A key as a number that is to rise.
fn number(bits: u32) -> u32 {
    return select(ordered(bits), ~ordered(bits), DESCENDING);
}

fn bits_of_number(key: u32) -> u32 {
    return bits_of(select(key, ~key, DESCENDING));
}

fn digit_of(key: u32) -> u32 {
    return (key >> shift) & (DIGITS - 1u);
}

@compute @workgroup_size(INVOCATIONS)
fn count_digits(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var i = 0u; i < ITEMS; i++) {
        let at = group.x * TILE + i * INVOCATIONS + lane;
        if at < arrayLength(&keys) {
            let digit = digit_of(number(keys[at]));
            atomicAdd(&copies[digit * COPIES + lane % COPIES], 1u);
        }
    }
    workgroupBarrier();
    if lane < DIGITS {
        var count = 0u;
        for (var i = 0u; i < COPIES; i++) { count += atomicLoad(&copies[lane * COPIES + i]); }
        digit_counts[lane * groups.x + group.x] = count;
    }
}

// The counter of an invocation for a digit, and where it lies in its word.
fn counter(digit: u32, lane: u32) -> u32 {
    return slot((digit % PAIRS) * INVOCATIONS + lane);
}

fn half(digit: u32) -> u32 {
    return 16u * (digit / PAIRS);
}

// Ranks the keys of a tile by their digit: `own_ranks` of `own_keys`, which lie in a row in the input.
fn rank_keys(group: u32, groups: u32, lane: u32) {
    for (var i = 0u; i < ITEMS; i++) {
        let index = i * INVOCATIONS + lane;
        let at = group * TILE + index;
        // Behind the end the largest number, which stays behind all others of its digit.
        var key = 0xffffffffu;
        if at < arrayLength(&keys) { key = number(keys[at]); }
        tile[slot(index)] = key;
    }
    workgroupBarrier();
    for (var i = 0u; i < ITEMS; i++) { own_keys[i] = tile[slot(lane * ITEMS + i)]; }
    workgroupBarrier();
    // Each invocation counts its own keys.
    for (var i = 0u; i < PAIRS; i++) { tile[slot(i * INVOCATIONS + lane)] = 0u; }
    for (var i = 0u; i < ITEMS; i++) {
        let digit = digit_of(own_keys[i]);
        tile[counter(digit, lane)] += 1u << half(digit);
    }
    workgroupBarrier();
    // An exclusive scan of all counters, digit by digit: each invocation takes some in a row. Of the upper halves, all lower
    // ones come before.
    var total = 0u;
    for (var i = 0u; i < PAIRS; i++) { total += tile[slot(lane * PAIRS + i)]; }
    let before = counts_before(lane, total);
    var running = before + (counts_of_all() << 16u);
    for (var i = 0u; i < PAIRS; i++) {
        let at = slot(lane * PAIRS + i);
        let count = tile[at];
        tile[at] = running;
        running += count;
    }
    workgroupBarrier();
    if lane < DIGITS {
        let start = (tile[counter(lane, 0u)] >> half(lane)) & 0xffffu;
        bases[lane] = digit_starts[lane * groups + group] - start;
    }
    workgroupBarrier();
    for (var i = 0u; i < ITEMS; i++) {
        let digit = digit_of(own_keys[i]);
        let at = counter(digit, lane);
        own_ranks[i] = (tile[at] >> half(digit)) & 0xffffu;
        tile[at] += 1u << half(digit);
    }
    workgroupBarrier();
}

// Sorts the keys in work-group memory and moves them: neighbours write to neighbouring places.
fn move_keys(group: u32, lane: u32) {
    for (var i = 0u; i < ITEMS; i++) { tile[slot(own_ranks[i])] = own_keys[i]; }
    workgroupBarrier();
    for (var i = 0u; i < ITEMS; i++) {
        let index = i * INVOCATIONS + lane;
        let key = tile[slot(index)];
        own_places[i] = bases[digit_of(key)] + index;
        if group * TILE + index < arrayLength(&keys) {
            sorted_keys[own_places[i]] = bits_of_number(key);
        }
    }
}

@compute @workgroup_size(INVOCATIONS)
fn sort_tiles(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    rank_keys(group.x, groups.x, lane);
    move_keys(group.x, lane);
}

@compute @workgroup_size(INVOCATIONS)
fn sort_tiles_of_pairs(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = group.x * TILE;
    for (var i = 0u; i < ITEMS; i++) {
        let index = i * INVOCATIONS + lane;
        if first + index < arrayLength(&keys) { tile[slot(index)] = values[first + index]; }
    }
    workgroupBarrier();
    for (var i = 0u; i < ITEMS; i++) { own_values[i] = tile[slot(lane * ITEMS + i)]; }
    workgroupBarrier();
    rank_keys(group.x, groups.x, lane);
    move_keys(group.x, lane);
    workgroupBarrier();
    for (var i = 0u; i < ITEMS; i++) { tile[slot(own_ranks[i])] = own_values[i]; }
    workgroupBarrier();
    for (var i = 0u; i < ITEMS; i++) {
        let index = i * INVOCATIONS + lane;
        if first + index < arrayLength(&keys) { sorted_values[own_places[i]] = tile[slot(index)]; }
    }
}
