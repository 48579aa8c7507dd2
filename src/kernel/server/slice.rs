//! The text of the kernels that serve calls between launches: slices of calls gathered by the host, slices of calls of
//! the same function, and ports with posts of kernels of the same device.

use std::fmt::Write;
use std::sync::Arc;

use super::branches::{Access, Ports, cases, most_words};
use super::packing::Packing;
use super::text::Places;
use super::{FAILED, HandlerDeclaration, HandlerFault, TOO_LONG};
use crate::device::CallStatus;
use crate::template::Template;

const SLICE: &str = include_str!("../../../shaders/server_slice.wgsl");
const PACKED: &str = include_str!("../../../shaders/server_slice_packed.wgsl");
const PORTS: &str = include_str!("../../../shaders/server_ports.wgsl");
const LANE: &str = include_str!("../../../shaders/server_slice_lane.wgsl");
const GROUP: &str = include_str!("../../../shaders/server_slice_group.wgsl");

/// The entry point of these kernels.
pub(crate) const SLICE_ENTRY: &str = "tombolo_server_slice";
/// Words in front of all calls.
pub(crate) const SLICE_HEADER: usize = 4;
/// Words in front of the arguments of a call, and of its results.
pub(crate) const SLICE_PREFIX: usize = 2;
/// Invocations of a work-group, where each serves a call.
const LANES: usize = 64;

/// How such a kernel is built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SliceShape {
    /// Words of a call on its way to the device.
    pub given: usize,
    /// Words of its answer.
    pub taken: usize,
    /// Turns of loops that a call may take.
    pub turns: u32,
    /// The program may give up (`assert`, `panic`).
    pub fails: bool,
    /// Lanes jointly serving a call, if any.
    pub together: Option<u32>,
    /// The bind group that is free.
    pub group: u32,
}

impl SliceShape {
    /// The smallest that calls of `handlers` fit in.
    pub(crate) fn fit(mut self, handlers: &[Arc<HandlerDeclaration>]) -> Self {
        let most = |words: fn(&HandlerDeclaration) -> usize| {
            let words = handlers.iter().map(|handler| words(handler));
            SLICE_PREFIX + words.max().unwrap_or(0)
        };
        self.given = most(HandlerDeclaration::argument_words);
        self.taken = most(HandlerDeclaration::result_words);
        self
    }

    /// Work-groups for so many calls.
    pub(crate) fn groups(&self, calls: usize) -> u32 {
        match self.together {
            Some(_) => calls as u32,
            None => calls.div_ceil(LANES) as u32,
        }
    }

    fn binding(&self, number: u32) -> String {
        format!("@group({}) @binding({number})", self.group)
    }
}

/// Arguments and results as slices have them.
struct Sliced;

impl Access for Sliced {
    fn load(&self, word: usize) -> String {
        format!("tombolo_requests[arguments + {}u]", SLICE_PREFIX + word)
    }

    fn store(&self, word: usize, value: &str) -> String {
        format!(
            "tombolo_answers[results + {}u] = {value};",
            SLICE_PREFIX + word
        )
    }
}

/// Arguments and results as in slices of a single function: with nothing in front.
struct Packed;

impl Access for Packed {
    fn load(&self, word: usize) -> String {
        format!("tombolo_requests.calls[arguments][{word}u]")
    }

    fn store(&self, word: usize, value: &str) -> String {
        format!("tombolo_answers.results[results][{word}u] = {value};")
    }
}

/// A kernel's way from an index to a call, and its steps after serving the call. All in WGSL.
struct Way {
    /// How many there are.
    calls: String,
    /// A return where there is no call.
    look: String,
    /// Whether there is one.
    is_there: String,
    arguments_at: String,
    results_at: String,
    opcode: String,
    length: String,
    /// Writes `status` and the answer's last word.
    answer: String,
}

/// The text behind a program whose functions `handlers` are to be called in slices.
pub(crate) fn write_slice(
    handlers: &[Arc<HandlerDeclaration>],
    shape: &SliceShape,
) -> Result<String, HandlerFault> {
    let way = Way {
        calls: "tombolo_requests[0]".to_owned(),
        look: String::new(),
        is_there: "true".to_owned(),
        arguments_at: format!("{SLICE_HEADER}u + index * {}u", shape.given),
        results_at: format!("index * {}u", shape.taken),
        opcode: "tombolo_requests[arguments]".to_owned(),
        length: "tombolo_requests[arguments + 1u]".to_owned(),
        // Without the lease nothing was answered.
        answer: "tombolo_answers[results] = status;\ntombolo_answers[results + 1u] = tombolo_requests[1];"
            .to_owned(),
    };
    let own = write(handlers, shape, &way, &Sliced)?;
    let memory = Template::new(SLICE)
        .set("binding0", shape.binding(0))
        .set("binding1", shape.binding(1))
        .fill();
    Ok(format!("{memory}{own}"))
}

