//! A program: WGSL text, read once. The declarations are known from here on, and faults are reported here as far as
//! independent of values chosen later.

mod builder;
mod check;
mod served;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use naga::Module;
use naga::back::PipelineConstants;
use naga::valid::Capabilities;

use super::calls::texts::literals;
use super::calls::wgsl::{Fault, FaultKind};
use super::calls::{CallAppendix, CallSet, wgsl};
use super::constants::{ConstantInfo, Constants};
use super::declarations::DeclarationKind;
use super::declared::{Declared, SpecKey};
use super::deep_stack::on_deep_stack;
use super::diagnostic::Reporter;
use super::edit::EditedText;
use super::error::KernelError;
use super::evaluate::{Evaluator, parse, validator};
use super::files::Files;
use super::globals::ModuleIdentity;
use super::heap_setup::HeapSetup;
use super::print::{Prints, prints};
use super::private_array::Analysis;
use super::reflect::Interface;
use super::specialize::specialize;
use super::text_limits::{self, Excess, TextLimits};
use super::token::TokenStream;
use super::usm::{Appendix, appendix};
pub use builder::ProgramBuilder;
pub(super) use check::{lower_spans, mark_globals};
use served::parse_types;

/// A WGSL program. Cheap to clone; clones are the same program.
#[derive(Clone)]
pub struct Program {
    pub(crate) inner: Arc<Inner>,
}

/// The known properties of a program.
pub(crate) struct Inner {
    id: u64,
    hash: u64,
    pub name: String,
    pub source: Arc<str>,
    /// The files of the text.
    pub files: Files,
    /// The prefix of the program's device globals.
    pub global_prefix: Arc<str>,
    /// The text that owns the device globals, where different.
    pub extends: Option<Arc<str>>,
    pub analysis: Analysis,
    /// The appended text for pointers.
    pub pointers: Option<Appendix>,
    /// The prints of the program.
    pub prints: Option<Prints>,
    /// Text appended for a program that asks whether calls of its functions are withdrawn.
    pub cancelled: Option<String>,
    /// The parts needed for calls of the host.
    pub calls: Option<CallAppendix>,
    pub evaluator: Evaluator,
    pub declared: Declared,
    /// Per constant: its declaration.
    pub declaration_of: Vec<usize>,
    entry_points: Vec<String>,
    /// The parsed text, unless a convention changes the text for each specialization.
    pub module: Option<Module>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("name", &self.inner.name)
            .field("entry_points", &self.inner.entry_points)
            .field("constants", &self.constants())
            .finish_non_exhaustive()
    }
}

/// A name that the check for grammar declares twice.
const TWICE: &str = "tombolo_declared_twice";

impl Program {
    /// The limits of a text.
    pub const LIMITS: TextLimits = text_limits::LIMITS;

    /// Reads a program. `name` is for messages, usually a file name.
    ///
    /// # Errors
    /// [`KernelError::Syntax`], [`KernelError::Type`] and [`KernelError::Validation`] for faults in the text,
    /// [`KernelError::Print`] and [`KernelError::Pointer`] for what is not WGSL but a convention of the runtime,
    /// [`KernelError::TooComplex`] for a text beyond [`Program::LIMITS`]; [`KernelError::Internal`] where the system
    /// has no thread for the reading. Faults dependent on the size of private arrays are judged when the sizes are
    /// known.
    pub fn new(name: impl Into<String>, source: impl Into<Arc<str>>) -> Result<Self, KernelError> {
        Self::builder().source(name, source).build()
    }

    /// Reads the text of the files, for a program that may call functions of the host or of a server.
    pub(crate) fn assembled(
        (source, files): (Arc<str>, Files),
        prefix: Arc<str>,
        calls: &CallSet,
    ) -> Result<Self, KernelError> {
        let program = files.name().to_owned();
        on_deep_stack(&program, move || Self::read(files, source, prefix, calls))
    }

