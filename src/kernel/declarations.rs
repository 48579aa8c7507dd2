//! The declarations at module scope: begin and end, name, and mentions of other declarations. Found on tokens, because
//! some facts must be known before naga can parse the text at all.
//!
//! The scan accepts every text. The scan skips unknown syntax; naga then reports the fault. Names are resolved with the
//! shadowing of WGSL; where the scan is unsure a name counts as the declaration at module scope, which at worst keeps a
//! declaration without use.

use std::collections::HashMap;
use std::ops::Range;

use super::token::TokenStream;

/// The kind of a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeclarationKind {
    Function,
    Struct,
    Alias,
    Const,
    Override,
    /// A variable in work-group memory.
    Workgroup,
    /// A variable in private memory.
    Private,
    /// A variable elsewhere: storage, uniform, handles.
    Resource,
    Assertion,
    /// `enable`, `requires`, `diagnostic`.
    Directive,
}

/// An attribute with its arguments, in tokens.
#[derive(Clone, Debug)]
pub(crate) struct Attribute<'a> {
    pub name: &'a str,
    /// From `@` to the closing parenthesis.
    pub tokens: Range<usize>,
    /// Between the parentheses; empty if there are none.
    pub arguments: Range<usize>,
}

/// A declaration, in tokens: the raw material of [`Declaration`].
#[derive(Clone, Debug)]
pub(crate) struct Head<'a> {
    pub kind: DeclarationKind,
    pub attributes: Vec<Attribute<'a>>,
    /// Token of the keyword.
    pub keyword: usize,
    /// Token of the name; none for assertions and directives.
    pub name: Option<usize>,
    /// All tokens, from the first attribute to the closing `;` or `}`.
    pub tokens: Range<usize>,
}

/// The memory in which a mentioned type will be used, as far as the mention shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Context {
    /// Memory outside the work-group's, or a place where only arrays of fixed size are allowed.
    Plain,
    /// Work-group memory, where WGSL itself lets an `override` size an array.
    Workgroup,
    /// The template of the alias around.
    Inherited,
}

/// A mention of one declaration by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reference {
    /// Index of the declaration mentioned.
    pub target: usize,
    pub context: Context,
}

/// A declaration at module scope, in bytes of the text.
#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    pub kind: DeclarationKind,
    /// Empty for assertions and directives.
    pub name: String,
    /// From the first attribute to the closing `;` or `}`.
    pub span: Range<usize>,
    /// Tokens inside.
    pub tokens: usize,
    /// The keyword alone.
    pub keyword: Range<usize>,
    /// The name alone.
    pub name_span: Range<usize>,
    pub references: Vec<Reference>,
    /// For functions: the declarations that the result type mentions.
    pub result: Vec<usize>,
    /// For functions with `@compute`: the known part of the work-group size.
    pub entry: Option<EntryPoint>,
    /// Whether an override has an initializer.
    pub initialized: bool,
}

/// A compute entry point.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntryPoint {
    /// The declaration that alone gives the work-group size in x, with y and z absent or 1.
    pub linear_size: Option<usize>,
}

/// Finds the declarations of a text.
pub(crate) fn heads<'a>(stream: &TokenStream<'a>) -> Vec<Head<'a>> {
    let mut heads = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        let start = at;
        let attributes = attributes(stream, &mut at);
        let keyword = at;
        let Some(kind) = kind_of(stream, keyword) else {
            at = start.max(keyword) + 1;
            continue;
        };
        let end = match kind {
            DeclarationKind::Function | DeclarationKind::Struct => block_end(stream, keyword),
            _ => stream.semicolon(keyword) + 1,
        }
        .min(stream.len());
        let name = match kind {
            DeclarationKind::Assertion | DeclarationKind::Directive => None,
            _ => Some(name_after(stream, keyword)).filter(|&n| n < end && stream.is_identifier(n)),
        };
        heads.push(Head {
            kind,
            attributes,
            keyword,
            name,
            tokens: start..end,
        });
        at = end;
    }
    heads
}

