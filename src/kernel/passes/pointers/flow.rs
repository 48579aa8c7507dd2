//! Where the pointers come from that functions take and return: from a `usm_` function, from a variable in
//! the argument table, or from either. Behind a variable of the table indices are limited, and the limit has
//! to come along where a pointer to it is passed on.
//!
//! Indices into the argument table's variables are limited to the last element, as in a binding; in checked mode a
//! fault is reported instead.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use naga::{
    AddressSpace, Expression, Function, GlobalVariable, Handle, Module, ResourceBinding, Statement,
};

use super::super::blocks::each_statement;
use super::super::reachable;
use super::scan::{Role, role};

/// Possible sources of a pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Source {
    /// A variable in the argument table.
    pub table: bool,
    /// A pointer that was followed.
    pub heap: bool,
}

impl Source {
    fn or(self, other: Self) -> Self {
        Self {
            table: self.table || other.table,
            heap: self.heap || other.heap,
        }
    }
}

/// The sources of pointers taken and returned by functions.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Flow {
    arguments: BTreeMap<(Handle<Function>, usize), Source>,
    results: BTreeMap<Handle<Function>, Source>,
}

impl Flow {
    /// Follows the pointers through the functions that `entry` reaches. `in_table` says which variables are
    /// in the argument table.
    pub fn new(
        module: &Module,
        entry: &Function,
        reached: &BTreeSet<Handle<Function>>,
        in_table: &dyn Fn(Handle<GlobalVariable>) -> bool,
    ) -> Self {
        let mut flow = Self::default();
        loop {
            let mut next = Self::default();
            flow.follow(module, None, entry, in_table, &mut next);
            for function in reached {
                let body = &module.functions[*function];
                flow.follow(module, Some(*function), body, in_table, &mut next);
            }
            // Knowledge only grows, so the loop ends.
            if next == flow {
                return flow;
            }
            flow = next;
        }
    }

    pub fn argument(&self, function: Handle<Function>, index: usize) -> Source {
        let known = self.arguments.get(&(function, index));
        known.copied().unwrap_or_default()
    }

    pub fn result(&self, function: Handle<Function>) -> Source {
        self.results.get(&function).copied().unwrap_or_default()
    }

    /// Notes in `next` the pointers passed on by `body`.
    fn follow(
        &self,
        module: &Module,
        handle: Option<Handle<Function>>,
        body: &Function,
        in_table: &dyn Fn(Handle<GlobalVariable>) -> bool,
        next: &mut Self,
    ) {
        let mut sources: HashMap<Handle<Expression>, Source> = HashMap::new();
        for (expression, kind) in body.expressions.iter() {
            let source = match *kind {
                Expression::GlobalVariable(variable) => Source {
                    table: in_table(variable),
                    heap: false,
                },
                Expression::FunctionArgument(index) => match handle {
                    Some(function) => self.argument(function, index as usize),
                    None => Source::default(),
                },
                Expression::CallResult(callee) => {
                    match role(&module.functions[callee], &module.types) {
                        Role::Root => Source {
                            table: false,
                            heap: true,
                        },
                        Role::Address => Source::default(),
                        Role::User => self.result(callee),
                    }
                }
                Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                    sources.get(&base).copied().unwrap_or_default()
                }
                _ => continue,
            };
            if source != Source::default() {
                sources.insert(expression, source);
            }
        }
        let source_of = |expression| sources.get(&expression).copied().unwrap_or_default();
        each_statement(&body.body, &mut |statement| match statement {
            Statement::Call {
                function,
                arguments,
                ..
            } => {
                for (index, argument) in arguments.iter().enumerate() {
                    let known = next.arguments.entry((*function, index)).or_default();
                    *known = known.or(source_of(*argument));
                }
            }
            Statement::Return { value: Some(value) } => {
                if let Some(function) = handle {
                    let known = next.results.entry(function).or_default();
                    *known = known.or(source_of(*value));
                }
            }
            _ => {}
        });
    }
}

/// The storage variables to which `entry`, or a reached function, passes or returns pointers: no binding can be reached
/// in this way, so these have to be in the argument table.
pub fn passed(module: &Module, entry: &Function) -> Vec<ResourceBinding> {
    let reached = reachable(module, entry);
    let mut found = BTreeSet::new();
    for function in (reached.iter().map(|f| &module.functions[*f])).chain([entry]) {
        let mut variables: HashMap<Handle<Expression>, ResourceBinding> = HashMap::new();
        for (expression, kind) in function.expressions.iter() {
            let variable = match *kind {
                Expression::GlobalVariable(variable) => {
                    let variable = &module.global_variables[variable];
                    let is_storage = matches!(variable.space, AddressSpace::Storage { .. });
                    variable.binding.filter(|_| is_storage)
                }
                Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                    variables.get(&base).copied()
                }
                _ => None,
            };
            variables.extend(variable.map(|variable| (expression, variable)));
        }
        each_statement(&function.body, &mut |statement| match statement {
            Statement::Call {
                function,
                arguments,
                ..
            } if role(&module.functions[*function], &module.types) == Role::User => {
                let given = arguments.iter().filter_map(|a| variables.get(a));
                found.extend(given.map(|at| (at.group, at.binding)));
            }
            Statement::Return { value: Some(value) } => {
                found.extend(variables.get(value).map(|at| (at.group, at.binding)));
            }
            _ => {}
        });
    }
    (found.into_iter())
        .map(|(group, binding)| ResourceBinding { group, binding })
        .collect()
}
