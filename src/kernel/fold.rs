//! Evaluates the constant expressions of a module, with values for its overrides.
//!
//! Does for all overrides at once, and for each independently, the work of naga's `process_overrides` for the overrides
//! of an entry point, up to the first without a value: each expression is evaluated once, by naga's own evaluator.

use std::collections::HashSet;

use naga::back::PipelineConstants;
use naga::proc::{ConstantEvaluator, ExpressionKindTracker, Layouter};
use naga::{Arena, Expression, Handle, Literal, Module, Override, Span, TypeInner};

use super::constants::{ConstantType, ConstantValue};
use super::evaluate::Unevaluated;
use super::passes::pointers::visit::operands;

type Folded = Result<Handle<Expression>, Unevaluated>;

struct Fold<'v> {
    /// Without overrides; the expressions are the evaluated ones.
    module: Module,
    overrides: Arena<Override>,
    values: &'v PipelineConstants,
    kinds: ExpressionKindTracker,
    layouter: Layouter,
    /// The new handles of the module's expressions, in their order.
    folded: Vec<Folded>,
    /// The expressions in place of overrides, once mentioned.
    known: Vec<Option<Folded>>,
}

/// The values of all overrides of `module`, by their place in the module, with those in `values` set.
pub(crate) fn fold(
    module: &Module,
    values: &PipelineConstants,
) -> Vec<Result<ConstantValue, Unevaluated>> {
    let mut module = module.clone();
    let old = module.global_expressions.take();
    let overrides = module.overrides.take();
    let mut fold = Fold {
        module,
        known: vec![None; overrides.len()],
        overrides,
        values,
        kinds: ExpressionKindTracker::new(),
        layouter: Layouter::default(),
        folded: Vec::with_capacity(old.len()),
    };
    let mut moved = HashSet::new();
    for (handle, expression) in old.iter() {
        let result = fold.expression(expression, old.get_span(handle), &mut moved);
        fold.folded.push(result);
    }
    let handles: Vec<_> = fold.overrides.iter().map(|(handle, _)| handle).collect();
    let value = |handle| fold.stands_for(handle).and_then(|found| fold.value(found));
    handles.into_iter().map(value).collect()
}

impl Fold<'_> {
    fn append(&mut self, expression: Expression, span: Span) -> Folded {
        super::work::count(1);
        let (kinds, layouter) = (&mut self.kinds, &mut self.layouter);
        ConstantEvaluator::for_wgsl_module(&mut self.module, kinds, layouter, false)
            .try_eval_and_append(expression, span)
            .map_err(|error| Unevaluated::Failed(error.to_string()))
    }

    /// The new handle of `old`. naga lists expressions behind their operands.
    fn folded(&self, old: Handle<Expression>) -> Folded {
        let found = self.folded.get(old.index()).cloned();
        found.unwrap_or(Err(Unevaluated::Missing))
    }

    /// Evaluates an expression; `moved` are the constants whose values have been.
    fn expression(
        &mut self,
        expression: &Expression,
        span: Span,
        moved: &mut HashSet<Handle<naga::Constant>>,
    ) -> Folded {
        match *expression {
            Expression::Override(one) => self.stands_for(one),
            Expression::Constant(constant) => {
                if !moved.contains(&constant) {
                    let init = self.folded(self.module.constants[constant].init)?;
                    self.module.constants[constant].init = init;
                    moved.insert(constant);
                }
                self.append(expression.clone(), span)
            }
            _ => {
                let mut expression = expression.clone();
                operands(&mut expression, &mut |operand| {
                    *operand = self.folded(*operand)?;
                    Ok(())
                })?;
                self.append(expression, span)
            }
        }
    }

    /// The expression that an override stands for.
    fn stands_for(&mut self, handle: Handle<Override>) -> Folded {
        if let Some(Some(known)) = self.known.get(handle.index()) {
            return known.clone();
        }
        let one = self.overrides[handle].clone();
        let key = (one.id.map(|id| id.to_string())).or(one.name);
        let set = key.and_then(|key| self.values.get(&key).copied());
        let result = match (set, one.init) {
            (Some(value), _) => match literal(&self.module.types[one.ty].inner, value) {
                Some(literal) => {
                    let span = self.overrides.get_span(handle);
                    self.append(Expression::Literal(literal), span)
                }
                None => Err(Unevaluated::Failed(format!(
                    "{value} is no value of its type"
                ))),
            },
            (None, Some(init)) => self.folded(init),
            (None, None) => Err(Unevaluated::Missing),
        };
        if let Some(slot) = self.known.get_mut(handle.index()) {
            *slot = Some(result.clone());
        }
        result
    }

    /// The value of an expression evaluated as far as it can be.
    fn value(&self, handle: Handle<Expression>) -> Result<ConstantValue, Unevaluated> {
        let literal = match self.module.global_expressions[handle] {
            Expression::Literal(literal) => Some(literal),
            Expression::ZeroValue(ty) => match self.module.types[ty].inner {
                TypeInner::Scalar(scalar) => Literal::zero(scalar),
                _ => None,
            },
            _ => None,
        };
        literal
            .and_then(ConstantValue::from_literal)
            .ok_or_else(|| Unevaluated::Failed("its value is not a constant".to_owned()))
    }
}

/// A number as a literal of type `ty`.
fn literal(ty: &TypeInner, value: f64) -> Option<Literal> {
    let TypeInner::Scalar(scalar) = *ty else {
        return None;
    };
    let integer = value as i128;
    let whole = || (integer as f64 == value).then_some(integer);
    Some(match ConstantType::from_scalar(scalar)? {
        ConstantType::Bool => Literal::Bool(value != 0.0),
        ConstantType::I16 => Literal::I16(i16::try_from(whole()?).ok()?),
        ConstantType::U16 => Literal::U16(u16::try_from(whole()?).ok()?),
        ConstantType::I32 => Literal::I32(i32::try_from(whole()?).ok()?),
        ConstantType::U32 => Literal::U32(u32::try_from(whole()?).ok()?),
        ConstantType::F16 => Literal::F16(half::f16::from_f64(value)),
        ConstantType::F32 => Literal::F32(value as f32),
        ConstantType::F64 => Literal::F64(value),
    })
}
