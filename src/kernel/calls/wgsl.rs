//! The WGSL of functions of the host: the calls of a program, the layout of types in the words of a port, and the text
//! to append.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use naga::valid::Capabilities;

use super::constants::{STATUSES, constants, mixed};
use super::forms::{Form, Mention, PLACES, TYPE_ENDINGS, WAIT};
use super::leaves::{LeafScalar, leaves, loads_of, words_of};
use super::prelude::{declares, needed};
use super::{CallDeclaration, CallSet};
use crate::device::call_words::PREFIX;
use crate::kernel::LayoutDifference;
use crate::kernel::host_layout::difference;
use crate::kernel::layout::{Shape, TypeLayout};
use crate::kernel::token::TokenStream;
use crate::template::Template;

const COMMON: &str = include_str!("../../../shaders/rpc.wgsl");
const SUBGROUPS: &str = include_str!("../../../shaders/rpc_subgroup.wgsl");
const GROUPS: &str = include_str!("../../../shaders/rpc_group.wgsl");
const STREAMS: &str = include_str!("../../../shaders/rpc_stream.wgsl");

/// One load of the walk by which a caller lets time go by, and how many there are in a turn. Not in a loop: the turns of
/// loops are what it saves. Nor more of them: each is a loop in what lavapipe compiles, and a kernel with ten calls took
/// half a minute to compile with twice as many. The places are those of a linear congruential generator (Numerical
/// Recipes, 2nd edition, section 7.1), whose upper bits are the random ones.
const LOAD: &str = "
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_backoff[(walk >> shift) << 4u]);";
const LOADS: usize = 32;

/// The structure whose members are the parameters and the result of a function, for naga to lay out.
const TYPES: &str = "tombolo_call_types_";
const RESULT: &str = "tombolo_result";

/// The text appended to a program for its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallAppendix {
    /// The text, to stand behind the user's.
    pub text: String,
    /// Bytes of `text`, and the user's bytes that caused them.
    pub origins: Vec<(Range<usize>, Range<usize>)>,
    /// The called functions, in the order of their numbers in a kernel's report.
    pub called: CallSet,
    /// The functions handing over scalars that not every device has.
    wide: Vec<WideCall>,
}

/// A function with scalars that not every device has, and the values with the scalars.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WideCall {
    signature: String,
    values: Vec<(String, TypeLayout)>,
}

/// Why a function cannot be called.
pub(crate) struct Fault {
    pub function: String,
    pub why: FaultKind,
}

pub(crate) enum FaultKind {
    /// In words.
    Words(String),
    /// A value that is another structure in Rust.
    Layout(String, Box<LayoutDifference>),
}

/// A value in messages.
fn value_text(name: &str) -> String {
    match name {
        RESULT => "the result".to_owned(),
        name => format!("`{name}`"),
    }
}

/// The first value of a function that is another structure in Rust, where Rust's layout is known.
fn other_structure(
    program: &str,
    declaration: &CallDeclaration,
    types: &[(String, TypeLayout)],
) -> Option<FaultKind> {
    let layouts = &declaration.layouts.0;
    let result = layouts.last().copied().flatten();
    let arguments = layouts.iter().copied().take(declaration.arguments.len());
    types
        .iter()
        .zip(arguments.chain([result]))
        .find_map(|((name, wgsl), rust)| {
            let difference = difference(program, &rust?, wgsl)?;
            Some(FaultKind::Layout(value_text(name), difference))
        })
}

/// The functions of `calls` that `source` calls.
fn mentions<'a>(stream: &TokenStream<'_>, calls: &'a CallSet) -> Vec<Mention<'a>> {
    let mut found: BTreeMap<&str, Mention<'a>> = BTreeMap::new();
    for at in 0..stream.len() {
        let name = stream.text(at);
        let before = if at == 0 { "" } else { stream.text(at - 1) };
        if before == "." {
            continue;
        }
        let base = calls.0.iter().find_map(|declaration| {
            let form = Form::of(declaration, name)?;
            Some((declaration, form))
        });
        let Some((declaration, form)) = base else {
            continue;
        };
        if stream.text(at + 1) != "(" && !TYPE_ENDINGS.iter().any(|end| name.ends_with(end)) {
            continue;
        }
        let mention = found
            .entry(&declaration.signature.name)
            .or_insert_with(|| Mention {
                declaration,
                at: stream.span(at..at + 1),
                forms: BTreeSet::new(),
            });
        mention.forms.insert(form);
    }
    found.into_values().collect()
}

