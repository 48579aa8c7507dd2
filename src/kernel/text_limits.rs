//! Limits on texts for the sake of their readers: naga, the passes, and the compilers of drivers walk over a program
//! recursively, and some take the square of a length.
//!
//! # How it works
//!
//! 1. Before naga sees a text, its tokens are counted, and walked over once. Every bracket is a level, every operator and every
//!    `else` of a row a link; what the recursion of a reader is bounded by is the sum of both on the way to a place.
//! 2. The declarations are walked over by their mentions, without recursion: for the longest chain of dependencies.
//! 3. After naga's layout of the types, members are counted with those of the structures inside: a structure of two
//!    structures of two structures has a short text.
//!
//! The stack on which texts are read (`deep_stack`) is large enough for a text at all of these limits.

use std::ops::Range;

use naga::{Module, TypeInner};

use super::declarations::{Declaration, DeclarationKind};
use super::token::TokenStream;

/// The limits of a WGSL text; more is a [`KernelError::TooComplex`](crate::kernel::KernelError::TooComplex).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TextLimits {
    /// Bytes of the text.
    pub bytes: usize,
    /// Names, numbers, operators and brackets of the text.
    pub tokens: usize,
    /// For a single function: naga takes the square of the length.
    pub function_tokens: usize,
    /// Brackets of any kind (blocks, parentheses, indices, template lists) inside each other.
    pub nesting: usize,
    /// Operators, members and indices on the way to a part of an expression, those of enclosing expressions included:
    /// `a + b + c` has 2.
    pub expression_depth: usize,
    /// Blocks inside each other, where each `else` counts as one more: `if … else if … else if …` has 3.
    pub statement_depth: usize,
    /// Chains of dependent declarations: functions calling the next, structures in structures, constants mentioning
    /// constants.
    pub declaration_depth: usize,
    /// Members of a type, with those of inner structures.
    pub members: u64,
}

/// The limits that [`Program::new`](crate::Program::new) checks.
pub(crate) const LIMITS: TextLimits = TextLimits {
    bytes: 4 << 20,
    tokens: 1 << 17,
    function_tokens: 1 << 15,
    nesting: 127,
    expression_depth: 4096,
    statement_depth: 1024,
    declaration_depth: 1024,
    members: 1 << 14,
};

/// A limit that a text exceeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    /// The excessive things, in the plural.
    pub what: &'static str,
    pub found: u64,
    pub limit: u64,
    /// Bytes of the text.
    pub place: Option<Range<usize>>,
    /// The remedy.
    pub instead: &'static str,
}

impl Excess {
    fn new(
        what: &'static str,
        found: usize,
        limit: usize,
        place: Option<Range<usize>>,
        instead: &'static str,
    ) -> Self {
        Self {
            what,
            found: found as u64,
            limit: limit as u64,
            place,
            instead,
        }
    }
}

/// The remedy for too long a text.
const SHORTER: &str =
    "keep data in buffers, and make programs of the parts that are launched apart";

/// Checks the length of a text, or the sum of the lengths of its sources, before any work that grows with it.
pub(crate) fn check_length(bytes: usize) -> Result<(), Excess> {
    if bytes > LIMITS.bytes {
        let limit = LIMITS.bytes;
        return Err(Excess::new("bytes of text", bytes, limit, None, SHORTER));
    }
    Ok(())
}

/// Checks how many tokens a text has.
pub(crate) fn check_tokens(stream: &TokenStream<'_>) -> Result<(), Excess> {
    if stream.len() > LIMITS.tokens {
        let place = stream.span(LIMITS.tokens..LIMITS.tokens + 1);
        return Err(Excess::new(
            "names, numbers, operators and brackets",
            stream.len(),
            LIMITS.tokens,
            Some(place),
            SHORTER,
        ));
    }
    Ok(())
}

/// An open bracket, or the text around all brackets.
#[derive(Default)]
struct Level {
    /// Token of the bracket.
    open: usize,
    is_block: bool,
    /// Links of the current token's chain, and the depth inside its brackets.
    links: Depth,
    inside: Depth,
    /// Members and indices of the current operand of the row, and of the operand that has most.
    postfixes: usize,
    most_postfixes: usize,
    /// The deepest row so far.
    deepest: Depth,
}

