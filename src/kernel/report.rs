//! Reports of a kernel: the verdict of a launch from its status record, and the printing places of a kernel.

use std::sync::Arc;

use super::calls::CallSet;
use super::edit::EditedText;
use super::files::Files;
use super::passes::loop_guard::LoopGuard;
use super::passes::pointers::{FaultReason, PointerFacts};
use super::passes::print::PrintFacts;
use super::passes::status::{CALL, LOOP_GUARD, POINTER, SPAN, SPAN_CLAIM};
use super::print::{Prints, TextSite};
use crate::device::CallStatus;
#[cfg(embedded)]
use crate::device::TextPosition;
use crate::device::outcome::ExecutionError;
use crate::device::queue::Decoder;
use crate::device::status::Record;
use crate::print::record::{Site, Sites};
use crate::print::value::ValueType;

/// Turns a status record into the launch's verdict.
#[derive(Clone)]
pub(crate) struct Report(pub(crate) Decoder);

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Report")
    }
}

/// The user's text, for places inside.
#[derive(Debug)]
pub(crate) struct Places {
    pub(super) kernel: String,
    pub(super) text: EditedText,
    pub(super) files: Files,
}

/// A place in the user's text, as errors report it.
pub(super) struct Position {
    file: String,
    line: u32,
    column: u32,
    /// The line with a marker.
    excerpt: String,
}

impl Places {
    /// The place of bytes of the compiled text; the text's start for what is not in the text.
    #[cfg(embedded)]
    pub(crate) fn position(&self, range: Option<std::ops::Range<usize>>) -> TextPosition {
        let at = range.map_or(0, |range| self.text.to_original(range).start);
        let Position {
            file,
            line,
            column,
            excerpt,
        } = self.at(at);
        TextPosition {
            file,
            line,
            column,
            excerpt,
        }
    }

    /// The place of bytes of the compiled text; `None` for what the runtime has added.
    #[cfg(embedded)]
    pub(crate) fn own_position(&self, range: std::ops::Range<usize>) -> Option<TextPosition> {
        let own = !self.text.to_original(range.clone()).is_empty();
        own.then(|| self.position(Some(range)))
    }

    /// The place of a span of the compiled text.
    fn of(&self, span: Option<naga::Span>) -> Position {
        let at = span
            .and_then(naga::Span::to_range)
            .map_or(0, |range| self.text.to_original(range).start);
        self.at(at)
    }

    /// The same for a byte of the user's text.
    fn at(&self, at: usize) -> Position {
        let (file, at) = self.files.find(at);
        let (line, column) = file.place(at);
        Position {
            file: file.name.clone(),
            line,
            column,
            excerpt: file.excerpt(at),
        }
    }
}

/// The verdict of a record, from the additions of the passes to the kernel.
pub(super) fn report(
    places: Arc<Places>,
    guard: Option<(LoopGuard, u32)>,
    pointers: Option<PointerFacts>,
    calls: Option<CallSet>,
    span_sites: Vec<naga::Span>,
) -> Report {
    let asks = (pointers.as_ref()).is_some_and(|facts| facts.tables != (0, false));
    let system = (pointers.as_ref()).is_some_and(|facts| facts.system);
    Report(Arc::new(move |record: &Record| {
        let faults = pointers.as_ref().and_then(|facts| {
            let words = record.get(POINTER.start as usize..POINTER.end as usize)?;
            facts.fault(words.try_into().ok()?)
        });
        if let Some(fault) = faults {
            let at = places.of(fault.site.map(|site| site.span));
            return Err(ExecutionError::Pointer {
                kernel: places.kernel.clone(),
                file: at.file.into(),
                line: at.line,
                column: at.column,
                reason: match fault.reason {
                    FaultReason::Null => "a null pointer was followed",
                    FaultReason::Misaligned => "a misaligned pointer was followed",
                    FaultReason::Outside if asks => {
                        "a pointer into no live allocation was followed"
                    }
                    FaultReason::Outside if system => {
                        "a pointer to memory that is not lent to the launch was followed"
                    }
                    FaultReason::Outside => "a pointer out of the heap was followed",
                    FaultReason::ReadOnly => "memory lent for reading was written",
                    FaultReason::Index => "an index behind a pointer was beyond its array",
                },
                address: fault.address,
                found: Arc::default(),
                pointee: fault.site.map_or("", |site| site.pointee.as_str()).into(),
                invocation: fault.invocation,
                excerpt: at.excerpt.into(),
            });
        }
        if record[SPAN_CLAIM as usize] != 0 {
            let [code, index, length] = [0, 1, 2].map(|word| record[(SPAN.start + word) as usize]);
            let site = (code as usize)
                .checked_sub(1)
                .and_then(|at| span_sites.get(at));
            let at = places.of(site.copied());
            return Err(ExecutionError::SpanIndex {
                kernel: places.kernel.clone(),
                file: at.file.into(),
                line: at.line,
                column: at.column,
                index,
                length,
                excerpt: at.excerpt.into(),
            });
        }
        let code = record[LOOP_GUARD as usize];
        let call = record[CALL as usize];
        if let (Some(calls), 0, 1..) = (&calls, code, call) {
            let called = calls.0.get((call as u16 as usize).wrapping_sub(1));
            return Err(ExecutionError::CallFailed {
                kernel: places.kernel.clone(),
                function: called.map_or_else(String::new, |call| call.signature.name.clone()),
                status: CallStatus::from_code(call >> 16),
            });
        }
        match &guard {
            Some((guard, budget)) if code != 0 => {
                let site = guard.site_for_code(code);
                let at = places.of(site.map(|site| site.span));
                Err(ExecutionError::LoopCut {
                    kernel: places.kernel.clone(),
                    file: at.file,
                    line: at.line,
                    column: at.column,
                    budget: *budget,
                    excerpt: at.excerpt,
                })
            }
            _ => Ok(()),
        }
    }))
}

/// The printing places of the kernel, with the results of its specialization.
pub(super) fn sites(places: &Places, prints: &Prints, facts: PrintFacts) -> Sites {
    let site = |(text, arguments): (&TextSite, Option<Vec<ValueType>>)| {
        let at = places.at(text.place.start);
        Some(Site {
            file: at.file.into(),
            kind: text.kind,
            line: at.line,
            column: at.column,
            excerpt: at.excerpt,
            template: text.template.clone(),
            arguments: arguments?,
        })
    };
    Sites {
        kernel: places.kernel.clone(),
        sites: prints.sites.iter().zip(facts.arguments).map(site).collect(),
    }
}
