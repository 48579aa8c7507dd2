//! The new form of a function: pointers into scratch memory become indices, and values that lie there become places.

use std::collections::HashMap;

use naga::front::Typifier;
use naga::proc::TypeResolution;
use naga::{
    Arena, Expression, Function, FunctionArgument, GlobalVariable, Handle, LocalVariable, Module,
    ScalarKind, Type, TypeInner,
};

use super::builder::{Builder, Place, Value};
use super::filled::is_filled_first;
use super::maker::{Key, Made};
use crate::kernel::passes::code::Emitter;
use crate::kernel::passes::pointers::Ty;
use crate::kernel::passes::pointers::visit::operands;
use crate::kernel::passes::range::Ranges;

/// What an expression of the old function is in the new one.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// An expression.
    Plain(Value),
    /// A pointer into scratch memory.
    Pointer(Place),
    /// A value in scratch memory, which nothing changes while the value is in use.
    Memory(Place),
    /// A value behind a pointer to other memory, read by the next statement.
    Behind(Value),
    /// A composition (of the old function), stored by the next statement.
    Composed(Value),
}

/// The body of a function in the making.
pub(super) struct Body<'a, 'b> {
    pub module: &'a Module,
    pub old: &'a Function,
    pub typifier: Typifier,
    /// Which arguments are pointers into scratch memory.
    pub pointers: &'b [bool],
    pub shared: &'b HashMap<Handle<GlobalVariable>, u32>,
    pub made: &'b [Made],
    pub calls: &'b HashMap<Key, usize>,
    pub uses: HashMap<Value, u32>,
    pub ranges: Ranges<'a>,
    pub forms: HashMap<Value, Form>,
    /// The variables that stay variables.
    pub locals: HashMap<Handle<LocalVariable>, Handle<LocalVariable>>,
    /// Where the result goes.
    pub result: Option<Place>,
    pub b: Builder<'b>,
}

impl Body<'_, '_> {
    /// The place that argument `index` names.
    pub fn given(&mut self, index: usize, ty: Ty) -> Place {
        let base = self.b.add(Expression::FunctionArgument(index as u32));
        Place {
            base,
            constant: 0,
            ty,
        }
    }

    pub fn argument(
        &mut self,
        index: usize,
        argument: &FunctionArgument,
        word: Handle<Type>,
    ) -> FunctionArgument {
        let in_words = FunctionArgument {
            ty: word,
            ..argument.clone()
        };
        let form = match self.b.types[argument.ty].inner {
            TypeInner::Pointer { base, .. } if self.pointers.get(index) == Some(&true) => {
                Form::Pointer(self.given(index, Ty::Handle(base)))
            }
            TypeInner::ValuePointer { size, scalar, .. }
                if self.pointers.get(index) == Some(&true) =>
            {
                let ty = size.map_or(Ty::Scalar(scalar), |size| Ty::Vector(size as u32, scalar));
                Form::Pointer(self.given(index, ty))
            }
            _ if self.b.scratch.layout.in_memory(self.b.types, argument.ty) => {
                Form::Memory(self.given(index, Ty::Handle(argument.ty)))
            }
            _ => return argument.clone(),
        };
        let expressions = self.old.expressions.iter();
        let same = expressions
            .filter(|(_, e)| matches!(e, Expression::FunctionArgument(i) if *i as usize == index));
        for (handle, _) in same {
            self.forms.insert(handle, form);
        }
        in_words
    }

