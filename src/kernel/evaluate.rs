//! Values of constants, computed by naga: from a small module with only the program's overrides, and the constants and
//! types mentioned there, each expression is evaluated once, and the results are read off.
//!
//! Constants dependent on an override are declared as overrides in that module: WGSL does not allow such constants, but
//! where the override becomes a constant itself, the meaning is clear.

use std::collections::HashMap;
use std::sync::Arc;

use naga::back::PipelineConstants;
use naga::back::pipeline_constants::PipelineConstantError;
use naga::front::wgsl::ParseError;
use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{Handle, Module, Override, TypeInner};

use super::constants::{ConstantType, ConstantValue};
use super::declarations::DeclarationKind;
use super::diagnostic::{Diagnostic, Reporter, causes};
use super::edit::{EditedText, Replacement, blank};
use super::files::Files;
use super::fold::fold;
use super::private_array::Analysis;

/// Names in the small module; a program accepted by naga along with the small module cannot contain these names by
/// accident.
const PROBE: &str = "tombolo_evaluation_probe_";
const RESULT: &str = "tombolo_evaluation_result";

/// The small module.
#[derive(Debug)]
pub(crate) struct Evaluator {
    module: Module,
    /// Declarations turned into overrides in the module, in their order.
    declared: Vec<Declared>,
}

#[derive(Debug)]
struct Declared {
    index: usize,
    ty: ConstantType,
    handle: Handle<Override>,
}

/// Why there is no value.
#[derive(Clone, Debug)]
pub(crate) enum Unevaluated {
    /// Another constant, of this name, has no value.
    Missing,
    /// The expression has none: overflow, division by zero and the like. In naga's words.
    Failed(String),
}

/// Values, or why there is none, by declaration.
pub(crate) struct Evaluated(HashMap<usize, Result<ConstantValue, Unevaluated>>);

impl Evaluated {
    /// The value of declaration `index`.
    pub fn get(&self, index: usize) -> Result<ConstantValue, Unevaluated> {
        let found = self.0.get(&index).cloned();
        found.unwrap_or(Err(Unevaluated::Missing))
    }
}

/// The validator of every stage: with the features named by `capabilities`.
pub(crate) fn validator(capabilities: Capabilities) -> Validator {
    Validator::new(ValidationFlags::all(), capabilities)
}

/// Parses a text as naga does by default.
pub(crate) fn parse(text: &str) -> Result<Module, ParseError> {
    super::work::count(text.len());
    naga::front::wgsl::parse_str(text)
}

/// The small text: the declarations selected by `keep`, with `tail` behind.
fn small_text(source: &Arc<str>, analysis: &Analysis, keep: &[bool], tail: &str) -> EditedText {
    let mut edits = Vec::new();
    for (index, declaration) in analysis.declarations.iter().enumerate() {
        let wanted = keep.get(index) == Some(&true)
            && matches!(
                declaration.kind,
                DeclarationKind::Const
                    | DeclarationKind::Override
                    | DeclarationKind::Alias
                    | DeclarationKind::Struct
            );
        if !wanted && declaration.kind != DeclarationKind::Directive {
            let range = declaration.span.clone();
            let text = blank(source.get(range.clone()).unwrap_or(""));
            edits.push(Replacement { range, text });
        } else if declaration.kind == DeclarationKind::Const
            && analysis.overridden.get(index) == Some(&true)
        {
            edits.push(Replacement {
                range: declaration.keyword.clone(),
                text: "override".to_owned(),
            });
        }
    }
    edits.push(Replacement {
        range: source.len()..source.len(),
        text: format!("\n{tail}"),
    });
    EditedText::new(Arc::clone(source), edits)
}

impl Evaluator {
    /// Builds the module for the program's overrides and the constants that size arrays.
    pub fn new(
        files: &Files,
        source: &Arc<str>,
        analysis: &Analysis,
    ) -> Result<Self, Box<Diagnostic>> {
        let wanted = analysis.declarations.iter().enumerate().filter(|(i, d)| {
            d.kind == DeclarationKind::Override
                || (d.kind == DeclarationKind::Const
                    && analysis.is_sizing(*i)
                    && analysis.overridden.get(*i) == Some(&true))
        });
        let wanted = wanted
            .map(|(i, d)| (i, d.name.as_str()))
            .collect::<Vec<_>>();
        let keep = analysis.reach(wanted.iter().map(|w| w.0), |_| false);
        let mut tail = String::new();
        for (index, name) in &wanted {
            tail +=
                &format!("@compute @workgroup_size(1) fn {PROBE}{index}() {{ let x = {name}; }}\n");
        }
        let text = small_text(source, analysis, &keep, &tail);
        let reporter = Reporter { files, text: &text };
        let mut module = parse(text.text()).map_err(|e| reporter.parse_error(&e))?;
        validator(Capabilities::all())
            .validate(&module)
            .map_err(|e| reporter.validation_error(&e))?;
        let indices: HashMap<&str, usize> = wanted.iter().map(|w| (w.1, w.0)).collect();
        let mut declared = Vec::with_capacity(wanted.len());
        for (handle, constant) in module.overrides.iter() {
            let named = constant.name.as_deref().and_then(|name| indices.get(name));
            if let (Some(&index), TypeInner::Scalar(scalar)) =
                (named, &module.types[constant.ty].inner)
                && let Some(ty) = ConstantType::from_scalar(*scalar)
            {
                declared.push(Declared { index, ty, handle });
            }
        }
        declared.sort_unstable_by_key(|one| one.index);
        // They made naga look at the overrides, and are of no further use.
        module.entry_points.clear();
        Ok(Self { module, declared })
    }

