//! The text of the polling kernel.

use std::sync::Arc;

use super::batches::{BATCH, batches, with_batches};
use super::branches::{Ports, cases, load_argument, most_words};
use super::groups::with_groups;
use super::remote_clients::{RemoteClientPlaces, remote_clients};
use super::urgent::with_urgent;
use super::withdrawal::{cancellation, withdrawal};
use super::{FAILED, HandlerDeclaration, HandlerFault, TOO_LONG};
use crate::device::CallStatus;
use crate::device::call_words::{LINE, PREFIX, SEAL as SEAL_WORD};
use crate::kernel::calls::mixed;
use crate::template::Template;

const COMMON: &str = include_str!("../../../shaders/server.wgsl");
const SEAL: &str = include_str!("../../../shaders/server_seal.wgsl");
const WAIT: &str = include_str!("../../../shaders/server_wait.wgsl");
const LANE: &str = include_str!("../../../shaders/server_lane.wgsl");
const LANE_BELL: &str = include_str!("../../../shaders/server_lane_bell.wgsl");
const LANE_HINT: &str = include_str!("../../../shaders/server_lane_hint.wgsl");
const LANE_POLL: &str = include_str!("../../../shaders/server_lane_poll.wgsl");
const GROUPS: &str = include_str!("../../../shaders/server_groups.wgsl");
const GROUP: &str = include_str!("../../../shaders/server_group.wgsl");

/// The places in a server's words, as the kernel is to know them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub ports: usize,
    pub stride: usize,
    /// Words from a mailbox to that of the next port.
    pub mailbox_stride: usize,
    pub locks: usize,
    pub requests: usize,
    pub arguments: usize,
    pub replies: usize,
    pub results: usize,
    pub bell: usize,
    pub yielded: usize,
    pub granted: usize,
    pub lease: usize,
    pub most: usize,
    pub start: usize,
    /// The last lease left by a work-group, of several: the others follow.
    pub left: usize,
    /// Work-groups that have begun in the lease, of several.
    pub arrived: usize,
    pub done: usize,
    pub beat: usize,
}

/// How the kernel is built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerShape {
    /// Work-groups, each with ports of its own: the same number in all.
    pub groups: usize,
    /// Invocations of each, serving calls of the group's ports by themselves.
    pub lanes: usize,
    /// Invocations serving each call together instead, if any do.
    pub together: Option<u32>,
    /// The first ports are for urgent calls, as many of each work-group.
    pub urgent: usize,
    /// Some handlers serve batches of calls.
    pub batches: bool,
    /// The kernel's writes for the host have separate memory.
    pub split: bool,
    /// Lanes that serve calls by themselves look at all their ports all the time, instead of waiting for the bell.
    pub polls: bool,
    /// Turns of loops are rationed: looks at the bell follow each other within one turn.
    pub has_loop_budget: bool,
    /// A lease may end by the turns of a few calls: with too few turns left no call is looked for, and the next lease
    /// begins to look at another port.
    pub rotates: bool,
    /// The program may give up (`assert`, `panic`).
    pub fails: bool,
    /// The program asks whether calls are withdrawn.
    pub asks: bool,
    /// The program calls functions of the host, and its turns of waiting count.
    pub calls: bool,
    /// Turns of loops that a call may take.
    pub turns: u32,
    /// The free bind group.
    pub group: u32,
    /// The places for posts of other devices' kernels, if allowed.
    pub remote_clients: Option<RemoteClientPlaces>,
}

/// Looks at the bell within one turn, where turns are rationed.
const LOOKS: usize = 16;

impl ServerShape {
    /// Words of arguments, of at most `most`, that lanes serving calls by themselves read with the head of a call: each read
    /// takes its way to memory, and reads beside each other take one. Beyond a line of the packet it would be two.
    fn arguments_ahead(&self, most: usize) -> usize {
        match self.polls {
            true => most.min(LINE - PREFIX),
            false => 0,
        }
    }

    /// The memory for the kernel's writes for the host.
    fn out(&self) -> &'static str {
        match self.split {
            true => "tombolo_answers",
            false => "tombolo_server",
        }
    }

    /// The first port of remote clients looked at by an invocation: invocations of all work-groups but one look at
    /// none.
    pub(super) fn first_remote(&self, places: &RemoteClientPlaces, first: &str) -> String {
        let none = places.areas * places.ports;
        match self.groups {
            1 => first.to_owned(),
            _ => format!("select({none}u, {first}, tombolo_server_group == 0u)"),
        }
    }

    /// Whether lanes serving calls by themselves end the lease together.
    fn has_peers(&self) -> bool {
        self.together.is_none() && self.lanes > 1
    }

    /// The common end of such lanes, when a call has failed in a lane: the word for the failure, the failed lane's
    /// statement, and the other lanes' condition.
    fn shared_failure(&self) -> [&'static str; 3] {
        match (self.groups > 1, self.has_peers()) {
            (false, false) => [""; 3],
            // Work-groups share the frame alone.
            (true, _) => [
                "",
                "atomicStore(&tombolo_server[$left$u], tombolo_server_lease);",
                "|| atomicLoad(&tombolo_server[$left$u]) == tombolo_server_lease",
            ],
            (false, true) => [
                "var<workgroup> tombolo_server_failed: atomic<u32>;",
                "atomicStore(&tombolo_server_failed, 1u);",
                "|| atomicLoad(&tombolo_server_failed) != 0u",
            ],
        }
    }
}

