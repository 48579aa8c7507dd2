        if single {
            // One call was posted since the last look, and the bell tells where. (Counts are compared by themselves: the port
            // below would borrow from their difference.)
            let hint = $hint$;
            port = select(end, hint, hint % $lanes$u == lane);
            end = min(end, hint + 1u);
        }
