//! The polling kernels as text: every form is valid WGSL.

use naga::valid::{Capabilities, ValidationFlags, Validator};

use super::*;
use crate::kernel::calls::handed::{Handed, handed};
use crate::kernel::heap_setup::HeapSetup;
use crate::kernel::specialize::specialize;
use crate::kernel::{Constants, Program};

const PROGRAM: &str = "
    struct Pair { a: vec3<f32>, b: i32, c: array<mat2x2<f32>, 2> }
    fn plain(x: f32, p: vec2<u32>) -> Pair { var pair: Pair; pair.b = i32(x); return pair; }
    fn nothing() {}
    fn batch(lane: u32, calls: u32, pair: Pair) -> vec2<f32> { workgroupBarrier(); return pair.a.xy; }
    fn whole(lane: u32, pair: Pair) -> u32 { workgroupBarrier(); return lane; }
    fn huge(x: array<u32, 4>) -> array<vec4<i32>, 9> { return array<vec4<i32>, 9>(); }";

fn places() -> Places {
    Places {
        ports: 8,
        stride: 48,
        mailbox_stride: 1,
        locks: 16,
        requests: 32,
        arguments: 48,
        replies: 400,
        results: 416,
        bell: 800,
        yielded: 801,
        granted: 802,
        lease: 803,
        most: 804,
        start: 805,
        left: 806,
        arrived: 807,
        done: 816,
        beat: 848,
    }
}

fn remote_clients() -> RemoteClientPlaces {
    RemoteClientPlaces {
        areas: 2,
        first: 16_384,
        area: 16_384,
        ports: 16,
        stride: 48,
        requests: 32,
        arguments: 48,
        replies: 900,
        results: 916,
        taken: 880,
    }
}

fn form(name: &str) -> HandlerForm {
    match name {
        "whole" => HandlerForm::Together,
        "batch" => HandlerForm::Batch(8),
        _ => HandlerForm::Alone,
    }
}

/// A server of a single lane, without optional parts, in this group of bindings.
fn shape(group: u32) -> ServerShape {
    ServerShape {
        lanes: 1,
        urgent: 0,
        batches: false,
        groups: 1,
        together: None,
        split: false,
        polls: false,
        has_loop_budget: false,
        rotates: false,
        fails: false,
        asks: false,
        calls: false,
        turns: 1000,
        group,
        remote_clients: None,
    }
}

#[test]
fn every_form_validates() {
    let program = Program::new("server.wgsl", PROGRAM).unwrap();
    let mut forms = 0;
    let kinds = [
        (None, 3),
        (Some(8), 4),
        (Some(256), 4),
        (Some(8), 5),
        (Some(256), 5),
    ];
    let all = kinds.map(|kind| [(kind, None), (kind, Some(remote_clients()))]);
    for ((together, count), remote_clients) in all.into_iter().flatten() {
        for (lanes, split, has_loop_budget, groups, urgent) in [
            (1, false, true, 1, 0),
            (1, false, false, 1, 0),
            (32, true, false, 1, 3),
            (1, false, false, 4, 4),
            (32, true, false, 2, 0),
            (1, false, true, 2, 2),
            (1, false, true, 1, 2),
        ] {
            let names = ["plain", "nothing", "huge", "whole", "batch"];
            let names = names.map(|name| (name.to_owned(), form(name)));
            let handlers = declarations(&program, &names[..count]).unwrap();
            let shape = ServerShape {
                lanes,
                urgent,
                batches: count == 5,
                groups,
                together,
                split,
                polls: split && together.is_none() && !has_loop_budget,
                has_loop_budget,
                rotates: has_loop_budget,
                fails: false,
                asks: true,
                calls: false,
                turns: 1000,
                group: program.free_group(),
                remote_clients,
            };
            let text = write(&handlers, &places(), &shape).unwrap();
            assert!(!text.contains('$'), "{text}");
            let mut module = naga::front::wgsl::parse_str(&format!("{PROGRAM}\n{text}")).unwrap();
            complete(&mut module, !has_loop_budget);
            let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
            let valid = validator.validate(&module);
            assert!(valid.is_ok(), "{:?}\n{text}", valid.err());
            forms += 1;
        }
    }
    assert_eq!(forms, 70);
}

#[test]
fn every_type_is_taken_and_given_by_name_and_by_alias() {
    for Handed {
        declarations,
        types,
    } in handed()
    {
        // `usm_ptr` is known in programs with a mention.
        let functions: String = (types.iter().enumerate())
            .map(|(index, (ty, _))| {
                format!("fn f{index}(x: {ty}, p: usm_ptr) -> {ty} {{ return x; }}\n")
            })
            .collect();
        let source = format!("{declarations}{functions}");
        let program = Program::new("server.wgsl", source.as_str()).unwrap();
        let names: Vec<_> = (0..types.len())
            .map(|index| (format!("f{index}"), HandlerForm::Alone))
            .collect();
        let handlers = super::declarations(&program, &names)
            .unwrap_or_else(|fault| panic!("{source}{fault:?}"));
        for (handler, (ty, bytes)) in handlers.iter().zip(&types) {
            let result = handler.result.as_ref().unwrap();
            assert_eq!(result.size as usize, *bytes, "{ty}");
            assert_eq!(handler.parameters[0].size as usize, *bytes, "{ty}");
        }
        let shape = shape(program.free_group());
        let text = write(&handlers, &places(), &shape).unwrap();
        let pointer = match declarations.contains("alias usm_ptr") {
            true => "",
            false => "alias usm_ptr = vec2<u32>;",
        };
        let all = format!("{source}{pointer}\n{text}");
        let mut module = naga::front::wgsl::parse_str(&all).unwrap();
        complete(&mut module, true);
        let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
        let valid = validator.validate(&module);
        assert!(valid.is_ok(), "{:?}\n{text}", valid.err());
    }
}

