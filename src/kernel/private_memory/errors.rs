//! The errors of sizes in private memory: which array, how large, and what to do.

use naga::front::wgsl::ParseError;

use super::{Sizes, TYPE_BOUND};
use crate::kernel::diagnostic::Reporter;
use crate::kernel::error::KernelError;
use crate::kernel::passes::spill::Largest;
use crate::kernel::walk::ArrayUse;

impl Sizes<'_> {
    pub(super) fn bad_length(
        &self,
        array: &ArrayUse,
        length: Option<i128>,
        why: Option<String>,
    ) -> KernelError {
        let function = self.inner.analysis.function(array.declaration);
        let found = match (length, why) {
            (Some(length), _) => format!("is {length}"),
            (None, Some(why)) => format!("has no value: {why}"),
            (None, None) => "is not positive".to_owned(),
        };
        let message = format!(
            "the length of the array `{}`{} {found}",
            self.owner(array),
            within(&function)
        );
        let set = array.mentions.iter().filter_map(|&m| {
            let name = &self.inner.analysis.get(m)?.name;
            Some(format!("`{name}` is {}", self.values.sizing(m)?))
        });
        let mut notes = vec![
            "an array needs at least one element: set the constants that size it accordingly"
                .to_owned(),
        ];
        notes.extend(set);
        let label = vec![(array.length.clone(), "must be at least 1".to_owned())];
        let diagnostic = self.reporter.at(message, label, notes);
        KernelError::PrivateArrayLength {
            array: self.owner(array).to_owned(),
            function,
            length,
            diagnostic,
        }
    }

    pub(super) fn too_large(
        &self,
        array: &str,
        function: Option<String>,
        bytes: u64,
        total: u64,
        limit: u64,
        place: Vec<(std::ops::Range<usize>, String)>,
    ) -> KernelError {
        let message = format!(
            "the array `{array}`{} takes {bytes} bytes of private memory{}, and the limit is {limit}",
            within(&function),
            if total == bytes {
                String::new()
            } else {
                format!(", all such arrays together {total}")
            },
        );
        let mut notes =
            vec![
                "every invocation has its own copy; make it shorter, use a buffer, or let it spill (SpillPolicy::Auto)"
                    .to_owned(),
            ];
        if bytes > TYPE_BOUND {
            notes.push("unsigned arithmetic wraps around: a length that should be negative comes out large".to_owned());
        }
        let diagnostic = self.reporter.at(message, place, notes);
        KernelError::PrivateArrayTooLarge {
            array: array.to_owned(),
            function,
            bytes,
            total,
            limit,
            diagnostic,
        }
    }

    /// The message of naga's front end; for an array's length, in our words.
    pub fn parse_error(&self, error: &ParseError) -> KernelError {
        let place = error
            .labels()
            .next()
            .and_then(|(span, _)| self.reporter.back(span));
        let is_length = |a: &&ArrayUse| {
            place.as_ref().is_some_and(|p| {
                a.length.start <= p.start && p.end <= a.length.end && p.start < p.end
            })
        };
        let positive = error.message().contains("must be positive");
        match self.inner.analysis.arrays.iter().find(is_length) {
            Some(array) if positive => self.bad_length(array, None, None),
            Some(array) if error.message().contains("overflow") => {
                self.bad_length(array, None, Some(error.message().to_owned()))
            }
            _ => KernelError::Type(self.reporter.parse_error(error)),
        }
    }
}

/// Refuses arrays that a work-group has no scratch memory for: `bytes` of an invocation, of at most `limit`.
pub(crate) fn scratch_too_large(
    reporter: &Reporter<'_>,
    largest: Largest,
    bytes: u64,
    limit: u64,
) -> KernelError {
    let Largest {
        name,
        function,
        bytes: own,
        span,
    } = largest;
    let message = format!(
        "the array `{name}`{} takes {own} bytes, all arrays of an invocation together {bytes} bytes of scratch memory, and \
         the limit is {limit}",
        within(&function)
    );
    let place = reporter
        .back(span)
        .map(|range| (range, format!("{own} bytes")));
    let notes = vec![
        "the invocations of a work-group have their scratch memory at the same time: make the work-group smaller or the \
         array shorter, or raise DeviceOptions::scratch_bytes where that is what limits it"
            .to_owned(),
    ];
    KernelError::PrivateArrayTooLarge {
        array: name,
        function,
        bytes: own,
        total: bytes,
        limit,
        diagnostic: reporter.at(message, place.into_iter().collect(), notes),
    }
}

pub(super) fn within(function: &Option<String>) -> String {
    function
        .as_ref()
        .map_or_else(String::new, |f| format!(" in `{f}`"))
}
