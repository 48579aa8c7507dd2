//! A pipeline of three stages over two devices: what one device has made the other reads, and nobody says that it has to
//! be brought there. Several pictures are on their way at once, each stage busy with another one; the runtime tells for
//! each launch which bytes it moves, and why.

mod picture;
mod reference;
mod stages;
#[path = "../support/mod.rs"]
mod support;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use image::RgbaImage;
use tombolo::Context;

use stages::Pipeline;
use support::devices;
use support::text::{grouped, hanging};

/// Makes drawings of pictures in three stages on two devices.
///
/// The first stage smooths on one device, the second finds lines on the other, the third draws on the first again. Two
/// different adapters are used where the machine has two, and two devices of one elsewhere. All pictures go through one
/// after the other, and then with several on their way at once. Checked are: that both give what the host makes of
/// them; that launches say before what they move then; and that they move what is new elsewhere, and nothing else. The
/// exit status is 0 only if all of that holds.
#[derive(Parser)]
#[command(after_help = support::ADAPTERS)]
struct Arguments {
    /// How many pictures there are.
    #[arg(short, long, value_name = "N", default_value_t = 12,
          value_parser = clap::value_parser!(u32).range(4..=1000))]
    pictures: u32,
    /// Pixels of a row.
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(8..=4096))]
    width: u32,
    /// Rows of a picture.
    #[arg(long, value_name = "N", default_value_t = 160,
          value_parser = clap::value_parser!(u32).range(8..=4096))]
    height: u32,
    /// The PNG to write: three of the pictures, and what each stage made of them.
    #[arg(short, long, value_name = "FILE", default_value = "pipeline.png")]
    output: PathBuf,
    #[command(flatten)]
    devices: devices::Choice,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    support::run(|| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let context = Context::new()?;
    let devices = arguments.devices.open(&context)?;
    let (width, height) = (arguments.width, arguments.height);
    show("devices", &devices::names(&devices));
    let of = format!("{} of {width} x {height} pixels", arguments.pictures);
    show("pictures", &of);
    let time = |number: u32| number as f32 / (arguments.pictures - 1) as f32;
    let pictures: Vec<RgbaImage> = (0..arguments.pictures)
        .map(|number| picture::tombolo(width, height, time(number)))
        .collect();
    let sources: Vec<Vec<u32>> = pictures.iter().map(words).collect();

    // Memory is made by the first pictures.
    let mut pipeline = Pipeline::new(&context, &devices, [width, height])?;
    pipeline.run(&sources[..3], false)?;
    let mut timed = |overlap| -> Result<_, Box<dyn Error>> {
        (pipeline.most, pipeline.told, pipeline.told_before) = Default::default();
        let begun = Instant::now();
        let drawn = pipeline.run(&sources, overlap)?;
        Ok((drawn, begun.elapsed()))
    };
    let (one_by_one, alone) = timed(false)?;
    let (overlapped, together) = timed(true)?;
    let took = format!(
        "{together:.2?} with up to {} on their way at once; {alone:.2?} one after the other",
        pipeline.most
    );
    show("took", &took);
    for (stage, told) in ["smooth out", "trace", "draw"]
        .into_iter()
        .zip(&pipeline.told)
    {
        show(stage, &told.to_string());
    }

    let begun = Instant::now();
    let expected: Vec<[RgbaImage; 3]> = pictures.iter().map(reference::stages).collect();
    show("on the host", &format!("{:.2?}", begun.elapsed()));
    let last = pictures.len() - 1;
    let [smooth, lines, drawn] = pipeline.made(last)?;
    let is_last = [
        smooth == words(&expected[last][0]),
        lines
            .iter()
            .zip(words(&expected[last][1]))
            .all(|(line, pixel)| *line == pixel & 255),
        drawn == words(&expected[last][2]),
    ];
    let all = |drawn: &[Vec<u32>]| {
        let mut pairs = drawn.iter().zip(&expected);
        drawn.len() == expected.len() && pairs.all(|(drawn, of)| *drawn == words(&of[2]))
    };

    let columns = [0, last / 2, last].map(|number| {
        let [smooth, lines, drawn] = expected[number].clone();
        // What the devices have made, where it differs.
        let drawn = image_of(&overlapped[number], width, height).unwrap_or(drawn);
        [pictures[number].clone(), smooth, lines, drawn]
    });
    picture::sheet(&columns)
        .save_with_format(&arguments.output, image::ImageFormat::Png)
        .map_err(|error| format!("{}: {error}", arguments.output.display()))?;
    show("written", &arguments.output.display().to_string());

    let bytes = u64::from(width) * u64::from(height) * 4;
    let moved: Vec<u64> = pipeline.told.iter().map(|told| told.moved()).collect();
    // Through copies of the host each byte moves twice.
    let brought = |moved: u64| moved == bytes || moved == 2 * bytes;
    let checks = [
        ("the smooth picture differs from the host's", is_last[0]),
        ("the lines differ from the host's", is_last[1]),
        (
            "a drawing differs from the host's",
            is_last[2] && all(&overlapped),
        ),
        (
            "a drawing made alone differs from the host's",
            all(&one_by_one),
        ),
        (
            "a launch moved something else than it had said",
            pipeline.told.len() == 3 && pipeline.told == pipeline.told_before,
        ),
        (
            "a launch moved something that is not new elsewhere",
            moved.first() == Some(&bytes) && moved.iter().all(|&moved| brought(moved)),
        ),
    ];
    let wrong: Vec<&str> = checks
        .iter()
        .filter(|(_, held)| !held)
        .map(|(what, _)| *what)
        .collect();
    match wrong.as_slice() {
        [] => {
            let pixels = grouped(pictures.len() as u64 * bytes / 4);
            show("self-check", &format!("equal, {pixels} pixels"));
        }
        wrong => show("self-check", &wrong.join("; ")),
    }
    Ok(wrong.is_empty())
}

fn show(what: &str, value: &str) {
    let head = format!("{what}:");
    for (index, line) in value.lines().enumerate() {
        let head = if index == 0 { head.as_str() } else { "" };
        print!("{}", hanging(head, 13, line));
    }
}

/// One word for each pixel: red in the lowest byte, alpha in the highest.
fn words(image: &RgbaImage) -> Vec<u32> {
    image
        .pixels()
        .map(|pixel| u32::from_le_bytes(pixel.0))
        .collect()
}

fn image_of(words: &[u32], width: u32, height: u32) -> Option<RgbaImage> {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    RgbaImage::from_raw(width, height, bytes)
}
