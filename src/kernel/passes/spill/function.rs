//! The new form of a function: pointers into scratch memory become indices, and values that lie there become places.
//!
//! A function is made once for each choice of which of its pointers lead into scratch memory. Such a pointer, an
//! argument that lies in scratch memory, and the place of such a result are passed as indices of words.

use std::collections::HashMap;

use naga::front::Typifier;
use naga::proc::{ResolveContext, TypeResolution};
use naga::{
    AddressSpace, Arena, Block, Expression, Function, FunctionArgument, GlobalVariable, Handle,
    Literal, LocalVariable, Module, Scalar, ScalarKind, Span, Statement, Type, TypeInner,
    UniqueArena,
};

use super::builder::{Builder, Place, Scratch, Value};
use super::filled::is_filled_first;
use super::layout::words;
use super::range::Ranges;
use crate::kernel::passes::pointers::visit::{operands, used_by};
use crate::kernel::passes::pointers::{Ty, is_not_emitted, vector_type};
use crate::kernel::passes::trip_count::each_statement;
use crate::kernel::passes::typified;

/// What an expression of the old function is in the new one.
#[derive(Clone, Copy)]
enum Form {
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

/// A function and which of its arguments are pointers into scratch memory.
type Key = (Handle<Function>, Vec<bool>);

/// A function that was made.
struct Made {
    handle: Handle<Function>,
    body: Facts,
}

/// What the frames of a function depend on.
#[derive(Default)]
pub(super) struct Facts {
    /// Words of the frame.
    pub words: u64,
    /// The literal for the start of the frame.
    pub start: Option<Value>,
    /// The functions called, by their numbers in the order of making.
    calls: Vec<usize>,
}

/// Makes the functions that an entry point reaches.
pub(super) struct Maker<'a> {
    /// The module before the pass.
    pub old: &'a Module,
    pub types: UniqueArena<Type>,
    pub scratch: Scratch,
    /// Variables in the private space that lie in scratch memory: words in front of each.
    pub shared: HashMap<Handle<GlobalVariable>, u32>,
    /// Words of all those variables.
    pub shared_words: u64,
    pub new: Arena<Function>,
    /// A function has an expression without a type.
    pub is_invalid: bool,
    made: Vec<Made>,
    numbers: HashMap<Key, usize>,
}

