//! A plate that is struck, at the rate of sound: every 2.7 milliseconds the host writes a block of 128 samples into a
//! ring, a kernel that stays on the GPU computes 64 resonators, and the host reads the block of the sound out of
//! another ring. What a sound card with a buffer of a few blocks would have missed is counted, and the latencies are
//! drawn.

mod chart;
mod plate;
#[path = "../support/mod.rs"]
mod support;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use tombolo::ring::{KernelRing, RingReceiver, RingSender};
use tombolo::server::{DeviceFunction, LeasePolicy};
use tombolo::{Context, Device, PersistentKernel, Program};

use plate::{BLOCK, Mode, Plate, RATE, modes, strike};
use support::text::grouped;

/// Blocks that the rings have room for.
const ROOM: usize = 4;
/// The largest difference from the host's sound, as a part of its loudest sample: single precision keeps less of
/// resonators.
const TOLERANCE: f64 = 1e-3;
/// Nobody waits longer for a block, however busy the machine is.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// Renders the sound of a struck plate in blocks of 128 samples, through rings and a kernel that stays on the GPU.
///
/// Checked are all samples against the host's. Blocks that a sound card would have missed are counted, and are no
/// failure: the exit status is 0 if the samples are right.
#[derive(Parser)]
#[command(after_help = support::ADAPTERS)]
struct Arguments {
    /// Seconds of sound, rendered in as much time, or in more where blocks come too late.
    #[arg(short, long, value_name = "N", default_value_t = 3.0)]
    seconds: f64,
    /// Blocks in the buffer of the sound card: a block is played so many blocks after it was due to be computed.
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    periods: u32,
    /// Milliseconds of the longest lease of the device. Between two leases a block waits for the host to submit the next one,
    /// however busy the host is; other work of the device ends a lease at once, however long it may last.
    #[arg(short, long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    lease: u64,
    /// The PNG to write: the latencies over time, and how many there are of each.
    #[arg(short, long, value_name = "FILE", default_value = "audio.png")]
    output: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    support::run(|| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    // All samples are kept until they are compared.
    if !(0.01..=3_600.0).contains(&arguments.seconds) {
        return Err("choose from 0.01 to 3600 seconds".into());
    }
    let device = Context::new()?.device()?;
    show("adapter", device.name());
    let modes = modes();
    let mut synthesizer =
        Synthesizer::start(&device, &modes, Duration::from_millis(arguments.lease))?;
    let blocks = (arguments.seconds * RATE / BLOCK as f64).ceil() as usize;
    let period = Duration::from_secs_f64(BLOCK as f64 / RATE);
    let played = synthesizer.play(blocks, period, period * arguments.periods)?;
    let statistics = synthesizer.server.statistics();
    drop(synthesizer.server);

    chart::draw(&played.latencies, period).save(&arguments.output)?;
    show(
        "sound",
        &format!(
            "{} blocks of {BLOCK} samples, one every {period:.2?}",
            grouped(blocks as u64)
        ),
    );
    show("latency", &percentiles(&played.latencies));
    show(
        "of that",
        &format!(
            "{} until the host's thread was awake",
            percentiles(&played.wakings)
        ),
    );
    show(
        "missed",
        &format!(
            "{} blocks by a sound card with {} blocks in its buffer; {} took longer than one lasts",
            grouped(played.missed as u64),
            arguments.periods,
            grouped(played.late as u64),
        ),
    );
    show(
        "leases",
        &format!(
            "{}; calls waited for the next for {:.2?} at most",
            grouped(statistics.leases.into()),
            statistics.lease_gaps.longest().unwrap_or_default()
        ),
    );
    show("picture", &arguments.output.display().to_string());
    let off = difference(&modes, &played.sound);
    show(
        "self-check",
        &match off <= TOLERANCE {
            true => format!("all samples are the host's within {off:.1e} of the loudest"),
            false => format!("samples differ from the host's by {off:.1e} of the loudest"),
        },
    );
    Ok(off <= TOLERANCE)
}

/// The server, and the host's ends of its rings.
struct Synthesizer {
    server: PersistentKernel,
    render: DeviceFunction<(u32,), u32>,
    input: RingSender<f32>,
    output: RingReceiver<f32>,
}

/// What has come out.
struct Played {
    sound: Vec<f32>,
    /// From the moment a block was due to be computed until it was there.
    latencies: Vec<Duration>,
    /// From that moment until the host's thread was awake.
    wakings: Vec<Duration>,
    /// Blocks that were there later than one lasts.
    late: usize,
    /// Blocks of silence, which a sound card played whose buffer was empty.
    missed: usize,
}

impl Synthesizer {
    fn start(device: &Device, modes: &[Mode], lease: Duration) -> Result<Self, Box<dyn Error>> {
        let program = Program::builder()
            .source("plate.wgsl", include_str!("plate.wgsl"))
            .ring_from_host::<f32>("input")
            .ring_to_host::<f32>("output")
            .build()?;
        let (input, taken) = device.ring_from_host(ROOM * BLOCK)?;
        let (put, output) = device.ring_to_host(ROOM * BLOCK)?;
        let server = server(device, &program, modes, [&taken, &put], lease)?;
        let render = server.function("render")?;
        show(
            "tier",
            &format!("server {:?}, rings {:?}", server.tier(), put.tier()),
        );
        let synthesizer = Self {
            server,
            render,
            input,
            output,
        };
        // Drivers compile a kernel at its first launch, which is not to be heard.
        synthesizer.render.call_timeout(&(0,), GIVEN_UP)?;
        Ok(synthesizer)
    }

