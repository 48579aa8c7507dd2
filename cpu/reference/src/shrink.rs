//! Making a failing program small.
//!
//! [`shrink`] tries one change of the tree after the other and keeps those after which the program
//! still fails: leaving out statements, many at once at first; taking a part in place of the whole;
//! replacing expressions by their operands or by zero; leaving out what nobody uses. Whether a changed
//! program is valid is not decided here: the caller's test refuses those that are not.

use crate::generate::ast::*;
use crate::generate::print::type_name;

/// A smaller program for which `fails` still holds. `attempts` bounds how often `fails` is asked.
pub fn shrink(
    program: &Program,
    attempts: usize,
    mut fails: impl FnMut(&Program) -> bool,
) -> Program {
    let mut shrinker = Shrinker {
        best: program.clone(),
        attempts,
        fails: &mut fails,
    };
    loop {
        let before = shrinker.best.clone();
        shrinker.leave_out_functions();
        shrinker.leave_out_statements();
        shrinker.replace_statements();
        shrinker.replace_expressions();
        shrinker.leave_out_declarations();
        if shrinker.best == before || shrinker.attempts == 0 {
            return shrinker.best;
        }
    }
}

struct Shrinker<'a> {
    best: Program,
    attempts: usize,
    fails: &'a mut dyn FnMut(&Program) -> bool,
}

impl Shrinker<'_> {
    /// Keeps a candidate if it still fails.
    fn attempt(&mut self, candidate: Program) -> bool {
        if self.attempts == 0 || candidate == self.best {
            return false;
        }
        self.attempts -= 1;
        let smaller = (self.fails)(&candidate);
        if smaller {
            self.best = candidate;
        }
        smaller
    }

    fn leave_out_functions(&mut self) {
        for workgroups in 1..self.best.workgroups {
            if self.attempt(Program {
                workgroups,
                ..self.best.clone()
            }) {
                break;
            }
        }
        for index in (0..self.best.functions.len()).rev() {
            let mut candidate = self.best.clone();
            candidate.functions.remove(index);
            self.attempt(candidate);
        }
    }

    fn leave_out_declarations(&mut self) {
        for index in (0..self.best.globals.len()).rev() {
            let mut candidate = self.best.clone();
            candidate.globals.remove(index);
            self.attempt(candidate);
        }
        // Types name structures by their place, so that only the last can go.
        while !self.best.structures.is_empty() {
            let mut candidate = self.best.clone();
            candidate.structures.pop();
            if uses_structure(&candidate, candidate.structures.len()) || !self.attempt(candidate) {
                break;
            }
        }
    }

    /// Leaves out runs of statements of every block, from long to short.
    fn leave_out_statements(&mut self) {
        let mut block = 0;
        while let Some(length) = block_at(&mut self.best.clone(), block, |block| block.len()) {
            let mut run = length;
            while run > 0 {
                let mut start = 0;
                while let Some(length) =
                    block_at(&mut self.best.clone(), block, |block| block.len())
                {
                    if start + run > length {
                        break;
                    }
                    let mut candidate = self.best.clone();
                    block_at(&mut candidate, block, |block| {
                        block.drain(start..start + run).count()
                    });
                    if !self.attempt(candidate) {
                        start += run;
                    }
                }
                run /= 2;
            }
            block += 1;
        }
    }

    /// Takes the parts of composite statements in their place.
    fn replace_statements(&mut self) {
        let mut block = 0;
        while let Some(length) = block_at(&mut self.best.clone(), block, |block| block.len()) {
            for index in (0..length).rev() {
                let parts = block_at(&mut self.best.clone(), block, |block| {
                    block.get(index).map(parts_of)
                })
                .flatten();
                for part in parts.unwrap_or_default() {
                    let mut candidate = self.best.clone();
                    block_at(&mut candidate, block, |block| {
                        block.splice(index..=index, part).count();
                    });
                    if self.attempt(candidate) {
                        break;
                    }
                }
            }
            block += 1;
        }
    }

    /// Replaces expressions by zero or by their operands.
    fn replace_expressions(&mut self) {
        let mut index = 0;
        loop {
            let structures = self.best.structures.clone();
            let mut found = None;
            expression_at(&mut self.best.clone(), index, &mut |expression| {
                found = Some(smaller(expression, &structures))
            });
            let Some(replacements) = found else {
                return;
            };
            let replaced = replacements.into_iter().any(|replacement| {
                let mut candidate = self.best.clone();
                expression_at(&mut candidate, index, &mut |expression| {
                    *expression = replacement.clone()
                });
                self.attempt(candidate)
            });
            if !replaced || self.attempts == 0 {
                index += 1;
            }
            if self.attempts == 0 {
                return;
            }
        }
    }
}

