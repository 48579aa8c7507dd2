//! `print`, `assert` and `panic`: the calls that the text side has left (`kernel::print`) get parameters of the
//! types that their arguments turned out to have, and bodies that leave a record for the host.
//!
//! An assertion that fails raises a flag of the invocation. Behind every call of a function that may raise it, the
//! caller tests the flag and returns; the entry point tests at its start whether the launch has failed already.
//! A kernel with barriers gets neither: an invocation that went away would leave the others waiting, so it goes on
//! to its end instead.

use std::collections::{HashMap, HashSet};

use naga::front::Typifier;
use naga::proc::ResolveContext;
use naga::valid::Capabilities;
use naga::{
    BinaryOperator, Block, BuiltIn, Expression, Function, FunctionArgument, GlobalVariable, Handle,
    Literal, Module, ResourceBinding, ScalarKind, Span, Statement, Type, TypeInner,
};

use super::pointers::built_in;
use super::{emit_chain, prepend};
use crate::kernel::print::{FUNCTION, TextSite};
use crate::print::format::Piece;
use crate::print::record::{MAX_VALUES, SiteKind, check};
use crate::print::value::{ScalarType, ValueType};

const BUFFER: &str = "tombolo_print";
const INVOCATION: &str = "tombolo_print_invocation";

/// Members of `TomboloPrint` in shaders/print.wgsl.
const CLAIM: u32 = 3;
const FAILED_VALUES: u32 = 8;
const WORDS: u32 = 9;

/// What is wrong with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub site: usize,
    pub argument: Option<usize>,
    /// The placeholder that does not take the argument, in the user's text.
    pub placeholder: Option<std::ops::Range<usize>>,
    pub message: String,
}

/// What the pass did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PrintFacts {
    /// Per site: the types of its arguments, if the entry point reaches it.
    pub arguments: Vec<Option<Vec<ValueType>>>,
    /// Invocations may return before the end of the kernel.
    pub may_leave: bool,
}

/// The variables and functions of shaders/print.wgsl.
struct Runtime {
    buffer: Handle<GlobalVariable>,
    invocation: Handle<GlobalVariable>,
    failed: Handle<GlobalVariable>,
    reserve: Handle<Function>,
    mix: Handle<Function>,
    claim: Handle<Function>,
}

impl Runtime {
    fn find(module: &Module) -> Option<Self> {
        let global = |name: &str| {
            let mut all = module.global_variables.iter();
            all.find(|(_, v)| v.name.as_deref() == Some(name))
                .map(|(handle, _)| handle)
        };
        let function = |name: &str| {
            let mut all = module.functions.iter();
            all.find(|(_, f)| f.name.as_deref() == Some(name))
                .map(|(handle, _)| handle)
        };
        Some(Self {
            buffer: global(BUFFER)?,
            invocation: global(INVOCATION)?,
            failed: global("tombolo_print_failed")?,
            reserve: function("tombolo_print_reserve")?,
            mix: function("tombolo_print_mix")?,
            claim: function("tombolo_print_claim")?,
        })
    }
}

/// A parameter of a site's function: its type in the module, and as a value that can be printed.
type Parameter = (Handle<Type>, ValueType);

