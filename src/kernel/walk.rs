//! A single pass over the tokens of a declaration: mentions of other declarations, spelled-out arrays, declared
//! variables. Shadowing by local declarations is followed.

mod contents;
mod scopes;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use super::declarations::{
    Attribute, Context, DeclarationKind, Head, Reference, attributes, name_after,
};
use super::token::TokenStream;
pub(crate) use contents::{AlignAttribute, ArrayUse, Contents, Variable};
use scopes::{Local, Scopes};

/// Declarations a local constant may depend on: mentions are handed on to the constants mentioning this one, so a chain
/// of constants would cost the square of its length.
pub(crate) const MOST_MENTIONS: usize = 1024;

/// A template list around the current token.
struct Template {
    close: usize,
    /// For `array<E, L>`: its index in the contents, and the first token of the length.
    array: Option<(usize, usize)>,
    workgroup_pointer: bool,
}

struct Walk<'a, 's> {
    stream: &'s TokenStream<'a>,
    names: &'s HashMap<&'a str, usize>,
    head: &'s Head<'a>,
    index: usize,
    contents: Contents,
    /// The entries of `contents.references`.
    known: HashSet<Reference>,
    templates: Vec<Template>,
    scopes: Scopes<'a>,
    /// The position behind the attributes read last.
    attributes_end: usize,
    /// The token of the local name declared last.
    declared: Option<usize>,
    /// A local declaration whose name counts from the given token on.
    pending: Option<(usize, Local<'a>)>,
    /// The variable being declared, and the tokens deciding its type.
    variable: Option<(usize, Range<usize>)>,
    /// The name of the current declaration, up to the given token.
    owner: Option<(Range<usize>, usize)>,
    /// Tokens of a function's result type.
    result: Range<usize>,
}

/// Walks over declaration number `index`.
pub(crate) fn walk<'a>(
    stream: &TokenStream<'a>,
    names: &HashMap<&'a str, usize>,
    head: &Head<'a>,
    index: usize,
) -> Contents {
    let mut walk = Walk {
        stream,
        names,
        head,
        index,
        contents: Contents::default(),
        known: HashSet::new(),
        templates: Vec::new(),
        scopes: Scopes::default(),
        attributes_end: 0,
        declared: None,
        pending: None,
        variable: None,
        owner: None,
        result: 0..0,
    };
    walk.run();
    walk.contents
}

