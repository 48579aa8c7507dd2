//! What is known of a kernel before it runs: its entry point, the values of overrides and constants,
//! layouts, and what each function's expressions are where they do not depend on the invocation.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};

use naga::{Expression, Handle, ScalarKind, Statement};

use super::evaluate::{self, Scope};
use crate::fault::Fault;
use crate::memory::Layouts;
use crate::operate;
use crate::report::FunctionId;
use crate::value::{Scalar, Value};

/// A compute entry point, ready to run with one set of values for its overrides.
pub struct Prepared<'m> {
    pub(super) module: &'m naga::Module,
    pub(super) entry_point: &'m naga::EntryPoint,
    /// Invocations of a work-group along each dimension.
    pub workgroup_size: [u32; 3],
    pub(super) layouts: Layouts,
    globals: Globals<'m>,
    templates: HashMap<FunctionId, Template>,
    /// Global variables that the entry point or a function it calls refers to.
    pub(super) used: Vec<Handle<naga::GlobalVariable>>,
}

/// The part of a function's state that is the same for every invocation.
pub(super) struct Template {
    /// Values of expressions that need no evaluation in order.
    pub values: Vec<Option<Value>>,
    /// Initial values of local variables; `None` where a variable has none of its own.
    pub locals: Vec<Option<Value>>,
}

/// Overrides and constants, evaluated when somebody asks.
struct Globals<'m> {
    module: &'m naga::Module,
    given: BTreeMap<Handle<naga::Override>, Scalar>,
    expressions: Vec<OnceCell<Value>>,
}

impl<'m> Prepared<'m> {
    /// Prepares an entry point. `overrides` gives values by an override's `@id`, as decimal digits,
    /// or by its name if it has no id.
    ///
    /// # Errors
    /// If there is no such entry point or override, an override has no value or not one of its type,
    /// or the module is not valid.
    pub fn new(
        module: &'m naga::Module,
        entry_point: &str,
        overrides: &BTreeMap<String, f64>,
    ) -> Result<Prepared<'m>, Fault> {
        let entry = module
            .entry_points
            .iter()
            .find(|entry| entry.name == entry_point && entry.stage == naga::ShaderStage::Compute)
            .ok_or_else(|| Fault::NoEntryPoint(entry_point.to_owned()))?;
        let globals = Globals::new(module, overrides)?;
        let layouts = Layouts::new(module, |handle| globals.override_(handle))?;
        let mut prepared = Prepared {
            module,
            entry_point: entry,
            workgroup_size: globals.workgroup_size(entry)?,
            layouts,
            globals,
            templates: HashMap::new(),
            used: Vec::new(),
        };
        prepared.reach(FunctionId::EntryPoint)?;
        Ok(prepared)
    }

    /// The function of an id.
    pub(super) fn function(&self, id: FunctionId) -> &'m naga::Function {
        match id {
            FunctionId::EntryPoint => &self.entry_point.function,
            FunctionId::Function(handle) => &self.module.functions[handle],
        }
    }

    pub(super) fn template(&self, id: FunctionId) -> Result<&Template, Fault> {
        self.templates.get(&id).ok_or(Fault::Malformed(
            "a function is called that no call statement names",
        ))
    }

    /// The initial value of a global variable, if it has one of its own.
    pub(super) fn initial(
        &self,
        variable: Handle<naga::GlobalVariable>,
    ) -> Result<Option<Value>, Fault> {
        self.module.global_variables[variable]
            .init
            .map(|init| self.globals.expression(init).cloned())
            .transpose()
    }

    /// Invocations of a work-group.
    pub fn workgroup_invocations(&self) -> u32 {
        self.workgroup_size.iter().product()
    }

    fn reach(&mut self, id: FunctionId) -> Result<(), Fault> {
        if self.templates.contains_key(&id) {
            return Ok(());
        }
        let function = self.function(id);
        for (_, expression) in function.expressions.iter() {
            if let Expression::GlobalVariable(variable) = *expression
                && !self.used.contains(&variable)
            {
                self.used.push(variable);
            }
        }
        let template = self.template_of(function)?;
        self.templates.insert(id, template);
        let mut callees = Vec::new();
        collect_callees(&function.body, &mut callees);
        callees
            .into_iter()
            .try_for_each(|callee| self.reach(FunctionId::Function(callee)))
    }

    fn template_of(&self, function: &naga::Function) -> Result<Template, Fault> {
        let mut values = Vec::with_capacity(function.expressions.len());
        for (_, expression) in function.expressions.iter() {
            let value = match *expression {
                Expression::Literal(
                    naga::Literal::AbstractInt(_) | naga::Literal::AbstractFloat(_),
                ) => None,
                Expression::Literal(_)
                | Expression::Constant(_)
                | Expression::Override(_)
                | Expression::ZeroValue(_) => evaluate::pure(self, expression, |_| {
                    Err(Fault::Malformed("a constant has operands"))
                })?,
                _ => None,
            };
            values.push(value);
        }
        let locals = function.local_variables.iter().map(|(_, variable)| {
            variable
                .init
                .map(|init| self.constant_expression(&function.expressions, &values, init))
                .transpose()
        });
        Ok(Template {
            locals: locals.collect::<Result<_, _>>()?,
            values,
        })
    }

    /// Evaluates an expression of a function that is known before the function runs.
    fn constant_expression(
        &self,
        expressions: &naga::Arena<Expression>,
        known: &[Option<Value>],
        handle: Handle<Expression>,
    ) -> Result<Value, Fault> {
        if let Some(value) = &known[handle.index()] {
            return Ok(value.clone());
        }
        let mut operands: HashMap<Handle<Expression>, Value> = HashMap::new();
        for operand in operands_of(&expressions[handle]) {
            operands.insert(
                operand,
                self.constant_expression(expressions, known, operand)?,
            );
        }
        let missing = Fault::Malformed("an initial value is not constant");
        evaluate::pure(self, &expressions[handle], |operand| {
            operands.get(&operand).ok_or(missing.clone())
        })?
        .ok_or(missing.clone())
    }
}

