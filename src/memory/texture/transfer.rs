//! Commands that move texels between the host and a texture, and that set them.

use std::sync::Arc;

use bytemuck::Pod;

use super::{DeviceTexture, TextureError, TextureRegion};
use crate::device::Event;
use crate::memory::MemoryError;
use crate::memory::buffers::End;
use crate::memory::host_memory;
use crate::memory::readback::{ReadBack, ReadError};
use crate::memory::staging::{self, AWAIT_READ, Band, Far, PIECE, bands, receive, send};
use crate::span::span;

impl<T: Pod> DeviceTexture<T> {
    /// Writes all texels: x fastest, then y, then z or layers. The values are taken at once; the write happens after everything
    /// recorded before it.
    ///
    /// # Errors
    /// [`TextureError::Count`]; [`MemoryError::OutOfMemory`] where there is no room for staging memory, after which the texture
    /// may have some of the values if they are more than a few megabytes; [`MemoryError::Execution`] when the device is gone.
    pub fn write(&self, values: &[T]) -> Result<Event, TextureError> {
        self.write_region(self.region(), values)
    }

    /// Writes the texels of a region, in the order of [`DeviceTexture::write`].
    ///
    /// # Errors
    /// As [`DeviceTexture::write`], and [`TextureError::OutOfRange`].
    pub fn write_region(
        &self,
        region: impl Into<TextureRegion>,
        values: &[T],
    ) -> Result<Event, TextureError> {
        const WHAT: &str = "write";
        let region = self.checked(WHAT, region.into())?;
        let texels = region.texels();
        if values.len() as u64 != texels {
            return Err(TextureError::Count {
                what: WHAT,
                values: values.len() as u64,
                texels,
                region,
            });
        }
        let texture = &self.shared;
        if texels == 0 {
            return Ok(Event::complete(&texture.device));
        }
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let _span = span!("write", bytes = bytes.len() as u64);
        let bands = self.bands(region, PIECE).collect();
        let is_whole = region == self.region();
        Ok(send::send_texels(WHAT, texture, bands, is_whole, bytes)?)
    }

    /// Reads all texels: x fastest, then y, then z or layers. Waits until everything recorded before is done.
    ///
    /// # Errors
    /// [`ReadError::Execution`] with the failure of the launch that should have written the texels; with
    /// [`ExecutionError::InHandler`](crate::device::ExecutionError::InHandler) in a function of the host that serves a call of
    /// the device; [`MemoryError::HostMemory`].
    pub fn read(&self) -> Result<Vec<T>, TextureError> {
        self.read_region(self.region())
    }

    /// Reads the texels of a region, in the order of [`DeviceTexture::read`].
    ///
    /// # Errors
    /// As [`DeviceTexture::read`], and [`TextureError::OutOfRange`].
    pub fn read_region(&self, region: impl Into<TextureRegion>) -> Result<Vec<T>, TextureError> {
        const WHAT: &str = "read";
        let region = self.checked(WHAT, region.into())?;
        let texture = &self.shared;
        let submissions = &texture.device.submissions;
        (submissions.may_wait(WHAT, AWAIT_READ))
            .map_err(|error| ReadError::from(Arc::new(error)))?;
        let texels = region.texels();
        let _span = span!("read", bytes = texels * size_of::<T>() as u64);
        if texels == 0 {
            return Ok(Vec::new());
        }
        let len = host_memory::count::<T>(WHAT, texels)?;
        let bands = self.bands(region, PIECE);
        let values = host_memory::filled(WHAT, len, |to| {
            receive::receive_texels(texture, WHAT, bands, to)
        });
        Ok(values?)
    }

    /// Starts reading the texels of a region and returns at once. The region goes through a single staging buffer.
    ///
    /// # Errors
    /// [`TextureError::OutOfRange`]; [`MemoryError::TooLarge`] for a region of more bytes than a buffer may have;
    /// [`MemoryError::OutOfMemory`] where there is no room for staging memory; [`MemoryError::Execution`] when the device is
    /// gone or refused the batch.
    pub fn read_back(&self, region: impl Into<TextureRegion>) -> Result<ReadBack<T>, TextureError> {
        let region = self.checked("read", region.into())?;
        let device = &self.shared.device;
        let Some(band) = self.bands(region, u64::MAX).next() else {
            return Ok(ReadBack::ready(device, Vec::new()));
        };
        let (bytes, limit) = (band.rows.spread(), device.limits.max_buffer_size);
        if bytes > limit {
            return Err(MemoryError::TooLarge {
                bytes,
                limit,
                device: device.capabilities.name.clone(),
            }
            .into());
        }
        Ok(ReadBack::of_texels(&self.shared, band)?)
    }

    /// Sets all texels to `value`.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`] where there is no room for staging memory; [`MemoryError::Execution`] when the device is
    /// gone.
    pub fn fill(&self, value: T) -> Result<Event, TextureError> {
        self.fill_region(self.region(), value)
    }

    /// Sets the texels of a region to `value`.
    ///
    /// # Errors
    /// As [`DeviceTexture::fill`], and [`TextureError::OutOfRange`].
    pub fn fill_region(
        &self,
        region: impl Into<TextureRegion>,
        value: T,
    ) -> Result<Event, TextureError> {
        const WHAT: &str = "fill";
        let region = self.checked(WHAT, region.into())?;
        let texture = &self.shared;
        let device = &texture.device;
        // The first band is the largest, and its memory serves for all.
        let bands: Vec<Band> = self.bands(region, PIECE).collect();
        let Some(first) = bands.first() else {
            return Ok(Event::complete(device));
        };
        let len = host_memory::count::<u8>(WHAT, first.rows.joined())?;
        let mut bytes = host_memory::zeroed::<u8>(WHAT, len)?;
        host_memory::repeat(&mut bytes, bytemuck::bytes_of(&value));
        let pool = staging::of(device);
        let memory = pool.filled_rows(device, WHAT, first.rows, &bytes)?;
        let mut queue = device.queue.lock(device);
        for band in bands {
            let texture = texture.raw.clone();
            let far = Far::Texels { texture, band };
            queue.encode(|encoder| far.store(encoder, &memory));
        }
        if region == self.region() {
            texture.overwritten();
        }
        let batch = queue.batch();
        queue.commit();
        drop(queue);
        pool.give_upload(memory, End::of(device, Arc::clone(&batch)));
        Ok(Event::of_batch(device, batch))
    }

    /// # Errors
    /// [`TextureError::OutOfRange`].
    fn checked(
        &self,
        what: &'static str,
        region: TextureRegion,
    ) -> Result<TextureRegion, TextureError> {
        let size = self.size();
        match region.is_within(size) {
            true => Ok(region),
            false => Err(TextureError::OutOfRange { what, region, size }),
        }
    }

    /// The bands of a region, none for one without texels.
    fn bands(&self, region: TextureRegion, most: u64) -> impl Iterator<Item = Band> + use<T> {
        let texel_bytes = self.shared.texel_bytes;
        let is_empty = region.texels() == 0;
        (!is_empty)
            .then(|| bands(region.origin, region.extent, texel_bytes, most))
            .into_iter()
            .flatten()
    }
}