    /// The variables of the function, and everything else that needs no `Emit`; with the initial values of those in
    /// scratch memory.
    pub fn variables(&mut self, is_entry: bool) {
        if is_entry {
            self.shared_values();
        }
        let mut places = HashMap::new();
        for (handle, variable) in self.old.local_variables.iter() {
            self.b.code.span = self.old.local_variables.get_span(handle);
            if self.b.scratch.layout.in_memory(self.b.types, variable.ty) {
                let place = self.b.take(Ty::Handle(variable.ty));
                match variable.init {
                    Some(init) => self.constant(&place, &self.old.expressions, init),
                    None if is_filled_first(self.module, self.old, handle) => {}
                    None => self.b.fill(&place),
                }
                places.insert(handle, place);
                continue;
            }
            let init = variable.init;
            let copy = LocalVariable {
                init: init.map(|init| self.b.copied_constant(&self.old.expressions, init)),
                ..variable.clone()
            };
            let span = self.b.code.span;
            self.locals
                .insert(handle, self.b.code.locals.append(copy, span));
        }
        for (handle, expression) in self.old.expressions.iter() {
            self.b.code.span = self.old.expressions.get_span(handle);
            let form = match *expression {
                Expression::LocalVariable(local) => match places.get(&local) {
                    Some(place) => Form::Pointer(*place),
                    None => {
                        let local = self.locals[&local];
                        Form::Plain(self.b.add(Expression::LocalVariable(local)))
                    }
                },
                Expression::GlobalVariable(variable) => match self.shared.get(&variable) {
                    Some(words) => {
                        let ty = Ty::Handle(self.module.global_variables[variable].ty);
                        Form::Pointer(self.b.shared(*words, ty))
                    }
                    None => Form::Plain(self.b.add(expression.clone())),
                },
                ref other if other.needs_pre_emit() && !self.forms.contains_key(&handle) => {
                    Form::Plain(self.b.add(other.clone()))
                }
                _ => continue,
            };
            self.forms.insert(handle, form);
        }
    }

    /// The initial values of variables in the private space, as an invocation begins.
    fn shared_values(&mut self) {
        let mut shared: Vec<_> = self.shared.iter().map(|(v, words)| (*words, *v)).collect();
        shared.sort_by_key(|(words, _)| *words);
        for (words, handle) in shared {
            let variable = &self.module.global_variables[handle];
            self.b.code.span = self.module.global_variables.get_span(handle);
            let place = self.b.shared(words, Ty::Handle(variable.ty));
            match variable.init {
                Some(init) => self.constant(&place, &self.module.global_expressions, init),
                None => self.b.fill(&place),
            }
        }
    }

    /// Stores a constant expression.
    fn constant(&mut self, place: &Place, arena: &Arena<Expression>, value: Value) {
        let parts = self.b.scratch.layout.keeps(self.b.types, place.ty);
        match &arena[value] {
            Expression::ZeroValue(_) => self.b.fill(place),
            Expression::Constant(constant) if parts => {
                let init = self.module.constants[*constant].init;
                self.constant(place, &self.module.global_expressions, init);
            }
            Expression::Compose { components, .. } if parts => {
                for (index, component) in components.iter().enumerate() {
                    let part = self.b.part(place, index as u32);
                    self.constant(&part, arena, *component);
                }
            }
            _ => {
                let value = self.b.copied_constant(arena, value);
                self.b.store_value(place, value);
            }
        }
    }

    pub fn names(&self) -> naga::FastIndexMap<Value, String> {
        let names = self.old.named_expressions.iter();
        names
            .filter_map(|(handle, name)| match self.forms.get(handle) {
                Some(Form::Plain(value)) => Some((*value, name.clone())),
                _ => None,
            })
            .collect()
    }

    pub fn form(&self, handle: Value) -> Option<Form> {
        self.forms.get(&handle).copied()
    }

    /// The expression as a value or a pointer to other memory.
    pub fn plain(&mut self, handle: Value) -> Value {
        match self.form(handle) {
            Some(Form::Plain(value)) => value,
            Some(Form::Memory(place) | Form::Pointer(place)) => self.b.load_value(&place),
            Some(Form::Behind(pointer)) => self.b.load(pointer),
            // Expressions of constants need no `Emit`: each use makes them anew.
            Some(Form::Composed(_)) | None => {
                let mut copy = self.old.expressions[handle].clone();
                let _ = operands(
                    &mut copy,
                    &mut |operand| -> Result<(), std::convert::Infallible> {
                        *operand = self.plain(*operand);
                        Ok(())
                    },
                );
                self.b.add(copy)
            }
        }
    }

    /// Stores a value of the old function.
    pub fn store(&mut self, place: &Place, value: Value) {
        match self.form(value) {
            Some(Form::Memory(from)) => self.b.copy(place, &from),
            Some(Form::Behind(pointer)) => self.b.copy_in(place, pointer),
            Some(Form::Composed(of)) => self.components(place, of),
            _ => match self.old.expressions[value] {
                Expression::ZeroValue(_) => self.b.fill(place),
                Expression::Constant(_) if self.b.scratch.layout.keeps(self.b.types, place.ty) => {
                    self.constant(place, &self.old.expressions, value);
                }
                _ => {
                    let value = self.plain(value);
                    self.b.store_value(place, value);
                }
            },
        }
    }

