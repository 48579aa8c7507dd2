        // The answer of lane 0 to the call that all lanes have served; part of `server_group.wgsl`.
        if lane == 0u {
            tombolo_server_turns = atomicExchange(&tombolo_server_turned, 0u);
            status = atomicExchange(&tombolo_server_worst, 0u);
            if status == $failed$u {
                tombolo_server_fault = 1u;
                $notes_failed$
                atomicStore(&$out$[results + 1u], lease);
            }
            $head$
            tombolo_server_fence();
            tombolo_server_publish(tombolo_server_reply, call[2]);
            tombolo_server_beats += 1u;
            atomicStore(&$out$[$beat$u$group_lane$], tombolo_server_beats);
        }
