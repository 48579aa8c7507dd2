//! Invocations of a failed launch: their early end, and their first steps.

use std::collections::{HashMap, HashSet};

use naga::{
    BinaryOperator, Block, BuiltIn, Expression, Function, GlobalVariable, Handle, Literal, Module,
    Span, Statement, Type, TypeInner,
};

use super::super::blocks::{each_statement, inner_mut};
use super::super::pointers::built_in;
use super::super::{emit_chain, prepend};
use super::{BUFFER, INVOCATION, PrintFacts, Runtime};
use crate::kernel::print::TextSite;
use crate::kernel::server::{SLICE_ENTRY, is_own};

/// A member of `TomboloPrint` in shaders/print.wgsl.
const CLAIM: u32 = 3;

/// The functions that `start` calls, directly or not.
pub(super) fn reach(module: &Module, start: &Function) -> HashSet<Handle<Function>> {
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
    each_statement(&function.body, &mut |statement| {
        if let Statement::Call { function, .. } = statement {
            found.push(*function);
        }
    });
    found
}

/// Whether invocations wait for each other, or work together, in `block` itself.
pub(super) fn has_barrier(block: &Block) -> bool {
    let mut found = false;
    each_statement(block, &mut |statement| {
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
pub(super) fn leave_early(
    module: &mut Module,
    runtime: &Runtime,
    stubs: &HashMap<Handle<Function>, usize>,
    sites: &[TextSite],
    room: usize,
) {
    let fails = |handle: &Handle<Function>| {
        let site = stubs.get(handle).and_then(|site| sites.get(*site));
        site.is_some_and(|site| site.kind.fails())
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
    let points = points.filter(|point| !is_own(Some(&point.name)));
    for (handle, function) in functions.chain(points.map(|point| (None, &mut point.function))) {
        let is_stub = handle.is_some_and(|handle| stubs.contains_key(&handle));
        let result = function.result.as_ref().map(|result| result.ty);
        // No value can be made up for a pointer; such a function goes on to its end.
        // A server answers calls that have failed, too.
        let stays = is_own(function.name.as_deref());
        if is_stub || stays || result.is_some_and(|ty| pointers.contains(&ty)) {
            continue;
        }
        let body = std::mem::take(&mut function.body);
        let mut tests = Tests {
            expressions: &mut function.expressions,
            failed: runtime.failed,
            result,
            failing: &failing,
            room,
        };
        function.body = tests.inserted(body, 0);
    }
}

struct Tests<'f> {
    expressions: &'f mut naga::Arena<Expression>,
    failed: Handle<GlobalVariable>,
    result: Option<Handle<Type>>,
    failing: &'f HashSet<Handle<Function>>,
    /// Tests and branches inside each other: to a compiler everything behind a test is inside.
    room: usize,
}

impl Tests<'_> {
    /// The block with tests behind its calls. The call lies inside `level` branches and tests.
    fn inserted(&mut self, block: Block, mut level: usize) -> Block {
        let mut with = Block::with_capacity(block.len());
        for (mut statement, span) in block.span_into_iter() {
            // Nothing may return out of `continuing`.
            for one in inner_mut(&mut statement)
                .into_iter()
                .filter(|one| !one.is_continuing)
            {
                *one.block = self.inserted(std::mem::take(one.block), level + 1);
            }
            let is_failing = match &statement {
                Statement::Call { function, .. } => self.failing.contains(function),
                _ => false,
            };
            with.push(statement, span);
            if is_failing && level < self.room {
                level += 1;
                let mut test = self.test();
                with.append(&mut test);
            }
        }
        with
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

/// Has entry point `entry` keep the number of its invocation and, where leaving is allowed, end at once in a failed
/// launch. The size of its work-group must be known.
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
    // Calls of a slice fail separately.
    if facts.may_leave && module.entry_points[entry].name != SLICE_ENTRY {
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
