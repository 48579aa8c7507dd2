//! Programs as text, for tests and for eyes.

use std::fmt::{self, Write};

use super::{
    Access, Atomic, Base, BindingAt, Block, Call, Count, Leaf, Op, Place, Program, Statement,
    Subgroup, Value, visit,
};

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.workgroup_size;
        writeln!(f, "kernel {} ({x}, {y}, {z})", self.name)?;
        for (binding, used) in &self.bindings {
            let constant = if used.constant { " constant" } else { "" };
            writeln!(
                f,
                "  {binding}: @group({}) @binding({}){constant}",
                used.group, used.binding
            )?;
        }
        for (slot, bytes) in &self.slots {
            writeln!(f, "  {slot}: {bytes} bytes")?;
        }
        Printer {
            program: self,
            out: f,
        }
        .block(&self.body, 1)
    }
}

struct Printer<'a, 'f, 'g> {
    program: &'a Program,
    out: &'f mut fmt::Formatter<'g>,
}

impl Printer<'_, '_, '_> {
    fn block(&mut self, block: &Block, depth: usize) -> fmt::Result {
        for statement in block {
            for _ in 0..depth {
                self.out.write_str("  ")?;
            }
            self.statement(statement, depth)?;
        }
        Ok(())
    }

    fn end(&mut self, depth: usize, text: &str) -> fmt::Result {
        for _ in 0..depth {
            self.out.write_str("  ")?;
        }
        writeln!(self.out, "{text}")
    }

    fn value(&self, value: Value) -> String {
        match self.program.values[value].op {
            Op::Const(bits) => match self.program.ty(value) {
                super::Type::F32 | super::Type::F16 => format!("{:?}", f32::from_bits(bits as u32)),
                super::Type::F64 => format!("{:?}", f64::from_bits(bits)),
                super::Type::Bool => format!("{}", bits != 0),
                _ => format!("{bits}"),
            },
            Op::Builtin(builtin) => format!("{builtin:?}"),
            _ => value.to_string(),
        }
    }

    fn binding(&self, at: BindingAt) -> String {
        match at.index {
            None => at.first.to_string(),
            Some((index, count)) => format!("{}[{} < {count}]", at.first, self.value(index)),
        }
    }

    fn place(&self, place: &Place) -> String {
        let mut text = match place.base {
            Base::Binding(at) => self.binding(at),
            Base::Slot(slot) => slot.to_string(),
            Base::Table(table) => table.to_string(),
            Base::WorkGroup => "workgroup".into(),
            Base::Immediates => "immediates".into(),
        };
        if place.offset != 0 {
            let _ = write!(text, " + {}", place.offset);
        }
        for step in &place.steps {
            let count = match step.count {
                Count::Fixed(count) => count.to_string(),
                Count::Bound(at) => format!("length of {}", self.binding(at)),
            };
            let _ = write!(
                text,
                " + {}×{} (of {count})",
                self.value(step.index),
                step.stride
            );
        }
        text
    }

    fn leaves(&self, leaves: &[Leaf], defines: bool) -> String {
        let texts: Vec<String> = leaves
            .iter()
            .map(|leaf| {
                let value = self.value(leaf.value);
                if defines {
                    format!(
                        "{value}: {:?} @{}",
                        self.program.ty(leaf.value),
                        leaf.offset
                    )
                } else {
                    format!("{value} @{}", leaf.offset)
                }
            })
            .collect();
        texts.join(", ")
    }

    fn op(&self, op: &Op) -> String {
        match op {
            Op::Get(variable) => return format!("get {variable}"),
            Op::Length(at) => return format!("length {}", self.binding(*at)),
            _ => {}
        }
        let mut text = match op {
            Op::Unary(unary, _) => format!("{unary:?}"),
            Op::Binary(binary, ..) => format!("{binary:?}"),
            Op::Compare(comparison, ..) => format!("{comparison:?}"),
            Op::Select { .. } => "Select".into(),
            Op::Convert(conversion, _) => format!("{conversion:?}"),
            Op::MultiplyAdd(..) => "MultiplyAdd".into(),
            other => format!("{other:?}"),
        };
        visit::operands(op, |operand| {
            let _ = write!(text, " {}", self.value(operand));
        });
        text
    }

    fn atomic(&mut self, atomic: &Atomic) -> fmt::Result {
        let (place, value) = (self.place(&atomic.place), self.value(atomic.value));
        let compare = atomic.compare.map(|v| format!(" if {}", self.value(v)));
        let compare = compare.unwrap_or_default();
        writeln!(
            self.out,
            "{} = atomic {:?} {place} <- {value}{compare}",
            atomic.result, atomic.function
        )
    }

    fn call(&mut self, call: &Call) -> fmt::Result {
        let list = |values: &[Value]| {
            let texts: Vec<String> = values.iter().map(|&v| self.value(v)).collect();
            texts.join(", ")
        };
        let resources = call.resources.iter().map(|&at| self.binding(at));
        let resources: Vec<String> = resources.collect();
        let (results, operands) = (list(&call.results), list(&call.operands));
        writeln!(
            self.out,
            "{results} = call {:?} [{}] ({operands})",
            call.function,
            resources.join(", ")
        )
    }

    fn subgroup(&mut self, operation: &Subgroup) -> fmt::Result {
        let list = |values: &[Value]| {
            let texts: Vec<String> = values.iter().map(|&v| self.value(v)).collect();
            texts.join(", ")
        };
        let passes: Vec<String> = (operation.passes.iter())
            .map(|&(scope, passes)| format!("{scope}: {}", self.value(passes)))
            .collect();
        let (results, operands) = (list(&operation.results), list(&operation.operands));
        writeln!(
            self.out,
            "{results} = subgroup {:?} [{}] ({operands})",
            operation.function,
            passes.join(", ")
        )
    }

    fn statement(&mut self, statement: &Statement, depth: usize) -> fmt::Result {
        match statement {
            Statement::Let(value) => {
                let def = &self.program.values[*value];
                let op = self.op(&def.op);
                writeln!(self.out, "{value}: {:?} = {op}", def.ty)
            }
            Statement::Set(variable, value) => {
                let value = self.value(*value);
                writeln!(self.out, "{variable} := {value}")
            }
            Statement::Load {
                place,
                leaves,
                access,
            } => {
                let (leaves, place) = (self.leaves(leaves, true), self.place(place));
                writeln!(self.out, "{leaves} = load{} {place}", atomic(*access))
            }
            Statement::Store {
                place,
                leaves,
                access,
            } => {
                let (leaves, place) = (self.leaves(leaves, false), self.place(place));
                writeln!(self.out, "store{} {place} <- {leaves}", atomic(*access))
            }
            Statement::Atomic(atomic) => self.atomic(atomic),
            Statement::Call(call) => self.call(call),
            Statement::If {
                condition,
                accept,
                reject,
            } => {
                let condition = self.value(*condition);
                writeln!(self.out, "if {condition} {{")?;
                self.block(accept, depth + 1)?;
                if !reject.is_empty() {
                    self.end(depth, "} else {")?;
                    self.block(reject, depth + 1)?;
                }
                self.end(depth, "}")
            }
            Statement::Loop {
                scope,
                body,
                continuing,
                ..
            } => {
                writeln!(self.out, "loop {scope} {{")?;
                self.block(body, depth + 1)?;
                if !continuing.is_empty() {
                    self.end(depth, "} continuing {")?;
                    self.block(continuing, depth + 1)?;
                }
                self.end(depth, "}")
            }
            Statement::Scope { scope, body } => {
                writeln!(self.out, "{scope} {{")?;
                self.block(body, depth + 1)?;
                self.end(depth, "}")
            }
            Statement::Switch {
                selector,
                cases,
                default,
            } => {
                let selector = self.value(*selector);
                writeln!(self.out, "switch {selector} {{")?;
                for case in cases {
                    self.end(depth, &format!("case {:?}:", case.selectors))?;
                    self.block(&case.body, depth + 1)?;
                }
                self.end(depth, "default:")?;
                self.block(default, depth + 1)?;
                self.end(depth, "}")
            }
            Statement::Exit(scope) => writeln!(self.out, "exit {scope}"),
            Statement::Continue(scope) => writeln!(self.out, "continue {scope}"),
            Statement::Subgroup(operation) => self.subgroup(operation),
            Statement::Barrier(barrier) => {
                let kind = if barrier.waits { "barrier" } else { "fence" };
                let storage = if barrier.storage { " storage" } else { "" };
                writeln!(self.out, "{kind}{storage}")
            }
        }
    }
}

fn atomic(access: Access) -> &'static str {
    match access {
        Access::Plain => "",
        Access::Atomic => " atomic",
    }
}
