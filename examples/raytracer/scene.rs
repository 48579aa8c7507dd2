//! The scene, as Rust and WGSL lay it out, and the same picture made by the host.

use bytemuck::{Pod, Zeroable};

/// A ball.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Sphere {
    pub centre: [f32; 3],
    pub radius: f32,
    pub colour: [f32; 3],
    pub mirror: f32,
}

/// Where the picture is taken from, and how large it is.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Camera {
    pub eye: [f32; 3],
    pub width: u32,
    pub ahead: [f32; 3],
    pub height: u32,
    /// Pixels between two that report what they see.
    pub report: u32,
    pub padding: [u32; 3],
}

type Vector = [f32; 3];

const FAR: f32 = 1e9;
const HORIZON: f32 = 400.0;
const BOUNCES: u32 = 6;
const SUN: Vector = [0.48, 0.64, 0.6];

/// Balls on a sea of tiles.
pub fn spheres() -> Vec<Sphere> {
    let ball = |x: f32, z: f32, radius: f32, colour, mirror| Sphere {
        centre: [x, radius, z],
        radius,
        colour,
        mirror,
    };
    let mut all = vec![
        ball(0.0, 0.0, 2.2, [0.95, 0.95, 0.95], 0.85),
        ball(-4.2, 1.5, 1.5, [0.80, 0.22, 0.18], 0.15),
        ball(3.9, 0.8, 1.3, [0.20, 0.45, 0.30], 0.30),
        ball(1.6, 4.0, 0.8, [0.93, 0.72, 0.25], 0.10),
    ];
    for i in 0..9 {
        let angle = i as f32 * 0.7 - 0.6;
        let (x, z) = (6.4 * angle.cos(), 6.4 * angle.sin());
        let shade = 0.3 + 0.07 * i as f32;
        all.push(ball(x, z, 0.45, [shade, 0.4, 1.0 - shade], 0.25));
    }
    all
}

pub fn camera(width: u32, height: u32, report: u32) -> Camera {
    Camera {
        eye: [-1.5, 3.4, 13.0],
        width,
        ahead: normalize([0.1, -0.13, -1.0]),
        height,
        report,
        padding: [0; 3],
    }
}

fn zip(a: Vector, b: Vector, f: impl Fn(f32, f32) -> f32) -> Vector {
    std::array::from_fn(|i| f(a[i], b[i]))
}

fn add(a: Vector, b: Vector) -> Vector {
    zip(a, b, |x, y| x + y)
}

fn scale(a: Vector, by: f32) -> Vector {
    a.map(|x| x * by)
}

fn dot(a: Vector, b: Vector) -> f32 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: Vector, b: Vector) -> Vector {
    std::array::from_fn(|i| {
        let (j, k) = ((i + 1) % 3, (i + 2) % 3);
        a[j] * b[k] - a[k] * b[j]
    })
}

fn normalize(a: Vector) -> Vector {
    scale(a, 1.0 / dot(a, a).sqrt())
}

fn mix(a: Vector, b: Vector, t: f32) -> Vector {
    zip(a, b, |x, y| x + (y - x) * t)
}

fn nearest(spheres: &[Sphere], origin: Vector, ray: Vector) -> (f32, i32) {
    let mut hit = (FAR, -2);
    let sea = -origin[1] / ray[1];
    if ray[1] < -1e-4 && sea < HORIZON {
        hit = (sea, -1);
    }
    for (sphere, i) in spheres.iter().zip(0..) {
        let to = add(sphere.centre, scale(origin, -1.0));
        let along = dot(to, ray);
        let beside = add(to, scale(ray, -along));
        let half = sphere.radius * sphere.radius - dot(beside, beside);
        if half > 0.0 {
            let distance = along - half.sqrt();
            if distance > 1e-3 && distance < hit.0 {
                hit = (distance, i);
            }
        }
    }
    hit
}

fn sky(ray: Vector) -> Vector {
    let high = ray[1].clamp(0.0, 1.0).sqrt();
    let glow = dot(ray, SUN).max(0.0).powf(96.0);
    let base = mix([0.98, 0.78, 0.58], [0.24, 0.42, 0.72], high);
    add(base, scale([0.9, 0.7, 0.4], glow))
}

/// A pixel's colour, what its ray meets first, and how often it bounces.
pub fn pixel(spheres: &[Sphere], camera: &Camera, x: u32, y: u32) -> ([u8; 3], i32, u32) {
    let (width, height) = (camera.width as f32, camera.height as f32);
    let place = [
        (x as f32 + 0.5 - width * 0.5) / height,
        (y as f32 + 0.5 - height * 0.5) / height,
    ];
    let right = normalize(cross(camera.ahead, [0.0, 1.0, 0.0]));
    let up = cross(right, camera.ahead);
    let across = add(scale(right, place[0]), scale(up, -place[1]));
    let mut ray = normalize(add(scale(camera.ahead, 1.4), across));
    let (mut origin, mut weight, mut colour) = (camera.eye, 1.0, [0.0; 3]);
    let (mut first, mut bounces) = (None, 0);
    while bounces < BOUNCES {
        let (distance, what) = nearest(spheres, origin, ray);
        first.get_or_insert(what);
        if what == -2 {
            colour = add(colour, scale(sky(ray), weight));
            break;
        }
        let point = add(origin, scale(ray, distance));
        let (normal, own, mirror) = match usize::try_from(what).ok().and_then(|i| spheres.get(i)) {
            Some(sphere) => {
                let out = add(point, scale(sphere.centre, -1.0));
                (
                    scale(out, 1.0 / sphere.radius),
                    sphere.colour,
                    sphere.mirror,
                )
            }
            None => {
                let odd = ((point[0] * 0.5).floor() + (point[2] * 0.5).floor()).abs() % 2.0;
                let own = mix([0.87, 0.76, 0.57], [0.12, 0.36, 0.44], odd);
                let haze = 1.0 - (-distance * 0.012).exp();
                ([0.0, 1.0, 0.0], mix(own, [0.98, 0.78, 0.58], haze), 0.35)
            }
        };
        let start = add(point, scale(normal, 1e-2));
        let mut light = 0.25;
        if nearest(spheres, start, SUN).1 < 0 {
            light += 0.75 * dot(normal, SUN).max(0.0);
        }
        colour = add(colour, scale(own, weight * light * (1.0 - mirror)));
        weight *= mirror;
        origin = start;
        ray = normalize(add(ray, scale(normal, -2.0 * dot(ray, normal))));
        bounces += 1;
    }
    let bytes = colour.map(|c| (c.clamp(0.0, 1.0) * 255.0 + 0.5) as u8);
    (bytes, first.unwrap_or(-2), bounces)
}
