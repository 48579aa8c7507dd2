//! The sides of a row: work that is ready to run, whose results are held against those of the host.

use crate::Error;
use crate::results::Results;

/// Work that is ready on a runtime.
pub trait Side {
    /// Runs once, and waits.
    fn run(&mut self) -> Result<(), Error>;

    /// Overwrites the buffer of results.
    fn put(&mut self, bytes: &[u8]) -> Result<(), Error>;

    /// What the buffer of results holds.
    fn results(&mut self) -> Result<Vec<u8>, Error>;
}

/// A side that counts its runs, and the results that the host expects of them.
pub struct Checked<'w, S> {
    name: &'w str,
    work: &'w str,
    results: &'w Results,
    side: S,
    runs: u32,
}

impl<'w, S: Side> Checked<'w, S> {
    /// A side whose first run has left what the host expects. The buffer of results is as before any run again.
    pub fn new(name: &'w str, work: &'w str, results: &'w Results, side: S) -> Result<Self, Error> {
        let mut checked = Self {
            name,
            work,
            results,
            side,
            runs: 0,
        };
        checked.begin()?;
        checked.run()?;
        checked.check()?;
        checked.begin()?;
        Ok(checked)
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.side.put(&self.results.before)?;
        self.runs = 0;
        Ok(())
    }

    pub fn run(&mut self) -> Result<(), Error> {
        self.runs += 1;
        self.side.run()
    }

    /// Fails unless the buffer of results holds what the host makes of so many runs.
    pub fn check(&mut self) -> Result<(), Error> {
        let (name, work, runs) = (self.name, self.work, self.runs);
        let found = self.side.results()?;
        match self.results.are(runs, &found) {
            true => Ok(()),
            false => Err(format!(
                "{name} computes something else than the host in {runs} runs of {work}"
            )
            .into()),
        }
    }
}