fn uses_structure(program: &Program, index: usize) -> bool {
    fn uses(ty: &Type, index: usize) -> bool {
        match ty {
            Type::Structure(at) => *at >= index,
            Type::Array(element, _) => uses(element, index),
            _ => false,
        }
    }
    let in_functions = program.functions.iter().any(|function| {
        function
            .parameters
            .iter()
            .any(|parameter| uses(&parameter.ty, index))
            || function.result.as_ref().is_some_and(|ty| uses(ty, index))
    });
    let in_globals = program.globals.iter().any(|global| uses(&global.ty, index));
    let mut in_statements = false;
    let mut program = program.clone();
    let mut at = 0;
    while block_at(&mut program, at, |block| {
        in_statements |= block
            .iter()
            .any(|statement| matches!(statement, Statement::Var { ty, .. } if uses(ty, index)));
    })
    .is_some()
    {
        at += 1;
    }
    in_functions || in_globals || in_statements
}

/// What may stand in a statement's place: smaller forms of itself, and its parts.
fn parts_of(statement: &Statement) -> Vec<Block> {
    match statement {
        Statement::If { accept, reject, .. } => {
            let mut parts = vec![accept.clone(), reject.clone()];
            parts.retain(|part| !part.is_empty());
            parts
        }
        Statement::Switch { cases, default, .. } => {
            let mut parts: Vec<Block> = cases.iter().map(|(_, body)| body.clone()).collect();
            parts.push(default.clone());
            parts
        }
        Statement::For {
            counter,
            count,
            body,
        } => {
            let mut parts = vec![body.clone()];
            if *count > 1 {
                parts.push(vec![Statement::For {
                    counter: counter.clone(),
                    count: 1,
                    body: body.clone(),
                }]);
            }
            parts
        }
        Statement::Halve {
            counter,
            bits,
            body,
            ..
        } => {
            let turns = Statement::For {
                counter: counter.clone(),
                count: *bits,
                body: body.clone(),
            };
            vec![body.clone(), vec![turns]]
        }
        Statement::While {
            counter,
            count,
            body,
            ..
        } => {
            vec![
                body.clone(),
                vec![Statement::For {
                    counter: counter.clone(),
                    count: *count,
                    body: body.clone(),
                }],
            ]
        }
        Statement::Loop {
            counter,
            count,
            body,
            continuing,
            break_if,
        } => {
            let without_end = Statement::Loop {
                counter: counter.clone(),
                count: *count,
                body: body.clone(),
                continuing: continuing.clone(),
                break_if: None,
            };
            let mut parts = vec![body.clone()];
            if break_if.is_some() {
                parts.push(vec![without_end]);
            }
            parts.push(vec![Statement::For {
                counter: counter.clone(),
                count: *count,
                body: body.clone(),
            }]);
            parts
        }
        Statement::Nested(block) => vec![block.clone()],
        Statement::Compound { place, value, .. } => {
            vec![vec![Statement::Assign {
                place: place.clone(),
                value: value.clone(),
            }]]
        }
        _ => Vec::new(),
    }
}

/// Does something with the block of a number, in the order of a walk; `None` if there are fewer.
fn block_at<T>(
    program: &mut Program,
    number: usize,
    visit: impl FnOnce(&mut Block) -> T,
) -> Option<T> {
    let mut left = number;
    let mut visit = Some(visit);
    let mut result = None;
    let mut roots: Vec<&mut Block> = program
        .functions
        .iter_mut()
        .map(|function| &mut function.body)
        .collect();
    roots.push(&mut program.body);
    for root in roots {
        walk_blocks(root, &mut |block| {
            if left == 0
                && let Some(visit) = visit.take()
            {
                result = Some(visit(block));
            }
            left = left.wrapping_sub(1);
            result.is_none()
        });
        if result.is_some() {
            break;
        }
    }
    result
}

/// Visits a block and those within, until told not to go on.
fn walk_blocks(block: &mut Block, visit: &mut dyn FnMut(&mut Block) -> bool) -> bool {
    if !visit(block) {
        return false;
    }
    block.iter_mut().all(|statement| {
        blocks_of(statement)
            .into_iter()
            .all(|block| walk_blocks(block, visit))
    })
}

fn blocks_of(statement: &mut Statement) -> Vec<&mut Block> {
    match statement {
        Statement::If { accept, reject, .. } => vec![accept, reject],
        Statement::Switch { cases, default, .. } => {
            let mut blocks: Vec<&mut Block> = cases.iter_mut().map(|(_, body)| body).collect();
            blocks.push(default);
            blocks
        }
        Statement::For { body, .. }
        | Statement::Halve { body, .. }
        | Statement::While { body, .. } => vec![body],
        Statement::Loop {
            body, continuing, ..
        } => vec![body, continuing],
        Statement::Nested(block) => vec![block],
        _ => Vec::new(),
    }
}

/// Does something with the expression of a number, in the order of a walk.
fn expression_at(program: &mut Program, number: usize, visit: &mut dyn FnMut(&mut Expression)) {
    let mut left = number;
    let mut walk = Walk {
        left: &mut left,
        visit,
        done: false,
    };
    for function in &mut program.functions {
        walk.block(&mut function.body);
    }
    walk.block(&mut program.body);
}

