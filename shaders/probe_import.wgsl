// Do the host and a kernel see each other's writes in memory that the host lent to the device?
//
// The kernel writes a value that follows from one of the host's. Then it calls the host and waits a
// bounded time for the answer: that is whether they also see each other while the kernel runs.
//
// Words written by different sides lie 256 bytes apart, so that they share no cache line.

struct Words {
    // Written by the host before the kernel.
    token: u32,
    turns: u32,
    @align(16) padding_0: array<vec4<u32>, 15>,
    // Written by the host while the kernel runs.
    answer: atomic<u32>,
    @align(16) padding_1: array<vec4<u32>, 15>,
    // Written by the kernel while it runs.
    call: atomic<u32>,
    @align(16) padding_2: array<vec4<u32>, 15>,
    // Written by the kernel when it ends.
    heard: atomic<u32>,
    result: u32,
    churned: atomic<u32>,
}

@group(0) @binding(0) var<storage, read_write> words: Words;

// Gets its body from `device::fence`.
fn fence() {}

// Eight invocations, because a software driver fills up its vectors of eight with idle ones
// otherwise, and those do not leave loops.
@compute @workgroup_size(8)
fn probe_import(@builtin(local_invocation_index) lane: u32) {
    let token = words.token;
    if lane == 0u {
        atomicStore(&words.call, token);
    }
    var churned = token | 1u;
    var heard = 0u;
    var turn = 0u;
    loop {
        if turn >= words.turns || heard != 0u {
            break;
        }
        turn += 1u;
        churned = churn_64(churned);
        // Otherwise a processor may go on seeing what it has seen.
        fence();
        if atomicLoad(&words.answer) == token {
            heard = 1u;
        }
    }
    if lane == 0u {
        atomicStore(&words.heard, heard);
        atomicStore(&words.churned, churned);
        words.result = token * 2654435761u + 1u;
    }
}
