//! Notes of faults: the first place that an invocation touches and may not, kept in variables and written to the status
//! record.

use naga::{
    AtomicFunction, BinaryOperator as Op, Block, Expression, Function, Literal, Span, Statement,
};

use super::super::only_if;
use super::super::status;
use super::builder::{Builder, Value};
use super::check::Cause;
use super::heap::Heap;
use super::options::{ZERO_WORD, site_code};
use super::place::Place;
use crate::kernel::passes::code::Emitter;

impl Builder<'_> {
    /// Makes the variables for noting faults: the function is at its start.
    pub fn begin_notes(&mut self) {
        if self.heap.notes.is_some() {
            self.notes = Some(["note", "note_low", "note_high"].map(|name| {
                let variable = naga::LocalVariable {
                    name: Some(format!("tombolo_{name}")),
                    ty: self.heap.types.u32,
                    init: None,
                };
                let variable = self.code.locals.append(variable, self.code.span);
                self.add(Expression::LocalVariable(variable))
            }));
        }
    }

    /// Notes a place that is about to be touched and may not be, unless done before on every way here.
    ///
    /// The note is kept in variables of the function, which drivers keep in registers. The choice is made without a
    /// branch: drivers running several invocations at once on a CPU execute both sides of each branch.
    pub fn report(&mut self, place: &Place) {
        let Some((valid, variables)) = place.valid.zip(self.notes) else {
            return;
        };
        if !self.first_report(valid) {
            return;
        }
        let Some((new, is_unnoted)) = self.cause(valid).zip(self.is_unnoted(variables)) else {
            return;
        };
        let invalid = self.not(valid);
        let first = self.all(invalid, is_unnoted);
        self.note(first, new, variables);
    }

    /// Whether nothing was noted in `variables`: the code is zero. The comparison is with a loaded zero: The time of
    /// Mesa triples with each note in a row where a value is chosen and compared with a constant again and again.
    fn is_unnoted(&mut self, variables: [Value; 3]) -> Option<Value> {
        let zero = self.info(ZERO_WORD)?;
        let code = self.load(variables[0]);
        Some(self.binary(Op::Equal, code, zero))
    }

    /// Puts `new` into `variables` where `condition` holds.
    fn note(&mut self, condition: Value, new: [Value; 3], variables: [Value; 3]) {
        for (variable, value) in variables.into_iter().zip(new) {
            let old = self.load(variable);
            let kept = self.select(condition, value, old);
            self.store(variable, kept);
        }
    }

    /// Hands the function's notes to the invocation's own notes, shared with callers and callees: before the function
    /// ends, and before it calls another, so the first fault stays the first.
    pub fn hand_over_notes(&mut self) {
        let Some((own, shared)) = self.notes.zip(self.heap.notes) else {
            return;
        };
        let shared = shared.map(|variable| self.global(variable));
        let new = own.map(|variable| self.load(variable));
        if let Some(is_unnoted) = self.is_unnoted(shared) {
            self.note(is_unnoted, new, shared);
        }
    }

    pub fn not(&mut self, expr: Value) -> Value {
        self.add(Expression::Unary {
            op: naga::UnaryOperator::LogicalNot,
            expr,
        })
    }

    /// Code and address for a place known to be invalid.
    fn cause(&mut self, valid: Value) -> Option<[Value; 3]> {
        match *self.causes.get(&valid)? {
            Cause::Pointer { raw, site } => {
                let low = self.member(raw, 0);
                let high = self.member(raw, 1);
                Some([self.word(site_code(site)), low, high])
            }
            Cause::Index {
                parent,
                address: (low, high),
                site,
            } => {
                let [code, parent_low, parent_high] = self.cause(parent)?;
                let index = self.word(site_code(site));
                Some([
                    self.select(parent, index, code),
                    self.select(parent, low, parent_low),
                    self.select(parent, high, parent_high),
                ])
            }
        }
    }

    /// Writes the notes to the status record: the entry point is about to end.
    pub fn write_notes(&mut self) {
        if let Some(function) = self.heap.fault {
            self.push(Statement::Call {
                function,
                arguments: Vec::new(),
                result: None,
            });
        }
    }

    /// Has the entry point keep the number of its invocation: the position in the grid, x fastest.
    pub fn keep_invocation(&mut self, ids: Value, groups: Value, workgroup: [Value; 2]) {
        let Some(variable) = self.heap.invocation else {
            return;
        };
        let [x, y, z] = [0, 1, 2].map(|i| self.member(ids, i));
        let groups_x = self.member(groups, 0);
        let groups_y = self.member(groups, 1);
        let width = self.binary(Op::Multiply, groups_x, workgroup[0]);
        let height = self.binary(Op::Multiply, groups_y, workgroup[1]);
        let rows = self.binary(Op::Multiply, z, height);
        let rows = self.binary(Op::Add, rows, y);
        let number = self.binary(Op::Multiply, rows, width);
        let number = self.binary(Op::Add, number, x);
        let variable = self.global(variable);
        self.store(variable, number);
    }
}

