//! `print`, `assert` and `panic`: the calls left by the text side (`kernel::print`) get parameters of the types of
//! their arguments, and bodies that leave a record for the host. The functions for `file_print` and `text_print` return the
//! values instead, each behind a word for its type, for a call of the host.
//!
//! An assertion that fails raises a flag of the invocation. Behind every call of a function that may raise the flag,
//! the caller tests the flag and returns; the entry point tests at its start whether the launch has failed already. A
//! kernel with barriers, uniform loads or subgroup operations gets neither: an invocation leaving early would leave the
//! others waiting, and so goes on to its end.
//!
//! The first invocation that fails claims a place of its own in the buffer's header, which no printed line can take:
//! code, invocation and values are written by one. The test at the entry point's start is one load for each
//! invocation; loops are not tested for the failures of *other* invocations, which would be a load for each turn. A
//! wrong pointer or a loop that was cut is reported before an assertion of the same launch, because wrong values are
//! why assertions fail.

mod fill;
mod leave;

use std::collections::{HashMap, HashSet};

use naga::proc::ResolveContext;
use naga::valid::Capabilities;
use naga::{
    ArraySize, Expression, Function, GlobalVariable, Handle, Module, ResourceBinding, Scalar,
    ScalarKind, Span, Statement, Type, TypeInner,
};

use super::blocks::each_statement;
use super::typified;
use crate::kernel::print::{FUNCTION, TextSite};
use crate::kernel::server::is_own;
use crate::print::format::Piece;
use crate::print::record::{MAX_VALUES, SiteKind};
use crate::print::value::{ScalarType, ValueType};

use fill::{Filler, ValuesType};
pub(crate) use leave::begin;
use leave::{has_barrier, leave_early, reach};

const BUFFER: &str = "tombolo_print";
const INVOCATION: &str = "tombolo_print_invocation";

/// The fault of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub site: usize,
    pub argument: Option<usize>,
    /// The placeholder that does not take the argument, in the user's text.
    pub placeholder: Option<std::ops::Range<usize>>,
    pub message: String,
}

/// The findings of the pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PrintFacts {
    /// Per site: the types of its arguments, if reached by the entry point.
    pub arguments: Vec<Option<Vec<ValueType>>>,
    /// Invocations may return before the end of the kernel.
    pub may_leave: bool,
}

/// The variables and functions of shaders/print.wgsl.
struct Runtime {
    buffer: Handle<GlobalVariable>,
    invocation: Handle<GlobalVariable>,
    failed: Handle<GlobalVariable>,
    reserve: Handle<Function>,
    mix: Handle<Function>,
    claim: Handle<Function>,
}

impl Runtime {
    fn find(module: &Module) -> Option<Self> {
        let global = |name: &str| {
            let mut all = module.global_variables.iter();
            all.find(|(_, v)| v.name.as_deref() == Some(name))
                .map(|(handle, _)| handle)
        };
        let function = |name: &str| {
            let mut all = module.functions.iter();
            all.find(|(_, f)| f.name.as_deref() == Some(name))
                .map(|(handle, _)| handle)
        };
        Some(Self {
            buffer: global(BUFFER)?,
            invocation: global(INVOCATION)?,
            failed: global("tombolo_print_failed")?,
            reserve: function("tombolo_print_reserve")?,
            mix: function("tombolo_print_mix")?,
            claim: function("tombolo_print_claim")?,
        })
    }
}

/// A parameter of a site's function: the type in the module, and as a printable value.
type Parameter = (Handle<Type>, ValueType);

