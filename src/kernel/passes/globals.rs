//! Device globals: storage variables without `@group` and `@binding`.
//!
//! naga parses such a variable, and only the validator refuses the declaration. [`mark`] therefore gives each variable
//! a binding in a group beyond any adapter ([`GROUP`]), right after parsing: from there on the variable validates,
//! specializes and is reflected like any other. [`lower`] replaces the marked variables of a kernel by members of a
//! single variable, a structure with the offsets of the variables in their memory; kernels following pointers reach the
//! variables through the heap binding instead ([`super::pointers::ArgumentTable`]).
//!
//! In a kernel the variables are one structure with members at their offsets, bound where the first of them lies: one
//! binding, and the same instructions as for a binding of the user's own. Gaps are members too (arrays of words),
//! because some shading languages know no offsets. Variables in different chunks, and those of kernels that follow
//! pointers, are rows of the argument table: nothing is bound twice where it is written. The lowering comes last.

use std::collections::{BTreeMap, HashMap, HashSet};

use naga::compact::{KeepUnused, compact};
use naga::{
    AddressSpace, Arena, ArraySize, Block, Expression, Function, GlobalVariable, Handle, Module,
    Range, ResourceBinding, Span, Statement, StorageAccess, StructMember, Type, TypeInner,
};

use super::blocks::{each_statement, each_statement_mut};
use super::pointers::visit::{operands, used_by};
use super::{type_of, unique_name};

/// The group of marked variables; adapters have a handful of groups. Less by 1 than the number for no group at all.
pub(crate) const GROUP: u32 = u32::MAX - 1;

/// A variable that cannot be a device global.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unsized {
    pub name: String,
    pub span: Span,
}

/// True for the binding of a marked variable.
pub(crate) fn is_global(binding: &ResourceBinding) -> bool {
    binding.group == GROUP
}

/// Marks every storage variable that has no binding.
///
/// # Errors
/// The first variable whose size the program does not fix: no buffer is bound for such a variable.
pub(crate) fn mark(module: &mut Module) -> Result<(), Unsized> {
    let mut number = 0;
    let types = &module.types;
    let mut marked = Vec::new();
    for (handle, variable) in module.global_variables.iter() {
        if !matches!(variable.space, AddressSpace::Storage { .. }) || variable.binding.is_some() {
            continue;
        }
        if is_unsized(types, variable.ty) {
            return Err(Unsized {
                name: variable.name.clone().unwrap_or_default(),
                span: module.global_variables.get_span(handle),
            });
        }
        marked.push((handle, number));
        number += 1;
    }
    for (handle, binding) in marked {
        let group = GROUP;
        module.global_variables.get_mut(handle).binding = Some(ResourceBinding { group, binding });
    }
    Ok(())
}

fn is_unsized(types: &naga::UniqueArena<Type>, ty: Handle<Type>) -> bool {
    match &types[ty].inner {
        TypeInner::Array { size, .. } => *size == ArraySize::Dynamic,
        TypeInner::BindingArray { .. } => true,
        TypeInner::Struct { members, .. } => members
            .last()
            .is_some_and(|last| is_unsized(types, last.ty)),
        _ => false,
    }
}

/// The marked variables reached by the entry point, in the order of their declaration.
pub(crate) fn used(module: &Module, entry: usize) -> Vec<Handle<GlobalVariable>> {
    let is_marked = |variable: &GlobalVariable| variable.binding.as_ref().is_some_and(is_global);
    let mut variables = module.global_variables.iter();
    if !variables.any(|(_, variable)| is_marked(variable)) {
        return Vec::new();
    }
    let mut found = HashSet::new();
    let mut reached = HashSet::new();
    let mut todo: Vec<&Function> = module
        .entry_points
        .get(entry)
        .map(|e| &e.function)
        .into_iter()
        .collect();
    while let Some(function) = todo.pop() {
        for (_, expression) in function.expressions.iter() {
            if let Expression::GlobalVariable(variable) = *expression {
                found.insert(variable);
            }
        }
        each_statement(&function.body, &mut |statement| {
            if let Statement::Call { function, .. } = *statement
                && reached.insert(function)
            {
                todo.push(&module.functions[function]);
            }
        });
    }
    let variables = module.global_variables.iter();
    let variables = variables.filter(|(handle, v)| is_marked(v) && found.contains(handle));
    variables.map(|(handle, _)| handle).collect()
}

