// What all streams have in common: an open port, and packets that go through it one after the other. Appended behind
// programs that open one.
struct tombolo_call_stream {
    status: u32,
    port: u32,
    request: u32,
    opcode: u32,
    // First words of what this side and of what the host writes, and the words of one packet.
    arguments: u32,
    results: u32,
    room: u32,
    // Words put and not sent, and what they come to (`tombolo_call_store`).
    put: u32,
    sum: u32,
    // Words of the last packet from the host, and how many of them were taken.
    given: u32,
    got: u32,
}

// Sends a packet and waits until the host has taken it. A stream whose host does not answer has ended; its port is
// left to the host.
fn tombolo_call_packet(s: ptr<function, tombolo_call_stream>, kind: u32, words: u32) {
    tombolo_call_waits = 1u;
    var reply: tombolo_call_outcome;
    reply.status = tombolo_status_timed_out;
    let backoff_after = atomicLoad(&tombolo_calls[tombolo_header_backoff_after]);
$places$
    let most = tombolo_call_most();
    // Packets are not withdrawn: the stream has ended when one is lost.
    let scarce = most;
    var asked = true;
    let port = (*s).port;
    let arguments = (*s).arguments;
    let request = (*s).request + 1u;
    (*s).request = request;
    let head = tombolo_call_store(arguments, (*s).opcode ^ kind) + tombolo_call_store(arguments + 1u, words);
    tombolo_call_seal(arguments, (*s).sum + head, requests + port, request);
    (*s).sum = 0u;
    tombolo_call_fence();
    tombolo_call_note(requests + port, request);
    tombolo_call_publish(requests + port, request);
    let held = true;
    var done = false;
    var step = tombolo_call_first_step();
    var look = 0u;
$wait$
    // And the last turns of the two loops, which only end them.
    tombolo_call_looks += tombolo_call_turn(look, 2u);
    if done {
        tombolo_call_fence();
        reply.status = atomicLoad(&tombolo_calls[(*s).results]);
    }
    (*s).status = reply.status;
    if reply.status != tombolo_status_done {
        tombolo_call_release(s);
    }
}

struct tombolo_call_outcome { status: u32 }

fn tombolo_call_release(s: ptr<function, tombolo_call_stream>) {
    tombolo_call_fence();
    atomicStore(&tombolo_calls[tombolo_layout_line + (*s).port], 0u);
}

fn tombolo_call_is_open(s: ptr<function, tombolo_call_stream>) -> bool {
    return (*s).status == tombolo_status_done || (*s).status == tombolo_status_end;
}

// Sends the words that were put and not sent, and with them what the packet is for.
fn tombolo_call_send(s: ptr<function, tombolo_call_stream>, kind: u32) {
    let words = (*s).put;
    (*s).put = 0u;
    tombolo_call_packet(s, kind, words);
}

fn tombolo_call_put(s: ptr<function, tombolo_call_stream>, word: u32) {
    if !tombolo_call_is_open(s) {
        return;
    }
    (*s).status = tombolo_status_done;
    (*s).sum += tombolo_call_store((*s).arguments + tombolo_packet_payload + (*s).put, word);
    (*s).put += 1u;
    if (*s).put >= (*s).room {
        tombolo_call_send(s, 1u);
    }
}

fn tombolo_call_get(s: ptr<function, tombolo_call_stream>) -> u32 {
    if (*s).got >= (*s).given {
        if !tombolo_call_is_open(s) {
            return 0u;
        }
        tombolo_call_send(s, 2u);
        if (*s).status != tombolo_status_done {
            return 0u;
        }
        (*s).got = 0u;
        (*s).given = min(atomicLoad(&tombolo_calls[(*s).results + 1u]), (*s).room);
        if (*s).given == 0u {
            (*s).status = tombolo_status_end;
            return 0u;
        }
    }
    (*s).got += 1u;
    return atomicLoad(&tombolo_calls[(*s).results + tombolo_packet_payload - 1u + (*s).got]);
}

// Whether the host has said what the stream came to; the port is still held then.
fn tombolo_call_end(s: ptr<function, tombolo_call_stream>) -> bool {
    if tombolo_call_is_open(s) {
        tombolo_call_send(s, 3u);
        return (*s).status == tombolo_status_done;
    }
    return false;
}