/// The text behind a program whose functions `handlers` are to be called.
pub(crate) fn write(
    handlers: &[Arc<HandlerDeclaration>],
    places: &Places,
    shape: &ServerShape,
) -> Result<String, HandlerFault> {
    let ports = Ports {
        out: shape.out(),
        sealed: shape.split,
        gathers: true,
        ahead: shape.arguments_ahead(most_words(handlers)),
    };
    let cases = cases(handlers, &ports, shape.together.is_some())?;
    let words = most_words(handlers);
    let ahead: String = (0..ports.ahead)
        .map(|word| format!("let tombolo_argument{word} = {};\n", load_argument(word)))
        .collect();
    let or_over = match shape.rotates {
        true => "|| tombolo_server_turns >= most",
        false => "",
    };
    let clients = remote_clients(shape, or_over);
    let own = match shape.together {
        Some(_) => GROUP,
        None => LANE,
    };
    let (seal, head) = seal(shape);
    let [take, begun, withdrawn] = withdrawal(handlers, shape);
    let [withdrawal, at_withdrawal, asks] = cancellation(handlers, shape);
    let groups = if shape.groups > 1 { GROUPS } else { "" };
    let batch = match batches(handlers).next() {
        Some(_) => BATCH,
        None => "",
    };
    let [mixed_word, of_word] = mixed("at", "word");
    let template = Template::new(format!("{COMMON}{seal}{groups}{batch}{own}"))
        .set("binding", format!("@group({}) @binding(0)", shape.group))
        .set("posts", posts(shape))
        .set("out", shape.out())
        .set("cases", cases)
        .set("head", head)
        // A sealed answer is taken once all of it has arrived, and the fence between two looks sends it.
        .offer(
            "orders",
            if shape.split {
                ""
            } else {
                "tombolo_server_fence();"
            },
        )
        .set("or_over", or_over)
        .set("turns", shape.turns)
        .set("too_long", TOO_LONG)
        .offer("failed", FAILED)
        .set("unknown", CallStatus::Unknown.code())
        .offer("done_status", CallStatus::Done.code())
        .offer("seal", SEAL_WORD)
        .offer("mixed_word", mixed_word)
        .offer("of_word", of_word)
        .set("first_posts", clients.first)
        .set("take", take)
        .set("opcode", begun)
        .set("withdrawal", format!("{withdrawal}\n{asks}"))
        .set("at_withdrawal", at_withdrawal)
        .set("withdrawn", withdrawn)
        .set("kernels", clients.scan);
    let template = match shape.polls {
        true => template,
        false => (template.set("wait", WAIT.trim_end()))
            .set("bell", places.bell)
            .set("look", format!("{}\n{}", look(shape), clients.look))
            .set("single", !shape.split)
            .set("or_posts", clients.or)
            .set("known_posts", clients.known),
    };
    let template = match shape.together {
        Some(lanes) => (template.set("group_lanes", lanes))
            .set("most_words", words)
            .set("call_words", words + 5),
        None => with_waits(template.set("lanes", shape.lanes), shape)
            .set("only_kernels", clients.only)
            .set("arguments_ahead", ahead),
    };
    let template = with_faults(template, shape);
    let template = with_first_port(template, places, shape);
    let template = with_groups(template, places, shape);
    let template = with_urgent(template, shape);
    let template = with_batches(template, handlers, places, shape);
    Ok(with_places(template, places).fill())
}

/// The memory for the host's reads, where separate.
fn posts(shape: &ServerShape) -> String {
    match shape.split {
        true => format!(
            "@group({}) @binding(1) var<storage, read_write> tombolo_answers: array<atomic<u32>>;",
            shape.group
        ),
        false => String::new(),
    }
}

/// The seal of a reply, and the statement for the reply's head.
fn seal(shape: &ServerShape) -> (&'static str, String) {
    let reply = match (shape.split, shape.together) {
        (false, _) => return ("", "atomicStore(&$out$[results], status);".to_owned()),
        (true, None) => "reply, request",
        (true, Some(_)) if shape.batches => "reply, request",
        (true, Some(_)) => "tombolo_server_reply, call[2]",
    };
    let head = format!("tombolo_server_seal(results, status, {reply});");
    (SEAL, head)
}

