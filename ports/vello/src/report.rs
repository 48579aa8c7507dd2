//! What was compared, line by line, and whether all of it holds.

use crate::compare::Comparison;
use crate::picture::Difference;

/// How far two pictures may be apart.
#[derive(Clone, Copy)]
pub struct Limits {
    /// The mean difference of all channels, of 255.
    mean: f64,
    /// The same of the block where it is largest.
    worst: f64,
}

/// The same shaders on the same device: only the order of sums may differ.
pub const SAME: Limits = Limits {
    mean: 0.01,
    worst: 0.1,
};
/// The same shaders on devices that round in other ways.
pub const AMONG_ADAPTERS: Limits = Limits {
    mean: 0.05,
    worst: 2.0,
};
/// Another algorithm for edges, strokes and gradients.
pub const OTHER_ALGORITHM: Limits = Limits {
    mean: 0.6,
    worst: 5.0,
};

impl Limits {
    fn hold(self, apart: Difference) -> bool {
        apart.mean <= self.mean && apart.worst <= self.worst
    }
}

/// The lines so far.
#[derive(Default)]
pub struct Report {
    count: usize,
    failed: usize,
}

impl Report {
    /// One line.
    pub fn that(&mut self, what: &str, holds: bool, found: impl std::fmt::Display) {
        self.count += 1;
        self.failed += usize::from(!holds);
        let verdict = if holds { "ok" } else { "FAILED" };
        println!("  {verdict} {what}: {found}");
    }

    /// A line for each comparison of stages.
    pub fn stages(&mut self, comparisons: &[Comparison]) {
        for one in comparisons {
            let found = format!("{} of {} differ", one.differ, one.count);
            self.that(one.what, one.holds(), found);
        }
    }

    /// Comparisons of stages of which one at least must not hold.
    pub fn stages_differ(&mut self, comparisons: &[Comparison]) {
        let differ = comparisons.iter().filter(|one| !one.holds()).count();
        let found = format!("noticed by {differ} comparisons");
        self.that("a thing elsewhere in the scene", differ > 0, found);
    }

    /// A line for two pictures.
    pub fn picture(&mut self, what: &str, apart: Difference, limits: Limits) {
        let found = describe(apart);
        self.that(what, limits.hold(apart), found);
    }

    /// Two pictures that must not be the same.
    pub fn picture_differs(&mut self, apart: Difference, limits: Limits) {
        let what = "a thing elsewhere in the picture";
        self.that(what, !limits.hold(apart), describe(apart));
    }

    /// The last line; whether all held.
    pub fn finish(&self) -> bool {
        println!(
            "\n{} of {} comparisons hold",
            self.count - self.failed,
            self.count
        );
        self.failed == 0
    }
}

fn describe(apart: Difference) -> String {
    let Difference {
        largest,
        visible,
        mean,
        worst,
    } = apart;
    format!(
        "largest {largest}, mean {mean:.3}, {worst:.2} in the worst block, {visible} pixels visibly"
    )
}
