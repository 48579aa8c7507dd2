//! Arguments: the values given to a launch, checked against the kernel's declarations.

use std::sync::Arc;

use bytemuck::NoUninit;

use super::error::LaunchError;
use super::textures;
use crate::device::DeviceShared;
use crate::kernel::layout::{Shape, TypeLayout};
use crate::kernel::reflect::{ArgumentInfo, ArgumentKind};
use crate::memory::buffer::BufferShared;
use crate::memory::buffers::residency_guard::PartView;
use crate::memory::places::{check_words, needed_of_target};
use crate::memory::{BufferView, HeapError, TextureArgument};

/// An argument as given by the program.
#[derive(Debug, Clone)]
pub(crate) enum Given {
    Buffer {
        /// Where the values are.
        view: BufferView,
        /// The launch promises to overwrite the whole buffer.
        overwrites: bool,
        /// The memory bound in its place during the launch.
        staging: Option<Arc<BufferShared>>,
    },
    /// A part of a buffer of the context, before it was brought to the device.
    Elsewhere(PartView),
    Value {
        bytes: Vec<u8>,
        rust: &'static str,
    },
    Texture(TextureArgument),
    Sampler(wgpu::Sampler),
}

impl Given {
    pub(crate) fn of_value<V: NoUninit>(value: &V) -> Self {
        Self::Value {
            bytes: bytemuck::bytes_of(value).to_vec(),
            rust: std::any::type_name::<V>(),
        }
    }

    pub(crate) fn buffer(view: BufferView, overwrites: bool) -> Self {
        Self::Buffer {
            view,
            overwrites,
            staging: None,
        }
    }

    /// The bound buffer, if the argument is a buffer: identity, buffer, and first byte.
    pub(crate) fn bound(&self) -> Option<(u64, &wgpu::Buffer, u64)> {
        match self {
            Self::Buffer {
                staging: Some(memory),
                ..
            } => Some((memory.id, &memory.raw, 0)),
            Self::Buffer { view, .. } => Some((view.shared.id, &view.shared.raw, view.offset)),
            _ => None,
        }
    }

    fn noun(&self) -> &'static str {
        match self {
            Self::Buffer { .. } | Self::Elsewhere(_) => "a buffer",
            Self::Value { .. } => "a value",
            Self::Texture(_) => "a texture",
            Self::Sampler(_) => "a sampler",
        }
    }
}

/// Properties of a buffer in any memory.
struct Span {
    bytes: u64,
    element_bytes: usize,
    element: &'static str,
}

impl From<&BufferView> for Span {
    fn from(view: &BufferView) -> Self {
        Self {
            bytes: view.bytes,
            element_bytes: view.element_bytes,
            element: view.element,
        }
    }
}

impl From<&PartView> for Span {
    fn from(part: &PartView) -> Self {
        Self {
            bytes: part.bytes,
            element_bytes: part.element_bytes,
            element: part.element,
        }
    }
}

/// How a launch reaches an argument that is a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Where it lies: bound, or through the heap.
    Direct,
    /// In a copy.
    Copied,
}

