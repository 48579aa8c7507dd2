//! Texts of any length, by what there is much of in them.

/// A kernel with `body`, behind the declarations `head`.
pub(super) fn kernel(head: &str, body: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;\n{head}\n\
         @compute @workgroup_size(1) fn main() {{\n{body}\n}}\n"
    )
}

/// `count` pieces in a row.
pub(super) fn row(count: usize, separator: &str, piece: impl Fn(usize) -> String) -> String {
    (0..count).map(piece).collect::<Vec<_>>().join(separator)
}

/// A chain of declarations, each made of the one before.
pub(super) fn chain(count: usize, first: &str, next: impl Fn(usize, usize) -> String) -> String {
    format!("{first}\n{}", row(count - 1, "\n", |i| next(i + 1, i)))
}

/// Texts with a length growing with `n`, by the cause of the length.
pub(in crate::kernel) fn text(what: &str, n: usize) -> String {
    match what {
        "else if" => kernel(
            "",
            &format!(
                "let x = out[1]; if x == 9u {{}} {}",
                row(n, " ", |i| format!(
                    "else if x == {i}u {{ out[0] = {i}u; }}"
                ))
            ),
        ),
        "sum" => kernel(
            "",
            &format!("out[0] = {};", row(n, " + ", |_| "out[1]".into())),
        ),
        "and" => kernel(
            "",
            &format!(
                "if {} {{ out[0] = 1u; }}",
                row(n, " && ", |i| format!("out[{i}] == 0u"))
            ),
        ),
        "minus" => kernel(
            "",
            &format!("var x = 1i; let y = {}x; out[0] = u32(y);", "- ".repeat(n)),
        ),
        "not" => kernel(
            "",
            &format!("var x = true; let y = {}x; out[0] = u32(y);", "!".repeat(n)),
        ),
        "swizzles" => kernel(
            "",
            &format!("let v = vec4f(); let y = v{};", ".xyzw".repeat(n)),
        ),
        "brackets" => kernel(
            "",
            &format!("out[0] = {}1u{};", "(".repeat(n), ")".repeat(n)),
        ),
        "blocks" => kernel(
            "",
            &format!("{}{}", "if out[0] == 1u {".repeat(n), "}".repeat(n)),
        ),
        "templates" => kernel(
            "",
            &format!("var x: {}u32{};", "array<".repeat(n), ", 1>".repeat(n)),
        ),
        "overrides" => kernel(
            &chain(n, "override a0: u32 = 1u;", |i, j| {
                format!("override a{i}: u32 = a{j} + 1u;")
            }),
            &format!("out[0] = a{};", n - 1),
        ),
        "sizes" => kernel(
            &chain(n, "override a0: u32 = 1u;", |i, j| {
                format!("override a{i}: u32 = a{j} + 1u;")
            }),
            &format!("var t: array<u32, a{}>; out[0] = t[0];", n - 1),
        ),
        "constants" => kernel(
            &chain(n, "const a0 = 1u;", |i, j| {
                format!("const a{i} = a{j} + 1u;")
            }),
            &format!("out[0] = a{};", n - 1),
        ),
        "aliases" => kernel(
            &chain(n, "alias a0 = u32;", |i, j| format!("alias a{i} = a{j};")),
            &format!("var x: a{}; out[0] = x;", n - 1),
        ),
        "functions" => kernel(
            &chain(n, "fn f0(x: u32) -> u32 { return x; }", |i, j| {
                format!("fn f{i}(x: u32) -> u32 {{ return f{j}(x); }}")
            }),
            &format!("out[0] = f{}(1u);", n - 1),
        ),
        "structures" => kernel(
            &chain(n, "struct S0 { a: u32 }", |i, j| {
                format!("struct S{i} {{ a: S{j} }}")
            }),
            &format!("var x: S{}; out[0] = 1u;", n - 1),
        ),
        "doubled structures" => kernel(
            &chain(n, "struct S0 { a: u32 }", |i, j| {
                format!("struct S{i} {{ a: S{j}, b: S{j} }}")
            }),
            &format!("var x: S{}; out[0] = 1u;", n - 1),
        ),
        "many overrides" => kernel(
            &row(n, "\n", |i| format!("override a{i}: u32 = {i}u;")),
            &row(n, "\n", |i| format!("out[{i}] = a{i};")),
        ),
        "many sizes" => kernel(
            &row(n, "\n", |i| format!("override a{i}: u32 = 4u;")),
            &row(n, "\n", |i| {
                format!("var t{i}: array<u32, a{i} + 1u>; out[0] += t{i}[0];")
            }),
        ),
        "long sizes" => kernel(
            &row(n, "\n", |i| format!("override a{i}: u32 = 2000u;")),
            &row(n, "\n", |i| {
                format!("var t{i}: array<vec2f, a{i}>; t{i}[0].x = 1.0;")
            }),
        ),
        "alignments" => kernel(
            "override N: u32 = 4;",
            &row(n, "\n", |i| {
                format!("@align(N * 4u) var t{i}: array<u32, N>; t{i}[0] = 1u;")
            }),
        ),
        "hops" => kernel(
            "struct Node { next: usm_ptr }",
            &format!(
                "let p0 = vec2u(out[0], out[1]); {} out[0] = p{n}.x;",
                row(n, "\n", |i| format!(
                    "let p{} = usm_Node(p{i}).next;",
                    i + 1
                ))
            ),
        ),
        "pointees" => kernel(
            &row(n, "\n", |i| format!("struct S{i} {{ a: u32 }}")),
            &format!(
                "let p = vec2u(out[0], out[1]); {}",
                row(n, "\n", |i| format!("let s{i} = usm_S{i}(p); s{i}.a = 1u;"))
            ),
        ),
        "attributes" => kernel(&format!("{} const x = 1u;", "@foo ".repeat(n)), ""),
        "local attributes" => kernel("", &format!("{} var x = 1u;", "@align(4) ".repeat(n))),
        "statements" => kernel(
            "",
            &row(n, "\n", |i| format!("out[{i}] = out[{}] + 1u;", i + 1)),
        ),
        "lets" => kernel(
            "",
            &format!(
                "let a0 = out[0]; {} out[0] = a{n};",
                row(n, "\n", |i| format!("let a{} = a{i} + 1u;", i + 1))
            ),
        ),
        "local constants" => kernel(
            "override N: u32 = 3;",
            &format!(
                "const a0 = N; {} var x: array<u32, a{n}>;",
                row(n, "\n", |i| format!("const a{} = a{i} + a{i};", i + 1))
            ),
        ),
        "variables" => kernel(
            "",
            &row(n, "\n", |i| {
                format!("var a{i} = out[{i}]; out[{i}] = a{i};")
            }),
        ),
        "parameters" => kernel(
            &format!("fn f({}) {{}}", row(n, ", ", |i| format!("p{i}: u32"))),
            "",
        ),
        "members" => kernel(
            &format!("struct S {{ {} }}", row(n, ", ", |i| format!("m{i}: u32"))),
            "",
        ),
        "loops" => kernel(
            "",
            &row(n, "\n", |_| {
                "for (var i = 0u; i < out[0]; i++) { out[1] += i; }".into()
            }),
        ),
        "cases" => kernel(
            "",
            &format!(
                "switch out[0] {{ {} default: {{}} }}",
                row(n, "\n", |i| format!("case {i}: {{ out[1] = {i}u; }}"))
            ),
        ),
        "calls" => kernel(
            &row(n, "\n", |i| format!("fn f{i}() {{ out[{i}] = 1u; }}")),
            &row(n, "\n", |i| format!("f{i}();")),
        ),
        "prints" => kernel("", &row(n, "\n", |i| format!("print(\"a {{}}\", {i}u);"))),
        "asserts" => kernel(
            "",
            &row(n, "\n", |i| {
                format!("assert(out[0] == {i}u, \"a {{}}\", {i}u);")
            }),
        ),
        "globals" => kernel(
            &row(n, "\n", |i| format!("var<storage, read_write> g{i}: u32;")),
            &row(n, "\n", |i| format!("g{i} = 1u;")),
        ),
        "assertions" => kernel(&row(n, "\n", |i| format!("const_assert {i} >= 0;")), ""),
        "open brackets" => "(".repeat(n),
        "wrong brackets" => "{)".repeat(n),
        "comparisons" => kernel("", &"a<".repeat(n)),
        "unended lets" => kernel("", &"let x ".repeat(n)),
        "unended types" => format!("fn f({})", "a: ".repeat(n)),
        "functions without bodies" => "fn f ".repeat(n),
        "comments" => "/*".repeat(n),
        "strings" => "\"a".repeat(n),
        "groups" => row(n, "\n", |i| {
            format!("@group({i}) @binding(0) var<storage> a{i}: u32;")
        }),
        "one line" => kernel("", &row(n, " ", |i| format!("print(\"ä {{}}\", {i}u);"))),
        _ => unreachable!("{what}"),
    }
}