/// The type in full: members with names and offsets, arrays with strides, atomics as their scalars.
pub(crate) fn canonical(module: &Module, ty: Handle<Type>) -> String {
    let scalar =
        |scalar: &naga::Scalar| format!("{:?}{}", scalar.kind, u32::from(scalar.width) * 8);
    match &module.types[ty].inner {
        TypeInner::Scalar(s) | TypeInner::Atomic(s) => scalar(s),
        TypeInner::Vector { size, scalar: s } => format!("{}x{}", scalar(s), *size as u32),
        TypeInner::Matrix {
            columns,
            rows,
            scalar: s,
        } => {
            format!("{}x{}x{}", scalar(s), *columns as u32, *rows as u32)
        }
        TypeInner::Array { base, size, stride } => {
            format!("[{}; {size:?}/{stride}]", canonical(module, *base))
        }
        TypeInner::Struct { members, span } => {
            let member = |m: &StructMember| {
                let name = m.name.as_deref().unwrap_or_default();
                format!("{name}@{}:{},", m.offset, canonical(module, m.ty))
            };
            format!(
                "{{{}{span}}}",
                members.iter().map(member).collect::<String>()
            )
        }
        other => format!("{other:?}"),
    }
}

/// A variable of the kernel and its place in the bound memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    /// The number given by [`mark`].
    pub number: u32,
    /// Bytes from the start of the memory.
    pub offset: u32,
}

/// Replaces the marked variables `members` of entry point `entry` by members of a single variable at `binding`, and
/// returns how many of its bytes the kernel needs. The module is for this entry point alone then.
///
/// The offsets must suit the types, and the variables must not overlap. Gaps are members, too, so the plain layout
/// rules lead to the same offsets: some shading languages know no other rules.
pub(crate) fn lower(
    module: &mut Module,
    entry: usize,
    members: &[Member],
    binding: ResourceBinding,
) -> u32 {
    let point = module.entry_points.swap_remove(entry);
    module.entry_points = vec![point];
    let mut members = members.to_vec();
    members.sort_by_key(|member| member.offset);

    let word = type_of(module, TypeInner::Scalar(naga::Scalar::U32));
    let mut access = StorageAccess::LOAD;
    let (mut parts, mut end) = (Vec::new(), 0u32);
    let mut index_of = BTreeMap::new();
    let mut align = 4;
    for member in &members {
        let wanted = ResourceBinding {
            group: GROUP,
            binding: member.number,
        };
        let found = module
            .global_variables
            .iter()
            .find(|(_, v)| v.binding == Some(wanted));
        let Some((handle, variable)) = found.map(|(handle, variable)| (handle, variable.clone()))
        else {
            continue;
        };
        let (ty, name) = (variable.ty, variable.name);
        if let AddressSpace::Storage { access: own } = variable.space {
            access |= own;
        }
        let from = end.next_multiple_of(4);
        if let Some(words) = std::num::NonZeroU32::new(member.offset.saturating_sub(from) / 4) {
            let size = ArraySize::Constant(words);
            let gap = type_of(
                module,
                TypeInner::Array {
                    base: word,
                    size,
                    stride: 4,
                },
            );
            parts.push(part(format!("tombolo_gap_{}", parts.len()), gap, from));
        }
        index_of.insert(handle, parts.len() as u32);
        parts.push(part(name.unwrap_or_default(), ty, member.offset));
        let layout = crate::kernel::layout::TypeLayout::of(module, ty);
        end = member.offset + layout.size;
        align = align.max(layout.align);
    }
    let span = end.next_multiple_of(align);
    let ty = Type {
        name: Some(unique_name(module, "TomboloGlobals")),
        inner: TypeInner::Struct {
            members: parts,
            span,
        },
    };
    let ty = module.types.insert(ty, Span::UNDEFINED);
    let variable = GlobalVariable {
        name: Some(unique_name(module, "tombolo_globals")),
        space: AddressSpace::Storage { access },
        binding: Some(binding),
        ty,
        init: None,
        memory_decorations: naga::MemoryDecorations::empty(),
    };
    let variable = module.global_variables.append(variable, Span::UNDEFINED);
    for (_, function) in module.functions.iter_mut() {
        redirect(function, variable, &index_of);
    }
    for point in &mut module.entry_points {
        redirect(&mut point.function, variable, &index_of);
    }
    // The replaced variables, and those of other entry points, have bindings beyond any adapter.
    compact(module, KeepUnused::No);
    span
}

