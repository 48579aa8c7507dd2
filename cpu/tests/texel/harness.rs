//! A device of one adapter, and one texture that it and the crate both see.

use std::sync::atomic::AtomicU64;
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
        let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
            required_features: adapter.features() & FEATURES,
            required_limits: adapter.limits(),
            ..Default::default()
        }))
        .unwrap();
        let name = adapter.get_info().name;
        let name = name.split(" (").next().unwrap_or(&name).to_owned();
        Self {
            name,
            adapter,
            device,
            queue,
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
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: buffer.size(),
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
        self.queue.submit([encoder.finish()]);
        staging.map_async(wgpu::MapMode::Read, .., |mapped| mapped.unwrap());
        self.device
            .poll(wgpu::PollType::wait_indefinitely())
            .unwrap();
        staging.get_mapped_range(..).unwrap().to_vec()
    }

    /// Runs `main` of a kernel of work-groups of 64 for `count` invocations, with these resources at
    /// bindings 0, 1, … of group 0.
    pub fn run(&self, source: &str, count: u32, resources: &[wgpu::BindingResource]) {
        let module = self
            .device
            .create_shader_module(wgpu::ShaderModuleDescriptor {
                label: None,
                source: wgpu::ShaderSource::Wgsl(source.into()),
            });
        let pipeline = self
            .device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: None,
                module: &module,
                entry_point: None,
                compilation_options: Default::default(),
                cache: None,
            });
        let entries: Vec<_> = (0..)
            .zip(resources)
            .map(|(binding, resource)| wgpu::BindGroupEntry {
                binding,
                resource: resource.clone(),
            })
            .collect();
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(count.div_ceil(64), 1, 1);
        drop(pass);
        self.queue.submit([encoder.finish()]);
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

/// Pseudo-random words from an index (splitmix64).
pub fn word(index: u64) -> u64 {
    let z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A pseudo-random number in [0, 1).
pub fn unit(index: u64) -> f64 {
    (word(index) >> 11) as f64 / (1u64 << 53) as f64
}
