//! Work on the pieces of a transfer. The thread that asks for the transfer begins and ends the pieces in order; the
//! copies in between are made by the same thread and, on a machine with more processors than the device needs, by
//! helpers. Helpers touch only the bytes: callbacks of the program run on the caller's thread.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::thread;

use super::pieces::PIECE;
use crate::device::wait::lock;
use crate::memory::host_memory::Destination;

/// More threads do not make a copy faster: the memory is busy.
const MOST_HELPERS: usize = 7;
/// Pieces under way at a time beside the helpers': one copied by the device, one copied by the host, and one waiting.
const AHEAD: usize = 3;

/// The stages of a piece.
pub(super) trait Stages<P, E> {
    /// Begins the next piece, unless there is none.
    fn begin(&mut self) -> Result<Option<P>, E>;
    /// Waits until the piece can be worked on.
    fn ready(&mut self, piece: &P) -> Result<(), E>;
    /// Called after the work, in the order of `begin`.
    fn end(&mut self, piece: P) -> Result<(), E>;
}

/// Where a piece is.
enum Place<P> {
    Begun(P),
    /// With a helper.
    Away,
    Worked(P),
}

/// The most helper threads for a number of pieces.
pub(super) fn helpers(pieces: usize) -> usize {
    static HELPERS: OnceLock<usize> = OnceLock::new();
    let most = *HELPERS.get_or_init(|| {
        // One processor is the caller's, and one the device's: for a driver's thread, or the device itself.
        let all = thread::available_parallelism().map_or(1, usize::from);
        all.saturating_sub(2).min(MOST_HELPERS)
    });
    most.min(pieces.saturating_sub(1))
}

/// Takes every piece through its stages, with `work` in between, on the caller's thread and up to `helpers` others.
/// Pieces begun before an error are dropped after all work has ended.
///
/// # Errors
/// The first error of a stage.
pub(super) fn run<P: Send, E>(
    helpers: usize,
    stages: &mut impl Stages<P, E>,
    work: impl Fn(&mut P) + Sync,
) -> Result<(), E> {
    let (give, given) = channel();
    let (give_back, back) = channel();
    let given = Mutex::new(given);
    thread::scope(|scope| {
        let mut hands = Vec::new();
        for _ in 0..helpers {
            let (given, work, give_back) = (&given, &work, give_back.clone());
            let help = move || help(given, &give_back, work);
            // Without a thread the others do the work.
            let thread = thread::Builder::new().name("tombolo copy".into());
            hands.extend(thread.spawn_scoped(scope, help).ok());
        }
        drop(give_back);
        let pump = Pump {
            give,
            back,
            helpers: hands.len(),
            places: VecDeque::new(),
            ended: 0,
            away: 0,
        };
        pump.run(stages, &work)
    })
}

/// Waits for all pieces, which are on their way, and works on each piece on arrival.
///
/// # Errors
/// The first error.
pub(crate) fn run_all<P: Send, E: Send>(
    pieces: Vec<P>,
    arrive: impl FnMut(&P) -> Result<(), E>,
    work: impl Fn(&mut P) -> Result<(), E> + Sync,
) -> Result<(), E> {
    struct All<I, A>(I, A);
    impl<P, E, I, A> Stages<(P, Result<(), E>), E> for All<I, A>
    where
        I: Iterator<Item = P>,
        A: FnMut(&P) -> Result<(), E>,
    {
        fn begin(&mut self) -> Result<Option<(P, Result<(), E>)>, E> {
            Ok(self.0.next().map(|piece| (piece, Ok(()))))
        }

        fn ready(&mut self, (piece, _): &(P, Result<(), E>)) -> Result<(), E> {
            (self.1)(piece)
        }

        fn end(&mut self, (_, worked): (P, Result<(), E>)) -> Result<(), E> {
            worked
        }
    }
    let helpers = helpers(pieces.len());
    let mut stages = All(pieces.into_iter(), arrive);
    run(helpers, &mut stages, |(piece, worked)| {
        *worked = work(piece);
    })
}

/// Copies `bytes` to `to`, by several threads if large.
pub(crate) fn copy(bytes: &[u8], mut to: Destination<'_>) {
    if bytes.len() as u64 <= PIECE {
        return to.put(bytes);
    }
    let parts = bytes.chunks(PIECE as usize);
    let parts = parts.map(|part| (part, Some(to.split_off(part.len()))));
    let copied: Result<(), Infallible> = run_all(
        parts.collect(),
        |_| Ok(()),
        |(part, to)| {
            if let Some(to) = to.take() {
                to.put(part);
            }
            Ok(())
        },
    );
    let Ok(()) = copied;
}

/// Works on received pieces until the channel closes.
fn help<P>(
    given: &Mutex<Receiver<(usize, P)>>,
    give_back: &Sender<(usize, P)>,
    work: impl Fn(&mut P),
) {
    loop {
        let next = lock(given).recv();
        let Ok((number, mut piece)) = next else {
            return;
        };
        work(&mut piece);
        if give_back.send((number, piece)).is_err() {
            return;
        }
    }
}

struct Pump<P> {
    give: Sender<(usize, P)>,
    back: Receiver<(usize, P)>,
    helpers: usize,
    /// Pieces between `begin` and `end`, in order.
    places: VecDeque<Place<P>>,
    /// Ended pieces: the number of the first place.
    ended: usize,
    /// Pieces with helpers.
    away: usize,
}

