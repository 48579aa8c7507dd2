//! The kernels, each with the function of Rust that says what it should have done.

use tombolo::{Constants, HostServices, Program};

use crate::problem::Outcome;

/// Words that all threads add to on each device.
pub const SUMS: usize = 16;

/// Words of a device global that each thread has on each device.
pub const WORDS: usize = 64;

/// Scrambles a word some times over.
const WORK: &str = "
    override rounds: u32 = 1;
    @group(0) @binding(0) var<storage, read_write> data: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x >= arrayLength(&data) { return; }
        var x = data[id.x];
        for (var i = 0u; i < rounds; i++) { x = x ^ (x << 13u); x = x ^ (x >> 17u); x = x ^ (x << 5u) + i; }
        data[id.x] = x;
    }";

pub fn work(mut x: u32, rounds: u32) -> u32 {
    for i in 0..rounds {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= (x << 5).wrapping_add(i);
    }
    x
}

/// What `WORK` is specialized with.
pub fn rounds(rounds: u32) -> Constants {
    Constants::new().set("rounds", rounds)
}

/// Sums windows of one buffer into another, through a private array sized at run time.
const WINDOW: &str = "
    override N: u32 = 3;
    @group(0) @binding(0) var<storage, read> data: array<u32>;
    @group(0) @binding(1) var<storage, read_write> out: array<u32>;
    @group(0) @binding(2) var<uniform> plus: u32;
    @compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x >= arrayLength(&out) { return; }
        var window: array<u32, N>;
        for (var i = 0u; i < N; i++) { window[i] = data[(id.x + i) % arrayLength(&data)]; }
        var sum = plus;
        for (var i = 0u; i < N; i++) { sum = sum * 31u + window[(i * 7u) % N]; }
        out[id.x] = sum;
    }";

pub fn window(data: &[u32], len: usize, n: usize, plus: u32) -> Vec<u32> {
    let one = |at: usize| {
        let value = |i: usize| data[(at + (i * 7) % n) % data.len()];
        (0..n).fold(plus, |sum, i| sum.wrapping_mul(31).wrapping_add(value(i)))
    };
    (0..len).map(one).collect()
}

/// Walks a list in the heap and adds to each node.
const LIST: &str = "
    struct Node { value: u32, padding: u32, next: usm_ptr }
    @group(0) @binding(0) var<uniform> list: usm_ptr;
    @group(0) @binding(1) var<uniform> plus: u32;
    @compute @workgroup_size(1) fn main() {
        var p = list;
        for (var i = 0u; i < 100u; i++) {
            if usm_is_null(p) { break; }
            let n = usm_Node(p);
            n.value += plus;
            p = n.next;
        }
    }";

/// Everybody adds to the same words.
const SUM: &str = "
    @group(0) @binding(0) var<storage, read_write> sums: array<atomic<u32>>;
    @group(0) @binding(1) var<uniform> plus: u32;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        atomicAdd(&sums[id.x % arrayLength(&sums)], plus + id.x);
    }";

/// A variable of the device, of which each thread has its own.
fn global(thread: usize) -> String {
    format!(
        "var<storage, read_write> stress_{thread}: array<u32, {WORDS}>;
        @group(0) @binding(0) var<uniform> plus: u32;
        @compute @workgroup_size({WORDS}) fn main(@builtin(local_invocation_index) i: u32) {{
            stress_{thread}[i] = stress_{thread}[i] * 3u + i + plus;
        }}"
    )
}

/// Prints a line for each invocation.
const PRINT: &str = "
    @group(0) @binding(0) var<uniform> tag: vec2<u32>;
    @compute @workgroup_size(16) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        print(\"{} {} {}\", tag.x, tag.y, id.x);
    }";

/// Fails where a word has a certain value, and changes the others.
const ASSERT: &str = "
    @group(0) @binding(0) var<storage, read_write> data: array<u32>;
    @group(0) @binding(1) var<uniform> bad: u32;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x >= arrayLength(&data) { return; }
        assert(data[id.x] != bad, \"{} is bad\", bad);
        data[id.x] += 1u;
    }";