/// Removes the remaining marked variables, with the other entry points, which may use them. Returns the index of entry
/// point `entry` then.
pub(crate) fn discard(module: &mut Module, entry: usize) -> usize {
    let is_marked = |v: &GlobalVariable| v.binding.as_ref().is_some_and(is_global);
    if !module.global_variables.iter().any(|(_, v)| is_marked(v)) {
        return entry;
    }
    let point = module.entry_points.swap_remove(entry);
    module.entry_points = vec![point];
    compact(module, KeepUnused::No);
    0
}

fn part(name: String, ty: Handle<Type>, offset: u32) -> StructMember {
    StructMember {
        name: Some(name),
        ty,
        binding: None,
        offset,
    }
}

/// Makes `function` use members of `whole` in place of the variables in `index_of`.
///
/// The members are named in front of everything else, which moves every other expression: all are copied.
fn redirect(
    function: &mut Function,
    whole: Handle<GlobalVariable>,
    index_of: &BTreeMap<Handle<GlobalVariable>, u32>,
) {
    let member_of = |expression: &Expression| match expression {
        Expression::GlobalVariable(variable) => index_of.get(variable).copied(),
        _ => None,
    };
    let old = std::mem::take(&mut function.expressions);
    let wanted: BTreeMap<u32, Span> = (old.iter())
        .filter_map(|(handle, expression)| Some((member_of(expression)?, old.get_span(handle))))
        .collect();
    if wanted.is_empty() {
        function.expressions = old;
        return;
    }
    let mut new = Arena::new();
    let base = new.append(Expression::GlobalVariable(whole), Span::UNDEFINED);
    let before = new.len();
    let members: HashMap<u32, Handle<Expression>> = (wanted.into_iter())
        .map(|(index, span)| {
            (
                index,
                new.append(Expression::AccessIndex { base, index }, span),
            )
        })
        .collect();
    let emitted = new.range_from(before);
    let mut map = HashMap::with_capacity(old.len());
    for (handle, expression) in old.iter() {
        let moved = match member_of(expression).and_then(|index| members.get(&index)) {
            Some(member) => *member,
            None => {
                let mut copy = expression.clone();
                let _ = operands(&mut copy, &mut |operand| move_to(&map, operand));
                new.append(copy, old.get_span(handle))
            }
        };
        map.insert(handle, moved);
    }
    for (_, local) in function.local_variables.iter_mut() {
        if let Some(init) = &mut local.init {
            let _ = move_to(&map, init);
        }
    }
    let named = std::mem::take(&mut function.named_expressions);
    // A name given to a variable would now be that of its member, which has a name already.
    function.named_expressions = named
        .into_iter()
        .filter(|(handle, _)| member_of(&old[*handle]).is_none())
        .filter_map(|(handle, name)| Some((*map.get(&handle)?, name)))
        .collect();
    function.expressions = new;
    move_block(&map, &mut function.body);
    super::prepend(function, vec![Statement::Emit(emitted)], Span::UNDEFINED);
}

/// The new handles of moved expressions.
pub(super) type Moved = HashMap<Handle<Expression>, Handle<Expression>>;

/// Expressions refer to earlier ones only, all of which are in the map.
pub(super) fn move_to(
    map: &Moved,
    handle: &mut Handle<Expression>,
) -> Result<(), std::convert::Infallible> {
    if let Some(moved) = map.get(handle) {
        *handle = *moved;
    }
    Ok(())
}

/// Has the statements of a block, and of the blocks inside, use moved expressions.
pub(super) fn move_block(map: &Moved, block: &mut Block) {
    let _ = each_statement_mut(block, &mut |statement, _| {
        // Emitted expressions stay neighbours: only variables, which are never among them, are gone.
        if let Statement::Emit(range) = statement
            && let Some((first, last)) = range.first_and_last()
            && let (Some(first), Some(last)) = (map.get(&first), map.get(&last))
        {
            *range = Range::new_from_bounds(*first, *last);
        }
        used_by(
            statement,
            &mut |handle| move_to(map, handle),
            &mut |handle| move_to(map, handle),
        )
    });
}

#[cfg(test)]
mod tests;
