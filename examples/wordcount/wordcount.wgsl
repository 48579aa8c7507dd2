// Counts the words of a file, and how often each of them occurs. This is the whole program: the host launches `main`
// and `count` in turn, `count` with as many work-groups as `main` has said, until `main` says that it is done.
//
// A word is a run of letters, digits and bytes outside ASCII; only its first 64 bytes count, in lower case.

// Bytes of a piece of the file, which a work-group counts at once.
const PIECE: u32 = 131072u;
// Pieces that are counted at once.
const GROUPS: u32 = 16u;
const LANES: u32 = 128u;
// Bytes of a word that count.
const MOST: u32 = 64u;
// What a piece's memory has in front of it and behind it: a word may begin before it, or go on behind.
const FRONT: u32 = 4u;
const ROOM: u32 = FRONT + PIECE + MOST;
// Places for different words, and how many a word may try. The table takes 24 bytes for each.
const SLOTS: u32 = 262144u;
const TRIES: u32 = 64u;
// Lines of the table that is printed.
const SHOWN: u32 = 20u;

alias Words = array<u32>;

struct Slot {
    // Two numbers made of the word, which tell it from others; 0 where there is none yet.
    key: atomic<u32>,
    check: atomic<u32>,
    count: atomic<u32>,
    length: u32,
    // Where in the file it was found.
    place: vec2<u32>,
}

struct State {
    phase: u32,
    file: u32,
    size: vec2<u32>,
    // The first byte that nobody counts yet.
    next: vec2<u32>,
    // Where the pieces that are being counted begin.
    base: vec2<u32>,
    // One after the other: room for each of the pieces.
    memory: usm_ptr,
    // The last line of the table, how many there are, and how many words of the file are in them.
    last_count: u32,
    last_slot: u32,
    lines: u32,
    shown: u32,
    words_low: atomic<u32>,
    words_high: atomic<u32>,
    different: atomic<u32>,
    // Words for which there was no place.
    lost: atomic<u32>,
    // The status of the worst read.
    failed: atomic<u32>,
}

const BEGIN: u32 = 0u;
const COUNT: u32 = 1u;
const RANK: u32 = 2u;

// Variables of the device: they live from launch to launch.
var<storage, read_write> state: State;
var<storage, read_write> slots: array<Slot, SLOTS>;

// How many work-groups `count` gets next.
@group(0) @binding(0) var<storage, read_write> work: array<u32, 3>;

// 64-bit numbers, low word first.

fn plus(a: vec2<u32>, b: u32) -> vec2<u32> {
    let low = a.x + b;
    return vec2(low, a.y + select(0u, 1u, low < b));
}

fn minus(a: vec2<u32>, b: u32) -> vec2<u32> {
    return vec2(a.x - b, a.y - select(0u, 1u, a.x < b));
}

