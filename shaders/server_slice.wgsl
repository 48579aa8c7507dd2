// The kernel of one slice around a program's handlers, for devices that show nothing to running kernels: a launch brings
// all its calls, each invocation serves one of them, and the answers leave when the launch has ended. Appended behind the
// program; what stands in dollar signs is put in by `kernel::server`.

// Calls | lease | 0 | 0, then for each call { opcode, length, arguments … }.
$binding0$ var<storage, read> tombolo_requests: array<u32>;
// For each call { status, lease, results … }.
$binding1$ var<storage, read_write> tombolo_answers: array<u32>;

// Turns of loops that the call has taken, and how many there may be; loops of handlers count by a pass.
var<private> tombolo_server_turns: u32;
var<private> tombolo_server_limit: u32;

fn tombolo_server_answer(call: u32) {
    let arguments = 4u + call * $given$u;
    let results = call * $taken$u;
    let opcode = tombolo_requests[arguments];
    let length = tombolo_requests[arguments + 1u];
    tombolo_server_limit = $turns$u;
    var status = 4u;
    switch opcode {
$cases$
        default: {}
    }
    if tombolo_server_turns >= tombolo_server_limit {
        status = $too_long$u;
    }
$faults$
    tombolo_answers[results] = status;
    // The last word: without it nothing was answered.
    tombolo_answers[results + 1u] = tombolo_requests[1];
}

@compute @workgroup_size(64)
fn tombolo_server_slice(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < tombolo_requests[0] {
        tombolo_server_answer(id.x);
    }
}