    /// Renders blocks, each when it is due, for a sound card whose buffer lasts for `buffered`.
    fn play(
        &mut self,
        blocks: usize,
        period: Duration,
        buffered: Duration,
    ) -> Result<Played, Box<dyn Error>> {
        let mut played = Played {
            sound: Vec::with_capacity(blocks * BLOCK),
            latencies: Vec::with_capacity(blocks),
            wakings: Vec::with_capacity(blocks),
            late: 0,
            missed: 0,
        };
        let mut due = Instant::now() + period;
        for block in 0..blocks {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            played.wakings.push(due.elapsed());
            self.block(block, &mut played.sound)?;
            let latency = due.elapsed();
            played.latencies.push(latency);
            played.late += usize::from(latency > period);
            // A sound card that has nothing left goes on with silence, and with the next block when there is one.
            let missing = latency.saturating_sub(buffered).as_nanos();
            let silence = missing.div_ceil(period.as_nanos()) as u32;
            played.missed += silence as usize;
            due += period * (silence + 1);
        }
        Ok(played)
    }

    /// Renders a block, in place at both ends.
    fn block(&mut self, block: usize, sound: &mut Vec<f32>) -> Result<(), Box<dyn Error>> {
        let mut slots = self.input.slots_mut(BLOCK)?;
        for at in 0..BLOCK {
            slots.set(at, &strike(block * BLOCK + at));
        }
        slots.commit(BLOCK)?;
        let rendered = self.render.call_timeout(&(1,), GIVEN_UP)?;
        let samples = self.output.items(BLOCK)?;
        if rendered != 1 || samples.len() != BLOCK {
            return Err(
                format!("{rendered} blocks rendered, {} samples came", samples.len()).into(),
            );
        }
        sound.extend((0..BLOCK).filter_map(|at| samples.get(at)));
        samples.release(BLOCK)?;
        Ok(())
    }
}

fn server(
    device: &Device,
    program: &Program,
    modes: &[Mode],
    [taken, put]: [&KernelRing; 2],
    lease: Duration,
) -> Result<PersistentKernel, Box<dyn Error>> {
    // The server stays from one block to the next.
    let leases = LeasePolicy::of(device.capabilities()).idle(Duration::from_millis(20));
    let leases = leases.time(lease);
    // A block has its time: no launch goes ahead of it but the one that is there.
    let leases = leases.gives_way(0);
    let server = PersistentKernel::builder(device, program)
        .group_handler("render")
        .group_size(modes.len() as u32)
        .buffer("modes", &device.buffer(modes)?)
        .buffer("states", &device.zeroed::<[f32; 2]>(modes.len())?)
        .ring("input", taken)
        .ring("output", put)
        .leases(leases)
        .start()?;
    Ok(server)
}

/// The largest difference from the sound of the host's plate, as a part of its loudest sample.
fn difference(modes: &[Mode], sound: &[f32]) -> f64 {
    let mut plate = Plate::new(modes);
    let (mut loudest, mut off) = (f64::MIN_POSITIVE, 0f64);
    for (at, &sample) in sound.iter().enumerate() {
        let expected = plate.sample(strike(at));
        loudest = loudest.max(expected.abs());
        // What is no number differs, too.
        let apart = (f64::from(sample) - expected).abs();
        off = if apart.is_nan() {
            f64::INFINITY
        } else {
            off.max(apart)
        };
    }
    off / loudest
}

fn percentiles(latencies: &[Duration]) -> String {
    let mut sorted = latencies.to_vec();
    sorted.sort();
    let at = |part: f64| {
        let index = ((sorted.len() as f64 * part) as usize).min(sorted.len().saturating_sub(1));
        sorted.get(index).copied().unwrap_or_default()
    };
    format!(
        "{:.2?} (50 %), {:.2?} (90 %), {:.2?} (99 %), {:.2?} (99.9 %), {:.2?} at most",
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0)
    )
}

fn show(what: &str, value: &str) {
    println!("{what:<12} {value}");
}
