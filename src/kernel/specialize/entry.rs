//! What the analysed text says of an entry point: declarations that belong to the entry point, the globals that the
//! entry point uses, and places for errors.

use std::collections::HashMap;

use naga::back::PipelineConstants;
use naga::back::pipeline_constants::PipelineConstantError;
use naga::compact::{KeepUnused, compact};
use naga::{Module, ShaderStage};

use crate::kernel::declarations::DeclarationKind;
use crate::kernel::diagnostic::Reporter;
use crate::kernel::error::KernelError;
use crate::kernel::evaluate::reason;
use crate::kernel::globals::GlobalUse;
use crate::kernel::layout::TypeLayout;
use crate::kernel::passes::globals;
use crate::kernel::program::Inner;

/// Names of the overrides used by `entry` and without a value: the ones wgpu would miss, in turn.
pub(super) fn missing_names(
    module: &Module,
    entry: &str,
    values: &PipelineConstants,
) -> Vec<String> {
    let mut module = module.clone();
    module
        .entry_points
        .retain(|e| e.stage == ShaderStage::Compute && e.name == entry);
    compact(&mut module, KeepUnused::No);
    let missing = module.overrides.iter().filter(|(_, o)| {
        let key = o.id.map(|id| id.to_string()).or_else(|| o.name.clone());
        o.init.is_none() && key.is_none_or(|key| !values.contains_key(&key))
    });
    missing.filter_map(|(_, o)| o.name.clone()).collect()
}

impl Inner {
    /// The device globals that an entry point uses.
    pub(super) fn global_uses(&self, module: &Module, entry: usize) -> Vec<GlobalUse> {
        let used = globals::used(module, entry);
        let declarations = self.analysis.declarations.iter();
        let declared: HashMap<&str, usize> = declarations
            .map(|d| (d.name.as_str(), d.name_span.start))
            .collect();
        let uses = used.iter().map(|&handle| {
            let variable = &module.global_variables[handle];
            let name = variable.name.clone().unwrap_or_default();
            let place = declared.get(name.as_str());
            let place = place.map(|&place| {
                let (file, at) = self.files.find(place);
                (file.name.clone(), file.line(at))
            });
            GlobalUse {
                name,
                writable: matches!(
                    variable.space,
                    naga::AddressSpace::Storage { access } if access.contains(naga::StorageAccess::STORE)
                ),
                layout: TypeLayout::of(module, variable.ty),
                canonical: globals::canonical(module, variable.ty),
                number: variable.binding.map_or(0, |binding| binding.binding),
                place,
            }
        });
        uses.collect()
    }

    pub(in crate::kernel) fn place(
        &self,
        declaration: usize,
        text: &str,
    ) -> Vec<(std::ops::Range<usize>, String)> {
        self.analysis
            .get(declaration)
            .map(|d| (d.name_span.clone(), text.to_owned()))
            .into_iter()
            .collect()
    }

    /// The declarations of the entry point's text: everything mentioned, except by initializers of overrides replaced
    /// by values. Assertions stay, except with mentions of a size left out.
    pub(super) fn kept(&self, entry: usize) -> Vec<bool> {
        let analysis = &self.analysis;
        let is_replaced = |i: usize| {
            analysis.is_sizing(i)
                && analysis
                    .get(i)
                    .is_some_and(|d| d.kind == DeclarationKind::Override)
        };
        let others = analysis
            .declarations
            .iter()
            .enumerate()
            .filter(|(_, d)| d.kind == DeclarationKind::Assertion);
        let mut kept = analysis.reach([entry], is_replaced);
        if self.pointers.is_some() || self.calls.is_some() {
            // Mentions in the appendix are not in the analysed text.
            let types = analysis.declarations.iter().enumerate().filter(|(_, d)| {
                matches!(d.kind, DeclarationKind::Struct | DeclarationKind::Alias)
            });
            let types = analysis.reach(types.map(|(i, _)| i), is_replaced);
            kept.iter_mut()
                .zip(types)
                .for_each(|(mark, more)| *mark |= more);
        }
        // Declarations mentioning a size left out. Mentions only by the initializers of sizes do not count.
        let left_out = |i: usize| is_replaced(i) && kept.get(i) != Some(&true);
        let lacks = analysis.leads_to(left_out, is_replaced);
        let whole = others
            .map(|(i, _)| i)
            .filter(|&i| lacks.get(i) != Some(&true));
        let mentioned = analysis.reach(whole.collect::<Vec<_>>(), is_replaced);
        kept.iter_mut()
            .zip(&mentioned)
            .for_each(|(mark, more)| *mark |= more);
        for (mark, declaration) in kept.iter_mut().zip(&analysis.declarations) {
            *mark |= declaration.kind == DeclarationKind::Directive;
        }
        kept
    }

    pub(super) fn pipeline_error(
        &self,
        reporter: Reporter<'_>,
        entry: usize,
        error: &PipelineConstantError,
    ) -> KernelError {
        if let PipelineConstantError::ValidationError(error) = error {
            return KernelError::Validation(reporter.validation_error(error));
        }
        let place = self.place(
            entry,
            "in this entry point, with the constants it was given",
        );
        KernelError::Validation(reporter.at(reason(error), place, Vec::new()))
    }
}
