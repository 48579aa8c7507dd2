        // Ports of kernels of other devices, behind those of the host; see `server_kernels.wgsl`.
        loop {
            if found || tombolo_server_remote >= $remote_clients$u || tombolo_server_fault != 0u $or_over$ {
                break;
            }
            let remote = tombolo_server_remote;
            let area = $first$u + remote / $each$u * $area$u;
            let port = remote % $each$u;
            let request = atomicLoad(&tombolo_server[area + $requests$u + port]);
            if request != atomicLoad(&tombolo_server[$taken$u + remote]) {
                tombolo_server_fence();
                found = tombolo_server_take(
                    area + $arguments$u + port * $stride$u,
                    area + $results$u + port * $stride$u,
                    $taken$u + remote,
                    area + $replies$u + port,
                    request,
                );
            }
            tombolo_server_remote += 1u;
            tombolo_server_turns += 1u;
        }
        tombolo_server_turns += 1u;
