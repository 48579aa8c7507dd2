//! Histogram equalization by three programs that know nothing of each other but the names of variables on the
//! device: one counts, one turns the counts into a table, one applies the table. The host passes the picture, and
//! no buffer between them; then it reads the table by its name.

mod picture;
mod reference;
#[path = "../support/mod.rs"]
mod support;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use image::RgbaImage;
use tombolo::globals::host_access::Read;
use tombolo::{Constants, Context, Device, DeviceBuffer, DeviceGlobal, Kernel, Program};

use support::text::grouped;

/// `counts` of `count.wgsl` and `tone.wgsl`: how often each lightness occurs.
static COUNTS: DeviceGlobal<[u32; 256], Read> = DeviceGlobal::new("counts").host_read();
/// `tone` of `tone.wgsl` and `equalize.wgsl`: what each lightness becomes.
static TONE: DeviceGlobal<[u32; 256], Read> = DeviceGlobal::new("tone").host_read();
/// `total` of `count.wgsl` and `tone.wgsl`: the pixels that were counted.
static TOTAL: DeviceGlobal<u32, Read> = DeviceGlobal::new("total").host_read();

/// Spreads the lightnesses of a picture evenly (histogram equalization), on the GPU.
///
/// Three programs work on variables of the device that they share by name. The counts, the table and the
/// picture are compared with the host's; the exit status is 0 only if all are equal.
#[derive(Parser)]
#[command(after_help = support::ADAPTERS)]
struct Arguments {
    /// A PNG or JPEG of any size. Without it a foggy test picture is drawn.
    input: Option<PathBuf>,
    /// The PNG to write of the picture as it was, above the chart of its histogram.
    #[arg(long, value_name = "FILE", default_value = "histogram-before.png")]
    before: PathBuf,
    /// The PNG to write of the picture as it is now.
    #[arg(long, value_name = "FILE", default_value = "histogram-after.png")]
    after: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    support::run(|| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let device = Context::new()?.device()?;
    show("adapter", device.name());
    let before = match &arguments.input {
        Some(path) => image::open(path)
            .map_err(|error| format!("{}: {error}", path.display()))?
            .into_rgba8(),
        None => picture::foggy(),
    };
    let (width, height) = before.dimensions();
    show("picture", &format!("{width} x {height} pixels"));

    let start = Instant::now();
    let kernels = Kernels::new(&device)?;
    show(
        "compiled",
        &format!("3 programs in {:.1?}", start.elapsed()),
    );
    let variables = device.globals();
    let known = variables
        .iter()
        .map(|one| format!("{}: {}", one.name, one.type_name));
    show("variables", &known.collect::<Vec<_>>().join(", "));

    let start = Instant::now();
    let pixels = device.buffer(&words(&before))?;
    kernels.run(&pixels)?;
    let after = image_of(&pixels.read()?, width, height)?;
    show(
        "equalized",
        &format!("{:.1?} in 3 launches", start.elapsed()),
    );

    // By name; nobody has handed the host a buffer.
    let (counts, tone) = (COUNTS.on(&device).read()?, TONE.on(&device).read()?);
    let total = TOTAL.on(&device).read()?;
    let used = |counts: &[u32; 256]| {
        let first = counts.iter().position(|&count| count > 0).unwrap_or(0);
        let last = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
        format!("{first} to {last}")
    };
    let new_counts = reference::counts(&after);
    let (old, new) = (used(&counts), used(&new_counts));
    show("lightness", &format!("{old} before, {new} now"));

    write(&arguments.before, &picture::with_chart(&before, &counts))?;
    write(&arguments.after, &picture::with_chart(&after, &new_counts))?;

    let expected_counts = reference::counts(&before);
    let expected_tone = reference::tone(&expected_counts);
    let expected = reference::equalize(&before, &expected_tone);
    let checks = [
        (
            "the counts differ from the host's",
            counts == expected_counts,
        ),
        ("the table differs from the host's", tone == expected_tone),
        (
            "the number of pixels is wrong",
            u64::from(total) == u64::from(width) * u64::from(height),
        ),
        ("the picture differs from the host's", after == expected),
    ];
    let wrong: Vec<&str> = checks
        .iter()
        .filter(|(_, held)| !held)
        .map(|(what, _)| *what)
        .collect();
    match wrong.as_slice() {
        [] => show(
            "self-check",
            &format!("equal, {} pixels", grouped(total.into())),
        ),
        wrong => show("self-check", &wrong.join("; ")),
    }
    Ok(wrong.is_empty())
}

/// The kernels of the three programs.
struct Kernels {
    count: Kernel,
    scan: Kernel,
    equalize: Kernel,
}

impl Kernels {
    fn new(device: &Device) -> Result<Self, Box<dyn Error>> {
        let make =
            |file: &str, text: &'static str, entry: &str| -> Result<Kernel, Box<dyn Error>> {
                let program = Program::new(file, text)?;
                Ok(device.kernel(&program, entry, &Constants::new())?)
            };
        Ok(Self {
            count: make("count.wgsl", include_str!("count.wgsl"), "count")?,
            scan: make("tone.wgsl", include_str!("tone.wgsl"), "scan")?,
            equalize: make("equalize.wgsl", include_str!("equalize.wgsl"), "equalize")?,
        })
    }

    /// Equalizes the pixels where they are.
    fn run(&self, pixels: &DeviceBuffer<u32>) -> Result<(), Box<dyn Error>> {
        let groups = |per_group: usize| (pixels.len().div_ceil(per_group).max(1)) as u32;
        self.count
            .launch()
            .buffer("pixels", pixels)
            .workgroups(groups(4096))
            .submit()?;
        self.scan.launch().workgroups(1u32).submit()?;
        self.equalize
            .launch()
            .buffer("pixels", pixels)
            .workgroups(groups(256))
            .submit()?
            .wait()?;
        Ok(())
    }
}

fn show(what: &str, value: &str) {
    println!("{:12}{value}", format!("{what}:"));
}

/// One word for each pixel: red in the lowest byte, alpha in the highest.
fn words(image: &RgbaImage) -> Vec<u32> {
    image
        .pixels()
        .map(|pixel| u32::from_le_bytes(pixel.0))
        .collect()
}

fn image_of(words: &[u32], width: u32, height: u32) -> Result<RgbaImage, Box<dyn Error>> {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    RgbaImage::from_raw(width, height, bytes).ok_or_else(|| "pixels are missing".into())
}

fn write(path: &Path, picture: &RgbaImage) -> Result<(), Box<dyn Error>> {
    picture
        .save_with_format(path, image::ImageFormat::Png)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    show("written", &path.display().to_string());
    Ok(())
}
