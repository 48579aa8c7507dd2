        var bell = seen;
$wait$
        leaving = tombolo_server_turns >= most || atomicLoad(&tombolo_server[$yield$u]) != granted $or_failed$;
        single = $single$ && !leaving && (((bell >> 16u) - (seen >> 16u)) & 0xffffu) == 1u;
$known_posts$
        seen = bell;
