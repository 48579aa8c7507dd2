//! Vello's published compute shaders, unchanged, with Tombolo as their host, on every adapter: `cargo xtask port`.
//!
//! # How it works
//! 1. A picture of some thousand paths is encoded by Vello, and rendered by [`host::Renderer`]: once from small buffers, which
//!    have to grow, and once more after all buffers and pixels were filled with poison.
//! 2. What the stages left in their buffers is compared with what Vello's own implementation of them on the processor leaves;
//!    the pixels with those of `vello_cpu`, which is another algorithm, and with those of Vello's own host on the same device.
//! 3. Adapters are compared with each other.
//! 4. The comparisons are made again with a picture in which one thing is elsewhere, and then have to find a difference.
//!
//! The exit status is 0 only if all of that holds.

mod compare;
mod drawing;
mod host;
mod picture;
mod report;
mod stages;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use tombolo::{AdapterDescription, Context, Device, wgpu};
use vello::kurbo::Vec2;
use vello::peniko::Color;
use vello::{AaConfig, AaSupport, RenderParams, RendererOptions, Scene};

use drawing::{HEIGHT, WIDTH};
use host::Renderer;
use picture::{Picture, Target};
use report::Report;
use stages::Stages;

/// Renders a picture by Vello's shaders on every adapter, and compares the results.
#[derive(Parser)]
struct Arguments {
    /// The folder for pictures
    #[arg(short, long, value_name = "FOLDER", default_value = ".")]
    output: PathBuf,
    /// Adapters whose name contains this alone
    #[arg(short, long, value_name = "NAME")]
    adapter: Option<String>,
    /// How edges are smoothed
    #[arg(long, value_enum, default_value_t = Antialiasing::Area)]
    antialiasing: Antialiasing,
    /// The picture so many times across and down; from 5 on, tags of paths are scanned in three levels
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    times: u32,
}

/// As Vello names the ways.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Antialiasing {
    Area,
    Msaa8,
    Msaa16,
}

