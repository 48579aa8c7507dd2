use super::*;
use crate::kernel::evaluate::validator;

const BOTH: Capabilities =
    Capabilities::SHADER_INT64.union(Capabilities::SHADER_INT64_ATOMIC_MIN_MAX);

fn lack(variables: &str, body: &str, capabilities: Capabilities) -> Option<String> {
    let source = format!(
        "{variables} fn other() {{ {body} }} @compute @workgroup_size(1) fn main() {{ other(); }}"
    );
    let module = naga::front::wgsl::parse_str(&source).unwrap();
    let found = check(&module, "main", capabilities).err();
    if found.is_none() {
        // What is let through is naga's to accept.
        validator(capabilities).validate(&module).unwrap();
    }
    found.map(|lack| lack.operation)
}

#[test]
fn every_operation_is_named() {
    let storage = "@group(0) @binding(0) var<storage, read_write> a: atomic<i64>;";
    let group = "var<workgroup> a: atomic<i64>;";
    let all = BOTH | Capabilities::SHADER_INT64_ATOMIC_ALL_OPS;
    for (text, name) in [
        ("let x = atomicLoad(&a);", "atomicLoad"),
        ("atomicStore(&a, 1li);", "atomicStore"),
        ("atomicAdd(&a, 1li);", "atomicAdd"),
        ("atomicSub(&a, 1li);", "atomicSub"),
        ("let x = atomicMin(&a, 1li);", "atomicMin"),
        ("let x = atomicMax(&a, 1li);", "atomicMax"),
        ("atomicAnd(&a, 1li);", "atomicAnd"),
        ("atomicOr(&a, 1li);", "atomicOr"),
        ("atomicXor(&a, 1li);", "atomicXor"),
        ("atomicExchange(&a, 1li);", "atomicExchange"),
        (
            "let x = atomicCompareExchangeWeak(&a, 1li, 2li);",
            "atomicCompareExchangeWeak",
        ),
    ] {
        for variables in [storage, group] {
            for capabilities in [BOTH, Capabilities::SHADER_INT64] {
                let found = lack(variables, text, capabilities);
                assert_eq!(found.as_deref(), Some(name), "{variables} {text}");
            }
            assert_eq!(lack(variables, text, all), None, "{variables} {text}");
        }
    }
    // The first in the text counts.
    let two = "if true { atomicOr(&a, 1li); } let x = atomicLoad(&a);";
    assert_eq!(lack(storage, two, BOTH).as_deref(), Some("atomicOr"));
}

#[test]
fn minima_without_a_result_have_a_feature_of_their_own() {
    let storage = "@group(0) @binding(0) var<storage, read_write> a: atomic<u64>;";
    let group = "var<workgroup> a: atomic<u64>;";
    let text = "atomicMin(&a, 1lu); atomicMax(&a, 1lu);";
    assert_eq!(lack(storage, text, BOTH), None);
    assert_eq!(lack(group, text, BOTH).as_deref(), Some("atomicMin"));
    let int64 = Capabilities::SHADER_INT64;
    assert_eq!(lack(storage, text, int64).as_deref(), Some("atomicMin"));
    // The type alone is refused as well, and words of 32 bits are not.
    assert_eq!(lack(storage, "", int64).as_deref(), Some("atomic<u64>"));
    let word = "@group(0) @binding(0) var<storage, read_write> a: atomic<u32>;";
    assert_eq!(lack(word, "atomicMin(&a, 1u);", int64), None);
}
