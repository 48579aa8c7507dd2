// Do the host and a running kernel see each other's writes?
//
// The host raises `beat` all the time and answers `progress` by storing the token in `ack`. The
// kernel raises `progress` once per turn and looks at both words of the host, until it is answered
// or has used up its turns. What it saw, it writes at its end.
//
// Words written by different sides lie 256 bytes apart, so that they share no cache line.

struct Words {
    token: u32,
    turns: u32,
    @align(16) padding_0: array<vec4<u32>, 15>,
    // Written by the host while the kernel runs.
    beat: atomic<u32>,
    ack: atomic<u32>,
    @align(16) padding_1: array<vec4<u32>, 15>,
    // Written by the kernel while it runs.
    progress: atomic<u32>,
    @align(16) padding_2: array<vec4<u32>, 15>,
    // Written by the kernel when it ends.
    first_beat: atomic<u32>,
    last_beat: atomic<u32>,
    answered: atomic<u32>,
    taken: atomic<u32>,
    churned: atomic<u32>,
    done: atomic<u32>,
}

@group(0) @binding(0) var<storage, read_write> words: Words;

// Gets its body from `device::fence`.
fn fence() {}

// Eight invocations, because a software driver fills up its vectors of eight with idle ones
// otherwise, and those do not leave loops.
@compute @workgroup_size(8)
fn probe_live(@builtin(local_invocation_index) lane: u32) {
    let token = words.token;
    var first_beat = 0u;
    var last_beat = 0u;
    var answered = 0u;
    var taken = 0u;
    var churned = token | 1u;
    loop {
        if taken >= words.turns || answered != 0u {
            break;
        }
        taken += 1u;
        if lane == 0u {
            atomicStore(&words.progress, taken);
        }
        churned = churn_64(churned);
        // Otherwise a processor may go on seeing what it has seen.
        fence();
        // Loaded at this one place only: atomics here are relaxed, so a compiler may reuse what an
        // earlier load of the same word gave, and Mesa's does.
        last_beat = atomicLoad(&words.beat);
        if taken == 1u {
            first_beat = last_beat;
        }
        if atomicLoad(&words.ack) == token {
            answered = 1u;
        }
    }
    if lane == 0u {
        atomicStore(&words.first_beat, first_beat);
        atomicStore(&words.last_beat, last_beat);
        atomicStore(&words.answered, answered);
        atomicStore(&words.taken, taken);
        atomicStore(&words.churned, churned);
        atomicStore(&words.done, token);
    }
}
