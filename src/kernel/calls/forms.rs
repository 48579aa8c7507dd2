//! The WGSL functions for a function of the host, by the forms of calls in a program: written from
//! `shaders/rpc_call.wgsl`, `rpc_packed_of.wgsl`, `rpc_group_of.wgsl`, `rpc_ticket.wgsl` and `rpc_stream_of.wgsl`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::wgsl::{spelled, transfers};
use super::{ALONE, CallDeclaration, GROUP};
use crate::kernel::layout::TypeLayout;
use crate::template::Template;

pub(super) const CALL: &str = include_str!("../../../shaders/rpc_call.wgsl");
pub(super) const PLACES: &str = include_str!("../../../shaders/rpc_places.wgsl");
pub(super) const WAIT: &str = include_str!("../../../shaders/rpc_wait.wgsl");
const PACKED_CALL: &str = include_str!("../../../shaders/rpc_packed_of.wgsl");
const GROUP_CALL: &str = include_str!("../../../shaders/rpc_group_of.wgsl");
const TICKET: &str = include_str!("../../../shaders/rpc_ticket.wgsl");
const STREAM: &str = include_str!("../../../shaders/rpc_stream_of.wgsl");

/// All of them.
#[cfg(test)]
pub(super) const TEXTS: [&str; 7] = [CALL, PLACES, WAIT, PACKED_CALL, GROUP_CALL, TICKET, STREAM];

/// How a program calls a function `f`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// `f`: waits, and fails the launch where there is no result.
    ///
    /// Needs: live memory: the answer comes while the launch runs (`LaunchError::NeedsLiveMemory` elsewhere).
    Plain,
    /// `f_try`: waits, and returns the outcome of the call.
    ///
    /// Needs: live memory.
    Attempt,
    /// `f_post`: does not wait; the result is dropped.
    ///
    /// Needs: nothing: without live memory the call is served behind the launch.
    Post,
    /// `f_group`: the work-group waits together, and the launch fails where there is no result.
    ///
    /// Needs: live memory, and that all invocations of the work-group come to the call.
    Group,
    /// `f_group_try`: the work-group waits together, and each invocation is told the outcome of its call.
    ///
    /// Needs: live memory, and that all invocations of the work-group come to the call.
    GroupAttempt,
    /// `f_begin`, `f_collect` and `f_leave`: does not wait; the result is asked for later.
    ///
    /// Needs: a port until the call is collected or left; no live memory: without, a later launch collects.
    Split,
    /// `f_open`, `f_put`, `f_get` and `f_close`: a stream of words in both directions.
    ///
    /// Needs: live memory, and a port until the stream is closed.
    Stream,
}

/// The endings of names for calls, and for streams.
const CALL_ENDINGS: [(&str, Form); 9] = [
    ("", Form::Plain),
    ("_try", Form::Attempt),
    ("_post", Form::Post),
    ("_group", Form::Group),
    ("_group_try", Form::GroupAttempt),
    ("_begin", Form::Split),
    ("_collect", Form::Split),
    ("_leave", Form::Split),
    ("_reply", Form::Attempt),
];
const STREAM_ENDINGS: [(&str, Form); 6] = [
    ("_open", Form::Stream),
    ("_put", Form::Stream),
    ("_get", Form::Stream),
    ("_close", Form::Stream),
    ("_stream", Form::Stream),
    ("_reply", Form::Stream),
];
/// Endings that name types, which are not called.
pub(super) const TYPE_ENDINGS: [&str; 2] = ["_reply", "_stream"];

impl Form {
    /// The form that `name` is of a function `base`.
    pub(super) fn of(declaration: &CallDeclaration, name: &str) -> Option<Self> {
        let ending = name.strip_prefix(declaration.signature.name.as_str())?;
        let endings: &[(&str, Self)] = match declaration.stream {
            true => &STREAM_ENDINGS,
            false => &CALL_ENDINGS,
        };
        let found = endings.iter().find(|(known, _)| *known == ending);
        found.map(|&(_, form)| form)
    }
}

/// A function of the host that a program mentions.
pub(super) struct Mention<'a> {
    pub declaration: &'a Arc<CallDeclaration>,
    /// Bytes of the first mention.
    pub at: Range<usize>,
    pub forms: BTreeSet<Form>,
}

/// The parts of `rpc_call.wgsl` for a form.
struct Parts<'t> {
    head: &'t str,
    reply: &'t str,
    search: &'t str,
    waits: &'t str,
    posted: &'t str,
    results: &'t str,
    release: &'t str,
}

/// A caller waiting for an answer frees the port, so a caller waiting for a port gets one.
const WAIT_BUDGET: &str = "0xffffffffu";
/// Begun calls and streams hold a port until collected or closed, perhaps by the very invocation looking for a port
/// here: the search looks at each port a few times, and not until one is free.
const FEW_LOOKS: &str = "2u * ports + 22u";
/// The replacement of waiting in forms without waiting: the port is given back, and is free once the call is served.
const LEAVE: &str = "
        if held {
            tombolo_call_fence();
            atomicStore(&tombolo_calls[locks + port], 0u);
            reply.status = tombolo_status_done;
            held = false;
            over = true;
        }
        if !over && look >= backoff_after {
            // All ports are taken until the server comes round, and turns may be rationed.
            tombolo_call_backoff(step);
            step += 1u;
            look += tombolo_call_walked();
        }";