impl From<Antialiasing> for AaConfig {
    fn from(way: Antialiasing) -> Self {
        match way {
            Antialiasing::Area => Self::Area,
            Antialiasing::Msaa8 => Self::Msaa8,
            Antialiasing::Msaa16 => Self::Msaa16,
        }
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What every adapter has to render, and what is expected of it.
struct Task {
    scene: Scene,
    /// The scene as the kernels read it.
    packed: Vec<u8>,
    reference: Picture,
    /// The same with one thing in another place.
    flawed: (Vec<u8>, Picture),
    antialiasing: AaConfig,
}

impl Task {
    fn new(arguments: &Arguments) -> Self {
        let drawing = |aside| drawing::tombolo(aside).repeated(arguments.times);
        let (whole, flawed) = (
            drawing(Vec2::ZERO),
            drawing(Vec2::new(9.0, 5.0) * f64::from(arguments.times)),
        );
        println!("{} things are drawn", whole.len());
        let scene = whole.scene();
        Self {
            packed: packed(&scene),
            scene,
            reference: whole.reference(),
            flawed: (packed(&flawed.scene()), flawed.reference()),
            antialiasing: arguments.antialiasing.into(),
        }
    }

    fn params(&self) -> RenderParams {
        RenderParams {
            base_color: Color::WHITE,
            width: WIDTH,
            height: HEIGHT,
            antialiasing_method: self.antialiasing,
        }
    }
}

fn packed(scene: &Scene) -> Vec<u8> {
    let mut packed = Vec::new();
    vello_encoding::Resolver::new().resolve(scene.encoding(), &mut packed);
    packed
}

/// What an adapter has rendered.
struct Outcome {
    adapter: String,
    picture: Picture,
    stages: Stages,
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let task = Task::new(arguments);
    let folder = &arguments.output;
    write(&task.reference, folder, "reference")?;
    let context = Context::new()?;
    let mut report = Report::default();
    let mut outcomes: Vec<Outcome> = Vec::new();
    let wanted = arguments
        .adapter
        .as_deref()
        .unwrap_or_default()
        .to_lowercase();
    let adapters = context.adapters();
    for adapter in &adapters {
        if !adapter.name.to_lowercase().contains(&wanted) {
            continue;
        }
        println!("\n{}", adapter.name);
        if is_embedded(adapter) && arguments.antialiasing != Antialiasing::Area {
            // A fill begins to write `sh_winding` while other invocations may still read what the fill in front of it has
            // left there: nothing but lanes in lockstep keeps one behind the other, and the embedded adapter has none.
            println!(
                "  -- left out: a barrier is missing between fills of Vello's multisampling stages"
            );
            continue;
        }
        let device = context.device_at(adapter.index)?;
        let outcome = render(&device, adapter, &task, &mut report)?;
        let name = file_name(&adapter.name);
        write(&outcome.picture, folder, &name)?;
        let apart = outcome.picture.amplified_difference(&task.reference);
        write(&apart, folder, &format!("{name}-difference"))?;
        for other in &outcomes {
            println!("beside {}", other.adapter);
            report.stages(&compare::stages(&outcome.stages, &other.stages));
            let apart = outcome.picture.difference(&other.picture);
            report.picture("pixels", apart, report::AMONG_ADAPTERS);
        }
        outcomes.push(outcome);
    }
    // Those that the caller knows to be there, by parts of their names.
    let required = std::env::var("TOMBOLO_TEST_ADAPTERS").unwrap_or_default();
    for name in required.split(';').map(str::to_lowercase) {
        if !name.is_empty() && name.contains(&wanted) {
            let is_here = adapters
                .iter()
                .any(|adapter| adapter.name.to_lowercase().contains(&name));
            report.that("the adapter is here", is_here, name);
        }
    }
    if outcomes.is_empty() {
        return Err(format!("no adapter with `{wanted}` in its name has rendered").into());
    }
    Ok(report.finish())
}

/// Whether an adapter is the one that Tombolo has compiled in; wgpu knows it by this backend.
fn is_embedded(adapter: &AdapterDescription) -> bool {
    adapter.backend == wgpu::Backend::Noop
}

/// Renders the task on one device, with all comparisons that need no other device.
fn render(
    device: &Device,
    adapter: &AdapterDescription,
    task: &Task,
    report: &mut Report,
) -> Result<Outcome, Box<dyn Error>> {
    let start = Instant::now();
    let mut renderer = Renderer::new(device, task.antialiasing)?;
    println!("  compiled in {:.2} s", start.elapsed().as_secs_f64());
    let target = Target::new(device, WIDTH, HEIGHT)?;
    let grown = renderer.render(&task.scene, target.view(), &task.params())?;
    let first = target.read()?;
    report.that("buffers grow", grown > 1, format!("{grown} attempts"));

    target.poison()?;
    stages::poison(renderer.frame().ok_or("no frame")?.buffers())?;
    let start = Instant::now();
    let again = renderer.render(&task.scene, target.view(), &task.params())?;
    println!("  rendered in {:.2} s", start.elapsed().as_secs_f64());
    let picture = target.read()?;
    report.that("and stay", again == 1, format!("{again} attempt"));
    report.picture(
        "pixels after poison",
        picture.difference(&first),
        report::SAME,
    );

    let frame = renderer.frame().ok_or("no frame")?;
    let stages = Stages::read(frame.config(), frame.buffers())?;
    let expected = Stages::compute(frame.config(), &task.packed);
    report.stages(&compare::stages(&stages, &expected));
    report.picture(
        "pixels of vello_cpu",
        picture.difference(&task.reference),
        report::OTHER_ALGORITHM,
    );

    let (flawed_scene, flawed_picture) = &task.flawed;
    let flawed = Stages::compute(frame.config(), flawed_scene);
    report.stages_differ(&compare::stages(&stages, &flawed));
    report.picture_differs(picture.difference(flawed_picture), report::OTHER_ALGORITHM);

    match is_embedded(adapter) {
        // Vello has the checks of array bounds switched off, and its shaders read the element in front of an array, to
        // throw it away: drivers let it pass, and the embedded adapter ends the kernel.
        true => println!(
            "  -- left out: Vello's own host, which needs a driver that survives bad indices"
        ),
        false => {
            let own = by_vello(device, task)?;
            report.picture(
                "pixels of Vello's own host",
                picture.difference(&own),
                report::SAME,
            );
        }
    }
    target.poison()?;
    renderer.render(&Scene::new(), target.view(), &task.params())?;
    let is_blank = target
        .read()?
        .pixels
        .iter()
        .all(|channel| *channel == u8::MAX);
    report.that("an empty scene", is_blank, "the colour behind it");
    Ok(Outcome {
        adapter: adapter.name.clone(),
        picture,
        stages,
    })
}

/// The pixels of Vello's own renderer on the same device.
fn by_vello(device: &Device, task: &Task) -> Result<Picture, Box<dyn Error>> {
    let options = RendererOptions {
        antialiasing_support: AaSupport::from_iter([task.antialiasing]),
        ..RendererOptions::default()
    };
    let target = Target::new(device, WIDTH, HEIGHT)?;
    device.flush()?;
    let mut renderer = vello::Renderer::new(device.raw(), options)?;
    let (view, params) = (target.view(), task.params());
    renderer.render_to_texture(device.raw(), device.raw_queue(), &task.scene, view, &params)?;
    Ok(target.read()?)
}

/// An adapter's name as a part of a file's: in small letters, without what stands in brackets.
fn file_name(adapter: &str) -> String {
    let name = adapter.split('(').next().unwrap_or_default();
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<String> = (words.filter(|word| !word.is_empty()))
        .map(str::to_ascii_lowercase)
        .collect();
    words.join("-")
}

fn write(picture: &Picture, folder: &Path, name: &str) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    picture.write(&folder.join(format!("vello-{name}.png")))
}