/// Gives the functions of `sites` their bodies, and binds the buffer to `binding`. Returns the sites reached by entry
/// point `entry`; nothing without any. [`begin`] has to follow. `nesting` is how deep the device lets control flow be:
/// invocations leave early where that leaves room for the program's own.
pub(crate) fn run(
    module: &mut Module,
    entry: Option<usize>,
    sites: &[TextSite],
    binding: ResourceBinding,
    capabilities: Capabilities,
    nesting: Option<u32>,
) -> Result<Option<PrintFacts>, Fault> {
    let Some(runtime) = Runtime::find(module) else {
        return Ok(None);
    };
    module.global_variables.get_mut(runtime.buffer).binding = Some(binding);
    let stubs: HashMap<Handle<Function>, usize> = module
        .functions
        .iter()
        .filter_map(|(handle, function)| {
            let number = function.name.as_deref()?.strip_prefix(FUNCTION)?;
            Some((handle, number.parse().ok()?))
        })
        .filter(|(_, site)| *site < sites.len())
        .collect();

    let mut types: Vec<Option<Vec<Parameter>>> = vec![None; sites.len()];
    let handles = module.functions.iter().map(|(handle, _)| Some(handle));
    let points = (0..module.entry_points.len()).map(|_| None);
    let handles: Vec<_> = handles.chain(points).collect();
    for (index, handle) in handles.iter().enumerate() {
        let function = match handle {
            Some(handle) => &module.functions[*handle],
            None => {
                let point = index - module.functions.len();
                &module.entry_points[point].function
            }
        };
        for (site, arguments) in typed_calls(module, function, &stubs) {
            let known = value_types(sites, site, &arguments, capabilities)?;
            // A type may be missing in the module if only an expression has the type.
            let given = arguments.into_iter().map(|inner| {
                let ty = Type { name: None, inner };
                module.types.insert(ty, Span::UNDEFINED)
            });
            types[site] = Some(given.zip(known).collect());
        }
    }
    for (&handle, &site) in &stubs {
        let (Some(arguments), Some(text)) = (&types[site], sites.get(site)) else {
            continue;
        };
        let filler = Filler::new(&runtime, arguments);
        let body = match (text.kind, values_type(module, handle)) {
            (SiteKind::Values, Some(types)) => filler.values(types),
            // The program's own structure of that name; the call is refused for its size.
            (SiteKind::Values, None) => continue,
            (kind, _) => filler.fill(kind, site as u32 + 1),
        };
        let name = module.functions[handle].name.take();
        *module.functions.get_mut(handle) = Function { name, ..body };
    }

    let Some(point) = entry.and_then(|entry| module.entry_points.get(entry)) else {
        return Ok(None);
    };
    let reached = reach(module, &point.function);
    let reached_sites: HashSet<usize> = (stubs.iter())
        .filter(|(handle, _)| reached.contains(handle))
        .map(|(_, site)| *site)
        .collect();
    let is_reached = |site: usize| reached_sites.contains(&site);
    let arguments: Vec<_> = (types.into_iter().enumerate())
        .map(|(site, types)| {
            let leaves_records = sites[site].kind != SiteKind::Values;
            let types = types.filter(|_| is_reached(site) && leaves_records)?;
            Some(types.into_iter().map(|(_, ty)| ty).collect())
        })
        .collect();
    if arguments.iter().all(Option::is_none) {
        return Ok(None);
    }
    let fails = |site: usize| is_reached(site) && sites[site].kind.fails();
    let may_leave = (0..sites.len()).any(fails)
        && !has_barrier(&point.function.body)
        && !reached.iter().any(|handle| {
            let function = &module.functions[*handle];
            // Fences of servers are one invocation's own.
            !is_own(function.name.as_deref()) && has_barrier(&function.body)
        });
    if may_leave {
        let room = nesting.map_or(usize::MAX, |nesting| nesting as usize / 2);
        leave_early(module, &runtime, &stubs, sites, room);
    }
    Ok(Some(PrintFacts {
        arguments,
        may_leave,
    }))
}

/// The calls of sites in a function, with the types of their arguments.
fn typed_calls(
    module: &Module,
    function: &Function,
    stubs: &HashMap<Handle<Function>, usize>,
) -> Vec<(usize, Vec<TypeInner>)> {
    let mut calls = Vec::new();
    each_statement(&function.body, &mut |statement| {
        if let Statement::Call {
            function,
            arguments,
            ..
        } = statement
            && let Some(&site) = stubs.get(function)
        {
            calls.push((site, arguments.clone()));
        }
    });
    if calls.is_empty() {
        return Vec::new();
    }
    let context =
        ResolveContext::with_locals(module, &function.local_variables, &function.arguments);
    let Ok(typifier) = typified(function, &context) else {
        // The validator has a better message.
        return Vec::new();
    };
    let typed = |argument: Handle<Expression>| typifier[argument].inner_with(&module.types).clone();
    let typed = |arguments: Vec<_>| arguments.into_iter().map(typed).collect();
    calls
        .into_iter()
        .map(|(site, arguments)| (site, typed(arguments)))
        .collect()
}