/// Calls the host.
const CALL: &str = "
    @group(0) @binding(0) var<storage, read_write> data: array<u32>;
    @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x >= arrayLength(&data) { return; }
        data[id.x] = stress_mix(data[id.x], id.x);
    }";

/// Begins calls in one launch and collects them in another, which works on every device.
const BEGIN: &str = "
    @group(0) @binding(0) var<storage, read_write> data: array<u32>;
    @group(0) @binding(1) var<storage, read_write> tickets: array<u32>;
    @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x >= arrayLength(&data) { return; }
        tickets[id.x] = stress_mix_begin(data[id.x], id.x);
    }";

const COLLECT: &str = "
    @group(0) @binding(0) var<storage, read_write> data: array<u32>;
    @group(0) @binding(1) var<storage, read_write> tickets: array<u32>;
    @group(0) @binding(2) var<storage, read_write> states: array<u32>;
    @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x >= arrayLength(&data) { return; }
        if states[id.x] != CALL_PENDING { return; }
        let reply = stress_mix_collect(tickets[id.x]);
        states[id.x] = reply.status;
        if reply.status == CALL_DONE { data[id.x] = reply.value; }
    }";

/// A server's handler, and what functions of the host answer.
const SERVER: &str = "
    fn stress_answer(x: u32, y: u32) -> u32 {
        let a = (x ^ 0x9e3779b9u) * 0x85ebca6bu + y;
        return a ^ (a >> 15u);
    }";

pub fn mix(x: u32, y: u32) -> u32 {
    let a = (x ^ 0x9E37_79B9).wrapping_mul(0x85EB_CA6B).wrapping_add(y);
    a ^ (a >> 15)
}

/// Takes items of a queue, and puts two for each that is even, halved.
const QUEUE: &str = "
    @group(0) @binding(0) var<storage, read_write> taken: array<atomic<u32>>;
    @compute @workgroup_size(32) fn main() {
        for (var turn = 0u; turn < 20u; turn++) {
            let work = work_take();
            if !work.found { break; }
            let n = work.item.x;
            atomicAdd(&taken[n], 1u);
            if n > 1u && n % 2u == 0u {
                let left = work_put(vec4(n / 2u, 0u, 0u, 0u));
                let right = work_put(vec4(n / 2u, 0u, 0u, 0u));
                if !left || !right { atomicAdd(&taken[0], 1u); }
            }
            work_done();
        }
    }";

/// How often each number is taken from a queue that is filled with `items`.
pub fn queue(items: &[u32], len: usize) -> Vec<u32> {
    let mut taken = vec![0; len];
    let mut todo = items.to_vec();
    while let Some(n) = todo.pop() {
        taken[n as usize] += 1;
        if n > 1 && n % 2 == 0 {
            todo.extend([n / 2; 2]);
        }
    }
    taken
}

pub struct Programs {
    pub work: Program,
    pub window: Program,
    pub list: Program,
    pub sum: Program,
    /// For each thread.
    pub globals: Vec<Program>,
    pub print: Program,
    pub assert: Program,
    pub call: Program,
    pub begin: Program,
    pub collect: Program,
    pub server: Program,
    pub queue: Program,
}

impl Programs {
    pub fn new(threads: usize, services: &HostServices) -> Outcome<Self> {
        let globals = (0..threads)
            .map(|thread| Program::new(format!("global_{thread}.wgsl"), global(thread)));
        let calling = |name: &str, source: &str| {
            Program::builder()
                .source(name, source)
                .services(services)
                .build()
        };
        Ok(Self {
            work: Program::new("work.wgsl", WORK)?,
            window: Program::new("window.wgsl", WINDOW)?,
            list: Program::new("list.wgsl", LIST)?,
            sum: Program::new("sum.wgsl", SUM)?,
            globals: globals.collect::<Result<_, _>>()?,
            print: Program::new("print.wgsl", PRINT)?,
            assert: Program::new("assert.wgsl", ASSERT)?,
            call: calling("call.wgsl", CALL)?,
            begin: calling("begin.wgsl", BEGIN)?,
            collect: calling("collect.wgsl", COLLECT)?,
            server: Program::new("server.wgsl", SERVER)?,
            queue: Program::builder()
                .source("queue.wgsl", QUEUE)
                .work_queue()
                .build()?,
        })
    }
}
