//! The text of a program for naga, and the faults that are known before any constant has a value.

use naga::Module;
use naga::valid::Capabilities;

use super::Inner;
use crate::kernel::bindings::RuntimeBindings;
use crate::kernel::calls::bind;
use crate::kernel::constants::{ConstantType, ConstantValue};
use crate::kernel::declarations::DeclarationKind;
use crate::kernel::diagnostic::{Diagnostic, Reporter};
use crate::kernel::edit::EditedText;
use crate::kernel::error::KernelError;
use crate::kernel::evaluate::{parse, validator};
use crate::kernel::heap_setup::HeapSetup;
use crate::kernel::passes::{self, globals};
use crate::kernel::text_limits;

/// Lengths that stand in for sizes not chosen yet, where the defaults do not lead to a valid program.
const STAND_INS: [u32; 5] = [1, 2, 5, 64, 1000];

impl Inner {
    /// Tells of faults in a text that was made from the program's.
    pub fn reporter<'r>(&'r self, text: &'r EditedText) -> Reporter<'r> {
        let files = &self.files;
        Reporter { files, text }
    }

    /// Whether the parsed text has functions that only the pointer pass makes valid.
    pub fn has_stubs(&self) -> bool {
        self.pointers.as_ref().is_some_and(|p| p.has_stubs)
    }

    /// The text for naga: `keep` says which declarations stay, `value` which constants replace which overrides.
    pub fn assemble(
        &self,
        keep: impl Fn(usize) -> bool,
        value: impl Fn(usize) -> Option<ConstantValue>,
    ) -> EditedText {
        let text = self.assemble_own(keep, value);
        let text = match &self.prints {
            Some(prints) => text.append(&prints.appendix, &prints.origins),
            None => text,
        };
        let text = match &self.pointers {
            Some(appendix) => text.append(&appendix.text, &appendix.origins),
            None => text,
        };
        let text = match &self.cancelled {
            Some(appendix) => text.append(appendix, &[]),
            None => text,
        };
        match &self.calls {
            Some(appendix) => text.append(&appendix.text, &appendix.origins),
            None => text,
        }
    }

    /// The same without the texts appended for pointers and prints.
    pub fn assemble_own(
        &self,
        keep: impl Fn(usize) -> bool,
        value: impl Fn(usize) -> Option<ConstantValue>,
    ) -> EditedText {
        let constant = |index: usize| {
            let declaration = self
                .analysis
                .get(index)
                .filter(|d| d.kind == DeclarationKind::Override)?;
            let value = value(index).filter(|_| self.analysis.is_sizing(index))?;
            let ty = self.evaluator.ty(index)?;
            Some(format!(
                "const {}: {ty} = {};",
                declaration.name,
                value.to_wgsl()
            ))
        };
        // A bool as a length counts as 0 or 1, as any integral constant may size an array.
        let length = |index: usize| match value(index) {
            Some(ConstantValue::Bool(v)) => Some(format!("{}u", u8::from(v))),
            _ => None,
        };
        self.analysis.assemble(&self.source, keep, constant, length)
    }

    /// Reports faults of the program independent of the sizes of its private arrays. A fault that may come from the
    /// sizes (the defaults need not make sense) is left to specialization. A fault counts as independent of sizes if
    /// its place mentions no size, or if the fault is the same, word for word and place for place, for all of a set of
    /// very different sizes.
    pub(super) fn check_early(&self) -> Result<(), KernelError> {
        let attempt = |stand_in: Option<u32>| {
            self.attempt(
                |_| true,
                |index| {
                    let ty = self.evaluator.ty(index)?;
                    let default = self.constant(index).and_then(|c| c.default);
                    default
                        .filter(|_| stand_in.is_none())
                        .or_else(|| stand_in_value(ty, stand_in.unwrap_or(1)))
                },
            )
        };
        let Err(first) = attempt(None) else {
            return Ok(());
        };
        let sized = self.analysis.depends_on(|i| self.analysis.is_sizing(i));
        self.attempt(|i| sized.get(i) != Some(&true), |_| None)?;
        let place = |e: &KernelError| {
            e.diagnostic()
                .map(|d: &Diagnostic| (d.message.clone(), d.line, d.column, d.notes.clone()))
        };
        for stand_in in STAND_INS {
            match attempt(Some(stand_in)) {
                Err(error) if place(&error) == place(&first) => {}
                _ => return Ok(()),
            }
        }
        let depends_on_values = |d: &Diagnostic| {
            d.message.contains("const_assert")
                || d.message.contains("array element count")
                || d.message.contains("too large")
        };
        match first.diagnostic() {
            Some(diagnostic) if !depends_on_values(diagnostic) => Err(first),
            _ => Ok(()),
        }
    }

