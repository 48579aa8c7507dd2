//! One walk from the start to the end that knows what variables hold: constants are folded, branches decided, copies
//! forwarded, and loops of few passes unrolled ([`unroll`](super::unroll)).
//!
//! *How it works.* The program is written anew by a [`Builder`], which folds. [`Known`] says which value each variable
//! holds here; it keeps a log, so that a branch can be undone and what it changed be compared with the other branch.
//! Knowledge about what a scope assigned before it was left is given up at its end, and about what a loop assigns at its
//! start.

use std::collections::{HashMap, HashSet};

use cranelift_codegen::entity::{EntityRef, EntitySet, SecondaryMap, packed_option::PackedOption};
use smallvec::SmallVec;

use crate::compile::ir::{
    Access, Base, Block, Count, Leaf, Op, Place, Program, Scope, Statement, Table, Type, Value,
    Variable, build::Builder, visit,
};

/// Writes a program anew with what is known at compile time made use of.
pub(crate) fn simplify(mut program: Program) -> Program {
    let body = std::mem::take(&mut program.body);
    let mut fresh = program.clone();
    fresh.values.clear();
    let mut simplifier = Simplifier {
        old: program,
        b: Builder::new(fresh),
        map: SecondaryMap::new(),
        known: Known::default(),
        scopes: HashMap::new(),
        unrolling: Vec::new(),
        hopeless: HashSet::new(),
        abandoned: false,
        written: 0,
    };
    simplifier.block(&body);
    simplifier.b.finish()
}

/// How a statement ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// What stands behind it may run.
    Falls,
    /// What stands behind it cannot.
    Leaves,
}

/// What variables hold at a point.
#[derive(Default)]
pub(super) struct Known {
    values: SecondaryMap<Variable, PackedOption<Value>>,
    /// Changes, with what was known before
    log: Vec<(Variable, PackedOption<Value>)>,
}

impl Known {
    fn get(&self, variable: Variable) -> Option<Value> {
        self.values[variable].expand()
    }

    fn set(&mut self, variable: Variable, value: impl Into<PackedOption<Value>>) {
        let value = value.into();
        let before = std::mem::replace(&mut self.values[variable], value);
        self.log.push((variable, before));
    }

    pub(super) fn mark(&self) -> usize {
        self.log.len()
    }

    /// The variables changed since a mark, and what is known of them now.
    fn changes(&self, mark: usize) -> HashMap<Variable, PackedOption<Value>> {
        let changed = self.log[mark..].iter();
        changed
            .map(|&(variable, _)| (variable, self.values[variable]))
            .collect()
    }

    /// Returns to what was known at a mark.
    pub(super) fn undo(&mut self, mark: usize) {
        for (variable, before) in self.log.drain(mark..).rev() {
            self.values[variable] = before;
        }
    }
}

/// What is remembered of a scope while its body is read.
struct Open {
    mark: usize,
    /// Variables that were changed on a way out
    changed: EntitySet<Variable>,
    /// Whether there was a way out
    left: bool,
}

pub(super) struct Simplifier {
    old: Program,
    pub(super) b: Builder,
    map: SecondaryMap<Value, PackedOption<Value>>,
    pub(super) known: Known,
    scopes: HashMap<Scope, Open>,
    /// Loops that are being unrolled, innermost last
    pub(super) unrolling: Vec<super::unroll::Attempt>,
    /// Loops that could not be unrolled
    pub(super) hopeless: HashSet<Scope>,
    /// Whether the innermost attempt to unroll has failed
    pub(super) abandoned: bool,
    /// Statements written so far
    pub(super) written: u64,
}

impl Simplifier {
    pub(super) fn block(&mut self, block: &Block) -> Flow {
        for statement in block {
            if self.abandoned {
                return Flow::Leaves;
            }
            self.written += 1;
            if self.statement(statement) == Flow::Leaves {
                return Flow::Leaves;
            }
        }
        Flow::Falls
    }

    /// The new value for an old one.
    fn value(&mut self, old: Value) -> Value {
        let def = self.old.values[old];
        match def.op {
            Op::Const(bits) => self.b.constant(def.ty, bits),
            Op::Builtin(builtin) => self.b.builtin(builtin),
            // Verified programs define values before they use them; `old` can only be wrong if a pass is.
            _ => self.map[old].expand().unwrap_or_else(|| {
                debug_assert!(false, "{old} is used before it is defined");
                self.b.constant(def.ty, 0)
            }),
        }
    }

    fn place(&mut self, place: &Place) -> Place {
        let mut place = visit::map_place(place, |value| self.value(value));
        let mut offset = place.offset;
        let program = &self.b.program;
        place.steps.retain(|step| {
            let (Some(index), Count::Fixed(count)) = (program.constant(step.index), step.count)
            else {
                return true;
            };
            // As the bounds policy says: an index that is too large means the last element.
            offset += (index as u32).min(count - 1) * step.stride;
            false
        });
        place.offset = offset;
        place
    }

