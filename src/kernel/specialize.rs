//! Specialization: a program, an entry point and values for its constants become a module without overrides,
//! validated for the features of one device, with the private memory that it needs counted and checked.

use std::sync::Arc;

use naga::back::PipelineConstants;
use naga::back::pipeline_constants::{PipelineConstantError, process_overrides};
use naga::compact::{KeepUnused, compact};
use naga::front::wgsl::{Frontend, Options};
use naga::valid::Capabilities;
use naga::{Module, ShaderStage};

use super::bindings::RuntimeBindings;
use super::constants::{ConstantInfo, ConstantValue, Constants};
use super::declarations::DeclarationKind;
use super::diagnostic::Reporter;
use super::edit::EditedText;
use super::error::KernelError;
use super::evaluate::{Unevaluated, known, reason, validator};
use super::passes::pointers::{
    self, ArgumentTable, HeapMemory, PointerFacts, PointerOptions, TranslationMode,
};
use super::private_array::PrivateArrayInfo;
use super::private_memory::Sizes;
use super::program::{Inner, Program};
use super::reflect::{ArgumentInfo, ArgumentKind, Interface};
use crate::memory::heap::GUARD_BYTES;
use crate::memory::heap::device_memory::FIRST_TAG;

/// A specialized kernel.
#[derive(Debug)]
pub(crate) struct Specialized {
    /// Without overrides. Valid for the capabilities that were asked for.
    pub module: Module,
    /// Index of the entry point in the module.
    pub entry: usize,
    /// The text that was compiled, and the way back to the user's.
    pub text: EditedText,
    /// The constants of the program that have a value in this specialization.
    pub values: Vec<(ConstantInfo, ConstantValue)>,
    /// Variables whose size was chosen at run time, and those with `@align`.
    pub private_arrays: Vec<PrivateArrayInfo>,
    /// Where the runtime's own variables go.
    pub bindings: RuntimeBindings,
    /// What the pointer pass did, if the kernel reaches the heap.
    pub pointers: Option<PointerFacts>,
    /// What the kernel wants from a launch.
    pub interface: Interface,
    /// The arguments, by index, that it reaches through the heap for want of bindings.
    pub table: Vec<usize>,
}

/// How the heap is bound to kernels that follow pointers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct HeapSetup {
    /// Bind groups that the device has.
    pub max_bind_groups: u32,
    /// Parts in which the heap is bound.
    pub segments: u32,
    /// Bytes of each part but the last.
    pub segment_bytes: u32,
    /// Segments of the device's own memory.
    pub device_segments: u32,
    /// Storage bindings that a kernel may have; more go through the heap, if there is one.
    pub storage_bindings: Option<u32>,
    /// Which side of memory is reached first.
    pub mode: TranslationMode,
    /// Every dereference is tested.
    pub checked: bool,
}

impl Default for HeapSetup {
    /// One unchecked segment, on a device without limits.
    fn default() -> Self {
        Self {
            max_bind_groups: u32::MAX,
            segments: 1,
            segment_bytes: 1 << 31,
            device_segments: 0,
            storage_bindings: None,
            mode: TranslationMode::DeviceFavored,
            checked: false,
        }
    }
}

impl HeapSetup {
    /// Lowers the pointers that the entry point follows; what it does not reach is removed, because stubs in it
    /// would not validate.
    pub fn lower(
        &self,
        module: &mut Module,
        entry: usize,
        bindings: &RuntimeBindings,
        capabilities: Capabilities,
        reporter: Reporter<'_>,
    ) -> Result<Option<PointerFacts>, KernelError> {
        let options = self.options(bindings, capabilities, self.checked, None);
        let facts = pointers::run(module, entry, &options).map_err(|error| {
            let place = reporter
                .back(error.span)
                .map(|range| (range, String::new()));
            let labels = place.into_iter().collect();
            KernelError::Pointer(reporter.at(error.to_string(), labels, Vec::new()))
        })?;
        if facts.is_none() {
            let point = module.entry_points.swap_remove(entry);
            module.entry_points = vec![point];
            compact(module, KeepUnused::No);
        }
        Ok(facts)
    }

