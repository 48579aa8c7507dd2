//! A program as WGSL.

use std::fmt::Write as _;

use super::ast::*;
use super::floats::FACTOR;

/// Words of the output buffer that each invocation has.
pub const OUT_WORDS: u32 = 1;
/// Atomic cells that all invocations share.
pub const CELLS: u32 = 8;
/// Approximate results of each invocation.
pub const APPROXIMATE: u32 = 4;
/// Words of scratch memory in storage that each invocation of a work-group has.
pub const SCRATCH: u32 = 4;

/// The name of a type.
pub fn type_name(ty: &Type, structures: &[Structure]) -> String {
    match ty {
        Type::Scalar(scalar) => scalar_name(*scalar).to_owned(),
        Type::Vector(size, scalar) => format!("vec{size}<{}>", scalar_name(*scalar)),
        Type::Matrix(columns, rows) => format!("mat{columns}x{rows}<f32>"),
        Type::Array(element, length) => {
            format!("array<{}, {length}>", type_name(element, structures))
        }
        Type::Structure(index) => structures[*index].name.clone(),
    }
}

/// The name of a scalar type.
pub fn scalar_name(scalar: ScalarType) -> &'static str {
    match scalar {
        ScalarType::Bool => "bool",
        ScalarType::I32 => "i32",
        ScalarType::U32 => "u32",
        ScalarType::F32 => "f32",
    }
}

impl Program {
    /// The text of the program, with entry point `main`.
    ///
    /// Bindings of group 0: the input, the output, atomic cells, approximate results, and scratch memory
    /// of the work-groups.
    pub fn text(&self) -> String {
        let mut printer = Printer {
            program: self,
            text: String::new(),
            indent: 0,
            entry: false,
        };
        printer.module();
        printer.text
    }
}

struct Printer<'a> {
    program: &'a Program,
    text: String,
    indent: usize,
    /// Whether the entry point is printed, whose result is stored wherever it ends
    entry: bool,
}

