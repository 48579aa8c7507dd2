//! How many entry points were really compared: an adapter that refuses them all would pass otherwise.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::harness::Fixture;
use crate::shaders;

/// Entry points that ran and those that were compared, by the adapter's index.
static COUNTS: Mutex<Option<HashMap<usize, [usize; 2]>>> = Mutex::new(None);

/// Notes that an entry point ran, and whether it was compared.
pub fn note(fixture: &Fixture, compared: bool) {
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let counts = counts.get_or_insert_default();
    let [ran, with_result] = counts.entry(fixture.index).or_default();
    *ran += 1;
    *with_result += usize::from(compared);
}

/// The fewest entry points that this adapter has to run; the others need features or limits that it lacks.
fn least(fixture: &Fixture) -> usize {
    let all = shaders::all().count();
    if fixture.is_lavapipe() {
        all
    } else if fixture.is_swiftshader() {
        // Six want half floats, which it has not.
        all - 6
    } else {
        all * 3 / 4
    }
}

/// Fails if too few were compared. Where only some were asked for, or others have failed, there is nothing
/// to count.
pub fn check(fixture: &Fixture) {
    let counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let counts = counts.as_ref().and_then(|c| c.get(&fixture.index));
    let [ran, compared] = counts.copied().unwrap_or_default();
    if ran < shaders::all().count() {
        return;
    }
    let least = least(fixture);
    let name = fixture.device.name();
    assert!(
        compared >= least,
        "{name}: {compared} of {ran} were compared, {least} were expected"
    );
}
