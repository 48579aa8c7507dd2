//! Spans: helper functions that take pointers to arrays of any length, `ptr<function, array<f32>>`.
//!
//! WGSL has arrays without a length in storage buffers alone; naga parses such a parameter in every address space, and
//! only the validator refuses the parameter. The pass makes a function of each helper for each list of lengths in the
//! helper's calls: the parameter gets the type of the array, and `arrayLength(values)` becomes the array's length. So
//! an index is limited to the array as anywhere else, and a loop up to the length is a loop with a constant bound.
//!
//! *How it works.* Functions are taken in the order of the module, callees first. A function without such parameters is
//! kept, and each of its calls of a helper names the helper for the types at hand, made then and there; a helper that
//! passes its parameter on is handled the same way, once the helper's own types are known. Helpers without callers go.
//!
//! naga takes no pointers into work-group memory as arguments. A span there is a whole variable: the helper names the
//! variable, and the argument goes.

use std::collections::{BTreeMap, HashMap, HashSet};

use naga::compact::{KeepUnused, compact};
use naga::front::Typifier;
use naga::proc::ResolveContext;
use naga::{
    AddressSpace, Arena, ArraySize, Block, Expression, Function, GlobalVariable, Handle, Literal,
    Module, Span, Statement, Type, TypeInner,
};

use super::blocks::{each_statement, each_statement_mut};
use super::globals::{Moved, move_block, move_to};
use super::pointers::Ty;
use super::pointers::visit::operands;
use super::span_checks::{Root, SpanChecks};
use super::{type_of, typified};

/// A call that does not fit a helper.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SpanError {
    pub message: String,
    pub note: String,
    pub span: Span,
}

/// The type of the elements and the address space of a parameter that is a span.
fn span_of(module: &Module, ty: Handle<Type>) -> Option<(Handle<Type>, AddressSpace)> {
    let TypeInner::Pointer { base, space } = module.types[ty].inner else {
        return None;
    };
    let takes_none = matches!(
        space,
        AddressSpace::Function | AddressSpace::Private | AddressSpace::WorkGroup
    );
    match module.types[base].inner {
        TypeInner::Array {
            base,
            size: ArraySize::Dynamic,
            ..
        } if takes_none => Some((base, space)),
        _ => None,
    }
}

/// Makes the helpers with spans into functions of arrays, with checked indices if `checked`. Returns the places of
/// index checks; `None` for a module without helpers, left as is.
///
/// # Errors
/// [`SpanError`] for a call with anything but a pointer to an array of such elements; the module is then no longer of
/// use.
pub(crate) fn run(module: &mut Module, checked: bool) -> Result<Option<Vec<Span>>, SpanError> {
    let helpers: HashSet<Handle<Function>> = (module.functions.iter())
        .filter(|(_, function)| {
            let mut arguments = function.arguments.iter();
            arguments.any(|argument| span_of(module, argument.ty).is_some())
        })
        .map(|(handle, _)| handle)
        .collect();
    if helpers.is_empty() {
        return Ok(None);
    }
    let mut new = Arena::new();
    let checks = match checked {
        true => SpanChecks::begin(module, &mut new),
        false => None,
    };
    let mut maker = Maker {
        module: module.clone(),
        helpers,
        checks,
        new,
        kept: HashMap::new(),
        made: HashMap::new(),
    };
    for (handle, function) in module.functions.iter() {
        if !maker.helpers.contains(&handle) {
            let function = maker.rewritten(function.clone())?;
            let span = module.functions.get_span(handle);
            let new = maker.new.append(function, span);
            maker.kept.insert(handle, new);
        }
    }
    for point in &mut module.entry_points {
        point.function = maker.rewritten(std::mem::take(&mut point.function))?;
    }
    module.types = maker.module.types;
    module.functions = maker.new;
    // The types of the spans themselves would not validate.
    compact(module, KeepUnused::Yes);
    Ok(Some(maker.checks.map_or(Vec::new(), |checks| checks.sites)))
}

struct Maker {
    /// The module before the pass, with further types.
    module: Module,
    /// The functions that take spans.
    helpers: HashSet<Handle<Function>>,
    checks: Option<SpanChecks>,
    new: Arena<Function>,
    /// The new handles of all other functions.
    kept: HashMap<Handle<Function>, Handle<Function>>,
    /// Helpers for the arguments given in the place of spans.
    made: HashMap<(Handle<Function>, Vec<Given>), Handle<Function>>,
}

/// The argument of a call for a span.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Given {
    /// Index of the argument.
    index: usize,
    array: Handle<Type>,
    /// The variable, in work-group memory.
    variable: Option<Handle<GlobalVariable>>,
}

