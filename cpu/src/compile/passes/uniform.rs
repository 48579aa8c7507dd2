//! What lanes side by side have in common, and where lanes part.
//!
//! *How it works.* Everything begins as unknown, and the program is read until nothing changes. A value is *uniform* if
//! all active lanes have the same, *linear* if each lane has a fixed stride more than the lane before, and *varying*
//! otherwise. Branches on varying conditions part the lanes, and so do exits taken by some lanes only. A variable
//! assigned while lanes are parted varies if a lane without a part in the assignment reads the variable later: liveness
//! says where such a lane goes on.

use std::collections::HashSet;

use cranelift_codegen::entity::SecondaryMap;

use super::live::{Live, Lives};
use crate::compile::ir::{
    Base, Binary, BindingAt, Block, Builtin, Conversion, Op, Place, Program, Scope, Statement,
    Type, Unary, Value, Variable, visit,
};

/// How the values of neighbouring lanes are related.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// The same
    Uniform,
    /// An integer greater by so much, modulo 2^32, than in the lane before; never zero
    Linear(u32),
    Varying,
}

/// Knowledge of a program run by so many lanes.
#[derive(Default)]
pub(crate) struct Uniformity {
    builtins: Vec<(Builtin, Shape)>,
    values: SecondaryMap<Value, Option<Shape>>,
    variables: SecondaryMap<Variable, Option<Shape>>,
    exits: HashSet<Scope>,
    continues: HashSet<Scope>,
    blended: HashSet<*const Statement>,
    parted_barrier: bool,
    varying_binding: bool,
}

impl Uniformity {
    /// The shape of a value.
    pub(crate) fn value(&self, program: &Program, value: Value) -> Shape {
        self.known(program, value).unwrap_or(Shape::Uniform)
    }

    /// The shape of a variable's content.
    pub(crate) fn variable(&self, variable: Variable) -> Shape {
        self.variables[variable].unwrap_or(Shape::Uniform)
    }

    /// Whether some lanes may leave a scope while others stay.
    pub(crate) fn exits_apart(&self, scope: Scope) -> bool {
        self.exits.contains(&scope)
    }

    /// Whether some lanes may go on to the next pass of a loop while others stay in the body.
    pub(crate) fn continues_apart(&self, scope: Scope) -> bool {
        self.continues.contains(&scope)
    }

    /// Whether an assignment must leave the variable unchanged in lanes that are not active.
    pub(crate) fn is_blended(&self, statement: &Statement) -> bool {
        self.blended.contains(&std::ptr::from_ref(statement))
    }

    /// Whether a barrier stands where lanes may be parted.
    pub(crate) fn parts_at_barriers(&self) -> bool {
        self.parted_barrier
    }

    /// Whether lanes may select different elements of an array of bindings.
    pub(crate) fn parts_in_bindings(&self) -> bool {
        self.varying_binding
    }

    /// `None` before anything is known.
    fn known(&self, program: &Program, value: Value) -> Option<Shape> {
        match program.values[value].op {
            Op::Const(_) => Some(Shape::Uniform),
            Op::Builtin(builtin) => {
                let known = self.builtins.iter().find(|(known, _)| *known == builtin);
                Some(known.map_or(Shape::Uniform, |&(_, shape)| shape))
            }
            _ => self.values[value],
        }
    }
}

/// Finds out what `lanes` neighbouring invocations, doing each statement together, have in common.
pub(crate) fn analyze(program: &Program, lives: &Lives, lanes: u32) -> Uniformity {
    Analysis::new(program, lives, lanes, true).run()
}

/// Finds out what all invocations of a work-group have in common, doing a statement one after the other: memory loaded
/// by one invocation may be changed by another.
pub(crate) fn analyze_group(program: &Program, lives: &Lives) -> Uniformity {
    Analysis::new(program, lives, program.invocations(), false).run()
}

/// The built-in values differing between neighbouring invocations.
fn builtins([x, y, _]: [u32; 3], lanes: u32) -> Vec<(Builtin, Shape)> {
    let whole = |count: u32| count.is_multiple_of(lanes);
    let row = match x {
        1 => Shape::Uniform,
        x if whole(x) => Shape::Linear(1),
        _ => Shape::Varying,
    };
    let column = match (x, y) {
        (x, y) if whole(x) || y == 1 => Shape::Uniform,
        (1, y) if whole(y) => Shape::Linear(1),
        _ => Shape::Varying,
    };
    let plane = match x * y {
        1 => Shape::Linear(1),
        plane if whole(plane) => Shape::Uniform,
        _ => Shape::Varying,
    };
    vec![
        (Builtin::LocalIndex, Shape::Linear(1)),
        (Builtin::LocalId(0), row),
        (Builtin::LocalId(1), column),
        (Builtin::LocalId(2), plane),
    ]
}

