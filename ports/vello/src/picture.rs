//! Pictures: a texture to render into, its pixels, how far two are apart, and files.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use tombolo::{Device, DeviceBuffer, wgpu};

use crate::host::textures;

/// Pixels of 4 bytes, row by row.
#[derive(Clone)]
pub struct Picture {
    pub width: u32,
    pub height: u32,
    pub pixels: Vec<u8>,
}

/// How far two pictures are apart.
#[derive(Debug, Clone, Copy)]
pub struct Difference {
    /// The largest difference of a channel.
    pub largest: u8,
    /// Pixels of which a channel differs by more than [`VISIBLE`].
    pub visible: usize,
    /// The mean difference of all channels, of 255.
    pub mean: f64,
    /// The same of the [`BLOCK`] by [`BLOCK`] pixels where it is largest: of edges that are rounded in other ways it is
    /// small, and of something that is missing it is not.
    pub worst: f64,
}

/// How many pixels wide and high the parts are that are compared by themselves.
pub const BLOCK: usize = 16;

/// What the eye sees beside its neighbour, of 255.
pub const VISIBLE: u8 = 8;

impl Picture {
    /// Compares pictures of one size.
    pub fn difference(&self, other: &Self) -> Difference {
        let apart = |(a, b): (&u8, &u8)| a.abs_diff(*b);
        let channels = || self.pixels.iter().zip(&other.pixels).map(apart);
        let pixels = self.pixels.chunks(4).zip(other.pixels.chunks(4));
        let is_visible = |(a, b): &(&[u8], &[u8])| a.iter().zip(*b).map(apart).any(|d| d > VISIBLE);
        Difference {
            largest: channels().max().unwrap_or(0),
            visible: pixels.filter(is_visible).count(),
            mean: channels().map(f64::from).sum::<f64>() / self.pixels.len().max(1) as f64,
            worst: self.worst(other),
        }
    }

    fn worst(&self, other: &Self) -> f64 {
        let row = self.width as usize * 4;
        let across = row.div_ceil(BLOCK * 4);
        let mut sums = vec![0.0; across * (self.height as usize).div_ceil(BLOCK)];
        for (i, (a, b)) in self.pixels.iter().zip(&other.pixels).enumerate() {
            let (x, y) = (i % row / (BLOCK * 4), i / row / BLOCK);
            sums[y * across + x] += f64::from(a.abs_diff(*b));
        }
        sums.into_iter().fold(0.0, f64::max) / (BLOCK * BLOCK * 4) as f64
    }

    /// Where two pictures are apart: the difference of each channel, many times over, on black.
    pub fn amplified_difference(&self, other: &Self) -> Self {
        let channels = self.pixels.iter().zip(&other.pixels).enumerate();
        let apart = |(i, (a, b)): (usize, (&u8, &u8))| match i % 4 {
            3 => u8::MAX,
            _ => a.abs_diff(*b).saturating_mul(8),
        };
        Self {
            width: self.width,
            height: self.height,
            pixels: channels.map(apart).collect(),
        }
    }

    /// Writes a PNG.
    pub fn write(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let file = BufWriter::new(File::create(path)?);
        let mut encoder = png::Encoder::new(file, self.width, self.height);
        encoder.set_color(png::ColorType::Rgba);
        encoder.set_compression(png::Compression::High);
        encoder.write_header()?.write_image_data(&self.pixels)?;
        Ok(())
    }
}

/// A texture that kernels write, and the host reads.
pub struct Target {
    device: Device,
    texture: wgpu::Texture,
    view: wgpu::TextureView,
    /// Rows as wgpu copies them.
    rows: DeviceBuffer<u8>,
}

/// What pixels have before they are rendered.
const POISON: [u8; 4] = [0xff, 0x00, 0xff, 0x5a];

impl Target {
    /// Makes a texture of poison.
    pub fn new(device: &Device, width: u32, height: u32) -> Result<Self, tombolo::Error> {
        let usage = wgpu::TextureUsages::STORAGE_BINDING
            | wgpu::TextureUsages::COPY_SRC
            | wgpu::TextureUsages::COPY_DST;
        let texture = textures::make(device, [width, height], usage);
        let view = texture.create_view(&wgpu::TextureViewDescriptor::default());
        let pitch = (width * 4).next_multiple_of(wgpu::COPY_BYTES_PER_ROW_ALIGNMENT);
        let target = Self {
            device: device.clone(),
            texture,
            view,
            rows: device.zeroed((pitch * height) as usize)?,
        };
        target.poison()?;
        Ok(target)
    }

    /// The view that kernels write.
    pub fn view(&self) -> &wgpu::TextureView {
        &self.view
    }

    /// Makes every pixel poison again.
    pub fn poison(&self) -> Result<(), tombolo::Error> {
        let (width, height) = (self.texture.width(), self.texture.height());
        self.device.flush()?;
        let pixels = POISON.repeat((width * height) as usize);
        let whole = [0, 0, width, height];
        textures::write(&self.device, &self.texture, whole, &pixels);
        Ok(())
    }

    /// The pixels, when everything in front has ended.
    pub fn read(&self) -> Result<Picture, tombolo::Error> {
        let (width, height) = (self.texture.width(), self.texture.height());
        let pitch = self.rows.len() / height as usize;
        self.device.flush()?;
        let mut encoder = self
            .device
            .raw()
            .create_command_encoder(&Default::default());
        encoder.copy_texture_to_buffer(
            self.texture.as_image_copy(),
            wgpu::TexelCopyBufferInfo {
                buffer: self.rows.raw(),
                layout: wgpu::TexelCopyBufferLayout {
                    offset: 0,
                    bytes_per_row: Some(pitch as u32),
                    rows_per_image: None,
                },
            },
            self.texture.size(),
        );
        self.device.raw_queue().submit([encoder.finish()]);
        let rows = self.rows.read()?;
        let pixels = rows
            .chunks(pitch)
            .flat_map(|row| &row[..width as usize * 4]);
        Ok(Picture {
            width,
            height,
            pixels: pixels.copied().collect(),
        })
    }
}