    fn options(
        &self,
        bindings: &RuntimeBindings,
        capabilities: Capabilities,
        checked: bool,
        arguments: Option<ArgumentTable>,
    ) -> PointerOptions {
        PointerOptions {
            mode: self.mode,
            memory: match self.device_segments {
                0 => HeapMemory::Unified {
                    segments: bindings.segments(0..self.segments),
                },
                own => HeapMemory::Split {
                    shared: bindings.segments(0..self.segments),
                    device: bindings.segments(self.segments..self.segments + own),
                    first_tag: FIRST_TAG,
                },
            },
            segment_bytes: self.segment_bytes,
            zero_bytes: GUARD_BYTES as u32,
            window_aligned: true,
            info: checked.then(|| bindings.heap_info()),
            checked: checked.then(|| bindings.status()),
            arguments,
            capabilities: capabilities.bits(),
        }
    }

    /// Moves the storage arguments for which there are no bindings into the heap. Gives the arguments that
    /// were moved; the module is another one then.
    fn tabulate(
        &self,
        module: &mut Module,
        entry: usize,
        interface: &Interface,
        bindings: &RuntimeBindings,
        capabilities: Capabilities,
    ) -> Option<(Vec<usize>, PointerFacts)> {
        let limit = self.storage_bindings?;
        let is_storage = |a: &&ArgumentInfo| matches!(a.kind, ArgumentKind::Storage { .. });
        let storage = interface.arguments.iter().filter(is_storage).count() as u32;
        if storage <= limit {
            return None;
        }
        // A status record and the heap itself take bindings, too.
        let room = limit.saturating_sub(1 + self.segments + self.device_segments);
        let all = interface.arguments.iter().enumerate();
        let moved: Vec<usize> = (all.filter(|(_, a)| is_storage(a)).map(|(index, _)| index))
            .skip(room as usize)
            .collect();
        let place = |&index: &usize| naga::ResourceBinding {
            group: interface.arguments[index].group,
            binding: interface.arguments[index].binding,
        };
        let table = ArgumentTable {
            binding: bindings.table(),
            variables: moved.iter().map(place).collect(),
        };
        let options = self.options(bindings, capabilities, false, Some(table));
        let mut changed = module.clone();
        // What cannot be reached so is reported as the limit that it exceeds.
        let facts = pointers::run(&mut changed, entry, &options).ok()??;
        *module = changed;
        Some((moved, facts))
    }
}

/// Values of a program's constants during one specialization.
pub(crate) struct Values {
    /// Per declaration: the value that was set.
    set: Vec<Option<ConstantValue>>,
    /// The same as naga takes them, by id or name.
    pub pipeline: PipelineConstants,
    /// Per declaration that sizes arrays and is used: its value.
    sizing: Vec<Option<ConstantValue>>,
}

impl Values {
    /// What declaration `index` stands for in the text, if it sizes arrays.
    pub fn sizing(&self, index: usize) -> Option<ConstantValue> {
        self.sizing.get(index).copied().flatten()
    }

    fn is_set(&self, index: usize) -> bool {
        self.set.get(index).is_some_and(Option::is_some)
    }
}

