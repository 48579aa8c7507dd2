//! Polling kernels, executed: turns of loops taken by a lease, beside the turns counted.
//!
//! A lease with more turns than counted is cut short where turns are rationed. On a device the cut shows only if the
//! difference is larger than the ration left by leases; the interpreter counts turns one by one.

use std::collections::BTreeMap;
use std::convert::Infallible;

use naga::{Block, Function, Handle, Module, Span, Statement};
use tombolo_cpu_reference::interpret::{Bindings, Dispatch, Prepared};

use super::*;
use crate::kernel::Program;
use crate::kernel::passes::blocks::{each_statement_mut, rebuild};

const PROGRAM: &str = "
    fn short(x: u32) -> u32 { return x + 1u; }
    fn whole(lane: u32, x: u32) -> u32 { workgroupBarrier(); return x + lane; }
    fn batch(lane: u32, calls: u32, x: u32) -> u32 { workgroupBarrier(); return x + lane; }";

/// Turns allowed to a lease, enough for each port's call.
const MOST: u32 = 400;

const PORTS: usize = 8;

/// Uncounted turns of the pass at the end of a lease: leases leave more.
const LAST: u32 = 2;

/// Words of the server's memory.
const WORDS: usize = 1024;

fn places() -> Places {
    Places {
        ports: PORTS,
        stride: 48,
        mailbox_stride: 1,
        locks: 16,
        requests: 32,
        arguments: 48,
        replies: 448,
        results: 464,
        bell: 900,
        yielded: 901,
        granted: 902,
        lease: 903,
        most: 904,
        start: 905,
        left: 906,
        arrived: 907,
        done: 912,
        beat: 944,
    }
}

/// In front of the program, since callees come first: the counter of a turn.
const TAKE: &str = "var<private> taken: u32; fn take() { taken += 1u; }";

/// Behind the kernel: writes an invocation's turns, taken and counted.
fn note(group: u32) -> String {
    format!(
        "@group({group}) @binding(9) var<storage, read_write> counted: array<atomic<u32>>;
        fn note() {{
            let slot = atomicAdd(&counted[0], 2u);
            atomicStore(&counted[slot + 1u], taken);
            atomicStore(&counted[slot + 2u], tombolo_server_turns);
        }}"
    )
}

/// Has every turn of a loop, and every switch, a loop to drivers, call `take`.
fn count(function: &mut Function, take: Handle<Function>) {
    let call = || Statement::Call {
        function: take,
        arguments: Vec::new(),
        result: None,
    };
    rebuild(&mut function.body, &mut |statement, span, block| {
        if let Statement::Switch { .. } = statement {
            block.push(call(), span);
        }
        block.push(statement, span);
    });
    let _: Result<(), Infallible> = each_statement_mut(&mut function.body, &mut |statement, _| {
        if let Statement::Loop { body, .. } = statement {
            body.splice(0..0, Block::from_vec(vec![call()]));
        }
        Ok(())
    });
}

fn function(module: &Module, name: &str) -> Handle<Function> {
    let mut functions = module.functions.iter();
    let found = functions.find(|(_, one)| one.name.as_deref() == Some(name));
    found.expect("there").0
}

/// The kernel of the shape, with counters and a suitable handler; in the kernel's text `flaw` takes the place of
/// something else.
fn counting(shape: &ServerShape, flaw: Option<(&str, &str)>) -> Module {
    let program = Program::new("server.wgsl", PROGRAM).unwrap();
    let names = match (shape.together, shape.batches) {
        (None, _) => vec![("short".to_owned(), HandlerForm::Alone)],
        (Some(_), false) => vec![("whole".to_owned(), HandlerForm::Together)],
        (Some(_), true) => vec![("batch".to_owned(), HandlerForm::Batch(4))],
    };
    let handlers = declarations(&program, &names).unwrap();
    let mut text = write(&handlers, &places(), shape).unwrap();
    if let Some((sound, flawed)) = flaw {
        assert!(text.contains(sound), "{text}");
        text = text.replace(sound, flawed);
    }
    let text = format!("{TAKE}\n{PROGRAM}\n{text}\n{}", note(shape.group));
    let mut module = naga::front::wgsl::parse_str(&text).unwrap();
    complete(&mut module, true);
    let (take, note) = (function(&module, "take"), function(&module, "note"));
    let own = [take, note];
    for (handle, one) in module.functions.iter_mut() {
        if !own.contains(&handle) {
            count(one, take);
        }
    }
    let entry = &mut module.entry_points[0].function;
    count(entry, take);
    rebuild(&mut entry.body, &mut |statement, span, block| {
        if let Statement::Return { .. } = statement {
            let arguments = Vec::new();
            let result = None;
            let call = Statement::Call {
                function: note,
                arguments,
                result,
            };
            block.push(call, Span::UNDEFINED);
        }
        block.push(statement, span);
    });
    module
}

