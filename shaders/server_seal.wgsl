// How answers are written where what the kernel writes lies in a memory of its own: its words may arrive there in any
// order, so that each answer is sealed, and its caller takes it when the seal is right (`rpc::port::seal`). Behind
// `server.wgsl`.

// What the results come to that were written for the call being served.
var<private> tombolo_server_sum: u32;

fn tombolo_server_mixed(at: u32, word: u32) -> u32 {
    $mixed_word$
    return $of_word$;
}

fn tombolo_server_store(at: u32, word: u32) {
    atomicStore(&tombolo_answers[at], word);
    tombolo_server_sum += tombolo_server_mixed(at, word);
}

// Writes the two words in front of the results, and the seal. There are results with the status of success alone.
fn tombolo_server_seal(results: u32, status: u32, reply: u32, request: u32) {
    var lease = 0u;
    if status == $failed$u {
        lease = atomicLoad(&tombolo_server[$lease$u]);
    }
    let sum = select(0u, tombolo_server_sum, status == $done_status$u);
    tombolo_server_sum = 0u;
    atomicStore(&tombolo_answers[results], status);
    atomicStore(&tombolo_answers[results + 1u], lease);
    let head = tombolo_server_mixed(results, status) + tombolo_server_mixed(results + 1u, lease);
    atomicStore(&tombolo_answers[results + $seal$u], sum + head + tombolo_server_mixed(reply, request));
}
