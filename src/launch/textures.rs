//! Textures as arguments: checked against the kernel's declarations, and against each other. wgpu alone knows what a view of
//! the program's own shows, so such views are left to wgpu.

use std::sync::Arc;

use super::LaunchError;
use super::arguments::Given;
use crate::device::DeviceShared;
use crate::kernel::reflect::{ArgumentInfo, ArgumentKind, Interface};
use crate::memory::TextureArgument;
use crate::memory::texture::TextureShared;

/// Checks a texture against its declaration.
pub(super) fn check(
    device: &Arc<DeviceShared>,
    kernel: impl Fn() -> String,
    info: &ArgumentInfo,
    binding: &wgpu::BindingType,
    given: &TextureArgument,
) -> Result<(), LaunchError> {
    let Some(texture) = &given.texture else {
        return Ok(());
    };
    if !Arc::ptr_eq(device, &texture.device) {
        return Err(LaunchError::OtherDevice {
            kernel: kernel(),
            argument: info.name.clone(),
            device: device.capabilities.name.clone(),
            other: texture.device.capabilities.name.clone(),
        });
    }
    match mismatch(device, binding, texture) {
        None => Ok(()),
        Some(instead) => Err(LaunchError::TextureMismatch {
            kernel: kernel(),
            argument: info.name.clone(),
            expected: wgsl(binding),
            given: described(texture),
            instead,
        }),
    }
}

/// What to do about a texture that is not as declared; `None` for one that is.
fn mismatch(
    device: &DeviceShared,
    binding: &wgpu::BindingType,
    texture: &TextureShared,
) -> Option<&'static str> {
    const DIMENSION: &str = "make the texture with the dimension that the kernel declares";
    let options = &texture.options;
    match *binding {
        wgpu::BindingType::Texture {
            sample_type,
            view_dimension,
            multisampled,
        } => {
            if !options.sampled {
                return Some("make the texture with TextureOptions::sampled");
            }
            if view_dimension != options.dimension.view() || multisampled {
                return Some(DIMENSION);
            }
            use wgpu::TextureSampleType as S;
            let found = options
                .format
                .sample_type(None, Some(device.raw.features()));
            match (sample_type, found) {
                (S::Uint, Some(S::Uint)) | (S::Sint, Some(S::Sint)) => None,
                (S::Float { filterable }, Some(S::Float { .. })) => (filterable
                    && texture.is_filterable == Some(false))
                .then_some(
                    "the device cannot mix texels of the format: use textureLoad, which takes no sampler, or another format",
                ),
                _ => Some("make the texture with a format whose texels are of the declared type"),
            }
        }
        wgpu::BindingType::StorageTexture {
            format,
            view_dimension,
            ..
        } => {
            if !options.storage {
                return Some("make the texture with TextureOptions::storage");
            }
            if view_dimension != options.dimension.view() {
                return Some(DIMENSION);
            }
            (format != options.format).then_some("give the kernel and the texture the same format")
        }
        _ => None,
    }
}

/// How a kernel uses a texture.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Write(wgpu::StorageTextureAccess),
}

fn use_of(info: &ArgumentInfo) -> Option<Use> {
    match info.kind {
        ArgumentKind::Texture {
            binding: wgpu::BindingType::StorageTexture { access, .. },
        } if access != wgpu::StorageTextureAccess::ReadOnly => Some(Use::Write(access)),
        ArgumentKind::Texture { .. } => Some(Use::Read),
        _ => None,
    }
}

/// The textures of the runtime among arguments.
fn textures<'l>(
    interface: &'l Interface,
    given: &'l [Option<Given>],
) -> impl Iterator<Item = (&'l ArgumentInfo, Use, &'l Arc<TextureShared>)> {
    let arguments = interface.arguments.iter().zip(given);
    arguments.filter_map(|(info, given)| match given {
        Some(Given::Texture(TextureArgument {
            texture: Some(texture),
            ..
        })) => use_of(info).map(|used| (info, used, texture)),
        _ => None,
    })
}

/// The textures to which the kernel may store.
pub(super) fn stored<'l>(
    interface: &'l Interface,
    given: &'l [Option<Given>],
) -> impl Iterator<Item = &'l Arc<TextureShared>> {
    let all = textures(interface, given).filter(|(_, used, _)| *used != Use::Read);
    all.map(|(_, _, texture)| texture)
}

/// Refuses a texture given twice, in ways that wgpu does not take in one dispatch: a texture stored to has a single use.
pub(super) fn check_aliases(
    kernel: &str,
    interface: &Interface,
    given: &[Option<Given>],
) -> Result<(), LaunchError> {
    for (at, (first, one_use, one)) in textures(interface, given).enumerate() {
        for (second, other_use, other) in textures(interface, given).skip(at + 1) {
            if Arc::ptr_eq(one, other) && one_use != other_use {
                return Err(LaunchError::Aliased {
                    kernel: kernel.to_owned(),
                    first: first.name.clone(),
                    second: second.name.clone(),
                });
            }
        }
    }
    Ok(())
}

/// A declaration, in WGSL.
fn wgsl(binding: &wgpu::BindingType) -> String {
    let form = |dimension| match dimension {
        wgpu::TextureViewDimension::D1 => "1d",
        wgpu::TextureViewDimension::D2 => "2d",
        wgpu::TextureViewDimension::D2Array => "2d_array",
        wgpu::TextureViewDimension::Cube => "cube",
        wgpu::TextureViewDimension::CubeArray => "cube_array",
        wgpu::TextureViewDimension::D3 => "3d",
    };
    match *binding {
        wgpu::BindingType::Texture {
            sample_type,
            view_dimension,
            multisampled,
        } => {
            let several = if multisampled { "multisampled_" } else { "" };
            let form = form(view_dimension);
            match sample_type {
                wgpu::TextureSampleType::Depth => format!("texture_depth_{several}{form}"),
                wgpu::TextureSampleType::Sint => format!("texture_{several}{form}<i32>"),
                wgpu::TextureSampleType::Uint => format!("texture_{several}{form}<u32>"),
                wgpu::TextureSampleType::Float { .. } => format!("texture_{several}{form}<f32>"),
            }
        }
        wgpu::BindingType::StorageTexture {
            access,
            format,
            view_dimension,
        } => {
            let access = match access {
                wgpu::StorageTextureAccess::WriteOnly => "write",
                wgpu::StorageTextureAccess::ReadOnly => "read",
                wgpu::StorageTextureAccess::ReadWrite => "read_write",
                wgpu::StorageTextureAccess::Atomic => "atomic",
            };
            // WGSL writes all formats that can be stored to as wgpu does, in small letters.
            let format = format!("{format:?}").to_lowercase();
            format!(
                "texture_storage_{}<{format}, {access}>",
                form(view_dimension)
            )
        }
        _ => "texture".to_owned(),
    }
}

/// A texture, in words.
fn described(texture: &TextureShared) -> String {
    let options = &texture.options;
    let uses = match (options.sampled, options.storage) {
        (true, true) => "sampled and storage",
        (false, true) => "storage",
        _ => "sampled",
    };
    format!(
        "{} texture of {:?} ({uses})",
        options.dimension, options.format
    )
}