/// What stands behind a program of whose functions `handler` alone is called in slices, many calls at a time. With a
/// property common to all calls known when the kernel is compiled, the switch has a single way.
pub(crate) fn write_packed(
    handler: &Arc<HandlerDeclaration>,
    packing: Packing,
    shape: &SliceShape,
) -> Result<String, HandlerFault> {
    let Packing {
        given,
        taken,
        calls,
        marks,
    } = packing;
    // Arrays of a known size, and members of structures, have bounds that cost nothing to check.
    let rows = |name: &str, words: usize, of: String| match words {
        0 => String::new(),
        _ => format!("{name}: array<array<u32, {words}>{of}>,"),
    };
    let before = match marks - taken * calls {
        0 => String::new(),
        words => format!("before: array<u32, {words}>,"),
    };
    let memory = Template::new(PACKED)
        .set("arguments", rows("calls", given, String::new()))
        .set("before", before)
        .set("results", rows("results", taken, format!(", {calls}")))
        .set("most", calls)
        .set("binding0", shape.binding(0))
        .set("binding1", shape.binding(1))
        .fill();
    let way = Way {
        calls: "tombolo_requests.count".to_owned(),
        look: String::new(),
        is_there: "true".to_owned(),
        arguments_at: "index".to_owned(),
        results_at: format!("{calls}u - tombolo_requests.count + index"),
        opcode: format!("{}u", handler.opcode()),
        length: format!("{given}u"),
        answer: "tombolo_answers.marks[index] = tombolo_requests.lease | status;".to_owned(),
    };
    let own = write(std::slice::from_ref(handler), shape, &way, &Packed)?;
    Ok(format!("{memory}{own}"))
}

/// The text behind a program whose functions `handlers` are to be called by kernels of the same device. `split`:
/// servers' writes for clients have separate memory.
pub(crate) fn write_ports(
    handlers: &[Arc<HandlerDeclaration>],
    places: &Places,
    split: bool,
    shape: &SliceShape,
) -> Result<String, HandlerFault> {
    let out = match split {
        true => "tombolo_answers",
        false => "tombolo_server",
    };
    let (requests, replies) = (places.requests, places.replies);
    let request = format!("atomicLoad(&tombolo_server[{requests}u + index])");
    let reply = format!("{out}[{replies}u + index]");
    let way = Way {
        calls: format!("{}u", places.ports),
        look: format!("if {request} == atomicLoad(&{reply}) {{ return; }}"),
        is_there: format!("{request} != atomicLoad(&{reply})"),
        arguments_at: format!("{}u + index * {}u", places.arguments, places.stride),
        results_at: format!("{}u + index * {}u", places.results, places.stride),
        opcode: "atomicLoad(&tombolo_server[arguments])".to_owned(),
        length: "atomicLoad(&tombolo_server[arguments + 1u])".to_owned(),
        // Collecting is done in a later dispatch.
        answer: format!("atomicStore(&{out}[results], status);\natomicStore(&{reply}, {request});"),
    };
    // Unread before the end of the dispatch.
    let ports = Ports {
        out,
        sealed: false,
        gathers: false,
        ahead: 0,
    };
    let own = write(handlers, shape, &way, &ports)?;
    let answers = match split {
        true => format!(
            "{} var<storage, read_write> tombolo_answers: array<atomic<u32>>;",
            shape.binding(1)
        ),
        false => String::new(),
    };
    let memory = Template::new(PORTS)
        .set("binding0", shape.binding(0))
        .set("answers", answers)
        .fill();
    Ok(format!("{memory}{own}"))
}

fn write(
    handlers: &[Arc<HandlerDeclaration>],
    shape: &SliceShape,
    way: &Way,
    access: &impl Access,
) -> Result<String, HandlerFault> {
    let cases = cases(handlers, access, shape.together.is_some())?;
    let mut faults = String::new();
    if shape.fails {
        let _ = writeln!(
            faults,
            "if tombolo_print_failed {{ status = {FAILED}u; tombolo_print_failed = false; }}"
        );
    }
    let words = most_words(handlers);
    let mut fetch = format!(
        "if index < {} && {} {{\nlet arguments = {};\ntombolo_server_call[0] = 1u;\n\
         tombolo_server_call[3] = {};\ntombolo_server_call[4] = {};\n",
        way.calls, way.is_there, way.arguments_at, way.opcode, way.length
    );
    for word in 0..words {
        let _ = writeln!(
            fetch,
            "tombolo_server_call[{}] = {};",
            word + 5,
            access.load(word)
        );
    }
    fetch.push('}');
    let template = match shape.together {
        Some(lanes) => Template::new(GROUP)
            .set("fetch", fetch)
            .set("answer", format!("let index = group.x;\n{}", way.answer))
            .set("results_at", way.results_at.replace("index", "group.x"))
            .set("group_lanes", lanes)
            .set("call_words", words + 5),
        None => Template::new(LANE)
            .set("look", &way.look)
            .set("arguments_at", &way.arguments_at)
            .set("results_at", &way.results_at)
            .set("opcode", &way.opcode)
            .set("length", &way.length)
            .set("calls", &way.calls)
            .set("answer", &way.answer),
    };
    Ok(template
        .set("cases", cases)
        .set("faults", faults)
        .set("turns", shape.turns)
        .set("too_long", TOO_LONG)
        .set("unknown", CallStatus::Unknown.code())
        .fill())
}
