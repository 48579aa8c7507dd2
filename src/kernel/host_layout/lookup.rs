//! The WGSL side: finds a structure in a program by name, and has naga lay the structure out.

use std::collections::HashMap;
use std::sync::Arc;

use naga::TypeInner;
use naga::back::PipelineConstants;

use super::compare::compare;
use super::{LayoutDifference, LayoutMismatch, RustLayout};
use crate::kernel::constants::{ConstantValue, Constants};
use crate::kernel::declarations::{Declaration, DeclarationKind};
use crate::kernel::deep_stack::on_deep_stack;
use crate::kernel::diagnostic::Reporter;
use crate::kernel::edit::EditedText;
use crate::kernel::error::KernelError;
use crate::kernel::evaluate::{Unevaluated, parse};
use crate::kernel::layout::{Shape, TypeLayout};
use crate::kernel::program::{Inner, Program};
use crate::kernel::text_limits::check_types;

/// The function appended to have naga resolve the type.
const RESOLVER: &str = "tombolo_layout_of";

impl Program {
    /// How the structure `name` lies in memory; also for structures that are only used behind pointers, or not at all,
    /// and for aliases of structures. `None` if the program has no declaration of that name, or if the size depends on
    /// a constant without a default. Constants have their defaults.
    pub fn struct_layout(&self, name: &str) -> Option<TypeLayout> {
        self.inner.struct_layout(name, &Constants::new()).ok()
    }

    /// Compares the structure `wgsl` of the program with its declaration in Rust: every field must have a member of its
    /// name, at the same offset and of the same size, and both structures must have the same size, the stride of
    /// arrays. The other way round, every member must have a field, names that begin with `_` apart.
    ///
    /// The comparison is about the place of bytes, not their meaning: `u32` and `f32` are alike. Alignments need not
    /// be. A three-component vector may have the size of four components in Rust. A runtime-sized array may be any
    /// number of elements in Rust, or be left out where it follows directly behind the Rust structure.
    ///
    /// # Errors
    /// [`LayoutMismatch`]; [`LayoutMismatch::Differs`] lists every difference.
    pub fn check_layout(&self, wgsl: &str, rust: &RustLayout) -> Result<(), LayoutMismatch> {
        self.check_layout_with(wgsl, rust, &Constants::new())
    }

    /// The same for a program specialized with `constants`, which may decide the length of arrays.
    ///
    /// # Errors
    /// [`LayoutMismatch`]; [`LayoutMismatch::Unknown`] also for constants that the program does not take.
    pub fn check_layout_with(
        &self,
        wgsl: &str,
        rust: &RustLayout,
        constants: &Constants,
    ) -> Result<(), LayoutMismatch> {
        let layout = self.inner.struct_layout(wgsl, constants)?;
        let (faults, notes) = compare(rust, &layout);
        if faults.is_empty() {
            return Ok(());
        }
        Err(LayoutMismatch::Differs(Box::new(LayoutDifference {
            program: self.name().to_owned(),
            rust: *rust,
            wgsl: layout,
            faults,
            notes,
        })))
    }
}

impl Inner {
    fn struct_layout(
        &self,
        wanted: &str,
        constants: &Constants,
    ) -> Result<TypeLayout, LayoutMismatch> {
        let (program, wanted_name) = (self.name.clone(), wanted.to_owned());
        let declarations = &self.analysis.declarations;
        let is_type =
            |d: &&Declaration| matches!(d.kind, DeclarationKind::Struct | DeclarationKind::Alias);
        let found = declarations
            .iter()
            .position(|d| is_type(&d) && d.name == wanted);
        let Some(index) = found else {
            let available = declarations.iter().filter(is_type);
            return Err(LayoutMismatch::UnknownType {
                program,
                wanted: wanted_name,
                available: available.map(|d| d.name.clone()).collect(),
            });
        };
        match on_deep_stack(&self.name, || self.type_layout(index, wanted, constants)) {
            Ok(layout) if matches!(layout.shape, Shape::Struct { .. }) => Ok(layout),
            Ok(wgsl) => Err(LayoutMismatch::NotAStruct {
                program,
                wanted: wanted_name,
                wgsl,
            }),
            Err(error) => Err(LayoutMismatch::Unknown {
                program,
                wanted: wanted_name,
                source: Box::new(error),
            }),
        }
    }

