//! The forms in which functions of servers are called, and what does not fit.

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::{MINUTE, MIX, builder, mix, mixer, start};
use futures::future::join_all;
use futures::{StreamExt as _, stream};
use pollster::block_on;
use tombolo::{Ptr, ServerError};

cases![
    futures_and_batches_come_in_order,
    signatures_are_compared,
    programs_without_the_handler_are_refused,
];

fn futures_and_batches_come_in_order(f: &Fixture) {
    let (_server, function) = mixer(f);
    let calls: Vec<(u32, u32)> = (0..1000).map(|i| (i, i / 3)).collect();
    let expected: Vec<u32> = calls.iter().map(|&(x, y)| mix(x, y)).collect();
    let results = block_on(join_all(calls.iter().map(|call| function.begin(call))));
    let results: Vec<u32> = results.into_iter().map(Result::unwrap).collect();
    assert_eq!(results, expected);
    let results = function.call_many(&calls).into_iter().map(Result::unwrap);
    assert!(results.eq(expected.iter().copied()));
    assert_eq!(function.call_all(&calls).unwrap(), expected);
    assert!(function.call_all(&[]).unwrap().is_empty());
    let results = Iterator::map(function.sequence(calls.iter().copied(), 16), Result::unwrap);
    assert!(results.eq(expected.iter().copied()));
    let stream = function.sequence(calls.iter().copied(), 16).into_stream();
    let results: Vec<_> = block_on(stream.map(Result::unwrap).collect());
    assert_eq!(results, expected);
    // What comes out of another stream goes through one, too.
    let stream = stream::iter(calls.iter().copied());
    let stream = stream.map(|call| function.begin(&call)).buffered(16);
    let results: Vec<_> = block_on(stream.map(Result::unwrap).collect());
    assert_eq!(results, expected);
    assert!(function.call_many(&[]).is_empty());
    let begun = function.begin(&calls[7]);
    assert_eq!(begun.wait_timeout(MINUTE).unwrap(), expected[7]);
}

fn signatures_are_compared(f: &Fixture) {
    let source = "
        struct Pair { a: u32, b: f32 }
        fn scale(x: f32, p: usm_ptr) -> f32 { return x * f32(p.x); }
        fn swap(pair: Pair) -> Pair { return Pair(u32(pair.b), f32(pair.a)); }";
    let server = start(builder(&f.device, source).handler("scale").handler("swap"));
    server.function::<(f32, Ptr<u8>), f32>("scale").unwrap();
    let told = |error: ServerError, parts: &[&str]| {
        let text = error.to_string();
        assert!(matches!(error, ServerError::Signature { .. }), "{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    };
    let wgsl = "fn scale(x: f32, p: usm_ptr) -> f32";
    told(
        server.function::<(u32, Ptr<u8>), f32>("scale").unwrap_err(),
        &[wgsl, "(u32, Ptr<u8>) -> f32", "`x`"],
    );
    told(
        server.function::<(f32, u32), f32>("scale").unwrap_err(),
        &[wgsl, "`p`", "8", "4"],
    );
    told(
        server
            .function::<(f32, [f32; 2]), f32>("scale")
            .unwrap_err(),
        &[wgsl, "`p`"],
    );
    told(
        server.function::<(f32,), f32>("scale").unwrap_err(),
        &[wgsl, "2 arguments", "1"],
    );
    told(
        server.function::<(f32, Ptr<u8>), ()>("scale").unwrap_err(),
        &[wgsl, "the result"],
    );
    told(
        server
            .function::<([u32; 3],), [u32; 2]>("swap")
            .unwrap_err(),
        &["Pair", "12"],
    );
    let error = server.function::<(), ()>("turn").unwrap_err();
    assert!(
        matches!(&error, ServerError::NoHandler { available, .. } if available.len() == 2),
        "{error}"
    );
}

fn programs_without_the_handler_are_refused(f: &Fixture) {
    let refused = |source: &str, name: &str| {
        let error = builder(&f.device, source)
            .handler(name)
            .start()
            .unwrap_err();
        assert!(
            matches!(&error, ServerError::Handler { handler, .. } if handler == name),
            "{error}"
        );
        error.to_string()
    };
    assert!(refused(MIX, "other").contains("no such function"));
    assert!(refused("@compute @workgroup_size(1) fn main() {}", "main").contains("ordinary"));
    assert!(refused("fn f(b: bool) {}", "f").contains("bool"));
    assert!(refused("fn f(p: ptr<function, u32>) {}", "f").len() > 20);
    let error = builder(&f.device, MIX)
        .handler("mix")
        .ports(0)
        .start()
        .unwrap_err();
    assert!(
        matches!(error, ServerError::Ports { ports: 0, .. }),
        "{error}"
    );
    let blind = f.open(|options| options.live_memory = false);
    let server = builder(&blind, MIX).handler("mix").start().unwrap();
    assert_eq!(server.tier(), tombolo::Tier::Sliced);
}