/// Checks an argument against its declaration.
pub(crate) fn check(
    device: &Arc<DeviceShared>,
    kernel: &str,
    info: &ArgumentInfo,
    given: &Given,
    way: Way,
) -> Result<(), LaunchError> {
    let kernel = || kernel.to_string();
    let argument = || info.name.clone();
    match (&info.kind, given) {
        (ArgumentKind::Storage { layout, writable }, Given::Buffer { view, .. }) => {
            let binding = Binding {
                limit: device.limits.max_storage_buffer_binding_size,
                alignment: device.limits.min_storage_buffer_offset_alignment,
                usage: wgpu::BufferUsages::STORAGE,
                writable: *writable,
            };
            check_placement(device, kernel, info, view, &binding, way)?;
            check_elements(kernel, info, layout, &view.into())?;
            check_size(kernel, info, layout, &view.into())
        }
        (ArgumentKind::Uniform { layout }, Given::Buffer { view, .. }) => {
            let binding = Binding {
                limit: device.limits.max_uniform_buffer_binding_size,
                alignment: device.limits.min_uniform_buffer_offset_alignment,
                usage: wgpu::BufferUsages::UNIFORM,
                writable: false,
            };
            // Only the declared bytes are bound, however long the buffer is.
            let mut bound = view.clone();
            bound.bytes = bound.bytes.min(u64::from(layout.size));
            check_placement(device, kernel, info, &bound, &binding, way)?;
            check_size(kernel, info, layout, &view.into())
        }
        (ArgumentKind::Storage { layout, .. }, Given::Elsewhere(part)) => {
            check_filled(kernel, info, part.bytes)?;
            let limit = device.limits.max_storage_buffer_binding_size;
            if part.bytes > limit {
                return Err(LaunchError::BindingTooLarge {
                    kernel: kernel(),
                    argument: argument(),
                    bytes: part.bytes,
                    limit,
                    device: device.capabilities.name.clone(),
                });
            }
            check_elements(kernel, info, layout, &part.into())?;
            check_size(kernel, info, layout, &part.into())
        }
        (ArgumentKind::Uniform { layout }, Given::Elsewhere(part)) => {
            check_size(kernel, info, layout, &part.into())
        }
        (ArgumentKind::Uniform { layout }, Given::Value { bytes, rust }) => {
            let size = layout.size as usize;
            // A value may end where the last member does, or where the type's alignment does.
            let padded = size.next_multiple_of(layout.align.max(1) as usize);
            if bytes.len() == size || bytes.len() == padded {
                Ok(())
            } else {
                Err(LaunchError::UniformSize {
                    kernel: kernel(),
                    argument: argument(),
                    wgsl: layout.wgsl.as_str().into(),
                    size: layout.size,
                    padding: layout.padding_note().into(),
                    value: rust,
                    value_bytes: bytes.len(),
                })
            }
        }
        (ArgumentKind::Texture { binding }, Given::Texture(given)) => {
            textures::check(device, kernel, info, binding, given)
        }
        (ArgumentKind::Sampler { .. }, Given::Sampler(_)) => Ok(()),
        (ArgumentKind::Unsupported { wgsl }, _) => Err(LaunchError::UnsupportedArgument {
            kernel: kernel(),
            argument: argument(),
            wgsl: wgsl.clone(),
        }),
        (kind, given) => Err(LaunchError::WrongKind {
            kernel: kernel(),
            argument: argument(),
            expected: kind.noun(),
            given: given.noun(),
        }),
    }
}

/// What the adapter asks of a binding.
struct Binding {
    limit: u64,
    alignment: u32,
    usage: wgpu::BufferUsages,
    writable: bool,
}

/// wgpu binds nothing of size zero.
fn check_filled(
    kernel: impl Fn() -> String,
    info: &ArgumentInfo,
    bytes: u64,
) -> Result<(), LaunchError> {
    match bytes {
        0 => Err(LaunchError::EmptyArgument {
            kernel: kernel(),
            argument: info.name.clone(),
        }),
        _ => Ok(()),
    }
}

