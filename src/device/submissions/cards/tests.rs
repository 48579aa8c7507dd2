use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Card;
use crate::device::{Device, ExecutionError, WaitError, hooks};
use crate::{Constants, Context, HostServices, Program};

fn card(address: &str, product: u32) -> Card {
    Card {
        address: address.to_owned(),
        kind: (1, product, "a card".to_owned()),
    }
}

#[test]
fn addresses_tell_cards_apart_and_kinds_where_there_are_none() {
    assert!(card("0:6", 1).may_be(&card("0:6", 1)));
    assert!(!card("0:6", 1).may_be(&card("0:7", 1)));
    assert!(card("", 1).may_be(&card("0:7", 1)));
    assert!(card("", 1).may_be(&card("", 1)));
    assert!(!card("", 1).may_be(&card("", 2)));
}

const MINUTE: Duration = Duration::from_secs(60);

fn is_refusal(error: &ExecutionError) -> bool {
    matches!(error, ExecutionError::InHandler { handler, .. } if handler == "ask")
}

/// What waits for a device inside a function that serves a call of another device of its card, and behind that call.
fn waits(context: &Context, index: usize) {
    let [one, other]: [Device; 2] = [0; 2].map(|_| context.device_at(index).unwrap());
    let program = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn main() { out[0] = 5u; }";
    let program = Program::new("alone.wgsl", program).unwrap();
    let kernel = other.kernel(&program, "main", &Constants::new()).unwrap();
    let out = other.buffer(&[7u32; 4]).unwrap();
    let mut launch = kernel.launch().buffer("out", &out).workgroups(1);
    let (tell, told) = channel();
    let state = (Mutex::new((launch.submit().unwrap(), tell)), other.clone());
    let ask = move |which: u32| -> u32 {
        let state = (&state.0.lock().unwrap(), &state.1);
        let _ = (state.0.1).send((state.0.0.wait_timeout(MINUTE), state.1.finish()));
        which + 100
    };
    let services = HostServices::builder().call("fn ask(which: u32) -> u32", ask);
    let services = Arc::new(services.start().unwrap());
    let program = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn main() { out[0] = ask(1u); }";
    let program = Program::builder()
        .services(&services)
        .source("asking.wgsl", program);
    let program = program.build().unwrap();
    let kernel = one.kernel(&program, "main", &Constants::new()).unwrap();
    let asked = one.buffer(&[7u32; 4]).unwrap();
    let launch = kernel.launch().services(&services).buffer("out", &asked);
    let event = launch.workgroups(1).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    let (waited, finished) = told.recv_timeout(MINUTE).unwrap();
    let Err(WaitError::Failed(error)) = &waited else {
        panic!("{waited:?}");
    };
    assert!(is_refusal(error), "{error}");
    let error = finished.unwrap_err();
    assert!(is_refusal(&error), "{error}");
    assert_eq!(asked.read().unwrap()[0], 101);
    other.finish().unwrap();
    assert_eq!(out.read().unwrap()[0], 5);
}

#[test]
fn functions_are_refused_the_wait_for_another_device_of_the_callers_card() {
    let _alone = hooks::alone();
    let context = Context::new().unwrap();
    let _cards = hooks::Cards::begin();
    for index in 0..context.adapters().len() {
        waits(&context, index);
    }
}
