//! The plate: its modes, the mallets that strike it, and the same sound computed by the host.

use std::f64::consts::PI;

use bytemuck::{Pod, Zeroable};

/// Samples in a second.
pub const RATE: f64 = 48_000.0;
/// Samples of a block, as in plate.wgsl.
pub const BLOCK: usize = 128;
/// Modes along each side of the plate.
const SIDE: usize = 8;
/// Samples from one stroke to the next, and samples that a mallet touches the plate.
const STROKE: usize = 12_000;
const TOUCH: usize = 48;

/// As in plate.wgsl: the next sample of a mode is `near` times the last one, `far` times the one before, and `gain`
/// times what strikes the plate.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct Mode {
    near: f32,
    far: f32,
    gain: f32,
}

/// The modes of a plate that is held at its edges and struck a little off its centre: the higher ones fade sooner.
pub fn modes() -> Vec<Mode> {
    let mode = |index: usize| {
        let [m, n] = [index % SIDE + 1, index / SIDE + 1].map(|number| number as f64);
        let frequency = 90.0 * (m * m + 1.3 * n * n);
        let angle = 2.0 * PI * frequency / RATE;
        let seconds = 1.2 / (1.0 + frequency / 1500.0);
        let fading = (-1.0 / (seconds * RATE)).exp();
        let place = (PI * m * 0.42).sin() * (PI * n * 0.37).sin();
        Mode {
            near: (2.0 * fading * angle.cos()) as f32,
            far: (-fading * fading) as f32,
            gain: (angle.sin() * place / 16.0) as f32,
        }
    };
    (0..SIDE * SIDE).map(mode).collect()
}

/// What the mallets do to the plate at a sample: now and then a short push, the harder the brighter.
pub fn strike(sample: usize) -> f32 {
    let (stroke, at) = (sample / STROKE, sample % STROKE);
    if at >= TOUCH {
        return 0.0;
    }
    let force = 0.3 + 0.7 * ((stroke * 5 % 8) as f64 / 7.0);
    let push = (PI * (at as f64 + 0.5) / TOUCH as f64).sin();
    (force * push * push) as f32
}

/// The plate on the host, in double precision.
pub struct Plate {
    modes: Vec<[f64; 3]>,
    last: Vec<[f64; 2]>,
}

impl Plate {
    pub fn new(modes: &[Mode]) -> Self {
        let wide = |mode: &Mode| [mode.near, mode.far, mode.gain].map(f64::from);
        Self {
            modes: modes.iter().map(wide).collect(),
            last: vec![[0.0; 2]; modes.len()],
        }
    }

    /// The next sample.
    pub fn sample(&mut self, strike: f32) -> f64 {
        let both = self.modes.iter().zip(&mut self.last);
        both.map(|([near, far, gain], last)| {
            let next = near * last[0] + far * last[1] + gain * f64::from(strike);
            *last = [next, last[0]];
            next
        })
        .sum()
    }
}
