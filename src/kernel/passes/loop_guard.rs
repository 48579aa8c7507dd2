//! The loop guard: finds out, exactly, whether a driver cut a loop short.
//!
//! Some drivers bound loops: Mesa's llvmpipe lets a group of invocations take 65,535 back-edges in all loops together,
//! ends each loop where the count runs out, and carries on behind the loop as if at its regular end. Counting in the
//! kernel cannot detect the cut, for the budget belongs to the group, and lanes filling up an incomplete group spend
//! from the budget without being invocations at all. A pair of notes can, one for entering a loop and one for leaving
//! by a proper exit; a loop whose note of entry still stands behind the loop was cut short.
//!
//! # Why the notes are kept in an array with an index nobody knows
//!
//! To every compiler on the way, "the loop was left, so an exit was taken" is a theorem. A flag in a plain variable
//! becomes a value merged from the loop's exits; where each exit sets the flag, the test behind the loop folds to a
//! constant, and where the merge survives, a cut invocation reads the register's value from the last regular exit. So
//! the notes live in a single private array whose index is computed from a word of the status record, always zero
//! ([`status::ALWAYS_ZERO`]): memory written and read exactly where the program says.
//!
//! The same happens to `return` inside a loop, which compilers turn into "remember, leave the loop, then leave the
//! function". An invocation that was cut can find the memory of an earlier call there, and skip the test behind the
//! loop. So a call of a function returning from within a loop is followed by another test of the function's loops, in
//! the caller.
//!
//! # Which kernels are guarded
//!
//! The budget is one for all loops of a group of lanes together. Hence either all loops of a kernel are provably short
//! together ([`trip_count`](super::trip_count): constant bounds, summed over the call tree) and nothing is added, or
//! all are guarded. A device that was not probed (an adopted one, by default) counts as having the budget: slow and
//! right rather than fast and perhaps wrong.
//!
//! One false alarm is known and kept: a kernel that uses the budget up *exactly* with its last useful turn is reported
//! although its result is whole. Evaluating the loop's condition once more would be folded like a mark in a plain
//! variable. Padding lanes beyond the work-group's size spend the budget as well, and can cut a real loop; the guard
//! reports such a cut, too.

use std::collections::HashMap;
use std::num::NonZeroU32;

use naga::{
    Arena, ArraySize, AtomicFunction, BinaryOperator, Block, Expression, Function, GlobalVariable,
    Handle, Literal, Module, ResourceBinding, Scalar, Span, Statement, TypeInner,
};

use super::blocks::each_statement;
use super::trip_count::{UNBOUNDED, entry_cost};
use super::{
    emit_chain, only_if, prepend, private_variable, reachable, status, type_of, unique_name,
};

/// Back-edges kept free of the budget for additions of a driver's compiler.
const MARGIN: u32 = 64;

/// A watched loop.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopSite {
    /// The loop statement, in the source that the module was parsed from.
    pub span: Span,
    /// The function around it, by its name in the module.
    pub function: Option<String>,
}

/// The loops put under guard by [`run`]. An inner loop comes before the outer loop, and a function before its callers.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopGuard {
    /// Every loop reachable from the entry point.
    pub sites: Vec<LoopSite>,
}

impl LoopGuard {
    /// The loop that `code`, the word [`status::LOOP_GUARD`] after a launch, stands for; `None` for 0 (no loop was cut
    /// short) and for a code impossible for this kernel.
    ///
    /// Where invocations were cut in different loops, the code is that of the first loop in
    /// [`sites`](Self::sites); each invocation reports only its first cut, because later cuts are a
    /// consequence.
    pub fn site_for_code(&self, code: u32) -> Option<&LoopSite> {
        let index = self.sites.len().checked_sub(usize::try_from(code).ok()?)?;
        self.sites.get(index)
    }
}

