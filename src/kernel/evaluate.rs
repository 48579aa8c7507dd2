//! Values of constants, computed by naga: a small module that holds only the program's overrides, and the
//! constants and types that they mention, is specialized like any other module, and the results are read off.
//!
//! Constants that depend on an override are declared as overrides in that module: WGSL does not allow such
//! constants, but where the override becomes a constant itself, they are what the program means.

use std::sync::Arc;

use naga::back::PipelineConstants;
use naga::back::pipeline_constants::{PipelineConstantError, process_overrides};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{Expression, Module, ShaderStage, TypeInner};

use super::constants::{ConstantType, ConstantValue};
use super::declarations::DeclarationKind;
use super::diagnostic::{Diagnostic, Reporter, causes};
use super::edit::{EditedText, Replacement, blank};
use super::private_array::Analysis;

/// Names in the small module; no program that naga accepts along with it can hold them by accident.
const PROBE: &str = "tombolo_evaluation_probe_";
const RESULT: &str = "tombolo_evaluation_result";

/// The small module.
#[derive(Debug)]
pub(crate) struct Evaluator {
    module: Module,
    info: ModuleInfo,
    /// Declarations that are overrides in the module, with their types.
    types: Vec<(usize, ConstantType)>,
}

/// Why there is no value.
#[derive(Debug)]
pub(crate) enum Unevaluated {
    /// Another constant, of this name, has no value.
    Missing,
    /// The expression has none: overflow, division by zero and the like. In naga's words.
    Failed(String),
}

/// The validator that every stage uses: it knows the features that `capabilities` name.
pub(crate) fn validator(capabilities: Capabilities) -> Validator {
    Validator::new(ValidationFlags::all(), capabilities)
}

/// The small text: what `keep` holds for, with `tail` behind it.
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
        file: &str,
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
        let reporter = Reporter { file, text: &text };
        let module =
            naga::front::wgsl::parse_str(text.text()).map_err(|e| reporter.parse_error(&e))?;
        let info = validator(Capabilities::all())
            .validate(&module)
            .map_err(|e| reporter.validation_error(&e))?;
        let mut types = Vec::with_capacity(wanted.len());
        for (_, constant) in module.overrides.iter() {
            let named = wanted
                .iter()
                .find(|w| Some(w.1) == constant.name.as_deref());
            if let (Some(&(index, _)), TypeInner::Scalar(scalar)) =
                (named, &module.types[constant.ty].inner)
                && let Some(ty) = ConstantType::from_scalar(*scalar)
            {
                types.push((index, ty));
            }
        }
        types.sort_unstable_by_key(|t| t.0);
        Ok(Self {
            module,
            info,
            types,
        })
    }

    /// Type of declaration `index`, if it is an override here.
    pub fn ty(&self, index: usize) -> Option<ConstantType> {
        self.types.iter().find(|t| t.0 == index).map(|t| t.1)
    }

    /// The `@id` of the override called `name`.
    pub fn id(&self, name: &str) -> Option<u16> {
        self.module
            .overrides
            .iter()
            .find(|(_, o)| o.name.as_deref() == Some(name))
            .and_then(|(_, o)| o.id)
    }

    /// The value of declaration `index`, called `name`, where the overrides in `values` are set.
    pub fn value(
        &self,
        index: usize,
        name: &str,
        values: &PipelineConstants,
    ) -> Result<ConstantValue, Unevaluated> {
        evaluate(
            &self.module,
            &self.info,
            &format!("{PROBE}{index}"),
            name,
            values,
        )
    }
}

/// The value of `expression`, which mentions the declarations `mentions`, where the overrides in `values` are set.
/// None if it cannot even be parsed: the program's own parse will say why.
pub(crate) fn expression(
    source: &Arc<str>,
    analysis: &Analysis,
    expression: &str,
    mentions: &[usize],
    values: &PipelineConstants,
) -> Option<Result<ConstantValue, Unevaluated>> {
    let keep = analysis.reach(mentions.iter().copied(), |_| false);
    let tail = format!(
        "override {RESULT} = {expression};\n@compute @workgroup_size(1) fn {PROBE}() {{ let x = {RESULT}; }}\n"
    );
    let text = small_text(source, analysis, &keep, &tail);
    let module = match naga::front::wgsl::parse_str(text.text()) {
        Ok(module) => module,
        // Without any override in it, the expression is evaluated while it is parsed.
        Err(error) if error.message().contains("overflow") => {
            return Some(Err(Unevaluated::Failed(error.message().to_owned())));
        }
        Err(_) => return None,
    };
    let info = validator(Capabilities::all()).validate(&module).ok()?;
    Some(evaluate(&module, &info, PROBE, RESULT, values))
}

fn evaluate(
    module: &Module,
    info: &ModuleInfo,
    probe: &str,
    name: &str,
    values: &PipelineConstants,
) -> Result<ConstantValue, Unevaluated> {
    let values = known(module, values);
    let (module, _) = process_overrides(module, info, Some((ShaderStage::Compute, probe)), &values)
        .map_err(|e| match e {
            PipelineConstantError::MissingValue(_) => Unevaluated::Missing,
            other => Unevaluated::Failed(reason(&other)),
        })?;
    let constant = module
        .constants
        .iter()
        .find(|(_, c)| c.name.as_deref() == Some(name))
        .map(|(_, c)| c);
    let literal = constant.and_then(|constant| match module.global_expressions[constant.init] {
        Expression::Literal(literal) => Some(literal),
        Expression::ZeroValue(ty) => match module.types[ty].inner {
            TypeInner::Scalar(scalar) => naga::Literal::zero(scalar),
            _ => None,
        },
        _ => None,
    });
    literal
        .and_then(ConstantValue::from_literal)
        .ok_or_else(|| Unevaluated::Failed("its value is not a constant".to_owned()))
}

/// Those of `values` that `module` declares: naga refuses others.
pub(crate) fn known(module: &Module, values: &PipelineConstants) -> PipelineConstants {
    let declared = module.overrides.iter().filter_map(|(_, o)| match o.id {
        Some(id) => Some(id.to_string()),
        None => o.name.clone(),
    });
    declared
        .filter_map(|key| values.get(&key).map(|v| (key, *v)))
        .collect()
}

/// An error of naga's specialization with its causes, in one line.
pub(crate) fn reason(error: &PipelineConstantError) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
