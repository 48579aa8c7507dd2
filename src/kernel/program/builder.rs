//! Programs of several sources, and with a program's other parts.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::{Program, free_group};
use crate::kernel::calls::CallSet;
use crate::kernel::diagnostic::Reporter;
use crate::kernel::edit::EditedText;
use crate::kernel::error::{KernelError, ProgramMistake};
use crate::kernel::files::{Files, unclosed};
use crate::kernel::text_limits::check_length;

/// A program in the making, from [`Program::builder`]. The order of the calls does not matter, but for the first source, whose
/// name is the program's.
///
/// Sources, imports, rings, queues of work and a prefix combine, and so does each of these with calls. Calls go to one side:
/// a builder takes [`services`](ProgramBuilder::services) or [`server`](ProgramBuilder::server) once, and `build` refuses a
/// second ([`ProgramMistake::TwoCallees`]); a program for each side has both called by one host.
///
/// # Several sources
/// The sources make a single program: each sees the declarations of all others, and errors give the file and the line.
/// In a program of several sources a name beginning with an underscore belongs to the name's own source, overrides and
/// entry points apart: libraries need not know each other's helpers. A device global with such a name has the file's
/// name in its own.
///
/// ```
/// use tombolo::Program;
///
/// let program = Program::builder()
///     .source("main.wgsl", "
///         const _seed = 7u;
///         @group(0) @binding(0) var<storage, read_write> values: array<u32>;
///         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
///             if id.x < arrayLength(&values) { values[id.x] = noise(id.x ^ _seed); }
///         }")
///     .source("noise.wgsl", "
///         const _seed = 0x9e3779b9u;
///         fn noise(x: u32) -> u32 { return (x ^ (x >> 15u)) * _seed; }")
///     .build()?;
/// assert_eq!(program.name(), "main.wgsl");
/// # Ok::<(), tombolo::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "nothing is read until `build` is called"]
pub struct ProgramBuilder {
    sources: Vec<(String, Arc<str>)>,
    prefix: Arc<str>,
    /// The functions called by the program, with the option's name.
    calls: Option<(&'static str, CallSet)>,
    /// Texts behind the sources.
    behind: Vec<Behind>,
    /// The first mistake, reported by `build`.
    mistake: Option<ProgramMistake>,
}

/// A text behind the sources, with a bound variable.
struct Behind {
    /// The purpose of the text: each purpose has a single text.
    purpose: String,
    /// The variable.
    variable: String,
    /// Makes the text out of the variable's attributes.
    text: TextOfBinding,
}

/// Makes a text out of the attributes of its variable.
pub(crate) type TextOfBinding = Arc<dyn Fn(&str) -> String + Send + Sync>;

impl fmt::Debug for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Behind").field(&self.variable).finish()
    }
}

impl Program {
    /// Starts a program of one or several sources.
    pub fn builder() -> ProgramBuilder {
        ProgramBuilder::default()
    }
}