/// Texts to be read in nearly linear time, with the least measured `n`.
pub(in crate::kernel) const GROWING: &[(&str, usize)] = &[
    ("else if", 200),
    ("sum", 500),
    ("and", 500),
    ("minus", 500),
    ("not", 500),
    ("swizzles", 500),
    ("overrides", 200),
    ("sizes", 200),
    ("constants", 200),
    ("aliases", 200),
    ("functions", 200),
    ("structures", 200),
    ("many overrides", 200),
    ("many sizes", 200),
    ("long sizes", 200),
    ("alignments", 200),
    ("hops", 200),
    ("pointees", 100),
    ("attributes", 1000),
    ("local attributes", 1000),
    ("statements", 200),
    ("lets", 200),
    ("variables", 200),
    ("parameters", 200),
    ("members", 500),
    ("loops", 100),
    ("cases", 200),
    ("calls", 200),
    ("prints", 100),
    ("asserts", 100),
    ("globals", 100),
    ("assertions", 500),
    ("open brackets", 1000),
    ("wrong brackets", 1000),
    ("comparisons", 1000),
    ("unended lets", 1000),
    ("unended types", 1000),
    ("functions without bodies", 1000),
    ("comments", 1000),
    ("strings", 1000),
    ("groups", 200),
    ("one line", 100),
];