impl Maker {
    /// The function with the helpers for its calls.
    fn rewritten(&mut self, mut function: Function) -> Result<Function, SpanError> {
        let mut calls_helpers = false;
        each_statement(&function.body, &mut |statement| {
            if let Statement::Call { function, .. } = statement {
                calls_helpers |= self.helpers.contains(function);
            }
        });
        let typifier = match calls_helpers {
            true => {
                let locals = &function.local_variables;
                let context =
                    ResolveContext::with_locals(&self.module, locals, &function.arguments);
                typified(&function, &context).map_err(|(handle, error)| SpanError {
                    message: error.to_string(),
                    note: String::new(),
                    span: function.expressions.get_span(handle),
                })?
            }
            false => Typifier::new(),
        };
        let mut body = std::mem::take(&mut function.body);
        self.block(&mut function, &typifier, &mut body)?;
        function.body = body;
        Ok(function)
    }

    fn block(
        &mut self,
        function: &mut Function,
        typifier: &Typifier,
        block: &mut Block,
    ) -> Result<(), SpanError> {
        each_statement_mut(block, &mut |statement, span| {
            let Statement::Call {
                function: called,
                arguments,
                result,
            } = statement
            else {
                return Ok(());
            };
            let new = match self.helpers.contains(called) {
                true => self.helper(*called, function, typifier, arguments, *span)?,
                // Callees come first.
                false => self.kept.get(called).copied().unwrap_or(*called),
            };
            *called = new;
            if let Some(result) = result {
                *function.expressions.get_mut(*result) = Expression::CallResult(new);
            }
            Ok(())
        })
    }

    /// The helper for a call with these arguments.
    fn helper(
        &mut self,
        called: Handle<Function>,
        caller: &Function,
        typifier: &Typifier,
        arguments: &mut Vec<Handle<Expression>>,
        span: Span,
    ) -> Result<Handle<Function>, SpanError> {
        let mut spans = Vec::new();
        let parameters = self.module.functions[called].arguments.clone();
        for (index, (parameter, argument)) in parameters.iter().zip(arguments.iter()).enumerate() {
            let Some((element, space)) = span_of(&self.module, parameter.ty) else {
                continue;
            };
            let given = typifier[*argument].inner_with(&self.module.types);
            let array = match *given {
                TypeInner::Pointer { base, space: own } if own == space => Some(base),
                _ => None,
            };
            let fits = array.filter(|array| {
                matches!(
                    self.module.types[*array].inner,
                    TypeInner::Array { base, size, .. } if base == element && size != ArraySize::Dynamic
                )
            });
            let variable = match caller.expressions[*argument] {
                Expression::GlobalVariable(variable) => Some(variable),
                _ => None,
            };
            let variable = variable.filter(|_| space == AddressSpace::WorkGroup);
            let fits = fits.filter(|_| space != AddressSpace::WorkGroup || variable.is_some());
            match fits {
                Some(array) => spans.push(Given {
                    index,
                    array,
                    variable,
                }),
                None => {
                    let place = caller.expressions.get_span(*argument);
                    let span = if place.is_defined() { place } else { span };
                    let name = parameter.name.as_deref().unwrap_or("?");
                    return Err(self.misfit(called, (index, name), (element, space), given, span));
                }
            }
        }
        let mut index = 0;
        arguments.retain(|_| {
            index += 1;
            let mut dropped = spans.iter().filter(|given| given.variable.is_some());
            !dropped.any(|given| given.index + 1 == index)
        });
        let key = (called, spans);
        if let Some(made) = self.made.get(&key) {
            return Ok(*made);
        }
        let (function, roots) = self.specialized(called, &key.1);
        let mut function = self.rewritten(function)?;
        // Only now do the helper's calls name functions of the new module, as checks do.
        if let Some(checks) = &mut self.checks {
            checks.add(&mut function, &roots);
        }
        let at = self.module.functions.get_span(called);
        let new = self.new.append(function, at);
        self.made.insert(key, new);
        Ok(new)
    }

