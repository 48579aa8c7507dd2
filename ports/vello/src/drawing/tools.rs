//! What drawings are made of.

use std::f64::consts::TAU;

use vello::kurbo::{Affine, BezPath, Cap, Join, Point, Stroke, Vec2};
use vello::peniko::{Color, ColorStop, Gradient};

/// Where a path is drawn as it is.
pub const HERE: Affine = Affine::IDENTITY;

/// Numbers that are the same in each run (Knuth's MMIX generator; its upper bits).
pub struct Dice(pub u64);

impl Dice {
    /// From `low` up to `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        self.0 = (self.0)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        low + (high - low) * ((self.0 >> 40) as f64 / f64::from(1 << 24))
    }
}

/// A colour by its six digits.
pub fn color(rgb: u32, alpha: f32) -> Color {
    let [_, r, g, b] = rgb.to_be_bytes();
    Color::from_rgb8(r, g, b).with_alpha(alpha)
}

/// Stops of a gradient: offset, colour, opacity.
pub fn stops(colors: &[(f32, u32, f32)]) -> Vec<ColorStop> {
    let stop = |&(offset, rgb, alpha): &(f32, u32, f32)| ColorStop {
        offset,
        color: color(rgb, alpha).into(),
    };
    colors.iter().map(stop).collect()
}

/// A gradient downwards, from one height to another.
pub fn down(from: f64, to: f64, colors: &[(f32, u32, f32)]) -> Gradient {
    Gradient::new_linear((0.0, from), (0.0, to)).with_stops(&*stops(colors))
}

/// A vector by its angle and length.
pub fn polar(angle: f64, radius: f64) -> Vec2 {
    Vec2::new(angle.cos(), angle.sin()) * radius
}

/// A stroke with round caps and joins.
pub fn round(width: f64) -> Stroke {
    Stroke::new(width)
        .with_caps(Cap::Round)
        .with_join(Join::Round)
}

/// A star with `points` points whose edges cross each other.
pub fn star(centre: Point, radius: f64, points: u32, turn: f64) -> BezPath {
    let mut path = BezPath::new();
    for i in 0..points {
        let at = centre
            + polar(
                turn + TAU * f64::from(i * 2 % points) / f64::from(points),
                radius,
            );
        match i {
            0 => path.move_to(at),
            _ => path.line_to(at),
        }
    }
    path.close_path();
    path
}

/// A curve through points (Catmull-Rom as Bézier curves), closed along the bottom at `floor` if there is one.
pub fn through(points: &[Point], floor: Option<f64>) -> BezPath {
    let mut path = BezPath::new();
    let at = |i: usize| points[i.min(points.len() - 1)];
    path.move_to(points[0]);
    for i in 0..points.len() - 1 {
        let (p0, p1, p2, p3) = (at(i.saturating_sub(1)), at(i), at(i + 1), at(i + 2));
        path.curve_to(p1 + (p2 - p0) / 6.0, p2 - (p3 - p1) / 6.0, p2);
    }
    if let Some(floor) = floor {
        path.line_to((at(points.len()).x, floor));
        path.line_to((points[0].x, floor));
        path.close_path();
    }
    path
}
