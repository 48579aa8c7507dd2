//! The filter on the device: the image in tiles, one launch each.

use std::error::Error;
use std::time::Duration;

use bytemuck::{Pod, Zeroable};
use image::RgbaImage;
use tombolo::{Constants, Device, Event, Kernel, Program, buffers::ReadBack, device::Aspect};

/// Values of the windows that one launch may look at, in software and in hardware: enough to keep the
/// device busy, few enough that progress is seen and no watchdog takes notice.
const WORK: [u64; 2] = [1 << 22, 1 << 26];

/// Launches on their way at a time: the next is ready before the one before it has been read.
const AHEAD: usize = 2;

/// The kernel's `Tile`: which part of the image a launch filters, and what of it the buffer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Tile {
    image: [u32; 2],
    corner: [u32; 2],
    size: [u32; 2],
    src_corner: [u32; 2],
    src_size: [u32; 2],
}

/// A median filter of one size on one device.
pub struct Filter {
    device: Device,
    kernel: Kernel,
    n: u32,
}

/// What a run of the filter has made.
pub struct Filtered {
    /// The filtered image.
    pub image: RgbaImage,
    /// Time on the device, where the device has timestamps.
    pub gpu_time: Option<Duration>,
    /// Launches that it took.
    pub launches: usize,
}

struct Pending {
    tile: Tile,
    event: Event,
    pixels: ReadBack<u32>,
}

impl Filter {
    /// Compiles the kernel for windows of `n` x `n` pixels.
    pub fn new(device: &Device, n: u32) -> Result<Self, Box<dyn Error>> {
        let program = Program::new("median.wgsl", include_str!("median.wgsl"))?;
        let kernel = device.kernel(&program, "main", &Constants::new().set("N", n))?;
        Ok(Self {
            device: device.clone(),
            kernel,
            n,
        })
    }

    /// Bytes that the kernel's private arrays take for each invocation.
    pub fn private_bytes(&self) -> u64 {
        self.kernel.private_arrays().iter().map(|a| a.bytes).sum()
    }

    /// The tiles that cover an image of `width` x `height` pixels: bands of whole rows, cut sideways
    /// only where a band of one row is too much for a binding.
    pub fn tiles(&self, width: u32, height: u32) -> Vec<Tile> {
        let capabilities = self.device.capabilities();
        let [software, hardware] = WORK;
        let work = if capabilities.software {
            software
        } else {
            hardware
        };
        let limit = capabilities.storage_binding_bytes / 4;
        tiles([width, height], self.n, work, limit)
    }

    /// Filters an image. `progress` hears the rows of pixels that each launch has finished.
    pub fn run(
        &self,
        image: &RgbaImage,
        mut progress: impl FnMut(u64),
    ) -> Result<Filtered, Box<dyn Error>> {
        let tiles = self.tiles(image.width(), image.height());
        let most = |area: fn(&Tile) -> usize| tiles.iter().map(area).max().unwrap_or(0);
        let src = self.device.zeroed::<u32>(most(|t| area(t.src_size)))?;
        let dst = self.device.zeroed::<u32>(most(|t| area(t.size)))?;
        let profiled = self.device.has(Aspect::TimestampQueries);
        let mut gpu_time = profiled.then_some(Duration::ZERO);

        let mut result = image.clone();
        let mut finish = |pending: Pending| -> Result<(), Box<dyn Error>> {
            let pixels = pending.pixels.wait()?;
            if let Some(total) = &mut gpu_time {
                *total += pending.event.gpu_time()?;
            }
            put(&mut result, &pending.tile, &pixels);
            progress(area(pending.tile.size) as u64);
            Ok(())
        };
        let mut pending = std::collections::VecDeque::with_capacity(AHEAD);
        for tile in &tiles {
            if pending.len() == AHEAD
                && let Some(oldest) = pending.pop_front()
            {
                finish(oldest)?;
            }
            // The queue runs in order, so that one pair of buffers serves all tiles.
            let _written = src.write(0, &take(image, tile))?;
            let mut launch = self
                .kernel
                .launch()
                .buffer("src", &src)
                .overwrite("dst", dst.slice(..area(tile.size) as u64))
                .value("tile", tile)
                .invocations(tile.size);
            if profiled {
                launch = launch.profiled();
            }
            let event = launch.submit()?;
            pending.push_back(Pending {
                tile: *tile,
                event,
                pixels: dst.read_back(..area(tile.size) as u64)?,
            });
        }
        for rest in pending {
            finish(rest)?;
        }
        Ok(Filtered {
            image: result,
            gpu_time,
            launches: tiles.len(),
        })
    }
}

/// Covers `image` with tiles whose windows hold about `work` values, and whose pixels, with those around
/// them, are at most `limit`.
fn tiles(image: [u32; 2], n: u32, work: u64, limit: u64) -> Vec<Tile> {
    let halo = u64::from(n - 1);
    let [width, height] = image.map(u64::from);
    let fit = |other: u64| (limit / (other + halo)).saturating_sub(halo).max(1);
    let columns = width.min(fit(1));
    let rows = (work / (columns.max(1) * u64::from(n * n))).clamp(1, fit(columns));
    let mut tiles = Vec::new();
    for y in (0..height).step_by(rows as usize) {
        for x in (0..width).step_by(columns.max(1) as usize) {
            // Bounded by the image's own size, which is in `u32`.
            let corner = [x as u32, y as u32];
            let end = [
                (x + columns).min(width) as u32,
                (y + rows).min(height) as u32,
            ];
            let src_corner = corner.map(|c| c.saturating_sub(n / 2));
            let src_end = [0, 1].map(|i| end[i].saturating_add(n / 2).min(image[i]));
            tiles.push(Tile {
                image,
                corner,
                size: [0, 1].map(|i| end[i] - corner[i]),
                src_corner,
                src_size: [0, 1].map(|i| src_end[i] - src_corner[i]),
            });
        }
    }
    tiles
}

fn area([width, height]: [u32; 2]) -> usize {
    width as usize * height as usize
}

/// The bytes of row `y` of a part of an image that begins at column `x`.
fn row(image: &RgbaImage, x: u32, y: u32, width: u32) -> std::ops::Range<usize> {
    let start = (y as usize * image.width() as usize + x as usize) * 4;
    start..start + width as usize * 4
}

/// The pixels that the kernel needs for a tile: red in the lowest byte, alpha in the highest.
fn take(image: &RgbaImage, tile: &Tile) -> Vec<u32> {
    let [x, y] = tile.src_corner;
    let [width, height] = tile.src_size;
    (y..y + height)
        .flat_map(|y| image.as_raw()[row(image, x, y, width)].chunks_exact(4))
        .map(|p| u32::from_le_bytes([p[0], p[1], p[2], p[3]]))
        .collect()
}

fn put(image: &mut RgbaImage, tile: &Tile, pixels: &[u32]) {
    let [x, y] = tile.corner;
    let [width, height] = tile.size;
    for (y, values) in (y..y + height).zip(pixels.chunks_exact(width as usize)) {
        let range = row(image, x, y, width);
        for (to, from) in image.as_mut()[range].chunks_exact_mut(4).zip(values) {
            to.copy_from_slice(&from.to_le_bytes());
        }
    }
}
