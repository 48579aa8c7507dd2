//! Kernels that print: every line arrives once, and at the latest when its launch is waited for.

use std::sync::{Arc, Mutex, PoisonError};

use tombolo::{Constants, PrintOptions, print::PrintRecord};

use crate::problem::{Outcome, wrong};
use crate::worker::Worker;

pub fn print(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    let groups = 1 + w.random.below(6) as u32;
    let tag = [w.id as u32, w.step as u32];
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let lines = Arc::clone(&lines);
        move |record: &PrintRecord<'_>| {
            lines
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(record.text());
        }
    };
    let kernel = gear.kernel(&w.world.programs.print, &Constants::new())?;
    let options = PrintOptions::sink(sink).capacity(64 << 10);
    let mut launch = kernel
        .launch()
        .value("tag", &tag)
        .workgroups(groups)
        .print_to(options);
    let event = w.submit(&mut launch)?;
    w.note("wait for lines");
    event.wait()?;
    if event.dropped_prints()? != 0 {
        return wrong("lines were dropped though there was room");
    }
    let mut found = lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut expected: Vec<String> = (0..groups * 16)
        .map(|id| format!("{} {} {id}", tag[0], tag[1]))
        .collect();
    found.sort();
    expected.sort();
    if found != expected {
        let lost = expected.iter().filter(|line| !found.contains(line)).count();
        return wrong(format!(
            "{} lines instead of {}, of which {lost} are missing",
            found.len(),
            expected.len()
        ));
    }
    Ok(())
}
