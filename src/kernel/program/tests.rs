//! Tests of programs: declarations, and robustness against any text.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::heap_setup::HeapSetup;
use super::super::specialize::specialize;
use super::*;

#[test]
fn constants_are_listed_with_their_defaults() {
    let source = "@id(1) override A: i32 = -3;\noverride B = A * 2; override C: bool;\noverride D = !C; override E: u32 = 1u;
        fn f() { var t: array<f32, E>; } @compute @workgroup_size(1) fn main() { f(); }";
    let program = Program::new("p", source).expect("valid");
    let shown = program
        .constants()
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>();
    assert_eq!(
        shown,
        [
            "@id(1) A: i32 = -3",
            "B: i32 = -6",
            "C: bool (no default)",
            "D: bool (derived)",
            "E: u32 = 1"
        ]
    );
    assert_eq!(
        program
            .constants()
            .iter()
            .map(|c| c.line)
            .collect::<Vec<_>>(),
        [1, 2, 2, 3, 3]
    );
    assert_eq!(
        program
            .constants()
            .iter()
            .map(|c| c.sizes_private_array)
            .collect::<Vec<_>>(),
        [false, false, false, false, true]
    );
}

#[test]
fn ids_differ_and_hashes_follow_the_text() {
    let new = |source: &str| Program::new("p", source).expect("valid");
    let (a, b, c) = (
        new("const a = 1;"),
        new("const a = 1;"),
        new("const a = 2;"),
    );
    assert_ne!(a.id(), b.id());
    assert_eq!(a.id(), a.clone().id());
    assert_eq!(a.source_hash(), b.source_hash());
    assert_ne!(a.source_hash(), c.source_hash());
    // FNV-1a of the empty text and of "a", from its published test vectors.
    assert_eq!(
        (fnv1a(b""), fnv1a(b"a")),
        (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c)
    );
}

#[test]
fn nothing_is_changed_where_no_convention_is_used() {
    let source: Arc<str> =
        "override N: u32 = 4; /* array<f32, N> */ var<workgroup> w: array<f32, N>;\r\n
        @compute @workgroup_size(N) fn main() { w[0] = 1.0; }"
            .into();
    let program = Program::new("p", Arc::clone(&source)).expect("valid");
    assert!(program.inner.module.is_some());
    let made = specialize(
        &program,
        "main",
        &Constants::new(),
        None,
        Capabilities::all(),
        0,
        &HeapSetup::default(),
    )
    .expect("valid");
    assert!(Arc::ptr_eq(made.text.text(), &source));
}

#[test]
fn a_byte_order_mark_in_front_is_no_part_of_the_text() {
    let text = "fn f() {}\n";
    let program = Program::new("p", format!("\u{feff}{text}")).unwrap();
    assert_eq!(program.source(), text);
    // Anywhere else it is a fault.
    assert!(Program::new("p", format!("{text}\u{feff}")).is_err());
}

const WORDS: &str = "override N|override M|: u32|: bool|= 4|= N|;|;|fn main|fn f|\\(\\)|\\{|\\}|@compute @workgroup_size\\(1\\)|\
    @align\\(16\\)|@id\\(1\\)|var a|var<private> b|: array<f32, N>|: array<u32, M \\+ 1>|const K|alias A|struct S|let x|é|//|/\\*|\n";

proptest! {
    #[test]
    fn no_text_upsets_a_program(words in prop::collection::vec(WORDS, 0..30), n: u32) {
        if let Ok(program) = Program::new("p", words.join(" ")) {
            for entry in program.entry_points() {
                for set in [Constants::new(), Constants::new().set("N", n % 70)] {
                    let _ = specialize(&program, entry, &set, None, Capabilities::all(), 1 << 20, &HeapSetup::default());
                }
            }
        }
    }
}
