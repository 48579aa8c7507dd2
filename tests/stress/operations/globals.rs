//! Variables of devices. Each thread has its own on each device, and all lie in the same memory there.

use tombolo::{
    Constants,
    globals::{GlobalError, NamedGlobal},
};

use crate::problem::{Outcome, Problem, expect};
use crate::programs::WORDS;
use crate::worker::Worker;
use crate::world::Gear;

pub fn launch(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    let plus = w.random.word();
    let kernel = gear.kernel(&w.world.programs.globals[w.id], &Constants::new())?;
    let mut launch = kernel.launch().value("plus", &plus).workgroups(1);
    let event = w.submit(&mut launch)?;
    let model = w.globals.entry(gear.number).or_insert([0; WORDS]);
    for (i, word) in model.iter_mut().enumerate() {
        *word = word
            .wrapping_mul(3)
            .wrapping_add(i as u32)
            .wrapping_add(plus);
    }
    w.await_event(event)
}

/// The variable, if a kernel has named it on this device.
fn named(w: &Worker<'_>, gear: &Gear) -> Result<Option<NamedGlobal>, Problem> {
    if !w.globals.contains_key(&gear.number) {
        return Ok(None);
    }
    Ok(Some(gear.device.global(&format!("stress_{}", w.id))?))
}

pub fn read(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    let Some(global) = named(w, &gear)? else {
        // Nobody has named it here, or another thread's kernel of the same text: it is zero then, or unknown.
        let unknown = gear.device.global(&format!("stress_{}_nowhere", w.id));
        return match unknown {
            Err(GlobalError::Unknown { .. }) => Ok(()),
            other => crate::problem::wrong(format!("an unknown variable: {:?}", other.map(|_| ()))),
        };
    };
    let range = w.random.range(WORDS);
    let bytes = w.again("read", || {
        global.read_bytes(4 * range.start as u64, 4 * range.len() as u64)
    })?;
    let found: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
    expect(
        "a variable of the device",
        &found,
        &w.globals[&gear.number][range],
    )
}

pub fn write(w: &mut Worker<'_>) -> Outcome {
    let gear = w.gear();
    let Some(global) = named(w, &gear)? else {
        return Ok(());
    };
    let range = w.random.range(WORDS);
    let values = w.random.words(range.len());
    let event = w.again("write", || {
        global.write_bytes(4 * range.start as u64, bytemuck::cast_slice(&values))
    })?;
    if let Some(model) = w.globals.get_mut(&gear.number) {
        model[range].copy_from_slice(&values);
    }
    w.await_event(event)
}