impl Scope for Prepared<'_> {
    fn module(&self) -> &naga::Module {
        self.module
    }

    fn constant(&self, handle: Handle<naga::Constant>) -> Result<Value, Fault> {
        self.globals.constant(handle)
    }

    fn override_(&self, handle: Handle<naga::Override>) -> Result<Scalar, Fault> {
        self.globals.override_(handle)
    }

    fn length(&self, ty: Handle<naga::Type>) -> Option<u64> {
        self.layouts.length(ty)
    }
}

impl<'m> Globals<'m> {
    fn new(
        module: &'m naga::Module,
        overrides: &BTreeMap<String, f64>,
    ) -> Result<Globals<'m>, Fault> {
        let mut given = BTreeMap::new();
        for (key, value) in overrides {
            let named = module
                .overrides
                .iter()
                .find(|(_, candidate)| match candidate.id {
                    Some(id) => id.to_string() == *key,
                    None => candidate.name.as_deref() == Some(key),
                });
            let (handle, found) = named.ok_or_else(|| Fault::NoOverride(key.clone()))?;
            let naga::TypeInner::Scalar(ty) = module.types[found.ty].inner else {
                return Err(Fault::Malformed("an override is no scalar"));
            };
            let scalar = given_value(ty, *value).ok_or_else(|| Fault::OverrideOutOfRange {
                name: key.clone(),
                value: *value,
            })?;
            given.insert(handle, scalar);
        }
        let expressions = (0..module.global_expressions.len())
            .map(|_| OnceCell::new())
            .collect();
        Ok(Globals {
            module,
            given,
            expressions,
        })
    }

    fn workgroup_size(&self, entry: &naga::EntryPoint) -> Result<[u32; 3], Fault> {
        let mut size = entry.workgroup_size;
        for (dimension, expression) in entry.workgroup_size_overrides.iter().flatten().enumerate() {
            if let Some(expression) = expression {
                let value = self
                    .expression(*expression)?
                    .scalar()
                    .and_then(Scalar::integer);
                size[dimension] = value
                    .and_then(|value| u32::try_from(value).ok())
                    .filter(|value| *value > 0)
                    .ok_or(Fault::Malformed(
                        "a dimension of the work-group is no positive integer",
                    ))?;
            }
        }
        Ok(size)
    }

    fn expression(&self, handle: Handle<Expression>) -> Result<&Value, Fault> {
        let cell = &self.expressions[handle.index()];
        if let Some(value) = cell.get() {
            return Ok(value);
        }
        let expression = &self.module.global_expressions[handle];
        for operand in operands_of(expression) {
            self.expression(operand)?;
        }
        let value = evaluate::pure(self, expression, |operand| self.expression(operand))?
            .ok_or(Fault::Malformed("a global expression is not constant"))?;
        Ok(cell.get_or_init(|| value))
    }
}

