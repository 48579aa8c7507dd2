//! The texts of explanations and errors, word for word.

use super::model::place;
use super::tests::want;
use super::*;

fn name(place: Place) -> String {
    match place.index() {
        0 => "the host".to_owned(),
        1 => "lavapipe".to_owned(),
        2 => "SwiftShader".to_owned(),
        other => format!("gpu{other}"),
    }
}

fn buffer() -> Residency {
    let mut buffer = Residency::new(1024);
    buffer.wrote(place(1), 0..768).expect("a range");
    buffer
}

fn wants(at: usize, range: std::ops::Range<u64>, access: Access) -> [Want; 1] {
    [want(at, range, access)]
}

fn told(buffer: &Residency, wants: &[Want], routes: &Routes) -> String {
    let plan = buffer.plan(wants, routes).expect("a plan");
    plan.explain(name).to_string()
}

#[test]
fn both_hops_are_told_with_their_chunks_and_what_is_avoided() {
    let routes = Routes::new().with_chunk(256);
    let text = told(&buffer(), &wants(2, 0..1024, Access::Read), &routes);
    assert_eq!(
        text,
        "768 bytes 0..768 from lavapipe to the host in 3 chunks: SwiftShader reads them and never had them\n\
         768 bytes 0..768 from the host to SwiftShader in 3 chunks: SwiftShader reads them and never had them\n\
         moves 1536 bytes, avoids 256 (256 undefined); buffers moved whole would take 2048 bytes"
    );
}

#[test]
fn direct_routes_accesses_and_versions_behind_are_told() {
    let mut buffer = buffer();
    let mut routes = Routes::new();
    routes.set(place(1), place(2), Route::SameDevice, 1);
    routes.set(place(1), place(3), Route::SharedHost, 3);
    for _ in 0..2 {
        let plan = buffer.plan(&wants(2, 0..768, Access::Read), &routes);
        buffer.commit(&plan.expect("a plan")).expect("a fresh plan");
        buffer.wrote(place(1), 0..768).expect("a range");
    }
    assert_eq!(
        told(&buffer, &wants(2, 8..17, Access::Write), &routes),
        "9 bytes 8..17 from lavapipe to SwiftShader on one device: \
         SwiftShader writes some of them and is 1 version behind\n\
         moves 9 bytes, avoids 0; buffers moved whole would take 1024 bytes"
    );
    // Another version held somewhere, and the place that wanted it.
    let plan = buffer.plan(&wants(0, 0..768, Access::Read), &routes);
    buffer.commit(&plan.expect("a plan")).expect("a fresh plan");
    buffer.wrote(place(1), 0..768).expect("a range");
    let both = [
        wants(3, 0..4, Access::ReadWrite),
        wants(2, 0..4, Access::Read),
    ];
    assert_eq!(
        told(&buffer, both.as_flattened(), &routes),
        "4 bytes 0..4 from lavapipe to SwiftShader on one device: \
         SwiftShader reads them and is 2 versions behind\n\
         4 bytes 0..4 from lavapipe to gpu3 by shared host memory: \
         gpu3 reads and writes them and never had them\n\
         moves 8 bytes, avoids 0; buffers moved whole would take 2048 bytes"
    );
}

#[test]
fn nothing_to_move_is_one_line() {
    let text = told(
        &buffer(),
        &wants(1, 0..1024, Access::ReadWrite),
        &Routes::new(),
    );
    assert_eq!(
        text,
        "moves 0 bytes, avoids 1024 (768 current, 256 undefined)"
    );
    let text = told(
        &buffer(),
        &wants(2, 0..1024, Access::Overwrite),
        &Routes::new(),
    );
    assert_eq!(
        text,
        "moves 0 bytes, avoids 1024 (256 undefined, 768 overwritten)"
    );
}

#[test]
fn parts_with_another_history_are_one_copy() {
    let mut buffer = buffer();
    let plan = buffer.plan(&wants(0, 0..256, Access::Read), &Routes::new());
    buffer.commit(&plan.expect("a plan")).expect("a fresh plan");
    buffer.wrote(place(1), 0..256).expect("a range");
    let plan = buffer.plan(&wants(0, 0..512, Access::Read), &Routes::new());
    let explained = plan.expect("a plan").explain(name);
    assert_eq!(explained.movements.len(), 1);
    assert_eq!(explained.movements[0].range, 0..512);
    assert_eq!(
        explained.to_string(),
        "512 bytes 0..512 from lavapipe to the host: \
         the host reads them and has some of them, up to 1 version behind\n\
         moves 512 bytes, avoids 0; buffers moved whole would take 1024 bytes"
    );
}

#[test]
fn evictions_say_so() {
    let eviction = buffer().evictable(place(1), &Routes::new());
    assert_eq!(
        eviction.plan.explain(name).to_string(),
        "768 bytes 0..768 from lavapipe to the host: \
         the memory at lavapipe is given up, and they are nowhere else\n\
         moves 768 bytes, avoids 0; buffers moved whole would take 1024 bytes"
    );
}

#[test]
fn errors_name_the_bytes_the_limit_and_a_way_out() {
    let mut lost = buffer();
    lost.discard(100..101).expect("a range");
    lost.lost(place(1));
    let error = lost.plan(&wants(2, 64..1024, Access::Read), &Routes::new());
    let only = buffer().evicted(place(1), 0..1024);
    let beyond = Residency::new(100).wrote(place(1), 90..101);
    for (error, text) in [
        (
            error.expect_err("lost bytes"),
            "migrate: the latest bytes 64..100, 101..768 were only at device 1, which was lost: overwrite or \
             discard them before they are read",
        ),
        (
            only.expect_err("the only copy"),
            "migrate: the latest bytes 0..768 are only at device 1: copy them elsewhere before they are dropped \
             there",
        ),
        (
            Place::new(64).expect_err("too many"),
            "migrate: place 64 is beyond the 64 that a buffer can be at (the host and 63 devices): use fewer \
             devices in one context",
        ),
        (
            beyond.expect_err("beyond the end"),
            "migrate: bytes 90..101 are not within the 100 bytes there are: shorten the range",
        ),
        (
            MigrateError::StalePlan,
            "migrate: the plan is of another buffer or of an earlier state: plan again",
        ),
        (
            MigrateError::OnlyCopy {
                place: Place::HOST,
                ranges: (0..6).map(|i| i * 10..i * 10 + 1).collect(),
            },
            "migrate: the latest bytes 0..1, 10..11, 20..21, 30..31 and 2 more ranges are only at the host: copy \
             them elsewhere before they are dropped there",
        ),
    ] {
        assert_eq!(error.to_string(), text);
    }
}