/// How deep something is, as [`TextLimits`] counts.
#[derive(Clone, Copy, Default)]
struct Depth {
    expression: usize,
    statement: usize,
}

impl Depth {
    fn max(self, other: Self) -> Self {
        Self {
            expression: self.expression.max(other.expression),
            statement: self.statement.max(other.statement),
        }
    }
}

impl Level {
    /// How deep the current row is.
    fn row(&self) -> Depth {
        Depth {
            expression: self.links.expression + self.most_postfixes + self.inside.expression,
            statement: self.links.statement + self.inside.statement,
        }
    }

    fn end_row(&mut self) {
        self.deepest = self.deepest.max(self.row());
        self.links = Depth::default();
        self.inside = Depth::default();
        self.postfixes = 0;
        self.most_postfixes = 0;
    }

    fn postfix(&mut self) {
        self.postfixes += 1;
        self.most_postfixes = self.most_postfixes.max(self.postfixes);
    }
}

/// Checks how deep the brackets, expressions and statements of a text are.
pub(crate) fn check_depth(stream: &TokenStream<'_>) -> Result<(), Excess> {
    let mut levels = vec![Level {
        is_block: true,
        ..Level::default()
    }];
    for at in 0..stream.len() {
        let text = stream.text(at);
        let is_outermost = levels.len() == 1;
        let Some(level) = levels.last_mut() else {
            break;
        };
        match text {
            "(" | "[" | "{" | "<" if opens(stream, at) => {
                // An indexed value is reached through the index.
                if text == "[" {
                    level.postfix();
                }
                let is_block = text == "{";
                levels.push(Level {
                    open: at,
                    is_block,
                    ..Level::default()
                });
                if levels.len() > LIMITS.nesting + 1 {
                    let place = stream.span(at..at + 1);
                    return Err(Excess::new(
                        "brackets inside each other",
                        levels.len() - 1,
                        LIMITS.nesting,
                        Some(place),
                        "give parts of it names, or move them into functions",
                    ));
                }
            }
            ")" | "]" | "}" | ">" if !is_outermost && closes(stream, at, level) => {
                let Some(mut closed) = levels.pop() else {
                    break;
                };
                closed.end_row();
                let (depth, is_block) = (closed.deepest, closed.is_block);
                check_row(stream, closed.open, depth)?;
                if let Some(level) = levels.last_mut() {
                    level.inside = level.inside.max(Depth {
                        expression: depth.expression + usize::from(!is_block),
                        statement: depth.statement + usize::from(is_block),
                    });
                    // A block ends a statement, unless another branch follows.
                    if is_block && level.is_block && stream.text(at + 1) != "else" {
                        let row = level.row();
                        level.end_row();
                        check_row(stream, at, row)?;
                    }
                }
            }
            ";" | "," => {
                let row = level.row();
                level.end_row();
                check_row(stream, at, row)?;
            }
            "else" => level.links.statement += 1,
            "." => level.postfix(),
            "=" => level.postfixes = 0,
            "+" | "-" | "*" | "/" | "%" | "&" | "|" | "^" | "~" | "!" | "&&" | "||" | "=="
            | "!=" | "<" | ">" => {
                level.links.expression += 1;
                level.postfixes = 0;
            }
            _ => {}
        }
    }
    // Open brackets end with the text.
    let mut inside = Depth::default();
    while let Some(mut level) = levels.pop() {
        level.inside = level.inside.max(inside);
        level.end_row();
        check_row(stream, level.open, level.deepest)?;
        inside = Depth {
            expression: level.deepest.expression + usize::from(!level.is_block),
            statement: level.deepest.statement + usize::from(level.is_block),
        };
    }
    Ok(())
}

/// Whether token `at` opens something: `<` does so only in template lists.
fn opens(stream: &TokenStream<'_>, at: usize) -> bool {
    stream.text(at) != "<" || stream.partner(at).is_some()
}