/// A look at the bell.
fn look(shape: &ServerShape) -> String {
    match shape.has_loop_budget {
        // An exchange without a change is a look no compiler leaves out. Ports behind the one with a seen change are
        // skipped.
        true => {
            "if bell == seen { bell = atomicOr(&tombolo_server[$bell$u], 0u); }\n".repeat(LOOKS)
        }
        false => "bell = atomicLoad(&tombolo_server[$bell$u]);".to_owned(),
    }
}

/// How lanes that serve calls by themselves wait for the next ones.
fn with_waits(template: Template, shape: &ServerShape) -> Template {
    let [first, asked, hint, waits] = match shape.polls {
        true => [
            "",
            "let asked = atomicLoad(&tombolo_server[$yield$u]) != granted;",
            "",
            LANE_POLL.trim_end(),
        ],
        false => [
            "    // Before the first look at anything else: whatever changes later rings later.
    var seen = atomicLoad(&tombolo_server[$bell$u]);
    var single = false;",
            "",
            LANE_HINT.trim_end(),
            LANE_BELL.trim_end(),
        ],
    };
    (template.set("first_bell", first))
        .set("asked", asked)
        .set("at_hint", hint)
        .set("waits", waits)
}

/// What happens around a handler that may fail, or wait for the host.
fn with_faults(template: Template, shape: &ServerShape) -> Template {
    let [word, notes_failed, or_failed] = shape.shared_failure();
    // The message comes when the lease has ended, by its number.
    let note = match shape.together {
        Some(_) => String::new(),
        None => format!(
            "tombolo_server_fault = 1u; {notes_failed} \
             atomicStore(&$out$[results + 1u], atomicLoad(&tombolo_server[$lease$u]));"
        ),
    };
    let failed = |flag: &str, none: &str| {
        format!("if {flag} != {none} {{ status = {FAILED}u; {flag} = {none}; {note} }}\n")
    };
    let mut faults = String::new();
    if shape.fails {
        faults.push_str(&failed("tombolo_print_failed", "false"));
    }
    let mut begin = "";
    if shape.calls {
        faults.push_str(&failed("tombolo_call_failed", "0u"));
        faults.push_str(
            "tombolo_server_turns += tombolo_call_looks - turns; tombolo_call_looks = 0u;\n",
        );
        // A handler's waiting for functions of the host comes out of the same budget.
        begin = "tombolo_call_looks = turns;";
    }
    let template = (template.set("faults", faults))
        .set("begin", begin)
        .set("or_failed", or_failed);
    match shape.together {
        Some(_) => template.set("notes_failed", notes_failed),
        None => template.set("failed_word", word),
    }
}

/// Which port a lease looks at first. Each port belongs to a single lane: the ports of several lanes stay where they
/// are.
fn with_first_port(template: Template, places: &Places, shape: &ServerShape) -> Template {
    let rotates = shape.rotates && shape.lanes == 1;
    let (groups, count) = (shape.groups, places.ports / shape.groups);
    // Urgent calls are looked for first in every lease.
    let urgent = shape.urgent / groups;
    let ordinary = count - urgent;
    let first = format!("atomicLoad(&tombolo_server[{}u])", places.start);
    let granted = match groups {
        1 if urgent == 0 => format!("{first} % {count}u"),
        _ => format!("(max({first} / {groups}u, {urgent}u) - {urgent}u) % {ordinary}u"),
    };
    let at = |offset: &str| match (groups, offset) {
        (1, "0u") => "let at = port;".to_owned(),
        (1, _) if urgent == 0 => {
            format!("var at = port + {offset}; at -= select(0u, {count}u, at >= {count}u);")
        }
        (1, _) => format!(
            "var at = port; if at >= {urgent}u {{ at += {offset}; at -= select(0u, {ordinary}u, at >= {count}u); }}"
        ),
        _ => format!("let at = tombolo_server_place(port, {offset});"),
    };
    let (start, offset, at) = match (rotates, shape.together) {
        (false, _) => (String::new(), "", at("0u")),
        (true, None) => (
            format!("let start = {granted};"),
            "let offset = select(start, 0u, single);",
            at("offset"),
        ),
        (true, Some(_)) => (
            format!(
                "tombolo_server_start = {granted}; tombolo_server_offset = tombolo_server_start;"
            ),
            "",
            at("tombolo_server_offset"),
        ),
    };
    let template = template.set("start", start).set("at", at);
    match shape.together {
        Some(_) => template,
        None => template.set("offset", offset),
    }
}

/// Where everything lies.
fn with_places(template: Template, places: &Places) -> Template {
    [
        ("stride", places.stride),
        ("mailbox_stride", places.mailbox_stride),
        ("locks", places.locks),
        ("requests", places.requests),
        ("arguments", places.arguments),
        ("replies", places.replies),
        ("results", places.results),
        ("yield", places.yielded),
        ("granted", places.granted),
        ("lease", places.lease),
        ("most", places.most),
        ("done", places.done),
        ("beat", places.beat),
    ]
    .into_iter()
    .fold(template, |template, (name, number)| {
        template.set(name, number)
    })
    .offer("ports", places.ports)
    .offer("left", places.left)
}
