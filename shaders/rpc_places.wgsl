    // Where the words of ports lie, derived from the one word of the header that says so, as in `rpc::port::layout`.
    let layout_word = atomicLoad(&tombolo_calls[tombolo_header_layout]);
    let ports = (layout_word & ((1u << tombolo_layout_shift) - 1u)) + 1u;
    // Words of payload in each direction.
    let room = layout_word >> tombolo_layout_shift;
    let table = (ports + tombolo_layout_line - 1u) & ~(tombolo_layout_line - 1u);
    let stride = (tombolo_packet_payload + room + tombolo_layout_line - 1u) & ~(tombolo_layout_line - 1u);
    let locks = tombolo_layout_line;
    let requests = locks + table;
    let first = requests + table;
    let replies = first + ports * stride;
    let first_result = replies + table;
