//! Pointers to parts of variables as arguments of calls, such as `f(&values[i])` and `f(&pair.x)`, for SPIR-V.
//!
//! SPIR-V passes pointers to whole variables alone, unless a driver has variable pointers, and naga's writer panics at
//! others. So the part is copied: into a variable of the caller before the call, and back behind it. WGSL allows nobody to
//! look at the part meanwhile by another way where either writes, so no program can tell.

use std::collections::HashMap;

use naga::{
    AddressSpace, Arena, Block, Expression, Function, GlobalVariable, Handle, LocalVariable,
    Module, Span, Statement, Type, TypeInner,
};

use super::blocks::rebuild;
use super::private_variable;

/// The pointee of a parameter, and whether in private space instead of a function's.
type Pointee = (Handle<Type>, bool);

/// The pointees of each function's parameters that are pointers to memory of the invocation.
type Pointees = HashMap<Handle<Function>, Vec<Option<Pointee>>>;

/// Replaces such arguments in the whole module.
pub(crate) fn copy(module: &mut Module) {
    let pointees = pointees(module);
    if pointees.is_empty() {
        return;
    }
    let Module {
        functions,
        entry_points,
        global_variables,
        ..
    } = module;
    let entries = entry_points.iter_mut().map(|entry| &mut entry.function);
    let functions = functions.iter_mut().map(|(_, function)| function);
    for function in functions.chain(entries) {
        let mut body = std::mem::take(&mut function.body);
        let mut caller = Caller {
            function,
            globals: global_variables,
            pointees: &pointees,
            variables: HashMap::new(),
        };
        caller.block(&mut body);
        function.body = body;
    }
}

fn pointees(module: &mut Module) -> Pointees {
    let is_private = |space| match space {
        AddressSpace::Function => Some(false),
        AddressSpace::Private => Some(true),
        _ => None,
    };
    let mut found = Pointees::new();
    for (handle, function) in module.functions.iter() {
        let mut of_parameter = |ty: Handle<Type>| match module.types[ty].inner {
            TypeInner::Pointer { base, space } => Some((base, is_private(space)?)),
            TypeInner::ValuePointer {
                size,
                scalar,
                space,
            } => {
                let is_private = is_private(space)?;
                let inner = match size {
                    Some(size) => TypeInner::Vector { size, scalar },
                    None => TypeInner::Scalar(scalar),
                };
                let ty = Type { name: None, inner };
                Some((module.types.insert(ty, Span::UNDEFINED), is_private))
            }
            _ => None,
        };
        let parameters = function.arguments.iter().map(|a| a.ty);
        let own: Vec<_> = parameters.map(&mut of_parameter).collect();
        if own.iter().any(Option::is_some) {
            found.insert(handle, own);
        }
    }
    found
}

/// A function whose calls are looked at.
struct Caller<'m> {
    function: &'m mut Function,
    globals: &'m mut Arena<GlobalVariable>,
    pointees: &'m Pointees,
    /// Variables for copies, by their number among those of the same kind in one call. No other function has them: a
    /// callee may copy parts of its own.
    variables: HashMap<(Pointee, usize), Handle<Expression>>,
}

