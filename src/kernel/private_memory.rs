//! The memory of private arrays: lengths before the text is parsed (naga would refuse a bad length with fewer words),
//! bytes and alignments after.

mod errors;

use std::collections::HashMap;

use naga::proc::Layouter;
use naga::{AddressSpace, Handle, Module, Span, Type, TypeInner};

use super::declarations::DeclarationKind;
use super::diagnostic::Reporter;
use super::error::KernelError;
use super::evaluate::{Unevaluated, Wanted, expressions, parse};
use super::passes::spill;
use super::private_array::PrivateArrayInfo;
use super::program::Inner;
use super::values::Values;
use super::walk::{AlignAttribute, ArrayUse, Variable};
use crate::device::spill_policy::SpillPolicy;
pub(crate) use errors::scratch_too_large;
use errors::within;

/// Alignments must be below this: 2^31 / 8, the bound of `aligned_private_alloca`.
const ALIGNMENT_BOUND: i128 = i32::MAX as i128 / 8;

/// Elements of an array that is not worth another parse.
const SHORT: i128 = 1024;

/// The name of a variable whose type is an array of the type asked for.
const ELEMENT: &str = "tombolo_element_";

/// The largest type that naga takes, in bytes.
const TYPE_BOUND: u64 = i32::MAX as u64;

/// The sizes of one specialization.
pub(crate) struct Sizes<'a> {
    pub inner: &'a Inner,
    pub kept: &'a [bool],
    pub values: &'a Values,
    pub reporter: Reporter<'a>,
    /// Bytes of private arrays that may stay private.
    pub limit: u64,
    pub spill: SpillPolicy,
}