/// Reads the attributes at `at`, and moves `at` behind them.
pub(crate) fn attributes<'a>(stream: &TokenStream<'a>, at: &mut usize) -> Vec<Attribute<'a>> {
    let mut found = Vec::new();
    while stream.text(*at) == "@" && stream.is_identifier(*at + 1) {
        let start = *at;
        let name = stream.text(start + 1);
        *at = start + 2;
        let mut arguments = *at..*at;
        if stream.text(*at) == "(" {
            let close = stream.partner(*at).unwrap_or(*at);
            arguments = (*at + 1).min(close)..close;
            *at = close + 1;
        }
        found.push(Attribute {
            name,
            tokens: start..*at,
            arguments,
        });
    }
    found
}

fn kind_of(stream: &TokenStream<'_>, keyword: usize) -> Option<DeclarationKind> {
    Some(match stream.text(keyword) {
        "fn" => DeclarationKind::Function,
        "struct" => DeclarationKind::Struct,
        "alias" => DeclarationKind::Alias,
        "const" => DeclarationKind::Const,
        "override" => DeclarationKind::Override,
        "const_assert" => DeclarationKind::Assertion,
        "enable" | "requires" | "diagnostic" => DeclarationKind::Directive,
        "var" if stream.text(keyword + 1) == "<" => match stream.text(keyword + 2) {
            "workgroup" => DeclarationKind::Workgroup,
            "private" => DeclarationKind::Private,
            _ => DeclarationKind::Resource,
        },
        "var" => DeclarationKind::Resource,
        _ => return None,
    })
}

/// The token naming the declaration: the next token, or for `var<…>` the token behind the template.
pub(crate) fn name_after(stream: &TokenStream<'_>, keyword: usize) -> usize {
    match stream.text(keyword + 1) {
        "<" => stream
            .partner(keyword + 1)
            .map_or(keyword + 1, |close| close + 1),
        _ => keyword + 1,
    }
}

/// The position behind the `}` closing the first block after `at`, or behind a `;` before any block.
fn block_end(stream: &TokenStream<'_>, at: usize) -> usize {
    let mut at = at;
    while at < stream.len() {
        match stream.text(at) {
            ";" => return at + 1,
            "{" => return stream.partner(at).map_or(stream.len(), |close| close + 1),
            "(" | "[" => at = stream.partner(at).unwrap_or(at),
            _ => {}
        }
        at += 1;
    }
    at
}

/// Names at module scope. Of two declarations with one name the first counts; naga reports the second.
pub(crate) fn names<'a>(stream: &TokenStream<'a>, heads: &[Head<'a>]) -> HashMap<&'a str, usize> {
    let mut names = HashMap::with_capacity(heads.len());
    for (index, head) in heads.iter().enumerate() {
        if let Some(name) = head.name {
            names.entry(stream.text(name)).or_insert(index);
        }
    }
    names
}

/// The compute entry point declared by `head`, if any.
pub(crate) fn entry_point(
    stream: &TokenStream<'_>,
    head: &Head<'_>,
    names: &HashMap<&str, usize>,
) -> Option<EntryPoint> {
    if head.kind != DeclarationKind::Function
        || !head.attributes.iter().any(|a| a.name == "compute")
    {
        return None;
    }
    let size = head.attributes.iter().find(|a| a.name == "workgroup_size");
    let linear_size = size.and_then(|attribute| {
        let texts = attribute
            .arguments
            .clone()
            .map(|i| stream.text(i))
            .collect::<Vec<_>>();
        let (x, rest) = texts.split_first()?;
        let rest_is_one = rest.iter().all(|t| matches!(*t, "," | "1" | "1u" | "1i"));
        rest_is_one.then(|| names.get(x).copied()).flatten()
    });
    Some(EntryPoint { linear_size })
}