/// Runs a lease with a call in every port; for each serving invocation the turns taken, and the turns counted.
fn lease(shape: &ServerShape, flaw: Option<(&str, &str)>) -> Vec<(u32, u32)> {
    let module = counting(shape, flaw);
    let places = places();
    let mut words = vec![0u32; WORDS];
    words[places.most] = MOST;
    words[places.lease] = 1;
    words[places.bell] = 1;
    for port in 0..PORTS {
        words[places.requests + port] = 1;
        // Of handler 0, and of a word.
        words[places.arguments + port * places.stride] = 0;
        words[places.arguments + port * places.stride + 1] = 4;
    }
    let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut bindings = Bindings::default();
    let server = bindings.bind(shape.group, 0, bytes(&words));
    let counted = bindings.bind(shape.group, 9, bytes(&[0; 1 + 2 * 64]));
    let prepared = Prepared::new(&module, ENTRY, &BTreeMap::new()).expect("prepared");
    let groups = [shape.groups as u32, 1, 1];
    let outcome = Dispatch::new(&prepared, groups).run(&mut bindings);
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
    let word = |buffer: usize, at: usize| {
        let bytes = &bindings.buffers[buffer][4 * at..4 * at + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    };
    for port in 0..PORTS {
        assert_eq!(word(server, places.replies + port), 1, "{port}: {shape:?}");
    }
    let all = word(counted, 0) as usize / 2;
    (0..all)
        .map(|one| (word(counted, 1 + 2 * one), word(counted, 2 + 2 * one)))
        .collect()
}

fn shape(groups: usize, together: Option<u32>, lanes: usize) -> ServerShape {
    ServerShape {
        groups,
        lanes,
        together,
        urgent: 0,
        batches: false,
        split: false,
        polls: false,
        has_loop_budget: true,
        rotates: true,
        fails: false,
        asks: false,
        calls: false,
        turns: 1000,
        group: 1,
        remote_clients: None,
    }
}

#[test]
fn leases_count_every_turn_that_they_take() {
    for groups in [1, 2, 4] {
        for (together, lanes, urgent, batches) in [
            (None, 1, 0, false),
            (None, 1, 4, false),
            (None, 2, 0, false),
            (Some(4), 4, 0, false),
            (Some(4), 4, 4, false),
            (Some(4), 4, 0, true),
        ] {
            let shape = ServerShape {
                urgent,
                batches,
                ..shape(groups, together, lanes)
            };
            let turns = lease(&shape, None);
            // Where lanes serve calls together, a single lane counts for all.
            let counted = |own: u32| match together {
                Some(_) => turns.iter().map(|(_, counted)| *counted).max(),
                None => Some(own),
            };
            assert!(!turns.is_empty(), "{shape:?}");
            for (taken, own) in &turns {
                let counted = counted(*own).unwrap_or(0);
                assert!(*taken <= counted + LAST, "{turns:?}: {shape:?}");
                assert!(counted <= MOST + 60, "{turns:?}: {shape:?}");
            }
        }
    }
}

/// The last turn of the call-taking loop, left out as once before, is found out.
#[test]
fn a_turn_that_is_not_counted_is_found() {
    let counts = "    tombolo_server_turns += 1u;\n    loop {\n        let known";
    let leaves_out = "    loop {\n        let known";
    let turns = lease(&shape(2, None, 1), Some((counts, leaves_out)));
    let is_over = |(taken, counted): &(u32, u32)| *taken > counted + LAST;
    assert!(turns.iter().any(is_over), "{turns:?}");
}