fn check_placement(
    device: &Arc<DeviceShared>,
    kernel: impl Fn() -> String,
    info: &ArgumentInfo,
    view: &BufferView,
    binding: &Binding,
    way: Way,
) -> Result<(), LaunchError> {
    let argument = || info.name.clone();
    if !Arc::ptr_eq(device, &view.shared.device) {
        return Err(LaunchError::OtherDevice {
            kernel: kernel(),
            argument: argument(),
            device: device.capabilities.name.clone(),
            other: view.shared.device.capabilities.name.clone(),
        });
    }
    if let Some((start, end, len)) = view.out_of_range {
        return Err(LaunchError::OutOfRange {
            kernel: kernel(),
            argument: argument(),
            start,
            end,
            len,
        });
    }
    check_filled(&kernel, info, view.bytes)?;
    if view.bytes > binding.limit {
        return Err(LaunchError::BindingTooLarge {
            kernel: kernel(),
            argument: argument(),
            bytes: view.bytes,
            limit: binding.limit,
            device: device.capabilities.name.clone(),
        });
    }
    let size = view.shared.raw.size();
    if view.shared.is_heap && view.range().end > size {
        // The buffer was freed, and its memory given back.
        return Err(HeapError::NotAllocated {
            what: "a pointer argument",
            address: view.address,
            bytes: view.bytes,
        }
        .into());
    }
    check_words("a launch", &view.range(), size)?;
    let usage = view.shared.raw.usage();
    if way == Way::Direct {
        return match usage.contains(binding.usage) {
            true => Ok(()),
            false => Err(LaunchError::MissingUsage {
                kernel: kernel(),
                argument: argument(),
                needed: binding.usage,
            }),
        };
    }
    let mut needed = wgpu::BufferUsages::COPY_SRC;
    if binding.writable {
        needed |= needed_of_target((0, true), &view.place(), view.bytes);
    }
    match usage.contains(needed) {
        true => Ok(()),
        false => Err(LaunchError::Misaligned {
            kernel: kernel(),
            argument: argument(),
            offset: view.offset,
            bytes: view.bytes,
            alignment: binding.alignment,
            needed: needed - usage,
            device: device.capabilities.name.clone(),
        }),
    }
}

/// Compares the buffer's element type with the array's.
///
/// Equal sizes agree. Smaller Rust elements may fill a WGSL element, and larger ones may group several, as long as the
/// WGSL element has no padding that a plain sequence of values would fall into. Buffers of `u8` are raw bytes: their
/// layout is up to the caller.
fn check_elements(
    kernel: impl Fn() -> String,
    info: &ArgumentInfo,
    layout: &TypeLayout,
    view: &Span,
) -> Result<(), LaunchError> {
    let element = view.element_bytes;
    if element == 1 {
        return Ok(());
    }
    let (stride, dense) = match &layout.shape {
        Shape::Array {
            element, stride, ..
        } => (*stride, element.is_dense() && element.size == *stride),
        _ => (layout.size, layout.is_dense()),
    };
    let wide = stride as usize;
    let divides = wide.is_multiple_of(element) || element.is_multiple_of(wide.max(1));
    if element == wide || (dense && divides) {
        return Ok(());
    }
    Err(LaunchError::ElementMismatch {
        kernel: kernel(),
        argument: info.name.clone(),
        wgsl: layout.wgsl.as_str().into(),
        stride,
        padding: layout.padding_note().into(),
        element: view.element,
        element_bytes: element,
    })
}

fn check_size(
    kernel: impl Fn() -> String,
    info: &ArgumentInfo,
    layout: &TypeLayout,
    view: &Span,
) -> Result<(), LaunchError> {
    let needed = u64::from(layout.size);
    let is_array = matches!(layout.shape, Shape::Array { count: None, .. });
    // Raw bytes are padded to whole words by the buffer itself, or in staging memory.
    let seen = match is_array && view.element_bytes == 1 {
        true => view.bytes.next_multiple_of(4),
        false => view.bytes,
    };
    if seen < needed {
        return Err(LaunchError::BufferTooSmall {
            kernel: kernel(),
            argument: info.name.clone(),
            wgsl: layout.wgsl.clone(),
            needed,
            given: view.bytes,
        });
    }
    let stride = match &layout.shape {
        Shape::Array {
            stride,
            count: None,
            ..
        } => *stride,
        _ => return Ok(()),
    };
    if view.element_bytes > 1 && !view.bytes.is_multiple_of(u64::from(stride.max(1))) {
        return Err(LaunchError::PartialElement {
            kernel: kernel(),
            argument: info.name.clone(),
            wgsl: layout.wgsl.clone(),
            stride,
            given: view.bytes,
        });
    }
    Ok(())
}

/// The arguments of a kernel in words, for messages.
pub(crate) fn describe<'a>(arguments: impl Iterator<Item = &'a ArgumentInfo>) -> String {
    let all: Vec<String> = arguments
        .map(|a| format!("`{}` ({})", a.name, a.kind.noun()))
        .collect();
    if all.is_empty() {
        "none".to_string()
    } else {
        all.join(", ")
    }
}