impl<'a> Walk<'a, '_> {
    fn run(&mut self) {
        let stream = self.stream;
        let function = self.head.kind == DeclarationKind::Function;
        let body = match function {
            true => self.header(),
            false => self.head.tokens.end,
        };
        if let (false, Some(name)) = (function, self.head.name) {
            if self.head.kind == DeclarationKind::Private {
                let align = self
                    .head
                    .attributes
                    .iter()
                    .find(|a| a.name == "align")
                    .map(|a| self.align(a));
                self.declare_variable(name, align, true);
            }
            self.owner = Some((stream.span(name..name + 1), self.head.tokens.end));
        }
        let mut at = self.head.tokens.start;
        while at < self.head.tokens.end {
            self.close_templates(at);
            let in_body = function && at > body;
            match stream.text(at) {
                // The first attribute of a row shows the kind of the declaration behind the row.
                "@" if at >= self.attributes_end => {
                    let mut behind = at;
                    let found = attributes(stream, &mut behind);
                    self.attributes_end = behind;
                    if in_body && stream.text(behind) == "var" {
                        self.local_variable(behind, found.iter().find(|a| a.name == "align"));
                        at = behind + 1;
                        continue;
                    }
                    at += 1; // the attribute's name is no reference, its arguments are
                }
                "@" => at += 1,
                "{" => self.scopes.begin(),
                "}" => self.scopes.end(),
                "<" => self.open_template(at),
                "var" if in_body && stream.text(at.wrapping_sub(1)) != "(" => {
                    self.local_variable(at, None)
                }
                "let" | "const" if in_body && stream.text(at.wrapping_sub(1)) != "(" => {
                    self.local_constant(at)
                }
                _ if stream.is_identifier(at) => self.identifier(at, in_body),
                _ => {}
            }
            if self.pending.as_ref().is_some_and(|(from, _)| *from <= at)
                && let Some((_, local)) = self.pending.take()
                && let Some(innermost) = self.scopes.innermost()
            {
                self.scopes.declare(innermost, local);
            }
            at += 1;
        }
        self.close_templates(self.head.tokens.end);
    }

    /// Finds the result type and the body of a function: the token of its `{`.
    fn header(&mut self) -> usize {
        let stream = self.stream;
        let open = self.head.name.map_or(self.head.keyword, |n| n + 1);
        let close = stream.partner(open).unwrap_or(open);
        let body = (close..self.head.tokens.end)
            .find(|&i| stream.text(i) == "{")
            .unwrap_or(self.head.tokens.end);
        self.result = close..body;
        body
    }

    fn close_templates(&mut self, at: usize) {
        while self.templates.last().is_some_and(|t| t.close <= at) {
            self.templates.pop();
        }
        if self.owner.as_ref().is_some_and(|(_, end)| *end <= at) {
            self.owner = None;
        }
        if let Some((index, range)) = &self.variable
            && range.end <= at
        {
            let arrays = self.contents.arrays.len();
            if let Some(variable) = self.contents.variables.get_mut(*index) {
                variable.arrays.end = arrays;
            }
            self.variable = None;
        }
    }

    /// The context of a type mentioned at the current token.
    fn context(&self) -> Context {
        if self.templates.iter().any(|t| t.array.is_some()) {
            return Context::Plain;
        }
        match (self.templates.last(), self.head.kind) {
            (Some(template), _) if template.workgroup_pointer => Context::Workgroup,
            (None, DeclarationKind::Workgroup) => Context::Workgroup,
            (None, DeclarationKind::Alias) => Context::Inherited,
            _ => Context::Plain,
        }
    }

    fn open_template(&mut self, open: usize) {
        let stream = self.stream;
        let Some(close) = stream.partner(open) else {
            return;
        };
        let before = stream.text(open.wrapping_sub(1));
        let workgroup_pointer = before == "ptr" && stream.text(open + 1) == "workgroup";
        let mut array = None;
        if before == "array"
            && let Some(comma) = top_level_comma(stream, open, close)
        {
            // A trailing comma is allowed behind the length.
            let end = if stream.text(close - 1) == "," {
                close - 1
            } else {
                close
            };
            let length = comma + 1..end;
            let owner = match &self.owner {
                Some((name, _)) => name.clone(),
                None => stream.span(open - 1..close + 1),
            };
            self.contents.arrays.push(ArrayUse {
                declaration: self.index,
                element: stream.span(open + 1..comma),
                length: stream.span(length.clone()),
                mentions: Vec::new(),
                local: false,
                bare: None,
                context: self.context(),
                in_result: self.result.contains(&open),
                owner,
            });
            array = Some((self.contents.arrays.len() - 1, length.start));
        }
        self.templates.push(Template {
            close,
            array,
            workgroup_pointer,
        });
    }

    /// A mention, if the identifier is one.
    fn identifier(&mut self, at: usize, in_body: bool) {
        let stream = self.stream;
        let name = stream.text(at);
        let declared = self.head.name == Some(at) || self.declared == Some(at);
        if declared || stream.text(at.wrapping_sub(1)) == "." {
            return;
        }
        if !in_body && stream.text(at + 1) == ":" {
            // A member of a struct or a parameter of a function.
            let end = self.member_end(at + 2);
            self.owner = Some((stream.span(at..at + 1), end));
            if self.head.kind == DeclarationKind::Function {
                self.push_variable(at, None, false, at + 2..end);
                let parameter = Local {
                    name,
                    constant: None,
                };
                self.scopes.declare(0, parameter);
            }
            return;
        }
        let targets = match (self.scopes.find(name), self.names.get(name)) {
            (Some(Some(targets)), _) => {
                let targets: Vec<usize> = targets.iter().copied().collect();
                self.mention_in_arrays(at, &targets, true);
                self.mention_in_constant(&targets);
                return;
            }
            (Some(None), _) => {
                if let Some((index, range)) = &self.variable
                    && range.contains(&at)
                    && let Some(variable) = self.contents.variables.get_mut(*index)
                {
                    variable.locals.push(name.to_owned());
                }
                return self.mention_in_arrays(at, &[], true);
            }
            (None, Some(&target)) => vec![target],
            (None, None) => return,
        };
        self.mention_in_arrays(at, &targets, false);
        let context = self.context();
        for target in targets {
            let reference = Reference { target, context };
            if self.known.insert(reference) {
                self.contents.references.push(reference);
            }
            if self.result.contains(&at) {
                self.contents.result.push(target);
            }
            self.mention_in_constant(&[target]);
            if let Some((index, range)) = &self.variable
                && range.contains(&at)
                && let Some(variable) = self.contents.variables.get_mut(*index)
            {
                variable.mentions.push(target);
            }
        }
    }

    /// One past the type of a member or a parameter, which begins at `at`.
    fn member_end(&self, at: usize) -> usize {
        let (stream, end) = (self.stream, self.head.tokens.end);
        let mut at = at;
        while at < end {
            match stream.text(at) {
                // A type has no colon: a colon begins another member.
                ")" | "}" | "," | ":" => return at,
                "<" => {
                    at = stream
                        .partner(at)
                        .filter(|&close| close < end)
                        .unwrap_or(at)
                }
                _ => {}
            }
            at += 1;
        }
        end
    }

    /// Enters a mention into the local constant that is being declared.
    fn mention_in_constant(&mut self, targets: &[usize]) {
        let Some((_, local)) = &mut self.pending else {
            return;
        };
        let Some(mentioned) = &mut local.constant else {
            return;
        };
        if mentioned.len() <= MOST_MENTIONS {
            mentioned.extend(targets);
        }
        if mentioned.len() > MOST_MENTIONS && self.contents.excess.is_none() {
            let at = self.declared.unwrap_or(self.head.keyword);
            self.contents.excess = Some((self.stream.span(at..at + 1), mentioned.len()));
        }
    }

    /// Enters a mention at token `at` into the arrays with the mention in their length.
    fn mention_in_arrays(&mut self, at: usize, targets: &[usize], local: bool) {
        for template in &self.templates {
            let Some((index, length)) = template.array else {
                continue;
            };
            let Some(array) = self.contents.arrays.get_mut(index) else {
                continue;
            };
            array.local |= local;
            if at >= length {
                array.mentions.extend_from_slice(targets);
                let span = self.stream.span(at..at + 1);
                if let (false, &[target], true) = (local, targets, span == array.length) {
                    array.bare = Some((target, span));
                }
            }
        }
    }

    fn align(&self, attribute: &Attribute<'a>) -> AlignAttribute {
        let stream = self.stream;
        let mentions = attribute
            .arguments
            .clone()
            .filter_map(|i| self.names.get(stream.text(i)).copied());
        AlignAttribute {
            span: stream.span(attribute.tokens.clone()),
            expression: stream.span(attribute.arguments.clone()),
            mentions: mentions.collect(),
        }
    }

    fn local_variable(&mut self, keyword: usize, align: Option<&Attribute<'a>>) {
        let name = name_after(self.stream, keyword);
        let align = align.map(|a| self.align(a));
        self.declare_variable(name, align, true);
        self.declare_local(name, None);
    }

    fn local_constant(&mut self, keyword: usize) {
        let constant = (self.stream.text(keyword) == "const").then(BTreeSet::new);
        let name = name_after(self.stream, keyword);
        if constant.is_none() {
            self.declare_variable(name, None, false);
        }
        self.declare_local(name, constant);
    }

    fn declare_local(&mut self, name: usize, constant: Option<BTreeSet<usize>>) {
        let end = self.stream.semicolon(name);
        let text = self.stream.text(name);
        self.declared = Some(name);
        self.owner = Some((self.stream.span(name..name + 1), end));
        self.pending = Some((
            end,
            Local {
                name: text,
                constant,
            },
        ));
    }

    fn declare_variable(&mut self, name: usize, align: Option<AlignAttribute>, stored: bool) {
        let stream = self.stream;
        let end = stream.semicolon(name);
        let annotated = stream.text(name + 1) == ":";
        let decisive = match annotated {
            true => name + 2..self.initializer(name + 2, end),
            false => name + 1..end,
        };
        self.push_variable(name, align, stored, decisive);
    }

    /// The `=` behind the type that begins at `at`, or `end`. A redeclaration has no `=` in its type.
    fn initializer(&self, at: usize, end: usize) -> usize {
        let declares = |text: &str| matches!(text, "=" | "let" | "var" | "const");
        let found = (at..end).find(|&i| declares(self.stream.text(i)));
        found.unwrap_or(end)
    }

    fn push_variable(
        &mut self,
        name: usize,
        align: Option<AlignAttribute>,
        stored: bool,
        decisive: Range<usize>,
    ) {
        let stream = self.stream;
        let arrays = self.contents.arrays.len();
        self.contents.variables.push(Variable {
            declaration: self.index,
            name: stream.text(name).to_owned(),
            name_span: stream.span(name..name + 1),
            mentions: Vec::new(),
            locals: Vec::new(),
            arrays: arrays..arrays,
            align,
            stored,
        });
        self.variable = Some((self.contents.variables.len() - 1, decisive));
    }
}

/// The first comma of the template list `open`..`close` that is not inside another bracket.
fn top_level_comma(stream: &TokenStream<'_>, open: usize, close: usize) -> Option<usize> {
    let mut at = open + 1;
    while at < close {
        if stream.text(at) == "," {
            return (at + 1 < close).then_some(at);
        }
        if matches!(stream.text(at), "<" | "(" | "[") {
            at = stream.partner(at).unwrap_or(at).max(at);
        }
        at += 1;
    }
    None
}