    fn read(
        files: Files,
        source: Arc<str>,
        prefix: Arc<str>,
        calls: &CallSet,
    ) -> Result<Self, KernelError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let name = files.name().to_owned();
        let unchanged = EditedText::unchanged(Arc::clone(&source));
        let reporter = Reporter {
            files: &files,
            text: &unchanged,
        };
        let too_complex = |excess: Excess| reporter.excess(excess);
        text_limits::check_length(source.len()).map_err(too_complex)?;
        let stream = TokenStream::new(&source);
        text_limits::check_tokens(&stream).map_err(too_complex)?;
        text_limits::check_depth(&stream).map_err(too_complex)?;
        drop(stream);
        let mut analysis = Analysis::new(&source);
        text_limits::check_declarations(&analysis.declarations).map_err(too_complex)?;
        if let Some(excess) = analysis.excess() {
            return Err(too_complex(excess));
        }
        if let Some(mistake) = super::usm::mistake(&source) {
            let labels = vec![(mistake.place, String::new())];
            let notes = vec![mistake.instead];
            let message = mistake.message.to_owned();
            return Err(KernelError::Syntax(reporter.at(message, labels, notes)));
        }
        let prints = prints(&source, calls).map_err(|error| {
            let labels = vec![(error.place, String::new())];
            KernelError::Print(reporter.at(error.message, labels, Vec::new()))
        })?;
        if let Some(prints) = &prints {
            analysis.others.clone_from(&prints.edits);
        }
        if !calls.0.is_empty() {
            let edits = literals(&source, &analysis.others).map_err(|error| {
                let labels = vec![(error.place, String::new())];
                KernelError::Syntax(reporter.at(error.message, labels, Vec::new()))
            })?;
            analysis.others.extend(edits);
        }
        let pointers = appendix(&source);
        let calls = call_appendix(&name, &source, &analysis, calls)?;
        let cancelled = served::cancelled(&source);
        let has_additions = pointers.is_some() || calls.is_some() || cancelled.is_some();
        let changed = analysis.uses_conventions() || has_additions;
        let module = match changed {
            true => {
                check_grammar(&files, &source, &analysis)?;
                None
            }
            false => {
                let mut module = match parse(&source) {
                    Ok(module) => module,
                    Err(error) => {
                        check_grammar(&files, &source, &analysis)?;
                        return Err(KernelError::Type(reporter.parse_error(&error)));
                    }
                };
                text_limits::check_types(&module).map_err(too_complex)?;
                lower_spans(&mut module, reporter, false)?;
                mark_globals(&mut module, reporter)?;
                validator(Capabilities::all())
                    .validate(&module)
                    .map_err(|e| KernelError::Validation(reporter.validation_error(&e)))?;
                Some(module)
            }
        };
        let evaluator = Evaluator::new(&files, &source, &analysis).map_err(KernelError::Type)?;
        let (declared, declaration_of) = declare(&files, &analysis, &evaluator);
        let entries = analysis.declarations.iter().filter(|d| d.entry.is_some());
        let inner = Inner {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            hash: fnv1a(source.as_bytes()),
            entry_points: entries.map(|d| d.name.clone()).collect(),
            name,
            source,
            files,
            global_prefix: prefix,
            extends: None,
            analysis,
            pointers,
            prints,
            cancelled,
            calls,
            evaluator,
            declared,
            declaration_of,
            module,
        };
        if inner.module.is_none() {
            inner.check_early()?;
        }
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its text.
    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// The demands on a launch of the entry point `entry`, specialized with `constants`. Needs no
    /// device: every feature of WGSL counts as available.
    ///
    /// # Errors
    /// [`KernelError`] as for a kernel, the limits of devices apart.
    pub fn interface(&self, entry: &str, constants: &Constants) -> Result<Interface, KernelError> {
        let heap = HeapSetup::default();
        let capabilities = Capabilities::all();
        on_deep_stack(self.name(), || {
            let special = specialize(self, entry, constants, None, capabilities, u64::MAX, &heap)?;
            Ok(special.interface)
        })
    }

    /// The identity of the program's device globals of image scope.
    pub(crate) fn identity(&self) -> ModuleIdentity {
        ModuleIdentity {
            name: self.name().into(),
            source: match &self.inner.extends {
                Some(source) => Arc::clone(source),
                None => self.source_text(),
            },
            prefix: Arc::clone(&self.inner.global_prefix),
        }
    }

    /// The identity of its modules: the text, and the text appended for calls of the host.
    pub(crate) fn source_text(&self) -> Arc<str> {
        match &self.inner.calls {
            Some(calls) => format!("{}{}", self.inner.source, calls.text).into(),
            None => Arc::clone(&self.inner.source),
        }
    }

    /// The names of its compute entry points, in the order of declaration.
    pub fn entry_points(&self) -> &[String] {
        &self.inner.entry_points
    }

