//! How many arguments a call may have, in either direction: the lists of types for which the traits of arguments are
//! implemented. Handlers, streams and functions of servers share the lists, so their limits never part.

/// Hands the lists of type parameters to a macro, each parameter with its index in a tuple: from no argument to twelve,
/// which is also how far the standard library goes with traits of tuples.
macro_rules! for_argument_lists {
    ($implement:ident) => {
        $implement! {
            ()
            (A 0)
            (A 0, B 1)
            (A 0, B 1, C 2)
            (A 0, B 1, C 2, D 3)
            (A 0, B 1, C 2, D 3, E 4)
            (A 0, B 1, C 2, D 3, E 4, F 5)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11)
        }
    };
}

pub(crate) use for_argument_lists;