/// Specializes the entry point `entry` of `program`. `auto_workgroup` is the value for an override without default
/// that alone gives the size of a one-dimensional work-group, if the caller has not set it; `capabilities` are
/// those of the device; `private_limit` is the number of bytes that the private arrays of one invocation may have.
///
/// # Errors
/// Every [`KernelError`].
pub(crate) fn specialize(
    program: &Program,
    entry: &str,
    constants: &Constants,
    auto_workgroup: Option<u32>,
    capabilities: Capabilities,
    private_limit: u64,
    heap: &HeapSetup,
) -> Result<Specialized, KernelError> {
    let inner = &*program.inner;
    let found = inner
        .analysis
        .declarations
        .iter()
        .position(|d| d.entry.is_some() && d.name == entry);
    let Some(entry_declaration) = found else {
        return Err(KernelError::UnknownEntryPoint {
            program: inner.name.clone(),
            wanted: entry.to_owned(),
            available: program.entry_points().to_vec(),
        });
    };
    let mut values = inner.set_values(constants)?;
    inner.choose_workgroup(entry_declaration, auto_workgroup, &mut values);
    inner.size_values(entry, entry_declaration, &mut values)?;

    // The user's own text as it is, where no convention is used. Otherwise declarations that the entry point does not
    // use are left out: the sizes that they depend on may have no value, or one that makes no sense for them.
    let kept = inner.kept(entry_declaration);
    let text = match inner.module {
        Some(_) => EditedText::unchanged(Arc::clone(&inner.source)),
        None => inner.assemble(|i| kept.get(i) == Some(&true), |i| values.sizing(i)),
    };
    let reporter = Reporter {
        file: &inner.name,
        text: &text,
    };
    let sizes = Sizes {
        inner,
        kept: &kept,
        values: &values,
        reporter,
        limit: private_limit,
    };
    sizes.check_lengths()?;

    let enables = inner
        .analysis
        .declarations
        .iter()
        .any(|d| d.kind == DeclarationKind::Directive);
    let mut module = match &inner.module {
        Some(module) if !enables => module.clone(),
        // Which extensions may be enabled depends on the device.
        _ => Frontend::new_with_options(Options {
            parse_doc_comments: false,
            capabilities,
        })
        .parse(text.text())
        .map_err(|e| sizes.parse_error(&e))?,
    };
    let bindings = RuntimeBindings::of(&module, heap.max_bind_groups);
    let mut pointers = None;
    if inner.has_stubs()
        && let Some(index) = compute_entry(&module, entry)
    {
        pointers = heap.lower(&mut module, index, &bindings, capabilities, reporter)?;
    }
    let info = validator(capabilities)
        .validate(&module)
        .map_err(|e| KernelError::Validation(reporter.validation_error(&e)))?;
    let pipeline = known(&module, &values.pipeline);
    let processed = process_overrides(
        &module,
        &info,
        Some((ShaderStage::Compute, entry)),
        &pipeline,
    );
    let (mut module, info) = match processed {
        Ok((module, info)) => (module.into_owned(), info.into_owned()),
        Err(PipelineConstantError::MissingValue(_)) => {
            return Err(inner.missing(entry, &missing_names(&module, entry, &pipeline)));
        }
        Err(error) => return Err(inner.pipeline_error(reporter, entry_declaration, &error)),
    };
    let Some(mut index) = compute_entry(&module, entry) else {
        // The scan found a function with `@compute` that naga does not take for an entry point of that stage.
        let message = format!("`{entry}` is no compute entry point");
        let place = inner.place(entry_declaration, "declared here");
        return Err(KernelError::Validation(reporter.at(
            message,
            place,
            Vec::new(),
        )));
    };
    let private_arrays = sizes.measure(&module, index)?;
    let interface = Interface::of(&module, &info, index, |binding| bindings.owns(binding));
    let mut table = Vec::new();
    if pointers.is_none()
        && let Some((moved, facts)) =
            heap.tabulate(&mut module, index, &interface, &bindings, capabilities)
    {
        validator(capabilities)
            .validate(&module)
            .map_err(|e| KernelError::Validation(reporter.validation_error(&e)))?;
        index = facts.entry;
        (table, pointers) = (moved, Some(facts));
    }
    Ok(Specialized {
        entry: index,
        values: inner.report(&values),
        module,
        text,
        private_arrays,
        bindings,
        pointers,
        interface,
        table,
    })
}

fn compute_entry(module: &Module, name: &str) -> Option<usize> {
    let mut points = module.entry_points.iter();
    points.position(|e| e.stage == ShaderStage::Compute && e.name == name)
}

