//! A picture: the Mandelbrot set, computed by a kernel and shown on the page's canvas.

use tombolo::{Constants, Device, Program};

use super::{Found, same};
use crate::page::Page;

const TURNS: u32 = 200;

/// Every pixel is a count of turns; some are counted again on the host.
pub async fn picture(page: &Page, device: &Device) -> Found {
    let (width, height) = page.size();
    let program = Program::new(
        "mandelbrot.wgsl",
        "
        override TURNS: u32;
        @group(0) @binding(0) var<storage, read_write> turns: array<u32>;
        @group(0) @binding(1) var<uniform> size: vec2<u32>;
        @compute @workgroup_size(8, 8)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if any(id.xy >= size) { return; }
            let c = vec2<f32>(id.xy) / vec2<f32>(size) * vec2<f32>(3.0, 2.25) - vec2<f32>(2.2, 1.125);
            var z = vec2<f32>();
            var n = 0u;
            while n < TURNS && dot(z, z) < 4.0 {
                z = vec2<f32>(z.x * z.x - z.y * z.y, 2.0 * z.x * z.y) + c;
                n++;
            }
            turns[id.y * size.x + id.x] = n;
        }",
    )?;
    let kernel = device.kernel(&program, "main", &Constants::new().set("TURNS", TURNS))?;
    let turns = device.buffer(&vec![u32::MAX; (width * height) as usize])?;
    let launch = kernel
        .launch()
        .buffer("turns", &turns)
        .value("size", &[width, height]);
    launch
        .workgroups([width.div_ceil(8), height.div_ceil(8), 1])
        .submit()?
        .await?;
    let turns = turns.read_back(..)?.await?;
    // Far from the border of the set rounding makes no difference.
    let at = |x: u32, y: u32| turns[(y * width + x) as usize];
    same("a pixel inside", at(width * 7 / 10, height / 2), TURNS)?;
    same("a pixel outside", at(0, 0), 1)?;
    same("the largest count", turns.iter().max(), Some(&TURNS))?;
    let upside_down = (1..height / 2).map(|y| {
        (0..width)
            .filter(|x| at(*x, y).abs_diff(at(*x, height - y)) <= 1)
            .count()
    });
    let alike: usize = upside_down.sum();
    let of = (width * (height / 2 - 1)) as usize;
    same("the symmetry", alike * 50 > of * 49, true)?;
    let pixels: Vec<u8> = turns.iter().flat_map(|turns| colour(*turns)).collect();
    page.show(&pixels, width)?;
    let inside = turns.iter().filter(|turns| **turns == TURNS).count();
    Ok(format!("{width} x {height} pixels, {inside} in the set"))
}

fn colour(turns: u32) -> [u8; 4] {
    if turns >= TURNS {
        return [16, 20, 40, 255];
    }
    let t = turns as f32 / TURNS as f32;
    let part = |scale: f32, shift: f32| (127.5 + 127.5 * (scale * t.sqrt() + shift).sin()) as u8;
    [part(9.0, -1.6), part(11.0, -0.9), part(14.0, 0.4), 255]
}
