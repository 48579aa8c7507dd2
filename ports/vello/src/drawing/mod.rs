//! A drawing, as a list that two renderers take: Vello, and the reference that rasterizes on the processor.

mod objects;
mod tombolo;
mod tools;

use vello::Scene;
use vello::kurbo::{Affine, BezPath, Rect, Shape, Stroke};
use vello::peniko::{BlendMode, Brush, Color, Fill, ImageBrush};
use vello_cpu::{
    ImageSource, PaintType, Pixmap, RasterizerSettings, RenderContext, RenderMode, RenderSettings,
    Resources,
};

pub use tombolo::{HEIGHT, WIDTH, tombolo};

use crate::picture::Picture;

/// One thing that is drawn, and where.
#[derive(Clone)]
struct Item {
    transform: Affine,
    what: What,
}

#[derive(Clone)]
enum What {
    Path {
        how: How,
        brush: Box<Brush>,
        brush_transform: Affine,
        path: BezPath,
    },
    /// What is drawn up to the next end of a layer goes into a group, cut to a path.
    Layer {
        blend: BlendMode,
        alpha: f32,
        clip: BezPath,
    },
    End,
    /// The shadow of a rectangle with round corners.
    Shadow {
        rect: Rect,
        color: Color,
        radius: f32,
        deviation: f32,
    },
}

/// How a path becomes an area.
#[derive(Clone)]
enum How {
    Fill(Fill),
    Stroke(Stroke),
}

/// How fine shapes become paths.
const TOLERANCE: f64 = 0.05;

/// A list of things, drawn one over another.
#[derive(Default)]
pub struct Drawing {
    items: Vec<Item>,
}

impl Drawing {
    /// How many things there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// The same so many times across and down, each time as much smaller.
    pub fn repeated(self, times: u32) -> Self {
        let step = 1.0 / f64::from(times);
        let mut items = Vec::new();
        for place in 0..times * times {
            let (x, y) = (
                f64::from(place % times) * step,
                f64::from(place / times) * step,
            );
            let corner = (x * f64::from(WIDTH), y * f64::from(HEIGHT));
            let smaller = Affine::translate(corner) * Affine::scale(step);
            items.extend(self.items.iter().cloned().map(|mut item| {
                item.transform = smaller * item.transform;
                item
            }));
        }
        Self { items }
    }

    fn push(&mut self, transform: Affine, what: What) {
        self.items.push(Item { transform, what });
    }

    fn fill(&mut self, transform: Affine, brush: impl Into<Brush>, shape: &impl Shape) {
        self.fill_by(Fill::NonZero, transform, brush, Affine::IDENTITY, shape);
    }

    fn fill_by(
        &mut self,
        rule: Fill,
        transform: Affine,
        brush: impl Into<Brush>,
        brush_transform: Affine,
        shape: &impl Shape,
    ) {
        let what = What::Path {
            how: How::Fill(rule),
            brush: Box::new(brush.into()),
            brush_transform,
            path: shape.to_path(TOLERANCE),
        };
        self.push(transform, what);
    }

    fn stroke(
        &mut self,
        style: Stroke,
        transform: Affine,
        brush: impl Into<Brush>,
        shape: &impl Shape,
    ) {
        let what = What::Path {
            how: How::Stroke(style),
            brush: Box::new(brush.into()),
            brush_transform: Affine::IDENTITY,
            path: shape.to_path(TOLERANCE),
        };
        self.push(transform, what);
    }

    /// Draws what `draw` draws as a group.
    fn layer(
        &mut self,
        blend: impl Into<BlendMode>,
        alpha: f32,
        transform: Affine,
        clip: &impl Shape,
        draw: impl FnOnce(&mut Self),
    ) {
        let what = What::Layer {
            blend: blend.into(),
            alpha,
            clip: clip.to_path(TOLERANCE),
        };
        self.push(transform, what);
        draw(self);
        self.push(transform, What::End);
    }

