//! A device's view of the heap: imported memory, or its mirror.
//!
//! Smaller adapters can be tried anywhere: `DeviceOptions::storage_binding_bytes` lowers what a device binds at once,
//! and with it the segments. Allocations stay within the smallest segment of the devices that the context has opened;
//! a device that would need smaller parts than the heap has already is refused.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytemuck::Pod;

use super::device_memory::{DeviceMemory, DevicePlace, first_tag, own_view};
use super::{HeapError, HeapShared, Memory};
use crate::device::heap_shape::{HeapShape, segment_bytes};
use crate::device::import::import_host;
use crate::device::submissions::Held;
use crate::device::wait::lock;
use crate::device::{DeviceShared, unique_id};
use crate::memory::buffer::{BufferShared, BufferView};
use crate::memory::pointer::{PointerKind, Ptr};

/// The buffers through which a device sees the heap: segments of equal size, the last one shorter.
#[derive(Debug, Clone)]
pub(crate) struct DeviceView {
    pub(super) owner: Weak<DeviceShared>,
    /// The heap's first address.
    pub(crate) base: u64,
    /// Where that is in the first segment.
    pub(crate) front: u64,
    /// Bytes of the heap that the segments cover.
    pub(crate) covered: u64,
    /// Each with its identity for the bind-group cache.
    pub(crate) segments: Vec<(u64, wgpu::Buffer)>,
    /// The segments of the device's own memory.
    pub(crate) own: Vec<(u64, wgpu::Buffer)>,
    /// The parts of the allocation table, for kernels with checks, and the table of the device's own memory.
    pub(crate) tables: Vec<(u64, wgpu::Buffer)>,
    pub(crate) own_table: Option<(u64, wgpu::Buffer)>,
}

impl DeviceView {
    /// The device, if still there.
    pub(super) fn device(&self) -> Option<Arc<DeviceShared>> {
        self.owner.upgrade()
    }

    /// The shape in which kernels of `device`, whose view this is, are compiled for it.
    pub(crate) fn shape(&self, device: &DeviceShared) -> HeapShape {
        HeapShape {
            shared: self.segments.len() as u32,
            own: self.own.len() as u32,
            first_tag: match self.own.is_empty() {
                true => 1,
                false => first_tag(device),
            },
            window_aligned: self.base as u32 == 0,
            tables: self.tables.len() as u32,
        }
    }
}

impl HeapShared {
    /// Makes sure that no allocation lies in two segments of the device, possible only in memory laid out by the heap
    /// before such a device was known.
    pub(super) fn check_parts(&self, device: &DeviceShared) -> Result<(), HeapError> {
        let step = segment_bytes(&device.limits);
        let state = lock(&self.state);
        let mut blocks = state.region.blocks();
        let crosses =
            blocks.find(|block| block.base / step != (block.base + block.size - 1) / step);
        match crosses {
            None => Ok(()),
            Some(block) => Err(HeapError::Unsupported {
                device: device.capabilities.name.clone(),
                why: format!(
                    "it binds {step} bytes at once, and the heap has had a part of {} bytes since before \
                     the device was opened; open the device first",
                    block.size
                ),
            }),
        }
    }

