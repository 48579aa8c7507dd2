//! Whether the invocations of a work-group come to the same barriers.
//!
//! *How it works.* Every invocation runs up to a barrier or to its end: a *round*. A round is over when all have come somewhere.
//! All must be at a common barrier, or all at their ends.

/// A barrier with a waiting invocation: the site and the invocation.
pub(super) type Waiting = (u32, u32);

/// The round of a work-group.
#[derive(Default)]
pub(super) struct Round {
    /// The first waiting invocation
    first: Option<Waiting>,
    waiting: u32,
    ended: u32,
    last_ended: Option<u32>,
}

/// Insights from an event.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Shown {
    /// A waiting invocation, and another invocation waiting elsewhere or (`None`) ended
    pub(super) apart: Option<(Waiting, (Option<u32>, u32))>,
    /// The barrier passed at the end of the round
    pub(super) passed: Option<u32>,
}

impl Round {
    /// An invocation waits at a site.
    pub(super) fn wait(&mut self, site: u32, invocation: u32, of: u32) -> Shown {
        self.waiting += 1;
        let &mut (first_site, first) = self.first.get_or_insert((site, invocation));
        let mut shown = self.close(of);
        if first_site != site {
            shown.apart = Some(((site, invocation), (Some(first_site), first)));
        }
        shown
    }

    /// An invocation has ended.
    pub(super) fn end(&mut self, invocation: u32, of: u32) -> Shown {
        self.ended += 1;
        self.last_ended = Some(invocation);
        self.close(of)
    }

    /// Ends the round, if all of `of` invocations have come somewhere.
    fn close(&mut self, of: u32) -> Shown {
        if self.waiting + self.ended < of {
            return Shown::default();
        }
        self.waiting = 0;
        let first = self.first.take();
        let ended = self.last_ended.map(|invocation| (None, invocation));
        Shown {
            apart: first.zip(ended),
            passed: first.map(|(site, _)| site),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_end_when_all_have_come_somewhere() {
        let mut round = Round::default();
        assert_eq!(round.wait(5, 0, 3), Shown::default());
        assert_eq!(round.wait(5, 1, 3), Shown::default());
        let passed = Shown {
            apart: None,
            passed: Some(5),
        };
        assert_eq!(round.wait(5, 2, 3), passed);
        round.wait(6, 0, 3);
        assert_eq!(round.wait(7, 1, 3).apart, Some(((7, 1), (Some(6), 0))));
        // The others still wait at the end of an invocation.
        let shown = round.end(2, 3);
        assert_eq!(shown.apart, Some(((6, 0), (None, 2))));
        assert_eq!(round.end(0, 3), Shown::default());
        assert_eq!(round.end(1, 3), Shown::default());
    }
}