impl Printer<'_> {
    fn line(&mut self, line: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{:indent$}{line}", "", indent = self.indent * 2);
    }

    fn ty(&self, ty: &Type) -> String {
        type_name(ty, &self.program.structures)
    }

    fn module(&mut self) {
        let program = self.program;
        self.text.push_str(
            "@group(0) @binding(0) var<storage> in_words: array<u32>;\n\
            @group(0) @binding(1) var<storage, read_write> out: array<u32>;\n\
            @group(0) @binding(2) var<storage, read_write> cells: array<atomic<u32>>;\n\
            @group(0) @binding(3) var<storage, read_write> approximate: array<f32>;\n\
            @group(0) @binding(4) var<storage, read_write> scratch: array<u32>;\n\
            var<private> result: u32;\n\
            var<private> zero_u: u32;\nvar<private> zero_i: i32;\nvar<private> zero_f: f32;\n\
            var<private> zero_b: bool;\n\
            var<workgroup> uniform_word: u32;\n\
            fn mix_in(word: u32) { result = (result ^ word) * 16777619u + 7u; }\n",
        );
        for structure in &program.structures {
            let members: Vec<String> = structure
                .members
                .iter()
                .map(|(name, ty)| format!("{name}: {}", self.ty(ty)))
                .collect();
            self.line(&format!(
                "struct {} {{ {} }}",
                structure.name,
                members.join(", ")
            ));
        }
        for global in &program.globals {
            self.line(&format!(
                "var<{}> {}: {};",
                global.space,
                global.name,
                self.ty(&global.ty)
            ));
        }
        let before = self.text.len();
        for function in &program.functions {
            self.function(function);
        }
        self.line(&format!(
            "@compute @workgroup_size({}) fn main(@builtin(local_invocation_index) lid: u32, \
            @builtin(workgroup_id) wid: vec3<u32>, @builtin(global_invocation_id) gid: vec3<u32>) {{",
            program.workgroup_size
        ));
        self.indent += 1;
        // Every program uses all bindings, so that all have the same layout.
        self.line(
            "_ = arrayLength(&approximate) + arrayLength(&scratch) + arrayLength(&in_words);",
        );
        self.line("result = 2166136261u;");
        self.entry = true;
        self.statements(&program.body);
        self.line(&format!("out[gid.x * {OUT_WORDS}u] = result;"));
        self.indent -= 1;
        self.line("}");
        let used = self.text.split_off(before);
        self.matrix_functions(&used);
        self.text.push_str(&used);
    }

    /// Functions that clamp matrices, as far as the program has such matrices.
    fn matrix_functions(&mut self, used: &str) {
        for (name, bound) in [("fit", Exactness::STORED.bound), ("narrow", FACTOR)] {
            for (columns, rows) in
                (2..=4).flat_map(|columns| (2..=4).map(move |rows| (columns, rows)))
            {
                let ty = format!("mat{columns}x{rows}<f32>");
                if !used.contains(&format!("{name}_mat{columns}x{rows}(")) {
                    continue;
                }
                let column = |index| {
                    format!(
                        "clamp(floor(m[{index}] * 4.0f) * 0.25f, vec{rows}<f32>({:?}f), vec{rows}<f32>({bound:?}f))",
                        -bound
                    )
                };
                let columns_text: Vec<String> = (0..columns).map(column).collect();
                self.line(&format!(
                    "fn {name}_mat{columns}x{rows}(m: {ty}) -> {ty} {{ return {ty}({}); }}",
                    columns_text.join(", ")
                ));
            }
        }
    }

    fn function(&mut self, function: &Function) {
        let parameters: Vec<String> = function
            .parameters
            .iter()
            .map(|parameter| match parameter.pointer {
                Some(space) => format!(
                    "{}: ptr<{space}, {}>",
                    parameter.name,
                    self.ty(&parameter.ty)
                ),
                None => format!("{}: {}", parameter.name, self.ty(&parameter.ty)),
            })
            .collect();
        let result = function
            .result
            .as_ref()
            .map(|ty| format!(" -> {}", self.ty(ty)))
            .unwrap_or_default();
        self.line(&format!(
            "fn {}({}){result} {{",
            function.name,
            parameters.join(", ")
        ));
        self.block(&function.body);
        self.line("}");
    }

    fn block(&mut self, block: &Block) {
        self.indent += 1;
        self.statements(block);
        self.indent -= 1;
    }

    fn statements(&mut self, block: &Block) {
        block.iter().for_each(|statement| self.statement(statement));
    }

    fn braced(&mut self, head: &str, block: &Block, tail: &str) {
        self.line(&format!("{head} {{"));
        self.block(block);
        self.line(&format!("}}{tail}"));
    }

    fn statement(&mut self, statement: &Statement) {
        match self.simple(statement) {
            Some(text) => self.line(&text),
            None => self.several_lines(statement),
        }
    }

    fn several_lines(&mut self, statement: &Statement) {
        match statement {
            Statement::If {
                condition,
                accept,
                reject,
            } => {
                self.braced(&format!("if {}", expression(condition)), accept, "");
                if !reject.is_empty() {
                    self.text.truncate(self.text.len() - 1);
                    self.text.push_str(" else {\n");
                    self.block(reject);
                    self.line("}");
                }
            }
            Statement::Switch {
                selector,
                cases,
                default,
                default_at,
            } => {
                self.switch(selector, cases, default, *default_at);
            }
            Statement::For {
                counter,
                count,
                body,
            } => {
                self.braced(
                    &format!("for (var {counter} = 0u; {counter} < {count}u; {counter}++)"),
                    body,
                    "",
                );
            }
            Statement::Halve {
                counter,
                start,
                bits,
                step,
                body,
            } => {
                let start = format!("{} & {}u", hidden(start), (1 << bits) - 1);
                self.braced(
                    &format!("for (var {counter} = {start}; {counter} > 0u; {counter} {step})"),
                    body,
                    "",
                );
            }
            Statement::While {
                counter,
                count,
                condition,
                body,
            } => {
                self.line(&format!("var {counter} = 0u;"));
                self.line(&format!(
                    "while {counter} < {count}u && {} {{",
                    expression(condition)
                ));
                self.indent += 1;
                self.line(&format!("{counter}++;"));
                self.indent -= 1;
                self.block(body);
                self.line("}");
            }
            Statement::Loop {
                counter,
                count,
                body,
                continuing,
                break_if,
            } => {
                self.looped(counter, *count, body, continuing, break_if.as_ref());
            }
            Statement::Nested(block) => self.braced("", block, ""),
            Statement::Barrier(barrier) => {
                if *barrier != Barrier::Storage {
                    self.line("workgroupBarrier();");
                }
                if *barrier != Barrier::WorkGroup {
                    self.line("storageBarrier();");
                }
            }
            Statement::UniformLoad {
                name,
                writer,
                value,
            } => {
                self.line(&format!(
                    "if lid == {writer}u {{ uniform_word = {}; }}",
                    expression(value)
                ));
                self.line(&format!(
                    "let {name} = workgroupUniformLoad(&uniform_word);"
                ));
            }
            // Of one line.
            _ => {}
        }
    }

    /// A statement of one line, or nothing for those of several.
    fn simple(&self, statement: &Statement) -> Option<String> {
        Some(match statement {
            // naga knows the value of a constant by the name, too.
            Statement::Let { name, value } => format!("let {name} = {};", at_run_time(value)),
            Statement::Var { name, ty, value } => {
                let initial = value
                    .as_ref()
                    .map(|value| format!(" = {}", expression(value)))
                    .unwrap_or_default();
                format!("var {name}: {}{initial};", self.ty(ty))
            }
            Statement::LetPointer { name, place } => format!("let {name} = {};", pointer(place)),
            Statement::Assign { place, value } => {
                format!("{} = {};", self::place(place), expression(value))
            }
            Statement::Compound {
                place,
                operator,
                value,
            } => {
                let value = if matches!(*operator, "/" | "%") {
                    at_run_time(value)
                } else {
                    expression(value)
                };
                format!("{} {operator}= {value};", self::place(place))
            }
            Statement::Break => "break;".to_owned(),
            Statement::Continue => "continue;".to_owned(),
            Statement::Return(None) if self.entry => {
                format!("out[gid.x * {OUT_WORDS}u] = result; return;")
            }
            Statement::Return(None) => "return;".to_owned(),
            Statement::Return(Some(value)) => format!("return {};", expression(value)),
            Statement::Call { name, arguments } => {
                format!("{name}({});", self::arguments(arguments))
            }
            Statement::Mix(value) => format!("mix_in({});", expression(value)),
            Statement::Atomic {
                function,
                cell,
                value,
            } => format!("{function}(&cells[{cell}], {});", expression(value)),
            Statement::Approximate { slot, value } => format!(
                "approximate[gid.x * {APPROXIMATE}u + {slot}u] = {};",
                expression(value)
            ),
            Statement::If { .. }
            | Statement::Switch { .. }
            | Statement::For { .. }
            | Statement::Halve { .. }
            | Statement::While { .. }
            | Statement::Loop { .. }
            | Statement::Nested(_)
            | Statement::Barrier(_)
            | Statement::UniformLoad { .. } => return None,
        })
    }

    fn switch(
        &mut self,
        selector: &Expression,
        cases: &[(Vec<u32>, Block)],
        default: &Block,
        default_at: usize,
    ) {
        let signed = selector.ty == Type::I32;
        self.line(&format!("switch {} {{", expression(selector)));
        self.indent += 1;
        for (index, (values, body)) in cases.iter().enumerate() {
            if index == default_at {
                self.braced("default:", default, "");
            }
            let values: Vec<String> = values
                .iter()
                .map(|value| format!("{value}{}", if signed { "i" } else { "u" }))
                .collect();
            self.braced(&format!("case {}:", values.join(", ")), body, "");
        }
        if default_at >= cases.len() {
            self.braced("default:", default, "");
        }
        self.indent -= 1;
        self.line("}");
    }

    fn looped(
        &mut self,
        counter: &str,
        count: u32,
        body: &Block,
        continuing: &Block,
        break_if: Option<&Expression>,
    ) {
        self.line(&format!("var {counter} = 0u;"));
        self.line("loop {");
        self.indent += 1;
        self.line(&format!("if {counter} >= {count}u {{ break; }}"));
        self.statements(body);
        self.line("continuing {");
        self.indent += 1;
        self.line(&format!("{counter}++;"));
        self.statements(continuing);
        if let Some(condition) = break_if {
            self.line(&format!("break if {};", expression(condition)));
        }
        self.indent -= 1;
        self.line("}");
        self.indent -= 1;
        self.line("}");
    }
}

