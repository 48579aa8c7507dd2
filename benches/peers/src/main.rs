//! Tombolo beside its peers: the same work, on the same adapter, in the same run.
//!
//! - wgpu by hand (`raw`), in rows of kernels, and CubeCL, by its runtime on wgpu, on every adapter of the machine, that compiled in
//!   included.
//! - PoCL, which is OpenCL on the processor, and Rust on the threads of rayon, against the adapter compiled in.
//!
//! Both sides of a row have the same grid and the same data, and their results are compared with what the processor computes
//! one after the other: those of kernels before and after they are measured, those of launches and copies while or after they are. The
//! sides run in turn, each row is the median of the ratios of the pairs, and the last lines are the rows:
//! `ratio <work>_<peer>/<adapter> = <median> (<min>..<max>) goal <= <limit>`. Kernels on adapters that are processors are
//! measured in the time that processors spend on this process, everything else in the time that goes by. Arguments choose the
//! rows that contain one of them. `cargo xtask peers` builds and runs the program.

#[path = "../../../cpu/benches/embedded/clock.rs"]
mod clock;
mod cube;
mod meter;
mod opencl;
mod ours;
mod overhead;
#[cfg(unix)]
mod print;
mod raw;
mod results;
#[allow(dead_code)] // Of the peers in Rust some are for kernels that are not compared here.
#[path = "../../../cpu/benches/embedded/rust.rs"]
mod rust;
mod side;
mod sort;
mod stencil;
#[path = "../../support/mod.rs"]
mod support;
mod tree;
mod work;

use tombolo::{Context, Device};

use clock::Clock;
use cube::Cube;
use meter::Meter;
use opencl::Pocl;
use ours::Ours;
use overhead::With;
use raw::Raw;
use results::Results;
use side::{Checked, Side};
use sort::Keys;
use support::{Error, words};
use work::{ByRayon, Work};

/// Pairs measured for each row.
const PAIRS: usize = 15;

/// The most of a peer's time that is wanted around kernels, and in them.
const OVERHEAD: f64 = 1.00;
const KERNEL: f64 = 1.02;

/// What the adapter compiled in is called in rows.
const EMBEDDED: &str = "Tombolo";

/// The rows' lines, and which of them are wanted.
struct Rows {
    /// For rows of kernels on adapters that are processors, which somebody else may use as well: by their time.
    processors: Meter,
    /// For all others: the time that goes by.
    meter: Meter,
    wanted: Vec<String>,
    lines: Vec<String>,
}

impl Rows {
    /// Measures a row, if it is wanted.
    fn row(
        &mut self,
        work: &str,
        peer: &str,
        adapter: &str,
        goal: f64,
        measure: impl FnOnce() -> Result<Vec<f64>, Error>,
    ) -> Result<(), Error> {
        let label = format!("{work}_{peer}");
        let row = format!("{label}/{adapter}");
        let wanted = |part: &String| row.contains(part.as_str());
        if self.wanted.is_empty() || self.wanted.iter().any(wanted) {
            let ratios = measure().map_err(|error| format!("{row}: {error}"))?;
            let line = support::row(&label, adapter, goal, ratios);
            eprintln!("{line}");
            self.lines.push(line);
        }
        Ok(())
    }

    /// The rows of launches and copies.
    fn overhead(
        &mut self,
        device: &Device,
        adapter: &str,
        peer: &str,
        with: With,
    ) -> Result<(), Error> {
        type Measure = fn(Meter, &Device, With) -> Result<Vec<f64>, Error>;
        let rows: [(&str, Measure); 5] = [
            ("launch_wait", overhead::launch_wait),
            ("batch_1000", overhead::batch_1000),
            ("launch_read_4k", overhead::launch_read_4k),
            ("read_64m", overhead::read_64m),
            ("write_64m", overhead::write_64m),
        ];
        for (work, measure) in rows {
            let meter = self.meter;
            self.row(work, peer, adapter, OVERHEAD, || {
                measure(meter, device, with)
            })?;
        }
        Ok(())
    }

    /// The row of a kernel: what it is called, and its results.
    fn kernel<Ours: Side, Theirs: Side>(
        &mut self,
        device: &Device,
        adapter: &str,
        (work, results): (&str, &Results),
        peer: &str,
        ours: impl FnOnce() -> Result<Ours, Error>,
        theirs: impl FnOnce() -> Result<Theirs, Error>,
    ) -> Result<(), Error> {
        let meter = match device.capabilities().device_type {
            wgpu::DeviceType::Cpu => self.processors,
            _ => self.meter,
        };
        self.row(work, peer, adapter, KERNEL, || {
            let mut theirs = Checked::new(peer, work, results, theirs()?)?;
            let mut ours = Checked::new("Tombolo", work, results, ours()?)?;
            let times = meter.times(|| ours.run())?;
            let ratios = meter.pairs(
                || (0..times).try_for_each(|_| ours.run()),
                || (0..times).try_for_each(|_| theirs.run()),
            )?;
            theirs.check()?;
            ours.check()?;
            Ok(ratios)
        })
    }
}

/// The adapters that wgpu knows, with the instances they are of: those of drivers, and the one compiled in.
fn adapters(backends: wgpu::Backends) -> Result<Vec<(wgpu::Instance, wgpu::Adapter)>, Error> {
    let drivers = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let found = pollster::block_on(drivers.enumerate_adapters(backends));
    let mut adapters: Vec<_> = found
        .into_iter()
        .map(|adapter| (drivers.clone(), adapter))
        .collect();
    let own = tombolo_cpu::Instance::new(tombolo_cpu::Options::default());
    // SAFETY: the instance is fresh and belongs to wgpu from here on.
    let own = unsafe { wgpu::Instance::from_hal::<tombolo_cpu::Api>(own) };
    let adapter = pollster::block_on(own.request_adapter(&Default::default()))?;
    adapters.push((own, adapter));
    Ok(adapters)
}

