//! Every type that functions take and give, for the tests of both directions: calls to the host, and handlers.

/// Declarations of a program, and types to hand over with them.
pub(crate) struct Handed {
    pub declarations: String,
    /// How a signature writes each type, and its bytes.
    pub types: Vec<(String, usize)>,
}

/// Scalars, vectors and matrices by name, with size and alignment as WGSL's section "Alignment and Size" lists them; the
/// rules for 64 bits are naga's, in the same manner.
fn plain() -> Vec<(String, usize, usize)> {
    let mut plain = Vec::new();
    let scalars = [
        ("u32", 4),
        ("i32", 4),
        ("f32", 4),
        ("u64", 8),
        ("i64", 8),
        ("f64", 8),
        ("f16", 2),
    ];
    for (scalar, bytes) in scalars {
        plain.push((scalar.to_owned(), bytes, bytes));
        for (lanes, align) in [(2, 2), (3, 4), (4, 4)] {
            plain.push((
                format!("vec{lanes}<{scalar}>"),
                bytes * lanes,
                bytes * align,
            ));
        }
        for columns in (2..=4).filter(|_| scalar.starts_with('f')) {
            for (rows, stride) in [(2, 2), (3, 4), (4, 4)] {
                plain.push((
                    format!("mat{columns}x{rows}<{scalar}>"),
                    columns * stride * bytes,
                    stride * bytes,
                ));
            }
        }
    }
    // Both in a program with the declaration and in a program without.
    plain.push(("usm_ptr".to_owned(), 8, 8));
    plain.push(("usm_ptr".to_owned(), 8, 8));
    plain
}

/// For each of them a program's worth: by name, by alias, in a structure; some also deeper.
pub(crate) fn handed() -> Vec<Handed> {
    let all = plain().into_iter().enumerate();
    all.map(|(number, (ty, size, align))| {
        let stride = size.next_multiple_of(align);
        let enable = if ty.contains("f16") {
            "enable f16;\n"
        } else {
            ""
        };
        let mut one = Handed {
            declarations: format!(
                "{enable}alias A = {ty}; alias B = A;
                struct S {{ x: A, y: array<B, 2> }}
                alias C = S; alias D = array<C, 2>;
                struct T {{ s: C, d: D }}\n"
            ),
            types: vec![
                (ty.clone(), size),
                ("A".to_owned(), size),
                ("S".to_owned(), 3 * stride),
            ],
        };
        if matches!(
            ty.as_str(),
            "u32" | "vec3<f32>" | "mat3x3<f32>" | "vec2<i32>" | "usm_ptr"
        ) {
            let deeper = [
                ("B", size),
                ("array<A, 3>", 3 * stride),
                ("C", 3 * stride),
                ("D", 6 * stride),
                ("T", 9 * stride),
            ];
            one.types
                .extend(deeper.map(|(ty, bytes)| (ty.to_owned(), bytes)));
        }
        // Runtime names mean the same where a program declares them.
        if number % 2 == 1 {
            one.declarations.push_str("alias usm_ptr = vec2<u32>;\n");
        }
        one
    })
    .collect()
}
