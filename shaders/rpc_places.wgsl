    // Where the ports are, and the turns that this call may take; the beginning of every form of a call.
    let ports = max(atomicLoad(&tombolo_calls[tombolo_header_ports]), 1u);
    let stride = atomicLoad(&tombolo_calls[tombolo_header_stride]);
    let locks = atomicLoad(&tombolo_calls[tombolo_header_locks]);
    let requests = atomicLoad(&tombolo_calls[tombolo_header_requests]);
    let replies = atomicLoad(&tombolo_calls[tombolo_header_replies]);
    let first = atomicLoad(&tombolo_calls[tombolo_header_first]);
    let first_result = atomicLoad(&tombolo_calls[tombolo_header_results]);
    let most = tombolo_call_most();