/// Whether token `at` closes `level`, the innermost.
fn closes(stream: &TokenStream<'_>, at: usize, level: &Level) -> bool {
    let opener = match stream.text(at) {
        ")" => "(",
        "]" => "[",
        "}" => "{",
        _ => "<",
    };
    stream.text(level.open) == opener && (opener != "<" || stream.partner(at).is_some())
}

fn check_row(stream: &TokenStream<'_>, at: usize, depth: Depth) -> Result<(), Excess> {
    let place = || Some(stream.span(at..at + 1));
    if depth.expression > LIMITS.expression_depth {
        return Err(Excess::new(
            "operators in one expression",
            depth.expression,
            LIMITS.expression_depth,
            place(),
            "give parts of it names with `let`, or compute it in a loop",
        ));
    }
    if depth.statement > LIMITS.statement_depth {
        return Err(Excess::new(
            "branches inside each other, of which each `else` is one",
            depth.statement,
            LIMITS.statement_depth,
            place(),
            "use a `switch`, or a table in a buffer",
        ));
    }
    Ok(())
}

/// Checks how long functions are, and how many declarations depend on each other in a row. Cycles are naga's to refuse.
pub(crate) fn check_declarations(declarations: &[Declaration]) -> Result<(), Excess> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done(usize),
    }
    let mut states = vec![State::New; declarations.len()];
    for declaration in declarations {
        if declaration.kind == DeclarationKind::Function
            && declaration.tokens > LIMITS.function_tokens
        {
            return Err(Excess::new(
                "names, numbers, operators and brackets in one function",
                declaration.tokens,
                LIMITS.function_tokens,
                Some(declaration.name_span.clone()),
                "make several functions of it, or compute it in a loop",
            ));
        }
    }
    for start in 0..declarations.len() {
        // Each with the reference that is followed next.
        let mut path = vec![(start, 0)];
        while let Some((index, next)) = path.last_mut() {
            let (index, references) = (*index, &declarations[*index].references);
            match states[index] {
                State::Done(_) => {
                    path.pop();
                    continue;
                }
                State::New => states[index] = State::Open,
                State::Open => {}
            }
            super::work::count(1);
            match references.get(*next).map(|reference| reference.target) {
                Some(target) => {
                    *next += 1;
                    if states.get(target) == Some(&State::New) {
                        path.push((target, 0));
                    }
                }
                None => {
                    let depth = |target: usize| match states.get(target) {
                        Some(State::Done(depth)) => depth + 1,
                        _ => 1,
                    };
                    let longest = references.iter().map(|one| depth(one.target)).max();
                    let depth = longest.unwrap_or(1);
                    if depth > LIMITS.declaration_depth {
                        return Err(Excess::new(
                            "declarations that depend on each other in a row",
                            depth,
                            LIMITS.declaration_depth,
                            Some(declarations[index].name_span.clone()),
                            "let them depend on fewer others",
                        ));
                    }
                    states[index] = State::Done(depth);
                    path.pop();
                }
            }
        }
    }
    Ok(())
}

/// Checks the number of members of a module's types, with those of inner structures.
pub(crate) fn check_types(module: &Module) -> Result<(), Excess> {
    let mut members: Vec<u64> = Vec::with_capacity(module.types.len());
    for (handle, ty) in module.types.iter() {
        // naga lists types behind their parts.
        let of = |part: naga::Handle<naga::Type>| members.get(part.index()).copied().unwrap_or(1);
        let count = match &ty.inner {
            TypeInner::Array { base, .. } => of(*base).saturating_add(1),
            TypeInner::Struct { members, .. } => {
                (members.iter()).fold(1u64, |sum, member| sum.saturating_add(of(member.ty)))
            }
            _ => 1,
        };
        if count > LIMITS.members {
            return Err(Excess {
                what: "members of a type, with those of the structures in it",
                found: count,
                limit: LIMITS.members,
                place: module.types.get_span(handle).to_range(),
                instead: "use arrays in place of members of the same type",
            });
        }
        members.push(count);
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests;
