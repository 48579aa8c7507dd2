        // The answers of the lanes to the calls of a batch, or that of lane 0 to the call that all have served; part of
        // `server_group.wgsl`.
        let worst = atomicLoad(&tombolo_server_worst);
        if lane < calls {
            if most_calls == 0u {
                status = worst;
            }
            let request = own.w;
            let reply = own.z;
            if status == $failed$u {
                atomicStore(&$out$[results + 1u], lease);
            }
            $head$
            tombolo_server_fence();
            tombolo_server_publish(reply, request);
        }
        // The next call is looked for when all have read what became of these.
        workgroupBarrier();
        if lane == 0u {
            tombolo_server_turns = atomicExchange(&tombolo_server_turned, 0u);
            if atomicExchange(&tombolo_server_worst, 0u) == $failed$u {
                tombolo_server_fault = 1u;
                $notes_failed$
            }
            tombolo_server_beats += calls;
            atomicStore(&$out$[$beat$u$group_lane$], tombolo_server_beats);
        }