#[test]
fn every_form_of_slices_validates() {
    let program = Program::new("server.wgsl", PROGRAM).unwrap();
    let names = ["plain", "nothing", "huge", "whole", "batch"];
    for together in [None, Some(8), Some(64)] {
        let names = names.map(|name| (name.to_owned(), form(name)));
        let count = if together.is_some() { 5 } else { 3 };
        let handlers = declarations(&program, &names[..count]).unwrap();
        let shape = SliceShape {
            given: 0,
            taken: 0,
            turns: 1000,
            fails: false,
            together,
            group: program.free_group(),
        };
        let shape = shape.fit(&handlers);
        assert_eq!(packing::Packing::words(&handlers, 100), 3700);
        let mut texts = vec![write_slice(&handlers, &shape).unwrap()];
        for handler in &handlers {
            let packing = packing::Packing::of(handler, &handlers, 100);
            assert_eq!(packing.answers(0), 3600..3600);
            texts.push(write_packed(handler, packing, &shape).unwrap());
        }
        for text in texts {
            assert!(!text.contains('$'), "{text}");
            let module = naga::front::wgsl::parse_str(&format!("{PROGRAM}\n{text}")).unwrap();
            let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
            let valid = validator.validate(&module);
            assert!(valid.is_ok(), "{:?}\n{text}", valid.err());
        }
    }
}

#[test]
fn what_cannot_be_called_is_told() {
    let program = Program::new(
        "server.wgsl",
        "fn f(x: bool) {} fn g(x: ptr<function, u32>) {} fn h() -> atomic<u32> {} fn i(x: f32) {}",
    );
    // Such a program does not even parse; heads are read from parsable ones.
    assert!(program.is_err());
    let program = Program::new("server.wgsl", "fn f(x: bool) {} fn i(x: f32) {}").unwrap();
    let fault = |name: &str, together: bool| {
        let form = match together {
            true => HandlerForm::Together,
            false => HandlerForm::Alone,
        };
        let handlers = declarations(&program, &[(name.to_owned(), form)]);
        let shape = ServerShape {
            together: together.then_some(64),
            ..shape(0)
        };
        handlers
            .and_then(|handlers| write(&handlers, &places(), &shape))
            .unwrap_err()
    };
    assert!(fault("f", false).why.contains("bool"));
    assert!(fault("i", true).why.contains("number of the lane"));
    assert!(fault("j", false).why.contains("no such function"));
}

/// Specialization leaves out what an entry point does not mention, in programs that use conventions of the runtime: the bodies
/// behind fences are not among it.
#[test]
fn words_for_the_host_are_stored_behind_fences_in_every_program() {
    const RING: &str = "fn through() -> u32 {
        let taken = ring_in_take();
        let fits = ring_out_put(taken.item);
        return taken.item;
    }";
    let printing = format!("{RING} fn log(x: u32) {{ print(\"{{}}\", x); }}");
    for (source, handler) in [
        (RING, "through"),
        (&*printing, "through"),
        (&*printing, "log"),
    ] {
        let program = || {
            let builder = Program::builder().source("server.wgsl", source);
            let builder = builder.ring_from_host::<u32>("in");
            builder.ring_to_host::<u32>("out").build().unwrap()
        };
        let handlers = [(handler.to_owned(), HandlerForm::Alone)];
        let handlers = declarations(&program(), &handlers).unwrap();
        let shape = ServerShape {
            split: true,
            ..shape(program().free_group())
        };
        let text = write(&handlers, &places(), &shape).unwrap();
        let whole = program().extended(&text).unwrap();
        let setup = HeapSetup {
            barriers: true,
            ..HeapSetup::default()
        };
        let constants = Constants::new();
        let all = Capabilities::all();
        let special = specialize(&whole, ENTRY, &constants, None, all, u64::MAX, &setup).unwrap();
        let functions = special.module.functions.iter();
        let functions: Vec<_> = functions.map(|(_, function)| function).collect();
        let has_fence = |function: &naga::Function| {
            (function.body.iter()).any(|one| matches!(one, naga::Statement::MemoryBarrier(_)))
        };
        let mut checked = Vec::new();
        for function in &functions {
            let name = function.name.as_deref().unwrap_or("");
            let is_fence = name == FENCE || name.starts_with(RING_FENCE);
            assert!(!is_fence || has_fence(function), "{name}");
            let ring = ["tombolo_ring_publish_", "tombolo_ring_look_"];
            if name == PUBLISH || ring.iter().any(|one| name.starts_with(one)) {
                let mut statements = function.body.iter();
                let exchanges = statements.any(|one| matches!(one, naga::Statement::Atomic { .. }));
                assert!(!exchanges, "{name} of {handler} exchanges");
                checked.push(name);
            }
        }
        let expected = if handler == "through" { 5 } else { 1 };
        assert_eq!(checked.len(), expected, "{checked:?}");
    }
}