    fn shadow(&mut self, transform: Affine, rect: Rect, color: Color, radius: f32, deviation: f32) {
        let what = What::Shadow {
            rect,
            color,
            radius,
            deviation,
        };
        self.push(transform, what);
    }

    /// As Vello's scene.
    pub fn scene(&self) -> Scene {
        let mut scene = Scene::new();
        for Item { transform, what } in &self.items {
            let transform = *transform;
            match what {
                What::Path {
                    how,
                    brush,
                    brush_transform,
                    path,
                } => {
                    let (brush, on_brush) = (&**brush, Some(*brush_transform));
                    match how {
                        How::Fill(rule) => scene.fill(*rule, transform, brush, on_brush, path),
                        How::Stroke(style) => scene.stroke(style, transform, brush, on_brush, path),
                    }
                }
                What::Layer { blend, alpha, clip } => {
                    scene.push_layer(Fill::NonZero, *blend, *alpha, transform, clip);
                }
                What::End => scene.pop_layer(),
                What::Shadow {
                    rect,
                    color,
                    radius,
                    deviation,
                } => {
                    let (radius, deviation) = (f64::from(*radius), f64::from(*deviation));
                    scene.draw_blurred_rounded_rect(transform, *rect, *color, radius, deviation);
                }
            }
        }
        scene
    }

    /// The pixels of `vello_cpu`, which rasterizes strips of pixels with floating-point numbers on one thread.
    pub fn reference(&self) -> Picture {
        let settings = RenderSettings::default();
        let (width, height) = (WIDTH as u16, HEIGHT as u16);
        let mut context = RenderContext::new_with(width, height, settings);
        for item in &self.items {
            draw(&mut context, item);
        }
        let mut pixmap = Pixmap::new(width, height);
        let settings = RasterizerSettings {
            render_mode: RenderMode::OptimizeQuality,
            ..RasterizerSettings::default()
        };
        context.flush();
        context.render_with(&mut pixmap, &mut Resources::new(), settings);
        Picture {
            width: WIDTH,
            height: HEIGHT,
            pixels: pixmap.data_as_u8_slice().to_vec(),
        }
    }
}

/// Vello's fine stage reads gradients and shadows at the upper left corners of pixels, and the reference in their middle; so
/// here they lie half a pixel further on. Images are read in the middle by both.
fn half_a_pixel_on(transform: Affine, brush: &Brush) -> Affine {
    match brush {
        Brush::Image(_) => Affine::IDENTITY,
        _ => transform.inverse() * Affine::translate((0.5, 0.5)) * transform,
    }
}

fn draw(context: &mut RenderContext, Item { transform, what }: &Item) {
    let transform = *transform;
    context.set_transform(transform);
    match what {
        What::Path {
            how,
            brush,
            brush_transform,
            path,
        } => {
            context.set_paint_transform(half_a_pixel_on(transform, brush) * *brush_transform);
            context.set_paint(paint(brush));
            match how {
                How::Fill(rule) => {
                    context.set_fill_rule(*rule);
                    context.fill_path(path);
                }
                How::Stroke(style) => {
                    context.set_stroke(style.clone());
                    context.stroke_path(path);
                }
            }
        }
        What::Layer { blend, alpha, clip } => {
            context.set_fill_rule(Fill::NonZero);
            context.push_layer(Some(clip), Some(*blend), Some(*alpha), None, None);
        }
        What::End => context.pop_layer(),
        What::Shadow {
            rect,
            color,
            radius,
            deviation,
        } => {
            context.set_paint_transform(half_a_pixel_on(transform, &Brush::Solid(*color)));
            context.set_paint(*color);
            context.fill_blurred_rounded_rect(rect, *radius, *deviation, false);
        }
    }
}

fn paint(brush: &Brush) -> PaintType {
    match brush {
        Brush::Solid(color) => PaintType::Solid(*color),
        Brush::Gradient(gradient) => PaintType::Gradient(gradient.clone()),
        Brush::Image(image) => PaintType::Image(ImageBrush {
            image: ImageSource::from_peniko_image_data(&image.image),
            sampler: image.sampler,
        }),
    }
}