impl Sizes<'_> {
    fn is_kept(&self, declaration: usize) -> bool {
        self.kept.get(declaration) == Some(&true)
    }

    /// Checks every array of run-time length that the entry point can reach.
    pub fn check_lengths(&self) -> Result<(), KernelError> {
        let arrays = self.inner.analysis.arrays.iter();
        let arrays: Vec<&ArrayUse> = arrays.filter(|a| self.is_kept(a.declaration)).collect();
        let mut long = Vec::new();
        for (array, length) in arrays.iter().zip(self.lengths(&arrays)) {
            let length = match length {
                None => continue,
                Some(Ok(value)) => value.as_integer(),
                Some(Err(Unevaluated::Missing)) => continue,
                Some(Err(Unevaluated::Failed(why))) => {
                    return Err(self.bad_length(array, None, Some(why)));
                }
            };
            match length {
                Some(length) if length < 1 => {
                    return Err(self.bad_length(array, Some(length), None));
                }
                // The layout costs another parse. A short array with a type still too large for naga has a huge element
                // type; that keeps naga's own message.
                Some(length) if length > SHORT => long.push((*array, length)),
                Some(_) => {}
                // A length that is no integer: naga says so.
                None => {}
            }
        }
        for ((array, length), stride) in long.iter().zip(self.strides(&long)) {
            if let Some(stride) = stride {
                self.check_extent(array, *length, stride)?;
            }
        }
        Ok(())
    }

    /// The array's owner, by name.
    fn owner(&self, array: &ArrayUse) -> &str {
        let source = &self.inner.source;
        source.get(array.owner.clone()).unwrap_or_default()
    }

    /// The lengths of `arrays`; none for an array mentioning values that only naga can evaluate.
    fn lengths(
        &self,
        arrays: &[&ArrayUse],
    ) -> Vec<Option<Result<super::constants::ConstantValue, Unevaluated>>> {
        let inner = self.inner;
        let mut found = vec![None; arrays.len()];
        let (mut wanted, mut of) = (Vec::new(), Vec::new());
        for (index, array) in arrays.iter().enumerate() {
            let bare = array.bare.as_ref();
            if let Some(value) = bare.and_then(|(target, _)| self.values.sizing(*target)) {
                found[index] = Some(Ok(value));
            } else if let (false, Some(text)) =
                (array.local, inner.source.get(array.length.clone()))
            {
                let mentions = array.mentions.as_slice();
                wanted.push(Wanted { text, mentions });
                of.push(index);
            }
        }
        let values = &self.values.pipeline;
        let evaluated = expressions(&inner.source, &inner.analysis, &wanted, values);
        for (index, value) in of.into_iter().zip(evaluated) {
            found[index] = value;
        }
        found
    }

    /// Refuses an array too long for parsing its type.
    fn check_extent(&self, array: &ArrayUse, length: i128, stride: u64) -> Result<(), KernelError> {
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        let bytes = length.saturating_mul(stride);
        let kind = self.inner.analysis.get(array.declaration).map(|d| d.kind);
        let private = matches!(
            kind,
            Some(DeclarationKind::Function | DeclarationKind::Private)
        );
        let limit = if private && self.spill == SpillPolicy::Never {
            self.limit.min(TYPE_BOUND)
        } else {
            TYPE_BOUND
        };
        if bytes <= limit {
            return Ok(());
        }
        let place = vec![(
            array.length.clone(),
            format!("{length} elements of {stride} bytes"),
        )];
        Err(self.too_large(
            self.owner(array),
            self.inner.analysis.function(array.declaration),
            bytes,
            bytes,
            limit,
            place,
        ))
    }

    /// Bytes from element to element, for each array: found by parsing the element types together with the types they
    /// mention. None where that cannot be parsed.
    fn strides(&self, arrays: &[(&ArrayUse, i128)]) -> Vec<Option<u64>> {
        if arrays.is_empty() {
            return Vec::new();
        }
        let inner = self.inner;
        let is_type = |i: usize| {
            self.is_kept(i)
                && inner.analysis.get(i).is_some_and(|d| {
                    !matches!(
                        d.kind,
                        DeclarationKind::Function
                            | DeclarationKind::Private
                            | DeclarationKind::Workgroup
                            | DeclarationKind::Resource
                            | DeclarationKind::Assertion
                    )
                })
        };
        let mut text = inner
            .assemble(is_type, |i| self.values.sizing(i))
            .text()
            .to_string();
        for (index, (array, _)) in arrays.iter().enumerate() {
            let element = inner.source.get(array.element.clone()).unwrap_or_default();
            text += &format!("\nvar<private> {ELEMENT}{index}: array<{element}, 1>;");
        }
        let Ok(module) = parse(&text) else {
            return vec![None; arrays.len()];
        };
        let mut strides = vec![None; arrays.len()];
        for (_, variable) in module.global_variables.iter() {
            let name = variable.name.as_deref().unwrap_or_default();
            let index = name.strip_prefix(ELEMENT).and_then(|n| n.parse().ok());
            if let Some(slot) = index.and_then(|index: usize| strides.get_mut(index))
                && let TypeInner::Array { stride, .. } = module.types[variable.ty].inner
            {
                *slot = Some(stride.into());
            }
        }
        strides
    }

    /// Bytes and alignments of the variables whose size was chosen at run time, checked against the limit.
    pub fn measure(
        &self,
        module: &Module,
        entry: usize,
        threshold: Option<u32>,
    ) -> Result<Vec<PrivateArrayInfo>, KernelError> {
        let analysis = &self.inner.analysis;
        let mut layouter = Layouter::default();
        if analysis.variables.is_empty() || layouter.update(module.to_ctx()).is_err() {
            return Ok(Vec::new());
        }
        let alignments = self.alignments();
        let mut arrays = Vec::new();
        let functions = module.functions.iter().map(|(_, f)| f);
        let functions = functions.chain(module.entry_points.get(entry).map(|e| &e.function));
        for (local, span) in functions.flat_map(|f| {
            f.local_variables
                .iter()
                .map(|(handle, local)| (local, f.local_variables.get_span(handle)))
        }) {
            let found = local
                .name
                .as_deref()
                .and_then(|name| self.variable(name, span));
            if let Some(variable) = found {
                arrays.extend(self.info(module, &layouter, &alignments, variable, local.ty)?);
            }
        }
        for (handle, global) in module.global_variables.iter() {
            let span = module.global_variables.get_span(handle);
            let found = global
                .name
                .as_deref()
                .filter(|_| global.space == AddressSpace::Private);
            if let Some(variable) = found.and_then(|name| self.variable(name, span)) {
                arrays.extend(self.info(module, &layouter, &alignments, variable, global.ty)?);
            }
        }
        arrays.sort_by_key(|(info, variable)| (variable.name_span.start, info.bytes));
        for (info, _) in &mut arrays {
            info.spilled = threshold.is_some_and(|least| info.bytes >= u64::from(least));
        }
        // Arrays that the text fixes count, too, though they alone are the driver's to refuse, as in plain wgpu.
        let total = match self.spill {
            SpillPolicy::Never if !arrays.is_empty() => spill::private_bytes(module, entry),
            _ => 0,
        };
        let largest = arrays.iter().map(|(info, _)| info.bytes).max();
        let total = total.max(
            largest
                .filter(|_| self.spill == SpillPolicy::Never)
                .unwrap_or(0),
        );
        if total > self.limit
            && let Some((info, variable)) = arrays.iter().max_by_key(|(info, _)| info.bytes)
        {
            let place = vec![(variable.name_span.clone(), format!("{} bytes", info.bytes))];
            return Err(self.too_large(
                &info.name,
                info.function.clone(),
                info.bytes,
                total,
                self.limit,
                place,
            ));
        }
        Ok(arrays.into_iter().map(|(info, _)| info).collect())
    }

    /// The variable of the text that naga calls `name` and places at `span`.
    fn variable(&self, name: &str, span: Span) -> Option<&Variable> {
        let range = self.reporter.back(span)?;
        // Variables are listed in the order of the text.
        let variables = &self.inner.analysis.variables;
        let first = variables.partition_point(|v| v.name_span.start < range.start);
        let within = variables.iter().skip(first);
        let mut within = within.take_while(|v| v.name_span.start < range.end);
        within.find(|v| v.name == name)
    }

    /// The alignments asked for, by where the variable's name begins.
    fn alignments(&self) -> HashMap<usize, i128> {
        let inner = self.inner;
        let aligned: Vec<_> = inner.analysis.aligned().collect();
        let wanted = aligned.iter().map(|(_, align)| Wanted {
            text: inner
                .source
                .get(align.expression.clone())
                .unwrap_or_default(),
            mentions: &align.mentions,
        });
        let wanted: Vec<_> = wanted.collect();
        let values = &self.values.pipeline;
        let found = expressions(&inner.source, &inner.analysis, &wanted, values);
        (aligned.iter().zip(found))
            .filter_map(|((variable, _), value)| {
                Some((variable.name_span.start, value?.ok()?.as_integer()?))
            })
            .collect()
    }

    fn info<'v>(
        &self,
        module: &Module,
        layouter: &Layouter,
        alignments: &HashMap<usize, i128>,
        variable: &'v Variable,
        ty: Handle<Type>,
    ) -> Result<Option<(PrivateArrayInfo, &'v Variable)>, KernelError> {
        let function = self.inner.analysis.function(variable.declaration);
        let (length, element) = match module.types[ty].inner {
            TypeInner::Array {
                size: naga::ArraySize::Constant(length),
                base,
                ..
            } => (length.get(), Some(base)),
            TypeInner::Struct { .. } => (1, None),
            // Found by the mentions of its initializer, but a value taken out of such an array.
            _ if variable.align.is_none() => return Ok(None),
            _ => (1, None),
        };
        // An `Alignment` gives its number by multiplication only.
        let mut layout = (layouter[ty].alignment * 1u32, u64::from(layouter[ty].size));
        if let Some(align) = &variable.align {
            let element = element.map_or(0, |base| layouter[base].alignment * 1u32);
            let wanted = alignments.get(&variable.name_span.start).copied();
            let align = self.alignment(variable, align, wanted, element)?;
            layout = (align, layout.1.next_multiple_of(u64::from(align)));
        }
        let info = PrivateArrayInfo {
            name: variable.name.clone(),
            function,
            length,
            bytes: layout.1,
            align: layout.0,
            line: self.inner.files.line(variable.name_span.start),
            spilled: false,
        };
        Ok(Some((info, variable)))
    }

    /// The alignment of `attribute`, checked: a positive multiple of the element type's.
    fn alignment(
        &self,
        variable: &Variable,
        attribute: &AlignAttribute,
        align: Option<i128>,
        element: u32,
    ) -> Result<u32, KernelError> {
        let inner = self.inner;
        let text = inner.source.get(attribute.expression.clone()).unwrap_or("");
        let refuse = |problem: String| {
            let message = format!(
                "the alignment of the array `{}`{} {problem}",
                variable.name,
                within(&inner.analysis.function(variable.declaration))
            );
            let note = format!(
                "an alignment is a positive multiple of the element type's ({element}), below {ALIGNMENT_BOUND}"
            );
            let notes = if element == 0 { Vec::new() } else { vec![note] };
            let label = vec![(attribute.expression.clone(), String::new())];
            let diagnostic = self.reporter.at(message, label, notes);
            Err(KernelError::PrivateAlignment {
                array: variable.name.clone(),
                align,
                element,
                diagnostic,
            })
        };
        match align {
            _ if element == 0 => refuse("cannot be chosen: the variable is no array".to_owned()),
            None => refuse(format!("is no integer constant: `{text}`")),
            Some(align) if align < 1 => refuse(format!("is {align}, which is not positive")),
            Some(align) if align >= ALIGNMENT_BOUND => {
                refuse(format!("is {align}, which is too large"))
            }
            Some(align) if align % i128::from(element) != 0 => {
                refuse(format!("is {align}, which is no multiple of {element}"))
            }
            Some(align) => Ok(u32::try_from(align).unwrap_or(1)),
        }
    }
}
