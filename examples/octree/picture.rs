//! The picture: the galaxies from the first step to the last, each body a small light, added up and
//! developed like a photograph of the night sky.

use image::{Rgb, RgbImage};

use crate::galaxy::Kind;
use crate::tree::Body;

/// Side of a panel, in pixels.
const SIDE: u32 = 600;
/// What a panel shows, from edge to edge, in the simulation's units.
const VIEW: f32 = 5.0;
/// Pixels that are left between the panels.
const GAP: u32 = 4;

/// The panels side by side, from left to right in the order given.
pub fn panels(moments: &[&[Body]], kinds: &[Kind]) -> RgbImage {
    let many = moments.len() as u32;
    let width = many * SIDE + many.saturating_sub(1) * GAP;
    let mut picture = RgbImage::from_pixel(width.max(1), SIDE, Rgb([70, 74, 84]));
    for (left, bodies) in (0..).step_by((SIDE + GAP) as usize).zip(moments) {
        let light = expose(bodies, kinds);
        for (index, light) in (0..).zip(light) {
            picture.put_pixel(left + index % SIDE, index / SIDE, develop(light));
        }
    }
    picture
}

/// Adds up the light of all bodies, for each pixel.
fn expose(bodies: &[Body], kinds: &[Kind]) -> Vec<[f32; 3]> {
    let mut light = vec![[0.0; 3]; (SIDE * SIDE) as usize];
    // The sky is as bright with many bodies as with few.
    let each = 1.6e6 / bodies.len() as f32;
    for (body, kind) in bodies.iter().zip(kinds) {
        let (colour, strength, blur) = match kind {
            Kind::FirstDisc => ([0.36, 0.60, 1.0], 1.0, 1.0),
            Kind::SecondDisc => ([1.0, 0.50, 0.28], 1.0, 1.0),
            Kind::Halo => ([1.0, 0.88, 0.70], 0.35, 1.6),
        };
        let [x, y, z] = body.position;
        // Seen a little from the side.
        let up = 0.94 * y + 0.34 * z;
        let at = [x, -up].map(|along| (along / VIEW + 0.5) * SIDE as f32 - 0.5);
        for (width, part) in [(0.8 * blur, 0.6), (4.0 * blur, 0.4)] {
            splat(
                &mut light,
                at,
                width,
                colour.map(|c| each * strength * part * c),
            );
        }
    }
    light
}

/// Adds a round spot of light with a soft edge.
fn splat(light: &mut [[f32; 3]], at: [f32; 2], width: f32, colour: [f32; 3]) {
    let reach = 2.5 * width;
    let side = |at: f32| {
        let clamp = |pixel: f32| pixel.clamp(0.0, SIDE as f32) as usize;
        clamp((at - reach).ceil())..clamp((at + reach).floor() + 1.0)
    };
    let glow = |along: f32, at: f32| (-((along - at) / width).powi(2) / 2.0).exp();
    let whole = std::f32::consts::TAU * width * width;
    for y in side(at[1]) {
        let row = glow(y as f32, at[1]) / whole;
        for x in side(at[0]) {
            let share = row * glow(x as f32, at[0]);
            for (pixel, colour) in light[y * SIDE as usize + x].iter_mut().zip(colour) {
                *pixel += share * colour;
            }
        }
    }
}

/// Light to colour: brightness grows with the logarithm of the light, and what is very bright turns
/// white.
fn develop(light: [f32; 3]) -> Rgb<u8> {
    const WHITE: f32 = 220.0;
    let brightest = light.into_iter().fold(f32::MIN_POSITIVE, f32::max);
    let level = (brightest.ln_1p() / WHITE.ln_1p()).min(1.0);
    let pale = 0.75 * level * level;
    let sky = [0.012, 0.014, 0.030];
    Rgb([0, 1, 2].map(|channel| {
        let own = light[channel] / brightest;
        let value = level * (own + (1.0 - own) * pale) + sky[channel];
        (value.clamp(0.0, 1.0) * 255.0).round() as u8
    }))
}
