//! What stands, floats and flies in the picture.

use std::f64::consts::{PI, TAU};

use vello::kurbo::{
    Affine, BezPath, Cap, Circle, Join, Line, Point, Rect, RoundedRect, Shape, Stroke,
};
use vello::peniko::{
    BlendMode, Blob, Compose, Extend, Fill, Gradient, ImageAlphaType, ImageBrush, ImageData,
    ImageFormat, ImageQuality, Mix,
};

use super::Drawing;
use super::tombolo::{HEIGHT, WIDTH};
use super::tools::{Dice, HERE, color, down, round, star, stops};

/// The lighthouse on the island, and its beam.
pub fn lighthouse(d: &mut Drawing) {
    let place = Affine::translate((818.0, 352.0));
    let beam = Gradient::new_linear((0.0, 0.0), (-520.0, 0.0))
        .with_stops(&*stops(&[(0.0, 0xff_ff_d0, 0.8), (1.0, 0xff_ff_d0, 0.0)]));
    let mut cone = BezPath::new();
    cone.move_to((0.0, -77.0));
    cone.line_to((-520.0, -190.0));
    cone.quad_to((-560.0, -130.0), (-520.0, -90.0));
    cone.close_path();
    let light = BlendMode::new(Mix::ColorDodge, Compose::SrcOver);
    d.layer(light, 0.5, place, &cone, |d| d.fill(place, beam, &cone));
    let mut tower = BezPath::new();
    tower.move_to((-9.0, -66.0));
    tower.line_to((9.0, -66.0));
    tower.quad_to((10.0, -20.0), (15.0, 8.0));
    tower.line_to((-15.0, 8.0));
    tower.quad_to((-10.0, -20.0), (-9.0, -66.0));
    tower.close_path();
    d.layer(Mix::Normal, 1.0, place, &tower, |d| {
        d.fill(place, color(0xff_f4_e8, 1.0), &tower);
        for i in 0..4 {
            let y = -60.0 + f64::from(i) * 20.0;
            let band = Rect::new(-20.0, y, 20.0, y + 10.0);
            let turned = place * Affine::rotate_about(-0.16, (0.0, y));
            d.fill(turned, color(0xc0_30_30, 1.0), &band);
        }
        let shade = Gradient::new_linear((-12.0, 0.0), (15.0, 0.0))
            .with_stops(&*stops(&[(0.0, 0x00_00_00, 0.0), (1.0, 0x20_10_30, 0.7)]));
        d.fill(place, shade, &tower);
    });
    d.stroke(Stroke::new(1.0), place, color(0x40_20_20, 1.0), &tower);
    let lamp = RoundedRect::new(-7.0, -84.0, 7.0, -68.0, 3.0);
    d.fill(place, color(0xff_f8_a0, 1.0), &lamp);
    d.stroke(Stroke::new(1.5), place, color(0x30_20_20, 1.0), &lamp);
    let roof = star(Point::new(0.0, -86.0), 11.0, 3, -PI / 2.0);
    d.fill(place, color(0x80_20_28, 1.0), &roof);
}

/// Three boats.
pub fn boats(d: &mut Drawing) {
    for (x, y, size, tilt) in [
        (420.0, 470.0, 0.6, 0.05),
        (590.0, 668.0, 1.1, -0.07),
        (900.0, 560.0, 0.9, 0.06),
    ] {
        let place = Affine::translate((x, y)) * Affine::rotate(tilt) * Affine::scale(size);
        let mut hull = BezPath::new();
        hull.move_to((-44.0, 0.0));
        hull.quad_to((0.0, 8.0), (48.0, -4.0));
        hull.curve_to((40.0, 18.0), (20.0, 20.0), (0.0, 20.0));
        hull.curve_to((-26.0, 20.0), (-38.0, 14.0), (-44.0, 0.0));
        d.fill(
            place,
            down(0.0, 20.0, &[(0.0, 0x80_40_30, 1.0), (1.0, 0x30_18_20, 1.0)]),
            &hull,
        );
        d.stroke(Stroke::new(2.0), place, color(0xff_e0_b0, 0.9), &hull);
        d.stroke(
            round(2.5),
            place,
            color(0x50_30_20, 1.0),
            &Line::new((0.0, 4.0), (4.0, -86.0)),
        );
        for (side, rgb) in [(1.0, 0xff_f6_e8), (-1.0, 0xf0_c8_a8)] {
            let mut sail = BezPath::new();
            sail.move_to((4.0, -84.0));
            sail.curve_to(
                (20.0 * side, -60.0),
                (40.0 * side, -30.0),
                (42.0 * side, -8.0),
            );
            sail.quad_to((20.0 * side, -14.0), (2.0, -6.0));
            sail.close_path();
            d.fill(place, color(rgb, 0.95), &sail);
            let seam = Stroke::new(0.8).with_join(Join::Bevel);
            d.stroke(seam, place, color(0x80_50_40, 0.8), &sail);
        }
    }
}

