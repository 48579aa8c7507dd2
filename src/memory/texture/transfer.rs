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

/// The name of reading in errors.
const READ: &str = "read";

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
        let texels = self.counted(WHAT, region, values.len())?;
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
        let region = self.readable(region.into())?;
        let texels = region.texels();
        let _span = span!("read", bytes = texels * size_of::<T>() as u64);
        if texels == 0 {
            return Ok(Vec::new());
        }
        let len = host_memory::count::<T>(READ, texels)?;
        let bands = self.bands(region, PIECE);
        let values = host_memory::filled(READ, len, |to| {
            receive::receive_texels(&self.shared, READ, bands, to)
        });
        Ok(values?)
    }

    /// Reads all texels into `values`, in the order of [`DeviceTexture::read`], and waits as that does. Faster where the
    /// memory is used again and again: new memory is given pages by the system while it is filled.
    ///
    /// # Errors
    /// As [`DeviceTexture::read`], and [`TextureError::Count`] unless there is one value for each texel. `values` may have
    /// changed after an error of another kind.
    pub fn read_into(&self, values: &mut [T]) -> Result<(), TextureError> {
        self.read_region_into(self.region(), values)
    }

    /// Reads the texels of a region into `values`, as [`DeviceTexture::read_into`].
    ///
    /// # Errors
    /// As [`DeviceTexture::read_into`], and [`TextureError::OutOfRange`].
    pub fn read_region_into(
        &self,
        region: impl Into<TextureRegion>,
        values: &mut [T],
    ) -> Result<(), TextureError> {
        let region = self.readable(region.into())?;
        let texels = self.counted(READ, region, values.len())?;
        let _span = span!("read", bytes = texels * size_of::<T>() as u64);
        if texels == 0 {
            return Ok(());
        }
        let bands = self.bands(region, PIECE);
        let read: Result<(), ReadError> =
            host_memory::overwritten(READ, bytemuck::cast_slice_mut(values), |to| {
                receive::receive_texels(&self.shared, READ, bands, to)
            });
        Ok(read?)
    }

    /// The region, if it is within the texture and this thread may wait for its texels.
    fn readable(&self, region: TextureRegion) -> Result<TextureRegion, TextureError> {
        let region = self.checked(READ, region)?;
        let submissions = &self.shared.device.submissions;
        (submissions.may_wait(READ, AWAIT_READ))
            .map_err(|error| ReadError::from(Arc::new(error)))?;
        Ok(region)
    }

    /// The texels of a region, for which there are so many values.
    ///
    /// # Errors
    /// [`TextureError::Count`].
    fn counted(
        &self,
        what: &'static str,
        region: TextureRegion,
        values: usize,
    ) -> Result<u64, TextureError> {
        let texels = region.texels();
        match values as u64 == texels {
            true => Ok(texels),
            false => Err(TextureError::Count {
                what,
                values: values as u64,
                texels,
                region,
            }),
        }
    }

    /// Starts reading the texels of a region and returns at once. The region goes through a single staging buffer.
    ///
    /// # Errors
    /// [`TextureError::OutOfRange`]; [`MemoryError::TooLarge`] for a region of more bytes than a buffer may have;
    /// [`MemoryError::OutOfMemory`] where there is no room for staging memory; [`MemoryError::Execution`] when the device is
    /// gone or refused the batch.
    pub fn read_back(&self, region: impl Into<TextureRegion>) -> Result<ReadBack<T>, TextureError> {
        let region = self.checked(READ, region.into())?;
        let device = &self.shared.device;
        let Some(band) = self.bands(region, u64::MAX).next() else {
            return Ok(ReadBack::ready(Vec::new()));
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
