//! Textures of a device: memory in the arrangement of the device's own, which kernels load from, sample and store to by
//! coordinates.
//!
//! A texture has one level, and its texels are values of a Rust type of the same size. Kernels see what the format makes of
//! the bytes: four bytes of `Rgba8Unorm` are a `vec4<f32>`. Transfers ([`transfer`]) go through staging memory and the queue
//! as those of buffers do, in the order of recording. Launches take a texture, or a view that the program has made with wgpu,
//! as a [`TextureArgument`].
//!
//! Failures are kept for the texture as a whole: a launch that stores to a texture and fails leaves all texels undefined,
//! until the whole texture is written.

mod error;
mod options;
mod transfer;

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use bytemuck::Pod;

pub use error::TextureError;
pub use options::{TextureDimension, TextureOptions, TextureRegion};

use super::{MemoryError, staging};
use crate::device::outcome::{Outcome, Taint};
use crate::device::wait::lock;
use crate::device::{Device, DeviceShared, capture, unique_id};

/// A texture in the memory of one device, whose texels are written and read as values of `T`: [`Device::texture`].
///
/// Handles are cheap to clone; the memory is freed when the last handle, and the last command using the memory, is gone.
/// Commands on textures run in the order of their recording, with those on buffers and with launches.
pub struct DeviceTexture<T> {
    pub(crate) shared: Arc<TextureShared>,
    element: PhantomData<fn() -> T>,
}

pub(crate) struct TextureShared {
    pub(crate) device: Arc<DeviceShared>,
    pub(crate) raw: wgpu::Texture,
    /// Of the whole texture.
    view: wgpu::TextureView,
    /// In the space of the numbers of buffers.
    pub(crate) id: u64,
    pub(crate) options: TextureOptions,
    texel_bytes: u32,
    /// Whether a sampler may mix texels; `None` where only wgpu knows.
    pub(crate) is_filterable: Option<bool>,
    /// Of the texture as a whole.
    taint: Mutex<Taint>,
}

/// All of a texture, for its taint.
const WHOLE: std::ops::Range<u64> = 0..1;

impl TextureShared {
    /// The outcome of a launch that stores to the texture.
    pub(crate) fn poison(&self, outcome: &Arc<Outcome>) {
        lock(&self.taint).add(WHOLE, outcome);
    }

    /// All texels have values again.
    pub(crate) fn overwritten(&self) {
        lock(&self.taint).overwrite(&WHOLE);
    }

    /// The launches of uncertain or bad outcome that stored to the texture.
    pub(crate) fn depends_on(&self) -> Vec<Arc<Outcome>> {
        lock(&self.taint).touching(&WHOLE)
    }
}

impl Drop for TextureShared {
    fn drop(&mut self) {
        if let Some(tell) = self.device.buffer_gone.get() {
            tell(&self.device, self.id);
        }
    }
}

impl fmt::Debug for TextureShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TextureOptions {
            dimension,
            size,
            format,
            ..
        } = &self.options;
        f.debug_struct("Texture")
            .field("dimension", dimension)
            .field("size", size)
            .field("format", format)
            .finish_non_exhaustive()
    }
}

/// What kernels get of a texture: for [`Launch::texture`](crate::Launch::texture). Made of a [`DeviceTexture`] or of a
/// [`wgpu::TextureView`].
#[derive(Debug, Clone)]
pub struct TextureArgument {
    pub(crate) view: wgpu::TextureView,
    /// The texture, unless wgpu alone knows which one.
    pub(crate) texture: Option<Arc<TextureShared>>,
}

impl<T> From<&DeviceTexture<T>> for TextureArgument {
    fn from(texture: &DeviceTexture<T>) -> Self {
        Self {
            view: texture.shared.view.clone(),
            texture: Some(Arc::clone(&texture.shared)),
        }
    }
}

impl From<&wgpu::TextureView> for TextureArgument {
    fn from(view: &wgpu::TextureView) -> Self {
        view.clone().into()
    }
}

impl From<wgpu::TextureView> for TextureArgument {
    fn from(view: wgpu::TextureView) -> Self {
        Self {
            view,
            texture: None,
        }
    }
}

