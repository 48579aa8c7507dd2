//! Generated programs on the interpreter, and the comparison of anybody's results with its.

use std::collections::BTreeMap;
use std::fmt;

use crate::fault::Fault;
use crate::generate::ast::Program;
use crate::generate::print::{APPROXIMATE, OUT_WORDS, SCRATCH};
use crate::interpret::{Bindings, Detect, Dispatch, Options, Order, Outcome, Prepared};
use crate::report::FindingKind;
use crate::source;

/// Invocations of a subgroup, as on this project's own adapter.
const SUBGROUP_SIZE: u32 = 8;

/// What buffers hold before a run, where nothing is expected: results that are not written show.
const POISON: u8 = 0xa5;

/// A program that can be run anywhere.
#[derive(Clone, Debug)]
pub struct Case {
    /// WGSL with entry point `main`.
    pub text: String,
    /// Contents of the buffers of group 0: input, output, atomic cells, approximate results, scratch.
    pub buffers: Vec<Vec<u8>>,
    pub workgroups: u32,
}

/// Where [`Case::buffers`] are compared within bounds.
const APPROXIMATE_BUFFER: usize = 3;
/// Where [`Case::buffers`] hold the input, which nobody changes.
const INPUT_BUFFER: usize = 0;

/// Why the interpreter has no result: a fault of the generator or of the interpreter itself.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    #[error("naga refuses the program: {0}")]
    Invalid(#[from] source::Invalid),
    #[error("the program does not run: {0}")]
    Fault(#[from] Fault),
    #[error("the program is not what it should be: {0}")]
    Finding(String),
    #[error("the order of invocations shows in buffer {buffer}")]
    Order { buffer: usize },
}

/// A result that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    pub buffer: usize,
    /// In words from the buffer's beginning.
    pub word: usize,
    pub expected: u32,
    pub got: u32,
    /// How many words differ in all buffers.
    pub count: usize,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference {
            buffer,
            word,
            expected,
            got,
            count,
        } = self;
        let name = ["input", "output", "cells", "approximate", "scratch"]
            .get(*buffer)
            .unwrap_or(&"a buffer");
        match *buffer == APPROXIMATE_BUFFER {
            true => write!(
                formatter,
                "{name}[{word}] is {}, not {}",
                f32::from_bits(*got),
                f32::from_bits(*expected)
            )?,
            false => write!(formatter, "{name}[{word}] is {got:#x}, not {expected:#x}")?,
        }
        write!(formatter, " ({count} words differ)")
    }
}

impl Case {
    /// The text of a program and what it is given.
    pub fn new(program: &Program) -> Case {
        let invocations = (program.workgroup_size * program.workgroups) as usize;
        let words = |words: &[u32]| {
            words
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect::<Vec<u8>>()
        };
        let poisoned =
            |per_invocation: u32| vec![POISON; 4 * per_invocation as usize * invocations];
        // Cells of `atomicMin` and `atomicAnd` begin with all bits.
        let cells = [0, 0, u32::MAX, 0, u32::MAX, 0, 0, 0];
        let scratch: Vec<u32> = (0..SCRATCH * invocations as u32)
            .map(|index| index.wrapping_mul(2_654_435_761))
            .collect();
        Case {
            text: program.text(),
            buffers: vec![
                words(&program.input),
                poisoned(OUT_WORDS),
                words(&cells),
                poisoned(APPROXIMATE),
                words(&scratch),
            ],
            workgroups: program.workgroups,
        }
    }

    /// Runs the program on the interpreter.
    ///
    /// # Errors
    /// If the program is not valid or does not run.
    pub fn interpret(&self, options: Options) -> Result<(Vec<Vec<u8>>, Outcome), Unusable> {
        let module = source::parse(&self.text)?;
        let prepared = Prepared::new(&module, "main", &BTreeMap::new())?;
        Ok(self.dispatch(&prepared, options)?)
    }

    fn dispatch(
        &self,
        prepared: &Prepared<'_>,
        options: Options,
    ) -> Result<(Vec<Vec<u8>>, Outcome), Fault> {
        let options = Options {
            subgroup_size: SUBGROUP_SIZE,
            ..options
        };
        let mut bindings = Bindings::default();
        for (binding, contents) in self.buffers.iter().enumerate() {
            bindings.bind(0, binding as u32, contents.clone());
        }
        let outcome = Dispatch::new(prepared, [self.workgroups, 1, 1])
            .options(options)
            .run(&mut bindings)?;
        Ok((bindings.buffers, outcome))
    }

    /// Runs the program on the interpreter, once for what it does and in several orders of invocations.
    /// Returns the results that everybody has to have.
    ///
    /// # Errors
    /// If the program is not what generated programs have to be: free of races and of accesses out of
    /// range, and with one result.
    pub fn expected(&self) -> Result<Vec<Vec<u8>>, Unusable> {
        let module = source::parse(&self.text)?;
        let prepared = Prepared::new(&module, "main", &BTreeMap::new())?;
        // Unwritten variables are zero, which programs may rely on.
        let detect = Detect {
            uninitialized: false,
            // What is read from an invocation that takes no part is the reader's own, wherever such programs run.
            inactive_lanes: false,
            ..Detect::ALL
        };
        let options = Options {
            detect,
            ..Options::default()
        };
        let (expected, outcome) = self.dispatch(&prepared, options)?;
        if let Some(finding) = outcome.findings.first() {
            let kind = match finding.kind {
                FindingKind::Race { .. } => "a race",
                FindingKind::OutOfRange { .. } => "an access out of range",
                _ => "a finding",
            };
            let line = crate::report::describe_site(&finding.site, &module, "main", &self.text);
            return Err(Unusable::Finding(format!(
                "{kind} of {:?} at {line}",
                finding.variable
            )));
        }
        for order in [Order::Descending, Order::Shuffled(1)] {
            let options = Options {
                order,
                ..Options::default()
            };
            let (other, _) = self.dispatch(&prepared, options)?;
            if let Some(buffer) = expected.iter().zip(&other).position(|(a, b)| a != b) {
                return Err(Unusable::Order { buffer });
            }
        }
        Ok(expected)
    }

    /// Compares results with the expected ones.
    pub fn compare(&self, expected: &[Vec<u8>], got: &[Vec<u8>]) -> Option<Difference> {
        let mut first: Option<Difference> = None;
        let mut count = 0;
        for (buffer, (expected, got)) in expected.iter().zip(got).enumerate() {
            if buffer == INPUT_BUFFER {
                continue;
            }
            for (word, (expected, got)) in expected
                .chunks_exact(4)
                .zip(got.chunks_exact(4))
                .enumerate()
            {
                let word_of =
                    |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                let (expected, got) = (word_of(expected), word_of(got));
                let right =
                    expected == got || buffer == APPROXIMATE_BUFFER && is_close(expected, got);
                if !right {
                    count += 1;
                    first.get_or_insert(Difference {
                        buffer,
                        word,
                        expected,
                        got,
                        count: 0,
                    });
                }
            }
        }
        first.map(|difference| Difference {
            count,
            ..difference
        })
    }
}

/// Within what WGSL's accuracy table allows the forms that programs use, and some more.
fn is_close(expected: u32, got: u32) -> bool {
    let (expected, got) = (f32::from_bits(expected), f32::from_bits(got));
    (expected - got).abs() <= 4e-3 * (1.0 + expected.abs())
}