/// Puts every loop reached by entry point `entry` (its index in `module.entry_points`) under guard.
///
/// Returns `None`, and leaves the module unchanged, where there is no such entry point, where the entry point has no
/// loop, or where all loops together provably take no more than `budget` back-edges per invocation (64 are kept in
/// reserve). A single loop that may use up the budget is enough to guard all: the cut hits whichever loop comes next.
///
/// The kernel then writes the code of a loop that was cut short to word [`status::LOOP_GUARD`] of the status record at
/// `status`. A loop whose last pass uses up the budget exactly is reported although only its final test was missing:
/// the test did not take place.
///
/// The module is then for this entry point alone: others sharing a function would need the status record too, and their
/// own loops are not guarded.
pub fn run(
    module: &mut Module,
    entry: usize,
    budget: u32,
    status: ResourceBinding,
) -> Option<LoopGuard> {
    let entry_function = &module.entry_points.get(entry)?.function;
    let cost = entry_cost(module, entry_function);
    if cost != UNBOUNDED && cost <= u64::from(budget.saturating_sub(MARGIN)) {
        return None;
    }
    let reachable = reachable(module, entry_function);
    let mut count = 0u32;
    for function in (reachable.iter().map(|&f| &module.functions[f])).chain([entry_function]) {
        each_statement(&function.body, &mut |statement| {
            count += u32::from(matches!(statement, Statement::Loop { .. }));
        });
    }
    if count == 0 {
        return None;
    }

    let globals = Globals::add(module, count, status);
    let mut guard = LoopGuard { sites: Vec::new() };
    let mut returning = HashMap::new();
    for handle in reachable {
        let function = module.functions.get_mut(handle);
        let left = guard_function(function, &globals, &returning, &mut guard, false);
        returning.insert(handle, left);
    }
    let function = &mut module.entry_points[entry].function;
    guard_function(function, &globals, &returning, &mut guard, true);
    globals.read_zero(function);
    Some(guard)
}

/// The guard's variables in a module.
struct Globals {
    status: Handle<GlobalVariable>,
    /// Word 0 means that this invocation has reported; word `1 + site` means that the invocation is inside that loop.
    marks: Handle<GlobalVariable>,
    /// The zero read from the status record.
    zero: Handle<GlobalVariable>,
    count: u32,
}

impl Globals {
    fn add(module: &mut Module, count: u32, status: ResourceBinding) -> Self {
        let status = status::status_global(module, status);
        let word = type_of(module, TypeInner::Scalar(Scalar::U32));
        // A word more than is used: where the index is clamped to the length, the clamp must not
        // turn the last index into a known one.
        let length = NonZeroU32::new(count.saturating_add(2));
        let words = type_of(
            module,
            TypeInner::Array {
                base: word,
                size: length.map_or(ArraySize::Dynamic, ArraySize::Constant),
                stride: 4,
            },
        );
        let mut private = |name: &str, ty| {
            let variable = private_variable(unique_name(module, name), ty);
            module.global_variables.append(variable, Span::UNDEFINED)
        };
        let marks = private("tombolo_loop", words);
        let zero = private("tombolo_zero", word);
        Self {
            status,
            marks,
            zero,
            count,
        }
    }

    /// Has the entry point read the zero before anything else.
    fn read_zero(&self, entry: &mut Function) {
        let span = Span::UNDEFINED;
        let expressions = &mut entry.expressions;
        let status = expressions.append(Expression::GlobalVariable(self.status), span);
        let zero = expressions.append(Expression::GlobalVariable(self.zero), span);
        let (value, emit) = emit_chain(
            expressions,
            span,
            status,
            &[
                &|base| Expression::AccessIndex {
                    base,
                    index: status::ALWAYS_ZERO,
                },
                &|pointer| Expression::Load { pointer },
            ],
        );
        let store = Statement::Store {
            pointer: zero,
            value,
        };
        prepend(entry, vec![emit, store], span);
    }
}