/// The types of a call's arguments as values that can be printed.
fn value_types(
    sites: &[TextSite],
    site: usize,
    given: &[TypeInner],
    capabilities: Capabilities,
) -> Result<Vec<ValueType>, Fault> {
    let fault = |argument, placeholder, message: String| Fault {
        site,
        argument,
        placeholder,
        message,
    };
    let mut types = Vec::with_capacity(given.len());
    for (index, inner) in given.iter().enumerate() {
        let ty = value_type(inner).map_err(|message| fault(Some(index), None, message))?;
        // Without f64 at all the validator says so.
        let has_half = capabilities.contains(Capabilities::FLOAT64)
            && !capabilities.contains(Capabilities::SHADER_INT64);
        if ty.scalar == ScalarType::F64 && has_half {
            let message = "an f64 can only be printed where the device has 64-bit integers: print \
                           `f32(x)`";
            return Err(fault(Some(index), None, message.into()));
        }
        types.push(ty);
    }
    for piece in &sites[site].template.pieces {
        let Piece::Value {
            argument,
            spec,
            place,
        } = piece
        else {
            continue;
        };
        if let Some(refusal) = types.get(*argument).and_then(|ty| ty.refusal(spec.kind)) {
            return Err(fault(Some(*argument), Some(place.clone()), refusal));
        }
    }
    let mut words: usize = types.iter().map(|ty| ty.words()).sum();
    let mut what = "a record takes";
    if sites[site].kind == SiteKind::Values {
        words += types.len();
        what = "with a word for the type of each; a call takes";
    }
    if words > MAX_VALUES {
        let message = format!(
            "the arguments have {words} words of 32 bits, and {what} {MAX_VALUES}: print in \
             several lines"
        );
        return Err(fault(None, None, message));
    }
    Ok(types)
}

/// The type `PrintValues` that a function returns, and that of the words in the structure.
fn values_type(module: &Module, function: Handle<Function>) -> Option<ValuesType> {
    let structure = module.functions[function].result.as_ref()?.ty;
    let TypeInner::Struct { members, .. } = &module.types[structure].inner else {
        return None;
    };
    let words = members.first().filter(|_| members.len() == 1)?.ty;
    let is_word = |base: Handle<Type>| module.types[base].inner == TypeInner::Scalar(Scalar::U32);
    match module.types[words].inner {
        TypeInner::Array {
            base,
            size: ArraySize::Constant(count),
            ..
        } if count.get() as usize == MAX_VALUES && is_word(base) => {
            Some(ValuesType { structure, words })
        }
        _ => None,
    }
}

fn value_type(inner: &TypeInner) -> Result<ValueType, String> {
    let (scalar, rows, columns) = match *inner {
        TypeInner::Scalar(scalar) => (scalar, 1, 1),
        TypeInner::Vector { size, scalar } => (scalar, size as u32, 1),
        TypeInner::Matrix {
            columns,
            rows,
            scalar,
        } => (scalar, rows as u32, columns as u32),
        TypeInner::Atomic(_) => return Err("print `atomicLoad(&x)` of an atomic".into()),
        TypeInner::Struct { .. } => {
            return Err("structures cannot be printed: print their members".into());
        }
        TypeInner::Array { .. } => {
            return Err("arrays cannot be printed: print their elements".into());
        }
        TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. } => {
            return Err("a reference cannot be printed: print what it refers to, as `*p`".into());
        }
        _ => return Err("a value of this type cannot be printed".into()),
    };
    let scalar = match (scalar.kind, scalar.width) {
        (ScalarKind::Bool, _) => ScalarType::Bool,
        (ScalarKind::Sint, 2) => ScalarType::I16,
        (ScalarKind::Sint, 4) => ScalarType::I32,
        (ScalarKind::Sint, 8) => ScalarType::I64,
        (ScalarKind::Uint, 2) => ScalarType::U16,
        (ScalarKind::Uint, 4) => ScalarType::U32,
        (ScalarKind::Uint, 8) => ScalarType::U64,
        (ScalarKind::Float, 2) => ScalarType::F16,
        (ScalarKind::Float, 4) => ScalarType::F32,
        (ScalarKind::Float, 8) => ScalarType::F64,
        _ => return Err("a value of this type cannot be printed".into()),
    };
    Ok(ValueType {
        scalar,
        rows,
        columns,
    })
}

#[cfg(test)]
mod tests;
