//! An exact median filter for pictures: the window's size, given when the program runs, is the length
//! of an array in the kernel's private memory. The result is compared with the host's, pixel by pixel.

mod filter;
mod picture;
mod reference;
#[path = "../support/mod.rs"]
mod support;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use image::{DynamicImage, GenericImage, ImageDecoder, ImageReader, RgbaImage};
use indicatif::{ProgressBar, ProgressStyle};
use tombolo::Context;

use filter::Filter;
use support::text::grouped;

/// Removes noise from a picture with an exact median filter, on the GPU.
///
/// Each pixel becomes the median of the N x N pixels around it, for red, green and blue by themselves;
/// beyond the border the border's pixels are repeated, and alpha is kept. The result is compared with
/// that of the host; the exit status is 0 only if every pixel is equal.
#[derive(Parser)]
#[command(after_help = support::ADAPTERS)]
struct Arguments {
    /// A PNG or JPEG of any size. Without it a noisy test picture is drawn.
    input: Option<PathBuf>,
    /// Side of the window, in pixels: odd, 3 to 15.
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = parse_size)]
    size: u32,
    /// The PNG to write.
    #[arg(short, long, value_name = "FILE", default_value = "median.png")]
    output: PathBuf,
    /// Write the picture before and after side by side; always so for the test picture.
    #[arg(long)]
    compare: bool,
}

fn parse_size(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(n @ 3..=15) if n % 2 == 1 => Ok(n),
        _ => Err("the window's side is an odd number from 3 to 15".to_owned()),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    support::run(|| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let device = Context::new()?.device()?;
    show("adapter", device.name());
    let before = match &arguments.input {
        Some(path) => read(path)?,
        None => picture::noisy().into(),
    };
    let has_alpha = before.color().has_alpha();
    let before = before.into_rgba8();
    let (width, height) = before.dimensions();
    let pixels = u64::from(width) * u64::from(height);
    show("picture", &format!("{width} x {height} pixels"));

    let n = arguments.size;
    let start = Instant::now();
    let filter = Filter::new(&device, n)?;
    let compiled = start.elapsed();
    let bytes = filter.private_bytes();
    show(
        "window",
        &format!("{n} x {n}, an array of {bytes} bytes in each invocation's private memory"),
    );
    show("compiled", &format!("{compiled:.1?}"));

    let bar = progress_bar(pixels);
    let start = Instant::now();
    let after = filter.run(&before, |done| bar.inc(done))?;
    let elapsed = start.elapsed();
    bar.finish_and_clear();
    let gpu = match after.gpu_time {
        Some(time) => format!("{time:.1?} on the device"),
        None => "the device has no timestamps".to_owned(),
    };
    let launches = match after.launches {
        1 => "1 launch".to_owned(),
        many => format!("{many} launches"),
    };
    show("filtered", &format!("{elapsed:.1?} in {launches}; {gpu}"));

    let changed = differences(&before, &after.image);
    show(
        "changed",
        &format!("{} of {} pixels", grouped(changed), grouped(pixels)),
    );
    let start = Instant::now();
    let wrong = differences(&after.image, &reference::median(&before, n));
    show("host", &format!("{:.1?} for the same", start.elapsed()));

    let side_by_side = arguments.compare || arguments.input.is_none();
    write(
        &arguments.output,
        &before,
        &after.image,
        side_by_side,
        has_alpha,
    )?;
    show("written", &arguments.output.display().to_string());
    match wrong {
        0 => show("self-check", "equal"),
        wrong => show(
            "self-check",
            &format!("{} pixels differ from the host's", grouped(wrong)),
        ),
    }
    Ok(wrong == 0)
}

fn show(what: &str, value: &str) {
    println!("{:12}{value}", format!("{what}:"));
}

/// Reads a picture as it is meant to be seen: cameras store photographs turned.
fn read(path: &Path) -> Result<DynamicImage, Box<dyn Error>> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut reader = ImageReader::open(path)
        .and_then(ImageReader::with_guessed_format)
        .map_err(|error| named(&error))?;
    // The file is the user's own choice; memory is the only limit.
    reader.no_limits();
    let mut decoder = reader.into_decoder().map_err(|error| named(&error))?;
    let orientation = decoder.orientation().map_err(|error| named(&error))?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(|error| named(&error))?;
    image.apply_orientation(orientation);
    let colour = image.color();
    if colour.bytes_per_pixel() > colour.channel_count() {
        show("note", "the picture's channels are reduced to 8 bits each");
    }
    Ok(image)
}

fn write(
    path: &Path,
    before: &RgbaImage,
    after: &RgbaImage,
    side_by_side: bool,
    has_alpha: bool,
) -> Result<(), Box<dyn Error>> {
    let picture = if side_by_side {
        let (width, height) = before.dimensions();
        let mut both = RgbaImage::new(width.saturating_mul(2), height);
        both.copy_from(before, 0, 0)?;
        both.copy_from(after, width, 0)?;
        both
    } else {
        after.clone()
    };
    let mut picture = DynamicImage::from(picture);
    if !has_alpha {
        picture = picture.into_rgb8().into();
    }
    picture
        .save_with_format(path, image::ImageFormat::Png)
        .map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Pixels in which two images of the same size differ.
fn differences(a: &RgbaImage, b: &RgbaImage) -> u64 {
    a.pixels().zip(b.pixels()).filter(|(a, b)| a != b).count() as u64
}

/// Drawn on standard error, and only if that is a terminal.
fn progress_bar(pixels: u64) -> ProgressBar {
    let bar = ProgressBar::new(pixels);
    let style = ProgressStyle::with_template(
        "{percent:>3}% [{bar:60}] {human_pos} of {human_len} pixels, {eta} left",
    );
    match style {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