/// True for what naga evaluates itself, and refuses where it overflows or divides by zero.
fn is_constant(expression: &Expression) -> bool {
    match &expression.kind {
        ExpressionKind::Literal(_) => true,
        ExpressionKind::Name(_) | ExpressionKind::Load(_) => false,
        ExpressionKind::Unary(_, operand) => is_constant(operand),
        ExpressionKind::Binary(_, left, right) => is_constant(left) && is_constant(right),
        ExpressionKind::Member(value, _) | ExpressionKind::Element(value, _) => is_constant(value),
        ExpressionKind::Call(_, arguments) => arguments.iter().all(|argument| match argument {
            Argument::Value(value) => is_constant(value),
            Argument::Pointer(_) => false,
        }),
    }
}

/// A constant as an expression that naga does not evaluate; others as they are.
fn at_run_time(value: &Expression) -> String {
    if !is_constant(value) {
        return expression(value);
    }
    hidden(value)
}

/// An expression of which naga knows nothing.
fn hidden(value: &Expression) -> String {
    let text = expression(value);
    match value.ty.scalar() {
        Some(ScalarType::U32) => format!("({text} + zero_u)"),
        Some(ScalarType::I32) => format!("({text} + zero_i)"),
        Some(ScalarType::F32) if matches!(value.ty, Type::Matrix(..)) => {
            format!("({text} * (1.0f + zero_f))")
        }
        Some(ScalarType::F32) => format!("({text} + zero_f)"),
        Some(ScalarType::Bool) => format!("select({text}, {text}, zero_b)"),
        None => text,
    }
}