impl<P> Pump<P> {
    fn run<E>(mut self, stages: &mut impl Stages<P, E>, work: impl Fn(&mut P)) -> Result<(), E> {
        let mut is_last = false;
        loop {
            while let Ok(worked) = self.back.try_recv() {
                self.put_back(worked);
            }
            while let Some(Place::Worked(_)) = self.places.front() {
                self.ended += 1;
                if let Some(Place::Worked(piece)) = self.places.pop_front() {
                    stages.end(piece)?;
                }
            }
            while !is_last && self.places.len() < self.helpers + AHEAD {
                match stages.begin()? {
                    Some(piece) => self.places.push_back(Place::Begun(piece)),
                    None => is_last = true,
                }
            }
            let begun = |place: &Place<P>| matches!(place, Place::Begun(_));
            match self.places.iter().position(begun) {
                Some(at) => self.work_on(at, stages, &work)?,
                None if self.places.is_empty() => return Ok(()),
                None => match self.back.recv() {
                    Ok(worked) => self.put_back(worked),
                    // A helper has panicked; the scope passes the panic on.
                    Err(_) => return Ok(()),
                },
            }
        }
    }

    fn put_back(&mut self, (number, piece): (usize, P)) {
        self.away -= 1;
        if let Some(place) = self.places.get_mut(number - self.ended) {
            *place = Place::Worked(piece);
        }
    }

    /// Gives the piece in a place to an idle helper, or works on it here.
    fn work_on<E>(
        &mut self,
        at: usize,
        stages: &mut impl Stages<P, E>,
        work: impl Fn(&mut P),
    ) -> Result<(), E> {
        let Some(place) = self.places.get_mut(at) else {
            return Ok(());
        };
        let Place::Begun(mut piece) = std::mem::replace(place, Place::Away) else {
            return Ok(());
        };
        stages.ready(&piece)?;
        if self.away < self.helpers {
            match self.give.send((self.ended + at, piece)) {
                Ok(()) => {
                    self.away += 1;
                    return Ok(());
                }
                Err(unsent) => (_, piece) = unsent.0,
            }
        }
        work(&mut piece);
        *place = Place::Worked(piece);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::*;

    /// Pieces are numbers; their stages are recorded.
    #[derive(Default)]
    struct Model {
        count: usize,
        begun: usize,
        ready: usize,
        ended: usize,
        most: usize,
        /// The failing stage, and the piece.
        fails: Option<(usize, usize)>,
    }

    struct Part<'a> {
        number: usize,
        worked: &'a [AtomicUsize],
        is_worked: bool,
    }

    struct Stage<'a>(&'a mut Model, &'a [AtomicUsize]);

    impl<'a> Stages<Part<'a>, usize> for Stage<'a> {
        fn begin(&mut self) -> Result<Option<Part<'a>>, usize> {
            let model = &mut *self.0;
            if model.begun == model.count {
                return Ok(None);
            }
            let number = model.begun;
            if model.fails == Some((0, number)) {
                return Err(0);
            }
            model.begun += 1;
            model.most = model.most.max(model.begun - model.ended);
            Ok(Some(Part {
                number,
                worked: self.1,
                is_worked: false,
            }))
        }

        fn ready(&mut self, piece: &Part<'a>) -> Result<(), usize> {
            assert_eq!(piece.number, self.0.ready);
            if self.0.fails == Some((1, piece.number)) {
                return Err(1);
            }
            self.0.ready += 1;
            Ok(())
        }

        fn end(&mut self, piece: Part<'a>) -> Result<(), usize> {
            assert!(piece.is_worked);
            assert_eq!(piece.number, self.0.ended);
            if self.0.fails == Some((2, piece.number)) {
                return Err(2);
            }
            self.0.ended += 1;
            Ok(())
        }
    }

    fn work(piece: &mut Part<'_>) {
        piece.is_worked = true;
        piece.worked[piece.number].fetch_add(1, Ordering::Relaxed);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_piece_goes_through_every_stage_once_and_in_order(
            count in 0usize..40, helpers in 0usize..5, fails in proptest::option::of((0usize..3, 0usize..40)),
        ) {
            let worked: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            let mut model = Model { count, fails, ..Model::default() };
            let result = run(helpers, &mut Stage(&mut model, &worked), work);
            let times: Vec<usize> = worked.iter().map(|times| times.load(Ordering::Relaxed)).collect();
            prop_assert!(model.most <= helpers + AHEAD);
            match fails.filter(|(_, at)| *at < count) {
                Some((stage, at)) => {
                    prop_assert_eq!(result, Err(stage));
                    prop_assert!(model.ended <= at);
                    prop_assert!(times.iter().all(|times| *times <= 1));
                    // No piece from there on was ended; no work was done on pieces before `ready`.
                    prop_assert!(stage != 1 || times[at..].iter().all(|times| *times == 0));
                }
                None => {
                    prop_assert_eq!(result, Ok(()));
                    prop_assert!(times.iter().all(|times| *times == 1));
                    prop_assert_eq!((model.begun, model.ready, model.ended), (count, count, count));
                }
            }
        }
    }
}
