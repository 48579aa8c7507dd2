//! What it costs to decide which copies a command needs, on the host alone: a buffer in 100 ranges, all of which a
//! command wants. Each measurement is the mean of [`PLANS`] decisions.

use std::hint::black_box;
use std::time::Instant;

use tombolo::buffers::migrate::{Access, Place, Residency, Route, Routes, Want};

use crate::support::Error;

const RANGES: u64 = 100;
/// Bytes of a range.
const BYTES: u64 = 4096;
/// Decisions in a measurement.
const PLANS: u32 = 200;
/// Measurements of a row, all rows in turn; the first is a warm-up and does not count.
const ROUNDS: usize = 201;

/// A decision, and the steps that it must have.
struct Row {
    name: &'static str,
    limit: f64,
    residency: Residency,
    routes: Routes,
    wants: Vec<Want>,
    steps: usize,
    /// Whether the row also tells the residency, as an enqueue does.
    enqueue: bool,
}

fn want(index: u32, range: std::ops::Range<u64>, access: Access) -> Result<Want, Error> {
    Ok(Want::new(Place::new(index)?, range, access))
}

/// Device 1 has all of it, another device every other range, the host nothing.
fn striped(also_at: u32) -> Result<Residency, Error> {
    let mut residency = Residency::new(RANGES * BYTES);
    residency.wrote(Place::new(1)?, 0..RANGES * BYTES)?;
    let mut routes = Routes::new();
    routes.set(
        Place::new(1)?,
        Place::new(also_at)?,
        Route::SameDevice,
        Routes::SAME_DEVICE_COST,
    );
    for range in (0..RANGES).step_by(2) {
        let start = range * BYTES;
        let plan = residency.plan(
            &[want(also_at, start..start + BYTES, Access::Read)?],
            &routes,
        )?;
        residency.commit(&plan)?;
    }
    Ok(residency)
}

fn rows() -> Result<Vec<Row>, Error> {
    let all = 0..RANGES * BYTES;
    let residency = striped(2)?;
    assert_eq!(residency.contents().count() as u64, RANGES);
    let half = RANGES as usize / 2;
    let mut direct = Routes::new();
    direct.set_both(
        Place::new(1)?,
        Place::new(2)?,
        Route::SameDevice,
        Routes::SAME_DEVICE_COST,
    );
    let row = |name, limit, routes: &Routes, wants, steps| Row {
        name,
        limit,
        residency: residency.clone(),
        routes: routes.clone(),
        wants,
        steps,
        enqueue: false,
    };
    // A quarter of the ranges each, as four bindings of a kernel.
    let quarters: Result<Vec<Want>, Error> = (0..4)
        .map(|quarter| {
            let bytes = RANGES / 4 * BYTES;
            want(1, quarter * bytes..(quarter + 1) * bytes, Access::ReadWrite)
        })
        .collect();
    let read = |place| want(place, all.clone(), Access::Read);
    let host = Routes::new();
    let mut enqueue = row(
        "plan_commit_begin_current_100_ranges_us",
        2.0,
        &host,
        vec![read(1)?],
        0,
    );
    enqueue.enqueue = true;
    Ok(vec![
        row("plan_current_100_ranges_us", 2.0, &host, vec![read(1)?], 0),
        row("plan_four_views_100_ranges_us", 2.0, &host, quarters?, 0),
        row(
            "plan_overwrite_100_ranges_us",
            2.0,
            &host,
            vec![want(3, all.clone(), Access::Overwrite)?],
            0,
        ),
        row(
            "plan_50_of_100_ranges_direct_us",
            2.0,
            &direct,
            vec![read(2)?],
            half,
        ),
        row(
            "plan_50_of_100_ranges_through_host_us",
            4.0,
            &host,
            vec![read(2)?],
            2 * half,
        ),
        row("plan_all_of_100_ranges_us", 2.0, &direct, vec![read(0)?], 1),
        enqueue,
    ])
}

impl Row {
    fn decide(&mut self) -> Result<usize, Error> {
        let plan = self.residency.plan(black_box(&self.wants), &self.routes)?;
        if self.enqueue {
            self.residency.commit(&plan)?;
            for want in &self.wants {
                self.residency
                    .begin(1, want.place, want.range.clone(), want.access)?;
            }
            self.residency.finished(1);
        }
        Ok(black_box(plan).steps.len())
    }
}

/// Checks that the plans are those that are meant.
pub fn check() -> Result<(), Error> {
    for mut row in rows()? {
        assert_eq!(row.decide()?, row.steps, "{}", row.name);
    }
    Ok(())
}

/// The rows' lines.
pub fn measure() -> Result<Vec<String>, Error> {
    let mut rows = rows()?;
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); rows.len()];
    for round in 0..=ROUNDS {
        for (row, times) in rows.iter_mut().zip(&mut times) {
            let begun = Instant::now();
            for _ in 0..PLANS {
                row.decide()?;
            }
            let microseconds = begun.elapsed().as_secs_f64() * 1e6 / f64::from(PLANS);
            if round > 0 {
                times.push(microseconds);
            }
        }
    }
    let rows = rows.into_iter().zip(times);
    Ok(rows
        .map(|(row, times)| crate::time(row.name, row.limit, times))
        .collect())
}
