//! A small ray tracer whose kernel says what it sees while it renders: it prints diagnostics for some pixels,
//! and asserts what its arithmetic takes for granted. The picture is compared with the host's, the lines with what
//! the host knows of the same pixels, and a broken scene has to fail with the assertion's own words.

mod scene;
#[path = "../support/mod.rs"]
mod support;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::Parser;
use image::{Rgb, RgbImage};
use tombolo::{
    Constants, Context, Device, DeviceBuffer, Kernel, PrintOptions, Program, buffers::ReadError,
    device::ExecutionError, layout_of, print::PrintRecord,
};

use scene::{Camera, Sphere, camera, pixel, spheres};
use support::text::grouped;

/// Renders a picture on the GPU, with a kernel that prints and asserts.
///
/// The exit status is 0 only if the picture is the host's (up to rounding), the printed lines are true, and a
/// broken scene fails as it should.
#[derive(Parser)]
#[command(after_help = support::ADAPTERS)]
struct Arguments {
    /// Width of the picture, in pixels.
    #[arg(long, default_value_t = 640, value_parser = clap::value_parser!(u32).range(16..=8192))]
    width: u32,
    /// Height of the picture, in pixels.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(16..=8192))]
    height: u32,
    /// Pixels between two that report what they see.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    report: u32,
    /// The PNG to write.
    #[arg(short, long, value_name = "FILE", default_value = "raytracer.png")]
    output: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    support::run(|| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let device = Context::new()?.device()?;
    show("adapter", device.name());
    let program = Program::builder()
        .source("raytracer.wgsl", include_str!("raytracer.wgsl"))
        .source("sky.wgsl", include_str!("sky.wgsl"))
        .build()?;
    program.check_layout(
        "Sphere",
        &layout_of!(Sphere {
            centre,
            radius,
            colour,
            mirror
        }),
    )?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let camera = camera(arguments.width, arguments.height, arguments.report);

    let start = Instant::now();
    let reports = Arc::<Mutex<Vec<Report>>>::default();
    let into = Arc::clone(&reports);
    let options = PrintOptions::sink(move |record: &PrintRecord<'_>| {
        println!("{:12}{record}", "");
        let mut reports = into.lock().unwrap_or_else(PoisonError::into_inner);
        reports.extend(Report::of(record));
    });
    let pixels = render(&device, &kernel, &spheres(), &camera, options)?;
    let image = picture(&pixels.read()?, &camera);
    let count = u64::from(camera.width) * u64::from(camera.height);
    let size = format!("{} x {} pixels", camera.width, camera.height);
    show("rendered", &format!("{size} in {:.1?}", start.elapsed()));
    image.save(&arguments.output)?;
    show("written", &arguments.output.display().to_string());

    let start = Instant::now();
    let wrong = differences(&image, &camera);
    show("host", &format!("{:.1?} for the same", start.elapsed()));
    // The edges of balls and shadows are where roundings differ.
    let is_same = wrong * 100 < count;
    show(
        "picture",
        &format!("{} of {} pixels differ", grouped(wrong), grouped(count)),
    );
    let reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
    let are_true = check_reports(&reports, &camera);
    show(
        "lines",
        if are_true {
            "true"
        } else {
            "not what the host sees"
        },
    );
    let is_told = broken(&device, &kernel, &camera)?;
    let holds = is_same && are_true && is_told;
    show("self-check", if holds { "equal" } else { "failed" });
    Ok(holds)
}

fn show(what: &str, value: &str) {
    println!("{:12}{value}", format!("{what}:"));
}

/// Starts the launch that fills a picture.
fn render(
    device: &Device,
    kernel: &Kernel,
    spheres: &[Sphere],
    camera: &Camera,
    options: PrintOptions,
) -> Result<DeviceBuffer<u32>, Box<dyn Error>> {
    let pixels = device.zeroed(camera.width as usize * camera.height as usize)?;
    let spheres = device.buffer(spheres)?;
    kernel
        .launch()
        .buffer("spheres", &spheres)
        .value("camera", camera)
        .buffer("pixels", &pixels)
        .invocations([camera.width, camera.height])
        .print_to(options)
        .submit()?;
    Ok(pixels)
}

/// What a pixel has printed, from the words of its arguments.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Report {
    Sees { at: [u32; 2], what: i32 },
    Bounced { at: [u32; 2], bounces: u32 },
}

impl Report {
    fn of(record: &PrintRecord<'_>) -> Option<Self> {
        match *record.words() {
            [x, y, what, _, _, _, _] => Some(Self::Sees {
                at: [x, y],
                what: what as i32,
            }),
            [x, y, bounces, _, _, _] => Some(Self::Bounced {
                at: [x, y],
                bounces,
            }),
            _ => None,
        }
    }
}

/// Whether every pixel that has to report did so, once, and what it said is what the host finds.
fn check_reports(reports: &[Report], camera: &Camera) -> bool {
    let spheres = spheres();
    let places = |end: u32| (camera.report / 2..end).step_by(camera.report as usize);
    let mut wanted = Vec::new();
    for (x, y) in places(camera.height).flat_map(|y| places(camera.width).map(move |x| (x, y))) {
        let (_, what, bounces) = pixel(&spheres, camera, x, y);
        let at = [x, y];
        wanted.push(Report::Sees { at, what });
        if bounces > 1 {
            wanted.push(Report::Bounced { at, bounces });
        }
    }
    let missing = wanted.iter().filter(|line| !reports.contains(line)).count();
    // A pixel on an edge may see the other side of it.
    missing * 50 <= wanted.len() && reports.len().abs_diff(wanted.len()) * 50 <= wanted.len()
}

/// Renders a scene with a ball that cannot be: the launch has to fail with the assertion's words, and its picture
/// must not be readable.
fn broken(device: &Device, kernel: &Kernel, camera: &Camera) -> Result<bool, Box<dyn Error>> {
    let mut wrong = spheres();
    wrong[3].radius = -0.8;
    let silent = PrintOptions::sink(|_: &PrintRecord<'_>| {});
    let pixels = render(device, kernel, &wrong, camera, silent)?;
    match pixels.read() {
        Err(ReadError::Execution(error)) => {
            println!("{error}");
            let is_it = matches!(&*error, ExecutionError::Assertion { message, .. }
                if message.starts_with("sphere 3 at [1.6, 0.8, 4.0] has radius -0.80"));
            show("broken", if is_it { "told" } else { "told wrongly" });
            Ok(is_it)
        }
        Err(error) => Err(error.into()),
        Ok(_) => {
            show("broken", "not noticed");
            Ok(false)
        }
    }
}

fn picture(pixels: &[u32], camera: &Camera) -> RgbImage {
    RgbImage::from_fn(camera.width, camera.height, |x, y| {
        let [r, g, b, _] = pixels[y as usize * camera.width as usize + x as usize].to_le_bytes();
        Rgb([r, g, b])
    })
}

/// Pixels that differ by more than roundings from the host's.
fn differences(image: &RgbImage, camera: &Camera) -> u64 {
    let spheres = spheres();
    let differs = |(x, y, found): (u32, u32, &Rgb<u8>)| {
        let (wanted, ..) = pixel(&spheres, camera, x, y);
        (0..3).any(|i| found.0[i].abs_diff(wanted[i]) > 3)
    };
    image.enumerate_pixels().filter(|p| differs(*p)).count() as u64
}
