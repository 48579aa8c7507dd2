//! The textures that the fine stage reads: colours of gradients, and the atlas of images.

use tombolo::Device;
use tombolo::wgpu::{self, TextureUsages};
use vello::peniko::ImageData;
use vello_encoding::Ramps;

/// A texture, of a pixel at least.
pub fn make(device: &Device, [width, height]: [u32; 2], usage: TextureUsages) -> wgpu::Texture {
    device.raw().create_texture(&wgpu::TextureDescriptor {
        label: None,
        size: wgpu::Extent3d {
            width: width.max(1),
            height: height.max(1),
            depth_or_array_layers: 1,
        },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: wgpu::TextureFormat::Rgba8Unorm,
        usage,
        view_formats: &[],
    })
}

/// What is written by the host and sampled by a kernel.
const SAMPLED: TextureUsages = TextureUsages::TEXTURE_BINDING.union(TextureUsages::COPY_DST);

/// Writes `width` times `height` pixels of 4 bytes to (`x`, `y`).
pub fn write(device: &Device, to: &wgpu::Texture, [x, y, width, height]: [u32; 4], pixels: &[u8]) {
    let mut place = to.as_image_copy();
    place.origin = wgpu::Origin3d { x, y, z: 0 };
    let layout = wgpu::TexelCopyBufferLayout {
        offset: 0,
        bytes_per_row: Some(width * 4),
        rows_per_image: None,
    };
    let size = wgpu::Extent3d {
        width,
        height,
        depth_or_array_layers: 1,
    };
    device
        .raw_queue()
        .write_texture(place, pixels, layout, size);
}

/// The colours of gradients, one row for each.
pub fn of_ramps(device: &Device, ramps: &Ramps<'_>) -> wgpu::TextureView {
    let texture = make(device, [ramps.width, ramps.height], SAMPLED);
    if ramps.height > 0 {
        let place = [0, 0, ramps.width, ramps.height];
        write(device, &texture, place, bytemuck::cast_slice(ramps.data));
    }
    texture.create_view(&wgpu::TextureViewDescriptor::default())
}

/// The texture that has the images of scenes; it stays, and new images are written to it.
#[derive(Default)]
pub struct Atlas(Option<(wgpu::Texture, wgpu::TextureView)>);

impl Atlas {
    /// Writes the images that are new to an atlas of the size given, and returns its view.
    pub fn with(
        &mut self,
        device: &Device,
        (width, height): (u32, u32),
        images: &[(ImageData, u32, u32)],
    ) -> Result<&wgpu::TextureView, tombolo::Error> {
        let (width, height) = (width.max(1), height.max(1));
        self.0 = self
            .0
            .take()
            .filter(|(texture, _)| (texture.width(), texture.height()) == (width, height));
        let (texture, view) = self.0.get_or_insert_with(|| {
            let texture = make(device, [width, height], SAMPLED);
            let view = texture.create_view(&wgpu::TextureViewDescriptor::default());
            (texture, view)
        });
        if !images.is_empty() {
            // wgpu writes in front of what is submitted next: earlier launches have to be submitted by then.
            device.flush()?;
        }
        for (image, x, y) in images {
            let place = [*x, *y, image.width, image.height];
            write(device, texture, place, image.data.data());
        }
        Ok(view)
    }
}
