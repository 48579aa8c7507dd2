        // Waits for the bell or the end of the lease; part of `server_lane.wgsl` and of `server_group.wgsl`.
        loop {
            tombolo_server_fence();
$look$
            tombolo_server_turns += 1u;
            if bell != seen $or_posts$ $or_failed$ || tombolo_server_turns >= most {
                break;
            }
        }
        tombolo_server_fence();