/// Gives the functions of `sites` their bodies, and binds their buffer to `binding`. Returns what entry point `entry`
/// reaches; nothing if it reaches no site. [`begin`] has to follow.
pub(crate) fn run(
    module: &mut Module,
    entry: Option<usize>,
    sites: &[TextSite],
    binding: ResourceBinding,
    capabilities: Capabilities,
) -> Result<Option<PrintFacts>, Fault> {
    let Some(runtime) = Runtime::find(module) else {
        return Ok(None);
    };
    module.global_variables.get_mut(runtime.buffer).binding = Some(binding);
    let stubs: HashMap<Handle<Function>, usize> = module
        .functions
        .iter()
        .filter_map(|(handle, function)| {
            let number = function.name.as_deref()?.strip_prefix(FUNCTION)?;
            Some((handle, number.parse().ok()?))
        })
        .filter(|(_, site)| *site < sites.len())
        .collect();

    let mut types: Vec<Option<Vec<Parameter>>> = vec![None; sites.len()];
    for index in 0..module.functions.len() + module.entry_points.len() {
        for (site, arguments) in typed_calls(module, index, &stubs) {
            let known = value_types(sites, site, &arguments, capabilities)?;
            // A type may not be in the module yet if only an expression has it.
            let given = arguments.into_iter().map(|inner| {
                let ty = Type { name: None, inner };
                module.types.insert(ty, Span::UNDEFINED)
            });
            types[site] = Some(given.zip(known).collect());
        }
    }
    for (&handle, &site) in &stubs {
        let (Some(arguments), Some(text)) = (&types[site], sites.get(site)) else {
            continue;
        };
        let name = module.functions[handle].name.take();
        let body = Filler::new(&runtime, arguments).fill(text.kind, site as u32 + 1);
        *module.functions.get_mut(handle) = Function { name, ..body };
    }

    let Some(point) = entry.and_then(|entry| module.entry_points.get(entry)) else {
        return Ok(None);
    };
    let reached = reach(module, &point.function);
    let is_reached = |site: usize| stubs.iter().any(|(h, s)| *s == site && reached.contains(h));
    let arguments: Vec<_> = (types.into_iter().enumerate())
        .map(|(site, types)| {
            let types = types.filter(|_| is_reached(site))?;
            Some(types.into_iter().map(|(_, ty)| ty).collect())
        })
        .collect();
    if arguments.iter().all(Option::is_none) {
        return Ok(None);
    }
    let fails = |site: usize| is_reached(site) && sites[site].kind != SiteKind::Print;
    let may_leave = (0..sites.len()).any(fails)
        && !has_barrier(&point.function.body)
        && !reached
            .iter()
            .any(|handle| has_barrier(&module.functions[*handle].body));
    if may_leave {
        leave_early(module, &runtime, &stubs, sites);
    }
    Ok(Some(PrintFacts {
        arguments,
        may_leave,
    }))
}

fn function_at(module: &Module, index: usize) -> Option<&Function> {
    let functions = module.functions.len();
    match index.checked_sub(functions) {
        Some(point) => module.entry_points.get(point).map(|point| &point.function),
        None => (module.functions.iter().nth(index)).map(|(_, function)| function),
    }
}

/// The calls of sites in one function, with the types of their arguments.
fn typed_calls(
    module: &Module,
    index: usize,
    stubs: &HashMap<Handle<Function>, usize>,
) -> Vec<(usize, Vec<TypeInner>)> {
    let Some(function) = function_at(module, index) else {
        return Vec::new();
    };
    let mut calls = Vec::new();
    visit(&function.body, &mut |statement| {
        if let Statement::Call {
            function,
            arguments,
            ..
        } = statement
            && let Some(&site) = stubs.get(function)
        {
            calls.push((site, arguments.clone()));
        }
    });
    if calls.is_empty() {
        return Vec::new();
    }
    let context =
        ResolveContext::with_locals(module, &function.local_variables, &function.arguments);
    let mut typifier = Typifier::new();
    for (handle, _) in function.expressions.iter() {
        if typifier
            .grow(handle, &function.expressions, &context)
            .is_err()
        {
            // The validator says it better.
            return Vec::new();
        }
    }
    let typed = |argument: Handle<Expression>| typifier[argument].inner_with(&module.types).clone();
    let typed = |arguments: Vec<_>| arguments.into_iter().map(typed).collect();
    calls
        .into_iter()
        .map(|(site, arguments)| (site, typed(arguments)))
        .collect()
}

