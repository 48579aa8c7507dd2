//! A device of one adapter, and one texture that it and the crate both see.

use crate::support::kernel;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use tombolo_cpu::texel::{Format, Level, Memory, Shape, TexelView};
use wgpu::{TextureAspect, TextureFormat, TextureUsages};

/// A test and its name.
pub type Case = (&'static str, fn(&Gpu));

/// A device of one adapter.
pub struct Gpu {
    pub name: String,
    pub adapter: wgpu::Adapter,
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    /// Compiled kernels by their text: most cases run one with many samplers.
    pipelines: Mutex<HashMap<String, wgpu::ComputePipeline>>,
}

/// The features that formats and samplers ask for, as far as an adapter has them.
const FEATURES: wgpu::Features = wgpu::Features::TEXTURE_FORMAT_16BIT_NORM
    .union(wgpu::Features::TEXTURE_ADAPTER_SPECIFIC_FORMAT_FEATURES)
    .union(wgpu::Features::DEPTH32FLOAT_STENCIL8)
    .union(wgpu::Features::BGRA8UNORM_STORAGE)
    .union(wgpu::Features::FLOAT32_FILTERABLE)
    .union(wgpu::Features::ADDRESS_MODE_CLAMP_TO_BORDER)
    .union(wgpu::Features::RG11B10UFLOAT_RENDERABLE);

impl Gpu {
    /// A device of this crate's own adapter, and of each driver's.
    pub fn all() -> Vec<Self> {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::VULKAN;
        let instance = wgpu::Instance::new(descriptor);
        let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN));
        // SAFETY: the instance is fresh and belongs to wgpu from here on.
        let own = unsafe {
            wgpu::Instance::from_hal::<tombolo_cpu::Api>(tombolo_cpu::Instance::default())
        };
        let own = pollster::block_on(own.request_adapter(&Default::default())).unwrap();
        [own].into_iter().chain(adapters).map(Self::new).collect()
    }

    fn new(adapter: wgpu::Adapter) -> Self {
        let (device, queue) = kernel::open(&adapter, FEATURES);
        let name = adapter.get_info().name;
        let name = name.split(" (").next().unwrap_or(&name).to_owned();
        Self {
            name,
            adapter,
            device,
            queue,
            pipelines: Mutex::default(),
        }
    }

    /// Whether it is the adapter of this crate.
    pub fn is_own(&self) -> bool {
        self.name.starts_with("Tombolo")
    }

    /// Whether the device allows such a texture, and samples it with filters where `filtered`.
    pub fn allows(&self, format: TextureFormat, usage: TextureUsages, filtered: bool) -> bool {
        if !self.device.features().contains(format.required_features()) {
            return false;
        }
        let features = self.adapter.get_texture_format_features(format);
        let filterable = wgpu::TextureFormatFeatureFlags::FILTERABLE;
        features.allowed_usages.contains(usage)
            && (!filtered || features.flags.contains(filterable))
    }

    pub fn buffer(&self, contents: &[u8], usage: wgpu::BufferUsages) -> wgpu::Buffer {
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: contents.len() as u64,
            usage: usage | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.queue.write_buffer(&buffer, 0, contents);
        buffer
    }

    pub fn read(&self, buffer: &wgpu::Buffer) -> Vec<u8> {
        kernel::read((&self.device, &self.queue), buffer)
    }

    /// Runs `main` of a kernel of work-groups of 64 for `count` invocations, with these resources at
    /// bindings 0, 1, … of group 0.
    pub fn run(&self, source: &str, count: u32, resources: &[wgpu::BindingResource]) {
        let pipeline = self
            .pipelines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(source.to_owned())
            .or_insert_with(|| kernel::pipeline(&self.device, source))
            .clone();
        let group = kernel::bind(&self.device, &pipeline, resources.iter().cloned());
        let groups = [count.div_ceil(64), 1, 1];
        kernel::dispatch((&self.device, &self.queue), &pipeline, &group, groups);
    }
}

