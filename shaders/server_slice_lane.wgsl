// Calls between launches whose handlers take one lane each. Behind `server_slice.wgsl` or `server_ports.wgsl`.

fn tombolo_server_answer(index: u32) {
    $look$
    let arguments = $arguments_at$;
    let results = $results_at$;
    let opcode = $opcode$;
    let length = $length$;
    tombolo_server_limit = $turns$u;
    var status = $unknown$u;
    switch opcode {
$cases$
        default: {}
    }
    if tombolo_server_turns >= tombolo_server_limit {
        status = $too_long$u;
    }
$faults$
$answer$
}

@compute @workgroup_size(64)
fn tombolo_server_slice(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < $calls$ {
        tombolo_server_answer(id.x);
    }
}
