//! The functions that an entry point reaches, each made once for each choice of which of its pointers lead into scratch
//! memory, and the places of their frames.
//!
//! Such a pointer, an argument that lies in scratch memory, and the place of such a result are passed as indices of
//! words.

use std::collections::HashMap;

use naga::proc::ResolveContext;
use naga::{
    AddressSpace, Arena, Expression, Function, FunctionArgument, GlobalVariable, Handle, Literal,
    Module, Scalar, Statement, Type, UniqueArena,
};

use super::builder::{Builder, Scratch, Value};
use super::function::Body;
use super::layout::words;
use crate::kernel::passes::blocks::each_statement;
use crate::kernel::passes::pointers::visit::{operands, used_by};
use crate::kernel::passes::pointers::{Ty, vector_type};
use crate::kernel::passes::range::Ranges;
use crate::kernel::passes::typified;

/// A function and which of its arguments are pointers into scratch memory.
pub(super) type Key = (Handle<Function>, Vec<bool>);

/// A function that was made.
pub(super) struct Made {
    pub handle: Handle<Function>,
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
        let (expressions, local_variables, block) = body.b.code.finish();
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
