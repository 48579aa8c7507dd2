//! Tests of finding structures in programs.

use proptest::prelude::*;

use crate::kernel::{Constants, KernelError, LayoutMismatch, Program, RustLayout};
use crate::layout_of;
use crate::memory::Ptr;

#[allow(dead_code)]
#[repr(C)]
struct Node {
    value: f32,
    tag: u32,
    next: Ptr<Node>,
}

const NODE: RustLayout = layout_of!(Node { value, tag, next });

fn program(source: &str) -> Program {
    Program::new("layouts.wgsl", source).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn layouts_agree_in_programs_of_every_kind() {
    let node = "struct Node { value: f32, tag: u32, next: usm_ptr }\n";
    let plain = "struct Node { value: f32, tag: u32, next: vec2<u32> }\n";
    for source in [
        // Parsed once, used and unused.
        format!(
            "{plain} @group(0) @binding(0) var<storage, read_write> nodes: array<Node>;
             @compute @workgroup_size(1) fn main() {{ nodes[0].tag += 1u; }}"
        ),
        plain.to_owned(),
        // Only behind pointers.
        format!(
            "{node} @group(0) @binding(0) var<storage, read_write> first: usm_ptr;
             @compute @workgroup_size(1) fn main() {{ let node = usm_Node(first); node.tag += 1u; }}"
        ),
        // The pointer is named, but never followed.
        node.to_owned(),
        format!("alias usm_ptr = vec2u; {node}"),
        // Private arrays, with a size without a default and with a senseless size.
        format!("override N: u32; {plain} fn f() {{ var t: array<Node, N>; t[0].tag = 1u; }}"),
        format!("override N: i32 = -1; {plain} fn f() {{ var t: array<f32, N>; t[0] = 1; }}"),
        "alias Node = Real; struct Real { value: f32, tag: u32, next: vec2<u32> }".to_owned(),
        "struct Node { value: f32, tag: atomic<u32>, @align(8) @size(8) next: vec2<u32> }"
            .to_owned(),
    ] {
        let program = program(&source);
        let checked = program.check_layout("Node", &NODE);
        assert!(checked.is_ok(), "{source}: {}", checked.unwrap_err());
        let layout = program.struct_layout("Node").unwrap();
        assert_eq!((layout.size, layout.align), (16, 8), "{source}");
    }
}

#[test]
fn constants_decide_lengths() {
    #[allow(dead_code)]
    #[repr(C)]
    struct Window {
        tag: u32,
        items: [f32; 8],
    }
    let layout = layout_of!(Window { tag, items });
    for source in [
        "override N: u32; override M: u32; struct Window { tag: u32, items: array<f32, N> }
         fn f() { var w: Window; var v: array<f32, M>; w.items[0] = v[0]; }",
        "@id(7) override N: u32; override L = 2 * N; const K = L / 2;
         struct Window { tag: u32, items: array<f32, K> } fn f() { var w: Window; w.tag = 1; }",
    ] {
        let program = program(source);
        assert_eq!(program.struct_layout("Window"), None);
        match program.check_layout("Window", &layout) {
            Err(LayoutMismatch::Unknown { source, .. }) => match *source {
                KernelError::MissingConstant { missing, .. } => {
                    let names: Vec<_> = missing.iter().map(|c| c.name.as_str()).collect();
                    assert_eq!(names, ["N"]);
                }
                other => panic!("{other}"),
            },
            other => panic!("{other:?}"),
        }
        let set = |n: u32| Constants::new().set("N", n);
        assert!(
            program
                .check_layout_with("Window", &layout, &set(8))
                .is_ok()
        );
        let error = program
            .check_layout_with("Window", &layout, &set(9))
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("`items` has 32 bytes in Rust and 36 in WGSL")
        );
        let unknown = Constants::new().set("Q", 1u32);
        assert!(matches!(
            program.check_layout_with("Window", &layout, &unknown),
            Err(LayoutMismatch::Unknown { source, .. }) if matches!(*source, KernelError::UnknownConstant { .. })
        ));
    }
    let source = "override N: i32 = -4; struct Window { tag: u32, items: array<f32, N> } fn f() { var w: Window; w.tag = 1; }";
    let error = program(source).check_layout("Window", &layout).unwrap_err();
    assert!(matches!(error, LayoutMismatch::Unknown { .. }));
}

#[test]
fn what_is_no_structure_is_refused() {
    let source = "alias Floats = array<f32>; struct Node { tag: u32 } const c = 1;";
    let error = program(source).check_layout("Nude", &NODE).unwrap_err();
    assert!(
        matches!(&error, LayoutMismatch::UnknownType { wanted, .. } if wanted == "Nude"),
        "{error}"
    );
    assert_eq!(
        error.to_string(),
        "`layouts.wgsl` declares no type `Nude`; it declares `Floats`, `Node`"
    );
    let error = program(source).check_layout("Floats", &NODE).unwrap_err();
    assert!(
        matches!(error, LayoutMismatch::NotAStruct { .. }),
        "{error}"
    );
    assert_eq!(program(source).struct_layout("Floats"), None);
    assert_eq!(program(source).struct_layout("c"), None);
}

#[test]
fn extensions_are_known() {
    #[allow(dead_code)]
    #[repr(C)]
    struct Halves {
        a: half::f16,
        b: half::f16,
        c: f32,
    }
    let layout = layout_of!(Halves { a, b, c });
    let source = "enable f16; const A = 4; struct Halves { a: f16, b: f16, @align(A) c: f32 }";
    assert!(program(source).check_layout("Halves", &layout).is_ok());
}

const WORDS: &str = "override N|: u32|: i32|= 4|= 0|;|struct S|struct T|\\{|\\}|a: |b: |,|f32|vec3<f32>|usm_ptr|array<T, N>|array<f32, N \\+ 1>|array<u32>|\
    T|S|alias A = |@align\\(16\\)|@size\\(N\\)|atomic<u32>|fn f\\(\\) \\{ var s: S; let p = usm_S\\(q\\); \\}|const N = 3;|enable f16;";

proptest! {
    #[test]
    fn no_text_upsets_the_search(words in prop::collection::vec(WORDS, 0..30), n: u32) {
        if let Ok(program) = Program::new("p", words.join(" ")) {
            for name in ["S", "T", "A", "N"] {
                let set = Constants::new().set("N", n % 70);
                let _ = program.struct_layout(name);
                let found = program.check_layout_with(name, &NODE, &set);
                prop_assert!(found.is_err());
                let _ = found.unwrap_err().to_string();
            }
        }
    }
}