    fn misfit(
        &self,
        called: Handle<Function>,
        (index, name): (usize, &str),
        (element, space): (Handle<Type>, AddressSpace),
        given: &TypeInner,
        span: Span,
    ) -> SpanError {
        let types = &self.module.types;
        let word = |space: &AddressSpace| match space {
            AddressSpace::Function => "function",
            AddressSpace::Private => "private",
            AddressSpace::WorkGroup => "workgroup",
            AddressSpace::Uniform => "uniform",
            AddressSpace::Storage { .. } => "storage",
            _ => "another",
        };
        let found = match given {
            TypeInner::Pointer { base, space } => {
                let base = Ty::Handle(*base).name(types);
                format!("a pointer to `{base}` in the {} space", word(space))
            }
            _ => "no pointer to an array".to_owned(),
        };
        let function = &self.module.functions[called];
        let element = Ty::Handle(element).name(types);
        SpanError {
            message: format!(
                "argument {} of `{}` (`{name}`) is a span of `{element}` in the {} space, and is given {found}",
                index + 1,
                function.name.as_deref().unwrap_or("?"),
                word(&space),
            ),
            note: match space {
                AddressSpace::WorkGroup => {
                    "a span in the workgroup space takes a pointer to a whole variable, an array of its elements, of any \
                     length"
                }
                _ => {
                    "a span takes a pointer to an array of its elements, of any length, in its own address space"
                }
            }
            .to_owned(),
            span,
        }
    }

    /// The helper for the arguments in the place of its spans, and the lengths of these arguments.
    fn specialized(
        &mut self,
        helper: Handle<Function>,
        spans: &[Given],
    ) -> (Function, HashMap<Root, Expression>) {
        let mut function = self.module.functions[helper].clone();
        let mut lengths = HashMap::new();
        for given in spans {
            let Some(argument) = function.arguments.get_mut(given.index) else {
                continue;
            };
            let Some((_, space)) = span_of(&self.module, argument.ty) else {
                continue;
            };
            let length = match self.module.types[given.array].inner {
                TypeInner::Array {
                    size: ArraySize::Constant(length),
                    ..
                } => Expression::Literal(Literal::U32(length.get())),
                TypeInner::Array {
                    size: ArraySize::Pending(length),
                    ..
                } => Expression::Override(length),
                _ => continue,
            };
            lengths.insert(given.index as u32, length);
            let base = given.array;
            argument.ty = type_of(&mut self.module, TypeInner::Pointer { base, space });
        }
        let variables = spans
            .iter()
            .filter_map(|given| Some((given.index, given.variable?)));
        let variables: BTreeMap<usize, _> = variables.collect();
        let mut index = 0;
        function.arguments.retain(|_| {
            index += 1;
            !variables.contains_key(&(index - 1))
        });
        let root = |index: u32| match variables.get(&(index as usize)) {
            Some(variable) => Root::Variable(*variable),
            None => Root::Argument(index - variables.range(..index as usize).count() as u32),
        };
        let roots = lengths
            .iter()
            .map(|(index, length)| (root(*index), length.clone()));
        let roots = roots.collect();
        (with_spans(function, &lengths, &variables), roots)
    }
}

/// The function with lengths in the place of `arrayLength` of some arguments, and with variables in the place of other
/// arguments, which are arguments no more.
fn with_spans(
    mut function: Function,
    lengths: &HashMap<u32, Expression>,
    variables: &BTreeMap<usize, Handle<GlobalVariable>>,
) -> Function {
    let old = std::mem::take(&mut function.expressions);
    let mut new = Arena::new();
    // In front of everything, since lengths are evaluated without an `Emit`.
    let mut front = HashMap::new();
    for (index, length) in lengths {
        front.insert(*index, new.append(length.clone(), Span::UNDEFINED));
    }
    let mut map: Moved = HashMap::with_capacity(old.len());
    for (handle, expression) in old.iter() {
        let length = match *expression {
            Expression::ArrayLength(array) => match old[array] {
                Expression::FunctionArgument(index) => front.get(&index).copied(),
                _ => None,
            },
            _ => None,
        };
        let copy = match (length, expression) {
            // An expression with an `Emit`, like the replaced expression: the value itself, converted to its own type.
            (Some(expr), _) => Expression::As {
                expr,
                kind: naga::ScalarKind::Uint,
                convert: Some(4),
            },
            (None, Expression::FunctionArgument(index)) => {
                let index = *index as usize;
                match variables.get(&index) {
                    Some(variable) => Expression::GlobalVariable(*variable),
                    None => {
                        let before = variables.range(..index).count();
                        Expression::FunctionArgument((index - before) as u32)
                    }
                }
            }
            (None, other) => {
                let mut copy = other.clone();
                let _ = operands(&mut copy, &mut |operand| move_to(&map, operand));
                copy
            }
        };
        map.insert(handle, new.append(copy, old.get_span(handle)));
    }
    for (_, local) in function.local_variables.iter_mut() {
        if let Some(init) = &mut local.init {
            let _ = move_to(&map, init);
        }
    }
    let named = std::mem::take(&mut function.named_expressions);
    function.named_expressions = named
        .into_iter()
        .filter_map(|(handle, name)| Some((*map.get(&handle)?, name)))
        .collect();
    function.expressions = new;
    move_block(&map, &mut function.body);
    function
}

#[cfg(test)]
mod tests;