    /// Its specialization constants, in the order of declaration.
    pub fn constants(&self) -> &[ConstantInfo] {
        self.inner.declared.infos()
    }

    /// A number unique among the programs of this process.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// A hash of the text that is the same in every process (64-bit FNV-1a).
    pub fn source_hash(&self) -> u64 {
        self.inner.hash
    }

    /// The key for caching anything made of this program with `constants`.
    ///
    /// # Errors
    /// Those of the check of the constants against the program.
    pub(crate) fn key(&self, constants: &Constants) -> Result<SpecKey, KernelError> {
        self.inner.declared.key(&self.inner.name, constants)
    }
}

/// The first bind group that a text does not mention.
pub(crate) fn free_group(source: &str) -> u32 {
    let stream = TokenStream::new(source);
    let number = |text: &'_ str| {
        let digits = text.trim_end_matches(['u', 'i']);
        digits.parse::<u32>().ok()
    };
    let mentioned: HashSet<u32> = (2..stream.len())
        .filter(|&at| stream.text(at - 2) == "group" && stream.text(at - 1) == "(")
        .filter_map(|at| number(stream.text(at)))
        .collect();
    (0..u32::MAX)
        .find(|group| !mentioned.contains(group))
        .unwrap_or(0)
}

/// 64-bit FNV-1a.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| {
        (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Reports faults of grammar alone. naga parses a whole text before looking at names, and looks for names declared
/// twice before anything else: so a text ending in such a pair, and failing for no other reason, is grammatical,
/// whatever other faults it has.
fn check_grammar(files: &Files, source: &Arc<str>, analysis: &Analysis) -> Result<(), KernelError> {
    let mut edited = analysis.assemble(source, |_| true, |_| None, |_| None);
    let reporter_text = edited.clone();
    let pair = format!("\nconst {TWICE} = 0;\nconst {TWICE} = 0;\n");
    edited = EditedText::unchanged(format!("{}{pair}", edited.text()).into());
    match parse(edited.text()) {
        Err(error) if !error.message().contains(TWICE) => {
            let reporter = Reporter {
                files,
                text: &reporter_text,
            };
            let diagnostic = reporter.parse_error(&error);
            Err(match error.message().starts_with("redefinition") {
                true => KernelError::Type(diagnostic),
                false => KernelError::Syntax(diagnostic),
            })
        }
        _ => Ok(()),
    }
}

/// The parts of the program for calls of the host. The types in the signatures are the program's: laid out with the
/// program's types around them, and nothing else of the program, since the calls have no meaning yet.
fn call_appendix(
    name: &str,
    source: &Arc<str>,
    analysis: &Analysis,
    calls: &CallSet,
) -> Result<Option<CallAppendix>, KernelError> {
    if calls.0.is_empty() {
        return Ok(None);
    }
    let parse = |types: &str| parse_types(source, analysis, types);
    wgsl::appendix(name, source, calls, parse).map_err(|Fault { function, why }| {
        let program = name.to_owned();
        match why {
            FaultKind::Words(why) => KernelError::HostCall {
                program,
                function,
                why,
            },
            FaultKind::Layout(value, difference) => KernelError::HostCallLayout {
                function,
                value,
                difference,
            },
        }
    })
}

/// The constants of a program, and per constant its declaration.
fn declare(files: &Files, analysis: &Analysis, evaluator: &Evaluator) -> (Declared, Vec<usize>) {
    let (mut infos, mut plain, mut declaration_of) = (Vec::new(), Vec::new(), Vec::new());
    let defaults = evaluator.values(&PipelineConstants::default());
    for (index, declaration) in analysis.declarations.iter().enumerate() {
        let Some(ty) = evaluator
            .ty(index)
            .filter(|_| declaration.kind == DeclarationKind::Override)
        else {
            continue;
        };
        infos.push(ConstantInfo {
            name: declaration.name.clone(),
            id: evaluator.id(index),
            ty,
            default: defaults.get(index).ok(),
            has_initializer: declaration.initialized,
            sizes_private_array: analysis.is_sizing(index),
            line: files.line(declaration.name_span.start),
        });
        plain.push(
            !declaration
                .references
                .iter()
                .any(|r| analysis.overridden.get(r.target) == Some(&true)),
        );
        declaration_of.push(index);
    }
    (Declared::new(infos, plain), declaration_of)
}

#[cfg(test)]
mod tests;
