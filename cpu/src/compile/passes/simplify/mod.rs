//! A single walk from the start to the end, knowing the values of variables: constants are folded, branches decided,
//! copies forwarded, short branches made selections ([`flatten`]), and loops of few passes unrolled ([`unroll`]).
//!
//! *How it works.* The program is written anew by a folding [`Builder`]. [`Known`] tells the value of each variable
//! here, and keeps a log: a branch can be undone, and its changes compared with the other branch. Knowledge about
//! variables assigned before a scope is left is given up at the end of the scope, and about variables assigned in a
//! loop at the start of the loop ([`scopes`]).

mod flatten;
mod known;
mod scopes;
mod unroll;

use std::collections::{HashMap, HashSet};

use cranelift_codegen::entity::{EntityRef, SecondaryMap, packed_option::PackedOption};
use smallvec::SmallVec;

use self::known::{Changes, Known};
use super::Slots;
use crate::compile::ir::{
    Access, Atomic, Base, Block, Call, Case, Count, Leaf, Op, Place, Program, Scope, Slot,
    Statement, Subgroup, Table, Value, Variable, build::Builder, visit,
};

/// Writes a program anew, making use of everything known at compile time. The slots in `memory` are known to stay
/// memory; slots indexed in loops with a long written-out form are put into `long`.
pub(super) fn simplify(mut program: Program, memory: &Slots, long: &mut Slots) -> Program {
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
        memory,
        long: Vec::new(),
    };
    simplifier.block(&body);
    long.extend(simplifier.long);
    simplifier.b.finish()
}

/// How a statement ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    /// Statements behind may run.
    Falls,
    /// Statements behind cannot run.
    Leaves,
}

struct Simplifier<'a> {
    old: Program,
    b: Builder,
    map: SecondaryMap<Value, PackedOption<Value>>,
    known: Known,
    scopes: HashMap<Scope, scopes::Open>,
    /// Loops in the course of unrolling, innermost last
    unrolling: Vec<unroll::Attempt>,
    /// Loops found impossible to unroll
    hopeless: HashSet<Scope>,
    /// Whether the innermost attempt to unroll has failed
    abandoned: bool,
    /// Statements written so far
    written: u64,
    /// Slots that stay memory in spite of unrolling
    memory: &'a Slots,
    /// Slots indexed in loops with a long written-out form
    long: Vec<Slot>,
}

impl Simplifier<'_> {
    fn block(&mut self, block: &Block) -> Flow {
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
            // Verified programs define values before their uses; `old` can only be wrong if a pass is.
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
            // As the bounds policy says: too large an index means the last element.
            offset += (index as u32).min(count - 1) * step.stride;
            false
        });
        place.offset = offset;
        place
    }

    /// A new value for an old value to be defined by a statement.
    fn result(&mut self, old: Value) -> Value {
        let new = self.b.result(self.old.ty(old));
        self.map[old] = new.into();
        new
    }

    fn results(&mut self, leaves: &[Leaf]) -> SmallVec<[Leaf; 4]> {
        leaves
            .iter()
            .map(|leaf| Leaf {
                offset: leaf.offset,
                value: self.result(leaf.value),
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
            Statement::Atomic(atomic) => self.atomic(atomic),
            Statement::Call(call) => self.call(call),
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
            Statement::Subgroup(operation) => self.subgroup(operation),
            Statement::Barrier(barrier) => {
                self.refuse_unrolling();
                self.b.push(Statement::Barrier(*barrier));
            }
        }
        Flow::Falls
    }

    fn atomic(&mut self, atomic: &Atomic) {
        let mut atomic = atomic.clone();
        atomic.place = self.place(&atomic.place);
        atomic.value = self.value(atomic.value);
        atomic.compare = atomic.compare.map(|compare| self.value(compare));
        atomic.result = self.result(atomic.result);
        atomic.exchanged = atomic.exchanged.map(|exchanged| self.result(exchanged));
        self.b.push(Statement::Atomic(Box::new(atomic)));
    }

    fn call(&mut self, call: &Call) {
        let mut call = call.clone();
        for at in &mut call.resources {
            *at = visit::map_binding(*at, &mut |value| self.value(value));
        }
        for operand in &mut call.operands {
            *operand = self.value(*operand);
        }
        for result in &mut call.results {
            *result = self.result(*result);
        }
        self.b.push(Statement::Call(Box::new(call)));
    }

    fn subgroup(&mut self, operation: &Subgroup) {
        let mut operation = operation.clone();
        for operand in &mut operation.operands {
            *operand = self.value(*operand);
        }
        for result in &mut operation.results {
            *result = self.result(*result);
        }
        self.b.push(Statement::Subgroup(Box::new(operation)));
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

    /// A constant of a table; zero beyond the end, where no verified program reads.
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

    /// Writes a block inside a statement as a block of its own. Changes made there are undone and returned.
    fn inner(&mut self, block: &Block) -> (Block, Flow, Changes) {
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
        if self.flatten(condition, &accept.0, &reject.0) {
            return Flow::Falls;
        }
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

    fn switch(&mut self, selector: Value, cases: &[Case], default: &Block) -> Flow {
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
            new_cases.push(Case {
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

    /// Takes over the common knowledge of all branches that fall through. Of the values, the first `visible` were there
    /// before the branches; values computed in a branch cannot be used behind it, even if the branch is the only one to
    /// fall through.
    fn join(&mut self, visible: usize, ends: &[(Flow, &Changes)]) -> Flow {
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
}