    fn results(&mut self, leaves: &[Leaf]) -> SmallVec<[Leaf; 4]> {
        leaves
            .iter()
            .map(|leaf| {
                let value = self.b.result(self.old.ty(leaf.value));
                self.map[leaf.value] = value.into();
                Leaf {
                    offset: leaf.offset,
                    value,
                }
            })
            .collect()
    }

    fn statement(&mut self, statement: &Statement) -> Flow {
        match statement {
            Statement::Let(old) => {
                let def = self.old.values[*old];
                let new = match def.op {
                    Op::Get(variable) => self.get(variable),
                    op => {
                        let op = visit::map_operands(op, |value| self.value(value));
                        self.b.op(def.ty, op)
                    }
                };
                self.map[*old] = new.into();
            }
            Statement::Set(variable, value) => {
                let value = self.value(*value);
                if self.known.get(*variable) != Some(value) {
                    self.b.set(*variable, value);
                    self.known.set(*variable, value);
                }
            }
            Statement::Load {
                place,
                leaves,
                access,
            } => self.load(place, leaves, *access),
            Statement::Store {
                place,
                leaves,
                access,
            } => {
                let place = self.place(place);
                let leaves = leaves
                    .iter()
                    .map(|leaf| Leaf {
                        offset: leaf.offset,
                        value: self.value(leaf.value),
                    })
                    .collect();
                self.b.push(Statement::Store {
                    place,
                    leaves,
                    access: *access,
                });
            }
            Statement::Atomic(atomic) => {
                let mut atomic = atomic.clone();
                atomic.place = self.place(&atomic.place);
                atomic.value = self.value(atomic.value);
                atomic.compare = atomic.compare.map(|compare| self.value(compare));
                let result = self.b.result(self.old.ty(atomic.result));
                self.map[atomic.result] = result.into();
                atomic.result = result;
                atomic.exchanged = atomic.exchanged.map(|old| {
                    let exchanged = self.b.result(Type::Bool);
                    self.map[old] = exchanged.into();
                    exchanged
                });
                self.b.push(Statement::Atomic(atomic));
            }
            Statement::Call(call) => {
                let mut call = call.clone();
                for at in &mut call.resources {
                    *at = visit::map_binding(*at, &mut |value| self.value(value));
                }
                for operand in &mut call.operands {
                    *operand = self.value(*operand);
                }
                for result in &mut call.results {
                    let new = self.b.result(self.old.ty(*result));
                    self.map[*result] = new.into();
                    *result = new;
                }
                self.b.push(Statement::Call(call));
            }
            Statement::If {
                condition,
                accept,
                reject,
            } => return self.branch(*condition, accept, reject),
            Statement::Switch {
                selector,
                cases,
                default,
            } => return self.switch(*selector, cases, default),
            Statement::Loop {
                scope,
                body,
                continuing,
                ..
            } => return self.repeat(*scope, body, continuing),
            Statement::Scope { scope, body } => return self.scope(*scope, body),
            Statement::Exit(scope) | Statement::Continue(scope) => {
                return self.leave(*scope, statement);
            }
            Statement::Barrier(barrier) => {
                self.refuse_unrolling();
                self.b.push(Statement::Barrier(*barrier));
            }
        }
        Flow::Falls
    }

    fn get(&mut self, variable: Variable) -> Value {
        if let Some(value) = self.known.get(variable) {
            return value;
        }
        let value = self.b.get(variable);
        self.known.set(variable, value);
        value
    }

    fn load(&mut self, place: &Place, leaves: &[Leaf], access: Access) {
        let place = self.place(place);
        if let Base::Table(table) = place.base
            && place.steps.is_empty()
        {
            for leaf in leaves {
                let value = self.read_table(table, place.offset + leaf.offset, leaf.value);
                self.map[leaf.value] = value.into();
            }
            return;
        }
        let leaves = self.results(leaves);
        self.b.push(Statement::Load {
            place,
            leaves,
            access,
        });
    }

    /// A constant of a table; zero beyond its end, where no program that is verified reads.
    fn read_table(&mut self, table: Table, offset: u32, leaf: Value) -> Value {
        let ty = self.old.ty(leaf);
        let mut bytes = [0; 8];
        let size = ty.own_bytes() as usize;
        let table = &self.b.program.tables[table];
        if let Some(found) = table.get(offset as usize..offset as usize + size) {
            bytes[..size].copy_from_slice(found);
        }
        self.b.constant(ty, u64::from_le_bytes(bytes))
    }

