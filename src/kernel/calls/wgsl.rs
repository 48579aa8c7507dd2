//! The WGSL of functions of the host: the calls of a program, the layout of types in the words of a port, and the text
//! to append.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use super::constants::{STATUSES, constants, mixed};
use super::forms::{Form, Mention, PLACES, TYPE_ENDINGS, WAIT};
use super::prelude::{declares, needed};
use super::{CallDeclaration, CallSet};
use crate::device::call_words::PREFIX;
use crate::kernel::layout::{Shape, TypeLayout};
use crate::kernel::template::Template;
use crate::kernel::token::TokenStream;

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

/// The most words of a function's arguments or result: each is a line of the kernel.
const MOST_WORDS: usize = 1024;

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
}

/// Why a function cannot be called.
pub(crate) struct Fault {
    pub function: String,
    pub why: String,
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

/// A 32-bit word of a value: path, offset, and type.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub path: String,
    pub word: usize,
    pub scalar: &'static str,
}

impl Leaf {
    /// The value as a word.
    pub fn word_of(&self) -> String {
        match self.scalar {
            "u32" => self.path.clone(),
            _ => format!("bitcast<u32>({})", self.path),
        }
    }

    /// The meaning of `word` as such a value.
    pub fn value_of(&self, word: &str) -> String {
        match self.scalar {
            "u32" => word.to_owned(),
            scalar => format!("bitcast<{scalar}>({word})"),
        }
    }
}

/// The words of a value, or why there are none.
pub(crate) fn leaves(
    layout: &TypeLayout,
    path: &str,
    offset: usize,
    found: &mut Vec<Leaf>,
) -> Result<(), String> {
    if found.len() > MOST_WORDS {
        return Err(format!(
            "a `{}` is too long: pass a pointer to it",
            layout.wgsl
        ));
    }
    let mut push = |path: String, bytes: usize, scalar| {
        found.push(Leaf {
            path,
            word: bytes / 4,
            scalar,
        });
    };
    match &layout.shape {
        Shape::Plain => {
            let Some(scalar) = layout.word() else {
                return Err(format!(
                    "`{}` cannot be handed over: use u32, i32 or f32",
                    layout.wgsl
                ));
            };
            match layout.size {
                4 => push(path.to_owned(), offset, scalar),
                size => {
                    for (lane, name) in (0..size as usize / 4).zip(["x", "y", "z", "w"]) {
                        push(format!("{path}.{name}"), offset + 4 * lane, scalar);
                    }
                }
            }
        }
        Shape::Matrix {
            columns,
            stride,
            column_bytes,
        } => {
            let Some(scalar) = layout.word() else {
                return Err(format!("`{}` cannot be handed over: use f32", layout.wgsl));
            };
            for column in 0..*columns as usize {
                for (lane, name) in (0..*column_bytes as usize / 4).zip(["x", "y", "z", "w"]) {
                    push(
                        format!("{path}[{column}].{name}"),
                        offset + column * *stride as usize + 4 * lane,
                        scalar,
                    );
                }
            }
        }
        Shape::Array {
            element,
            stride,
            count: Some(count),
        } => {
            for index in 0..*count as usize {
                leaves(
                    element,
                    &format!("{path}[{index}]"),
                    offset + index * *stride as usize,
                    found,
                )?;
            }
        }
        Shape::Struct { members } => {
            for member in members {
                let path = format!("{path}.{}", member.name);
                leaves(
                    &member.layout,
                    &path,
                    offset + member.offset as usize,
                    found,
                )?;
            }
        }
        Shape::Array { count: None, .. } | Shape::Opaque => {
            return Err(format!(
                "`{}` cannot be handed over: pass a pointer",
                layout.wgsl
            ));
        }
    }
    Ok(())
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
        let mut words = Vec::new();
        leaves(layout, &format!("{name}_"), 0, &mut words)?;
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
        for leaf in &words {
            zero(leaf.word, &mut stores);
            let _ = writeln!(
                stores,
                "sum += tombolo_call_store(arguments + {}u, {});",
                word + leaf.word,
                leaf.word_of()
            );
        }
        zero(bytes.div_ceil(4), &mut stores);
        word += bytes.div_ceil(4);
    }
    if let Some((_, layout)) = types.iter().find(|(name, _)| name == RESULT) {
        check("the result", layout, declaration.result)?;
        let mut words = Vec::new();
        leaves(layout, "reply.value", 0, &mut words)?;
        for leaf in &words {
            let word = format!(
                "atomicLoad(&tombolo_calls[results + {}u])",
                leaf.word + PREFIX
            );
            let _ = writeln!(loads, "{} = {};", leaf.path, leaf.value_of(&word));
        }
    }
    Ok((stores, loads))
}

/// The text to append to `source` for calls of functions of `calls`; `None` without calls. `parse` reads the program's
/// types with a text appended.
pub(crate) fn appendix(
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
    // Each by itself, so a type missing in the program is reported with its function.
    let mut layouts = Vec::new();
    for mention in &mentions {
        let signature = &mention.declaration.signature;
        let fault = |why: String| Fault {
            function: signature.text(),
            why,
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
    let mut appendix = CallAppendix {
        text: "\n".to_owned(),
        origins: Vec::new(),
        called: CallSet(
            mentions
                .iter()
                .map(|mention| Arc::clone(mention.declaration))
                .collect(),
        ),
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
        let text = mention.text(index + 1, types).map_err(|why| Fault {
            function: mention.declaration.signature.text(),
            why,
        })?;
        appendix.add(&text, mention.at.clone());
    }
    Ok(Some(appendix))
}

impl CallAppendix {
    fn add(&mut self, text: &str, origin: Range<usize>) {
        let start = self.text.len();
        self.text.push_str(text);
        self.text.push('\n');
        self.origins.push((start..self.text.len(), origin));
    }
}

#[cfg(test)]
mod tests;