/// The types of a call's arguments as values that can be printed.
fn value_types(
    sites: &[TextSite],
    site: usize,
    given: &[TypeInner],
    capabilities: Capabilities,
) -> Result<Vec<ValueType>, Fault> {
    let fault = |argument, placeholder, message: String| Fault {
        site,
        argument,
        placeholder,
        message,
    };
    let mut types = Vec::with_capacity(given.len());
    for (index, inner) in given.iter().enumerate() {
        let ty = value_type(inner).map_err(|message| fault(Some(index), None, message))?;
        // Without f64 at all the validator says so.
        let has_half = capabilities.contains(Capabilities::FLOAT64)
            && !capabilities.contains(Capabilities::SHADER_INT64);
        if ty.scalar == ScalarType::F64 && has_half {
            let message = "an f64 can only be printed where the device has 64-bit integers: print \
                           `f32(x)`";
            return Err(fault(Some(index), None, message.into()));
        }
        types.push(ty);
    }
    for piece in &sites[site].template.pieces {
        let Piece::Value {
            argument,
            spec,
            place,
        } = piece
        else {
            continue;
        };
        if let Some(refusal) = types.get(*argument).and_then(|ty| ty.refusal(spec.kind)) {
            return Err(fault(Some(*argument), Some(place.clone()), refusal));
        }
    }
    let words: usize = types.iter().map(|ty| ty.words()).sum();
    if words > MAX_VALUES {
        let message = format!(
            "the arguments have {words} words of 32 bits, and a record takes {MAX_VALUES}: print in \
             several lines"
        );
        return Err(fault(None, None, message));
    }
    Ok(types)
}

fn value_type(inner: &TypeInner) -> Result<ValueType, String> {
    let (scalar, rows, columns) = match *inner {
        TypeInner::Scalar(scalar) => (scalar, 1, 1),
        TypeInner::Vector { size, scalar } => (scalar, size as u32, 1),
        TypeInner::Matrix {
            columns,
            rows,
            scalar,
        } => (scalar, rows as u32, columns as u32),
        TypeInner::Atomic(_) => return Err("print `atomicLoad(&x)` of an atomic".into()),
        TypeInner::Struct { .. } => {
            return Err("structures cannot be printed: print their members".into());
        }
        TypeInner::Array { .. } => {
            return Err("arrays cannot be printed: print their elements".into());
        }
        TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. } => {
            return Err("a reference cannot be printed: print what it refers to, as `*p`".into());
        }
        _ => return Err("a value of this type cannot be printed".into()),
    };
    let scalar = match (scalar.kind, scalar.width) {
        (ScalarKind::Bool, _) => ScalarType::Bool,
        (ScalarKind::Sint, 2) => ScalarType::I16,
        (ScalarKind::Sint, 4) => ScalarType::I32,
        (ScalarKind::Sint, 8) => ScalarType::I64,
        (ScalarKind::Uint, 2) => ScalarType::U16,
        (ScalarKind::Uint, 4) => ScalarType::U32,
        (ScalarKind::Uint, 8) => ScalarType::U64,
        (ScalarKind::Float, 2) => ScalarType::F16,
        (ScalarKind::Float, 4) => ScalarType::F32,
        (ScalarKind::Float, 8) => ScalarType::F64,
        _ => return Err("a value of this type cannot be printed".into()),
    };
    Ok(ValueType {
        scalar,
        rows,
        columns,
    })
}

/// Makes the function of a site.
struct Filler<'m> {
    runtime: &'m Runtime,
    arguments: Vec<ValueType>,
    function: Function,
    block: Block,
}

impl<'m> Filler<'m> {
    fn new(runtime: &'m Runtime, arguments: &[Parameter]) -> Self {
        let parameters = arguments
            .iter()
            .enumerate()
            .map(|(i, (ty, _))| FunctionArgument {
                name: Some(format!("value_{i}")),
                ty: *ty,
                binding: None,
            });
        Self {
            runtime,
            arguments: arguments.iter().map(|(_, ty)| *ty).collect(),
            function: Function {
                arguments: parameters.collect(),
                ..Function::default()
            },
            block: Block::new(),
        }
    }