    /// The device's view of everything backed by memory now.
    ///
    /// A heap that has grown since is imported anew from the start of its last segment, after the device has finished
    /// its work: two buffers over the same bytes are unrelated to wgpu, and nothing else would order the commands using
    /// them.
    pub(crate) fn view(&self, device: &Arc<DeviceShared>) -> Result<DeviceView, HeapError> {
        let unsupported = |why: String| HeapError::Unsupported {
            device: device.capabilities.name.clone(),
            why,
        };
        if self.is_mirrored(device) {
            return self.mirror_view(device);
        }
        let window = match &self.memory {
            Memory::Window(window) => window,
            Memory::Live(live) => return Ok(live.view(device, self.committed()?)),
            Memory::Block(_) => return self.mirror_view(device),
        };
        let committed = self.committed()?;
        let mut views = lock(&self.views);
        views.retain(|_, view| view.owner.strong_count() > 0);
        if let Some(view) = views.get(&device.id)
            && view.covered == committed
        {
            let mut view = view.clone();
            view.own = DeviceMemory::segments(device);
            return Ok(view);
        }
        self.check_parts(device)?;
        let step = segment_bytes(&device.limits);
        let old = views.get(&device.id);
        // Whole segments stay; the last is imported again with its new length.
        let kept = old.map_or(0, |view| (view.covered / step) as usize);
        let mut segments: Vec<(u64, wgpu::Buffer)> =
            old.map_or_else(Vec::new, |view| view.segments[..kept].to_vec());
        if let Some(old) = old {
            // Before the device is asked to finish: a thread that sees the old number with the queue in hand is waited
            // for.
            self.imports.fetch_add(1, Ordering::SeqCst);
            let _held = Held::new("a heap that has grown").map_err(Arc::new)?;
            device.finish()?;
            if let Some(tell) = device.buffer_gone.get() {
                for (id, _) in &old.segments[kept..] {
                    tell(device, *id);
                }
            }
        }
        let mut at = kept as u64 * step;
        while at < committed {
            let bytes = step.min(committed - at);
            let buffer = import_host(&device.raw, window, at..at + bytes, "shared heap")
                .map_err(|error| unsupported(error.to_string()))?;
            segments.push((unique_id(), buffer));
            at += bytes;
        }
        let view = DeviceView {
            owner: Arc::downgrade(device),
            base: self.base(),
            front: 0,
            covered: committed,
            segments,
            own: DeviceMemory::segments(device),
            tables: Vec::new(),
            own_table: None,
        };
        views.insert(device.id, view.clone());
        Ok(view)
    }

    /// A number that changes with memory not seen by earlier launches.
    pub(crate) fn grown(&self) -> u64 {
        self.grown.load(Ordering::SeqCst)
    }

    /// A number that has changed if a view taken since may be out of date.
    pub(crate) fn imports(&self) -> u64 {
        self.imports.load(Ordering::SeqCst)
    }

    /// An argument in a segment imported anew since, in the new segment.
    pub(crate) fn imported_anew(&self, argument: &BufferView) -> Option<BufferView> {
        let device = &argument.shared.device;
        let views = lock(&self.views);
        self.moved(argument, &views.get(&device.id)?.segments)
    }

    /// An argument outside of the device's segments, in the segment with its address.
    pub(super) fn moved(
        &self,
        argument: &BufferView,
        segments: &[(u64, wgpu::Buffer)],
    ) -> Option<BufferView> {
        let device = &argument.shared.device;
        if segments.iter().any(|(id, _)| *id == argument.shared.id) {
            return None;
        }
        // Allocations in the device's own memory stay where they are.
        let offset = argument.address.checked_sub(self.base())?;
        let index = usize::try_from(offset / segment_bytes(&device.limits)).ok()?;
        let (id, segment) = segments.get(index)?;
        Some(BufferView {
            shared: BufferShared::new(device, segment.clone(), *id, true),
            ..argument.clone()
        })
    }

    /// The `len` values at `ptr` as an argument of a launch on `device`.
    pub(crate) fn argument<T: Pod>(
        &self,
        device: &Arc<DeviceShared>,
        ptr: Ptr<T>,
        len: u64,
    ) -> Result<BufferView, HeapError> {
        const WHAT: &str = "a pointer argument";
        let bytes = len.saturating_mul(size_of::<T>() as u64);
        let ptr = match ptr.kind() {
            PointerKind::Device => {
                match DeviceMemory::resolve(device, WHAT, ptr.address(), bytes)? {
                    DevicePlace::Shared(address) => Ptr::<T>::from_address(address),
                    DevicePlace::Own { .. } => return own_view(device, WHAT, ptr, bytes),
                }
            }
            PointerKind::Null | PointerKind::Shared => ptr,
        };
        let (offset, found) = self.locate(&lock(&self.state), WHAT, ptr, bytes)?;
        // Allocations are granted whole words.
        let padded = offset + bytes == found.address + found.requested;
        let view = self.view(device)?;
        let offset = view.front + offset;
        let step = segment_bytes(&device.limits);
        let (first, last) = (offset / step, (offset + bytes.max(1) - 1) / step);
        let segment = view.segments.get(first as usize);
        let (Some((id, segment)), true) = (segment, first == last) else {
            return Err(HeapError::TooLarge {
                bytes,
                limit: step - offset % step,
                instead: "the device cannot bind it at once; pass it in parts",
            });
        };
        Ok(BufferView {
            shared: BufferShared::new(device, segment.clone(), *id, true),
            offset: offset % step,
            bytes,
            element_bytes: size_of::<T>(),
            element: std::any::type_name::<T>(),
            address: ptr.address(),
            out_of_range: None,
            padded,
        })
    }
}