/// A type with `usm_ptr` written out, for use in every program.
pub(crate) fn spelled(ty: &str) -> String {
    let stream = TokenStream::new(ty);
    let tokens = (0..stream.len()).map(|at| match stream.text(at) {
        "usm_ptr" => "vec2<u32>",
        other => other,
    });
    tokens.collect::<Vec<_>>().join(" ")
}

/// The types of the mentioned functions, as structures behind the types of the program.
fn type_text(mentions: &[Mention<'_>]) -> String {
    let mut text = String::from("\n");
    for mention in mentions {
        let signature = &mention.declaration.signature;
        let mut members: Vec<String> = (signature.parameters.iter())
            .map(|(name, ty)| format!("{name}: {}", spelled(ty)))
            .collect();
        if let Some(result) = &signature.result {
            members.push(format!("{RESULT}: {}", spelled(result)));
        }
        if !members.is_empty() {
            let _ = writeln!(
                text,
                "struct {TYPES}{} {{ {} }}",
                signature.name,
                members.join(", ")
            );
        }
    }
    text
}

/// The lines for storing the arguments, and for loading the result.
pub(super) fn transfers(
    declaration: &CallDeclaration,
    types: &[(String, TypeLayout)],
) -> Result<(String, String), String> {
    let (mut stores, mut loads) = (String::new(), String::new());
    let mut word = 4;
    let check = |what: &str, layout: &TypeLayout, rust: usize| {
        let wgsl = layout.size as usize;
        if wgsl == rust {
            return Ok(());
        }
        Err(format!(
            "{what} is a `{}` of {wgsl} bytes, and has {rust} in Rust",
            layout.wgsl
        ))
    };
    for ((name, layout), &bytes) in types.iter().zip(&declaration.arguments) {
        check(&format!("`{name}`"), layout, bytes)?;
        let mut scalars = Vec::new();
        leaves(layout, &format!("{name}_"), 0, &mut scalars)?;
        // Padding is zero, so the host's words depend on the arguments alone.
        let mut next = 0;
        let mut zero = |until: usize, stores: &mut String| {
            for gap in next..until {
                let _ = writeln!(
                    stores,
                    "sum += tombolo_call_store(arguments + {}u, 0u);",
                    word + gap
                );
            }
            next = until + 1;
        };
        for (at, bits) in words_of(&scalars) {
            zero(at, &mut stores);
            let _ = writeln!(
                stores,
                "sum += tombolo_call_store(arguments + {}u, {bits});",
                word + at
            );
        }
        zero(bytes.div_ceil(4), &mut stores);
        word += bytes.div_ceil(4);
    }
    if let Some((_, layout)) = types.iter().find(|(name, _)| name == RESULT) {
        check("the result", layout, declaration.result)?;
        let mut scalars = Vec::new();
        leaves(layout, "reply.value", 0, &mut scalars)?;
        let load =
            |word: usize| format!("atomicLoad(&tombolo_calls[results + {}u])", word + PREFIX);
        loads = loads_of(&scalars, load);
    }
    Ok((stores, loads))
}

/// The layouts of arguments and results of each function, by their names.
fn layouts_of(
    mentions: &[Mention<'_>],
    prelude: &str,
    parse: impl Fn(&str) -> Result<naga::Module, String>,
) -> Result<Vec<Vec<(String, TypeLayout)>>, Fault> {
    // Each by itself, so a type missing in the program is reported with its function.
    let mut layouts = Vec::new();
    for mention in mentions {
        let signature = &mention.declaration.signature;
        let fault = |why: String| Fault {
            function: signature.text(),
            why: FaultKind::Words(why),
        };
        let types = format!("\n{prelude}{}", type_text(std::slice::from_ref(mention)));
        let module = parse(&types).map_err(fault)?;
        let name = format!("{TYPES}{}", signature.name);
        let found = module
            .types
            .iter()
            .find(|(_, ty)| ty.name.as_deref() == Some(&name));
        let members = match found.map(|(handle, _)| TypeLayout::of(&module, handle).shape) {
            Some(Shape::Struct { members }) => members,
            _ => Vec::new(),
        };
        layouts.push(
            members
                .into_iter()
                .map(|member| (member.name, member.layout))
                .collect::<Vec<_>>(),
        );
    }
    Ok(layouts)
}

/// The text to append to `source` for calls of functions of `calls`; `None` without calls. `parse` reads the program's
/// types with a text appended.
pub(crate) fn appendix(
    program: &str,
    source: &str,
    calls: &CallSet,
    parse: impl Fn(&str) -> Result<naga::Module, String>,
) -> Result<Option<CallAppendix>, Fault> {
    let stream = TokenStream::new(source);
    let mut mentions = mentions(&stream, calls);
    mentions.retain(|mention| {
        let name = &mention.declaration.signature.name;
        !(0..stream.len()).any(|at| stream.text(at) == "fn" && stream.text(at + 1) == name)
    });
    if mentions.is_empty() {
        return Ok(None);
    }
    let signatures = mentions.iter().map(|m| &m.declaration.signature);
    let prelude = needed(&stream, signatures);
    let layouts = layouts_of(&mentions, &prelude, parse)?;
    let mut appendix = CallAppendix {
        text: "\n".to_owned(),
        origins: Vec::new(),
        called: CallSet(
            mentions
                .iter()
                .map(|mention| Arc::clone(mention.declaration))
                .collect(),
        ),
        wide: Vec::new(),
    };
    let origin = mentions.first().map_or(0..0, |mention| mention.at.clone());
    // Without a function: naga's order of functions is not that of the text, and bodies are put in afterwards.
    let [mixed_word, of_word] = mixed("at", "word");
    let [mixed_request, of_request] = mixed("outbox", "request");
    let common = (Template::new(COMMON).set("walk", LOAD.repeat(LOADS)))
        .set("constants", constants())
        .set("places", PLACES.trim_end())
        .set("mixed_word", mixed_word)
        .set("of_word", of_word)
        .set("mixed_request", mixed_request)
        .set("of_request", of_request);
    appendix.add(&common.fill(), origin.clone());
    appendix.add(&prelude, origin.clone());
    for (name, status) in STATUSES {
        let name = format!("CALL_{name}");
        if !declares(&stream, &name) {
            let text = format!("const {name} = {}u;", status.code());
            appendix.add(&text, origin.clone());
        }
    }
    if mentions.iter().any(|mention| mention.declaration.stream) {
        let streams = Template::new(STREAMS)
            .set("wait", WAIT)
            .set("places", PLACES.trim_end())
            .fill();
        appendix.add(&streams, origin.clone());
    }
    if mentions.iter().any(Mention::is_alone) {
        appendix.add(SUBGROUPS, origin.clone());
    }
    if mentions.iter().any(Mention::is_group) {
        appendix.add(GROUPS, origin.clone());
    }
    if mentions.iter().any(Mention::is_plain) {
        let words = crate::kernel::passes::status::WORDS;
        let text = format!("var<storage, read_write> tombolo_status: array<atomic<u32>, {words}>;");
        appendix.add(&text, origin);
    }
    for (index, (mention, types)) in mentions.iter().zip(&layouts).enumerate() {
        let fault = |why: FaultKind| Fault {
            function: mention.declaration.signature.text(),
            why,
        };
        if let Some(why) = other_structure(program, mention.declaration, types) {
            return Err(fault(why));
        }
        let text = mention.text(index + 1, types);
        let text = text.map_err(|why| fault(FaultKind::Words(why)))?;
        appendix.add(&text, mention.at.clone());
        appendix.wide.extend(wide_call(mention, types));
    }
    Ok(Some(appendix))
}

/// The arguments and results that some devices lack, if the function has any.
fn wide_call(mention: &Mention<'_>, types: &[(String, TypeLayout)]) -> Option<WideCall> {
    let none = Capabilities::empty();
    let is_wide =
        |(name, layout): &&(String, TypeLayout)| LeafScalar::refusal(name, layout, none).is_some();
    let values: Vec<_> = types.iter().filter(is_wide).cloned().collect();
    (!values.is_empty()).then(|| WideCall {
        signature: mention.declaration.signature.text(),
        values,
    })
}

impl CallAppendix {
    /// A function that a device with these capabilities cannot call, and why, if there is such a function.
    pub fn refusal(&self, capabilities: Capabilities) -> Option<(String, String)> {
        self.wide.iter().find_map(|call| {
            let why = call.values.iter().find_map(|(name, layout)| {
                LeafScalar::refusal(&value_text(name), layout, capabilities)
            })?;
            Some((call.signature.clone(), why))
        })
    }

    fn add(&mut self, text: &str, origin: Range<usize>) {
        let start = self.text.len();
        self.text.push_str(text);
        self.text.push('\n');
        self.origins.push((start..self.text.len(), origin));
    }
}

#[cfg(test)]
mod tests;