fn less(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

// What `main` says: at most one line in a launch, a text, a number, a text, a number, and a text or a word. Calls
// of the host stand at one place each where they can: drivers copy functions to wherever they are called.

// The stream; 0 for silence.
var<private> say_to: u32;
var<private> say_texts: vec3<u32>;
var<private> say_numbers: vec4<u32>;
// How many of them, and in how many columns the first one is.
var<private> say_count: u32;
var<private> say_columns: u32;
// The word, where it is in the file, and how long; in the place of the last text.
var<private> say_place: vec2<u32>;
var<private> say_length: u32;
// The status with which the program ends, if it does.
var<private> ends: bool;
var<private> code: u32;

// The line.
var<private> line: FileBlock;

fn put(at: u32, byte: u32) {
    line.words[at / 4u] |= byte << (8u * (at % 4u));
}

// A number of 64 bits, to the right of so many columns, by long division from its last digit on.
fn put_number(number: vec2<u32>, columns: u32) {
    var digits = 1u;
    var at = line.bytes;
    // First how many digits there are, then the digits.
    for (var pass_number = 0u; pass_number < 2u; pass_number++) {
        var rest = number;
        for (var i = 1u; i <= 20u; i++) {
            let high = rest.y / 10u;
            // The low word in halves, so that nothing overflows.
            let upper = ((rest.y % 10u) << 16u) | (rest.x >> 16u);
            let lower = ((upper % 10u) << 16u) | (rest.x & 0xffffu);
            if pass_number == 1u { put(line.bytes - i, 0x30u + lower % 10u); }
            rest = vec2(((upper / 10u) << 16u) | (lower / 10u), high);
            digits = i;
            if (rest.x | rest.y) == 0u { break; }
        }
        if pass_number == 0u {
            for (; digits + (at - line.bytes) < columns; at++) { put(at, 0x20u); }
            line.bytes = at + digits;
        }
    }
}

fn say() {
    for (var part = 0u; part < 3u; part++) {
        var text: FileBlock;
        if say_texts[part] != 0u {
            text = text_block(say_texts[part], 0u);
        } else if part == 2u && say_length > 0u {
            // The word is where it was found.
            text = file_read_block(state.file, say_place);
            text.bytes = min(text.bytes, say_length);
        }
        for (var i = 0u; i < min(text.bytes, MOST); i++) {
            put(line.bytes, lower((text.words[i / 4u] >> (8u * (i % 4u))) & 0xffu));
            line.bytes += 1u;
        }
        if part < say_count {
            put_number(select(say_numbers.zw, say_numbers.xy, part == 0u), select(0u, say_columns, part == 0u));
        }
    }
    put(line.bytes, 0x0au);
    line.bytes += 1u;
    if file_put_block(say_to, line).status != FILE_OK {
        ends = true;
        code = 3u;
    }
}

// What went wrong, a number for it, and the end of the program.
fn give_up(what: u32, number: u32, with_code: u32) {
    say_to = FILE_STDERR;
    say_texts.x = what;
    say_numbers.x = number;
    say_count = 1u;
    ends = true;
    code = with_code;
}

// The beginning: finds room for pieces of the file, and opens the file.
fn begin() {
    state.memory = malloc(GROUPS * ROOM);
    if usm_is_null(state.memory) {
        ends = true;
        code = 4u;
        return;
    }
    let arguments = arg_count();
    if arguments != 2u {
        give_up("wordcount: wants one file; arguments: ", arguments - 1u, 2u);
        return;
    }
    let opened = file_open(arg(1u), FILE_READ);
    if opened.status != FILE_OK {
        give_up("wordcount: the file cannot be opened; status ", opened.status, 1u);
        return;
    }
    state.file = opened.file;
    state.size = file_size(opened.file).position;
    state.next = vec2(0u);
    state.phase = COUNT;
}

// Has the next pieces counted, or begins the table if there are none.
fn more() {
    let failed = atomicLoad(&state.failed);
    let lost = atomicLoad(&state.lost);
    if failed != 0u {
        give_up("wordcount: the file cannot be read; status ", failed, 1u);
        return;
    }
    if lost != 0u {
        give_up("wordcount: too many different words; too many by ", lost, 1u);
        return;
    }
    var groups = 0u;
    state.base = state.next;
    while groups < GROUPS && less(state.next, state.size) {
        state.next = plus(state.next, PIECE);
        groups += 1u;
    }
    work[0] = groups;
    if groups > 0u { return; }
    state.phase = RANK;
    state.last_count = 0xffffffffu;
    state.last_slot = 0xffffffffu;
    say_to = FILE_STDOUT;
    say_texts = vec3(0u, " words, ", " different");
    say_count = 2u;
    say_numbers = vec4(
        atomicLoad(&state.words_low),
        atomicLoad(&state.words_high),
        atomicLoad(&state.different),
        0u,
    );
}

var<workgroup> phase: u32;
var<workgroup> best_count: array<u32, 256>;
var<workgroup> best_slot: array<u32, 256>;

// One line of the table: the most frequent word behind the one of the last line.
fn rank(lane: u32) {
    var count = 0u;
    var slot = 0u;
    for (var i = lane; i < SLOTS; i += 256u) {
        let other = atomicLoad(&slots[i].count);
        let behind = other < state.last_count || (other == state.last_count && i > state.last_slot);
        if behind && other > count {
            count = other;
            slot = i;
        }
    }
    best_count[lane] = count;
    best_slot[lane] = slot;
    workgroupBarrier();
    // All have read what the first one writes below.
    storageBarrier();
    for (var half = 128u; half > 0u; half /= 2u) {
        if lane < half {
            let other = best_count[lane + half];
            let mine = best_count[lane];
            if other > mine || (other == mine && best_slot[lane + half] < best_slot[lane]) {
                best_count[lane] = other;
                best_slot[lane] = best_slot[lane + half];
            }
        }
        workgroupBarrier();
    }
    if lane > 0u { return; }
    if best_count[0] == 0u || state.lines == SHOWN {
        let freed = free(state.memory);
        let closed = file_close(state.file);
        let foot = file_print(FILE_STDOUT, "{:>10}  words in {} lines\n", state.shown, state.lines);
        ends = true;
        code = select(4u, 0u, freed == FREE_DONE && closed == FILE_OK && foot.status == FILE_OK);
        return;
    }
    state.last_count = best_count[0];
    state.last_slot = best_slot[0];
    state.lines += 1u;
    state.shown += best_count[0];
    say_to = FILE_STDOUT;
    say_numbers.x = best_count[0];
    say_count = 1u;
    say_columns = 10u;
    say_texts.y = "  ";
    say_place = slots[state.last_slot].place;
    say_length = slots[state.last_slot].length;
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane == 0u {
        phase = state.phase;
        work = array<u32, 3>(0u, 1u, 1u);
    }
    let now = workgroupUniformLoad(&phase);
    if now == RANK { rank(lane); }
    if lane > 0u { return; }
    if now == BEGIN { begin(); }
    if state.phase == COUNT { more(); }
    if say_to != 0u { say(); }
    if ends {
        work[0] = 0u;
        exit(code);
    }
}

fn is_letter(c: u32) -> bool {
    return c - 0x30u < 10u || (c | 0x20u) - 0x61u < 26u || c >= 0x80u;
}

fn lower(c: u32) -> u32 {
    return select(c, c | 0x20u, c - 0x41u < 26u);
}

// Counts a word once.
fn insert(key: u32, check: u32, place: vec2<u32>, length: u32) {
    var slot = key % SLOTS;
    var tries = 0u;
    // An exchange may fail for no reason: it is tried again.
    for (var turn = 0u; turn < 2u * TRIES && tries < TRIES; turn++) {
        let first = atomicCompareExchangeWeak(&slots[slot].key, 0u, key);
        if !first.exchanged && first.old_value == 0u { continue; }
        if first.exchanged || first.old_value == key {
            let second = atomicCompareExchangeWeak(&slots[slot].check, 0u, check);
            if !second.exchanged && second.old_value == 0u { continue; }
            if second.exchanged || second.old_value == check {
                if second.exchanged {
                    atomicAdd(&state.different, 1u);
                    slots[slot].place = place;
                    slots[slot].length = length;
                }
                atomicAdd(&slots[slot].count, 1u);
                return;
            }
        }
        slot = (slot + 1u) % SLOTS;
        tries += 1u;
    }
    atomicAdd(&state.lost, 1u);
}

var<workgroup> filled: atomic<u32>;
var<workgroup> by_blocks: u32;

// Reads a piece and counts the words that begin in it.
@compute @workgroup_size(LANES)
fn count(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let buffer = usm_add(state.memory, group.x * ROOM);
    let start = plus(state.base, group.x * PIECE);
    let words = usm_Words(buffer);
    // Nothing is in front of the first piece.
    let front = select(FRONT, 0u, (start.x | start.y) == 0u);
    if lane == 0u {
        if front == 0u { words[0] = 0x20202020u; }
        let to = usm_add(buffer, FRONT - front);
        let reply = file_read_at(state.file, minus(start, front), to, front + PIECE + MOST);
        by_blocks = select(0u, 1u, reply.status == FILE_NO_POINTERS);
        if by_blocks == 0u && reply.status != FILE_OK { atomicMax(&state.failed, reply.status); }
        atomicStore(&filled, FRONT - front + reply.bytes);
    }
    if workgroupUniformLoad(&by_blocks) != 0u {
        // The host cannot write where this device sees it: all fetch blocks of 256 bytes.
        for (var at = lane * FILE_BLOCK_BYTES; at < front + PIECE + MOST; at += LANES * FILE_BLOCK_BYTES) {
            let block = file_read_block(state.file, plus(minus(start, front), at));
            if block.status != FILE_OK { atomicMax(&state.failed, block.status); }
            let bytes = min(block.bytes, front + PIECE + MOST - at);
            for (var i = 0u; i < bytes; i += 4u) { words[(FRONT - front + at + i) / 4u] = block.words[i / 4u]; }
            // Behind the end of the file is what an earlier piece has left.
            if bytes > 0u { atomicMax(&filled, FRONT - front + at + bytes); }
        }
    }
    storageBarrier();
    let end = workgroupUniformLoad(&filled);
    // Each lane counts the words that begin in its share, and goes on behind it to finish one.
    let share = PIECE / LANES;
    let first = FRONT + lane * share;
    let stop = min(first + share, end);
    let before = (words[(first - 1u) / 4u] >> (8u * ((first - 1u) % 4u))) & 0xffu;
    var inside = is_letter(before);
    var begun = 0u;
    var length = 0u;
    var key = 0u;
    var check = 0u;
    var counted = 0u;
    for (var at = first; at < stop || (length > 0u && length < MOST); at++) {
        var c = 0x20u;
        if at < end { c = (words[at / 4u] >> (8u * (at % 4u))) & 0xffu; }
        if is_letter(c) {
            if !inside {
                begun = at;
                key = 0x811c9dc5u;
                check = 0x2545f491u;
            }
            if (!inside || length > 0u) && length < MOST {
                key = (key ^ lower(c)) * 0x01000193u;
                check = (check + lower(c)) * 0x9e3779b1u;
                check ^= check >> 15u;
                length += 1u;
            }
            inside = true;
        } else {
            inside = false;
        }
        // At its end, or where no more of it counts and nobody else is to be read.
        let long = length == MOST && at + 1u >= stop;
        if length > 0u && (!inside || long) {
            counted += 1u;
            insert(max(key, 1u), max(check, 1u), minus(plus(start, begun), FRONT), length);
            length = 0u;
        }
    }
    let old = atomicAdd(&state.words_low, counted);
    if old + counted < old { atomicAdd(&state.words_high, 1u); }
}