    fn fill(mut self, kind: SiteKind, code: u32) -> Function {
        match kind {
            SiteKind::Print => self.record(code),
            SiteKind::Assert | SiteKind::Panic => self.fail(code),
        }
        self.block
            .push(Statement::Return { value: None }, Span::UNDEFINED);
        self.function.body = self.block;
        self.function
    }

    /// A record: what it holds is at consecutive words from where there is room for it.
    fn record(&mut self, code: u32) {
        let values: usize = self.arguments.iter().map(|ty| ty.words()).sum();
        let words = self.literal(values as u32 + 3);
        let at = self.call(self.runtime.reserve, vec![words]);
        let none = self.literal(u32::MAX);
        let has_room = self.binary(BinaryOperator::NotEqual, at, none);
        let outer = std::mem::take(&mut self.block);
        let code = self.literal(code);
        let invocation = self.global(self.runtime.invocation);
        let invocation = self.load(invocation);
        let mut record = vec![code, invocation];
        record.extend(self.value_words());
        // The seed of an empty check at place 0, so that the place can be added here.
        let seed = self.literal(check(0, []));
        let mut hash = self.binary(BinaryOperator::ExclusiveOr, seed, at);
        for word in &record {
            hash = self.call(self.runtime.mix, vec![hash, *word]);
        }
        record.push(hash);
        for (offset, word) in record.into_iter().enumerate() {
            let offset = self.literal(offset as u32);
            let index = self.binary(BinaryOperator::Add, at, offset);
            self.put(WORDS, index, word);
        }
        self.only_if(has_room, outer);
    }

    /// The values of a message, for the invocation that fails first.
    fn fail(&mut self, code: u32) {
        let code = self.literal(code);
        let is_first = self.call(self.runtime.claim, vec![code]);
        let outer = std::mem::take(&mut self.block);
        for (index, word) in self.value_words().into_iter().enumerate() {
            let index = self.literal(index as u32);
            self.put(FAILED_VALUES, index, word);
        }
        self.only_if(is_first, outer);
    }

    fn only_if(&mut self, condition: Handle<Expression>, outer: Block) {
        let accept = std::mem::replace(&mut self.block, outer);
        let test = Statement::If {
            condition,
            accept,
            reject: Block::new(),
        };
        self.block.push(test, Span::UNDEFINED);
    }

    /// The words of all arguments.
    fn value_words(&mut self) -> Vec<Handle<Expression>> {
        let mut words = Vec::new();
        for (index, ty) in self.arguments.clone().into_iter().enumerate() {
            let value = self.add(Expression::FunctionArgument(index as u32));
            for column in 0..ty.columns {
                let column = match ty.columns {
                    1 => value,
                    _ => self.member(value, column),
                };
                for row in 0..ty.rows {
                    let component = match ty.rows {
                        1 => column,
                        _ => self.member(column, row),
                    };
                    self.component(component, ty.scalar, &mut words);
                }
            }
        }
        words
    }

    fn component(
        &mut self,
        value: Handle<Expression>,
        ty: ScalarType,
        words: &mut Vec<Handle<Expression>>,
    ) {
        let (bits, value) = match ty {
            ScalarType::Bool => {
                let (one, zero) = (self.literal(1), self.literal(0));
                let select = Expression::Select {
                    condition: value,
                    accept: one,
                    reject: zero,
                };
                (None, self.emitted(select))
            }
            ScalarType::U32 => (None, value),
            ScalarType::I32 | ScalarType::F32 => (None, self.cast(value, ScalarKind::Uint, None)),
            ScalarType::U16 => (None, self.cast(value, ScalarKind::Uint, Some(4))),
            ScalarType::I16 => {
                let wide = self.cast(value, ScalarKind::Sint, Some(4));
                (None, self.cast(wide, ScalarKind::Uint, None))
            }
            ScalarType::F16 => {
                let wide = self.cast(value, ScalarKind::Float, Some(4));
                (None, self.cast(wide, ScalarKind::Uint, None))
            }
            ScalarType::U64 => (Some(value), value),
            ScalarType::I64 | ScalarType::F64 => {
                let bits = self.cast(value, ScalarKind::Uint, None);
                (Some(bits), bits)
            }
        };
        match bits {
            None => words.push(value),
            Some(bits) => {
                words.push(self.cast(bits, ScalarKind::Uint, Some(4)));
                let distance = self.literal(32);
                let high = self.binary(BinaryOperator::ShiftRight, bits, distance);
                words.push(self.cast(high, ScalarKind::Uint, Some(4)));
            }
        }
    }

