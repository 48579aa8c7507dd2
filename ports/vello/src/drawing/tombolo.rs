//! The picture of a tombolo: an island at sunset, and the bar of sand that joins it to the mainland.

use std::f64::consts::{PI, TAU};

use vello::kurbo::{Affine, BezPath, Circle, Ellipse, Line, Point, Rect, Shape, Stroke, Vec2};
use vello::peniko::{Extend, Fill, Gradient, Mix};

use super::Drawing;
use super::objects;
use super::tools::{Dice, HERE, color, down, round, star, stops, through};

/// Width of the picture; no multiple of a tile's.
pub const WIDTH: u32 = 1000;
/// Height of the picture; no multiple of a tile's.
pub const HEIGHT: u32 = 750;

const HORIZON: f64 = 420.0;
const SUN: Point = Point::new(640.0, 350.0);

/// The whole picture: some thousand paths. The sun's disc is so far `aside`, which is nothing but where a comparison is to
/// find a difference.
pub fn tombolo(aside: Vec2) -> Drawing {
    let mut d = Drawing::default();
    let dice = &mut Dice(7);
    sky(&mut d, dice, aside);
    clouds(&mut d, dice);
    mountains(&mut d, dice);
    sea(&mut d, dice);
    bar(&mut d, dice);
    island(&mut d, dice);
    objects::lighthouse(&mut d);
    objects::boats(&mut d);
    objects::birds(&mut d, dice);
    mainland(&mut d, dice);
    objects::compass(&mut d);
    objects::frame(&mut d);
    d
}

fn sky(d: &mut Drawing, dice: &mut Dice, aside: Vec2) {
    let whole = Rect::new(-9.0, -9.0, f64::from(WIDTH) + 9.0, HORIZON + 9.0);
    let colors = [
        (0.0, 0x16_1c_4a, 1.0),
        (0.35, 0x5b_36_7c, 1.0),
        (0.7, 0xe0_6a_5f, 1.0),
        (1.0, 0xff_d0_8a, 1.0),
    ];
    d.fill(HERE, down(0.0, HORIZON, &colors), &whole);
    for _ in 0..60 {
        let at = Point::new(dice.between(0.0, 1000.0), dice.between(0.0, 190.0));
        let shape = star(at, dice.between(1.5, 5.0), 5, dice.between(0.0, TAU));
        let light = color(0xff_f4_d8, dice.between(0.3, 0.9) as f32);
        d.fill_by(Fill::EvenOdd, HERE, light, HERE, &shape);
    }
    // Rays by an angle's gradient that repeats, over which the glow lies.
    let glow = Circle::new(SUN, 300.0);
    d.layer(Mix::Screen, 0.55, HERE, &glow, |d| {
        let rays = Gradient::new_sweep(SUN, 0.0, (TAU / 28.0) as f32)
            .with_extend(Extend::Reflect)
            .with_stops(&*stops(&[(0.0, 0xff_b0_60, 0.5), (1.0, 0x30_10_20, 0.0)]));
        d.fill(HERE, rays, &glow);
        let halo = Gradient::new_radial(SUN, 300.0).with_stops(&*stops(&[
            (0.0, 0xff_f0_b0, 0.9),
            (0.3, 0xff_a0_50, 0.5),
            (1.0, 0x40_10_30, 0.0),
        ]));
        d.fill(HERE, halo, &glow);
    });
    let disc = Gradient::new_two_point_radial(SUN + Vec2::new(-12.0, -14.0), 4.0, SUN, 58.0)
        .with_stops(&*stops(&[(0.0, 0xff_ff_f0, 1.0), (1.0, 0xff_d0_60, 1.0)]));
    d.fill(HERE, disc, &Circle::new(SUN + aside, 56.0));
}

fn clouds(d: &mut Drawing, dice: &mut Dice) {
    for (x, y, size) in [
        (150.0, 120.0, 1.2),
        (420.0, 190.0, 0.9),
        (800.0, 110.0, 1.4),
        (930.0, 250.0, 0.8),
        (270.0, 270.0, 0.7),
    ] {
        let place = Affine::translate((x, y)) * Affine::scale(size);
        // Flat below.
        let clip = Rect::new(-120.0, -80.0, 120.0, 18.0);
        d.layer(Mix::Normal, 0.6, place, &clip, |d| {
            for i in 0..14 {
                let along = f64::from(i) / 13.0 * 2.0 - 1.0;
                let radius = 14.0 + 26.0 * (1.0 - along * along) * dice.between(0.6, 1.1);
                let shape = Circle::new((along * 90.0, 12.0 - radius * 0.5), radius);
                let colors = [(0.0, 0xff_f0_e0, 0.9), (1.0, 0xc0_6a_80, 0.9)];
                d.fill(place, down(-50.0, 24.0, &colors), &shape);
            }
        });
    }
}

