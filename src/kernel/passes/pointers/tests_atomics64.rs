use super::super::tests_support::occurrences;
use super::tests::{at, every_option, lower, lowered, unified};
use super::tests_system::system;
use super::*;

fn kernel(declarations: &str, body: &str) -> String {
    format!(
        "{declarations}
        @group(0) @binding(0) var<uniform> p: usm_ptr;
        @group(0) @binding(1) var<storage, read_write> o: array<u64>;
        @compute @workgroup_size(1) fn main() {{ {body} }}"
    )
}

/// `options` with second bindings for as many segments as there are.
fn with_second(options: PointerOptions) -> PointerOptions {
    let segments = match &options.memory {
        HeapMemory::Unified { segments } => segments.len(),
        HeapMemory::Split { shared, device, .. } => shared.len() + device.len(),
        HeapMemory::System { .. } => 0,
    };
    PointerOptions {
        wide: (20..20 + segments as u32).map(at).collect(),
        ..options
    }
}

const ALL: &str = "
    atomicStore(&c.b, 5lu);
    o[0] = atomicLoad(&c.b) + atomicAdd(&c.b, 1lu) + atomicSub(&c.b, 1lu) + atomicMin(&c.b, 9lu) + atomicMax(&c.b, 9lu)
        + atomicAnd(&c.b, 7lu) + atomicOr(&c.b, 7lu) + atomicXor(&c.b, 7lu) + atomicExchange(&c.b, 7lu);
    let x = atomicCompareExchangeWeak(&c.b, 7lu, 8lu);
    o[1] = select(0lu, x.old_value, x.exchanged);
    atomicAdd(&c.b, 1lu);";

#[test]
fn every_operation_is_lowered_for_every_heap() {
    // Elements of one, two and four words beside, and atomic ones.
    for (before, access) in [
        ("u32", "o[2] = u64(c.a);"),
        ("vec2<u32>", "o[2] = u64(c.a.x + c.a.y);"),
        ("vec4<u32>", "let v = c.a; o[2] = u64(v.x + v.w);"),
        ("atomic<u32>", "o[2] = u64(atomicAdd(&c.a, 1u));"),
    ] {
        let cell = format!("struct Cell {{ a: {before}, b: atomic<u64> }}");
        let source = kernel(&cell, &format!("let c = usm_Cell(p); {access} {ALL}"));
        for options in every_option() {
            let (text, facts) = lowered(&source, &with_second(options));
            assert!(facts.wide && facts.writes, "{text}");
            assert!(text.contains("array<atomic<u64>>"), "{text}");
        }
    }
}

#[test]
fn kernels_without_have_no_second_binding() {
    let cell = "struct Cell { a: atomic<u32>, b: u64 }";
    let body = "let c = usm_Cell(p); c.b = u64(atomicAdd(&c.a, 1u));";
    for options in every_option() {
        let (text, facts) = lowered(&kernel(cell, body), &with_second(options));
        assert!(!facts.wide, "{text}");
        assert_eq!(occurrences(&text, "atomic<u64>"), 0, "{text}");
    }
}

#[test]
fn a_load_alone_is_one_access_and_nothing_is_kept() {
    let cell = "struct Cell { a: u32, b: atomic<u64> }";
    let body =
        "let c = usm_Cell(p); o[0] = u64(c.a); while atomicLoad(&c.b) == 0lu {} o[1] = u64(c.a);";
    let (text, facts) = lowered(&kernel(cell, body), &with_second(unified()));
    assert!(facts.wide && !facts.writes, "{text}");
    assert_eq!(occurrences(&text, "atomicLoad("), 1, "{text}");
}

#[test]
fn what_cannot_be_is_refused() {
    use PointerErrorKind as E;
    let both = "struct Cell { a: atomic<u64>, b: atomic<i64>, c: atomic<i32> }";
    let error = |body: &str, options| lower(&kernel(both, body), &options).unwrap_err().kind;
    let minima = "let c = usm_Cell(p); atomicMin(&c.a, 1lu); atomicMax(&c.b, 1li);";
    assert_eq!(
        error(minima, with_second(unified())),
        E::MixedAtomics { bits: 64 }
    );
    let add = "let c = usm_Cell(p); atomicAdd(&c.a, 1lu);";
    assert!(matches!(error(add, unified()), E::Options(_)));
    assert!(matches!(error(add, system()), E::Unsupported { .. }));
    // Signed ones of one width and unsigned ones of the other get on.
    let apart = "let c = usm_Cell(p); atomicMin(&c.a, 1lu); atomicMax(&c.c, 1i);";
    lowered(&kernel(both, apart), &with_second(unified()));
}

#[test]
fn arguments_have_to_be_aligned() {
    let source = "
        @group(0) @binding(0) var<storage, read_write> sums: array<atomic<u64>>;
        @compute @workgroup_size(1) fn main() { atomicAdd(&sums[1], 1lu); }";
    let variable = naga::ResourceBinding {
        group: 0,
        binding: 0,
    };
    for align in [4, 8, 16] {
        let table = ArgumentTable {
            binding: at(30),
            rows: vec![TableRow { variable, align }],
        };
        let options = PointerOptions {
            arguments: Some(table),
            ..with_second(unified())
        };
        match lower(source, &options) {
            Ok(Some((_, facts))) => assert!(facts.wide && align >= 8),
            Err(error) => {
                assert_eq!((error.kind, align), (PointerErrorKind::MisalignedAtomic, 4));
            }
            Ok(None) => panic!("nothing lowered"),
        }
    }
}