    fn put(&mut self, member: u32, index: Handle<Expression>, value: Handle<Expression>) {
        let buffer = self.global(self.runtime.buffer);
        let base = self.member(buffer, member);
        let pointer = self.emitted(Expression::Access { base, index });
        self.block
            .push(Statement::Store { pointer, value }, Span::UNDEFINED);
    }

    fn call(
        &mut self,
        function: Handle<Function>,
        arguments: Vec<Handle<Expression>>,
    ) -> Handle<Expression> {
        let result = self.add(Expression::CallResult(function));
        let call = Statement::Call {
            function,
            arguments,
            result: Some(result),
        };
        self.block.push(call, Span::UNDEFINED);
        result
    }

    fn cast(
        &mut self,
        expr: Handle<Expression>,
        kind: ScalarKind,
        convert: Option<u8>,
    ) -> Handle<Expression> {
        self.emitted(Expression::As {
            expr,
            kind,
            convert,
        })
    }

    fn binary(
        &mut self,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Handle<Expression> {
        self.emitted(Expression::Binary { op, left, right })
    }

    fn member(&mut self, base: Handle<Expression>, index: u32) -> Handle<Expression> {
        self.emitted(Expression::AccessIndex { base, index })
    }

    fn load(&mut self, pointer: Handle<Expression>) -> Handle<Expression> {
        self.emitted(Expression::Load { pointer })
    }

    fn literal(&mut self, value: u32) -> Handle<Expression> {
        self.add(Expression::Literal(Literal::U32(value)))
    }

    fn global(&mut self, variable: Handle<GlobalVariable>) -> Handle<Expression> {
        self.add(Expression::GlobalVariable(variable))
    }

    /// Adds an expression that naga evaluates by itself.
    fn add(&mut self, expression: Expression) -> Handle<Expression> {
        (self.function.expressions).append(expression, Span::UNDEFINED)
    }

    /// Adds an expression and the statement that evaluates it.
    fn emitted(&mut self, expression: Expression) -> Handle<Expression> {
        let before = self.function.expressions.len();
        let handle = self.add(expression);
        let range = self.function.expressions.range_from(before);
        self.block.push(Statement::Emit(range), Span::UNDEFINED);
        handle
    }
}

/// Calls `look` for every statement of `block`.
fn visit<'b>(block: &'b Block, look: &mut impl FnMut(&'b Statement)) {
    for statement in block.iter() {
        look(statement);
        for inner in inner_blocks(statement) {
            visit(inner, look);
        }
    }
}

fn inner_blocks(statement: &Statement) -> Vec<&Block> {
    match statement {
        Statement::Block(block) => vec![block],
        Statement::If { accept, reject, .. } => vec![accept, reject],
        Statement::Switch { cases, .. } => cases.iter().map(|case| &case.body).collect(),
        Statement::Loop {
            body, continuing, ..
        } => vec![body, continuing],
        _ => Vec::new(),
    }
}

/// The functions that `start` calls, directly or not.
fn reach(module: &Module, start: &Function) -> HashSet<Handle<Function>> {
    let mut found = HashSet::new();
    let mut open = callees(start);
    while let Some(handle) = open.pop() {
        if found.insert(handle) {
            open.extend(callees(&module.functions[handle]));
        }
    }
    found
}

fn callees(function: &Function) -> Vec<Handle<Function>> {
    let mut found = Vec::new();
    visit(&function.body, &mut |statement| {
        if let Statement::Call { function, .. } = statement {
            found.push(*function);
        }
    });
    found
}

/// Whether invocations wait for each other, or work together, in `block` itself.
fn has_barrier(block: &Block) -> bool {
    let mut found = false;
    visit(block, &mut |statement| {
        found |= matches!(
            statement,
            Statement::ControlBarrier(_)
                | Statement::MemoryBarrier(_)
                | Statement::WorkGroupUniformLoad { .. }
                | Statement::SubgroupBallot { .. }
                | Statement::SubgroupGather { .. }
                | Statement::SubgroupCollectiveOperation { .. }
                | Statement::CooperativeStore { .. }
        );
    });
    found
}

/// Behind each call that may have failed, a test of the invocation's flag, and a return.
fn leave_early(
    module: &mut Module,
    runtime: &Runtime,
    stubs: &HashMap<Handle<Function>, usize>,
    sites: &[TextSite],
) {
    let fails = |handle: &Handle<Function>| {
        let site = stubs.get(handle).and_then(|site| sites.get(*site));
        site.is_some_and(|site| site.kind != SiteKind::Print)
    };
    // Callees come before their callers.
    let mut failing: HashSet<Handle<Function>> = HashSet::new();
    for (handle, function) in module.functions.iter() {
        let calls = callees(function);
        if fails(&handle) || calls.iter().any(|callee| failing.contains(callee)) {
            failing.insert(handle);
        }
    }
    let pointers: HashSet<Handle<Type>> = (module.types.iter())
        .filter(|(_, ty)| {
            matches!(
                ty.inner,
                TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. }
            )
        })
        .map(|(handle, _)| handle)
        .collect();
    let functions = module
        .functions
        .iter_mut()
        .map(|(handle, f)| (Some(handle), f));
    let points = module.entry_points.iter_mut();
    for (handle, function) in functions.chain(points.map(|point| (None, &mut point.function))) {
        let is_stub = handle.is_some_and(|handle| stubs.contains_key(&handle));
        let result = function.result.as_ref().map(|result| result.ty);
        // No value can be made up for a pointer; such a function goes on to its end.
        if is_stub || result.is_some_and(|ty| pointers.contains(&ty)) {
            continue;
        }
        let mut body = std::mem::take(&mut function.body);
        let mut tests = Tests {
            expressions: &mut function.expressions,
            failed: runtime.failed,
            result,
            failing: &failing,
        };
        tests.insert(&mut body);
        function.body = body;
    }
}