fn mountains(d: &mut Drawing, dice: &mut Dice) {
    for (base, height, rgb) in [
        (395.0, 90.0, 0x8a_4a_7a),
        (405.0, 60.0, 0x6a_3a_6e),
        (415.0, 34.0, 0x4a_2c_5c),
    ] {
        let points: Vec<Point> = (-1..=26)
            .map(|i| {
                let x = f64::from(i) * 40.0;
                // None where the sun goes down.
                let gap = (1.0 - ((x - SUN.x) / 190.0).powi(2)).max(0.0);
                let rise = height * dice.between(0.2, 1.0) * (1.0 - 0.9 * gap);
                Point::new(x, base - rise)
            })
            .collect();
        let colors = [(0.0, rgb, 1.0), (1.0, 0xd0_7a_78, 1.0)];
        let brush = down(base - height, HORIZON + 20.0, &colors);
        d.fill(HERE, brush, &through(&points, Some(HORIZON + 2.0)));
    }
}

fn sea(d: &mut Drawing, dice: &mut Dice) {
    let water = Rect::new(
        -9.0,
        HORIZON,
        f64::from(WIDTH) + 9.0,
        f64::from(HEIGHT) + 9.0,
    );
    let colors = [
        (0.0, 0xf0_9a_78, 1.0),
        (0.25, 0x7a_50_88, 1.0),
        (1.0, 0x10_24_50, 1.0),
    ];
    d.fill(HERE, down(HORIZON, f64::from(HEIGHT), &colors), &water);
    // The sun's reflection, in a group that is cut to the water.
    d.layer(Mix::Screen, 0.8, HERE, &water, |d| {
        for i in 0..70 {
            let y = HORIZON + 3.0 + f64::from(i) * f64::from(i) * 0.065;
            let width = dice.between(0.25, 1.0) * (50.0 + f64::from(i) * 1.3);
            let x = SUN.x + dice.between(-0.5, 0.5) * width;
            let shape = Ellipse::new((x, y), (width, 1.0 + f64::from(i) * 0.04), 0.0);
            d.fill(
                HERE,
                color(0xff_c0_70, dice.between(0.1, 0.4) as f32),
                &shape,
            );
        }
    });
    for i in 0..220 {
        let near = f64::from(i) / 220.0;
        let y = HORIZON + 4.0 + near * near * 320.0;
        let (x, length) = (dice.between(-40.0, 1000.0), 14.0 + near * 90.0);
        let height = 1.0 + near * 8.0;
        let mut path = BezPath::new();
        path.move_to((x, y));
        for _ in 0..3 {
            let start = path.elements().last().and_then(|last| last.end_point());
            let start = start.unwrap_or_default();
            let rise = height * dice.between(0.5, 1.5);
            path.curve_to(
                start + Vec2::new(length * 0.3, -rise),
                start + Vec2::new(length * 0.6, rise * 0.6),
                start + Vec2::new(length, 0.0),
            );
        }
        let light = color(0xff_d8_c0, dice.between(0.08, 0.35) as f32);
        d.stroke(round(0.6 + near * 2.4), HERE, light, &path);
    }
}

/// Points along the middle of the bar, from the mainland to the island, and half its width there.
fn along_bar(at: f64) -> (Point, f64) {
    let x = 170.0 + at * 560.0 + 60.0 * (at * PI).sin();
    let y = 668.0 - at * 208.0 - 34.0 * (at * TAU).sin();
    (Point::new(x, y), 44.0 * (1.0 - at) + 9.0)
}

fn bar(d: &mut Drawing, dice: &mut Dice) {
    let edge = |side: f64| -> Vec<Point> {
        let place = |i: u32| {
            let (middle, half) = along_bar(f64::from(i) / 24.0);
            middle + Vec2::new(side * half * 0.8, side * half * 0.55)
        };
        (0..=24).map(place).collect()
    };
    let outline = |grow: f64| {
        let mut points = edge(1.0 + grow);
        points.extend(edge(-1.0 - grow).into_iter().rev());
        let mut path = through(&points, None);
        path.close_path();
        path
    };
    for (grow, alpha) in [(0.5, 0.25), (0.32, 0.4), (0.15, 0.7)] {
        d.fill(HERE, color(0xff_e8_d0, alpha), &outline(grow));
    }
    let sand = Gradient::new_linear((170.0, 700.0), (740.0, 440.0)).with_stops(&*stops(&[
        (0.0, 0xc8_9a_62, 1.0),
        (0.5, 0xf0_cc_92, 1.0),
        (1.0, 0xe8_a8_70, 1.0),
    ]));
    d.fill(HERE, sand, &outline(0.0));
    for _ in 0..260 {
        let at = dice.between(0.0, 0.95);
        let (middle, half) = along_bar(at);
        let aside = dice.between(-0.9, 0.9) * half;
        let place = middle + Vec2::new(aside * 0.8, aside * 0.55);
        let size = dice.between(0.6, 3.2) * (1.2 - at);
        let shape = Ellipse::new(place, (size * 1.5, size), dice.between(0.0, PI));
        let rgb = [0x8a_6a_48, 0xb0_90_70, 0xff_f0_d8, 0x6a_50_40][dice.between(0.0, 4.0) as usize];
        d.fill(HERE, color(rgb, 0.7), &shape);
        d.stroke(Stroke::new(0.4), HERE, color(0x50_38_28, 0.6), &shape);
    }
    // Steps in the sand.
    let steps: Vec<Point> = (0..=20).map(|i| along_bar(f64::from(i) / 20.0).0).collect();
    let dashes = round(3.0).with_dashes(2.0, [6.0, 7.0, 2.0, 7.0]);
    d.stroke(dashes, HERE, color(0x7a_50_30, 0.8), &through(&steps, None));
}