/// Guards the loops of a function; returns the loops left by a `return`.
fn guard_function(
    function: &mut Function,
    globals: &Globals,
    returning: &HashMap<Handle<Function>, Vec<Watched>>,
    guard: &mut LoopGuard,
    is_entry: bool,
) -> Vec<Watched> {
    let mut needed = false;
    each_statement(&function.body, &mut |statement| {
        needed |= match *statement {
            Statement::Loop { .. } => true,
            Statement::Call { function, .. } => {
                (returning.get(&function)).is_some_and(|loops| !loops.is_empty())
            }
            _ => false,
        };
    });
    if !needed {
        return Vec::new();
    }
    let span = Span::UNDEFINED;
    let last_mark = REPORTED + guard.sites.len() as u32;
    let body = std::mem::take(&mut function.body);
    let expressions = &mut function.expressions;
    let mut rewriter = Rewriter {
        status: expressions.append(Expression::GlobalVariable(globals.status), span),
        marks: expressions.append(Expression::GlobalVariable(globals.marks), span),
        zero: expressions.append(Expression::GlobalVariable(globals.zero), span),
        off: expressions.append(Expression::Literal(Literal::U32(0)), span),
        on: expressions.append(Expression::Literal(Literal::U32(1)), span),
        expressions,
        count: globals.count,
        name: &function.name,
        returning,
        guard,
        is_entry,
        open: Vec::new(),
        left_by_return: Vec::new(),
        last_mark,
    };
    let body = rewriter.block(body, None);
    let left_by_return = rewriter.left_by_return;
    function.body = body;
    left_by_return
}

/// A loop: the word of the marks set during the loop, and the code of its report.
#[derive(Clone, Copy)]
struct Watched {
    mark: u32,
    code: u32,
}

/// Word of the marks with the flag for a report by this invocation.
const REPORTED: u32 = 0;

struct Rewriter<'a> {
    expressions: &'a mut Arena<Expression>,
    status: Handle<Expression>,
    marks: Handle<Expression>,
    zero: Handle<Expression>,
    off: Handle<Expression>,
    on: Handle<Expression>,
    count: u32,
    name: &'a Option<String>,
    returning: &'a HashMap<Handle<Function>, Vec<Watched>>,
    guard: &'a mut LoopGuard,
    is_entry: bool,
    /// Marks of the loops around the statement at hand, and whether a `return` was seen in them.
    open: Vec<(u32, bool)>,
    left_by_return: Vec<Watched>,
    last_mark: u32,
}

