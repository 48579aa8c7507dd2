//! The ways in which a kernel touches memory behind a pointer: what `faults` tries each wrong pointer with.

/// A way to follow `at`: functions beside the entry point, its body, and the alignment that it needs.
pub const FORMS: &[(&str, &str, u64)] = &[
    ("", "sink[1] = usm_Node(at).tag; // here", 8),
    ("", "sink[1] = *usm_Word(at); // here", 4),
    ("", "let n = usm_Node(at); // here\n n.tag = 7u;", 8),
    ("", "let n = usm_Node(at); // here\n n.tag += 7u;", 8),
    ("", "let whole = *usm_Node(at); // here\n sink[1] = whole.value; sink[2] = whole.next.x;", 8),
    ("", "let n = usm_Node(at); // here\n *n = Node(1u, 2u, vec2(3u, 4u));", 8),
    ("", "let c = usm_Cell(at); // here\n *c = vec2(1u, 2u);", 8),
    ("", "let q = usm_Quad(at); // here\n *q = vec4(9u);", 16),
    ("", "let q = usm_Quad(at); // here\n q.z = 9u;", 16),
    ("", "let m = usm_Matrix(at); // here\n m[1].x = 1.0;", 8),
    ("", "let m = usm_Matrix(at); // here\n m[index & 1u][index & 1u] = 1.0;", 8),
    ("", "let w = &usm_Words(at)[0]; // here\n *w = 5u;", 4),
    // Atomics.
    ("", "sink[1] = atomicAdd(usm_Counter(at), 1u); // here", 4),
    ("", "sink[1] = atomicLoad(usm_Counter(at)); // here", 4),
    ("", "atomicStore(usm_Counter(at), 9u); // here", 4),
    ("", "sink[1] = atomicExchange(usm_Counter(at), 9u); // here", 4),
    ("", "sink[1] = atomicMax(usm_Counter(at), 9u); // here", 4),
    ("", "sink[1] = atomicCompareExchangeWeak(usm_Counter(at), 0u, 9u).old_value; // here", 4),
    ("", "let s = usm_Shared(at); // here\n atomicOr(&s.count, 6u);", 4),
    // In a function, that of a function, and through a pointer that it is given or gives.
    ("fn tag_of(p: usm_ptr) -> u32 {\n let n = usm_Node(p); // here\n return n.tag;\n}", "sink[1] = tag_of(at);", 8),
    (
        "fn inner(p: usm_ptr) {\n if p.x != 77u {\n  let n = usm_Node(p); // here\n  n.tag = 1u;\n }\n}
         fn outer(p: usm_ptr) { inner(p); }",
        "outer(at);",
        8,
    ),
    // What crosses the boundary of a function is tested where it arrives, as a parameter or as a result.
    (
        "fn bump(n: ptr<storage, Node, read_write>) { // here\n (*n).tag += 1u;\n}",
        "bump(usm_Node(at));",
        8,
    ),
    (
        "fn node(p: usm_ptr) -> ptr<storage, Node, read_write> { return usm_Node(p); }",
        "let n = node(at); // here\n n.tag = 3u;",
        8,
    ),
    // In loops: the third turn is wrong, and those before it had nothing to follow.
    (
        "",
        "var sum = 0u;
        for (var i = 0u; i < 6u; i++) {
            if i < 2u { continue; }
            sum += usm_Node(at).tag; // here
        }
        sink[1] = sum;",
        8,
    ),
    (
        "",
        "var i = 0u;
        loop {
            if i == 3u {
                let n = usm_Node(at); // here
                n.tag = i;
                break;
            }
            continuing { i++; }
        }",
        8,
    ),
    (
        "",
        "var i = 0u;
        while i < 4u && sink[0] != 1u {
            switch i { case 2u: { atomicAdd(usm_Counter(at), 1u); } // here
                default: {} }
            i++;
        }",
        4,
    ),
];