/// The text of a file. Of a longer file just enough is read for a refusal by length.
fn read_within(path: &Path, limit: usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    let most = limit as u64 + 1;
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    match bytes.len() > limit {
        true => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        false => String::from_utf8(bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

/// Refuses sources too long together.
fn is_short(sources: &[(String, Arc<str>)]) -> Result<(), KernelError> {
    let lengths = sources.iter().map(|(_, source)| source.len());
    check_length(lengths.fold(0, usize::saturating_add)).map_err(|excess| {
        let name = sources.first().map_or("", |(name, _)| name);
        // The excess has no place: none of the text is looked at.
        let nothing: Arc<str> = "".into();
        let reporter = Reporter {
            files: &Files::one(name, &nothing),
            text: &EditedText::unchanged(Arc::clone(&nothing)),
        };
        reporter.excess(excess)
    })
}

/// Refuses a source running on into the next.
fn is_closed((name, source): &(String, Arc<str>)) -> Result<(), KernelError> {
    let Some((place, message)) = unclosed(source) else {
        return Ok(());
    };
    let reporter = Reporter {
        files: &Files::one(name, source),
        text: &EditedText::unchanged(Arc::clone(source)),
    };
    let labels = vec![(place, String::new())];
    Err(KernelError::Syntax(reporter.at(
        message.to_owned(),
        labels,
        Vec::new(),
    )))
}

impl ProgramBuilder {
    /// Adds a source. `name` is for messages, usually a file name. The same source added again is there once: libraries
    /// can each add their needs. A byte-order mark in front is left out.
    pub fn source(mut self, name: impl Into<String>, source: impl Into<Arc<str>>) -> Self {
        let (name, mut source) = (name.into(), source.into());
        // Some editors begin files with a byte-order mark, which is no part of a WGSL text.
        if let Some(text) = source.strip_prefix('\u{feff}') {
            source = text.into();
        }
        match self.sources.iter().find(|(known, _)| *known == name) {
            Some((_, known)) if *known == source => {}
            Some(_) => self.wrong(ProgramMistake::TwoSources { name }),
            None => self.sources.push((name, source)),
        }
        self
    }

    /// Adds the source in a file, such as a library of helpers, under the path as name; otherwise as
    /// [`ProgramBuilder::source`]. The file is read by this call, not again later: a program to travel without the
    /// files uses `source` and `include_str!`.
    ///
    /// An unreadable file is [`ProgramMistake::Unreadable`]; no more is read than [`Program::LIMITS`] allow.
    pub fn import(mut self, path: impl AsRef<Path>) -> Self {
        let name = path.as_ref().display().to_string();
        match read_within(path.as_ref(), Program::LIMITS.bytes) {
            Ok(source) => self.source(name, source),
            Err(error) => {
                let reason = error.to_string();
                self.wrong(ProgramMistake::Unreadable { name, reason });
                self
            }
        }
    }

    /// Puts a prefix before the names of the program's device globals: a variable `count` is known to the host, and to
    /// programs of the same prefix, as `<prefix>count`. So programs written apart keep variables of the same name
    /// apart.
    pub fn global_prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The functions called by the kernels, as added by `option`.
    pub(crate) fn callee(mut self, option: &'static str, calls: &CallSet) -> Self {
        match self.calls {
            Some((first, _)) => self.wrong(ProgramMistake::TwoCallees {
                first,
                second: option,
            }),
            None => self.calls = Some((option, calls.clone())),
        }
        self
    }

    /// Puts the text made by `text` with the attributes of `variable` behind the sources, in a bind group of such
    /// variables. A second text for the same purpose has to have the same variable, and is left out.
    pub(crate) fn behind(mut self, purpose: String, variable: String, text: TextOfBinding) -> Self {
        match self.behind.iter().find(|known| known.purpose == purpose) {
            Some(known) if known.variable == variable => {}
            Some(known) => {
                let [first, second] = [known.variable.clone(), variable];
                self.wrong(ProgramMistake::TwoRings { first, second });
            }
            None => self.behind.push(Behind {
                purpose,
                variable,
                text,
            }),
        }
        self
    }

    /// Notes a mistake.
    pub(crate) fn mistaken(mut self, mistake: ProgramMistake) -> Self {
        self.wrong(mistake);
        self
    }

    fn wrong(&mut self, mistake: ProgramMistake) {
        self.mistake.get_or_insert(mistake);
    }

    /// Reads the program.
    ///
    /// # Errors
    /// [`KernelError::Builder`] for contradictory options, and without a source. [`KernelError::Syntax`],
    /// [`KernelError::Type`] and [`KernelError::Validation`] for faults in the text, [`KernelError::Print`] and
    /// [`KernelError::Pointer`] for faults against conventions of the runtime beyond WGSL, [`KernelError::HostCall`]
    /// where a called function does not fit the program, [`KernelError::TooComplex`] for a text beyond
    /// [`Program::LIMITS`]; [`KernelError::Internal`] where the system has no thread for the reading. Faults dependent
    /// on the size of private arrays are judged when the sizes are known.
    pub fn build(self) -> Result<Program, KernelError> {
        let name = self.sources.first().map(|(name, _)| name.clone());
        let mistake = match &name {
            Some(_) => self.mistake,
            None => Some(self.mistake.unwrap_or(ProgramMistake::NoSource)),
        };
        if let Some(mistake) = mistake {
            return Err(KernelError::Builder {
                program: name.unwrap_or_default(),
                mistake,
            });
        }
        is_short(&self.sources)?;
        if self.sources.len() > 1 {
            self.sources.iter().try_for_each(is_closed)?;
        }
        let (source, files) = Files::join(&self.sources);
        let text = match self.behind.is_empty() {
            false => {
                let group = free_group(&source);
                let texts = self.behind.iter().enumerate().map(|(index, behind)| {
                    (behind.text)(&format!("@group({group}) @binding({index})"))
                });
                let own = texts.collect::<Vec<_>>().join("\n");
                let text: Arc<str> = format!("{source}\n{own}").into();
                let files = files.extended(&text, &own);
                (text, files)
            }
            true => (source, files),
        };
        let (_, calls) = self.calls.unwrap_or_default();
        Program::assembled(text, self.prefix, &calls)
    }
}