impl Caller<'_> {
    fn block(&mut self, block: &mut Block) {
        rebuild(block, &mut |mut statement, span, to| {
            let copies = match &mut statement {
                Statement::Call {
                    function,
                    arguments,
                    ..
                } => self.copies(*function, arguments),
                _ => Vec::new(),
            };
            for (part, copy) in &copies {
                self.transfer(*part, *copy, span, to);
            }
            to.push(statement, span);
            for (part, copy) in copies {
                self.transfer(copy, part, span, to);
            }
        });
    }

    /// Gives the call variables instead of parts; the parts, each with its variable.
    fn copies(
        &mut self,
        callee: Handle<Function>,
        arguments: &mut [Handle<Expression>],
    ) -> Vec<(Handle<Expression>, Handle<Expression>)> {
        let mut copies = Vec::new();
        let mut used: HashMap<Pointee, usize> = HashMap::new();
        let Some(pointees) = self.pointees.get(&callee) else {
            return copies;
        };
        for (argument, pointee) in arguments.iter_mut().zip(pointees) {
            let is_part = matches!(
                self.function.expressions[*argument],
                Expression::Access { .. } | Expression::AccessIndex { .. }
            );
            if let Some(pointee) = pointee
                && is_part
            {
                let number = used.entry(*pointee).or_default();
                let copy = self.variable(*pointee, *number);
                *number += 1;
                copies.push((std::mem::replace(argument, copy), copy));
            }
        }
        copies
    }

    fn variable(&mut self, pointee: Pointee, number: usize) -> Handle<Expression> {
        let (function, globals) = (&mut *self.function, &mut *self.globals);
        *self.variables.entry((pointee, number)).or_insert_with(|| {
            let name = "part".to_owned();
            let (ty, is_private) = pointee;
            let place = match is_private {
                false => {
                    let (name, init) = (Some(name), None);
                    let variable = LocalVariable { name, ty, init };
                    let locals = &mut function.local_variables;
                    Expression::LocalVariable(locals.append(variable, Span::UNDEFINED))
                }
                true => {
                    let variable = private_variable(name, ty);
                    Expression::GlobalVariable(globals.append(variable, Span::UNDEFINED))
                }
            };
            function.expressions.append(place, Span::UNDEFINED)
        })
    }

    /// Copies what is behind one pointer to behind the other.
    fn transfer(
        &mut self,
        from: Handle<Expression>,
        to: Handle<Expression>,
        span: Span,
        block: &mut Block,
    ) {
        let expressions = &mut self.function.expressions;
        let before = expressions.len();
        let value = expressions.append(Expression::Load { pointer: from }, span);
        block.push(Statement::Emit(expressions.range_from(before)), span);
        block.push(Statement::Store { pointer: to, value }, span);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests_support::{kernel, occurrences, parse, text};

    const HELPERS: &str = "
        struct Pair { x: u32, y: vec2<f32> }
        var<private> own: array<u32, 4>;
        fn one(p: ptr<function, u32>) { *p = *p * 2u + 1u; }
        fn two(p: ptr<function, u32>, q: ptr<function, u32>) { *p += *q; }
        fn other(p: ptr<private, u32>) -> u32 { *p += 1u; return *p; }
        fn whole(p: ptr<function, array<u32, 4>>) { one(&(*p)[2]); }";

    /// The text of the kernel, which the writer of SPIR-V has to take as well.
    fn copied(body: &str) -> String {
        let source = kernel(HELPERS, body);
        let mut module = parse(&source);
        super::copy(&mut module);
        let written = text(&module, &source);
        let (flags, capabilities) = (
            naga::valid::ValidationFlags::all(),
            naga::valid::Capabilities::all(),
        );
        let info = naga::valid::Validator::new(flags, capabilities).validate(&module);
        let options = naga::back::spv::Options::default();
        naga::back::spv::write_vec(&module, &info.expect("valid"), &options, None)
            .expect("written");
        written
    }

    #[test]
    fn parts_are_copied_there_and_back() {
        for (body, copies) in [
            ("var a: array<u32, 4>; one(&a[n]); o[0] = a[1];", 1),
            (
                "var a: array<u32, 4>; let p = &a[n]; one(p); one(p); o[0] = *p;",
                2,
            ),
            ("var a: Pair; one(&a.x); o[0] = a.x;", 1),
            (
                "var a: array<array<u32, 4>, 3>; whole(&a[n]); o[0] = a[1][2];",
                1,
            ),
            ("var a: array<u32, 4>; two(&a[n], &a[1]); o[0] = a[1];", 2),
            ("o[0] = other(&own[n]);", 1),
            (
                "var a: array<u32, 4>; for (var i = 0u; i < n; i++) { if n > 3u { one(&a[i]); } } o[0] = a[n];",
                1,
            ),
            (
                "var a: array<u32, 4>; switch n { case 1u: { one(&a[n]); } default: { one(&a[0]); } } o[0] = a[n];",
                2,
            ),
        ] {
            let written = copied(body);
            // `whole` has a copy of its own.
            assert_eq!(occurrences(&written, "= part"), 1 + copies, "{written}");
        }
    }

    #[test]
    fn whole_variables_are_passed_as_they_are() {
        let written =
            copied("var a: array<u32, 4>; var b = n; whole(&a); one(&b); o[0] = a[2] + b;");
        assert_eq!(occurrences(&written, "= part"), 1, "{written}");
    }
}