impl<'a> Maker<'a> {
    pub fn new(
        old: &'a Module,
        types: UniqueArena<Type>,
        scratch: Scratch,
        shared: (HashMap<Handle<GlobalVariable>, u32>, u64),
    ) -> Self {
        Self {
            old,
            types,
            scratch,
            shared: shared.0,
            shared_words: shared.1,
            new: Arena::new(),
            is_invalid: false,
            made: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    /// Places the frames: each behind those of all callers. Returns the words of an invocation.
    pub fn place_frames(&mut self, entry: &mut Function, facts: &Facts) -> u64 {
        let mut starts = vec![self.shared_words; self.made.len()];
        let mut total = self.shared_words + facts.words;
        let raise = |starts: &mut Vec<u64>, facts: &Facts, start: u64| {
            for &called in &facts.calls {
                if let Some(known) = starts.get_mut(called) {
                    *known = (*known).max(start + facts.words);
                }
            }
        };
        raise(&mut starts, facts, self.shared_words);
        // Functions are made before their callers.
        for (number, made) in self.made.iter().enumerate().rev() {
            let start = starts[number];
            total = total.max(start + made.body.words);
            raise(&mut starts, &made.body, start);
        }
        let lanes = u64::from(self.scratch.lanes);
        // Totals beyond a word are refused by the caller.
        let begin = |function: &mut Function, facts: &Facts, start: u64| {
            if let Some(at) = facts.start {
                let words = Literal::U32(start.saturating_mul(lanes) as u32);
                *function.expressions.get_mut(at) = Expression::Literal(words);
            }
        };
        begin(entry, facts, self.shared_words);
        for (made, start) in self.made.iter().zip(starts) {
            begin(self.new.get_mut(made.handle), &made.body, start);
        }
        total
    }

    /// The number of the new form of a function that is called.
    fn called(&mut self, key: Key) -> usize {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let old = self.old;
        let (function, body) = self.function(&old.functions[key.0], &key.1, false);
        let handle = self.new.append(function, old.functions.get_span(key.0));
        self.made.push(Made { handle, body });
        let number = self.made.len() - 1;
        self.numbers.insert(key, number);
        number
    }

    /// The new form of a function of the old module.
    pub fn function(
        &mut self,
        old: &'a Function,
        pointers: &[bool],
        is_entry: bool,
    ) -> (Function, Facts) {
        let mut calls = HashMap::new();
        let mut wanted = Vec::new();
        each_statement(&old.body, &mut |statement| {
            if let Statement::Call {
                function,
                arguments,
                ..
            } = statement
            {
                let mask = arguments.iter().map(|a| self.leads_in(old, *a, pointers));
                wanted.push((*function, mask.collect::<Vec<bool>>()));
            }
        });
        for key in wanted {
            let number = self.called(key.clone());
            calls.insert(key, number);
        }
        let context = ResolveContext::with_locals(self.old, &old.local_variables, &old.arguments);
        let Ok(typifier) = typified(old, &context) else {
            // The module was valid.
            self.is_invalid = true;
            return (Function::default(), Facts::default());
        };
        let word = vector_type(&mut self.types, 1, Scalar::U32);
        let mut body = Body {
            module: self.old,
            old,
            typifier,
            pointers,
            shared: &self.shared,
            made: &self.made,
            calls: &calls,
            uses: uses(old),
            ranges: Ranges::new(self.old, old),
            forms: HashMap::new(),
            locals: HashMap::new(),
            result: None,
            b: Builder::new(&mut self.types, &self.scratch),
        };
        let mut arguments = Vec::new();
        for (index, argument) in old.arguments.iter().enumerate() {
            arguments.push(body.argument(index, argument, word));
        }
        let mut result = old.result.clone();
        if let Some(found) = &old.result
            && body.b.scratch.layout.in_memory(body.b.types, found.ty)
        {
            arguments.push(FunctionArgument {
                name: None,
                ty: word,
                binding: None,
            });
            let place = body.given(arguments.len() - 1, Ty::Handle(found.ty));
            body.result = Some(place);
            result = None;
        }
        body.variables(is_entry);
        body.block(&old.body);
        let names = body.names();
        let (start, most) = (body.b.start(), body.b.most);
        let (expressions, local_variables, block) = body.b.finish();
        let function = Function {
            name: old.name.clone(),
            arguments,
            result,
            local_variables,
            expressions,
            named_expressions: names,
            body: block,
            diagnostic_filter_leaf: old.diagnostic_filter_leaf,
        };
        let facts = Facts {
            words: most,
            start: Some(start),
            calls: calls.into_values().collect(),
        };
        (function, facts)
    }

    /// Whether an expression is a pointer into scratch memory.
    fn leads_in(&self, function: &Function, pointer: Value, pointers: &[bool]) -> bool {
        let in_memory = |ty| self.scratch.layout.in_memory(&self.types, ty);
        let mut at = pointer;
        loop {
            match function.expressions[at] {
                Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => at = base,
                Expression::LocalVariable(local) => {
                    return in_memory(function.local_variables[local].ty);
                }
                Expression::GlobalVariable(variable) => {
                    return self.shared.contains_key(&variable);
                }
                Expression::FunctionArgument(index) => {
                    return pointers.get(index as usize) == Some(&true);
                }
                _ => return false,
            }
        }
    }
}

/// How often each expression of a function is used by others and by statements.
fn uses(function: &Function) -> HashMap<Value, u32> {
    let mut uses = HashMap::new();
    let mut count = |handle: &mut Value| -> Result<(), std::convert::Infallible> {
        *uses.entry(*handle).or_default() += 1;
        Ok(())
    };
    for (_, expression) in function.expressions.iter() {
        let _ = operands(&mut expression.clone(), &mut count);
    }
    each_statement(&function.body, &mut |statement| {
        // Without a copy of the blocks inside.
        let used = match *statement {
            Statement::If { condition, .. } => Some(condition),
            Statement::Switch { selector, .. } => Some(selector),
            Statement::Loop { break_if, .. } => break_if,
            Statement::Block(_) => None,
            ref other => {
                let _ = used_by(&mut other.clone(), &mut count, &mut |_| Ok(()));
                None
            }
        };
        if let Some(mut used) = used {
            let _ = count(&mut used);
        }
    });
    uses
}

/// The body of a function in the making.
struct Body<'a, 'b> {
    module: &'a Module,
    old: &'a Function,
    typifier: Typifier,
    /// Which arguments are pointers into scratch memory.
    pointers: &'b [bool],
    shared: &'b HashMap<Handle<GlobalVariable>, u32>,
    made: &'b [Made],
    calls: &'b HashMap<Key, usize>,
    uses: HashMap<Value, u32>,
    ranges: Ranges<'a>,
    forms: HashMap<Value, Form>,
    /// The variables that stay variables.
    locals: HashMap<Handle<LocalVariable>, Handle<LocalVariable>>,
    /// Where the result goes.
    result: Option<Place>,
    b: Builder<'b>,
}

impl Body<'_, '_> {
    /// The place that argument `index` names.
    fn given(&mut self, index: usize, ty: Ty) -> Place {
        let base = self.b.add(Expression::FunctionArgument(index as u32));
        Place {
            base,
            constant: 0,
            ty,
        }
    }

    fn argument(
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
    fn variables(&mut self, is_entry: bool) {
        if is_entry {
            self.shared_values();
        }
        let mut places = HashMap::new();
        for (handle, variable) in self.old.local_variables.iter() {
            self.b.span = self.old.local_variables.get_span(handle);
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
                init: init.map(|init| self.b.copied(&self.old.expressions, init)),
                ..variable.clone()
            };
            let span = self.b.span;
            self.locals.insert(handle, self.b.locals.append(copy, span));
        }
        for (handle, expression) in self.old.expressions.iter() {
            self.b.span = self.old.expressions.get_span(handle);
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
            self.b.span = self.module.global_variables.get_span(handle);
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
                let value = self.b.copied(arena, value);
                self.b.store_value(place, value);
            }
        }
    }

    fn names(&self) -> naga::FastIndexMap<Value, String> {
        let names = self.old.named_expressions.iter();
        names
            .filter_map(|(handle, name)| match self.forms.get(handle) {
                Some(Form::Plain(value)) => Some((*value, name.clone())),
                _ => None,
            })
            .collect()
    }

    fn form(&self, handle: Value) -> Option<Form> {
        self.forms.get(&handle).copied()
    }

    /// The expression as a value or a pointer to other memory.
    fn plain(&mut self, handle: Value) -> Value {
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
    fn store(&mut self, place: &Place, value: Value) {
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
    fn kept(&self, handle: Value) -> Option<Ty> {
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
    fn emit(&mut self, handle: Value, next: Option<Value>) {
        self.b.span = self.old.expressions.get_span(handle);
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

    fn block(&mut self, block: &Block) {
        let statements: Vec<(&Statement, &Span)> = block.span_iter().collect();
        for (index, (statement, span)) in statements.iter().enumerate() {
            self.b.span = **span;
            let next = statements.get(index + 1).map(|(statement, _)| *statement);
            self.statement(statement, **span, next);
        }
    }

    /// The value that a statement stores to scratch memory, if nothing else uses the value.
    fn stored_by(&self, statement: Option<&Statement>) -> Option<Value> {
        let value = match statement? {
            Statement::Store { pointer, value } => {
                // A pointer of the same `Emit` has no form yet.
                let root = self.root(*pointer);
                matches!(self.form(root), Some(Form::Pointer(_))).then_some(*value)?
            }
            Statement::Return { value } => {
                self.result?;
                (*value)?
            }
            _ => return None,
        };
        (self.uses.get(&value) == Some(&1)).then_some(value)
    }

    /// The variable or argument that a pointer leads from.
    fn root(&self, pointer: Value) -> Value {
        let mut at = pointer;
        while let Expression::Access { base, .. } | Expression::AccessIndex { base, .. } =
            self.old.expressions[at]
        {
            at = base;
        }
        at
    }

    fn inner(&mut self, block: &Block) -> Block {
        let outer = self.b.open();
        self.block(block);
        self.b.close(outer)
    }

    fn statement(&mut self, statement: &Statement, span: Span, next: Option<&Statement>) {
        match statement {
            Statement::Emit(range) => {
                let next = self.stored_by(next);
                for handle in range.clone() {
                    self.emit(handle, next);
                }
                self.b.span = span;
            }
            Statement::Block(block) => {
                let block = self.inner(block);
                self.b.push(Statement::Block(block));
            }
            Statement::If {
                condition,
                accept,
                reject,
            } => {
                let condition = self.plain(*condition);
                let (accept, reject) = (self.inner(accept), self.inner(reject));
                self.b.span = span;
                self.b.push(Statement::If {
                    condition,
                    accept,
                    reject,
                });
            }
            Statement::Switch { selector, cases } => {
                let selector = self.plain(*selector);
                let mut made = Vec::with_capacity(cases.len());
                for case in cases {
                    made.push(naga::SwitchCase {
                        value: case.value,
                        body: self.inner(&case.body),
                        fall_through: case.fall_through,
                    });
                }
                self.b.span = span;
                self.b.push(Statement::Switch {
                    selector,
                    cases: made,
                });
            }
            Statement::Loop {
                body,
                continuing,
                break_if,
            } => self.looped(body, continuing, *break_if, span),
            Statement::Store { pointer, value } => self.stored(*pointer, *value),
            Statement::Return { value: Some(value) } if self.result.is_some() => {
                if let Some(place) = self.result {
                    self.store(&place, *value);
                }
                self.b.push(Statement::Return { value: None });
            }
            Statement::Call {
                function,
                arguments,
                result,
            } => self.call(*function, arguments, *result),
            other => self.other(other),
        }
    }

    fn looped(&mut self, body: &Block, continuing: &Block, break_if: Option<Value>, span: Span) {
        // What the body has made is in scope of `continuing`, too: its memory is kept for it.
        let outer = self.b.open();
        self.block(body);
        let inner = self.b.open();
        self.block(continuing);
        let break_if = break_if.map(|value| self.plain(value));
        let continuing = self.b.close(inner);
        let body = self.b.close(outer);
        self.b.span = span;
        self.b.push(Statement::Loop {
            body,
            continuing,
            break_if,
        });
    }

    fn stored(&mut self, pointer: Value, value: Value) {
        if let Some(Form::Pointer(place)) = self.form(pointer) {
            return self.store(&place, value);
        }
        let to = self.plain(pointer);
        match self.form(value) {
            Some(Form::Memory(from)) => self.b.copy_out(to, &from),
            _ => {
                let value = self.plain(value);
                self.b.store(to, value);
            }
        }
    }

    fn call(&mut self, function: Handle<Function>, arguments: &[Value], result: Option<Value>) {
        let mut mask = Vec::with_capacity(arguments.len());
        let mut passed = Vec::with_capacity(arguments.len() + 1);
        for &argument in arguments {
            let form = self.form(argument);
            mask.push(matches!(form, Some(Form::Pointer(_))));
            let place = match (form, self.kept(argument)) {
                (Some(Form::Pointer(place) | Form::Memory(place)), _) => Some(place),
                // A constant.
                (_, Some(ty)) => {
                    let place = self.b.take(ty);
                    self.store(&place, argument);
                    Some(place)
                }
                _ => None,
            };
            passed.push(match place {
                Some(place) => self.b.address(&place),
                None => self.plain(argument),
            });
        }
        let number = self.calls.get(&(function, mask));
        let Some(made) = number.and_then(|&number| self.made.get(number)) else {
            return;
        };
        let function = made.handle;
        let kept = result.and_then(|result| Some((result, self.kept(result)?)));
        if let Some((result, ty)) = kept {
            let place = self.b.take(ty);
            passed.push(self.b.address(&place));
            self.b.push(Statement::Call {
                function,
                arguments: passed,
                result: None,
            });
            self.forms.insert(result, Form::Memory(place));
            return;
        }
        let result = result.map(|result| {
            let value = self.b.add(Expression::CallResult(function));
            self.forms.insert(result, Form::Plain(value));
            value
        });
        self.b.push(Statement::Call {
            function,
            arguments: passed,
            result,
        });
    }

    /// Any other statement, with the new forms of its operands.
    fn other(&mut self, statement: &Statement) {
        let mut copy = statement.clone();
        let mut operands = Vec::new();
        let mut results = Vec::new();
        let _ = used_by(
            &mut copy,
            &mut |handle| -> Result<(), std::convert::Infallible> {
                operands.push(*handle);
                Ok(())
            },
            &mut |handle| {
                results.push(*handle);
                Ok(())
            },
        );
        let mut made: HashMap<Value, Value> = HashMap::new();
        for handle in operands {
            made.insert(handle, self.plain(handle));
        }
        for handle in results {
            let expression = self.old.expressions[handle].clone();
            debug_assert!(is_not_emitted(&expression));
            let value = self.b.add(expression);
            self.forms.insert(handle, Form::Plain(value));
            made.insert(handle, value);
        }
        let replace = |handle: &mut Value| -> Result<(), std::convert::Infallible> {
            if let Some(value) = made.get(handle) {
                *handle = *value;
            }
            Ok(())
        };
        let _ = used_by(&mut copy, &mut { replace }, &mut { replace });
        self.b.push(copy);
    }
}

/// The variables in the private space that lie in scratch memory, with the words in front of each, and all words.
pub(super) fn shared(
    module: &Module,
    scratch: &Scratch,
    used: &dyn Fn(Handle<GlobalVariable>) -> bool,
) -> (HashMap<Handle<GlobalVariable>, u32>, u64) {
    let mut all = HashMap::new();
    let mut top = 0u64;
    for (handle, variable) in module.global_variables.iter() {
        let kept = scratch.layout.in_memory(&module.types, variable.ty);
        if variable.space == AddressSpace::Private && kept && used(handle) {
            all.insert(handle, top as u32);
            top += u64::from(words(&module.types, Ty::Handle(variable.ty)));
        }
    }
    (all, top)
}