/// A texture of the device and the same bytes for a view.
pub struct Shared {
    pub texture: wgpu::Texture,
    pub shape: Shape,
    pub levels: Vec<Level>,
    pub layers: u32,
    words: Vec<AtomicU64>,
}

impl Shared {
    /// A texture with bytes from `byte`, all levels of them one after the other.
    pub fn new(
        gpu: &Gpu,
        format: TextureFormat,
        shape: Shape,
        extent: [u32; 3],
        layers: u32,
        levels: u32,
        mut bytes: impl FnMut(usize) -> Vec<u8>,
    ) -> Self {
        let storage = TextureUsages::STORAGE_BINDING;
        let storage = if gpu.allows(format, storage, false) {
            storage
        } else {
            TextureUsages::empty()
        };
        let texture = gpu.device.create_texture(&wgpu::TextureDescriptor {
            label: None,
            size: wgpu::Extent3d {
                width: extent[0],
                height: extent[1],
                depth_or_array_layers: extent[2].max(layers),
            },
            mip_level_count: levels,
            sample_count: 1,
            dimension: match shape {
                Shape::D1 => wgpu::TextureDimension::D1,
                Shape::D3 => wgpu::TextureDimension::D3,
                _ => wgpu::TextureDimension::D2,
            },
            format,
            usage: TextureUsages::TEXTURE_BINDING
                | TextureUsages::COPY_DST
                | TextureUsages::COPY_SRC
                | storage,
            view_formats: &[],
        });
        let size = format.block_copy_size(None).unwrap();
        let mut all = Vec::new();
        let mut described = Vec::new();
        for level in 0..levels {
            let extent = extent.map(|n| (n >> level).max(1));
            let row = (extent[0] * size) as usize;
            let slice = row * extent[1] as usize;
            let slices = extent[2].max(layers);
            described.push(Level {
                offset: all.len(),
                extent,
                row_stride: row,
                slice_stride: slice,
            });
            let contents = bytes(slice * slices as usize);
            gpu.queue.write_texture(
                wgpu::TexelCopyTextureInfo {
                    texture: &texture,
                    mip_level: level,
                    origin: wgpu::Origin3d::ZERO,
                    aspect: TextureAspect::All,
                },
                &contents,
                wgpu::TexelCopyBufferLayout {
                    offset: 0,
                    bytes_per_row: Some(row as u32),
                    rows_per_image: Some(extent[1]),
                },
                wgpu::Extent3d {
                    width: extent[0],
                    height: extent[1],
                    depth_or_array_layers: slices,
                },
            );
            all.extend(contents);
            all.resize(all.len().next_multiple_of(16), 0);
        }
        let words = all
            .chunks_exact(8)
            .map(|word| AtomicU64::new(u64::from_le_bytes(word.try_into().unwrap_or_default())));
        Self {
            texture,
            shape,
            levels: described,
            layers,
            words: words.collect(),
        }
    }

    /// The crate's view of it.
    pub fn view(&self) -> TexelView<'_> {
        TexelView {
            memory: Memory::new(&self.words),
            format: Format::new(self.texture.format(), TextureAspect::All).unwrap(),
            shape: self.shape,
            levels: &self.levels,
            layers: self.layers,
            samples: 1,
            sample_stride: 0,
        }
    }

    /// The device's view of it.
    pub fn bound(&self) -> wgpu::TextureView {
        use wgpu::TextureViewDimension as D;
        self.texture.create_view(&wgpu::TextureViewDescriptor {
            dimension: Some(match self.shape {
                Shape::D1 => D::D1,
                Shape::D2 => D::D2,
                Shape::D2Array => D::D2Array,
                Shape::Cube => D::Cube,
                Shape::CubeArray => D::CubeArray,
                Shape::D3 => D::D3,
            }),
            ..Default::default()
        })
    }
}