struct Walk<'a> {
    left: &'a mut usize,
    visit: &'a mut dyn FnMut(&mut Expression),
    done: bool,
}

impl Walk<'_> {
    fn block(&mut self, block: &mut Block) {
        for statement in block {
            if self.done {
                return;
            }
            self.statement(statement);
            for block in blocks_of(statement) {
                self.block(block);
            }
        }
    }

    fn statement(&mut self, statement: &mut Statement) {
        match statement {
            Statement::Let { value, .. }
            | Statement::Mix(value)
            | Statement::Atomic { value, .. }
            | Statement::UniformLoad { value, .. }
            | Statement::Approximate { value, .. }
            | Statement::Halve { start: value, .. }
            | Statement::Var {
                value: Some(value), ..
            }
            | Statement::Return(Some(value)) => self.expression(value),
            Statement::LetPointer { place, .. } => self.place(place),
            Statement::Assign { place, value } | Statement::Compound { place, value, .. } => {
                self.place(place);
                self.expression(value);
            }
            Statement::If { condition, .. } | Statement::While { condition, .. } => {
                self.expression(condition)
            }
            Statement::Switch { selector, .. } => self.expression(selector),
            Statement::Loop {
                break_if: Some(condition),
                ..
            } => self.expression(condition),
            Statement::Call { arguments, .. } => self.arguments(arguments),
            _ => {}
        }
    }

    fn arguments(&mut self, arguments: &mut [Argument]) {
        for argument in arguments {
            match argument {
                Argument::Value(value) => self.expression(value),
                Argument::Pointer(place) => self.place(place),
            }
        }
    }

    fn place(&mut self, place: &mut Place) {
        for step in &mut place.path {
            match step {
                Step::Member(_) => {}
                Step::Index { index, .. }
                | Step::Component { index, .. }
                | Step::Own { index, .. }
                | Step::Shared { index, .. } => self.expression(index),
            }
        }
    }

    fn expression(&mut self, expression: &mut Expression) {
        if self.done {
            return;
        }
        if *self.left == 0 {
            (self.visit)(expression);
            self.done = true;
            return;
        }
        *self.left -= 1;
        match &mut expression.kind {
            ExpressionKind::Literal(_) | ExpressionKind::Name(_) => {}
            ExpressionKind::Load(place) => self.place(place),
            ExpressionKind::Unary(_, operand) => self.expression(operand),
            ExpressionKind::Binary(_, left, right) => {
                self.expression(left);
                self.expression(right);
            }
            ExpressionKind::Call(_, arguments) => self.arguments(arguments),
            ExpressionKind::Member(value, _) | ExpressionKind::Element(value, _) => {
                self.expression(value)
            }
        }
    }
}

/// What may stand in an expression's place, the smallest first.
fn smaller(expression: &Expression, structures: &[Structure]) -> Vec<Expression> {
    let zero = zero(&expression.ty, structures);
    let mut all = Vec::new();
    match &expression.kind {
        ExpressionKind::Literal(text) if *text == zero || text.ends_with("()") => return all,
        ExpressionKind::Literal(_) | ExpressionKind::Name(_) | ExpressionKind::Load(_) => {}
        ExpressionKind::Unary(_, operand) => all.push((**operand).clone()),
        ExpressionKind::Binary(_, left, right) => all.extend([(**left).clone(), (**right).clone()]),
        ExpressionKind::Call(_, arguments) => {
            all.extend(arguments.iter().filter_map(|argument| match argument {
                Argument::Value(value) => Some(value.clone()),
                Argument::Pointer(_) => None,
            }));
        }
        ExpressionKind::Member(value, _) | ExpressionKind::Element(value, _) => {
            all.push((**value).clone())
        }
    }
    // Of the same type, and no less exact: or else a difference may be one of rounding.
    all.retain(|part| {
        let exact = match (part.exactness, expression.exactness) {
            (Some(part), Some(whole)) => part.within(whole),
            _ => true,
        };
        part.ty == expression.ty && exact
    });
    let exactness = expression.exactness.map(|_| Exactness {
        bound: 0.0,
        fraction: 0,
    });
    all.insert(
        0,
        Expression {
            ty: expression.ty.clone(),
            exactness,
            kind: ExpressionKind::Literal(zero),
        },
    );
    all
}

/// The zero of a type.
fn zero(ty: &Type, structures: &[Structure]) -> String {
    match ty {
        Type::Scalar(ScalarType::Bool) => "false".to_owned(),
        Type::Scalar(ScalarType::I32) => "0i".to_owned(),
        Type::Scalar(ScalarType::U32) => "0u".to_owned(),
        Type::Scalar(ScalarType::F32) => "0.0f".to_owned(),
        _ => format!("{}()", type_name(ty, structures)),
    }
}