/// Names of the overrides that `entry` uses and that have no value: what wgpu would miss one by one.
fn missing_names(module: &Module, entry: &str, values: &PipelineConstants) -> Vec<String> {
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
    fn constant(&self, declaration: usize) -> Option<&ConstantInfo> {
        let at = self.declaration_of.iter().position(|&d| d == declaration)?;
        self.declared.infos().get(at)
    }

    pub(super) fn place(
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

    fn set_values(&self, constants: &Constants) -> Result<Values, KernelError> {
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

    /// Gives the work-group size its value, if it is left to the runtime.
    fn choose_workgroup(&self, entry: usize, size: Option<u32>, values: &mut Values) {
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

    /// Computes the constants that size arrays and that the entry point uses.
    fn size_values(
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
        for (index, declaration) in analysis.declarations.iter().enumerate() {
            if used.get(index) != Some(&true)
                || !analysis.is_sizing(index)
                || self.evaluator.ty(index).is_none()
            {
                continue;
            }
            let value = match values.set.get(index).copied().flatten() {
                Some(value) => value,
                None => self
                    .evaluator
                    .value(index, &declaration.name, &values.pipeline)
                    .map_err(|e| {
                        let text = EditedText::unchanged(Arc::clone(&self.source));
                        let reporter = Reporter {
                            file: &self.name,
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
                        KernelError::Type(reporter.at(
                            message,
                            self.place(index, "cannot be evaluated"),
                            Vec::new(),
                        ))
                    })?,
            };
            if let Some(slot) = values.sizing.get_mut(index) {
                *slot = Some(value);
            }
        }
        Ok(())
    }

    /// The declarations that the entry point needs in the text: everything it mentions, but not what only the
    /// initializers of overrides mention that are replaced by values. Assertions stay unless they mention a size
    /// that is left out.
    fn kept(&self, entry: usize) -> Vec<bool> {
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
        if self.pointers.is_some() {
            // What the appendix mentions is not in the text that was analysed.
            let types = analysis.declarations.iter().enumerate().filter(|(_, d)| {
                matches!(d.kind, DeclarationKind::Struct | DeclarationKind::Alias)
            });
            let types = analysis.reach(types.map(|(i, _)| i), is_replaced);
            kept.iter_mut()
                .zip(types)
                .for_each(|(mark, more)| *mark |= more);
        }
        let assertions = others
            .map(|(i, _)| (i, analysis.reach([i], is_replaced)))
            .collect::<Vec<_>>();
        for (_, mentioned) in assertions {
            let knows =
                |(i, used): (usize, &bool)| !*used || !is_replaced(i) || kept.get(i) == Some(&true);
            if mentioned.iter().enumerate().all(knows) {
                kept.iter_mut()
                    .zip(&mentioned)
                    .for_each(|(mark, more)| *mark |= more);
            }
        }
        for (mark, declaration) in kept.iter_mut().zip(&analysis.declarations) {
            *mark |= declaration.kind == DeclarationKind::Directive;
        }
        kept
    }

    fn missing(&self, entry: &str, names: &[String]) -> KernelError {
        let infos = self.declared.infos();
        KernelError::MissingConstant {
            program: self.name.clone(),
            entry: entry.to_owned(),
            missing: infos
                .iter()
                .filter(|c| names.contains(&c.name))
                .cloned()
                .collect(),
            available: infos.to_vec(),
        }
    }

    fn pipeline_error(
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

    /// The constants that have a value, for reflection.
    fn report(&self, values: &Values) -> Vec<(ConstantInfo, ConstantValue)> {
        let known = |(info, &declaration): (&ConstantInfo, &usize)| {
            let set = values
                .set
                .get(declaration)
                .copied()
                .flatten()
                .or_else(|| values.sizing(declaration));
            let value = set.or_else(|| {
                self.evaluator
                    .value(declaration, &info.name, &values.pipeline)
                    .ok()
            })?;
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

#[cfg(test)]
#[path = "specialize_tests.rs"]
mod tests;