/// The surroundings of a statement that may part lanes.
enum Around<'a> {
    /// An arm of a branch on a varying condition, and the variables read later by lanes outside the arm
    Arm(Option<&'a Live>),
    Scope(Scope),
    Body(Scope),
    Continuing(Scope),
}

struct Analysis<'a> {
    program: &'a Program,
    lives: &'a Lives,
    /// Whether the lanes do each statement together
    together: bool,
    found: Uniformity,
    around: Vec<Around<'a>>,
    changed: bool,
}

impl<'a> Analysis<'a> {
    fn new(program: &'a Program, lives: &'a Lives, lanes: u32, together: bool) -> Self {
        Self {
            program,
            lives,
            together,
            found: Uniformity {
                builtins: builtins(program.workgroup_size, lanes),
                ..Uniformity::default()
            },
            around: Vec::new(),
            changed: true,
        }
    }

    fn run(mut self) -> Uniformity {
        while self.changed {
            self.changed = false;
            self.block(&self.program.body);
        }
        self.found
    }

    fn block(&mut self, block: &'a Block) {
        for statement in block {
            self.statement(statement);
        }
    }

    fn inside(&mut self, around: Around<'a>, block: &'a Block) {
        self.around.push(around);
        self.block(block);
        self.around.pop();
    }

    fn statement(&mut self, statement: &'a Statement) {
        match statement {
            Statement::Let(value) => {
                let shape = self.operation(*value);
                self.define(*value, shape);
            }
            Statement::Set(variable, value) => self.assign(statement, *variable, *value),
            Statement::Load { place, leaves, .. } => {
                let shape = self.loaded(place);
                for leaf in leaves {
                    self.define(leaf.value, shape);
                }
            }
            Statement::Store { place, .. } => _ = self.loaded(place),
            Statement::Atomic(atomic) => {
                self.loaded(&atomic.place);
                visit::definitions(statement, |value| self.define(value, Some(Shape::Varying)));
            }
            Statement::Call(call) => {
                call.resources.iter().for_each(|&at| self.binding(at));
                visit::definitions(statement, |value| self.define(value, Some(Shape::Varying)));
            }
            Statement::If {
                condition,
                accept,
                reject,
            } => self.arms(statement, *condition, &[accept, reject]),
            Statement::Switch {
                selector,
                cases,
                default,
            } => {
                let mut arms: Vec<_> = cases.iter().map(|case| &case.body).collect();
                arms.push(default);
                self.arms(statement, *selector, &arms);
            }
            Statement::Loop {
                scope,
                body,
                continuing,
                ..
            } => {
                self.inside(Around::Body(*scope), body);
                self.inside(Around::Continuing(*scope), continuing);
            }
            Statement::Scope { scope, body } => self.inside(Around::Scope(*scope), body),
            Statement::Exit(scope) => {
                if self.parted_within(*scope, true) {
                    self.changed |= self.found.exits.insert(*scope);
                }
            }
            Statement::Continue(scope) => {
                if self.parted_within(*scope, false) {
                    self.changed |= self.found.continues.insert(*scope);
                }
            }
            Statement::Subgroup(operation) => {
                let same = self.together && operation.function.is_same_for_all();
                let shape = match same {
                    true => Shape::Uniform,
                    false => Shape::Varying,
                };
                visit::definitions(statement, |value| self.define(value, Some(shape)));
            }
            Statement::Barrier(barrier) => {
                if barrier.waits && self.around.iter().any(|around| self.parts(around)) {
                    self.found.parted_barrier = true;
                }
            }
        }
    }