struct Tests<'f> {
    expressions: &'f mut naga::Arena<Expression>,
    failed: Handle<GlobalVariable>,
    result: Option<Handle<Type>>,
    failing: &'f HashSet<Handle<Function>>,
}

impl Tests<'_> {
    fn insert(&mut self, block: &mut Block) {
        let mut at = 0;
        while at < block.len() {
            let mut is_failing = false;
            match &mut block[at] {
                Statement::Block(inner) => self.insert(inner),
                Statement::If { accept, reject, .. } => {
                    self.insert(accept);
                    self.insert(reject);
                }
                Statement::Switch { cases, .. } => {
                    cases
                        .iter_mut()
                        .for_each(|case| self.insert(&mut case.body));
                }
                // Nothing may return out of `continuing`.
                Statement::Loop { body, .. } => self.insert(body),
                Statement::Call { function, .. } => is_failing = self.failing.contains(function),
                _ => {}
            }
            at += 1;
            if is_failing {
                let test = self.test();
                at += test.len();
                block.splice(at - test.len()..at - test.len(), test);
            }
        }
    }

    fn test(&mut self) -> Block {
        let span = Span::UNDEFINED;
        let flag = self
            .expressions
            .append(Expression::GlobalVariable(self.failed), span);
        let value =
            (self.result).map(|ty| self.expressions.append(Expression::ZeroValue(ty), span));
        let (condition, emit) = emit_chain(
            self.expressions,
            span,
            flag,
            &[&|pointer| Expression::Load { pointer }],
        );
        let mut block = Block::new();
        block.push(emit, span);
        block.push(
            Statement::If {
                condition,
                accept: Block::from_vec(vec![Statement::Return { value }]),
                reject: Block::new(),
            },
            span,
        );
        block
    }
}