    /// A statement inside a block of its own. What it changes is undone and returned.
    fn inner(&mut self, block: &Block) -> (Block, Flow, HashMap<Variable, PackedOption<Value>>) {
        let mark = self.known.mark();
        self.b.open();
        let flow = self.block(block);
        let block = self.b.close();
        let changes = self.known.changes(mark);
        self.known.undo(mark);
        (block, flow, changes)
    }

    fn branch(&mut self, condition: Value, accept: &Block, reject: &Block) -> Flow {
        let condition = self.value(condition);
        match self.b.program.constant(condition) {
            Some(0) => return self.block(reject),
            Some(_) => return self.block(accept),
            None => {}
        }
        let visible = self.b.program.values.len();
        let accept = self.inner(accept);
        let reject = self.inner(reject);
        let flow = self.join(visible, &[(accept.1, &accept.2), (reject.1, &reject.2)]);
        if !accept.0.is_empty() || !reject.0.is_empty() {
            self.b.push(Statement::If {
                condition,
                accept: accept.0,
                reject: reject.0,
            });
        }
        flow
    }

    fn switch(
        &mut self,
        selector: Value,
        cases: &[crate::compile::ir::Case],
        default: &Block,
    ) -> Flow {
        let selector = self.value(selector);
        if let Some(bits) = self.b.program.constant(selector) {
            let chosen = cases
                .iter()
                .find(|case| case.selectors.contains(&(bits as u32)));
            return self.block(chosen.map_or(default, |case| &case.body));
        }
        let visible = self.b.program.values.len();
        let mut ends = Vec::new();
        let mut new_cases = Vec::new();
        for case in cases {
            let (body, flow, changes) = self.inner(&case.body);
            ends.push((flow, changes));
            new_cases.push(crate::compile::ir::Case {
                selectors: case.selectors.clone(),
                body,
            });
        }
        let (default, flow, changes) = self.inner(default);
        ends.push((flow, changes));
        let ends: Vec<_> = ends
            .iter()
            .map(|(flow, changes)| (*flow, changes))
            .collect();
        let flow = self.join(visible, &ends);
        self.b.push(Statement::Switch {
            selector,
            cases: new_cases,
            default,
        });
        flow
    }

    /// Takes over what all branches that fall through agree on. Of the values, the first `visible` were there before the
    /// branches; what a branch has computed cannot be used behind it, even if it is the only one that falls through.
    fn join(
        &mut self,
        visible: usize,
        ends: &[(Flow, &HashMap<Variable, PackedOption<Value>>)],
    ) -> Flow {
        let falling: Vec<_> = ends
            .iter()
            .filter(|(flow, _)| *flow == Flow::Falls)
            .map(|(_, changes)| *changes)
            .collect();
        let Some((first, rest)) = falling.split_first() else {
            return Flow::Leaves;
        };
        let mut changed: Vec<Variable> = falling.iter().flat_map(|c| c.keys().copied()).collect();
        changed.sort_unstable();
        changed.dedup();
        for variable in changed {
            let before = self.known.get(variable).into();
            let held = |changes: &HashMap<_, _>| changes.get(&variable).copied().unwrap_or(before);
            let value: PackedOption<Value> = held(first);
            let known_here = value.expand().is_none_or(|value| {
                let op = self.b.program.values[value].op;
                value.index() < visible || matches!(op, Op::Const(_) | Op::Builtin(_))
            });
            if known_here && rest.iter().all(|&changes| held(changes) == value) {
                self.known.set(variable, value);
            } else {
                self.known.set(variable, None);
            }
        }
        Flow::Falls
    }

    fn open_scope(&mut self, scope: Scope) -> usize {
        let mark = self.known.mark();
        self.scopes.insert(
            scope,
            Open {
                mark,
                changed: EntitySet::new(),
                left: false,
            },
        );
        mark
    }

    fn scope(&mut self, scope: Scope, body: &Block) -> Flow {
        let mark = self.open_scope(scope);
        self.b.open();
        let mut flow = self.block(body);
        let mut body = self.b.close();
        if matches!(body.last(), Some(Statement::Exit(exit)) if *exit == scope) {
            body.pop();
            flow = Flow::Falls;
        }
        strip(&mut body, &Statement::Exit(scope));
        let left = leaves(&body, scope);
        if flow == Flow::Leaves {
            self.known.undo(mark);
        } else if let Some(open) = self.scopes.get_mut(&scope)
            && open.left
        {
            // Whoever left before does not know of what was assigned after that.
            for &(variable, _) in &self.known.log[mark..] {
                open.changed.insert(variable);
            }
        }
        self.close_scope(scope);
        if left {
            self.b.push(Statement::Scope { scope, body });
            return Flow::Falls;
        }
        // Without a way out in its midst, a scope is no more than its statements. An exit that was stripped fell through.
        let stripped = !ends_by_leaving(&body);
        for statement in body {
            self.b.push(statement);
        }
        if stripped { Flow::Falls } else { flow }
    }