    /// Gives the printing sites their form, for entry point `entry` of `module`.
    pub fn lower_prints(
        &self,
        module: &mut Module,
        entry: Option<usize>,
        bindings: &RuntimeBindings,
        capabilities: Capabilities,
        nesting: Option<u32>,
        reporter: Reporter<'_>,
    ) -> Result<Option<passes::print::PrintFacts>, KernelError> {
        let Some(prints) = &self.prints else {
            return Ok(None);
        };
        let (sites, binding) = (&prints.sites, bindings.print());
        passes::print::run(module, entry, sites, binding, capabilities, nesting)
            .map_err(|fault| prints.error(fault, reporter))
    }

    fn attempt(
        &self,
        keep: impl Fn(usize) -> bool,
        value: impl Fn(usize) -> Option<ConstantValue>,
    ) -> Result<(), KernelError> {
        let text = self.assemble(keep, value);
        let reporter = self.reporter(&text);
        let mut module =
            parse(text.text()).map_err(|e| KernelError::Type(reporter.parse_error(&e)))?;
        text_limits::check_types(&module).map_err(|excess| reporter.excess(excess))?;
        lower_spans(&mut module, reporter, false)?;
        let bindings = RuntimeBindings::of(&module, u32::MAX);
        if self.calls.is_some() {
            let traits = bind::Traits {
                barrier: true,
                has_loop_budget: true,
                ..bind::Traits::default()
            };
            bind::complete(&mut module, &bindings, traits);
        }
        let all = Capabilities::all();
        self.lower_prints(&mut module, None, &bindings, all, None, reporter)?;
        // A variable left without a binding is the user's.
        mark_globals(&mut module, reporter)?;
        if self.has_stubs() {
            // Stubs do not validate; each entry point is tried with them lowered.
            for index in 0..module.entry_points.len() {
                let mut module = module.clone();
                let heap = HeapSetup::default();
                let passed = HeapSetup::passed(&module, index);
                let all = Capabilities::all();
                heap.lower(&mut module, index, passed, &bindings, all, reporter)?;
                validator(Capabilities::all())
                    .validate(&module)
                    .map_err(|e| KernelError::Validation(reporter.validation_error(&e)))?;
            }
            return Ok(());
        }
        match validator(Capabilities::all()).validate(&module) {
            Ok(_) => Ok(()),
            Err(e) => Err(KernelError::Validation(reporter.validation_error(&e))),
        }
    }
}

/// `length` as a value of type `ty`.
fn stand_in_value(ty: ConstantType, length: u32) -> Option<ConstantValue> {
    Some(match ty {
        ConstantType::Bool => ConstantValue::Bool(true),
        ConstantType::I32 => ConstantValue::I32(i32::try_from(length).ok()?),
        ConstantType::U32 => ConstantValue::U32(length),
        ConstantType::F32 => ConstantValue::F32(length as f32),
        ConstantType::F16 => ConstantValue::F16(half::f16::from_f32(length as f32)),
        ConstantType::F64 => ConstantValue::F64(length.into()),
        ConstantType::I16 => ConstantValue::I16(i16::try_from(length).ok()?),
        ConstantType::U16 => ConstantValue::U16(u16::try_from(length).ok()?),
    })
}

/// Makes functions of arrays from the helpers of a module that take arrays of any length; the places where indices are checked,
/// if `checked`.
pub(in crate::kernel) fn lower_spans(
    module: &mut Module,
    reporter: Reporter<'_>,
    checked: bool,
) -> Result<Vec<naga::Span>, KernelError> {
    match passes::spans::run(module, checked) {
        Ok(sites) => Ok(sites.unwrap_or_default()),
        Err(error) => {
            let place = reporter.back(error.span);
            let labels = place.into_iter().map(|range| (range, String::new()));
            let notes = Some(error.note).filter(|note| !note.is_empty());
            let notes = notes.into_iter().collect();
            let diagnostic = reporter.at(error.message, labels.collect(), notes);
            Err(KernelError::Type(diagnostic))
        }
    }
}

/// Gives the device globals of a module bindings that the validator takes.
pub(in crate::kernel) fn mark_globals(
    module: &mut Module,
    reporter: Reporter<'_>,
) -> Result<(), KernelError> {
    globals::mark(module).map_err(|globals::Unsized { name, span }| {
        let place = span.to_range().map(|range| reporter.text.to_original(range));
        let labels = place.map(|range| (range, "its size is not known".to_owned()));
        let message = format!(
            "`{name}` has no binding, which makes it a device global, and those have a fixed size: give its array a \
             length, or the variable @group and @binding"
        );
        let labels = labels.into_iter().collect();
        KernelError::Validation(reporter.at(message, labels, Vec::new()))
    })
}
