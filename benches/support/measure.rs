//! Pairs of measurements, and the rows' lines.

#![allow(dead_code)] // Each bench uses its part.

use std::collections::BTreeMap;
use std::time::Instant;

pub type Error = Box<dyn std::error::Error>;

/// Seconds that `work` takes.
pub fn seconds(work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Ratios of ours to theirs, run in turn `count` times after a warm-up.
pub fn pairs(
    count: usize,
    ours: impl FnMut() -> Result<(), Error>,
    theirs: impl FnMut() -> Result<(), Error>,
) -> Result<Vec<f64>, Error> {
    pairs_by(|work| seconds(work), count, ours, theirs)
}

/// As [`pairs`], with a clock of one's own: `seconds` runs what it is given.
pub fn pairs_by(
    seconds: impl Fn(&mut dyn FnMut() -> Result<(), Error>) -> Result<f64, Error>,
    count: usize,
    mut ours: impl FnMut() -> Result<(), Error>,
    mut theirs: impl FnMut() -> Result<(), Error>,
) -> Result<Vec<f64>, Error> {
    let ratios: Result<Vec<f64>, Error> = (0..=count)
        .map(|i| {
            // Whoever goes second finds warmer caches: take turns.
            if i % 2 == 0 {
                let a = seconds(&mut ours)?;
                Ok(a / seconds(&mut theirs)?)
            } else {
                let b = seconds(&mut theirs)?;
                Ok(seconds(&mut ours)? / b)
            }
        })
        .collect();
    Ok(ratios?.split_off(1))
}

/// The row's line, for at least one measurement.
pub fn row(label: &str, adapter: &str, limit: f64, ratios: Vec<f64>) -> String {
    let spread = spread(ratios, 3);
    format!("ratio {label}/{adapter} = {spread} goal <= {limit}")
}

/// The median, the least and the most of at least one measurement.
pub fn spread(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    format!(
        "{:.digits$} ({:.digits$}..{:.digits$})",
        values[values.len() / 2],
        values[0],
        values[values.len() - 1],
    )
}

/// What was measured for each row, with its goal.
#[derive(Default)]
pub struct Rows(BTreeMap<String, (Option<f64>, Vec<f64>)>);

impl Rows {
    /// Notes what a round has measured; the one with the number 0 warms up.
    pub fn note(&mut self, round: usize, row: String, goal: Option<f64>, value: f64) {
        if round > 0 {
            self.0
                .entry(row)
                .or_insert((goal, Vec::new()))
                .1
                .push(value);
        }
    }

    /// Prints them; `sign` says whether goals are limits from above or from below.
    pub fn print(self, sign: &str, digits: usize) {
        for (row, (goal, values)) in self.0 {
            let goal = goal.map_or(String::new(), |goal| format!(" goal {sign} {goal}"));
            println!("{row} = {}{goal}", spread(values, digits));
        }
    }
}

/// What rows call each of these adapters: the word of its name, and for later ones of the same word a number behind it.
pub fn words<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
    let mut seen = BTreeMap::new();
    let names = names.into_iter().map(|name| {
        let word = word(name);
        let times: &mut u32 = seen.entry(word).or_default();
        *times += 1;
        match *times {
            1 => word.to_owned(),
            times => format!("{word}_{times}"),
        }
    });
    names.collect()
}

/// What rows call an adapter.
pub fn word(name: &str) -> &str {
    name.split([' ', '(']).next().unwrap_or("adapter")
}