impl Scope for Globals<'_> {
    fn module(&self) -> &naga::Module {
        self.module
    }

    fn constant(&self, handle: Handle<naga::Constant>) -> Result<Value, Fault> {
        self.expression(self.module.constants[handle].init).cloned()
    }

    fn override_(&self, handle: Handle<naga::Override>) -> Result<Scalar, Fault> {
        if let Some(scalar) = self.given.get(&handle) {
            return Ok(*scalar);
        }
        let found = &self.module.overrides[handle];
        let init = found.init.ok_or_else(|| {
            let id = found.id.map(|id| id.to_string());
            Fault::OverrideWithoutValue(found.name.clone().or(id).unwrap_or_default())
        })?;
        self.expression(init)?
            .scalar()
            .ok_or(Fault::Malformed("an override's default is no scalar"))
    }

    fn length(&self, ty: Handle<naga::Type>) -> Option<u64> {
        match self.module.types[ty].inner {
            naga::TypeInner::Array {
                size: naga::ArraySize::Constant(length),
                ..
            } => Some(length.get().into()),
            _ => None,
        }
    }
}

/// The value of an override that the host gives as a number: WebGPU's conversion, which refuses what
/// the type does not hold.
fn given_value(ty: naga::Scalar, value: f64) -> Option<Scalar> {
    match ty.kind {
        ScalarKind::Bool => Some(Scalar::Bool(value != 0.0 && !value.is_nan())),
        ScalarKind::Float => {
            Scalar::rounded(ty, value).filter(|scalar| scalar.float().is_some_and(f64::is_finite))
        }
        _ => {
            let (low, high) = operate::integer_range(ty)?;
            let truncated = value.trunc();
            (value.is_finite() && truncated >= low as f64 && truncated <= high as f64)
                .then(|| Scalar::wrapped(ty, truncated as i128))?
        }
    }
}

fn collect_callees(block: &naga::Block, callees: &mut Vec<Handle<naga::Function>>) {
    for statement in block.iter() {
        match statement {
            Statement::Call { function, .. } => callees.push(*function),
            Statement::Block(block) => collect_callees(block, callees),
            Statement::If { accept, reject, .. } => {
                collect_callees(accept, callees);
                collect_callees(reject, callees);
            }
            Statement::Switch { cases, .. } => cases
                .iter()
                .for_each(|case| collect_callees(&case.body, callees)),
            Statement::Loop {
                body, continuing, ..
            } => {
                collect_callees(body, callees);
                collect_callees(continuing, callees);
            }
            _ => {}
        }
    }
}

/// The operands of a constant expression.
fn operands_of(expression: &Expression) -> Vec<Handle<Expression>> {
    match *expression {
        Expression::Compose { ref components, .. } => components.clone(),
        Expression::Access { base, index } => vec![base, index],
        Expression::AccessIndex { base, .. } => vec![base],
        Expression::Splat { value, .. } => vec![value],
        Expression::Swizzle { vector, .. } => vec![vector],
        Expression::Unary { expr, .. } | Expression::As { expr, .. } => vec![expr],
        Expression::Binary { left, right, .. } => vec![left, right],
        Expression::Select {
            condition,
            accept,
            reject,
        } => vec![condition, accept, reject],
        Expression::Relational { argument, .. } => vec![argument],
        Expression::Math {
            arg,
            arg1,
            arg2,
            arg3,
            ..
        } => [Some(arg), arg1, arg2, arg3]
            .into_iter()
            .flatten()
            .collect(),
        _ => Vec::new(),
    }
}
