        // No bell: where mailboxes lie over the bus in lines of their own, a look at all of them costs as much as one at a bell, and a
        // bell would be one line for all callers. The yield word was read with the mailboxes, so that neither is waited for alone.
        leaving = tombolo_server_turns >= most || asked $or_failed$;
        tombolo_server_fence();
