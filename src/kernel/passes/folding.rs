//! Operations on known values said in other words, for drivers whose compilers get them wrong.
//!
//! SwiftShader optimizes SPIR-V with known values, and two rules are wrong:
//! - In a comparison of vectors, or a choice among vectors of booleans, the outcome is false wherever a component is a null
//!   constant: with `var n: i32;`, `vec2<i32>(n, 1) == vec2<i32>(0, 1)` is false and true. naga writes null constants
//!   for variables without initial values and for `vec2<i32>()`, and ordinary ones for `0`. So zeros are spelled out.
//!   Arrays and structures of more than [`MOST`] values stay as they are: compilers take apart those that are small.
//! - `SClamp` with a result of the type `u32`, which naga writes for `pack4xI8Clamp`, compares without signs: the bytes
//!   are clamped before, as the numbers that they are.

use naga::{
    Arena, ArraySize, Constant, Expression, Function, Handle, Literal, LocalVariable, MathFunction,
    Module, Scalar, Span, Type, TypeInner, UniqueArena, VectorSize,
};

use super::insert::insert;
use super::type_of;

/// The most scalars of a zero to spell out.
const MOST: usize = 64;

type Value = Handle<Expression>;

/// Rewrites all such operations; whether there were any.
pub(crate) fn run(module: &mut Module) -> bool {
    let clamps = clamp_bytes(module);
    spell_zeros(module) || clamps
}

/// Clamps the numbers of all `pack4xI8Clamp` before; whether there were any.
fn clamp_bytes(module: &mut Module) -> bool {
    let functions = module.functions.iter().map(|(_, function)| function);
    let entries = module.entry_points.iter().map(|point| &point.function);
    if !functions.chain(entries).any(packs_clamped) {
        return false;
    }
    let ty = type_of(
        module,
        TypeInner::Vector {
            size: VectorSize::Quad,
            scalar: Scalar::I32,
        },
    );
    let bounds = [i8::MIN, i8::MAX].map(|bound| {
        let literal = Expression::Literal(Literal::I32(bound.into()));
        let part = module.global_expressions.append(literal, Span::UNDEFINED);
        let components = vec![part; 4];
        let init = Expression::Compose { ty, components };
        let constant = Constant {
            name: None,
            ty,
            init: module.global_expressions.append(init, Span::UNDEFINED),
        };
        module.constants.append(constant, Span::UNDEFINED)
    });
    let functions = module.functions.iter_mut().map(|(_, function)| function);
    let entries = module.entry_points.iter_mut();
    for function in functions.chain(entries.map(|point| &mut point.function)) {
        if !packs_clamped(function) {
            continue;
        }
        let bounds = bounds.map(Expression::Constant);
        insert(function, bounds, |expression, [least, most], before| {
            if let Expression::Math {
                fun: fun @ MathFunction::Pack4xI8Clamp,
                arg,
                ..
            } = expression
            {
                *arg = before(Expression::Math {
                    fun: MathFunction::Clamp,
                    arg: *arg,
                    arg1: Some(least),
                    arg2: Some(most),
                    arg3: None,
                });
                *fun = MathFunction::Pack4xI8;
            }
        });
    }
    true
}

fn packs_clamped(function: &Function) -> bool {
    let fun = MathFunction::Pack4xI8Clamp;
    let is_one = |one: &Expression| matches!(one, Expression::Math { fun: own, .. } if *own == fun);
    function.expressions.iter().any(|(_, one)| is_one(one))
}

/// Spells zeros out, in variables of invocations, in constants and in expressions; whether there were any.
fn spell_zeros(module: &mut Module) -> bool {
    let (types, values) = (&module.types, &mut module.global_expressions);
    let mut found = false;
    let inits = module.constants.iter_mut().map(|(_, one)| &mut one.init);
    for init in inits {
        found |= spell_out(init, types, values);
    }
    for (_, variable) in module.global_variables.iter_mut() {
        match &mut variable.init {
            Some(init) => found |= spell_out(init, types, values),
            None if variable.space == naga::AddressSpace::Private => {
                variable.init = zero(variable.ty, types, values);
                found |= variable.init.is_some();
            }
            None => {}
        }
    }
    let functions = module.functions.iter_mut().map(|(_, function)| function);
    let entries = module.entry_points.iter_mut();
    for function in functions.chain(entries.map(|point| &mut point.function)) {
        found |= rewrite(function, types, values, &mut module.constants);
    }
    found
}

