        // Ports of kernels of other devices. What they have posted is known by the sum of their mailboxes, each of which one
        // client writes and counts up: so nothing is asked of atomics between devices.
        var remote = $first_remote$;
        loop {
            if remote >= $remote_clients$u $or_over$ {
                break;
            }
            let area = $first$u + remote / $each$u * $area$u;
            let port = remote % $each$u;
            let request = atomicLoad(&tombolo_server[area + $requests$u + port]);
            if tombolo_server_fault == 0u && request != atomicLoad(&tombolo_server[$taken$u + remote]) {
                tombolo_server_fence();
                tombolo_server_answer(
                    area + $arguments$u + port * $stride$u,
                    area + $results$u + port * $stride$u,
                    $taken$u + remote,
                    area + $replies$u + port,
                    request,
                );
            }
            remote += $lanes$u;
            tombolo_server_turns += 1u;
        }
        tombolo_server_turns += 1u;