impl Device {
    /// Makes a texture of zeros, with texels of type `T`.
    ///
    /// ```
    /// use tombolo::textures::TextureOptions;
    /// use tombolo::wgpu::TextureFormat;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = tombolo::Context::new()?.device()?;
    /// let options = TextureOptions::d2([3, 2], TextureFormat::Rgba8Unorm);
    /// let picture = device.texture::<[u8; 4]>(&options)?;
    /// picture.fill([0, 0, 0, 255])?;
    /// picture.write_region(([1, 0], [1, 2]), &[[255, 0, 0, 255]; 2])?;
    /// let texels = picture.read()?; // x fastest
    /// assert_eq!((texels[1], texels[3]), ([255, 0, 0, 255], [0, 0, 0, 255]));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`TextureError::TexelSize`] where `T` has another size than a texel; [`TextureError::Empty`],
    /// [`TextureError::TooLarge`] with the limit; [`TextureError::Format`], and [`TextureError::FormatUse`] where the device
    /// cannot use the format so; [`TextureError::Unused`]; [`MemoryError::OutOfMemory`], and
    /// [`MemoryError::Execution`] where the device is lost.
    pub fn texture<T: Pod>(
        &self,
        options: &TextureOptions,
    ) -> Result<DeviceTexture<T>, TextureError> {
        let shared = TextureShared::new(&self.shared, options, Element::of::<T>())?;
        Ok(DeviceTexture {
            shared: Arc::new(shared),
            element: PhantomData,
        })
    }
}

/// A Rust type.
struct Element {
    bytes: usize,
    name: &'static str,
}

impl Element {
    fn of<T>() -> Self {
        Self {
            bytes: size_of::<T>(),
            name: std::any::type_name::<T>(),
        }
    }
}

impl TextureShared {
    fn new(
        device: &Arc<DeviceShared>,
        options: &TextureOptions,
        element: Element,
    ) -> Result<Self, TextureError> {
        const WHAT: &str = "creating a texture";
        let texel_bytes = texel_bytes(options.format)?;
        if element.bytes != texel_bytes as usize {
            return Err(TextureError::TexelSize {
                format: options.format,
                texel_bytes,
                element: element.name,
                element_bytes: element.bytes,
            });
        }
        check_size(device, options)?;
        let features = check_use(device, options)?;
        let [width, height, depth_or_array_layers] = options.size;
        let mut usage = wgpu::TextureUsages::COPY_SRC | wgpu::TextureUsages::COPY_DST;
        usage.set(wgpu::TextureUsages::TEXTURE_BINDING, options.sampled);
        usage.set(wgpu::TextureUsages::STORAGE_BINDING, options.storage);
        let atomic = wgpu::TextureUsages::STORAGE_ATOMIC;
        let has_atomics = features.is_some_and(|found| found.allowed_usages.contains(atomic))
            && (device.raw.features()).contains(wgpu::Features::TEXTURE_ATOMIC);
        usage.set(atomic, options.storage && has_atomics);
        let label = options.label.as_deref().or(Some("tombolo texture"));
        let descriptor = wgpu::TextureDescriptor {
            label,
            size: wgpu::Extent3d {
                width,
                height,
                depth_or_array_layers,
            },
            mip_level_count: 1,
            sample_count: 1,
            dimension: options.dimension.raw(),
            format: options.format,
            usage,
            view_formats: &[],
        };
        let (made, error) = capture(&device.raw, || {
            let raw = device.raw.create_texture(&descriptor);
            let view = raw.create_view(&wgpu::TextureViewDescriptor {
                label,
                dimension: Some(options.dimension.view()),
                ..Default::default()
            });
            (raw, view)
        });
        let [width, height, depth] = options.size.map(u64::from);
        let bytes = width
            .saturating_mul(height)
            .saturating_mul(depth)
            .saturating_mul(u64::from(texel_bytes));
        if let Some(error) = error {
            return Err(staging::refusal(device, WHAT, bytes, &error).into());
        }
        let lost = |error| MemoryError::Execution(Arc::new(error));
        device.submissions.made_another().map_err(lost)?;
        let (raw, view) = made;
        Ok(Self {
            device: Arc::clone(device),
            raw,
            view,
            id: unique_id(),
            options: options.clone(),
            texel_bytes,
            is_filterable: features.map(|found| {
                let filterable = wgpu::TextureFormatFeatureFlags::FILTERABLE;
                found.flags.contains(filterable)
            }),
            taint: Mutex::default(),
        })
    }
}

/// Bytes of a texel.
///
/// # Errors
/// [`TextureError::Format`].
fn texel_bytes(format: wgpu::TextureFormat) -> Result<u32, TextureError> {
    let refused = |why| Err(TextureError::Format { format, why });
    if format.is_compressed() {
        return refused("texels are compressed in blocks");
    }
    if format.is_multi_planar_format() {
        return refused("texels lie in several planes");
    }
    if format.is_depth_stencil_format() {
        return refused("texels are depth or stencil");
    }
    match format.block_copy_size(None) {
        Some(bytes) => Ok(bytes),
        None => refused("wgpu copies no such texels"),
    }
}