fn island(d: &mut Drawing, dice: &mut Dice) {
    let rise = [
        0.0, 18.0, 52.0, 74.0, 96.0, 118.0, 104.0, 86.0, 60.0, 34.0, 12.0, 0.0,
    ];
    let hill: Vec<Point> = (0..)
        .zip(rise)
        .map(|(i, rise)| Point::new(672.0 + f64::from(i) * 26.0, 468.0 - rise))
        .collect();
    let colors = [
        (0.0, 0x5a_6a_38, 1.0),
        (0.6, 0x38_48_34, 1.0),
        (1.0, 0x6a_48_40, 1.0),
    ];
    let slope = through(&hill, Some(470.0));
    d.fill(HERE, down(350.0, 470.0, &colors), &slope);
    d.layer(Mix::Multiply, 0.8, HERE, &slope, |d| {
        for i in 0..40 {
            let y = 352.0 + f64::from(i) * 3.0;
            let line = [0.0, 80.0, 160.0, 240.0, 320.0]
                .map(|x| Point::new(660.0 + x, y + dice.between(-5.0, 5.0)));
            let tone = color(0x90_90_60, dice.between(0.2, 0.7) as f32);
            d.stroke(Stroke::new(2.0), HERE, tone, &through(&line, None));
        }
    });
    for i in 0..90 {
        let along = dice.between(0.6, 10.2);
        let (left, part) = (along.floor() as usize, along.fract());
        let top = rise[left] * (1.0 - part) + rise[left + 1] * part;
        let depth = (f64::from(i) / 90.0).sqrt() * top * 0.75;
        let foot = Point::new(672.0 + along * 26.0, 466.0 - top + depth);
        let size = dice.between(5.0, 9.0) + depth * 0.05;
        let trunk = Line::new(foot, foot - Vec2::new(0.0, size));
        d.stroke(Stroke::new(1.2), HERE, color(0x40_28_20, 1.0), &trunk);
        let crown = Gradient::new_two_point_radial((-0.35, -0.45), 0.05, (-0.2, -0.3), 1.3)
            .with_stops(&*stops(&[
                (0.0, 0xb0_98_48, 1.0),
                (0.5, 0x48_60_30, 1.0),
                (1.0, 0x20_34_24, 1.0),
            ]));
        let place = Affine::translate(foot.to_vec2() - Vec2::new(0.0, size * 1.3))
            * Affine::scale_non_uniform(size * 0.55, size * 0.8);
        d.fill(place, crown, &Circle::new((0.0, 0.0), 1.0));
    }
}

fn mainland(d: &mut Drawing, dice: &mut Dice) {
    let edge = [
        (-20.0, 516.0),
        (60.0, 532.0),
        (120.0, 570.0),
        (190.0, 596.0),
        (240.0, 640.0),
        (250.0, 690.0),
        (300.0, 720.0),
        (360.0, 760.0),
    ]
    .map(Point::from);
    let colors = [
        (0.0, 0x5a_5a_34, 1.0),
        (0.5, 0x30_38_28, 1.0),
        (1.0, 0x18_1a_20, 1.0),
    ];
    let ground = through(&edge, Some(760.0));
    d.fill(HERE, down(520.0, 750.0, &colors), &ground);
    let tones = [0x3a_48_20, 0x6a_70_30, 0x98_88_40, 0x28_38_20, 0xc0_98_50];
    for i in 0..420 {
        let depth = (f64::from(i) / 420.0).powf(0.8);
        let foot = Point::new(dice.between(0.0, 270.0), 545.0 + depth * 215.0);
        if ground.winding(foot) == 0 {
            continue;
        }
        let height = dice.between(14.0, 34.0) * (0.5 + depth);
        let lean = dice.between(-0.4, 0.7) * height;
        let mut blade = BezPath::new();
        blade.move_to(foot);
        blade.quad_to(
            foot + Vec2::new(0.0, -height * 0.7),
            foot + Vec2::new(lean, -height),
        );
        blade.quad_to(
            foot + Vec2::new(3.0, -height * 0.6),
            foot + Vec2::new(2.0 + depth * 2.0, 0.0),
        );
        blade.close_path();
        let rgb = tones[dice.between(0.0, 5.0) as usize];
        d.fill(HERE, color(rgb, 0.95), &blade);
        if i % 7 == 0 {
            let head = foot + Vec2::new(lean, -height);
            for petal in 0..5 {
                let turn = Affine::rotate_about(f64::from(petal) * TAU / 5.0, head);
                let shape = Ellipse::new(head + Vec2::new(0.0, -3.0), (1.6, 3.2), 0.0);
                d.fill(turn, color(0xf0_70_90, 0.9), &shape);
            }
            d.fill(HERE, color(0xff_e0_60, 1.0), &Circle::new(head, 1.6));
        }
    }
}
