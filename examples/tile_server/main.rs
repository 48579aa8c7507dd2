//! A kernel that stays on the GPU and renders tiles of the Mandelbrot set on request. Rust streams a zoom through it, tile
//! by tile in the order of a spiral; an ordinary kernel on the same device gives each frame its colours while the server
//! works on the next one; and all frames end up on a contact sheet.

mod frame;
#[path = "../support/mod.rs"]
mod support;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use image::{Rgb, RgbImage};
use indicatif::{ProgressBar, ProgressStyle};
use tombolo::{Constants, Context, Device, Kernel, PersistentKernel, Program};

use frame::{Frame, Job, SIDE, TILES, height, reference, spiral, width};
use support::text::grouped;

/// Frames in a row of the contact sheet, and the pixels between them.
const COLUMNS: u32 = 4;
const GAP: u32 = 6;
/// Calls that are on their way at a time.
const WINDOW: usize = 16;

/// Streams a zoom into the Mandelbrot set through a kernel that stays on the GPU.
///
/// Checked are all pixels against the host's, and that the server has served each tile once. The exit status is 0 only if
/// that holds.
#[derive(Parser)]
#[command(after_help = support::ADAPTERS)]
struct Arguments {
    /// Frames of the zoom.
    #[arg(short, long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=200))]
    frames: u32,
    /// The PNG to write.
    #[arg(short, long, value_name = "FILE", default_value = "tile_server.png")]
    output: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    support::run(|| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let device = Context::new()?.device()?;
    show("adapter", device.name());
    let program = Program::new("server.wgsl", include_str!("server.wgsl"))?;
    let server = PersistentKernel::builder(&device, &program)
        .group_handler("tile")
        .start()?;
    let tile = server.function::<(Job,), [u32; 64]>("tile")?;
    let studio = Studio::new(&device)?;
    // A call would not wait for it.
    device.global("tiles_served")?.write(&0u32)?.wait()?;

    let spiral = spiral();
    let frames: Vec<Frame> = (0..arguments.frames)
        .map(|index| Frame::of(index, arguments.frames))
        .collect();
    let jobs: Vec<(usize, [u32; 2])> = (0..frames.len())
        .flat_map(|frame| spiral.iter().map(move |&at| (frame, at)))
        .collect();
    let bar = progress_bar(jobs.len() as u64);
    let start = Instant::now();
    let mut pictures = Vec::new();
    let mut pixels = vec![0u8; (width() * height()) as usize];
    let mut wrong = 0usize;
    let stream = tile.sequence(
        jobs.iter().map(|&(frame, at)| (frames[frame].job(at),)),
        WINDOW,
    );
    for (&(frame, at), words) in jobs.iter().zip(stream) {
        let words = words?;
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        let expected = reference(frames[frame].job(at));
        wrong += (bytes.iter().zip(&expected))
            .filter(|(a, b)| a != b)
            .count();
        for (row, line) in (0..).zip(bytes.chunks(SIDE as usize)) {
            let start = (at[1] * SIDE + row) * width() + at[0] * SIDE;
            pixels[start as usize..][..SIDE as usize].copy_from_slice(line);
        }
        bar.inc(1);
        if Some(&at) == spiral.last() {
            // The server works on the next frame meanwhile, and makes room for this.
            pictures.push(studio.develop(&pixels, frames[frame].limit)?);
            bar.set_message(format!("frame {} of {}", frame + 1, frames.len()));
        }
    }
    let elapsed = start.elapsed();
    bar.finish_and_clear();

    let leases = server.leases();
    drop(server);
    let served: u32 = device.global("tiles_served")?.read()?;
    let sheet = contact_sheet(&pictures);
    sheet.save(&arguments.output)?;
    let [columns, rows] = TILES;
    show(
        "tiles",
        &format!(
            "{} of {SIDE}×{SIDE} pixels, {columns}×{rows} a frame, {} frames",
            grouped(jobs.len() as u64),
            frames.len()
        ),
    );
    show(
        "time",
        &format!(
            "{elapsed:.2?}: {} tiles a second, {leases} leases, {} ordinary launches between",
            grouped((jobs.len() as f64 / elapsed.as_secs_f64()) as u64),
            frames.len()
        ),
    );
    show("picture", &arguments.output.display().to_string());
    let once = served as usize == jobs.len();
    show(
        "self-check",
        &match (wrong, once) {
            (0, true) => "all pixels are the host's, each tile was served once".to_owned(),
            (0, false) => format!("{served} tiles were served"),
            _ => format!("{wrong} pixels differ from the host's"),
        },
    );
    Ok(wrong == 0 && once)
}

/// Gives frames their colours, with an ordinary kernel.
struct Studio {
    device: Device,
    kernel: Kernel,
}

impl Studio {
    fn new(device: &Device) -> Result<Self, Box<dyn Error>> {
        let program = Program::new("develop.wgsl", include_str!("develop.wgsl"))?;
        Ok(Self {
            device: device.clone(),
            kernel: device.kernel(&program, "main", &Constants::new())?,
        })
    }

    fn develop(&self, pixels: &[u8], limit: u32) -> Result<RgbImage, Box<dyn Error>> {
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(pixels);
        let iterations = self.device.buffer(&words)?;
        let colours = self.device.zeroed::<u32>(pixels.len())?;
        self.kernel
            .launch()
            .buffer("iterations", &iterations)
            .buffer("colours", &colours)
            .value("limit", &limit)
            .invocations(pixels.len() as u32)
            .submit()?;
        let colours = colours.read()?;
        let pixel = |x: u32, y: u32| {
            let [red, green, blue, _] = colours[(y * width() + x) as usize].to_le_bytes();
            Rgb([red, green, blue])
        };
        Ok(RgbImage::from_fn(width(), height(), pixel))
    }
}

fn contact_sheet(pictures: &[RgbImage]) -> RgbImage {
    let rows = (pictures.len() as u32).div_ceil(COLUMNS);
    let side = |count: u32, pixels: u32| count * (pixels + GAP) + GAP;
    let size = (side(COLUMNS, width()), side(rows, height()));
    let mut sheet = RgbImage::from_pixel(size.0, size.1, Rgb([24, 24, 28]));
    for (index, picture) in (0..).zip(pictures) {
        let left = side(index % COLUMNS, width());
        let top = side(index / COLUMNS, height());
        image::imageops::replace(&mut sheet, picture, left.into(), top.into());
    }
    sheet
}

fn progress_bar(tiles: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} tiles, {per_sec}, {msg}");
    let bar = ProgressBar::new(tiles);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn show(what: &str, value: &str) {
    println!("{what:<12} {value}");
}
