//! What the walk through the tree is checked against: the direct sum over all pairs, in double
//! precision, for some of the bodies.

use std::thread;

use crate::tree::Body;

/// What all other bodies do to one.
#[derive(Debug, Clone, Copy)]
pub struct Pull {
    pub body: usize,
    pub acceleration: [f64; 3],
    pub potential: f64,
}

/// How far the kernel's accelerations are off, as parts of their length.
#[derive(Debug, Clone, Copy)]
pub struct Errors {
    pub median: f64,
    /// 99 of 100 are below this.
    pub most: f64,
    pub worst: f64,
}

/// The energies of all bodies together.
#[derive(Debug, Clone, Copy)]
pub struct Energy {
    pub kinetic: f64,
    pub potential: f64,
}

impl Energy {
    pub fn total(self) -> f64 {
        self.kinetic + self.potential
    }
}

/// Sums directly for `sample` bodies, spread evenly over all.
pub fn direct(bodies: &[Body], sample: usize, softening: f64) -> Vec<Pull> {
    let sample = sample.clamp(1, bodies.len().max(1));
    let chosen: Vec<usize> = (0..sample).map(|i| i * bodies.len() / sample).collect();
    let threads = thread::available_parallelism().map_or(1, |n| n.get());
    let mut pulls = Vec::with_capacity(sample);
    thread::scope(|scope| {
        let parts: Vec<_> = chosen
            .chunks(sample.div_ceil(threads))
            .map(|part| {
                let pull = |&body| pull_on(bodies, body, softening);
                scope.spawn(move || part.iter().map(pull).collect::<Vec<_>>())
            })
            .collect();
        for part in parts {
            match part.join() {
                Ok(part) => pulls.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    pulls
}

fn pull_on(bodies: &[Body], body: usize, softening: f64) -> Pull {
    let here = bodies[body].position.map(f64::from);
    let mut pull = Pull {
        body,
        acceleration: [0.0; 3],
        potential: 0.0,
    };
    for (index, other) in bodies.iter().enumerate() {
        if index == body {
            continue;
        }
        let [x, y, z] = other.position;
        let away = [
            f64::from(x) - here[0],
            f64::from(y) - here[1],
            f64::from(z) - here[2],
        ];
        let square = away[0] * away[0] + away[1] * away[1] + away[2] * away[2];
        let inverse = (square + softening * softening).sqrt().recip();
        let share = f64::from(other.mass) * inverse;
        let pull_of = share * inverse * inverse;
        pull.acceleration[0] += pull_of * away[0];
        pull.acceleration[1] += pull_of * away[1];
        pull.acceleration[2] += pull_of * away[2];
        pull.potential -= share;
    }
    pull
}

/// Compares the kernel's accelerations with direct sums.
pub fn errors(bodies: &[Body], direct: &[Pull]) -> Errors {
    let mut errors: Vec<f64> = direct
        .iter()
        .map(|pull| {
            let kernel = bodies[pull.body].acceleration.map(f64::from);
            let off = [0, 1, 2].map(|axis| kernel[axis] - pull.acceleration[axis]);
            length(off) / length(pull.acceleration)
        })
        .collect();
    // Whatever is not a number sorts last, and so becomes the worst.
    errors.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let index = (part * errors.len() as f64) as usize;
        errors
            .get(index.min(errors.len().saturating_sub(1)))
            .copied()
            .unwrap_or(f64::NAN)
    };
    Errors {
        median: at(0.5),
        most: at(0.99),
        worst: at(1.0),
    }
}

/// The energies, from the kernel's potentials. Their mean error over the sample is taken off all of
/// them, so that the tree's approximation does not pass for a loss of energy.
pub fn energy(bodies: &[Body], direct: &[Pull]) -> Energy {
    let mut kinetic = 0.0;
    let mut potential = 0.0;
    for body in bodies {
        let mass = f64::from(body.mass);
        let speed = length(body.velocity.map(f64::from));
        kinetic += 0.5 * mass * speed * speed;
        potential += 0.5 * mass * f64::from(body.potential);
    }
    let off: f64 = direct
        .iter()
        .map(|pull| {
            let body = &bodies[pull.body];
            0.5 * f64::from(body.mass) * (pull.potential - f64::from(body.potential))
        })
        .sum();
    let many = bodies.len() as f64 / direct.len().max(1) as f64;
    Energy {
        kinetic,
        potential: potential + many * off,
    }
}

fn length(v: [f64; 3]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}