impl Rewriter<'_> {
    /// Rewrites `block`, where a `break` leaves the loop marked `target` (or, for `None`, a switch).
    fn block(&mut self, block: Block, target: Option<u32>) -> Block {
        let mut out = Block::with_capacity(block.len());
        for (statement, span) in block.span_into_iter() {
            match statement {
                Statement::Block(inner) => {
                    let inner = self.block(inner, target);
                    out.push(Statement::Block(inner), span);
                }
                Statement::If {
                    condition,
                    accept,
                    reject,
                } => {
                    let accept = self.block(accept, target);
                    let reject = self.block(reject, target);
                    let statement = Statement::If {
                        condition,
                        accept,
                        reject,
                    };
                    out.push(statement, span);
                }
                Statement::Switch {
                    selector,
                    mut cases,
                } => {
                    for case in &mut cases {
                        let body = std::mem::take(&mut case.body);
                        case.body = self.block(body, None);
                    }
                    out.push(Statement::Switch { selector, cases }, span);
                }
                Statement::Loop {
                    body,
                    continuing,
                    break_if,
                } => self.guarded_loop(&mut out, span, body, continuing, break_if),
                Statement::Break => {
                    if let Some(mark) = target {
                        self.store(&mut out, span, mark, self.off);
                    }
                    out.push(Statement::Break, span);
                }
                Statement::Return { value } => {
                    // An invocation returning from the entry point ends; nothing reads its marks.
                    if !self.is_entry {
                        for index in 0..self.open.len() {
                            self.open[index].1 = true;
                            self.store(&mut out, span, self.open[index].0, self.off);
                        }
                    }
                    out.push(Statement::Return { value }, span);
                }
                Statement::Call { function, .. } => {
                    out.push(statement, span);
                    for &watched in self.returning.get(&function).into_iter().flatten() {
                        self.test(&mut out, span, watched);
                    }
                }
                other => out.push(other, span),
            }
        }
        out
    }

    fn guarded_loop(
        &mut self,
        out: &mut Block,
        span: Span,
        body: Block,
        continuing: Block,
        break_if: Option<Handle<Expression>>,
    ) {
        // Marks are dealt out on the way in, sites on the way out: inner loops come first among these.
        self.last_mark += 1;
        let mark = self.last_mark;
        self.store(out, span, mark, self.on);
        self.open.push((mark, false));
        let body = self.block(body, Some(mark));
        // A `break` in here cannot leave this loop: only `break if` can.
        let mut continuing = self.block(continuing, None);
        let watched = Watched {
            mark,
            code: self.count.saturating_sub(self.guard.sites.len() as u32),
        };
        self.guard.sites.push(LoopSite {
            span,
            function: self.name.clone(),
        });
        if self.open.pop().is_some_and(|(_, returned)| returned) {
            self.left_by_return.push(watched);
        }
        if let Some(condition) = break_if {
            let (off, on) = (self.off, self.on);
            let (value, emit) = emit_chain(
                self.expressions,
                span,
                condition,
                &[&|condition| Expression::Select {
                    condition,
                    accept: off,
                    reject: on,
                }],
            );
            continuing.push(emit, span);
            self.store(&mut continuing, span, mark, value);
        }
        let statement = Statement::Loop {
            body,
            continuing,
            break_if,
        };
        out.push(statement, span);
        self.test(out, span, watched);
    }

    /// Computes the pointer to word `index` of the marks, and `more` from it.
    fn with_mark(
        &mut self,
        span: Span,
        index: u32,
        more: &[&dyn Fn(Handle<Expression>) -> Expression],
    ) -> (Handle<Expression>, Statement) {
        let (marks, zero) = (self.marks, self.zero);
        let number = (self.expressions).append(Expression::Literal(Literal::U32(index)), span);
        let load = |pointer| Expression::Load { pointer };
        let add = move |left| Expression::Binary {
            op: BinaryOperator::Add,
            left,
            right: number,
        };
        let access = move |index| Expression::Access { base: marks, index };
        let mut steps: Vec<&dyn Fn(Handle<Expression>) -> Expression> = vec![&load, &add, &access];
        steps.extend(more);
        emit_chain(self.expressions, span, zero, &steps)
    }

    /// Stores `value` in word `index` of the marks.
    fn store(&mut self, out: &mut Block, span: Span, index: u32, value: Handle<Expression>) {
        let (pointer, emit) = self.with_mark(span, index, &[]);
        out.push(emit, span);
        out.push(Statement::Store { pointer, value }, span);
    }

    /// The condition that word `index` of the marks equals `value`.
    fn equals(
        &mut self,
        out: &mut Block,
        span: Span,
        index: u32,
        value: Handle<Expression>,
    ) -> Handle<Expression> {
        let load = |pointer| Expression::Load { pointer };
        let compare = move |left| Expression::Binary {
            op: BinaryOperator::Equal,
            left,
            right: value,
        };
        let (condition, emit) = self.with_mark(span, index, &[&load, &compare]);
        out.push(emit, span);
        condition
    }

    /// Reports the loop if its mark still stands and nothing was reported before.
    fn test(&mut self, out: &mut Block, span: Span, watched: Watched) {
        let mut report = Block::new();
        self.store(&mut report, span, REPORTED, self.on);
        let code = Expression::Literal(Literal::U32(watched.code));
        let value = self.expressions.append(code, span);
        let (pointer, emit) = emit_chain(
            self.expressions,
            span,
            self.status,
            &[&|base| Expression::AccessIndex {
                base,
                index: status::LOOP_GUARD,
            }],
        );
        report.push(emit, span);
        let raise = Statement::Atomic {
            pointer,
            fun: AtomicFunction::Max,
            value,
            result: None,
        };
        report.push(raise, span);

        let mut first = Block::new();
        let condition = self.equals(&mut first, span, REPORTED, self.off);
        first.push(only_if(condition, report), span);
        let condition = self.equals(out, span, watched.mark, self.on);
        out.push(only_if(condition, first), span);
    }
}