    /// The layout of the type that declaration `index` is. Only the mentions of the type are parsed, so sizes without
    /// values here, and the faults of such sizes, do no harm.
    fn type_layout(
        &self,
        index: usize,
        name: &str,
        constants: &Constants,
    ) -> Result<TypeLayout, KernelError> {
        let analysis = &self.analysis;
        let is_replaced = |i: usize| {
            let kind = analysis.get(i).map(|d| d.kind);
            analysis.is_sizing(i) && kind == Some(DeclarationKind::Override)
        };
        let kept = analysis.reach([index], is_replaced);
        let is_kept = |i: usize| {
            let kind = analysis.get(i).map(|d| d.kind);
            kept.get(i) == Some(&true) || kind == Some(DeclarationKind::Directive)
        };
        let set = self.declared.check(&self.name, constants)?;
        let pipeline = self.pipeline_values(&set);
        let declared_at = |&(constant, value): &(usize, _)| {
            let declaration = self.declaration_of.get(constant)?;
            Some((*declaration, value))
        };
        let set: HashMap<usize, _> = set.iter().filter_map(declared_at).collect();
        let given = |i: usize| set.get(&i).copied();
        let evaluated = self.evaluator.values(&pipeline);
        let mut values = HashMap::new();
        for i in (0..kept.len()).filter(|&i| is_kept(i) && analysis.is_sizing(i)) {
            let declared = analysis.get(i).map_or("", |d| d.name.as_str());
            let value = match given(i) {
                Some(value) => Some(value),
                None => match evaluated.get(i) {
                    Ok(value) => Some(value),
                    // A constant stays in the text, where naga finds its value or the fault.
                    Err(_) if !is_replaced(i) => None,
                    Err(Unevaluated::Missing) => {
                        let used = analysis.reach([index], |i| given(i).is_some());
                        return Err(self.without_value(name, |i| {
                            used.get(i) == Some(&true) && given(i).is_none()
                        }));
                    }
                    Err(Unevaluated::Failed(why)) => return Err(self.failed(i, declared, &why)),
                },
            };
            values.extend(value.map(|value| (i, value)));
        }
        let value = |i: usize| values.get(&i).copied();
        let pointer = match analysis.declarations.iter().any(|d| d.name == "usm_ptr") {
            true => "",
            false => "alias usm_ptr = vec2<u32>;",
        };
        // A body is of no concern, because nothing is validated.
        let resolver =
            format!("\n{pointer} fn {RESOLVER}(at: ptr<storage, {name}, read_write>) {{}}\n");
        let origin = analysis.get(index).map_or(0..0, |d| d.name_span.clone());
        let text = self
            .assemble_own(is_kept, value)
            .append(&resolver, &[(0..resolver.len(), origin)]);
        let reporter = Reporter {
            files: &self.files,
            text: &text,
        };
        let module = parse(text.text()).map_err(|e| KernelError::Type(reporter.parse_error(&e)))?;
        check_types(&module).map_err(|excess| reporter.excess(excess))?;
        let argument = module
            .functions
            .iter()
            .find(|(_, f)| f.name.as_deref() == Some(RESOLVER))
            .and_then(|(_, f)| f.arguments.first());
        let inner = argument.and_then(|a| module.types.get_handle(a.ty).ok());
        match inner.map(|ty| &ty.inner) {
            Some(TypeInner::Pointer { base, .. }) => Ok(TypeLayout::of(&module, *base)),
            _ => Err(KernelError::Type(reporter.at(
                format!("`{name}` is no type that a pointer can point to"),
                self.place(index, "declared here"),
                Vec::new(),
            ))),
        }
    }

    /// The given values in naga's form: by id, or else by name.
    fn pipeline_values(&self, set: &[(usize, ConstantValue)]) -> PipelineConstants {
        let named = set.iter().filter_map(|(constant, value)| {
            let info = self.declared.infos().get(*constant)?;
            let key = info
                .id
                .map_or_else(|| info.name.clone(), |id| id.to_string());
            Some((key, value.as_f64()))
        });
        named.collect()
    }

    /// The type `wanted` needs values for the constants without default selected by `lacks`.
    fn without_value(&self, wanted: &str, lacks: impl Fn(usize) -> bool) -> KernelError {
        let infos = self.declared.infos();
        let missing = (infos.iter().zip(&self.declaration_of))
            .filter(|(info, declaration)| !info.has_initializer && lacks(**declaration));
        KernelError::MissingConstant {
            program: self.name.clone(),
            entry: wanted.to_owned(),
            missing: missing.map(|(info, _)| info.clone()).collect(),
            available: infos.to_vec(),
        }
    }

    fn failed(&self, index: usize, name: &str, why: &str) -> KernelError {
        let text = EditedText::unchanged(Arc::clone(&self.source));
        let reporter = Reporter {
            files: &self.files,
            text: &text,
        };
        let message = format!("the constant `{name}` has no value: {why}");
        let place = self.place(index, "cannot be evaluated");
        KernelError::Type(reporter.at(message, place, Vec::new()))
    }
}

#[cfg(test)]
mod tests;