fn main() -> Result<(), Error> {
    let mut rows = Rows {
        processors: Meter {
            clock: Clock::of_processors()?,
        },
        meter: Meter { clock: Clock::Wall },
        wanted: std::env::args().skip(1).collect(),
        lines: Vec::new(),
    };
    // Of a driver's several interfaces the one that both sides would take: CubeCL brings OpenGL into this build.
    let backends = wgpu::Backends::all() - wgpu::Backends::GL;
    let context = Context::with_backends(backends)?;
    let peers = adapters(backends)?;
    let works = work::all()?;
    let bitonic = Keys::new(sort::BITONIC);
    let known = context.adapters();
    let names = words(known.iter().map(|adapter| adapter.name.as_str()));
    for (adapter, name) in known.iter().zip(&names) {
        eprintln!("{}", adapter.name);
        let device = context.device_at(adapter.index)?;
        let same = |(_, one): &&(wgpu::Instance, wgpu::Adapter)| {
            let info = one.get_info();
            let address = adapter.pci_address.as_deref().unwrap_or_default();
            // Two cards may have one name.
            (info.name == adapter.name && info.backend == adapter.backend)
                && info.device_pci_bus_id == address
        };
        let (instance, theirs) = (peers.iter().find(same).cloned())
            .ok_or_else(|| format!("wgpu does not list {}", adapter.name))?;
        let raw =
            Raw::new(&theirs).map_err(|error| format!("wgpu on {}: {error}", adapter.name))?;
        let cube = Cube::new(instance, theirs)
            .map_err(|error| format!("CubeCL on {}: {error}", adapter.name))?;
        rows.overhead(&device, name, "cubecl", With::Cube(&cube))?;
        let meter = rows.meter;
        rows.row("read_64m_pinned", "cubecl", name, OVERHEAD, || {
            overhead::read_64m_pinned(meter, &context, &device, &cube)
        })?;
        for work in &works {
            let ours = || Ours::new(&device, work);
            let theirs = || cube::Ready::new(&cube, work);
            rows.kernel(&device, name, work.row(), "cubecl", ours, theirs)?;
            let theirs = || raw::Ready::new(&raw, work);
            rows.kernel(&device, name, work.row(), "raw", ours, theirs)?;
        }
        let row = ("bitonic_sort", &bitonic.results);
        let ours = || sort::Ours::new(&device, &bitonic);
        let theirs = || sort::on_raw(&raw, &bitonic);
        rows.kernel(&device, name, row, "raw", ours, theirs)?;
        let theirs = || Ok(sort::OnCube::new(&cube, &bitonic));
        rows.kernel(&device, name, row, "cubecl", ours, theirs)?;
        if name == EMBEDDED {
            on_processors(&mut rows, &context, &device, name, &works, &bitonic)?;
        }
    }
    if rows.lines.is_empty() {
        let wanted = rows.wanted.join(", ");
        return Err(format!(
            "no row has {wanted} in its name: rows are called <work>_<peer>/<adapter>"
        )
        .into());
    }
    for line in rows.lines {
        println!("{line}");
    }
    Ok(())
}

/// What PoCL alone has, too: printing, and a device that can be divided.
fn beside_pocl(
    rows: &mut Rows,
    context: &Context,
    device: &Device,
    name: &str,
    pocl: &Pocl,
) -> Result<(), Error> {
    let meter = rows.processors;
    #[cfg(unix)]
    rows.row("print_lines", "pocl", name, OVERHEAD, || {
        print::print_lines(meter, device, pocl)
    })?;
    match pocl.units()? {
        0 | 1 => eprintln!("no row of two devices: PoCL has one core, which cannot be divided"),
        _ => rows.row("stencil_2_devices", "pocl", name, OVERHEAD, || {
            stencil::stencil(meter, context, device, pocl)
        })?,
    }
    Ok(())
}

/// The peers that have no adapter.
fn on_processors(
    rows: &mut Rows,
    context: &Context,
    device: &Device,
    name: &str,
    works: &[Work],
    bitonic: &Keys,
) -> Result<(), Error> {
    let pocl = Pocl::find()?;
    match &pocl {
        Some(pocl) => rows.overhead(device, name, "pocl", With::Pocl(pocl))?,
        None => eprintln!("no PoCL here: its rows are left out"),
    }
    for work in works {
        let ours = || Ours::new(device, work);
        if let Some(pocl) = &pocl {
            let theirs = || opencl::Ready::new(pocl, work);
            rows.kernel(device, name, work.row(), "pocl", ours, theirs)?;
        }
        let theirs = || Ok(ByRayon::new(work));
        rows.kernel(device, name, work.row(), "rayon", ours, theirs)?;
    }
    if let Some(pocl) = &pocl {
        let row = ("bitonic_sort", &bitonic.results);
        let ours = || sort::Ours::new(device, bitonic);
        let theirs = || sort::OnPocl::new(pocl, bitonic);
        rows.kernel(device, name, row, "pocl", ours, theirs)?;
        beside_pocl(rows, context, device, name, pocl)?;
    }
    let radix = Keys::new(sort::RADIX);
    let row = ("radix_sort", &radix.results);
    let ours = || sort::Radix::new(device, &radix);
    let theirs = || Ok(sort::Rayon::new(&radix));
    rows.kernel(device, name, row, "rayon", ours, theirs)?;
    Ok(())
}