    fn arms(&mut self, statement: &'a Statement, selector: Value, arms: &[&'a Block]) {
        // A condition of still unknown shape parts nobody.
        let varies = !matches!(
            self.found.known(self.program, selector),
            None | Some(Shape::Uniform)
        );
        let beside = self.lives.beside.get(&std::ptr::from_ref(statement));
        for (index, arm) in arms.iter().enumerate() {
            if varies {
                let later = beside.and_then(|beside| beside.get(index));
                self.inside(Around::Arm(later), arm);
            } else {
                self.block(arm);
            }
        }
    }

    /// Whether lanes arriving together may be apart inside.
    fn parts(&self, around: &Around) -> bool {
        match around {
            Around::Arm(_) => true,
            Around::Scope(scope) | Around::Continuing(scope) => self.found.exits_apart(*scope),
            Around::Body(scope) => {
                self.found.exits_apart(*scope) || self.found.continues_apart(*scope)
            }
        }
    }

    /// Whether lanes may be parted between a scope and here, so that leaving (or continuing) the scope parts them for longer.
    fn parted_within(&self, scope: Scope, leaves: bool) -> bool {
        for around in self.around.iter().rev() {
            match around {
                Around::Body(own) if *own == scope => {
                    return leaves && self.found.continues_apart(scope);
                }
                Around::Scope(own) | Around::Continuing(own) if *own == scope => return false,
                around if self.parts(around) => return true,
                _ => {}
            }
        }
        false
    }

    fn assign(&mut self, statement: &Statement, variable: Variable, value: Value) {
        let read = |live: Option<&Live>| live.is_none_or(|live| live.contains(variable));
        let blended = self.around.iter().any(|around| match around {
            Around::Arm(later) => read(*later),
            Around::Scope(scope) | Around::Continuing(scope) => {
                self.found.exits_apart(*scope) && read(self.lives.ends.get(scope))
            }
            Around::Body(scope) => {
                self.found.exits_apart(*scope) && read(self.lives.ends.get(scope))
                    || self.found.continues_apart(*scope) && read(self.lives.continues.get(scope))
            }
        });
        let mut shape = self.found.known(self.program, value);
        if blended {
            self.changed |= self.found.blended.insert(statement);
            shape = Some(Shape::Varying);
        }
        let known = self.found.variables[variable];
        let joined = join(known, shape);
        self.changed |= joined != known;
        self.found.variables[variable] = joined;
    }

    fn define(&mut self, value: Value, shape: Option<Shape>) {
        let known = self.found.values[value];
        let joined = join(known, shape);
        self.changed |= joined != known;
        self.found.values[value] = joined;
    }

    fn binding(&mut self, at: BindingAt) {
        if let Some((index, _)) = at.index {
            let shape = self.found.known(self.program, index);
            self.found.varying_binding |= !matches!(shape, None | Some(Shape::Uniform));
        }
    }

    /// The shape of a value loaded from a place.
    fn loaded(&mut self, place: &Place) -> Option<Shape> {
        if let Base::Binding(at) = place.base {
            self.binding(at);
        }
        if let Base::Slot(_) = place.base {
            return Some(Shape::Varying);
        }
        if !self.together && !self.program.is_constant(place.base) {
            return Some(Shape::Varying);
        }
        let mut shape = Some(Shape::Uniform);
        visit::place_operands(place, |operand| {
            shape = mixed(shape, self.found.known(self.program, operand));
        });
        shape
    }

    fn operation(&mut self, value: Value) -> Option<Shape> {
        let program = self.program;
        let def = program.values[value];
        if let Op::Length(at) = def.op {
            self.binding(at);
        }
        let shape = |value| self.found.known(program, value);
        let stride = |value| match shape(value) {
            Some(Shape::Uniform) => Some(0),
            Some(Shape::Linear(stride)) => Some(stride),
            _ => None,
        };
        let linear = match def.op {
            Op::Get(variable) => return self.found.variables[variable],
            _ if def.ty != Type::I32 => None,
            Op::Unary(Unary::Negate, a) => stride(a).map(u32::wrapping_neg),
            Op::Binary(op, a, b) => match (op, stride(a), stride(b)) {
                (Binary::Add, Some(a), Some(b)) => Some(a.wrapping_add(b)),
                (Binary::Sub, Some(a), Some(b)) => Some(a.wrapping_sub(b)),
                (Binary::Mul, Some(stride), Some(0)) => {
                    (program.constant(b)).map(|factor| stride.wrapping_mul(factor as u32))
                }
                (Binary::Mul, Some(0), Some(stride)) => {
                    (program.constant(a)).map(|factor| stride.wrapping_mul(factor as u32))
                }
                (Binary::Shl, Some(stride), Some(0)) => {
                    (program.constant(b)).map(|amount| stride.wrapping_shl(amount as u32))
                }
                _ => None,
            },
            Op::Convert(Conversion::Bits, a) if program.ty(a) == Type::I32 => stride(a),
            Op::Select {
                condition,
                accept,
                reject,
            } if shape(condition) == Some(Shape::Uniform) => {
                stride(accept).filter(|&accept| stride(reject) == Some(accept))
            }
            _ => None,
        };
        match linear {
            Some(0) => return Some(Shape::Uniform),
            Some(stride) => return Some(Shape::Linear(stride)),
            None => {}
        }
        let mut mix = Some(Shape::Uniform);
        visit::operands(&def.op, |operand| mix = mixed(mix, shape(operand)));
        mix
    }
}

/// The shape of values with one of two shapes each.
fn join(a: Option<Shape>, b: Option<Shape>) -> Option<Shape> {
    match (a, b) {
        (None, known) | (known, None) => known,
        (Some(a), Some(b)) if a == b => Some(a),
        _ => Some(Shape::Varying),
    }
}

/// The shape of the result of an operation, known by the operands only.
fn mixed(a: Option<Shape>, b: Option<Shape>) -> Option<Shape> {
    match (a, b) {
        (Some(Shape::Varying), _) => a,
        (_, Some(Shape::Linear(_) | Shape::Varying)) => Some(Shape::Varying),
        (None, _) | (_, None) => None,
        _ => a,
    }
}