/// # Errors
/// [`TextureError::Empty`], [`TextureError::TooLarge`].
fn check_size(device: &DeviceShared, options: &TextureOptions) -> Result<(), TextureError> {
    let (dimension, size) = (options.dimension, options.size);
    if size.contains(&0) {
        return Err(TextureError::Empty { dimension, size });
    }
    for (limit, asked) in dimension.limits(&device.limits).into_iter().zip(size) {
        let (axis, Some((name, limit))) = limit else {
            if asked > 1 {
                let axis = limit.0;
                return Err(TextureError::Flat {
                    dimension,
                    axis,
                    asked,
                });
            }
            continue;
        };
        if asked > limit {
            return Err(TextureError::TooLarge {
                dimension,
                axis,
                asked,
                limit,
                name,
                device: device.capabilities.name.clone(),
            });
        }
    }
    Ok(())
}

/// What the format can do, if known, for a texture that the device can have.
///
/// # Errors
/// [`TextureError::FormatUse`], [`TextureError::Unused`].
fn check_use(
    device: &DeviceShared,
    options: &TextureOptions,
) -> Result<Option<wgpu::TextureFormatFeatures>, TextureError> {
    let format = options.format;
    if !options.sampled && !options.storage {
        return Err(TextureError::Unused { format });
    }
    let refused = |usage, instead: String| TextureError::FormatUse {
        format,
        usage,
        device: device.capabilities.name.clone(),
        instead,
    };
    let missing = format.required_features() - device.raw.features();
    if !missing.is_empty() {
        let instead = format!(
            "open a device with the features {missing:?} (DeviceOptions::features), or take another format"
        );
        return Err(refused("any texture", instead));
    }
    let Some(features) = device.format_features(format) else {
        return Ok(None);
    };
    let uses = [
        (
            true,
            wgpu::TextureUsages::COPY_SRC,
            "textures that are read",
        ),
        (
            true,
            wgpu::TextureUsages::COPY_DST,
            "textures that are written",
        ),
        (
            options.sampled,
            wgpu::TextureUsages::TEXTURE_BINDING,
            "sampled textures",
        ),
        (
            options.storage,
            wgpu::TextureUsages::STORAGE_BINDING,
            "storage textures",
        ),
    ];
    for (is_asked, usage, name) in uses {
        if is_asked && !features.allowed_usages.contains(usage) {
            let instead = match usage {
                wgpu::TextureUsages::STORAGE_BINDING => {
                    "take a format that every device stores to, such as Rgba8Unorm, R32Float, R32Uint or Rgba32Float, or a \
                     buffer"
                }
                _ => "take another format, or a buffer",
            };
            return Err(refused(name, instead.to_owned()));
        }
    }
    Ok(Some(features))
}

impl<T> DeviceTexture<T> {
    /// How the texels are arranged.
    pub fn dimension(&self) -> TextureDimension {
        self.shared.options.dimension
    }

    /// Texels in x, in y, and in z or layers.
    pub fn size(&self) -> [u32; 3] {
        self.shared.options.size
    }

    /// How a texel is stored.
    pub fn format(&self) -> wgpu::TextureFormat {
        self.shared.options.format
    }

    /// The whole texture.
    pub fn region(&self) -> TextureRegion {
        TextureRegion::new([0; 3], self.size())
    }

    /// The wgpu texture, for the program's own commands. Call [`Device::flush`] first.
    pub fn raw(&self) -> &wgpu::Texture {
        &self.shared.raw
    }

    /// A view of the whole texture, for the program's own commands. Launches take the texture itself.
    pub fn view(&self) -> &wgpu::TextureView {
        &self.shared.view
    }

    /// The device that the texture belongs to.
    pub fn device(&self) -> Device {
        Device {
            shared: Arc::clone(&self.shared.device),
        }
    }

    /// Declares the texels good again after a failed launch, whatever they are: the error of a read is dropped.
    pub fn clear_error(&self) {
        self.shared.overwritten();
    }
}

impl<T> Clone for DeviceTexture<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            element: PhantomData,
        }
    }
}

impl<T> fmt::Debug for DeviceTexture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceTexture")
            .field("dimension", &self.dimension())
            .field("size", &self.size())
            .field("format", &self.format())
            .field("texel", &std::any::type_name::<T>())
            .finish_non_exhaustive()
    }
}
