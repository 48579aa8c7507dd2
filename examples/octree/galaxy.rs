//! Where the bodies begin: two disc galaxies, about to pass each other closely.
//!
//! Units are those in which the constant of gravity is 1.

use std::f64::consts::TAU;

use crate::tree::Body;

/// Of a galaxy's mass, what its disc has; the rest is a round, hot halo that keeps the disc in shape.
const DISC_MASS: f64 = 0.25;
/// Of a galaxy's bodies, those of the disc.
const DISC_BODIES: f64 = 0.75;
/// Radii that hold the bodies of a galaxy; both distributions go on for ever, thinner and thinner.
const DISC_EDGE: f64 = 4.0;
const HALO_EDGE: f64 = 12.0;

/// What a body is part of, for the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    FirstDisc,
    SecondDisc,
    Halo,
}

struct Galaxy {
    mass: f64,
    /// Scale length of the disc, and radius of the halo's core.
    scale: f64,
    position: [f64; 3],
    velocity: [f64; 3],
    /// Turns of the disc about the x axis and then about the z axis, in radians.
    tilt: [f64; 2],
    disc: Kind,
}

/// The bodies and what they are part of, the same ones every time.
pub fn collision(count: usize) -> (Vec<Body>, Vec<Kind>) {
    let masses: [f64; 2] = [0.6, 0.4];
    let separation = [1.65, 0.85, 0.3];
    // A little less than it takes to part for ever, mostly sideways.
    let speed = (2.0 / length(separation)).sqrt() * 0.95;
    let course = [-0.96, 0.20, 0.18].map(|x| x * speed);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut bodies = Vec::with_capacity(count);
    let mut kinds = Vec::with_capacity(count);
    let first = (count as f64 * masses[0]).round() as usize;
    for (number, sign, bodies_of) in [(0, -1.0, first), (1, 1.0, count - first)] {
        // About the common centre of mass.
        let share = sign * masses[1 - number];
        let galaxy = Galaxy {
            mass: masses[number],
            scale: 0.42 * masses[number].sqrt(),
            position: separation.map(|x| x * share),
            velocity: course.map(|x| x * share),
            tilt: [[0.35, 0.2], [-0.9, 1.1]][number],
            disc: [Kind::FirstDisc, Kind::SecondDisc][number],
        };
        galaxy.fill(bodies_of, &mut random, &mut bodies, &mut kinds);
    }
    (bodies, kinds)
}

impl Galaxy {
    fn fill(
        &self,
        count: usize,
        random: &mut Random,
        bodies: &mut Vec<Body>,
        kinds: &mut Vec<Kind>,
    ) {
        let disc = (count as f64 * DISC_BODIES).round() as usize;
        for index in 0..count {
            let (kind, mass, (position, velocity)) = if index < disc {
                let mass = self.mass * DISC_MASS / disc as f64;
                (self.disc, mass, self.disc_body(random))
            } else {
                let mass = self.mass * (1.0 - DISC_MASS) / (count - disc) as f64;
                (Kind::Halo, mass, self.halo_body(random))
            };
            let place = |own: [f64; 3], whole: [f64; 3]| {
                let turned = turn(own, self.tilt);
                [0, 1, 2].map(|axis| (turned[axis] + whole[axis]) as f32)
            };
            bodies.push(Body {
                position: place(position, self.position),
                velocity: place(velocity, self.velocity),
                mass: mass as f32,
                ..bytemuck::Zeroable::zeroed()
            });
            kinds.push(kind);
        }
    }

    /// A body of a flat disc whose density falls off exponentially, on a nearly circular orbit.
    fn disc_body(&self, random: &mut Random) -> ([f64; 3], [f64; 3]) {
        // The sum of two exponential variates has the density r exp(-r).
        let radius = loop {
            let radius = -(random.unit() * random.unit()).ln();
            if radius < DISC_EDGE {
                break self.scale * radius;
            }
        };
        let (sin, cos) = (TAU * random.unit()).sin_cos();
        let inside = self.mass_within(radius);
        let circular = (inside / radius).sqrt();
        let spread = 0.06 * circular;
        let outwards = spread * random.normal();
        let along = circular + spread * random.normal();
        (
            [
                radius * cos,
                radius * sin,
                0.04 * self.scale * random.normal(),
            ],
            [
                outwards * cos - along * sin,
                outwards * sin + along * cos,
                0.5 * spread * random.normal(),
            ],
        )
    }

    /// A body of Plummer's sphere, with his distribution of speeds.
    fn halo_body(&self, random: &mut Random) -> ([f64; 3], [f64; 3]) {
        let radius = loop {
            let radius = (random.unit().powf(-2.0 / 3.0) - 1.0).sqrt().recip();
            if radius < HALO_EDGE {
                break radius;
            }
        };
        // A part of the speed with which a body would escape, by rejection.
        let part = loop {
            let part = random.unit();
            if 0.1 * random.unit() < part * part * (1.0 - part * part).powf(3.5) {
                break part;
            }
        };
        let escape = (2.0 * self.mass / self.scale).sqrt() * (1.0 + radius * radius).powf(-0.25);
        (
            random.direction().map(|x| x * radius * self.scale),
            random.direction().map(|x| x * part * escape),
        )
    }

    /// Mass within a radius of the galaxy's middle.
    fn mass_within(&self, radius: f64) -> f64 {
        let r = radius / self.scale;
        let disc = 1.0 - (1.0 + r) * (-r).exp();
        let halo = r.powi(3) * (1.0 + r * r).powf(-1.5);
        self.mass * (DISC_MASS * disc + (1.0 - DISC_MASS) * halo)
    }
}

fn length(v: [f64; 3]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn turn([x, y, z]: [f64; 3], [about_x, about_z]: [f64; 2]) -> [f64; 3] {
    let (sin, cos) = about_x.sin_cos();
    let (y, z) = (y * cos - z * sin, y * sin + z * cos);
    let (sin, cos) = about_z.sin_cos();
    [x * cos - y * sin, x * sin + y * cos, z]
}

/// Marsaglia's 64-bit xorshift generator.
struct Random(u64);

impl Random {
    /// A number between 0 and 1, neither of which it is.
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// A normal variate, by Box and Muller.
    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (TAU * self.unit()).cos()
    }

    /// A direction in space, all being equally likely.
    fn direction(&mut self) -> [f64; 3] {
        let z = 2.0 * self.unit() - 1.0;
        let (sin, cos) = (TAU * self.unit()).sin_cos();
        let r = (1.0 - z * z).sqrt();
        [r * cos, r * sin, z]
    }
}