/// The function that writes an invocation's notes to the status record. The first invocation to claim the record writes
/// all of the record, so its words belong together.
pub(super) fn fault_function(heap: &Heap, name: String) -> Option<Function> {
    let (status, invocation) = heap.status.zip(heap.invocation)?;
    let notes = heap.notes?;
    let span = Span::UNDEFINED;
    let mut function = Function {
        name: Some(name),
        ..Function::default()
    };
    let e = &mut function.expressions;
    let record = e.append(Expression::GlobalVariable(status), span);
    let variables = [notes[0], notes[1], notes[2], invocation]
        .map(|v| e.append(Expression::GlobalVariable(v), span));
    let one = e.append(Expression::Literal(Literal::U32(1)), span);
    let zero = e.append(Expression::Literal(Literal::U32(0)), span);
    let result = Expression::AtomicResult {
        ty: heap.types.u32,
        comparison: false,
    };
    let before = e.append(result, span);
    let word = |e: &mut naga::Arena<Expression>, index| {
        let base = record;
        e.append(Expression::AccessIndex { base, index }, span)
    };
    let compare = |op, left| Expression::Binary {
        op,
        left,
        right: zero,
    };

    let start = e.len();
    let values = variables.map(|pointer| e.append(Expression::Load { pointer }, span));
    let words = [0, 1, 2, 3].map(|i| word(e, status::POINTER.start + i));
    let mut write = Block::new();
    write.push(Statement::Emit(e.range_from(start)), span);
    for (pointer, value) in words.into_iter().zip(values) {
        write.push(Statement::Store { pointer, value }, span);
    }

    let start = e.len();
    let claim = word(e, status::POINTER_CLAIM);
    let mut noted = Block::new();
    noted.push(Statement::Emit(e.range_from(start)), span);
    let exchange = Statement::Atomic {
        pointer: claim,
        fun: AtomicFunction::Exchange { compare: None },
        value: one,
        result: Some(before),
    };
    noted.push(exchange, span);
    let start = e.len();
    let is_first = e.append(compare(Op::Equal, before), span);
    noted.push(Statement::Emit(e.range_from(start)), span);
    noted.push(only_if(is_first, write), span);

    // Mesa looks for uniforms behind every condition, again for each way through the choices leading there, unless the
    // first operand is not a uniform: this zero is loaded from storage, and comes first.
    let pointer = e.append(Expression::GlobalVariable(notes[0]), span);
    let start = e.len();
    let none = word(e, status::ALWAYS_ZERO);
    let [none, code] = [none, pointer].map(|pointer| e.append(Expression::Load { pointer }, span));
    let is_noted = Expression::Binary {
        op: Op::NotEqual,
        left: none,
        right: code,
    };
    let is_noted = e.append(is_noted, span);
    let emit = Statement::Emit(e.range_from(start));
    function.body.push(emit, span);
    function.body.push(only_if(is_noted, noted), span);
    function.body.push(Statement::Return { value: None }, span);
    Some(function)
}
