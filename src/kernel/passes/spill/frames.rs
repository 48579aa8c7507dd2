//! Bytes of private arrays: how many an invocation has at once, and which of them are spilled.

use std::collections::{HashMap, HashSet};

use naga::{AddressSpace, Expression, Function, GlobalVariable, Handle, Module, Statement, Type};

use super::Largest;
use super::layout::{Layout, has_array};
use crate::device::spill_policy::SpillPolicy;
use crate::kernel::passes::blocks::each_statement;
use crate::kernel::passes::reachable;

/// Values below this size are never kept in private memory where others are spilled: they are loaded and stored word
/// by word.
const LARGEST_VALUE: u32 = 4096;

/// The variables with arrays that an entry point reaches.
pub(super) struct Frames<'m> {
    module: &'m Module,
    entry: &'m Function,
    layout: Layout,
}

impl<'m> Frames<'m> {
    /// `None` for a module without such an entry point, or with types without layout.
    pub fn new(module: &'m Module, entry: usize) -> Option<Self> {
        Some(Self {
            module,
            entry: &module.entry_points.get(entry)?.function,
            layout: Layout::new(module, 0)?,
        })
    }

    /// Bytes of the variables with arrays that an invocation has at the same time at most, in the deepest path of
    /// calls. Variables of at least `threshold` bytes do not count.
    pub fn bytes(&self, threshold: u32) -> u64 {
        let counted = |ty: Handle<Type>| match self.layout.bytes(ty) {
            bytes if bytes < threshold && has_array(&self.module.types, ty) => u64::from(bytes),
            _ => 0,
        };
        let mut known = HashMap::new();
        // Functions call only functions declared before.
        for (handle, function) in self.module.functions.iter() {
            let bytes = of_function(function, &known, &counted);
            known.insert(handle, bytes);
        }
        let used = used(self.module, self.entry);
        let shared = used
            .iter()
            .map(|v| counted(self.module.global_variables[*v].ty));
        let shared = shared.fold(0, u64::saturating_add);
        shared.saturating_add(of_function(self.entry, &known, &counted))
    }

    /// The bytes from which on variables are spilled; `None` where none is.
    pub fn threshold(&self, policy: SpillPolicy, limit: u64) -> Option<u32> {
        let mut sizes = self.sizes();
        sizes.sort_unstable();
        sizes.dedup();
        match policy {
            SpillPolicy::Never => None,
            SpillPolicy::Always => (!sizes.is_empty()).then_some(0),
            SpillPolicy::Auto if self.bytes(u32::MAX) <= limit => None,
            SpillPolicy::Auto => {
                let mut sizes = sizes.into_iter().rev();
                // Spilling everything leaves nothing, which is within any limit.
                let found = sizes.find(|&size| self.bytes(size) <= limit);
                Some(found.unwrap_or(0).min(LARGEST_VALUE))
            }
        }
    }

    /// The largest variable with an array.
    pub fn largest(self) -> Largest {
        let module = self.module;
        let reached = reachable(module, self.entry);
        let functions = reached.iter().map(|f| &module.functions[*f]);
        let locals = functions.chain([self.entry]).flat_map(|f| {
            let locals = f.local_variables.iter();
            locals.map(|(handle, v)| {
                let span = f.local_variables.get_span(handle);
                (&v.name, v.ty, f.name.clone(), span)
            })
        });
        let shared = used(module, self.entry).into_iter().map(|handle| {
            let variable = &module.global_variables[handle];
            let span = module.global_variables.get_span(handle);
            (&variable.name, variable.ty, None, span)
        });
        let arrays = locals.chain(shared);
        let arrays = arrays.filter(|(_, ty, ..)| has_array(&module.types, *ty));
        let largest = arrays.max_by_key(|(_, ty, ..)| self.layout.bytes(*ty));
        largest.map_or_else(Largest::default, |(name, ty, function, span)| Largest {
            name: name.clone().unwrap_or_default(),
            function,
            bytes: self.layout.bytes(ty).into(),
            span,
        })
    }

    /// The sizes of all variables with arrays.
    fn sizes(&self) -> Vec<u32> {
        let reached = reachable(self.module, self.entry);
        let functions = reached.iter().map(|f| &self.module.functions[*f]);
        let locals = functions
            .chain([self.entry])
            .flat_map(|f| f.local_variables.iter().map(|(_, v)| v.ty));
        let shared = used(self.module, self.entry);
        let shared = shared
            .into_iter()
            .map(|v| self.module.global_variables[v].ty);
        let types = locals.chain(shared);
        let arrays = types.filter(|ty| has_array(&self.module.types, *ty));
        arrays.map(|ty| self.layout.bytes(ty)).collect()
    }
}

fn of_function(
    function: &Function,
    known: &HashMap<Handle<Function>, u64>,
    counted: &dyn Fn(Handle<Type>) -> u64,
) -> u64 {
    let own = function.local_variables.iter().map(|(_, v)| counted(v.ty));
    let own = own.fold(0, u64::saturating_add);
    let mut deepest = 0;
    each_statement(&function.body, &mut |statement| {
        if let Statement::Call { function, .. } = statement {
            deepest = deepest.max(known.get(function).copied().unwrap_or(0));
        }
    });
    own.saturating_add(deepest)
}

/// The variables in the private space that the functions of an entry point mention.
pub(super) fn used(module: &Module, entry: &Function) -> HashSet<Handle<GlobalVariable>> {
    let reached = reachable(module, entry);
    let functions = reached.iter().map(|f| &module.functions[*f]);
    let expressions = functions
        .chain([entry])
        .flat_map(|f| f.expressions.iter().map(|(_, e)| e));
    expressions
        .filter_map(|expression| match *expression {
            Expression::GlobalVariable(variable) => Some(variable),
            _ => None,
        })
        .filter(|v| module.global_variables[*v].space == AddressSpace::Private)
        .collect()
}
