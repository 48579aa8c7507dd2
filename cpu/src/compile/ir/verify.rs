//! Checks that a program is well formed. A failure means wrong passes, never a user's wrong kernel.

use std::collections::HashSet;

use super::{Binary, Block, Comparison, Op, Program, Scope, Statement, Type, Unary, Value, visit};

/// Names the fault of a program: a value used where unknown, an exit from a scope that does not enclose the exit or
/// that names two constructs, operands of the wrong type.
pub(crate) fn verify(program: &Program) -> Result<(), String> {
    let mut verifier = Verifier {
        program,
        known: HashSet::new(),
        scopes: Vec::new(),
        opened: HashSet::new(),
        undo: Vec::new(),
    };
    verifier.block(&program.body)
}

struct Verifier<'a> {
    program: &'a Program,
    known: HashSet<Value>,
    /// Enclosing scopes; whether each is a loop
    scopes: Vec<(Scope, bool)>,
    /// Every scope met so far
    opened: HashSet<Scope>,
    /// Values in the order of becoming known
    undo: Vec<Value>,
}

impl Verifier<'_> {
    fn block(&mut self, block: &Block) -> Result<(), String> {
        let before = self.undo.len();
        let result = self.statements(block);
        self.forget(before);
        result
    }

    /// Enters a scope, the name of one construct only: an analysis must not mix up two constructs.
    fn open(&mut self, scope: Scope, repeats: bool) -> Result<(), String> {
        if !self.opened.insert(scope) {
            return Err(format!("{scope} is the name of two constructs"));
        }
        self.scopes.push((scope, repeats));
        Ok(())
    }

    fn forget(&mut self, before: usize) {
        for value in self.undo.drain(before..) {
            self.known.remove(&value);
        }
    }

    fn statements(&mut self, block: &Block) -> Result<(), String> {
        for statement in block {
            let mut unknown = None;
            visit::uses(self.program, statement, |value| {
                let floating =
                    matches!(self.program.values[value].op, Op::Const(_) | Op::Builtin(_));
                if !floating && !self.known.contains(&value) {
                    unknown = Some(value);
                }
            });
            if let Some(value) = unknown {
                return Err(format!(
                    "{value} is used where it is not known, in {statement:?}"
                ));
            }
            self.statement(statement)?;
            visit::definitions(statement, |value| {
                if self.known.insert(value) {
                    self.undo.push(value);
                }
            });
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), String> {
        let ty = |value: Value| self.program.ty(value);
        match statement {
            Statement::Let(value) => self.op(*value),
            Statement::Set(variable, value) => {
                if self.program.variables[*variable] == ty(*value) {
                    Ok(())
                } else {
                    Err(format!("{variable} is assigned {value} of another type"))
                }
            }
            Statement::If {
                condition,
                accept,
                reject,
            } => {
                if ty(*condition) != Type::Bool {
                    return Err(format!("{condition} is a condition and no boolean"));
                }
                self.block(accept)?;
                self.block(reject)
            }
            Statement::Loop {
                scope,
                body,
                continuing,
                ..
            } => {
                self.open(*scope, true)?;
                let before = self.undo.len();
                self.statements(body)?;
                self.block(continuing)?;
                self.forget(before);
                self.scopes.pop();
                Ok(())
            }
            Statement::Scope { scope, body } => {
                self.open(*scope, false)?;
                self.block(body)?;
                self.scopes.pop();
                Ok(())
            }
            Statement::Switch { cases, default, .. } => {
                for case in cases {
                    self.block(&case.body)?;
                }
                self.block(default)
            }
            Statement::Subgroup(operation) if !operation.fits(self.program) => Err(format!(
                "an operation of a subgroup does not fit: {operation:?}"
            )),
            Statement::Exit(scope) if !self.scopes.iter().any(|(s, _)| s == scope) => {
                Err(format!("{scope} is left and does not enclose"))
            }
            Statement::Continue(scope) if !self.scopes.contains(&(*scope, true)) => {
                Err(format!("{scope} is continued and is no enclosing loop"))
            }
            _ => Ok(()),
        }
    }

    fn op(&self, value: Value) -> Result<(), String> {
        let def = self.program.values[value];
        let ty = |value: Value| self.program.ty(value);
        let fits = match def.op {
            Op::Const(_) | Op::Builtin(_) | Op::Result => false,
            Op::Get(variable) => self.program.variables[variable] == def.ty,
            Op::Length(_) => def.ty == Type::I32,
            Op::Unary(op, a) => {
                let float = ty(a).is_float();
                def.ty == ty(a)
                    && match op {
                        Unary::Negate | Unary::Abs => ty(a) != Type::Bool,
                        Unary::Not => !float,
                        Unary::Sqrt
                        | Unary::Ceil
                        | Unary::Floor
                        | Unary::Trunc
                        | Unary::Nearest => float,
                        _ => matches!(ty(a), Type::I32 | Type::I64),
                    }
            }
            Op::Binary(op, a, b) => {
                let shift = matches!(op, Binary::Shl | Binary::ShrU | Binary::ShrS);
                def.ty == ty(a)
                    && (ty(b) == ty(a) || shift && ty(b) == Type::I32)
                    && match op {
                        Binary::And | Binary::Or | Binary::Xor => !ty(a).is_float(),
                        Binary::Add | Binary::Sub | Binary::Mul => ty(a) != Type::Bool,
                        Binary::DivF | Binary::MinF | Binary::MaxF => ty(a).is_float(),
                        _ => matches!(ty(a), Type::I32 | Type::I64),
                    }
            }
            Op::Compare(op, a, b) => {
                def.ty == Type::Bool
                    && ty(a) == ty(b)
                    && match op {
                        Comparison::Eq | Comparison::Ne => true,
                        Comparison::LtF | Comparison::LeF => ty(a).is_float(),
                        _ => matches!(ty(a), Type::I32 | Type::I64),
                    }
            }
            Op::Select {
                condition,
                accept,
                reject,
            } => ty(condition) == Type::Bool && ty(accept) == def.ty && ty(reject) == def.ty,
            Op::Convert(..) => true,
            Op::MultiplyAdd(a, b, c) => {
                def.ty.is_float() && ty(a) == def.ty && ty(b) == def.ty && ty(c) == def.ty
            }
        };
        if fits {
            Ok(())
        } else {
            Err(format!("{value} has operands that do not fit: {def:?}"))
        }
    }
}