/// Birds, by strokes with every kind of join and cap.
pub fn birds(d: &mut Drawing, dice: &mut Dice) {
    for i in 0..16 {
        let size = dice.between(6.0, 16.0);
        let place = Affine::translate((dice.between(300.0, 980.0), dice.between(180.0, 330.0)))
            * Affine::rotate(dice.between(-0.3, 0.3))
            * Affine::scale(size);
        let mut wings = BezPath::new();
        wings.move_to((-1.0, -0.3));
        wings.quad_to((-0.5, -0.6), (0.0, 0.0));
        wings.quad_to((0.5, -0.6), (1.0, -0.3));
        let join = [Join::Miter, Join::Round, Join::Bevel][i % 3];
        let cap = [Cap::Butt, Cap::Round, Cap::Square][i / 3 % 3];
        let style = Stroke::new(0.16).with_join(join).with_caps(cap);
        d.stroke(style, place, color(0x20_14_28, 0.9), &wings);
    }
}

/// A rose of petals in groups within groups, deeper than what the fine stage keeps in registers.
pub fn compass(d: &mut Drawing) {
    let place = Affine::translate((882.0, 652.0));
    let plate = Rect::new(-76.0, -76.0, 76.0, 76.0);
    d.shadow(
        place * Affine::translate((5.0, 7.0)),
        plate,
        color(0x00_00_00, 0.7),
        24.0,
        8.0,
    );
    d.fill(place, color(0xf4_e4_c4, 1.0), &plate.to_rounded_rect(24.0));
    let mixes = [
        Mix::Multiply,
        Mix::Overlay,
        Mix::Difference,
        Mix::SoftLight,
        Mix::Exclusion,
        Mix::Luminosity,
        Mix::Lighten,
    ];
    petals(d, place, &mixes, 70.0);
    let turned = place * Affine::rotate(0.4);
    d.fill_by(
        Fill::NonZero,
        turned,
        checks(),
        Affine::scale(3.0),
        &Circle::new((0.0, 0.0), 15.0),
    );
    d.stroke(
        Stroke::new(2.0),
        place,
        color(0x60_30_20, 1.0),
        &Circle::new((0.0, 0.0), 15.0),
    );
    for i in 0..32 {
        let length = if i % 8 == 0 { 10.0 } else { 5.0 };
        let mark = Line::new((0.0, -73.0), (0.0, -73.0 + length));
        let turned = place * Affine::rotate(f64::from(i) * TAU / 32.0);
        let style = Stroke::new(1.4).with_caps(Cap::Square);
        d.stroke(style, turned, color(0x60_30_20, 1.0), &mark);
    }
}

fn petals(d: &mut Drawing, place: Affine, mixes: &[Mix], radius: f64) {
    let Some((mix, rest)) = mixes.split_first() else {
        return;
    };
    d.layer(*mix, 0.85, place, &Circle::new((0.0, 0.0), radius), |d| {
        let count = 6 + rest.len() as u32 * 2;
        for i in 0..count {
            let turned = place * Affine::rotate(f64::from(i) * TAU / f64::from(count));
            let mut petal = BezPath::new();
            petal.move_to((0.0, 0.0));
            petal.curve_to(
                (radius * 0.3, -radius * 0.3),
                (radius * 0.25, -radius * 0.8),
                (0.0, -radius),
            );
            petal.curve_to(
                (-radius * 0.25, -radius * 0.8),
                (-radius * 0.3, -radius * 0.3),
                (0.0, 0.0),
            );
            let hue =
                [0xc0_40_40, 0x30_60_a0, 0xe0_b0_40, 0x40_80_60][(i as usize + rest.len()) % 4];
            let brush = Gradient::new_linear((0.0, 0.0), (0.0, -radius))
                .with_stops(&*stops(&[(0.0, 0xff_f0_d0, 0.9), (1.0, hue, 0.8)]));
            d.fill(turned, brush, &petal);
        }
        petals(d, place, rest, radius * 0.93);
    });
}

/// An image of 8 by 8 squares.
fn checks() -> ImageBrush {
    let pixel = |i: u32| match (i % 8 + i / 8) % 2 {
        0 => [0x20, 0x30, 0x50, 0xff],
        _ => [0xf0, 0xe0, (i * 3) as u8, 0xff],
    };
    let pixels: Vec<u8> = (0..64).flat_map(pixel).collect();
    let image = ImageData {
        data: Blob::from(pixels),
        format: ImageFormat::Rgba8,
        alpha_type: ImageAlphaType::Alpha,
        width: 8,
        height: 8,
    };
    ImageBrush::new(image)
        .with_extend(Extend::Repeat)
        .with_quality(ImageQuality::Low)
}

/// The frame around the picture: what lies between two rectangles.
pub fn frame(d: &mut Drawing) {
    let (width, height) = (f64::from(WIDTH), f64::from(HEIGHT));
    let mut border = Rect::new(-9.0, -9.0, width + 9.0, height + 9.0).to_path(0.1);
    border
        .extend(RoundedRect::new(14.0, 14.0, width - 14.0, height - 14.0, 22.0).path_elements(0.1));
    let wood = Gradient::new_linear((0.0, 0.0), (60.0, 60.0))
        .with_extend(Extend::Reflect)
        .with_stops(&*stops(&[(0.0, 0x5a_38_28, 1.0), (1.0, 0x34_20_1c, 1.0)]));
    d.fill_by(Fill::EvenOdd, HERE, wood, HERE, &border);
    let inner = RoundedRect::new(9.0, 9.0, width - 9.0, height - 9.0, 18.0);
    let beads = round(3.0).with_dashes(0.0, [2.0, 9.0]);
    d.stroke(beads, HERE, color(0xd8_b0_70, 1.0), &inner);
}