    fn find(&self, index: usize) -> Option<&Declared> {
        let at = self.declared.binary_search_by_key(&index, |one| one.index);
        self.declared.get(at.ok()?)
    }

    /// Type of declaration `index`, if it is an override here.
    pub fn ty(&self, index: usize) -> Option<ConstantType> {
        self.find(index).map(|one| one.ty)
    }

    /// The `@id` of declaration `index`.
    pub fn id(&self, index: usize) -> Option<u16> {
        self.module.overrides[self.find(index)?.handle].id
    }

    /// The values of all declarations, where the overrides in `values` are set.
    pub fn values(&self, values: &PipelineConstants) -> Evaluated {
        let found = fold(&self.module, values);
        let of = |one: &Declared| (one.index, found[one.handle.index()].clone());
        Evaluated(self.declared.iter().map(of).collect())
    }
}

/// An expression of the program to evaluate, and its mentioned declarations.
pub(crate) struct Wanted<'s> {
    pub text: &'s str,
    pub mentions: &'s [usize],
}

/// The most times a text is parsed again in parts, to separate expressions refused by naga from others.
const MOST_PARTS: usize = 64;

/// The values of expressions, where the overrides in `values` are set. None for an unparsable expression: the program's
/// own parse gives the reason.
pub(crate) fn expressions(
    source: &Arc<str>,
    analysis: &Analysis,
    wanted: &[Wanted<'_>],
    values: &PipelineConstants,
) -> Vec<Option<Result<ConstantValue, Unevaluated>>> {
    let mut found = vec![None; wanted.len()];
    let all = 0..wanted.len();
    let mut open = Vec::from([all]);
    let mut parts = 0;
    while let Some(range) = open.pop() {
        let Some(part) = wanted.get(range.clone()).filter(|part| !part.is_empty()) else {
            continue;
        };
        parts += 1;
        if parts > MOST_PARTS {
            break;
        }
        match together(source, analysis, part, values) {
            Ok(values) => {
                for (slot, value) in found[range].iter_mut().zip(values) {
                    *slot = Some(value);
                }
            }
            // Without any override inside, an expression is evaluated during parsing.
            Err(message) if part.len() == 1 => {
                if message.contains("overflow") {
                    found[range.start] = Some(Err(Unevaluated::Failed(message)));
                }
            }
            Err(_) => {
                let middle = range.start + range.len() / 2;
                open.push(middle..range.end);
                open.push(range.start..middle);
            }
        }
    }
    found
}

/// The values of expressions parsed together, or naga's error.
fn together(
    source: &Arc<str>,
    analysis: &Analysis,
    wanted: &[Wanted<'_>],
    values: &PipelineConstants,
) -> Result<Vec<Result<ConstantValue, Unevaluated>>, String> {
    let mentions = wanted.iter().flat_map(|one| one.mentions.iter().copied());
    let keep = analysis.reach(mentions, |_| false);
    let mut tail = String::new();
    for (index, one) in wanted.iter().enumerate() {
        let name = format!("{RESULT}{index}");
        tail += &format!(
            "override {name} = {};\n@compute @workgroup_size(1) fn {PROBE}{index}() {{ let x = {name}; }}\n",
            one.text
        );
    }
    let text = small_text(source, analysis, &keep, &tail);
    let module = parse(text.text()).map_err(|error| error.message().to_owned())?;
    let valid = validator(Capabilities::all()).validate(&module);
    valid.map_err(|error| error.to_string())?;
    let found = fold(&module, values);
    let names: HashMap<&str, usize> = (module.overrides.iter())
        .filter_map(|(handle, one)| Some((one.name.as_deref()?, handle.index())))
        .collect();
    let of = |index: usize| {
        let handle = names.get(format!("{RESULT}{index}").as_str());
        handle.map_or(Err(Unevaluated::Missing), |&handle| found[handle].clone())
    };
    Ok((0..wanted.len()).map(of).collect())
}

/// The entries of `values` declared by `module`: naga refuses others.
pub(crate) fn known(module: &Module, values: &PipelineConstants) -> PipelineConstants {
    let declared = module.overrides.iter().filter_map(|(_, o)| match o.id {
        Some(id) => Some(id.to_string()),
        None => o.name.clone(),
    });
    declared
        .filter_map(|key| values.get(&key).map(|v| (key, *v)))
        .collect()
}

/// An error of naga's specialization with its causes, in a single line.
pub(crate) fn reason(error: &PipelineConstantError) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
