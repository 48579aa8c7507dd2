//! Layouts and groups of bindings.

use std::sync::Arc;

use wgpu_hal as hal;
use wgpu_types as wgt;

use super::{Absent, Buffer, DeviceResult, Sampler, TextureView, buffer};

/// The layout of a group.
#[derive(Clone, Debug)]
pub struct BindGroupLayout {
    /// Sorted by binding
    entries: Arc<[wgt::BindGroupLayoutEntry]>,
}

impl BindGroupLayout {
    pub(super) fn new(desc: &hal::BindGroupLayoutDescriptor) -> Self {
        let mut entries = desc.entries.to_vec();
        entries.sort_by_key(|entry| entry.binding);
        Self {
            entries: entries.into(),
        }
    }
}

/// The layout of a pipeline. Kernels name their bindings themselves.
#[derive(Clone, Debug)]
pub struct PipelineLayout;

/// A bound resource.
#[derive(Clone, Debug)]
pub(super) struct BoundEntry {
    binding: u32,
    /// The element of an array of bindings
    element: u32,
    pub(super) resource: Resource,
}

/// A bindable resource.
#[derive(Clone, Debug)]
pub(super) enum Resource {
    Buffer {
        buffer: Buffer,
        offset: u64,
        bytes: u64,
        /// The place of the dynamic offset added to `offset`
        dynamic: Option<usize>,
    },
    Texture(TextureView),
    Sampler(Sampler),
}

/// Resources bound together.
#[derive(Clone, Debug)]
pub struct BindGroup {
    /// Sorted by binding and element
    entries: Arc<[BoundEntry]>,
}

type Descriptor<'a> =
    hal::BindGroupDescriptor<'a, BindGroupLayout, Buffer, Sampler, TextureView, Absent>;

impl BindGroup {
    /// Takes the resources of a descriptor over.
    ///
    /// # Errors
    /// [`hal::DeviceError::Unexpected`] if the descriptor does not fit its layout; wgpu-core rules it out.
    pub(super) fn new(desc: &Descriptor) -> DeviceResult<Self> {
        let mut entries = Vec::new();
        let mut dynamic = 0;
        for layout in desc.layout.entries.iter() {
            let entry = desc
                .entries
                .iter()
                .find(|entry| entry.binding == layout.binding);
            let entry = entry.ok_or(hal::DeviceError::Unexpected)?;
            let mut offset = None;
            if let wgt::BindingType::Buffer {
                has_dynamic_offset: true,
                ..
            } = layout.ty
            {
                offset = Some(dynamic);
                dynamic += 1;
            }
            for element in 0..entry.count {
                let index = (entry.resource_index + element) as usize;
                let resource = resource(desc, layout.ty, index, offset);
                entries.push(BoundEntry {
                    binding: layout.binding,
                    element,
                    resource: resource.ok_or(hal::DeviceError::Unexpected)?,
                });
            }
        }
        Ok(Self {
            entries: entries.into(),
        })
    }

    /// The resource bound somewhere.
    pub(super) fn find(&self, binding: u32, element: u32) -> Option<&Resource> {
        let key = |bound: &BoundEntry| (bound.binding, bound.element);
        let found = self.entries.binary_search_by_key(&(binding, element), key);
        found.ok().map(|index| &self.entries[index].resource)
    }
}

/// The resource of a descriptor with an index among all of its kind.
fn resource(
    desc: &Descriptor,
    ty: wgt::BindingType,
    index: usize,
    dynamic: Option<usize>,
) -> Option<Resource> {
    match ty {
        wgt::BindingType::Buffer { .. } => {
            let binding = desc.buffers.get(index)?;
            let buffer = buffer::of_binding(binding)?;
            let rest = buffer.bytes().saturating_sub(binding.offset);
            Some(Resource::Buffer {
                bytes: binding.size.map_or(rest, |size| size.get().min(rest)),
                offset: binding.offset,
                buffer,
                dynamic,
            })
        }
        wgt::BindingType::Texture { .. } | wgt::BindingType::StorageTexture { .. } => {
            Some(Resource::Texture(desc.textures.get(index)?.view.clone()))
        }
        wgt::BindingType::Sampler(_) => {
            let sampler: &Sampler = desc.samplers.get(index)?;
            Some(Resource::Sampler(sampler.clone()))
        }
        _ => None,
    }
}