/// Has entry point `entry` keep the number of its invocation and, where it may leave, end at once in a launch that
/// has failed. The size of its work-group must be known.
pub(crate) fn begin(module: &mut Module, entry: usize, facts: &PrintFacts) {
    let span = Span::UNDEFINED;
    let global = |name: &str| {
        let mut all = module.global_variables.iter();
        all.find(|(_, v)| v.name.as_deref() == Some(name))
            .map(|(handle, _)| handle)
    };
    let Some((buffer, invocation)) = global(BUFFER).zip(global(INVOCATION)) else {
        return;
    };
    let workgroup = module.entry_points[entry].workgroup_size;
    let mut function = std::mem::take(&mut module.entry_points[entry].function);
    let ids = built_in(module, &mut function.arguments, BuiltIn::GlobalInvocationId);
    let groups = built_in(module, &mut function.arguments, BuiltIn::NumWorkGroups);
    let e = &mut function.expressions;
    let [ids, groups] = [ids, groups].map(|(index, member)| {
        let argument = e.append(Expression::FunctionArgument(index), span);
        (argument, member)
    });
    let variable = e.append(Expression::GlobalVariable(invocation), span);
    let buffer = e.append(Expression::GlobalVariable(buffer), span);
    let [zero, width, height] = [0, workgroup[0], workgroup[1]]
        .map(|number| e.append(Expression::Literal(Literal::U32(number)), span));
    let start = e.len();
    let mut add = |expression| e.append(expression, span);
    let [ids, groups] = [ids, groups].map(|(base, member)| match member {
        Some(index) => add(Expression::AccessIndex { base, index }),
        None => base,
    });
    let [x, y, z] = [0, 1, 2].map(|index| add(Expression::AccessIndex { base: ids, index }));
    let [columns, rows] = [0, 1].map(|index| {
        add(Expression::AccessIndex {
            base: groups,
            index,
        })
    });
    let mut binary = |op, left, right| add(Expression::Binary { op, left, right });
    let width = binary(BinaryOperator::Multiply, columns, width);
    let height = binary(BinaryOperator::Multiply, rows, height);
    let rows = binary(BinaryOperator::Multiply, z, height);
    let rows = binary(BinaryOperator::Add, rows, y);
    let value = binary(BinaryOperator::Multiply, rows, width);
    let value = binary(BinaryOperator::Add, value, x);
    let mut statements = vec![
        Statement::Emit(e.range_from(start)),
        Statement::Store {
            pointer: variable,
            value,
        },
    ];
    if facts.may_leave {
        let (condition, emit) = emit_chain(
            e,
            span,
            buffer,
            &[
                &|base| Expression::AccessIndex { base, index: CLAIM },
                &|pointer| Expression::Load { pointer },
                &|left| Expression::Binary {
                    op: BinaryOperator::NotEqual,
                    left,
                    right: zero,
                },
            ],
        );
        statements.push(emit);
        statements.push(Statement::If {
            condition,
            accept: Block::from_vec(vec![Statement::Return { value: None }]),
            reject: Block::new(),
        });
    }
    prepend(&mut function, statements, span);
    module.entry_points[entry].function = function;
}

#[cfg(test)]
#[path = "tests_print.rs"]
mod tests;