    /// Stores the components of a composition.
    fn components(&mut self, place: &Place, of: Value) {
        if let Expression::Compose { components, .. } = &self.old.expressions[of] {
            for (index, component) in components.iter().enumerate() {
                let part = self.b.part(place, index as u32);
                self.store(&part, *component);
            }
        }
    }

    /// The type of an expression of the old function, where it is kept in scratch memory.
    pub fn kept(&self, handle: Value) -> Option<Ty> {
        match self.typifier[handle] {
            TypeResolution::Handle(ty) if self.b.scratch.layout.in_memory(self.b.types, ty) => {
                Some(Ty::Handle(ty))
            }
            _ => None,
        }
    }

    /// The kind of an index.
    fn kind(&self, index: Value) -> ScalarKind {
        let inner = self.typifier[index].inner_with(&self.module.types);
        inner.scalar_kind().unwrap_or(ScalarKind::Uint)
    }

    /// Makes an expression of an `Emit`; `next` is stored or returned by the statement behind.
    pub fn emit(&mut self, handle: Value, next: Option<Value>) {
        self.b.code.span = self.old.expressions.get_span(handle);
        let form = match self.old.expressions[handle] {
            Expression::Access { base, index } => self.access(base, |body, place| {
                let kind = body.kind(index);
                let most = body.ranges.most(index, kind);
                let index = body.plain(index);
                body.b.limited(place, index, kind, most)
            }),
            Expression::AccessIndex { base, index } => {
                self.access(base, |body, place| body.b.part(place, index))
            }
            Expression::Load { pointer } => self.loaded(handle, pointer, next == Some(handle)),
            Expression::Compose { .. } => self.kept(handle).map(|ty| {
                if next == Some(handle) {
                    return Form::Composed(handle);
                }
                let place = self.b.take(ty);
                self.components(&place, handle);
                Form::Memory(place)
            }),
            _ => None,
        };
        let form = form.unwrap_or_else(|| {
            let mut copy = self.old.expressions[handle].clone();
            let _ = operands(
                &mut copy,
                &mut |operand| -> Result<(), std::convert::Infallible> {
                    *operand = self.plain(*operand);
                    Ok(())
                },
            );
            Form::Plain(self.b.add(copy))
        });
        self.forms.insert(handle, form);
    }

    /// A part of what lies in scratch memory; `None` for a base elsewhere.
    fn access(
        &mut self,
        base: Value,
        part: impl FnOnce(&mut Self, &Place) -> Place,
    ) -> Option<Form> {
        match self.form(base)? {
            Form::Pointer(place) => Some(Form::Pointer(part(self, &place))),
            Form::Memory(place) => {
                let place = part(self, &place);
                Some(match self.b.scratch.layout.keeps(self.b.types, place.ty) {
                    true => Form::Memory(place),
                    false => Form::Plain(self.b.load_value(&place)),
                })
            }
            _ => None,
        }
    }

    /// A load from scratch memory, or of a value that belongs there.
    fn loaded(&mut self, handle: Value, pointer: Value, is_next: bool) -> Option<Form> {
        let from = match self.form(pointer)? {
            Form::Pointer(place) => Some(place),
            _ => None,
        };
        let Some(ty) = self.kept(handle) else {
            return from.map(|place| Form::Plain(self.b.load_value(&place)));
        };
        match from {
            // Nothing runs between the load and the store, and both are the same memory or memory apart.
            Some(place) if is_next => Some(Form::Memory(place)),
            Some(place) => {
                let copy = self.b.take(ty);
                self.b.copy(&copy, &place);
                Some(Form::Memory(copy))
            }
            None => {
                let pointer = self.plain(pointer);
                if is_next {
                    return Some(Form::Behind(pointer));
                }
                let copy = self.b.take(ty);
                self.b.copy_in(&copy, pointer);
                Some(Form::Memory(copy))
            }
        }
    }
}