/// The same for a call collected later: the port is kept, with its ticket inside.
const BEGUN: &str = "
        if held {
            reply.ticket = ((request & 0x7fffu) << 17u) | (port << 1u) | 1u;
            atomicStore(&tombolo_calls[arguments + 2u], reply.ticket);
            reply.status = tombolo_status_done;
            held = false;
            over = true;
        }";
const WAITS: &str = "tombolo_call_waits = 1u;";
/// A caller giving up leaves the call to the server: the port is free after the answer.
const RELEASE: &str = "atomicStore(&tombolo_calls[locks + port], 0u);";

impl Mention<'_> {
    fn has(&self, form: Form) -> bool {
        self.forms.contains(&form)
    }

    /// Whether the program reports a failed call.
    pub(super) fn is_plain(&self) -> bool {
        self.has(Form::Plain) || self.has(Form::Group)
    }

    /// Whether an invocation calls and waits for itself.
    pub(super) fn is_alone(&self) -> bool {
        self.has(Form::Plain) || self.has(Form::Attempt)
    }

    /// Whether work-groups call the function jointly.
    pub(super) fn is_group(&self) -> bool {
        self.has(Form::Group) || self.has(Form::GroupAttempt)
    }

    /// The functions called of this declaration, `number` in the order of the program's.
    pub(super) fn text(
        &self,
        number: usize,
        types: &[(String, TypeLayout)],
    ) -> Result<String, String> {
        let forms = Forms::new(self.declaration, types)?;
        let mut text = forms.reply_type();
        if self.is_alone() {
            text.push_str(&forms.attempt());
        }
        if self.is_group() {
            text.push_str(&forms.group_attempt());
        }
        if self.has(Form::Plain) {
            text.push_str(&forms.plain("", &forms.parameters, &forms.names, number));
        }
        if self.has(Form::Group) {
            let (parameters, names) = forms.with_taking_part();
            text.push_str(&forms.plain("_group", &parameters, &names, number));
        }
        if self.has(Form::Post) {
            text.push_str(&forms.deferred(&POST));
        }
        if self.has(Form::Split) {
            text.push_str(&forms.deferred(&BEGIN));
            text.push_str(&forms.filled(TICKET));
        }
        if self.has(Form::Stream) {
            text.push_str(&forms.filled(STREAM));
            text.push_str(&forms.open_stream());
        }
        Ok(text)
    }
}

/// A form without waiting, with a single word as its answer.
struct Deferred {
    /// The ending of the function's name.
    ending: &'static str,
    /// The members of the reply, and the member with the answer.
    members: &'static str,
    answer: &'static str,
    search: &'static str,
    posted: &'static str,
}

const POST: Deferred = Deferred {
    ending: "post",
    members: "status: u32",
    answer: "status",
    search: WAIT_BUDGET,
    posted: LEAVE,
};
const BEGIN: Deferred = Deferred {
    ending: "begin",
    members: "status: u32, ticket: u32",
    answer: "ticket",
    search: FEW_LOOKS,
    posted: BEGUN,
};

/// The forms of a function of the host, with their common texts.
struct Forms<'d> {
    declaration: &'d CallDeclaration,
    /// The parameters with types, and the names alone.
    parameters: String,
    names: String,
    /// The text storing the arguments, and the text loading the result.
    stores: String,
    loads: String,
}

impl<'d> Forms<'d> {
    fn new(
        declaration: &'d CallDeclaration,
        types: &[(String, TypeLayout)],
    ) -> Result<Self, String> {
        // No variable of the templates ends so.
        let parameters = declaration.signature.parameters.iter();
        let (parameters, names): (Vec<_>, Vec<_>) = parameters
            .map(|(name, ty)| (format!("{name}_: {}", spelled(ty)), format!("{name}_")))
            .unzip();
        let (stores, loads) = transfers(declaration, types)?;
        Ok(Self {
            declaration,
            parameters: parameters.join(", "),
            names: names.join(", "),
            stores,
            loads,
        })
    }

    fn name(&self) -> &str {
        &self.declaration.signature.name
    }

    /// `rpc_call.wgsl` with the parts of a form.
    fn call(&self, parts: Parts<'_>) -> String {
        Template::new(CALL)
            .set("places", PLACES.trim_end())
            .set("head", parts.head)
            .set("reply", parts.reply)
            .set("search", parts.search)
            .set("waits", parts.waits)
            .set("opcode", self.declaration.opcode())
            .set("words", self.declaration.argument_words())
            .set("arguments", &self.stores)
            .set("posted", parts.posted)
            .set("results", parts.results)
            .set("release", parts.release)
            .fill()
    }

