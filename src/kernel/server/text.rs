//! The text of the polling kernel.

use std::fmt::Write;
use std::sync::Arc;

use super::batches::{BATCH, batches, with_batches};
use super::groups::with_groups;
use super::remote_clients::{RemoteClientPlaces, remote_clients};
use super::urgent::with_urgent;
use super::withdrawal::{cancellation, withdrawal};
use super::{FAILED, HandlerDeclaration, HandlerFault, HandlerForm, TOO_LONG};
use crate::device::CallStatus;
use crate::device::call_words::{PREFIX, SEAL as SEAL_WORD};
use crate::kernel::calls::mixed;
use crate::kernel::calls::wgsl::{Leaf, leaves, spelled};
use crate::kernel::template::Template;

const COMMON: &str = include_str!("../../../shaders/server.wgsl");
const SEAL: &str = include_str!("../../../shaders/server_seal.wgsl");
const WAIT: &str = include_str!("../../../shaders/server_wait.wgsl");
const LANE: &str = include_str!("../../../shaders/server_lane.wgsl");
const GROUPS: &str = include_str!("../../../shaders/server_groups.wgsl");
const GROUP: &str = include_str!("../../../shaders/server_group.wgsl");

/// The places in a server's words, as the kernel is to know them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub ports: usize,
    pub stride: usize,
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
    };
    let cases = cases(handlers, &ports, shape.together.is_some())?;
    let words = most_words(handlers);
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
        .set("wait", WAIT.trim_end())
        .set("look", format!("{}\n{}", look(shape), clients.look))
        .set("single", !shape.split)
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
        .set("kernels", clients.scan)
        .set("or_posts", clients.or)
        .set("known_posts", clients.known);
    let template = match shape.together {
        Some(lanes) => (template.set("group_lanes", lanes))
            .set("most_words", words)
            .set("call_words", words + 5),
        None => (template.set("lanes", shape.lanes)).set("only_kernels", clients.only),
    };
    let template = with_faults(template, shape);
    let template = with_first_port(template, places, shape);
    let template = with_groups(template, places, shape);
    let template = with_urgent(template, shape);
    let template = with_batches(template, handlers, places, shape);
    Ok(with_places(template, places).fill())
}

/// The branches of the handlers.
pub(super) fn cases(
    handlers: &[Arc<HandlerDeclaration>],
    access: &impl Access,
    together: bool,
) -> Result<String, HandlerFault> {
    let case = |handler: &Arc<HandlerDeclaration>| {
        case(handler, access, together).map_err(|why| HandlerFault {
            handler: handler.signature.name.clone(),
            why,
        })
    };
    handlers.iter().map(case).collect()
}

/// The words of the longest call.
pub(super) fn most_words(handlers: &[Arc<HandlerDeclaration>]) -> usize {
    let words = handlers.iter().map(|handler| handler.argument_words());
    words.max().unwrap_or(0)
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
        ("locks", places.locks),
        ("requests", places.requests),
        ("arguments", places.arguments),
        ("replies", places.replies),
        ("results", places.results),
        ("bell", places.bell),
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

/// A kernel's way to the words of a call: arguments and results.
pub(super) trait Access {
    /// An argument's word.
    fn load(&self, word: usize) -> String;
    /// The statement that writes a word of the result.
    fn store(&self, word: usize, value: &str) -> String;
    /// Whether calls of handlers for batches are gathered; else each is a batch of its own.
    fn gathers(&self) -> bool {
        false
    }
    /// Whether words of results that hold nothing are written, too.
    fn pads(&self) -> bool {
        false
    }
}

/// Arguments and results in ports.
pub(super) struct Ports<'n> {
    /// The memory in which the results lie.
    pub out: &'n str,
    /// The words are sealed, and so is their padding.
    pub sealed: bool,
    /// Calls are gathered in batches, for handlers that serve those.
    pub gathers: bool,
}

impl Access for Ports<'_> {
    fn load(&self, word: usize) -> String {
        format!(
            "atomicLoad(&tombolo_server[arguments + {}u])",
            word + PREFIX
        )
    }

    fn store(&self, word: usize, value: &str) -> String {
        let (out, at) = (self.out, word + PREFIX);
        match self.sealed {
            true => format!("tombolo_server_store(results + {at}u, {value});"),
            false => format!("atomicStore(&{out}[results + {at}u], {value});"),
        }
    }

    fn pads(&self) -> bool {
        self.sealed
    }

    fn gathers(&self) -> bool {
        self.gathers
    }
}

/// The branch of a handler: the arguments out of the port, the call, and the result into the port. `together`: all
/// lanes come here, with the arguments in `call`.
fn case(
    handler: &HandlerDeclaration,
    access: &impl Access,
    together: bool,
) -> Result<String, String> {
    let signature = &handler.signature;
    let (mut loads, mut names) = (String::new(), Vec::new());
    let mut word = 0;
    let gathers = access.gathers() && matches!(handler.form, HandlerForm::Batch(_));
    match handler.form {
        HandlerForm::Alone => {}
        HandlerForm::Together => names.push("lane".to_owned()),
        // A call that is not gathered is a batch of its own.
        HandlerForm::Batch(_) => {
            names.extend(["lane", if gathers { "calls" } else { "1u" }].map(str::to_owned));
        }
    }
    let types = handler.given().iter().map(|(_, ty)| ty);
    for (index, (ty, layout)) in types.zip(&handler.parameters).enumerate() {
        let name = format!("tombolo_a{index}");
        let _ = writeln!(loads, "var {name}: {};", spelled(ty));
        let mut words = Vec::new();
        leaves(layout, &name, 0, &mut words)?;
        for leaf in &words {
            let Leaf { path, word: at, .. } = leaf;
            let load = match together && !gathers {
                true => format!("call[{}]", word + at + 5),
                false => access.load(word + at),
            };
            let _ = writeln!(loads, "{path} = {};", leaf.value_of(&load));
        }
        word += layout.size.div_ceil(4) as usize;
        names.push(name);
    }
    let call = format!("{}({})", signature.name, names.join(", "));
    let mut stores = String::new();
    if let Some(layout) = &handler.result {
        let mut words = Vec::new();
        leaves(layout, "tombolo_r", 0, &mut words)?;
        let mut next = 0;
        let mut pad = |until: usize, stores: &mut String| {
            for gap in (next..until).filter(|_| access.pads()) {
                let _ = writeln!(stores, "{}", access.store(gap, "0u"));
            }
            next = until + 1;
        };
        for leaf in &words {
            pad(leaf.word, &mut stores);
            let _ = writeln!(stores, "{}", access.store(leaf.word, &leaf.word_of()));
        }
        pad(layout.size.div_ceil(4) as usize, &mut stores);
    }
    let call = match handler.result {
        Some(_) => format!("let tombolo_r = {call};"),
        None => format!("{call};"),
    };
    let body = match (together, handler.form.is_cooperative()) {
        (true, true) if gathers => format!("{loads}{call}\nif lane < calls {{\n{stores}}}\n"),
        (true, true) => format!("{loads}{call}\nif lane == 0u {{\n{stores}}}\n"),
        (true, false) => format!("if lane == 0u {{\n{loads}{call}\n{stores}}}\n"),
        (false, _) => format!("{loads}{call}\n{stores}"),
    };
    Ok(format!(
        "case {}u: {{ if length == {}u {{\n{body}status = {}u;\n}} else {{ status = {}u; }} }}\n",
        handler.opcode(),
        handler.argument_words(),
        CallStatus::Done.code(),
        CallStatus::Malformed.code(),
    ))
}