/// Operands of an operator or a function: not all constants, so that naga evaluates nothing; and none
/// of those constants that WGSL refuses if they are out of range.
fn operands(operation: &str, values: &[&Expression]) -> Vec<String> {
    let all_constant = values.iter().all(|value| is_constant(value));
    let float = values
        .first()
        .is_some_and(|value| value.ty.scalar() == Some(ScalarType::F32));
    let ranged = match operation {
        "/" | "%" | "<<" | ">>" | "extractBits" | "insertBits" => true,
        "clamp" => !float,
        _ => false,
    };
    let operand = |(index, value): (usize, &&Expression)| match index {
        0 if all_constant => at_run_time(value),
        // naga looks for zeros and large shifts in components of vectors, too.
        1.. if ranged => match value.kind {
            ExpressionKind::Load(_) => expression(value),
            // A named vector may have been composed of constants and others.
            ExpressionKind::Name(_) if !matches!(value.ty, Type::Vector(..)) => expression(value),
            _ => hidden(value),
        },
        _ => expression(value),
    };
    values.iter().enumerate().map(operand).collect()
}

/// An expression as WGSL, with parentheses around every operator.
pub fn expression(expression: &Expression) -> String {
    match &expression.kind {
        ExpressionKind::Literal(text) | ExpressionKind::Name(text) => text.clone(),
        ExpressionKind::Load(place) => self::place(place),
        ExpressionKind::Unary(operator, operand) => format!("({operator}{})", at_run_time(operand)),
        ExpressionKind::Binary(operator, left, right) => {
            let operands = operands(operator, &[left, right]);
            format!("({} {operator} {})", operands[0], operands[1])
        }
        ExpressionKind::Call(function, arguments) => {
            format!("{function}({})", called_with(function, arguments))
        }
        ExpressionKind::Member(value, member) => format!("{}.{member}", self::expression(value)),
        ExpressionKind::Element(value, index) => format!("{}[{index}]", self::expression(value)),
    }
}

/// Arguments of a call: of a built-in function as operands, of others as they are.
fn called_with(function: &str, arguments: &[Argument]) -> String {
    let values: Vec<&Expression> = arguments
        .iter()
        .filter_map(|argument| match argument {
            Argument::Value(value) => Some(value),
            Argument::Pointer(_) => None,
        })
        .collect();
    let constructor = function.contains('<') && !function.starts_with("bitcast");
    if constructor || values.len() < arguments.len() || values.is_empty() {
        return self::arguments(arguments);
    }
    operands(function, &values).join(", ")
}

fn arguments(arguments: &[Argument]) -> String {
    let arguments: Vec<String> = arguments
        .iter()
        .map(|argument| match argument {
            Argument::Value(value) => expression(value),
            Argument::Pointer(place) => pointer(place),
        })
        .collect();
    arguments.join(", ")
}

/// A pointer to a place: a pointer's own name where the place is just what it leads to.
fn pointer(place: &Place) -> String {
    if place.through_pointer && place.path.is_empty() {
        return place.root.clone();
    }
    format!("&{}", self::place(place))
}

fn place(place: &Place) -> String {
    let mut text = if place.through_pointer {
        format!("(*{})", place.root)
    } else {
        place.root.clone()
    };
    for step in &place.path {
        match step {
            Step::Member(member) => {
                text.push('.');
                text.push_str(member);
            }
            Step::Index { index, length } | Step::Component { index, length } => {
                text.push_str(&format!("[{} % {length}u]", expression(index)));
            }
            Step::Own {
                base,
                index,
                length,
            } => {
                text.push_str(&format!("[{base} + {} % {length}u]", expression(index)));
            }
            Step::Shared {
                base,
                index,
                length,
            } => {
                let base = base
                    .as_ref()
                    .map(|base| format!("{base} + "))
                    .unwrap_or_default();
                text.push_str(&format!("[{base}{} % {length}u]", expression(index)));
            }
        }
    }
    text
}