    /// Forgets what was assigned on ways out of a scope.
    fn close_scope(&mut self, scope: Scope) {
        if let Some(open) = self.scopes.remove(&scope) {
            for variable in open.changed.iter() {
                self.known.set(variable, None);
            }
        }
    }

    fn leave(&mut self, scope: Scope, statement: &Statement) -> Flow {
        if self.leave_unrolled(scope, statement) {
            return Flow::Leaves;
        }
        if let Some(open) = self.scopes.get_mut(&scope) {
            open.left = true;
            for &(variable, _) in &self.known.log[open.mark..] {
                open.changed.insert(variable);
            }
        }
        self.b.push(statement.clone());
        Flow::Leaves
    }

    fn repeat(&mut self, scope: Scope, body: &Block, continuing: &Block) -> Flow {
        if let Some(flow) = self.unroll(scope, body, continuing) {
            return flow;
        }
        let mut assigned = Vec::new();
        visit::assigned(body, &mut |variable| assigned.push(variable));
        visit::assigned(continuing, &mut |variable| assigned.push(variable));
        let forget = |known: &mut Known| {
            for &variable in &assigned {
                if known.get(variable).is_some() {
                    known.set(variable, None);
                }
            }
        };
        let starts = self.constants(&assigned);
        forget(&mut self.known);
        let mark = self.open_scope(scope);
        self.b.open();
        self.block(body);
        let mut body = self.b.close();
        strip(&mut body, &Statement::Continue(scope));
        forget(&mut self.known);
        self.b.open();
        self.block(continuing);
        let mut continuing = self.b.close();
        self.known.undo(mark);
        self.close_scope(scope);
        let continues = visit::any(
            &body,
            &mut |s| matches!(s, Statement::Continue(c) if *c == scope),
        );
        if !continues && ends_by_leaving(&body) {
            continuing.clear();
        }
        let left = leaves(&body, scope) || leaves(&continuing, scope);
        self.b.push(Statement::Loop {
            scope,
            starts,
            body,
            continuing,
        });
        if left { Flow::Falls } else { Flow::Leaves }
    }

    /// The variables among `assigned` that hold a constant here.
    fn constants(&self, assigned: &[Variable]) -> SmallVec<[(Variable, u64); 2]> {
        let mut constants = SmallVec::new();
        for &variable in assigned {
            let value = self.known.get(variable);
            if let Some(bits) = value.and_then(|value| self.b.program.constant(value))
                && !constants.contains(&(variable, bits))
            {
                constants.push((variable, bits));
            }
        }
        constants
    }
}

/// Removes statements at the end of a block, and of branches that end it, where they go to what comes next anyway.
fn strip(block: &mut Block, leaving: &Statement) {
    let same = |statement: &Statement| match (statement, leaving) {
        (Statement::Exit(a), Statement::Exit(b))
        | (Statement::Continue(a), Statement::Continue(b)) => a == b,
        _ => false,
    };
    if block.last().is_some_and(same) {
        block.pop();
    }
    match block.last_mut() {
        Some(Statement::If { accept, reject, .. }) => {
            strip(accept, leaving);
            strip(reject, leaving);
        }
        Some(Statement::Switch { cases, default, .. }) => {
            for case in cases {
                strip(&mut case.body, leaving);
            }
            strip(default, leaving);
        }
        Some(Statement::Scope { body, .. }) => strip(body, leaving),
        _ => {}
    }
}

/// Whether a block has a way out of a scope.
fn leaves(block: &Block, scope: Scope) -> bool {
    visit::any(
        block,
        &mut |statement| matches!(statement, Statement::Exit(exit) if *exit == scope),
    )
}

/// Whether the end of a block cannot be reached.
pub(super) fn ends_by_leaving(block: &Block) -> bool {
    match block.last() {
        Some(Statement::Exit(_) | Statement::Continue(_)) => true,
        Some(Statement::If { accept, reject, .. }) => {
            ends_by_leaving(accept) && ends_by_leaving(reject)
        }
        Some(Statement::Switch { cases, default, .. }) => {
            ends_by_leaving(default) && cases.iter().all(|case| ends_by_leaving(&case.body))
        }
        Some(Statement::Scope { scope, body }) => ends_by_leaving(body) && !leaves(body, *scope),
        Some(Statement::Loop {
            scope,
            body,
            continuing,
            ..
        }) => !leaves(body, *scope) && !leaves(continuing, *scope),
        _ => false,
    }
}
