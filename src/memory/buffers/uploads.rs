//! The uploads of a plan: its copies to one device, joined where they go the same way.

use std::ops::Range;

use super::exchange::MOST_BYTES;
use crate::memory::migrate::{Place, Places, Plan, Route};

/// Bytes of one buffer on one way to a device.
pub(super) struct Upload {
    pub(super) way: Way,
    pub(super) range: Range<u64>,
}

#[derive(PartialEq, Clone, Copy)]
pub(super) enum Way {
    /// From the host's memory.
    Host,
    /// From a device, through copies of the host.
    Through(Place),
    /// From a device, through memory seen by both.
    Exchange(Place),
}

/// The plan's uploads to `memory`, the memory of one place or several, in pieces as long as possible.
pub(super) fn uploads(plan: &Plan, memory: Places) -> Vec<Upload> {
    let mut uploads: Vec<Upload> = Vec::new();
    for step in &plan.steps {
        if !memory.contains(step.to) {
            continue;
        }
        let way = match (step.after, step.route) {
            (Some(earlier), _) => Way::Through(plan.steps[earlier].from),
            _ if step.from.is_host() => Way::Host,
            (None, Route::SharedHost) => Way::Exchange(step.from),
            (None, _) => Way::Through(step.from),
        };
        let most = match way {
            Way::Exchange(_) => MOST_BYTES,
            _ => u64::MAX,
        };
        match uploads.last_mut() {
            Some(last)
                if last.way == way
                    && last.range.end == step.range.start
                    && step.range.end - last.range.start <= most =>
            {
                last.range.end = step.range.end;
            }
            _ => {
                let mut start = step.range.start;
                while start < step.range.end {
                    let end = (step.range.end).min(start.saturating_add(most) / 4 * 4);
                    let end = if end <= start { step.range.end } else { end };
                    uploads.push(Upload {
                        way,
                        range: start..end,
                    });
                    start = end;
                }
            }
        }
    }
    uploads
}
