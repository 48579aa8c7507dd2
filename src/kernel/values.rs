//! Values of a program's constants during a specialization: set values, derived sizes of arrays, and missing values.

use std::collections::HashSet;
use std::sync::Arc;

use naga::back::PipelineConstants;

use super::constants::{ConstantInfo, ConstantValue, Constants};
use super::diagnostic::Reporter;
use super::edit::EditedText;
use super::error::KernelError;
use super::evaluate::Unevaluated;
use super::program::Inner;

/// Values of a program's constants during one specialization.
pub(crate) struct Values {
    /// Per declaration: the value that was set.
    set: Vec<Option<ConstantValue>>,
    /// The same as naga takes them, by id or name.
    pub pipeline: PipelineConstants,
    /// Per used declaration that sizes arrays: the value.
    sizing: Vec<Option<ConstantValue>>,
}

impl Values {
    /// The replacement of declaration `index` in the text, if an array's size.
    pub fn sizing(&self, index: usize) -> Option<ConstantValue> {
        self.sizing.get(index).copied().flatten()
    }

    fn is_set(&self, index: usize) -> bool {
        self.set.get(index).is_some_and(Option::is_some)
    }
}

impl Inner {
    pub(super) fn constant(&self, declaration: usize) -> Option<&ConstantInfo> {
        // Constants are listed in the order of their declarations.
        let at = self.declaration_of.binary_search(&declaration).ok()?;
        self.declared.infos().get(at)
    }

    pub(super) fn set_values(&self, constants: &Constants) -> Result<Values, KernelError> {
        let none = vec![None; self.analysis.declarations.len()];
        let mut values = Values {
            set: none.clone(),
            pipeline: PipelineConstants::default(),
            sizing: none,
        };
        for (constant, value) in self.declared.check(&self.name, constants)? {
            if let Some(&declaration) = self.declaration_of.get(constant) {
                self.set(&mut values, declaration, value);
            }
        }
        Ok(values)
    }

    fn set(&self, values: &mut Values, declaration: usize, value: ConstantValue) {
        let Some(info) = self.constant(declaration) else {
            return;
        };
        let key = info
            .id
            .map_or_else(|| info.name.clone(), |id| id.to_string());
        values.pipeline.insert(key, value.as_f64());
        if let Some(slot) = values.set.get_mut(declaration) {
            *slot = Some(value);
        }
    }

    /// Gives the work-group size a value, if left to the runtime.
    pub(super) fn choose_workgroup(&self, entry: usize, size: Option<u32>, values: &mut Values) {
        let linear = self
            .analysis
            .get(entry)
            .and_then(|d| d.entry.as_ref())
            .and_then(|e| e.linear_size);
        let Some((linear, size)) = linear.zip(size) else {
            return;
        };
        if let Some(info) = self.constant(linear)
            && !info.has_initializer
            && !values.is_set(linear)
            && let Ok(value) = info.convert(ConstantValue::Integer(size.into()))
        {
            self.set(values, linear, value);
        }
    }

    /// Computes the constants sizing arrays and used by the entry point.
    pub(super) fn size_values(
        &self,
        name: &str,
        entry: usize,
        values: &mut Values,
    ) -> Result<(), KernelError> {
        let analysis = &self.analysis;
        let aligns = analysis
            .aligned()
            .flat_map(|(v, align)| align.mentions.iter().map(move |&m| (v.declaration, m)));
        let aligns = aligns.collect::<Vec<_>>();
        let stop = |i: usize| analysis.is_sizing(i) && values.is_set(i);
        let mut used = analysis.reach([entry], stop);
        let aligned = aligns
            .iter()
            .filter(|(declaration, _)| used.get(*declaration) == Some(&true))
            .map(|a| a.1);
        let wanted_by_aligns = aligned.collect::<Vec<_>>();
        for (mark, more) in used
            .iter_mut()
            .zip(analysis.reach(wanted_by_aligns.iter().copied(), stop))
        {
            *mark |= more;
        }
        let lacking = |i: usize| {
            used.get(i) == Some(&true)
                && !values.is_set(i)
                && self.constant(i).is_some_and(|c| !c.has_initializer)
        };
        let missing = self
            .declaration_of
            .iter()
            .copied()
            .filter(|&i| lacking(i))
            .collect::<Vec<_>>();
        if missing
            .iter()
            .any(|&i| analysis.is_sizing(i) || wanted_by_aligns.contains(&i))
        {
            let names = missing
                .iter()
                .filter_map(|&i| self.constant(i))
                .map(|c| c.name.clone());
            return Err(self.missing(name, &names.collect::<Vec<_>>()));
        }
        let evaluated = self.evaluator.values(&values.pipeline);
        for (index, declaration) in analysis.declarations.iter().enumerate() {
            if used.get(index) != Some(&true)
                || !analysis.is_sizing(index)
                || self.evaluator.ty(index).is_none()
            {
                continue;
            }
            let value = match values.set.get(index).copied().flatten() {
                Some(value) => value,
                None => evaluated.get(index).map_err(|e| {
                    let text = EditedText::unchanged(Arc::clone(&self.source));
                    let reporter = Reporter {
                        files: &self.files,
                        text: &text,
                    };
                    let why = match e {
                        Unevaluated::Missing => {
                            "a constant that it depends on has no value".to_owned()
                        }
                        Unevaluated::Failed(why) => why,
                    };
                    let message =
                        format!("the constant `{}` has no value: {why}", declaration.name);
                    let place = self.place(index, "cannot be evaluated");
                    KernelError::Type(reporter.at(message, place, Vec::new()))
                })?,
            };
            if let Some(slot) = values.sizing.get_mut(index) {
                *slot = Some(value);
            }
        }
        Ok(())
    }

    pub(super) fn missing(&self, entry: &str, names: &[String]) -> KernelError {
        let infos = self.declared.infos();
        let names: HashSet<&str> = names.iter().map(String::as_str).collect();
        KernelError::MissingConstant {
            program: self.name.clone(),
            entry: entry.to_owned(),
            missing: infos
                .iter()
                .filter(|c| names.contains(c.name.as_str()))
                .cloned()
                .collect(),
            available: infos.to_vec(),
        }
    }

    /// The constants that have a value, for reflection.
    pub(super) fn report(&self, values: &Values) -> Vec<(ConstantInfo, ConstantValue)> {
        let evaluated = self.evaluator.values(&values.pipeline);
        let known = |(info, &declaration): (&ConstantInfo, &usize)| {
            let set = values
                .set
                .get(declaration)
                .copied()
                .flatten()
                .or_else(|| values.sizing(declaration));
            let value = set.or_else(|| evaluated.get(declaration).ok())?;
            Some((info.clone(), value))
        };
        self.declared
            .infos()
            .iter()
            .zip(&self.declaration_of)
            .filter_map(known)
            .collect()
    }
}
