//! The steps of a plan and their reasons, for people.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::plan::{Avoided, Plan, Why};
use super::{Access, Held, Place, Route};

/// A copy of a plan, or the chunks of one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Movement {
    /// Where the bytes are read.
    pub from: Place,
    /// Their target.
    pub to: Place,
    /// Bytes of the root buffer.
    pub range: Range<u64>,
    /// Their way.
    pub route: Route,
    /// Their purpose.
    pub why: Why,
    /// In how many chunks.
    pub chunks: usize,
}

/// The movements of a plan, from where to where and why, and the avoided ones: as data and, with `Display`, as text of
/// a line for each movement.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The movements, in order.
    pub movements: Vec<Movement>,
    /// Bytes that move, each hop counted.
    pub moved: u64,
    /// Bytes that were wanted and need not move.
    pub avoided: Avoided,
    /// Bytes that would move if buffers were always moved whole.
    pub whole_buffer: u64,
    /// The mentioned places, with the caller's names.
    names: Vec<(Place, Arc<str>)>,
}

impl Plan {
    /// Explains the plan; `name` gives the names of places.
    #[must_use]
    pub fn explain<N: Into<Arc<str>>>(&self, mut name: impl FnMut(Place) -> N) -> Explanation {
        let mut movements: Vec<Movement> = Vec::new();
        for step in &self.steps {
            let same = movements.iter_mut().rev().find(|movement| {
                movement.range.end == step.range.start
                    && (movement.from, movement.to, movement.route)
                        == (step.from, step.to, step.route)
                    && movement.why.and(step.why).is_some()
            });
            match same {
                Some(movement) => {
                    movement.range.end = step.range.end;
                    movement.why = movement.why.and(step.why).unwrap_or(step.why);
                    movement.chunks += 1;
                }
                None => movements.push(Movement {
                    from: step.from,
                    to: step.to,
                    range: step.range.clone(),
                    route: step.route,
                    why: step.why,
                    chunks: 1,
                }),
            }
        }
        let mut names: Vec<(Place, Arc<str>)> = Vec::new();
        for movement in &movements {
            let reason = match movement.why {
                Why::Wanted { at, .. } => at,
                Why::Evicted { from } => from,
            };
            for place in [movement.from, movement.to, reason] {
                if names.iter().all(|(known, _)| *known != place) {
                    names.push((place, name(place).into()));
                }
            }
        }
        Explanation {
            movements,
            moved: self.moved(),
            avoided: self.avoided,
            whole_buffer: self.whole_buffer,
            names,
        }
    }
}

impl Explanation {
    fn name(&self, place: Place) -> &str {
        let named = self.names.iter().find(|(known, _)| *known == place);
        named.map_or("a place", |(_, name)| name)
    }

    fn line(&self, movement: &Movement, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = movement.range;
        write!(
            f,
            "{} bytes {start}..{end} from {} to {}",
            end - start,
            self.name(movement.from),
            self.name(movement.to),
        )?;
        match movement.route {
            Route::SameDevice => f.write_str(" on one device")?,
            Route::SharedHost => f.write_str(" by shared host memory")?,
            // One of the ends says so.
            Route::ThroughHost => {}
        }
        if movement.chunks > 1 {
            write!(f, " in {} chunks", movement.chunks)?;
        }
        match movement.why {
            Why::Evicted { from } => write!(
                f,
                ": the memory at {} is given up, and they are nowhere else",
                self.name(from)
            ),
            Why::Wanted { at, access, held } => {
                let does = match access {
                    Access::Read => "reads",
                    Access::Write => "writes some of",
                    Access::ReadWrite => "reads and writes",
                    Access::Overwrite => "overwrites",
                };
                write!(f, ": {} {does} them and ", self.name(at))?;
                match held {
                    Held::Nothing => f.write_str("never had them"),
                    Held::Behind(by) => {
                        write!(f, "is ")?;
                        versions(by, f)?;
                        f.write_str(" behind")
                    }
                    Held::Mixed(by) => {
                        f.write_str("has some of them, up to ")?;
                        versions(by, f)?;
                        f.write_str(" behind")
                    }
                    Held::Current => f.write_str("is current"),
                }
            }
        }
    }
}

fn versions(count: u8, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match count {
        1 => f.write_str("1 version"),
        15 => f.write_str("15 or more versions"),
        _ => write!(f, "{count} versions"),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for movement in &self.movements {
            self.line(movement, f)?;
            f.write_str("\n")?;
        }
        let avoided = &self.avoided;
        write!(f, "moves {} bytes, avoids {}", self.moved, avoided.total())?;
        let mut comma = " (";
        for (bytes, what) in [
            (avoided.current, "current"),
            (avoided.undefined, "undefined"),
            (avoided.overwritten, "overwritten"),
        ] {
            if bytes > 0 {
                write!(f, "{comma}{bytes} {what}")?;
                comma = ", ";
            }
        }
        if avoided.total() > 0 {
            f.write_str(")")?;
        }
        if self.whole_buffer > 0 {
            write!(
                f,
                "; buffers moved whole would take {} bytes",
                self.whole_buffer
            )?;
        }
        Ok(())
    }
}