fn rewrite(
    function: &mut Function,
    types: &UniqueArena<Type>,
    values: &mut Arena<Expression>,
    constants: &mut Arena<Constant>,
) -> bool {
    let mut constant = |ty| {
        let init = zero(ty, types, values)?;
        let constant = Constant {
            name: None,
            ty,
            init,
        };
        Some(Expression::Constant(
            constants.append(constant, Span::UNDEFINED),
        ))
    };
    let mut found = false;
    for (_, expression) in function.expressions.iter_mut() {
        if let Expression::ZeroValue(ty) = *expression
            && let Some(spelled) = constant(ty)
        {
            (*expression, found) = (spelled, true);
        }
    }
    for (_, LocalVariable { ty, init, .. }) in function.local_variables.iter_mut() {
        if init.is_none()
            && let Some(spelled) = constant(*ty)
        {
            *init = Some(function.expressions.append(spelled, Span::UNDEFINED));
            found = true;
        }
    }
    found
}

/// Has a constant say the zeros in it; whether there are any.
fn spell_out(value: &mut Value, types: &UniqueArena<Type>, values: &mut Arena<Expression>) -> bool {
    let spelled = match values[*value].clone() {
        Expression::ZeroValue(ty) => zero(ty, types, values),
        Expression::Compose { ty, mut components } => {
            let mut found = false;
            for component in &mut components {
                found |= spell_out(component, types, values);
            }
            found.then(|| values.append(Expression::Compose { ty, components }, Span::UNDEFINED))
        }
        _ => None,
    };
    *value = spelled.unwrap_or(*value);
    spelled.is_some()
}

/// The zero of a type, unless that has too many values, or none.
fn zero(
    ty: Handle<Type>,
    types: &UniqueArena<Type>,
    values: &mut Arena<Expression>,
) -> Option<Value> {
    (scalars(ty, types)? <= MOST).then_some(())?;
    let components = match types[ty].inner {
        TypeInner::Scalar(scalar) => {
            let literal = Literal::zero(scalar)?;
            return Some(values.append(Expression::Literal(literal), Span::UNDEFINED));
        }
        TypeInner::Vector { size, scalar } => {
            let literal = Expression::Literal(Literal::zero(scalar)?);
            let part = values.append(literal, Span::UNDEFINED);
            vec![part; size as usize]
        }
        TypeInner::Array {
            base,
            size: ArraySize::Constant(count),
            ..
        } => vec![zero(base, types, values)?; count.get() as usize],
        TypeInner::Struct { ref members, .. } => {
            let parts = members.iter().map(|member| zero(member.ty, types, values));
            parts.collect::<Option<_>>()?
        }
        _ => return None,
    };
    Some(values.append(Expression::Compose { ty, components }, Span::UNDEFINED))
}

/// How many scalars a type has; `None` for types without zeros, without a size, and for matrices, which are not compared.
fn scalars(ty: Handle<Type>, types: &UniqueArena<Type>) -> Option<usize> {
    match types[ty].inner {
        TypeInner::Scalar(_) => Some(1),
        TypeInner::Vector { size, .. } => Some(size as usize),
        TypeInner::Array {
            base,
            size: ArraySize::Constant(count),
            ..
        } => scalars(base, types)?.checked_mul(count.get() as usize),
        TypeInner::Struct { ref members, .. } => members.iter().try_fold(0usize, |sum, member| {
            sum.checked_add(scalars(member.ty, types)?)
        }),
        _ => None,
    }
}