    /// A template that needs nothing but the name, the opcode and the result.
    fn filled(&self, template: &str) -> String {
        Template::new(template)
            .set("name", self.name())
            .offer("places", PLACES.trim_end())
            .offer("opcode", self.declaration.opcode())
            .set("results", &self.loads)
            .fill()
    }

    /// The reply type of an awaited call.
    fn reply_type(&self) -> String {
        let value = (self.declaration.signature.result.as_ref())
            .map_or(String::new(), |ty| format!(", value: {}", spelled(ty)));
        format!("struct {}_reply {{ status: u32{value} }}\n", self.name())
    }

    /// `f_try`: in a packet of its own, or in one that the invocations of a subgroup share, as the services say. Where
    /// packets are never shared it gets the body of the first of the two ([`ALONE`]).
    fn attempt(&self) -> String {
        let (name, parameters, names) = (self.name(), &self.parameters, &self.names);
        let mut text = self.call(Parts {
            head: &format!("fn {ALONE}{name}({parameters}) -> {name}_reply"),
            reply: &format!("{name}_reply"),
            search: WAIT_BUDGET,
            waits: WAITS,
            posted: WAIT,
            results: &self.loads,
            release: RELEASE,
        });
        let head = format!("fn tombolo_packed_{name}({parameters}) -> {name}_reply");
        text.push_str(&self.of_many(PACKED_CALL, &head).fill());
        text.push_str(&format!(
            "fn {name}_try({parameters}) -> {name}_reply {{
                    if tombolo_call_packs() {{
                        return tombolo_packed_{name}({names});
                    }}
                    return {ALONE}{name}({names});
                }}\n"
        ));
        text
    }

    /// A template for packets of several calls.
    fn of_many(&self, template: &str, head: &str) -> Template {
        Template::new(template)
            .set("places", PLACES.trim_end())
            .set("head", head)
            .set("reply", format!("{}_reply", self.name()))
            .set("opcode", self.declaration.opcode() ^ GROUP)
            .set("words", self.declaration.argument_words())
            .set("result_words", 1 + self.declaration.result_words())
            .set("arguments", &self.stores)
            .set("results", &self.loads)
    }

    /// The parameters and their names, behind a flag: whether an invocation of a group takes part.
    fn with_taking_part(&self) -> (String, String) {
        match self.names.is_empty() {
            true => ("takes_part: bool".to_owned(), "takes_part".to_owned()),
            false => (
                format!("takes_part: bool, {}", self.parameters),
                format!("takes_part, {}", self.names),
            ),
        }
    }

    /// `f_group_try`.
    fn group_attempt(&self) -> String {
        let (name, (parameters, _)) = (self.name(), self.with_taking_part());
        let head = format!("fn {name}_group_try({parameters}) -> {name}_reply");
        self.of_many(GROUP_CALL, &head).set("posted", WAIT).fill()
    }

    /// `f` or `f_group`, which fail the launch where there is no result.
    fn plain(&self, ending: &str, parameters: &str, names: &str, number: usize) -> String {
        let name = self.name();
        let (arrow, back) = match &self.declaration.signature.result {
            Some(ty) => (format!(" -> {}", spelled(ty)), "return reply.value;"),
            None => (String::new(), ""),
        };
        let word = crate::kernel::passes::status::CALL;
        format!(
            "fn {name}{ending}({parameters}){arrow} {{
                    let reply = {name}{ending}_try({names});
                    if reply.status != tombolo_status_done {{
                        tombolo_call_failed = 1u;
                        atomicMax(&tombolo_status[{word}], (min(reply.status, 0xffffu) << 16u) | {number}u);
                    }}
                    {back}
                }}\n"
        )
    }

    /// `f_post` or `f_begin`.
    fn deferred(&self, form: &Deferred) -> String {
        let Deferred {
            ending,
            members,
            answer,
            search,
            posted,
        } = *form;
        let (name, parameters, names) = (self.name(), &self.parameters, &self.names);
        let reply = format!("tombolo_{ending}_{name}");
        let head = format!("fn tombolo_{ending}_of_{name}({parameters}) -> {reply}");
        let call = self.call(Parts {
            head: &head,
            reply: &reply,
            search,
            waits: "",
            posted,
            results: "",
            release: RELEASE,
        });
        format!(
            "struct {reply} {{ {members} }}\n{call}fn {name}_{ending}({parameters}) -> u32 {{ \
             return tombolo_{ending}_of_{name}({names}).{answer}; }}\n"
        )
    }

    /// `f_open`.
    fn open_stream(&self) -> String {
        let (name, parameters) = (self.name(), &self.parameters);
        let opened = format!(
            "reply.port = port;
                reply.request = request;
                reply.opcode = {}u;
                reply.arguments = first + port * stride;
                reply.results = results;
                reply.room = room;",
            self.declaration.opcode()
        );
        self.call(Parts {
            head: &format!("fn {name}_open({parameters}) -> {name}_stream"),
            reply: &format!("{name}_stream"),
            search: FEW_LOOKS,
            waits: WAITS,
            posted: WAIT,
            results: &opened,
            release: &format!("if reply.status != tombolo_status_done {{ {RELEASE} }}"),
        })
    }
}
